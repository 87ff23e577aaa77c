//! Building blocks of predictions.

use std::borrow::Cow;

use kelvin_core::{Ceiling, Input, Prediction, PredictionBasis, Unit, units};

/// A prediction under construction: every step of the derivation is kept.
pub(crate) struct PredictionBuilder {
    prediction: Prediction,
}

impl PredictionBuilder {
    /// A predicted value in the metric's unit; the predicted range is this factor either way.
    pub(crate) fn within_factor(basis: PredictionBasis, value: f64, factor: f64) -> Self {
        Self::with_range(basis, value, value / factor, value * factor)
    }

    /// A predicted value and its range, in the metric's unit.
    pub(crate) fn with_range(basis: PredictionBasis, value: f64, low: f64, high: f64) -> Self {
        let prediction = Prediction {
            value,
            low,
            high,
            basis,
            formula: String::new(),
            inputs: Vec::new(),
            derivation: String::new(),
            sources: Vec::new(),
            calibration: None,
            formula_name: Cow::Borrowed(""),
            ceiling: None,
        };
        Self { prediction }
    }

    /// The same as another figure of the run, within this factor either way; `what` follows its value in the derivation, such as
    /// " as for adding it". It is complete but for further sources.
    pub(crate) fn same_as(other: Input, factor: f64, what: &str) -> Self {
        let mut same =
            Self::within_factor(PredictionBasis::Derived, other.value, factor).formula("the same", other.name.clone());
        same.prediction.derivation = format!("{}{what}", units::value_text(other.value, other.unit));
        same.input(other)
    }

    /// The formula: a name, which no other formula of the metric has, and its text for readers. Where two cases are computed in another
    /// way or from other facts, they have two names: what other machines tell of one says nothing of the other.
    pub(crate) fn formula(mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        (self.prediction.formula_name, self.prediction.formula) = (name.into(), text.into());
        self
    }

    /// The machine or the case states so much as the most, in the metric's unit: no correction raises the value above it, nor the range
    /// above its own upper end.
    pub(crate) fn ceiling(mut self, most: f64) -> Self {
        self.prediction.ceiling = Some(Ceiling { most, range_end: self.prediction.high.max(most) });
        self
    }

    /// One input.
    pub(crate) fn input(mut self, input: Input) -> Self {
        self.prediction.inputs.push(input);
        self
    }

    /// Several inputs.
    pub(crate) fn inputs(self, inputs: impl IntoIterator<Item = Input>) -> Self {
        inputs.into_iter().fold(self, Self::input)
    }

    /// A constant from a publication or from the machine's facts as an input.
    pub(crate) fn constant(self, name: impl Into<String>, value: f64, unit: Unit, source: impl Into<String>) -> Self {
        self.input(Input { name: name.into(), value, unit, source: source.into() })
    }

    /// Where formula and constants come from.
    pub(crate) fn source(mut self, source: impl Into<String>) -> Self {
        self.prediction.sources.push(source.into());
        self
    }

    /// The derivation with the figures put in, which completes the prediction.
    pub(crate) fn build_with(mut self, derivation: impl Into<String>) -> Prediction {
        self.prediction.derivation = derivation.into();
        self.prediction
    }

    /// The prediction, whose derivation is there.
    pub(crate) fn build(self) -> Prediction {
        debug_assert!(!self.prediction.derivation.is_empty() && !self.prediction.formula_name.is_empty());
        self.prediction
    }
}
