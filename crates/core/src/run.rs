//! A run: what is stored, reported and compared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::{Id, Word};
use crate::{
    Bound, BoundRecord, BuildInfo, Case, Explanation, Fact, Hazard, KeptHeadline, Labels, Machine, Measurement, Metric,
    Name, NetworkPath, PlannedMeasurement, PredictionRecord, RoundOutcome,
};

/// Version of the stored format. A format is never edited, only followed by the next one.
pub const RUN_FORMAT: u32 = 1;

/// Everything known before the first measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHeader {
    /// Version of this format, [`RUN_FORMAT`].
    pub format: u32,
    /// Unique id, sortable by time.
    #[schemars(with = "Word")]
    pub id: String,
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// Version of kelvin.
    #[schemars(with = "Word")]
    pub kelvin: String,
    /// How that kelvin was built; runs before 0.2.0 and foreign runs do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildInfo>,
    /// The command line, as words.
    pub command: Vec<String>,
    /// What was asked for.
    pub settings: RunSettings,
    /// The clock that timed it.
    pub clock: ClockInfo,
    /// The machine.
    pub machine: Machine,
    /// Hazards found before the first measurement.
    pub hazards: Vec<Hazard>,
    /// Definitions of the metrics.
    pub metrics: Vec<Metric>,
    /// What is to be measured, in the order of reports.
    pub plan: Vec<PlannedMeasurement>,
    /// The spread between runs, learned from earlier runs of this machine.
    pub spread_history: Vec<SpreadHistory>,
    /// The block canary over the chain canary, each in its steady state, in earlier runs of this machine, oldest first:
    /// the reference of an unshared core.
    pub core_ratio_history: Vec<f64>,
    /// The path to the agent of another host, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_path: Option<NetworkPath>,
    /// Hardware bounds, where known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<BoundRecord>,
    /// The program that measured it, if not kelvin: its values have no spread, and little is known of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Foreign>,
}

/// The program that made a foreign run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Foreign {
    /// Its name: `fio`.
    #[schemars(with = "Word")]
    pub tool: Name,
    /// Its version, as it says.
    pub version: String,
}

/// The mode of a foreign run.
pub const FOREIGN_MODE: Name = Name::new("foreign");

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSettings {
    /// `quick`, `default`, `thorough`, `study`, `selfcheck`, `watch`, or `foreign`.
    #[schemars(with = "Word")]
    pub mode: Name,
    /// Time budget in seconds.
    pub budget_seconds: f64,
    /// Least number of rounds of each case.
    pub rounds: u32,
    /// Target half-width of the 95 % interval, as a share of the value.
    pub target: f64,
    /// Random seed.
    pub seed: u64,
    /// CPU that single-CPU probes run on.
    pub cpu: u32,
    /// The second CPU of pairs, if there is one.
    pub partner_cpu: Option<u32>,
    /// Whether canaries were read between batches.
    pub canaries: bool,
    /// Whether SCHED_FIFO was asked for and obtained.
    pub realtime: bool,
}

impl RunSettings {
    /// Whether the run is no picture of its machine: it answers one question, measures kelvin itself, or is what another program
    /// happened to measure.
    pub fn is_study(&self) -> bool {
        ["study", "selfcheck", FOREIGN_MODE.as_str()].contains(&self.mode.as_str())
    }
}

/// The clock that times a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockInfo {
    /// Which clock.
    pub kind: ClockKind,
    /// Ticks per second.
    pub hertz: f64,
    /// Error of `hertz`, as a share: half-width of its 95 % interval.
    pub relative_error: f64,
    /// Median cost of an empty start/stop pair, in nanoseconds.
    pub pair_nanoseconds: f64,
    /// Core cycles of a 64-bit multiply on the probes' CPU, verified: converts the frequency canary into hertz.
    pub multiply_cycles: Fact<u32>,
    /// Why a better clock is not used, if so.
    pub note: Option<String>,
    /// The kernel's clock source before the first round.
    pub source_before: Option<String>,
    /// The kernel's clock source after the last round; a change spoils the run.
    pub source_after: Option<String>,
}

/// A source of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// The invariant time-stamp counter of x86-64.
    Tsc,
    /// The virtual counter of aarch64, `cntvct_el0`.
    VirtualCounter,
    /// `clock_gettime(CLOCK_MONOTONIC_RAW)`.
    MonotonicRaw,
    /// A script; tests only.
    Scripted,
    /// Another program's, of a foreign run: nothing is known of it, and its nanoseconds are counted as its ticks. A kelvin that does
    /// not know foreign runs cannot read it, and so takes none for one of its own.
    Foreign,
}

/// The spread between runs of one metric at one case, learned from earlier runs of the same machine and method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadHistory {
    /// Id of the metric.
    #[schemars(with = "Id")]
    pub metric: Name,
    /// The case.
    pub case: Case,
    /// Headlines of earlier runs, oldest first.
    pub headlines: Vec<f64>,
    /// For each of them, the variance of its headline explained by its own rounds.
    pub within_variances: Vec<f64>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Everything planned was done.
    Complete,
    /// It was interrupted: it has what was measured until then.
    Partial(String),
}

/// A run, whole or partial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Everything known before the first measurement.
    #[serde(flatten)]
    pub header: RunHeader,
    /// The measurements, in the order of the plan.
    pub measurements: Vec<Measurement>,
    /// The headlines of a run that is kept without samples, by probe, metric and case; empty where the samples give them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_headlines: Vec<KeptHeadline>,
    /// Predictions made when it was measured.
    pub predictions: Vec<PredictionRecord>,
    /// What was found of the causes of its largest gaps between measured and predicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explanations: Vec<Explanation>,
    /// How it ended; a run without an end was killed and counts as partial.
    pub status: RunStatus,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Notes for the reader: targets not reached, points dropped.
    pub notes: Vec<String>,
    /// What people say of it: no part of what was measured.
    #[serde(flatten)]
    pub labels: Labels,
}

impl Run {
    /// A run that has only begun.
    pub fn from_header(header: RunHeader) -> Self {
        let measurements = header.plan.iter().cloned().map(Measurement::from_plan).collect();
        Self {
            header,
            measurements,
            kept_headlines: Vec::new(),
            predictions: Vec::new(),
            explanations: Vec::new(),
            status: RunStatus::Partial("killed before it ended".into()),
            seconds: 0.0,
            notes: Vec::new(),
            labels: Labels::default(),
        }
    }

    /// The same run without the readings of its rounds: what is shown of it, and far less to write.
    pub fn without_samples(&self) -> Self {
        Self {
            header: self.header.clone(),
            measurements: self.measurements.iter().map(Measurement::without_samples).collect(),
            kept_headlines: self.kept_headlines.clone(),
            predictions: self.predictions.clone(),
            explanations: self.explanations.clone(),
            status: self.status.clone(),
            seconds: self.seconds,
            notes: self.notes.clone(),
            labels: self.labels.clone(),
        }
    }

    /// Whether it is what [`Run::without_samples`] gives of a run that measured something. A round that measured always has readings.
    pub fn lacks_samples(&self) -> bool {
        let rounds = self.measurements.iter().flat_map(|measurement| &measurement.rounds);
        let mut measured = rounds.filter_map(|round| match &round.outcome {
            RoundOutcome::Measured(readings) => Some(readings),
            _ => None,
        });
        measured.next().is_some_and(Vec::is_empty) && measured.all(Vec::is_empty)
    }

    /// Whether it is kept by its headlines: its samples were not stored.
    pub fn is_kept_by_headlines(&self) -> bool {
        !self.kept_headlines.is_empty()
    }

    /// The headline that is kept of a metric of a measurement, of a run without samples.
    pub fn kept_headline(&self, measurement: &Measurement, metric: &Name) -> Option<&KeptHeadline> {
        let planned = &measurement.planned;
        let is_of =
            |kept: &&KeptHeadline| kept.metric == *metric && kept.probe == planned.probe && kept.case == planned.case;
        self.kept_headlines.iter().find(is_of)
    }

    /// The definition of a metric of this run.
    pub fn metric(&self, id: &str) -> Option<&Metric> {
        self.header.metrics.iter().find(|metric| metric.id == *id)
    }

    /// The prediction kept for a metric at a case.
    pub fn prediction(&self, metric: &str, case: &Case) -> Option<&PredictionRecord> {
        self.predictions.iter().find(|record| record.metric == *metric && record.case == *case)
    }

    /// What was found of the causes of a metric at a case, if they were tried.
    pub fn explanation(&self, metric: &str, case: &Case) -> Option<&Explanation> {
        self.explanations.iter().find(|explanation| explanation.metric.id == *metric && explanation.case == *case)
    }

    /// The hardware bound of a metric at a case, if known.
    pub fn bound(&self, metric: &str, case: &Case) -> Option<&Bound> {
        let mut records = self.header.bounds.iter();
        records.find(|record| record.metric == *metric && record.case == *case).map(|record| &record.bound)
    }

    /// Whether the kernel's clock source changed while it ran.
    pub fn has_clock_changed(&self) -> bool {
        let clock = &self.header.clock;
        clock.source_after.is_some() && clock.source_before != clock.source_after
    }
}
