//! Standard output and standard error: whether they are terminals, their width and colour; the one place through which
//! foreign texts reach them.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use kelvin_file::user_file::UserFile;

use kelvin_model::json;
use kelvin_model::text::{visible, visible_lines};
use kelvin_report::text::{columns, wrap};
use kelvin_report::{FirstScreen, Terminal};
use serde::Serialize;

use crate::fault::Fault;

/// Goes to the beginning of a terminal's line, and erases it.
pub const ERASE: &str = "\r\x1b[2K";

/// What failed.
pub const UNWRITTEN: &str = "cannot write to standard output";

/// What else failed.
pub const UNREAD: &str = "cannot read standard input";

/// Columns when the terminal does not say.
const USUAL_WIDTH: usize = 80;

/// Whether to colour standard output: a terminal, NO_COLOR unset (no-color.org), TERM not dumb.
pub fn color() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !set("NO_COLOR") && knows_escapes(std::env::var_os("TERM").as_deref())
}

/// Whether a terminal of this TERM knows escape sequences.
fn knows_escapes(term: Option<&OsStr>) -> bool {
    term.is_none_or(|term| term != "dumb")
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal on standard output: COLUMNS if set, else the terminal's, else 80.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    columns.or_else(kelvin_sys::terminal::columns).unwrap_or(USUAL_WIDTH).max(40)
}

/// Whether the locale of texts has characters other than ASCII: the first of LC_ALL, LC_CTYPE and LANG that is set names UTF-8.
pub fn unicode() -> bool {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| set(name)).and_then(std::env::var_os);
    let named = locale.map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    named.contains("utf-8") || named.contains("utf8")
}

/// All tables, as wide as the terminal.
pub fn terminal(color: bool) -> Terminal {
    Terminal { width: width(), color }
}

/// The first screen, and lines that lead to more.
pub fn first_screen(color: bool, tables: bool, more: &[(String, String)]) -> FirstScreen<'_> {
    FirstScreen { terminal: terminal(color), unicode: unicode(), tables, more }
}

/// Whether progress can be shown: standard error is a terminal that can erase a line.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal() && knows_escapes(std::env::var_os("TERM").as_deref())
}

/// Writes lines for people to standard output, with all control characters escaped.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    print_as_it_is(|out| {
        let mut lines = Vec::new();
        write(&mut lines)?;
        out.write_all(visible_lines(&String::from_utf8_lossy(&lines)).as_bytes())
    })
}

/// Writes a paragraph as wide as the terminal behind a head, below which its further lines stand.
///
/// # Errors
/// Those of writing.
pub fn hanging(out: &mut dyn Write, head: &str, text: &str) -> io::Result<()> {
    let indent = columns(head);
    if indent + columns(text) <= width() {
        return writeln!(out, "{head}{text}");
    }
    for (number, line) in wrap(text, width().saturating_sub(indent)).into_iter().enumerate() {
        let head = if number == 0 { head } else { &" ".repeat(indent) };
        writeln!(out, "{head}{line}")?;
    }
    Ok(())
}

/// Writes JSON for programs and people to standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), Fault> {
    let json = json::pretty(value).map_err(|error| Fault::new("cannot write JSON", error))?;
    print_as_it_is(|out| writeln!(out, "{json}"))
}

/// Writes the output of `write` to standard output as it is: a format that escapes control characters by itself. A reader
/// that went away (`kelvin list | head`) is no fault.
pub fn print_as_it_is(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    kelvin_sys::standard::output().map_err(|error| Fault::new(UNWRITTEN, error))?;
    let mut out = io::BufWriter::new(Stdout { inner: io::stdout().lock(), is_gone: false });
    let written = write(&mut out).and_then(|()| out.flush());
    let Stdout { is_gone, .. } = out.into_parts().0;
    match written {
        Err(error) if !is_gone => Err(Fault::new(UNWRITTEN, error)),
        _ => Ok(()),
    }
}

/// Standard input, to be read from its beginning to its end.
pub fn input() -> Result<io::StdinLock<'static>, Fault> {
    kelvin_sys::standard::input().map_err(|error| Fault::new(UNREAD, error))?;
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
    kelvin_sys::standard::input()?;
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same of a text.
///
/// # Errors
/// Those of [`read_named`]; `InvalidData` for what is not UTF-8.
pub fn read_named_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_named(path)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// That all was taken of what was written to standard output: a file system of another machine or program may say only when a file is
/// closed that it was not.
pub fn end() -> Result<(), Fault> {
    let closed = io::stdout().as_fd().try_clone_to_owned().and_then(kelvin_sys::fs::close);
    closed.map_err(|error| Fault::new(UNWRITTEN, error))
}

/// Standard output, which knows whether its reader went away: a format may wrap the error in one of its own.
struct Stdout<W> {
    inner: W,
    is_gone: bool,
}

impl<W: Write> Write for Stdout<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes);
        self.is_gone |= written.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.inner.flush();
        self.is_gone |= flushed.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
        flushed
    }
}

/// A line on standard error, for what is not the answer. Errors are ignored.
pub fn remark(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", visible(&line.to_string()));
}

/// A line on standard error, and below it names, indented and broken at the width of the terminal.
pub fn remark_names(line: impl std::fmt::Display, names: &[String]) {
    const INDENT: &str = "  ";
    remark(line);
    let lines = wrap(&names.join(", "), width().saturating_sub(INDENT.len()));
    lines.into_iter().for_each(|line| remark(format_args!("{INDENT}{line}")));
}

/// A progress line on standard error, erased when dropped; nothing if that is no terminal.
#[derive(Debug)]
pub struct Line {
    shown: bool,
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        Self { shown: shows_progress() }
    }

    /// Replaces the text of the line.
    pub fn show(&self, text: impl std::fmt::Display) {
        if self.shown {
            let _ = write!(io::stderr(), "{ERASE}{}", visible(&text.to_string()));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show("");
    }
}

/// Writes a file that the user named.
pub fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    UserFile::find(path).and_then(|found| found.write(write)).map_err(Fault::because)
}

/// Where an answer goes: a file that the user named, or standard output. Found before anything is read, measured or printed.
#[derive(Debug)]
pub struct Outlet(Option<UserFile>);

impl Outlet {
    /// By the path that was named, if one was.
    ///
    /// # Errors
    /// Those of [`UserFile::find`].
    pub fn find(path: Option<&Path>) -> Result<Self, Fault> {
        path.map(UserFile::find).transpose().map(Self).map_err(Fault::because)
    }

    /// Writes it: to standard output what is for a terminal in full lines, else as it is.
    ///
    /// # Errors
    /// Those of writing.
    pub fn deliver(
        self,
        is_for_terminal: bool,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fault> {
        match self.0 {
            Some(file) => file.write(write).map_err(Fault::because),
            None if is_for_terminal => print(write),
            None => print_as_it_is(write),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_gets_no_escape_sequences() {
        assert!(!knows_escapes(Some(OsStr::new("dumb"))));
        assert!(knows_escapes(Some(OsStr::new("xterm"))) && knows_escapes(None));
    }
}
