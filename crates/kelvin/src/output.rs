//! Standard output and standard error: whether they are terminals, how wide, whether in colour.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use kelvin_file::user_file::UserFile;

use crate::fault::Fault;

/// Columns when the terminal does not say.
const USUAL_WIDTH: usize = 80;

/// Whether to colour standard output: a terminal, NO_COLOR unset (no-color.org), TERM not dumb.
pub fn color() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether people read standard output, and no program.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal on standard output: COLUMNS if set, else what the terminal says, else 80.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    columns.or_else(kelvin_sys::terminal::columns).unwrap_or(USUAL_WIDTH).max(40)
}

/// Whether progress can be shown: standard error is a terminal.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal()
}

/// Writes to standard output what `write` produces. A reader that went away (`kelvin list | head`) is no fault.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Fault::new("cannot write to standard output", error))
        }
        _ => Ok(()),
    }
}

/// A line on standard error, for what is not the answer. Nothing can be done if it is gone.
pub fn remark(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A line on standard error that says what is being done, erased when it is dropped; nothing if that is no terminal.
#[derive(Debug)]
pub struct Line {
    shown: bool,
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        Self { shown: shows_progress() }
    }

    /// Puts this in the place of what it said.
    pub fn show(&self, text: impl std::fmt::Display) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[2K{text}");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show("");
    }
}

/// Writes a file that a user names.
pub fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    UserFile::find(path).and_then(|found| found.write(write)).map_err(Fault::because)
}
