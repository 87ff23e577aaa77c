//! Plain data shared by all parts of kelvin: metrics, cases, readings, machines, predictions, runs and events.
//!
//! Nothing here measures, computes or prints. A [`Run`] carries the definitions of its metrics, so that it can be analysed and
//! rendered on another machine, even by a kelvin without the probe.
//!
//! Base units: time in nanoseconds, rates in units per second, sizes in bytes; see [`Unit`].
#![forbid(unsafe_code)]

mod bound;
mod case;
mod compare;
mod conclusion;
mod event;
mod gate;
pub mod grammar;
mod hazard;
mod headline;
mod history;
mod interval;
pub mod json;
mod labels;
pub mod load;
mod machine;
mod machine_text;
mod metric;
mod name;
mod path_to_agent;
mod prediction;
pub mod quantity;
mod readings;
mod reference;
pub mod resources;
mod run;
mod screen;
mod standing;
mod study;
pub mod text;
pub mod units;
mod why;

pub use bound::{Bound, BoundRecord};
pub use case::{Case, Point, Value};
pub use compare::{
    COMPARE_FORMAT, CauseFound, CauseOfChange, ChangeVerdict, ComparedFigure, ComparedRun, ComparedRung, ComparedSide,
    Comparison, FactDiffers, FigureOfSide, InTurn, KnownFrom, ModeOfSide, NotCompared, NotComparedBecause,
    NotKnownBecause, RatioOf, worse_by,
};
pub use conclusion::{
    AlongClaim, AlongLaw, AlongQuestion, BestQuestion, Chance, Change, ChangeOfSides, Claim, Conclusion, Estimate,
    Furthest, GainOverFiles, Hindrance, Knee, LawClaim, LevelClaim, LoadClaim, LoadComparison, LoadDoubt, LoadFigure,
    LoadHindrance, LoadLaw, LoadLawCheck, LoadLimit, LoadMoreWorkers, LoadVerdict, LoadWhatIf, OverFiles,
    PublishedLoad, RatioQuestion, ResourceUse, Same, Setting, ShareQuestion, Side, Test, Tested, TransferClaim,
    TransferFactor, UnknownLimit, Unwatched, WhatIf, Whereabouts,
};
pub use event::Event;
pub use gate::{GateFinding, GateReason, Gated, KnownIssue};
pub use hazard::{Hazard, Severity};
pub use headline::{AsFound, Headline, Lacking, MeasuredValue};
pub use history::{
    Among, HISTORY_FORMAT, History, HistoryChange, HistoryChangeKind, HistoryPoint, OtherMode, RunOfHistory,
    SeriesHistory, VersionHistory,
};
pub use interval::{Interval, IntervalKind};
pub use labels::Labels;
pub use machine::{
    BlockDevice, Cache, CacheKind, Chassis, Cpu, Fact, FactRow, Kernel, Limits, Machine, Memory, Mitigation, Mount,
    Nic, NumaNode, Platform, Tlb, Topology,
};
pub use machine_text::cpu_ranges;
pub use metric::{
    Axis, AxisScale, Better, CANARY_CHAIN_MULTIPLIES, Canaries, Canary, Metric, Need, Overhead, Treatment, Unit,
};
pub use name::{Name, leads};
pub use path_to_agent::PathToAgent;
pub use prediction::{Basis, Calibration, Ceiling, Input, NoPrediction, Prediction, PredictionRecord};
pub use readings::{Batches, OverheadReading, Reading, Readings, Tags};
pub use reference::{Reference, ReferenceValue};
pub use run::{
    Attempt, CanaryPoint, ClockInfo, ClockKind, FOREIGN_MODE, FORMAT, Foreign, Learned, Measurement, Outline, Planned,
    Reason, Round, Run, RunSettings, RunStatus,
};
pub use screen::{
    AgainstPrediction, FoundFigure, Missing, MissingWhy, Place, Precision, PredictedRange, PublishedTime, Question,
    Rate, RateLine, Remedy, Rung, Screen, ScreenFigure, StandOut, UsualRange,
};
pub use standing::{Standing, Steady, SteadyCore};
pub use study::{WordedConclusion, WordedStudy};
pub use why::{
    AmountBy, Amounts, Arm, ByFormula, Bystander, CauseVerdict, Difference, Evidence, Experiment, Explanation,
    JudgedCause, MetricAt, Part, PartOf, Share, TriedCause, TriedMechanism, WHY_FORMAT,
};
