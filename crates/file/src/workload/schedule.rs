//! When each request of a job with a rate is due.
//!
//! The schedule is fixed when the job begins: a request that is made late, since those before it took long, stays due when it was. Its
//! latency counts from then too, so that a stall is seen by all requests that it held up (no coordinated omission).

use kelvin_sys::uring::IoDirection;

use super::{ByDirection, RateLimit};
use crate::observer::IoTally;

/// The times at which requests are due.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    start: u64,
    limits: ByDirection<RateLimit>,
    issued: ByDirection<IoTally>,
    /// When the last one was due: requests are made in their order.
    last_due: u64,
}

/// Nanoseconds in which this much is due at a rate a second.
fn nanoseconds(amount: u64, rate: Option<u64>) -> u64 {
    const NANOSECONDS_PER_SECOND: u128 = 1_000_000_000;
    rate.map_or(0, |rate| (u128::from(amount) * NANOSECONDS_PER_SECOND / u128::from(rate.max(1))) as u64)
}

impl Schedule {
    /// From a moment on, in nanoseconds.
    pub(super) fn new(start: u64, limits: ByDirection<RateLimit>) -> Self {
        Self { start, limits, issued: ByDirection::default(), last_due: start }
    }

    /// When the next request is due: when its rate has let all before it of its direction pass.
    pub(super) fn next_due(&mut self, direction: IoDirection, bytes: usize) -> u64 {
        let (limit, issued) = (*self.limits.of(direction), self.issued.of_mut(direction));
        let elapsed = nanoseconds(issued.bytes, limit.bytes_per_second)
            .max(nanoseconds(issued.requests, limit.requests_per_second));
        issued.bytes += bytes as u64;
        issued.requests += 1;
        self.last_due = self.last_due.max(self.start.saturating_add(elapsed));
        self.last_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_their_rate_and_in_order() {
        let read = RateLimit { bytes_per_second: Some(4_000_000), requests_per_second: None };
        let write = RateLimit { bytes_per_second: None, requests_per_second: Some(100) };
        let mut schedule = Schedule::new(5, ByDirection { read, write });
        let mut due = |direction| schedule.next_due(direction, 4000);
        assert_eq!([0; 3].map(|_| due(IoDirection::Read)), [5, 1_000_005, 2_000_005]);
        // The first write could have begun earlier, but its turn came after the reads.
        assert_eq!([0; 2].map(|_| due(IoDirection::Write)), [2_000_005, 10_000_005]);
        assert_eq!(due(IoDirection::Read), 10_000_005);
    }

    #[test]
    fn no_rate_is_due_at_once() {
        let mut schedule = Schedule::new(7, ByDirection::default());
        assert!((0..9).all(|_| schedule.next_due(IoDirection::Write, usize::MAX >> 8) == 7));
    }
}
