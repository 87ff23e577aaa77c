//! What a token bucket makes of a rate: a burst first, and less from then on.
//!
//! A shaper, a cloud's volume or a limit of a control group saves up a right to pass while nothing passes: in a time t at most b + r t
//! passes (Cruz 1991: A calculus for network delay, part I). The sustained rate is r; b is the size of the bucket.

/// Share of what passed before to which a later rate must have fallen, for what came before to be a burst: noise of windows of a few
/// hundred milliseconds is less.
const SUSTAINED_LEVEL_RATIO: f64 = 0.8;
/// Seconds of the sustained rate that a burst must hold to be reported: what queues and clocks hold is less.
const MIN_BURST_SECONDS: f64 = 0.05;

/// A burst: what passed beyond the sustained rate before that held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// What passed beyond it: the size of the bucket, if it was full and is empty.
    pub size: f64,
    /// What passed a second meanwhile, on average.
    pub rate: f64,
}

/// The index of the first of these rates of successive windows from which a lower level holds: every later rate is at most four fifths
/// of every earlier one. 0 where there is no such fall.
pub fn sustained_start(rates: &[f64]) -> usize {
    let min_before = |index: usize| rates[..index].iter().copied().fold(f64::INFINITY, f64::min);
    let max_after = |index: usize| rates[index..].iter().copied().fold(0.0, f64::max);
    (1..rates.len()).rev().find(|&index| max_after(index) <= SUSTAINED_LEVEL_RATIO * min_before(index)).unwrap_or(0)
}

/// The burst of something of which so much had passed this many seconds after its beginning, and which went on at this rate a second; `None`
/// if that is too little to be one.
pub fn burst(amount: f64, seconds: f64, sustained: f64) -> Option<Burst> {
    let size = amount - sustained * seconds;
    let is_burst =
        seconds > 0.0 && size >= MIN_BURST_SECONDS * sustained && sustained * seconds <= SUSTAINED_LEVEL_RATIO * amount;
    is_burst.then(|| Burst { size, rate: amount / seconds })
}

/// Seconds of the shortest pause between bunches: two ticks of a kernel at 250 Hz.
const MIN_PAUSE_SECONDS: f64 = 0.008;
/// How many times as long as the usual gap a pause is at least.
const MIN_PAUSE_TO_GAP: f64 = 8.0;
/// Minimum pauses that distinguish batches from a device that paused now and then.
const MIN_PAUSES: usize = 4;

/// What had been done by a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgressPoint {
    /// Seconds since the beginning.
    pub seconds: f64,
    /// So much of it.
    pub amount: f64,
}

/// How something comes that is let through at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacedRate {
    /// Its rate, a second.
    pub rate: f64,
    /// How much comes at once, and seconds from one such bunch to the next; `None` if it comes evenly.
    pub batches: Option<[f64; 2]>,
}

/// The rate of what was done one after the other. What is let through in bunches is taken from the end of the first pause between them to
/// the end of the last, so that no part of a bunch counts; anything else from the first to the last. `None` of fewer than two, or where no
/// time passed.
pub fn paced_rate(points: &[ProgressPoint]) -> Option<PacedRate> {
    let [first, .., last] = points else { return None };
    let gaps: Vec<f64> = points.windows(2).map(|pair| pair[1].seconds - pair[0].seconds).collect();
    let pause = (MIN_PAUSE_TO_GAP * crate::median(&gaps)).max(MIN_PAUSE_SECONDS);
    let ends: Vec<&ProgressPoint> =
        points[1..].iter().zip(&gaps).filter(|(_, gap)| **gap >= pause).map(|(end, _)| end).collect();
    let difference =
        |first: &ProgressPoint, last: &ProgressPoint| [last.amount - first.amount, last.seconds - first.seconds];
    if let [first, .., last] = &ends[..]
        && ends.len() >= MIN_PAUSES
    {
        let batch = difference(first, last).map(|total| total / (ends.len() - 1) as f64);
        return Some(PacedRate { rate: batch[0] / batch[1], batches: Some(batch) });
    }
    let [amount, seconds] = difference(first, last);
    (seconds > 0.0).then(|| PacedRate { rate: amount / seconds, batches: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_bunches_spans_pause_to_pause() {
        // 33 at once every tenth of a second, each 10 us after the one before, and after the sixth 20 more.
        let point = |number: usize| ProgressPoint {
            seconds: (number / 33) as f64 * 0.1 + (number % 33) as f64 * 1e-5,
            amount: number as f64 + 1.0,
        };
        let points: Vec<ProgressPoint> = (0..6 * 33 + 20).map(point).collect();
        let paced = paced_rate(&points).unwrap();
        let [amount, seconds] = paced.batches.unwrap();
        assert!((paced.rate - 330.0).abs() < 1e-6 && amount == 33.0 && (seconds - 0.1).abs() < 1e-9, "{paced:?}");
    }

    #[test]
    fn even_rate_spans_first_to_last() {
        let even: Vec<ProgressPoint> = (0..101)
            .map(|number| ProgressPoint { seconds: 0.5 + number as f64 * 0.01, amount: 3.0 * number as f64 })
            .collect();
        let paced = paced_rate(&even).unwrap();
        assert!((paced.rate - 300.0).abs() < 1e-9 && paced.batches.is_none(), "{paced:?}");
        let paused: Vec<ProgressPoint> = (0..100)
            .map(|number| ProgressPoint { seconds: (number + number / 50 * 100) as f64 * 1e-3, amount: number as f64 })
            .collect();
        assert_eq!(paced_rate(&paused).unwrap().batches, None);
        let point = ProgressPoint { seconds: 1.0, amount: 1.0 };
        assert_eq!([paced_rate(&[]), paced_rate(&[point]), paced_rate(&[point, point])], [None; 3]);
    }

    #[test]
    fn last_level_is_sustained() {
        assert_eq!(sustained_start(&[50.0, 50.0, 20.0, 10.0, 10.1]), 3);
        assert_eq!(sustained_start(&[10.0, 10.0, 10.5, 9.8]), 0);
        assert_eq!(sustained_start(&[10.0, 7.0, 10.0]), 0, "a dip is no fall");
        assert_eq!(sustained_start(&[10.0, 12.0, 7.0]), 2);
        assert_eq!([sustained_start(&[]), sustained_start(&[1.0]), sustained_start(&[0.0, 0.0])], [0, 0, 1]);
    }

    #[test]
    fn burst_is_excess_over_sustained_rate() {
        // A bucket of 4 MB before 5 MB/s: after 0.2 s 5 MB have passed.
        assert_eq!(burst(5e6, 0.2, 5e6), Some(Burst { size: 4e6, rate: 25e6 }));
        assert_eq!(burst(1.2e6, 0.2, 5e6), None, "40 ms of the rate");
        assert_eq!(burst(11e6, 2.0, 5e6), None, "a tenth more over all of it");
        assert_eq!(burst(0.5e6, 0.2, 5e6), None, "a slow beginning");
        assert_eq!(burst(1.0, 0.0, 1.0), None);
    }
}
