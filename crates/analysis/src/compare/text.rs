//! A comparison in words.

use std::collections::BTreeMap;

use kelvin_core::units::stated_value;

use crate::prelude::*;

/// From this factor on a remark states that errors were widened.
const MIN_WIDENING: f64 = 1.1;
/// More runs of a side than this are not counted: nobody makes them.
const MAX_RUNS: f64 = 100.0;
/// A change by a larger factor is given as more than this one: how much more is not informative.
const MAX_FACTOR: f64 = 100.0;
/// Characters of a command in a title.
const MAX_NAME_CHARS: usize = 44;
/// Nor more blocks of interleaved measurements.
const MAX_BLOCKS: f64 = 10_000.0;

/// A row of a table of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonRow {
    /// The metric and its case.
    pub figure: String,
    /// The base.
    pub base: String,
    /// The other.
    pub other: String,
    /// The ratio: `1.27`.
    pub ratio: String,
    /// Its interval: `1.20 to 1.34`; with brackets where it is but a range.
    pub interval: String,
    /// What would be needed to know: nothing of what is known.
    pub needs: String,
    /// What explains the difference, in part or all; nothing where that is not known.
    pub cause: String,
    /// Modes of the sides and what they are compared by, where the figures alone do not show that.
    pub compared_by: String,
}

/// A verdict in a word or two.
pub fn change_word(verdict: &ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Better => "better",
        ChangeVerdict::Worse => "worse",
        ChangeVerdict::Higher => "higher",
        ChangeVerdict::Lower => "lower",
        ChangeVerdict::Same => "the same",
        ChangeVerdict::NotKnown(_) => "not known",
    }
}

/// A figure as a row.
pub fn comparison_row(figure: &ComparedFigure, comparison: &Comparison) -> ComparisonRow {
    let unit = figure.metric.unit;
    let ends = format!("{} to {}", ratio_text(figure.ratio.low), ratio_text(figure.ratio.high));
    ComparisonRow {
        figure: figure_name(figure),
        base: brief_value(figure.base, None, unit),
        other: brief_value(figure.other, None, unit),
        ratio: ratio_text(figure.ratio.value),
        interval: if figure.ratio.is_range { format!("[{ends}]") } else { ends },
        needs: needs_text(figure, comparison),
        cause: figure.cause.as_ref().and_then(cause_text).unwrap_or_default(),
        compared_by: basis_text(figure, comparison).unwrap_or_default(),
    }
}

/// The modes of the sides, and what they are compared by: of interleaved measurements.
fn basis_text(figure: &ComparedFigure, comparison: &Comparison) -> Option<String> {
    let ratio_of_means = ratio_text(figure.other / figure.base);
    let basis = match figure.ratio_basis? {
        RatioBasis::BestRounds => {
            return Some(format!(
                "by the best rounds, which are hardly disturbed; the ratio of the means is {ratio_of_means}"
            ));
        }
        RatioBasis::Means => "compared by the means",
    };
    let names = [&comparison.base.name, &comparison.other.name].map(|name| setting_letter(name));
    let modes = |(side, name): (&SideFigure, &str)| {
        let texts = side.modes.iter().map(|mode| {
            let share = percent((mode.share * 100.0).round() / 100.0);
            format!("{} ({share})", brief_value(mode.center, None, figure.metric.unit))
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| format!("{name} has {} modes: {}", texts.len(), texts.join(" and ")))
    };
    let modes: Vec<String> = figure.sides.iter().zip(names).filter_map(modes).collect();
    (!modes.is_empty()).then(|| format!("{}; {basis}", modes.join("; ")))
}

/// The letter of a setting or command: what it stands for is written above the tables.
pub fn setting_letter(name: &str) -> &str {
    name.split(':').next().unwrap_or_default()
}

/// What a cause explains of a difference, if something.
fn cause_text(cause: &CauseOfChange) -> Option<String> {
    let CauseFinding::Explains { share, .. } = &cause.finding else { return None };
    let rest = match 1.0 - share.value {
        _ if (share.low..=share.high).contains(&1.0) => "the rest may be zero".to_owned(),
        rest if rest > 0.0 => format!("{rest:.2} is left"),
        rest => format!("the rest went the other way, by {:.2}", -rest),
    };
    let Estimate { value, low, high, .. } = share;
    Some(format!("{} explains {value:.2} of it (95 %: {low:.2} to {high:.2}); {rest}", cause.summary))
}

/// Why it is not known what a cause explains of a figure that changed: a side does not hold its control.
pub fn control_missing(figure: &ComparedFigure, comparison: &Comparison) -> Option<String> {
    let cause = figure.cause.as_ref().filter(|_| figure.verdict.is_change())?;
    let CauseFinding::NoControl(reason) = &cause.finding else { return None };
    let text = match reason {
        NotComparedReason::Neither(text) => format!("in neither: {text}"),
        cause => not_compared_reason(cause, comparison).1,
    };
    Some(format!("what {} explains is not known: {} {text}", cause.summary, cause.control))
}

/// A metric and its case: `mem.latency pages=base bytes=8 MiB`.
pub fn figure_name(figure: &ComparedFigure) -> String {
    metric_and_case(&figure.metric, &figure.case)
}

/// A ratio; near 1 with the digits that distinguish it from 1.
pub fn ratio_text(value: f64) -> String {
    match (value - 1.0).abs() {
        distance if distance < 0.0995 && distance > 0.0 => format!("{value:.3}"),
        _ => number(value),
    }
}

/// Why a figure is not known, and what it would take.
fn needs_text(figure: &ComparedFigure, comparison: &Comparison) -> String {
    let ChangeVerdict::NotKnown(reason) = &figure.verdict else { return String::new() };
    match reason {
        UndecidedReason::TooFewRounds => format!("{} rounds, 4 are needed", figure.rounds.iter().min().unwrap_or(&0)),
        UndecidedReason::CoreFrequency => "the core's frequency differed by as much".into(),
        UndecidedReason::Published => "published without its spread".into(),
        UndecidedReason::Undecided => {
            let (unit, max_count) = counted_unit(comparison);
            let Estimate { low, high, is_range, .. } = figure.ratio;
            let percent_change = |ratio: f64| percent((ratio - 1.0).abs());
            let is_other = !is_range && (low > 1.0 || high < 1.0);
            let difference_clause = is_other.then(|| {
                let (word, [from, to]) = if low > 1.0 { ("higher", [low, high]) } else { ("lower", [high, low]) };
                let certainty = if (from - 1.0).abs() > comparison.threshold {
                    format!("not certain with so few {unit}")
                } else {
                    format!("whether by more than {} is not known", percent(comparison.threshold))
                };
                format!("{word} by {} to {}: {certainty}; ", percent_change(from), percent_change(to))
            });
            let difference_text = difference_clause.unwrap_or_default();
            let detectable = figure
                .detectable_change
                .map(|share| format!("{difference_text}seen from {}", change_text(share)))
                .unwrap_or_default();
            match times_to_decide(figure, comparison) {
                Some(times) if times <= max_count => format!("{detectable}; {times:.0} {unit}"),
                Some(_) => format!("{detectable}; over {max_count} {unit}"),
                None => detectable,
            }
        }
    }
}

/// Runs of the side that has more.
fn max_runs(comparison: &Comparison) -> usize {
    comparison.base.runs.len().max(comparison.other.runs.len())
}

/// What is counted to decide a figure, and the most of it that is named.
fn counted_unit(comparison: &Comparison) -> (&'static str, f64) {
    if comparison.interleaving.is_some() { ("blocks", MAX_BLOCKS) } else { ("runs of each", MAX_RUNS) }
}

/// A change as a share, from which on it is a factor.
fn change_text(share: f64) -> String {
    match 1.0 + share {
        times if times > MAX_FACTOR => format!("more than {MAX_FACTOR} times"),
        times if times > 2.0 => format!("{} times", number(times)),
        _ => percent(share),
    }
}

/// How many runs of each side, or blocks, would decide a figure.
fn times_to_decide(figure: &ComparedFigure, comparison: &Comparison) -> Option<f64> {
    let now = if let SpreadSource::Blocks(blocks) = figure.spread_source { blocks } else { max_runs(comparison) };
    figure.times_to_decide.map(|times| (times * now as f64).ceil())
}

/// What the verdict of a figure rests on, as terms and what they stand for.
pub fn verdict_grounds(figure: &ComparedFigure, comparison: &Comparison) -> Vec<(&'static str, String)> {
    let spread = figure.difference.map(|_| match figure.spread_source {
        SpreadSource::Runs(runs) => format!("from run to run, learned from {runs} earlier runs"),
        SpreadSource::Assumed(deviation) => {
            format!("from run to run, assumed: a standard deviation of {}", percent(deviation))
        }
        SpreadSource::Blocks(blocks) => format!("from block to block, of {blocks}"),
    });
    let chance = figure.difference.filter(|_| figure.verdict.is_change()).map(|chance| p_value(chance.adjusted));
    let undecided = ChangeVerdict::NotKnown(UndecidedReason::Undecided);
    let reason = (figure.verdict != undecided).then(|| needs_text(figure, comparison)).filter(|text| !text.is_empty());
    let effort = times_to_decide(figure, comparison).map(|times| runs_to_decide(times, comparison));
    [
        ("Compared by", basis_text(figure, comparison)),
        ("Not known", reason),
        ("By accident", chance),
        ("Spread", spread),
        (
            "Would be seen",
            figure.detectable_change.map(|share| format!("from {} worse on, four times in five", change_text(share))),
        ),
        ("To decide", effort),
        ("Unexplained", control_missing(figure, comparison)),
    ]
    .into_iter()
    .filter_map(|(term, text)| Some((term, text?)))
    .collect()
}

/// The figure of a side with its interval: `61.2 ns`, `60.8 to 61.7 ns`; and the range of its rounds, of how many.
pub fn side_texts(figure: &ComparedFigure, side: usize) -> [String; 3] {
    let (unit, side_figure) = (figure.metric.unit, &figure.sides[side]);
    let interval = side_figure.interval.map(|[low, high]| span(low, high, unit));
    let rounds = || side_figure.rounds.iter().flatten().copied();
    let ends = min_max(rounds()).map(|(low, high)| format!("{} in {}", span(low, high, unit), rounds().count()));
    [brief_value([figure.base, figure.other][side], None, unit), interval.unwrap_or_default(), ends.unwrap_or_default()]
}

/// How many figures have which verdict: `2 worse, 1 better, 310 the same within 1.0 %, 240 not known`.
pub fn verdict_counts(comparison: &Comparison) -> String {
    if let Some(text) = undetectable_change(comparison) {
        return text;
    }
    let count = |is_counted: fn(&ChangeVerdict) -> bool| comparison.with_verdict(is_counted).count();
    let worse = count(|verdict| *verdict == ChangeVerdict::Worse);
    let better = count(|verdict| *verdict == ChangeVerdict::Better);
    let changed_text = match count(|verdict| matches!(verdict, ChangeVerdict::Higher | ChangeVerdict::Lower)) {
        0 => String::new(),
        count => format!(", {count} higher or lower"),
    };
    let (unchanged, threshold) = (count(|verdict| *verdict == ChangeVerdict::Same), percent(comparison.threshold));
    let undecided = count(|verdict| matches!(verdict, ChangeVerdict::NotKnown(_)));
    let (figures, not_compared) = (comparison.figures.len(), not_compared_count(comparison));
    format!(
        "Of {figures} figures: {worse} worse, {better} better{changed_text}, {unchanged} the same within {threshold}, {undecided} not known{not_compared}."
    )
}

/// Whether no figure of two sides of runs is known to differ or to be the same, and it is known how large a change would be seen. Of the few
/// that are measured interleaved each states what it needs.
pub fn is_all_undecided(comparison: &Comparison) -> bool {
    let is_open = |figure: &ComparedFigure| matches!(figure.verdict, ChangeVerdict::NotKnown(_));
    comparison.interleaving.is_none()
        && comparison.figures.iter().all(is_open)
        && comparison.figures.iter().any(|figure| figure.detectable_change.is_some())
}

/// How large a change these runs cannot show, where nothing else is known.
fn undetectable_change(comparison: &Comparison) -> Option<String> {
    let mut changes: Vec<f64> = comparison.figures.iter().filter_map(|figure| figure.detectable_change).collect();
    changes.sort_by(f64::total_cmp);
    let (smallest, median_change) = (*changes.first().filter(|_| is_all_undecided(comparison))?, median(&changes));
    let median_clause = match change_text(median_change) {
        median_text if changes.len() > 1 && median_text != change_text(smallest) => {
            format!(", and of less than {median_text} in half of them")
        }
        _ => String::new(),
    };
    let scope = if changes.len() == 1 { "" } else { " in any figure" };
    Some(format!(
        "Nothing is known to differ: a change of less than {} cannot be seen{scope} between these runs{median_clause} (figures: {}{}).",
        change_text(smallest),
        comparison.figures.len(),
        not_compared_count(comparison)
    ))
}

/// How many figures are not compared, after those that are.
fn not_compared_count(comparison: &Comparison) -> String {
    match comparison.not_compared.len() {
        0 => String::new(),
        count => format!("; {count} not compared"),
    }
}

/// The program that made a foreign run: `fio 3.33`.
pub fn program_text(foreign: &Foreign) -> String {
    format!("{} {}", foreign.tool, foreign.version).trim_end().to_owned()
}

/// The sentence where nothing differs except figures.
pub fn no_difference_text(comparison: &Comparison) -> &'static str {
    if comparison.interleaving.is_some() {
        return "Nothing differs: both are the same setting.";
    }
    match comparison.base.is_external() || comparison.other.is_external() {
        true => "Nothing else is known to differ: kelvin knows one side only by its figures.",
        false => "Nothing else differs: machine, kernel, mitigations, settings, methods.",
    }
}

/// What a side is: its name, and when its runs were made.
pub fn side_text(side: &ComparedSide, comparison: &Comparison) -> String {
    let date = |run: &ComparedRun| run.started.chars().take(16).collect::<String>().replace('T', " ");
    let partial = side.runs.iter().filter(|run| run.is_partial).count();
    let partial = if partial > 0 { "; interrupted: it has what was measured until then" } else { "" };
    match side.runs.as_slice() {
        [] if comparison.interleaving.is_some() => {
            let short_name: String = side.name.chars().take(MAX_NAME_CHARS).collect();
            if short_name.len() < side.name.len() { format!("{short_name}…") } else { short_name }
        }
        [] => format!("{}: published", side.name),
        [ComparedRun { id, foreign: Some(foreign), .. }] => {
            format!("{}: foreign run {id} of {}, by {}", side.name, date(&side.runs[0]), program_text(foreign))
        }
        [run] => format!("{}: run {} of {}{partial}", side.name, run.id, date(run)),
        [first, .., last] => {
            format!("{}: {} runs, {} to {}{partial}", side.name, side.runs.len(), date(first), date(last))
        }
    }
}

/// What is to be known of the verdicts, a sentence each.
pub fn remarks(comparison: &Comparison) -> Vec<String> {
    let interleaving = comparison.interleaving.map(|Interleaving { blocks, seconds: duration }| {
        let blocks = if blocks == 1 { "1 block".to_owned() } else { format!("up to {blocks} blocks") };
        format!(
            "Measured interleaved, in {blocks} of two of each, in {}; all samples count, disturbed or not. The error is the difference \
             between blocks.",
            seconds(duration)
        )
    });
    let widening = (comparison.interval_inflation >= MIN_WIDENING).then(|| {
        format!(
            "Most figures differ by more than their rounds and earlier runs explain. What all have in common is attributed to the state \
             of the machine: every interval is {} times as wide.",
            number(comparison.interval_inflation)
        )
    });
    let median_ratio = comparison.median_ratio.filter(|ratio| (ratio - 1.0).abs() >= comparison.threshold);
    let median_ratio = median_ratio.map(|ratio| {
        let word = if ratio > 1.0 { "worse" } else { "better" };
        format!("The median of all figures is {} {word}.", percent((ratio - 1.0).abs()))
    });
    let (clock, history) = (clock_remark(comparison), no_history_remark(comparison));
    let sentences = [interleaving, clock, widening, median_ratio, history, undecided_remark(comparison)];
    sentences.into_iter().flatten().collect()
}

fn clock_remark(comparison: &Comparison) -> Option<String> {
    let is_apart = |ratio: f64| (ratio - 1.0).abs() >= comparison.threshold;
    let clocks = comparison.clocks.filter(|[base, other]| is_apart(other / base));
    let base_name = &comparison.base.name;
    let frequency_text = match (clocks, comparison.frequency.filter(|&ratio| is_apart(ratio))) {
        (Some(clocks), _) => {
            let [base, other] = clocks.map(|hertz| stated_value(hertz, Unit::Hertz, 3));
            format!("The core ran at {other}, in {base_name} at {base}.")
        }
        (None, Some(ratio)) => {
            let word = if ratio > 1.0 { "faster" } else { "slower" };
            format!("The core ran {} {word} than in {base_name}.", percent((ratio - 1.0).abs()))
        }
        (None, None) => return None,
    };
    let figure_text = match comparison.frequency {
        Some(_) => &format!(
            "Figures of a fixed number of core cycles are shown at the frequency of {base_name}. Another figure"
        ),
        None => "A figure",
    };
    Some(format!("{frequency_text} {figure_text} that differs by no more than that is not known to have changed."))
}

fn no_history_remark(comparison: &Comparison) -> Option<String> {
    let assumed_spreads = comparison.figures.iter().filter_map(|figure| match figure.spread_source {
        SpreadSource::Assumed(deviation) if figure.difference.is_some() => Some(deviation),
        _ => None,
    });
    let assumed_stds: Vec<f64> = assumed_spreads.collect();
    let deviation = *assumed_stds.first()?;
    let advice =
        if max_runs(comparison) == 1 { "Only large changes show" } else { "The spread of these runs counts as well" };
    let figures = match assumed_stds.len() {
        count if count == comparison.figures.len() => String::new(),
        count => format!("for {count} of them "),
    };
    Some(format!(
        "How much figures differ from run to run of this machine is {figures}not learned from earlier runs: {MIN_HISTORY_RUNS} are needed. A \
         standard deviation of {} is assumed. {advice}; compare several runs of each, as in last~5..last~3 last~2..last.",
        percent(deviation)
    ))
}

fn undecided_remark(comparison: &Comparison) -> Option<String> {
    let open = || comparison.with_verdict(|verdict| *verdict == ChangeVerdict::NotKnown(UndecidedReason::Undecided));
    let changes: Vec<f64> = open().filter_map(|figure| figure.detectable_change).collect();
    if changes.is_empty() {
        return None;
    }
    // Where nothing is known that is stated already.
    let detectable_text = (!is_all_undecided(comparison)).then(|| {
        format!("Of those not known half would have shown a change of {} for the worse.", change_text(median(&changes)))
    });
    let counts: Vec<f64> = open().filter_map(|figure| times_to_decide(figure, comparison)).collect();
    let effort_text = (!counts.is_empty())
        .then(|| format!("To decide half of them takes {}.", runs_to_decide(median(&counts).ceil(), comparison)));
    let sentences: Vec<String> = detectable_text.into_iter().chain(effort_text).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// This many runs of each side, or blocks, and how much longer they take. What those that there are did not decide needs one more of them.
fn runs_to_decide(times: f64, comparison: &Comparison) -> String {
    let (_, max_count) = counted_unit(comparison);
    let (count, unit) = match comparison.interleaving {
        Some(interleaving) => (interleaving.blocks, "blocks"),
        None => (max_runs(comparison), "runs of each side"),
    };
    let times = times.max(count as f64 + 1.0);
    match times > max_count {
        true => format!("more than {max_count} {unit}"),
        false => format!("about {times:.0} {unit}, {} more", extra_time(times, comparison)),
    }
}

/// The time of this number of runs of each side, or blocks, beyond those there are.
fn extra_time(times: f64, comparison: &Comparison) -> String {
    if let Some(Interleaving { blocks, seconds: duration }) = comparison.interleaving {
        return seconds(duration * (times / blocks.max(1) as f64 - 1.0).max(0.0));
    }
    let sides = [&comparison.base, &comparison.other];
    let extra_seconds = |side: &ComparedSide| {
        let median_seconds = median(&side.runs.iter().map(|run| run.seconds).collect::<Vec<f64>>());
        median_seconds * (times - side.runs.len() as f64).max(0.0)
    };
    seconds(sides.into_iter().map(extra_seconds).sum())
}

/// What is not compared, by reason: how many figures, and the first of their names.
pub fn not_compared_by_reason(comparison: &Comparison) -> Vec<(String, Vec<String>)> {
    let mut groups: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
    for entry in &comparison.not_compared {
        groups.entry(not_compared_reason(&entry.reason, comparison)).or_default().push(not_compared_name(entry));
    }
    groups.into_iter().map(|((_, reason), figures)| (reason, figures)).collect()
}

/// What is not compared, as tables name it.
pub fn not_compared_name(entry: &NotCompared) -> String {
    if entry.case.is_empty() { entry.metric.to_string() } else { format!("{} {}", entry.metric, entry.case) }
}

/// Why one is not compared, after the rank of the reason.
fn not_compared_reason(reason: &NotComparedReason, comparison: &Comparison) -> (u8, String) {
    let (base, other) = (&comparison.base.name, &comparison.other.name);
    match reason {
        NotComparedReason::MethodVersion([from, to]) => {
            (0, format!("measured by another version of the method ({from} in {base}, {to} in {other})"))
        }
        NotComparedReason::Definition => (1, "defined otherwise (unit, direction or samples)".into()),
        NotComparedReason::NoRatio => (2, "no ratio: a side is not above zero".into()),
        NotComparedReason::OnlyBase(reason) => (3, format!("only in {base}; in {other} {reason}")),
        NotComparedReason::OnlyOther(reason) => (4, format!("only in {other}; in {base} {reason}")),
        NotComparedReason::NotEqual(reason_text) => (5, reason_text.clone()),
        NotComparedReason::Neither(reason_text) => (6, reason_text.clone()),
    }
}

/// What a gate has found, as a sentence without its end: `os.syscall.null is 12 % worse, and 5 % are too much (kernel team)`.
pub fn gate_finding(finding: &GateFinding) -> String {
    let problem = match finding.reason {
        GateReason::Worse { change, allowed } if allowed > 0.0 => {
            format!("is {} worse, and {} is too much", change_text(change), change_text(allowed))
        }
        GateReason::Worse { change, .. } => format!("is {} worse", change_text(change)),
        GateReason::Undetectable { detectable: Some(min_change), required } => {
            format!(
                "shows changes from {} on, and must show them from {} on",
                change_text(min_change),
                change_text(required)
            )
        }
        GateReason::Undetectable { detectable: None, required } => {
            format!("has too few rounds to show a change, and must show one from {} on", change_text(required))
        }
        GateReason::NotCompared => "is not compared, and must be".to_owned(),
    };
    let owner = finding.owner.as_ref().map(|owner| format!(" ({owner})")).unwrap_or_default();
    let issue = finding.issue.as_ref().map(|issue| {
        let bound = issue.worse.map(|share| format!("up to {}", change_text(share)));
        let until = issue.until.as_ref().map(|day| format!("until {day}"));
        let parts: Vec<String> =
            std::iter::once(issue.reason.clone()).chain([bound, until].into_iter().flatten()).collect();
        format!("; known: {}", parts.join(", "))
    });
    let issue = issue.unwrap_or_default();
    format!("{} {problem}{owner}{issue}", finding.figure)
}

/// What could not have missed a gate that nothing misses, if there is some.
pub fn gate_undetectable(result: &GateResult, comparison: &Comparison) -> Option<String> {
    let figures = comparison.figures.len();
    (result.failures.is_empty() && result.undetectable > 0).then(|| {
        format!("nothing is that much worse; of {figures} figures {} could not have shown it", result.undetectable)
    })
}

/// A known issue of which nothing is seen any more.
pub fn gate_resolved_issue(issue: &str) -> String {
    format!("known, and no longer seen: {issue}")
}
