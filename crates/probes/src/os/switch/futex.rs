//! One switch of a CPU between two tasks by a futex: a word says whose turn it is, and the tasks sleep and wake in the
//! kernel.
//!
//! It is the cheapest sleep and wake-up in Linux, and the basis of mutexes and condition variables. It must not be used
//! as the cost of an uncontended lock, which never enters the kernel.

use kelvin_core::catalogue::os::{
    SWITCH_PROCESS_FUTEX, SWITCH_PROCESS_FUTEX_CALLS, SWITCH_PROCESS_FUTEX_ROUND_TRIP, SWITCH_PROCESS_PIPE,
    SWITCH_THREAD_FUTEX, SWITCH_THREAD_FUTEX_CALLS, SWITCH_THREAD_FUTEX_ROUND_TRIP, SWITCH_THREAD_PIPE,
};
use kelvin_harness::{Method, Probe};
use kelvin_sys::handoff::HandoffMethod;
use kelvin_sys::partner::PartnerKind;

use super::prediction::FromPipeSwitch;
use super::{SwitchExperiment, probe, shared_text};

pub(in crate::os) static PROCESS: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Futex,
        task: PartnerKind::Process,
        switch: &SWITCH_PROCESS_FUTEX,
        round_trip: &SWITCH_PROCESS_FUTEX_ROUND_TRIP,
        own: Some(&SWITCH_PROCESS_FUTEX_CALLS),
        like: Some(FromPipeSwitch { input_parts: &[&SWITCH_PROCESS_PIPE], factor: 1.5, why: DIFFERENCE_FROM_PIPE }),
    },
    "Switching a CPU between two processes that wait on a futex",
    METHOD,
    &[&SWITCH_PROCESS_FUTEX, &SWITCH_PROCESS_FUTEX_ROUND_TRIP, &SWITCH_PROCESS_FUTEX_CALLS],
);

pub(in crate::os) static THREAD: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Futex,
        task: PartnerKind::Thread,
        switch: &SWITCH_THREAD_FUTEX,
        round_trip: &SWITCH_THREAD_FUTEX_ROUND_TRIP,
        own: Some(&SWITCH_THREAD_FUTEX_CALLS),
        like: Some(FromPipeSwitch { input_parts: &[&SWITCH_THREAD_PIPE], factor: 1.5, why: DIFFERENCE_FROM_PIPE }),
    },
    "Switching a CPU between two threads that wait on a futex",
    METHOD,
    &[&SWITCH_THREAD_FUTEX, &SWITCH_THREAD_FUTEX_ROUND_TRIP, &SWITCH_THREAD_FUTEX_CALLS],
);

/// Why it may differ from pipes.
const DIFFERENCE_FROM_PIPE: &str = "a futex and a pipe sleep and wake through the same scheduler";

const METHOD: Method = Method {
    how: concat!(
        shared_text!(how),
        "The token is a word in shared memory: a pass stores whose turn it is and calls FUTEX_WAKE for one waiter, a \
         take calls FUTEX_WAIT until the word is right. Between threads the futex is private, between processes \
         shared. In one task the wake finds no waiter and the wait fails with EAGAIN, because the word has already \
         changed: two kernel entries, as in a pass."
    ),
    prediction: "The switch over pipes measured in this run: the scheduler's work is the same with any channel (a \
                 futex and a pipe sleep and wake through the same scheduler). The calls alone: as long as \
                 os.syscall.write and os.syscall.read, which do as little.",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        shared_text!(proof),
        "A private futex between processes never wakes anybody, and a shared one between threads pays a page look-up: \
         each is used where it belongs.",
    ],
    sources: &["futex(2)", "B. Sigoure, How long does it take to make a context switch?, 2010 (futex, pinned)"],
};
