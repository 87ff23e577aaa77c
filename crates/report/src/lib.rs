//! From a run and its analysis to terminal, HTML, Markdown, JSON, CSV and SVG, and to the formats of other tools.
//!
//! Pure: every format is a [`Render`] of one [`Report`] onto a writer. Nothing here measures, judges or opens a file.
#![forbid(unsafe_code)]

use std::io;

use kelvin_analysis::Analysis;
use kelvin_core::{Name, Reference, Run};

pub mod assets;
mod axis;
pub mod cluster;
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "CSV needs fewer of its columns than Parquet"))]
mod columns;
pub mod command_times;
pub mod compare;
pub mod csv;
mod deviation_steps;
mod escape;
pub mod exports;
pub mod figures;
pub mod fleet;
pub mod history;
pub mod html;
pub mod json;
mod junit;
mod labels;
mod ladder;
pub mod markdown;
mod palette;
mod plot_layout;
mod published;
mod rivals;
mod scale;
pub mod sections;
mod study_tables;
pub mod svg;
pub mod terminal;
pub mod text;
pub mod units;
pub mod why;

pub use csv::{CsvSamples, CsvSummary};
pub use exports::{Bencher, Benchstat, GithubAction, Influx, OpenMetrics, Parquet, ParquetSamples};
pub use html::Html;
pub use json::Json;
pub use markdown::Markdown;
pub use terminal::{FirstScreen, Terminal, with_ascii_signs};

/// Everything that a report is made from.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The run, with its raw readings.
    pub run: &'a Run,
    /// Its analysis.
    pub analysis: &'a Analysis,
    /// Published machines to compare with.
    pub references: &'a [Reference],
    /// The texts of the probes; a probe missing here has no method text in the report.
    pub probes: &'a [ProbeDocs],
}

impl Report<'_> {
    /// The texts of a probe, if given.
    pub fn probe(&self, id: &str) -> Option<&ProbeDocs> {
        self.probes.iter().find(|probe| probe.id == *id)
    }
}

/// The texts of a probe, as in `kelvin explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeDocs {
    /// Id of the probe.
    pub id: Name,
    /// One sentence.
    pub summary: String,
    /// How it measures.
    pub method: String,
    /// How it is predicted, or why it is not.
    pub prediction: String,
    /// Known ways to get this number wrong, and how each is avoided.
    pub pitfalls: Vec<String>,
    /// Sources of method and constants.
    pub sources: Vec<String>,
    /// What the number must not be used for.
    pub must_not_be_used_for: Option<String>,
}

/// One output format.
pub trait Render {
    /// Writes the report.
    ///
    /// # Errors
    /// Those of the writer; a report itself can always be written.
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()>;
}
