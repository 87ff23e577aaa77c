//! What is worth knowing about a run, as data: findings by importance.

use std::cmp::Reverse;

use kelvin_model::{Better, Hazard, Name, Need, Run, RunStatus, Severity};

use crate::evidence::Evidence;
use crate::raw::{QUIET, Raw};
use crate::result::{
    AgainstClass, Analysis, AreaAgainstClass, CountOf, Finding, Found, Gap, GapCauses, Importance, MetricResult,
    Outcome, Verdict, Warning,
};
use crate::studies::{network, peer};
use crate::summary::ALPHA;
use crate::{levels, placement, words};

/// Findings that a reader is shown before all others.
const LEADING: usize = 5;
/// Figures worse than predicted among them, unless there is nothing else.
const LEADING_GAPS: usize = 3;
/// Makes the findings of one kind.
type Find = fn(&Run, &Analysis) -> Vec<Raw>;

/// All kinds, in the order in which findings of equal importance are listed.
const ALL: [Find; 16] = [
    clock_changed,
    partial,
    serious_hazards,
    busy,
    core_shared,
    frequency_moved,
    quiet,
    invalid,
    off_class,
    counted,
    memory_levels,
    placement::finding,
    network_in_short,
    other_host_in_short,
    gaps,
    warnings,
];

/// All findings of a run, the most important first.
pub(crate) fn findings(run: &Run, analysis: &Analysis) -> Vec<Finding> {
    let mut all: Vec<Raw> = ALL.iter().flat_map(|find| find(run, analysis)).collect();
    all.sort_by_key(|raw| Reverse(raw.importance));
    all.into_iter().map(|raw| words::findings::worded(raw, run, analysis)).collect()
}

/// The run in a few lines: what the machine is, what its studies answer, then the findings that matter most.
pub(crate) fn verdict(run: &Run, analysis: &Analysis) -> Vec<String> {
    let answers = analysis.studies.iter().flat_map(|study| &study.answers).map(|answer| answer.says.clone());
    let leading = analysis.leading_findings().into_iter().map(|at| analysis.findings[at].text.clone());
    let mut lines = vec![words::findings::machine_line(&run.outline.machine)];
    lines.extend(answers.chain(leading));
    if lines.len() == 1 {
        lines.push("Nothing odd was found.".into());
    }
    lines
}

impl Analysis {
    /// The places, among its findings, of the five that matter most.
    pub fn leading_findings(&self) -> Vec<usize> {
        leading(self)
    }
}

/// The places of the five findings that matter most: what changes how to read the run, then what is worse than predicted by most, then the
/// rest in their order. Details are never among them.
fn leading(analysis: &Analysis) -> Vec<usize> {
    let findings = &analysis.findings;
    let places = |is_wanted: &dyn Fn(&Finding) -> bool| -> Vec<usize> {
        (0..findings.len()).filter(|&at| is_wanted(&findings[at])).collect()
    };
    let major = places(&|finding| finding.importance == Importance::Major);
    let worse = places(&|finding| is_worse(finding, analysis));
    let others = places(&|finding| finding.importance == Importance::Notable && !is_gap(finding));
    let mut leading: Vec<usize> =
        major.into_iter().chain(worse.iter().copied().take(LEADING_GAPS)).chain(others).collect();
    leading.extend(worse.into_iter().skip(LEADING_GAPS));
    leading.truncate(LEADING);
    leading
}

fn is_gap(finding: &Finding) -> bool {
    matches!(finding.found, Found::Gap(_))
}

fn is_worse(finding: &Finding, analysis: &Analysis) -> bool {
    let Found::Gap(gap) = &finding.found else { return false };
    let result = analysis.results.iter().find(|result| result.place() == gap.at);
    result.and_then(how_odd).is_some_and(|(is_worse, _)| is_worse)
}

fn clock_changed(run: &Run, _: &Analysis) -> Vec<Raw> {
    let clock = &run.outline.clock;
    let found = || Found::ClockChanged { before: clock.source_before.clone(), after: clock.source_after.clone() };
    run.clock_changed().then(|| Raw::major(found())).into_iter().collect()
}

fn partial(run: &Run, _: &Analysis) -> Vec<Raw> {
    let RunStatus::Partial(reason) = &run.status else { return Vec::new() };
    vec![Raw::notable(Found::Partial { reason: reason.clone(), seconds: run.seconds })]
}

/// Hazards that all mean that other work kept the machine busy.
const BUSY: [&str; 4] = ["other_work", "load", "pressure_cpu", "pressure_cpu_during"];

fn is_busy(hazard: &Hazard) -> bool {
    BUSY.contains(&hazard.id.as_str())
}

fn serious(run: &Run) -> impl Iterator<Item = &Hazard> {
    run.outline.hazards.iter().filter(|hazard| hazard.severity == Severity::Serious)
}

fn serious_hazards(run: &Run, analysis: &Analysis) -> Vec<Raw> {
    let of = |hazard: &Hazard| {
        let metrics = measured_of(analysis, |result| hazard.touches(&result.metric.id));
        Raw { metrics, ..Raw::major(Found::Hazard { id: hazard.id }) }
    };
    serious(run).filter(|hazard| !is_busy(hazard)).map(of).collect()
}

/// One finding for all signs of a busy machine, the plainest first.
fn busy(run: &Run, _: &Analysis) -> Vec<Raw> {
    let mut hazards: Vec<Name> = serious(run).filter(|hazard| is_busy(hazard)).map(|hazard| hazard.id).collect();
    hazards.sort_by_key(|id| BUSY.iter().position(|known| *id == **known));
    if hazards.is_empty() { Vec::new() } else { vec![Raw::major(Found::Busy { hazards })] }
}

/// The core was shared throughout, judging by earlier runs of the machine.
fn core_shared(_: &Run, analysis: &Analysis) -> Vec<Raw> {
    let found = analysis.core_shared.zip(analysis.block_over_chain);
    let raw = found.map(|(slower, ratio)| Raw::major(Found::CoreShared { slower, block_over_chain: ratio }));
    raw.into_iter().collect()
}

/// A frequency that moved by more than this makes figures of two runs differ more than most changes do.
const MUCH_MOVED: f64 = 0.02;

/// Another run may meet another frequency.
fn frequency_moved(_: &Run, analysis: &Analysis) -> Vec<Raw> {
    let found = |deviation| {
        let importance = if deviation > MUCH_MOVED { Importance::Major } else { Importance::Notable };
        Raw { importance, ..Raw::major(Found::FrequencyMoved { deviation }) }
    };
    analysis.frequency_moved.map(found).into_iter().collect()
}

fn quiet(_: &Run, analysis: &Analysis) -> Vec<Raw> {
    let Some(share) = analysis.undisturbed_share else { return Vec::new() };
    let importance = match share {
        share if share < QUIET / 2.0 => Importance::Major,
        share if share < QUIET => Importance::Notable,
        _ => Importance::Detail,
    };
    vec![Raw { importance, ..Raw::notable(Found::Quiet { share }) }]
}

fn invalid(_: &Run, analysis: &Analysis) -> Vec<Raw> {
    let of = |result: &MetricResult| match &result.outcome {
        Outcome::Invalid(ceiling) => {
            Some(Raw::major(Found::Invalid { at: result.place(), ceiling: ceiling.clone() }).about(result))
        }
        _ => None,
    };
    asked(analysis).filter_map(of).collect()
}

/// An area that is slow as a whole changes how to read all of its figures; one that is fast is good to know. Where all areas are slow it is the
/// machine that is.
fn off_class(_: &Run, analysis: &Analysis) -> Vec<Raw> {
    let known: Vec<&AreaAgainstClass> = analysis.normal.areas.iter().filter(|area| !area.rests_on_few).collect();
    if known.len() > 1 && known.iter().all(|area| area.against == AgainstClass::Slower) {
        let metrics =
            measured_of(analysis, |result| known.iter().any(|area| result.metric.area() == area.area.as_str()));
        let found = Found::SlowMachine(known.into_iter().cloned().collect());
        return vec![Raw { importance: Importance::Major, found, metrics }];
    }
    let of = |area: &AreaAgainstClass| {
        let importance = match area.against {
            AgainstClass::Usual => return None,
            AgainstClass::Slower if area.rests_on_few => Importance::Detail,
            AgainstClass::Slower => Importance::Major,
            AgainstClass::Faster => Importance::Detail,
        };
        let metrics = measured_of(analysis, |result| result.metric.area() == area.area.as_str());
        Some(Raw { importance, found: Found::OffClass(area.clone()), metrics })
    };
    analysis.normal.areas.iter().filter_map(of).collect()
}

/// What the run was asked for: what is measured only as an input of other predictions is no finding.
fn asked(analysis: &Analysis) -> impl Iterator<Item = &MetricResult> {
    analysis.results.iter().filter(|result| !result.only_input)
}

/// How many metrics failed, are not known, or were skipped.
fn counted(_: &Run, analysis: &Analysis) -> Vec<Raw> {
    let kinds = [
        (Importance::Major, CountOf::Failed),
        (Importance::Notable, CountOf::NotKnown),
        (Importance::Detail, CountOf::Skipped),
    ];
    kinds.into_iter().filter_map(|(importance, of)| count(analysis, importance, of)).collect()
}

fn count(analysis: &Analysis, importance: Importance, of: CountOf) -> Option<Raw> {
    let is_of = |result: &&MetricResult| {
        matches!(
            (&result.outcome, of),
            (Outcome::Failed(_), CountOf::Failed)
                | (Outcome::NotKnown(_), CountOf::NotKnown)
                | (Outcome::Skipped(_), CountOf::Skipped)
        )
    };
    let first = asked(analysis).find(is_of)?.place();
    let count = asked(analysis).filter(is_of).count();
    let all = if of == CountOf::Skipped { asked(analysis).count() } else { tried(analysis) };
    let metrics = measured_of(analysis, |result| is_of(&result));
    Some(Raw { importance, found: Found::Counted { of, count, all, first }, metrics })
}

/// Figures that the run set out to measure, whatever the outcome.
fn tried(analysis: &Analysis) -> usize {
    let is_left_out = |outcome: &Outcome| matches!(outcome, Outcome::Skipped(_) | Outcome::NotReached);
    asked(analysis).filter(|result| !is_left_out(&result.outcome)).count()
}

/// The memory hierarchy, where the curve has levels.
fn memory_levels(_: &Run, analysis: &Analysis) -> Vec<Raw> {
    let was_asked = asked(analysis).any(|result| result.metric.id == kelvin_catalogue::mem::LATENCY.id);
    let found = analysis.levels.as_ref().filter(|found| was_asked && found.levels.len() > 1);
    let raw = |_| Raw { metrics: vec![kelvin_catalogue::mem::LATENCY.id], ..Raw::notable(Found::MemoryLevels) };
    found.map(raw).into_iter().collect()
}

/// The network: conclusions that hold by a test.
fn network_in_short(run: &Run, analysis: &Analysis) -> Vec<Raw> {
    let said: Vec<String> =
        network::essence(&Evidence::of(run), &analysis.studies).into_iter().map(|one| one.text.clone()).collect();
    if said.is_empty() {
        return Vec::new();
    }
    let is_local = |result: &MetricResult| result.metric.area() == "net" && !is_to_other_host(result);
    let metrics = measured_of(analysis, is_local);
    if metrics.is_empty() { Vec::new() } else { vec![Raw { metrics, ..Raw::notable(Found::Network { said }) }] }
}

fn is_to_other_host(result: &MetricResult) -> bool {
    kelvin_catalogue::find(result.metric.id).is_some_and(|metric| metric.needs == Some(Need::Agent))
}

/// The network to another host.
fn other_host_in_short(run: &Run, analysis: &Analysis) -> Vec<Raw> {
    let Some(essence) = peer::essence(&Evidence::of(run), &analysis.studies) else { return Vec::new() };
    let said = words::findings::of_other_host(&essence);
    let metrics = measured_of(analysis, is_to_other_host);
    if metrics.is_empty() { Vec::new() } else { vec![Raw { metrics, ..Raw::notable(Found::OtherHost { said }) }] }
}

/// The metrics of some results, each once.
fn measured_of(analysis: &Analysis, is_wanted: impl Fn(&MetricResult) -> bool) -> Vec<Name> {
    let mut metrics: Vec<Name> =
        asked(analysis).filter(|result| is_wanted(result)).map(|result| result.metric.id).collect();
    metrics.dedup();
    metrics
}

/// Gaps between measured and predicted: what is worse than predicted before what is better, and of each first what lies furthest outside
/// its range in units of that range's uncertainty; of the points of a curve only the first. Of slow-downs planted in a stored run that
/// order tells more than the ratio alone: see the book, under predictions.
fn gaps(run: &Run, analysis: &Analysis) -> Vec<Raw> {
    let gaps = asked(analysis).filter_map(|result| Some((how_odd(result)?, result)));
    let mut gaps: Vec<((bool, f64), &MetricResult)> = gaps.collect();
    gaps.sort_by(|(a, _), (b, _)| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut seen = Vec::new();
    gaps.retain(|(_, result)| {
        let new = !seen.contains(&result.metric.id);
        seen.push(result.metric.id);
        new
    });
    gaps.into_iter().filter_map(|(_, result)| gap(run, analysis, result)).collect()
}

/// Whether a figure outside its range is worse than predicted, and how far outside it lies, in half-widths of the range; `None` within
/// it.
fn how_odd(result: &MetricResult) -> Option<(bool, f64)> {
    let is_worse = match (result.verdict, result.metric.better) {
        (Verdict::Above, better) => better == Better::Lower,
        (Verdict::Below, better) => better == Better::Higher,
        _ => return None,
    };
    // A range without a width is left by any figure.
    Some((is_worse, result.outside.unwrap_or(f64::INFINITY)))
}

fn gap(run: &Run, analysis: &Analysis, result: &MetricResult) -> Option<Raw> {
    let level = analysis.levels.as_ref().and_then(|found| levels::explanation(found, result)).cloned();
    let at = result.place();
    let causes = GapCauses::tried(run, &at);
    let gap = Gap { at, ratio: result.ratio?, level, hazards: result.explained_by.clone(), causes };
    Some(Raw::notable(Found::Gap(gap)).about(result))
}

/// A kind of warning that is summarised in one finding.
struct WarningKind {
    importance: Importance,
    is: fn(&Warning) -> bool,
    /// Chance that a figure has it by accident; 0 if it is not from a test.
    alpha: f64,
}

const WARNINGS: [WarningKind; 5] = [
    WarningKind {
        importance: Importance::Notable,
        is: |warning| matches!(warning, Warning::Implausible { .. }),
        alpha: 0.0,
    },
    WarningKind {
        importance: Importance::Notable,
        is: |warning| matches!(warning, Warning::Drift { .. }),
        alpha: ALPHA,
    },
    WarningKind { importance: Importance::Notable, is: |warning| matches!(warning, Warning::Modes { .. }), alpha: 0.0 },
    WarningKind {
        importance: Importance::Notable,
        is: |warning| matches!(warning, Warning::HalvesDiffer { .. }),
        alpha: ALPHA,
    },
    WarningKind { importance: Importance::Detail, is: |warning| matches!(warning, Warning::Wide { .. }), alpha: 0.0 },
];

fn warnings(_: &Run, analysis: &Analysis) -> Vec<Raw> {
    WARNINGS.iter().filter_map(|kind| warned(analysis, kind)).collect()
}

/// Figures with one kind of warning; a detail where chance alone explains as many.
fn warned(analysis: &Analysis, kind: &WarningKind) -> Option<Raw> {
    let all = tried(analysis);
    let is_hit = |result: &MetricResult| result.warnings.iter().any(kind.is);
    let first = asked(analysis).find(|result| is_hit(result))?;
    let warning = first.warnings.iter().find(|warning| (kind.is)(warning))?.clone();
    let count = asked(analysis).filter(|result| is_hit(result)).count();
    let by_chance = kind.alpha * all as f64;
    let is_chance = count as f64 <= 2.0 * by_chance;
    Some(Raw {
        importance: if is_chance { Importance::Detail } else { kind.importance },
        found: Found::Warned { count, all, by_chance, first: first.place(), warning },
        metrics: measured_of(analysis, is_hit),
    })
}
