//! What is worth knowing about a run, in sentences that state no more than a test or a figure supports.

use std::cmp::Reverse;

use kelvin_model::units::{metric_at, number, percent, plain};
use kelvin_model::{Fact, Hazard, Machine, Name, Run, RunStatus, Severity};

use crate::result::{Analysis, Finding, Importance, MetricResult, Outcome, Verdict, Warning};
use crate::study::{network, peer};
use crate::summary::{ALPHA, modes_in_words};
use crate::{levels, placement};

/// Lines of the verdict, at most.
const VERDICT_LINES: usize = 10;
/// Gaps between measured and predicted that get a line of their own in the verdict.
const GAPS_IN_VERDICT: usize = 3;
/// Below this share of undisturbed samples a machine is noisy, and below half of it very noisy.
const QUIET: f64 = 0.7;

/// All findings of a run, the most important first.
pub(crate) fn findings(run: &Run, analysis: &Analysis) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(clock_finding(run));
    all.extend(partial_finding(run));
    let serious = run.outline.hazards.iter().filter(|hazard| hazard.severity == Severity::Serious);
    let (busy, others): (Vec<&Hazard>, Vec<&Hazard>) = serious.partition(|hazard| BUSY.contains(&hazard.id.as_str()));
    all.extend(others.into_iter().map(|hazard| hazard_finding(hazard, analysis)));
    all.extend(busy_finding(&busy));
    all.extend(shared_finding(analysis));
    all.extend(quiet_finding(analysis));
    all.extend(invalid_findings(analysis));
    all.extend(count_findings(analysis));
    all.extend(levels_finding(analysis));
    all.extend(placement::finding(analysis));
    all.extend(network_finding(run, analysis));
    all.extend(peer_finding(run, analysis));
    all.extend(gap_findings(run, analysis));
    all.extend(KINDS.iter().filter_map(|kind| warning_finding(analysis, kind)));
    all.sort_by_key(|finding: &Finding| Reverse(finding.importance));
    all
}

/// The run in at most ten lines: what the machine is, then the findings that matter most.
pub(crate) fn verdict(run: &Run, analysis: &Analysis) -> Vec<String> {
    let mut lines = vec![machine_line(&run.outline.machine)];
    let worth = |finding: &&Finding| finding.importance >= Importance::Notable;
    let mut gaps = 0;
    for finding in analysis.findings.iter().filter(worth) {
        let is_gap = finding.because.starts_with(GAP);
        gaps += usize::from(is_gap);
        if lines.len() < VERDICT_LINES && (!is_gap || gaps <= GAPS_IN_VERDICT) {
            lines.push(finding.text.clone());
        }
    }
    if lines.len() == 1 {
        lines.push("Nothing odd was found.".into());
    }
    lines
}

/// Hazards that say the same in several ways: other work kept the machine busy.
const BUSY: [&str; 4] = ["other_work", "load", "pressure_cpu", "pressure_cpu_during"];

/// One finding for all the ways in which a busy machine shows.
fn busy_finding(hazards: &[&Hazard]) -> Option<Finding> {
    let first = BUSY.iter().find_map(|id| hazards.iter().find(|hazard| hazard.id == **id))?;
    let sources: Vec<String> = hazards.iter().map(|hazard| format!("{} ({})", hazard.summary, hazard.source)).collect();
    Some(Finding {
        importance: Importance::Major,
        text: sentence(&format!("Other work kept this machine busy: {}", first.summary)),
        because: sources.join("; "),
        metrics: Vec::new(),
    })
}

/// How the reason of a finding about a gap begins.
const GAP: &str = "measured over predicted";

fn clock_finding(run: &Run) -> Option<Finding> {
    let clock = &run.outline.clock;
    let name = |source: &Option<String>| source.clone().unwrap_or_else(|| "unknown".into());
    run.clock_changed().then(|| Finding {
        importance: Importance::Major,
        text: "The kernel's clock source changed during the run: its times cannot be trusted.".into(),
        because: format!("clock source {} before, {} after", name(&clock.source_before), name(&clock.source_after)),
        metrics: Vec::new(),
    })
}

fn partial_finding(run: &Run) -> Option<Finding> {
    let RunStatus::Partial(reason) = &run.status else { return None };
    Some(Finding {
        importance: Importance::Notable,
        text: format!("The run is partial ({reason}): what it had not reached is not here."),
        because: format!("it ended after {} s", number(run.seconds)),
        metrics: Vec::new(),
    })
}

fn hazard_finding(hazard: &Hazard, analysis: &Analysis) -> Finding {
    let mut metrics: Vec<_> = analysis.results.iter().map(|result| result.metric.id).collect();
    metrics.retain(|id| hazard.touches(id));
    metrics.dedup();
    Finding {
        importance: Importance::Major,
        text: capitalised(&sentence(&format!("{}: {}", hazard.summary, hazard.effect))),
        because: hazard.source.clone(),
        metrics,
    }
}

/// The core was never whole, by what earlier runs of the machine saw of it.
fn shared_finding(analysis: &Analysis) -> Option<Finding> {
    let (slower, ratio) = (analysis.core_shared?, analysis.block_over_chain?);
    Some(Finding {
        importance: Importance::Major,
        text: "Another thread had part of this core during the whole run, as earlier runs show: measure again later."
            .into(),
        because: format!(
            "the block canary took {} times the chain canary at its best, {} more than in earlier runs",
            number(ratio),
            percent(slower - 1.0)
        ),
        metrics: Vec::new(),
    })
}

fn quiet_finding(analysis: &Analysis) -> Option<Finding> {
    let share = analysis.undisturbed_share?;
    let (importance, what) = match share {
        share if share < QUIET / 2.0 => (Importance::Major, "The machine was rarely quiet"),
        share if share < QUIET => (Importance::Notable, "The machine was quiet only part of the time"),
        _ => (Importance::Detail, "The machine was quiet"),
    };
    let steady: Vec<String> = analysis
        .canaries
        .iter()
        .map(|history| format!("{} steady {}", history.canary.name(), percent(history.steady_share)))
        .collect();
    Some(Finding {
        importance,
        text: format!("{what}: {} of the guarded samples were undisturbed.", percent(share)),
        because: format!("canaries beside each sample: {}", steady.join(", ")),
        metrics: Vec::new(),
    })
}

fn invalid_findings(analysis: &Analysis) -> Vec<Finding> {
    let invalid = analysis.results.iter().filter_map(|result| match &result.outcome {
        Outcome::Invalid(ceiling) => Some((result, ceiling)),
        _ => None,
    });
    invalid
        .map(|(result, ceiling)| {
            let unit = result.metric.unit;
            Finding {
                importance: Importance::Major,
                text: format!(
                    "{} came out as {}, which is impossible: {}.",
                    metric_at(&result.metric, &result.case),
                    plain(ceiling.value, unit),
                    ceiling.likely_cause
                ),
                because: match &ceiling.derivation {
                    Some(derivation) => format!("the bound is {}: {derivation}", plain(ceiling.bound, unit)),
                    None => format!("the bound is {}", plain(ceiling.bound, unit)),
                },
                metrics: vec![result.metric.id],
            }
        })
        .collect()
}

/// How many metrics failed, are not known, or were skipped.
fn count_findings(analysis: &Analysis) -> Vec<Finding> {
    let of = |kind: fn(&Outcome) -> Option<String>| -> Vec<(&MetricResult, String)> {
        analysis.results.iter().filter_map(|result| Some((result, kind(&result.outcome)?))).collect()
    };
    let failed = of(|outcome| match outcome {
        Outcome::Failed(reason) => Some(reason.clone()),
        _ => None,
    });
    let unknown = of(|outcome| match outcome {
        Outcome::NotKnown(summary) => Some(format!("{} undisturbed", percent(summary.kept_share))),
        _ => None,
    });
    let skipped = of(|outcome| match outcome {
        Outcome::Skipped(reason) => Some(reason.0.clone()),
        _ => None,
    });
    let tried = tried(analysis);
    [
        (Importance::Major, failed, "failed", tried),
        (Importance::Notable, unknown, "could not be known, for want of undisturbed samples", tried),
        (Importance::Detail, skipped, "were skipped", analysis.results.len()),
    ]
    .into_iter()
    .filter(|(_, results, ..)| !results.is_empty())
    .map(|(importance, results, what, all)| counted(importance, &results, what, all))
    .collect()
}

/// Figures that the run went to measure, whatever came of it.
fn tried(analysis: &Analysis) -> usize {
    let is_left_out = |outcome: &Outcome| matches!(outcome, Outcome::Skipped(_) | Outcome::NotReached);
    analysis.results.iter().filter(|result| !is_left_out(&result.outcome)).count()
}

fn counted(importance: Importance, results: &[(&MetricResult, String)], what: &str, all: usize) -> Finding {
    let (first, reason) = &results[0];
    let mut metrics: Vec<_> = results.iter().map(|(result, _)| result.metric.id).collect();
    metrics.dedup();
    Finding {
        importance,
        text: format!("{} of {all} figures {what}.", results.len()),
        because: format!("first: {}: {reason}", metric_at(&first.metric, &first.case)),
        metrics,
    }
}

/// The memory hierarchy in one line.
fn levels_finding(analysis: &Analysis) -> Option<Finding> {
    let found = analysis.levels.as_ref()?;
    Some(Finding {
        importance: Importance::Notable,
        text: levels::line(found)?,
        because: found.conclusions.first()?.test.clone(),
        metrics: vec![levels::METRIC],
    })
}

/// The network in one paragraph, of conclusions that a test carries.
fn network_finding(run: &Run, analysis: &Analysis) -> Option<Finding> {
    Some(Finding {
        importance: Importance::Notable,
        text: format!("Network: {}.", network::paragraph(run)?),
        because: "each of these holds by the interval of a ratio of medians, in the studies net.rtt and net.bandwidth"
            .into(),
        metrics: measured_of(analysis, |id| id.starts_with("net.") && !id.starts_with(PEER)),
    })
}

/// How the ids of what is measured with another host begin.
const PEER: &str = "net.peer.";

/// The network to another host in one paragraph.
fn peer_finding(run: &Run, analysis: &Analysis) -> Option<Finding> {
    Some(Finding {
        importance: Importance::Notable,
        text: format!("Network to the other host: {}.", peer::paragraph(run)?),
        because: "each of these holds by an interval over rounds, in the study net.peer".into(),
        metrics: measured_of(analysis, |id| id.starts_with(PEER)),
    })
}

/// The metrics of a kind that the run was to measure, each once.
fn measured_of(analysis: &Analysis, is_wanted: impl Fn(&str) -> bool) -> Vec<Name> {
    let mut metrics: Vec<Name> = analysis.results.iter().map(|result| result.metric.id).collect();
    metrics.retain(|id| is_wanted(id));
    metrics.dedup();
    metrics
}

/// Gaps between measured and predicted, the largest first; of the points of a curve only the largest.
fn gap_findings(run: &Run, analysis: &Analysis) -> Vec<Finding> {
    let mut gaps: Vec<(f64, &MetricResult)> =
        analysis.results.iter().filter_map(|result| Some((gap(result)?, result))).collect();
    gaps.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut seen = Vec::new();
    gaps.retain(|(_, result)| {
        let new = !seen.contains(&result.metric.id);
        seen.push(result.metric.id);
        new
    });
    gaps.into_iter().filter_map(|(_, result)| gap_finding(run, analysis, result)).collect()
}

/// How far a measurement is outside of the unremarkable range, as the logarithm of a factor.
fn gap(result: &MetricResult) -> Option<f64> {
    let prediction = result.prediction.as_ref()?;
    let headline = result.outcome.summary()?.headline;
    let factor = match result.verdict {
        Verdict::Above => headline / prediction.high,
        Verdict::Below => prediction.low / headline,
        _ => return None,
    };
    (factor > 0.0).then(|| factor.ln())
}

fn gap_finding(run: &Run, analysis: &Analysis, result: &MetricResult) -> Option<Finding> {
    let prediction = result.prediction.as_ref()?;
    let summary = result.outcome.summary()?;
    let unit = result.metric.unit;
    let hazards = result.explained_by.iter().filter_map(|id| run.outline.hazards.iter().find(|h| h.id == *id));
    let causes: Vec<&str> = hazards.take(2).map(|hazard| hazard.summary.as_str()).collect();
    let because = if let Some(found) = analysis.levels.as_ref().and_then(|found| levels::explanation(found, result)) {
        found
    } else if causes.is_empty() {
        "no hazard of this machine explains it".to_owned()
    } else {
        format!("what can explain it: {}", causes.join("; "))
    };
    let measured = match summary.states() {
        [] => plain(summary.headline, unit),
        states => format!("now this, now that, {} of the {}", modes_in_words(states, unit), summary.modes_of.words()),
    };
    Some(Finding {
        importance: Importance::Notable,
        text: sentence(&format!(
            "{}: measured {measured}, {} times the predicted {}; {because}",
            metric_at(&result.metric, &result.case),
            number(result.ratio?),
            plain(prediction.value, unit)
        )),
        because: format!(
            "{GAP}: {}; the interval {} does not touch the range from {} to {} in which it is unremarkable ({})",
            number(result.ratio?),
            summary.interval.map_or_else(
                || plain(summary.headline, unit),
                |interval| format!("{} to {}", plain(interval.lower, unit), plain(interval.upper, unit))
            ),
            plain(prediction.low, unit),
            plain(prediction.high, unit),
            prediction.derivation
        ),
        metrics: vec![result.metric.id],
    })
}

/// A kind of warning that is summed up in one finding.
struct Kind {
    importance: Importance,
    is: fn(&Warning) -> bool,
    what: &'static str,
    /// Chance that a figure carries it by accident; 0 where it is no test.
    alpha: f64,
}

const KINDS: [Kind; 4] = [
    Kind {
        importance: Importance::Notable,
        is: |warning| matches!(warning, Warning::Drift { .. }),
        what: "drifted over the run",
        alpha: ALPHA,
    },
    Kind {
        importance: Importance::Notable,
        is: |warning| matches!(warning, Warning::Modes { .. }),
        what: "fell into several clusters",
        alpha: 0.0,
    },
    Kind {
        importance: Importance::Notable,
        is: |warning| matches!(warning, Warning::HalvesDiffer { .. }),
        what: "differed between halves of the run",
        alpha: ALPHA,
    },
    Kind {
        importance: Importance::Detail,
        is: |warning| matches!(warning, Warning::Wide { .. }),
        what: "did not reach the target for its interval",
        alpha: 0.0,
    },
];

/// Figures that carry one kind of warning, in one finding; a detail where chance alone explains as many.
fn warning_finding(analysis: &Analysis, kind: &Kind) -> Option<Finding> {
    let all = tried(analysis);
    let hit: Vec<&MetricResult> =
        analysis.results.iter().filter(|result| result.warnings.iter().any(kind.is)).collect();
    let first = hit.first()?;
    let text = first.warnings.iter().find(|warning| (kind.is)(warning))?.text();
    let place = metric_at(&first.metric, &first.case);
    let by_chance = kind.alpha * all as f64;
    let expected = if by_chance < 0.5 {
        String::new()
    } else {
        format!("; chance alone gives up to about {} among {all}", number(by_chance))
    };
    let mut metrics: Vec<_> = hit.iter().map(|result| result.metric.id).collect();
    metrics.dedup();
    Some(Finding {
        importance: if hit.len() as f64 <= 2.0 * by_chance { Importance::Detail } else { kind.importance },
        text: match hit.len() {
            1 => format!("{place} {}{expected}.", kind.what),
            n => format!("{n} of {all} figures {}, {place} among them{expected}.", kind.what),
        },
        because: format!("{place}: {text}"),
        metrics,
    })
}

/// What the machine is, in one line.
fn machine_line(machine: &Machine) -> String {
    let text = |fact: &Fact<String>, unknown: &str| fact.get().cloned().unwrap_or_else(|| unknown.into());
    let mut parts = vec![text(&machine.cpu.model_name, "unknown CPU")];
    if let Some(name) = machine.cpu.microarchitecture.get() {
        parts[0] = format!("{} ({name})", parts[0]);
    }
    let count = |fact: &Fact<Vec<u32>>| fact.get().map(Vec::len);
    match (count(&machine.topology.allowed), count(&machine.topology.online)) {
        (Some(allowed), Some(online)) => parts.push(format!("{allowed} of {online} CPUs allowed")),
        (Some(cpus), None) | (None, Some(cpus)) => parts.push(format!("{cpus} CPUs")),
        (None, None) => {}
    }
    if let Some(bytes) = machine.memory.total_bytes.get() {
        parts.push(format!("{} of memory", plain(*bytes as f64, kelvin_model::Unit::Bytes)));
    }
    parts.push(format!("Linux {}", text(&machine.kernel.release, "of unknown release")));
    parts.extend(machine.platform.hypervisor.get().cloned().flatten().map(|name| format!("under {name}")));
    parts.extend(machine.platform.container.get().cloned().flatten().map(|name| format!("in {name}")));
    format!("{}.", parts.join(", "))
}

/// The text with a full stop, once.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// The text with a capital first letter.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
