//! Whether something below the kernel caches the disk.

use kelvin_catalogue::file::DEVICE_REPEAT;

use super::{Answer, LEAST_ROUNDS, Says, Seen, Spot, Weight};

/// Later passes over the first from which on a cache shows.
const CACHED: f64 = 1.25;
/// And up to which they are no faster; between the two they hardly are, which no cache explains.
const AS_FAST: f64 = 1.1;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let repeat = seen.rounds(&Spot::new(&DEVICE_REPEAT))?;
    let ratio = repeat.estimate()?;
    let is_tested = !ratio.is_range || repeat.values.len() >= LEAST_ROUNDS;
    let (weight, factor, says) = match ratio {
        found if found.low > CACHED => (Weight::OfThisMachine, found.value, Says::DiskCached { times: found.value }),
        found if found.high < CACHED => (Weight::Ability, 1.0, Says::DiskUncached { hardly: found.high >= AS_FAST }),
        _ => return None,
    };
    is_tested.then(|| Answer { weight, factor, sides: vec![repeat.side()], ratio: Some(ratio), says })
}
