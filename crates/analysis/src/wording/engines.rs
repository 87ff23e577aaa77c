//! The engines that read a file, in a sentence: which is the fastest at which sizes, and where each overtakes read.

use kelvin_core::catalogue::file::BLOCK;
use kelvin_core::units::bytes;
use kelvin_core::{BestQuestion, Claim};

use super::conclusions::engine;
use crate::result::{StatedConclusion, StudyAnswer};

/// Lines below the answer, at most: with it eight sentences.
const MAX_LINES: usize = 7;

/// The answer of the study from its conclusions; `None` where no size has a fastest engine.
pub(crate) fn answer(conclusions: &[StatedConclusion]) -> Option<StudyAnswer> {
    let best = conclusions.iter().filter_map(|conclusion| match &conclusion.claim {
        Claim::Best { question: BestQuestion::EngineAtSize, best, .. } => {
            Some((engine(&best.case), BLOCK.number_in(&best.case)?, conclusion.holds.is_some()))
        }
        _ => None,
    });
    let best: Vec<(&str, u64, bool)> = best.collect();
    let groups = best.chunk_by(|one, other| (one.0, one.2) == (other.0, other.2));
    let each: Vec<String> = groups
        .map(|group| {
            let (name, from, is_sure) = group[0];
            let to = group[group.len() - 1].1;
            // Of two sizes nothing follows for those between.
            let sizes = match group.len() {
                1 => bytes(from),
                2 => format!("{} and {}", bytes(from), bytes(to)),
                _ => format!("{} to {}", bytes(from), bytes(to)),
            };
            format!("{name} at {sizes}{}", if is_sure { "" } else { " (others may be as fast)" })
        })
        .collect();
    if each.is_empty() {
        return None;
    }
    let sure = |conclusion: &&StatedConclusion| {
        matches!(conclusion.claim, Claim::Crossing { .. }) && conclusion.holds == Some(true)
    };
    let because = conclusions.iter().filter(sure).map(|conclusion| &conclusion.text);
    Some(StudyAnswer {
        says: format!("The fastest engine is {}.", each.join(", ")),
        because: because.map(|text| format!("{text}.")).take(MAX_LINES).collect(),
    })
}
