//! Standard output and standard error: whether they are terminals, how wide, whether in colour; and the one place through
//! which texts of others go there.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use kelvin_model::json;
use kelvin_model::text::{visible, visible_lines};
use serde::Serialize;

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

/// Writes lines for people to standard output. What would act on a terminal is spelled out, whichever text brought it.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    print_as_it_is(|out| {
        let mut lines = Vec::new();
        write(&mut lines)?;
        out.write_all(visible_lines(&String::from_utf8_lossy(&lines)).as_bytes())
    })
}

/// Writes JSON for programs and people to standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), Fault> {
    let json = json::pretty(value).map_err(|error| Fault::new("cannot write JSON", error))?;
    print_as_it_is(|out| writeln!(out, "{json}"))
}

/// Writes to standard output what `write` produces, as it is: a format that spells out by itself what a terminal would act on.
/// A reader that went away (`kelvin list | head`) is no fault.
pub fn print_as_it_is(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
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
    let _ = writeln!(io::stderr(), "{}", visible(&line.to_string()));
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
            let _ = write!(io::stderr(), "\r\x1b[2K{}", visible(&text.to_string()));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show("");
    }
}

/// Finds out, before a long run, whether a file can be written: its directory must be there and take a new file.
pub fn check_writable(path: &Path) -> Result<(), Fault> {
    let cannot = |error| Fault::new(format!("cannot write {}", path.display()), error);
    if path.is_dir() {
        return Err(cannot(io::Error::new(ErrorKind::IsADirectory, "it is a directory")));
    }
    check_directory(path).map_err(cannot)?;
    let temporary = temporary_beside(path)?;
    File::create(&temporary).and_then(|_| std::fs::remove_file(&temporary)).map_err(cannot)
}

/// Finds out whether the directory of a file is there.
pub fn check_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    match directory.filter(|directory| !directory.is_dir()) {
        Some(missing) => {
            let why = format!("there is no directory {}; make it first", missing.display());
            Err(io::Error::new(ErrorKind::NotFound, why))
        }
        None => Ok(()),
    }
}

/// A name in the same directory that nobody else uses.
fn temporary_beside(path: &Path) -> Result<PathBuf, Fault> {
    let name = path.file_name().ok_or_else(|| Fault::because(format!("{} is not a file name", path.display())))?;
    Ok(path.with_file_name(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id())))
}

/// Writes a file whole or not at all: to a temporary name beside it, then renamed.
pub fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    write_whole(path, write, File::sync_all)
}

/// The same without waiting for the disk: for what can be had again if the machine fails in this moment.
pub fn write_passing_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    write_whole(path, write, |_| Ok(()))
}

fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    keep: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), Fault> {
    let temporary = temporary_beside(path)?;
    let result = File::create(&temporary).and_then(|file| {
        let mut out = io::BufWriter::new(file);
        write(&mut out)?;
        keep(&out.into_inner().map_err(io::IntoInnerError::into_error)?)?;
        std::fs::rename(&temporary, path)
    });
    result.map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        Fault::new(format!("cannot write {}", path.display()), error)
    })
}
