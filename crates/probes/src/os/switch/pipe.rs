//! One switch of a CPU between two tasks that pass a byte over two pipes: processes, and threads of one process.
//!
//! The classic figure for "a context switch". It must not be taken for what switching costs a program with a working
//! set, nor compared with figures that include the pipe's own calls.

use kelvin_harness::{Facts, Kind, Method, Probe};
use kelvin_model::{Metric, NoPrediction, Prediction};
use kelvin_sys::peer::Task;
use kelvin_sys::token::Means;

use super::{Switching, difference, handing_over, predict, shared_text};

pub(crate) static PROCESS_SWITCH: Metric = difference(
    "os.switch.process.pipe",
    "One switch of a CPU between two processes: half a round trip over two pipes, less the pipe's own write and read",
)
.baseline();
static PROCESS_ROUND_TRIP: Metric = handing_over(
    "os.switch.process.pipe.round_trip",
    "A byte to another process on the same CPU and back over two pipes, nothing subtracted",
);
pub(crate) static PROCESS_OWN: Metric = handing_over(
    "os.switch.process.pipe.own",
    "Writing a byte to a pipe and reading it again in one task, as subtracted from a switch between processes",
);
static PROCESS_WHAT: Switching = Switching {
    means: Means::Pipe,
    task: Task::Process,
    switch: &PROCESS_SWITCH,
    round_trip: &PROCESS_ROUND_TRIP,
    own: Some(&PROCESS_OWN),
};

pub(in crate::os) static THREAD_SWITCH: Metric = difference(
    "os.switch.thread.pipe",
    "One switch of a CPU between two threads: half a round trip over two pipes, less the pipe's own write and read",
)
.baseline();
static THREAD_ROUND_TRIP: Metric = handing_over(
    "os.switch.thread.pipe.round_trip",
    "A byte to another thread on the same CPU and back over two pipes, nothing subtracted",
);
static THREAD_OWN: Metric = handing_over(
    "os.switch.thread.pipe.own",
    "Writing a byte to a pipe and reading it again in one task, as subtracted from a switch between threads",
);
static THREAD_WHAT: Switching = Switching {
    means: Means::Pipe,
    task: Task::Thread,
    switch: &THREAD_SWITCH,
    round_trip: &THREAD_ROUND_TRIP,
    own: Some(&THREAD_OWN),
};

pub(crate) static PROCESS: Probe = Probe {
    id: "os.switch.process.pipe",
    summary: "Switching a CPU between two processes that pass a byte over pipes",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&PROCESS_SWITCH, &PROCESS_ROUND_TRIP, &PROCESS_OWN],
    inputs: &[],
    cases: super::cases,
    run: |bench, _| super::run(bench, &PROCESS_WHAT),
    predict: |facts, metric, _| predicted(facts, metric, &PROCESS_WHAT),
};

pub(in crate::os) static THREAD: Probe = Probe {
    id: "os.switch.thread.pipe",
    summary: "Switching a CPU between two threads that pass a byte over pipes",
    kind: Kind::Measure,
    method: METHOD,
    metrics: &[&THREAD_SWITCH, &THREAD_ROUND_TRIP, &THREAD_OWN],
    inputs: &[],
    cases: super::cases,
    run: |bench, _| super::run(bench, &THREAD_WHAT),
    predict: |facts, metric, _| predicted(facts, metric, &THREAD_WHAT),
};

const METHOD: Method = Method {
    how: concat!(
        shared_text!(how),
        "The token is one byte, by bare write and read system calls. `perf bench sched pipe` pinned to one CPU prints \
         the round trip as its usecs/op: each of its loops is a write and a read on either side, two messages and two \
         switches. lmbench's lat_ctx -s 0 2 prints the headline."
    ),
    prediction: "A published figure for the same quantity, with the pipe's calls subtracted in the same way, taken as \
                 a time; the round trip is two of those and twice the calls measured alone in this run. The two null \
                 calls of a hand-over (one to write, one to read) are part of what is subtracted, so that they count \
                 towards the round trip and not towards the switch. Mitigations that the published machine did not \
                 have are named and not added.",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        shared_text!(proof),
        "Half a round trip published as a switch: it holds a write and a read as well, a tenth to a third of it.",
        "The pipe's own cost taken from another process or another minute: it is measured in the same batch here.",
    ],
    sources: &[
        "McVoy and Staelin, lmbench: Portable Tools for Performance Analysis, USENIX 1996 (lat_ctx)",
        "perf bench sched pipe (tools/perf/bench/sched-pipe.c in the Linux source)",
        "Li, Ding and Shen, Quantifying the Cost of Context Switch, ExpCS 2007",
        "Linux kernel documentation, admin-guide/hw-vuln/spectre.rst (what is done on a switch)",
    ],
};

fn predicted(facts: &Facts<'_>, metric: &Metric, what: &Switching) -> Result<Prediction, NoPrediction> {
    if metric.id == what.switch.id {
        return Ok(predict::published(facts, what.task));
    }
    match what.own {
        Some(own) if metric.id == what.round_trip.id => predict::round_trip(facts, what.task, own),
        _ => Err(predict::calls_alone()),
    }
}
