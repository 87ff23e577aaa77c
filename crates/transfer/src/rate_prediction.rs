//! The rate that a transfer should have had: from what the stages of each end cost when each is done apart.
//!
//! After a transfer that took long enough, each end does a little of each of its stages again - reads, hashes, encrypts, sends to
//! itself - and counts CPU time. What went by a method of its own goes so again, with the same bytes a call. An end is one thread, so
//! its stages add up. Two ends work at the same time, so the slower one is the prediction, or the limit that was set, or the link,
//! where a moment of the transfer showed what that can. Disks are not in it: what they take away is the difference.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A transfer that took less is not predicted. To do each stage again takes 5 ms, and shall not take more than a hundredth of it.
pub const MIN_DURATION: Duration = Duration::from_millis(500);
/// How far off a prediction may be. Stages that follow each other meet colder caches than the same one repeated, and two ends never
/// overlap wholly. And a processor may be faster when it does one thing alone.
const MAX_SLOWDOWN: f64 = 1.5;
const MAX_SPEEDUP: f64 = 1.2;
/// Like `MAX_SPEEDUP`, where a link decides, which no transfer exceeds: what connecting and a slow start take of [`MIN_DURATION`].
const MAX_LINK_SLOWDOWN: f64 = 1.2;

/// What the stages of one end cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCosts {
    /// Reading or writing a file, in picoseconds a byte.
    pub file: u64,
    /// Hashing, in picoseconds a byte.
    pub verify: u64,
    /// Encrypting or decrypting, in picoseconds a byte.
    pub cipher: u64,
    /// Sending or receiving, in picoseconds a byte.
    pub connection: u64,
    /// All that a small file costs in addition to its bytes, in nanoseconds.
    pub per_file: u64,
}

/// What is to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferWork {
    /// Bytes.
    pub bytes: u64,
    /// Files that go together.
    pub small_files: u64,
    /// Most bytes a second.
    pub limit: Option<u64>,
    /// Bytes a second that the link can, where that is known.
    pub link: Option<u64>,
}

/// Bytes a second that were to be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RatePrediction {
    /// At least.
    pub low: u64,
    /// Most likely.
    pub rate: u64,
    /// At most.
    pub high: u64,
}

impl StageCosts {
    /// Nanoseconds that an end takes for all of it.
    fn time_for(&self, work: TransferWork) -> f64 {
        let per_byte: f64 = [self.file, self.verify, self.cipher, self.connection].map(|cost| cost as f64).iter().sum();
        work.bytes as f64 * per_byte / 1e3 + work.small_files as f64 * self.per_file as f64
    }
}

impl RatePrediction {
    /// Of two ends with these costs.
    pub fn from_costs(ends: [StageCosts; 2], work: TransferWork) -> Option<Self> {
        let nanoseconds_at = |rate: Option<u64>| rate.map_or(0.0, |rate| work.bytes as f64 * 1e9 / rate.max(1) as f64);
        let (limit_time, link_time) = (nanoseconds_at(work.limit), nanoseconds_at(work.link));
        let end_time = ends.map(|costs| costs.time_for(work)).into_iter().fold(0.0, f64::max);
        let rate = work.bytes as f64 * 1e9 / end_time.max(limit_time).max(link_time);
        // A limit is kept, no matter what an end could do.
        let (slower, faster) = match () {
            () if link_time > end_time.max(limit_time) => (MAX_LINK_SLOWDOWN, 1.0),
            () if limit_time > end_time => (MAX_SLOWDOWN, 1.0),
            () => (MAX_SLOWDOWN, MAX_SPEEDUP),
        };
        let is_known = end_time > 0.0 && rate.is_finite() && rate >= 1.0;
        is_known.then_some(Self { low: (rate / slower) as u64, rate: rate as u64, high: (rate * faster) as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: StageCosts = StageCosts { file: 200, verify: 100, cipher: 150, connection: 150, per_file: 5_000 };
    const RECEIVER: StageCosts = StageCosts { file: 300, verify: 100, cipher: 150, connection: 250, per_file: 12_000 };

    fn rate(work: TransferWork) -> u64 {
        RatePrediction::from_costs([SENDER, RECEIVER], work).unwrap().rate
    }

    #[test]
    fn slower_end_determines_rate() {
        // 800 ps a byte at the receiver.
        assert_eq!(rate(TransferWork { bytes: 1 << 30, ..TransferWork::default() }), 1_250_000_000);
        let faster = StageCosts { file: 0, ..RECEIVER };
        let expected =
            RatePrediction::from_costs([SENDER, faster], TransferWork { bytes: 1 << 30, ..TransferWork::default() })
                .unwrap();
        assert_eq!(expected.rate, 1_666_666_666);
        assert!(expected.low < expected.rate && expected.rate < expected.high);
    }

    #[test]
    fn small_files_cost_more_than_their_bytes() {
        // 4096 bytes a file: 3.3 us for the bytes and 12 us in addition.
        let work = TransferWork { bytes: 4096 * 1000, small_files: 1000, ..TransferWork::default() };
        assert_eq!(rate(work), (4096.0 * 1e9 / (4096.0 * 0.8 + 12_000.0)) as u64);
    }

    #[test]
    fn rate_never_exceeds_limit() {
        let work = TransferWork { bytes: 1 << 30, limit: Some(1_000_000), ..TransferWork::default() };
        let expected = RatePrediction::from_costs([SENDER, RECEIVER], work).unwrap();
        assert_eq!((expected.rate, expected.high), (1_000_000, 1_000_000));
    }

    #[test]
    fn slower_link_determines_rate() {
        let prediction = |link, limit| {
            RatePrediction::from_costs([SENDER, RECEIVER], TransferWork { bytes: 1 << 30, small_files: 0, limit, link })
                .unwrap()
        };
        let slow = prediction(Some(12_000_000), None);
        assert_eq!((slow.low, slow.rate, slow.high), (10_000_000, 12_000_000, 12_000_000));
        assert_eq!(prediction(Some(12_000_000), Some(1_000_000)).rate, 1_000_000);
        assert_eq!(prediction(Some(20_000_000_000), None), prediction(None, None));
    }

    /// The other end's costs are its own, and may be anything.
    #[test]
    fn extreme_costs_are_handled() {
        let max = u64::MAX;
        let largest = StageCosts { file: max, verify: max, cipher: max, connection: max, per_file: max };
        for costs in [StageCosts::default(), largest] {
            for bytes in [0, 1, u64::MAX] {
                for limit in [None, Some(0), Some(u64::MAX)] {
                    let _ = RatePrediction::from_costs(
                        [costs; 2],
                        TransferWork { bytes, small_files: u64::MAX, limit, link: limit },
                    );
                }
            }
        }
        assert_eq!(
            RatePrediction::from_costs(
                [StageCosts::default(); 2],
                TransferWork { bytes: 5, ..TransferWork::default() }
            ),
            None
        );
    }
}
