//! What entering and leaving the kernel costs: a system call that does next to nothing.
//!
//! It is the floor under every other service of the kernel. It must not be used as the cost of a "typical" system call,
//! which does work, nor compared with a call that the C library answers by itself.

use std::hint::black_box;

use kelvin_catalogue::cpu::FREQUENCY;
pub(crate) use kelvin_catalogue::os::SYSCALL_NULL as METRIC;
use kelvin_catalogue::os::{NullCall, SYSCALL_NULL};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::{calls, kernels};

use super::trap;

/// Id of the probe and of its metric.
pub(crate) const ID: &str = SYSCALL_NULL.id.as_str();

pub(crate) static PROBE: Probe = Probe {
    id: SYSCALL_NULL.id.as_str(),
    summary: "A system call that does next to nothing, by the bare instruction; and the C library's getpid beside it",
    kind: ProbeKind::Measure,
    method: Method {
        how: "A counted loop in assembly around the bare system-call instruction: getppid, and gettid as a second call that \
              does as little. Both cannot fail; every value is that of the kernel, and a test under seccomp counts one \
              entry into the kernel for each. The loop, measured in the same process, is subtracted. call=libc_getppid is \
              the C library's getppid in a compiled loop, which is what `perf bench syscall basic` times (without \
              subtracting its loop, a cycle a turn): the same entry into the kernel plus a call and a return, which comes \
              back mispredicted where the kernel steers or clears return predictions. call=libc_getpid shows what caching \
              hides: a library that keeps the process id (glibc before 2.25) answers in a few cycles without the kernel; \
              glibc since 2.25 and musl ask every time. A note says which of the two this library does.",
        prediction: "Published cycles of the instructions into the kernel and out of it, about 170 instructions of the \
                     kernel's entry code, dispatch and exit at two a cycle, and for each mitigation in force what is \
                     published for it: a switch of page tables each way (KPTI), clearing of buffers (MDS and its kin), a \
                     misprediction for each return (safe RET, untrained returns) and for an indirect dispatch (retpolines); \
                     over the measured frequency. A mitigation without a published figure is named and counts nothing. \
                     The library's calls are predicted the same way.",
        not_for: "The cost of a system call that does work.",
        pitfalls: &[
            "A call that the C library answers from a kept value or through the vDSO never enters the kernel.",
            "Audit rules, seccomp filters and tracers lengthen every entry.",
            "The same hardware is three to ten times slower with every mitigation in force than with none.",
        ],
        sources: &[
            "lmbench lat_syscall null",
            "perf bench syscall basic (tools/perf/bench/syscall.c)",
            trap::BEHRENS,
            "glibc 2.25 release notes: the getpid cache is removed",
        ],
    },
    metrics: &[&SYSCALL_NULL],
    inputs: &[FREQUENCY.id.as_str()],
    cases,
    run,
    predict,
};

/// The case whose value stands for an entry into the kernel in other predictions.
pub(crate) fn getppid() -> Case {
    Case::new().at(NullCall::Getppid)
}

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let calls = if effort == Effort::Quick { &[NullCall::Getppid] } else { NullCall::ALL };
    calls.iter().map(|&call| Case::new().at(call)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let call: fn(u64) -> i64 = match NullCall::of(case) {
        Some(NullCall::Getppid) => kernels::null_system_calls,
        Some(NullCall::Gettid) => calls::thread_ids,
        Some(NullCall::LibraryGetppid) => calls::library_parent_ids,
        Some(NullCall::LibraryGetpid) => calls::library_process_ids,
        None => return Err(Stop::fail(format!("there is no null call for the case {case}"))),
    };
    if NullCall::LibraryGetpid.point().is_of(case) {
        bench.note(who_answers(bench));
    }
    let expected = call(1);
    bench.time(&SYSCALL_NULL, |iterations| {
        let answer = black_box(call(iterations));
        if answer == expected { Ok(()) } else { Err(Stop::fail(format!("the call returned {answer}, not {expected}"))) }
    })
}

/// Whether the C library's getpid enters the kernel, found by timing it against a bare system call, in words.
fn who_answers(bench: &Bench<'_>) -> &'static str {
    const CALLS: u64 = 500;
    let clock = bench.clock();
    let ticks = |call: fn(u64) -> i64| {
        let once = || {
            let begun = clock.start();
            black_box(call(CALLS));
            clock.stop().wrapping_sub(begun)
        };
        (0..7).map(|_| once()).min().unwrap_or(0)
    };
    if 2 * ticks(calls::library_process_ids) < ticks(calls::thread_ids) {
        "the C library keeps the process id: its getpid takes less than half of a bare system call"
    } else {
        "the C library asks the kernel every time: its getpid takes more than half of a bare system call"
    }
}

fn predict(facts: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    trap::predict(facts)
}
