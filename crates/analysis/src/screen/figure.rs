//! A result as a figure of the first screen: converted, judged against its prediction, in words.

use kelvin_model::{
    AgainstPrediction, Better, Estimate, FoundFigure, Interval, IntervalKind, Metric, PredictedRange, ScreenFigure,
    Unit, UsualRange,
};

use crate::result::{MetricResult, Outcome, Verdict};
use crate::words;

/// Nanoseconds of a second.
pub(super) const SECOND: f64 = 1e9;

/// How the value of a metric becomes the value of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// As it is.
    AsIs,
    /// A duration in seconds.
    Seconds,
    /// The seconds of one, of a rate of them.
    SecondsOfOne,
    /// The seconds of so many bytes, of a rate of bytes.
    SecondsOf(u64),
}

impl Shown {
    /// The value, or an end of an interval.
    pub fn value(self, value: f64) -> f64 {
        match self {
            Self::AsIs => value,
            Self::Seconds => value / SECOND,
            Self::SecondsOfOne => 1.0 / value,
            Self::SecondsOf(bytes) => bytes as f64 / value,
        }
    }

    /// Both ends of an interval, lower one first.
    fn ends(self, lower: f64, upper: f64) -> (f64, f64) {
        let (one, other) = (self.value(lower), self.value(upper));
        (one.min(other), one.max(other))
    }

    /// The figure in words.
    fn text(self, measured: &Estimate, unit: Unit) -> String {
        let half = (measured.high - measured.low) / 2.0;
        match self {
            Self::AsIs => words::screen::brief(measured.value, half, unit),
            _ => words::screen::brief(measured.value * SECOND, half * SECOND, Unit::Nanoseconds),
        }
    }
}

/// The figure of a result.
pub(crate) fn figure(result: &MetricResult, shown: Shown) -> ScreenFigure {
    let predicted = result.prediction.as_ref().map(|prediction| {
        let (low, high) = shown.ends(prediction.low, prediction.high);
        let derivation = prediction.derivation.clone();
        PredictedRange { value: shown.value(prediction.value), low, high, derivation }
    });
    let measured =
        result.outcome.summary().and_then(|summary| estimate(summary.headline, summary.interval.as_ref(), shown));
    let (text, why_not) = match &measured {
        Some(measured) => (shown.text(measured, result.metric.unit), None),
        None => words::screen::no_figure(&result.outcome),
    };
    let against = against(result.verdict, &result.metric);
    let as_found = as_found(result, shown);
    let of_class = result.of_class.as_ref().map(|class| {
        let (low, high) = shown.ends(class.low, class.high);
        UsualRange { low, high, machines: class.members + class.akin }
    });
    ScreenFigure { place: Some(result.place()), measured, text, why_not, as_found, predicted, against, of_class }
}

/// What was found where there is no headline for want of undisturbed samples.
fn as_found(result: &MetricResult, shown: Shown) -> Option<FoundFigure> {
    let Outcome::NotKnown(summary) = &result.outcome else { return None };
    let value = estimate(summary.as_found.value, summary.as_found.interval.as_ref(), shown)?;
    Some(FoundFigure { value, text: shown.text(&value, result.metric.unit) })
}

/// A figure that the run should have and has not, for a reason that is not of one result.
pub(crate) fn unknown(text: &str, why_not: String) -> ScreenFigure {
    ScreenFigure {
        place: None,
        measured: None,
        text: text.into(),
        why_not: Some(why_not),
        as_found: None,
        predicted: None,
        against: AgainstPrediction::NotCompared,
        of_class: None,
    }
}

fn estimate(value: f64, interval: Option<&Interval>, shown: Shown) -> Option<Estimate> {
    let at = shown.value(value);
    let (low, high) = interval.map_or((at, at), |ends| shown.ends(ends.lower, ends.upper));
    let is_range = interval.is_some_and(|interval| interval.kind == IntervalKind::Range);
    at.is_finite().then_some(Estimate { value: at, low, high, is_range })
}

fn against(verdict: Verdict, metric: &Metric) -> AgainstPrediction {
    match (verdict, metric.better) {
        (Verdict::AsPredicted, _) => AgainstPrediction::AsPredicted,
        (Verdict::Above, Better::Lower) | (Verdict::Below, Better::Higher) => AgainstPrediction::Slower,
        (Verdict::Above, Better::Higher) | (Verdict::Below, Better::Lower) => AgainstPrediction::Faster,
        _ => AgainstPrediction::NotCompared,
    }
}
