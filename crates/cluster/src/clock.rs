//! The clock of this host.

use std::time::{Instant, SystemTime};

/// Its time.
pub fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// A beginning, whose end is told by a clock that nobody sets.
#[derive(Clone, Copy, Debug)]
pub struct StartTime {
    /// In seconds since 1970.
    pub start_s: f64,
    instant: Instant,
}

impl StartTime {
    /// That begins now.
    pub fn now() -> Self {
        Self { start_s: seconds_since_1970(), instant: Instant::now() }
    }

    /// The time now, in seconds since 1970 by the clock at the beginning.
    pub fn end_s(&self) -> f64 {
        self.start_s + self.instant.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_not_before_its_beginning() {
        let start = StartTime::now();
        let first = start.end_s();
        assert!(start.start_s <= first && first <= start.end_s());
    }
}
