//! The measures of page faults run once for real: the counters agree, and the figures stand in the order they must.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use kelvin_model::{Attempt, Case, Reading};

/// Milliseconds of the timed part.
const SLICE: u64 = 10;

fn minor(kind: &'static str) -> Reading {
    let case = Case::new().at(kelvin_model::Point::named("kind", kind));
    let mut readings = common::measure("mem.fault.minor", &case, SLICE);
    assert_eq!(readings.len(), 1);
    readings.remove(0)
}

/// The first two numbers in a note: what was counted, and of what.
fn numbers(note: &str) -> (u64, u64) {
    let mut numbers = note.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn every_page_is_a_fault_of_its_own() {
    for kind in ["anonymous", "file"] {
        let reading = minor(kind);
        assert_eq!(numbers(&reading.notes[0]), (256, 256), "{:?}", reading.notes);
        let fault = common::median(&reading);
        // More than a system call that does nothing, less than a disk.
        assert!((50.0..50_000.0).contains(&fault), "{kind}: {fault} ns");
    }
}

#[test]
fn a_huge_page_is_one_fault_and_takes_longer_than_a_small_one() {
    match common::run_probe("mem.fault.minor", &Case::new().at(kelvin_model::Point::named("kind", "huge")), SLICE) {
        Attempt::Measured(readings) => {
            assert_eq!(numbers(&readings[0].notes[0]), (4, 8), "{:?}", readings[0].notes);
            let (huge, small) = (common::median(&readings[0]), common::median(&minor("anonymous")));
            // 512 times the memory is cleared, by one exception.
            assert!(huge > 5.0 * small, "{huge} ns and {small} ns");
        }
        Attempt::Skipped(reason) => assert!(reason.0.contains("huge page"), "{reason}"),
        Attempt::Failed(reason) => panic!("{reason}"),
    }
}

#[test]
fn fault_around_takes_fewer_and_longer_faults() {
    let reading = minor("file_around");
    let (faults, pages) = numbers(&reading.notes[0]);
    assert!(faults <= pages, "{:?}", reading.notes);
    // The window is 64 KiB unless the kernel is told otherwise; where it is, nothing follows.
    if pages / faults >= 8 {
        let (around, alone) = (common::median(&reading), common::median(&minor("file")));
        assert!(around > alone, "{around} ns and {alone} ns");
        let per_page = around / (pages / faults) as f64;
        assert!(per_page < alone, "{per_page} ns a page and {alone} ns");
    }
}

#[test]
fn an_unknown_kind_of_page_fails_with_a_reason() {
    let attempt =
        common::run_probe("mem.fault.minor", &Case::new().at(kelvin_model::Point::named("kind", "leaf")), SLICE);
    assert!(matches!(&attempt, Attempt::Failed(reason) if reason.contains("kind=anonymous")), "{attempt:?}");
}

/// One test at a time uses the file that the rounds of a run share.
static IN_USE: Mutex<()> = Mutex::new(());

/// Removes that file: here the scratch directory is nobody's to remove.
struct ColdFile(#[allow(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);

impl ColdFile {
    fn take() -> Self {
        Self(IN_USE.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ColdFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(std::env::temp_dir().join("kelvin-major-faults"));
    }
}

#[test]
fn a_major_fault_goes_to_the_disk_and_read_ahead_saves_most_of_them() {
    let _cold_file = ColdFile::take();
    let minor = common::median(&minor("file"));
    let page = kelvin_sys::mapping::page_bytes() as u64;
    let mut figures = Vec::new();
    for (read_ahead, step) in [("off", page), ("on", 16 << 20), ("on", page)] {
        let case = Case::new().at(kelvin_model::Point::named("read_ahead", read_ahead)).with("step_bytes", step);
        match common::run_probe("mem.fault.major", &case, SLICE) {
            Attempt::Measured(readings) => {
                let note = &readings[0].notes[0];
                assert!(note.starts_with("before a pass mincore "), "{note}");
                figures.push(common::median(&readings[0]));
            }
            Attempt::Skipped(reason) => {
                // The reason is that of the directory, and the same for every case.
                assert!(reason.0.contains("scratch directory") && figures.is_empty(), "{reason}");
                return;
            }
            Attempt::Failed(reason) => panic!("{case}: {reason}"),
        }
    }
    let [random, steps, row] = figures[..] else { panic!("{figures:?}") };
    assert!(random > 2.0 * minor && steps > 2.0 * minor, "{figures:?} ns, a minor fault {minor} ns");
    assert!(row < random, "{figures:?} ns");
}

#[test]
fn without_read_ahead_a_touch_brings_one_page_and_with_it_more() {
    let _cold_file = ColdFile::take();
    let page = kelvin_sys::mapping::page_bytes() as u64;
    let left = |read_ahead, step| {
        let case = Case::new().at(kelvin_model::Point::named("read_ahead", read_ahead)).with("step_bytes", step);
        match common::run_probe("mem.fault.major", &case, SLICE) {
            Attempt::Measured(readings) => {
                let note = readings[0].notes[0].clone();
                let (_, tail) = note.split_once("a first touch was ").unwrap();
                Some(numbers(tail))
            }
            Attempt::Skipped(_) => None,
            Attempt::Failed(reason) => panic!("{case}: {reason}"),
        }
    };
    let (Some(off), Some(on)) = (left("off", page), left("on", 16 << 20)) else { return };
    assert_eq!((off.0, on.0), (1, 1), "major faults of one touch");
    // A file system of large blocks may bring more than a page at a time.
    assert!(off.1 >= 1 && on.1 >= off.1, "{off:?} {on:?}");
}

#[test]
fn pages_are_what_they_are_documented_to_be() {
    let share = |kind: &'static str, metric: &str| {
        let readings =
            match common::run_probe("mem.page", &Case::new().at(kelvin_model::Point::named("kind", kind)), SLICE) {
                Attempt::Measured(readings) => readings,
                Attempt::Skipped(reason) => {
                    assert!(kind == "huge" && reason.0.contains("huge page"), "{kind}: {reason}");
                    return None;
                }
                Attempt::Failed(reason) => panic!("{kind}: {reason}"),
            };
        let note = &readings[0].notes[0];
        // Where frames are told at all, that of a written page is anonymous memory as well.
        assert!(
            kind != "written" || !note.contains("; frame 0x") || note.contains("may not read") || note.contains("anon"),
            "{note}"
        );
        let found = readings.iter().find(|reading| reading.metric == *metric);
        // What a page is in a huge page or of zeros is not told before Linux 6.7.
        assert!(found.is_some() || matches!(metric, "mem.page.huge" | "mem.page.zero"), "{kind} has no {metric}");
        found.map(common::median)
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
        let found = share(kind, metric);
        assert!(found.is_none_or(|share| (share - expected).abs() < 0.01), "{kind}: {metric} is {found:?}");
    }
}
