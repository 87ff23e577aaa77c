//! The measures of requests on cached files and of remote directories run once for real, in a scratch directory on disk.

mod common;

use kelvin_model::{Attempt, Case, Reading};

use common::Directories;

/// Milliseconds of the timed part.
const SLICE: u64 = 20;
const MIB: u64 = 1 << 20;

/// The nanoseconds of a one-byte call on a cached file of so many bytes, and the notes.
fn byte_call(directories: &Directories, call: &'static str, bytes: u64) -> (f64, Reading) {
    let case = Case::new().with_word("call", call).with("file_bytes", bytes);
    let mut readings = common::measure_in(directories, "file.byte_calls", &case, SLICE);
    assert_eq!(readings.len(), 1);
    let reading = readings.remove(0);
    (common::median(&reading), reading)
}

#[test]
fn one_byte_costs_a_system_call_and_no_read_is_cheaper_than_a_null_call() {
    let disk = common::on_disk();
    let directories = Directories::scratch(disk.path());
    let null = common::measure("os.syscall.null", &Case::new().with_word("call", "getppid"), SLICE);
    let null = common::median(&null[0]);
    for call in ["read", "pread", "lseek", "pread_anywhere"] {
        let (nanoseconds, reading) = byte_call(&directories, call, MIB);
        assert!(nanoseconds > null && nanoseconds < 200.0 * null, "{call}: {nanoseconds} ns, a null call {null} ns");
        let note = &reading.notes[0];
        let pages = MIB / kelvin_sys::mapping::page_bytes() as u64;
        assert!(note.starts_with(&format!("before: {pages} of {pages} pages in memory")), "{note}");
        assert!(note.contains("calls a second, ") && note.contains("no bytes") == (call == "lseek"), "{note}");
    }
}

#[test]
fn an_unknown_call_fails_with_a_reason() {
    let case = Case::new().with_word("call", "mmap").with("file_bytes", MIB);
    let attempt = common::run_probe("file.byte_calls", &case, SLICE);
    assert!(matches!(&attempt, Attempt::Failed(reason) if reason.contains("no call for the case")), "{attempt:?}");
}

/// The ways of reading, as cases name them.
const WAYS: [&str; 13] = [
    "read",
    "pread",
    "readv",
    "fread",
    "bufreader",
    "mmap",
    "mmap-populate",
    "io_uring-1",
    "io_uring-8",
    "io_uring-64",
    "io_uring-fixed-1",
    "io_uring-fixed-8",
    "io_uring-fixed-64",
];

/// The nanoseconds of a request by one way; `None` where that way is not to be had, which only a ring may be.
fn request(directories: &Directories, way: &'static str, block: u64) -> Option<f64> {
    let case = Case::new().with_word("engine", way).with("block", block);
    match common::run_probe_in(directories, "file.engines", &case, SLICE) {
        Attempt::Measured(readings) => {
            let note = readings[0].notes.join("; ");
            assert!(note.contains("pages in memory") && note.contains("100 MB would take"), "{note}");
            assert_eq!(note.contains("requests under way"), way.starts_with("io_uring"), "{way}: {note}");
            Some(common::median(&readings[0]))
        }
        Attempt::Skipped(reason) => {
            assert!(way.starts_with("io_uring") && reason.0.contains("io_uring"), "{way}: {reason}");
            None
        }
        Attempt::Failed(reason) => panic!("{case}: {reason}"),
    }
}

#[test]
fn every_way_reads_and_more_bytes_take_longer() {
    let disk = common::on_disk();
    let directories = Directories::scratch(disk.path());
    for way in WAYS {
        let Some(small) = request(&directories, way, 100) else { continue };
        let Some(large) = request(&directories, way, MIB) else { panic!("{way} is to be had at one size only") };
        // A mebibyte takes 20 us at 50 GB/s; 100 bytes by any call of any way are far below that.
        assert!(small > 1.0 && large > 3.0 * small && large < 1e9, "{way}: {small} ns and {large} ns");
    }
}

#[test]
fn a_library_answers_from_its_buffer_what_otherwise_takes_a_call_each() {
    let disk = common::on_disk();
    let directories = Directories::scratch(disk.path());
    let nanoseconds = |way| request(&directories, way, 1).unwrap();
    let (call, stream) = (nanoseconds("read"), nanoseconds("fread"));
    assert!(stream < call, "fread {stream} ns, read {call} ns");
}
