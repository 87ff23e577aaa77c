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

/// Measures settings, one after the other, with them and without; each is as it was found before the next. Whether all that can be
/// measured was, to the end.
///
/// # Errors
/// A name that selects nothing, an interruption before there was anything to compare, or what keeps every one from being measured.
pub fn measure(settings: &[SettingChanges], args: &TuneArgs) -> Result<(Vec<SettingEffect>, bool), CliError> {
    let options = RunOptions { budget: args.budget, rounds: args.rounds, ..defaults() };
    let CompareOutputArgs { threshold, .. } = defaults();
    plan_names(ProbeKind::Measure, &args.names, &LocalMachine::read()?, Effort::Quick)?;
    let (mut effects, mut is_complete, mut first_fault) = (Vec::new(), true, None);
    for SettingChanges { changes, visible_in } in settings {
        let mut effect = SettingEffect { changes: changes.clone(), comparison: None, not_measured: None };
        match visible_in {
            VisibleIn::NotMeasurable(why) => effect.not_measured = Some((*why).to_owned()),
            VisibleIn::Metrics(metrics) => {
                let ids: Vec<String> = metrics.iter().map(|metric| metric.id.to_string()).collect();
                let names = if args.names.is_empty() { &ids } else { &args.names };
                let setting = |SettingChange { path, to, .. }: &SettingChange| Setting {
                    name: path.clone(),
                    value: to.clone(),
                    kind: SettingKind::System(path.clone()),
                };
                let changed: Vec<Setting> = changes.iter().map(setting).collect();
                let (effort, sides) = (Effort::Quick, [&[][..], &changed]);
                let probed = ProbeComparison { names, effort, options: &options, sides };
                match compare(&probed, &limits(&options, None, threshold)) {
                    Ok(result) => {
                        // A reason may quote a path of the user's.
                        effect.comparison = Some(without_private(&result.comparison)?);
                        is_complete &= result.is_complete;
                    }
                    Err(fault) => {
                        effect.not_measured = Some(fault.to_string());
                        is_complete = false;
                        first_fault.get_or_insert(fault);
                    }
                }
            }
        }
        effects.push(effect);
        if stop_signals::stop_signal().is_some() {
            is_complete = false;
            break;
        }
    }
    match first_fault.filter(|_| effects.iter().all(|effect| effect.comparison.is_none())) {
        Some(fault) => Err(CliError::new("--measure", fault)),
        None => Ok((effects, is_complete)),
    }
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
        changes.first().map_or(Ok(()), |change| writeln!(out, "  {}", change.benefit))?;
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
