//! How much of files that nothing touches leaves the page cache.

use kelvin_catalogue::file::{IDLE, IDLE_TIME};

use super::{Answer, LEAST_ROUNDS, Says, Seen, Spot, Weight};
use crate::screen::figure::SECOND;

/// Share of the pages that must be gone: a page here and there is moved or was wanted.
const LEAST: f64 = 0.05;
/// The least that counts as still there, so that the factor of a file that is wholly gone is a number.
const LITTLE: f64 = 0.01;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let stayed = seen.rounds(&Spot::new(&IDLE))?;
    let seconds = seen.rounds(&Spot::new(&IDLE_TIME))?.headline() / SECOND;
    // The rounds count the same pages one after the other, and none comes back: all must find some gone.
    let is_tested = stayed.values.len() >= LEAST_ROUNDS && stayed.values.iter().all(|&share| share < 1.0 - LEAST);
    let left = 1.0 - stayed.headline();
    is_tested.then(|| Answer {
        weight: Weight::OfThisMachine,
        factor: 1.0 / stayed.headline().max(LITTLE),
        sides: vec![stayed.side()],
        ratio: None,
        says: Says::IdleCache { left, seconds },
    })
}
