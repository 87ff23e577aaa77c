//! What changes of settings are worth: what each touches is measured with it and without, interleaved, as `ab` does.

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
    plan_names(ProbeKind::Measure, &args.names, &LocalMachine::read(None)?, Effort::Quick)?;
    let (mut effects, mut is_complete, mut first_fault) = (Vec::new(), true, None);
    for SettingChanges { changes, visible_in } in settings {
        let mut effect = SettingEffect { changes: changes.clone(), comparison: None, not_measured: None };
        match visible_in {
            VisibleIn::NotMeasurable(reason) => effect.not_measured = Some((*reason).to_owned()),
            VisibleIn::Metrics(metrics) => {
                let ids: Vec<String> = metrics.iter().map(|metric| metric.id.to_string()).collect();
                let names = if args.names.is_empty() { &ids } else { &args.names };
                let setting = |SettingChange { path, to, .. }: &SettingChange| Setting {
                    name: path.clone(),
                    value: to.clone(),
                    kind: SettingKind::System(path.clone()),
                };
                let changed_settings: Vec<Setting> = changes.iter().map(setting).collect();
                let (effort, sides) = (Effort::Quick, [&[][..], &changed_settings]);
                let request = ProbeComparison { names, effort, options: &options, sides };
                match compare(&request, &limits(&options, None, threshold)) {
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
pub fn write_effects(out: &mut dyn Write, effects: &[SettingEffect]) -> io::Result<()> {
    for SettingEffect { changes, comparison, not_measured } in effects {
        for SettingChange { path, from, to, .. } in changes {
            writeln!(out, "{path}: {from} -> {to}")?;
        }
        changes.first().map_or(Ok(()), |change| writeln!(out, "  {}", change.benefit))?;
        if let Some(reason) = not_measured {
            writeln!(out, "  not measured: {reason}")?;
        }
        writeln!(out)?;
        if let Some(comparison) = comparison {
            CompareTerminal { width: output::width(), show_all: true, full_command: "" }.render(comparison, out)?;
            writeln!(out)?;
        }
    }
    writeln!(out, "The effect of each:")?;
    effects.iter().try_for_each(|SettingEffect { changes, comparison, .. }| {
        let count = changes.len().saturating_sub(1);
        let path = changes.first().map_or("", |change| change.path.as_str());
        let suffix = if count > 0 { format!(" and {count} more") } else { String::new() };
        let verdicts = comparison.as_ref().map_or_else(|| "not measured".to_owned(), verdict_counts);
        writeln!(out, "  {path}{suffix}\n    {verdicts}")
    })
}
