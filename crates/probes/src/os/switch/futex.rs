//! One switch of a CPU between two tasks by a futex: a word says whose turn it is, and the kernel is asked to sleep
//! and to wake.
//!
//! The cheapest sleep and wake-up that Linux has, and what mutexes and condition variables are made of. It must not be
//! taken for the cost of an uncontended lock, which never enters the kernel.

use kelvin_harness::{Kind, Method, Probe};
use kelvin_model::Metric;
use kelvin_sys::peer::Task;
use kelvin_sys::token::Means;

use super::predict::AsWithPipes;
use super::{Switching, difference, handing_over, pipe, shared_text};

static PROCESS_SWITCH: Metric = difference(
    "os.switch.process.futex",
    "One switch of a CPU between two processes: half a round trip by a futex, less the calls themselves",
);
static PROCESS_ROUND_TRIP: Metric = handing_over(
    "os.switch.process.futex.round_trip",
    "A turn to another process on the same CPU and back by a futex, nothing subtracted",
);
pub(super) static PROCESS_OWN: Metric = handing_over(
    "os.switch.process.futex.own",
    "One futex wake with nobody waiting and one futex wait that is refused, in one task, as subtracted from a switch \
     between processes",
);
static PROCESS_WHAT: Switching = Switching {
    means: Means::Futex,
    task: Task::Process,
    switch: &PROCESS_SWITCH,
    round_trip: &PROCESS_ROUND_TRIP,
    own: Some(&PROCESS_OWN),
};
static PROCESS_LIKE: AsWithPipes =
    AsWithPipes { pipe: &pipe::PROCESS_SWITCH, not_subtracted: None, factor: 1.5, why: WHY };

static THREAD_SWITCH: Metric = difference(
    "os.switch.thread.futex",
    "One switch of a CPU between two threads: half a round trip by a futex, less the calls themselves",
);
static THREAD_ROUND_TRIP: Metric = handing_over(
    "os.switch.thread.futex.round_trip",
    "A turn to another thread on the same CPU and back by a futex, nothing subtracted",
);
pub(super) static THREAD_OWN: Metric = handing_over(
    "os.switch.thread.futex.own",
    "One futex wake with nobody waiting and one futex wait that is refused, in one task, as subtracted from a switch \
     between threads",
);
static THREAD_WHAT: Switching = Switching {
    means: Means::Futex,
    task: Task::Thread,
    switch: &THREAD_SWITCH,
    round_trip: &THREAD_ROUND_TRIP,
    own: Some(&THREAD_OWN),
};
static THREAD_LIKE: AsWithPipes =
    AsWithPipes { pipe: &pipe::THREAD_SWITCH, not_subtracted: None, factor: 1.5, why: WHY };

pub(in crate::os) static PROCESS: Probe = Probe {
    id: "os.switch.process.futex",
    summary: "Switching a CPU between two processes that wait on a futex",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&PROCESS_SWITCH, &PROCESS_ROUND_TRIP, &PROCESS_OWN],
    inputs: &["os.switch.process.pipe"],
    cases: super::cases,
    run: |bench, _| super::run(bench, &PROCESS_WHAT),
    predict: |facts, metric, _| PROCESS_LIKE.predicted(facts, metric, &PROCESS_WHAT),
};

pub(in crate::os) static THREAD: Probe = Probe {
    id: "os.switch.thread.futex",
    summary: "Switching a CPU between two threads that wait on a futex",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&THREAD_SWITCH, &THREAD_ROUND_TRIP, &THREAD_OWN],
    inputs: &["os.switch.thread.pipe"],
    cases: super::cases,
    run: |bench, _| super::run(bench, &THREAD_WHAT),
    predict: |facts, metric, _| THREAD_LIKE.predicted(facts, metric, &THREAD_WHAT),
};

/// Why it may differ from pipes.
const WHY: &str = "a futex and a pipe wake and sleep by the same scheduler";

const METHOD: Method = Method {
    how: concat!(
        shared_text!(how),
        "The token is a word in shared memory: a pass stores whose turn it is and calls FUTEX_WAKE for one waiter, a \
         take calls FUTEX_WAIT until the word is right. Between threads the futex is private, between processes \
         shared. Alone, the wake finds nobody and the wait is refused with EAGAIN, because the word has changed \
         already: two entries of the kernel, as in a hand-over."
    ),
    prediction: "The switch by pipes measured in this run: whatever the means, the scheduler picks, saves and loads \
                 in the same way (a futex and a pipe wake and sleep by the same scheduler).",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        shared_text!(proof),
        "A private futex between processes never wakes anybody, and a shared one between threads pays for finding \
         the page: each is used where it belongs.",
    ],
    sources: &["futex(2)", "B. Sigoure, How long does it take to make a context switch?, 2010 (futex, pinned)"],
};
