//! Several threads that read from one device: whether a second one slows the first, and whether more share it evenly.

use kelvin_core::catalogue::file::{BLOCK, BYTES, CONTENTION, FileSharing, THREAD_COUNT};

use super::crossing::{distinct, without_axes};
use crate::prelude::*;

/// Threads from which on equal shares are expected: two keep a device busy.
const MIN_BUSY_THREADS: u64 = 2;

/// Conclusions from the metric `file.contention`, two for each block and kind of files.
pub(crate) fn contention(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all_cases(&CONTENTION);
    let kinds = distinct(all.iter().map(|one| without_axes(one.case, &[THREAD_COUNT])));
    let conclusions = kinds.iter().flat_map(|held| held_conclusions(held, all)).collect();
    let design = "Threads read from one device with direct I/O at the same time, each its own file or its part of one file, in several \
                  rounds. If a busy device is shared evenly, the time of a read grows as the number of threads.";
    Study::new(CONTENTION.id, design, conclusions)
}

/// The conclusions for one block and kind of files.
fn held_conclusions(held: &Case, all: &[RoundHeadlines<'_>]) -> Vec<StatedConclusion> {
    // `direct reads of 1 MiB, each thread its own file of 64 MiB`.
    let of = |size: Option<u64>| size.map_or_else(String::new, |size| format!(" of {}", bytes(size)));
    let files = match FileSharing::of(held) {
        Some(FileSharing::Shared) => "all threads one file",
        _ => "each thread its own file",
    };
    let reads = format!("direct reads{}, {files}{}", of(BLOCK.number_in(held)), of(BYTES.number_in(held)));
    let at = |threads: u64| all.iter().find(|one| *one.case == held.clone().with_number(THREAD_COUNT, threads));
    let here = all.iter().filter(|one| without_axes(one.case, &[THREAD_COUNT]) == *held);
    let most = here.filter_map(|one| THREAD_COUNT.number_in(one.case)).max().filter(|&most| most > MIN_BUSY_THREADS);
    let second = || {
        let found = RatioTest::above(RatioQuestion::TwoThreadsAgainstOne, 1.0).test(at(1)?, at(MIN_BUSY_THREADS)?)?;
        Some(found.conclude_times(&format!("{reads}: a read takes longer beside a second thread"), "as long"))
    };
    let shared = || {
        let (few, most) = (MIN_BUSY_THREADS, most?);
        let more = most as f64 / few as f64;
        let evenly = at(few)?.clone().scaled(more);
        let found = RatioTest::above(RatioQuestion::BeyondEqualShares, 1.0).test(&evenly, at(most)?)?;
        let (longer, times) = (ratio_text(&found.ratio.divided_by(1.0 / more), "as long"), number(more));
        let (time, usual) = (amount_text(&found.other), value_text(found.base.value / more, found.base.unit));
        let text = format!(
            "{reads}: from {few} to {most} threads the time of a read grows by more than their number: it is {longer}, for {times} times as \
             many threads, {time} against {usual}"
        );
        Some(found.conclude(text))
    };
    second().into_iter().chain(shared()).collect()
}
