//! Laws between figures: what includes another piece of work, or does it under worse conditions, cannot be faster than that.
//!
//! A figure that breaks one is possible, unlike one beyond a ceiling, and so it stays; but it is not believed without a warning.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::file::{self, AccessOrder, CacheState};
use kelvin_core::catalogue::mem::{self, FaultPage, INJECTED_LOAD, MemoryCpus, PageSize, ReadAhead};
use kelvin_core::catalogue::os::{self, NullCall};
use kelvin_core::{Axis, AxisWord, Better, Case, Estimate, Metric, Run};

use crate::evidence::{Evidence, RoundHeadlines, ratio_of_rounds};
use crate::result::{MetricResult, Warning};
use crate::wording;

/// How many times as fast as the other the slower one must be, with all of its interval, to break a law: less is what two figures
/// differ by that were measured at different moments.
const MIN_VIOLATION_RATIO: f64 = 1.1;
/// Nanoseconds of a second.
const NANOSECONDS_PER_SECOND: f64 = 1e9;

/// The words of a law, and what mostly breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SanityRule {
    /// Order of reads.
    Order,
    /// Reads that memory answers, and others.
    Cached,
    /// Requests in flight.
    InFlight,
    /// Writes that are flushed, and others.
    Flushed,
    /// Pages of either size.
    PageSize,
    /// CPUs that read memory.
    Cpus,
    /// Memory that others use too.
    LoadedMemory,
    /// Memory that was in use just before.
    FreshMemory,
    /// Pages that come from a disk.
    MajorFault,
    /// Work inside a system call.
    CallThatWorks,
    /// A path that is looked up.
    Path,
    /// A file that is opened after its path is looked up.
    Open,
    /// A thread is less than a process.
    Thread,
    /// A program that is loaded after a fork.
    Exec,
    /// A shell that forks in turn.
    Shell,
    /// Two switches.
    RoundTrip,
}

/// A figure at some words and numbers of its axes.
#[derive(Clone, Copy, Debug)]
struct FigureSelector {
    metric: &'static Metric,
    words: &'static [AxisWord],
    numbers: &'static [(Axis, u64)],
}

const fn select(metric: &'static Metric, words: &'static [AxisWord]) -> FigureSelector {
    FigureSelector { metric, words, numbers: &[] }
}

impl FigureSelector {
    const fn with_numbers(self, numbers: &'static [(Axis, u64)]) -> Self {
        Self { numbers, ..self }
    }

    fn is_selecting(&self, case: &Case) -> bool {
        self.words.iter().all(|point| point.is_in_case(case))
            && self.numbers.iter().all(|(axis, value)| axis.number_in(case) == Some(*value))
    }

    /// A case with the words and numbers of this one in place of its own.
    fn apply_to(&self, case: &Case) -> Case {
        let words = self.words.iter().fold(case.clone(), |case, &point| case.with_word(point));
        self.numbers.iter().fold(words, |case, &(axis, value)| case.with_number(axis, value))
    }
}

/// A law: the second cannot be faster than the first. Both have the same axes; those that are not named have the same values.
#[derive(Clone, Copy, Debug)]
struct SanityCheck {
    rule: SanityRule,
    faster: FigureSelector,
    slower: FigureSelector,
}

const fn check(of: SanityRule, faster: FigureSelector, slower: FigureSelector) -> SanityCheck {
    SanityCheck { rule: of, faster, slower }
}

const SEQUENTIAL_ORDER: AxisWord = AccessOrder::Sequential.point();
const RANDOM_ORDER: AxisWord = AccessOrder::Random.point();
const SAME_CPU_WORDS: &[AxisWord] = &[PairPlacement::SameCpu.point()];

/// All laws.
static SANITY_CHECKS: [SanityCheck; 18] = [
    check(
        SanityRule::Order,
        select(&file::READ_ORDER, &[SEQUENTIAL_ORDER, CacheState::Uncached.point()]),
        select(&file::READ_ORDER, &[RANDOM_ORDER, CacheState::Uncached.point()]),
    ),
    check(
        SanityRule::Order,
        select(&file::READ_ORDER, &[SEQUENTIAL_ORDER, CacheState::Direct.point()]),
        select(&file::READ_ORDER, &[RANDOM_ORDER, CacheState::Direct.point()]),
    ),
    check(
        SanityRule::Cached,
        select(&file::BLOCKSIZE_READ, &[CacheState::Cached.point()]),
        select(&file::BLOCKSIZE_READ, &[CacheState::Uncached.point()]),
    ),
    check(SanityRule::InFlight, select(&file::DEVICE_REQUESTS, &[]), select(&file::DEVICE_MEAN_LATENCY, &[])),
    check(SanityRule::Flushed, select(&file::DEVICE_ACCEPT_LATENCY, &[]), select(&file::DEVICE_WRITE_LATENCY, &[])),
    check(
        SanityRule::PageSize,
        select(&mem::LATENCY, &[PageSize::Huge.point()]),
        select(&mem::LATENCY, &[PageSize::Base.point()]),
    ),
    check(
        SanityRule::Cpus,
        select(&mem::BANDWIDTH_READ, &[MemoryCpus::All.point()]),
        select(&mem::BANDWIDTH_READ, &[MemoryCpus::One.point()]),
    ),
    check(
        SanityRule::LoadedMemory,
        select(&mem::LOADED_LATENCY, &[]).with_numbers(&[(INJECTED_LOAD, 0)]),
        select(&mem::LOADED_LATENCY, &[]).with_numbers(&[(INJECTED_LOAD, 100)]),
    ),
    check(SanityRule::FreshMemory, select(&mem::REPEATED_FIRST_TOUCH, &[]), select(&mem::FIRST_TOUCH, &[])),
    check(
        SanityRule::MajorFault,
        select(&mem::FAULT_MINOR, &[FaultPage::File.point()]),
        select(&mem::FAULT_MAJOR, &[ReadAhead::Off.point()]),
    ),
    check(
        SanityRule::CallThatWorks,
        select(&os::SYSCALL_NULL, &[NullCall::Getppid.point()]),
        select(&os::SYSCALL_READ, &[]),
    ),
    check(
        SanityRule::CallThatWorks,
        select(&os::SYSCALL_NULL, &[NullCall::Getppid.point()]),
        select(&os::SYSCALL_WRITE, &[]),
    ),
    check(SanityRule::Path, select(&os::SYSCALL_FSTAT, &[]), select(&os::SYSCALL_STAT, &[])),
    check(SanityRule::Open, select(&os::SYSCALL_STAT, &[]), select(&os::SYSCALL_OPEN_CLOSE, &[])),
    check(SanityRule::Thread, select(&os::THREAD_CREATE, &[]), select(&os::PROCESS_FORK, &[])),
    check(SanityRule::Exec, select(&os::PROCESS_FORK_EXIT_WAIT, &[]), select(&os::PROCESS_EXEC, &[])),
    check(SanityRule::Shell, select(&os::PROCESS_EXEC, &[]), select(&os::PROCESS_SHELL, &[])),
    check(SanityRule::RoundTrip, select(&os::SWITCH_PROCESS_PIPE, &[]), select(&os::IPC_PIPE_LATENCY, SAME_CPU_WORDS)),
];

/// Adds a warning to each result that breaks a law.
pub(crate) fn add_warnings(run: &Run, results: &mut [MetricResult]) {
    let evidence = Evidence::from_run(run);
    for law in &SANITY_CHECKS {
        if !results.iter().any(|result| result.metric.id == law.slower.metric.id) {
            continue;
        }
        let [faster, slower] = [law.faster, law.slower].map(|at| evidence.all_cases(at.metric));
        for (slow, fast) in slower.iter().filter_map(|slow| Some((slow, law.faster_figure(slow, &faster)?))) {
            let Some(times) = violation_ratio(fast, slow) else { continue };
            let is_it = |result: &&mut MetricResult| {
                result.metric.id == slow.metric.id && result.case == *slow.case && result.outcome.summary().is_some()
            };
            let text = wording::sanity::violation_text(
                law.rule,
                [fast, slow].map(|rounds| (rounds.headline(), rounds.metric.unit)),
                times,
            );
            results
                .iter_mut()
                .filter(is_it)
                .for_each(|result| result.warnings.push(Warning::Implausible { text: text.clone() }));
        }
    }
}

impl SanityCheck {
    /// The figure that the slower one includes.
    fn faster_figure<'a, 'r>(
        &self,
        slow: &RoundHeadlines<'_>,
        faster: &'a [RoundHeadlines<'r>],
    ) -> Option<&'a RoundHeadlines<'r>> {
        if !self.slower.is_selecting(slow.case) {
            return None;
        }
        let [ours, others] =
            [self.faster, self.slower].map(|at| at.metric.axes().map(|axis| axis.name).collect::<Vec<_>>());
        // Of a metric with other axes there is only the case that the law names.
        let case = if ours == others { self.faster.apply_to(slow.case) } else { self.faster.apply_to(&Case::new()) };
        faster.iter().find(|fast| *fast.case == case)
    }
}

/// How many times as fast the slower one is, where it certainly is.
fn violation_ratio(fast: &RoundHeadlines<'_>, slow: &RoundHeadlines<'_>) -> Option<f64> {
    let [fast, slow] = [fast, slow].map(rounds_in_seconds);
    let Estimate { value, high, is_range, .. } = ratio_of_rounds(&fast, &slow)?.estimate;
    (!is_range && high < 1.0 / MIN_VIOLATION_RATIO).then_some(1.0 / value)
}

/// Rounds as times of one operation or byte, so that rates and times compare.
fn rounds_in_seconds<'r>(rounds: &RoundHeadlines<'r>) -> RoundHeadlines<'r> {
    match (rounds.metric.better, rounds.metric.unit) {
        (Better::Higher, _) => rounds.combine(rounds, |value, _| 1.0 / value),
        _ => rounds.combine(rounds, |value, _| value / NANOSECONDS_PER_SECOND),
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::file::{BYTES, READ_ORDER};

    use super::*;
    use crate::analyse;
    use crate::testing::{add_scalars, empty_run};

    const ROUNDS: [f64; 6] = [0.99, 1.01, 1.0, 1.002, 0.995, 1.005];

    /// The warnings of a run of these figures, each with the id of its metric.
    fn warnings_of(figures: &[(&Metric, Case, f64)]) -> Vec<(&'static str, String)> {
        let metrics: Vec<Metric> = figures.iter().map(|(metric, ..)| **metric).collect();
        let mut run = empty_run(&metrics);
        for (metric, case, value) in figures {
            add_scalars(&mut run, metric, case.clone(), &ROUNDS.map(|share| share * value));
        }
        let of_result = |result: &MetricResult| {
            let implausible = result.warnings.iter().filter(|warning| matches!(warning, Warning::Implausible { .. }));
            let id = kelvin_core::catalogue::find(result.metric.id).unwrap().id.as_str();
            implausible.map(|warning| (id, warning.text().to_owned())).collect::<Vec<_>>()
        };
        analyse(&run).results.iter().flat_map(of_result).collect()
    }

    fn read(order: AccessOrder, bytes: u64) -> Case {
        Case::new().with_word(order).with_word(CacheState::Uncached).with_number(BYTES, bytes)
    }

    #[test]
    fn random_read_faster_than_sequential_warns() {
        let (small, large) = (64 << 20, 512 << 20);
        let figures = |random: f64| {
            warnings_of(&[
                (&READ_ORDER, read(AccessOrder::Sequential, small), 2_000.0),
                (&READ_ORDER, read(AccessOrder::Random, small), random),
                // Of another size, and so no partner.
                (&READ_ORDER, read(AccessOrder::Sequential, large), 90_000.0),
            ])
        };
        assert_eq!(figures(60_000.0), []);
        assert_eq!(figures(1_950.0), [], "they are about the same");
        let found = figures(1_000.0);
        assert_eq!(found.len(), 1);
        insta::assert_snapshot!(found[0].1);
    }

    #[test]
    fn rates_and_times_are_compared() {
        let of = |requests: f64| {
            warnings_of(&[
                (&file::DEVICE_REQUESTS, Case::new(), requests),
                (&file::DEVICE_MEAN_LATENCY, Case::new(), 50_000.0),
            ])
        };
        // One alone every 50 us are 20,000 a second.
        assert_eq!(of(80_000.0), []);
        let found = of(10_000.0);
        assert_eq!(found[0].0, file::DEVICE_MEAN_LATENCY.id.as_str());
        insta::assert_snapshot!(found[0].1);
    }

    #[test]
    fn each_check_fails_by_slower_figure() {
        let case = |at: &FigureSelector| {
            // What the law does not name has any one value.
            let named = |axis: &Axis| {
                at.words.iter().any(|point| point.axis() == axis.name)
                    || at.numbers.iter().any(|(one, _)| one.name == axis.name)
            };
            let rest = at
                .metric
                .axes()
                .filter(|axis| !named(axis))
                .fold(Case::new(), |case, axis| case.with_number(axis.name, 4096));
            at.apply_to(&rest)
        };
        for law in &SANITY_CHECKS {
            let value = |metric: &Metric, seconds: f64| match metric.better {
                Better::Higher => 1.0 / seconds,
                _ => seconds * NANOSECONDS_PER_SECOND,
            };
            let figures = |slow: f64| {
                [(law.faster, 1e-6), (law.slower, slow)]
                    .map(|(at, seconds)| (at.metric, case(&at), value(at.metric, seconds)))
            };
            assert_eq!(warnings_of(&figures(2e-6)), [], "{law:?}");
            let broken = warnings_of(&figures(0.5e-6));
            assert_eq!(broken.len(), 1, "{law:?}");
            assert_eq!(broken[0].0, law.slower.metric.id.as_str());
        }
    }
}
