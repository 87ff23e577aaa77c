//! The page-fault probes run once for real, and the counters agree with them.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::measure_if_possible;
use kelvin_core::{Case, MetricReadings, RoundOutcome};

/// Milliseconds of the timed part.
const SLICE: u64 = 10;

fn minor_fault_reading(kind: &'static str) -> MetricReadings {
    let case = Case::new().with_word(kelvin_core::AxisWord::from_names("kind", kind));
    let mut readings = common::measure("mem.fault.minor", &case, SLICE);
    assert_eq!(readings.len(), 1);
    readings.remove(0)
}

/// The first two numbers in a note: the count, and its total.
fn numbers(note: &str) -> (u64, u64) {
    let mut numbers = note.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn each_page_faults_once() {
    for kind in ["anonymous", "file"] {
        let reading = minor_fault_reading(kind);
        assert_eq!(numbers(&reading.notes[0]), (256, 256), "{:?}", reading.notes);
    }
}

#[test]
fn a_huge_page_is_one_fault() {
    let case = Case::new().with_word(kelvin_core::AxisWord::from_names("kind", "huge"));
    if let Some(readings) = measure_if_possible("mem.fault.minor", &case, SLICE) {
        assert_eq!(numbers(&readings[0].notes[0]), (4, 8), "{:?}", readings[0].notes);
    }
}

#[test]
fn fault_around_has_at_most_page_faults() {
    let reading = minor_fault_reading("file_around");
    let (faults, pages) = numbers(&reading.notes[0]);
    // The window is 64 KiB by default.
    assert!((1..=pages).contains(&faults), "{:?}", reading.notes);
}

#[test]
fn unknown_page_kind_fails_with_reason() {
    let attempt = common::run_probe(
        "mem.fault.minor",
        &Case::new().with_word(kelvin_core::AxisWord::from_names("kind", "leaf")),
        SLICE,
    );
    assert!(matches!(&attempt, RoundOutcome::Failed(reason) if reason.contains("kind=anonymous")), "{attempt:?}");
}

/// One test at a time uses the file shared by the rounds of a run.
static IN_USE: Mutex<()> = Mutex::new(());

/// Removes that file: here nobody removes the scratch directory.
struct ColdFileLock(#[allow(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);

impl ColdFileLock {
    fn acquire() -> Self {
        Self(IN_USE.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ColdFileLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(std::env::temp_dir().join("kelvin-major-faults"));
    }
}

/// The note of a pass over the file; `None`, with a message, where the scratch directory has no disk.
fn major_fault_note(read_ahead: &'static str, step: u64) -> Option<String> {
    let case = Case::new()
        .with_word(kelvin_core::AxisWord::from_names("read_ahead", read_ahead))
        .with_number("step_bytes", step);
    let readings = measure_if_possible("mem.fault.major", &case, SLICE)?;
    let note = readings[0].notes[0].clone();
    assert!(note.starts_with("mincore "), "{note}");
    Some(note)
}

#[test]
fn read_ahead_reads_more_than_one_page() {
    let _cold_file = ColdFileLock::acquire();
    let page = kelvin_sys::mapping::page_bytes() as u64;
    let touch = |read_ahead, step| {
        let note = major_fault_note(read_ahead, step)?;
        Some(numbers(note.split_once("the first touch caused ").unwrap().1))
    };
    let (Some(without_read_ahead), Some(with_read_ahead), Some(_)) =
        (touch("off", page), touch("on", 16 << 20), major_fault_note("on", page))
    else {
        return;
    };
    assert_eq!((without_read_ahead.0, with_read_ahead.0), (1, 1), "major faults of one touch");
    // A file system with large blocks may read more than a page at a time.
    assert!(
        without_read_ahead.1 >= 1 && with_read_ahead.1 >= without_read_ahead.1,
        "{without_read_ahead:?} {with_read_ahead:?}"
    );
}

#[test]
fn page_flags_match_documentation() {
    let share = |kind: &'static str, metric: &str| {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("kind", kind));
        let Some(readings) = measure_if_possible("mem.page", &case, SLICE) else {
            assert_eq!(kind, "huge", "memory may be too fragmented for huge pages only");
            return None;
        };
        let note = &readings[0].notes[0];
        // Where frames are shown at all, that of a written page is anonymous memory too.
        assert!(
            kind != "written" || !note.contains("; frame 0x") || note.contains("may not read") || note.contains("anon"),
            "{note}"
        );
        let reading = readings.iter().find(|reading| reading.metric == *metric);
        // Huge and zero pages are unknown before Linux 6.7.
        assert!(reading.is_some() || matches!(metric, "mem.page.huge" | "mem.page.zero"), "{kind} has no {metric}");
        reading.map(common::median)
    };
    for (kind, metric, expected) in [
        ("untouched", "mem.page.present", 0.0),
        ("read", "mem.page.zero", 1.0),
        ("read", "mem.page.exclusive", 0.0),
        ("written", "mem.page.exclusive", 1.0),
        ("written", "mem.page.huge", 0.0),
        ("forked", "mem.page.present", 1.0),
        ("forked", "mem.page.exclusive", 0.0),
        ("shared", "mem.page.file", 1.0),
        ("file", "mem.page.file", 1.0),
        ("huge", "mem.page.huge", 1.0),
    ] {
        let observed = share(kind, metric);
        assert!(observed.is_none_or(|share| (share - expected).abs() < 0.01), "{kind}: {metric} is {observed:?}");
    }
}
