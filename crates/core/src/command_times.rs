//! What `kelvin time` found of commands: times, resource usage, and how their times compare.
//!
//! The names of fields that hyperfine's export has too are hyperfine's: its scripts read this.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Estimate;

/// Version of the format of times of commands. A format is never edited, only followed by the next one.
pub const TIME_FORMAT: u32 = 1;

/// The times of one command or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandTimes {
    /// Version of this format, [`TIME_FORMAT`].
    pub time_format: u32,
    /// The commands, as they were given.
    pub results: Vec<TimedCommand>,
    /// The place in `results` of the command whose time the others are compared with.
    pub reference: usize,
    /// Whether the reference was chosen as the fastest, and not by the user.
    pub reference_is_fastest: bool,
    /// How the runs of several commands followed each other.
    pub order: RunOrder,
    /// Share by which a time must differ to be faster or slower, and within which it is the same.
    pub threshold: f64,
    /// Seconds that starting the shell takes, which each time contains; none without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_seconds: Option<f64>,
    /// Seconds that all of it took.
    pub seconds: f64,
    /// Whether it was interrupted, and has only what was measured until then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
}

/// How the runs of several commands followed each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOrder {
    /// In blocks: each command once in a random order, then again in the reverse order.
    Interleaved,
    /// All runs of one command, then those of the next: what changes on the machine meanwhile counts as a difference.
    Sequential,
}

/// A command and its runs. All times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimedCommand {
    /// Its name, or what was run.
    pub command: String,
    /// The values of parameters in it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Mean time from start to end.
    pub mean: f64,
    /// 95 % interval of the mean; none of fewer than eight runs.
    pub mean_interval: Option<[f64; 2]>,
    /// Standard deviation of the times; none of one run.
    pub stddev: Option<f64>,
    /// Median time.
    pub median: f64,
    /// Mean CPU time in user mode.
    pub user: f64,
    /// Mean CPU time in the kernel.
    pub system: f64,
    /// Shortest time.
    pub min: f64,
    /// Longest time.
    pub max: f64,
    /// The time of each run.
    pub times: Vec<f64>,
    /// CPU time in user mode of each run.
    pub user_times: Vec<f64>,
    /// CPU time in the kernel of each run.
    pub system_times: Vec<f64>,
    /// Largest resident set of any process of each run, in bytes.
    pub memory_usage_byte: Vec<u64>,
    /// Minor page faults of each run.
    pub minor_faults: Vec<u64>,
    /// Context switches of each run, voluntary or not.
    pub context_switches: Vec<u64>,
    /// Exit status of each run; none where a signal ended it.
    pub exit_codes: Vec<Option<i32>>,
    /// The modes of its times, the fastest first, where they have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<TimeMode>,
    /// The time of the first warm-up run, which does not count; none without warm-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<f64>,
    /// Its time over that of the reference; none of the reference itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<RelativeTime>,
}

/// One of several modes of the times of a command.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeMode {
    /// Its median, in seconds.
    pub center: f64,
    /// Its share of all runs.
    pub share: f64,
}

/// The time of a command over that of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelativeTime {
    /// The ratio. Its interval holds together with those of all pairs of commands, in 95 of 100 cases: so the fastest may be the reference.
    /// A range of blocks, or nothing, with too few runs.
    pub ratio: Estimate,
    /// What follows from it.
    pub verdict: TimeVerdict,
    /// What the difference of the mean times is made of.
    pub difference: TimeDifference,
}

/// Whether a command takes more time than the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeVerdict {
    /// Less, by more than the threshold.
    Faster,
    /// More, by more than the threshold.
    Slower,
    /// As much, within the threshold.
    Same,
    /// Its interval allows several of these.
    NotKnown,
}

/// The difference of two mean times in seconds, by what a command does in them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeDifference {
    /// The command's time less that of the reference.
    pub time: f64,
    /// The part of CPU time in user mode.
    pub user: f64,
    /// The part of CPU time in the kernel.
    pub system: f64,
    /// The part of time without CPU time: waiting for devices, other processes, or the CPU. None where a command used several CPUs at once:
    /// then CPU time is no part of the time.
    pub waiting: Option<f64>,
}
