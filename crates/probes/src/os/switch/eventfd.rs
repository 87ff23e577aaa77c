//! One switch of a CPU between two tasks that pass a token by eventfd.
//!
//! Event loops use it to wake each other. It must not be used as the latency of an event loop, which also polls.

use kelvin_core::catalogue::os::{
    SWITCH_PROCESS_EVENTFD, SWITCH_PROCESS_EVENTFD_CALLS, SWITCH_PROCESS_EVENTFD_ROUND_TRIP, SWITCH_PROCESS_PIPE,
    SWITCH_THREAD_EVENTFD, SWITCH_THREAD_EVENTFD_CALLS, SWITCH_THREAD_EVENTFD_ROUND_TRIP, SWITCH_THREAD_PIPE,
};
use kelvin_harness::{Method, Probe};
use kelvin_sys::handoff::HandoffMethod;
use kelvin_sys::partner::PartnerKind;

use super::prediction::FromPipeSwitch;
use super::{SwitchExperiment, probe, shared_text};

pub(in crate::os) static PROCESS: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Eventfd,
        task: PartnerKind::Process,
        switch: &SWITCH_PROCESS_EVENTFD,
        round_trip: &SWITCH_PROCESS_EVENTFD_ROUND_TRIP,
        own: Some(&SWITCH_PROCESS_EVENTFD_CALLS),
        like: Some(FromPipeSwitch { input_parts: &[&SWITCH_PROCESS_PIPE], factor: 1.5, why: DIFFERENCE_FROM_PIPE }),
    },
    "Switching a CPU between two processes that pass a token by eventfd",
    METHOD,
    &[&SWITCH_PROCESS_EVENTFD, &SWITCH_PROCESS_EVENTFD_ROUND_TRIP, &SWITCH_PROCESS_EVENTFD_CALLS],
);

pub(in crate::os) static THREAD: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Eventfd,
        task: PartnerKind::Thread,
        switch: &SWITCH_THREAD_EVENTFD,
        round_trip: &SWITCH_THREAD_EVENTFD_ROUND_TRIP,
        own: Some(&SWITCH_THREAD_EVENTFD_CALLS),
        like: Some(FromPipeSwitch { input_parts: &[&SWITCH_THREAD_PIPE], factor: 1.5, why: DIFFERENCE_FROM_PIPE }),
    },
    "Switching a CPU between two threads that pass a token by eventfd",
    METHOD,
    &[&SWITCH_THREAD_EVENTFD, &SWITCH_THREAD_EVENTFD_ROUND_TRIP, &SWITCH_THREAD_EVENTFD_CALLS],
);

/// Why it may differ from pipes.
const DIFFERENCE_FROM_PIPE: &str =
    "an eventfd is like a pipe without pages: only the calls differ, and they are subtracted";

const METHOD: Method = Method {
    how: concat!(
        shared_text!(how),
        "The token is a count of one in an eventfd, one for each direction: a pass writes 8 bytes, a take reads 8 \
         bytes and leaves zero."
    ),
    prediction: "The switch over pipes measured in this run: the scheduler's work is the same with any channel (an \
                 eventfd is like a pipe without pages: only the calls differ, and they are subtracted). The calls alone: \
                 as long as os.syscall.write and os.syscall.read.",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        shared_text!(proof),
        "EFD_SEMAPHORE and O_NONBLOCK change the behaviour: neither is set.",
    ],
    sources: &["eventfd(2)"],
};
