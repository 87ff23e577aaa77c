//! One-way wake-ups: of a process beside a thread, by the same means and between the same CPUs.

use kelvin_catalogue::Placement;
use kelvin_catalogue::os::{SWITCH_ONE_WAY, Woken};
use kelvin_model::{Case, Conclusion, RatioQuestion};

use crate::evidence::{Ask, Evidence};
use crate::result::Study;

/// A thread and a process that wait for the same.
const PAIRS: [[Woken; 2]; 3] = [
    [Woken::ThreadPipe, Woken::ProcessPipe],
    [Woken::ThreadFutex, Woken::ProcessFutex],
    [Woken::ThreadCondvar, Woken::ProcessCondvar],
];

/// Conclusions from the metric `os.switch.one_way`.
pub(crate) fn one_way(evidence: &Evidence<'_>) -> Option<Study> {
    let later = |placement: Placement, pair: [Woken; 2]| {
        let [thread, process] = pair.map(|woken| evidence.at(&SWITCH_ONE_WAY, &Case::new().at(woken).at(placement)));
        Ask::above(RatioQuestion::ProcessWakeBesideThread, 1.0).of(&thread?, &process?)
    };
    let placements = [Placement::SameCpu, Placement::TwoCpus];
    let conclusions: Vec<Conclusion> =
        placements.iter().flat_map(|&placement| PAIRS.iter().filter_map(move |&pair| later(placement, pair))).collect();
    let design = "A task woke another one, a thread or a process, on its own CPU or on another, and each wake-up was timed alone, in several \
                  rounds. Both are compared by their medians; the same within 5 % counts as no difference.";
    Study::new(SWITCH_ONE_WAY.id, design, conclusions)
}
