//! `kelvin machine`: facts and hazards.

use std::io::{self, Write};
use std::process::ExitCode;

use kelvin_machine::private::leave_out;
use kelvin_model::{Hazard, Machine, Severity};
use serde::Serialize;

use crate::cli::MachineArgs;
use crate::fault::{Done, Fault};
use crate::output;
use crate::private::without_private;

#[derive(Serialize)]
struct Described<'a> {
    machine: &'a Machine,
    hazards: &'a [Hazard],
}

/// `kelvin machine`.
pub fn machine(args: &MachineArgs) -> Done {
    if !args.root.is_dir() {
        return Err(Fault::because(format!("--root {}: not a directory", args.root.display())));
    }
    let mut machine = kelvin_machine::read(&args.root);
    let mut hazards = kelvin_machine::hazards(&args.root, &machine, &std::env::temp_dir());
    if !args.with_private {
        leave_out(&mut machine);
        machine = without_private(&machine)?;
        hazards = without_private(&hazards)?;
    }
    if args.json {
        output::print_json(&Described { machine: &machine, hazards: &hazards })?;
    } else {
        output::print(|out| write_terminal(out, &machine, &hazards))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_terminal(out: &mut dyn Write, machine: &Machine, hazards: &[Hazard]) -> io::Result<()> {
    let rows = machine.rows();
    let width = rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
    let mut group = "";
    for row in &rows {
        if row.group != group {
            writeln!(out, "{}{}", if group.is_empty() { "" } else { "\n" }, row.group)?;
            group = row.group;
        }
        match &row.text {
            Some(text) => writeln!(out, "  {:width$}  {text}  [{}]", row.label, row.source)?,
            None => writeln!(out, "  {:width$}  unknown: {}", row.label, row.source)?,
        }
    }
    writeln!(out, "\nHazards")?;
    if hazards.is_empty() {
        writeln!(out, "  none found")?;
    }
    for hazard in hazards {
        let severity = match hazard.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Serious => "serious",
        };
        writeln!(out, "  {severity:8} {}", hazard.summary)?;
        writeln!(out, "           {}", hazard.effect)?;
        if let Some(remedy) = &hazard.remedy {
            let prompt = if hazard.remedy_is_command { "$ " } else { "" };
            writeln!(out, "           remedy: {prompt}{remedy}")?;
        }
    }
    Ok(())
}
