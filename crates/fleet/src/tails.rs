//! How likely a distance between a host and its peers is, by the distances of all other hosts in many series.
//!
//! Noise of runs has heavier tails than a normal distribution, and nobody knows how heavy. So the tail is that of the data: distances of all
//! hosts in all alike series are pooled, and beyond their largest hundredth they are taken to fall off as a power (Pickands 1975, Hill 1975).
//! A power falls off more slowly than what most noise does, so that a chance is too large rather than too small.

use std::collections::HashMap;

use kelvin_stats::median_in_place;

use crate::cells::Cell;

/// The shares of the distances whose fall-off is fitted. The largest chance counts: a rare state of few figures shows only in the smallest
/// share, and a larger one would take it for an accusation.
const TAIL_SHARES: [f64; 3] = [0.01, 0.003, 0.001];
/// How many times the distance that a hundredth of the distances of a usual host exceed is far out.
const FAR_STARTS: f64 = 2.0;
/// How many times as far out as its host's nearest run a run is that strayed.
const MIN_STRAY_RATIO: f64 = 4.0;
/// The fewest distances that it is fitted to: 20, or of fewer than 80 distances a quarter, and 10 in any case.
const MIN_TAIL: usize = 20;
const MIN_QUARTER: usize = 10;
/// The steepest power that is believed: that of Student's distribution with twelve degrees of freedom. With few hosts, distances of one host
/// that are alike would show any steepness.
const MAX_TAIL_INDEX: f64 = 12.0;

/// Distances of hosts in alike series.
#[derive(Debug, Default)]
pub(crate) struct TailPool {
    /// Each with its host, the largest first once it is sorted.
    distances: Vec<(f32, u32)>,
    /// How many distances each host has.
    counts: HashMap<u32, usize>,
    /// Distances of single runs where the host's other runs lie much nearer, the smallest first once they are sorted.
    stray_runs: Vec<f32>,
    /// Runs of all hosts.
    runs: usize,
}

/// The largest distances of a pool without those of one host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tail(Vec<PowerLaw>);

/// A fall-off as a power.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PowerLaw {
    /// The share of the distances that are larger than `start`.
    share: f64,
    start: f64,
    /// The power with which their share falls off.
    index: f64,
}

impl Tail {
    /// The chance of a distance at least this large.
    pub fn chance(&self, distance: f64) -> f64 {
        let chance = |law: &PowerLaw| match distance > law.start {
            true => law.share * (law.start / distance).powf(law.index),
            // Nobody asks how likely what is usual is.
            false => 1.0,
        };
        self.0.iter().map(chance).fold(0.0, f64::max)
    }

    /// The distance that has this chance.
    pub fn distance(&self, chance: f64) -> f64 {
        let distance = |law: &PowerLaw| law.start * (law.share / chance).powf(1.0 / law.index).max(1.0);
        self.0.iter().map(distance).fold(0.0, f64::max)
    }
}

impl TailPool {
    /// Adds the distance of a host, and that of its farthest run.
    pub fn add(&mut self, cell: &Cell) {
        let host = cell.host as u32;
        self.distances.push((cell.tail_distance as f32, host));
        *self.counts.entry(host).or_default() += 1;
        self.runs += cell.hits;
        if cell.least_distance * MIN_STRAY_RATIO < cell.greatest_distance {
            self.stray_runs.push(cell.greatest_distance as f32);
        }
    }

    /// The chance that so many runs of a host are all this far out, if each is so as often as single runs are while the host's other runs are
    /// not: a state of runs, and none of the host.
    pub fn repeat_chance(&self, distance: f64, hits: usize) -> f64 {
        let farther = self.stray_runs.len() - self.stray_runs.partition_point(|&stray| f64::from(stray) < distance);
        (farther.max(1) as f64 / self.runs.max(1) as f64).powi(hits as i32)
    }

    /// How many distances it has.
    pub fn len(&self) -> usize {
        self.distances.len()
    }

    /// Sorts them.
    pub fn sort(&mut self) {
        self.distances.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        self.stray_runs.sort_unstable_by(f32::total_cmp);
    }

    /// A distance that a hundredth of the distances of a usual host is beyond: the median over hosts, which a few odd ones do not move.
    fn usual_start(&self) -> f64 {
        let mut seen: HashMap<u32, usize> = HashMap::new();
        let mut starts = Vec::new();
        for &(distance, host) in &self.distances {
            let rank = seen.entry(host).or_default();
            *rank += 1;
            if *rank == ((self.counts[&host] as f64 * TAIL_SHARES[0]).ceil() as usize).max(1) {
                starts.push(f64::from(distance));
            }
        }
        median_in_place(&mut starts)
    }

    /// Adds to the sum of each host by how much its distances are far out, as logarithms.
    pub fn add_excesses(&self, excesses: &mut HashMap<u32, f64>) {
        let start = FAR_STARTS * self.usual_start();
        let is_far = |distance: f32| start > 0.0 && f64::from(distance) > start;
        for &(distance, host) in self.distances.iter().take_while(|(distance, _)| is_far(*distance)) {
            *excesses.entry(host).or_default() += (f64::from(distance) / start).ln();
        }
    }

    /// The tail without the distances of these hosts; `None` of too few distances, or where nearly all are zero.
    pub fn tail_without(&self, is_excluded: impl Fn(u32) -> bool) -> Option<Tail> {
        let total: usize = self.counts.iter().filter(|(host, _)| !is_excluded(**host)).map(|(_, count)| count).sum();
        let included = self.distances.iter().filter(|(_, host)| !is_excluded(*host));
        let largest: Vec<f64> =
            included.map(|(distance, _)| f64::from(*distance)).take(tail_size(total, TAIL_SHARES[0]) + 1).collect();
        let mut counts: Vec<usize> = TAIL_SHARES.iter().map(|&share| tail_size(total, share)).collect();
        counts.dedup();
        let laws = counts.into_iter().filter_map(|count| PowerLaw::fit(&largest, count, total));
        let laws: Vec<PowerLaw> = laws.collect();
        (!laws.is_empty()).then_some(Tail(laws))
    }
}

impl PowerLaw {
    /// Fits this many of the largest distances, sorted, by Hill's estimator; less its own standard error, since a power that is too steep
    /// would be an accusation too many.
    fn fit(largest: &[f64], count: usize, total: usize) -> Option<Self> {
        let start = largest.get(count).copied().filter(|start| *start > 0.0 && count >= MIN_QUARTER)?;
        let mean_log = largest[..count].iter().map(|distance| (distance / start).ln()).sum::<f64>() / count as f64;
        let index = (1.0 - 1.0 / (count as f64).sqrt()) / mean_log.max(1e-9);
        Some(Self { share: count as f64 / total as f64, start, index: index.min(MAX_TAIL_INDEX) })
    }
}

fn tail_size(total: usize, share: f64) -> usize {
    ((total as f64 * share).ceil() as usize).max(MIN_TAIL).min(total / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(distance: f64, host: usize) -> Cell {
        Cell {
            host,
            distance,
            least_distance: distance,
            tail_distance: distance,
            greatest_distance: distance,
            hits: 2,
            log_ratio: 0.1,
        }
    }

    /// Distances whose share beyond x falls off as x to the minus `power`, those of each tenth one of host 1.
    fn pool(power: f64, total: usize) -> TailPool {
        let mut pool = TailPool::default();
        for rank in 0..total {
            let share = (rank as f64 + 0.5) / total as f64;
            pool.add(&cell(share.powf(-1.0 / power), usize::from(rank % 10 == 0)));
        }
        pool.sort();
        pool
    }

    #[test]
    fn power_is_found() {
        let tail = pool(3.0, 20_000).tail_without(|_| false).unwrap();
        let [PowerLaw { share, start, index }, ..] = tail.0[..] else { panic!("{tail:?}") };
        assert!((share - 0.01).abs() < 1e-12);
        assert!((start - 100f64.powf(1.0 / 3.0)).abs() < 0.01, "{tail:?}");
        // Less one standard error of 200 distances: 7 %.
        assert!((index - 3.0 * (1.0 - 1.0 / 200f64.sqrt())).abs() < 0.03, "{tail:?}");
        // 200, 60 and 20 distances.
        assert_eq!(tail.0.len(), 3);
        let distance = tail.distance(1e-6);
        assert!((tail.chance(distance) / 1e-6 - 1.0).abs() < 1e-9);
        assert_eq!(tail.chance(1.0), 1.0);
    }

    #[test]
    fn stray_runs_make_repeats_likely() {
        let mut pool = pool(3.0, 900);
        for _ in 0..100 {
            pool.add(&Cell { least_distance: 1.0, greatest_distance: 20.0, ..cell(1.0, 1) });
        }
        pool.sort();
        // 100 of 2000 runs are 20 times the spread out, while the other run of the host is not.
        assert!((pool.repeat_chance(15.0, 2) - 0.05f64.powi(2)).abs() < 1e-12);
        assert!((pool.repeat_chance(15.0, 3) - 0.05f64.powi(3)).abs() < 1e-12);
        // None is farther: at most one.
        assert!((pool.repeat_chance(21.0, 2) - 0.0005f64.powi(2)).abs() < 1e-15);
    }

    #[test]
    fn steepness_is_limited_and_host_left_out() {
        let tail = pool(50.0, 5000).tail_without(|_| false).unwrap();
        assert!(tail.0.iter().all(|law| law.index == MAX_TAIL_INDEX), "{tail:?}");
        let mut odd_pool = pool(3.0, 2000);
        (0..100).for_each(|_| odd_pool.add(&cell(1e6, 7)));
        odd_pool.sort();
        assert_eq!(odd_pool.tail_without(|host| host == 7), pool(3.0, 2000).tail_without(|_| false));
        let mut excesses = HashMap::new();
        odd_pool.add_excesses(&mut excesses);
        let excess_of = |host: u32| excesses.get(&host).copied().unwrap_or(0.0);
        assert!(excess_of(7) > 10.0 * excess_of(0) && excess_of(7) > 10.0 * excess_of(1), "{excesses:?}");
        assert!(TailPool::default().tail_without(|_| false).is_none());
    }
}
