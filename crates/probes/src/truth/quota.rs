//! A CPU quota of known size: the CPU share of a spinning process in a cgroup with a fifth of one CPU.

use std::time::Duration;

use kelvin_core::catalogue::truth::QUOTA;
use kelvin_file::cgroup::{Cgroup, Controller};
use kelvin_sys::clock::monotonic;
use kelvin_sys::usage::{UsageScope, read_usage};

use crate::prelude::*;

/// Microseconds of CPU time in each period, and the period.
const QUOTA_MICROSECONDS: u64 = 4_000;
const PERIOD_MICROSECONDS: u64 = 20_000;
/// Whole periods per figure.
const MEASURED_PERIODS: u64 = 15;

pub(super) static PROBE: Probe = Probe {
    summary: "A spinning process in a cgroup with a quota of a fifth of one CPU",
    method: include_str!("quota.md"),
    run,
    predict,
    ..Probe::truth(&[&QUOTA])
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let group = Cgroup::create(Controller::Cpu).map_err(super::probe_error)?;
    group.limit_cpu(QUOTA_MICROSECONDS, Duration::from_micros(PERIOD_MICROSECONDS)).map_err(super::probe_error)?;
    group.enter().map_err(super::probe_error)?;
    let share = spin();
    drop(group);
    bench.record(&QUOTA, vec![share]);
    Ok(())
}

/// Spins from the end of one throttling to the end of another, some periods later.
fn spin() -> f64 {
    let (start, cpu_start) = wait_for_throttle_end();
    let mut last = (start, cpu_start);
    while last.0 - start < (MEASURED_PERIODS * PERIOD_MICROSECONDS - PERIOD_MICROSECONDS / 2) * 1000 {
        last = wait_for_throttle_end();
    }
    (last.1 - cpu_start) as f64 / (last.0 - start) as f64
}

/// Spins until time jumps, when a new period begins after throttling; returns the time and the CPU time used until
/// then.
fn wait_for_throttle_end() -> (u64, u64) {
    let jump = (PERIOD_MICROSECONDS - QUOTA_MICROSECONDS) * 1000 / 2;
    let mut last = monotonic();
    loop {
        let now = monotonic();
        if now - last > jump {
            let usage = read_usage(UsageScope::Process);
            return (now, usage.user + usage.system);
        }
        last = now;
    }
}

fn predict(_: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let share = QUOTA_MICROSECONDS as f64 / PERIOD_MICROSECONDS as f64;
    // A group may overrun by up to a tick, which the kernel deducts from the next period.
    Ok(super::known_prediction(share, 0.1, Unit::Ratio, "4 ms of CPU time every 20 ms"))
}
