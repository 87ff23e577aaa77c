//! One switch of a CPU between two tasks by a POSIX condition variable.
//!
//! What a portable program pays to wake another thread. It must not be taken for the cost of a mutex.

use kelvin_catalogue::os::{
    SWITCH_PROCESS_CONDVAR, SWITCH_PROCESS_CONDVAR_OWN, SWITCH_PROCESS_CONDVAR_ROUND_TRIP, SWITCH_PROCESS_FUTEX,
    SWITCH_PROCESS_FUTEX_OWN, SWITCH_PROCESS_PIPE, SWITCH_THREAD_CONDVAR, SWITCH_THREAD_CONDVAR_OWN,
    SWITCH_THREAD_CONDVAR_ROUND_TRIP, SWITCH_THREAD_FUTEX, SWITCH_THREAD_FUTEX_OWN, SWITCH_THREAD_PIPE,
};
use kelvin_harness::{Method, Probe};
use kelvin_sys::partner::Task;
use kelvin_sys::token::Means;

use super::predict::AsWithPipes;
use super::{Switching, probe, shared_text};

pub(in crate::os) static PROCESS: Probe = probe!(
    Switching {
        means: Means::Condvar,
        task: Task::Process,
        switch: &SWITCH_PROCESS_CONDVAR,
        round_trip: &SWITCH_PROCESS_CONDVAR_ROUND_TRIP,
        own: Some(&SWITCH_PROCESS_CONDVAR_OWN),
        like: Some(AsWithPipes { parts: &[&SWITCH_PROCESS_PIPE, &SWITCH_PROCESS_FUTEX_OWN], factor: 1.5, why: WHY }),
    },
    "Switching a CPU between two processes that wait on a condition variable",
    METHOD,
    &[&SWITCH_PROCESS_CONDVAR, &SWITCH_PROCESS_CONDVAR_ROUND_TRIP, &SWITCH_PROCESS_CONDVAR_OWN],
    &[SWITCH_PROCESS_PIPE.id.as_str(), SWITCH_PROCESS_FUTEX.id.as_str()],
);

pub(in crate::os) static THREAD: Probe = probe!(
    Switching {
        means: Means::Condvar,
        task: Task::Thread,
        switch: &SWITCH_THREAD_CONDVAR,
        round_trip: &SWITCH_THREAD_CONDVAR_ROUND_TRIP,
        own: Some(&SWITCH_THREAD_CONDVAR_OWN),
        like: Some(AsWithPipes { parts: &[&SWITCH_THREAD_PIPE, &SWITCH_THREAD_FUTEX_OWN], factor: 1.5, why: WHY }),
    },
    "Switching a CPU between two threads that wait on a condition variable",
    METHOD,
    &[&SWITCH_THREAD_CONDVAR, &SWITCH_THREAD_CONDVAR_ROUND_TRIP, &SWITCH_THREAD_CONDVAR_OWN],
    &[SWITCH_THREAD_PIPE.id.as_str(), SWITCH_THREAD_FUTEX.id.as_str()],
);

/// Why it may differ from pipes.
const WHY: &str = "a condition variable sleeps and wakes by a futex, whose calls are not subtracted here";

const METHOD: Method = Method {
    how: concat!(
        shared_text!(how),
        "The token is a word behind a mutex: a pass locks, sets the word, unlocks, and then signals; a take locks, \
         waits while the word is not its own, and unlocks. Between processes both have the attribute \
         PTHREAD_PROCESS_SHARED. Alone, neither lock nor signal enters the kernel, so that what is subtracted is \
         small and the two system calls of waiting and waking stay in the headline. Studies that read the clock \
         before the signal and again in the awakened thread measure half of the round trip."
    ),
    prediction: "The switch by pipes measured in this run, and the two system calls of a futex hand-over made alone: a \
                 condition variable sleeps and wakes by a futex, and because it enters the kernel only when somebody \
                 waits, these calls are not among those subtracted.",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        shared_text!(proof),
        "Signalling while the mutex is held: the awakened task cannot have it, goes to sleep again, and one hand-over \
         is two switches (counted, and refused).",
    ],
    sources: &["pthread_cond_wait(3p)", "The C library's condition variable: glibc nptl/pthread_cond_wait.c"],
};
