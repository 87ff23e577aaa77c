//! What rank 0 writes of runs to the file of results: plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ratios::CommonRatio;
use super::task::{FigureRatio, Phase, RunFile};

/// What is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The directory for the files of all runs.
    pub out: PathBuf,
    /// The options of `kelvin run`.
    pub options: Vec<String>,
    /// Whether each host also measures alone.
    pub has_alone: bool,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// How long it is expected to take.
    Forecast {
        /// The ranks that measure, one of each host.
        ranks: Vec<usize>,
        /// Seconds of one run, of the host whose takes longest.
        run_seconds: f64,
    },
    /// A host has measured.
    Run {
        /// Its rank.
        rank: usize,
        /// While others did, or not.
        phase: Phase,
        /// The run.
        run: RunFile,
    },
    /// A host has not measured.
    RunFailed {
        /// Its rank.
        rank: usize,
        /// While others did, or not.
        phase: Phase,
        /// Why.
        reason: String,
    },
    /// What the two runs of a host show.
    Compared {
        /// Its rank.
        rank: usize,
        /// All figures of both.
        figures: Vec<FigureRatio>,
    },
    /// The runs of a host cannot be compared.
    CompareFailed {
        /// Its rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// What the runs of all hosts show together.
    Ratios {
        /// Each figure, those that differ first.
        ratios: Vec<CommonRatio>,
    },
}
