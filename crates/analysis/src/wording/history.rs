//! A history in words.

use kelvin_core::units::{brief_value, case, number, p_value, percent};
use kelvin_core::{
    Better, FactDifference, History, HistoryChange, HistoryChangeKind, HistoryRun, MachineRanking, SeriesHistory,
};

/// The range of the core's frequency, as a share of the usual one, from which on it is said.
const MIN_FREQUENCY_SPREAD: f64 = 0.005;
/// Facts that are named of what changed besides, on one screen.
pub const MAX_NAMED_FACTS: usize = 2;

/// A metric and its case: `mem.latency pages=base bytes=8 MiB`.
pub fn series_name(series: &SeriesHistory) -> String {
    let case = case(&series.metric, &series.case);
    if case.is_empty() { series.metric.id.to_string() } else { format!("{} {case}", series.metric.id) }
}

/// Of what the history is: `12 default runs of AMD EPYC 7763 (5f2c9e7a), 2026-10-01 to 2026-11-25`.
pub fn history_title(history: &History) -> String {
    let (first, last) = (history.runs.first(), history.runs.last());
    let days = match (first, last) {
        (Some(first), Some(last)) if run_day(first) != run_day(last) => {
            format!("{} to {}", run_day(first), run_day(last))
        }
        (Some(only), _) => run_day(only),
        _ => String::new(),
    };
    let runs = history.runs.len();
    let newest = if history.has_older { "newest " } else { "" };
    let machine = history.cpu_model.as_deref().unwrap_or("an unknown processor");
    let short: String = history.machine.chars().take(8).collect();
    let runs = if runs == 1 { "1 run".into() } else { format!("{runs} runs") };
    format!("The {newest}{runs} in mode {} of {machine} ({short}), {days}.", history.mode)
}

/// The day of a run: `2026-10-01`.
pub fn run_day(run: &HistoryRun) -> String {
    run.started.chars().take(10).collect()
}

/// When a run was, as far as it tells it from another one: the day, and the time too where both are of one day.
fn run_moments(runs: [&HistoryRun; 2]) -> [String; 2] {
    let is_one_day = run_day(runs[0]) == run_day(runs[1]);
    let time = |run: &HistoryRun| run.started.chars().take(16).collect::<String>().replace('T', " ");
    runs.map(|run| if is_one_day { time(run) } else { run_day(run) })
}

/// How many series do what: `Of 310 series 2 changed for the worse last, 1 for the better, and 307 hold their level.`
pub fn change_counts(history: &History) -> String {
    let of = |is: fn(Option<bool>) -> bool| {
        let last = |series: &&SeriesHistory| {
            series.last_change().is_some_and(|change| is(change.is_worse(series.metric.better)))
        };
        history.series.iter().filter(last).count()
    };
    let (worse, better, other) =
        (of(|worse| worse == Some(true)), of(|worse| worse == Some(false)), of(|worse| worse.is_none()));
    let other_said = if other > 0 { format!(", {other} in another way") } else { String::new() };
    let level = history.series.len() - worse - better - other;
    let series = if history.series.len() == 1 { "1 series".into() } else { format!("{} series", history.series.len()) };
    format!("Of {series}: last changed for the worse {worse}, for the better {better}{other_said}; no change {level}.")
}

/// What is to be known of it, a sentence each.
pub fn remarks(history: &History) -> Vec<String> {
    let others: Vec<String> = history.other_modes.iter().map(|one| format!("{} {}", one.runs, one.mode)).collect();
    let others = (!others.is_empty())
        .then(|| format!("Not shown: runs in other modes ({}); --mode shows them.", others.join(", ")));
    let few = (history.runs.len() < 6).then(|| "A change shows from 6 runs on, 3 before it and 3 after it.".to_owned());
    others.into_iter().chain(few).chain(frequency_remark(history)).collect()
}

/// At which frequency figures of core cycles are told, where it moved.
fn frequency_remark(history: &History) -> Option<String> {
    let known: Vec<f64> = history.runs.iter().filter_map(|run| run.frequency).collect();
    let least = known.iter().copied().fold(f64::INFINITY, f64::min);
    let most = known.iter().copied().fold(0.0, f64::max);
    let is_told = history.series.iter().any(|series| series.metric.for_case(&series.case).is_core_cycle_time());
    if !is_told || most - least < MIN_FREQUENCY_SPREAD {
        return None;
    }
    let but = match history.runs.len() - known.len() {
        0 => String::new(),
        1 => "; 1 run did not keep it, and is told as it was".into(),
        without => format!("; {without} runs did not keep it, and are told as they were"),
    };
    let range = [least, most].map(number).join(" to ");
    Some(format!("Figures of core cycles are told at the usual frequency: runs had {range} of it{but}."))
}

/// A share by which something changed, with its sign: `+12 %`; from a factor of two on the factor.
pub fn share_text(ratio: Option<f64>) -> String {
    match ratio {
        None => "-".into(),
        Some(ratio) if ratio >= 2.0 => format!("x {}", number(ratio)),
        Some(ratio) => {
            let share = percent((ratio - 1.0).abs());
            if share.starts_with("0 ") { share } else { format!("{}{share}", if ratio < 1.0 { "-" } else { "+" }) }
        }
    }
}

/// What a change is to a user of the machine: `worse`, `better`, or `higher`, `lower` where neither direction is better.
pub fn direction(change: &HistoryChange, better: Better) -> &'static str {
    match change.is_worse(better) {
        Some(true) => "worse",
        Some(false) => "better",
        None if change.after > change.before => "higher",
        None => "lower",
    }
}

/// A change in a sentence without what else changed: `12 % worse from 2026-10-01 on (run 0192)`.
pub fn change_sentence(change: &HistoryChange, better: Better, history: &History) -> String {
    let direction = direction(change, better);
    let size = match change.ratio() {
        Some(ratio) if !(0.5..=2.0).contains(&ratio) => {
            format!("{direction} by a factor of {}", number(ratio.max(1.0 / ratio)))
        }
        Some(ratio) => format!("{} {direction}", percent((ratio - 1.0).abs())),
        None => direction.to_owned(),
    };
    let run = |index: usize| &history.runs[index];
    let [from, to] = change.run_interval;
    match change.kind {
        HistoryChangeKind::Drift => {
            let [begin, end] = run_moments([run(from), run(to)]);
            format!("drifts: {size} from {begin} to {end} ({} runs)", to - from + 1)
        }
        HistoryChangeKind::Step => {
            let at = run(change.run);
            let [_, begin] = run_moments([run(change.run.saturating_sub(1)), at]);
            let [first, last] = run_moments([run(from), run(to)]);
            let or = if from == to { String::new() } else { format!(", or {first} to {last}") };
            format!("{size} from {begin} on (run {}{or})", at.id)
        }
    }
}

/// The last change of a series in one line, for a reader that is called when there is something to read.
pub fn change_line(series: &SeriesHistory, history: &History) -> Option<String> {
    let last = series.last_change()?;
    let [before, after] = [last.before, last.after].map(|value| brief_value(value, None, series.metric.unit));
    let said = change_sentence(last, series.metric.better, history);
    let chance = p_value(last.p_value.adjusted);
    Some(format!(
        "{}: {before} -> {after}, {said}; by chance: {chance}; {}",
        series_name(series),
        other_changes(last, MAX_NAMED_FACTS)
    ))
}

/// What else changed with a change, at most so many facts: `with Kernel, Release: 6.1 -> 6.6; and 2 more`.
pub fn other_changes(change: &HistoryChange, most: usize) -> String {
    let facts = &change.differences;
    if facts.is_empty() {
        return "nothing known changed with it".into();
    }
    let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "none".into());
    let fact = |fact: &FactDifference| {
        format!("{}, {}: {} -> {}", fact.group, fact.label, side(&fact.base), side(&fact.other))
    };
    let told: Vec<String> = facts.iter().take(most).map(fact).collect();
    let more = facts.len() - told.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("with {}{more}", told.join("; "))
}

/// The beginning of values by another version of the method: `method version 2 from 2026-10-01 on`.
pub fn version_breaks(series: &SeriesHistory, history: &History) -> Vec<String> {
    let said = |version: &kelvin_core::VersionHistory| {
        let from = version.points.first().map(|point| run_day(&history.runs[point.run])).unwrap_or_default();
        format!("method version {} from {from} on: values before it are not comparable", version.version)
    };
    series.versions.iter().skip(1).map(said).collect()
}

/// Where a value stands among those of all machines.
pub fn ranking_text(among: MachineRanking, better: Better) -> String {
    let word = if better == Better::Neither { "are lower" } else { "are better" };
    format!("of {} other machines {} {word}", among.machines - 1, percent(among.better))
}
