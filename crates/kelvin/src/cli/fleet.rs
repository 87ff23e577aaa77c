//! Flags of `kelvin fleet`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{OutputArgs, StoreArgs, percent_up_to_50};

/// `kelvin fleet`.
#[derive(Debug, Args)]
pub struct FleetArgs {
    /// What to do with the runs of many hosts
    #[command(subcommand)]
    pub command: FleetCommand,
    /// The store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What to do with the runs of many hosts.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Compare hosts that should be alike: which one is out, at what, and by how much
    #[command(after_help = help!("fleet-report"))]
    Report(Box<FleetReportArgs>),
}

/// `kelvin fleet report`.
#[derive(Debug, Args)]
pub struct FleetReportArgs {
    /// Runs: all with a tag (`tag:fleet=2026-11`), a range (`last~99..last`), a run, exported files, or directories of them; several add up
    /// [default: all of the store]
    #[arg(value_name = "SELECTION")]
    pub selections: Vec<OsString>,
    /// Compare a host only with those that have the same value of this tag, such as rack
    #[arg(long, value_name = "TAG", value_parser = kelvin_store::checked_tag_name)]
    pub by: Option<String>,
    /// Accept each host against the hosts of these runs: it passes, or fails with reasons; repeatable
    #[arg(long, value_name = "SELECTION")]
    pub like: Vec<OsString>,
    /// Mode of the runs: quick, default, thorough or watch [default: the one with the most runs]
    #[arg(long)]
    pub mode: Option<String>,
    /// Percentage by which a figure must differ from the median of its peers for its host to be out
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent_up_to_50)]
    pub threshold: f64,
    /// Exit with status 1 if a host is out, or with --like not accepted
    #[arg(long, value_name = "outlier", value_enum)]
    pub fail_on: Option<FleetGate>,
    /// Also write the page with a heat map of hosts and metrics
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print all hosts and figures instead of one screen
    #[arg(long)]
    pub full: bool,
    /// How and where it is written
    #[command(flatten)]
    pub output: OutputArgs<FleetFormat>,
    /// Include what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
    #[arg(long)]
    pub with_private: bool,
}

/// What ends `kelvin fleet report` with status 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FleetGate {
    /// A host that is out
    Outlier,
}

/// A format of `kelvin fleet report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FleetFormat {
    /// One screen; with --full, all hosts and figures
    #[value(alias = "text")]
    Terminal,
    /// One page: hosts that are out, a heat map of hosts and metrics, all figures
    Html,
    /// Markdown
    Md,
    /// JSON
    Json,
    /// CSV: a line for each figure of a group, with its distribution over hosts
    Csv,
    /// JUnit's XML: a case for each host, a failure for each that is out
    Junit,
    /// OpenMetrics text for Prometheus and node_exporter
    Openmetrics,
}
