//! What ranks that run `kelvin run` are asked, and what they answer: plain data.

use std::path::PathBuf;

use kelvin_core::{Better, Estimate};
use serde::{Deserialize, Serialize};

/// While others measure, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// All hosts at once.
    Together,
    /// One host, while the others are idle.
    Alone,
}

impl Phase {
    /// As the tag of a run, the directory of its file and the file of results have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::Alone => "alone",
        }
    }
}

/// What rank 0 asks of another rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RunTask {
    /// To say which `kelvin` it starts, that at this path or the one that it finds.
    FindKelvin(Option<PathBuf>),
    /// To say how long a run with these options takes.
    Forecast(Vec<String>),
    /// To measure.
    Measure {
        /// While others measure, or not.
        phase: Phase,
        /// The name of its rank.
        label: String,
        /// The directory for the files of all runs.
        out: PathBuf,
        /// The options of `kelvin run`.
        options: Vec<String>,
        /// When it begins, in seconds since 1970 by its clock; at once where there is none.
        start_s: Option<f64>,
    },
    /// To compare its run alone with that together with others.
    Compare {
        /// The file of the first.
        alone: PathBuf,
        /// The file of the second.
        together: PathBuf,
    },
}

/// What another rank answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RunOutcome {
    /// What `kelvin` says that it is.
    Kelvin(String),
    /// A run takes about so many seconds.
    Forecast(f64),
    /// A run has ended.
    Measured(RunFile),
    /// What its two runs show.
    Compared(Vec<FigureRatio>),
}

/// A run of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// Its file, in the format of `kelvin runs export`.
    pub path: PathBuf,
    /// Whether all cases were measured.
    pub is_complete: bool,
    /// Seconds that the program ran.
    pub seconds: f64,
}

/// How a figure of one host differs between its two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureRatio {
    /// Metric and case, such as `os.switch.cross_cpu mechanism=pipe`.
    pub figure: String,
    /// Which direction is better.
    pub better: Better,
    /// Together over alone, with an interval of 95 % that has what runs of one host differ by.
    pub ratio: Estimate,
}
