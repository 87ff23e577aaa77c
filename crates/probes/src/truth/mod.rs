//! Known truths: things whose answer is set by construction, measured by the same harness as everything else, so that
//! kelvin's own error can be seen. And known faults, to see that a probe that goes wrong costs only itself.

mod delay;
mod disk;
mod faults;
mod latency_ratio;
mod link;
mod pipe_rate;
mod quota;
mod wait;

use kelvin_harness::{Facts, Method, Probe, Stop};
use kelvin_model::{Basis, Case, Metric, NoPrediction, Prediction, Unit};

use crate::predict::Predicting;

pub(crate) static PROBES: &[&Probe] = &[
    &wait::PROBE,
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

/// Takes away what outlives a process: control groups, also that of a quota.
pub(crate) fn clear_up() {
    kelvin_file::group::clear_up();
}

/// The known value as a prediction: `share` is the relative error that the construction itself may have.
fn known(value: f64, share: f64, unit: Unit, construction: &str) -> Prediction {
    Predicting::between(Basis::Spec, value, value * (1.0 - share), value * (1.0 + share))
        .formula("set by construction")
        .constant("known value", value, unit, "construction")
        .derived_as(format!("{construction}; the construction itself is good to {} %", share * 100.0))
}

/// The median, the upper one of two; none of nothing.
fn median(values: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.into_iter().collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// What cannot be had here is skipped, anything else has failed.
fn stopped(error: kelvin_file::Error) -> Stop {
    if error.is_absence() { Stop::skip(error.to_string()) } else { Stop::fail(error.to_string()) }
}

/// The method of a known truth.
const fn method(how: &'static str) -> Method {
    Method {
        how,
        prediction: "The value is set by construction; the range is what the construction itself allows.",
        not_for: "Anything but checking kelvin.",
        pitfalls: &[],
        sources: &[],
    }
}

/// A fault has no value to predict.
fn no_value(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because("a probe that goes wrong on purpose has no value"))
}
