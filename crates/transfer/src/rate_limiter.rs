//! A limit on the rate at which a sender sends.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use kelvin_sys::lock;

/// How often a limited sender sends something, at least: in parts of this time.
const PART_SECONDS: f64 = 0.02;
/// Least bytes at once, however low the limit.
const MIN_BURST: u64 = 512;
/// How much may be made up for at once after something else was slower than the limit.
const MAX_CATCH_UP: Duration = Duration::from_millis(100);

/// This many bytes a second at most, of all threads together and on average from the beginning; or as many as there can be.
#[derive(Debug)]
pub struct RateLimiter {
    limit: Option<u64>,
    /// When the next byte is due.
    next_byte_time: Mutex<Instant>,
}

impl RateLimiter {
    /// Begins now.
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit, next_byte_time: Mutex::new(Instant::now()) }
    }

    /// Most bytes at once, if they are no more than these.
    pub fn max_burst(&self, bytes: u64) -> u64 {
        self.limit.map_or(bytes, |limit| bytes.min(((limit as f64 * PART_SECONDS) as u64).max(MIN_BURST)))
    }

    /// Waits until more may be sent after these.
    pub fn wait_after(&self, bytes: u64) {
        let now = Instant::now();
        if let Some(remaining) = self.next_send_time(bytes, now).checked_duration_since(now) {
            std::thread::sleep(remaining);
        }
    }

    /// When more may be sent.
    fn next_send_time(&self, bytes: u64, now: Instant) -> Instant {
        let Some(limit) = self.limit else { return now };
        let earliest = now.checked_sub(MAX_CATCH_UP).unwrap_or(now);
        let mut next_byte_time = lock(&self.next_byte_time);
        *next_byte_time = (*next_byte_time).max(earliest) + Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64);
        *next_byte_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_time_by_rate() {
        let limiter = RateLimiter::new(Some(1000));
        let start = *limiter.next_byte_time.lock().unwrap();
        assert_eq!(limiter.next_send_time(500, start) - start, Duration::from_millis(500));
        assert_eq!(limiter.next_send_time(250, start) - start, Duration::from_millis(750));
        // What was lost to something else is made up for only a little.
        let later = start + Duration::from_secs(10);
        assert_eq!(limiter.next_send_time(1000, later) - start, Duration::from_millis(10_900));
        let unlimited = RateLimiter::new(None);
        assert_eq!(unlimited.next_send_time(1 << 40, later), later);
    }

    #[test]
    fn low_limit_makes_small_bursts() {
        assert_eq!(RateLimiter::new(None).max_burst(1 << 20), 1 << 20);
        assert_eq!(RateLimiter::new(Some(1_000_000)).max_burst(1 << 20), 20_000);
        assert_eq!(RateLimiter::new(Some(10)).max_burst(1 << 20), MIN_BURST);
        assert_eq!(RateLimiter::new(Some(1_000_000)).max_burst(100), 100);
    }
}
