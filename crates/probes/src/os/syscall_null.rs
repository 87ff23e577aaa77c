//! The cost of kernel entry and exit: a system call that does next to nothing.
//!
//! It is the floor of every kernel service. It must not be used as the cost of a "typical" system call, which does
//! work. Nor must it be compared with a call that the C library answers from a cache.

use std::hint::black_box;

use kelvin_core::catalogue::os::{NullCall, SYSCALL_NULL};
use kelvin_sys::clock::Clock;
use kelvin_sys::{kernels, syscall_loops};

use super::trap;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "A system call that does next to nothing, by the bare instruction and through the C library",
    method: include_str!("syscall_null.md"),
    cases,
    run,
    predict: |facts, _, _| trap::predict(facts),
    ..Probe::measure(&[&SYSCALL_NULL])
};

/// The case used as the cost of a kernel entry in other predictions.
pub(crate) fn kernel_entry_case() -> Case {
    Case::new().with_word(NullCall::Getppid)
}

/// The cost of a kernel entry.
pub(crate) fn kernel_entry(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    measured(facts, &SYSCALL_NULL, &kernel_entry_case())
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
        let trial = |calls: fn(u64) -> i64| {
            move || {
                black_box(calls(TRIAL_CALLS));
                Ok(())
            }
        };
        let [library, kernel] = [syscall_loops::libc_getpid_loop, syscall_loops::gettid_loop].map(trial);
        let is_cached = takes_less_than_half(bench.clock(), library, kernel)?;
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

/// Calls of a trial, and trials.
pub(crate) const TRIAL_CALLS: u64 = 500;
const TRIALS: usize = 7;

/// Whether a trial of calls through the C library takes less than half the time of one of bare system calls. It then
/// cannot have entered the kernel. The trials of both alternate.
///
/// # Errors
/// That of a trial.
pub(crate) fn takes_less_than_half(
    clock: Clock,
    library: impl Fn() -> ProbeResult,
    kernel: impl Fn() -> ProbeResult,
) -> ProbeResult<bool> {
    let (mut min_library, mut min_kernel) = (u64::MAX, u64::MAX);
    for _ in 0..TRIALS {
        let ((library, library_outcome), (kernel, kernel_outcome)) = (clock.time(&library), clock.time(&kernel));
        library_outcome.and(kernel_outcome)?;
        (min_library, min_kernel) = (min_library.min(library), min_kernel.min(kernel));
    }
    Ok(2 * min_library < min_kernel)
}
