//! The clock of a run: the best one available, calibrated on the probes' CPU.

use std::io;

use kelvin_core::{ClockInfo, ClockKind, Fact};
use kelvin_sys::clock::{self, Clock, ClockCalibration};
use kelvin_sys::cpu;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::multiply_latency::multiply_cycles;

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

/// What a thread on the probes' CPU finds out.
struct CalibratedClock {
    calibration: ClockCalibration,
    pair: u64,
    cycles: Result<u32, String>,
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
/// As [`ClockError`] says.
pub fn calibrate_clock(cpu: u32) -> Result<ClockInfo, ClockError> {
    let (kind, chosen, note) = best_clock();
    // In a separate thread, so that this process keeps all its CPUs.
    let thread =
        ThreadBuilder::named("clock").start(move || calibrate_on(cpu, chosen)).map_err(ClockError::NoThread)?;
    let found = thread.join().map_err(|_| ClockError::Panicked)?.map_err(|source| ClockError::Pin { cpu, source })?;
    let hertz = found.calibration.hertz;
    Ok(ClockInfo {
        kind,
        hertz,
        relative_error: found.calibration.relative_error,
        pair_nanoseconds: found.pair as f64 * 1e9 / hertz,
        multiply_cycles: match found.cycles {
            Ok(cycles) => Fact::known(cycles, "measured: a multiply against one-cycle adds"),
            Err(reason) => Fact::unknown(reason),
        },
        note,
        source_before: clock_source(),
        source_after: None,
    })
}

/// The kernel's current clock source.
pub fn clock_source() -> Option<String> {
    std::fs::read_to_string(CURRENT_CLOCKSOURCE).ok().map(|text| text.trim().to_owned())
}

fn calibrate_on(cpu: u32, clock: Clock) -> io::Result<CalibratedClock> {
    cpu::pin(&[cpu])?;
    let calibration = clock::calibrate(clock, CALIBRATION_SECONDS);
    let pair = |_| {
        let start = clock.start();
        clock.stop() - start
    };
    let mut pairs: Vec<u64> = (0..CLOCK_PAIR_SAMPLES).map(pair).collect();
    pairs.sort_unstable();
    Ok(CalibratedClock { calibration, pair: pairs[CLOCK_PAIR_SAMPLES / 2], cycles: multiply_cycles(clock) })
}
