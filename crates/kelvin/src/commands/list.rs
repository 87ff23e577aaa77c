//! `kelvin list`: what can be measured.

use std::collections::BTreeMap;
use std::process::ExitCode;

use kelvin_catalogue::os;
use kelvin_harness::{Effort, Plan, Probe, ProbeKind};
use kelvin_model::{Case, Metric, Name, NoPrediction, units};
use kelvin_probes::Primitive;
use kelvin_probes::calibration::{Held, beside};
use kelvin_report::text::wrap;
use kelvin_stats::median;
use serde::Serialize;

use crate::cli::ListArgs;
use crate::fault::{Done, Fault};
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
    cases: Vec<&'a Case>,
}

/// `kelvin list`.
pub fn list(args: &ListArgs) -> Done {
    let here = Here::read()?;
    let effort = Effort::Default;
    let plan = if args.studies {
        check_are_studies(&args.names)?;
        plan_of(ProbeKind::Study, &args.names, &here, effort)?
    } else {
        Selection::of(&args.names, "kelvin list --studies")?.plan_of_all(&here, effort)?
    };
    if args.primitives {
        return primitives(&plan, &here, args.json);
    }
    let lines = lines(&plan);
    if args.json {
        output::print_json(&lines)?;
    } else {
        let mut all: Vec<(&str, String)> = lines.iter().map(|line| (line.metric.id.as_str(), line.words())).collect();
        if args.studies && args.names.is_empty() {
            all.insert(0, (os::STUDY.as_str(), os::STUDY_SUMMARY.to_owned()));
        }
        print(all)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails for a name that only a plain run measures.
fn check_are_studies(names: &[String]) -> Result<(), Fault> {
    let probes = kelvin_probes::all();
    let is_of = |name: &str, kind| probes.iter().any(|probe| probe.kind == kind && probe.is_selected_by(name));
    let is_plain = |name: &&String| !is_of(name, ProbeKind::Study) && is_of(name, ProbeKind::Measure);
    match names.iter().find(is_plain) {
        Some(name) => Err(Fault::because(format!(
            "--studies: '{name}' is part of a plain run, `kelvin list {name}`; as a study it has more points"
        ))),
        None => Ok(()),
    }
}

/// Names, each with its words beside it.
fn print(lines: Vec<(&str, String)>) -> Result<(), Fault> {
    // For programs, one line each.
    let columns = if output::is_terminal() { output::width() } else { usize::MAX };
    output::print(|out| {
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let room = columns.saturating_sub(width + 2).max(LEAST_ROOM);
        for (name, words) in lines {
            for (number, text) in wrap(&words, room).into_iter().enumerate() {
                let name = if number == 0 { name } else { "" };
                writeln!(out, "{name:width$}  {text}")?;
            }
        }
        Ok(())
    })
}

/// A figure that no formula predicts.
#[derive(Serialize)]
struct Figure<'a> {
    metric: Name,
    case: &'a Case,
    because: &'a NoPrediction,
    /// What does the same kind of work, by which the figure is told from other machines.
    yardstick: Option<Name>,
    /// The same on other machines, in the metric's unit.
    elsewhere: BTreeMap<&'a str, f64>,
}

impl<'a> Figure<'a> {
    fn of(one: &'a Primitive) -> Self {
        Self {
            metric: one.metric.id,
            case: &one.case,
            because: &one.because,
            yardstick: one.yardstick,
            elsewhere: one.elsewhere.iter().map(|(name, value)| (name.as_str(), *value)).collect(),
        }
    }
}

/// `kelvin list --primitives`.
fn primitives(plan: &Plan, here: &Here, json: bool) -> Done {
    let mut plan = plan.clone();
    // What needs another machine says something of that one.
    plan.units.retain(|unit| Needing::of(unit.probe).is_none());
    let found = kelvin_probes::primitives(&here.machine, &plan);
    if json {
        output::print_json(&found.iter().map(Figure::of).collect::<Vec<_>>())?;
    } else {
        let held_out = held_out()?;
        output::print(|out| writeln!(out, "{}\n", wrap(&held_out, output::width()).join("\n")))?;
        print(found.iter().map(|one| (one.metric.id.as_str(), words(one))).collect())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How well the ranges of all other figures hold, as far as the machines that are kept tell.
fn held_out() -> Result<String, Fault> {
    let machines = kelvin_probes::other_machines();
    let held = machines.iter().map(|machine| Held::of(&beside(machine))).collect::<Option<Vec<Held>>>();
    let held = held.ok_or_else(|| Fault::because("no machine is known"))?;
    let shares = held.iter().map(|held| held.inside);
    let [least, most] = [shares.clone().fold(1.0, f64::min), shares.fold(0.0, f64::max)].map(|share| 100.0 * share);
    let ranges: Vec<f64> = held.iter().map(|held| held.range).collect();
    Ok(format!(
        "Predicted ranges are to hold 90 % of figures. Each of {} machines was predicted by the others alone: {least:.0} to {most:.0} % of \
         its figures lie in their ranges, which span a factor of {:.2} in the median. These figures have no formula:",
        held.len(),
        median(&ranges)
    ))
}

/// A primitive in words: its case, what it is elsewhere, and why no formula tells.
fn words(one: &Primitive) -> String {
    let case = if one.case.is_empty() { String::new() } else { format!("{}: ", one.case) };
    let values = one.elsewhere.iter().map(|(_, value)| *value);
    let [least, most] = [values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max)];
    let of = |value: f64| units::plain(value, one.metric.unit);
    let by = one.yardstick.map(|by| format!(", told by {by}")).unwrap_or_default();
    let elsewhere = match one.elsewhere.len() {
        0 => String::new(),
        1 => format!("{} on one other machine{by}; ", of(least)),
        machines => format!("{} to {} on {machines} other machines{by}; ", of(least), of(most)),
    };
    format!("{case}{elsewhere}{}", one.because.0)
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

#[cfg(test)]
mod tests {
    use kelvin_harness::Sources;
    use kelvin_probes::other_machines;

    use super::*;

    #[test]
    fn at_most_sixty_figures_of_a_run_are_told_by_other_machines_alone() {
        let probes = kelvin_probes::all();
        for other in other_machines() {
            let sources = Sources { probes: &probes, machine: &other.machine, elsewhere: None };
            let mut plan = Plan::new(&sources, ProbeKind::Measure, &[], Effort::Default).unwrap();
            plan.units.retain(|unit| Needing::of(unit.probe).is_none());
            let found = kelvin_probes::primitives(&other.machine, &plan);
            let (told, of_devices): (Vec<_>, Vec<_>) = found.iter().partition(|one| !one.elsewhere.is_empty());
            assert!((1..=60).contains(&told.len()), "{}: {}", other.name, told.len());
            assert!(!of_devices.is_empty() && found.iter().all(|one| !words(one).is_empty()));
        }
    }

    #[test]
    fn a_primitive_says_what_it_is_elsewhere_and_why_there_is_no_formula() {
        let mut one = Primitive {
            metric: &kelvin_catalogue::os::SYSCALL_STAT,
            case: Case::new(),
            because: NoPrediction::because("nothing is published"),
            yardstick: Some(kelvin_catalogue::os::SYSCALL_FSTAT.id),
            elsewhere: vec![("a".into(), 300.0), ("b".into(), 900.0)],
        };
        assert_eq!(words(&one), "300 ns to 900 ns on 2 other machines, told by os.syscall.fstat; nothing is published");
        one.elsewhere.clear();
        one.case = Case::new().with("message", 64u64);
        assert_eq!(words(&one), "message=64: nothing is published");
    }
}
