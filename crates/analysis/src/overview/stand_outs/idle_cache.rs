//! How much of files that nothing touches leaves the page cache.

use kelvin_core::catalogue::file::{IDLE_RETAINED, IDLE_TIME};

use super::*;

/// Share of the pages that must be gone: a page here and there is moved or was wanted.
const MIN_EVICTED_SHARE: f64 = 0.05;
/// The least that counts as still there, so that the factor of a file that is wholly gone is a number.
const MIN_RETAINED_SHARE: f64 = 0.01;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let stayed = seen.rounds(&select(&IDLE_RETAINED))?;
    let idle = seen.rounds(&select(&IDLE_TIME))?.headline() / NANOSECONDS_PER_SECOND;
    // The rounds count the same pages one after the other, and none comes back: all must find some gone.
    let is_gone = |&share: &f64| share < 1.0 - MIN_EVICTED_SHARE;
    if stayed.values.len() < MIN_RANGE_ROUNDS || !stayed.values.iter().all(is_gone) {
        return None;
    }
    let percent = ((1.0 - stayed.headline()) * 100.0).round();
    let (which, gone) = if percent < 100.0 { ("Of every 100", format!(", {percent}")) } else { ("All", String::new()) };
    let text = format!(
        "{which} file pages unused for {}{gone} were evicted from the page cache: the next read goes to the disk.",
        seconds(idle)
    );
    let sides = vec![stayed.metric_value()];
    let answer = StandOutAnswer::new(Consequence::OfThisMachine, StandOutQuestion::IdleCache, sides, text);
    Some(answer.with_factor(1.0 / stayed.headline().max(MIN_RETAINED_SHARE)))
}
