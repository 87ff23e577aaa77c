//! One-way wake-ups: of a process compared with a thread, by the same means and between the same CPUs.

use kelvin_core::RatioQuestion;
use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::os::{HandoffMechanism, ONE_WAY_WAKE_UP};

use super::network::placement_text;
use crate::evidence::{Evidence, RatioTest};
use crate::result::Study;

/// What a thread and a process wait for.
const WAITED_FOR: [(HandoffMechanism, &str); 3] = [
    (HandoffMechanism::Pipe, "a pipe"),
    (HandoffMechanism::Futex, "a futex"),
    (HandoffMechanism::Condvar, "a condition variable"),
];

/// Conclusions from the metric `os.switch.one_way`.
pub(crate) fn one_way(evidence: &Evidence<'_>) -> Option<Study> {
    let later = |placement: PairPlacement, (mechanism, waited_for): (HandoffMechanism, &str)| {
        let pair = [mechanism.between_threads(), mechanism.between_processes()];
        let [thread, process] = pair.map(|woken| evidence.rounds_at(&ONE_WAY_WAKE_UP, &woken.with_word(placement)));
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
        .flat_map(|&placement| WAITED_FOR.iter().filter_map(move |&by| later(placement, by)))
        .collect();
    let design = "A task woke another one, a thread or a process, on its own CPU or on another, and each wake-up was timed alone, in several \
                  rounds. Both are compared by their medians; the same within 5 % counts as no difference.";
    Study::new(ONE_WAY_WAKE_UP.id, design, conclusions)
}
