//! Reports of made results: what is said, and that it fits a terminal.

use super::*;
use crate::event::RankFacts;
use crate::file::analysis::analyse;
use crate::file::event::{FileEvent, FilePlan, RankTime, Step};
use crate::file::layout::Layout;
use crate::file::schedule::rank_counts;
use crate::file::task::{Activity, DataOperation, MetadataOperation, Sharing};
use crate::results::Measured;

const ACTIVITIES: [Activity; 3] = [
    Activity::Data { operation: DataOperation::Write, layout: Layout::Own },
    Activity::Data { operation: DataOperation::Read, layout: Layout::Strided },
    Activity::Metadata { operation: MetadataOperation::Create, sharing: Sharing::Shared },
];

/// Five passes, in which a server gives 128 MiB/s, and 1000 files a second, to all ranks together.
fn results(ranks: usize) -> Results<FileResults> {
    let plan = FilePlan {
        directory: "/shared/scratch".into(),
        file_system: "nfs".into(),
        is_in_memory: false,
        part_bytes: 64 << 20,
        block_bytes: 1 << 20,
        is_direct: false,
        layouts: Layout::ALL.to_vec(),
        files: 1000,
        passes: 5,
        tolerance: 0.1,
    };
    let mut measured = FileResults::new(plan);
    measured.add(FileEvent::Memory { bytes: vec![32 << 30; ranks] }, ranks);
    for activity in ACTIVITIES {
        for pass in 1..=5 {
            for count in rank_counts(ranks) {
                let part = |rank| {
                    let end_s = count as f64 * (1.0 + 0.01 * pass as f64 + 0.001 * rank as f64) / 2.0;
                    let is_read = activity == ACTIVITIES[1];
                    RankTime {
                        rank,
                        writer: rank,
                        start_s: 0.0,
                        end_s,
                        flush_s: 0.0,
                        cached_share: is_read.then_some(0.0),
                    }
                };
                let amount = if activity.is_data() { 64 << 20 } else { 1000 };
                let parts = (0..count).map(part).collect();
                measured.add(FileEvent::Step(Step { activity, pass, amount, parts, clock_error_s: 0.0 }), ranks);
            }
        }
        measured.add(FileEvent::Verified { layout: Layout::Own, pass: 1, ranks, seconds: 0.5 }, ranks);
    }
    let ranks = (0..ranks).map(RankFacts::made).collect();
    Results { mpi: "a test".into(), ranks, measured, failure: None, is_complete: true }
}

fn report(results: &Results<FileResults>) -> String {
    let mut text = String::new();
    write_text(&mut text, results, &analyse(results)).unwrap();
    text
}

#[test]
fn report_says_what_all_ranks_reach_and_why() {
    let text = report(&results(2));
    let expected = "\
2 ranks, MPI: a test
/shared/scratch (nfs)
each rank: 64 MiB in blocks of 1 MiB, buffered; 1000 files; 5 passes

rank  host  CPUs  clock offset to rank 0
   0  n0       2  -
   1  n1       2  0.0 us (at most 0.0 us wrong)

All that was read is what was written (3 checks, 1.50 s, not in the rates).
Nothing that was read was in the page cache of its reader.
A server or device may cache all 128 MiB: a host here has 32 GiB of memory.

                                   all ranks       2 x one   share  limit
write   own files                   130 MB/s      261 MB/s    50 %  common
read    shared file, strided        130 MB/s      261 MB/s    50 %  common
create  shared directory            1.94 k/s      3.88 k/s    50 %  common

write, own files
  1 rank      130 ± 3 MB/s
  2 ranks     130 ± 3 MB/s, 50 % of 2 x one [49 to 51]
  first to end: rank 0 (n0) after 1.03 s
  last to end: rank 1 (n1) after 1.03 s
  limit: common to all ranks: the file system or its link

read, shared file, strided
  1 rank      130 ± 3 MB/s
  2 ranks     130 ± 3 MB/s, 50 % of 2 x one [49 to 51]
  first to end: rank 0 (n0) after 1.03 s
  last to end: rank 1 (n1) after 1.03 s
  limit: common to all ranks: the file system or its link

create, shared directory
  1 rank      1.94 ± 0.04 k/s
  2 ranks     1.94 ± 0.04 k/s, 50 % of 2 x one [49 to 51]
  first to end: rank 0 (n0) after 1.03 s
  last to end: rank 1 (n1) after 1.03 s
  limit: common to all ranks: the file system or its link
";
    assert_eq!(text, expected);
}

#[test]
fn lines_fit_a_terminal() {
    for ranks in [1, 2, 8, 1000] {
        let mut results = results(ranks);
        for is_in_memory in [false, true] {
            results.measured.plan.is_in_memory = is_in_memory;
            results.ranks.iter_mut().for_each(|rank| rank.kernel = 0);
            for line in report(&results).lines() {
                assert!(line.chars().count() <= 80, "{} characters: {line}", line.chars().count());
            }
        }
    }
}

#[test]
fn pages_in_a_cache_are_said() {
    let mut results = results(2);
    assert!(report(&results).contains("Nothing that was read was in the page cache of its reader."));
    let steps = results.measured.steps.get_mut(&ACTIVITIES[1]).unwrap().get_mut(&2).unwrap();
    steps[0].parts[1].cached_share = Some(0.25);
    assert!(report(&results).contains("Up to 25 % of what was read was in the page cache of its reader."));
    results.measured.plan.is_in_memory = true;
    assert!(report(&results).contains("nfs lives in memory: its rates are those of memory."));
}

#[test]
fn error_of_clocks_is_said_where_it_matters() {
    let mut results = results(2);
    assert!(!report(&results).contains("inexact"));
    let steps = results.measured.steps.get_mut(&ACTIVITIES[2]).unwrap().get_mut(&2).unwrap();
    steps[0].clock_error_s = 0.1 * steps[0].seconds();
    assert!(report(&results).contains("  inexact: the clocks of hosts are known to 10 % of that time"));
}
