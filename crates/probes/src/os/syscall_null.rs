//! The cost of kernel entry and exit: a system call that does next to nothing.
//!
//! It is the floor of every kernel service. It must not be used as the cost of a "typical" system call, which does
//! work, nor compared with a call that the C library answers from a cache.

use std::hint::black_box;

pub(crate) use kelvin_core::catalogue::os::SYSCALL_NULL as METRIC;
use kelvin_core::catalogue::os::{NullCall, SYSCALL_NULL};
use kelvin_sys::clock::Clock;
use kelvin_sys::{kernels, syscall_loops};

use super::trap;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    id: SYSCALL_NULL.id.as_str(),
    summary: "A system call that does next to nothing, by the bare instruction and through the C library",
    kind: ProbeKind::Measure,
    method: Method {
        how: "A counted loop in assembly around the bare system-call instruction: getppid, and gettid as a second \
              trivial call. Neither can fail; every value is checked, and a test under seccomp counts one kernel entry \
              for each. The loop, measured in the same process, is subtracted. call=libc_getppid is the C library's \
              getppid in a compiled loop, as timed by `perf bench syscall basic` (which does not subtract its loop, a \
              cycle per iteration): the same kernel entry plus a call and a return, mispredicted where the kernel \
              overwrites or clears return predictions. call=libc_getpid shows caching: glibc before 2.25 caches the \
              process id and answers in a few cycles without the kernel; glibc since 2.25 and musl call the kernel \
              every time. A note says which this library does.",
        prediction: "Published cycles of the entry and exit instructions, about 170 instructions of the kernel's entry \
                     code, dispatch and exit at two per cycle, and the published cost of each mitigation in force: a \
                     page-table switch each way (KPTI), buffer clearing (MDS and similar), a misprediction for each \
                     return (safe RET, untrained returns) and for an indirect dispatch (retpolines); at the measured \
                     frequency. A mitigation without a published cost is named but adds nothing. The library's calls \
                     are predicted the same way.",
        not_for: "The cost of a system call that does work.",
        pitfalls: &[
            "A call that the C library answers from a cached value or through the vDSO never enters the kernel.",
            "Audit rules, seccomp filters and tracers slow down every entry.",
            "The same hardware is three to ten times slower with every mitigation in force than with none.",
        ],
        sources: &[
            "lmbench lat_syscall null",
            "perf bench syscall basic (tools/perf/bench/syscall.c)",
            trap::BEHRENS_SOURCE,
            "glibc 2.25 release notes: the getpid cache is removed",
        ],
    },
    metrics: &[&SYSCALL_NULL],
    cases,
    run,
    predict: |facts, _, _| trap::predict(facts),
};

/// The case used as the cost of a kernel entry in other predictions.
pub(crate) fn kernel_entry_case() -> Case {
    Case::new().with_word(NullCall::Getppid)
}

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let calls = if effort == Effort::Quick { &[NullCall::Getppid] } else { NullCall::ALL };
    words(calls)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let call: fn(u64) -> i64 = match required(NullCall::of(case), case)? {
        NullCall::Getppid => kernels::null_system_calls,
        NullCall::Gettid => syscall_loops::gettid_loop,
        NullCall::LibraryGetppid => syscall_loops::libc_getppid_loop,
        NullCall::LibraryGetpid => syscall_loops::libc_getpid_loop,
    };
    if NullCall::LibraryGetpid.point().is_in_case(case) {
        let library = || syscall_loops::libc_getpid_loop(TRIAL_CALLS);
        let is_cached = takes_less_than_half(bench.clock(), library, || syscall_loops::gettid_loop(TRIAL_CALLS));
        bench.note(if is_cached {
            "the C library caches the process id: its getpid takes less than half the time of a bare system call"
        } else {
            "the C library calls the kernel every time: its getpid takes more than half the time of a bare system call"
        });
    }
    let expected = call(1);
    bench.time(&SYSCALL_NULL, |iterations| {
        let answer = black_box(call(iterations));
        if answer == expected {
            Ok(())
        } else {
            Err(ProbeError::fail(format!("the call returned {answer}, not {expected}")))
        }
    })
}

/// Calls of a trial.
pub(crate) const TRIAL_CALLS: u64 = 500;

/// Whether a trial of calls through the C library takes less than half the time of one of bare system calls, and so cannot have entered the
/// kernel.
pub(crate) fn takes_less_than_half<R>(clock: Clock, library: impl Fn() -> R, kernel: impl Fn() -> R) -> bool {
    let ticks = |trial: &dyn Fn() -> R| {
        let begun = clock.start();
        black_box(trial());
        clock.stop().wrapping_sub(begun)
    };
    let [library, kernel] = [&library as &dyn Fn() -> R, &kernel].map(|trial| (0..7).map(|_| ticks(trial)).min());
    2 * library.unwrap_or(0) < kernel.unwrap_or(0)
}
