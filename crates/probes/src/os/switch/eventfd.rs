//! One switch of a CPU between two tasks that pass a token by event counters (eventfd).
//!
//! What event loops use to wake each other. It must not be taken for the latency of an event loop, which also polls.

use kelvin_harness::{Kind, Method, Probe};
use kelvin_model::Metric;
use kelvin_sys::peer::Task;
use kelvin_sys::token::Means;

use super::predict::AsWithPipes;
use super::{Switching, difference, handing_over, pipe, shared_text};

static PROCESS_SWITCH: Metric = difference(
    "os.switch.process.eventfd",
    "One switch of a CPU between two processes: half a round trip by an event counter, less the calls themselves",
);
static PROCESS_ROUND_TRIP: Metric = handing_over(
    "os.switch.process.eventfd.round_trip",
    "A token to another process on the same CPU and back by two event counters, nothing subtracted",
);
static PROCESS_OWN: Metric = handing_over(
    "os.switch.process.eventfd.own",
    "Adding to an event counter and reading it again, in one task, as subtracted from a switch between processes",
);
static PROCESS_WHAT: Switching = Switching {
    means: Means::Eventfd,
    task: Task::Process,
    switch: &PROCESS_SWITCH,
    round_trip: &PROCESS_ROUND_TRIP,
    own: Some(&PROCESS_OWN),
};
static PROCESS_LIKE: AsWithPipes =
    AsWithPipes { pipe: &pipe::PROCESS_SWITCH, not_subtracted: None, factor: 1.5, why: WHY };

static THREAD_SWITCH: Metric = difference(
    "os.switch.thread.eventfd",
    "One switch of a CPU between two threads: half a round trip by an event counter, less the calls themselves",
);
static THREAD_ROUND_TRIP: Metric = handing_over(
    "os.switch.thread.eventfd.round_trip",
    "A token to another thread on the same CPU and back by two event counters, nothing subtracted",
);
static THREAD_OWN: Metric = handing_over(
    "os.switch.thread.eventfd.own",
    "Adding to an event counter and reading it again, in one task, as subtracted from a switch between threads",
);
static THREAD_WHAT: Switching = Switching {
    means: Means::Eventfd,
    task: Task::Thread,
    switch: &THREAD_SWITCH,
    round_trip: &THREAD_ROUND_TRIP,
    own: Some(&THREAD_OWN),
};
static THREAD_LIKE: AsWithPipes =
    AsWithPipes { pipe: &pipe::THREAD_SWITCH, not_subtracted: None, factor: 1.5, why: WHY };

pub(in crate::os) static PROCESS: Probe = Probe {
    id: "os.switch.process.eventfd",
    summary: "Switching a CPU between two processes that pass a token by event counters",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&PROCESS_SWITCH, &PROCESS_ROUND_TRIP, &PROCESS_OWN],
    inputs: &["os.switch.process.pipe"],
    cases: super::cases,
    run: |bench, _| super::run(bench, &PROCESS_WHAT),
    predict: |facts, metric, _| PROCESS_LIKE.predicted(facts, metric, &PROCESS_WHAT),
};

pub(in crate::os) static THREAD: Probe = Probe {
    id: "os.switch.thread.eventfd",
    summary: "Switching a CPU between two threads that pass a token by event counters",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&THREAD_SWITCH, &THREAD_ROUND_TRIP, &THREAD_OWN],
    inputs: &["os.switch.thread.pipe"],
    cases: super::cases,
    run: |bench, _| super::run(bench, &THREAD_WHAT),
    predict: |facts, metric, _| THREAD_LIKE.predicted(facts, metric, &THREAD_WHAT),
};

/// Why it may differ from pipes.
const WHY: &str = "an event counter is a pipe without pages: the calls differ, and they are subtracted";

const METHOD: Method = Method {
    how: concat!(
        shared_text!(how),
        "The token is a count of one in an eventfd, one for each direction: a pass writes 8 bytes, a take reads 8 \
         bytes and leaves zero."
    ),
    prediction: "The switch by pipes measured in this run: whatever the means, the scheduler picks, saves and loads \
                 in the same way (an event counter is a pipe without pages: the calls differ, and they are \
                 subtracted).",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        shared_text!(proof),
        "A counter with EFD_SEMAPHORE or O_NONBLOCK behaves differently: neither is set.",
    ],
    sources: &["eventfd(2)"],
};
