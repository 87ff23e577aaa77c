//! Made steps: what is planted is found, and nothing where nothing is.

use kelvin_stats::Random;

use super::*;
use crate::event::RankFacts;
use crate::file::event::{FileEvent, FilePlan};
use crate::file::layout::Layout;
use crate::file::schedule::{participants, rank_counts};
use crate::file::task::DataOperation;
use crate::results::Measured;

const WRITE: Activity = Activity::Data { operation: DataOperation::Write, layout: Layout::Own };
const READ: Activity = Activity::Data { operation: DataOperation::Read, layout: Layout::Own };
const AMOUNT: u64 = 1000;

fn plan() -> FilePlan {
    FilePlan {
        directory: "/d".into(),
        file_system: "nfs".into(),
        is_in_memory: false,
        part_bytes: AMOUNT,
        block_bytes: 10,
        is_direct: false,
        layouts: vec![Layout::Own],
        files: 0,
        passes: 5,
        tolerance: 0.1,
    }
}

/// Passes of ranks, of which each takes so many seconds for its part when so many work at once.
fn measured(ranks: usize, passes: usize, noise: f64, seconds: impl Fn(usize, usize) -> f64) -> Results<FileResults> {
    measured_by(&rank_counts(ranks), ranks, (passes, noise), seconds)
}

fn measured_by(
    counts: &[usize],
    ranks: usize,
    (passes, noise): (usize, f64),
    seconds: impl Fn(usize, usize) -> f64,
) -> Results<FileResults> {
    let mut random = Random::new(5);
    let mut file_results = FileResults::new(plan());
    for activity in [WRITE, READ] {
        for pass in 1..=passes {
            for &count in counts {
                let mut part = |rank| RankTime {
                    rank,
                    writer: rank,
                    start_s: 0.0,
                    end_s: seconds(rank, count) * (noise * random.normal()).exp(),
                    flush_s: 0.0,
                    cached_share: (activity == READ).then_some(0.01 * rank as f64),
                };
                let parts = participants(count, ranks, pass).into_iter().map(&mut part).collect();
                file_results
                    .add(FileEvent::Step(Step { activity, pass, amount: AMOUNT, parts, clock_error_s: 0.0 }), ranks);
            }
        }
    }
    Results {
        mpi: String::new(),
        ranks: (0..ranks).map(RankFacts::made).collect(),
        measured: file_results,
        failure: None,
        is_complete: true,
    }
}

#[test]
fn equal_ranks_that_scale_are_their_own_limit() {
    for finding in analyse(&measured(8, 5, 0.01, |_, _| 2.0)) {
        assert_eq!(finding.loads.iter().map(|load| load.ranks).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(finding.limit, Some(Limit::Ranks));
        assert_eq!(finding.slow, []);
        let all = finding.loads[3];
        assert!((all.rate.value / 4000.0 - 1.0).abs() < 0.05, "{all:?}");
        assert!((all.share.unwrap().value - 1.0).abs() < 0.05, "{all:?}");
        assert_eq!(finding.loads[0].share, None);
        let fit = finding.fit.unwrap();
        assert!(fit.law.sigma < 0.02 && fit.describes, "{fit:?}");
    }
}

#[test]
fn rate_of_a_pass_is_that_of_the_last_rank() {
    // Without noise: two ranks take 2 s and 4 s, so that 2000 bytes take 4 s.
    let findings = analyse(&measured(2, 4, 0.0, |rank, count| if count == 2 && rank == 1 { 4.0 } else { 2.0 }));
    let [one, two] = findings[0].loads[..] else { panic!("{findings:?}") };
    assert_eq!((one.rate.value, two.rate.value), (500.0, 500.0));
    assert_eq!(two.share.unwrap().value, 0.5);
    let [first, last] = findings[0].finishers.unwrap();
    assert_eq!((first.rank, first.end_s, last.rank, last.end_s), (0, 2.0, 1, 4.0));
    // Reads had 1 % of rank 1 in its page cache, and writes none.
    assert_eq!((findings[0].cached_share, findings[1].cached_share), (None, Some(0.01)));
}

#[test]
fn slow_rank_is_named_as_the_limit() {
    let findings = analyse(&measured(8, 5, 0.02, |rank, _| if rank == 3 { 4.0 } else { 2.0 }));
    for finding in findings {
        let [slow] = finding.slow[..] else { panic!("{finding:?}") };
        assert_eq!(slow.rank, 3);
        assert!((slow.ratio - 0.5).abs() < 0.05 && slow.usual.0 < 1.0 && 1.0 < slow.usual.1, "{slow:?}");
        assert_eq!(finding.limit, Some(Limit::SlowRanks));
    }
}

#[test]
fn ranks_that_slow_down_together_have_a_common_limit() {
    // A server that gives 1000 bytes a second to all.
    let findings = analyse(&measured(8, 5, 0.02, |_, count| count.max(2) as f64));
    for finding in findings {
        assert_eq!((finding.limit, finding.slow.len()), (Some(Limit::Common), 0));
        let share = finding.loads[3].share.unwrap();
        let interval = share.interval.unwrap();
        // The last of eight ranks is later than a single one by the noise.
        assert!(interval.upper < 0.3 && (share.value - 0.25).abs() < 0.02, "{share:?}");
    }
}

#[test]
fn equal_ranks_are_rarely_named() {
    // The level of naming is 1 in 100 jobs.
    let named = (0..200_u64).filter(|&job| {
        let scale = 1.0 + job as f64 / 200.0;
        analyse(&measured_by(&[8], 8, (5, 0.1 * scale), |_, _| 2.0)).iter().any(|finding| !finding.slow.is_empty())
    });
    let named = named.count();
    assert!(named <= 8, "{named} of 200 jobs name a rank");
}

#[test]
fn one_bad_pass_of_five_is_no_slow_rank() {
    let mut results = measured(8, 5, 0.02, |_, _| 2.0);
    let steps = results.measured.steps.get_mut(&WRITE).unwrap().get_mut(&8).unwrap();
    steps[2].parts[1].end_s = 20.0;
    assert!(analyse(&results).iter().all(|finding| finding.slow.is_empty()));
}

#[test]
fn few_passes_and_few_ranks_leave_things_unknown() {
    let findings = analyse(&measured(8, 2, 0.02, |_, count| count as f64));
    let rate = findings[0].loads[3].rate;
    assert_eq!(rate.interval.unwrap().kind, IntervalKind::Range);
    assert_eq!(findings[0].limit, Some(Limit::Unknown));
    let findings = analyse(&measured(1, 1, 0.02, |_, _| 2.0));
    assert_eq!((findings[0].limit, findings[0].fit, findings[0].loads[0].rate.interval), (None, None, None));
    // With three ranks there is nothing to compare one with.
    let findings = analyse(&measured(3, 5, 0.02, |rank, _| if rank == 1 { 9.0 } else { 2.0 }));
    assert!(findings.iter().all(|finding| finding.slow.is_empty()));
}
