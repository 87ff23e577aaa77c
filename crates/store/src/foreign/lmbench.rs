//! lmbench 3: the text of its results, one line for each figure.

use kelvin_core::catalogue::os::{NullCall, SIGNAL_INSTALL, SYSCALL_NULL, SYSCALL_READ, SYSCALL_WRITE};
use kelvin_core::{Case, Fact, Metric, Name};

use crate::foreign::json::from_line;
use crate::foreign::mapping::{MetricMapping, ParsedResults, version_prefix};

/// A line of its results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineMapping {
    /// How it begins.
    begins: &'static str,
    pub row: MetricMapping,
    /// The case of kelvin's metric.
    case: fn() -> Case,
}

const fn mapped(begins: &'static str, ours: &'static Metric, why: &'static str, case: fn() -> Case) -> LineMapping {
    LineMapping { begins, row: MetricMapping::mapped(begins, ours, why), case }
}

const fn unmapped(begins: &'static str, why: &'static str) -> LineMapping {
    renamed(begins, begins, why)
}

/// A line that begins otherwise than its figure is called.
const fn renamed(begins: &'static str, theirs: &'static str, why: &'static str) -> LineMapping {
    LineMapping { begins, row: MetricMapping::unmapped(theirs, why), case: Case::new }
}

const PLACEMENT_REASON: &str =
    "where the two tasks run is left to the scheduler, and on one CPU it takes a fraction of what it takes on two";
const OTHER_FILE_REASON: &str = "of a file some directories deep; kelvin's is of /dev/null";
const OTHER_PROGRAM_REASON: &str = "the program is lmbench's own, which prints; kelvin's is /bin/true";
const SCALAR_LOOPS_REASON: &str = "loops that load or store a word at a time, bytes of a copy counted once; kelvin's use the widest registers \
                            and count what is read and written";

/// All lines. A longer beginning stands before a shorter one that it begins with.
pub(crate) static MAPPINGS: &[LineMapping] = &[
    mapped("Simple syscall", &SYSCALL_NULL, "the C library's getppid in a loop, in both", || {
        Case::new().with_word(NullCall::LibraryGetppid)
    }),
    mapped("Simple read", &SYSCALL_READ, "a byte from /dev/zero in both", Case::new),
    mapped("Simple write", &SYSCALL_WRITE, "a byte to /dev/null in both", Case::new),
    mapped("Signal handler installation", &SIGNAL_INSTALL, "a sigaction that installs a handler in both", Case::new),
    unmapped("Simple stat", OTHER_FILE_REASON),
    unmapped("Simple fstat", "of a regular file; kelvin's is of /dev/null"),
    unmapped("Simple open/close", OTHER_FILE_REASON),
    renamed("Select on", "Select on N fd's", "select of open files or sockets; kelvin's is a poll"),
    unmapped(
        "Signal handler overhead",
        "catching a signal less sending it; kelvin's is with the sending, and the two differ by a call",
    ),
    unmapped("Protection fault", "no metric of kelvin is the time of a fault that is a signal"),
    unmapped("Pipe latency", PLACEMENT_REASON),
    unmapped("AF_UNIX sock stream latency", PLACEMENT_REASON),
    unmapped("Fifo latency", PLACEMENT_REASON),
    unmapped("UDP latency", PLACEMENT_REASON),
    unmapped("TCP latency", PLACEMENT_REASON),
    renamed("RPC/", "RPC latency", "no metric of kelvin is a remote procedure call of Sun's"),
    unmapped("TCP/IP connection cost", PLACEMENT_REASON),
    unmapped("AF_UNIX sock stream bandwidth", PLACEMENT_REASON),
    unmapped("Pipe bandwidth", PLACEMENT_REASON),
    unmapped("Socket bandwidth", PLACEMENT_REASON),
    unmapped("Process fork+exit", "the child may run on another CPU than its parent; kelvin's both have one"),
    unmapped("Process fork+execve", OTHER_PROGRAM_REASON),
    unmapped("Process fork+/bin/sh -c", OTHER_PROGRAM_REASON),
    renamed(
        "Pagefaults on",
        "Pagefaults on FILE",
        "time over pages, though one fault maps several; kelvin divides by the faults that there were",
    ),
    renamed("File ", "File write bandwidth", "of a file of a few MB with one flush at its end"),
    renamed(
        "\"File system latency",
        "File system latency",
        "how many files lie beside the new ones is not in the results",
    ),
    renamed(
        "\"read bandwidth",
        "read bandwidth",
        "of a file in the page cache by lmbench's block; kelvin's says its own block",
    ),
    renamed("\"Mmap read", "Mmap read bandwidth", SCALAR_LOOPS_REASON),
    renamed("\"libc bcopy", "libc bcopy", SCALAR_LOOPS_REASON),
    renamed("\"unrolled", "unrolled bcopy", SCALAR_LOOPS_REASON),
    renamed("\"Memory", "Memory bandwidth", SCALAR_LOOPS_REASON),
    unmapped("Memory load latency", "strides go upward, where prefetching is another; kelvin's go downward"),
    renamed(
        "\"stride=",
        "Memory load latency",
        "strides go upward, where prefetching is another; kelvin's go downward",
    ),
    unmapped("Random load latency", "random within a page, page by page; kelvin's is random over all of it"),
    renamed("\"size=", "Context switching", PLACEMENT_REASON),
    renamed("\"mappings", "mappings", "of a file by its size; kelvin's is of 64 KiB of anonymous memory"),
    renamed("integer ", "operations of a processor", "no metric of kelvin, but for adds and multiplies of 64 bits"),
    renamed("int64 ", "operations of a processor", "no metric of kelvin, but for adds and multiplies of 64 bits"),
    renamed("float ", "operations of a processor", "no metric of kelvin, but for adds and multiplies of 64 bits"),
    renamed("double ", "operations of a processor", "no metric of kelvin, but for adds and multiplies of 64 bits"),
];

static PARALLEL_COPIES: MetricMapping = MetricMapping::unmapped(
    "results of several processes at once (SYNC_MAX)",
    "each is disturbed by the others; kelvin's is alone",
);

/// What its results begin with.
pub(crate) const SIGNATURE: &str = "[lmbench3.";

/// Whether it begins as lmbench's results do.
pub(crate) fn is_signed(text: &str) -> bool {
    text.starts_with(SIGNATURE) && has_version(text)
}

fn has_version(text: &str) -> bool {
    text.contains("\n[LMBENCH_VER") || text.contains("\n[LMBENCH VERSION: ")
}

pub(crate) fn read(text: &str) -> Result<ParsedResults, String> {
    let text = from_line(text, SIGNATURE)?;
    if !has_version(text) {
        return Err("the line [LMBENCH_VER: ...] is missing".into());
    }
    let copies = header_value(text, "SYNC_MAX").ok_or("the line [SYNC_MAX: ...] is missing: how many ran at once")?;
    let mut results = ParsedResults { measured_at_ms: text.lines().find_map(parse_date), ..ParsedResults::default() };
    results.version =
        version_prefix(header_value(text, "LMBENCH VERSION").or(header_value(text, "LMBENCH_VER")).unwrap_or_default());
    add_machine(text, &mut results);
    if copies != "1" {
        results.add_not_imported(&PARALLEL_COPIES);
        return Ok(results);
    }
    for line in text.lines().filter(|line| !line.starts_with('[')) {
        let Some(known) = MAPPINGS.iter().find(|known| line.starts_with(known.begins)) else { continue };
        match known.row.ours {
            Some(_) => {
                let microseconds = line[known.begins.len()..].strip_prefix(": ").and_then(|rest| {
                    rest.trim_end().strip_suffix(" microseconds").and_then(|number| number.parse::<f64>().ok())
                });
                match microseconds {
                    Some(value) => results.add_value(&known.row, (known.case)(), value * 1e3),
                    None => results.add_unreadable(&known.row),
                }
            }
            None => results.add_not_imported(&known.row),
        }
    }
    Ok(results)
}

/// The value of a line `[NAME: value]`.
fn header_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix('[')?.strip_prefix(name)?.strip_prefix(": ")?.strip_suffix(']'))
}

/// What it says of the machine: architecture, kernel, and the frequency that its own loop shows. No name of the host.
fn add_machine(text: &str, results: &mut ParsedResults) {
    const FACT_SOURCE: &str = "lmbench";
    let header = |name| header_value(text, name).map(version_prefix).filter(|value| !value.is_empty());
    if let Some(architecture) = header("MACHINE").as_deref().and_then(architecture) {
        results.machine.architecture = architecture;
    }
    if let Some(release) = header("RELEASE") {
        results.machine.kernel.release = Fact::known(release, FACT_SOURCE);
    }
    let mhz = header_value(text, "MHZ").and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    if let Some(hertz) = mhz.map(|mhz| mhz * 1e6).filter(|hertz| hertz.is_finite() && *hertz > 0.0) {
        results.machine.cpu.measured_hz = Fact::known(hertz, FACT_SOURCE);
    }
}

/// The architectures that kelvin knows by name.
pub(crate) fn architecture(text: &str) -> Option<Name> {
    ["x86_64", "aarch64"].into_iter().find(|known| *known == text).map(Name::new)
}

/// Milliseconds since 1970 of a line as date(1) prints it in UTC: `[Wed Nov 25 13:46:40 UTC 2026]`. Other zones have names of several
/// meanings.
fn parse_date(line: &str) -> Option<i64> {
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
    fn only_utc_dates_are_parsed() {
        assert_eq!(parse_date("[Wed Nov 25 13:46:40 UTC 2026]"), Some(1_795_614_400_000));
        assert_eq!(parse_date("[Wed Nov  5 13:46:40 UTC 2026]"), Some(1_795_614_400_000 - 20 * 86_400_000));
        for other in ["[Wed Nov 25 13:46:40 CET 2026]", "[Wed Nov 25 13:46:40 UTC x]", "[net: lo]", "Wed"] {
            assert_eq!(parse_date(other), None, "{other}");
        }
    }

    #[test]
    fn longer_prefixes_are_matched_first() {
        for (index, line) in MAPPINGS.iter().enumerate() {
            let hidden = MAPPINGS[index + 1..].iter().find(|later| later.begins.starts_with(line.begins));
            assert!(hidden.is_none(), "{} hides {:?}", line.begins, hidden);
        }
    }
}
