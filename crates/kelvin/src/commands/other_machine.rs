//! `kelvin other-machine`, hidden: a machine with its figures as data, made from stored runs of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use kelvin_analysis::Headlines;
use kelvin_harness::{Figure, OtherMachine};
use kelvin_model::{Case, MeasuredValue, Name, Run};
use kelvin_stats::mean;

use super::Done;
use super::report::run_of;
use crate::cli::StoreArgs;
use crate::fault::Fault;
use crate::output;
use crate::private::Told;

/// Prints a machine of this name (`an Intel server core, ...`): the facts of the first run, and of each figure the geometric mean over all.
pub fn other_machine(name: String, runs: &[OsString], store: &StoreArgs) -> Done {
    let read = |run: &OsString| Told::ForFigures.run(run_of(run, store)?);
    let runs = runs.iter().map(read).collect::<Result<Vec<Run>, Fault>>()?;
    let mut found: BTreeMap<(Name, Case), Vec<MeasuredValue>> = BTreeMap::new();
    for run in &runs {
        let headlines = Headlines::of(run);
        for metric in &run.outline.metrics {
            for (case, value) in headlines.cases(&metric.id) {
                found.entry((metric.id, case.clone())).or_default().push(value);
            }
        }
    }
    let Some(first) = runs.into_iter().next() else { return Err(Fault::because("name a run")) };
    let figures = found.into_iter().map(|((metric, case), values)| {
        let mean = |of: fn(&MeasuredValue) -> f64| mean(&values.iter().map(of).collect::<Vec<f64>>());
        let is_positive = values.iter().all(|value| value.value > 0.0);
        let value = if is_positive { mean(|value| value.value.ln()).exp() } else { mean(|value| value.value) };
        Figure { metric, case, value, half_width: mean(|value| value.half_width) }
    });
    let mut machine = first.outline.machine;
    // Neither is needed for a figure, and both are of one machine alone.
    machine.identity.clear();
    machine.mounts.clear();
    let lines = lines(&OtherMachine { name, machine, figures: figures.collect() });
    let lines = lines.map_err(|error| Fault::new("cannot write JSON", error))?;
    output::print_as_it_is(|out| out.write_all(lines.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// As JSON with a line for each figure, which a change of one shows.
fn lines(machine: &OtherMachine) -> serde_json::Result<String> {
    let OtherMachine { name, machine, figures } = machine;
    let (name, machine) = (serde_json::to_string(name)?, serde_json::to_string(machine)?);
    let figures = figures.iter().map(serde_json::to_string).collect::<Result<Vec<String>, _>>()?;
    Ok(format!("{{\n\"name\": {name},\n\"machine\": {machine},\n\"figures\": [\n{}\n]\n}}\n", figures.join(",\n")))
}
