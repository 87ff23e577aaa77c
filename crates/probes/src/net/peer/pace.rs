//! When each of many messages offered at an even rate is due.

use std::time::Duration;

/// Arrears of more than this are not made up for: a burst would be another offer. In nanoseconds.
const MOST_BEHIND: f64 = 10e6;
/// Shortest sleep: a timer fires some 50 us late, and waking takes the rest.
const TURN: Duration = Duration::from_micros(200);

/// Messages due one after the other. Times are nanoseconds of the monotonic clock.
#[derive(Debug)]
pub(super) struct Pace {
    /// Nanoseconds from one to the next.
    gap: f64,
    begun: f64,
    given: u64,
}

impl Pace {
    /// One message every so many nanoseconds, the first now.
    pub(super) fn new(gap: f64, now: u64) -> Self {
        Self { gap, begun: now as f64, given: 0 }
    }

    /// How many have become due since the last call.
    pub(super) fn due(&mut self, now: u64) -> u64 {
        let passed = now as f64 - self.begun;
        let wanted = (passed / self.gap).floor() as u64 + 1;
        let behind = wanted.saturating_sub(self.given);
        let most = (MOST_BEHIND / self.gap).max(1.0) as u64;
        if behind > most {
            // As if it had begun so much later.
            self.begun += (behind - most) as f64 * self.gap;
        }
        let due = behind.min(most);
        self.given += due;
        due
    }

    /// How long to sleep until the next one is due.
    pub(super) fn wait(&self, now: u64) -> Duration {
        let next = self.begun + self.given as f64 * self.gap;
        Duration::from_nanos((next - now as f64).max(0.0) as u64).max(TURN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_due_as_fit_into_the_time() {
        let mut pace = Pace::new(1000.0, 50_000);
        assert_eq!((pace.due(50_000), pace.due(50_000), pace.due(50_999)), (1, 0, 0));
        assert_eq!((pace.due(53_500), pace.wait(53_500)), (3, TURN));
        let mut slow = Pace::new(10e6, 0);
        assert_eq!((slow.due(0), slow.wait(1_000_000)), (1, Duration::from_millis(9)));
        assert_eq!(slow.due(10_000_000), 1);
    }

    #[test]
    fn what_was_missed_for_long_is_not_made_up_for() {
        let mut pace = Pace::new(1000.0, 0);
        assert_eq!(pace.due(0), 1);
        // A second later 10 ms of it, and then no more than is due by time.
        assert_eq!((pace.due(1_000_000_000), pace.due(1_000_000_000), pace.due(1_000_002_000)), (10_000, 0, 2));
        // One that is late by several is one that is due.
        let mut slow = Pace::new(10e6, 0);
        assert_eq!((slow.due(100_000_000), slow.due(100_000_000)), (1, 0));
    }
}
