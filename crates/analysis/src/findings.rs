//! What is worth knowing about a run: a rule for each kind of finding, and the lines of its verdict.

mod class;
mod gaps;
mod levels;
mod missing;
mod moved_cpus;
mod network;
mod run_state;
mod warnings;

use kelvin_core::IndirectSort;
use std::cmp::Reverse;

use kelvin_core::units::metric_at;

use crate::prelude::*;
use crate::wording;

pub use gaps::gap_explanation;

/// All findings of a run, the most important first; of equal importance in this order.
pub(crate) fn findings(evidence: &Evidence<'_>, analysis: &Analysis) -> Vec<Finding> {
    let run = evidence.run;
    let state_findings = run_state::changed_clock(run)
        .into_iter()
        .chain(run_state::partial_run(run))
        .chain(run_state::only_headlines(run))
        .chain(run_state::serious_hazards(run, analysis))
        .chain(run_state::busy_machine(run))
        .chain(run_state::shared_core(analysis))
        .chain(run_state::moved_frequency(analysis))
        .chain(run_state::quietness(analysis));
    let figure_findings = missing::invalid_figures(analysis)
        .into_iter()
        .chain(class::class_deviations(analysis))
        .chain(missing::missing_counts(analysis))
        .chain(levels::memory_levels(analysis))
        .chain(moved_cpus::moved_cpus(analysis))
        .chain(network::local_network(analysis))
        .chain(network::peer_network(evidence, analysis))
        .chain(gaps::prediction_gaps(run, analysis))
        .chain(warnings::warnings(analysis));
    let mut findings: Vec<Finding> = state_findings.chain(figure_findings).collect();
    findings.indirect_sort_by_key(|finding| Reverse(finding.importance));
    findings
}

impl Finding {
    /// A finding by the clauses of its sentence and of its evidence, on no metric in particular.
    fn new(importance: Importance, data: FindingData, text: String, reason: String) -> Self {
        // A sentence begins with a capital letter, unless it begins with the id of a metric.
        let is_id = text.split([' ', ':']).next().is_some_and(|first| first.contains('.') && !first.ends_with('.'));
        let text = if is_id { text } else { wording::capitalise(&text) };
        Self { importance, text: with_full_stop(&text), reason, data, metrics: Vec::new() }
    }

    fn with_metrics(self, metrics: Vec<Name>) -> Self {
        Self { metrics, ..self }
    }
}

fn with_full_stop(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// Metric and case of a result, as sentences name it.
fn name(result: &MetricResult) -> String {
    metric_at(&result.metric, &result.case)
}

/// The requested results: what is measured only as an input of other predictions is no finding.
fn requested_results(analysis: &Analysis) -> impl Iterator<Item = &MetricResult> {
    analysis.results.iter().filter(|result| !result.only_input)
}

/// Figures that the run set out to measure, with any outcome.
fn attempted_figures(analysis: &Analysis) -> usize {
    let is_left_out = |outcome: &Outcome| matches!(outcome, Outcome::Skipped(_) | Outcome::NotReached);
    requested_results(analysis).filter(|result| !is_left_out(&result.outcome)).count()
}

/// The metrics of some results, each once.
fn metrics_of_results(analysis: &Analysis, is_selected: impl Fn(&MetricResult) -> bool) -> Vec<Name> {
    let mut metrics: Vec<Name> =
        requested_results(analysis).filter(|result| is_selected(result)).map(|result| result.metric.id).collect();
    metrics.dedup();
    metrics
}

/// The run in a few lines: what the machine is, what its studies answer, then the findings that matter most.
pub(crate) fn verdict(machine: &Machine, analysis: &Analysis) -> Vec<String> {
    let answers = analysis.studies.iter().flat_map(|study| &study.answers).map(|answer| answer.text.clone());
    let leading = analysis.leading_findings().into_iter().map(|index| analysis.findings[index].text.clone());
    let mut lines = vec![machine_line(machine)];
    lines.extend(answers.chain(leading));
    if lines.len() == 1 {
        lines.push("Nothing odd was found.".into());
    }
    lines
}

/// What the machine is, in one line.
fn machine_line(machine: &Machine) -> String {
    let text = |fact: &Fact<String>, fallback: &str| fact.get().cloned().unwrap_or_else(|| fallback.into());
    let mut parts = vec![text(&machine.cpu.model_name, "unknown CPU")];
    if let Some(name) = wording::core_name(&machine.cpu) {
        parts[0] = format!("{} ({name})", parts[0]);
    }
    let count = |fact: &Fact<Vec<u32>>| fact.get().map(Vec::len);
    match (count(&machine.topology.allowed), count(&machine.topology.online)) {
        (Some(allowed_count), Some(online_count)) => {
            parts.push(format!("{allowed_count} of {online_count} CPUs allowed"))
        }
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

/// Findings that a reader is shown before all others.
const MAX_LEADING_FINDINGS: usize = 5;
/// Figures worse than predicted among them, unless there is nothing else.
const MAX_LEADING_GAPS: usize = 3;

impl Analysis {
    /// The places, among its findings, of the five that matter most: what changes how to read the run, then what is worse than predicted by
    /// most, then the rest in their order. Details are never among them.
    pub fn leading_findings(&self) -> Vec<usize> {
        let (mut leading, mut worse, mut notable) = (Vec::new(), Vec::new(), Vec::new());
        for (index, finding) in self.findings.iter().enumerate() {
            match (&finding.data, finding.importance) {
                (_, Importance::Major) => leading.push(index),
                (FindingData::Gap(gap), _) => {
                    let result = self.result_at(&gap.source);
                    if result.and_then(gaps::gap_distance).is_some_and(|(is_worse, _)| is_worse) {
                        worse.push(index);
                    }
                }
                (_, Importance::Notable) => notable.push(index),
                (_, Importance::Detail) => {}
            }
        }
        let rest = worse.split_off(worse.len().min(MAX_LEADING_GAPS));
        leading.extend(worse.into_iter().chain(notable).chain(rest));
        leading.truncate(MAX_LEADING_FINDINGS);
        leading
    }
}
