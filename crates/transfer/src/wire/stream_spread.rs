//! How evenly the streams of a test share its rate.

use serde::{Deserialize, Serialize};

/// Bytes that the slowest and the fastest of several streams carried in the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpread {
    /// Of the slowest.
    pub slowest: u64,
    /// Of the fastest.
    pub fastest: u64,
}

impl StreamSpread {
    /// The slowest over the fastest: 1 if all carried as much; `None` if none carried anything.
    pub fn evenness(self) -> Option<f64> {
        (self.fastest > 0).then(|| self.slowest as f64 / self.fastest as f64)
    }
}

/// Compares what streams have carried from time to time.
#[derive(Debug)]
pub struct StreamSpreadMeter {
    last: Vec<u64>,
}

impl StreamSpreadMeter {
    /// Begins with the bytes of each stream by now.
    pub fn start(bytes: Vec<u64>) -> Self {
        Self { last: bytes }
    }

    /// What they carried since the last call, by the bytes of each by now, in the same order; `None` without a stream.
    pub fn sample(&mut self, bytes: Vec<u64>) -> Option<StreamSpread> {
        let carried = || bytes.iter().zip(&self.last).map(|(now, before)| now.saturating_sub(*before));
        let spread = carried().min().zip(carried().max());
        self.last = bytes;
        spread.map(|(slowest, fastest)| StreamSpread { slowest, fastest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_covers_time_between_samples() {
        let mut meter = StreamSpreadMeter::start(vec![100, 0, 50]);
        let spread = meter.sample(vec![200, 400, 250]);
        assert_eq!(spread, Some(StreamSpread { slowest: 100, fastest: 400 }));
        assert_eq!(spread.and_then(StreamSpread::evenness), Some(0.25));
        let pause = meter.sample(vec![200, 400, 250]);
        assert_eq!(pause, Some(StreamSpread { slowest: 0, fastest: 0 }));
        assert_eq!(pause.and_then(StreamSpread::evenness), None);
        assert_eq!(StreamSpreadMeter::start(Vec::new()).sample(Vec::new()), None);
    }
}
