//! What a figure of one more machine may be, by what such figures are on a few others.
//!
//! All figures are natural logarithms, so that a range is a factor either way. There are far fewer machines than kinds of figures, so
//! that the spread of one kind, of which a handful is known, is drawn to that of all (an empirical Bayes estimate: the variance of a
//! kind is taken for one draw from a scaled inverse chi-squared distribution about the common one), and ranges are those of Student's t.

use crate::samples::mean;
use crate::special::t_quantile;

/// Share of the figures of one more machine that are expected in a range.
pub const RANGE: f64 = 0.9;
/// How many machines the common spread counts as beside those that tell of a kind: so many that nine tenths of the figures of the machines
/// that are known lie in their ranges.
const WORTH: f64 = 10.0;

/// The middle and the half-width of a range, as natural logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneMore {
    /// The middle.
    pub middle: f64,
    /// From there to either end.
    pub half: f64,
}

/// How far figures of all kinds lie from their formulas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffFormulas {
    /// Variance about a formula, its own fault included.
    pub all: f64,
    /// Variance between machines about that fault.
    pub between: f64,
}

/// The range of a figure over what a formula says, where figures of the same kind lie as far from it on other machines.
///
/// `own` has how far this very figure lies from its formula on each machine, and `squares` the mean square of how far all figures of
/// its kind do there. `fault` is the share of that variance that is the formula's own fault, which one more machine will show as well: the
/// middle is what of the known distances is expected to return, and the range is that of what is left, whose variance is drawn to what is
/// `common`. A machine that is much farther off than usual counts for less, as one of another sort: with the weight of an observation of
/// Student's t (Lange, Little and Taylor, Robust statistical modeling using the t distribution, 1989).
///
/// `None` without a machine.
pub fn one_more_off_a_formula(own: &[f64], squares: &[f64], common: OffFormulas, fault: f64) -> Option<OneMore> {
    let machines = squares.len() as f64;
    if own.is_empty() || squares.is_empty() {
        return None;
    }
    let weight = |square: &f64| (WORTH + 1.0) / (WORTH + square / common.all);
    let weights: Vec<f64> = squares.iter().map(weight).collect();
    let weighted = |values: &[f64]| weights.iter().zip(values).map(|(weight, value)| weight * value).sum::<f64>();
    let between = (WORTH * common.between + (1.0 - fault) * weighted(squares)) / (WORTH + machines);
    // Of one machine's distance, `fault` is expected to return; of the mean of several, more.
    let several = 1.0 + (machines - 1.0) * fault;
    let middle = machines * fault / several * weighted(own) / weights.iter().sum::<f64>();
    let left = between * (several + fault) / several;
    Some(OneMore { middle, half: quantile(WORTH + machines) * left.sqrt() })
}

/// The range of a figure of which no formula tells, by the same figure on each of some machines; `common` is the variance of such figures
/// between machines, of all kinds. `None` without a machine.
pub fn one_more_of_a_class(own: &[f64], common: f64) -> Option<OneMore> {
    let machines = own.len() as f64;
    if own.is_empty() {
        return None;
    }
    let middle = mean(own);
    let squares: f64 = own.iter().map(|one| (one - middle).powi(2)).sum();
    let degrees = WORTH + machines - 1.0;
    let variance = (WORTH * common + squares) / degrees;
    Some(OneMore { middle, half: quantile(degrees) * (variance * (1.0 + 1.0 / machines)).sqrt() })
}

fn quantile(degrees: f64) -> f64 {
    t_quantile(f64::midpoint(1.0, RANGE), degrees)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// Half of the distance from a formula is its own fault.
    const HALF: OffFormulas = OffFormulas { all: 0.04, between: 0.02 };

    #[test]
    fn by_hand() {
        // One machine: half of the distance returns. Variance between machines (10 x 0.02 + 0.5 x 0.16 x 11 / 14) / 11, and half as much
        // again for the fault's own error.
        let found = one_more_off_a_formula(&[0.4], &[0.16], HALF, 0.5).unwrap();
        assert!((found.middle - 0.2).abs() < 1e-12);
        let left = 1.5_f64 * (0.2 + 0.08 * 11.0 / 14.0) / 11.0;
        assert!((found.half - 1.795_885 * left.sqrt()).abs() < 1e-6, "{found:?}");
        // Of two machines one is ten deviations off: it counts for 11 / 110, the other, as far as usual, for 1.
        let found = one_more_off_a_formula(&[2.0, 0.2], &[4.0, 0.04], HALF, 0.5).unwrap();
        assert!((found.middle - 2.0 / 3.0 * (0.1 * 2.0 + 0.2) / 1.1).abs() < 1e-12, "{found:?}");
        // What all machines show returns whole, and what none shares does not.
        let found = one_more_off_a_formula(&[0.2, 0.2], &[0.04, 0.04], HALF, 1.0).unwrap();
        assert!((found.middle - 0.2).abs() < 1e-12, "{found:?}");
        assert_eq!(one_more_off_a_formula(&[0.2, 0.2], &[0.04, 0.04], HALF, 0.0).unwrap().middle, 0.0);
        // Two machines: mean 0.3; (10 x 0.04 + 2 x 0.01) / 11 degrees of freedom, and half as much again for the mean's own error.
        let found = one_more_of_a_class(&[0.2, 0.4], 0.04).unwrap();
        assert!((found.middle - 0.3).abs() < 1e-12);
        assert!((found.half - 1.795_885 * (0.42_f64 / 11.0 * 1.5).sqrt()).abs() < 1e-6, "{found:?}");
        assert_eq!((one_more_off_a_formula(&[], &[], HALF, 0.5), one_more_of_a_class(&[], 1.0)), (None, None));
    }

    /// Share of figures in their ranges, where the variance of each kind is a draw from a scaled inverse chi-squared distribution.
    fn covered(figure: impl Fn(&mut Random, f64) -> bool) -> f64 {
        const TRIES: usize = 20_000;
        let mut random = Random::new(7);
        let inside = |_: &usize| {
            let chi_squared: f64 = (0..WORTH as u32 / 2).map(|_| -2.0 * (1.0 - random.uniform()).ln()).sum();
            let variance = WORTH * COMMON / chi_squared;
            figure(&mut random, variance.sqrt())
        };
        (0..TRIES).filter(inside).count() as f64 / TRIES as f64
    }

    const COMMON: f64 = 0.04;

    #[test]
    fn ranges_hold_what_they_promise_where_kinds_differ_in_their_spread() {
        for machines in 1..5 {
            let formulas = [0.2, 0.5, 0.9].map(|share| {
                covered(|random, deviation| {
                    let [own, between] = [share, 1.0 - share].map(|part: f64| deviation * part.sqrt());
                    let fault = own * random.normal();
                    let known: Vec<f64> = (0..machines).map(|_| fault + between * random.normal()).collect();
                    let squares: Vec<f64> = known.iter().map(|off| off * off).collect();
                    let common = OffFormulas { all: COMMON, between: (1.0 - share) * COMMON };
                    let found = one_more_off_a_formula(&known, &squares, common, share).unwrap();
                    (fault + between * random.normal() - found.middle).abs() <= found.half
                })
            });
            let class = covered(|random, deviation| {
                let known: Vec<f64> = (0..machines).map(|_| deviation * random.normal()).collect();
                let found = one_more_of_a_class(&known, COMMON).unwrap();
                (deviation * random.normal() - found.middle).abs() <= found.half
            });
            for share in formulas.into_iter().chain([class]) {
                assert!((share - RANGE).abs() < 0.02, "{share} of figures beside {machines} machines");
            }
        }
    }
}
