//! Flags of `kelvin watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kelvin_store::Tag;

use super::{RunOptions, StoreArgs, duration, percent_up_to_50};

/// `kelvin watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// What to measure, at the points of a quick run: areas, probes, metrics, or any leading part of an id [default:
    /// cpu, os and the cheap parts of mem, file and net, as printed at the start]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Interval between the starts of two runs, such as 30m or 6h; with --once: the interval at which it is started
    /// [default: 1h, or longer if the runs need it here]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
    /// CPU time of all runs, as a share of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent_up_to_50)]
    pub cpu_share: f64,
    /// Make one run and exit, for cron or a systemd timer
    #[arg(long)]
    pub once: bool,
    /// Report regressions of at least this percentage
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent_up_to_50)]
    pub alert: f64,
    /// Print each regression as one line of JSON
    #[arg(long, short_alias = 'J')]
    pub json: bool,
    /// After each run write its figures and the regressions that last, as OpenMetrics text for node_exporter's textfile
    /// collector
    #[arg(long, value_name = "FILE")]
    pub openmetrics: Option<PathBuf>,
    /// A tag of each run, such as rack=b7; repeatable
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub tags: Vec<Tag>,
    /// Keep in the runs what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
    #[arg(long)]
    pub with_private: bool,
    /// How to measure
    #[command(flatten)]
    pub options: RunOptions,
    /// The store
    #[command(flatten)]
    pub store: StoreArgs,
}
