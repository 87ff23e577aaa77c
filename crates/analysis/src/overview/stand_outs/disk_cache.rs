//! Whether something below the kernel caches the disk.

use kelvin_core::catalogue::file::DEVICE_REPEAT_READ;

use super::{Consequence, MIN_RANGE_ROUNDS, MetricSelector, StandOutAnswer, StandOutContext, StandOutFacts};

/// Later passes over the first from which on a cache shows.
const MIN_CACHED_SPEED_UP: f64 = 1.25;
/// And up to which they are no faster; between the two they hardly are, which no cache explains.
const MAX_UNCACHED_SPEED_UP: f64 = 1.1;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let repeat = seen.rounds(&MetricSelector::new(&DEVICE_REPEAT_READ))?;
    let ratio = repeat.estimate()?;
    let is_tested = !ratio.is_range || repeat.values.len() >= MIN_RANGE_ROUNDS;
    let (weight, factor, says) = match ratio {
        found if found.low > MIN_CACHED_SPEED_UP => {
            (Consequence::OfThisMachine, found.value, StandOutFacts::DiskCached { times: found.value })
        }
        found if found.high < MIN_CACHED_SPEED_UP => {
            (Consequence::Ability, 1.0, StandOutFacts::DiskUncached { hardly: found.high >= MAX_UNCACHED_SPEED_UP })
        }
        _ => return None,
    };
    is_tested.then(|| StandOutAnswer {
        weight,
        factor,
        sides: vec![repeat.metric_value()],
        ratio: Some(ratio),
        facts: says,
    })
}
