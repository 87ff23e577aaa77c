//! From a run to summaries, measured against predicted, warnings and verdicts.
//!
//! Pure: a stored run and a live run go through the same call, [`analyse`], and give the same [`Analysis`].
#![forbid(unsafe_code)]

mod result;

pub use result::{
    Analysis, CanaryHistory, Ceiling, Distribution, Figure, Finding, Importance, Interval, IntervalKind, MetricResult,
    Mode, Outcome, Summary, TagCount, Verdict, Warning,
};
