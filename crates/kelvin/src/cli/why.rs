//! Flags of `kelvin why`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use super::{OutputArgs, RunOptions, StoreArgs, axis_value};

/// `kelvin why`.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The metric, by its whole id; `kelvin list` lists them
    #[arg(required_unless_present_any = ["causes", "gaps"])]
    pub metric: Option<String>,
    /// Values of its axes that select a case, such as placement=two_cpus
    #[arg(value_name = "AXIS=VALUE", value_parser = axis_value)]
    pub case: Vec<(String, String)>,
    /// Instead, explain each figure of a stored run of this machine that is at least this many times worse than
    /// predicted, one point of each curve
    #[arg(long, value_name = "TIMES", num_args = 0..=1, require_equals = true, default_missing_value = "2", value_parser = gap_factor)]
    #[arg(conflicts_with = "metric")]
    pub gaps: Option<f64>,
    /// The run for --gaps: an id or its prefix, `last`, `last~1`, `tag:NAME=VALUE`, or an exported file, - for standard input [default: last]
    #[arg(long, value_name = "RUN", requires = "gaps", conflicts_with_all = ["metric", "causes"])]
    pub run: Option<OsString>,
    /// List the known causes, and how each is tested
    #[arg(long, conflicts_with_all = ["metric", "gaps"])]
    pub causes: bool,
    /// How and where it is written
    #[command(flatten)]
    pub output: OutputArgs<WhyFormat>,
    /// How to measure
    #[command(flatten)]
    pub options: RunOptions,
    /// The store, for --gaps
    #[command(flatten)]
    pub store: StoreArgs,
}

/// A format of `kelvin why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhyFormat {
    /// A table
    Terminal,
    /// One page: the sum as a waterfall, and what else was tried
    Html,
    /// The waterfall alone
    Svg,
    /// JSON
    Json,
}

/// How many times.
fn gap_factor(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (1.0..=1000.0).contains(number));
    number.ok_or_else(|| "it must be a number from 1 to 1000, such as 2 or 1.5".to_owned())
}
