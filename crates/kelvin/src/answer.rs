//! Where a command's answer goes, as lines for people or as JSON.

use std::io::{self, Write};

use kelvin_core::json;
use serde::Serialize;

use crate::cli::AnswerArgs;
use crate::cli_error::CliError;
use crate::output::{self, Outlet};

/// Where an answer goes. Found before anything is read, measured or printed.
#[derive(Debug)]
pub struct AnswerOutlet {
    /// Whether as JSON.
    pub is_json: bool,
    outlet: Outlet,
}

impl AnswerOutlet {
    /// By the flags of a command.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn find(args: &AnswerArgs) -> Result<Self, CliError> {
        Ok(Self { is_json: args.is_json(), outlet: Outlet::find(args.path())? })
    }

    /// Writes the answer.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(
        self,
        answer: &impl Serialize,
        write_lines: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CliError> {
        if self.is_json { self.write_json(answer) } else { self.write_lines(write_lines) }
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write_json(self, answer: &impl Serialize) -> Result<(), CliError> {
        self.outlet.write_output(false, |out| writeln!(out, "{}", json::to_string_pretty(answer)?))
    }

    /// Writes lines for people.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write_lines(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
        self.outlet.write_output(true, write)
    }

    /// Whether it can be written piece by piece: lines on standard output.
    pub fn is_streamed(&self) -> bool {
        !self.is_json && self.outlet.is_standard_output()
    }

    /// Columns of a line about one thing: those of a terminal. For programs it is one line, however long.
    pub fn columns(&self) -> usize {
        if self.outlet.is_standard_output() { output::line_columns() } else { usize::MAX }
    }
}
