//! Clocks that time a batch, and their calibration.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels;

/// A source of ticks. Copy, so that a probe can carry it into a closure.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The time-stamp counter (x86-64) or the virtual counter (aarch64), read by fenced instructions.
    Counter,
    /// `clock_gettime(CLOCK_MONOTONIC_RAW)`; a tick is a nanosecond.
    MonotonicRaw,
    /// A script; a tick is a nanosecond. For tests of code that is timed.
    Scripted(&'static ScriptedClock),
}

/// A clock that advances only on request, and by a fixed step per reading.
#[derive(Debug, Default)]
pub struct ScriptedClock {
    now: AtomicU64,
    step: AtomicU64,
}

impl ScriptedClock {
    /// A script that lives as long as the process; a reading costs `step` nanoseconds.
    pub fn leak(step: u64) -> &'static Self {
        let script = Box::leak(Box::new(Self::default()));
        script.step.store(step, Ordering::Relaxed);
        script
    }

    /// From now on a reading costs this many nanoseconds.
    pub fn set_step(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Advances it by this many nanoseconds.
    pub fn advance(&self, nanoseconds: u64) {
        self.now.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Nanoseconds since the script began, without a step.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn read(&self) -> u64 {
        self.now.fetch_add(self.step.load(Ordering::Relaxed), Ordering::Relaxed)
    }
}

impl Clock {
    /// Ticks now, before the work: nothing of the work is executed earlier.
    #[inline(always)]
    pub fn start(self) -> u64 {
        match self {
            Clock::Counter => kernels::counter_start(),
            Clock::MonotonicRaw => nanoseconds(libc::CLOCK_MONOTONIC_RAW),
            Clock::Scripted(script) => script.read(),
        }
    }

    /// Ticks now, after the work: all of the work is done.
    #[inline(always)]
    pub fn stop(self) -> u64 {
        match self {
            Clock::Counter => kernels::counter_stop(),
            Clock::MonotonicRaw => nanoseconds(libc::CLOCK_MONOTONIC_RAW),
            Clock::Scripted(script) => script.read(),
        }
    }

    /// The ticks that work takes, and its outcome.
    #[inline(always)]
    pub fn time<T>(self, work: impl FnOnce() -> T) -> (u64, T) {
        let start = self.start();
        let outcome = work();
        (self.stop().wrapping_sub(start), outcome)
    }

    /// Nanoseconds for deadlines: CLOCK_MONOTONIC, or the script's time.
    pub fn deadline_nanoseconds(self) -> u64 {
        match self {
            Clock::Scripted(script) => script.now(),
            _ => monotonic(),
        }
    }
}

/// Nanoseconds of a kernel clock (`CLOCK_MONOTONIC` and the like) through the C library, so through the vDSO if it can.
#[inline(always)]
pub fn nanoseconds(clock: libc::clockid_t) -> u64 {
    // SAFETY: the C library's own.
    unsafe { nanoseconds_by(libc::clock_gettime, clock) }
}

/// The type of clock_gettime(2).
pub(crate) type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// Nanoseconds of a kernel clock by this way to clock_gettime.
///
/// # Safety
/// It is clock_gettime.
#[inline(always)]
pub(crate) unsafe fn nanoseconds_by(clock_gettime: ClockGettime, clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call fills. It cannot fail for the constant clocks used here.
    unsafe { clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of CLOCK_MONOTONIC: for deadlines and progress, never for samples.
pub fn monotonic() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of CLOCK_REALTIME since 1970: only to say when something was, since this clock is set and slewed.
pub fn realtime() -> u64 {
    nanoseconds(libc::CLOCK_REALTIME)
}

/// Why the counter cannot be the clock here, if it cannot.
///
/// On x86-64 it must be invariant (CPUID 8000_0007h EDX bit 8; Intel SDM 3B 19.17, AMD APM 2 section 13.2.4) and the
/// kernel must not have found it unstable, in which case `tsc` is missing from its available clock sources.
/// `available_clock_sources` is the text of that sysfs file, if it could be read.
pub fn counter_unusable(available_clock_sources: Option<&str>) -> Option<String> {
    kernels::counter_unusable().or_else(|| {
        let sources = available_clock_sources?;
        let expected = kernels::COUNTER_CLOCK_SOURCES;
        let is_trusted = sources.split_whitespace().any(|source| expected.contains(&source));
        (!is_trusted)
            .then(|| format!("the kernel does not trust the counter: its clock sources are {}", sources.trim()))
    })
}

/// The rate of a clock against CLOCK_MONOTONIC_RAW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockCalibration {
    /// Ticks per second.
    pub hertz: f64,
    /// Half-width of its 95 % interval as a share of it.
    pub relative_error: f64,
}

/// Calibrates a clock against CLOCK_MONOTONIC_RAW for about `seconds`.
///
/// Each point is the tightest of several raw-counter-raw triples, which rejects interruptions between the two readings;
/// the rate is the least-squares slope over the points and its error the slope's own.
pub fn calibrate(clock: Clock, seconds: f64) -> ClockCalibration {
    if !matches!(clock, Clock::Counter) {
        return ClockCalibration { hertz: 1e9, relative_error: 0.0 };
    }
    const POINTS: usize = 40;
    let step = (seconds * 1e9 / POINTS as f64) as u64;
    let origin = nanoseconds(libc::CLOCK_MONOTONIC_RAW);
    let points: Vec<(f64, f64)> = (0..POINTS)
        .map(|point| {
            while nanoseconds(libc::CLOCK_MONOTONIC_RAW) < origin + point as u64 * step {
                std::hint::spin_loop();
            }
            tightest_point(clock, origin)
        })
        .collect();
    fit_slope(&points)
}

/// The raw time (from `origin`) and the counter of the triple whose two raw readings lie closest together.
fn tightest_point(clock: Clock, origin: u64) -> (f64, f64) {
    (0..32)
        .map(|_| {
            let before = nanoseconds(libc::CLOCK_MONOTONIC_RAW);
            let ticks = clock.start();
            let after = nanoseconds(libc::CLOCK_MONOTONIC_RAW);
            (after - before, (before - origin) as f64 + (after - before) as f64 / 2.0, ticks as f64)
        })
        .min_by_key(|&(gap, ..)| gap)
        .map(|(_, time, ticks)| (time, ticks))
        .unwrap_or((0.0, 0.0))
}

fn fit_slope(points: &[(f64, f64)]) -> ClockCalibration {
    let n = points.len() as f64;
    let (first_time, first_ticks) = points[0];
    let mean_x = points.iter().map(|p| p.0 - first_time).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1 - first_ticks).sum::<f64>() / n;
    let sxx: f64 = points.iter().map(|p| (p.0 - first_time - mean_x).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - first_time - mean_x) * (p.1 - first_ticks - mean_y)).sum();
    let slope = sxy / sxx;
    let residual: f64 =
        points.iter().map(|p| (p.1 - first_ticks - mean_y - slope * (p.0 - first_time - mean_x)).powi(2)).sum();
    let standard_error = (residual / (n - 2.0) / sxx).sqrt();
    ClockCalibration { hertz: slope * 1e9, relative_error: 2.02 * standard_error / slope }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_matches_least_squares() {
        // y = 2x with residuals +1 -1 -1 +1 that leave the slope alone.
        let points = [(0.0, 1.0), (1.0, 1.0), (2.0, 3.0), (3.0, 7.0)];
        let calibration = fit_slope(&points);
        assert!((calibration.hertz - 2e9).abs() < 1.0);
        // residual sum of squares 4, n - 2 = 2, Sxx = 5: standard error sqrt(0.4)
        assert!((calibration.relative_error - 2.02 * 0.4f64.sqrt() / 2.0).abs() < 1e-12);
    }

    #[test]
    fn scripted_clock_advances_only_on_request() {
        let script = ScriptedClock::leak(5);
        let clock = Clock::Scripted(script);
        let start = clock.start();
        script.advance(100);
        assert_eq!(clock.stop() - start, 105);
    }

    #[test]
    fn counter_agrees_with_kernel() {
        if let Some(reason) = counter_unusable(None) {
            return kelvin_testing::MissingRequirement::machine(reason).report_skip("the counter as a clock");
        }
        let calibration = calibrate(Clock::Counter, 0.02);
        let raw = || nanoseconds(libc::CLOCK_MONOTONIC_RAW);
        let (before, start, after_start) = (raw(), Clock::Counter.start(), raw());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (before_stop, stop, after) = (raw(), Clock::Counter.stop(), raw());
        let counter_time = (stop - start) as f64 / calibration.hertz * 1e9;
        // The counter's time lies between that of the kernel's clock read outside it and inside it.
        assert!(
            counter_time < 1.01 * (after - before) as f64,
            "{calibration:?}: {counter_time} in {} ns",
            after - before
        );
        let inner_time = before_stop - after_start;
        assert!(counter_time > 0.99 * inner_time as f64, "{calibration:?}: {counter_time} around {inner_time} ns");
    }

    #[test]
    fn kernel_distrust_makes_counter_unusable() {
        assert!(counter_unusable(Some("kvm-clock acpi_pm\n")).is_some());
    }
}
