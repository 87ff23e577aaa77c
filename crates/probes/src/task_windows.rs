//! Windows in which tasks on several CPUs work at once: their times, and how evenly the tasks worked.

use std::ops::RangeInclusive;

use kelvin_harness::Bench;
use kelvin_sys::task_group::{WindowTimes, WorkedWindow};

use crate::reasons::{ProbeResult, fail_if};

/// Nanoseconds in which sleeping tasks are woken: a few wake-ups, and one call for each of them.
const WAKE_NANOSECONDS: u64 = 200_000;
const WAKE_NANOSECONDS_PER_TASK: u64 = 10_000;

/// The times of a window of this many tasks and nanoseconds.
pub(crate) fn window_times(bench: &Bench<'_>, tasks: usize, nanoseconds: u64) -> WindowTimes {
    let lead = bench.ticks(WAKE_NANOSECONDS + WAKE_NANOSECONDS_PER_TASK * tasks as u64);
    WindowTimes { lead, length: bench.ticks(nanoseconds) }
}

/// What tasks did in the first window in which each of them worked. A window lasts as many nanoseconds as the range begins with, and each
/// further one twice as long, up to the end of the range.
///
/// # Errors
/// That of a window; other work kept a task from its CPU in all of them.
pub(crate) fn first_window_of_all(
    nanoseconds: RangeInclusive<u64>,
    mut run_window: impl FnMut(u64) -> ProbeResult<Vec<WorkedWindow>>,
) -> ProbeResult<Vec<WorkedWindow>> {
    let mut length = *nanoseconds.start();
    loop {
        let windows = run_window(length)?;
        if windows.iter().all(|window| window.operations > 0) {
            return Ok(windows);
        }
        let reason = format!("other work kept a CPU busy in a window of {} ms", length / 1_000_000);
        fail_if(length >= *nanoseconds.end(), reason)?;
        length *= 2;
    }
}

/// How evenly tasks worked, and what else ran on their CPUs, in words.
pub(crate) fn describe_evenness(windows: &[WorkedWindow]) -> String {
    let rates: Vec<f64> = windows.iter().map(WorkedWindow::rate).collect();
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let (min_rate, max_rate) = kelvin_stats::min_max(rates.iter().copied()).unwrap_or_default();
    let switches: u64 = windows.iter().map(|window| window.involuntary_switches).sum();
    format!(
        "by each CPU {:.2} to {:.2} of the mean; by getrusage {switches} involuntary switches",
        min_rate / mean,
        max_rate / mean
    )
}

#[cfg(test)]
mod tests {
    use kelvin_harness::ProbeError;

    use super::*;

    #[test]
    fn window_without_work_of_a_task_is_repeated() {
        let worked = |operations| WorkedWindow { operations, ticks: 1, ..WorkedWindow::default() };
        let mut lengths_run = Vec::new();
        let mut first_at = |full_from: u64| {
            lengths_run.clear();
            let windows = first_window_of_all(2_000_000..=8_000_000, |length| {
                lengths_run.push(length);
                Ok(vec![worked(1), worked(u64::from(length >= full_from))])
            });
            (windows, lengths_run.clone())
        };
        let all_worked = Ok(vec![worked(1), worked(1)]);
        assert_eq!(first_at(0), (all_worked.clone(), vec![2_000_000]));
        assert_eq!(first_at(4_000_000), (all_worked, vec![2_000_000, 4_000_000]));
        let reason = "other work kept a CPU busy in a window of 8 ms";
        assert_eq!(first_at(u64::MAX), (Err(ProbeError::fail(reason)), vec![2_000_000, 4_000_000, 8_000_000]));
    }

    #[test]
    fn evenness_is_relative_to_the_mean_rate() {
        let window = |operations, involuntary_switches| WorkedWindow {
            operations,
            ticks: 10,
            involuntary_switches,
            ..WorkedWindow::default()
        };
        assert_eq!(
            describe_evenness(&[window(50, 1), window(150, 2)]),
            "by each CPU 0.50 to 1.50 of the mean; by getrusage 3 involuntary switches"
        );
    }
}
