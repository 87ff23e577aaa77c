//! The names that nearly every probe uses.

pub(crate) use kelvin_core::{Case, Machine, Metric, NoPrediction, Prediction, PredictionBasis, Unit};
pub(crate) use kelvin_harness::{Bench, Effort, PredictionInputs, Probe, ProbeError};

pub(crate) use crate::cases::{
    AtEach, by_effort, numbers, required, required_number, required_u32, required_word, words,
};
pub(crate) use crate::formula::{Expr, bytes_of, count_of, fact, measured, published, quantity};
pub(crate) use crate::reasons::{
    OrFileFailure, OrReason, Predicted, ProbeResult, fail_if, infallible, skip_if, unpredicted_if,
};
