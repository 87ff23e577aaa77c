//! Standard output and standard error: whether they are terminals, their width and colour; the one place through which
//! foreign texts reach them.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use kelvin_file::output_file::OutputFile;

use kelvin_core::json;
use kelvin_core::text::escape_invisible_lines;
use kelvin_report::text::{display_width, wrap};
use kelvin_report::{FirstScreen, Terminal};
use kelvin_sys::standard_streams;
use serde::Serialize;

use crate::cli_error::{CliError, Context};
use crate::locale::{self, in_locale, write_in_locale};
pub use crate::standard_error::eprint_line;

/// Goes to the beginning of a terminal's line, and erases it.
pub const ERASE_LINE: &str = "\r\x1b[2K";

/// The operation that failed, for errors of standard output.
pub const STDOUT_WRITE_FAILED: &str = "cannot write to standard output";

/// Like `STDOUT_WRITE_FAILED`, for standard input.
pub const STDIN_READ_FAILED: &str = "cannot read standard input";

/// Columns of words beside a head; where there are fewer they stand below it, indented by so many.
const MIN_HANGING_WIDTH: usize = 20;
const NARROW_INDENT: usize = 4;

/// Columns when the terminal reports none.
const DEFAULT_WIDTH: usize = 80;
/// Fewest columns of text: a narrower terminal breaks its lines.
const MIN_WIDTH: usize = 40;

/// Whether to colour standard output: a terminal, NO_COLOR unset (no-color.org), TERM not dumb.
pub fn uses_color() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_set("NO_COLOR") && supports_escapes(std::env::var_os("TERM").as_deref())
}

/// Whether a terminal of this TERM knows escape sequences.
fn supports_escapes(term: Option<&OsStr>) -> bool {
    term.is_none_or(|term| term != "dumb")
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal on standard output: COLUMNS if set, else the terminal's, else 80.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    columns.or_else(|| standard_streams::columns(io::stdout())).unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH)
}

/// Columns of a line about one thing on standard output: those of a terminal. For programs it is one line, however long.
pub fn line_columns() -> usize {
    if is_terminal() { width() } else { usize::MAX }
}

/// Columns of the terminal on standard error.
pub fn progress_columns() -> usize {
    standard_streams::columns(io::stderr()).unwrap_or(DEFAULT_WIDTH)
}

/// All tables, as wide as the terminal.
pub fn terminal(color: bool) -> Terminal {
    Terminal { width: width(), color }
}

/// The first screen, and lines that lead to more.
pub fn first_screen(color: bool, tables: bool, hints: &[(String, String)]) -> FirstScreen<'_> {
    FirstScreen { terminal: terminal(color), unicode: locale::is_utf8(), tables, further_outputs: hints }
}

/// Whether progress can be shown: standard error is a terminal that can erase a line.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal() && supports_escapes(std::env::var_os("TERM").as_deref())
}

/// Writes lines for people to standard output, with all control characters escaped.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    print_raw(|out| {
        let mut lines = Vec::new();
        write(&mut lines)?;
        out.write_all(in_locale(&escape_invisible_lines(&String::from_utf8_lossy(&lines))).as_bytes())
    })
}

/// Writes a paragraph as wide as the terminal behind a head, below which its further lines stand.
///
/// # Errors
/// Those of writing.
pub fn write_hanging(out: &mut dyn Write, head: &str, text: &str) -> io::Result<()> {
    if display_width(head) + display_width(text) <= width() {
        return writeln!(out, "{head}{text}");
    }
    write_wrapped(out, width(), head, text)
}

/// Like [`write_hanging`], as wide as this, and with one space between words in any case. On a narrow terminal a head that leaves no room
/// for words has a line of its own.
///
/// # Errors
/// Those of writing.
pub fn write_wrapped(out: &mut dyn Write, width: usize, head: &str, text: &str) -> io::Result<()> {
    let indent = display_width(head);
    if indent > NARROW_INDENT && width.saturating_sub(indent) < MIN_HANGING_WIDTH {
        writeln!(out, "{}", head.trim_end())?;
        return write_wrapped(out, width, &" ".repeat(NARROW_INDENT), text);
    }
    for (number, line) in wrap(text, width.saturating_sub(indent)).into_iter().enumerate() {
        let head = if number == 0 { head } else { &" ".repeat(indent) };
        writeln!(out, "{head}{line}")?;
    }
    Ok(())
}

/// Writes JSON for programs and people to standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let json = json::to_string_pretty(value).context("cannot write JSON")?;
    print_raw(|out| writeln!(out, "{json}"))
}

/// Writes the output of `write` to standard output as it is: a format that escapes control characters by itself. A reader
/// that went away (`kelvin list | head`) is no fault.
pub fn print_raw(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    standard_streams::check_output().context(STDOUT_WRITE_FAILED)?;
    let mut out = io::BufWriter::new(Stdout { inner: io::stdout().lock(), is_reader_gone: false });
    let result = write(&mut out).and_then(|()| out.flush());
    let is_reader_gone = out.into_parts().0.is_reader_gone;
    if is_reader_gone { Ok(()) } else { result.context(STDOUT_WRITE_FAILED) }
}

/// Standard input, to be read from its beginning to its end.
pub fn locked_stdin() -> Result<io::StdinLock<'static>, CliError> {
    standard_streams::check_input().context(STDIN_READ_FAILED)?;
    Ok(io::stdin().lock())
}

/// What a file that the user named has, or standard input if that is `-`.
///
/// # Errors
/// Those of reading.
pub fn read_named(path: &Path) -> io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return kelvin_sys::fs::read_named(path);
    }
    standard_streams::check_input()?;
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What such a file has as text.
///
/// # Errors
/// Those of [`read_named`]; `InvalidData` for what is not UTF-8.
pub fn read_named_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_named(path)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// That all was taken of what was written to standard output: a file system of another machine or program may say only when a file is
/// closed that it was not.
pub fn close_stdout() -> Result<(), CliError> {
    let result = io::stdout().as_fd().try_clone_to_owned().and_then(kelvin_sys::fs::close);
    result.context(STDOUT_WRITE_FAILED)
}

/// Standard output, which knows whether its reader went away: a format may wrap the error in one of its own.
struct Stdout<W> {
    inner: W,
    is_reader_gone: bool,
}

impl<W: Write> Write for Stdout<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).inspect_err(|error| self.is_reader_gone |= error.kind() == ErrorKind::BrokenPipe)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().inspect_err(|error| self.is_reader_gone |= error.kind() == ErrorKind::BrokenPipe)
    }
}

/// A line on standard error, and below it names, indented and broken at the width of the terminal; nothing without names.
pub fn eprint_names(line: impl std::fmt::Display, names: &[String]) {
    const INDENT: &str = "  ";
    if names.is_empty() {
        return;
    }
    eprint_line(line);
    let lines = wrap(&names.join(", "), width().saturating_sub(INDENT.len()));
    lines.into_iter().for_each(|line| eprint_line(format_args!("{INDENT}{line}")));
}

/// The first few names, and how many more there are.
pub fn first_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MAX_NAMED: usize = 8;
    let omitted = names.len().saturating_sub(MAX_NAMED);
    let list = names.take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if omitted == 0 { list } else { format!("{list} and {omitted} more") }
}

/// Writes a file that the user named.
pub fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), CliError> {
    OutputFile::find(path).and_then(|file| file.write(write)).map_err(CliError::msg)
}

/// Where an answer goes: a file that the user named, or standard output. Found before anything is read, measured or printed.
#[derive(Debug)]
pub struct Outlet(Option<OutputFile>);

impl Outlet {
    /// By the path that was named, if one was; `-` is standard output.
    ///
    /// # Errors
    /// Those of [`OutputFile::find`].
    pub fn find(path: Option<&Path>) -> Result<Self, CliError> {
        let file = path.filter(|path| *path != Path::new("-"));
        file.map(OutputFile::find).transpose().map(Self).map_err(CliError::msg)
    }

    /// Whether it is standard output.
    pub fn is_standard_output(&self) -> bool {
        self.0.is_none()
    }

    /// Writes it: to standard output what is for a terminal in full lines, else as it is.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write_output(
        self,
        is_for_terminal: bool,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CliError> {
        match self.0 {
            Some(file) if is_for_terminal => file.write(|out| write_in_locale(out, write)).map_err(CliError::msg),
            Some(file) => file.write(write).map_err(CliError::msg),
            None if is_for_terminal => print(write),
            None => print_raw(write),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumb_terminal_gets_no_escapes() {
        assert!(!supports_escapes(Some(OsStr::new("dumb"))));
        assert!(supports_escapes(Some(OsStr::new("xterm"))) && supports_escapes(None));
    }
}
