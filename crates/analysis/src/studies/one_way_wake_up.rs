//! One-way wake-ups: of a process compared with a thread, by the same means and between the same CPUs.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::os::{ONE_WAY_WAKE_UP, WokenTask};
use kelvin_core::{Case, RatioQuestion};

use super::network::placement_text;
use crate::evidence::{Evidence, RatioTest};
use crate::result::Study;

/// A thread and a process, and what both wait for.
const WOKEN_PAIRS: [([WokenTask; 2], &str); 3] = [
    ([WokenTask::ThreadPipe, WokenTask::ProcessPipe], "a pipe"),
    ([WokenTask::ThreadFutex, WokenTask::ProcessFutex], "a futex"),
    ([WokenTask::ThreadCondvar, WokenTask::ProcessCondvar], "a condition variable"),
];

/// Conclusions from the metric `os.switch.one_way`.
pub(crate) fn one_way(evidence: &Evidence<'_>) -> Option<Study> {
    let later = |placement: PairPlacement, (pair, waited_for): ([WokenTask; 2], &str)| {
        let [thread, process] =
            pair.map(|woken| evidence.rounds_at(&ONE_WAY_WAKE_UP, &Case::new().with_word(woken).with_word(placement)));
        let found = RatioTest::above(RatioQuestion::ProcessWakeAgainstThread, 1.0).test(thread?, process?)?;
        let text = format!(
            "{} {waited_for} wakes a process later than a thread: {}",
            placement_text(&found.other.case),
            found.times("as long")
        );
        Some(found.conclude(text))
    };
    let placements = [PairPlacement::SameCpu, PairPlacement::TwoCpus];
    let conclusions = placements
        .iter()
        .flat_map(|&placement| WOKEN_PAIRS.iter().filter_map(move |&pair| later(placement, pair)))
        .collect();
    let design = "A task woke another one, a thread or a process, on its own CPU or on another, and each wake-up was timed alone, in several \
                  rounds. Both are compared by their medians; the same within 5 % counts as no difference.";
    Study::new(ONE_WAY_WAKE_UP.id, design, conclusions)
}
