//! Laws between figures: what includes another piece of work, or does it under worse conditions, cannot be faster than that.
//!
//! A figure that breaks one is possible, unlike one beyond a ceiling, and so it stays; but it is not believed without a warning.

use kelvin_core::catalogue::file::{self, AccessOrder, CacheState};
use kelvin_core::catalogue::mem::{self, FaultPage, INJECTED_LOAD, MemoryCpus, PageSize, ReadAhead};
use kelvin_core::catalogue::os::{self, NullCall};

use crate::prelude::*;

/// How many times as fast as the other the slower one must be, with all of its interval, to break a law: less is what two figures
/// differ by that were measured at different moments.
const MIN_VIOLATION_RATIO: f64 = 1.1;
/// Nanoseconds of a second.
const NANOSECONDS_PER_SECOND: f64 = 1e9;

/// A law: the second of its figures cannot be faster than the first. Both have the same axes; those that are not named have the same values.
#[derive(Clone, Copy, Debug)]
struct SanityCheck {
    figures: [MetricSelector; 2],
    /// What the figures are, the slower one first, in the words of its sentence.
    names: [&'static str; 2],
    /// What mostly breaks it.
    cause: &'static str,
}

/// A metric at two words of an axis, of which the second cannot be the faster one.
const fn at_words(metric: &'static Metric, [faster, slower]: [AxisWord; 2]) -> [MetricSelector; 2] {
    [select(metric).with_word(faster), select(metric).with_word(slower)]
}

/// Reads in order, and at random.
const fn reads(cache: CacheState) -> [MetricSelector; 2] {
    let [in_order, at_random] =
        at_words(&file::READ_ORDER, [AccessOrder::Sequential.point(), AccessOrder::Random.point()]);
    [in_order.with_word(cache.point()), at_random.with_word(cache.point())]
}

const READ_NAMES: [&str; 2] = ["a random read", "one in order"];
const READ_CAUSE: &str = "a cache below the kernel probably held what was read at random, or something else used the disk during the pass in order";
const CALL: MetricSelector = select(&os::SYSCALL_NULL).with_word(NullCall::Getppid.point());
const CALL_NAMES: [&str; 2] = ["a call that moves a byte", "a call that does nothing"];
const CALL_CAUSE: &str = "the one that does nothing was probably disturbed, or filtered by seccomp or audit";

/// All laws.
static SANITY_CHECKS: [SanityCheck; 18] = [
    SanityCheck { figures: reads(CacheState::Uncached), names: READ_NAMES, cause: READ_CAUSE },
    SanityCheck { figures: reads(CacheState::Direct), names: READ_NAMES, cause: READ_CAUSE },
    SanityCheck {
        figures: at_words(&file::BLOCKSIZE_READ, [CacheState::Cached.point(), CacheState::Uncached.point()]),
        names: ["a read of a file that is not in memory", "one of a file that is"],
        cause: "the file was probably in memory after all, or memory was reclaimed while the other one was read",
    },
    SanityCheck {
        figures: [select(&file::DEVICE_REQUESTS), select(&file::DEVICE_MEAN_LATENCY)],
        names: ["a request alone", "one of many in flight"],
        cause: "a limit on requests per second probably holds the many back, or a cache below the kernel answered the one",
    },
    SanityCheck {
        figures: [select(&file::DEVICE_ACCEPT_LATENCY), select(&file::DEVICE_WRITE_LATENCY)],
        names: ["a write that is flushed", "one that is not"],
        cause: "the device, or the host behind it, probably acknowledges a flush without doing it",
    },
    SanityCheck {
        figures: at_words(&mem::LATENCY, [PageSize::Huge.point(), PageSize::Base.point()]),
        names: ["a load from base pages", "one from huge pages"],
        cause: "the huge pages were probably not obtained, or the core was shared or slower meanwhile",
    },
    SanityCheck {
        figures: at_words(&mem::BANDWIDTH_READ, [MemoryCpus::All.point(), MemoryCpus::One.point()]),
        names: ["one CPU reading memory", "all CPUs together"],
        cause: "a CPU quota, or other work on the other CPUs, probably held all of them back",
    },
    SanityCheck {
        figures: [
            select(&mem::LOADED_LATENCY).with_number(INJECTED_LOAD, 0),
            select(&mem::LOADED_LATENCY).with_number(INJECTED_LOAD, 100),
        ],
        names: ["a load while other CPUs stream", "one while they are idle"],
        cause: "the other CPUs probably did not stream, or the core ran faster meanwhile",
    },
    SanityCheck {
        figures: [select(&mem::REPEATED_FIRST_TOUCH), select(&mem::FIRST_TOUCH)],
        names: ["the first touch of fresh memory", "one of memory just given back"],
        cause: "giving memory back probably made the kernel or the host work that the second touch paid for",
    },
    SanityCheck {
        figures: [
            select(&mem::FAULT_MINOR).with_word(FaultPage::File.point()),
            select(&mem::FAULT_MAJOR).with_word(ReadAhead::Off.point()),
        ],
        names: ["a fault of a page on the disk", "one of a page in memory"],
        cause: "the page was probably read ahead, so that no fault waited for the disk",
    },
    SanityCheck { figures: [CALL, select(&os::SYSCALL_READ)], names: CALL_NAMES, cause: CALL_CAUSE },
    SanityCheck { figures: [CALL, select(&os::SYSCALL_WRITE)], names: CALL_NAMES, cause: CALL_CAUSE },
    SanityCheck {
        figures: [select(&os::SYSCALL_FSTAT), select(&os::SYSCALL_STAT)],
        names: ["the status of a file by its path", "that of an open file"],
        cause: "the call on the open file was probably disturbed",
    },
    SanityCheck {
        figures: [select(&os::SYSCALL_STAT), select(&os::SYSCALL_OPEN_CLOSE)],
        names: ["opening and closing a file", "looking up its status"],
        cause: "the look-up was probably disturbed",
    },
    SanityCheck {
        figures: [select(&os::THREAD_CREATE), select(&os::PROCESS_FORK)],
        names: ["a fork", "creating a thread"],
        cause: "creating threads was probably disturbed, or the C library maps and unmaps their stacks each time",
    },
    SanityCheck {
        figures: [select(&os::PROCESS_FORK_EXIT_WAIT), select(&os::PROCESS_EXEC)],
        names: ["fork and exec", "fork alone"],
        cause: "the child that executes nothing was probably disturbed while it ended",
    },
    SanityCheck {
        figures: [select(&os::PROCESS_EXEC), select(&os::PROCESS_SHELL)],
        names: ["a shell that runs a program", "the program alone"],
        cause: "the shell probably replaces itself by the program, which was disturbed when it ran alone",
    },
    SanityCheck {
        figures: [
            select(&os::SWITCH_COST)
                .with_word(os::HandoffTask::Process.point())
                .with_word(os::HandoffMechanism::Pipe.point()),
            select(&os::IPC_LATENCY)
                .with_word(os::HandoffMechanism::Pipe.point())
                .with_word(PairPlacement::SameCpu.point()),
        ],
        names: ["a round trip over a pipe", "one switch of its two"],
        cause: "the two ends were probably on two CPUs, so that nothing was switched",
    },
];

/// Adds a warning to each result that breaks a law.
pub(crate) fn add_warnings(evidence: &Evidence<'_>, results: &mut [MetricResult]) {
    for law in &SANITY_CHECKS {
        for (slow, text) in law.violations(evidence) {
            let is_slow = |result: &&mut MetricResult| {
                result.metric.id == slow.metric.id && result.case == *slow.case && result.outcome.summary().is_some()
            };
            let slow_results = results.iter_mut().filter(is_slow);
            slow_results.for_each(|result| result.warnings.push(Warning::new(WarningKind::Implausible, text.clone())));
        }
    }
}

impl SanityCheck {
    /// The slower figures that are certainly faster than what they include, each with the sentence.
    fn violations<'e, 'r>(&self, evidence: &'e Evidence<'r>) -> Vec<(&'e RoundHeadlines<'r>, String)> {
        let [faster, slower] = self.figures;
        // Of a metric with other axes there is only the case that the law names.
        let is_same_axes = faster.metric.axes().map(|axis| axis.name).eq(slower.metric.axes().map(|axis| axis.name));
        let violation = |slow: &'e RoundHeadlines<'r>| {
            let base = if is_same_axes { slow.case.clone() } else { Case::new() };
            let base_rounds = evidence.rounds_at(faster.metric, &faster.apply_to(&base))?;
            let [fast_time, slow_time] = [base_rounds, slow].map(|rounds| match rounds.metric.better {
                Better::Higher => rounds.combine(rounds, |value, _| 1.0 / value),
                _ => rounds.combine(rounds, |value, _| value / NANOSECONDS_PER_SECOND),
            });
            let ratio = ratio_of_rounds(&fast_time, &slow_time)?.estimate;
            let is_broken = ratio.is_below(1.0 / MIN_VIOLATION_RATIO) == Some(true);
            let [fast, slow_text] = [base_rounds, slow].map(|rounds| value_text(rounds.headline(), rounds.metric.unit));
            let [subject, reference] = self.names;
            let times = number(1.0 / ratio.value);
            is_broken.then(|| {
                let text =
                    format!("{subject} ({slow_text}) is {times} times as fast as {reference} ({fast}): {}", self.cause);
                (slow, text)
            })
        };
        evidence
            .all_cases(slower.metric)
            .iter()
            .filter(|slow| slower.is_selecting(slow.case))
            .filter_map(violation)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::file::{BYTES, READ_ORDER};
    use kelvin_core::{Axis, Metric};

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
        let result_warnings = |result: &MetricResult| {
            let implausible_warnings =
                result.warnings.iter().filter(|warning| warning.kind == WarningKind::Implausible);
            let id = kelvin_core::catalogue::find(result.metric.id).unwrap().id.as_str();
            implausible_warnings.map(|warning| (id, warning.text.clone())).collect::<Vec<_>>()
        };
        analyse(&run).results.iter().flat_map(result_warnings).collect()
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
        let warnings = figures(1_000.0);
        assert_eq!(warnings.len(), 1);
        insta::assert_snapshot!(warnings[0].1);
    }

    #[test]
    fn rates_and_times_are_compared() {
        let warnings_at_rate = |requests: f64| {
            warnings_of(&[
                (&file::DEVICE_REQUESTS, Case::new(), requests),
                (&file::DEVICE_MEAN_LATENCY, Case::new(), 50_000.0),
            ])
        };
        // One alone every 50 us are 20,000 a second.
        assert_eq!(warnings_at_rate(80_000.0), []);
        let warnings = warnings_at_rate(10_000.0);
        assert_eq!(warnings[0].0, file::DEVICE_MEAN_LATENCY.id.as_str());
        insta::assert_snapshot!(warnings[0].1);
    }

    #[test]
    fn each_check_fails_by_slower_figure() {
        let case = |selector: &MetricSelector| {
            // What the law does not name has any one value.
            let is_named = |axis: &Axis| selector.axes().any(|name| name == axis.name);
            let rest = selector
                .metric
                .axes()
                .filter(|axis| !is_named(axis))
                .fold(Case::new(), |case, axis| case.with_number(axis.name, 4096));
            selector.apply_to(&rest)
        };
        for law in &SANITY_CHECKS {
            let value = |metric: &Metric, seconds: f64| match metric.better {
                Better::Higher => 1.0 / seconds,
                _ => seconds * NANOSECONDS_PER_SECOND,
            };
            let figures = |slow: f64| {
                [(law.figures[0], 1e-6), (law.figures[1], slow)]
                    .map(|(selector, seconds)| (selector.metric, case(&selector), value(selector.metric, seconds)))
            };
            assert_eq!(warnings_of(&figures(2e-6)), [], "{law:?}");
            let warnings = warnings_of(&figures(0.5e-6));
            assert_eq!(warnings.len(), 1, "{law:?}");
            assert_eq!(warnings[0].0, law.figures[1].metric.id.as_str());
        }
    }
}
