//! How much of files that nothing touches leaves the page cache.

use kelvin_core::catalogue::file::{IDLE_RETAINED, IDLE_TIME};

use super::{Consequence, MIN_RANGE_ROUNDS, MetricSelector, StandOutAnswer, StandOutContext, StandOutFacts};
use crate::overview::figure::NANOSECONDS_PER_SECOND;

/// Share of the pages that must be gone: a page here and there is moved or was wanted.
const MIN_EVICTED_SHARE: f64 = 0.05;
/// The least that counts as still there, so that the factor of a file that is wholly gone is a number.
const MIN_RETAINED_SHARE: f64 = 0.01;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let stayed = seen.rounds(&MetricSelector::new(&IDLE_RETAINED))?;
    let seconds = seen.rounds(&MetricSelector::new(&IDLE_TIME))?.headline() / NANOSECONDS_PER_SECOND;
    // The rounds count the same pages one after the other, and none comes back: all must find some gone.
    let is_tested =
        stayed.values.len() >= MIN_RANGE_ROUNDS && stayed.values.iter().all(|&share| share < 1.0 - MIN_EVICTED_SHARE);
    let left = 1.0 - stayed.headline();
    is_tested.then(|| StandOutAnswer {
        weight: Consequence::OfThisMachine,
        factor: 1.0 / stayed.headline().max(MIN_RETAINED_SHARE),
        sides: vec![stayed.metric_value()],
        ratio: None,
        facts: StandOutFacts::IdleCache { left, seconds },
    })
}
