//! A wait of known length: it ends by the kernel's clock and is timed by kelvin's.

use kelvin_core::catalogue::truth::WAIT;
use kelvin_sys::clock::monotonic;

use crate::prelude::*;

/// Nanoseconds of one wait.
const WAIT_NANOSECONDS: u64 = 10_000;

pub(super) static PROBE: Probe = Probe {
    summary: "Waits of 10 us by CLOCK_MONOTONIC, timed in batches with kelvin's clock",
    method: include_str!("busy_wait.md"),
    run,
    predict,
    ..Probe::truth(&[&WAIT])
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    bench.time(&WAIT, |iterations| {
        let end = monotonic() + iterations * WAIT_NANOSECONDS;
        while monotonic() < end {}
        Ok(())
    })
}

fn predict(_: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    // A batch of at least 50 us ends at most one reading of the kernel's clock, some 50 ns, late.
    let construction = "10 us of CLOCK_MONOTONIC per iteration";
    Ok(super::known_prediction(WAIT_NANOSECONDS as f64, 0.002, Unit::Nanoseconds, construction))
}
