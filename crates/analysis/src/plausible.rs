//! Laws between figures: what includes another piece of work, or does it under worse conditions, cannot be faster than that.
//!
//! A figure that breaks one is possible, unlike one beyond a ceiling, and so it stays; but it is not believed without a warning.

use kelvin_catalogue::Placement;
use kelvin_catalogue::file::{self, AccessOrder, CacheState};
use kelvin_catalogue::mem::{self, Cpus, FaultPage, INJECTED, PageSize, ReadAhead};
use kelvin_catalogue::os::{self, NullCall};
use kelvin_model::{Axis, Better, Case, Estimate, Metric, Point, Run};

use crate::evidence::{Evidence, Rounds, ratio};
use crate::result::{MetricResult, Warning};
use crate::words;

/// How many times as fast as the other the slower one must be, with all of its interval, to break a law: less is what two figures
/// differ by that were measured at different moments.
const BROKEN: f64 = 1.1;
/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// The words of a law, and what mostly breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LawOf {
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
struct At {
    metric: &'static Metric,
    words: &'static [Point],
    numbers: &'static [(Axis, u64)],
}

const fn at(metric: &'static Metric, words: &'static [Point]) -> At {
    At { metric, words, numbers: &[] }
}

impl At {
    const fn with(self, numbers: &'static [(Axis, u64)]) -> Self {
        Self { numbers, ..self }
    }

    fn is_of(&self, case: &Case) -> bool {
        self.words.iter().all(|point| point.is_of(case))
            && self.numbers.iter().all(|(axis, value)| axis.of(case) == Some(*value))
    }

    /// A case with the words and numbers of this one in place of its own.
    fn of(&self, case: &Case) -> Case {
        let words = self.words.iter().fold(case.clone(), |case, &point| case.at(point));
        self.numbers.iter().fold(words, |case, &(axis, value)| case.with(axis, value))
    }
}

/// A law: the second cannot be faster than the first. Both have the same axes; those that are not named have the same values.
#[derive(Clone, Copy, Debug)]
struct Law {
    of: LawOf,
    faster: At,
    slower: At,
}

const fn law(of: LawOf, faster: At, slower: At) -> Law {
    Law { of, faster, slower }
}

const SEQUENTIAL: Point = AccessOrder::Sequential.point();
const RANDOM: Point = AccessOrder::Random.point();
const SAME_CPU: &[Point] = &[Placement::SameCpu.point()];

/// All laws.
static LAWS: [Law; 18] = [
    law(
        LawOf::Order,
        at(&file::SEQRAND, &[SEQUENTIAL, CacheState::Uncached.point()]),
        at(&file::SEQRAND, &[RANDOM, CacheState::Uncached.point()]),
    ),
    law(
        LawOf::Order,
        at(&file::SEQRAND, &[SEQUENTIAL, CacheState::Direct.point()]),
        at(&file::SEQRAND, &[RANDOM, CacheState::Direct.point()]),
    ),
    law(
        LawOf::Cached,
        at(&file::BLOCKSIZE_READ, &[CacheState::Cached.point()]),
        at(&file::BLOCKSIZE_READ, &[CacheState::Uncached.point()]),
    ),
    law(LawOf::InFlight, at(&file::DEVICE_REQUESTS, &[]), at(&file::DEVICE_MEAN_LATENCY, &[])),
    law(LawOf::Flushed, at(&file::DEVICE_ACCEPT, &[]), at(&file::DEVICE_WRITE_LATENCY, &[])),
    law(LawOf::PageSize, at(&mem::LATENCY, &[PageSize::Huge.point()]), at(&mem::LATENCY, &[PageSize::Base.point()])),
    law(LawOf::Cpus, at(&mem::BANDWIDTH_READ, &[Cpus::All.point()]), at(&mem::BANDWIDTH_READ, &[Cpus::One.point()])),
    law(
        LawOf::LoadedMemory,
        at(&mem::LOADED_LATENCY, &[]).with(&[(INJECTED, 0)]),
        at(&mem::LOADED_LATENCY, &[]).with(&[(INJECTED, 100)]),
    ),
    law(LawOf::FreshMemory, at(&mem::FIRST_TOUCH_AGAIN, &[]), at(&mem::FIRST_TOUCH, &[])),
    law(
        LawOf::MajorFault,
        at(&mem::FAULT_MINOR, &[FaultPage::File.point()]),
        at(&mem::FAULT_MAJOR, &[ReadAhead::Off.point()]),
    ),
    law(LawOf::CallThatWorks, at(&os::SYSCALL_NULL, &[NullCall::Getppid.point()]), at(&os::SYSCALL_READ, &[])),
    law(LawOf::CallThatWorks, at(&os::SYSCALL_NULL, &[NullCall::Getppid.point()]), at(&os::SYSCALL_WRITE, &[])),
    law(LawOf::Path, at(&os::SYSCALL_FSTAT, &[]), at(&os::SYSCALL_STAT, &[])),
    law(LawOf::Open, at(&os::SYSCALL_STAT, &[]), at(&os::SYSCALL_OPEN_CLOSE, &[])),
    law(LawOf::Thread, at(&os::THREAD_CREATE, &[]), at(&os::PROCESS_FORK, &[])),
    law(LawOf::Exec, at(&os::PROCESS_FORK_LIFE, &[]), at(&os::PROCESS_EXEC, &[])),
    law(LawOf::Shell, at(&os::PROCESS_EXEC, &[]), at(&os::PROCESS_SHELL, &[])),
    law(LawOf::RoundTrip, at(&os::SWITCH_PROCESS_PIPE, &[]), at(&os::IPC_PIPE_LATENCY, SAME_CPU)),
];

/// Adds a warning to each result that breaks a law.
pub(crate) fn warn(run: &Run, results: &mut [MetricResult]) {
    let evidence = Evidence::of(run);
    for law in &LAWS {
        if !results.iter().any(|result| result.metric.id == law.slower.metric.id) {
            continue;
        }
        let [faster, slower] = [law.faster, law.slower].map(|at| evidence.all(at.metric));
        for (slow, fast) in slower.iter().filter_map(|slow| Some((slow, law.partner(slow, &faster)?))) {
            let Some(times) = broken_by(fast, slow) else { continue };
            let is_it = |result: &&mut MetricResult| {
                result.metric.id == slow.metric.id && result.case == *slow.case && result.outcome.summary().is_some()
            };
            let text = words::plausible::broken(
                law.of,
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

impl Law {
    /// The figure that the slower one includes.
    fn partner<'a, 'r>(&self, slow: &Rounds<'_>, faster: &'a [Rounds<'r>]) -> Option<&'a Rounds<'r>> {
        if !self.slower.is_of(slow.case) {
            return None;
        }
        let [ours, others] =
            [self.faster, self.slower].map(|at| at.metric.axes().map(|axis| axis.name).collect::<Vec<_>>());
        // Of a metric with other axes there is only the case that the law names.
        let case = if ours == others { self.faster.of(slow.case) } else { self.faster.of(&Case::new()) };
        faster.iter().find(|fast| *fast.case == case)
    }
}

/// How many times as fast the slower one is, where it certainly is.
fn broken_by(fast: &Rounds<'_>, slow: &Rounds<'_>) -> Option<f64> {
    let [fast, slow] = [fast, slow].map(in_seconds);
    let Estimate { value, high, is_range, .. } = ratio(&fast, &slow)?.estimate;
    (!is_range && high < 1.0 / BROKEN).then_some(1.0 / value)
}

/// Rounds as times of one operation or byte, so that rates and times compare.
fn in_seconds<'r>(rounds: &Rounds<'r>) -> Rounds<'r> {
    match (rounds.metric.better, rounds.metric.unit) {
        (Better::Higher, _) => rounds.joined(rounds, |value, _| 1.0 / value),
        _ => rounds.joined(rounds, |value, _| value / SECOND),
    }
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::file::{BYTES, SEQRAND};

    use super::*;
    use crate::analyse;
    use crate::testing::{add_scalars, run};

    const ROUNDS: [f64; 6] = [0.99, 1.01, 1.0, 1.002, 0.995, 1.005];

    /// The warnings of a run of these figures, each with the id of its metric.
    fn warned(figures: &[(&Metric, Case, f64)]) -> Vec<(&'static str, String)> {
        let metrics: Vec<Metric> = figures.iter().map(|(metric, ..)| **metric).collect();
        let mut run = run(&metrics);
        for (metric, case, value) in figures {
            add_scalars(&mut run, metric, case.clone(), &ROUNDS.map(|share| share * value));
        }
        let of_result = |result: &MetricResult| {
            let implausible = result.warnings.iter().filter(|warning| matches!(warning, Warning::Implausible { .. }));
            let id = kelvin_catalogue::find(result.metric.id).unwrap().id.as_str();
            implausible.map(|warning| (id, warning.text().to_owned())).collect::<Vec<_>>()
        };
        analyse(&run).results.iter().flat_map(of_result).collect()
    }

    fn read(order: AccessOrder, bytes: u64) -> Case {
        Case::new().at(order).at(CacheState::Uncached).with(BYTES, bytes)
    }

    #[test]
    fn a_random_read_that_is_faster_than_one_in_order_is_warned_of() {
        let (small, large) = (64 << 20, 512 << 20);
        let figures = |random: f64| {
            warned(&[
                (&SEQRAND, read(AccessOrder::Sequential, small), 2_000.0),
                (&SEQRAND, read(AccessOrder::Random, small), random),
                // Of another size, and so no partner.
                (&SEQRAND, read(AccessOrder::Sequential, large), 90_000.0),
            ])
        };
        assert_eq!(figures(60_000.0), []);
        assert_eq!(figures(1_950.0), [], "they are about the same");
        let found = figures(1_000.0);
        assert_eq!(found.len(), 1);
        insta::assert_snapshot!(found[0].1);
    }

    #[test]
    fn rates_and_times_are_held_against_each_other() {
        let of = |requests: f64| {
            warned(&[
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
    fn every_law_is_broken_by_its_slower_figure_alone() {
        let case = |at: &At| {
            // What the law does not name has any one value.
            let named = |axis: &Axis| {
                at.words.iter().any(|point| point.axis() == axis.name)
                    || at.numbers.iter().any(|(one, _)| one.name == axis.name)
            };
            let rest =
                at.metric.axes().filter(|axis| !named(axis)).fold(Case::new(), |case, axis| case.with(axis.name, 4096));
            at.of(&rest)
        };
        for law in &LAWS {
            let value = |metric: &Metric, seconds: f64| match metric.better {
                Better::Higher => 1.0 / seconds,
                _ => seconds * SECOND,
            };
            let figures = |slow: f64| {
                [(law.faster, 1e-6), (law.slower, slow)]
                    .map(|(at, seconds)| (at.metric, case(&at), value(at.metric, seconds)))
            };
            assert_eq!(warned(&figures(2e-6)), [], "{law:?}");
            let broken = warned(&figures(0.5e-6));
            assert_eq!(broken.len(), 1, "{law:?}");
            assert_eq!(broken[0].0, law.slower.metric.id.as_str());
        }
    }
}
