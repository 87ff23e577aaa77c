//! Flags of `kelvin report`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{OutputArgs, StoreArgs};

/// `kelvin report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run: an id or its prefix, `last`, `last~1`, `tag:NAME=VALUE`, or an exported file, - for standard
    /// input; or, with --format html, a file of `kelvin-cluster net`
    #[arg(default_value = "last")]
    pub run: OsString,
    /// How and where it is written
    #[command(flatten)]
    pub output: OutputArgs<ReportFormat>,
    /// Also write every figure as SVG and CSV into this directory
    #[arg(long, value_name = "DIR")]
    pub assets: Option<PathBuf>,
    /// Published machine to compare with, by id, or a file of an exported run, whose machine becomes a reference of its
    /// class; repeatable
    #[arg(long, value_name = "MACHINE")]
    pub compare_with: Vec<String>,
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
    /// InfluxDB's line protocol, one line per metric and case, as for Telegraf
    Influx,
    /// Apache Parquet: one row per metric and case
    Parquet,
    /// Apache Parquet: one row per sample
    ParquetSamples,
}
