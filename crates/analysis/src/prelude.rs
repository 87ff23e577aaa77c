//! The names that the files of the analysis share.

pub(crate) use crate::bounds::exceeded_bound;
pub(crate) use crate::canaries::CanaryReferences;
pub(crate) use crate::evidence::{
    ClaimTest, EQUIVALENCE_MARGIN, Evidence, RatioAnswer, RatioTest, RoundHeadlines, ShareTest, TestedFigure,
    estimate_from_logarithm, interval_estimate, outcome_of_p_value, p_value_of_all, p_value_of_any, ratio_of_rounds,
};
pub(crate) use crate::headlines::{
    Baselines, ComputedHeadline, clamp_estimate, core_hertz, measured_metrics, metrics_of,
};
pub(crate) use crate::metric_selector::{MetricSelector, select};
pub(crate) use crate::result::*;
pub(crate) use crate::samples::{
    SampleSet, assumed_between_run_std, each_once, find_or_push, missing_outcome, missing_text, round_medians,
};
pub(crate) use crate::studies::crossing::{distinct, without_axes};
pub(crate) use crate::summary::{modes_text, rename_modes};
pub(crate) use crate::wording::{
    amount_text, capitalise, counted_text, growth_end_place, list_text, metric_and_case, ratio_text, share_text,
    span_text,
};
pub(crate) use kelvin_core::catalogue::PairPlacement;
pub(crate) use kelvin_core::units::{brief_value, bytes, number, p_value, percent, seconds, span, value_text};
pub(crate) use kelvin_core::*;
pub(crate) use kelvin_stats::*;
