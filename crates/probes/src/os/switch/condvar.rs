//! One switch of a CPU between two tasks by a POSIX condition variable.
//!
//! It is the portable way to wake another thread. It must not be used as the cost of a mutex.

use kelvin_core::catalogue::os::{
    SWITCH_PROCESS_CONDVAR, SWITCH_PROCESS_CONDVAR_CALLS, SWITCH_PROCESS_CONDVAR_ROUND_TRIP,
    SWITCH_PROCESS_FUTEX_CALLS, SWITCH_PROCESS_PIPE, SWITCH_THREAD_CONDVAR, SWITCH_THREAD_CONDVAR_CALLS,
    SWITCH_THREAD_CONDVAR_ROUND_TRIP, SWITCH_THREAD_FUTEX_CALLS, SWITCH_THREAD_PIPE,
};
use kelvin_harness::{Method, Probe};
use kelvin_sys::handoff::HandoffMethod;
use kelvin_sys::partner::PartnerKind;

use super::prediction::FromPipeSwitch;
use super::{SwitchExperiment, probe, shared_text};

pub(in crate::os) static PROCESS: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Condvar,
        task: PartnerKind::Process,
        switch: &SWITCH_PROCESS_CONDVAR,
        round_trip: &SWITCH_PROCESS_CONDVAR_ROUND_TRIP,
        own: Some(&SWITCH_PROCESS_CONDVAR_CALLS),
        like: Some(FromPipeSwitch {
            input_parts: &[&SWITCH_PROCESS_PIPE, &SWITCH_PROCESS_FUTEX_CALLS],
            factor: 1.5,
            why: DIFFERENCE_FROM_PIPE
        }),
    },
    "Switching a CPU between two processes that wait on a condition variable",
    METHOD,
    &[&SWITCH_PROCESS_CONDVAR, &SWITCH_PROCESS_CONDVAR_ROUND_TRIP, &SWITCH_PROCESS_CONDVAR_CALLS],
);

pub(in crate::os) static THREAD: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Condvar,
        task: PartnerKind::Thread,
        switch: &SWITCH_THREAD_CONDVAR,
        round_trip: &SWITCH_THREAD_CONDVAR_ROUND_TRIP,
        own: Some(&SWITCH_THREAD_CONDVAR_CALLS),
        like: Some(FromPipeSwitch {
            input_parts: &[&SWITCH_THREAD_PIPE, &SWITCH_THREAD_FUTEX_CALLS],
            factor: 1.5,
            why: DIFFERENCE_FROM_PIPE
        }),
    },
    "Switching a CPU between two threads that wait on a condition variable",
    METHOD,
    &[&SWITCH_THREAD_CONDVAR, &SWITCH_THREAD_CONDVAR_ROUND_TRIP, &SWITCH_THREAD_CONDVAR_CALLS],
);

/// Why it may differ from pipes.
const DIFFERENCE_FROM_PIPE: &str = "a condition variable waits on a futex, whose calls are not subtracted here";

const METHOD: Method = Method {
    how: concat!(
        shared_text!(how),
        "The token is a word protected by a mutex: a pass locks, sets the word, unlocks, and then signals; a take \
         locks, waits while it is not its turn, and unlocks. Between processes both have the attribute \
         PTHREAD_PROCESS_SHARED. In one task neither lock nor signal enters the kernel, so little is subtracted, and \
         the system calls of waiting and waking stay in the headline. Studies that read the clock before the signal \
         and again in the awakened thread measure half of the round trip."
    ),
    prediction: "The switch over pipes measured in this run, plus the two system calls of a futex pass: a condition \
                 variable waits on a futex, and because it enters the kernel only if somebody waits, these calls are \
                 not among those subtracted. What is subtracted: four locked instructions, a mutex locked and unlocked \
                 twice, as mem.false_sharing has them on lines of one's own.",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        shared_text!(proof),
        "Signalling while holding the mutex: the awakened task cannot get it and sleeps again, so one pass is two \
         switches (counted, and a failure).",
    ],
    sources: &["pthread_cond_wait(3p)", "The C library's condition variable: glibc nptl/pthread_cond_wait.c"],
};
