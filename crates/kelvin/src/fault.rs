//! Why a command could not be done, as one line and an exit status.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use kelvin_model::text::visible;
use kelvin_store::without_password;

/// A command could not be done: one line that says why, exit status 2.
#[derive(Debug)]
pub struct Fault(String);

/// The result of a command: how well it was done.
pub type Done = Result<ExitCode, Fault>;

/// Characters kept of the beginning and the end of a fault: it may quote a file's contents.
const TOLD: (usize, usize) = (800, 400);

/// Exit status of a command that did its work, though a probe failed or a gate was missed.
pub const WITH_FAILURES: u8 = 1;

impl Fault {
    /// A fault from what was being done and why it failed.
    pub fn new(doing: impl Display, why: impl Display) -> Self {
        Self(format!("{doing}: {why}"))
    }

    /// A fault from a message.
    pub fn because(sentence: impl Display) -> Self {
        Self(sentence.to_string())
    }

    /// Prints it on standard error; returns the exit status.
    pub fn report(&self) -> ExitCode {
        // Nothing can be done if even standard error is gone.
        let _ = writeln!(std::io::stderr(), "kelvin: {self}");
        ExitCode::from(2)
    }
}

impl Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An argument that is quoted may be the URL of a store.
        let told = without_password(&self.0);
        let line: Vec<char> = visible(&told.split_whitespace().collect::<Vec<_>>().join(" ")).chars().collect();
        let text = |letters: &[char]| letters.iter().collect::<String>();
        match line.len().checked_sub(TOLD.0 + TOLD.1) {
            Some(1..) => write!(out, "{} ... {}", text(&line[..TOLD.0]), text(&line[line.len() - TOLD.1..])),
            _ => out.write_str(&text(&line)),
        }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
