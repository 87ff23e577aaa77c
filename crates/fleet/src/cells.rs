//! One series over the hosts of a group: each host's distance from its peers, and the hosts that may be out by it.

use std::ops::Range;

use kelvin_stats::{LogFactorials, median, median_in_place};

use crate::spread::{MAX_PEERS_AS_FAR, PeerSpread, median_variance, repeat_std, spread_of, spreads_without_each};

/// The fewest hosts that a series is tested with: three peers have a median and a spread.
pub(crate) const MIN_HOSTS: usize = 4;
/// Least spread between hosts, as a share: that of figures which are the same on all hosts to the last digit, such as counts.
const MIN_SPREAD: f64 = 0.001;
/// The distance from which a host is a candidate: nearer ones never are out.
pub(crate) const MIN_DISTANCE: f64 = 3.0;
/// Of this many runs of a host one may lie elsewhere: it may have met something.
const RUNS_PER_STRAY: usize = 5;

/// Hosts of a group, with their runs.
pub(crate) struct GroupRuns {
    /// The range of runs of each host.
    pub ranges: Vec<Range<usize>>,
    /// Whether a host is a peer of others.
    pub is_peer: Vec<bool>,
    /// Whether a host is tested.
    pub is_tested: Vec<bool>,
    pub log_factorials: LogFactorials,
}

/// A host in a series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// Its index in the group.
    pub host: usize,
    /// How many times the spread between hosts it is above its peers, or below if negative.
    pub distance: f64,
    /// The distance of the run that is nearest to the peers, without strays; 0 where its runs lie on both sides of them.
    pub least_distance: f64,
    /// The distance that is compared with those of other hosts: that of the nearest run of the farther 70 %, which has lighter tails than the
    /// median.
    pub tail_distance: f64,
    /// The same of the run that is farthest from the peers, on either side of them.
    pub greatest_distance: f64,
    /// Its runs that must lie far out: all but strays.
    pub hits: usize,
    /// The logarithm of its value over the median of its peers.
    pub log_ratio: f64,
}

/// A cell that may be out, and how its runs lie among those of its peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub cell: Cell,
    /// The chance that its runs are so far out among all runs, whatever the shape of their noise.
    pub counted_chance: f64,
    /// The least chance that counting can give with so many runs.
    pub least_counted_chance: f64,
}

/// A series over the hosts of a group.
#[derive(Debug, Default)]
pub(crate) struct SeriesCells {
    /// The hosts that have it, by index.
    pub cells: Vec<Cell>,
    pub candidates: Vec<Candidate>,
    /// The logarithm of the median host.
    pub center: f64,
    /// Robust spread between hosts, of logarithms.
    pub between_hosts: f64,
    /// Robust spread between repeats on one host, of logarithms.
    pub between_runs: Option<f64>,
    /// How heavy its tails are: the 95th percentile of the distances over their median.
    pub tail_weight: f64,
}

impl GroupRuns {
    /// Compares the hosts by the logarithms of a series, which a run without it lacks. `None` of too few hosts.
    pub fn compare(&self, log_of_run: impl Fn(usize) -> Option<f64>, threshold: f64) -> Option<SeriesCells> {
        let logs_of = |range: &Range<usize>| range.clone().filter_map(&log_of_run).collect::<Vec<f64>>();
        let all_logs: Vec<(usize, Vec<f64>)> =
            self.ranges.iter().map(logs_of).enumerate().filter(|(_, logs)| !logs.is_empty()).collect();
        let (peers, others): (Vec<_>, Vec<_>) = all_logs.into_iter().partition(|(host, _)| self.is_peer[*host]);
        if peers.len() < MIN_HOSTS {
            return None;
        }
        let centers: Vec<f64> = peers.iter().map(|(_, logs)| median(logs)).collect();
        let peer_logs: Vec<Vec<f64>> = peers.iter().map(|(_, logs)| logs.clone()).collect();
        let between_runs = repeat_std(&peer_logs);
        let all = spread_of(&centers);
        let mut run_counts: Vec<f64> = peer_logs.iter().map(|logs| logs.len() as f64).collect();
        let scale = SpreadScale { between_runs, typical_runs: median_in_place(&mut run_counts) as usize };
        let peer_cells = peers.iter().zip(&centers).zip(spreads_without_each(&centers));
        let peer_cells =
            peer_cells.map(|(((host, logs), center), spread)| (*host, logs, scale.cell(*host, *center, logs, spread)));
        let other_cells = others.iter().map(|(host, logs)| (*host, logs, scale.cell(*host, median(logs), logs, all)));
        let mut pooled_logs: Vec<f64> = peer_logs.concat();
        let mut is_sorted = false;
        let mut cells = Vec::with_capacity(peers.len() + others.len());
        let mut candidates = Vec::new();
        for (host, logs, cell) in peer_cells.chain(other_cells) {
            cells.push(cell);
            let is_far = (cell.log_ratio.exp() - 1.0).abs() >= threshold && cell.distance.abs() >= MIN_DISTANCE;
            if is_far && self.is_tested[host] {
                if !is_sorted {
                    pooled_logs.sort_unstable_by(f64::total_cmp);
                    is_sorted = true;
                }
                candidates.extend(self.candidate(cell, logs, &pooled_logs));
            }
        }
        cells.sort_unstable_by_key(|cell| cell.host);
        let mut distances: Vec<f64> = cells.iter().map(|cell| cell.distance.abs()).collect();
        distances.sort_unstable_by(f64::total_cmp);
        let (middle, far) = (distances[distances.len() / 2], distances[distances.len() * 19 / 20]);
        let tail_weight = far / middle.max(f64::MIN_POSITIVE);
        Some(SeriesCells { cells, candidates, center: all.center, between_hosts: all.std, between_runs, tail_weight })
    }

    /// The cell as a candidate, unless too many runs of its peers lie as far out. `sorted_peers` are the runs of all peers.
    fn candidate(&self, cell: Cell, logs: &[f64], sorted_peers: &[f64]) -> Option<Candidate> {
        let sign = cell.log_ratio.signum();
        let mut own: Vec<f64> = logs.iter().map(|log| sign * log).collect();
        own.sort_unstable_by(f64::total_cmp);
        let (runs, strays) = (own.len(), own.len() / RUNS_PER_STRAY);
        let peer_runs = sorted_peers.len() - if self.is_peer[cell.host] { runs } else { 0 };
        let total = peer_runs + runs;
        let chance = |strays: usize| -> Option<f64> {
            let bound = own[strays];
            let as_far = match sign > 0.0 {
                true => sorted_peers.len() - sorted_peers.partition_point(|&log| log < bound),
                false => sorted_peers.partition_point(|&log| log <= -bound),
            };
            let hits = runs - strays;
            let peers_as_far = as_far - if self.is_peer[cell.host] { hits } else { 0 };
            let is_apart = match runs {
                1 => self.peers_half_as_far(&cell, sign * bound, sorted_peers) == 0,
                _ => peers_as_far as f64 <= peer_runs as f64 * MAX_PEERS_AS_FAR,
            };
            is_apart.then(|| self.log_factorials.hypergeometric_upper_tail(total, peers_as_far + hits, runs, hits))
        };
        // Each choice of strays is a test of its own.
        let counted_chance = (0..=strays).filter_map(chance).min_by(f64::total_cmp)? * (strays + 1) as f64;
        let least_counted_chance = (-self.log_factorials.log_choose(total, runs)).exp();
        Some(Candidate { cell, counted_chance: counted_chance.min(1.0), least_counted_chance })
    }
}

impl GroupRuns {
    /// How many runs of peers lie at least half as far out as the only run of a host, on its side: a state of runs that several of them
    /// have. The gap to the next value over the whole distance is Dixon's test of one outlier (1950, "Analysis of extreme values").
    fn peers_half_as_far(&self, cell: &Cell, log: f64, sorted_peers: &[f64]) -> usize {
        let bound = log - cell.log_ratio / 2.0;
        let as_far = match cell.log_ratio > 0.0 {
            true => sorted_peers.len() - sorted_peers.partition_point(|&log| log < bound),
            false => sorted_peers.partition_point(|&log| log <= bound),
        };
        as_far - usize::from(self.is_peer[cell.host])
    }
}

/// The spread that a host's distance is measured by.
struct SpreadScale {
    between_runs: Option<f64>,
    typical_runs: usize,
}

impl SpreadScale {
    /// The peers' spread contains the noise of the median of as many runs as a typical host has. It is not below that noise, and a host with
    /// fewer runs has more of it.
    fn cell(&self, host: usize, center: f64, logs: &[f64], peers: PeerSpread) -> Cell {
        let noise = |runs: usize| self.between_runs.map_or(0.0, |std| std * std * median_variance(runs));
        let (typical, own) = (noise(self.typical_runs), noise(logs.len()));
        let spread = peers.std.max(peers.far_std);
        let variance = (spread * spread).max(typical) + (own - typical).max(0.0);
        let (log_ratio, scale) = (center - peers.center, variance.sqrt().max(MIN_SPREAD));
        let sign = log_ratio.signum();
        let mut excesses: Vec<f64> = logs.iter().map(|log| sign * (log - peers.center)).collect();
        let greatest = excesses.iter().fold(0.0, |greatest: f64, excess| greatest.max(excess.abs()));
        let strays = logs.len() / RUNS_PER_STRAY;
        excesses.sort_unstable_by(f64::total_cmp);
        let distance_of = |rank: usize| excesses[rank].max(0.0) / scale;
        Cell {
            host,
            distance: log_ratio / scale,
            least_distance: distance_of(strays),
            tail_distance: distance_of(logs.len() * 3 / 10),
            greatest_distance: greatest / scale,
            hits: logs.len() - strays,
            log_ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(runs: &[usize]) -> GroupRuns {
        let mut start = 0;
        let range = |count: &usize| {
            start += count;
            start - count..start
        };
        GroupRuns {
            ranges: runs.iter().map(range).collect(),
            is_peer: vec![true; runs.len()],
            is_tested: vec![true; runs.len()],
            log_factorials: LogFactorials::new(start),
        }
    }

    fn compare(group: &GroupRuns, values: &[f64]) -> SeriesCells {
        group.compare(|run| Some(values[run].ln()).filter(|log| log.is_finite()), 0.05).unwrap()
    }

    #[test]
    fn distance_is_from_peers() {
        let values = [100.0, 101.0, 99.0, 100.0, 102.0, 122.0];
        let cells = compare(&group(&[1; 6]), &values);
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let expected = spread_of(&logs[..5]);
        let far = cells.cells[5];
        assert!((far.log_ratio - 1.22f64.ln()).abs() < 1e-12);
        assert!((far.distance - far.log_ratio / expected.std.max(expected.far_std)).abs() < 1e-12);
        // The run of the one host is the farthest of six.
        let [candidate] = cells.candidates[..] else { panic!("{:?}", cells.candidates) };
        assert!((candidate.counted_chance - 1.0 / 6.0).abs() < 1e-12);
        assert_eq!(candidate.counted_chance, candidate.least_counted_chance);
    }

    #[test]
    fn repeats_among_peers_are_no_candidate() {
        let steady = [100.0, 100.1, 99.9];
        let values: Vec<f64> = (0..6).flat_map(|_| steady).collect();
        let group = group(&[3; 6]);
        let with = |own: [f64; 3]| [&values[..15], &own].concat();
        let slow = compare(&group, &with([109.0, 110.0, 111.0]));
        // All three runs of one host beyond the other fifteen: one of 816 choices.
        assert!((slow.candidates[0].counted_chance - 1.0 / 816.0).abs() < 1e-12);
        assert!(compare(&group, &with([100.0, 110.0, 111.0])).candidates.is_empty(), "a repeat lies among the peers");
        assert!(compare(&group, &with([103.0, 103.0, 103.0])).candidates.is_empty(), "3 % is less than 5 %");
        let fast = compare(&group, &with([89.0, 90.0, 91.0]));
        assert!(fast.candidates[0].cell.distance < 0.0);
        assert!((fast.candidates[0].counted_chance - 1.0 / 816.0).abs() < 1e-12);
    }

    #[test]
    fn only_run_is_a_candidate_if_no_peer_is_half_as_far() {
        let candidates = |second: f64| {
            let values: Vec<f64> = (0..40).map(|host| 100.0 + f64::from(host % 5)).chain([second, 140.0]).collect();
            compare(&group(&[1; 42]), &values).candidates.len()
        };
        assert_eq!(candidates(104.0), 1);
        // The middle between the median 102 and 140 is 119.5, of logarithms.
        assert_eq!([candidates(119.0), candidates(120.0)], [1, 0]);
        let runs_of_two = |second: f64| {
            let usual = (0..80).map(|run| 100.0 + f64::from(run % 5));
            let values: Vec<f64> = usual.chain([second; 2]).chain([140.0; 2]).collect();
            compare(&group(&[2; 42]), &values).candidates.len()
        };
        assert_eq!(runs_of_two(120.0), 2, "two runs of each");
    }

    #[test]
    fn host_with_fewer_runs_has_more_noise() {
        let mut values = vec![100.0, 104.0, 96.0, 100.0, 104.0, 96.0, 100.0, 104.0, 96.0, 100.0, 104.0, 96.0];
        values.push(110.0);
        let cells = compare(&group(&[3, 3, 3, 3, 1]), &values);
        let noise = cells.between_runs.unwrap();
        assert!((cells.cells[4].distance - 1.1f64.ln() / noise).abs() < 1e-9, "{cells:?}");
        assert!(group(&[1; 3]).compare(|_| Some(0.0), 0.05).is_none(), "three hosts are too few");
    }
}
