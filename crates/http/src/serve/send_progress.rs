//! Whether a client takes its answers fast enough: a byte now and then keeps no place.

use std::time::{Duration, Instant};

use kelvin_core::quantity::MinProgress;

/// What had been sent to a client at a moment since which it has been sent answers without a pause.
#[derive(Clone, Copy, Debug)]
pub struct SendProgress {
    since: Instant,
    sent: u64,
}

impl SendProgress {
    /// Of one who is sent something from now on; so many bytes were sent to it before.
    pub fn start(now: Instant, sent: u64) -> Self {
        Self { since: now, sent }
    }

    /// Time until that is asked next.
    pub fn time_left(&self, now: Instant, least: MinProgress) -> Duration {
        least.within.saturating_sub(now.saturating_duration_since(self.since))
    }

    /// Whether a client to whom so many bytes were sent by now, and who is being sent more, has taken too few of them. Each time that
    /// is over is followed by another.
    pub fn is_too_slow(&mut self, (now, sent): (Instant, u64), least: MinProgress) -> bool {
        if now.saturating_duration_since(self.since) < least.within {
            return false;
        }
        let before = std::mem::replace(self, Self::start(now, sent));
        sent - before.sent < least.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIN_PROGRESS: MinProgress = MinProgress { bytes: 4096, within: Duration::from_secs(120) };

    /// After how many seconds a client is too slow that takes so many bytes in each of these many seconds; nothing if never.
    fn too_slow_after(every: u32, bytes: u64) -> Option<u32> {
        let begun = Instant::now();
        let mut pace = SendProgress::start(begun, 1000);
        (0..10_000).find(|&second| {
            let sent = 1000 + u64::from(second / every) * bytes;
            pace.is_too_slow((begun + second * SECOND, sent), MIN_PROGRESS)
        })
    }

    #[test]
    fn trickling_client_fails_and_slow_link_passes() {
        assert_eq!(
            [too_slow_after(59, 1), too_slow_after(1, 1), too_slow_after(1, 34), too_slow_after(1, 0)],
            [Some(120); 4]
        );
        // 300 bits a second, and bursts between which nothing goes for long.
        assert_eq!([too_slow_after(1, 37), too_slow_after(110, 8192), too_slow_after(1, 1 << 20)], [None; 3]);
    }
}
