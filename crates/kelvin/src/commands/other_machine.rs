//! `kelvin other-machine`, hidden: a machine with its figures as data, made from stored runs of it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use kelvin_analysis::Headlines;
use kelvin_core::{Case, MeasuredValue, Name, Run};
use kelvin_harness::ReferenceHeadline;
use kelvin_stats::mean;

use crate::cli::StoreArgs;
use crate::cli_error::CliError;
use crate::output;
use crate::redact::Redaction;
use crate::stores::load_run;

/// Prints a machine of this name (`an Intel server core, ...`): the facts of the first run, and of each figure the geometric mean over all.
pub fn other_machine(name: String, runs: &[OsString], store: &StoreArgs) -> Result<(), CliError> {
    let read = |run: &OsString| Redaction::HidePrivate.redact_run(load_run(run, store)?);
    let runs = runs.iter().map(read).collect::<Result<Vec<Run>, CliError>>()?;
    let mut values_by_case: BTreeMap<(Name, Case), Vec<MeasuredValue>> = BTreeMap::new();
    for run in &runs {
        let headlines = Headlines::from_run(run);
        for metric in &run.header.metrics {
            for (case, value) in headlines.cases(&metric.id) {
                values_by_case.entry((metric.id, case.clone())).or_default().push(value);
            }
        }
    }
    let Some(first) = runs.into_iter().next() else { bail!("name a run") };
    let figures = values_by_case.into_iter().map(|((metric, case), values)| {
        let mean = |part: fn(&MeasuredValue) -> f64| mean(&values.iter().map(part).collect::<Vec<f64>>());
        let is_positive = values.iter().all(|value| value.value > 0.0);
        let value = if is_positive { mean(|value| value.value.ln()).exp() } else { mean(|value| value.value) };
        ReferenceHeadline { metric, case, value, half_width: mean(|value| value.half_width) }
    });
    let mut machine = first.header.machine;
    // Neither is needed for a figure, and both are of one machine alone.
    machine.identity.clear();
    machine.mounts.clear();
    // A line for each figure, which a change of one shows.
    let (name, machine) = (serde_json::to_string(&name)?, serde_json::to_string(&machine)?);
    let figures: Vec<String> = figures.map(|figure| serde_json::to_string(&figure)).collect::<Result<_, _>>()?;
    let figures = figures.join(",\n");
    output::print_raw(|out| {
        writeln!(out, "{{\n\"name\": {name},\n\"machine\": {machine},\n\"figures\": [\n{figures}\n]\n}}")
    })
}
