//! Findings in words: a sentence, and its evidence.

use kelvin_core::catalogue::mem::BANDWIDTH_CORE_TO_CORE;
use kelvin_core::units::{bytes, metric_at, number, percent, value_text};
use kelvin_core::{Canary, Case, Claim, Fact, FigureSource, Hazard, Machine, MemoryLevelClaim, Name, Run, Unit};

use super::conclusions::{limiting_host, peer_streams, range_suffix};
use super::explanation::share_interval;
use super::overview::indistinct_level;
use super::{claim, evidence};
use crate::overview::next_level;
use crate::result::{
    Analysis, CanaryHistory, Finding, FindingData, GapCauses, MemoryLevel, MemoryLevels, MetricResult,
    MissingFigureKind, MovedCpus, Outcome, PredictionGap, ShownCause, Warning,
};
use crate::studies::peer::{PeerEssentials, StreamEssentials};
use crate::summary::modes_text;
use crate::unworded_finding::{MIN_QUIET_SHARE, UnwordedFinding};

/// A finding with its words.
pub(crate) fn word_finding(raw: UnwordedFinding, run: &Run, analysis: &Analysis) -> Finding {
    let (text, because) = sentence_and_evidence(&raw.data, run, analysis);
    Finding {
        importance: raw.importance,
        text: capitalise(&with_full_stop(&text)),
        because,
        found: raw.data,
        metrics: raw.metrics,
    }
}

/// The sentence, and its evidence.
fn sentence_and_evidence(found: &FindingData, run: &Run, analysis: &Analysis) -> (String, String) {
    let hazard = |id: &Name| run.outline.hazards.iter().find(|hazard| hazard.id == *id);
    match found {
        FindingData::ClockChanged { before, after } => {
            let name = |source: &Option<String>| source.clone().unwrap_or_else(|| "unknown".into());
            (
                "The kernel's clock source changed during the run: its times cannot be trusted".into(),
                format!("clock source {} before, {} after", name(before), name(after)),
            )
        }
        FindingData::Partial { reason, seconds } => (
            format!("The run is partial ({reason}): the rest was not measured"),
            format!("it ended after {} s", number(*seconds)),
        ),
        FindingData::Hazard { id } => hazard_texts(hazard(id)),
        FindingData::Busy { hazards } => busy_texts(&hazards.iter().filter_map(hazard).collect::<Vec<_>>()),
        FindingData::CoreShared { slower, block_over_chain } => (
            "Another thread shared this core during the whole run, judging by earlier runs: measure again later".into(),
            format!(
                "the block canary took {} times the chain canary at its best, {} more than in earlier runs",
                number(*block_over_chain),
                percent(slower - 1.0)
            ),
        ),
        FindingData::FrequencyMoved { deviation } => (
            format!(
                "The core's frequency kept moving, by {} of its usual one: the times of another run may differ from these by as much",
                percent(*deviation)
            ),
            "by the chain canary, where the block shows no neighbour: intervals of what follows the frequency are as wide".into(),
        ),
        FindingData::Quiet { share } => quiet_texts(*share, analysis),
        FindingData::Invalid { at, ceiling } => {
            let unit = unit_at(analysis, at);
            let bound = format!("the bound is {}", value_text(ceiling.bound, unit));
            let text = format!(
                "{} measured {}, which is impossible: {}",
                metric_name(analysis, at),
                value_text(ceiling.value, unit),
                ceiling.likely_cause
            );
            (text, ceiling.derivation.as_ref().map_or(bound.clone(), |derivation| format!("{bound}: {derivation}")))
        }
        FindingData::Counted { of, count, all, first } => count_texts(analysis, (*of, *count, *all), first),
        FindingData::MemoryLevels => analysis.levels.as_ref().map(level_texts).unwrap_or_default(),
        FindingData::Moved(moved) => moved_texts(moved, analysis),
        FindingData::Network { said } => (
            format!("Network: {}", said.join("; ")),
            "each holds by the interval of a ratio of medians: see the studies net.rtt and net.bandwidth".into(),
        ),
        FindingData::OtherHost { said } => (
            format!("Network to the other host: {}", said.join("; ")),
            "each holds by an interval over rounds: see the study net.peer".into(),
        ),
        FindingData::OffClass(area) => super::class_comparison::area_texts(area),
        FindingData::SlowMachine(areas) => super::class_comparison::slow_machine_texts(areas),
        FindingData::Gap(gap) => gap_texts(gap, analysis),
        FindingData::Warned { count, all, by_chance, first, warning } => {
            warning_texts(analysis, (*count, *all, *by_chance), first, warning)
        }
    }
}

fn hazard_texts(hazard: Option<&Hazard>) -> (String, String) {
    hazard.map(|hazard| (format!("{}: {}", hazard.summary, hazard.effect), hazard.source.clone())).unwrap_or_default()
}

fn busy_texts(hazards: &[&Hazard]) -> (String, String) {
    let sources: Vec<String> = hazards.iter().map(|hazard| format!("{} ({})", hazard.summary, hazard.source)).collect();
    let first = hazards.first().map_or("", |hazard| hazard.summary.as_str());
    (format!("Other work kept this machine busy: {first}"), sources.join("; "))
}

fn quiet_texts(share: f64, analysis: &Analysis) -> (String, String) {
    let what = match share {
        share if share < MIN_QUIET_SHARE / 2.0 => "The machine was rarely quiet",
        share if share < MIN_QUIET_SHARE => "The machine was quiet only part of the time",
        _ => "The machine was quiet",
    };
    let name = |canary: Canary| canary.name();
    let steady = |history: &CanaryHistory| format!("{} steady {}", name(history.canary), percent(history.steady_share));
    let steady = analysis.canaries.iter().map(steady).collect::<Vec<String>>().join(", ");
    let slowed = analysis.slowed.filter(|_| share < MIN_QUIET_SHARE).map(|slowed| {
        format!("; on average work took {} longer than undisturbed, in another run more or less", percent(slowed))
    });
    (
        format!("{what}: {} of the guarded samples were undisturbed", percent(share)),
        format!("canaries beside each sample: {steady}{}", slowed.unwrap_or_default()),
    )
}

/// The result at a place.
fn result_at<'a>(analysis: &'a Analysis, place: &FigureSource) -> Option<&'a MetricResult> {
    analysis.results.iter().find(|result| result.metric.id == place.metric && result.case == place.case)
}

fn unit_at(analysis: &Analysis, place: &FigureSource) -> Unit {
    result_at(analysis, place).map_or(Unit::Ratio, |result| result.metric.unit)
}

fn metric_name(analysis: &Analysis, place: &FigureSource) -> String {
    result_at(analysis, place)
        .map_or_else(|| place.metric.to_string(), |result| metric_at(&result.metric, &result.case))
}

fn count_texts(
    analysis: &Analysis,
    (of, count, all): (MissingFigureKind, usize, usize),
    first: &FigureSource,
) -> (String, String) {
    let what = match of {
        MissingFigureKind::Failed => "failed",
        MissingFigureKind::NotKnown => "are not known: too few undisturbed samples",
        MissingFigureKind::Skipped => "were skipped",
    };
    let reason = match result_at(analysis, first).map(|result| &result.outcome) {
        Some(Outcome::Failed(reason)) => reason.clone(),
        Some(Outcome::NotKnown(summary)) => format!("{} undisturbed", percent(summary.kept_share)),
        Some(Outcome::Skipped(reason)) => reason.0.clone(),
        _ => String::new(),
    };
    (format!("{count} of {all} figures {what}"), format!("first: {}: {reason}", metric_name(analysis, first)))
}

/// The whole hierarchy in one line.
fn level_texts(found: &MemoryLevels) -> (String, String) {
    let each = found.levels.iter().map(|level| {
        let latency = format!("{} {}", level.name, value_text(level.latency, Unit::Nanoseconds));
        match level.capacity {
            Some(ends) => format!("{latency} up to {}-{}", bytes(ends.low), bytes(ends.high)),
            None => latency,
        }
    });
    let odd = found.levels.iter().filter(|level| level.agrees == Some(false));
    let odd: Vec<&str> = odd.map(|level| level.name.as_str()).collect();
    let differs = match odd.as_slice() {
        [] => String::new(),
        names => format!("; {} not of the size that the machine reports", names.join(", ")),
    };
    let all: Vec<&str> = found.levels.iter().map(|level| level.name.as_str()).collect();
    let unseen = found.conclusions.iter().filter_map(|conclusion| match &conclusion.claim {
        Claim::Level(MemoryLevelClaim::Unseen { level, .. }) => {
            let name = format!("L{level}");
            Some(format!("; {name} {}", indistinct_level(next_level(&name, &all))))
        }
        _ => None,
    });
    let unseen: String = unseen.collect();
    let test = found.conclusions.first().map(|conclusion| evidence(conclusion)).unwrap_or_default();
    (format!("Latency by working set: {}{differs}{unseen}", each.collect::<Vec<_>>().join(", ")), test)
}

fn moved_texts(moved: &MovedCpus, analysis: &Analysis) -> (String, String) {
    let line = FigureSource { metric: BANDWIDTH_CORE_TO_CORE.id, case: moved.case.clone() };
    let Some((result, summary)) =
        result_at(analysis, &line).and_then(|result| Some((result, result.outcome.summary()?)))
    else {
        return Default::default();
    };
    let (unit, of) = (result.metric.unit, summary.modes_of.label());
    let changes = format!("Core-to-core latency alternates between {} of the {of}", modes_text(summary.states(), unit));
    let rate = moved.most.and_then(|metric| result_at(analysis, &FigureSource { metric, case: moved.case.clone() }));
    let text = match rate.and_then(|rate| Some((rate, rate.outcome.summary()?))) {
        Some((rate, states)) => format!(
            "{changes}; the bandwidth of all CPUs follows it, {} the most: {}",
            rate.metric.id,
            modes_text(states.states(), rate.metric.unit)
        ),
        None => {
            format!(
                "{changes}; the bandwidths of all CPUs in this run belong to {}",
                value_text(summary.headline, unit)
            )
        }
    };
    (text, format!("two modes of core-to-core latency, separated over the {of} at {}", moved.case))
}

/// What the streams of each direction carried, and what tests support.
pub(crate) fn peer_sentences(essence: &PeerEssentials) -> Vec<String> {
    essence.streams.iter().map(stream_sentence).chain(essence.certain.iter().map(claim)).collect()
}

/// `4 TCP streams to the agent carry 117 MB/s (116 MB/s to 118 MB/s), 98 % of the link`.
fn stream_sentence(stream: &StreamEssentials) -> String {
    let case: &Case = &stream.rate.case;
    let is_one = kelvin_core::catalogue::net::STREAMS.number_in(case) == Some(1);
    let rate = |value| value_text(value, stream.rate.unit);
    let interval = stream.interval.map_or_else(String::new, |found| {
        format!(" ({}{} to {})", range_suffix(&found), rate(found.low), rate(found.high))
    });
    let link = stream.link_share.as_ref().map_or_else(String::new, |carried| match &carried.claim {
        Claim::Share { share, .. } => format!(", {} of the link", percent(share.value)),
        _ => String::new(),
    });
    let limit = stream.limit.as_ref().map_or_else(String::new, |limit| match &limit.claim {
        Claim::HostLimit { busy, full, .. } => {
            let are = if is_one { "is" } else { "are" };
            let [here, there] = busy.map(|share| percent(share.value));
            format!(" and {are} {} (the test uses {here} of a CPU here, {there} there)", limiting_host(busy, *full))
        }
        _ => String::new(),
    });
    let carry = if is_one { "carries" } else { "carry" };
    format!("{} {carry} {}{interval}{link}{limit}", peer_streams(case), rate(stream.rate.value))
}

fn gap_texts(gap: &PredictionGap, analysis: &Analysis) -> (String, String) {
    let found = result_at(analysis, &gap.at)
        .and_then(|result| Some((result, result.outcome.summary()?, result.prediction.as_ref()?)));
    let Some((result, summary, prediction)) = found else { return Default::default() };
    let unit = result.metric.unit;
    let measured = match summary.states() {
        [] => value_text(summary.headline, unit),
        states => format!("bimodal, {} of the {}", modes_text(states, unit), summary.modes_of.label()),
    };
    let text = format!(
        "{}: {measured}, {}: {} times the predicted {}; {}",
        metric_name(analysis, &gap.at),
        super::against_prediction(result),
        number(gap.ratio),
        value_text(prediction.value, unit),
        gap_explanation(gap).unwrap_or_else(|| explain_hint(gap))
    );
    let interval = summary.interval.map_or_else(
        || value_text(summary.headline, unit),
        |interval| format!("{} to {}", value_text(interval.lower, unit), value_text(interval.upper, unit)),
    );
    let because = format!(
        "measured over predicted: {}; the interval {interval} does not touch the predicted range from {} to {}{} ({})",
        number(gap.ratio),
        value_text(prediction.low, unit),
        value_text(prediction.high, unit),
        super::range_distance(result).map_or_else(String::new, |outside| format!(", {outside}")),
        prediction.derivation
    );
    (text, because)
}

/// What explains a gap: only what was shown. A hazard that was not tried as a cause explains nothing. `None` where no cause was tried.
pub(crate) fn gap_explanation(gap: &PredictionGap) -> Option<String> {
    gap.level.as_ref().map(less_than_reported).or_else(|| gap.causes.as_ref().map(causes_text))
}

/// How to look for the cause of a gap.
fn explain_hint(gap: &PredictionGap) -> String {
    let of_one = format!("{} {}", gap.at.metric, gap.at.case);
    format!("no cause was tried (kelvin why {})", of_one.trim_end())
}

/// `waking an idle CPU takes 51 to 64 % of it`.
pub(crate) fn cause_share(cause: &ShownCause) -> String {
    format!("{} takes {} of it", cause.what, share_interval(&cause.share))
}

/// `waking an idle CPU takes 51 to 64 % of it; 20 to 28 % is not explained`.
fn causes_text(causes: &GapCauses) -> String {
    let names =
        |names: &[Name], between: &str| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(between);
    let open = match causes.not_decided.as_slice() {
        [] => String::new(),
        open => format!("; not decided: {}", names(open, ", ")),
    };
    if causes.shown.is_empty() {
        return match causes.ruled_out.as_slice() {
            [] if open.is_empty() => "not explained: no cause could be tried on this machine".into(),
            [] => format!("not explained{open}"),
            tried => format!("not explained; ruled out: {}{open}", names(tried, ", ")),
        };
    }
    let shown: Vec<String> = causes.shown.iter().map(cause_share).collect();
    let left = match causes.not_explained.is_above(0.0) {
        Some(true) => format!("; {} is not explained", share_interval(&causes.not_explained)),
        _ => String::new(),
    };
    format!("{}{left}", shown.join(", "))
}

/// `of the 480 MiB of L3 that the machine reports, this process gets 8 MiB to 12 MiB`.
fn less_than_reported(level: &MemoryLevel) -> String {
    let ends = level.capacity.map_or_else(String::new, |ends| format!("{} to {}", bytes(ends.low), bytes(ends.high)));
    let reported = level.reported_bytes.map(bytes).unwrap_or_default();
    format!("of the {reported} of {} that the machine reports, this process gets {ends}", level.name)
}

fn warning_texts(
    analysis: &Analysis,
    (count, all, by_chance): (usize, usize, f64),
    first: &FigureSource,
    warning: &Warning,
) -> (String, String) {
    let what = match warning {
        Warning::Drift { .. } => "drifted over the run",
        Warning::Modes { .. } => "are bimodal",
        Warning::HalvesDiffer { .. } => "differed between halves of the run",
        Warning::Implausible { .. } => "are implausible",
        _ => "did not reach the target for the interval",
    };
    let expected = match by_chance {
        few if few < 0.5 => String::new(),
        many => format!("; chance alone gives up to about {} among {all}", number(many)),
    };
    let place = metric_name(analysis, first);
    let text = match count {
        1 => format!("{place} {}{expected}", what.replace("are ", "is ")),
        count => format!("{count} of {all} figures {what}, {place} among them{expected}"),
    };
    (text, format!("{place}: {}", warning.text()))
}

/// What the machine is, in one line.
pub(crate) fn machine_line(machine: &Machine) -> String {
    let text = |fact: &Fact<String>, unknown: &str| fact.get().cloned().unwrap_or_else(|| unknown.into());
    let mut parts = vec![text(&machine.cpu.model_name, "unknown CPU")];
    if let Some(name) = super::core_name(&machine.cpu) {
        parts[0] = format!("{} ({name})", parts[0]);
    }
    let count = |fact: &Fact<Vec<u32>>| fact.get().map(Vec::len);
    match (count(&machine.topology.allowed), count(&machine.topology.online)) {
        (Some(allowed), Some(online)) => parts.push(format!("{allowed} of {online} CPUs allowed")),
        (Some(cpus), None) | (None, Some(cpus)) => parts.push(format!("{cpus} CPUs")),
        (None, None) => {}
    }
    if let Some(size) = machine.memory.total_bytes.get() {
        parts.push(format!("{} of memory", bytes(*size)));
    }
    parts.push(format!("Linux {}", text(&machine.kernel.release, "of unknown release")));
    parts.extend(machine.platform.hypervisor.get().cloned().flatten().map(|name| format!("under {name}")));
    parts.extend(machine.platform.container.get().cloned().flatten().map(|name| format!("in {name}")));
    with_full_stop(&parts.join(", "))
}

/// The text with one full stop.
fn with_full_stop(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// The text with a capital first letter, unless it begins with the id of a metric.
fn capitalise(text: &str) -> String {
    let is_id = text.split([' ', ':']).next().is_some_and(|first| first.contains('.') && !first.ends_with('.'));
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !is_id => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
