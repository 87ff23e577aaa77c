//! Flags of `kelvin report`, and the format of an output by the ending of its file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::StoreArgs;

/// `kelvin report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run: an id or its prefix, `last`, `last~1`, `tag:NAME=VALUE`, or an exported file
    #[arg(default_value = "last")]
    pub run: OsString,
    /// Output format [default: by the ending of --output, such as .html; else terminal]
    #[arg(long, value_enum)]
    format: Option<ReportFormat>,
    /// Where to write it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write every figure as SVG and CSV into this directory
    #[arg(long, value_name = "DIR")]
    pub assets: Option<PathBuf>,
    /// Published machine to compare with, by id, or a file of an exported run, whose machine is judged with as one of its class;
    /// repeatable
    #[arg(long, value_name = "MACHINE")]
    pub beside: Vec<String>,
    /// Print all tables and conclusions instead of the first screen
    #[arg(long)]
    pub full: bool,
    /// In JSON: the samples too, up to ten times as much; only with them can it be imported
    #[arg(long)]
    pub with_samples: bool,
    /// Recompute the predictions with this kelvin's formulas
    #[arg(long)]
    pub repredict: bool,
    /// Include what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
    #[arg(long)]
    pub with_private: bool,
    /// The store
    #[command(flatten)]
    pub store: StoreArgs,
}

impl ReportArgs {
    /// The format that was asked for, or that the ending of the file names.
    pub fn format(&self) -> ReportFormat {
        choose_format(self.format, false, self.output.as_deref(), ReportFormat::Terminal)
    }
}

/// Endings of files that are not called like their format.
const FORMATS_BY_EXTENSION: [(&str, &str); 4] =
    [("htm", "html"), ("markdown", "md"), ("xml", "junit"), ("prom", "openmetrics")];

/// The format that was asked for; else the one that the ending of the file names, or the usual one where it names none.
pub(super) fn choose_format<F: ValueEnum>(asked: Option<F>, json: bool, output: Option<&Path>, usual: F) -> F {
    let of = |name: &str| F::from_str(name, true).ok();
    let ending = output.and_then(Path::extension).map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let named = || {
        let ending = ending?;
        let other = FORMATS_BY_EXTENSION.iter().find(|(known, _)| *known == ending).map(|(_, name)| *name);
        of(other.unwrap_or(&ending))
    };
    let asked = if json { of("json") } else { asked };
    asked.or_else(named).unwrap_or(usual)
}

/// A format of `kelvin report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// The first screen; with --full, all tables
    Terminal,
    /// One self-contained HTML page
    Html,
    /// Markdown
    Md,
    /// The run and its analysis as JSON
    Json,
    /// One line per metric and case
    Csv,
    /// One line per sample
    Samples,
    /// OpenMetrics text, as for the textfile collector of Prometheus' node_exporter
    Openmetrics,
    /// JSON for github-action-benchmark: what is better when it is lower
    CustomSmallerIsBetter,
    /// JSON for github-action-benchmark: what is better when it is higher
    CustomBiggerIsBetter,
    /// Bencher Metric Format: JSON for bencher.dev
    Bencher,
    /// Go's benchmark format, one line per round, as for benchstat
    Benchstat,
    /// Apache Parquet: one row per metric and case
    Parquet,
    /// Apache Parquet: one row per sample
    ParquetSamples,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CompareFormat;

    #[test]
    fn format_is_flag_or_file_extension() {
        let of =
            |asked, json, output: &str| choose_format(asked, json, Some(Path::new(output)), CompareFormat::Terminal);
        for (output, format) in [
            ("x.html", CompareFormat::Html),
            ("x.HTM", CompareFormat::Html),
            ("x.md", CompareFormat::Md),
            ("x.xml", CompareFormat::Junit),
            ("x.json", CompareFormat::Json),
            ("x.txt", CompareFormat::Terminal),
            ("html", CompareFormat::Terminal),
        ] {
            assert_eq!(of(None, false, output), format, "{output}");
        }
        assert_eq!(of(Some(CompareFormat::Md), false, "x.html"), CompareFormat::Md);
        assert_eq!(of(None, true, "x.html"), CompareFormat::Json);
        assert_eq!(choose_format(None, false, None, ReportFormat::Terminal), ReportFormat::Terminal);
        assert_eq!(
            choose_format(None, false, Some(Path::new("x.prom")), ReportFormat::Terminal),
            ReportFormat::Openmetrics
        );
        assert_eq!(choose_format(None, false, Some(Path::new("x.csv")), ReportFormat::Terminal), ReportFormat::Csv);
    }
}
