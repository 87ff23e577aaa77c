//! Flags of `kelvin watch`.

use std::time::Duration;

use clap::Args;
use kelvin_store::Tag;

use super::{RunOptions, StoreArgs, duration, percent_up_to_50};

/// `kelvin watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// What to measure, at the points of a quick run: areas, probes, metrics, or any leading part of an id [default: cpu, os and what is
    /// cheap of mem, file and net, as is said at the start]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// From the beginning of one turn to that of the next, such as 30m or 6h; with --once: as often as it is started [default: 1h, or
    /// as much longer as the turns need here]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
    /// CPU time of all turns, as a share of the time of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent_up_to_50)]
    pub cpu_share: f64,
    /// Make one turn and end, for cron or a timer of systemd
    #[arg(long)]
    pub once: bool,
    /// Tell changes for the worse by at least this percentage
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent_up_to_50)]
    pub alert: f64,
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
