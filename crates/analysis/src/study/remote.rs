//! Conclusions on a remote directory: how much of each block is the way to it.

use kelvin_model::units::percent;
use kelvin_model::{Case, Conclusion, Measurement, Name, Readings, Run, StudyResult};
use kelvin_stats::{headline, headline_interval};

use super::beyond;

const ID: &str = "file.remote";
const SHARE: &str = "file.remote.share";

/// Conclusions on a remote directory, from the metric `file.remote.share`; `None` if the run has not measured it twice.
pub fn remote(run: &Run) -> Option<StudyResult> {
    let measured = run.measurements.iter().filter(|measurement| measurement.readings(SHARE).next().is_some());
    let conclusions: Vec<Conclusion> = measured.filter_map(conclusion).collect();
    let design =
        "Blocks of 4 KiB were read in turn from a file on a directory of another machine and from one of the same \
                  size on this machine, in several rounds."
            .into();
    (!conclusions.is_empty()).then_some(StudyResult { id: Name::new(ID), design, conclusions })
}

/// What the rounds of one way of reading say.
fn conclusion(measurement: &Measurement) -> Option<Conclusion> {
    let shares = shares(measurement);
    let interval = headline_interval(&shares, None)?;
    let (share, low, high) = (headline(&shares), interval.lower, interval.upper);
    let figures = format!("{} ({} to {})", percent(share), percent(low), percent(high));
    let which = name(&measurement.planned.case);
    let holds = beyond(low, high, 0.0);
    let text = match holds {
        Some(true) => format!("{which}, a remote block takes longer than a local one: the way is {figures} of it"),
        Some(false) => format!("{which}, a remote block takes longer than a local one: it takes less, by {figures}"),
        None => format!(
            "{which}, a remote block takes longer than a local one: the way is {figures} of it, which may be none"
        ),
    };
    Some(Conclusion { text, holds, test: format!("median share of {} rounds and its interval", shares.len()) })
}

fn shares(measurement: &Measurement) -> Vec<f64> {
    let values = measurement.readings(SHARE).filter_map(|(_, reading)| match &reading.readings {
        Readings::Scalars(values) => Some(values.iter().copied()),
        Readings::Batches(_) => None,
    });
    values.flatten().collect()
}

/// `direct, in random order`.
fn name(case: &Case) -> String {
    let order = match case.word("order") {
        Some("sequential") => "in order",
        _ => "in random order",
    };
    format!("{}, {order}", case.word("cache").unwrap_or("as found"))
}
