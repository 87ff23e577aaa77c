//! The order of reads on this machine's disk: whether blocks at random take longer than blocks in order.

use kelvin_core::catalogue::file::{AccessOrder, CacheState, READ_ORDER};

use super::files::state_and_file;
use crate::prelude::*;

/// Conclusions that are short enough without an answer.
const MAX_UNANSWERED: usize = 4;

/// Conclusions from the metric `file.seqrand`, one for each file and state of the page cache.
pub(crate) fn read_order(evidence: &Evidence<'_>) -> Option<Study> {
    let reads = evidence.all_cases(&READ_ORDER);
    let comparison = |in_order: &RoundHeadlines<'_>| {
        let case = in_order.case.clone().with_word(AccessOrder::Random);
        let at_random = reads.iter().find(|rounds| *rounds.case == case)?;
        let answer = RatioTest::above(RatioQuestion::RandomAgainstSequential, 1.0).test(in_order, at_random)?;
        let claim = format!("{}: blocks at random take longer than in order", state_and_file(in_order.case));
        Some(answer.conclude_times(&claim, "as long"))
    };
    let in_order = reads.iter().filter(|rounds| AccessOrder::of(rounds.case) == Some(AccessOrder::Sequential));
    let conclusions = in_order.filter_map(comparison).collect();
    let design = "Files of several sizes were read in blocks of 4 KiB, in order and in random order, one block at a time, through an \
                  empty page cache and past it, in several rounds.";
    Study::new(READ_ORDER.id, design, conclusions)
}

/// How the times of blocks at random stand to those in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeRelation {
    Longer,
    Shorter,
    Same,
    Unknown,
}

/// A comparison of one file.
struct FileOrders {
    state: Option<CacheState>,
    relation: TimeRelation,
    ratio: f64,
    same_within: Option<f64>,
}

/// Gives the study its answer, once its conclusions are corrected for one another: for each state of the page cache, at how many sizes of
/// files blocks at random take longer.
pub(super) fn add_answer(study: &mut Study) {
    if study.id != READ_ORDER.id || study.conclusions.len() <= MAX_UNANSWERED {
        return;
    }
    let orders = |conclusion: &StatedConclusion| {
        let Claim::Ratio { question: RatioQuestion::RandomAgainstSequential, base, ratio, .. } = &conclusion.claim
        else {
            return None;
        };
        let same_within = conclusion.same_within();
        let relation = match conclusion.holds {
            Some(true) => TimeRelation::Longer,
            Some(false) => TimeRelation::Shorter,
            None if same_within.is_some() => TimeRelation::Same,
            None => TimeRelation::Unknown,
        };
        Some(FileOrders { state: CacheState::of(&base.case), relation, ratio: ratio.value, same_within })
    };
    let files: Vec<FileOrders> = study.conclusions.iter().filter_map(orders).collect();
    let decided = files.iter().filter(|file| file.relation != TimeRelation::Unknown);
    let states = each_once(decided.chain(&files).map(|file| file.state));
    let sentences: Vec<String> = states.iter().map(|state| state_sentence(*state, &files)).collect();
    if !sentences.is_empty() {
        study.answers.push(StudyAnswer { text: sentences.join(" "), reasons: Vec::new() });
    }
}

/// `Uncached: blocks at random take longer than in order at all 8 file sizes, 21.4 to 29.8 times as long.`
fn state_sentence(state: Option<CacheState>, files: &[FileOrders]) -> String {
    let name = match state {
        Some(CacheState::Cached) => "Cached",
        Some(CacheState::Uncached) => "Uncached",
        Some(CacheState::Direct) => "Direct",
        _ => "As found",
    };
    let state_files: Vec<&FileOrders> = files.iter().filter(|file| file.state == state).collect();
    let mut parts: Vec<String> = Vec::new();
    for relation in [TimeRelation::Longer, TimeRelation::Shorter, TimeRelation::Same, TimeRelation::Unknown] {
        let matching: Vec<&FileOrders> = state_files.iter().copied().filter(|file| file.relation == relation).collect();
        if matching.is_empty() {
            continue;
        }
        // The first part of a sentence states of how many.
        let (comparison, place) = match matching.len() {
            count if !parts.is_empty() => ("", count.to_string()),
            count if count == state_files.len() => (" than in order", format!("all {count} file sizes")),
            count => (" than in order", format!("{count} of {} file sizes", state_files.len())),
        };
        let (lowest, highest) = min_max(matching.iter().map(|file| file.ratio)).unwrap_or_default();
        let [lowest, highest] = [lowest, highest].map(number);
        let times = if lowest == highest { highest } else { format!("{lowest} to {highest}") };
        parts.push(match relation {
            TimeRelation::Longer => format!("longer{comparison} at {place}, {times} times as long"),
            TimeRelation::Shorter => format!("less long{comparison} at {place}, {times} times as long"),
            TimeRelation::Same => {
                let tolerance = matching.iter().filter_map(|file| file.same_within).fold(0.0, f64::max);
                format!("as long as in order within {} at {place}", percent(tolerance))
            }
            TimeRelation::Unknown => {
                format!("a time that is not known to differ from that in order at {place}, {times} times as long")
            }
        });
    }
    format!("{name}: blocks at random take {}.", parts.join(", and "))
}
