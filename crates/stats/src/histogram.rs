//! Latencies of many requests in little memory and with a bounded error: a high dynamic range histogram.

mod hdr_v2;

use hdrhistogram::Histogram as Inner;

pub use hdr_v2::HistogramError;

/// Significant decimal digits kept.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Those of a coarse one.
const COARSE_DIGITS: u8 = 2;
/// Maximum time, in nanoseconds: an hour.
const MAX_NANOSECONDS: u64 = 3_600_000_000_000;

/// Counts of times in nanoseconds, each to 0.1 %.
///
/// The buckets are those of HdrHistogram (Gil Tene), of constant relative width.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(Inner<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Self {
        // The bounds are constants that the library accepts.
        Self(Inner::new_with_bounds(1, MAX_NANOSECONDS, SIGNIFICANT_DIGITS).expect("valid bounds"))
    }

    /// An empty one that counts times to 1 %, in an eighth of the memory.
    pub fn coarse() -> Self {
        Self(Inner::new_with_bounds(1, MAX_NANOSECONDS, COARSE_DIGITS).expect("valid bounds"))
    }

    /// Counts a time, in nanoseconds; one longer than an hour counts as an hour.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        // All have the same bounds, so nothing is out of range.
        self.0 += &other.0;
    }

    /// Forgets all times.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// This histogram with the times added that were not measured because each was begun only after the one before: of a time longer
    /// than `interval`, in nanoseconds, it less once, twice, three times the interval and so on (Gil Tene, "How NOT to Measure
    /// Latency"). An estimate of what requests at that interval would have seen.
    pub fn corrected_for_omission(&self, interval: u64) -> Self {
        Self(self.0.clone_correct(interval))
    }

    /// Number of times counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The quantile of a share (0 to 1), in nanoseconds; `None` of an empty one.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share) as f64)
    }

    /// Their mean, in nanoseconds; `None` of an empty one.
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean())
    }

    /// The longest, in nanoseconds.
    pub fn max(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.max() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_sorted_times_within_thousandth() {
        let mut histogram = Histogram::new();
        let mut times: Vec<u64> = (1..=10_000u64).map(|i| i * i % 1_000_003 + 100).collect();
        times.iter().for_each(|&time| histogram.record(time));
        times.sort_unstable();
        for share in [0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = times[((share * times.len() as f64).ceil() as usize).max(1) - 1] as f64;
            let quantile = histogram.quantile(share).unwrap();
            assert!((quantile / exact - 1.0).abs() <= 1e-3, "{share}: {quantile} and {exact}");
        }
        assert_eq!(histogram.count(), 10_000);
    }

    #[test]
    fn merge_equals_one_and_empty_has_none() {
        let (mut first, mut second, mut merged) = (Histogram::new(), Histogram::new(), Histogram::new());
        assert_eq!((first.quantile(0.5), first.mean(), first.max()), (None, None, None));
        for time in 0..1000 {
            if time % 3 == 0 { &mut first } else { &mut second }.record(time * 17);
            merged.record(time * 17);
        }
        first.merge(&second);
        assert_eq!(first, merged);
        first.clear();
        assert_eq!(first, Histogram::new());
        first.record(u64::MAX);
        assert!(first.max().unwrap() >= MAX_NANOSECONDS as f64);
    }

    #[test]
    fn omission_correction_adds_hidden_times() {
        let mut histogram = Histogram::new();
        (0..10).for_each(|_| histogram.record(1_000_000));
        histogram.record(10_000_000);
        let corrected_histogram = histogram.corrected_for_omission(2_000_000);
        // 8, 6, 4 and 2 ms are added.
        assert_eq!(corrected_histogram.count(), 15);
        assert!(
            (corrected_histogram.mean().unwrap() / (40e6 / 15.0) - 1.0).abs() < 0.001,
            "{:?}",
            corrected_histogram.mean()
        );
    }
}
