//! Times of commands as CSV: a line for each, with the columns of hyperfine's export, then kelvin's.

use std::collections::BTreeSet;
use std::io;

use kelvin_core::{CommandTimes, TimedCommand};

use crate::csv::{csv_writer, escape_formula};

/// Writes it.
///
/// # Errors
/// Those of the lines.
pub fn write_csv(times: &CommandTimes, out: &mut dyn io::Write) -> io::Result<()> {
    let parameters: BTreeSet<&String> = times.results.iter().flat_map(|command| command.parameters.keys()).collect();
    let mut lines = csv_writer(out);
    let head = ["command", "mean", "stddev", "median", "user", "system", "min", "max"].map(str::to_owned);
    let own = ["mean_low", "mean_high", "ratio", "ratio_low", "ratio_high"].map(str::to_owned);
    lines.write_record(head.into_iter().chain(parameters.iter().map(|name| format!("parameter_{name}"))).chain(own))?;
    for command in &times.results {
        let value = |name: &&String| command.parameters.get(*name).map(|value| escape_formula(value).into_owned());
        let values = parameters.iter().map(|name| value(name).unwrap_or_default());
        lines.write_record(moments(command).into_iter().chain(values).chain(intervals(command)))?;
    }
    lines.flush()
}

fn moments(command: &TimedCommand) -> [String; 8] {
    let TimedCommand { mean, stddev, median, user, system, min, max, .. } = command;
    let numbers = [Some(*mean), *stddev, Some(*median), Some(*user), Some(*system), Some(*min), Some(*max)];
    let [mean, stddev, median, user, system, min, max] = numbers.map(optional);
    [escape_formula(&command.command).into_owned(), mean, stddev, median, user, system, min, max]
}

fn intervals(command: &TimedCommand) -> [String; 5] {
    let ratio = command.relative.map(|relative| relative.ratio);
    let interval = ratio.filter(|ratio| !ratio.is_range);
    let [low, high] = [0, 1].map(|end| command.mean_interval.map(|interval| interval[end]));
    [low, high, ratio.map(|ratio| ratio.value), interval.map(|ratio| ratio.low), interval.map(|ratio| ratio.high)]
        .map(optional)
}

fn optional(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
