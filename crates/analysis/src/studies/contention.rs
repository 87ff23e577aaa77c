//! Several threads that read from one device: whether a second one slows the first, and whether more share it evenly.

use kelvin_core::catalogue::file::{CONTENTION, THREAD_COUNT};
use kelvin_core::{Case, Conclusion, RatioQuestion};

use super::crossing::without_axes;
use crate::evidence::{Evidence, RatioTest, RoundHeadlines};
use crate::result::Study;

/// Threads from which on equal shares are expected: two keep a device busy.
const MIN_BUSY_THREADS: u64 = 2;

/// Conclusions from the metric `file.contention`, two for each block and kind of files.
pub(crate) fn contention(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all_cases(&CONTENTION);
    let mut kinds: Vec<Case> = all.iter().map(|one| without_axes(one.case, &[THREAD_COUNT])).collect();
    kinds.sort();
    kinds.dedup();
    let conclusions = kinds.iter().flat_map(|held| held_conclusions(held, &all)).collect();
    let design = "Threads read from one device with direct I/O at the same time, each its own file or its part of one file, in several \
                  rounds. If a busy device is shared evenly, the time of a read grows as the number of threads.";
    Study::new(CONTENTION.id, design, conclusions)
}

/// The conclusions for one block and kind of files.
fn held_conclusions(held: &Case, all: &[RoundHeadlines<'_>]) -> Vec<Conclusion> {
    let at = |threads: u64| all.iter().find(|one| *one.case == held.clone().with_number(THREAD_COUNT, threads));
    let here = all.iter().filter(|one| without_axes(one.case, &[THREAD_COUNT]) == *held);
    let most = here.filter_map(|one| THREAD_COUNT.number_in(one.case)).max().filter(|&most| most > MIN_BUSY_THREADS);
    let second = || RatioTest::above(RatioQuestion::TwoThreadsBesideOne, 1.0).test(at(1)?, at(MIN_BUSY_THREADS)?);
    let shared = || {
        let most = most?;
        let evenly = at(MIN_BUSY_THREADS)?.clone().scaled(most as f64 / MIN_BUSY_THREADS as f64);
        RatioTest::above(RatioQuestion::BeyondEqualShares, 1.0).test(&evenly, at(most)?)
    };
    second().into_iter().chain(shared()).collect()
}
