//! When each of many messages offered at an even rate is due.

use std::time::Duration;

/// Arrears of more than this are not made up for: a burst would be another offer. In nanoseconds.
const MAX_BACKLOG_NANOSECONDS: f64 = 10e6;
/// Shortest sleep: a timer fires some 50 us late, and waking takes the rest.
const MIN_SLEEP: Duration = Duration::from_micros(200);

/// Messages due one after the other. Times are nanoseconds of the monotonic clock.
#[derive(Debug)]
pub(super) struct Pacer {
    /// Nanoseconds from one to the next.
    gap: f64,
    begun: f64,
    given: u64,
}

impl Pacer {
    /// One message every so many nanoseconds, the first now.
    pub(super) fn new(gap: f64, now: u64) -> Self {
        Self { gap, begun: now as f64, given: 0 }
    }

    /// How many have become due since the last call.
    pub(super) fn take_due(&mut self, now: u64) -> u64 {
        let passed = now as f64 - self.begun;
        let wanted = (passed / self.gap).floor() as u64 + 1;
        let behind = wanted.saturating_sub(self.given);
        let most = (MAX_BACKLOG_NANOSECONDS / self.gap).max(1.0) as u64;
        if behind > most {
            // As if it had begun so much later.
            self.begun += (behind - most) as f64 * self.gap;
        }
        let due = behind.min(most);
        self.given += due;
        due
    }

    /// How long to sleep until the next one is due.
    pub(super) fn time_to_next(&self, now: u64) -> Duration {
        let next = self.begun + self.given as f64 * self.gap;
        Duration::from_nanos((next - now as f64).max(0.0) as u64).max(MIN_SLEEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_count_follows_elapsed_time() {
        let mut pace = Pacer::new(1000.0, 50_000);
        assert_eq!((pace.take_due(50_000), pace.take_due(50_000), pace.take_due(50_999)), (1, 0, 0));
        assert_eq!((pace.take_due(53_500), pace.time_to_next(53_500)), (3, MIN_SLEEP));
        let mut slow = Pacer::new(10e6, 0);
        assert_eq!((slow.take_due(0), slow.time_to_next(1_000_000)), (1, Duration::from_millis(9)));
        assert_eq!(slow.take_due(10_000_000), 1);
    }

    #[test]
    fn long_backlog_is_dropped() {
        let mut pace = Pacer::new(1000.0, 0);
        assert_eq!(pace.take_due(0), 1);
        // A second later 10 ms of it, and then no more than is due by time.
        assert_eq!(
            (pace.take_due(1_000_000_000), pace.take_due(1_000_000_000), pace.take_due(1_000_002_000)),
            (10_000, 0, 2)
        );
        // One that is late by several is one that is due.
        let mut slow = Pacer::new(10e6, 0);
        assert_eq!((slow.take_due(100_000_000), slow.take_due(100_000_000)), (1, 0));
    }
}
