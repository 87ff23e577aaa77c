//! When the rate of a stream no longer rises, so that slow start and growing buffers can be left out. Also when it no
//! longer falls, so that the burst of a token bucket can be left out.

use super::prelude::*;
use kelvin_transfer::wire::message::SequenceCounts;

/// A rate that is above the one before it by at most this share has settled,
const MAX_RISE: f64 = 0.05;
/// and has not fallen below it by more than this one: a burst is over then.
const MAX_FALL: f64 = 0.2;

/// What had been moved by a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamTotals {
    /// Nanoseconds of the receiver's clock.
    pub time: u64,
    /// Bytes that had arrived.
    pub bytes: u64,
    /// Bytes that had been sent, by the sender's count.
    pub sent: u64,
    /// The datagrams among them.
    pub numbers: SequenceCounts,
}

impl StreamTotals {
    /// Bytes a second that arrived since.
    pub(crate) fn rate_since(&self, earlier: &Self) -> f64 {
        self.per_second(earlier, self.bytes - earlier.bytes)
    }

    /// Bytes a second that were sent since.
    pub(super) fn sent_since(&self, earlier: &Self) -> f64 {
        self.per_second(earlier, self.sent - earlier.sent)
    }

    fn per_second(&self, earlier: &Self, bytes: u64) -> f64 {
        bytes as f64 * 1e9 / (self.time - earlier.time).max(1) as f64
    }

    /// Records the datagrams since: the rate at which they were sent, and the share that did not arrive, by the gaps in
    /// their numbers. Of those that arrived, also the share that came after one sent later.
    pub(super) fn record_datagrams_since(
        &self,
        earlier: &Self,
        bench: &mut Bench<'_>,
        [sent, lost, reordered]: [&Metric; 3],
    ) -> ProbeResult {
        let shares =
            self.numbers.loss_share_since(&earlier.numbers).zip(self.numbers.reordered_share_since(&earlier.numbers));
        let (loss_share, reordered_share) = shares.or_fail("no datagram arrived")?;
        bench.record(sent, vec![self.sent_since(earlier)]);
        bench.record(lost, vec![loss_share]);
        bench.record(reordered, vec![reordered_share]);
        Ok(())
    }
}

/// Measures the rate in successive windows until one is neither above the one before it nor far below; at most this many.
///
/// # Errors
/// An error of a measurement.
pub(super) fn wait_for_level(max_windows: u32, next_rate: impl FnMut() -> ProbeResult<f64>) -> ProbeResult {
    wait_until(max_windows, next_rate, |before, rate| {
        (before * (1.0 - MAX_FALL)..=before * (1.0 + MAX_RISE)).contains(&rate)
    })
}

/// Measures the rate in successive windows until one is no longer above the one before it; at most this many.
///
/// # Errors
/// An error of a measurement.
pub(super) fn wait_for_peak(max_windows: u32, next_rate: impl FnMut() -> ProbeResult<f64>) -> ProbeResult {
    wait_until(max_windows, next_rate, |before, rate| rate > 0.0 && rate <= before * (1.0 + MAX_RISE))
}

fn wait_until(
    max_windows: u32,
    mut next_rate: impl FnMut() -> ProbeResult<f64>,
    is_settled: impl Fn(f64, f64) -> bool,
) -> ProbeResult {
    let mut before = 0.0;
    for _ in 0..max_windows {
        let rate = next_rate()?;
        if before > 0.0 && is_settled(before, rate) {
            return Ok(());
        }
        before = rate;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows_until_settled(max_windows: u32, rates: &[f64]) -> usize {
        let mut remaining = rates.iter().copied();
        wait_for_peak(max_windows, || remaining.next().ok_or_else(|| ProbeError::fail("one look too many"))).unwrap();
        rates.len() - remaining.count()
    }

    #[test]
    fn level_begins_at_steady_rate() {
        let windows_until_level = |rates: &[f64]| {
            let mut remaining = rates.iter().copied();
            wait_for_level(10, || remaining.next().ok_or_else(|| ProbeError::fail("one look too many"))).unwrap();
            rates.len() - remaining.count()
        };
        assert_eq!(windows_until_level(&[50.0, 12.0, 5.0, 5.1, 1.0]), 4, "a burst");
        assert_eq!(windows_until_level(&[1.0, 2.0, 4.0, 3.9, 1.0]), 4, "a slow beginning");
        assert_eq!(windows_until_level(&[10.0, 8.1, 1.0]), 2, "noise");
    }

    #[test]
    fn settling_ends_at_peak_or_limit() {
        assert_eq!(windows_until_settled(10, &[0.0, 0.0, 10.0, 20.0, 40.0, 41.0, 80.0]), 6);
        assert_eq!(windows_until_settled(10, &[10.0, 5.0, 1.0]), 2);
        assert_eq!(
            windows_until_settled(10, &[10.0, 0.0, 10.0, 10.0]),
            4,
            "a stream that stood still for a while has not settled"
        );
        assert_eq!(windows_until_settled(3, &[1.0, 2.0, 4.0, 8.0]), 3);
        assert!(wait_for_peak(2, || Err(ProbeError::fail("no agent"))).is_err());
    }
}
