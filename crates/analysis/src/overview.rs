//! What a reader sees first of a run: the ladder of its times, its rates, what stands out, and what to do first.

mod figure;
mod ladder;
mod rates;
mod stand_outs;

pub(crate) use ladder::{LadderRung, ladder_rungs};

use kelvin_core::IndirectSort;
use std::collections::BTreeSet;

use crate::prelude::*;

/// Minimum known rungs: fewer are no ladder.
pub(crate) const MIN_RUNGS: usize = 3;
/// Minimum probes that measured them: what one probe measures is a table, and no picture of a machine.
const MIN_PROBES: usize = 2;

/// The first screen of a run; `None` of one that is no picture of its machine: a study, or a few metrics.
pub(crate) fn overview(evidence: &Evidence<'_>, analysis: &Analysis) -> Option<Overview> {
    let run = evidence.run;
    if run.header.settings.is_study() {
        return None;
    }
    let rungs = ladder::ladder_rungs(run, analysis);
    let known_rungs = rungs.iter().filter(|rung| rung.rung.figure.measured.is_some());
    let probes: Vec<Name> = known_rungs.filter_map(|rung| Some(rung.origin?.0)).collect();
    if probes.len() < MIN_RUNGS || probes.iter().collect::<BTreeSet<_>>().len() < MIN_PROBES {
        return None;
    }
    Some(Overview {
        cautions: cautions(analysis),
        stand_outs: stand_outs::stand_outs(evidence, analysis, &rungs),
        rungs: rungs.into_iter().map(|rung| rung.rung).collect(),
        rates: rates::rates(&run.header.machine, analysis),
        remedies: remedies(&run.header.hazards),
        precision: precision(analysis),
        missing: missing_figures(analysis),
    })
}

/// Findings that change how to read the run; figures without a value are counted elsewhere on the screen.
fn cautions(analysis: &Analysis) -> Vec<String> {
    let is_elsewhere = |finding: &Finding| matches!(finding.data, FindingData::MissingFigures { .. });
    let major = analysis.findings.iter().filter(|finding| finding.importance == Importance::Major);
    major.filter(|finding| !is_elsewhere(finding)).map(|finding| finding.text.clone()).collect()
}

/// The remedies of hazards that spoil numbers, the worst first, each once with all hazards that it removes. What only shifts numbers
/// in a known direction is no reason to act.
fn remedies(hazards: &[Hazard]) -> Vec<Remedy> {
    let mut relevant: Vec<&Hazard> = hazards.iter().filter(|hazard| hazard.severity >= Severity::Warning).collect();
    relevant.indirect_sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    let mut remedies: Vec<Remedy> = Vec::new();
    for hazard in relevant {
        let Some(command) = &hazard.remedy else { continue };
        let remedy = find_or_push(
            &mut remedies,
            |candidate| candidate.command == *command,
            || Remedy { command: command.clone(), is_command: hazard.remedy_is_command, ..Remedy::default() },
        );
        remedy.hazards.push(hazard.id);
        remedy.problems.push(hazard.summary.clone());
    }
    remedies
}

/// Half-widths of the intervals of all figures that the run set out to measure.
fn precision(analysis: &Analysis) -> Option<Precision> {
    let share = |result: &MetricResult| {
        let summary = result.outcome.summary().filter(|summary| summary.headline != 0.0)?;
        Some(summary.interval?.half_width() / summary.headline.abs())
    };
    let requested = analysis.results.iter().filter(|result| !result.only_input);
    let shares: Vec<f64> = requested.filter_map(share).collect();
    let figures = shares.len();
    let sorted = Sorted::new(shares)?;
    Some(Precision { figures, median: sorted.quantile(0.5), p90: sorted.quantile(0.9) })
}

/// Figures that the run set out to measure and has not, by reason, the gravest first.
fn missing_figures(analysis: &Analysis) -> Vec<MissingFigures> {
    use MissingReason::{Failed, Invalid, NotKnown, NotReached, Skipped};
    let missing_reason = |outcome: &Outcome| match outcome {
        Outcome::Measured(_) => None,
        Outcome::NotKnown(_) => Some(NotKnown),
        Outcome::Invalid(_) => Some(Invalid),
        Outcome::Skipped(_) => Some(Skipped),
        Outcome::Failed(_) => Some(Failed),
        Outcome::NotReached => Some(NotReached),
    };
    let figures = |reason: MissingReason| {
        let is_missing = |result: &&MetricResult| !result.only_input && missing_reason(&result.outcome) == Some(reason);
        let results: Vec<&MetricResult> = analysis.results.iter().filter(is_missing).collect();
        let metrics = each_once(results.iter().map(|result| result.metric.id));
        (!results.is_empty()).then_some(MissingFigures { reason, figures: results.len(), metrics })
    };
    [Failed, Invalid, NotKnown, NotReached, Skipped].into_iter().filter_map(figures).collect()
}
