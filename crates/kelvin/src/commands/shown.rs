//! How a comparison is judged and shown, whatever was compared.

use std::io::Write;
use std::process::ExitCode;

use kelvin_model::{ComparedRung, Comparison, json};
use kelvin_report::compare::{Compared, Page, Pulled, Tested};

use super::gate::AskedGate;
use crate::cli::{CompareFormat, ShownArgs};
use crate::fault::Fault;
use crate::output::{self, Outlet};
use crate::private::without_private;

/// What was asked for, checked before anything is compared.
pub struct Shown<'a> {
    args: &'a ShownArgs,
    gate: AskedGate,
    outlet: Outlet,
}

impl<'a> Shown<'a> {
    /// Reads the gate, checks that the flags go together, and finds where it goes.
    ///
    /// # Errors
    /// A policy that is none, flags that say nothing together, or a file that cannot be written.
    pub fn of(args: &'a ShownArgs) -> Result<Self, Fault> {
        let gate = AskedGate::of(&args.gate)?;
        gate.check_format(args)?;
        let outlet = Outlet::find(args.output.as_deref())?;
        Ok(Self { args, gate, outlet })
    }

    /// Whether it goes to a file or another program, and not to whoever sits at this terminal.
    pub fn leaves(&self) -> bool {
        self.args.output.is_some() || self.args.format() != CompareFormat::Terminal
    }

    /// Judges a comparison and shows it, without what is private unless that is kept. Returns what is left to be told at the end.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub fn show(self, of: Showing<'_>, is_kept: bool) -> Result<Told, Fault> {
        let Showing { mut comparison, ladder, more } = of;
        let format = self.args.format();
        if matches!(format, CompareFormat::Html | CompareFormat::Json) {
            comparison.ladder = ladder(&comparison);
        }
        self.gate.judge(&mut comparison);
        if !is_kept {
            // A reason may quote a path of the user's.
            comparison = without_private(&comparison)?;
        }
        let write = |out: &mut dyn Write| match format {
            CompareFormat::Terminal => {
                Compared { width: output::width(), full: self.args.full, more }.render(&comparison, out)
            }
            CompareFormat::Html => Page.render(&comparison, out),
            CompareFormat::Md => Pulled.render(&comparison, out),
            CompareFormat::Junit => Tested.render(&comparison, out),
            CompareFormat::Json => writeln!(out, "{}", json::pretty(&comparison)?),
        };
        self.outlet.deliver(format == CompareFormat::Terminal, write)?;
        Ok(Told { gate: self.gate, comparison })
    }
}

/// A comparison to show, and what else is shown with it.
pub struct Showing<'a> {
    /// The comparison, without its ladder.
    pub comparison: Comparison,
    /// Finds its ladder, which a page and JSON have.
    pub ladder: &'a dyn Fn(&Comparison) -> Vec<ComparedRung>,
    /// The command that shows all of it.
    pub more: &'a str,
}

/// A comparison that was shown.
pub struct Told {
    gate: AskedGate,
    comparison: Comparison,
}

impl Told {
    /// Says what the gate has found, and gives the exit status.
    pub fn judged(&self) -> ExitCode {
        self.gate.tell(&self.comparison)
    }
}
