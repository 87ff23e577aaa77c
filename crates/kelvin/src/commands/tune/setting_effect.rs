//! What changes of settings are worth: what each touches is measured with it and without, in turn, as `ab` does.

use std::io::{self, Write};

use kelvin_analysis::wording::compare::verdict_counts;
use kelvin_core::Comparison;
use kelvin_harness::{Effort, ProbeKind};
use kelvin_machine::tune::{SettingChange, SettingChanges, VisibleIn};
use kelvin_report::compare::CompareTerminal;
use kelvin_sys::stop_signals;
use serde::Serialize;

use crate::cli::{CompareOutputArgs, RunOptions, Setting, SettingKind, TuneArgs, defaults};
use crate::cli_error::CliError;
use crate::commands::ab::{ProbeComparison, compare, limits};
use crate::output;
use crate::placement::LocalMachine;
use crate::redact::without_private;
use crate::selection::plan_names;

/// What was found of several settings.
pub struct SettingEffects {
    /// In the order of change.
    pub each: Vec<SettingEffect>,
    /// Whether all that can be measured was, to the end.
    pub is_complete: bool,
}

/// What the changes of one setting are worth.
#[derive(Serialize)]
pub struct SettingEffect {
    changes: Vec<SettingChange>,
    /// With them against without.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_measured: Option<String>,
}

/// Measures settings, one after the other; each is as it was found before the next.
///
/// # Errors
/// A name that selects nothing, an interruption before there was anything to compare, or what keeps every one from being measured.
pub fn measure(settings: &[SettingChanges], args: &TuneArgs) -> Result<SettingEffects, CliError> {
    let options = RunOptions { budget: args.budget, rounds: args.rounds, ..defaults() };
    plan_names(ProbeKind::Measure, &args.names, &LocalMachine::read()?, Effort::Quick)?;
    let mut worths = SettingEffects { each: Vec::new(), is_complete: true };
    let mut first_fault = None;
    for SettingChanges { changes, visible_in: shows } in settings {
        let mut worth = SettingEffect { changes: changes.clone(), comparison: None, not_measured: None };
        match shows {
            VisibleIn::NotMeasurable(why) => worth.not_measured = Some((*why).to_owned()),
            VisibleIn::Metrics(metrics) => {
                let ids = || metrics.iter().map(|metric| metric.id.to_string()).collect();
                let names: Vec<String> = if args.names.is_empty() { ids() } else { args.names.clone() };
                match compare_interleaved(changes, &names, &options) {
                    Ok((comparison, is_whole)) => {
                        worth.comparison = Some(comparison);
                        worths.is_complete &= is_whole;
                    }
                    Err(fault) => {
                        worth.not_measured = Some(fault.to_string());
                        worths.is_complete = false;
                        first_fault.get_or_insert(fault);
                    }
                }
            }
        }
        worths.each.push(worth);
        if stop_signals::stop_signal().is_some() {
            worths.is_complete = false;
            break;
        }
    }
    match first_fault.filter(|_| worths.each.iter().all(|worth| worth.comparison.is_none())) {
        Some(fault) => Err(CliError::new("--measure", fault)),
        None => Ok(worths),
    }
}

/// With changes against without, and whether it was measured to the end.
fn compare_interleaved(
    changes: &[SettingChange],
    names: &[String],
    options: &RunOptions,
) -> Result<(Comparison, bool), CliError> {
    let setting = |SettingChange { path, to, .. }: &SettingChange| Setting {
        name: path.clone(),
        value: to.clone(),
        kind: SettingKind::System(path.clone()),
    };
    let changed: Vec<Setting> = changes.iter().map(setting).collect();
    let probed = ProbeComparison { names, effort: Effort::Quick, options, sides: [&[], &changed] };
    let CompareOutputArgs { threshold, .. } = defaults();
    let outcome = compare(&probed, &limits(options, None, threshold))?;
    // A reason may quote a path of the user's.
    Ok((without_private(&outcome.comparison)?, outcome.is_complete))
}

/// Writes what each is worth, then all in a line each.
///
/// # Errors
/// Those of the writer.
pub fn write_effects(out: &mut dyn Write, worths: &[SettingEffect]) -> io::Result<()> {
    for SettingEffect { changes, comparison, not_measured } in worths {
        for SettingChange { path, from, to, .. } in changes {
            writeln!(out, "{path}: {from} -> {to}")?;
        }
        changes.first().map_or(Ok(()), |change| writeln!(out, "  {}", change.why))?;
        if let Some(why) = not_measured {
            writeln!(out, "  not measured: {why}")?;
        }
        writeln!(out)?;
        if let Some(comparison) = comparison {
            CompareTerminal { width: output::width(), full: true, more: "" }.render(comparison, out)?;
            writeln!(out)?;
        }
    }
    writeln!(out, "What each is worth:")?;
    worths.iter().try_for_each(|SettingEffect { changes, comparison, .. }| {
        let more = changes.len().saturating_sub(1);
        let path = changes.first().map_or("", |change| change.path.as_str());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let worth = comparison.as_ref().map_or_else(|| "not measured".to_owned(), verdict_counts);
        writeln!(out, "  {path}{more}\n    {worth}")
    })
}
