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
