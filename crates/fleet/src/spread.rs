//! The peers of each host in one series: their median, and the robust spread between them.

use kelvin_stats::{MAD_TO_STD, median_in_place, normal_quantile};

/// Factors that make the median absolute deviation of 2 to 9 normal values unbiased; from 10 values on it is n / (n - 0.8) (Croux and
/// Rousseeuw 1992, "Time-efficient algorithms for two highly robust estimators of scale").
const MAD_FACTORS: [f64; 8] = [1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107];

/// The standard deviation that a median absolute deviation of this many values stands for.
pub(crate) fn std_of_mad(mad: f64, values: usize) -> f64 {
    let factor = match values {
        0 | 1 => 0.0,
        2..=9 => MAD_FACTORS[values - 2],
        _ => values as f64 / (values as f64 - 0.8),
    };
    MAD_TO_STD * factor * mad
}

/// The share of its peers that may be as far out as a host that is out: they may have the same fault.
pub(crate) const MAX_PEERS_AS_FAR: f64 = 1.0 / 32.0;

/// Median and robust standard deviation of a host's peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PeerSpread {
    pub center: f64,
    /// By the median absolute deviation.
    pub std: f64,
    /// The standard deviation that the farthest of them stand for, without those that may be out themselves. Larger than `std` where the
    /// tails are heavy, or where hosts have several modes.
    pub far_std: f64,
}

impl PeerSpread {
    fn from_distances(center: f64, sorted: &impl Fn(usize) -> f64, values: usize) -> Self {
        let mad = f64::midpoint(sorted((values - 1) / 2), sorted(values / 2));
        let skipped = (values as f64 * MAX_PEERS_AS_FAR) as usize;
        // The share of values that a normal distribution has beyond the one of this rank.
        let share_beyond = (skipped as f64 + 1.0) / (values as f64 + 1.0);
        let far_std = sorted(values - 1 - skipped) / normal_quantile(1.0 - share_beyond / 2.0);
        Self { center, std: std_of_mad(mad, values), far_std }
    }
}

/// Of all values.
pub(crate) fn spread_of(values: &[f64]) -> PeerSpread {
    let center = median_in_place(&mut values.to_vec());
    let mut distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    distances.sort_unstable_by(f64::total_cmp);
    PeerSpread::from_distances(center, &|rank| distances[rank], values.len())
}

/// Of all other values, for each value in their order.
pub(crate) fn spreads_without_each(values: &[f64]) -> Vec<PeerSpread> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let sorted: Vec<f64> = order.iter().map(|&index| values[index]).collect();
    let mut spreads = vec![PeerSpread { center: 0.0, std: 0.0, far_std: 0.0 }; values.len()];
    // Without one value a median is one of three, so that distances are sorted three times at most.
    let mut last: Option<(f64, Vec<f64>, Vec<usize>)> = None;
    for (position, &index) in order.iter().enumerate() {
        let center = median_without(&sorted, position);
        if last.as_ref().is_none_or(|(last_center, ..)| *last_center != center) {
            let mut by_distance: Vec<usize> = (0..sorted.len()).collect();
            let distance = |position: usize| (sorted[position] - center).abs();
            by_distance.sort_unstable_by(|&a, &b| distance(a).total_cmp(&distance(b)));
            let mut ranks = vec![0; sorted.len()];
            by_distance.iter().enumerate().for_each(|(rank, &position)| ranks[position] = rank);
            last = Some((center, by_distance.into_iter().map(distance).collect(), ranks));
        }
        let (_, distances, ranks) = last.as_ref().expect("it was just set");
        let own_rank = ranks[position];
        let distance = |rank: usize| distances[if rank < own_rank { rank } else { rank + 1 }];
        spreads[index] = PeerSpread::from_distances(center, &distance, values.len() - 1);
    }
    spreads
}

/// The median of sorted values but for the one at this position.
fn median_without(sorted: &[f64], position: usize) -> f64 {
    let remaining = sorted.len() - 1;
    if remaining == 0 {
        return f64::NAN;
    }
    let at = |rank: usize| sorted[if rank < position { rank } else { rank + 1 }];
    let (lower, upper) = (at((remaining - 1) / 2), at(remaining / 2));
    lower + (upper - lower) / 2.0
}

/// The standard deviation between repeats of a run on one host, from the differences of each two successive runs of all hosts. It is robust:
/// a host whose runs scatter more than others' does not widen it. `None` without two runs of a host.
pub(crate) fn repeat_std(logs_of_hosts: &[Vec<f64>]) -> Option<f64> {
    let differences = logs_of_hosts.iter().flat_map(|logs| logs.windows(2).map(|pair| (pair[1] - pair[0]).abs()));
    let mut differences: Vec<f64> = differences.collect();
    (!differences.is_empty()).then(|| MAD_TO_STD * median_in_place(&mut differences) / std::f64::consts::SQRT_2)
}

/// The variance of the median of this many normal values of variance 1; asymptotic from three on, where it is a little too large (0.52 for
/// three instead of 0.449, David and Nagaraja 2003, "Order Statistics").
pub(crate) fn median_variance(values: usize) -> f64 {
    match values {
        0..=2 => 1.0 / values.max(1) as f64,
        _ => std::f64::consts::FRAC_PI_2 / values as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mad_matches_published_example() {
        // The data 1, 1, 2, 2, 4, 6, 9 have the median 2 and absolute deviations 1, 1, 0, 0, 2, 4, 7, whose median is 1 (Wikipedia, "Median
        // absolute deviation").
        let spread = spread_of(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]);
        assert_eq!(spread.center, 2.0);
        assert!((spread.std - 1.140 * MAD_TO_STD).abs() < 1e-12);
    }

    #[test]
    fn far_spread_skips_one_in_32() {
        // Of 64 distances 1 to 64 about 0 the two largest are skipped; beyond the next are 3 of 65 values.
        let values: Vec<f64> = (1..=32).flat_map(|value| [f64::from(value), -f64::from(value)]).collect();
        let spread = spread_of(&values);
        assert_eq!(spread.center, 0.0);
        assert!((spread.far_std - 31.0 / normal_quantile(1.0 - 1.5 / 65.0)).abs() < 1e-12);
        // Of three values none is skipped.
        assert!((spread_of(&[1.0, 2.0, 4.0]).far_std - 2.0 / normal_quantile(0.875)).abs() < 1e-12);
    }

    #[test]
    fn peers_are_all_but_the_host() {
        for values in [vec![3.0, 1.0, 10.0, 2.0], vec![5.0, 4.0, 9.0, 1.0, 7.0], vec![2.0, 2.0, 2.0], vec![1.0, 4.0]] {
            let spreads = spreads_without_each(&values);
            for (index, spread) in spreads.iter().enumerate() {
                let mut others = values.clone();
                others.remove(index);
                assert_eq!(*spread, spread_of(&others), "{values:?} without {index}");
            }
        }
    }

    #[test]
    fn repeat_std_is_robust() {
        // Differences 1, 1, 1, 100: median 1.
        let hosts = [vec![0.0, 1.0, 2.0], vec![5.0, 6.0], vec![0.0, 100.0], vec![3.0]];
        assert!((repeat_std(&hosts).unwrap() - MAD_TO_STD / 2f64.sqrt()).abs() < 1e-12);
        assert_eq!(repeat_std(&[vec![1.0], vec![2.0]]), None);
        assert_eq!([1, 2, 4].map(median_variance), [1.0, 0.5, std::f64::consts::PI / 8.0]);
    }
}
