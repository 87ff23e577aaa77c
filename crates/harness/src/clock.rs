//! The clock of a run: the best one available, calibrated on the probes' CPU.

use std::io;

use kelvin_core::{ClockInfo, ClockKind, Fact};
use kelvin_stats::median;
use kelvin_sys::clock::{self, Clock, ClockCalibration};
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::{cpu, kernels};

/// Seconds of calibrating.
const CALIBRATION_SECONDS: f64 = 0.05;
/// Empty pairs of readings, of which the median counts.
const CLOCK_PAIR_SAMPLES: usize = 1001;
/// Where the kernel lists its clock sources and the current one.
const AVAILABLE_CLOCKSOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
const CURRENT_CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Why there is no calibrated clock.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The probes' CPU cannot be used.
    #[error("cannot pin to CPU {cpu}: {source}")]
    Pin {
        /// That CPU.
        cpu: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// There can be no thread for it.
    #[error("{0}")]
    NoThread(io::Error),
    /// A bug in kelvin.
    #[error("calibrating the clock panicked")]
    Panicked,
}

/// The best clock available, and if it is not the counter, why.
pub fn best_clock() -> (ClockKind, Clock, Option<String>) {
    let note = clock::counter_unusable(std::fs::read_to_string(AVAILABLE_CLOCKSOURCES).ok().as_deref());
    let kind = match (&note, cfg!(target_arch = "aarch64")) {
        (Some(_), _) => ClockKind::MonotonicRaw,
        (None, true) => ClockKind::VirtualCounter,
        (None, false) => ClockKind::Tsc,
    };
    (kind, clock_of_kind(kind), note)
}

/// The clock of a kind.
pub(crate) fn clock_of_kind(kind: ClockKind) -> Clock {
    if kind == ClockKind::MonotonicRaw { Clock::MonotonicRaw } else { Clock::Counter }
}

/// Calibrates the best clock on the probes' CPU.
///
/// # Errors
/// [`ClockError`].
pub fn calibrate_clock(cpu: u32) -> Result<ClockInfo, ClockError> {
    // In a separate thread, so that this process keeps all its CPUs.
    let thread = ThreadBuilder::named("clock").start(move || calibrate_on_cpu(cpu)).map_err(ClockError::NoThread)?;
    thread.join().map_err(|_| ClockError::Panicked)?.map_err(|source| ClockError::Pin { cpu, source })
}

/// The kernel's current clock source.
pub fn clock_source() -> Option<String> {
    std::fs::read_to_string(CURRENT_CLOCKSOURCE).ok().map(|text| text.trim().to_owned())
}

fn calibrate_on_cpu(cpu: u32) -> io::Result<ClockInfo> {
    let (kind, clock, note) = best_clock();
    cpu::pin(&[cpu])?;
    let ClockCalibration { hertz, relative_error } = clock::calibrate(clock, CALIBRATION_SECONDS);
    let pair = |_| {
        let start = clock.start();
        clock.stop() - start
    };
    let mut pairs: Vec<u64> = (0..CLOCK_PAIR_SAMPLES).map(pair).collect();
    pairs.sort_unstable();
    Ok(ClockInfo {
        kind,
        hertz,
        relative_error,
        pair_nanoseconds: pairs[CLOCK_PAIR_SAMPLES / 2] as f64 * 1e9 / hertz,
        multiply_cycles: match multiply_cycles(clock) {
            Ok(cycles) => Fact::known(cycles, "measured: a multiply against one-cycle adds"),
            Err(reason) => Fact::unknown(reason),
        },
        note,
        source_before: clock_source(),
        source_after: None,
    })
}

/// Ratios taken, and pairs of chains in each, of which the fastest of either kind count.
const RATIO_SAMPLES: usize = 41;
const CHAIN_PAIRS: usize = 8;
/// How far below and above a whole number the median ratio may lie, as shares of it. Below, because an SMT sibling
/// slows adds more than multiplies, by up to this much where observed; above only by clock error and chance.
const MAX_BELOW_INTEGER: f64 = 0.08;
const MAX_ABOVE_INTEGER: f64 = 0.02;
/// Attempts, in case the frequency changes meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// Core cycles of the frequency canary's 64-bit multiply on the CPU that the calling thread is pinned to. Takes some 4 milliseconds.
///
/// The frequency is read from chains of dependent multiplies, whose latency is a whole number of cycles that differs
/// between cores. Adds take one cycle on every core, so the ratio of a multiply to an add is its latency in cycles.
/// Adds would be the worse reference: an SMT sibling, which may belong to another virtual machine, takes an execution
/// port from a chain of adds in two to four cycles of a hundred, and hardly ever from a chain of multiplies.
///
/// # Errors
/// A ratio of multiply to add that is not a whole number, in words.
pub fn multiply_cycles(clock: Clock) -> Result<u32, String> {
    let mut ratio = f64::NAN;
    for _ in 0..MAX_ATTEMPTS {
        let ratios: Vec<f64> = (0..RATIO_SAMPLES).map(|_| ratio_of_fastest(clock)).collect();
        ratio = median(&ratios);
        if let Some(cycles) = nearest_integer(ratio) {
            return Ok(cycles);
        }
    }
    Err(format!(
        "needs a core on which an add takes one cycle and a multiply a whole number of them, and that other work does not \
         share meanwhile: here a multiply takes as long as {ratio:.3} adds"
    ))
}

/// The time of a multiply over that of an add, each the fastest of a few alternating chains.
fn ratio_of_fastest(clock: Clock) -> f64 {
    const ADDS: u64 = 300;
    const MULTIPLIES: u64 = 100;
    let (mut add, mut multiply) = (u64::MAX, u64::MAX);
    for _ in 0..CHAIN_PAIRS {
        add = add.min(elapsed_ticks(clock, || kernels::chain_add(ADDS)));
        multiply = multiply.min(elapsed_ticks(clock, || kernels::chain_multiply(MULTIPLIES)));
    }
    (multiply as f64 / MULTIPLIES as f64) / (add.max(1) as f64 / ADDS as f64)
}

fn elapsed_ticks(clock: Clock, work: impl FnOnce()) -> u64 {
    let start = clock.start();
    work();
    clock.stop().wrapping_sub(start)
}

/// The whole number that a ratio is close to, if any.
fn nearest_integer(ratio: f64) -> Option<u32> {
    let count = ratio.round().max(1.0);
    (count * (1.0 - MAX_BELOW_INTEGER)..=count * (1.0 + MAX_ABOVE_INTEGER)).contains(&ratio).then_some(count as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowed_adds_round_to_whole_cycles() {
        assert_eq!(nearest_integer(3.0), Some(3));
        assert_eq!(nearest_integer(2.88), Some(3));
        assert_eq!(nearest_integer(3.05), Some(3));
        assert_eq!(nearest_integer(4.7), Some(5));
        assert_eq!(nearest_integer(3.4), None);
        assert_eq!(nearest_integer(2.7), None);
        assert_eq!(nearest_integer(0.4), None);
        assert_eq!(nearest_integer(f64::NAN), None);
    }
}
