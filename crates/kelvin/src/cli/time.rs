//! Flags of `kelvin time`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{OutputArgs, duration, number_between, percent_up_to_50, whole_number};
use crate::command_runner::CommandOutput;

/// `kelvin time`.
#[derive(Debug, Args)]
pub struct TimeArgs {
    /// Commands, each one argument in quotes, run by /bin/sh
    #[arg(required = true, value_name = "COMMAND", value_parser = command)]
    pub commands: Vec<String>,
    /// Exact number of runs of each command
    #[arg(long, short, value_name = "N", value_parser = number_between(1, 1_000_000), conflicts_with_all = ["min_runs", "max_runs", "until"])]
    pub runs: Option<u32>,
    /// Minimum runs of each command [default: 10]
    #[arg(long, short, value_name = "N", value_parser = number_between(1, 1_000_000))]
    pub min_runs: Option<u32>,
    /// Maximum runs of each command
    #[arg(long, short = 'M', value_name = "N", value_parser = number_between(1, 1_000_000))]
    pub max_runs: Option<u32>,
    /// Runs of each command at the beginning that do not count
    #[arg(long, short, value_name = "N", default_value = "1", value_parser = number_between(0, 1_000_000))]
    pub warmup: u32,
    /// Time of the whole, such as 45s or 10m; nothing exceeds it [default: 3 s for each command, or what the minimum of runs takes]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Continue until every mean and ratio is known to within this percentage, for ten minutes or the budget at most
    #[arg(long, value_name = "PERCENT", value_parser = percent_up_to_50)]
    pub until: Option<f64>,
    /// Percentage by which a time must differ to be longer or shorter
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent_up_to_50)]
    pub threshold: f64,
    /// Compare with this command, which is timed too, instead of the fastest
    #[arg(long, value_name = "COMMAND", value_parser = command)]
    pub reference: Option<String>,
    /// Name of a command in the report, one for each in their order
    #[arg(long, short = 'n', value_name = "NAME")]
    pub command_name: Vec<String>,
    /// Run this before each run of a command, outside its time; once for all, or one for each command
    #[arg(long, short, value_name = "COMMAND", value_parser = command)]
    pub prepare: Vec<String>,
    /// Run this after each run of a command, outside its time; once for all, or one for each command
    #[arg(long, short = 'C', value_name = "COMMAND", value_parser = command)]
    pub conclude: Vec<String>,
    /// Run this before the first run of each command; commands are then timed one after another
    #[arg(long, short, value_name = "COMMAND", value_parser = command)]
    pub setup: Option<String>,
    /// Run this after the last run of each command
    #[arg(long, short, value_name = "COMMAND", value_parser = command)]
    pub cleanup: Option<String>,
    /// Time each command with each of these values in place of {NAME}
    #[arg(long, short = 'L', num_args = 2, value_names = ["NAME", "VALUE,..."], allow_hyphen_values = true)]
    pub parameter_list: Vec<String>,
    /// Time each command with each number from MIN to MAX in place of {NAME}
    #[arg(long, short = 'P', num_args = 3, value_names = ["NAME", "MIN", "MAX"], allow_hyphen_values = true)]
    pub parameter_scan: Vec<String>,
    /// Step between the numbers of --parameter-scan
    #[arg(long, short = 'D', value_name = "STEP", requires = "parameter_scan")]
    pub parameter_step_size: Option<String>,
    /// Run commands without a shell
    #[arg(short = 'N', conflicts_with = "shell")]
    pub no_shell: bool,
    /// Shell that runs the commands, with its options; none: run them without one [default: /bin/sh]
    #[arg(long, short = 'S', value_name = "SHELL", value_parser = command)]
    pub shell: Option<String>,
    /// Go on where a command fails
    #[arg(long, short)]
    pub ignore_failure: bool,
    /// File on the standard input of the commands [default: none]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Where the output of the commands goes: null, pipe, inherit or a file
    #[arg(long, value_name = "WHERE", default_value = "null", value_parser = CommandOutput::from_str)]
    pub command_output: CommandOutput,
    /// Show the output of the commands: the same as --command-output inherit
    #[arg(long, conflicts_with = "command_output")]
    pub show_output: bool,
    /// Also write JSON, CSV or Markdown, each into a file
    #[command(flatten)]
    pub exports: TimeExports,
    /// How and where it is written
    #[command(flatten)]
    pub output: OutputArgs<TimeFormat>,
    /// Seed of the orders in which commands are run [default: the number of the process]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>)]
    pub seed: Option<u64>,
}

/// Files besides the output.
#[derive(Debug, Args)]
pub struct TimeExports {
    /// Also write JSON into this file
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// Also write CSV into this file
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// Also write Markdown into this file
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<PathBuf>,
}

/// A format of `kelvin time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeFormat {
    /// A table, and what it means
    #[value(alias = "text")]
    Terminal,
    /// Markdown
    Md,
    /// JSON, with the names of hyperfine's export
    Json,
    /// CSV: a line for each command
    Csv,
}

impl FromStr for CommandOutput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "" => return Err("expected null, pipe, inherit or the name of a file".into()),
            "null" => Self::Null,
            "pipe" => Self::Pipe,
            "inherit" => Self::Inherit,
            file => Self::File(file.into()),
        })
    }
}

/// A command, which does something.
pub(super) fn command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("expected a command, such as 'gzip -k data'".into()) } else { Ok(text.to_owned()) }
}
