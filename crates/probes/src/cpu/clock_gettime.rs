//! The cost of clock_gettime, and whether it enters the kernel.
//!
//! It is the cost of a time stamp in a program. It must not be used as the cost of a system call: most clocks are read
//! in user mode, through the vDSO.

use kelvin_core::catalogue::cpu::{self, CLOCK_GETTIME, CLOCK_PAIR};
use kelvin_sys::syscall_loops::{KernelClock, clock_gettime_loop, libc_clock_gettime_loop};

use crate::os::syscall_null::{self, TRIAL_CALLS, takes_less_than_half};
use crate::prelude::*;
use crate::program::note_c_library;

pub(crate) static PROBE: Probe = Probe {
    summary: "clock_gettime through the C library, by vDSO or system call",
    method: include_str!("clock_gettime.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&CLOCK_GETTIME])
};

/// Sequence lock, scaling by a multiplication and a shift, normalisation, and two calls: about 60 instructions, at
/// three to four per cycle and 3 to 4 GHz.
const VDSO_OVERHEAD_NANOSECONDS: f64 = 5.0;
/// Clock sources that the vDSO can read (VDSO_CLOCKMODE of each in the kernel's drivers).
const VDSO_CLOCK_SOURCES: [&str; 4] = ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"];

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let clocks = cpu::KernelClock::ALL;
    let count = if effort == Effort::Quick { 2 } else { clocks.len() };
    words(&clocks[..count])
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let clock = match cpu::KernelClock::of(case).or_fail(format!("the case {case} names no clock"))? {
        cpu::KernelClock::Monotonic => KernelClock::Monotonic,
        cpu::KernelClock::MonotonicRaw => KernelClock::MonotonicRaw,
        cpu::KernelClock::MonotonicCoarse => KernelClock::MonotonicCoarse,
        cpu::KernelClock::ThreadCpu => KernelClock::ThreadCpu,
    };
    let library = || Ok(libc_clock_gettime_loop(clock, TRIAL_CALLS)?);
    let kernel = || Ok(clock_gettime_loop(clock, TRIAL_CALLS)?);
    let is_in_user_mode = takes_less_than_half(bench.clock(), library, kernel)?;
    bench.note(if is_in_user_mode {
        "vDSO: less than half the time of the bare system call for the same clock"
    } else {
        "system call: more than half the time of the bare system call for the same clock"
    });
    note_c_library(bench);
    bench.time(&CLOCK_GETTIME, |calls| Ok(libc_clock_gettime_loop(clock, calls)?))
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    match cpu::KernelClock::of(case) {
        Some(cpu::KernelClock::ThreadCpu) => Err(NoPrediction::new(
            "it is a system call that locks the run queue; its cost is not published, and os.syscall.null is its floor",
        )),
        Some(cpu::KernelClock::MonotonicCoarse) => {
            let source = "Linux lib/vdso/gettimeofday.c, do_coarse: at most 60 instructions";
            let overhead = published("around a read", VDSO_OVERHEAD_NANOSECONDS, Unit::Nanoseconds, source);
            Ok(overhead.of_value([0.25, 2.0]).derived("no counter read"))
        }
        _ => match facts.machine().kernel.clock_source.get() {
            None => Err(NoPrediction::new("the kernel's clock source is unknown")),
            Some(name) if VDSO_CLOCK_SOURCES.contains(&name.as_str()) => {
                let pair = measured(facts, &CLOCK_PAIR, &Case::new())?;
                let overhead = quantity("around a read", VDSO_OVERHEAD_NANOSECONDS, Unit::Nanoseconds);
                let read = (pair.clone() / 2.0 + overhead.clone())
                    .source("Linux lib/vdso/gettimeofday.c: one fenced read of the counter inside a sequence lock");
                let remark = "predicted range: half a read to a whole pair and twice the overhead around it";
                let range = read.with_bounds(&(pair.clone() / 4.0), &(pair + 2.0 * overhead));
                Ok(range.explained(PredictionBasis::Derived, "counter read", remark))
            }
            Some(name) => {
                let call = syscall_null::kernel_entry(facts)?;
                let remark = format!(
                    "the system call that the clock source {name} requires, plus reading it: from next to nothing to over a \
                     microsecond (hpet, acpi_pm)"
                );
                Ok(call.of_value([1.0, 20.0]).explained(PredictionBasis::Derived, "system call", &remark))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;
    use kelvin_harness::MeasuredValue;

    fn predicted(source: &str, clock: cpu::KernelClock) -> Result<Prediction, NoPrediction> {
        let mut machine = testing::machine();
        machine.kernel.clock_source = Fact::known(source.into(), "a test");
        let measured = |id: &str, _: &Case| {
            let value = if id == CLOCK_PAIR.id.as_str() { 30.0 } else { 60.0 };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        predict(&PredictionInputs::new(&machine, &measured), &CLOCK_GETTIME, &Case::new().with_word(clock))
    }

    #[test]
    fn prediction_depends_on_clock_source() {
        let by_counter = predicted("tsc", cpu::KernelClock::Monotonic).unwrap();
        assert_eq!((by_counter.value, by_counter.low, by_counter.high), (20.0, 7.5, 40.0));
        assert_eq!(predicted("hpet", cpu::KernelClock::MonotonicRaw).unwrap().value, 60.0);
        assert_eq!(predicted("hpet", cpu::KernelClock::MonotonicCoarse).unwrap().value, 5.0);
        assert!(predicted("tsc", cpu::KernelClock::ThreadCpu).is_err());
    }
}
