//! What a run measures: probes at cases, the rounds of each, and their outcomes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Id;
use crate::{Canary, Case, MetricReadings, Name};

/// One probe at one case that a run sets out to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMeasurement {
    /// Id of the probe.
    #[schemars(with = "Id")]
    pub probe: Name,
    /// Ids of the metrics that it measures.
    #[schemars(with = "Vec<Id>")]
    pub metrics: Vec<Name>,
    /// The case.
    pub case: Case,
    /// Whether it is measured (briefly) only as an input of predictions.
    pub only_input: bool,
}

/// One probe at one case: all its rounds, for all the metrics that it measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// The plan of it.
    #[serde(flatten)]
    pub planned: PlannedMeasurement,
    /// Its rounds, in the order in which they ran.
    pub rounds: Vec<Round>,
    /// Why it was not measured at all, if it was not.
    pub skipped: Option<SkipReason>,
}

/// One fresh process that ran one probe once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Number of the round of this case, from 0.
    pub index: u32,
    /// Seconds from the start of the run.
    pub start_seconds: f64,
    /// Lifetime of the process in seconds, with start and set-up.
    pub seconds: f64,
    /// How many of them were for timing: those planned, and those by which it went on until the core was undisturbed. Missing in
    /// studies that plan none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<f64>,
    /// The CPU that it ran on.
    pub cpu: u32,
    /// Its outcome.
    pub outcome: RoundOutcome,
}

impl Round {
    fn without_samples(&self) -> Self {
        let outcome = match &self.outcome {
            RoundOutcome::Measured(_) => RoundOutcome::Measured(Vec::new()),
            other => other.clone(),
        };
        Self { outcome, ..*self }
    }
}

/// The outcome of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoundOutcome {
    /// Readings: none in a report without samples, and at least one everywhere else.
    Measured(Vec<MetricReadings>),
    /// It was skipped, for a reason.
    Skipped(SkipReason),
    /// It crashed, hung, printed garbage or reported an error.
    Failed(String),
}

/// Why something was not measured: what is missing, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SkipReason(pub String);

impl SkipReason {
    /// A reason from words.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// One reading of a canary in the course of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CanaryReading {
    /// Seconds from the start of the run.
    pub seconds: f64,
    /// Which canary.
    pub canary: Canary,
    /// Its time, in nanoseconds.
    pub nanoseconds: f64,
}

impl Measurement {
    /// A measurement without rounds yet.
    pub fn from_plan(planned: PlannedMeasurement) -> Self {
        Self { planned, rounds: Vec::new(), skipped: None }
    }

    /// Without the readings of its rounds.
    pub(crate) fn without_samples(&self) -> Self {
        let (planned, skipped) = (self.planned.clone(), self.skipped.clone());
        Self { planned, rounds: self.rounds.iter().map(Round::without_samples).collect(), skipped }
    }

    /// The readings of one metric, with the round that made them, in order.
    pub fn readings<'a>(&'a self, metric: &'a str) -> impl Iterator<Item = (&'a Round, &'a MetricReadings)> {
        self.rounds.iter().filter_map(move |round| match &round.outcome {
            RoundOutcome::Measured(readings) => {
                readings.iter().find(|reading| reading.metric == *metric).map(|reading| (round, reading))
            }
            _ => None,
        })
    }

    /// The reasons of failed rounds.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.rounds.iter().filter_map(|round| match &round.outcome {
            RoundOutcome::Failed(reason) => Some(reason.as_str()),
            _ => None,
        })
    }

    /// The reason why it, or its first skipped round, was skipped.
    pub fn skip_reason(&self) -> Option<&SkipReason> {
        self.skipped.as_ref().or_else(|| {
            self.rounds.iter().find_map(|round| match &round.outcome {
                RoundOutcome::Skipped(reason) => Some(reason),
                _ => None,
            })
        })
    }
}
