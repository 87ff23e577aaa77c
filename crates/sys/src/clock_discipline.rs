//! How far CLOCK_REALTIME may be off: what the program that disciplines it has told the kernel (adjtimex(2)).

use std::time::Duration;

use crate::{Result, check};

/// The kernel's account of the error of CLOCK_REALTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDiscipline {
    /// Whether the kernel takes the clock for synchronised. Otherwise its errors are no statement on its time.
    pub is_synchronized: bool,
    /// The largest error: half of the round trip to the reference and what it is off, growing by 500 ppm since the last update.
    pub max_error: Duration,
    /// The error that is expected.
    pub estimated_error: Duration,
}

impl ClockDiscipline {
    /// Reads it, without a change of the clock.
    ///
    /// # Errors
    /// Those of adjtimex: some sandboxes forbid it.
    pub fn read() -> Result<Self> {
        // SAFETY: all fields are numbers, for which zeros are valid; no mode asks for a change.
        let mut time: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure that it gets.
        check(unsafe { libc::adjtimex(&raw mut time) })?;
        Ok(Self::of(time.status, time.maxerror, time.esterror))
    }

    /// Of the status and the errors in microseconds.
    fn of(status: libc::c_int, max_error: libc::c_long, estimated_error: libc::c_long) -> Self {
        let microseconds = |error: libc::c_long| Duration::from_micros(error.max(0) as u64);
        Self {
            is_synchronized: status & libc::STA_UNSYNC == 0,
            max_error: microseconds(max_error),
            estimated_error: microseconds(estimated_error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_microseconds_and_unsynchronized_is_a_status() {
        let synchronized = ClockDiscipline::of(libc::STA_PLL, 1500, 20);
        assert!(synchronized.is_synchronized);
        assert_eq!(synchronized.max_error, Duration::from_micros(1500));
        assert_eq!(synchronized.estimated_error, Duration::from_micros(20));
        let unsynchronized = ClockDiscipline::of(libc::STA_UNSYNC | libc::STA_PLL, 16_000_000, -1);
        assert!(!unsynchronized.is_synchronized && unsynchronized.estimated_error.is_zero());
    }

    #[test]
    fn estimate_is_within_maximum() {
        let discipline = ClockDiscipline::read().unwrap();
        assert!(discipline.estimated_error <= discipline.max_error || !discipline.is_synchronized, "{discipline:?}");
    }
}
