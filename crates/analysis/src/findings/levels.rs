//! The whole memory hierarchy in one line, where the curve of latency has levels.

use kelvin_core::catalogue::mem::LATENCY;

use super::*;
use crate::levels::indistinct_level;

pub(super) fn memory_levels(analysis: &Analysis) -> Option<Finding> {
    let is_requested = requested_results(analysis).any(|result| result.metric.id == LATENCY.id);
    let hierarchy = analysis.levels.as_ref().filter(|hierarchy| is_requested && hierarchy.levels.len() > 1)?;
    let texts = hierarchy.levels.iter().map(|level| {
        let latency = format!("{} {}", level.name, value_text(level.latency, Unit::Nanoseconds));
        match level.capacity {
            Some(ends) => format!("{latency} up to {}-{}", bytes(ends.low), bytes(ends.high)),
            None => latency,
        }
    });
    let mismatches = hierarchy.levels.iter().filter(|level| level.matches_reported == Some(false));
    let mismatch_names: Vec<&str> = mismatches.map(|level| level.name.as_str()).collect();
    let mismatch_text = match mismatch_names.as_slice() {
        [] => String::new(),
        names => format!("; {} not of the size that the machine reports", names.join(", ")),
    };
    let names: Vec<&str> = hierarchy.levels.iter().map(|level| level.name.as_str()).collect();
    let indistinct = hierarchy.conclusions.iter().filter_map(|conclusion| match &conclusion.claim {
        Claim::Level(MemoryLevelClaim::NotFound { level, .. }) => {
            let name = format!("L{level}");
            Some(format!("; {name} {}", indistinct_level(&name, &names)))
        }
        _ => None,
    });
    let indistinct_text: String = indistinct.collect();
    let text =
        format!("Latency by working set: {}{mismatch_text}{indistinct_text}", texts.collect::<Vec<_>>().join(", "));
    let reason = hierarchy.conclusions.first().map(|conclusion| conclusion.test.clone()).unwrap_or_default();
    Some(Finding::new(Importance::Notable, FindingData::MemoryLevels, text, reason).with_metrics(vec![LATENCY.id]))
}
