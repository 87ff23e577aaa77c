//! Whether the distance between the machine's CPUs changes.

use kelvin_model::Place;

use super::{Answer, Says, Seen, Weight};
use crate::result::Found;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let moved = seen.analysis.findings.iter().find_map(|finding| match &finding.found {
        Found::Moved(moved) => Some(moved),
        _ => None,
    })?;
    let place = Place { metric: kelvin_catalogue::mem::BANDWIDTH_CORE_TO_CORE.id, case: moved.case.clone() };
    let result = seen.analysis.results.iter().find(|result| result.place() == place)?;
    let summary = result.outcome.summary()?;
    let [one, other] = summary.states() else { return None };
    let centers = [one.center.min(other.center), one.center.max(other.center)];
    Some(Answer {
        weight: Weight::OfThisMachine,
        factor: centers[1] / centers[0],
        sides: vec![seen.rounds_of(result)?.side()],
        ratio: None,
        says: Says::Distance { modes: centers },
    })
}
