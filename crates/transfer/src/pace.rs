//! A limit on the rate at which a sender sends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a limited sender sends something, at least: in parts of this time.
const PART: f64 = 0.02;
/// Least bytes at once, however low the limit.
const LEAST: u64 = 512;
/// How much may be made up for at once after something else was slower than the limit.
const BEHIND: Duration = Duration::from_millis(100);

/// So many bytes a second at most, of all threads together and on average from the beginning; or as many as there can be.
#[derive(Debug)]
pub struct Pace {
    limit: Option<u64>,
    /// When the next byte is due.
    due: Mutex<Instant>,
}

impl Pace {
    /// Begins now.
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit, due: Mutex::new(Instant::now()) }
    }

    /// Most bytes at once, if they are no more than these.
    pub fn most(&self, bytes: u64) -> u64 {
        self.limit.map_or(bytes, |limit| bytes.min(((limit as f64 * PART) as u64).max(LEAST)))
    }

    /// Waits until more may be sent after these.
    pub fn wait(&self, bytes: u64) {
        let now = Instant::now();
        if let Some(left) = self.after(bytes, now).checked_duration_since(now) {
            std::thread::sleep(left);
        }
    }

    /// When more may be sent.
    fn after(&self, bytes: u64, now: Instant) -> Instant {
        let Some(limit) = self.limit else { return now };
        let earliest = now.checked_sub(BEHIND).unwrap_or(now);
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        *due = (*due).max(earliest) + Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64);
        *due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_bytes_take_so_long() {
        let pace = Pace::new(Some(1000));
        let begun = *pace.due.lock().unwrap();
        assert_eq!(pace.after(500, begun) - begun, Duration::from_millis(500));
        assert_eq!(pace.after(250, begun) - begun, Duration::from_millis(750));
        // What was lost to something else is made up for only a little.
        let later = begun + Duration::from_secs(10);
        assert_eq!(pace.after(1000, later) - begun, Duration::from_millis(10_900));
        let free = Pace::new(None);
        assert_eq!(free.after(1 << 40, later), later);
    }

    #[test]
    fn a_low_limit_makes_small_parts() {
        assert_eq!(Pace::new(None).most(1 << 20), 1 << 20);
        assert_eq!(Pace::new(Some(1_000_000)).most(1 << 20), 20_000);
        assert_eq!(Pace::new(Some(10)).most(1 << 20), LEAST);
        assert_eq!(Pace::new(Some(1_000_000)).most(100), 100);
    }
}
