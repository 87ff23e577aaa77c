//! Files moved from one process to another over loopback when they are not in memory: what the sender's method makes of it.
//!
//! It shows which sender reads a file best while it sends it. It must not be used as the rate of the device: below the kernel a cache
//! of a hypervisor, a controller or a drive may answer.

use kelvin_core::catalogue::transfer::{COLD_DEVICE, COLD_METRICS, COLD_TIME};
use kelvin_file::cache::PageCacheState;

use super::cells;
use super::trials::run_trials;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "Files that are not in memory moved between two processes over loopback, by every method of sending",
    method: include_str!("cold.md"),
    cases: |_, effort| cells::cold_cells(effort),
    run,
    predict: |_, _, _| {
        Err(NoPrediction::new(
            "how far the kernel reads ahead for each method, and how much of it overlaps with sending, is in no lower metric",
        ))
    },
    ..Probe::study(COLD_METRICS)
};

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (trials, _) = run_trials(bench, case, PageCacheState::Uncached)?;
    bench.record(&COLD_TIME, trials.iter().map(|trial| trial.time).collect());
    bench.record(&COLD_DEVICE, trials.iter().map(|trial| trial.fetched as f64).collect());
    Ok(())
}
