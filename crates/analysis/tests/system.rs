//! Conclusions on calls, tasks and switches, and on what times depend on.

use kelvin_analysis::testing::{self, add_scalars};
use kelvin_analysis::{StatedConclusion, Study};
use kelvin_core::catalogue::PairPlacement::{SameCpu, TwoCpus};
use kelvin_core::catalogue::cpu::{ARGUMENTS, CALL_ARGS, CallKind};
use kelvin_core::catalogue::file::{BYTE_CALLS, ByteCall, FILE_BYTES};
use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::catalogue::os::{
    HandoffMechanism, HandoffTask, NullCall, ONE_WAY_WAKE_UP, PROCESS_FORK, PROCESS_FORK_RSS, RESIDENT, SWITCH_COST,
    SYSCALL_NULL, THREAD_CREATE,
};
use kelvin_core::{Case, Metric, Run};

/// A value at a case of a metric.
type Row = (&'static Metric, Case, f64);

/// Six rounds around a value, with this noise.
fn rounds(value: f64, noise: f64) -> Vec<f64> {
    (0..6).map(|i| value * (1.0 + noise * f64::from(i * 5 % 6 - 2) / 3.0)).collect()
}

fn run(rows: &[Row], noise: f64) -> Run {
    let mut metrics: Vec<Metric> = Vec::new();
    for (metric, ..) in rows {
        if metrics.iter().all(|defined| defined.id != metric.id) {
            metrics.push(**metric);
        }
    }
    let mut run = testing::empty_run(&metrics);
    for (place, (metric, case, value)) in rows.iter().enumerate() {
        // Each case has rounds in an order of its own.
        let mut rounds = rounds(*value, noise);
        rounds.rotate_left(place % 6);
        add_scalars(&mut run, metric, case.clone(), &rounds);
    }
    run
}

fn study(rows: &[Row], noise: f64, id: &str) -> Option<Study> {
    testing::study(&run(rows, noise), id)
}

fn conclusions(rows: &[Row], noise: f64, id: &str) -> Vec<StatedConclusion> {
    study(rows, noise, id).map_or_else(Vec::new, |study| study.conclusions)
}

/// Asserts the label and the beginning of a conclusion.
fn assert_conclusion(conclusion: &StatedConclusion, holds: Option<bool>, prefix: &str) {
    assert_eq!(conclusion.holds, holds, "{} ({})", conclusion.text, conclusion.test);
    assert!(conclusion.text.starts_with(prefix), "{}", conclusion.text);
    assert!(!conclusion.text.contains("  ") && !conclusion.text.contains("NaN"), "{}", conclusion.text);
}

fn small_process(metric: &'static Metric, value: f64) -> Row {
    (metric, Case::new(), value)
}

fn function_call(arguments: u64, value: f64) -> Row {
    (&CALL_ARGS, Case::new().with_number(ARGUMENTS, arguments).with_word(CallKind::Direct), value)
}

#[test]
fn system_call_is_compared_with_function_call() {
    let system = |value: f64| (&SYSCALL_NULL, Case::new().with_word(NullCall::Getppid), value);
    let results = conclusions(&[function_call(0, 1.5), system(90.0)], 0.01, "os");
    assert_eq!(results.len(), 1, "{results:#?}");
    assert_conclusion(
        &results[0],
        Some(true),
        "a system call takes longer than a function call: 60.0 times as long (95 %: ",
    );
    assert!(
        results[0].text.ends_with("90.0 ns against 1.50 ns") || results[0].text.contains(" ns against 1."),
        "{}",
        results[0].text
    );
    assert_conclusion(
        &conclusions(&[function_call(0, 90.0), system(45.0)], 0.01, "os")[0],
        Some(false),
        "a system call takes longer",
    );
    assert!(conclusions(&[system(90.0)], 0.01, "os").is_empty());
}

#[test]
fn fork_is_compared_with_thread_by_memory() {
    let resident = |mib: u64, pages, value: f64| -> Row {
        (&PROCESS_FORK_RSS, Case::new().with_word(pages).with_number(RESIDENT, mib << 20), value)
    };
    let rows = [
        small_process(&THREAD_CREATE, 10e3),
        small_process(&PROCESS_FORK, 40e3),
        resident(1, PageSize::Base, 50e3),
        resident(64, PageSize::Base, 800e3),
        resident(64, PageSize::Huge, 60e3),
    ];
    let results = conclusions(&rows, 0.01, "os");
    assert_eq!(results.len(), 4, "{results:#?}");
    assert_conclusion(
        &results[0],
        Some(true),
        "a fork of a small process takes longer than creating a thread: 4.00 times as long",
    );
    let claim = "a fork of a process with 64 MiB in base pages takes longer than creating a thread: 80.0 times as long";
    assert_conclusion(&results[1], Some(true), claim);
    assert_conclusion(&results[3], Some(true), "a fork of a process with 64 MiB in huge pages takes longer");
}

fn switches(process: f64) -> [Row; 2] {
    let pipe = HandoffMechanism::Pipe;
    [(&SWITCH_COST, pipe.between_threads(), 700.0), (&SWITCH_COST, pipe.between_processes(), process)]
}

#[test]
fn switch_comparison_can_differ_match_or_undecide() {
    let switch = |process: f64, noise: f64| conclusions(&switches(process), noise, "os").remove(0);
    let prefix = "a switch between processes by pipes takes longer than between threads: ";
    assert_conclusion(&switch(910.0, 0.01), Some(true), &format!("{prefix}1.30 times as long (95 %: "));
    assert_conclusion(&switch(500.0, 0.01), Some(false), prefix);
    let equal = switch(700.0, 0.005);
    assert_conclusion(&equal, None, prefix);
    assert_eq!(equal.same_within(), Some(0.05));
    let open = switch(720.0, 0.5);
    assert_conclusion(&open, None, prefix);
    assert_eq!(open.same_within(), None);
}

#[test]
fn input_only_metric_gives_no_conclusion() {
    let mut run = run(&switches(910.0), 0.01);
    run.measurements.iter_mut().for_each(|measurement| measurement.planned.only_input = true);
    assert!(testing::study(&run, "os").is_none());
    run.measurements[0].planned.only_input = false;
    assert!(testing::study(&run, "os").is_some());
}

#[test]
fn wake_ups_compared_by_channel_and_cpus() {
    let woken = |task: HandoffTask, mechanism: HandoffMechanism, placement, value: f64| -> Row {
        (&ONE_WAY_WAKE_UP, Case::new().with_word(task).with_word(mechanism).with_word(placement), value)
    };
    use HandoffMechanism::{Condvar, Futex, Pipe};
    use HandoffTask::{Process, Thread};
    let rows = [
        woken(Thread, Pipe, SameCpu, 1000.0),
        woken(Process, Pipe, SameCpu, 1200.0),
        woken(Thread, Condvar, TwoCpus, 30e3),
        woken(Process, Condvar, TwoCpus, 30e3),
        woken(Thread, Futex, SameCpu, 900.0),
    ];
    let results = conclusions(&rows, 0.005, "os.switch.one_way");
    assert_eq!(results.len(), 2, "{results:#?}");
    assert_conclusion(
        &results[0],
        Some(true),
        "on one CPU a pipe wakes a process later than a thread: 1.20 times as long",
    );
    assert_conclusion(
        &results[1],
        None,
        "between two CPUs a condition variable wakes a process later than a thread: 1.00 times",
    );
    assert_eq!(results[1].same_within(), Some(0.05));
}

/// Times of calls with 0 to 7 arguments.
fn argument_conclusions(times: [f64; 8], noise: f64) -> Vec<StatedConclusion> {
    let rows: Vec<Row> = times.into_iter().enumerate().map(|(place, time)| function_call(place as u64, time)).collect();
    conclusions(&rows, noise, "cpu.call.args")
}

#[test]
fn argument_cost_is_free_linear_or_neither() {
    let constant = argument_conclusions([1.5, 1.5, 1.51, 1.5, 1.5, 1.5, 1.49, 1.5], 0.005);
    assert_eq!(constant.len(), 1, "{constant:#?}");
    assert_conclusion(&constant[0], Some(true), "up to 7 arguments are free in a direct call: ");
    let linear = argument_conclusions([2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5], 0.005);
    assert_eq!(linear.len(), 2, "{linear:#?}");
    assert_conclusion(&linear[0], Some(false), "up to 7 arguments are free in a direct call: 2.7");
    assert_conclusion(&linear[1], Some(true), "each argument costs the same in a direct call, 0.50");
    // Free until their sum takes longer than the call.
    let nonlinear = argument_conclusions([1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.8, 2.1], 0.005);
    assert_eq!(
        nonlinear.iter().map(|conclusion| conclusion.holds).collect::<Vec<_>>(),
        [Some(false), Some(false)],
        "{nonlinear:#?}"
    );
    let noisy = argument_conclusions([1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5], 0.4);
    assert_eq!(noisy.iter().map(|conclusion| conclusion.holds).collect::<Vec<_>>(), [None, None], "{noisy:#?}");
    assert!(noisy.iter().all(|conclusion| conclusion.test.contains("pass by pass in 6 passes")), "{noisy:#?}");
}

/// Reads of the next byte by millions of bytes of the file.
fn byte_study(times: &[(u64, f64)], noise: f64) -> Option<Study> {
    let case = |millions: u64| Case::new().with_word(ByteCall::Read).with_number(FILE_BYTES, millions * 1_000_000);
    let rows: Vec<Row> = times.iter().map(|&(millions, time)| -> Row { (&BYTE_CALLS, case(millions), time) }).collect();
    study(&rows, noise, "file.byte_calls")
}

#[test]
fn byte_call_cost_by_file_size() {
    let size_conclusion = |times: &[(u64, f64)], noise| byte_study(times, noise).unwrap().conclusions.remove(0);
    let prefix = "a read of the next byte costs the same in files of 1 MB to 256 MB: ";
    assert_conclusion(&size_conclusion(&[(1, 200.0), (16, 201.0), (256, 202.0)], 0.005), Some(true), prefix);
    let growth = size_conclusion(&[(1, 200.0), (16, 220.0), (256, 260.0)], 0.005);
    assert_conclusion(&growth, Some(false), &format!("{prefix}1.3"));
    assert!(growth.text.ends_with("with 256 MB"), "{}", growth.text);
    // A bump between ends that are the same, which no slope would show.
    let bump = size_conclusion(&[(1, 200.0), (16, 260.0), (256, 200.0)], 0.005);
    assert_conclusion(&bump, Some(false), &format!("{prefix}1.3"));
    assert_conclusion(&size_conclusion(&[(1, 200.0), (16, 205.0), (256, 200.0)], 0.3), None, prefix);
    assert!(byte_study(&[(1, 200.0)], 0.01).unwrap().conclusions.is_empty(), "one size tells nothing of others");
}

#[test]
fn call_rates_are_tabulated() {
    let case = |millions: u64| Case::new().with_word(ByteCall::Read).with_number(FILE_BYTES, millions * 1_000_000);
    let rows: [Row; 2] = [(&BYTE_CALLS, case(1), 200.0), (&BYTE_CALLS, case(256), 400.0)];
    let analysis = kelvin_analysis::analyse(&run(&rows, 0.01));
    let table = &analysis.studies[0].tables[0];
    assert_eq!(table.rows.iter().map(|row| row.label.as_str()).collect::<Vec<_>>(), ["1 MB", "256 MB"]);
    let rates: Vec<f64> = table.rows.iter().map(|row| row.cells[0].as_ref().unwrap().value).collect();
    assert!((rates[0] / 5e6 - 1.0).abs() < 0.01 && (rates[1] / 2.5e6 - 1.0).abs() < 0.01, "{rates:?}");
    let interval = table.rows[0].cells[0].as_ref().unwrap().interval.unwrap();
    assert!(interval.lower < rates[0] && rates[0] < interval.upper, "{interval:?}");
    // As uncertain as the time from which it follows.
    let time = analysis.results[0].outcome.summary().unwrap().interval.unwrap();
    assert!((interval.upper / interval.lower - time.upper / time.lower).abs() < 1e-9, "{interval:?} and {time:?}");
    // A seek moves no byte.
    let seek = (&BYTE_CALLS, Case::new().with_word(ByteCall::Lseek).with_number(FILE_BYTES, 1 << 20), 100.0);
    assert!(study(&[seek], 0.01, "file.byte_calls").is_none());
}

#[test]
fn fork_cost_per_mib_is_tested() {
    let forks = |times: &[(u64, f64)]| {
        let case = |mib: u64| Case::new().with_word(PageSize::Base).with_number(RESIDENT, mib << 20);
        let rows: Vec<Row> = times.iter().map(|&(mib, time)| -> Row { (&PROCESS_FORK_RSS, case(mib), time) }).collect();
        conclusions(&rows, 0.005, "os.process.fork_rss")
    };
    let linear = forks(&[(1, 32e3), (16, 212e3), (64, 788e3), (256, 3092e3)]);
    let prefix = "each MiB costs the same in a fork with base pages, 12.0 µs (95 %: ";
    assert_conclusion(&linear[0], Some(true), prefix);
    let steeper_forks = forks(&[(1, 32e3), (16, 212e3), (64, 788e3), (256, 9092e3)]);
    assert_conclusion(&steeper_forks[0], Some(false), "each MiB costs the same in a fork with base pages, ");
    assert!(forks(&[(1, 32e3), (16, 212e3)]).is_empty(), "two points lie on every line");
}
