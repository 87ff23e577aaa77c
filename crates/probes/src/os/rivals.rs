//! The same system call, and the same round trip over pipes, by kelvin and by `perf bench`, interleaved.
//!
//! It shows whether kelvin's own figures are limited by the machine or by kelvin. It must not be used to rank the programs,
//! which differ in what they do around the work.

use std::hint::black_box;

use kelvin_core::catalogue::os::{
    HandoffMechanism, HandoffTask, RIVAL_COMPARISON_PIPE, RIVAL_COMPARISON_SYSCALL, RIVALS_PIPE, RIVALS_PIPE_KELVIN,
    RIVALS_PIPE_OTHER, RIVALS_SYSCALL, RIVALS_SYSCALL_KELVIN, RIVALS_SYSCALL_OTHER,
};
use kelvin_core::catalogue::{Rival, RivalComparison};
use kelvin_sys::clock::monotonic;
use kelvin_sys::syscall_loops;

use super::partner::TokenPartner;
use crate::prelude::*;
use crate::program::{Program, equal_speed, run_alternating};

pub(super) static SYSCALL_PROBE: Probe = rival_probe(
    "A null system call by kelvin and by perf bench, interleaved on the same CPU (--rivals)",
    include_str!("rivals_syscall.md"),
    &[&RIVALS_SYSCALL, &RIVALS_SYSCALL_KELVIN, &RIVALS_SYSCALL_OTHER],
    |bench, _| run(bench, &SYSCALL_COMPARISON),
);

pub(super) static PIPE_PROBE: Probe = rival_probe(
    "A round trip over pipes by kelvin and by perf bench, interleaved on the same CPU (--rivals)",
    include_str!("rivals_pipe.md"),
    &[&RIVALS_PIPE, &RIVALS_PIPE_KELVIN, &RIVALS_PIPE_OTHER],
    |bench, _| run(bench, &PIPE_COMPARISON),
);

const fn rival_probe(
    summary: &'static str,
    method: &'static str,
    metrics: &'static [&'static Metric],
    run: fn(&mut Bench<'_>, &Case) -> ProbeResult,
) -> Probe {
    let cases = |_: &Machine, _| vec![Case::new().with_word(Rival::Perf)];
    Probe { summary, method, cases, run, predict, ..Probe::study(metrics) }
}

/// Nanoseconds of a side.
const SIDE_NANOSECONDS: f64 = 200e6;
/// Operations by which it is found how many that are.
const TRIAL_OPERATIONS: u64 = 10_000;
/// Factor either way within which the same work takes the same time.
const SPREAD: f64 = 1.15;

/// Work that both sides do.
struct PerfComparison {
    metrics: &'static RivalComparison,
    /// Nanoseconds of one, of this many.
    run_kelvin: fn(&Bench<'_>, u64) -> ProbeResult<f64>,
    /// The arguments of perf bench.
    perf_arguments: [&'static str; 2],
}

static SYSCALL_COMPARISON: PerfComparison = PerfComparison {
    metrics: &RIVAL_COMPARISON_SYSCALL,
    run_kelvin: |_, count| {
        let start = monotonic();
        black_box(syscall_loops::libc_getppid_loop(count));
        Ok((monotonic() - start) as f64 / count as f64)
    },
    perf_arguments: ["syscall", "basic"],
};
static PIPE_COMPARISON: PerfComparison =
    PerfComparison { metrics: &RIVAL_COMPARISON_PIPE, run_kelvin: time_round_trips, perf_arguments: ["sched", "pipe"] };

fn run(bench: &mut Bench<'_>, work: &PerfComparison) -> ProbeResult {
    let perf = Program::find(Rival::Perf)?;
    let count = (SIDE_NANOSECONDS / (work.run_kelvin)(bench, TRIAL_OPERATIONS)?) as u64;
    let [kelvin_time, perf_time] =
        run_alternating(bench, || (work.run_kelvin)(bench, count), || run_perf(&perf, work, count))?;
    bench.note(format!("{} against kelvin, {count} times each", perf.describe()));
    bench.record(work.metrics.ratio, vec![perf_time / kelvin_time]);
    bench.note("the whole loop between two readings of the monotonic clock");
    bench.record(work.metrics.kelvin, vec![kelvin_time]);
    bench.note("by its own clock");
    bench.record(work.metrics.other, vec![perf_time]);
    Ok(())
}

fn time_round_trips(bench: &Bench<'_>, count: u64) -> ProbeResult<f64> {
    let mut partner = TokenPartner::start(HandoffMechanism::Pipe, HandoffTask::Process, bench.cpu())?;
    let start = monotonic();
    partner.round_trips(count)?;
    let elapsed = monotonic() - start;
    partner.finish()?;
    Ok(elapsed as f64 / count as f64)
}

/// Nanoseconds of one by perf, of this many.
fn run_perf(perf: &Program, work: &PerfComparison, count: u64) -> ProbeResult<f64> {
    let output = perf.run(perf.command().arg("bench").args(work.perf_arguments).args(["-l", &count.to_string()]))?;
    let [group, name] = work.perf_arguments;
    let reason = format!("needs a perf that has `perf bench {group} {name}`: {}", output.one_line());
    skip_if(output.failed.is_some(), reason)?;
    parse_time_per_operation(&output.printed)
        .or_fail(format!("perf bench reports no time of an operation: {}", output.one_line()))
}

/// Nanoseconds of one operation in perf's words: `0.163410 usecs/op`.
fn parse_time_per_operation(printed: &str) -> Option<f64> {
    let line = printed.lines().find(|line| line.trim_end().ends_with("usecs/op"))?;
    let microseconds: f64 = line.split_whitespace().next()?.parse().ok()?;
    (microseconds > 0.0).then_some(microseconds * 1e3)
}

fn predict(_: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    let reason = "os.syscall.null and os.ipc.latency predict the time; here only the ratio of two programs counts";
    unpredicted_if([&RIVALS_SYSCALL, &RIVALS_PIPE].iter().all(|ratio| ratio.id != metric.id), reason)?;
    Ok(equal_speed(SPREAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::script_program;
    use crate::testing::with_facts;

    #[test]
    fn perf_output_is_parsed() {
        let printed = "# Running 'syscall/basic' benchmark:\n# Executed 100000 getppid() calls\n     Total time: 0.016 \
                       [sec]\n\n       0.163410 usecs/op\n        6119576 ops/sec\n";
        assert_eq!(parse_time_per_operation(printed), Some(163.41));
        assert_eq!(parse_time_per_operation("       0.000000 usecs/op\n"), None);
        assert_eq!(parse_time_per_operation("0.021\n"), None);
    }

    #[test]
    fn perf_without_benchmark_is_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let old_perf = script_program(
            directory.path(),
            Rival::Perf,
            "case $1 in bench) echo 'Unknown benchmark' >&2; exit 1; esac",
        );
        match run_perf(&old_perf, &SYSCALL_COMPARISON, 10) {
            Err(ProbeError::Skip(reason)) => assert!(reason.0.contains("perf bench syscall basic"), "{reason}"),
            other => panic!("{other:?}"),
        }
        let directory = tempfile::tempdir().unwrap();
        let silent_perf = script_program(directory.path(), Rival::Perf, "echo perf");
        assert!(
            matches!(run_perf(&silent_perf, &PIPE_COMPARISON, 10), Err(ProbeError::Fail(reason)) if reason.contains("reports no time"))
        );
    }

    #[test]
    fn perf_gets_the_operation_count() {
        let directory = tempfile::tempdir().unwrap();
        // It answers with the number that was requested, in microseconds.
        let perf = script_program(directory.path(), Rival::Perf, "echo \"$5 usecs/op\"");
        assert_eq!(run_perf(&perf, &PIPE_COMPARISON, 1234).unwrap(), 1_234_000.0);
    }

    #[test]
    fn only_the_ratio_is_predicted() {
        with_facts(&[], |facts| {
            let predicted = |metric: &Metric| predict(facts, metric, &Case::new().with_word(Rival::Perf));
            assert_eq!(predicted(&RIVALS_PIPE).unwrap().value, 1.0);
            assert!(
                predicted(&RIVALS_PIPE_KELVIN).is_err()
                    && predicted(&RIVALS_SYSCALL_OTHER).is_err()
                    && predicted(&RIVALS_SYSCALL_KELVIN).is_err()
            );
            assert!(predicted(&RIVALS_PIPE_OTHER).is_err());
        });
    }
}
