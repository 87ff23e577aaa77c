//! The whole memory hierarchy in one line, where the curve of latency has levels.

use kelvin_core::catalogue::mem::LATENCY;

use super::*;
use crate::levels::indistinct_level;

pub(super) fn memory_levels(analysis: &Analysis) -> Option<Finding> {
    let was_asked = requested_results(analysis).any(|result| result.metric.id == LATENCY.id);
    let hierarchy = analysis.levels.as_ref().filter(|hierarchy| was_asked && hierarchy.levels.len() > 1)?;
    let texts = hierarchy.levels.iter().map(|level| {
        let latency = format!("{} {}", level.name, value_text(level.latency, Unit::Nanoseconds));
        match level.capacity {
            Some(ends) => format!("{latency} up to {}-{}", bytes(ends.low), bytes(ends.high)),
            None => latency,
        }
    });
    let odd = hierarchy.levels.iter().filter(|level| level.matches_reported == Some(false));
    let odd: Vec<&str> = odd.map(|level| level.name.as_str()).collect();
    let differs = match odd.as_slice() {
        [] => String::new(),
        names => format!("; {} not of the size that the machine reports", names.join(", ")),
    };
    let names: Vec<&str> = hierarchy.levels.iter().map(|level| level.name.as_str()).collect();
    let unseen = hierarchy.conclusions.iter().filter_map(|conclusion| match &conclusion.claim {
        Claim::Level(MemoryLevelClaim::NotFound { level, .. }) => {
            let name = format!("L{level}");
            Some(format!("; {name} {}", indistinct_level(&name, &names)))
        }
        _ => None,
    });
    let unseen: String = unseen.collect();
    let text = format!("Latency by working set: {}{differs}{unseen}", texts.collect::<Vec<_>>().join(", "));
    let because = hierarchy.conclusions.first().map(|conclusion| conclusion.test.clone()).unwrap_or_default();
    Some(Finding::new(Importance::Notable, FindingData::MemoryLevels, text, because).with_metrics(vec![LATENCY.id]))
}
