//! A result as a figure of the first screen: converted, judged against its prediction, in words.

use crate::prelude::*;

/// Nanoseconds of a second.
pub(super) const NANOSECONDS_PER_SECOND: f64 = 1e9;

/// How the value of a metric becomes the value of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueConversion {
    /// As it is.
    Unchanged,
    /// A duration in seconds.
    Seconds,
    /// The seconds of one, of a rate of them.
    SecondsPerOperation,
    /// Seconds for a number of bytes, from a rate of bytes.
    SecondsForBytes(u64),
}

impl ValueConversion {
    /// The value, or an end of an interval.
    pub fn convert(self, value: f64) -> f64 {
        match self {
            Self::Unchanged => value,
            Self::Seconds => value / NANOSECONDS_PER_SECOND,
            Self::SecondsPerOperation => 1.0 / value,
            Self::SecondsForBytes(bytes) => bytes as f64 / value,
        }
    }

    /// Both ends of an interval, lower one first.
    fn convert_ends(self, lower: f64, upper: f64) -> (f64, f64) {
        let (first, second) = (self.convert(lower), self.convert(upper));
        (first.min(second), first.max(second))
    }

    /// The figure in words.
    fn text(self, measured: &Estimate, unit: Unit) -> String {
        let (scale, unit) = match self {
            Self::Unchanged => (1.0, unit),
            _ => (NANOSECONDS_PER_SECOND, Unit::Nanoseconds),
        };
        brief_value(measured.value * scale, Some((measured.high - measured.low) / 2.0 * scale), unit)
    }
}

/// The figure of a result.
pub(crate) fn overview_figure(result: &MetricResult, conversion: ValueConversion) -> OverviewFigure {
    let predicted = result.prediction.as_ref().map(|prediction| {
        let (low, high) = conversion.convert_ends(prediction.low, prediction.high);
        let derivation = prediction.derivation.clone();
        PredictedRange { value: conversion.convert(prediction.value), low, high, derivation }
    });
    let measured =
        result.outcome.summary().and_then(|summary| estimate(summary.headline, summary.interval.as_ref(), conversion));
    let (text, missing_reason) = match &measured {
        Some(measured) => (conversion.text(measured, result.metric.unit), None),
        None => missing_figure(&result.outcome),
    };
    let verdict = match (result.verdict, result.metric.better) {
        (RangeVerdict::AsPredicted, _) => PredictionVerdict::AsPredicted,
        (RangeVerdict::Above, Better::Lower) | (RangeVerdict::Below, Better::Higher) => PredictionVerdict::Slower,
        (RangeVerdict::Above, Better::Higher) | (RangeVerdict::Below, Better::Lower) => PredictionVerdict::Faster,
        _ => PredictionVerdict::NotCompared,
    };
    let as_found = match &result.outcome {
        Outcome::NotKnown(summary) => Some(&summary.as_found),
        _ => None,
    };
    let as_found = as_found.and_then(|figure| {
        let value = estimate(figure.value, figure.interval.as_ref(), conversion)?;
        Some(AsFoundFigure { value, text: conversion.text(&value, result.metric.unit) })
    });
    let class_range = result.class_range.as_ref().map(|class| {
        let (low, high) = conversion.convert_ends(class.low, class.high);
        UsualRange { low, high, machines: class.members + class.related }
    });
    OverviewFigure {
        source: Some(result.metric_case()),
        measured,
        text,
        missing_reason,
        as_found,
        predicted,
        verdict,
        class_range,
    }
}

/// Why a figure is missing: in a word or two, and in full.
fn missing_figure(outcome: &Outcome) -> (String, Option<String>) {
    let (word, reason) = match outcome {
        Outcome::Measured(_) => ("not finite", None),
        Outcome::NotKnown(summary) => {
            let share = percent(summary.undisturbed_share);
            ("not known", Some(format!("only {share} of the samples were undisturbed, too few")))
        }
        Outcome::Invalid(ceiling) => ("invalid", Some(ceiling.likely_cause.clone())),
        Outcome::Skipped(reason) => ("skipped", Some(reason.0.clone())),
        Outcome::Failed(reason) => ("failed", Some(reason.clone())),
        Outcome::NotReached => ("not reached", Some("the run ended before it".into())),
    };
    (word.into(), reason)
}

fn estimate(value: f64, interval: Option<&Interval>, conversion: ValueConversion) -> Option<Estimate> {
    let converted = conversion.convert(value);
    let (low, high) = interval.map_or((converted, converted), |ends| conversion.convert_ends(ends.lower, ends.upper));
    let is_range = interval.is_some_and(|interval| interval.kind == IntervalKind::Range);
    converted.is_finite().then_some(Estimate { value: converted, low, high, is_range })
}
