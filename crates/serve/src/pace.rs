//! Whether a client takes its answers fast enough: a byte now and then keeps no place.

use std::time::{Duration, Instant};

use kelvin_model::quantity::MinProgress;

/// What had been sent to a client at a moment since which it has been sent answers without a pause.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    since: Instant,
    sent: u64,
}

impl Pace {
    /// Of one who is sent something from now on; so many bytes were sent to it before.
    pub fn begin(now: Instant, sent: u64) -> Self {
        Self { since: now, sent }
    }

    /// Time until that is asked next.
    pub fn left(&self, now: Instant, least: MinProgress) -> Duration {
        least.within.saturating_sub(now.saturating_duration_since(self.since))
    }

    /// Whether a client to whom so many bytes were sent by now, and who is being sent more, has taken too few of them. Each time that
    /// is over is followed by another.
    pub fn is_too_slow(&mut self, (now, sent): (Instant, u64), least: MinProgress) -> bool {
        if now.saturating_duration_since(self.since) < least.within {
            return false;
        }
        let before = std::mem::replace(self, Self::begin(now, sent));
        sent - before.sent < least.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LEAST: MinProgress = MinProgress { bytes: 4096, within: Duration::from_secs(120) };

    /// After how many seconds a client is too slow that takes so many bytes in each of these many seconds; nothing if never.
    fn ended(every: u32, bytes: u64) -> Option<u32> {
        let begun = Instant::now();
        let mut pace = Pace::begin(begun, 1000);
        (0..10_000).find(|&second| {
            let sent = 1000 + u64::from(second / every) * bytes;
            pace.is_too_slow((begun + second * SECOND, sent), LEAST)
        })
    }

    #[test]
    fn a_client_that_takes_bytes_one_by_one_is_too_slow_and_one_behind_a_slow_link_is_not() {
        assert_eq!([ended(59, 1), ended(1, 1), ended(1, 34), ended(1, 0)], [Some(120); 4]);
        // 300 bits a second, and bursts between which nothing goes for long.
        assert_eq!([ended(1, 37), ended(110, 8192), ended(1, 1 << 20)], [None; 3]);
    }
}
