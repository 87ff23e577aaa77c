//! Several threads that read from one device: whether a second one slows the first, and whether more share it evenly.

use kelvin_core::catalogue::file::{BLOCK, BYTES, CONTENTION, FileSharing, THREAD_COUNT};

use crate::prelude::*;

/// Threads from which on equal shares are expected: two keep a device busy.
const MIN_BUSY_THREADS: u64 = 2;

/// Conclusions from the metric `file.contention`, two for each block and kind of files.
pub(crate) fn contention(evidence: &Evidence<'_>) -> Option<Study> {
    let cells = evidence.all_cases(&CONTENTION);
    let kinds = distinct(cells.iter().map(|cell| without_axes(cell.case, &[THREAD_COUNT])));
    let conclusions = kinds.iter().flat_map(|fixed| line_conclusions(fixed, cells)).collect();
    let design = "Threads read from one device with direct I/O at the same time, each its own file or its part of one file, in several \
                  rounds. If a busy device is shared evenly, the time of a read grows as the number of threads.";
    Study::new(CONTENTION.id, design, conclusions)
}

/// The conclusions for one block and kind of files.
fn line_conclusions(fixed: &Case, cells: &[RoundHeadlines<'_>]) -> Vec<StatedConclusion> {
    // `direct reads of 1 MiB, each thread its own file of 64 MiB`.
    let size_text = |size: Option<u64>| size.map_or_else(String::new, |size| format!(" of {}", bytes(size)));
    let files = match FileSharing::of(fixed) {
        Some(FileSharing::Shared) => "all threads one file",
        _ => "each thread its own file",
    };
    let reads =
        format!("direct reads{}, {files}{}", size_text(BLOCK.number_in(fixed)), size_text(BYTES.number_in(fixed)));
    let times = |threads: u64| cells.iter().find(|cell| *cell.case == fixed.clone().with_number(THREAD_COUNT, threads));
    let line = cells.iter().filter(|cell| without_axes(cell.case, &[THREAD_COUNT]) == *fixed);
    let threads =
        line.filter_map(|cell| THREAD_COUNT.number_in(cell.case)).max().filter(|&threads| threads > MIN_BUSY_THREADS);
    let second_thread = || {
        let answer =
            RatioTest::above(RatioQuestion::TwoThreadsAgainstOne, 1.0).test(times(1)?, times(MIN_BUSY_THREADS)?)?;
        Some(answer.conclude_times(&format!("{reads}: a read takes longer with a second thread"), "as long"))
    };
    let equal_shares = || {
        let (min_threads, threads) = (MIN_BUSY_THREADS, threads?);
        let factor = threads as f64 / min_threads as f64;
        let even_times = times(min_threads)?.clone().scaled(factor);
        let answer = RatioTest::above(RatioQuestion::BeyondEqualShares, 1.0).test(&even_times, times(threads)?)?;
        let (growth, times) = (ratio_text(&answer.ratio.divided_by(1.0 / factor), "as long"), number(factor));
        let (time, expected) = (amount_text(&answer.other), value_text(answer.base.value / factor, answer.base.unit));
        let text = format!(
            "{reads}: from {min_threads} to {threads} threads the time of a read grows by more than their number: it is {growth}, for {times} times as \
             many threads, {time} against {expected}"
        );
        Some(answer.conclude(text))
    };
    second_thread().into_iter().chain(equal_shares()).collect()
}
