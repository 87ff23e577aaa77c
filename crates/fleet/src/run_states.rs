//! Hosts with one run: whether states that single figures have by chance explain a metric or an area that is out as a whole.
//!
//! One run shows the sum of what is the host's and what is the run's. Only other hosts and other figures tell these apart: hosts that are
//! alike have the same states of runs (a frequency, a placement, a neighbour). So a figure alone names no host with one run.

use crate::cells::Cell;
use crate::families::FamilyMember;

/// A state of figures of a family is at least this part as far out as the family.
const LIKE_SHARE: f64 = 0.5;

/// The chance that so many figures of a family are in states at once, if each is so independently of the others and as often as for the
/// other hosts. `cells_of` has the cells of each series.
pub(crate) fn family_chance<'c>(members: &[FamilyMember], whole: &Cell, cells_of: impl Fn(usize) -> &'c [Cell]) -> f64 {
    let bound = LIKE_SHARE * whole.log_ratio.abs();
    let mut own_count = 0;
    let mut chances = Vec::new();
    for &FamilyMember { series, worse_sign } in members {
        let is_alike = |cell: &&Cell| worse_sign * whole.log_ratio.signum() * cell.log_ratio >= bound;
        let cells = cells_of(series);
        let Some(own) = cells.iter().find(|cell| cell.host == whole.host) else { continue };
        own_count += usize::from(is_alike(&own));
        let alike = cells.iter().filter(is_alike).count() - usize::from(is_alike(&own));
        chances.push(alike as f64 / (cells.len() - 1).max(1) as f64);
    }
    poisson_binomial_upper_tail(&chances, own_count)
}

/// The chance that at least `count` of independent events occur.
fn poisson_binomial_upper_tail(chances: &[f64], count: usize) -> f64 {
    // The chance of each number of events so far; all that reach the count are one.
    let mut of_counts = vec![0.0; count + 1];
    of_counts[0] = 1.0;
    for chance in chances {
        let reached = of_counts[count];
        for number in (1..=count).rev() {
            of_counts[number] = of_counts[number] * (1.0 - chance) + of_counts[number - 1] * chance;
        }
        of_counts[0] *= 1.0 - chance;
        if count > 0 {
            of_counts[count] += reached * chance;
        }
    }
    if count == 0 { 1.0 } else { of_counts[count] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(host: usize, share: f64, distance: f64) -> Cell {
        Cell {
            host,
            distance,
            least_distance: distance,
            tail_distance: distance,
            greatest_distance: distance,
            hits: 1,
            log_ratio: (1.0 + share).ln(),
        }
    }

    #[test]
    fn figures_of_a_family_are_in_states_by_chance() {
        // Three figures, in each of which one of four other hosts is as far out.
        let series: Vec<Vec<Cell>> = (0..3)
            .map(|index| {
                (0..5).map(|host| cell(host, if host == 4 || host == index { 0.2 } else { 0.0 }, 9.0)).collect()
            })
            .collect();
        let members: Vec<FamilyMember> = (0..3).map(|series| FamilyMember { series, worse_sign: 1.0 }).collect();
        let chance = family_chance(&members, &cell(4, 0.2, 9.0), |index| &series[index]);
        assert!((chance - 0.25f64.powi(3)).abs() < 1e-12);
        // Where less is worse, none of them is on the side that is meant.
        let members: Vec<FamilyMember> = (0..3).map(|series| FamilyMember { series, worse_sign: -1.0 }).collect();
        assert_eq!(family_chance(&members, &cell(4, 0.2, 9.0), |index| &series[index]), 1.0);
    }

    #[test]
    fn poisson_binomial_is_exact() {
        // Of two events with 1/2 and 1/4: none 3/8, one 1/2, two 1/8.
        let tail = |count| poisson_binomial_upper_tail(&[0.5, 0.25], count);
        assert_eq!([tail(0), tail(1), tail(2), tail(3)], [1.0, 0.625, 0.125, 0.0]);
        // Binomial: C(4, 3) / 16 + 1 / 16.
        assert_eq!(poisson_binomial_upper_tail(&[0.5; 4], 3), 5.0 / 16.0);
    }
}
