//! Flags of `kelvin history`.

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use kelvin_core::quantity::parse_duration;

use super::{OutputArgs, StoreArgs, defaults, number_between, percent_up_to_50};

/// Runs that are looked at unless more are asked for.
const DEFAULT_RUNS: u32 = 1000;
/// The most that can be asked for.
const MAX_RUNS: u32 = 100_000;

/// `kelvin history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Areas, probes or metrics, or a leading part of their ids; `kelvin list` lists them
    #[arg(value_name = "NAME", value_parser = parse_metric_name)]
    pub names: Vec<String>,
    /// All metrics
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// The machine, by its identity or the beginning of one, as `kelvin runs list` shows it [default: this machine]; it stays the same
    /// machine with another kernel or other settings
    #[arg(long, value_name = "IDENTITY")]
    pub machine: Option<String>,
    /// Mode of the runs: quick, default, thorough, study or watch [default: the one with the most runs]
    #[arg(long)]
    pub mode: Option<String>,
    /// Show only runs since then: a time back (30d, 12h, 8w), or a day in UTC (2026-10-01); with --alert, changes
    /// detected since then
    #[arg(long, value_name = "WHEN", value_parser = |text: &str| parse_since(text, Timestamp::now()))]
    pub since: Option<Timestamp>,
    /// Use only this many of the newest runs
    #[arg(long, value_name = "RUNS", default_value_t = DEFAULT_RUNS, value_parser = number_between(1, MAX_RUNS))]
    pub limit: u32,
    /// Print only the series with a regression of at least this percentage first detected with the last run, or with
    /// the runs since --since; exit with status 1 if there is one
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "1", value_parser = percent_up_to_50)]
    #[arg(conflicts_with = "output")]
    pub alert: Option<f64>,
    /// Print all series and changes instead of one screen
    #[arg(long)]
    pub full: bool,
    /// How and where it is written
    #[command(flatten)]
    pub output: OutputArgs<HistoryFormat>,
    /// Include what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
    #[arg(long)]
    pub with_private: bool,
    /// The store
    #[command(flatten)]
    pub store: StoreArgs,
}

impl HistoryArgs {
    /// What names select, in the newest runs of this machine in one mode.
    pub fn for_watch(names: Vec<String>, mode: &str, store: StoreArgs) -> Self {
        Self { all: names.is_empty(), names, mode: Some(mode.to_owned()), store, ..defaults() }
    }
}

/// A format of `kelvin history`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryFormat {
    /// One screen; with --full, all series
    Terminal,
    /// One page with a sparkline of each series
    Html,
    /// Markdown
    Md,
    /// JSON
    Json,
}

/// A name; an empty one begins every id.
fn parse_metric_name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("expected a name, such as os.syscall; --all shows all of them".into());
    }
    Ok(text.to_owned())
}

/// The time that is so long before now, or at which a day begins.
fn parse_since(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    const SINCE_HELP: &str = "expected a time back, such as 30d, 12h or 8w, or a day such as 2026-10-01";
    // A bare number is neither.
    if text.ends_with(|letter: char| letter.is_alphabetic()) {
        let age = parse_duration(text).map_err(|_| format!("{SINCE_HELP}, within a century"))?;
        return Ok(now.saturating_sub(age).unwrap_or(Timestamp::MIN));
    }
    let is_date = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let day: Date = text.parse().ok().filter(|_| is_date).ok_or_else(|| SINCE_HELP.to_owned())?;
    let midnight = day.to_zoned(TimeZone::UTC).map_err(|_| SINCE_HELP.to_owned())?;
    Ok(midnight.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_duration_or_day() {
        let parsed_seconds = |text: &str| parse_since(text, Timestamp::UNIX_EPOCH).map(Timestamp::as_second);
        assert_eq!(["12h", "30d", "2w"].map(parsed_seconds), [12, 720, 336].map(|hours| Ok(-3600 * hours)));
        assert_eq!(parsed_seconds("1970-01-02"), Ok(86_400));
        for text in
            ["", "d", "0d", "-1d", "30", "2026-13-01", "yesterday", "99999999999999999999d", "40000d", "2026-10-01T00"]
        {
            assert!(parsed_seconds(text).is_err(), "{text}");
        }
    }
}
