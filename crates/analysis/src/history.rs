//! The figures of a machine over its runs: where they change for good, what else changed there, and which of it is news.

use kelvin_core::IndirectSort;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::thread::Builder;

use crate::prelude::*;

/// The joint chance up to which a change is news: a look after each run is many looks, and one in twenty of each would add up.
const NEWS_DISCOVERY_RATE: f64 = FALSE_DISCOVERY_RATE / 20.0;
/// What the core's frequency may be over the usual one: more lies between no two states of a processor.
const FREQUENCY_RATIO_RANGE: std::ops::Range<f64> = 0.05..20.0;
/// Fewest machines among which a machine is ranked.
pub const MIN_RANKED_MACHINES: usize = 5;

/// A metric at a case over runs, as it was stored.
#[derive(Clone, Debug)]
pub struct HistoryInputSeries {
    /// The metric, as the newest run that has it defines it.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// The values of each version of the method, as they were measured, the oldest version first, none of them empty; each in the order of
    /// runs.
    pub versions: Vec<(u32, Vec<HistoryPoint>)>,
    /// The latest values of other machines, by the newest version.
    pub peer_values: Vec<f64>,
}

/// A run, as it was stored.
#[derive(Clone, Debug)]
pub struct HistoryInputRun {
    /// Its id.
    pub id: String,
    /// Its start, RFC 3339 in UTC.
    pub started: String,
    /// Nanoseconds of the chain canary in its steady state ([`STEADY_CHAIN`](crate::STEADY_CHAIN)), if it was kept.
    pub chain: Option<f64>,
}

/// What a history is made of.
#[derive(Clone, Debug)]
pub struct HistoryInput {
    /// Identity of the machine.
    pub machine: String,
    /// Marketing name of its processor, if known.
    pub cpu_model: Option<String>,
    /// The mode of the runs.
    pub mode: String,
    /// The runs, oldest first.
    pub runs: Vec<HistoryInputRun>,
    /// Whether there are older ones.
    pub has_older: bool,
    /// Runs of the machine in other modes.
    pub other_modes: Vec<OtherModeRuns>,
    /// The series.
    pub series: Vec<HistoryInputSeries>,
}

impl HistoryInput {
    /// The input before a run: without it, and all that came later.
    #[must_use]
    pub fn before_run(&self, run: usize) -> Self {
        let mut before = self.clone();
        before.runs.truncate(run);
        for series in &mut before.series {
            series.versions.iter_mut().for_each(|(_, points)| points.retain(|point| point.run < run));
        }
        before.without_empty_series()
    }

    /// The input from a run on.
    #[must_use]
    pub fn since_run(mut self, run: usize) -> Self {
        self.runs.drain(..run);
        self.has_older |= run > 0;
        for series in &mut self.series {
            for (_, points) in &mut series.versions {
                points.retain(|point| point.run >= run);
                points.iter_mut().for_each(|point| point.run -= run);
            }
        }
        self.without_empty_series()
    }

    /// Without what has no value left.
    fn without_empty_series(mut self) -> Self {
        self.series.iter_mut().for_each(|series| series.versions.retain(|(_, points)| !points.is_empty()));
        self.series.retain(|series| !series.versions.is_empty());
        self
    }

    /// The core's frequency in each run over the usual one, where it is known: what no core does is no frequency.
    fn frequencies(&self) -> Vec<Option<f64>> {
        let chains: Vec<f64> = self.runs.iter().filter_map(|run| run.chain).collect();
        let usual_chain = median(&chains);
        let frequency_ratio = |run: &HistoryInputRun| {
            Some(usual_chain / run.chain?).filter(|ratio| FREQUENCY_RATIO_RANGE.contains(ratio))
        };
        self.runs.iter().map(frequency_ratio).collect()
    }

    /// Their history, the most consequential series first. A change counts only if it does so among all that are looked at
    /// together; what else changed with it is not known yet, see [`annotate_changes`].
    pub fn history(&self) -> History {
        let frequencies = self.frequencies();
        let version_changes = all_version_changes(&self.series, &frequencies);
        let raw_p_values: Vec<f64> =
            version_changes.iter().flatten().flat_map(|(_, changes)| p_values(changes)).collect();
        let mut joint = adjusted_p_values(&raw_p_values).into_iter();
        let mut series: Vec<SeriesHistory> = self
            .series
            .iter()
            .zip(version_changes)
            .map(|(input, versions)| {
                let versions = versions.into_iter().map(|(version, changes)| {
                    let changes = significant_changes(&version.points, &changes, &mut || joint.next().unwrap_or(1.0));
                    VersionHistory { changes, ..version }
                });
                let (metric, case, versions) = (input.metric, input.case.clone(), versions.collect());
                let mut series = SeriesHistory { metric, case, versions, ranking: None };
                series.ranking = machine_ranking(series.latest(), &input.peer_values, metric.better);
                series
            })
            .collect();
        // The sort is stable: within one place series stay in the order of their ids.
        series.indirect_sort_by(|a, b| sort_key(a).partial_cmp(&sort_key(b)).unwrap_or(std::cmp::Ordering::Equal));
        let run = |(run, frequency): (&HistoryInputRun, Option<f64>)| HistoryRun {
            id: run.id.clone(),
            started: run.started.clone(),
            frequency,
        };
        History {
            history_format: HISTORY_FORMAT,
            machine: self.machine.clone(),
            cpu_model: self.cpu_model.clone(),
            mode: self.mode.clone(),
            runs: self.runs.iter().zip(frequencies).map(run).collect(),
            has_older: self.has_older,
            other_modes: self.other_modes.clone(),
            false_discovery_rate: FALSE_DISCOVERY_RATE,
            series,
        }
    }
}

/// The values of a version, and what they do.
type VersionChanges = (VersionHistory, ChangePoints);

/// What all series do by version, found on all CPUs.
fn all_version_changes(series: &[HistoryInputSeries], frequencies: &[Option<f64>]) -> Vec<Vec<VersionChanges>> {
    let changes = |series: &HistoryInputSeries| series.version_changes(frequencies);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = series.len().div_ceil(threads).max(1);
    let part_changes = |part: &[HistoryInputSeries]| part.iter().map(changes).collect::<Vec<Vec<VersionChanges>>>();
    std::thread::scope(|scope| {
        let part_changes = &part_changes;
        let start = |part| (part, Builder::new().spawn_scoped(scope, move || part_changes(part)));
        let parts: Vec<_> = series.chunks(share).map(start).collect();
        let changes = parts.into_iter().flat_map(|(part, thread)| match thread {
            // A part that panicked is a bug of ours, and reported as one.
            Ok(thread) => thread.join().expect("arithmetic does not panic"),
            // No thread for it: this one does it.
            Err(_) => part_changes(part),
        });
        changes.collect()
    })
}

impl HistoryInputSeries {
    /// What it does by version: where it takes a fixed number of core cycles, at the usual frequency.
    fn version_changes(&self, frequencies: &[Option<f64>]) -> Vec<VersionChanges> {
        let is_of_core_cycles = self.metric.for_case(&self.case).is_core_cycle_time();
        let scaled_point = |point: &HistoryPoint| {
            let frequency = frequencies[point.run].filter(|_| is_of_core_cycles);
            HistoryPoint { value: point.value * frequency.unwrap_or(1.0), ..*point }
        };
        let detect_changes = |(version, points): &(u32, Vec<HistoryPoint>)| {
            let points: Vec<HistoryPoint> = points.iter().map(scaled_point).collect();
            let has_shares = is_logarithmic(&points);
            let scaled = points.iter().map(|point| if has_shares { point.value.ln() } else { point.value });
            let changes = detect_change_points(&scaled.collect::<Vec<f64>>());
            (VersionHistory { version: *version, points, changes: Vec::new() }, changes)
        };
        self.versions.iter().map(detect_changes).collect()
    }
}

/// Whether values are looked at as logarithms: what differs from run to run is a share of the figure, where there are shares.
fn is_logarithmic(points: &[HistoryPoint]) -> bool {
    points.iter().all(|point| point.value > 0.0)
}

/// The chances that count together: of each change, or else of the most conspicuous split.
fn p_values(course: &ChangePoints) -> Vec<f64> {
    let steps = course.steps.iter().map(|step| step.p_value);
    let p_values: Vec<f64> = steps.chain(course.drifts.iter().map(|drift| drift.p_value)).collect();
    if p_values.is_empty() { vec![course.p_value] } else { p_values }
}

/// The changes of a course that count, in their order; `joint` gives the joint chances in the order of [`p_values`].
fn significant_changes(
    points: &[HistoryPoint],
    course: &ChangePoints,
    joint: &mut dyn FnMut() -> f64,
) -> Vec<HistoryChange> {
    let level = |value: f64| if is_logarithmic(points) { value.exp() } else { value };
    let run = |index: usize| points[index].run;
    let mut chance = |raw: f64| PValue { raw, adjusted: joint() };
    let steps = course.steps.iter().map(|step| HistoryChange {
        kind: HistoryChangeKind::Step,
        run: run(step.index),
        run_interval: step.index_interval.map(run),
        before: level(step.before),
        after: level(step.after),
        p_value: chance(step.p_value),
        runs: [run(step.index - 1), run(step.index)],
        differences: Vec::new(),
    });
    let mut changes: Vec<HistoryChange> = steps.collect();
    changes.extend(course.drifts.iter().map(|drift| HistoryChange {
        kind: HistoryChangeKind::Drift,
        run: run(drift.end),
        run_interval: [run(drift.start), run(drift.end)],
        before: level(drift.before),
        after: level(drift.after),
        p_value: chance(drift.p_value),
        runs: [run(drift.start), run(drift.end)],
        differences: Vec::new(),
    }));
    if changes.is_empty() {
        chance(course.p_value);
    }
    changes.retain(|change| change.p_value.is_significant(FALSE_DISCOVERY_RATE));
    changes.indirect_sort_by_key(|change| change.run);
    changes
}

fn machine_ranking(value: f64, peer_values: &[f64], better: Better) -> Option<MachineRanking> {
    let machines = peer_values.len() + 1;
    if machines < MIN_RANKED_MACHINES {
        return None;
    }
    let is_better = |peer: f64| if better == Better::Higher { peer > value } else { peer < value };
    let count = |&peer: &f64| match peer {
        peer if is_better(peer) => 1.0,
        peer if peer == value => 0.5,
        _ => 0.0,
    };
    Some(MachineRanking { machines, better: peer_values.iter().map(count).sum::<f64>() / peer_values.len() as f64 })
}

/// Where a series stands: the smaller the sooner. First what was last for the worse, the largest change first.
fn sort_key(series: &SeriesHistory) -> (u8, Reverse<f64>) {
    let Some(change) = series.last_change() else { return (3, Reverse(0.0)) };
    let rank = match change.is_worse(series.metric.better) {
        Some(true) => 0,
        Some(false) => 1,
        None => 2,
    };
    (rank, Reverse(change.ratio().map_or(f64::INFINITY, |ratio| ratio.ln().abs())))
}

/// Finds what else changed with each change, by what differs between two runs: the one before it and the one after it; where that is
/// nothing, between the ends of where it may be.
///
/// # Errors
/// Those of `differences`, which is called once for each pair of runs.
pub fn annotate_changes<E>(
    history: &mut History,
    mut differences: impl FnMut([usize; 2]) -> Result<Vec<FactDifference>, E>,
) -> Result<(), E> {
    let mut cache: HashMap<[usize; 2], Vec<FactDifference>> = HashMap::new();
    let mut cached_differences = |runs: [usize; 2]| -> Result<Vec<FactDifference>, E> {
        if let Some(facts) = cache.get(&runs) {
            return Ok(facts.clone());
        }
        let facts = differences(runs)?;
        cache.insert(runs, facts.clone());
        Ok(facts)
    };
    for version in history.series.iter_mut().flat_map(|series| &mut series.versions) {
        let points = &version.points;
        for change in &mut version.changes {
            change.differences = cached_differences(change.runs)?;
            if change.differences.is_empty() && change.kind == HistoryChangeKind::Step {
                // The first place is a first run after it: the run before that is the last that is certainly of the old level.
                let first = points.iter().rposition(|point| point.run < change.run_interval[0]);
                let ends = [first.map_or(change.runs[0], |first| points[first].run), change.run_interval[1]];
                let wider = if ends == change.runs { Vec::new() } else { cached_differences(ends)? };
                if !wider.is_empty() {
                    (change.runs, change.differences) = (ends, wider);
                }
            }
        }
    }
    Ok(())
}

/// The series whose last change is for the worse by at least a share, and sure enough for a look after each run.
pub fn alarming_changes(history: &History, share: f64) -> impl Iterator<Item = (&SeriesHistory, &HistoryChange)> {
    history.series.iter().filter_map(move |series| {
        let better = series.metric.better;
        let change = series.last_change().filter(|change| change.p_value.is_significant(NEWS_DISCOVERY_RATE))?;
        let is_worse = change.is_worse(better) == Some(true)
            && change.worse_by(better).is_some_and(|worsening| worsening >= share);
        is_worse.then_some((series, change))
    })
}

/// The series whose last change is news since a history that ended earlier, and for the worse by at least a share: not known then, when
/// what came later was not there yet. A change is found some runs after it, so that it is news where it lies before the end of the
/// earlier history, too.
pub fn new_changes<'h>(now: &'h History, before: &History, share: f64) -> Vec<&'h SeriesHistory> {
    let earlier_series: HashMap<(&str, &Case), &SeriesHistory> =
        before.series.iter().map(|series| ((series.metric.id.as_str(), &series.case), series)).collect();
    let is_news = |(series, change): &(&SeriesHistory, &HistoryChange)| {
        let earlier = earlier_series.get(&(series.metric.id.as_str(), &series.case));
        let versions = earlier.into_iter().flat_map(|series| &series.versions);
        let mut same_version = versions.filter(|version| version.version == series.newest().version);
        let is_rise = |change: &HistoryChange| change.after > change.before;
        let is_known = |earlier_change: &HistoryChange| {
            let ([from, to], [earlier_from, earlier_to]) = (change.run_interval, earlier_change.run_interval);
            earlier_change.p_value.is_significant(NEWS_DISCOVERY_RATE)
                && is_rise(earlier_change) == is_rise(change)
                && earlier_from <= to
                && from <= earlier_to
        };
        !same_version.any(|version| version.changes.iter().any(is_known))
    };
    alarming_changes(now, share).filter(is_news).map(|(series, _)| series).collect()
}

/// The range of the core's frequency, as a share of the usual one, from which it is reported.
const MIN_FREQUENCY_SPREAD: f64 = 0.005;
/// Facts that are named of what changed besides, on one screen.
pub const MAX_NAMED_FACTS: usize = 2;

/// A metric and its case: `mem.latency pages=base bytes=8 MiB`.
pub fn series_name(series: &SeriesHistory) -> String {
    metric_and_case(&series.metric, &series.case)
}

/// Of what the history is: `12 default runs of AMD EPYC 7763 (5f2c9e7a), 2026-10-01 to 2026-11-25`.
pub fn history_title(history: &History) -> String {
    let (first, last) = (history.runs.first(), history.runs.last());
    let days = match (first.map(run_day), last.map(run_day)) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (first, _) => first.unwrap_or_default(),
    };
    let newest = if history.has_older { "newest " } else { "" };
    let machine = history.cpu_model.as_deref().unwrap_or("an unknown processor");
    let short_id: String = history.machine.chars().take(8).collect();
    let runs = counted_text(history.runs.len() as u64, "run");
    format!("The {newest}{runs} in mode {} of {machine} ({short_id}), {days}.", history.mode)
}

/// The day of a run: `2026-10-01`.
pub fn run_day(run: &HistoryRun) -> String {
    run.started.chars().take(10).collect()
}

/// When a run was, as far as that distinguishes it from another one: the day, and the time too where both are of one day.
fn run_moments(runs: [&HistoryRun; 2]) -> [String; 2] {
    let is_one_day = run_day(runs[0]) == run_day(runs[1]);
    let time = |run: &HistoryRun| run.started.chars().take(16).collect::<String>().replace('T', " ");
    runs.map(|run| if is_one_day { time(run) } else { run_day(run) })
}

/// How many series do what: `Of 310 series 2 changed for the worse last, 1 for the better, and 307 hold their level.`
pub fn change_counts(history: &History) -> String {
    let count = |direction: Option<bool>| {
        let last = |series: &SeriesHistory| Some(series.last_change()?.is_worse(series.metric.better));
        history.series.iter().filter(|series| last(series) == Some(direction)).count()
    };
    let [worse, better, other] = [Some(true), Some(false), None].map(count);
    let other_text = if other > 0 { format!(", {other} in another way") } else { String::new() };
    let total = history.series.len();
    let level = total - worse - better - other;
    format!(
        "Of {total} series: last changed for the worse {worse}, for the better {better}{other_text}; no change {level}."
    )
}

/// What is to be known of it, a sentence each.
pub fn remarks(history: &History) -> Vec<String> {
    let mode_texts: Vec<String> =
        history.other_modes.iter().map(|mode| format!("{} {}", mode.runs, mode.mode)).collect();
    let other_modes = (!mode_texts.is_empty())
        .then(|| format!("Not shown: runs in other modes ({}); --mode shows them.", mode_texts.join(", ")));
    let short_note =
        (history.runs.len() < 6).then(|| "A change shows from 6 runs on, 3 before it and 3 after it.".to_owned());
    other_modes.into_iter().chain(short_note).chain(frequency_remark(history)).collect()
}

/// The frequency to which figures of core cycles are scaled, where it moved.
fn frequency_remark(history: &History) -> Option<String> {
    let frequencies: Vec<f64> = history.runs.iter().filter_map(|run| run.frequency).collect();
    let (lowest, highest) = min_max(frequencies.iter().copied())?;
    let has_core_cycles = history.series.iter().any(|series| series.metric.for_case(&series.case).is_core_cycle_time());
    if !has_core_cycles || highest - lowest < MIN_FREQUENCY_SPREAD {
        return None;
    }
    let exception = match history.runs.len() - frequencies.len() {
        0 => String::new(),
        1 => "; 1 run did not keep it, and is shown as measured".into(),
        count => format!("; {count} runs did not keep it, and are shown as measured"),
    };
    let range = [lowest, highest].map(number).join(" to ");
    Some(format!("Figures of core cycles refer to the usual frequency: runs had {range} of it{exception}."))
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
            let first_run = run(change.run);
            let [_, begin] = run_moments([run(change.run.saturating_sub(1)), first_run]);
            let [first, last] = run_moments([run(from), run(to)]);
            let interval_text = if from == to { String::new() } else { format!(", or {first} to {last}") };
            format!("{size} from {begin} on (run {}{interval_text})", first_run.id)
        }
    }
}

/// The last change of a series in one line, for a reader that is called when there is something to read.
pub fn change_line(series: &SeriesHistory, history: &History) -> Option<String> {
    let last = series.last_change()?;
    let [before, after] = [last.before, last.after].map(|value| brief_value(value, None, series.metric.unit));
    let sentence = change_sentence(last, series.metric.better, history);
    let chance = p_value(last.p_value.adjusted);
    let (name, facts) = (series_name(series), other_changes(last, MAX_NAMED_FACTS));
    Some(format!("{name}: {before} -> {after}, {sentence}; by chance: {chance}; {facts}"))
}

/// What else changed with a change, at most `max_facts` facts: `with Kernel, Release: 6.1 -> 6.6; and 2 more`.
pub fn other_changes(change: &HistoryChange, max_facts: usize) -> String {
    let facts = &change.differences;
    if facts.is_empty() {
        return "nothing known changed with it".into();
    }
    let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "none".into());
    let fact = |fact: &FactDifference| {
        format!("{}, {}: {} -> {}", fact.group, fact.label, side(&fact.base), side(&fact.other))
    };
    let fact_texts: Vec<String> = facts.iter().take(max_facts).map(fact).collect();
    let remaining = facts.len() - fact_texts.len();
    let suffix = if remaining > 0 { format!("; and {remaining} more") } else { String::new() };
    format!("with {}{suffix}", fact_texts.join("; "))
}

/// The beginning of values by another version of the method: `method version 2 from 2026-10-01 on`.
pub fn version_breaks(series: &SeriesHistory, history: &History) -> Vec<String> {
    let sentence = |version: &VersionHistory| {
        let from = version.points.first().map(|point| run_day(&history.runs[point.run])).unwrap_or_default();
        format!("method version {} from {from} on: values before it are not comparable", version.version)
    };
    series.versions.iter().skip(1).map(sentence).collect()
}

/// Where a value stands among those of all machines.
pub fn ranking_text(ranking: MachineRanking, better: Better) -> String {
    let word = if better == Better::Neither { "are lower" } else { "are better" };
    format!("of {} other machines {} {word}", ranking.machines - 1, percent(ranking.better))
}
