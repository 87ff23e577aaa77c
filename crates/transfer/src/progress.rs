//! The least progress of a connection: this many bytes in any time for which an end waited for the other one.
//!
//! Only that waiting counts. Who has a slow disk of his own, or flushes, takes that time from nobody. What an end waits for is
//! either that bytes come or that they are taken, each of which has a meter of its own.

use std::collections::VecDeque;
use std::time::Duration;

pub use kelvin_core::quantity::MinProgress;

use crate::Error;

/// Into how many parts a time is divided, by one of which more than it may pass until too little is noticed.
const MARKS_PER_WINDOW: u32 = 16;

/// Less than that has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{moved} bytes moved, where {} in {:.0} s are the least", required.bytes, required.interval.as_secs_f64())]
pub struct Shortfall {
    /// Bytes that have moved in the time.
    pub moved: u64,
    /// Those that must.
    pub required: MinProgress,
}

impl Shortfall {
    /// The error of the connection, of which the other side did not do this.
    pub(crate) fn to_error(self, doing: &'static str) -> Error {
        let seconds = self.required.interval.as_secs_f64();
        match self.moved {
            0 => Error::TimedOut { doing, seconds },
            moved => Error::TooSlow { moved, required: self.required.bytes, seconds },
        }
    }
}

/// What had moved after a certain time of waiting.
#[derive(Clone, Copy, Debug, Default)]
struct ProgressMark {
    waited: Duration,
    moved: u64,
}

/// Measures the progress in one direction.
#[derive(Clone, Debug, Default)]
pub struct ProgressMeter {
    /// What it asks for.
    pub required: MinProgress,
    current_mark: ProgressMark,
    /// For how long nothing has moved.
    silence: Duration,
    /// Earlier ones, of which the second is less than the time ago.
    marks: VecDeque<ProgressMark>,
}

impl ProgressMeter {
    /// Nothing has been waited for.
    pub fn new(required: MinProgress) -> Self {
        Self { required, ..Self::default() }
    }

    /// Begins anew.
    pub fn restart(&mut self) {
        (self.current_mark, self.silence) = (ProgressMark::default(), Duration::ZERO);
        self.marks.clear();
    }

    /// After a wait of this length this many bytes have moved.
    ///
    /// # Errors
    /// That they are too few.
    #[inline]
    pub fn record(&mut self, waited: Duration, bytes: usize) -> Result<(), Shortfall> {
        self.current_mark.waited += waited;
        self.current_mark.moved += bytes as u64;
        self.silence = if bytes > 0 { Duration::ZERO } else { self.silence + waited };
        let last = self.marks.back().map_or(Duration::ZERO, |mark| mark.waited);
        // Most waits are short, and nothing is due before a part of the time is over.
        let is_due = self.current_mark.waited - last >= self.required.interval / MARKS_PER_WINDOW
            || self.silence >= self.required.interval;
        if is_due { self.check() } else { Ok(()) }
    }

    fn check(&mut self) -> Result<(), Shortfall> {
        let MinProgress { bytes, interval: within } = self.required;
        if self.marks.is_empty() {
            self.marks.push_back(ProgressMark::default());
        }
        let is_expired = |mark: &ProgressMark| mark.waited + within <= self.current_mark.waited;
        while self.marks.get(1).is_some_and(is_expired) {
            self.marks.pop_front();
        }
        let moved = self.marks.front().filter(|mark| is_expired(mark)).map(|mark| self.current_mark.moved - mark.moved);
        self.marks.push_back(self.current_mark);
        match moved {
            _ if self.silence >= within => Err(Shortfall { moved: 0, required: self.required }),
            Some(moved) if moved < bytes => Err(Shortfall { moved, required: self.required }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIN_PROGRESS: MinProgress = MinProgress { bytes: 4096, interval: Duration::from_secs(120) };

    /// Waits of these seconds after which this many bytes came, over and over: when it is too little, and how much that was.
    fn first_shortfall(waits: &[(f64, usize)], count: usize) -> Option<(u64, u64)> {
        let (mut meter, mut waited) = (ProgressMeter::new(MIN_PROGRESS), 0.0);
        for &(seconds, bytes) in waits.iter().cycle().take(count) {
            waited += seconds;
            if let Err(shortfall) = meter.record(SECOND.mul_f64(seconds), bytes) {
                return Some((waited as u64, shortfall.moved));
            }
        }
        None
    }

    #[test]
    fn trickled_bytes_are_too_slow() {
        assert_eq!(first_shortfall(&[(119.0, 1)], 100), Some((238, 2)));
        assert_eq!(first_shortfall(&[(1.0, 1)], 1000), Some((120, 120)));
        assert_eq!(first_shortfall(&[(0.125, 4)], 10_000), Some((120, 3840)));
        // What came quickly before counts for its own time alone.
        assert!(matches!(
            first_shortfall(&[&[(0.0, 1 << 30)][..], &[(1.0, 1); 500]].concat(), 501),
            Some((120..=128, 120..=128))
        ));
    }

    #[test]
    fn silence_fails_after_window() {
        assert_eq!(first_shortfall(&[(0.1, 0)], 2000).map(|(_, moved)| moved), Some(0));
        assert!(matches!(
            first_shortfall(&[&[(1.0, 1 << 20)][..], &[(1.0, 0); 500]].concat(), 501),
            Some((121..=128, 0))
        ));
        assert_eq!(first_shortfall(&[(120.0, 0)], 1), Some((120, 0)));
    }

    #[test]
    fn slow_links_and_pauses_pass() {
        // 300 bits a second, 2400, and a modem that is silent for nearly two minutes between any two blocks.
        for waits in [&[(1.0, 37)][..], &[(0.1, 30)], &[(119.0, 4096)], &[(119.0, 64 << 10), (0.001, 1)]] {
            assert_eq!(first_shortfall(waits, 10_000), None, "{waits:?}");
        }
        // The other side's bytes are here before anybody waits: this end is the slow one.
        assert_eq!(first_shortfall(&[(0.0, 1)], 100_000), None);
    }

    #[test]
    fn marks_are_bounded_and_restart_clears() {
        let mut meter = ProgressMeter::new(MIN_PROGRESS);
        for _ in 0..1_000_000 {
            meter.record(SECOND, 4096).unwrap();
        }
        assert!(meter.marks.len() <= MARKS_PER_WINDOW as usize + 2, "{}", meter.marks.len());
        meter.record(119 * SECOND, 0).unwrap();
        meter.restart();
        meter.record(119 * SECOND, 0).unwrap();
        assert!(meter.record(SECOND, 0).is_err());
    }
}
