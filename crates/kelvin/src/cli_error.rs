//! Why a command could not be done, as one line and an exit status.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use kelvin_core::text::escape_invisible;
use kelvin_store::without_password;

use crate::locale::in_locale;

/// A command could not be done: one line with the reason, exit status 2.
#[derive(Debug)]
pub struct CliError(String);

/// The result of a command that did its work: whether without failures, which are a probe's or a missed gate.
pub type CmdResult = Result<bool, CliError>;

/// Characters kept of the beginning and the end of a fault: it may quote a file's contents.
const MESSAGE_EXCERPT_CHARS: (usize, usize) = (800, 400);

/// Exit status of a command that did its work, though a probe failed or a gate was missed.
const EXIT_WITH_FAILURES: u8 = 1;

/// Gives a command up, for this reason.
macro_rules! bail {
    ($($reason:tt)*) => {
        return Err($crate::cli_error::CliError::msg(format_args!($($reason)*)))
    };
}

/// Prints a message on standard error that is no part of the answer.
macro_rules! notice {
    ($($text:tt)*) => {
        $crate::standard_error::eprint_line(format_args!("kelvin: {}", format_args!($($text)*)))
    };
}

/// The exit status of a command.
pub fn exit_code(result: CmdResult) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_WITH_FAILURES),
        Err(error) => error.report(),
    }
}

impl CliError {
    /// A fault from an action and the reason of its failure.
    pub fn new(action: impl Display, reason: impl Display) -> Self {
        Self(format!("{action}: {reason}"))
    }

    /// A fault from a message.
    pub fn msg(message: impl Display) -> Self {
        Self(message.to_string())
    }

    /// Prints it on standard error; returns the exit status.
    pub fn report(&self) -> ExitCode {
        // Nothing can be done if even standard error is gone.
        let _ = writeln!(std::io::stderr(), "kelvin: {}", in_locale(&self.to_string()));
        ExitCode::from(2)
    }
}

impl Display for CliError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An argument that is quoted may be the URL of a store.
        let message = without_password(&self.0);
        let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let line: Vec<char> = escape_invisible(&line).chars().collect();
        let text = |letters: &[char]| letters.iter().collect::<String>();
        let (beginning, end) = MESSAGE_EXCERPT_CHARS;
        match line.len().checked_sub(beginning + end) {
            Some(1..) => write!(out, "{} ... {}", text(&line[..beginning]), text(&line[line.len() - end..])),
            _ => out.write_str(&text(&line)),
        }
    }
}

impl<E: std::error::Error> From<E> for CliError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Results whose error is reported with the action that failed.
pub trait Context<T> {
    /// The error, behind the action.
    fn context(self, action: impl Display) -> Result<T, CliError>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, action: impl Display) -> Result<T, CliError> {
        self.map_err(|error| CliError::new(action, error))
    }
}
