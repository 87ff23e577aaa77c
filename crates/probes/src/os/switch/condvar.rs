//! One switch of a CPU between two tasks by a POSIX condition variable.
//!
//! What a portable program pays to wake another thread. It must not be taken for the cost of a mutex.

use kelvin_harness::{Kind, Method, Probe};
use kelvin_model::Metric;
use kelvin_sys::peer::Task;
use kelvin_sys::token::Means;

use super::predict::AsWithPipes;
use super::{Switching, difference, futex, handing_over, pipe, shared_text};

static PROCESS_SWITCH: Metric = difference(
    "os.switch.process.condvar",
    "One switch of a CPU between two processes: half a round trip by a condition variable, less the calls themselves",
);
static PROCESS_ROUND_TRIP: Metric = handing_over(
    "os.switch.process.condvar.round_trip",
    "A turn to another process on the same CPU and back by a mutex and a condition variable, nothing subtracted",
);
static PROCESS_OWN: Metric = handing_over(
    "os.switch.process.condvar.own",
    "Lock, unlock, signal nobody, lock and unlock again, in one task, as subtracted from a switch between processes",
);
static PROCESS_WHAT: Switching = Switching {
    means: Means::Condvar,
    task: Task::Process,
    switch: &PROCESS_SWITCH,
    round_trip: &PROCESS_ROUND_TRIP,
    own: Some(&PROCESS_OWN),
};
static PROCESS_LIKE: AsWithPipes =
    AsWithPipes { pipe: &pipe::PROCESS_SWITCH, not_subtracted: Some(&futex::PROCESS_OWN), factor: 1.5, why: WHY };

static THREAD_SWITCH: Metric = difference(
    "os.switch.thread.condvar",
    "One switch of a CPU between two threads: half a round trip by a condition variable, less the calls themselves",
)
.baseline();
static THREAD_ROUND_TRIP: Metric = handing_over(
    "os.switch.thread.condvar.round_trip",
    "A turn to another thread on the same CPU and back by a mutex and a condition variable, nothing subtracted",
);
static THREAD_OWN: Metric = handing_over(
    "os.switch.thread.condvar.own",
    "Lock, unlock, signal nobody, lock and unlock again, in one task, as subtracted from a switch between threads",
);
static THREAD_WHAT: Switching = Switching {
    means: Means::Condvar,
    task: Task::Thread,
    switch: &THREAD_SWITCH,
    round_trip: &THREAD_ROUND_TRIP,
    own: Some(&THREAD_OWN),
};
static THREAD_LIKE: AsWithPipes =
    AsWithPipes { pipe: &pipe::THREAD_SWITCH, not_subtracted: Some(&futex::THREAD_OWN), factor: 1.5, why: WHY };

pub(in crate::os) static PROCESS: Probe = Probe {
    id: "os.switch.process.condvar",
    summary: "Switching a CPU between two processes that wait on a condition variable",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&PROCESS_SWITCH, &PROCESS_ROUND_TRIP, &PROCESS_OWN],
    inputs: &["os.switch.process.pipe", "os.switch.process.futex"],
    cases: super::cases,
    run: |bench, _| super::run(bench, &PROCESS_WHAT),
    predict: |facts, metric, _| PROCESS_LIKE.predicted(facts, metric, &PROCESS_WHAT),
};

pub(in crate::os) static THREAD: Probe = Probe {
    id: "os.switch.thread.condvar",
    summary: "Switching a CPU between two threads that wait on a condition variable",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&THREAD_SWITCH, &THREAD_ROUND_TRIP, &THREAD_OWN],
    inputs: &["os.switch.thread.pipe", "os.switch.thread.futex"],
    cases: super::cases,
    run: |bench, _| super::run(bench, &THREAD_WHAT),
    predict: |facts, metric, _| THREAD_LIKE.predicted(facts, metric, &THREAD_WHAT),
};

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
