//! What changes of settings are worth: what each touches is measured with it and without, in turn, as `ab` does.

use std::io::{self, Write};

use kelvin_analysis::words::compare::counts;
use kelvin_harness::{Effort, ProbeKind};
use kelvin_machine::tune::{Change, OfSetting, Shows};
use kelvin_model::Comparison;
use kelvin_report::compare::Compared;
use kelvin_sys::interrupt;
use serde::Serialize;

use crate::cli::{Means, MeasureArgs, Setting, ShownArgs, TuneArgs, usual};
use crate::commands::ab::{Probed, compare, limits};
use crate::fault::Fault;
use crate::output;
use crate::place::Here;
use crate::private::without_private;
use crate::selection::plan_of;

/// What was found of several settings.
pub struct Worths {
    /// In the order of change.
    pub each: Vec<Worth>,
    /// Whether all that can be measured was, to the end.
    pub is_whole: bool,
}

/// What the changes of one setting are worth.
#[derive(Serialize)]
pub struct Worth {
    changes: Vec<Change>,
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
pub fn measure(settings: &[OfSetting], args: &TuneArgs) -> Result<Worths, Fault> {
    let measure = MeasureArgs { budget: args.budget, rounds: args.rounds, ..usual() };
    plan_of(ProbeKind::Measure, &args.names, &Here::read()?, Effort::Quick)?;
    let mut worths = Worths { each: Vec::new(), is_whole: true };
    let mut first_fault = None;
    for OfSetting { changes, shows } in settings {
        let mut worth = Worth { changes: changes.clone(), comparison: None, not_measured: None };
        match shows {
            Shows::Not(why) => worth.not_measured = Some((*why).to_owned()),
            Shows::In(metrics) => {
                let ids = || metrics.iter().map(|metric| metric.id.to_string()).collect();
                let names: Vec<String> = if args.names.is_empty() { ids() } else { args.names.clone() };
                match in_turn(changes, &names, &measure) {
                    Ok((comparison, is_whole)) => {
                        worth.comparison = Some(comparison);
                        worths.is_whole &= is_whole;
                    }
                    Err(fault) => {
                        worth.not_measured = Some(fault.to_string());
                        worths.is_whole = false;
                        first_fault.get_or_insert(fault);
                    }
                }
            }
        }
        worths.each.push(worth);
        if interrupt::requested().is_some() {
            worths.is_whole = false;
            break;
        }
    }
    match first_fault.filter(|_| worths.each.iter().all(|worth| worth.comparison.is_none())) {
        Some(fault) => Err(Fault::new("--measure", fault)),
        None => Ok(worths),
    }
}

/// With changes against without, and whether it was measured to the end.
fn in_turn(changes: &[Change], names: &[String], measure: &MeasureArgs) -> Result<(Comparison, bool), Fault> {
    let setting = |Change { path, to, .. }: &Change| Setting {
        name: path.clone(),
        value: to.clone(),
        means: Means::System(path.clone()),
    };
    let changed: Vec<Setting> = changes.iter().map(setting).collect();
    let probed = Probed { names, effort: Effort::Quick, measure, sides: [&[], &changed] };
    let ShownArgs { threshold, .. } = usual();
    let outcome = compare(&probed, &limits(measure, None, threshold))?;
    // A reason may quote a path of the user's.
    Ok((without_private(&outcome.comparison)?, outcome.is_whole))
}

/// Writes what each is worth, then all in a line each.
///
/// # Errors
/// Those of the writer.
pub fn show(out: &mut dyn Write, worths: &[Worth]) -> io::Result<()> {
    for Worth { changes, comparison, not_measured } in worths {
        for Change { path, from, to, .. } in changes {
            writeln!(out, "{path}: {from} -> {to}")?;
        }
        changes.first().map_or(Ok(()), |change| writeln!(out, "  {}", change.why))?;
        if let Some(why) = not_measured {
            writeln!(out, "  not measured: {why}")?;
        }
        writeln!(out)?;
        if let Some(comparison) = comparison {
            Compared { width: output::width(), full: true, more: "" }.render(comparison, out)?;
            writeln!(out)?;
        }
    }
    writeln!(out, "What each is worth:")?;
    worths.iter().try_for_each(|Worth { changes, comparison, .. }| {
        let more = changes.len().saturating_sub(1);
        let path = changes.first().map_or("", |change| change.path.as_str());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let worth = comparison.as_ref().map_or_else(|| "not measured".to_owned(), counts);
        writeln!(out, "  {path}{more}\n    {worth}")
    })
}
