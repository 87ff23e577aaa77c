//! Saturation throughput and knee of a sweep, with intervals.

use super::*;

/// Share of the saturation throughput from which on more users bring nothing that matters.
pub(super) const KNEE_SHARE: f64 = 0.95;

/// Fewest neighbouring numbers of users whose mean is the saturation throughput: the highest of single ones would be too high by
/// chance.
const MIN_NEIGHBOURS: usize = 3;

/// Draws of the intervals: with 25 beyond each end, these are accurate to a few hundredths of the width.
const BOOTSTRAP_DRAWS: usize = 1000;

/// Where more users bring nothing any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Saturation {
    /// The highest throughput over neighbouring numbers of users, in requests a second.
    pub throughput: Estimate,
    /// The least number of users with [`KNEE_SHARE`] of it.
    pub knee: Knee,
    /// Places in the sweep of the neighbours and all from the knee on to them.
    pub first: usize,
    pub last: usize,
}

/// The mean throughput of a number of users, and its spread.
struct ThroughputMean {
    value: f64,
    error: f64,
    degrees: usize,
}

impl ThroughputMean {
    /// A draw of it for another study: Student's distribution.
    fn draw(&self, random: &mut Random) -> f64 {
        let squares: f64 = (0..self.degrees).map(|_| random.normal().powi(2)).sum();
        self.value + self.error * random.normal() / (squares / self.degrees as f64).sqrt()
    }
}

/// Places of knee and saturation in throughputs by ascending number of users.
#[derive(Clone, Copy)]
pub(crate) struct KneePosition {
    throughput: f64,
    pub knee: usize,
    last: usize,
}

/// The saturation of a sweep; `None` where a number of users was visited once, or there are fewer than three.
///
/// The intervals are percentiles of a parametric bootstrap: the mean of each number of users is drawn anew with its standard
/// error and degrees of freedom, which keeps its coverage with few visits, unlike resampling the visits.
pub(crate) fn saturation(sweep: &Sweep) -> Option<Saturation> {
    if sweep.loads.len() < MIN_NEIGHBOURS || sweep.min_steps() < 2 {
        return None;
    }
    let throughput_mean = |load: &UserLoad| {
        let values = load.throughputs();
        let error = (variance(&values) / values.len() as f64).sqrt();
        ThroughputMean { value: mean(&values), error, degrees: values.len() - 1 }
    };
    let means: Vec<ThroughputMean> = sweep.loads.iter().map(throughput_mean).collect();
    let position = find_knee(&means.iter().map(|mean| mean.value).collect::<Vec<f64>>());
    let mut random = Random::new(1);
    let draws: Vec<KneePosition> = (0..BOOTSTRAP_DRAWS)
        .map(|_| find_knee(&means.iter().map(|mean| mean.draw(&mut random)).collect::<Vec<f64>>()))
        .collect();
    let [low, high] = interval_ends(draws.iter().map(|draw| draw.throughput).collect());
    let [first, last] = interval_ends(draws.iter().map(|draw| sweep.loads[draw.knee].users as f64).collect());
    Some(Saturation {
        throughput: Estimate::new(position.throughput, (low.min(position.throughput), high.max(position.throughput))),
        knee: {
            let users = sweep.loads[position.knee].users;
            Knee { users, low: (first as u64).min(users), high: (last as u64).max(users) }
        },
        first: position.knee,
        last: position.last,
    })
}

/// The highest mean of neighbours, and the first throughput that comes near it.
pub(crate) fn find_knee(throughputs: &[f64]) -> KneePosition {
    let width = MIN_NEIGHBOURS.max(throughputs.len() / 3);
    let windows = throughputs.windows(width).map(mean).enumerate();
    let (start, throughput) = windows.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
    let last = start + width - 1;
    let knee =
        isotonic_fit(&throughputs[..=last]).iter().position(|&value| value >= KNEE_SHARE * throughput).unwrap_or(last);
    KneePosition { throughput, knee, last }
}

/// The nearest throughputs that never fall (pool adjacent violators; R. E. Barlow et al., "Statistical Inference under Order
/// Restrictions", 1972): up to saturation one that falls does so by chance, and the one before it is as likely to be too high.
fn isotonic_fit(throughputs: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &throughput in throughputs {
        pools.push((throughput, 1));
        while let [.., (before, before_count), (after, after_count)] = pools[..] {
            if before <= after {
                break;
            }
            pools.truncate(pools.len() - 2);
            pools.push((
                (before * before_count as f64 + after * after_count as f64) / (before_count + after_count) as f64,
                before_count + after_count,
            ));
        }
    }
    pools.into_iter().flat_map(|(throughput, count)| std::iter::repeat_n(throughput, count)).collect()
}

/// The ends of the 95 % interval of draws; order statistics, so that each is a value that was drawn.
pub(super) fn interval_ends(mut draws: Vec<f64>) -> [f64; 2] {
    draws.sort_by(f64::total_cmp);
    let tail = draws.len() / 40;
    [draws[tail], draws[draws.len() - 1 - tail]]
}
