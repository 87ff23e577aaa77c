//! Times of commands, as `kelvin time` prints them: for a terminal, as Markdown and as CSV.

mod csv;
mod markdown;
mod terminal;

use kelvin_core::units::{self, number, percent, plural};
use kelvin_core::{CommandTimes, RelativeTime, RunOrder, TimeDifference, TimeVerdict, TimedCommand, Unit};

pub use self::csv::write_csv;
pub use self::markdown::write_markdown;
pub use self::terminal::CommandTimesTerminal;

/// Share of a time from which that of the shell in it is worth a sentence.
const MIN_SHELL_SHARE: f64 = 0.01;
/// How many times the longest run a warm-up run takes that found something cold.
const MIN_COLD_RATIO: f64 = 1.5;
/// Share of a difference from which a part of it is named.
const MIN_PART: f64 = 0.05;

/// Seconds for people: `1.23 s`, `302 ms`.
fn time_text(seconds: f64) -> String {
    if seconds == 0.0 { "0 s".to_owned() } else { units::value_text(seconds * 1e9, Unit::Nanoseconds) }
}

/// A mean with half of its interval: `302.1 ± 0.8 ms`.
fn mean_text(command: &TimedCommand) -> String {
    let half_width = command.mean_interval.map(|[low, high]| (high - low) / 2.0 * 1e9);
    units::quantity(command.mean * 1e9, half_width, Unit::Nanoseconds).to_string()
}

/// The ratio to the reference with its interval, `2.31 (2.25 to 2.36)`, or with the range of few runs, `2.31 [2.2 to 2.4]`.
fn ratio_text(relative: Option<&RelativeTime>) -> String {
    let Some(RelativeTime { ratio, .. }) = relative else { return "1".to_owned() };
    let [value, low, high] = [ratio.value, ratio.low, ratio.high].map(number);
    if ratio.is_range { format!("{value} [{low} to {high}]") } else { format!("{value} ({low} to {high})") }
}

/// The largest resident set of all runs.
fn memory_text(command: &TimedCommand) -> String {
    let peak = command.memory_usage_byte.iter().copied().max().unwrap_or(0);
    units::value_text(peak as f64, Unit::Bytes)
}

/// What was run how often, in one line.
fn title(times: &CommandTimes) -> String {
    let runs = times.results.iter().map(|command| command.times.len()).max().unwrap_or(0);
    let commands = times.results.len();
    let order = match times.order {
        _ if commands == 1 => "",
        RunOrder::Interleaved => " of each, interleaved",
        RunOrder::Sequential => " of each, one command after another",
    };
    let interruption = if times.is_partial { " (interrupted)" } else { "" };
    format!(
        "{}, {}{order}, in {}{interruption}",
        plural(commands as u64, "command"),
        plural(runs as u64, "run"),
        units::seconds(times.seconds)
    )
}

/// What the times mean, a sentence each.
fn sentences(times: &CommandTimes) -> Vec<String> {
    let reference = &times.results[times.reference];
    let others = times.results.iter().filter_map(|command| Some((command, command.relative.as_ref()?)));
    let mut sentences: Vec<String> = match times.results.len() {
        1 => vec![usage_text(reference)],
        _ => others.map(|(command, relative)| comparison_text(command, relative, reference, times)).collect(),
    };
    for command in &times.results {
        sentences.extend(modes_text(command));
        sentences.extend(failures_text(command));
        sentences.extend(warmup_text(command));
    }
    sentences.extend(shell_text(times));
    if times.order == RunOrder::Sequential && times.results.len() > 1 {
        sentences.push("With --setup each command has its runs in sequence: what changed on the machine meanwhile counts as a difference.".into());
    }
    sentences
}

/// What a command does in its time.
fn usage_text(command: &TimedCommand) -> String {
    let (user, system) = (command.user / command.mean, command.system / command.mean);
    let waiting = 1.0 - user - system;
    if waiting < 0.0 {
        return format!(
            "It uses {} on average, {} of that time in the kernel.",
            units::cpus(user + system),
            percent(system / (user + system))
        );
    }
    format!(
        "Its time is CPU time in user mode ({}), in the kernel ({}), and waiting for devices, other processes or the CPU ({}).",
        percent(user),
        percent(system),
        percent(waiting)
    )
}

/// How a command compares with the reference.
fn comparison_text(
    command: &TimedCommand,
    relative: &RelativeTime,
    reference: &TimedCommand,
    times: &CommandTimes,
) -> String {
    let (name, base, ratio) = (&command.command, &reference.command, &relative.ratio);
    let interval = format!("{} to {}", number(ratio.low), number(ratio.high));
    match relative.verdict {
        TimeVerdict::Slower | TimeVerdict::Faster => format!(
            "{name} takes {} times as long as {base} (95 %: {interval}){}.",
            number(ratio.value),
            difference_text(&relative.difference)
        ),
        TimeVerdict::Same => format!("{name} takes as long as {base}, within {}.", percent(times.threshold)),
        TimeVerdict::NotKnown if ratio.is_range => {
            format!("Whether {name} takes longer than {base} is not known: an interval needs 8 runs (-r 8).")
        }
        TimeVerdict::NotKnown => format!(
            "Whether {name} takes longer than {base} is not known to {}: {} times as long (95 %: {interval}); --until goes on until it is.",
            percent(times.threshold),
            number(ratio.value),
        ),
    }
}

/// What a difference is made of, where one or two parts are most of it.
fn difference_text(difference: &TimeDifference) -> String {
    let TimeDifference { time, user, system, waiting } = *difference;
    let word = if time > 0.0 { "more" } else { "less" };
    let named = [("CPU time in user mode", Some(user)), ("CPU time in the kernel", Some(system)), ("waiting", waiting)];
    // A part of the other sign is none of the difference.
    let parts = named.into_iter().filter_map(|(name, part)| Some((name, part?)));
    let parts = parts
        .filter(|(_, part)| part / time >= MIN_PART)
        .map(|(name, part)| format!("{} {name}", time_text(part.abs())));
    let parts: Vec<String> = if waiting.is_some() { parts.collect() } else { Vec::new() };
    let total = format!(": {} {word}", time_text(time.abs()));
    if parts.is_empty() { total } else { format!("{total}, of which {}", parts.join(", ")) }
}

fn modes_text(command: &TimedCommand) -> Option<String> {
    let modes: Vec<String> = command
        .modes
        .iter()
        .map(|mode| format!("{} ({} of the runs)", time_text(mode.center), percent(mode.share)))
        .collect();
    (!modes.is_empty()).then(|| format!("{} has several modes: {}.", command.command, modes.join(", ")))
}

fn failures_text(command: &TimedCommand) -> Option<String> {
    let failures = command.exit_codes.iter().filter(|code| **code != Some(0)).count();
    (failures > 0).then(|| {
        format!("{} failed in {failures} of {}.", command.command, plural(command.exit_codes.len() as u64, "run"))
    })
}

fn warmup_text(command: &TimedCommand) -> Option<String> {
    let warmup = command.warmup.filter(|warmup| *warmup > MIN_COLD_RATIO * command.max)?;
    Some(format!(
        "The first run of {}, which does not count, took {}: its files or caches were cold. --prepare measures it so each time.",
        command.command,
        time_text(warmup)
    ))
}

fn shell_text(times: &CommandTimes) -> Option<String> {
    let shell = times.shell_seconds?;
    let shortest = times.results.iter().map(|command| command.mean).fold(f64::INFINITY, f64::min);
    (shell >= MIN_SHELL_SHARE * shortest).then(|| match shell < shortest {
        true => format!("Each time contains {} for starting the shell: -N runs commands without one.", time_text(shell)),
        // Both were measured on a busy machine, or the command takes no time.
        false => format!(
            "Starting the shell took {} without a command, no less than the shortest time here, which says nothing of its command: -N runs \
             commands without a shell.",
            time_text(shell)
        ),
    })
}
