//! Change points: where the level of a sequence shifts for good.

use crate::{Random, median};

/// Probability of a false alarm in a sequence without a change.
const ALPHA: f64 = 0.01;
/// Random orders that a sequence is compared with, and their seed.
const PERMUTATIONS: u32 = 999;
const SEED: u64 = 1;

/// A shift of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankChangePoint {
    /// Index of the first value at the new level.
    pub index: usize,
    /// Median of the segment that ends before it.
    pub before: f64,
    /// Median of the segment that begins with it.
    pub after: f64,
    /// Share of random orders that look at least as much like a shift.
    pub p: f64,
}

/// Change points by binary segmentation (Vostrikova 1981) on ranks, so that an outlier is not a shift, with at least `min_segment`
/// values between two, before the first and after the last. Each split must be more extreme than the best split of all but 1 % of
/// random orders of its segment.
pub fn rank_change_points(values: &[f64], min_segment: usize) -> Vec<RankChangePoint> {
    let mut splits = Vec::new();
    segment(values, 0, min_segment.max(1), &mut Random::new(SEED), &mut splits);
    splits.sort_unstable_by_key(|split| split.0);
    let bounds: Vec<usize> =
        std::iter::once(0).chain(splits.iter().map(|split| split.0)).chain(std::iter::once(values.len())).collect();
    splits
        .iter()
        .enumerate()
        .map(|(i, &(index, p))| RankChangePoint {
            index,
            before: median(&values[bounds[i]..index]),
            after: median(&values[index..bounds[i + 2]]),
            p,
        })
        .collect()
}

fn segment(values: &[f64], offset: usize, least: usize, random: &mut Random, found: &mut Vec<(usize, f64)>) {
    if values.len() < 2 * least || values.iter().all(|value| *value == values[0]) {
        return;
    }
    let mut ranks = crate::ranks::ranks(values);
    let (index, score) = best_split(&ranks, least);
    let allowed = (ALPHA * f64::from(PERMUTATIONS + 1)) as u32;
    let mut as_extreme = 1;
    for _ in 0..PERMUTATIONS {
        random.shuffle(&mut ranks);
        as_extreme += u32::from(best_split(&ranks, least).1 >= score * (1.0 - 1e-12));
        if as_extreme > allowed {
            return;
        }
    }
    found.push((offset + index, f64::from(as_extreme) / f64::from(PERMUTATIONS + 1)));
    segment(&values[..index], offset, least, random, found);
    segment(&values[index..], offset + index, least, random, found);
}

/// The split with the largest standardised difference of mean ranks: its index and its squared score.
fn best_split(ranks: &[f64], least: usize) -> (usize, f64) {
    let n = ranks.len();
    let mean = (n as f64 + 1.0) / 2.0;
    let mut sum = 0.0;
    let mut best = (least, f64::NEG_INFINITY);
    for (index, rank) in ranks.iter().enumerate().take(n - least) {
        sum += rank - mean;
        let split = index + 1;
        let score = sum * sum / (split as f64 * (n - split) as f64);
        if split >= least && score > best.1 {
            best = (split, score);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nile_changed_once_in_1899() {
        // Annual flow of the Nile at Aswan 1871-1970 (Cobb 1978); every published analysis finds the change after 1898.
        const NILE: [f64; 100] = [
            1120., 1160., 963., 1210., 1160., 1160., 813., 1230., 1370., 1140., 995., 935., 1110., 994., 1020., 960.,
            1180., 799., 958., 1140., 1100., 1210., 1150., 1250., 1260., 1220., 1030., 1100., 774., 840., 874., 694.,
            940., 833., 701., 916., 692., 1020., 1050., 969., 831., 726., 456., 824., 702., 1120., 1100., 832., 764.,
            821., 768., 845., 864., 862., 698., 845., 744., 796., 1040., 759., 781., 865., 845., 944., 984., 897.,
            822., 1010., 771., 676., 649., 846., 812., 742., 801., 1040., 860., 874., 848., 890., 744., 749., 838.,
            1050., 918., 986., 797., 923., 975., 815., 1020., 906., 901., 1170., 912., 746., 919., 718., 714., 740.,
        ];
        let found = rank_change_points(&NILE, 3);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].index + 1871, 1899);
        assert!(found[0].before > 1050.0 && found[0].after < 860.0);
    }

    #[test]
    fn noise_and_outlier_are_no_changes() {
        let mut random = Random::new(3);
        let alarms = (0..200)
            .filter(|_| {
                let values: Vec<f64> = (0..30).map(|_| random.normal()).collect();
                !rank_change_points(&values, 3).is_empty()
            })
            .count();
        assert!(alarms <= 8, "{alarms} of 200");
        let mut spike: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 5)).collect();
        spike[11] = 1e9;
        assert_eq!(rank_change_points(&spike, 3), []);
    }

    #[test]
    fn several_levels_and_degenerate_sequences() {
        let steps: Vec<f64> = (0..36).map(|i| [10.0, 30.0, 20.0][i / 12] + (i * 7 % 5) as f64 / 10.0).collect();
        let indices: Vec<usize> = rank_change_points(&steps, 3).iter().map(|c| c.index).collect();
        assert_eq!(indices, [12, 24]);
        assert_eq!(rank_change_points(&[], 3), []);
        assert_eq!(rank_change_points(&[1.0; 50], 3), []);
        assert_eq!(rank_change_points(&[1.0, 1.0, 1.0, 2.0, 2.0], 3), []);
    }
}
