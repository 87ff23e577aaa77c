//! The hosts of a group that are out: chances of all candidates, corrected for one another.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kelvin_core::PValue;
use kelvin_stats::{FALSE_DISCOVERY_RATE, adjusted_p_values};

use crate::cells::{Candidate, Cell, SeriesCells};
use crate::tails::{Tail, TailPool};

/// The share of hosts with the largest distances that do not make the tails: they may be out. It changes the tails of alike hosts little.
/// Hosts that are out beyond this share stay: were all left out that are significant, rare states of runs would be too, one after another.
const TRIMMED_HOSTS: f64 = 0.05;
/// With fewer hosts none is left out.
const MIN_HOSTS_TO_TRIM: usize = 8;
/// Runs of a host from which on counting can show that it is out. With fewer, a state that runs have by chance may look like a host that is.
const MIN_COUNTED_RUNS: usize = 3;
/// The share of false ones among what is out, with fewer runs.
const STRICT_FALSE_DISCOVERY_RATE: f64 = 0.01;
/// Hosts from which on series are pooled by the weight of their tails, which fewer do not show; nor do single runs.
const MIN_HOSTS_FOR_WEIGHTS: usize = 20;
/// Bounds of the weights of tails: a normal distribution has 2.9, Student's with three degrees of freedom 4.2.
const TAIL_WEIGHTS: [f64; 2] = [3.5, 6.0];

/// A candidate with its chance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finding {
    /// Index of the series, or behind all series of the family.
    pub test: usize,
    pub candidate: Candidate,
    pub p_value: PValue,
}

/// The tests of a group.
pub(crate) struct OutlierTests {
    /// Those that are significant.
    pub findings: Vec<Finding>,
    /// All tests of hosts and series.
    pub tests: usize,
    /// The distance that a single figure of usual tails must have to be significant, if the figures show any.
    pub least_distance: Option<f64>,
}

/// Tests all candidates of series and families, of which the latter follow the former. `is_peer` and `is_tested` say it of hosts.
pub(crate) fn test_candidates(
    (series, families): (&[Option<SeriesCells>], &[Option<SeriesCells>]),
    (is_peer, is_tested): (&[bool], &[bool]),
    runs_of_host: usize,
) -> OutlierTests {
    let all = || series.iter().chain(families).enumerate().filter_map(|(test, cells)| Some((test, cells.as_ref()?)));
    let hosts = is_peer.iter().filter(|is_peer| **is_peer).count();
    let has_repeats = runs_of_host > 1;
    let rate = false_discovery_rate(runs_of_host);
    let stratum = |test: usize, cells: &SeriesCells| {
        let weights = if hosts < MIN_HOSTS_FOR_WEIGHTS || !has_repeats { &[][..] } else { &TAIL_WEIGHTS };
        (test >= series.len(), weights.iter().filter(|bound| cells.tail_weight > **bound).count())
    };
    let mut pools: BTreeMap<(bool, usize), TailPool> = BTreeMap::new();
    let mut tests = [0; 2];
    for (test, cells) in all() {
        let pool = pools.entry(stratum(test, cells)).or_default();
        cells.cells.iter().filter(|cell| is_peer[cell.host]).for_each(|cell| pool.add(cell));
        tests[usize::from(test >= series.len())] += cells.cells.iter().filter(|cell| is_tested[cell.host]).count();
    }
    pools.values_mut().for_each(TailPool::sort);
    let trimmed = trimmed_hosts(&pools, hosts);
    let candidates: Vec<(usize, (bool, usize), Candidate)> = all()
        .flat_map(|(test, cells)| {
            cells.candidates.iter().map(move |candidate| (test, stratum(test, cells), *candidate))
        })
        .collect();
    let findings = significant(&candidates, &pools, (&trimmed, tests, rate));
    let largest_pool =
        pools.iter().filter(|((is_family, _), _)| !is_family).map(|(_, pool)| pool).max_by_key(|pool| pool.len());
    let tail = largest_pool.and_then(|pool| pool.tail_without(|host| trimmed.contains(&host)));
    let least_distance = tail.map(|tail| tail.distance(rate / tests[0].max(1) as f64));
    OutlierTests { findings, tests: tests.iter().sum(), least_distance }
}

/// The share of false ones among the figures that are out, and among the metrics and areas, on average at most.
pub(crate) fn false_discovery_rate(runs_of_host: usize) -> f64 {
    if runs_of_host < MIN_COUNTED_RUNS { STRICT_FALSE_DISCOVERY_RATE } else { FALSE_DISCOVERY_RATE }
}

/// The hosts that do not make the tails, since they may be out.
fn trimmed_hosts(pools: &BTreeMap<(bool, usize), TailPool>, hosts: usize) -> BTreeSet<u32> {
    if hosts < MIN_HOSTS_TO_TRIM {
        return BTreeSet::new();
    }
    let mut excesses: HashMap<u32, f64> = HashMap::new();
    pools.values().for_each(|pool| pool.add_excesses(&mut excesses));
    let mut by_excess: Vec<(u32, f64)> = excesses.into_iter().collect();
    by_excess.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let count = ((hosts as f64 * TRIMMED_HOSTS) as usize).max(1);
    by_excess.into_iter().take(count).map(|(host, _)| host).collect()
}

/// The candidates whose chances are significant among all tests, without these hosts in the tails.
fn significant(
    candidates: &[(usize, (bool, usize), Candidate)],
    pools: &BTreeMap<(bool, usize), TailPool>,
    (excluded, tests, rate): (&BTreeSet<u32>, [usize; 2], f64),
) -> Vec<Finding> {
    let mut tails: HashMap<((bool, usize), usize), Option<Tail>> = HashMap::new();
    let mut chance = |stratum: (bool, usize), candidate: &Candidate| {
        let host = candidate.cell.host;
        let tail = tails.entry((stratum, host)).or_insert_with(|| {
            pools[&stratum].tail_without(|pool_host| pool_host == host as u32 || excluded.contains(&pool_host))
        });
        let by_tail = tail.as_ref().map_or(1.0, |tail| tail.chance(candidate.cell.tail_distance));
        // Counting decides too where so many runs can be significant by it at all.
        let can_count = candidate.least_counted_chance * tests[usize::from(stratum.0)] as f64 <= rate;
        let counted = if can_count { candidate.counted_chance } else { 0.0 };
        let Cell { least_distance, hits, .. } = candidate.cell;
        let by_repeats = if hits > 1 { pools[&stratum].repeat_chance(least_distance, hits) } else { 0.0 };
        by_tail.max(counted).max(by_repeats)
    };
    let mut findings = Vec::new();
    // Whole metrics and areas are corrected apart from single figures, of which there are ten times as many.
    for is_family in [false, true] {
        let of_kind: Vec<_> = candidates.iter().filter(|(_, stratum, _)| stratum.0 == is_family).collect();
        let chances: Vec<f64> = of_kind.iter().map(|(_, stratum, candidate)| chance(*stratum, candidate)).collect();
        // Cells that are no candidates have the chance 1: they count among the tests, and change no rank before them.
        let factor = tests[usize::from(is_family)] as f64 / of_kind.len().max(1) as f64;
        for (((test, _, candidate), raw), adjusted) in of_kind.iter().zip(&chances).zip(adjusted_p_values(&chances)) {
            let p_value = PValue { raw: *raw, adjusted: (adjusted * factor).min(1.0) };
            findings.push(Finding { test: *test, candidate: *candidate, p_value });
        }
    }
    findings.retain(|finding| finding.p_value.adjusted <= rate);
    findings
}
