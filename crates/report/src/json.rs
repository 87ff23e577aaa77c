//! JSON: the run and its analysis, versioned; its schema is published as `docs/report.schema.json`.

use std::io;

use kelvin_analysis::Analysis;
use kelvin_core::{Reference, Run, json};
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::{Render, Report};

/// Version of this format; a format is never edited, only followed by the next one.
pub const FORMAT: u32 = 2;

/// The JSON report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json {
    /// Whether to indent it for people.
    pub pretty: bool,
    /// Whether the run has its samples: up to nine tenths of the report.
    pub samples: bool,
}

/// What is written.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "kelvin report")]
struct Document<'a> {
    /// Version of this format.
    report_format: u32,
    /// Whether the rounds of the run have their readings; without them the run cannot be imported.
    samples: bool,
    /// The run.
    run: &'a Run,
    /// Its analysis.
    analysis: &'a Analysis,
    /// Published machines to compare with.
    references: &'a [Reference],
}

/// The JSON Schema of this format.
pub fn schema() -> Schema {
    schemars::schema_for!(Document<'static>)
}

impl Render for Json {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let run_without_samples = (!self.samples).then(|| report.run.without_samples());
        let document = Document {
            report_format: FORMAT,
            samples: self.samples,
            run: run_without_samples.as_ref().unwrap_or(report.run),
            analysis: report.analysis,
            references: report.references,
        };
        let json = if self.pretty { json::to_string_pretty(&document) } else { json::to_string(&document) }?;
        writeln!(out, "{json}")
    }
}
