//! How a comparison is judged and shown, whatever was compared.

use std::io::Write;
use std::process::ExitCode;

use kelvin_core::{ComparedRung, Comparison, json};
use kelvin_report::compare::{CompareMarkdown, ComparePage, CompareTerminal, JUnit};

use super::gate::GateOption;
use crate::cli::{CompareFormat, CompareOutputArgs};
use crate::cli_error::CliError;
use crate::output::{self, Outlet};
use crate::redact::without_private;

/// What was asked for, checked before anything is compared.
pub struct ComparisonOutput<'a> {
    args: &'a CompareOutputArgs,
    gate: GateOption,
    outlet: Outlet,
}

impl<'a> ComparisonOutput<'a> {
    /// Reads the gate, checks that the flags go together, and finds where it goes.
    ///
    /// # Errors
    /// A policy that is none, flags that say nothing together, or a file that cannot be written.
    pub fn new(args: &'a CompareOutputArgs) -> Result<Self, CliError> {
        let gate = GateOption::from_args(&args.gate)?;
        gate.check_format(args)?;
        let outlet = Outlet::find(args.output.as_deref())?;
        Ok(Self { args, gate, outlet })
    }

    /// Whether it goes to a file or another program, and not to whoever sits at this terminal.
    pub fn is_redirected(&self) -> bool {
        self.args.output.is_some() || self.args.format() != CompareFormat::Terminal
    }

    /// Judges a comparison and shows it, without what is private unless that is kept. Returns what is left to be told at the end.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub fn show(self, of: ComparisonView<'_>, is_kept: bool) -> Result<ResultView, CliError> {
        let ComparisonView { mut comparison, ladder, more } = of;
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
                CompareTerminal { width: output::width(), full: self.args.full, more }.render(&comparison, out)
            }
            CompareFormat::Html => ComparePage.render(&comparison, out),
            CompareFormat::Md => CompareMarkdown.render(&comparison, out),
            CompareFormat::Junit => JUnit.render(&comparison, out),
            CompareFormat::Json => writeln!(out, "{}", json::to_string_pretty(&comparison)?),
        };
        self.outlet.write_output(format == CompareFormat::Terminal, write)?;
        Ok(ResultView { gate: self.gate, comparison })
    }
}

/// A comparison to show, and what else is shown with it.
pub struct ComparisonView<'a> {
    /// The comparison, without its ladder.
    pub comparison: Comparison,
    /// Finds its ladder, which a page and JSON have.
    pub ladder: &'a dyn Fn(&Comparison) -> Vec<ComparedRung>,
    /// The command that shows all of it.
    pub more: &'a str,
}

/// A comparison that was shown.
pub struct ResultView {
    gate: GateOption,
    comparison: Comparison,
}

impl ResultView {
    /// Says what the gate has found, and gives the exit status.
    pub fn report_gate(&self) -> ExitCode {
        self.gate.report(&self.comparison)
    }
}
