//! sysbench 1: the text that `sysbench TEST run` prints.

use kelvin_core::Case;
use kelvin_core::catalogue::file::QUEUE_DEPTH;

use crate::foreign::Tool;
use crate::foreign::json::from_line;
use crate::foreign::mapping::{MIN_FILE_BYTES, ParsedResults};

/// What its text begins with.
pub(crate) const SIGNATURE: &str = "sysbench 1.";

/// The shortest time for which a test counts, in seconds.
const MIN_SECONDS: f64 = 0.5;

/// Whether it begins as sysbench does.
pub(crate) fn is_signed(text: &str) -> bool {
    text.starts_with(SIGNATURE) && text.contains(OPTIONS_HEADING)
}

/// What stands before the options of a test that runs.
const OPTIONS_HEADING: &str = "\nRunning the test with following options:";

pub(crate) fn read(text: &str) -> Result<ParsedResults, String> {
    let text = from_line(text, SIGNATURE)?;
    if !text.contains(OPTIONS_HEADING) {
        return Err("the options of the test are missing: it is not what `run` prints".into());
    }
    if let Some(line) = text.lines().find(|line| line.starts_with("FATAL: ")) {
        let problem: String = line.chars().filter(|letter| !letter.is_control()).take(200).collect();
        return Err(format!("it says that the test failed ({problem})"));
    }
    let has_line = |line: &str| text.lines().any(|other| other.trim() == line);
    let has_prefix = |line: &str| text.lines().any(|other| other.trim().starts_with(line));
    let mut results = ParsedResults::new(Tool::Sysbench, text["sysbench ".len()..].trim_start());
    if has_prefix("Extra file open flags:") {
        if ["total time:", "reads/s:", "read:"].iter().all(|label| value_of_label(text, label).is_none()) {
            return Err("its results are missing: the test did not end".into());
        }
        let is_comparable = has_line("Doing random read test")
            && has_line("Block size 4KiB")
            && has_line("Extra file open flags: directio")
            && has_line("Using synchronous I/O mode")
            && has_line("Number of threads: 1")
            && !has_prefix("Using checksums validation");
        let is_brief = duration_seconds(text).is_some_and(|seconds| seconds < MIN_SECONDS);
        match reads_per_second(text) {
            _ if !is_comparable => results.add_not_imported("other_files"),
            Some(_) if has_prefix("Target transaction rate:") => results.add_not_imported("rate_limited"),
            Some(_) if is_brief => results.add_not_imported("too_short"),
            Some(_) if total_bytes(text).is_none_or(|bytes| bytes < MIN_FILE_BYTES as f64) => {
                results.add_not_imported("too_small")
            }
            Some(rate) => {
                results.add_value("random_reads", Case::new().with_number(QUEUE_DEPTH, 1), rate);
                results.add_not_imported("latency");
            }
            None => results.add_value("random_reads", Case::new(), None),
        }
    } else if has_line("CPU speed:") {
        results.add_not_imported("cpu_test");
    } else if has_line("Running memory speed test with the following options:") {
        results.add_not_imported("memory_test");
    } else {
        results.add_not_imported("other_tests");
    }
    Ok(results)
}

/// Reads a second: `reads/s: 21783.60` up to version 1.0, `read:  IOPS=13721.07 53.60 MiB/s (56.20 MB/s)` from 1.1 on.
fn reads_per_second(text: &str) -> Option<f64> {
    let iops = || value_of_label(text, "read:")?.strip_prefix("IOPS=")?.split(' ').next()?.parse().ok();
    value_of_label(text, "reads/s:").map_or_else(iops, |rate| rate.parse().ok())
}

/// How long the test took, in seconds. From 1.1 on only the sum of all latencies has it, in milliseconds: of one thread it is all but the
/// time between two reads.
fn duration_seconds(text: &str) -> Option<f64> {
    let sum = || Some(value_of_label(text, "sum:")?.parse::<f64>().ok()? / 1e3);
    value_of_label(text, "total time:").map_or_else(sum, |time| time.trim_end_matches('s').parse().ok())
}

/// What stands behind a label that begins a line.
fn value_of_label<'t>(text: &'t str, label: &str) -> Option<&'t str> {
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
    use crate::foreign::mapping::MetricMapping;

    const FILE: &str = include_str!("../../tests/data/sysbench-fileio.txt");

    #[test]
    fn small_files_are_omitted() {
        let results_for_size = |size: &str| read(&FILE.replace("16MiB total", &format!("{size} total"))).unwrap();
        for size in ["16MiB", "1.5GiB", "2TiB"] {
            assert_eq!(results_for_size(size).values.len(), 1, "{size}");
        }
        for size in ["64KiB", "15.9MiB", "512B", "x"] {
            assert_eq!(
                results_for_size(size).not_imported,
                [MetricMapping::find(Tool::Sysbench, "too_small").not_imported_text()],
                "{size}"
            );
        }
    }

    #[test]
    fn unfinished_test_has_no_results() {
        let (partial_text, _) = FILE.split_once("File operations:").unwrap();
        assert!(read(partial_text).unwrap_err().contains("did not end"));
    }
}
