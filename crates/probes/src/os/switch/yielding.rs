//! One switch of a CPU between two tasks that never sleep: each yields until it is its turn.
//!
//! The scheduler without sleeping and waking. It must not be taken for a way to hand over the CPU: a yield need not
//! switch, and other tasks on the CPU may be chosen.

use kelvin_catalogue::os::{
    SWITCH_PROCESS_PIPE, SWITCH_PROCESS_YIELD, SWITCH_PROCESS_YIELD_ROUND_TRIP, SWITCH_THREAD_PIPE,
    SWITCH_THREAD_YIELD, SWITCH_THREAD_YIELD_ROUND_TRIP,
};
use kelvin_harness::{Method, Probe};
use kelvin_sys::partner::Task;
use kelvin_sys::token::Means;

use super::predict::AsWithPipes;
use super::{Switching, probe, shared_text};

pub(in crate::os) static PROCESS: Probe = probe!(
    Switching {
        means: Means::Yield,
        task: Task::Process,
        switch: &SWITCH_PROCESS_YIELD,
        round_trip: &SWITCH_PROCESS_YIELD_ROUND_TRIP,
        own: None,
        like: Some(AsWithPipes { parts: &[&SWITCH_PROCESS_PIPE], factor: 2.0, why: WHY }),
    },
    "Switching a CPU between two processes that yield to each other",
    METHOD,
    &[&SWITCH_PROCESS_YIELD, &SWITCH_PROCESS_YIELD_ROUND_TRIP],
    &[SWITCH_PROCESS_PIPE.id.as_str()],
);

pub(in crate::os) static THREAD: Probe = probe!(
    Switching {
        means: Means::Yield,
        task: Task::Thread,
        switch: &SWITCH_THREAD_YIELD,
        round_trip: &SWITCH_THREAD_YIELD_ROUND_TRIP,
        own: None,
        like: Some(AsWithPipes { parts: &[&SWITCH_THREAD_PIPE], factor: 2.0, why: WHY }),
    },
    "Switching a CPU between two threads that yield to each other",
    METHOD,
    &[&SWITCH_THREAD_YIELD, &SWITCH_THREAD_YIELD_ROUND_TRIP],
    &[SWITCH_THREAD_PIPE.id.as_str()],
);

/// Why it may differ from pipes.
const WHY: &str = "nothing sleeps and nothing is woken, which is cheaper, and a yield that does not switch is added, \
                   which is dearer";

const METHOD: Method = Method {
    how: "Two tasks, pinned to the same CPU, take turns: a word in shared memory says whose turn it is, a pass \
          stores it, and a take calls sched_yield until it is right. The token moves only when the other task has \
          run, so half a round trip holds exactly one switch however many yields it took; nothing is subtracted, \
          because without another task there is nothing that could be timed. Before timing, 256 round trips are made \
          under getrusage(RUSAGE_THREAD): each must take this task off its CPU once, or the round fails; yields and \
          switches per round trip are stated with the result.",
    prediction: "The switch by pipes measured in this run: whatever the means, the scheduler picks, saves and loads \
                 in the same way (nothing sleeps and nothing is woken, which is cheaper, and a yield that does not \
                 switch is added, which is dearer).",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        "Yields counted as switches: sched_yield returns at once when the scheduler still prefers the caller. Here \
         the token moves only if the other task has run, so that half a round trip always holds one switch, and the \
         yields it took are stated.",
    ],
    sources: &["sched_yield(2)", "Linux kernel documentation, scheduler/sched-eevdf.rst"],
};
