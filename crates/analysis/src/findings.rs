//! What is worth knowing about a run, as data: findings by importance.

use std::cmp::Reverse;

use kelvin_core::{Better, Hazard, Name, Need, Run, RunStatus, Severity};

use crate::evidence::Evidence;
use crate::result::{
    Analysis, AreaComparison, ClassVerdict, Finding, FindingData, GapCauses, Importance, MetricResult,
    MissingFigureKind, Outcome, PredictionGap, RangeVerdict, Warning,
};
use crate::studies::{network, peer};
use crate::summary::TREND_ALPHA;
use crate::unworded_finding::{MIN_QUIET_SHARE, UnwordedFinding};
use crate::{cpu_placement_modes, levels, wording};

/// Findings that a reader is shown before all others.
const MAX_LEADING_FINDINGS: usize = 5;
/// Figures worse than predicted among them, unless there is nothing else.
const MAX_LEADING_GAPS: usize = 3;
/// Makes the findings of one kind.
type FindingRule = fn(&Run, &Analysis) -> Vec<UnwordedFinding>;

/// All kinds, in the order in which findings of equal importance are listed.
const FINDING_RULES: [FindingRule; 16] = [
    changed_clock,
    partial_run,
    serious_hazards,
    busy_machine,
    shared_core,
    moved_frequency,
    quietness,
    invalid_figures,
    off_class,
    missing_counts,
    memory_levels,
    cpu_placement_modes::moved_cpus_finding,
    network_highlights,
    other_host_highlights,
    prediction_gaps,
    warnings,
];

/// All findings of a run, the most important first.
pub(crate) fn findings(run: &Run, analysis: &Analysis) -> Vec<Finding> {
    let mut all: Vec<UnwordedFinding> = FINDING_RULES.iter().flat_map(|find| find(run, analysis)).collect();
    all.sort_by_key(|raw| Reverse(raw.importance));
    all.into_iter().map(|raw| wording::findings::word_finding(raw, run, analysis)).collect()
}

/// The run in a few lines: what the machine is, what its studies answer, then the findings that matter most.
pub(crate) fn verdict(run: &Run, analysis: &Analysis) -> Vec<String> {
    let answers = analysis.studies.iter().flat_map(|study| &study.answers).map(|answer| answer.says.clone());
    let leading = analysis.leading_findings().into_iter().map(|at| analysis.findings[at].text.clone());
    let mut lines = vec![wording::findings::machine_line(&run.outline.machine)];
    lines.extend(answers.chain(leading));
    if lines.len() == 1 {
        lines.push("Nothing odd was found.".into());
    }
    lines
}

impl Analysis {
    /// The places, among its findings, of the five that matter most.
    pub fn leading_findings(&self) -> Vec<usize> {
        leading_indices(self)
    }
}

/// The places of the five findings that matter most: what changes how to read the run, then what is worse than predicted by most, then the
/// rest in their order. Details are never among them.
fn leading_indices(analysis: &Analysis) -> Vec<usize> {
    let findings = &analysis.findings;
    let places = |is_wanted: &dyn Fn(&Finding) -> bool| -> Vec<usize> {
        (0..findings.len()).filter(|&at| is_wanted(&findings[at])).collect()
    };
    let major = places(&|finding| finding.importance == Importance::Major);
    let worse = places(&|finding| is_worse(finding, analysis));
    let others = places(&|finding| finding.importance == Importance::Notable && !is_gap(finding));
    let mut leading: Vec<usize> =
        major.into_iter().chain(worse.iter().copied().take(MAX_LEADING_GAPS)).chain(others).collect();
    leading.extend(worse.into_iter().skip(MAX_LEADING_GAPS));
    leading.truncate(MAX_LEADING_FINDINGS);
    leading
}

fn is_gap(finding: &Finding) -> bool {
    matches!(finding.found, FindingData::Gap(_))
}

fn is_worse(finding: &Finding, analysis: &Analysis) -> bool {
    let FindingData::Gap(gap) = &finding.found else { return false };
    let result = analysis.results.iter().find(|result| result.figure_source() == gap.at);
    result.and_then(gap_distance).is_some_and(|(is_worse, _)| is_worse)
}

fn changed_clock(run: &Run, _: &Analysis) -> Vec<UnwordedFinding> {
    let clock = &run.outline.clock;
    let found = || FindingData::ClockChanged { before: clock.source_before.clone(), after: clock.source_after.clone() };
    run.has_clock_changed().then(|| UnwordedFinding::major(found())).into_iter().collect()
}

fn partial_run(run: &Run, _: &Analysis) -> Vec<UnwordedFinding> {
    let RunStatus::Partial(reason) = &run.status else { return Vec::new() };
    vec![UnwordedFinding::notable(FindingData::Partial { reason: reason.clone(), seconds: run.seconds })]
}

/// Hazards that all mean that other work kept the machine busy.
const BUSY_HAZARDS: [&str; 4] = ["other_work", "load", "pressure_cpu", "pressure_cpu_during"];

fn is_busy(hazard: &Hazard) -> bool {
    BUSY_HAZARDS.contains(&hazard.id.as_str())
}

fn serious_hazards_of(run: &Run) -> impl Iterator<Item = &Hazard> {
    run.outline.hazards.iter().filter(|hazard| hazard.severity == Severity::Serious)
}

fn serious_hazards(run: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let of = |hazard: &Hazard| {
        let metrics = metrics_of_results(analysis, |result| hazard.is_affecting(&result.metric.id));
        UnwordedFinding { metrics, ..UnwordedFinding::major(FindingData::Hazard { id: hazard.id }) }
    };
    serious_hazards_of(run).filter(|hazard| !is_busy(hazard)).map(of).collect()
}

/// One finding for all signs of a busy machine, the plainest first.
fn busy_machine(run: &Run, _: &Analysis) -> Vec<UnwordedFinding> {
    let mut hazards: Vec<Name> =
        serious_hazards_of(run).filter(|hazard| is_busy(hazard)).map(|hazard| hazard.id).collect();
    hazards.sort_by_key(|id| BUSY_HAZARDS.iter().position(|known| *id == **known));
    if hazards.is_empty() { Vec::new() } else { vec![UnwordedFinding::major(FindingData::Busy { hazards })] }
}

/// The core was shared throughout, judging by earlier runs of the machine.
fn shared_core(_: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let found = analysis.core_shared.zip(analysis.block_over_chain);
    let raw = found
        .map(|(slower, ratio)| UnwordedFinding::major(FindingData::CoreShared { slower, block_over_chain: ratio }));
    raw.into_iter().collect()
}

/// A frequency that moved by more than this makes figures of two runs differ more than most changes do.
const MIN_FREQUENCY_DEVIATION: f64 = 0.02;

/// Another run may meet another frequency.
fn moved_frequency(_: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let found = |deviation| {
        let importance = if deviation > MIN_FREQUENCY_DEVIATION { Importance::Major } else { Importance::Notable };
        UnwordedFinding { importance, ..UnwordedFinding::major(FindingData::FrequencyMoved { deviation }) }
    };
    analysis.frequency_moved.map(found).into_iter().collect()
}

fn quietness(_: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let Some(share) = analysis.undisturbed_share else { return Vec::new() };
    let importance = match share {
        share if share < MIN_QUIET_SHARE / 2.0 => Importance::Major,
        share if share < MIN_QUIET_SHARE => Importance::Notable,
        _ => Importance::Detail,
    };
    vec![UnwordedFinding { importance, ..UnwordedFinding::notable(FindingData::Quiet { share }) }]
}

fn invalid_figures(_: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let of = |result: &MetricResult| match &result.outcome {
        Outcome::Invalid(ceiling) => Some(
            UnwordedFinding::major(FindingData::Invalid { at: result.figure_source(), ceiling: ceiling.clone() })
                .with_metric(result),
        ),
        _ => None,
    };
    requested_results(analysis).filter_map(of).collect()
}

/// An area that is slow as a whole changes how to read all of its figures; one that is fast is good to know. Where all areas are slow it is the
/// machine that is.
fn off_class(_: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let known: Vec<&AreaComparison> = analysis.normal.areas.iter().filter(|area| !area.rests_on_few).collect();
    if known.len() > 1 && known.iter().all(|area| area.against == ClassVerdict::Slower) {
        let metrics =
            metrics_of_results(analysis, |result| known.iter().any(|area| result.metric.area() == area.area.as_str()));
        let data = FindingData::SlowMachine(known.into_iter().cloned().collect());
        return vec![UnwordedFinding { importance: Importance::Major, data, metrics }];
    }
    let of = |area: &AreaComparison| {
        let importance = match area.against {
            ClassVerdict::Usual => return None,
            ClassVerdict::Slower if area.rests_on_few => Importance::Detail,
            ClassVerdict::Slower => Importance::Major,
            ClassVerdict::Faster => Importance::Detail,
        };
        let metrics = metrics_of_results(analysis, |result| result.metric.area() == area.area.as_str());
        Some(UnwordedFinding { importance, data: FindingData::OffClass(area.clone()), metrics })
    };
    analysis.normal.areas.iter().filter_map(of).collect()
}

/// What the run was asked for: what is measured only as an input of other predictions is no finding.
fn requested_results(analysis: &Analysis) -> impl Iterator<Item = &MetricResult> {
    analysis.results.iter().filter(|result| !result.only_input)
}

/// How many metrics failed, are not known, or were skipped.
fn missing_counts(_: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let kinds = [
        (Importance::Major, MissingFigureKind::Failed),
        (Importance::Notable, MissingFigureKind::NotKnown),
        (Importance::Detail, MissingFigureKind::Skipped),
    ];
    kinds.into_iter().filter_map(|(importance, of)| missing_count(analysis, importance, of)).collect()
}

fn missing_count(analysis: &Analysis, importance: Importance, of: MissingFigureKind) -> Option<UnwordedFinding> {
    let is_of = |result: &&MetricResult| {
        matches!(
            (&result.outcome, of),
            (Outcome::Failed(_), MissingFigureKind::Failed)
                | (Outcome::NotKnown(_), MissingFigureKind::NotKnown)
                | (Outcome::Skipped(_), MissingFigureKind::Skipped)
        )
    };
    let first = requested_results(analysis).find(is_of)?.figure_source();
    let count = requested_results(analysis).filter(is_of).count();
    let all = if of == MissingFigureKind::Skipped {
        requested_results(analysis).count()
    } else {
        attempted_figures(analysis)
    };
    let metrics = metrics_of_results(analysis, |result| is_of(&result));
    Some(UnwordedFinding { importance, data: FindingData::Counted { of, count, all, first }, metrics })
}

/// Figures that the run set out to measure, whatever the outcome.
fn attempted_figures(analysis: &Analysis) -> usize {
    let is_left_out = |outcome: &Outcome| matches!(outcome, Outcome::Skipped(_) | Outcome::NotReached);
    requested_results(analysis).filter(|result| !is_left_out(&result.outcome)).count()
}

/// The memory hierarchy, where the curve has levels.
fn memory_levels(_: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let was_asked =
        requested_results(analysis).any(|result| result.metric.id == kelvin_core::catalogue::mem::LATENCY.id);
    let found = analysis.levels.as_ref().filter(|found| was_asked && found.levels.len() > 1);
    let raw = |_| UnwordedFinding {
        metrics: vec![kelvin_core::catalogue::mem::LATENCY.id],
        ..UnwordedFinding::notable(FindingData::MemoryLevels)
    };
    found.map(raw).into_iter().collect()
}

/// The network: conclusions that hold by a test.
fn network_highlights(run: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let said: Vec<String> = network::network_essentials(&Evidence::from_run(run), &analysis.studies)
        .into_iter()
        .map(|one| one.text.clone())
        .collect();
    if said.is_empty() {
        return Vec::new();
    }
    let is_local = |result: &MetricResult| result.metric.area() == "net" && !is_to_other_host(result);
    let metrics = metrics_of_results(analysis, is_local);
    if metrics.is_empty() {
        Vec::new()
    } else {
        vec![UnwordedFinding { metrics, ..UnwordedFinding::notable(FindingData::Network { said }) }]
    }
}

fn is_to_other_host(result: &MetricResult) -> bool {
    kelvin_core::catalogue::find(result.metric.id).is_some_and(|metric| metric.needs == Some(Need::Agent))
}

/// The network to another host.
fn other_host_highlights(run: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let Some(essence) = peer::peer_essentials(&Evidence::from_run(run), &analysis.studies) else { return Vec::new() };
    let said = wording::findings::peer_sentences(&essence);
    let metrics = metrics_of_results(analysis, is_to_other_host);
    if metrics.is_empty() {
        Vec::new()
    } else {
        vec![UnwordedFinding { metrics, ..UnwordedFinding::notable(FindingData::OtherHost { said }) }]
    }
}

/// The metrics of some results, each once.
fn metrics_of_results(analysis: &Analysis, is_wanted: impl Fn(&MetricResult) -> bool) -> Vec<Name> {
    let mut metrics: Vec<Name> =
        requested_results(analysis).filter(|result| is_wanted(result)).map(|result| result.metric.id).collect();
    metrics.dedup();
    metrics
}

/// Gaps between measured and predicted: what is worse than predicted before what is better, and of each first what lies furthest outside
/// its range in units of that range's uncertainty; of the points of a curve only the first. Of slow-downs planted in a stored run that
/// order tells more than the ratio alone: see the book, under predictions.
fn prediction_gaps(run: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    let gaps = requested_results(analysis).filter_map(|result| Some((gap_distance(result)?, result)));
    let mut gaps: Vec<((bool, f64), &MetricResult)> = gaps.collect();
    gaps.sort_by(|(a, _), (b, _)| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut seen = Vec::new();
    gaps.retain(|(_, result)| {
        let new = !seen.contains(&result.metric.id);
        seen.push(result.metric.id);
        new
    });
    gaps.into_iter().filter_map(|(_, result)| prediction_gap(run, analysis, result)).collect()
}

/// Whether a figure outside its range is worse than predicted, and how far outside it lies, in half-widths of the range; `None` within
/// it.
fn gap_distance(result: &MetricResult) -> Option<(bool, f64)> {
    let is_worse = match (result.verdict, result.metric.better) {
        (RangeVerdict::Above, better) => better == Better::Lower,
        (RangeVerdict::Below, better) => better == Better::Higher,
        _ => return None,
    };
    // A range without a width is left by any figure.
    Some((is_worse, result.outside.unwrap_or(f64::INFINITY)))
}

fn prediction_gap(run: &Run, analysis: &Analysis, result: &MetricResult) -> Option<UnwordedFinding> {
    let level = analysis.levels.as_ref().and_then(|found| levels::smaller_cache_level(found, result)).cloned();
    let at = result.figure_source();
    let causes = GapCauses::from_run(run, &at);
    let gap = PredictionGap { at, ratio: result.ratio?, level, hazards: result.explained_by.clone(), causes };
    Some(UnwordedFinding::notable(FindingData::Gap(gap)).with_metric(result))
}

/// A kind of warning that is summarised in one finding.
struct WarningKind {
    importance: Importance,
    is_kind: fn(&Warning) -> bool,
    /// Chance that a figure has it by accident; 0 if it is not from a test.
    alpha: f64,
}

const WARNING_KINDS: [WarningKind; 5] = [
    WarningKind {
        importance: Importance::Notable,
        is_kind: |warning| matches!(warning, Warning::Implausible { .. }),
        alpha: 0.0,
    },
    WarningKind {
        importance: Importance::Notable,
        is_kind: |warning| matches!(warning, Warning::Drift { .. }),
        alpha: TREND_ALPHA,
    },
    WarningKind {
        importance: Importance::Notable,
        is_kind: |warning| matches!(warning, Warning::Modes { .. }),
        alpha: 0.0,
    },
    WarningKind {
        importance: Importance::Notable,
        is_kind: |warning| matches!(warning, Warning::HalvesDiffer { .. }),
        alpha: TREND_ALPHA,
    },
    WarningKind {
        importance: Importance::Detail,
        is_kind: |warning| matches!(warning, Warning::Wide { .. }),
        alpha: 0.0,
    },
];

fn warnings(_: &Run, analysis: &Analysis) -> Vec<UnwordedFinding> {
    WARNING_KINDS.iter().filter_map(|kind| warning_finding(analysis, kind)).collect()
}

/// Figures with one kind of warning; a detail where chance alone explains as many.
fn warning_finding(analysis: &Analysis, kind: &WarningKind) -> Option<UnwordedFinding> {
    let all = attempted_figures(analysis);
    let is_hit = |result: &MetricResult| result.warnings.iter().any(kind.is_kind);
    let first = requested_results(analysis).find(|result| is_hit(result))?;
    let warning = first.warnings.iter().find(|warning| (kind.is_kind)(warning))?.clone();
    let count = requested_results(analysis).filter(|result| is_hit(result)).count();
    let by_chance = kind.alpha * all as f64;
    let is_chance = count as f64 <= 2.0 * by_chance;
    Some(UnwordedFinding {
        importance: if is_chance { Importance::Detail } else { kind.importance },
        data: FindingData::Warned { count, all, by_chance, first: first.figure_source(), warning },
        metrics: metrics_of_results(analysis, is_hit),
    })
}
