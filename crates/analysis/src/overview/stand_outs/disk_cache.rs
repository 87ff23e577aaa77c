//! Whether something below the kernel caches the disk.

use kelvin_core::catalogue::file::DEVICE_REPEAT_READ;

use super::*;

/// Later passes over the first from which on a cache shows.
const MIN_CACHED_SPEED_UP: f64 = 1.25;
/// And up to which they are no faster; between the two they hardly are, which no cache explains.
const MAX_UNCACHED_SPEED_UP: f64 = 1.1;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let repeat = seen.rounds(&select(&DEVICE_REPEAT_READ))?;
    let ratio = repeat.estimate()?;
    if ratio.is_range && repeat.values.len() < MIN_RANGE_ROUNDS {
        return None;
    }
    let (weight, factor, text) = if ratio.low > MIN_CACHED_SPEED_UP {
        let text = format!(
            "Later passes over a file are {} times as fast as the first: something below the kernel caches the disk.",
            times_text(ratio.value)
        );
        (Consequence::OfThisMachine, ratio.value, text)
    } else if ratio.high < MIN_CACHED_SPEED_UP {
        let faster = if ratio.high >= MAX_UNCACHED_SPEED_UP { "hardly" } else { "no" };
        let text =
            format!("The disk is {faster} faster on later passes over a file: nothing below the kernel caches it.");
        (Consequence::Ability, 1.0, text)
    } else {
        return None;
    };
    let mut answer = StandOutAnswer::new(weight, StandOutQuestion::DiskCache, vec![repeat.metric_value()], text);
    answer.shown.ratio = Some(ratio);
    Some(answer.with_factor(factor))
}
