//! One switch of a CPU between two tasks that never sleep: each yields until it is its turn.
//!
//! The scheduler without sleeping and waking. It must not be taken for a way to hand over the CPU: a yield need not
//! switch, and other tasks on the CPU may be chosen.

use kelvin_harness::{Kind, Method, Probe};
use kelvin_model::Metric;
use kelvin_sys::peer::Task;
use kelvin_sys::token::Means;

use super::predict::AsWithPipes;
use super::{Switching, difference, handing_over, pipe, shared_text};

static PROCESS_SWITCH: Metric =
    difference("os.switch.process.yield", "One switch of a CPU between two processes: half a round trip by yielding");
static PROCESS_ROUND_TRIP: Metric = handing_over(
    "os.switch.process.yield.round_trip",
    "A turn to another process on the same CPU and back by yielding",
);
static PROCESS_WHAT: Switching = Switching {
    means: Means::Yield,
    task: Task::Process,
    switch: &PROCESS_SWITCH,
    round_trip: &PROCESS_ROUND_TRIP,
    own: None,
};
static PROCESS_LIKE: AsWithPipes =
    AsWithPipes { pipe: &pipe::PROCESS_SWITCH, not_subtracted: None, factor: 2.0, why: WHY };

static THREAD_SWITCH: Metric =
    difference("os.switch.thread.yield", "One switch of a CPU between two threads: half a round trip by yielding");
static THREAD_ROUND_TRIP: Metric =
    handing_over("os.switch.thread.yield.round_trip", "A turn to another thread on the same CPU and back by yielding");
static THREAD_WHAT: Switching = Switching {
    means: Means::Yield,
    task: Task::Thread,
    switch: &THREAD_SWITCH,
    round_trip: &THREAD_ROUND_TRIP,
    own: None,
};
static THREAD_LIKE: AsWithPipes =
    AsWithPipes { pipe: &pipe::THREAD_SWITCH, not_subtracted: None, factor: 2.0, why: WHY };

pub(in crate::os) static PROCESS: Probe = Probe {
    id: "os.switch.process.yield",
    summary: "Switching a CPU between two processes that yield to each other",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&PROCESS_SWITCH, &PROCESS_ROUND_TRIP],
    inputs: &["os.switch.process.pipe"],
    cases: super::cases,
    run: |bench, _| super::run(bench, &PROCESS_WHAT),
    predict: |facts, metric, _| PROCESS_LIKE.predicted(facts, metric, &PROCESS_WHAT),
};

pub(in crate::os) static THREAD: Probe = Probe {
    id: "os.switch.thread.yield",
    summary: "Switching a CPU between two threads that yield to each other",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&THREAD_SWITCH, &THREAD_ROUND_TRIP],
    inputs: &["os.switch.thread.pipe"],
    cases: super::cases,
    run: |bench, _| super::run(bench, &THREAD_WHAT),
    predict: |facts, metric, _| THREAD_LIKE.predicted(facts, metric, &THREAD_WHAT),
};

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
