//! The memory that reading takes for itself does not grow with the file: buffers of the threads, and little else.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");
const MIB: u64 = 1 << 20;
/// Bytes of the file: many times what may be taken.
const FILE_BYTES: u64 = 512 * MIB;
/// Memory that a program may take for a file of any size.
const MAX_FIXED_BYTES: u64 = 64 * MIB;
/// Looks at a program that a judgement needs at least.
const MIN_SAMPLES: usize = 10;

/// Anonymous memory of a process now, in bytes; `None` when it has ended.
fn anonymous_memory(process: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The most anonymous memory that a command had at any look at it, and how many looks there were.
fn peak_anonymous_memory(directory: &Path, arguments: &[&str]) -> (u64, usize) {
    let mut command = Command::new(KELVIN);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.env("HOME", directory).env("XDG_DATA_HOME", directory).spawn().unwrap();
    let (mut peak, mut samples) = (0, 0);
    while child.try_wait().unwrap().is_none() {
        // The program itself, and not yet the copy of this one that is to become it.
        let is_kelvin = fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|exe| exe == Path::new(KELVIN));
        if let Some(bytes) = anonymous_memory(&child).filter(|_| is_kelvin) {
            peak = peak.max(bytes);
            samples += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    (peak, samples)
}

/// That no look found more than the fixed part and these buffers.
#[track_caller]
fn assert_bounded(directory: &Path, arguments: &[&str], buffers: u64) {
    let (peak, samples) = peak_anonymous_memory(directory, arguments);
    assert!(samples >= MIN_SAMPLES, "{arguments:?} was over after {samples} looks");
    assert!(peak > MIB / 4, "{arguments:?} took {peak} bytes: that is no program");
    assert!(
        peak < MAX_FIXED_BYTES + buffers,
        "{arguments:?} took {} MiB, with {} MiB of buffers",
        peak / MIB,
        buffers / MIB
    );
}

#[test]
fn reading_large_file_uses_bounded_memory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (directory, size) = (dir.path(), FILE_BYTES.to_string());
    let write = ["file", "write", "data", "--size", &size, "--block", "1M", "--sync", "fsync"];
    assert_bounded(directory, &write, 2 * MIB);
    // From the device, and then from memory.
    let uncached = ["file", "read", "data", "--block", "1M", "--cache", "uncached"];
    assert_bounded(directory, &uncached, MIB);
    for _ in 0..2 {
        let threads = std::thread::available_parallelism().unwrap().get() as u64;
        assert_bounded(directory, &["digest", "data"], threads * 4 * MIB);
    }
    for (engine, threads, depth, block) in
        [("pread", 4, 1, 4), ("fread", 2, 1, 1), ("mmap", 4, 1, 1), ("mmap-populate", 2, 1, 4), ("io_uring", 2, 8, 1)]
    {
        let (threads_text, depth_text, block_text) = (threads.to_string(), depth.to_string(), format!("{block}M"));
        let read = [
            "file",
            "read",
            "data",
            "--cache",
            "cached",
            "--engine",
            engine,
            "--threads",
            &threads_text,
            "--depth",
            &depth_text,
            "--block",
            &block_text,
        ];
        let read = if depth == 1 { [&read[..9], &read[11..]].concat() } else { read.to_vec() };
        assert_bounded(directory, &read, threads * depth * block * MIB);
    }
}
