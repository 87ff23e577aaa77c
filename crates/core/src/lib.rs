//! Plain data shared by all parts of kelvin: metrics, cases, readings, machines, predictions, runs and events.
//!
//! Nothing here measures, computes or prints. A [`Run`] carries the definitions of its metrics, so that it can be analysed and
//! rendered on another machine, even by a kelvin without the probe.
//!
//! Base units: time in nanoseconds, rates in units per second, sizes in bytes; see [`Unit`].
#![forbid(unsafe_code)]

mod axis;
mod bound;
mod canary;
mod case;
mod case_status;
pub mod catalogue;
mod compare;
mod conclusion;
mod event;
mod explanation;
mod gate;
mod hazard;
mod headline;
mod history;
pub mod identifiers;
mod interval;
pub mod json;
mod labels;
pub mod load;
mod machine;
mod machine_text;
mod measurement;
mod metric;
mod name;
mod network_path;
mod overview;
mod prediction;
pub mod quantity;
mod readings;
mod reference;
pub mod resources;
mod run;
pub mod text;
pub mod units;

pub use axis::{Axis, AxisScale};
pub use bound::{Bound, BoundRecord};
pub use canary::{CANARY_CHAIN_MULTIPLIES, Canaries, Canary};
pub use case::{AxisWord, Case, Value};
pub use case_status::{CaseStatus, CoreSteadyState, SteadyState};
pub use compare::{
    COMPARE_FORMAT, CauseFinding, CauseOfChange, ChangeVerdict, ComparedFigure, ComparedRun, ComparedRung,
    ComparedSide, Comparison, FactDifference, Interleaving, NotCompared, NotComparedReason, RatioBasis, SideFigure,
    SideMode, SpreadSource, UndecidedReason, worse_by,
};
pub use conclusion::{
    BestQuestion, Claim, Conclusion, Crossover, DependenceClaim, DependenceLaw, DependenceQuestion, Disturbance,
    DisturbanceClaim, Equivalence, Estimate, FactorOverFiles, GainOverFiles, Knee, LawDeviation, LimitProjection,
    LoadClaim, LoadComparison, LoadDoubt, LoadFigure, LoadLaw, LoadLawCheck, LoadLimit, LoadVerdict, MemoryLevelClaim,
    MetricValue, MoreWorkersClaim, NextLimitClaim, PValue, PublishedLoadCase, RatioQuestion, RequestLocation,
    ResourceUse, ScalabilityClaim, ShareQuestion, TestEvidence, TestOutcome, TimeChange, TransferClaim, TransferFactor,
    TunedSetting, UnknownLimit, UnsampledLimit,
};
pub use event::Event;
pub use explanation::{
    AmountFormula, AmountShare, AmountUnit, Arm, CauseResult, CauseTrial, CauseVerdict, EXPLANATION_FORMAT, Experiment,
    ExplainedPart, Explanation, FigureDifference, FormulaSize, MechanismEvidence, MechanismTrial, MetricCase,
    NegativeControl, PartKind,
};
pub use gate::{GateFinding, GateReason, GateResult, KnownIssue};
pub use hazard::{Hazard, Severity};
pub use headline::{AsFoundValue, MeasuredValue, MissingInput, StoredHeadline};
pub use history::{
    HISTORY_FORMAT, History, HistoryChange, HistoryChangeKind, HistoryPoint, HistoryRun, MachineRanking, OtherModeRuns,
    SeriesHistory, VersionHistory,
};
pub use interval::{Interval, IntervalKind};
pub use labels::Labels;
pub use machine::{
    BlockDevice, Cache, CacheKind, Chassis, Cpu, Fact, FactRow, Kernel, Limits, Machine, Memory, Mitigation, Mount,
    Nic, NumaNode, Platform, Tlb, Topology,
};
pub use machine_text::cpu_ranges;
pub use measurement::{CanaryReading, Measurement, PlannedMeasurement, Round, RoundOutcome, SkipReason};
pub use metric::{Better, HeadlineSamples, Metric, Need, Overhead, Unit};
pub use name::{Name, is_dotted_prefix};
pub use network_path::NetworkPath;
pub use overview::{
    AsFoundFigure, MissingFigures, MissingReason, Overview, OverviewFigure, Precision, PredictedRange,
    PredictionVerdict, PublishedTime, Rate, RateRow, Remedy, Rung, StandOut, StandOutQuestion, UsualRange,
};
pub use prediction::{Calibration, Ceiling, Input, NoPrediction, Prediction, PredictionBasis, PredictionRecord};
pub use readings::{Batches, MetricReadings, OverheadReading, Readings, SampleTags};
pub use reference::{Reference, ReferenceValue};
pub use run::{
    ClockInfo, ClockKind, FOREIGN_MODE, Foreign, RUN_FORMAT, Run, RunHeader, RunSettings, RunStatus, SpreadHistory,
};
