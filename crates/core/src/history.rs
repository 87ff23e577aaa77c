//! A history: the figures of one machine over its runs, where they change for good, and what else changed there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Word;
use crate::{Better, Case, FactDifference, Metric, PValue, worse_by};

/// Version of the format of a history. A format is never edited, only followed by the next one.
pub const HISTORY_FORMAT: u32 = 1;

/// The figures of one machine in one mode over its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Version of this format, [`HISTORY_FORMAT`].
    pub history_format: u32,
    /// Identity of the machine.
    #[schemars(with = "Word")]
    pub machine: String,
    /// Marketing name of its processor, if known.
    pub cpu_model: Option<String>,
    /// The mode of its runs: `quick`, `default`, `thorough`, `study` or `watch`.
    #[schemars(with = "Word")]
    pub mode: String,
    /// The runs, oldest first; all else names them by their index here.
    pub runs: Vec<HistoryRun>,
    /// Whether there are older runs that were not asked for.
    pub has_older: bool,
    /// Runs of this machine in other modes, which are not shown: the mode, and how many.
    pub other_modes: Vec<OtherModeRuns>,
    /// The share of false ones among the changes that are told, on average at most.
    pub false_discovery_rate: f64,
    /// The series, the most consequential first.
    pub series: Vec<SeriesHistory>,
}

/// A run of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryRun {
    /// Its id.
    #[schemars(with = "Word")]
    pub id: String,
    /// Its start, RFC 3339 in UTC.
    pub started: String,
    /// The core's frequency over the usual one, the median of all these runs, by the chain canary; `None` of a run that did not keep it.
    pub frequency: Option<f64>,
}

/// Runs in a mode that is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherModeRuns {
    /// The mode.
    #[schemars(with = "Word")]
    pub mode: String,
    /// How many there are.
    pub runs: usize,
}

/// A metric at a case over the runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesHistory {
    /// The metric, as the newest run that has it defines it.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// Its values by version of the method, the oldest first: values of two versions mean something else, and are never joined.
    pub versions: Vec<VersionHistory>,
    /// Where the latest value stands among those of all machines in the store, if there are enough.
    pub ranking: Option<MachineRanking>,
}

/// The values by one version of the method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionHistory {
    /// The version.
    pub version: u32,
    /// The values, oldest first; at least one.
    pub points: Vec<HistoryPoint>,
    /// Where it changes for good, in their order.
    pub changes: Vec<HistoryChange>,
}

/// A value of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPoint {
    /// Index of the run.
    pub run: usize,
    /// The headline, in the metric's unit. What takes a fixed number of core cycles (headline `cycle_normalised`, in nanoseconds) is told at
    /// the usual frequency: what was measured is this over the run's `frequency`, where it has one.
    pub value: f64,
}

/// A change for good: a step, or a drift.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryChange {
    /// What kind of change it is.
    pub kind: HistoryChangeKind,
    /// Index of the first run after it; of a drift, of the run with which it ends.
    pub run: usize,
    /// The first and the last run that a step may have come with instead, at 95 %; from where to where a drift goes.
    pub run_interval: [usize; 2],
    /// The level before it, in the metric's unit: the median of its runs.
    pub before: f64,
    /// The level after it.
    pub after: f64,
    /// Its chance by accident; the joint one is corrected for all series that are shown together.
    pub p_value: PValue,
    /// The run before it and the run after it, between which what else changed is looked for.
    pub runs: [usize; 2],
    /// What else changed between these: machine, kernel, settings, versions; empty where nothing is known.
    pub differences: Vec<FactDifference>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryChangeKind {
    /// From one level to another between two runs.
    Step,
    /// Over many runs.
    Drift,
}

impl HistoryChange {
    /// What it became, as a ratio to what it was; `None` where that is nothing.
    pub fn ratio(&self) -> Option<f64> {
        positive_ratio(self.after, self.before)
    }

    /// Whether it is for the worse; `None` where neither direction is better.
    pub fn is_worse(&self, better: Better) -> Option<bool> {
        match better {
            Better::Neither => None,
            Better::Lower => Some(self.after > self.before),
            Better::Higher => Some(self.after < self.before),
        }
    }

    /// By which share it is for the worse; below zero where it is for the better.
    pub fn worse_by(&self, better: Better) -> Option<f64> {
        self.ratio().map(|ratio| worse_by(ratio, better))
    }
}

fn positive_ratio(value: f64, base: f64) -> Option<f64> {
    Some(value / base).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
}

/// Where a value stands among those of several machines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineRanking {
    /// How many machines, this one included.
    pub machines: usize,
    /// The share of the other machines that are better; where neither direction is, that are lower. Equal ones count half.
    pub better: f64,
}

impl SeriesHistory {
    /// The values by the newest version of the method.
    ///
    /// # Panics
    /// If there is none, which no history has.
    pub fn newest(&self) -> &VersionHistory {
        self.versions.last().expect("a series has a version")
    }

    /// The latest value, in the metric's unit.
    pub fn latest(&self) -> f64 {
        self.newest().points.last().map_or(f64::NAN, |point| point.value)
    }

    /// The latest value over the first one by the same version of the method.
    pub fn since_first(&self) -> Option<f64> {
        let points = &self.newest().points;
        positive_ratio(points.last()?.value, points.first()?.value).filter(|_| points.len() > 1)
    }

    /// The last change by the newest version of the method.
    pub fn last_change(&self) -> Option<&HistoryChange> {
        self.newest().changes.last()
    }
}
