//! sysbench 1: the text that `sysbench TEST run` prints.

use kelvin_catalogue::file::{DEPTH_RATE, QUEUE_DEPTH};
use kelvin_model::Case;

use crate::table::{Found, Row, version};

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
static CPU: Row = Row::other("cpu: events per second", "an event is a search for primes of sysbench's own");
static MEMORY: Row = Row::other(
    "memory: MiB/sec",
    "words written one by one to a block that fits a cache; kelvin's is memory, by the widest registers",
);
static OTHERS: Row = Row::other("threads, mutex, scripts", "no metric of kelvin is the same work");

/// All of it.
pub(crate) static TABLE: &[Row] = &[READS, LATENCY, OTHER_FILES, CPU, MEMORY, OTHERS];

/// Whether it begins as sysbench does.
pub(crate) fn is_signed(text: &str) -> bool {
    text.starts_with("sysbench 1.") && text.contains("\nRunning the test with following options:")
}

pub(crate) fn read(text: &str) -> Result<Found, String> {
    if !is_signed(text) {
        return Err("it does not begin with \"sysbench 1.\" and the options of the test".into());
    }
    let has = |line: &str| text.lines().any(|known| known.trim() == line);
    let mut found = Found { version: version(text["sysbench ".len()..].trim_start()), ..Found::default() };
    if has("File operations:") {
        let is_same = has("Doing random read test")
            && has("Block size 4KiB")
            && has("Extra file open flags: directio")
            && has("Using synchronous I/O mode")
            && has("Number of threads: 1");
        match number(text, "reads/s:").filter(|_| is_same) {
            Some(rate) => {
                found.keep(&READS, Case::new().with(QUEUE_DEPTH, 1), rate);
                found.leave_out(&LATENCY);
            }
            None => found.leave_out(&OTHER_FILES),
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

fn number(text: &str, label: &str) -> Option<f64> {
    text.lines().find_map(|line| line.trim().strip_prefix(label)?.trim().parse().ok())
}
