//! With one run of each host: whether a state that runs have by chance explains what looks like a host that is out.
//!
//! One run shows the sum of what is the host's and what is the run's. Only the other hosts and the other figures tell these apart: a state of
//! runs (a frequency, a placement, a neighbour) shows there too, since hosts that are alike have the same states. What no state explains that
//! another host shows may still be a state that only this run had.

use std::collections::HashMap;

use crate::cells::{Cell, MIN_DISTANCE};
use crate::families::FamilyMember;

/// A state of figures of a family is at least this part as far out as the family.
const LIKE_SHARE: f64 = 0.5;
/// A state that more runs have hardly ever leaves one alone.
const MAX_STATE_RUNS: usize = 40;

/// A host in a figure.
#[derive(Clone, Copy, Debug)]
struct Stray {
    excess: f32,
    host: u32,
}

/// How far single runs lie from those of other hosts, in all figures of a group.
#[derive(Debug, Default)]
pub(crate) struct RunStates {
    threshold: f64,
    hosts: usize,
    /// Of each figure the hosts far below and far above their peers, the farthest first.
    sides: Vec<[Vec<Stray>; 2]>,
    /// The excesses of each host in the figures in which no other host is nearly as far out, the largest first.
    lone: HashMap<u32, Vec<f32>>,
}

impl RunStates {
    /// By the cells of figures, each with its index, and those cells of them that are candidates. Hosts that may be out are among them: nothing
    /// shows that a run of theirs is in no state.
    pub fn new<'c>(
        threshold: f64,
        cells: impl Iterator<Item = (usize, &'c Cell)>,
        candidates: impl Iterator<Item = &'c Cell>,
    ) -> Self {
        let mut states = Self { threshold, ..Self::default() };
        for (figure, cell) in cells {
            states.hosts = states.hosts.max(cell.host + 1);
            states.sides.resize_with(states.sides.len().max(figure + 1), Default::default);
            let excess = states.excess(cell);
            if excess >= 1.0 {
                let side = usize::from(cell.log_ratio > 0.0);
                states.sides[figure][side].push(Stray { excess: excess as f32, host: cell.host as u32 });
            }
        }
        let farthest_first = |strays: &mut Vec<Stray>| strays.sort_unstable_by(|a, b| b.excess.total_cmp(&a.excess));
        states.sides.iter_mut().flatten().for_each(farthest_first);
        for cell in candidates {
            let excess = states.excess(cell) as f32;
            states.lone.entry(cell.host as u32).or_default().push(excess);
        }
        states.lone.values_mut().for_each(|excesses| excesses.sort_unstable_by(|a, b| b.total_cmp(a)));
        states
    }

    /// By what factor a cell is beyond both limits of what may be out: the share, and the distance.
    fn excess(&self, cell: &Cell) -> f64 {
        let share = (cell.log_ratio.exp() - 1.0).abs();
        (share / self.threshold.max(f64::MIN_POSITIVE)).min(cell.robust_distance / MIN_DISTANCE)
    }

    /// How many runs are expected to be alone in a state at least this far out, by the other hosts in all figures. A state that k of n runs
    /// have in a figure has k / n of all runs, by maximum likelihood, and exactly one of n with the chance k (1 - k / n)^(n - 1).
    fn expected_lone_runs(&self, host: usize, excess: f32) -> f64 {
        let runs = self.hosts as f64;
        let expected = |strays: &Vec<Stray>| {
            let alike = strays.partition_point(|stray| stray.excess >= excess);
            if alike > MAX_STATE_RUNS {
                return 0.0;
            }
            let others = strays[..alike].iter().filter(|stray| stray.host as usize != host).count() as f64;
            others * (1.0 - others / runs).max(0.0).powf(runs - 1.0)
        };
        self.sides.iter().flatten().map(expected).sum()
    }

    /// The chance that states of its only run explain a host's figures: for each cell, that so many figures are at least as far out as it.
    pub fn chances(&self, host: usize, cells: &[&Cell]) -> Vec<f64> {
        let mut order: Vec<(usize, f32)> =
            cells.iter().enumerate().map(|(index, cell)| (index, self.excess(cell) as f32)).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut chances = vec![1.0; cells.len()];
        // As in a step-up test: what a larger number of figures shows holds for the farther ones too.
        let mut least = 1.0_f64;
        for (rank, &(index, excess)) in order.iter().enumerate().rev() {
            let count = rank + 1;
            let mean = self.expected_lone_runs(host, excess) / self.hosts.max(1) as f64;
            // Figures of one run may be in a state together, which shows in other hosts that have half as many.
            let is_alike = |(other, lone): &(&u32, &Vec<f32>)| {
                **other as usize != host && lone.get(count.div_ceil(2) - 1).is_some_and(|&other| other >= excess)
            };
            let alike = if count > 1 { self.lone.iter().filter(is_alike).count() } else { 0 };
            let by_hosts = alike as f64 / self.hosts.max(1) as f64;
            least = least.min(poisson_upper_tail(mean, count).max(by_hosts));
            chances[index] = least;
        }
        chances
    }

    /// The share by which a single figure must differ so that no state that another host shows is as far out.
    pub fn least_share(&self) -> f64 {
        let strays = self.sides.iter().flatten().filter_map(|side| side.first());
        self.threshold * strays.map(|stray| f64::from(stray.excess)).fold(1.0, f64::max)
    }
}

/// The chance of at least `count` events where `mean` are expected (Poisson).
fn poisson_upper_tail(mean: f64, count: usize) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    let mut term = (1..=count).fold((-mean).exp(), |term, number| term * mean / number as f64);
    let (mut sum, mut number) = (0.0, count);
    while term > sum * 1e-12 {
        sum += term;
        number += 1;
        term *= mean / number as f64;
    }
    sum.min(1.0)
}

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

    fn cell(host: usize, share: f64, robust_distance: f64) -> Cell {
        Cell {
            host,
            distance: robust_distance,
            robust_distance,
            least_distance: robust_distance,
            tail_distance: robust_distance,
            greatest_distance: robust_distance,
            hits: 1,
            log_ratio: (1.0 + share).ln(),
        }
    }

    /// Figures of ten hosts: for each the hosts that are 25 % and nine spreads out, of which one alone is a candidate.
    fn states(figures: &[&[usize]]) -> RunStates {
        let cells: Vec<(usize, Cell)> = figures
            .iter()
            .enumerate()
            .flat_map(|(figure, far)| {
                let far_cell = move |host: usize| cell(host, if far.contains(&host) { 0.25 } else { 0.0 }, 9.0);
                (0..10).map(move |host| (figure, far_cell(host)))
            })
            .collect();
        let lone = figures.iter().filter(|far| far.len() == 1).map(|far| cell(far[0], 0.25, 9.0));
        let lone: Vec<Cell> = lone.collect();
        RunStates::new(0.05, cells.iter().map(|(figure, cell)| (*figure, cell)), lone.iter())
    }

    #[test]
    fn states_of_other_hosts_make_lone_runs() {
        // Nine spreads are three times the limit, and 25 % are five times.
        let states = states(&[&[1], &[2, 3], &[4, 5, 6]]);
        let expected: f64 = (1..=3).map(|k| f64::from(k) * (1.0 - f64::from(k) / 10.0).powi(9)).sum();
        assert!((states.expected_lone_runs(0, 3.0) - expected).abs() < 1e-12);
        assert_eq!(states.expected_lone_runs(0, 3.1), 0.0);
        // A host's own figure says nothing of others.
        assert!((states.expected_lone_runs(1, 3.0) - (expected - 0.9f64.powi(9))).abs() < 1e-12);
        let own = cell(0, 0.2, 6.0);
        let one = states.chances(0, &[&own]);
        assert!((one[0] - (1.0 - (-expected / 10.0).exp())).abs() < 1e-12);
        assert_eq!(states.chances(0, &[&cell(0, 0.5, 60.0)]), [0.0]);
        // Three times the share of 5 %.
        assert!((states.least_share() - 0.15).abs() < 1e-6);
    }

    #[test]
    fn many_lone_figures_are_no_states_unless_another_host_has_them() {
        let own = cell(0, 0.25, 9.0);
        let once = states(&[&[1], &[0], &[0], &[0], &[0]]);
        let chances = once.chances(0, &[&own; 4]);
        let mean = 0.9f64.powi(9) / 10.0;
        assert!(chances.iter().all(|&chance| (chance - poisson_upper_tail(mean, 4)).abs() < 1e-15), "{chances:?}");
        let twice = states(&[&[1], &[1], &[0], &[0], &[0], &[0]]);
        let chances = twice.chances(0, &[&own; 4]);
        assert_eq!(chances[1..], [0.1; 3]);
        assert!(
            (chances[0] - poisson_upper_tail(2.0 * mean, 1)).abs() < 1e-15,
            "one figure alone is not compared with other hosts"
        );
    }

    #[test]
    fn poisson_tail_is_exact() {
        assert_eq!(poisson_upper_tail(0.0, 1), 0.0);
        assert!((poisson_upper_tail(0.5, 1) - (1.0 - (-0.5f64).exp())).abs() < 1e-12);
        assert!((poisson_upper_tail(2.0, 2) - (1.0 - 3.0 * (-2.0f64).exp())).abs() < 1e-12);
        assert!((poisson_upper_tail(0.01, 3) / 1.654_204e-7 - 1.0).abs() < 1e-4);
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
