//! A CPU quota of known size: the CPU share of a spinning process in a cgroup with a fifth of one CPU.

use std::time::Duration;

use kelvin_catalogue::truth::QUOTA;
use kelvin_file::group::{Controller, Group};
use kelvin_harness::{Bench, Effort, Facts, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::clock::monotonic;
use kelvin_sys::usage::{Who, usage};

/// Microseconds of CPU time in each period, and the period.
const ALLOWED: u64 = 4_000;
const PERIOD: u64 = 20_000;
/// Whole periods per figure.
const PERIODS: u64 = 15;

pub(super) static PROBE: Probe = Probe {
    id: QUOTA.id.as_str(),
    summary: "A spinning process in a cgroup with a quota of a fifth of one CPU",
    kind: ProbeKind::Truth,
    method: super::method(
        "Makes a cgroup with 4 ms of CPU time every 20 ms, moves into it, spins for 15 periods, from the start of one \
         to the start of another (both visible as the end of throttling), and divides the CPU time by getrusage by the \
         elapsed time. The cgroup is removed afterwards.",
    ),
    metrics: &[&QUOTA],
    inputs: &[],
    cases: |_: &Machine, _: Effort| vec![Case::new()],
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let group = Group::make(Controller::Cpu).map_err(super::stopped)?;
    group.limit_cpu(ALLOWED, Duration::from_micros(PERIOD)).map_err(super::stopped)?;
    group.enter().map_err(super::stopped)?;
    let share = spin();
    drop(group);
    bench.record(&QUOTA, vec![share]);
    Ok(())
}

/// Spins from the end of one throttling to the end of another, some periods later.
fn spin() -> f64 {
    let (begun, used) = after_throttling();
    let mut last = (begun, used);
    while last.0 - begun < (PERIODS * PERIOD - PERIOD / 2) * 1000 {
        last = after_throttling();
    }
    (last.1 - used) as f64 / (last.0 - begun) as f64
}

/// Spins until time jumps, when a new period begins after throttling; returns the time and the CPU time used until
/// then.
fn after_throttling() -> (u64, u64) {
    let jump = (PERIOD - ALLOWED) * 1000 / 2;
    let mut last = monotonic();
    loop {
        let now = monotonic();
        if now - last > jump {
            let usage = usage(Who::Process);
            return (now, usage.user + usage.system);
        }
        last = now;
    }
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    let share = ALLOWED as f64 / PERIOD as f64;
    // A group may overrun by up to a tick, which the kernel deducts from the next period.
    Ok(super::known(share, 0.1, Unit::Ratio, "4 ms of CPU time every 20 ms"))
}
