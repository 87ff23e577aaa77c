//! What entering and leaving the kernel costs: a system call that does next to nothing.
//!
//! It is the floor under every other service of the kernel. It must not be used as the cost of a "typical" system call,
//! which does work, nor compared with a call that the C library answers by itself.

use kelvin_harness::{Bench, Effort, Facts, Kind, Method, Probe, Stop};
use kelvin_model::{Axis, AxisScale, Case, Machine, Metric, NoPrediction, Overhead, Prediction};
use kelvin_sys::kernels;

const CALL: Axis = Axis::new("call", "system call", AxisScale::Category);

pub(crate) static METRIC: Metric =
    Metric::duration("os.syscall.null", "One raw getppid system call, from user mode to the kernel and back")
        .over_one(CALL)
        .overhead(Overhead::ClockPairAndLoop)
        .seed();

pub(crate) static PROBE: Probe = Probe {
    id: "os.syscall.null",
    summary: "A system call that does next to nothing, by the bare instruction",
    kind: Kind::Measure,
    method: Method {
        how: "A counted loop around the bare system-call instruction, in assembly, timed in batches. The loop, measured \
              in the same process, is subtracted.",
        prediction: "",
        not_for: "The cost of a system call that does work.",
        pitfalls: &[
            "A call that the C library answers from a cached value or through the vDSO never enters the kernel.",
        ],
        sources: &["lmbench lat_syscall null", "perf bench syscall basic"],
    },
    metrics: &[&METRIC],
    inputs: &[],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, _: Effort) -> Vec<Case> {
    vec![Case::new().with_word("call", "getppid")]
}

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    bench.time(&METRIC, |iterations| {
        std::hint::black_box(kernels::null_system_calls(iterations));
        Ok(())
    })
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because("no table of trap costs is built in for this processor"))
}
