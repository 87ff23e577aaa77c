//! `kelvin machine`: facts and hazards.

use std::io::{self, Write};

use kelvin_core::{Hazard, Machine, topology_map};
use kelvin_machine::redact::redact_machine;
use serde::Serialize;

use crate::answer::AnswerOutlet;
use crate::cli::MachineArgs;
use crate::cli_error::CliError;
use crate::output;
use crate::redact::without_private;

#[derive(Serialize)]
struct MachineReport<'a> {
    machine: &'a Machine,
    hazards: &'a [Hazard],
}

/// `kelvin machine`.
pub fn machine(args: &MachineArgs) -> Result<(), CliError> {
    let outlet = AnswerOutlet::find(&args.answer)?;
    if !args.root.is_dir() {
        bail!("--root {}: not a directory", args.root.display());
    }
    let mut machine = kelvin_machine::read(&args.root);
    let mut hazards = kelvin_machine::hazards(&args.root, &machine, &std::env::temp_dir());
    if !args.with_private {
        redact_machine(&mut machine);
        machine = without_private(&machine)?;
        hazards = without_private(&hazards)?;
    }
    let report = MachineReport { machine: &machine, hazards: &hazards };
    outlet.write(&report, |out| write_terminal(out, &machine, &hazards))
}

/// What stands before the further lines of a hazard.
const INDENT: &str = "           ";

/// Sockets, dies and nodes, with the cores that share each of their last-level caches.
fn write_map(out: &mut dyn Write, machine: &Machine) -> io::Result<()> {
    let map = topology_map(&machine.topology);
    if !map.is_empty() {
        writeln!(out, "\nMap of CPUs")?;
    }
    for line in map {
        let text = line.trim_start();
        output::write_hanging(out, &" ".repeat(2 + line.len() - text.len()), text)?;
    }
    Ok(())
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
        let text = match &row.text {
            Some(text) => format!("{text}  [{}]", row.source),
            None => format!("unknown: {}", row.source),
        };
        output::write_hanging(out, &format!("  {:width$}  ", row.label), &text)?;
    }
    write_map(out, machine)?;
    writeln!(out, "\nHazards")?;
    if hazards.is_empty() {
        writeln!(out, "  none found")?;
    }
    for hazard in hazards {
        output::write_hanging(out, &format!("  {:8} ", hazard.severity.name()), &hazard.summary)?;
        output::write_hanging(out, INDENT, &hazard.effect)?;
        match &hazard.remedy {
            // A command stands on one line, to be copied.
            Some(command) if hazard.remedy_is_command => writeln!(out, "{INDENT}remedy: $ {command}")?,
            Some(advice) => output::write_hanging(out, INDENT, &format!("remedy: {advice}"))?,
            None => {}
        }
    }
    Ok(())
}
