//! The same system call, and the same round trip over pipes, by kelvin and by `perf bench`, in turn.
//!
//! It shows whether kelvin's own figures are limited by the machine or by kelvin. It must not be used to rank the programs,
//! which differ in what they do around the work.

use std::hint::black_box;

use kelvin_catalogue::os::{
    BESIDE_RIVALS_PIPE, BESIDE_RIVALS_SYSCALL, RIVALS_PIPE, RIVALS_PIPE_KELVIN, RIVALS_PIPE_OTHER, RIVALS_SYSCALL,
    RIVALS_SYSCALL_KELVIN, RIVALS_SYSCALL_OTHER,
};
use kelvin_catalogue::{BesideRivals, Rival};
use kelvin_harness::{Bench, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Metric, NoPrediction, Prediction};
use kelvin_sys::calls;
use kelvin_sys::clock::monotonic;
use kelvin_sys::partner::Task;
use kelvin_sys::token::Means;

use super::partner::Partner;
use crate::program::{Program, as_fast, in_turn};

const PREDICTION: &str = "1, as the same calls do the same work. Predicted range: a factor of 1.15 either way. The times \
                          themselves are not predicted here: os.syscall.null and os.ipc.pipe.latency predict kelvin's.";
const NOT_FOR: &str = "Ranking of programs. Absolute times, which vary over time by more than the two sides differ.";
const PITFALLS: &[&str] = &[
    "One program after the other: a machine that slows down in between looks like a slow program. The sides follow one \
     another directly, alternate from round to round, and only their ratio counts.",
    "Placement left to the scheduler: `perf bench sched pipe` alone puts its two tasks on two CPUs, and takes many times as \
     long. Here it inherits this process's one CPU.",
    "A program's start taken for its work: perf times its loop by its own clock, in steps of a microsecond; only the fork and the \
     end of the second task of sched pipe are in it, which 200 ms of round trips make small.",
];
const SOURCES: &[&str] =
    &["perf-bench(1); tools/perf/bench/syscall.c, tools/perf/bench/sched-pipe.c in the Linux source"];

pub(super) static SYSCALL_PROBE: Probe = Probe {
    id: RIVALS_SYSCALL.id.as_str(),
    summary: "A null system call by kelvin and by perf bench, in turn on the same CPU (--rivals)",
    kind: ProbeKind::Study,
    method: Method {
        how: "getppid through the C library, in a loop of some 200 ms on one CPU: by kelvin, timed as a whole, and by `perf \
              bench syscall basic` with as many calls, one right after the other, in an order that alternates from round \
              to round. Neither subtracts its loop. The ratio is perf's time over kelvin's, so above 1 kelvin is faster. \
              perf's version is noted. Without perf it is skipped, with the name of its Debian package.",
        prediction: PREDICTION,
        not_for: NOT_FOR,
        pitfalls: PITFALLS,
        sources: SOURCES,
    },
    metrics: &[&RIVALS_SYSCALL, &RIVALS_SYSCALL_KELVIN, &RIVALS_SYSCALL_OTHER],
    inputs: &[],
    cases: |_, _| vec![by_perf()],
    run: |bench, _| run(bench, &SYSCALL),
    predict,
};

pub(super) static PIPE_PROBE: Probe = Probe {
    id: RIVALS_PIPE.id.as_str(),
    summary: "A round trip over pipes by kelvin and by perf bench, in turn on the same CPU (--rivals)",
    kind: ProbeKind::Study,
    method: Method {
        how: "Two processes on one CPU pass a token back and forth over two pipes for some 200 ms: kelvin's, of one byte, \
              timed as a whole, and those of `perf bench sched pipe`, of four bytes, with as many round trips, one right after \
              the other, in an order that alternates from round to round. The ratio is perf's time over kelvin's, so above 1 \
              kelvin is faster. perf's version is noted. Without perf it is skipped, with the name of its Debian package.",
        prediction: PREDICTION,
        not_for: NOT_FOR,
        pitfalls: PITFALLS,
        sources: SOURCES,
    },
    metrics: &[&RIVALS_PIPE, &RIVALS_PIPE_KELVIN, &RIVALS_PIPE_OTHER],
    inputs: &[],
    cases: |_, _| vec![by_perf()],
    run: |bench, _| run(bench, &PIPE),
    predict,
};

/// Nanoseconds of a side.
const SIDE: f64 = 200e6;
/// Operations by which it is found how many that are.
const TRIAL: u64 = 10_000;
/// Factor either way within which the same work takes the same time.
const SPREAD: f64 = 1.15;

fn by_perf() -> Case {
    Case::new().at(Rival::Perf)
}

/// Work that both sides do.
struct Work {
    metrics: &'static BesideRivals,
    /// Nanoseconds of one, of so many.
    ours: fn(&Bench<'_>, u64) -> Result<f64, Stop>,
    /// The arguments of perf bench.
    of_perf: [&'static str; 2],
}

static SYSCALL: Work = Work { metrics: &BESIDE_RIVALS_SYSCALL, ours: calls_of, of_perf: ["syscall", "basic"] };
static PIPE: Work = Work { metrics: &BESIDE_RIVALS_PIPE, ours: round_trips, of_perf: ["sched", "pipe"] };

fn run(bench: &mut Bench<'_>, work: &Work) -> Result<(), Stop> {
    let perf = Program::find(Rival::Perf)?;
    let count = (SIDE / (work.ours)(bench, TRIAL)?) as u64;
    let [ours, theirs] = in_turn(bench, || (work.ours)(bench, count), || by(&perf, work, count))?;
    bench.note(format!("{} against kelvin, {count} times each", perf.words()));
    bench.record(work.metrics.ratio, vec![theirs / ours]);
    bench.note("the whole loop between two readings of the monotonic clock");
    bench.record(work.metrics.kelvin, vec![ours]);
    bench.note("by its own clock");
    bench.record(work.metrics.other, vec![theirs]);
    Ok(())
}

fn calls_of(_: &Bench<'_>, count: u64) -> Result<f64, Stop> {
    let begun = monotonic();
    black_box(calls::library_parent_ids(count));
    Ok((monotonic() - begun) as f64 / count as f64)
}

fn round_trips(bench: &Bench<'_>, count: u64) -> Result<f64, Stop> {
    let mut partner = Partner::start(Means::Pipe, Task::Process, bench.cpu())?;
    let begun = monotonic();
    partner.round_trips(count)?;
    let took = monotonic() - begun;
    partner.finish()?;
    Ok(took as f64 / count as f64)
}

/// Nanoseconds of one by perf, of so many.
fn by(perf: &Program, work: &Work, count: u64) -> Result<f64, Stop> {
    let output = perf.run(perf.command().arg("bench").args(work.of_perf).args(["-l", &count.to_string()]))?;
    if output.failed.is_some() {
        let [group, name] = work.of_perf;
        return Err(Stop::skip(format!("needs a perf that has `perf bench {group} {name}`: {}", output.words())));
    }
    of_one(&output.printed)
        .ok_or_else(|| Stop::fail(format!("perf bench reports no time of an operation: {}", output.words())))
}

/// Nanoseconds of one operation in perf's words: `0.163410 usecs/op`.
fn of_one(printed: &str) -> Option<f64> {
    let line = printed.lines().find(|line| line.trim_end().ends_with("usecs/op"))?;
    let microseconds: f64 = line.split_whitespace().next()?.parse().ok()?;
    (microseconds > 0.0).then_some(microseconds * 1e3)
}

fn predict(_: &Facts<'_>, metric: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    if [&RIVALS_SYSCALL, &RIVALS_PIPE].iter().all(|ratio| ratio.id != metric.id) {
        return Err(NoPrediction::because(
            "os.syscall.null and os.ipc.pipe.latency predict the time; here only the ratio of two programs counts",
        ));
    }
    Ok(as_fast(SPREAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::script;
    use crate::testing::facts_about;

    #[test]
    fn what_perf_says_is_understood() {
        let printed = "# Running 'syscall/basic' benchmark:\n# Executed 100000 getppid() calls\n     Total time: 0.016 \
                       [sec]\n\n       0.163410 usecs/op\n        6119576 ops/sec\n";
        assert_eq!(of_one(printed), Some(163.41));
        assert_eq!(of_one("       0.000000 usecs/op\n"), None);
        assert_eq!(of_one("0.021\n"), None);
    }

    #[test]
    fn a_perf_without_the_benchmark_is_skipped_and_one_that_says_nothing_fails() {
        let directory = tempfile::tempdir().unwrap();
        let without =
            script(directory.path(), Rival::Perf, "case $1 in bench) echo 'Unknown benchmark' >&2; exit 1; esac");
        match by(&without, &SYSCALL, 10) {
            Err(Stop::Skip(reason)) => assert!(reason.0.contains("perf bench syscall basic"), "{reason}"),
            other => panic!("{other:?}"),
        }
        let directory = tempfile::tempdir().unwrap();
        let silent = script(directory.path(), Rival::Perf, "echo perf");
        assert!(matches!(by(&silent, &PIPE, 10), Err(Stop::Fail(why)) if why.contains("reports no time")));
    }

    #[test]
    fn perf_is_asked_for_as_many() {
        let directory = tempfile::tempdir().unwrap();
        // It answers with the number that it was asked for, in microseconds.
        let perf = script(directory.path(), Rival::Perf, "echo \"$5 usecs/op\"");
        assert_eq!(by(&perf, &PIPE, 1234).unwrap(), 1_234_000.0);
    }

    #[test]
    fn only_the_ratio_is_predicted() {
        facts_about(&[], |facts| {
            let of = |metric: &Metric| predict(facts, metric, &by_perf());
            assert_eq!(of(&RIVALS_PIPE).unwrap().value, 1.0);
            assert!(
                of(&RIVALS_PIPE_KELVIN).is_err()
                    && of(&RIVALS_SYSCALL_OTHER).is_err()
                    && of(&RIVALS_SYSCALL_KELVIN).is_err()
            );
            assert!(of(&RIVALS_PIPE_OTHER).is_err());
        });
    }
}
