//! Findings in words: a sentence, and its evidence.

use kelvin_catalogue::mem::BANDWIDTH_CORE_TO_CORE;
use kelvin_model::units::{bytes, metric_at, number, percent, plain};
use kelvin_model::{Canary, Case, Claim, Fact, Hazard, LevelClaim, Machine, Name, Place, Run, Unit};

use super::conclusions::{limited_by, of_range, peer_streams};
use super::screen::not_distinguishable;
use super::why::shares;
use super::{claim, evidence};
use crate::raw::{QUIET, Raw};
use crate::result::{
    Analysis, CanaryHistory, CountOf, Finding, Found, Gap, GapCauses, MemoryLevel, MemoryLevels, MetricResult, Moved,
    Outcome, ShownCause, Warning,
};
use crate::screen::next_level;
use crate::studies::peer::{Essence, EssentialStream};
use crate::summary::modes_in_words;

/// A finding with its words.
pub(crate) fn worded(raw: Raw, run: &Run, analysis: &Analysis) -> Finding {
    let (text, because) = said(&raw.found, run, analysis);
    Finding {
        importance: raw.importance,
        text: capitalised(&sentence(&text)),
        because,
        found: raw.found,
        metrics: raw.metrics,
    }
}

/// The sentence, and its evidence.
fn said(found: &Found, run: &Run, analysis: &Analysis) -> (String, String) {
    let hazard = |id: &Name| run.outline.hazards.iter().find(|hazard| hazard.id == *id);
    match found {
        Found::ClockChanged { before, after } => {
            let name = |source: &Option<String>| source.clone().unwrap_or_else(|| "unknown".into());
            (
                "The kernel's clock source changed during the run: its times cannot be trusted".into(),
                format!("clock source {} before, {} after", name(before), name(after)),
            )
        }
        Found::Partial { reason, seconds } => (
            format!("The run is partial ({reason}): the rest was not measured"),
            format!("it ended after {} s", number(*seconds)),
        ),
        Found::Hazard { id } => of_hazard(hazard(id)),
        Found::Busy { hazards } => of_busy(&hazards.iter().filter_map(hazard).collect::<Vec<_>>()),
        Found::CoreShared { slower, block_over_chain } => (
            "Another thread shared this core during the whole run, judging by earlier runs: measure again later".into(),
            format!(
                "the block canary took {} times the chain canary at its best, {} more than in earlier runs",
                number(*block_over_chain),
                percent(slower - 1.0)
            ),
        ),
        Found::FrequencyMoved { deviation } => (
            format!(
                "The core's frequency kept moving, by {} of its usual one: the times of another run may differ from these by as much",
                percent(*deviation)
            ),
            "by the chain canary, where the block shows no neighbour: intervals of what follows the frequency are as wide".into(),
        ),
        Found::Quiet { share } => of_quiet(*share, analysis),
        Found::Invalid { at, ceiling } => {
            let unit = unit_at(analysis, at);
            let bound = format!("the bound is {}", plain(ceiling.bound, unit));
            let text = format!(
                "{} measured {}, which is impossible: {}",
                named(analysis, at),
                plain(ceiling.value, unit),
                ceiling.likely_cause
            );
            (text, ceiling.derivation.as_ref().map_or(bound.clone(), |derivation| format!("{bound}: {derivation}")))
        }
        Found::Counted { of, count, all, first } => of_count(analysis, (*of, *count, *all), first),
        Found::MemoryLevels => analysis.levels.as_ref().map(of_levels).unwrap_or_default(),
        Found::Moved(moved) => of_moved(moved, analysis),
        Found::Network { said } => (
            format!("Network: {}", said.join("; ")),
            "each holds by the interval of a ratio of medians: see the studies net.rtt and net.bandwidth".into(),
        ),
        Found::OtherHost { said } => (
            format!("Network to the other host: {}", said.join("; ")),
            "each holds by an interval over rounds: see the study net.peer".into(),
        ),
        Found::OffClass(area) => super::normal::off_class(area),
        Found::SlowMachine(areas) => super::normal::slow_machine(areas),
        Found::Gap(gap) => of_gap(gap, analysis),
        Found::Warned { count, all, by_chance, first, warning } => {
            of_warning(analysis, (*count, *all, *by_chance), first, warning)
        }
    }
}

fn of_hazard(hazard: Option<&Hazard>) -> (String, String) {
    hazard.map(|hazard| (format!("{}: {}", hazard.summary, hazard.effect), hazard.source.clone())).unwrap_or_default()
}

fn of_busy(hazards: &[&Hazard]) -> (String, String) {
    let sources: Vec<String> = hazards.iter().map(|hazard| format!("{} ({})", hazard.summary, hazard.source)).collect();
    let first = hazards.first().map_or("", |hazard| hazard.summary.as_str());
    (format!("Other work kept this machine busy: {first}"), sources.join("; "))
}

fn of_quiet(share: f64, analysis: &Analysis) -> (String, String) {
    let what = match share {
        share if share < QUIET / 2.0 => "The machine was rarely quiet",
        share if share < QUIET => "The machine was quiet only part of the time",
        _ => "The machine was quiet",
    };
    let name = |canary: Canary| canary.name();
    let steady = |history: &CanaryHistory| format!("{} steady {}", name(history.canary), percent(history.steady_share));
    let steady = analysis.canaries.iter().map(steady).collect::<Vec<String>>().join(", ");
    let slowed = analysis.slowed.filter(|_| share < QUIET).map(|slowed| {
        format!("; on average work took {} longer than undisturbed, in another run more or less", percent(slowed))
    });
    (
        format!("{what}: {} of the guarded samples were undisturbed", percent(share)),
        format!("canaries beside each sample: {steady}{}", slowed.unwrap_or_default()),
    )
}

/// The result at a place.
fn at<'a>(analysis: &'a Analysis, place: &Place) -> Option<&'a MetricResult> {
    analysis.results.iter().find(|result| result.metric.id == place.metric && result.case == place.case)
}

fn unit_at(analysis: &Analysis, place: &Place) -> Unit {
    at(analysis, place).map_or(Unit::Ratio, |result| result.metric.unit)
}

fn named(analysis: &Analysis, place: &Place) -> String {
    at(analysis, place).map_or_else(|| place.metric.to_string(), |result| metric_at(&result.metric, &result.case))
}

fn of_count(analysis: &Analysis, (of, count, all): (CountOf, usize, usize), first: &Place) -> (String, String) {
    let what = match of {
        CountOf::Failed => "failed",
        CountOf::NotKnown => "are not known: too few undisturbed samples",
        CountOf::Skipped => "were skipped",
    };
    let reason = match at(analysis, first).map(|result| &result.outcome) {
        Some(Outcome::Failed(reason)) => reason.clone(),
        Some(Outcome::NotKnown(summary)) => format!("{} undisturbed", percent(summary.kept_share)),
        Some(Outcome::Skipped(reason)) => reason.0.clone(),
        _ => String::new(),
    };
    (format!("{count} of {all} figures {what}"), format!("first: {}: {reason}", named(analysis, first)))
}

/// The whole hierarchy in one line.
fn of_levels(found: &MemoryLevels) -> (String, String) {
    let each = found.levels.iter().map(|level| {
        let latency = format!("{} {}", level.name, plain(level.latency, Unit::Nanoseconds));
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
        Claim::Level(LevelClaim::Unseen { level, .. }) => {
            let name = format!("L{level}");
            Some(format!("; {name} {}", not_distinguishable(next_level(&name, &all))))
        }
        _ => None,
    });
    let unseen: String = unseen.collect();
    let test = found.conclusions.first().map(|conclusion| evidence(conclusion)).unwrap_or_default();
    (format!("Latency by working set: {}{differs}{unseen}", each.collect::<Vec<_>>().join(", ")), test)
}

fn of_moved(moved: &Moved, analysis: &Analysis) -> (String, String) {
    let line = Place { metric: BANDWIDTH_CORE_TO_CORE.id, case: moved.case.clone() };
    let Some((result, summary)) = at(analysis, &line).and_then(|result| Some((result, result.outcome.summary()?)))
    else {
        return Default::default();
    };
    let (unit, of) = (result.metric.unit, summary.modes_of.words());
    let changes =
        format!("Core-to-core latency alternates between {} of the {of}", modes_in_words(summary.states(), unit));
    let rate = moved.most.and_then(|metric| at(analysis, &Place { metric, case: moved.case.clone() }));
    let text = match rate.and_then(|rate| Some((rate, rate.outcome.summary()?))) {
        Some((rate, states)) => format!(
            "{changes}; the bandwidth of all CPUs follows it, {} the most: {}",
            rate.metric.id,
            modes_in_words(states.states(), rate.metric.unit)
        ),
        None => {
            format!("{changes}; the bandwidths of all CPUs in this run belong to {}", plain(summary.headline, unit))
        }
    };
    (text, format!("two modes of core-to-core latency, separated over the {of} at {}", moved.case))
}

/// What the streams of each direction carried, and what tests support.
pub(crate) fn of_other_host(essence: &Essence) -> Vec<String> {
    essence.streams.iter().map(of_stream).chain(essence.sure.iter().map(claim)).collect()
}

/// `4 TCP streams to the agent carry 117 MB/s (116 MB/s to 118 MB/s), 98 % of the link`.
fn of_stream(stream: &EssentialStream) -> String {
    let case: &Case = &stream.rate.case;
    let is_one = kelvin_catalogue::net::STREAMS.of(case) == Some(1);
    let rate = |value| plain(value, stream.rate.unit);
    let interval = stream.interval.map_or_else(String::new, |found| {
        format!(" ({}{} to {})", of_range(&found), rate(found.low), rate(found.high))
    });
    let link = stream.carried.as_ref().map_or_else(String::new, |carried| match &carried.claim {
        Claim::Share { share, .. } => format!(", {} of the link", percent(share.value)),
        _ => String::new(),
    });
    let limit = stream.limit.as_ref().map_or_else(String::new, |limit| match &limit.claim {
        Claim::HostLimit { busy, full, .. } => {
            let are = if is_one { "is" } else { "are" };
            let [here, there] = busy.map(|share| percent(share.value));
            format!(" and {are} {} (the test uses {here} of a CPU here, {there} there)", limited_by(busy, *full))
        }
        _ => String::new(),
    });
    let carry = if is_one { "carries" } else { "carry" };
    format!("{} {carry} {}{interval}{link}{limit}", peer_streams(case), rate(stream.rate.value))
}

fn of_gap(gap: &Gap, analysis: &Analysis) -> (String, String) {
    let found =
        at(analysis, &gap.at).and_then(|result| Some((result, result.outcome.summary()?, result.prediction.as_ref()?)));
    let Some((result, summary, prediction)) = found else { return Default::default() };
    let unit = result.metric.unit;
    let measured = match summary.states() {
        [] => plain(summary.headline, unit),
        states => format!("bimodal, {} of the {}", modes_in_words(states, unit), summary.modes_of.words()),
    };
    let text = format!(
        "{}: {measured}, {}: {} times the predicted {}; {}",
        named(analysis, &gap.at),
        super::against_prediction(result),
        number(gap.ratio),
        plain(prediction.value, unit),
        explanation(gap).unwrap_or_else(|| to_explain(gap))
    );
    let interval = summary.interval.map_or_else(
        || plain(summary.headline, unit),
        |interval| format!("{} to {}", plain(interval.lower, unit), plain(interval.upper, unit)),
    );
    let because = format!(
        "measured over predicted: {}; the interval {interval} does not touch the predicted range from {} to {}{} ({})",
        number(gap.ratio),
        plain(prediction.low, unit),
        plain(prediction.high, unit),
        super::outside(result).map_or_else(String::new, |outside| format!(", {outside}")),
        prediction.derivation
    );
    (text, because)
}

/// What explains a gap: only what was shown. A hazard that was not tried as a cause explains nothing. `None` where no cause was tried.
pub(crate) fn explanation(gap: &Gap) -> Option<String> {
    gap.level.as_ref().map(less_than_reported).or_else(|| gap.causes.as_ref().map(of_causes))
}

/// How to look for the cause of a gap.
fn to_explain(gap: &Gap) -> String {
    let of_one = format!("{} {}", gap.at.metric, gap.at.case);
    format!("no cause was tried (kelvin why {})", of_one.trim_end())
}

/// `waking an idle CPU takes 51 to 64 % of it`.
pub(crate) fn takes(cause: &ShownCause) -> String {
    format!("{} takes {} of it", cause.what, shares(&cause.share))
}

/// `waking an idle CPU takes 51 to 64 % of it; 20 to 28 % is not explained`.
fn of_causes(causes: &GapCauses) -> String {
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
    let shown: Vec<String> = causes.shown.iter().map(takes).collect();
    let left = match causes.not_explained.is_above(0.0) {
        Some(true) => format!("; {} is not explained", shares(&causes.not_explained)),
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

fn of_warning(
    analysis: &Analysis,
    (count, all, by_chance): (usize, usize, f64),
    first: &Place,
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
    let place = named(analysis, first);
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
    if let Some(name) = super::core(&machine.cpu) {
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
    sentence(&parts.join(", "))
}

/// The text with one full stop.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// The text with a capital first letter, unless it begins with the id of a metric.
fn capitalised(text: &str) -> String {
    let is_id = text.split([' ', ':']).next().is_some_and(|first| first.contains('.') && !first.ends_with('.'));
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !is_id => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
