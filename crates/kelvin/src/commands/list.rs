//! `kelvin list`: what can be measured.

use std::io::{self, Write};

use kelvin_core::catalogue::os;
use kelvin_core::{Case, Metric, units};
use kelvin_harness::{Effort, Plan, Probe, ProbeKind};
use kelvin_probes::Primitive;
use kelvin_probes::calibration::{CoverageSummary, predict_figures};
use kelvin_stats::{median, min_max};
use serde::Serialize;

use crate::answer::AnswerOutlet;
use crate::cli::ListArgs;
use crate::cli_error::CliError;
use crate::output::{self, write_wrapped};
use crate::placement::LocalMachine;
use crate::selection::{OptionStudies, Selection, plan_names};

/// A metric in the list.
#[derive(Serialize)]
struct ListedMetric<'a> {
    metric: &'a Metric,
    probe: &'a str,
    /// The option without which it cannot be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'static str>,
    cases: Vec<&'a Case>,
}

/// `kelvin list`.
pub fn list(args: &ListArgs) -> Result<(), CliError> {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let local = LocalMachine::read(None)?;
    let effort = Effort::Default;
    let plan = if args.studies {
        check_are_studies(&args.names)?;
        plan_names(ProbeKind::Study, &args.names, &local, effort)?
    } else {
        Selection::parse(&args.names, "kelvin list --studies")?.plan_everything(&local, effort)?
    };
    if args.primitives {
        return list_primitives(&plan, &local, outlet);
    }
    let lines = listed_metrics(&plan);
    if outlet.is_json {
        return outlet.write_json(&lines);
    }
    let mut rows: Vec<(&str, String)> = lines.iter().map(|line| (line.metric.id.as_str(), line.text())).collect();
    if args.studies && args.names.is_empty() {
        rows.insert(0, (os::STUDY.as_str(), os::STUDY_SUMMARY.to_owned()));
    }
    let columns = outlet.columns();
    outlet.write_lines(|out| write_table(out, columns, &rows))
}

/// Fails for a name that only a plain run measures.
fn check_are_studies(names: &[String]) -> Result<(), CliError> {
    let probes = kelvin_probes::all();
    let has_probe_of_kind =
        |name: &str, kind| probes.iter().any(|probe| probe.kind == kind && probe.is_selected_by(name));
    let is_plain =
        |name: &&String| !has_probe_of_kind(name, ProbeKind::Study) && has_probe_of_kind(name, ProbeKind::Measure);
    if let Some(name) = names.iter().find(is_plain) {
        bail!("--studies: '{name}' is part of a plain run, `kelvin list {name}`; as a study it has more points");
    }
    Ok(())
}

/// Names, each with its text next to it.
fn write_table(out: &mut dyn Write, columns: usize, lines: &[(&str, String)]) -> io::Result<()> {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().try_for_each(|(name, text)| write_wrapped(out, columns, &format!("{name:width$}  "), text))
}

/// `kelvin list --primitives`.
fn list_primitives(plan: &Plan, local: &LocalMachine, outlet: AnswerOutlet) -> Result<(), CliError> {
    let mut plan = plan.clone();
    // What needs another machine describes that one.
    plan.units.retain(|unit| OptionStudies::for_probe(unit.probe).is_none());
    let primitives = kelvin_probes::primitive_metrics(&local.machine, &plan);
    if outlet.is_json {
        return outlet.write_json(&primitives);
    }
    let (held_out, columns) = (held_out_text()?, outlet.columns());
    let row = |primitive: &Primitive| (primitive.metric.id.as_str(), primitive_text(primitive));
    let rows: Vec<_> = primitives.iter().map(row).collect();
    outlet.write_lines(|out| {
        write_wrapped(out, output::width(), "", &held_out)?;
        writeln!(out)?;
        write_table(out, columns, &rows)
    })
}

/// How well the ranges of all other figures hold on the reference machines.
fn held_out_text() -> Result<String, CliError> {
    let machines = kelvin_probes::reference_records();
    let summaries = machines.iter().map(|machine| CoverageSummary::from_figures(&predict_figures(machine)));
    let summaries: Option<Vec<CoverageSummary>> = summaries.collect();
    let summaries = summaries.ok_or_else(|| CliError::msg("no machine is known"))?;
    let shares = summaries.iter().map(|summary| 100.0 * summary.covered);
    let [low, high] = [shares.clone().fold(100.0, f64::min), shares.fold(0.0, f64::max)];
    let ranges: Vec<f64> = summaries.iter().map(|summary| summary.median_range).collect();
    Ok(format!(
        "Predicted ranges should hold 90 % of figures. Each of {} machines was predicted by the others alone: {low:.0} to {high:.0} % of \
         its figures are in their ranges, which span a factor of {:.2} in the median. These figures have no formula:",
        summaries.len(),
        median(&ranges)
    ))
}

/// A primitive in words: its case, its values elsewhere, and why no formula predicts it.
fn primitive_text(primitive: &Primitive) -> String {
    let Primitive { metric, case, reason, proxy, on_references } = primitive;
    let case = if case.is_empty() { String::new() } else { format!("{case}: ") };
    let range = min_max(on_references.values().copied()).unwrap_or_default();
    let [low, high] = <[f64; 2]>::from(range).map(|value| units::value_text(value, metric.unit));
    let proxy_text = proxy.map(|name| format!(", scaled by {name}")).unwrap_or_default();
    let elsewhere = match on_references.len() {
        0 => String::new(),
        1 => format!("{low} on one other machine{proxy_text}; "),
        machines => format!("{low} to {high} on {machines} other machines{proxy_text}; "),
    };
    format!("{case}{elsewhere}{}", reason.0)
}

impl ListedMetric<'_> {
    /// What it is, at which cases, and what it needs.
    fn text(&self) -> String {
        let cases = match &self.cases[..] {
            [case] if case.is_empty() => None,
            [case] => Some(case.to_string()),
            cases => Some(format!("{} cases", cases.len())),
        };
        let needs = self.needs.map(|option| format!("with {option}"));
        let details: Vec<String> = cases.into_iter().chain(needs).collect();
        let suffix = if details.is_empty() { String::new() } else { format!(" ({})", details.join("; ")) };
        format!("{}{suffix}", self.metric.summary)
    }
}

fn listed_metrics(plan: &Plan) -> Vec<ListedMetric<'_>> {
    let mut lines: Vec<ListedMetric<'_>> = Vec::new();
    for unit in plan.units.iter().filter(|unit| !unit.only_input) {
        let probe: &Probe = unit.probe;
        for metric in probe.metrics {
            match lines.iter_mut().find(|line| line.metric.id == metric.id) {
                Some(line) => line.cases.push(&unit.case),
                None => {
                    let needs = OptionStudies::for_probe(probe).map(|study| study.option);
                    lines.push(ListedMetric { metric, probe: probe.id, needs, cases: vec![&unit.case] });
                }
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use kelvin_core::NoPrediction;
    use kelvin_harness::PlanContext;
    use kelvin_probes::reference_records;

    use super::*;

    #[test]
    fn at_most_sixty_figures_are_primitives() {
        let probes = kelvin_probes::all();
        for reference in reference_records() {
            let sources = PlanContext { probes: &probes, machine: &reference.machine, references: None };
            let mut plan = Plan::new(&sources, ProbeKind::Measure, &[], Effort::Default).unwrap();
            plan.units.retain(|unit| OptionStudies::for_probe(unit.probe).is_none());
            let primitives = kelvin_probes::primitive_metrics(&reference.machine, &plan);
            let (with_references, without_references): (Vec<_>, Vec<_>) =
                primitives.iter().partition(|primitive| !primitive.on_references.is_empty());
            assert!((1..=60).contains(&with_references.len()), "{}: {}", reference.name, with_references.len());
            assert!(
                !without_references.is_empty()
                    && primitives.iter().all(|primitive| !primitive_text(primitive).is_empty())
            );
        }
    }

    #[test]
    fn primitive_names_reference_values_and_missing_formula() {
        let mut primitive = Primitive {
            metric: &kelvin_core::catalogue::os::SYSCALL_STAT,
            case: Case::new(),
            reason: NoPrediction::new("nothing is published"),
            proxy: Some(kelvin_core::catalogue::os::SYSCALL_FSTAT.id),
            on_references: [("a".into(), 300.0), ("b".into(), 900.0)].into(),
        };
        assert_eq!(
            primitive_text(&primitive),
            "300 ns to 900 ns on 2 other machines, scaled by os.syscall.fstat; nothing is published"
        );
        primitive.on_references.clear();
        primitive.case = Case::new().with_number("message", 64u64);
        assert_eq!(primitive_text(&primitive), "message=64: nothing is published");
    }
}
