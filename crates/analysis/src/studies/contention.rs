//! Several threads that read from one device: whether a second one slows the first, and whether more share it evenly.

use kelvin_catalogue::file::{CONTENTION, THREAD_COUNT};
use kelvin_model::{Case, Conclusion, RatioQuestion};

use super::crossing::without;
use crate::evidence::{Ask, Evidence, Rounds};
use crate::result::Study;

/// Threads from which on equal shares are expected: two keep a device busy.
const BUSY: u64 = 2;

/// Conclusions from the metric `file.contention`, two for each block and kind of files.
pub(crate) fn contention(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all(&CONTENTION);
    let mut kinds: Vec<Case> = all.iter().map(|one| without(one.case, &[THREAD_COUNT])).collect();
    kinds.sort();
    kinds.dedup();
    let conclusions = kinds.iter().flat_map(|held| of_kind(held, &all)).collect();
    let design = "Threads read from one device with direct I/O at the same time, each its own file or its part of one file, in several \
                  rounds. If a busy device is shared evenly, the time of a read grows as the number of threads.";
    Study::new(CONTENTION.id, design, conclusions)
}

/// The conclusions for one block and kind of files.
fn of_kind(held: &Case, all: &[Rounds<'_>]) -> Vec<Conclusion> {
    let at = |threads: u64| all.iter().find(|one| *one.case == held.clone().with(THREAD_COUNT, threads));
    let here = all.iter().filter(|one| without(one.case, &[THREAD_COUNT]) == *held);
    let most = here.filter_map(|one| THREAD_COUNT.of(one.case)).max().filter(|&most| most > BUSY);
    let second = || Ask::above(RatioQuestion::TwoThreadsBesideOne, 1.0).of(at(1)?, at(BUSY)?);
    let shared = || {
        let most = most?;
        let evenly = at(BUSY)?.clone().times(most as f64 / BUSY as f64);
        Ask::above(RatioQuestion::BeyondEqualShares, 1.0).of(&evenly, at(most)?)
    };
    second().into_iter().chain(shared()).collect()
}
