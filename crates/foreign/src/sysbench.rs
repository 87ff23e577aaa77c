//! sysbench 1: the text that `sysbench TEST run` prints.

use kelvin_catalogue::file::{DEPTH_RATE, QUEUE_DEPTH};
use kelvin_model::Case;

use crate::json::from_line;
use crate::table::{Found, LEAST_BYTES, Row, version};

static READS: Row = Row::same(
    "fileio, rndrd, --file-block-size=4096, --file-extra-flags=direct, one thread: reads/s",
    &DEPTH_RATE,
    "reads of 4 KiB past the page cache at random places, one in flight",
);
static LATENCY: Row = Row::other("fileio: Latency", "printed to 10 us, which is as much as a fast device takes");
static OTHER_FILES: Row = Row::other(
    "fileio in another mode, by other blocks, through the page cache, or by several threads",
    "no metric of kelvin is the same work",
);
static LIMITED: Row = Row::other("events at a limited rate (--rate)", "it measures the limit");
static BRIEF: Row =
    Row::other("a test of less than half a second", "the caches of the device decide what so few requests take");
static SMALL: Row = Row::other(
    "fileio within files of less than 16 MiB together (--file-total-size)",
    "it asks for the same few blocks over and over, which the caches of the device hold",
);
static CPU: Row = Row::other("cpu: events per second", "an event is a search for primes of sysbench's own");
static MEMORY: Row = Row::other(
    "memory: MiB/sec",
    "words written one by one to a block that fits a cache; kelvin's is memory, by the widest registers",
);
static OTHERS: Row = Row::other("threads, mutex, scripts", "no metric of kelvin is the same work");

/// All of it.
pub(crate) static TABLE: &[Row] = &[READS, LATENCY, OTHER_FILES, LIMITED, BRIEF, SMALL, CPU, MEMORY, OTHERS];

/// What its text begins with.
pub(crate) const BEGINS: &str = "sysbench 1.";

/// The shortest time for which a test counts, in seconds.
const LEAST_SECONDS: f64 = 0.5;

/// Whether it begins as sysbench does.
pub(crate) fn is_signed(text: &str) -> bool {
    text.starts_with(BEGINS) && text.contains(OPTIONS)
}

/// What stands before the options of a test that runs.
const OPTIONS: &str = "\nRunning the test with following options:";

pub(crate) fn read(text: &str) -> Result<Found, String> {
    let text = from_line(text, BEGINS)?;
    if !text.contains(OPTIONS) {
        return Err("the options of the test are missing: it is not what `run` prints".into());
    }
    if let Some(line) = text.lines().find(|line| line.starts_with("FATAL: ")) {
        let problem: String = line.chars().filter(|letter| !letter.is_control()).take(200).collect();
        return Err(format!("it says that the test failed ({problem})"));
    }
    let has = |line: &str| text.lines().any(|known| known.trim() == line);
    let begins = |line: &str| text.lines().any(|known| known.trim().starts_with(line));
    let mut found = Found { version: version(text["sysbench ".len()..].trim_start()), ..Found::default() };
    if begins("Extra file open flags:") {
        if ["total time:", "reads/s:", "read:"].iter().all(|label| after(text, label).is_none()) {
            return Err("its results are missing: the test did not end".into());
        }
        let is_same = has("Doing random read test")
            && has("Block size 4KiB")
            && has("Extra file open flags: directio")
            && has("Using synchronous I/O mode")
            && has("Number of threads: 1")
            && !begins("Using checksums validation");
        let is_brief = seconds(text).is_some_and(|seconds| seconds < LEAST_SECONDS);
        match reads(text) {
            _ if !is_same => found.leave_out(&OTHER_FILES),
            Some(_) if begins("Target transaction rate:") => found.leave_out(&LIMITED),
            Some(_) if is_brief => found.leave_out(&BRIEF),
            Some(_) if total_bytes(text).is_none_or(|bytes| bytes < LEAST_BYTES as f64) => found.leave_out(&SMALL),
            Some(rate) => {
                found.keep(&READS, Case::new().with(QUEUE_DEPTH, 1), rate);
                found.leave_out(&LATENCY);
            }
            None => found.not_read(&READS),
        }
    } else if has("CPU speed:") {
        found.leave_out(&CPU);
    } else if has("Running memory speed test with the following options:") {
        found.leave_out(&MEMORY);
    } else {
        found.leave_out(&OTHERS);
    }
    Ok(found)
}

/// Reads a second: `reads/s: 21783.60` up to version 1.0, `read:  IOPS=13721.07 53.60 MiB/s (56.20 MB/s)` from 1.1 on.
fn reads(text: &str) -> Option<f64> {
    let newer = || after(text, "read:")?.strip_prefix("IOPS=")?.split(' ').next()?.parse().ok();
    after(text, "reads/s:").map_or_else(newer, |rate| rate.parse().ok())
}

/// How long the test took, in seconds. From 1.1 on only the sum of all latencies says it, in milliseconds: of one thread it is all but the
/// time between two reads.
fn seconds(text: &str) -> Option<f64> {
    let sum = || Some(after(text, "sum:")?.parse::<f64>().ok()? / 1e3);
    after(text, "total time:").map_or_else(sum, |time| time.trim_end_matches('s').parse().ok())
}

/// What stands behind a label that begins a line.
fn after<'t>(text: &'t str, label: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim)
}

/// What all files have together: `16MiB total file size`.
fn total_bytes(text: &str) -> Option<f64> {
    let size = text.lines().find_map(|line| line.trim().strip_suffix(" total file size"))?;
    let number = size.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let power = ["B", "KiB", "MiB", "GiB", "TiB"].iter().position(|unit| *unit == &size[number.len()..])?;
    Some(number.parse::<f64>().ok()? * 1024_f64.powi(power as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../tests/data/sysbench-fileio.txt");

    #[test]
    fn files_that_a_device_holds_in_its_cache_are_left_out() {
        let of = |size: &str| read(&FILE.replace("16MiB total", &format!("{size} total"))).unwrap();
        for size in ["16MiB", "1.5GiB", "2TiB"] {
            assert_eq!(of(size).values.len(), 1, "{size}");
        }
        for size in ["64KiB", "15.9MiB", "512B", "x"] {
            assert_eq!(of(size).left_out, [SMALL.left_out()], "{size}");
        }
    }

    #[test]
    fn a_test_that_did_not_end_has_no_results() {
        let (begun, _) = FILE.split_once("File operations:").unwrap();
        assert!(read(begun).unwrap_err().contains("did not end"));
    }
}
