//! One switch of a CPU between two tasks that never sleep: each yields until it is its turn.
//!
//! The scheduler without sleeping and waking. It is not a way to hand the CPU to a given task: a yield need not switch,
//! and other tasks may be chosen.

use kelvin_core::catalogue::os::{
    SWITCH_PROCESS_PIPE, SWITCH_PROCESS_YIELD, SWITCH_PROCESS_YIELD_ROUND_TRIP, SWITCH_THREAD_PIPE,
    SWITCH_THREAD_YIELD, SWITCH_THREAD_YIELD_ROUND_TRIP,
};
use kelvin_harness::{Method, Probe};
use kelvin_sys::handoff::HandoffMethod;
use kelvin_sys::partner::PartnerKind;

use super::prediction::FromPipeSwitch;
use super::{SwitchExperiment, probe, shared_text};

pub(in crate::os) static PROCESS: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Yield,
        task: PartnerKind::Process,
        switch: &SWITCH_PROCESS_YIELD,
        round_trip: &SWITCH_PROCESS_YIELD_ROUND_TRIP,
        own: None,
        like: Some(FromPipeSwitch { input_parts: &[&SWITCH_PROCESS_PIPE], factor: 2.0, why: DIFFERENCE_FROM_PIPE }),
    },
    "Switching a CPU between two processes that yield to each other",
    METHOD,
    &[&SWITCH_PROCESS_YIELD, &SWITCH_PROCESS_YIELD_ROUND_TRIP],
);

pub(in crate::os) static THREAD: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Yield,
        task: PartnerKind::Thread,
        switch: &SWITCH_THREAD_YIELD,
        round_trip: &SWITCH_THREAD_YIELD_ROUND_TRIP,
        own: None,
        like: Some(FromPipeSwitch { input_parts: &[&SWITCH_THREAD_PIPE], factor: 2.0, why: DIFFERENCE_FROM_PIPE }),
    },
    "Switching a CPU between two threads that yield to each other",
    METHOD,
    &[&SWITCH_THREAD_YIELD, &SWITCH_THREAD_YIELD_ROUND_TRIP],
);

/// Why it may differ from pipes.
const DIFFERENCE_FROM_PIPE: &str = "there is no sleep and no wake-up, which is cheaper, but yields without a switch are included, which \
                   costs more";

const METHOD: Method = Method {
    how: "Two tasks pinned to the same CPU take turns: a word in shared memory says whose turn it is, a pass stores \
          it, and a take calls sched_yield until it is right. The token moves only when the other task has run, so \
          half a round trip holds exactly one switch, however many yields it took; nothing is subtracted, because a \
          single task has nothing to time. Before timing, 256 round trips are made under getrusage(RUSAGE_THREAD): \
          each must switch this task out once, or the round fails; a note gives yields and switches per round trip.",
    prediction: "The switch over pipes measured in this run: the scheduler's work is the same with any channel (there \
                 is no sleep and no wake-up, which is cheaper, but yields without a switch are included, which costs \
                 more).",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        "Yields counted as switches: sched_yield returns at once if the scheduler still prefers the caller. Here the \
         token moves only if the other task has run, and the yields it took are stated.",
    ],
    sources: &["sched_yield(2)", "Linux kernel documentation, scheduler/sched-eevdf.rst"],
};
