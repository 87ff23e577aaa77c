//! lmbench 3: the text of its results, one line for each figure.

use kelvin_catalogue::os::{NullCall, SIGNAL_INSTALL, SYSCALL_NULL, SYSCALL_READ, SYSCALL_WRITE};
use kelvin_model::{Case, Fact, Name};

use crate::json::from_line;
use crate::table::{Found, Row, version};

/// A line of its results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// How it begins.
    begins: &'static str,
    pub row: Row,
    /// The case of kelvin's metric.
    case: fn() -> Case,
}

const fn same(row: Row, case: fn() -> Case) -> Line {
    Line { begins: row.theirs, row, case }
}

const fn other(begins: &'static str, theirs: &'static str, why: &'static str) -> Line {
    Line { begins, row: Row::other(theirs, why), case: Case::new }
}

const PLACED: &str =
    "where the two tasks run is left to the scheduler, and on one CPU it takes a fraction of what it takes on two";
const OTHER_FILE: &str = "of a file some directories deep; kelvin's is of /dev/null";
const OTHER_PROGRAM: &str = "the program is lmbench's own, which prints; kelvin's is /bin/true";
const SCALAR_LOOPS: &str = "loops that load or store a word at a time, bytes of a copy counted once; kelvin's use the widest registers \
                            and count what is read and written";

/// All lines. A longer beginning stands before a shorter one that it begins with.
pub(crate) static TABLE: &[Line] = &[
    same(Row::same("Simple syscall", &SYSCALL_NULL, "the C library's getppid in a loop, in both"), || {
        Case::new().at(NullCall::LibraryGetppid)
    }),
    same(Row::same("Simple read", &SYSCALL_READ, "a byte from /dev/zero in both"), Case::new),
    same(Row::same("Simple write", &SYSCALL_WRITE, "a byte to /dev/null in both"), Case::new),
    same(
        Row::same("Signal handler installation", &SIGNAL_INSTALL, "a sigaction that installs a handler in both"),
        Case::new,
    ),
    other("Simple stat", "Simple stat", OTHER_FILE),
    other("Simple fstat", "Simple fstat", "of a regular file; kelvin's is of /dev/null"),
    other("Simple open/close", "Simple open/close", OTHER_FILE),
    other("Select on", "Select on N fd's", "select of open files or sockets; kelvin's is a poll"),
    other(
        "Signal handler overhead",
        "Signal handler overhead",
        "catching a signal less sending it; kelvin's is with the sending, and the two differ by a call",
    ),
    other("Protection fault", "Protection fault", "no metric of kelvin is the time of a fault that is a signal"),
    other("Pipe latency", "Pipe latency", PLACED),
    other("AF_UNIX sock stream latency", "AF_UNIX sock stream latency", PLACED),
    other("Fifo latency", "Fifo latency", PLACED),
    other("UDP latency", "UDP latency", PLACED),
    other("TCP latency", "TCP latency", PLACED),
    other("RPC/", "RPC latency", "no metric of kelvin is a remote procedure call of Sun's"),
    other("TCP/IP connection cost", "TCP/IP connection cost", PLACED),
    other("AF_UNIX sock stream bandwidth", "AF_UNIX sock stream bandwidth", PLACED),
    other("Pipe bandwidth", "Pipe bandwidth", PLACED),
    other("Socket bandwidth", "Socket bandwidth", PLACED),
    other(
        "Process fork+exit",
        "Process fork+exit",
        "the child may run on another CPU than its parent; kelvin's both have one",
    ),
    other("Process fork+execve", "Process fork+execve", OTHER_PROGRAM),
    other("Process fork+/bin/sh -c", "Process fork+/bin/sh -c", OTHER_PROGRAM),
    other(
        "Pagefaults on",
        "Pagefaults on FILE",
        "time over pages, though one fault maps several; kelvin divides by the faults that there were",
    ),
    other("File ", "File write bandwidth", "of a file of a few MB with one flush at its end"),
    other(
        "\"File system latency",
        "File system latency",
        "how many files lie beside the new ones is not in the results",
    ),
    other(
        "\"read bandwidth",
        "read bandwidth",
        "of a file in the page cache by lmbench's block; kelvin's says its own block",
    ),
    other("\"Mmap read", "Mmap read bandwidth", SCALAR_LOOPS),
    other("\"libc bcopy", "libc bcopy", SCALAR_LOOPS),
    other("\"unrolled", "unrolled bcopy", SCALAR_LOOPS),
    other("\"Memory", "Memory bandwidth", SCALAR_LOOPS),
    other(
        "Memory load latency",
        "Memory load latency",
        "strides go upward, where prefetching is another; kelvin's go downward",
    ),
    other("\"stride=", "Memory load latency", "strides go upward, where prefetching is another; kelvin's go downward"),
    other(
        "Random load latency",
        "Random load latency",
        "random within a page, page by page; kelvin's is random over all of it",
    ),
    other("\"size=", "Context switching", PLACED),
    other("\"mappings", "mappings", "of a file by its size; kelvin's is of 64 KiB of anonymous memory"),
    other("integer ", "operations of a processor", "no metric of kelvin, but for adds and multiplies of 64 bits"),
    other("int64 ", "operations of a processor", "no metric of kelvin, but for adds and multiplies of 64 bits"),
    other("float ", "operations of a processor", "no metric of kelvin, but for adds and multiplies of 64 bits"),
    other("double ", "operations of a processor", "no metric of kelvin, but for adds and multiplies of 64 bits"),
];

static PARALLEL: Row =
    Row::other("results of several processes at once (SYNC_MAX)", "each is disturbed by the others; kelvin's is alone");

/// What its results begin with.
pub(crate) const BEGINS: &str = "[lmbench3.";

/// Whether it begins as lmbench's results do.
pub(crate) fn is_signed(text: &str) -> bool {
    text.starts_with(BEGINS) && has_version(text)
}

fn has_version(text: &str) -> bool {
    text.contains("\n[LMBENCH_VER") || text.contains("\n[LMBENCH VERSION: ")
}

pub(crate) fn read(text: &str) -> Result<Found, String> {
    let text = from_line(text, BEGINS)?;
    if !has_version(text) {
        return Err("the line [LMBENCH_VER: ...] is missing".into());
    }
    let copies = header(text, "SYNC_MAX").ok_or("the line [SYNC_MAX: ...] is missing: how many ran at once")?;
    let mut found = Found { made_at: text.lines().find_map(date), ..Found::default() };
    found.version = version(header(text, "LMBENCH VERSION").or(header(text, "LMBENCH_VER")).unwrap_or_default());
    machine(text, &mut found);
    if copies != "1" {
        found.leave_out(&PARALLEL);
        return Ok(found);
    }
    for line in text.lines().filter(|line| !line.starts_with('[')) {
        let Some(known) = TABLE.iter().find(|known| line.starts_with(known.begins)) else { continue };
        match known.row.ours {
            Some(_) => {
                let microseconds = line[known.begins.len()..].strip_prefix(": ").and_then(|rest| {
                    rest.trim_end().strip_suffix(" microseconds").and_then(|number| number.parse::<f64>().ok())
                });
                match microseconds {
                    Some(value) => found.keep(&known.row, (known.case)(), value * 1e3),
                    None => found.not_read(&known.row),
                }
            }
            None => found.leave_out(&known.row),
        }
    }
    Ok(found)
}

/// The value of a line `[NAME: value]`.
fn header<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix('[')?.strip_prefix(name)?.strip_prefix(": ")?.strip_suffix(']'))
}

/// What it says of the machine: architecture, kernel, and the frequency that its own loop shows. No name of the host.
fn machine(text: &str, found: &mut Found) {
    const SOURCE: &str = "lmbench";
    let kept = |name| header(text, name).map(version).filter(|value| !value.is_empty());
    if let Some(architecture) = kept("MACHINE").as_deref().and_then(architecture) {
        found.machine.architecture = architecture;
    }
    if let Some(release) = kept("RELEASE") {
        found.machine.kernel.release = Fact::known(release, SOURCE);
    }
    let mhz = header(text, "MHZ").and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    if let Some(hertz) = mhz.map(|mhz| mhz * 1e6).filter(|hertz| hertz.is_finite() && *hertz > 0.0) {
        found.machine.cpu.measured_hz = Fact::known(hertz, SOURCE);
    }
}

/// The architectures that kelvin knows by name.
pub(crate) fn architecture(text: &str) -> Option<Name> {
    ["x86_64", "aarch64"].into_iter().find(|known| *known == text).map(Name::new)
}

/// Milliseconds since 1970 of a line as date(1) prints it in UTC: `[Wed Nov 25 13:46:40 UTC 2026]`. Other zones have names of several
/// meanings.
fn date(line: &str) -> Option<i64> {
    let inside = line.strip_prefix('[')?.strip_suffix(']')?;
    let [_, month, day, time, "UTC", year] = inside.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    let day: u8 = day.parse().ok()?;
    let text = format!("{year}-{month:02}-{day:02}T{time}Z");
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_in_utc_is_a_time_and_no_other() {
        assert_eq!(date("[Wed Nov 25 13:46:40 UTC 2026]"), Some(1_795_614_400_000));
        assert_eq!(date("[Wed Nov  5 13:46:40 UTC 2026]"), Some(1_795_614_400_000 - 20 * 86_400_000));
        for other in ["[Wed Nov 25 13:46:40 CET 2026]", "[Wed Nov 25 13:46:40 UTC x]", "[net: lo]", "Wed"] {
            assert_eq!(date(other), None, "{other}");
        }
    }

    #[test]
    fn no_line_hides_a_longer_one() {
        for (index, line) in TABLE.iter().enumerate() {
            let hidden = TABLE[index + 1..].iter().find(|later| later.begins.starts_with(line.begins));
            assert!(hidden.is_none(), "{} hides {:?}", line.begins, hidden);
        }
    }
}
