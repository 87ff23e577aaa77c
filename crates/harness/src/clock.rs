//! The clock of a run: the best one available, calibrated on the probes' CPU.

use std::io;

use kelvin_model::{ClockInfo, ClockKind, Fact};
use kelvin_sys::clock::{self, Calibration, Clock};
use kelvin_sys::cpu;
use kelvin_sys::spawn::Thread;

use crate::cycle::multiply_cycles;

/// Seconds of calibrating.
const CALIBRATION: f64 = 0.05;
/// Empty pairs of readings, of which the median counts.
const PAIRS: usize = 1001;
/// Where the kernel lists its clock sources and the current one.
const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

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
struct Calibrated {
    calibration: Calibration,
    pair: u64,
    cycles: Result<u32, String>,
}

/// The best clock available, and if it is not the counter, why.
pub fn best_clock() -> (ClockKind, Clock, Option<String>) {
    let note = clock::counter_unusable(std::fs::read_to_string(AVAILABLE).ok().as_deref());
    let kind = match (&note, cfg!(target_arch = "aarch64")) {
        (Some(_), _) => ClockKind::MonotonicRaw,
        (None, true) => ClockKind::VirtualCounter,
        (None, false) => ClockKind::Tsc,
    };
    (kind, of_kind(kind), note)
}

/// The clock of a kind.
pub(crate) fn of_kind(kind: ClockKind) -> Clock {
    if kind == ClockKind::MonotonicRaw { Clock::MonotonicRaw } else { Clock::Counter }
}

/// Calibrates the best clock on the probes' CPU.
///
/// # Errors
/// As [`ClockError`] says.
pub fn calibrate_clock(cpu: u32) -> Result<ClockInfo, ClockError> {
    let (kind, chosen, note) = best_clock();
    // In a separate thread, so that this process keeps all its CPUs.
    let thread = Thread::named("clock").start(move || calibrate_on(cpu, chosen)).map_err(ClockError::NoThread)?;
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
    std::fs::read_to_string(CURRENT).ok().map(|text| text.trim().to_owned())
}

fn calibrate_on(cpu: u32, clock: Clock) -> io::Result<Calibrated> {
    cpu::pin(&[cpu])?;
    let calibration = clock::calibrate(clock, CALIBRATION);
    let pair = |_| {
        let start = clock.start();
        clock.stop() - start
    };
    let mut pairs: Vec<u64> = (0..PAIRS).map(pair).collect();
    pairs.sort_unstable();
    Ok(Calibrated { calibration, pair: pairs[PAIRS / 2], cycles: multiply_cycles(clock) })
}
