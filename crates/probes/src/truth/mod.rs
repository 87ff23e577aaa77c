//! Known truths: probes whose answer is fixed by construction, measured by the same harness as everything else, to show
//! kelvin's own error. And known faults, to check that a failing probe costs only itself.

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

/// Removes what outlives a process: control groups, including that of a quota.
pub(crate) fn clear_up() {
    kelvin_file::group::clear_up();
}

/// The known value as a prediction: `share` is the relative error of the construction.
fn known(value: f64, share: f64, unit: Unit, construction: &str) -> Prediction {
    Predicting::between(Basis::Spec, value, value * (1.0 - share), value * (1.0 + share))
        .formula("by construction", "fixed by construction")
        .constant("known value", value, unit, "construction")
        .derived_as(format!("{construction}; the construction is accurate to {} %", share * 100.0))
}

/// The median, the upper of two; `None` of nothing.
fn median(values: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.into_iter().collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// A missing resource or permission is a skip, anything else a failure.
fn stopped(error: kelvin_file::Error) -> Stop {
    if error.is_absence() { Stop::skip(error.to_string()) } else { Stop::fail(error.to_string()) }
}

/// The method of a known truth.
const fn method(how: &'static str) -> Method {
    Method {
        how,
        prediction: "The value is fixed by construction; the range is the accuracy of the construction.",
        not_for: "Anything but checking kelvin.",
        pitfalls: &[],
        sources: &[],
    }
}

/// A fault has no value to predict.
fn no_value(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because("a deliberately faulty probe has no value"))
}
