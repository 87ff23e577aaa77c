//! Files moved from one process to another over loopback, by the methods of either end: the cells of a published study.
//!
//! It shows which method of which end decides, what a connection for each file costs, and whether a window matters. It must not be
//! used to predict a transfer between two hosts, or one that is encrypted and verified.

use kelvin_core::catalogue::transfer::{
    CACHED_METRICS, RATE, RECEIVER_CALLS, RECEIVER_CPU, RECEIVER_DEVICE, RECEIVER_FAULTS, RECEIVER_SWITCHES,
    SENDER_CALLS, SENDER_CPU, SENDER_DEVICE, SENDER_FAULTS, SENDER_SWITCHES, TIME,
};
use kelvin_file::cache::PageCacheState;

use super::cells;
use super::prediction;
use super::trials::{TransferTrial, run_trials};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "Files moved between two processes over loopback: the cells of a published study, and other methods and modes",
    method: include_str!("study.md"),
    cases: |_, effort| cells::hot_cells(effort),
    run,
    predict: prediction::predict,
    ..Probe::study(CACHED_METRICS)
};

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (trials, bytes) = run_trials(bench, case, PageCacheState::Cached)?;
    for (metric, figure) in FIGURES {
        bench.record(metric, trials.iter().map(figure).collect());
    }
    bench.record(&RATE, trials.iter().map(|trial| bytes as f64 * 1e9 / trial.time).collect());
    bench.note_last_reading("every trial's bytes were compared by their digest");
    Ok(())
}

/// A figure of a trial, in the unit of its metric.
type TrialFigure = fn(&TransferTrial) -> f64;

static FIGURES: [(&Metric, TrialFigure); 11] = [
    (&TIME, |trial| trial.time),
    (&SENDER_CPU, |trial| trial.sender.cpu as f64),
    (&RECEIVER_CPU, |trial| trial.receiver.cpu as f64),
    (&SENDER_CALLS, |trial| trial.sender.calls as f64),
    (&RECEIVER_CALLS, |trial| trial.receiver.calls as f64),
    (&SENDER_FAULTS, |trial| trial.sender.faults as f64),
    (&RECEIVER_FAULTS, |trial| trial.receiver.faults as f64),
    (&SENDER_SWITCHES, |trial| trial.sender.switches as f64),
    (&RECEIVER_SWITCHES, |trial| trial.receiver.switches as f64),
    (&SENDER_DEVICE, |trial| trial.fetched as f64),
    (&RECEIVER_DEVICE, |trial| trial.written as f64),
];
