//! The hosts of a group that are out: chances of all candidates, corrected for one another.
//!
//! The share of false ones is controlled among the hosts, each tested by all its figures at once (Simes 1986, "An improved Bonferroni
//! procedure"), and then among the figures of those that are out (Benjamini and Bogomolov 2014, "Selective inference on multiple families
//! of hypotheses").

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kelvin_core::{IndirectSort, PValue};
use kelvin_stats::{FALSE_DISCOVERY_RATE, adjusted_p_values};

use crate::cells::{Candidate, Cell, SeriesCells};
use crate::families::{Family, FamilyMember};
use crate::run_states::family_chance;
use crate::tails::{Tail, TailPool};

/// The share of hosts with the largest distances that do not make the tails: they may be out. It changes the tails of alike hosts little.
/// Hosts that are out beyond this share stay: were all left out that are significant, rare states of runs would be too, one after another.
const TRIMMED_HOSTS: f64 = 0.05;
/// With fewer hosts none is left out.
const MIN_HOSTS_TO_TRIM: usize = 8;
/// Runs of a host from which on counting can show that it is out. With fewer, a state that runs have by chance may look like a host that is.
const MIN_COUNTED_RUNS: usize = 3;
/// The share of hosts that are named without being out, with fewer runs.
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

/// How many figures, metrics and areas of each host are tested.
struct TestCounts(Vec<usize>);

impl TestCounts {
    fn total(&self) -> usize {
        self.0.iter().sum()
    }

    /// Hosts with any test.
    fn hosts(&self) -> usize {
        self.0.iter().filter(|count| **count > 0).count()
    }
}

/// The tests of a group.
pub(crate) struct OutlierTests {
    /// Those that are significant.
    pub findings: Vec<Finding>,
    /// All tests of hosts and series.
    pub tests: usize,
    /// The distance that a single figure of usual tails must have to be significant, if the figures show any. With one run of each host,
    /// that of a whole metric or area.
    pub least_distance: Option<f64>,
}

/// What is tested.
pub(crate) struct TestInput<'a> {
    pub series: &'a [Option<SeriesCells>],
    /// Tests of families follow those of series.
    pub families: &'a [(Family, Option<SeriesCells>)],
    pub members_of: &'a dyn Fn(&Family) -> Vec<FamilyMember>,
    /// Whether a host is a peer of others.
    pub is_peer: &'a [bool],
    /// Whether a host is tested.
    pub is_tested: &'a [bool],
    /// Runs of a typical host.
    pub runs_of_host: usize,
}

impl TestInput<'_> {
    /// Whether a host is tested by this: one with a single run by whole metrics and areas alone.
    fn is_test_of(&self, test: usize, cell: &Cell) -> bool {
        self.is_tested[cell.host] && (cell.hits > 1 || test >= self.series.len())
    }

    /// The chance that states of single runs make the only run of a host look like this in a whole family; 0 of a host with several runs.
    fn state_chance(&self, test: usize, cell: &Cell) -> f64 {
        let family = test.checked_sub(self.series.len()).filter(|_| cell.hits == 1);
        family.map_or(0.0, |index| {
            let members = (self.members_of)(&self.families[index].0);
            family_chance(&members, cell, |series| self.series[series].as_ref().map_or(&[], |cells| &cells.cells))
        })
    }
}

/// Tests all candidates of series and families.
pub(crate) fn test_candidates(input: &TestInput<'_>) -> OutlierTests {
    let &TestInput { series, families, is_peer, is_tested, runs_of_host, .. } = input;
    let family_cells = families.iter().map(|(_, cells)| cells);
    let all = || {
        let all_cells = series.iter().chain(family_cells.clone());
        all_cells.enumerate().filter_map(|(test, cells)| Some((test, cells.as_ref()?)))
    };
    let hosts = is_peer.iter().filter(|is_peer| **is_peer).count();
    let has_repeats = runs_of_host > 1;
    let rate = false_discovery_rate(runs_of_host);
    let stratum = |test: usize, cells: &SeriesCells| {
        let weights = if hosts < MIN_HOSTS_FOR_WEIGHTS || !has_repeats { &[][..] } else { &TAIL_WEIGHTS };
        (test >= series.len(), weights.iter().filter(|bound| cells.tail_weight > **bound).count())
    };
    let mut pools: BTreeMap<(bool, usize), TailPool> = BTreeMap::new();
    let mut tests = TestCounts(vec![0; is_tested.len()]);
    for (test, cells) in all() {
        let pool = pools.entry(stratum(test, cells)).or_default();
        cells.cells.iter().filter(|cell| is_peer[cell.host]).for_each(|cell| pool.add(cell));
        let tested = cells.cells.iter().filter(|cell| input.is_test_of(test, cell));
        tested.for_each(|cell| tests.0[cell.host] += 1);
    }
    pools.values_mut().for_each(TailPool::sort);
    // Of single runs all make the tails: what no other run shows is a state of runs as likely as a host that is out.
    let trimmed = if has_repeats { trimmed_hosts(&pools, hosts) } else { BTreeSet::new() };
    let candidates: Vec<(usize, (bool, usize), Candidate)> = all()
        .flat_map(|(test, cells)| {
            let candidates = cells.candidates.iter().filter(move |candidate| input.is_test_of(test, &candidate.cell));
            candidates.map(move |candidate| (test, stratum(test, cells), *candidate))
        })
        .collect();
    let findings = significant(input, &candidates, &pools, (&trimmed, &tests, rate));
    let tested_pools = pools.iter().filter(|((is_family, _), _)| *is_family != has_repeats);
    let largest_pool = tested_pools.map(|(_, pool)| pool).max_by_key(|pool| pool.len());
    let tail = largest_pool.and_then(|pool| pool.tail_without(|host| trimmed.contains(&host)));
    let least_distance = tail.map(|tail| tail.distance(rate / tests.total().max(1) as f64));
    OutlierTests { findings, tests: tests.total(), least_distance }
}

/// The share of hosts that are named without being out, on average at most.
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
    by_excess.indirect_sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let count = ((hosts as f64 * TRIMMED_HOSTS) as usize).max(1);
    by_excess.into_iter().take(count).map(|(host, _)| host).collect()
}

/// The candidates of hosts that are significant among all hosts, and significant in these themselves; without these hosts in the tails.
fn significant(
    input: &TestInput<'_>,
    candidates: &[(usize, (bool, usize), Candidate)],
    pools: &BTreeMap<(bool, usize), TailPool>,
    (excluded, tests, rate): (&BTreeSet<u32>, &TestCounts, f64),
) -> Vec<Finding> {
    let mut tails: HashMap<((bool, usize), usize), Option<Tail>> = HashMap::new();
    let mut chance = |test: usize, stratum: (bool, usize), candidate: &Candidate| {
        let host = candidate.cell.host;
        let tail = tails.entry((stratum, host)).or_insert_with(|| {
            pools[&stratum].tail_without(|pool_host| pool_host == host as u32 || excluded.contains(&pool_host))
        });
        let by_tail = tail.as_ref().map_or(1.0, |tail| tail.chance(candidate.cell.tail_distance));
        // Counting decides too where so many runs can be significant by it at all.
        let can_count = candidate.least_counted_chance * tests.total() as f64 <= rate;
        let counted = if can_count { candidate.counted_chance } else { 0.0 };
        let Cell { least_distance, hits, .. } = candidate.cell;
        let by_repeats = if hits > 1 { pools[&stratum].repeat_chance(least_distance, hits) } else { 0.0 };
        by_tail.max(counted).max(by_repeats).max(input.state_chance(test, &candidate.cell))
    };
    let chances: Vec<f64> =
        candidates.iter().map(|(test, stratum, candidate)| chance(*test, *stratum, candidate)).collect();
    // Hosts are tested first, by their best figures, and then the figures of those that are out: of one host alone many figures may be out,
    // and their number must not let figures of other hosts pass.
    let mut indices_of_hosts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, (_, _, candidate)) in candidates.iter().enumerate() {
        indices_of_hosts.entry(candidate.cell.host).or_default().push(index);
    }
    let adjusted_in_host = |(host, indices): (usize, Vec<usize>)| -> Vec<(usize, f64)> {
        let of_host: Vec<f64> = indices.iter().map(|&index| chances[index]).collect();
        // Cells that are no candidates have the chance 1: they count among the tests, and change no rank before them.
        let factor = tests.0[host] as f64 / of_host.len() as f64;
        let adjusted = adjusted_p_values(&of_host).into_iter().map(|chance| (chance * factor).min(1.0));
        indices.into_iter().zip(adjusted).collect()
    };
    let of_hosts: Vec<Vec<(usize, f64)>> = indices_of_hosts.into_iter().map(adjusted_in_host).collect();
    // The least adjusted chance is that of Simes that nothing of the host is out.
    let best_of = |figures: &Vec<(usize, f64)>| figures.iter().map(|(_, chance)| *chance).fold(1.0, f64::min);
    let best: Vec<f64> = of_hosts.iter().map(best_of).collect();
    let hosts = tests.hosts() as f64;
    let host_factor = hosts / best.len().max(1) as f64;
    let named = adjusted_p_values(&best).into_iter().filter(|chance| chance * host_factor <= rate).count();
    let mut findings = Vec::new();
    for (index, in_host) in of_hosts.into_iter().flatten() {
        let (test, _, candidate) = candidates[index];
        let adjusted = (in_host * hosts / named.max(1) as f64).min(1.0);
        findings.push(Finding { test, candidate, p_value: PValue { raw: chances[index], adjusted } });
    }
    findings.indirect_sort_by_key(|finding| (finding.test, finding.candidate.cell.host));
    findings.retain(|finding| finding.p_value.adjusted <= rate);
    findings
}
