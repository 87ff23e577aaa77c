//! The share that one part has in the change of a whole, where the whole and what is left of it without that part are known.

use crate::headline_interval::CONFIDENCE_LEVEL;
use crate::uncertain_value::UncertainValue;

/// First distance at which an end of the interval is looked for, and how often it is doubled at most.
const FIRST_SEARCH_DISTANCE: f64 = 1.0 / 64.0;
const MAX_DOUBLINGS: u32 = 40;
/// Halvings after that: the end is then as exact as the number that holds it.
const BISECTION_STEPS: u32 = 60;

/// A share with its interval at [`CONFIDENCE_LEVEL`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareOfChange {
    /// The share.
    pub value: f64,
    /// Its interval.
    pub interval: (f64, f64),
}

/// The share of the change of a whole that is not one of the rest; `None` unless the whole has changed for certain.
///
/// It is one less the ratio of two uncertain quantities, which has no standard error of its own: its interval holds each share at
/// which the rest may have changed by all that is left of the whole (Fieller 1954). Neither change need be normal; each has its own
/// degrees of freedom. The two are taken for measured apart: where both move together, the interval is wider than it need be.
pub fn share_of_change(whole: UncertainValue, rest: UncertainValue) -> Option<ShareOfChange> {
    let is_apart = |figure: &UncertainValue| {
        let (low, high) = figure.interval(CONFIDENCE_LEVEL);
        low > 0.0 || high < 0.0
    };
    if !is_apart(&whole) {
        return None;
    }
    let value = 1.0 - rest.value / whole.value;
    let is_excluded = |share: f64| is_apart(&whole.scaled(1.0 - share).minus(rest));
    let end = |direction: f64| {
        let step = |doublings| direction * FIRST_SEARCH_DISTANCE * 2f64.powi(doublings as i32);
        let outside = (0..MAX_DOUBLINGS).map(step).find(|step| is_excluded(value + step))?;
        let (mut inside, mut outside) = (value, value + outside);
        for _ in 0..BISECTION_STEPS {
            let middle = f64::midpoint(inside, outside);
            *(if is_excluded(middle) { &mut outside } else { &mut inside }) = middle;
        }
        Some(outside)
    };
    Some(ShareOfChange { value, interval: (end(-1.0)?, end(1.0)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::headline_interval::VarianceEstimate;

    fn uncertain_with_error(value: f64, error: f64) -> UncertainValue {
        UncertainValue::from_variance(value, VarianceEstimate { variance: error.powi(2), degrees: 1e9 })
    }

    #[test]
    fn fieller_interval_matches_hand_calculation() {
        // The ratio of 20 (error 2) to 100 (error 10), by the closed form with g = (1.96 * 10 / 100)^2.
        let share = share_of_change(uncertain_with_error(100.0, 10.0), uncertain_with_error(20.0, 2.0)).unwrap();
        let z: f64 = 1.959_963_985;
        let (ratio, g) = (0.2, (z * 0.1).powi(2));
        let half = z / 100.0 * (4.0 * (1.0 - g) + ratio * ratio * 100.0).sqrt();
        let ends = [(ratio + half) / (1.0 - g), (ratio - half) / (1.0 - g)].map(|end| 1.0 - end);
        assert!((share.value - 0.8).abs() < 1e-12);
        assert!((share.interval.0 - ends[0]).abs() < 1e-6 && (share.interval.1 - ends[1]).abs() < 1e-6, "{share:?}");
    }

    #[test]
    fn fall_has_same_share_as_rise() {
        let (rise, fall) = (uncertain_with_error(10.0, 1.0), uncertain_with_error(-10.0, 1.0));
        let of = |whole, rest| share_of_change(whole, rest).unwrap();
        assert_eq!(of(rise, uncertain_with_error(2.0, 0.5)), of(fall, uncertain_with_error(-2.0, 0.5)));
        // What is left went the other way: the part is more than all.
        let more = of(rise, uncertain_with_error(-5.0, 0.5));
        assert!(more.value == 1.5 && more.interval.0 > 1.0 && more.interval.1 > 1.5, "{more:?}");
        let exact = of(uncertain_with_error(10.0, 0.0), uncertain_with_error(2.0, 0.0));
        assert!((exact.interval.0 - 0.8).abs() < 1e-9 && (exact.interval.1 - 0.8).abs() < 1e-9, "{exact:?}");
    }

    #[test]
    fn undecided_change_has_no_share() {
        assert_eq!(share_of_change(uncertain_with_error(1.0, 1.0), uncertain_with_error(0.5, 0.1)), None);
        assert_eq!(share_of_change(uncertain_with_error(0.0, 0.0), uncertain_with_error(0.5, 0.1)), None);
    }

    #[test]
    fn intervals_cover_share_at_95_percent() {
        let mut random = Random::new(5);
        let (pairs, degrees) = (4000, 8);
        let mut held = [0; 4];
        for (number, truth) in [0.0, 0.3, 0.9, 1.2].into_iter().enumerate() {
            for _ in 0..pairs {
                // A value with an error that is itself estimated, with so many degrees of freedom.
                let mut draw = |middle: f64| {
                    let square: f64 = (0..degrees).map(|_| random.normal().powi(2)).sum();
                    let spread =
                        VarianceEstimate { variance: square / f64::from(degrees), degrees: f64::from(degrees) };
                    UncertainValue::from_variance(middle + random.normal(), spread)
                };
                let (whole, rest) = (draw(12.0), draw(12.0 * (1.0 - truth)));
                let share = share_of_change(whole, rest).unwrap();
                held[number] += u32::from(share.interval.0 <= truth && truth <= share.interval.1);
            }
        }
        let shares = held.map(|held| f64::from(held) / f64::from(pairs));
        assert!(shares.iter().all(|share| (0.93..=0.98).contains(share)), "{shares:?}");
    }
}
