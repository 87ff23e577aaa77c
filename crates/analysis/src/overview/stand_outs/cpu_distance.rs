//! Whether the distance between the machine's CPUs changes.

use kelvin_core::FigureSource;

use super::{Consequence, StandOutAnswer, StandOutContext, StandOutFacts};
use crate::result::FindingData;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let moved = seen.analysis.findings.iter().find_map(|finding| match &finding.found {
        FindingData::Moved(moved) => Some(moved),
        _ => None,
    })?;
    let place =
        FigureSource { metric: kelvin_core::catalogue::mem::BANDWIDTH_CORE_TO_CORE.id, case: moved.case.clone() };
    let result = seen.analysis.results.iter().find(|result| result.figure_source() == place)?;
    let summary = result.outcome.summary()?;
    let [one, other] = summary.states() else { return None };
    let centers = [one.center.min(other.center), one.center.max(other.center)];
    Some(StandOutAnswer {
        weight: Consequence::OfThisMachine,
        factor: centers[1] / centers[0],
        sides: vec![seen.result_rounds(result)?.metric_value()],
        ratio: None,
        facts: StandOutFacts::Distance { modes: centers },
    })
}
