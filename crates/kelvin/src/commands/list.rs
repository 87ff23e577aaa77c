//! `kelvin list`: what can be measured.

use std::process::ExitCode;

use kelvin_harness::{Effort, Kind, Plan, Probe};
use kelvin_model::Metric;
use kelvin_report::text::wrap;
use serde::Serialize;

use crate::cli::ListArgs;
use crate::fault::{Done, Fault};
use crate::measure::Here;
use crate::output;

/// Fewest columns for what a metric is, however narrow the terminal.
const LEAST_ROOM: usize = 24;

/// A metric in the list.
#[derive(Serialize)]
struct Line<'a> {
    metric: &'a Metric,
    probe: &'a str,
    cases: Vec<&'a kelvin_model::Case>,
}

/// `kelvin list`.
pub fn list(args: &ListArgs) -> Done {
    let here = Here::read()?;
    let kind = if args.studies { Kind::Study } else { Kind::Measure };
    let probes = kelvin_probes::all();
    let plan = Plan::new(&probes, kind, &args.names, &here.machine, Effort::Default).map_err(Fault::because)?;
    let lines = lines(&plan);
    if args.json {
        output::print(|out| {
            serde_json::to_writer_pretty(&mut *out, &lines)?;
            writeln!(out)
        })?;
    } else {
        // For programs that read it, each metric is one line.
        let columns = if output::is_terminal() { output::width() } else { usize::MAX };
        output::print(|out| {
            let width = lines.iter().map(|line| line.metric.id.len()).max().unwrap_or(0);
            let room = columns.saturating_sub(width + 2).max(LEAST_ROOM);
            for line in &lines {
                let cases = match line.cases.len() {
                    1 if line.cases[0].is_empty() => String::new(),
                    1 => format!(" ({})", line.cases[0]),
                    n => format!(" ({n} cases)"),
                };
                let mut id = line.metric.id.as_str();
                for text in wrap(&format!("{}{cases}", line.metric.summary), room) {
                    writeln!(out, "{id:width$}  {text}")?;
                    id = "";
                }
            }
            Ok(())
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(plan: &Plan) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for unit in plan.units.iter().filter(|unit| !unit.only_input) {
        let probe: &Probe = unit.probe;
        for metric in probe.metrics {
            match lines.iter_mut().find(|line| line.metric.id == metric.id) {
                Some(line) => line.cases.push(&unit.case),
                None => lines.push(Line { metric, probe: probe.id, cases: vec![&unit.case] }),
            }
        }
    }
    lines
}
