//! Messages that are due one after the other.

use std::time::Duration;

/// Shortest sleep: a timer fires some 50 us late, and waking takes the rest.
const MIN_SLEEP: Duration = Duration::from_micros(200);

/// Messages due one after the other. Times are nanoseconds of the monotonic clock.
#[derive(Debug)]
pub struct Pacer {
    /// Nanoseconds from one to the next.
    gap: f64,
    /// Arrears of more than this are not made up for: a burst would be another offer.
    max_backlog: f64,
    start: f64,
    sent: u64,
}

impl Pacer {
    /// One message every this many nanoseconds, the first now; arrears of at most so many are made up for.
    pub fn new(gap: f64, max_backlog: f64, now: u64) -> Self {
        Self { gap, max_backlog, start: now as f64, sent: 0 }
    }

    /// How many have become due since the last call.
    pub fn take_due(&mut self, now: u64) -> u64 {
        let elapsed = now as f64 - self.start;
        let total_due = (elapsed / self.gap).floor() as u64 + 1;
        let backlog = total_due.saturating_sub(self.sent);
        let max_due = (self.max_backlog / self.gap).max(1.0) as u64;
        if backlog > max_due {
            // As if it had begun that much later.
            self.start += (backlog - max_due) as f64 * self.gap;
        }
        let count = backlog.min(max_due);
        self.sent += count;
        count
    }

    /// How long to sleep until the next one is due.
    pub fn time_to_next(&self, now: u64) -> Duration {
        let next = self.start + self.sent as f64 * self.gap;
        Duration::from_nanos((next - now as f64).max(0.0) as u64).max(MIN_SLEEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BACKLOG: f64 = 10e6;

    #[test]
    fn due_count_follows_elapsed_time() {
        let mut pace = Pacer::new(1000.0, MAX_BACKLOG, 50_000);
        assert_eq!((pace.take_due(50_000), pace.take_due(50_000), pace.take_due(50_999)), (1, 0, 0));
        assert_eq!((pace.take_due(53_500), pace.time_to_next(53_500)), (3, MIN_SLEEP));
        let mut slow_pacer = Pacer::new(10e6, MAX_BACKLOG, 0);
        assert_eq!((slow_pacer.take_due(0), slow_pacer.time_to_next(1_000_000)), (1, Duration::from_millis(9)));
        assert_eq!(slow_pacer.take_due(10_000_000), 1);
    }

    #[test]
    fn long_backlog_is_dropped() {
        let mut pace = Pacer::new(1000.0, MAX_BACKLOG, 0);
        assert_eq!(pace.take_due(0), 1);
        // A second later 10 ms of it, and then no more than is due by time.
        assert_eq!(
            (pace.take_due(1_000_000_000), pace.take_due(1_000_000_000), pace.take_due(1_000_002_000)),
            (10_000, 0, 2)
        );
        // One that is late by several is one that is due.
        let mut slow_pacer = Pacer::new(10e6, MAX_BACKLOG, 0);
        assert_eq!((slow_pacer.take_due(100_000_000), slow_pacer.take_due(100_000_000)), (1, 0));
    }
}
