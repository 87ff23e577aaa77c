//! The logarithmic axis of a ladder, and what its drawings share.

use kelvin_core::units::value_text;
use kelvin_core::{Name, Rung, Unit};
use kelvin_stats::min_max;

use crate::Report;

/// Decades of an axis of which every one is labelled; of a longer one every second is.
const MAX_LABELLED_DECADES: i32 = 5;

/// From which power of ten to which a ladder reaches, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LadderAxis {
    from: i32,
    to: i32,
}

impl LadderAxis {
    /// The axis of all figures and predictions of some rungs.
    pub fn for_rungs(rungs: &[Rung]) -> Self {
        let drawn_times = rungs.iter().filter_map(|rung| rung.figure.drawn_value().map(|estimate| [estimate.value; 2]));
        let predicted_ranges = rungs.iter().filter_map(|rung| rung.figure.predicted.as_ref());
        Self::for_times(drawn_times.chain(predicted_ranges.map(|range| [range.low, range.high])).flatten())
    }

    /// The axis of some times, in seconds.
    pub fn for_times(times: impl Iterator<Item = f64>) -> Self {
        let times = times.filter(|time| *time > 0.0 && time.is_finite());
        let Some((low, high)) = min_max(times) else { return Self { from: 0, to: 1 } };
        let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        Self { from, to: to.max(from + 1) }
    }

    /// How far along the axis a time is, from 0 to 1; beyond an end it is at that end.
    pub fn share(&self, seconds: f64) -> f64 {
        let decade = if seconds > 0.0 { seconds.log10() } else { f64::NEG_INFINITY };
        ((decade - f64::from(self.from)) / f64::from(self.to - self.from)).clamp(0.0, 1.0)
    }

    /// The decades with a label: how far along, and the time in words.
    pub fn labels(&self) -> impl Iterator<Item = (f64, String)> {
        let step = if self.to - self.from > MAX_LABELLED_DECADES { 2 } else { 1 };
        let axis = *self;
        (axis.from..=axis.to).step_by(step).map(move |decade| {
            let seconds = 10f64.powi(decade);
            (axis.share(seconds), decade_label(seconds))
        })
    }
}

/// A power of ten of a second: `0.1 ns`, `10 µs`.
fn decade_label(seconds: f64) -> String {
    let nanoseconds = seconds * 1e9;
    if nanoseconds < 0.5 {
        return format!("{} ns", kelvin_core::units::number((nanoseconds * 1e3).round() / 1e3).trim_end_matches('0'));
    }
    let text = value_text(nanoseconds, Unit::Nanoseconds);
    let (value, unit) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{} {unit}", value.split('.').next().unwrap_or(value))
}

/// The name of a rung; one that continues another is indented.
pub(crate) fn label(rung: &Rung) -> String {
    if rung.continues { format!("  {}", rung.label) } else { rung.label.clone() }
}

/// The names of rungs by themselves: one that continues another has the name of that before its own.
pub(crate) fn full_labels<'a>(rungs: impl Iterator<Item = (&'a str, bool)>) -> impl Iterator<Item = String> {
    rungs.scan("", |heading, (label, continues)| {
        if continues {
            return Some(format!("{heading}, {label}"));
        }
        *heading = label;
        Some(label.to_owned())
    })
}

/// The published machine that a ladder shows, with its name: the first of the report's that has one of its times.
pub(crate) fn compared_reference<'a>(report: &Report<'a>) -> Option<(Name, &'a str)> {
    let rungs = &report.analysis.overview.as_ref()?.rungs;
    let has_time = |machine: Name| rungs.iter().any(|rung| published_seconds(rung, machine).is_some());
    let reference = report.references.iter().find(|reference| has_time(reference.id))?;
    Some((reference.id, reference.title.split(',').next().unwrap_or(&reference.title)))
}

/// The time of a rung on a published machine.
pub(crate) fn published_seconds(rung: &Rung, machine: Name) -> Option<f64> {
    rung.published.iter().find(|time| time.machine == machine).map(|time| time.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_have_labels() {
        let axis = LadderAxis { from: -10, to: -2 };
        let labels: Vec<String> = axis.labels().map(|(_, text)| text).collect();
        assert_eq!(labels, ["0.1 ns", "10 ns", "1 µs", "100 µs", "10 ms"]);
        let every_label: Vec<String> = LadderAxis { from: -8, to: -5 }.labels().map(|(_, text)| text).collect();
        assert_eq!(every_label, ["10 ns", "100 ns", "1 µs", "10 µs"]);
        assert!((axis.share(1e-6) - 0.5).abs() < 1e-12);
        assert_eq!((axis.share(0.0), axis.share(1.0)), (0.0, 1.0));
    }
}
