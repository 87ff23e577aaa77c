//! `kelvin list`: what can be measured.

use std::process::ExitCode;

use kelvin_harness::{Effort, Plan, Probe, ProbeKind};
use kelvin_model::Metric;
use kelvin_report::text::wrap;
use serde::Serialize;

use crate::cli::ListArgs;
use crate::fault::Done;
use crate::output;
use crate::place::Here;
use crate::selection::{Needing, Selection, plan_of};

/// Minimum columns for a metric's summary, however narrow the terminal.
const LEAST_ROOM: usize = 24;

/// A metric in the list.
#[derive(Serialize)]
struct Line<'a> {
    metric: &'a Metric,
    probe: &'a str,
    /// The option without which it cannot be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'static str>,
    cases: Vec<&'a kelvin_model::Case>,
}

/// `kelvin list`.
pub fn list(args: &ListArgs) -> Done {
    let here = Here::read()?;
    let effort = Effort::Default;
    let plan = if args.studies {
        plan_of(ProbeKind::Study, &args.names, &here, effort)?
    } else {
        Selection::of(&args.names, "kelvin list --studies")?.plan_of_all(&here, effort)?
    };
    let lines = lines(&plan);
    if args.json {
        output::print_json(&lines)?;
    } else {
        // For programs, one line per metric.
        let columns = if output::is_terminal() { output::width() } else { usize::MAX };
        output::print(|out| {
            let width = lines.iter().map(|line| line.metric.id.len()).max().unwrap_or(0);
            let room = columns.saturating_sub(width + 2).max(LEAST_ROOM);
            for line in &lines {
                let mut id = line.metric.id.as_str();
                for text in wrap(&line.words(), room) {
                    writeln!(out, "{id:width$}  {text}")?;
                    id = "";
                }
            }
            Ok(())
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Line<'_> {
    /// What it is, at which cases, and what it needs.
    fn words(&self) -> String {
        let cases = match &self.cases[..] {
            [case] if case.is_empty() => None,
            [case] => Some(case.to_string()),
            cases => Some(format!("{} cases", cases.len())),
        };
        let needs = self.needs.map(|option| format!("with {option}"));
        let aside: Vec<String> = cases.into_iter().chain(needs).collect();
        match aside.is_empty() {
            true => self.metric.summary.to_string(),
            false => format!("{} ({})", self.metric.summary, aside.join("; ")),
        }
    }
}

fn lines(plan: &Plan) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for unit in plan.units.iter().filter(|unit| !unit.only_input) {
        let probe: &Probe = unit.probe;
        for metric in probe.metrics {
            match lines.iter_mut().find(|line| line.metric.id == metric.id) {
                Some(line) => line.cases.push(&unit.case),
                None => {
                    let needs = Needing::of(probe).map(|needing| needing.option);
                    lines.push(Line { metric, probe: probe.id, needs, cases: vec![&unit.case] });
                }
            }
        }
    }
    lines
}
