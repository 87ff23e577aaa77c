//! Known truths: probes whose answer is fixed by construction, measured by the same harness as everything else, to show
//! kelvin's own error. And known faults, to check that a failing probe costs only itself.

use crate::prelude::*;

mod busy_wait;
mod delay;
mod disk;
mod faults;
mod latency_ratio;
mod link;
mod pipe_rate;
mod quota;

pub(crate) static PROBES: &[&Probe] = &[
    &busy_wait::PROBE,
    &latency_ratio::PROBE,
    &pipe_rate::PROBE,
    &quota::PROBE,
    &disk::PROBE,
    &link::PROBE,
    &delay::PROBE,
    &faults::HANG,
    &faults::CRASH,
    &faults::PANIC,
    &faults::GARBAGE,
    &faults::SILENCE,
];

/// Removes what outlives a process: control groups, including that of a quota.
pub(crate) fn remove_leftovers() {
    kelvin_file::cgroup::remove_dead_cgroups();
}

/// The known value as a prediction: `share` is the relative error of the construction.
fn known_prediction(value: f64, share: f64, unit: Unit, construction: &str) -> Prediction {
    let remark = format!("{construction}; the construction is accurate to {} %", share * 100.0);
    let known_value = fact("known value", value, unit, "construction").widen_by_share(share);
    known_value.explained(PredictionBasis::Spec, "by construction", &remark)
}

/// A missing resource or permission is a skip, anything else a failure.
fn probe_error(error: kelvin_file::Error) -> ProbeError {
    if error.is_unsupported() { ProbeError::skip(error.to_string()) } else { ProbeError::fail(error.to_string()) }
}
