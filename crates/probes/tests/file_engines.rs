//! The measures of requests on cached files and of remote directories run once for real, in a scratch directory on disk.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kelvin_catalogue::file::{
    AccessOrder, AskedDirectory, BLOCK, BYTE_CALLS, ByteCall, CacheState, ENGINES, FILE_BYTES, REMOTE, REMOTE_LOCAL,
    REMOTE_ROUND_TRIP, REMOTE_SHARE, ReadEngine, TUNE, TUNE_BLOCK, TUNE_DEPTH, TUNE_GAIN, TUNE_THREADS, TunedEngine,
};
use kelvin_model::{Attempt, Case, Metric, Point, Reading};

use common::Directories;

/// Milliseconds of the timed part.
const SLICE: u64 = 20;
const MIB: u64 = 1 << 20;

/// The nanoseconds of a one-byte call on a cached file of so many bytes, and the notes.
fn byte_call(directories: &Directories, call: ByteCall, bytes: u64) -> (f64, Reading) {
    let case = Case::new().at(call).with(FILE_BYTES, bytes);
    let mut readings = common::measure_at(directories, &BYTE_CALLS.id, &case, SLICE);
    assert_eq!(readings.len(), 1);
    let reading = readings.remove(0);
    (common::median(&reading), reading)
}

#[test]
fn one_byte_costs_a_system_call_and_no_read_is_cheaper_than_a_null_call() {
    let disk = common::on_disk();
    let directories = Directories::scratch(disk.path());
    let null =
        common::measure("os.syscall.null", &Case::new().at(kelvin_model::Point::named("call", "getppid")), SLICE);
    let null = common::median(&null[0]);
    for &call in ByteCall::ALL {
        let (nanoseconds, reading) = byte_call(&directories, call, MIB);
        assert!(nanoseconds > null && nanoseconds < 200.0 * null, "{call:?}: {nanoseconds} ns, a null call {null} ns");
        let note = &reading.notes[0];
        let pages = MIB / kelvin_sys::mapping::page_bytes() as u64;
        assert!(note.starts_with(&format!("before: {pages} of {pages} pages in memory")), "{note}");
        assert!(note.contains("calls a second, ") && note.contains("no bytes") == (call == ByteCall::Lseek), "{note}");
    }
}

#[test]
fn an_unknown_call_fails_with_a_reason() {
    let case = Case::new().at(Point::new(ByteCall::AXIS, "ioctl")).with(FILE_BYTES, MIB);
    let attempt = common::run_probe(&BYTE_CALLS.id, &case, SLICE);
    assert!(matches!(&attempt, Attempt::Failed(reason) if reason.contains("nothing to measure for")), "{attempt:?}");
}

/// The nanoseconds of a request by one way; `None` where that way is not to be had, which only a ring may be.
fn request(directories: &Directories, way: ReadEngine, block: u64) -> Option<f64> {
    let case = Case::new().at(way).with(BLOCK, block);
    let is_ring = way >= ReadEngine::Uring1;
    match common::run_probe_at(directories, &ENGINES.id, &case, SLICE) {
        Attempt::Measured(readings) => {
            let note = readings[0].notes.join("; ");
            assert!(note.contains("pages in memory") && note.contains("100 MB would take"), "{note}");
            assert_eq!(note.contains("requests under way"), is_ring, "{way:?}: {note}");
            Some(common::median(&readings[0]))
        }
        Attempt::Skipped(reason) => {
            assert!(is_ring && reason.0.contains("io_uring"), "{way:?}: {reason}");
            None
        }
        Attempt::Failed(reason) => panic!("{case}: {reason}"),
    }
}

#[test]
fn every_way_reads_and_more_bytes_take_longer() {
    let disk = common::on_disk();
    let directories = Directories::scratch(disk.path());
    for &way in ReadEngine::ALL {
        let Some(small) = request(&directories, way, 100) else { continue };
        let Some(large) = request(&directories, way, MIB) else { panic!("{way:?} is to be had at one size only") };
        // A mebibyte takes 20 us at 50 GB/s; 100 bytes by any call of any way are far below that.
        assert!(small > 1.0 && large > 3.0 * small && large < 1e9, "{way:?}: {small} ns and {large} ns");
    }
}

#[test]
fn a_library_answers_from_its_buffer_what_otherwise_takes_a_call_each() {
    let disk = common::on_disk();
    let directories = Directories::scratch(disk.path());
    let nanoseconds = |way| request(&directories, way, 1).unwrap();
    let (call, stream) = (nanoseconds(ReadEngine::Read), nanoseconds(ReadEngine::Fread));
    assert!(stream < call, "fread {stream} ns, read {call} ns");
}

/// The four ways in which remote and local blocks are compared.
const COMPARED: [(CacheState, AccessOrder); 4] = [
    (CacheState::Direct, AccessOrder::Random),
    (CacheState::Direct, AccessOrder::Sequential),
    (CacheState::Uncached, AccessOrder::Random),
    (CacheState::Uncached, AccessOrder::Sequential),
];

/// The median of a metric among readings.
fn figure(readings: &[Reading], metric: &Metric) -> f64 {
    common::median(readings.iter().find(|reading| reading.metric == metric.id).unwrap())
}

/// Remote and local nanoseconds of a block, the share of the way, and the notes; the reason if it was skipped.
fn compare(
    directories: &Directories,
    cache: CacheState,
    order: AccessOrder,
) -> Result<(f64, f64, f64, String), String> {
    let case = Case::new().at(cache).at(order);
    match common::run_probe_at(directories, &REMOTE.id, &case, SLICE) {
        Attempt::Measured(readings) => {
            let [remote, local, share] =
                [&REMOTE, &REMOTE_LOCAL, &REMOTE_SHARE].map(|metric| figure(&readings, metric));
            let notes = readings.iter().flat_map(|reading| reading.notes.clone()).collect::<Vec<_>>().join("; ");
            Ok((remote, local, share, notes))
        }
        Attempt::Skipped(reason) => Err(reason.0),
        Attempt::Failed(reason) => panic!("{case}: {reason}"),
    }
}

/// The nanoseconds of a question to one of the two directories.
fn round_trip(directories: &Directories, asked: AskedDirectory) -> f64 {
    common::median(&common::measure_at(directories, &REMOTE_ROUND_TRIP.id, &Case::new().at(asked), SLICE)[0])
}

#[test]
fn without_a_remote_directory_the_reason_says_how_to_name_one() {
    let disk = common::on_disk();
    let reason = compare(&Directories::scratch(disk.path()), CacheState::Direct, AccessOrder::Random).unwrap_err();
    assert_eq!(reason, "needs a mounted directory of another machine: name one by --remote DIR");
}

#[test]
fn two_directories_of_one_disk_differ_by_no_network() {
    let (here, there) = (common::on_disk(), common::on_disk());
    let directories = Directories { scratch: here.path().into(), remote: Some(there.path().into()), agent: None };
    for (cache, order) in COMPARED {
        match compare(&directories, cache, order) {
            Ok((remote, local, share, notes)) => {
                assert!(notes.contains("there is no network in the difference"), "{notes}");
                assert!(notes.contains("0 of 2048 pages in memory"), "{notes}");
                // One disk serves both, in turn; its own scatter is what is left.
                assert!(remote > 0.0 && local > 0.0 && (0.1..10.0).contains(&(remote / local)), "{remote} and {local}");
                assert!(share < 0.9 && (share - (1.0 - local / remote)).abs() < 0.5, "{share}: {remote} and {local}");
            }
            // The reason is that of the disk: it has no direct I/O, or lives in memory.
            Err(reason) => assert!(reason.contains("page cache") || reason.contains("lives in memory"), "{reason}"),
        }
    }
    let (remote, local) =
        [AskedDirectory::Remote, AskedDirectory::Local].map(|asked| round_trip(&directories, asked)).into();
    assert!((0.05..20.0).contains(&(remote / local)), "{remote} and {local}");
}

/// A directory mounted by sshfs over a pipe to the program that serves it: another program's file system, without a
/// network.
struct Served {
    mount: tempfile::TempDir,
    _behind: tempfile::TempDir,
    programs: Vec<Child>,
}

impl Served {
    const SERVERS: [&str; 3] =
        ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"];

    /// The mount, or what is missing for one.
    fn mount() -> Result<Self, String> {
        let server = Self::SERVERS.into_iter().find(|path| Path::new(path).exists());
        let server = server.ok_or("no sftp-server (openssh-sftp-server)")?;
        let (behind, mount) = (common::on_disk(), common::on_disk());
        let piped = |program: &mut Command| program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut server = piped(&mut Command::new(server)).map_err(|error| format!("{server}: {error}"))?;
        let (to, from) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
        let client = Command::new("sshfs")
            .arg(format!(":{}", behind.path().display()))
            .arg(mount.path())
            .args(["-f", "-o", "passive"])
            .stdin(Stdio::from(from))
            .stdout(Stdio::from(to))
            .stderr(Stdio::null())
            .spawn();
        let mut served = Self { mount, _behind: behind, programs: vec![server] };
        served.programs.push(client.map_err(|error| format!("sshfs: {error}"))?);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            if kelvin_sys::fs::kind(served.mount.path()).is_ok_and(|kind| kind.name() == "fuse") {
                return Ok(served);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("sshfs does not mount here: no /dev/fuse, or not allowed".into())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for program in ["fusermount3", "fusermount"] {
            let ended = Command::new(program).args(["-u", "-z"]).arg(self.mount.path()).stderr(Stdio::null()).status();
            if ended.is_ok_and(|status| status.success()) {
                break;
            }
        }
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn a_directory_that_another_program_serves_takes_longer_and_says_by_how_much() {
    let served = match Served::mount() {
        Ok(served) => served,
        Err(missing) => {
            eprintln!("skipped: needs sshfs over a pipe: {missing}");
            return;
        }
    };
    let here = common::on_disk();
    let directories =
        Directories { scratch: here.path().into(), remote: Some(served.mount.path().into()), agent: None };
    let (remote, local) =
        [AskedDirectory::Remote, AskedDirectory::Local].map(|asked| round_trip(&directories, asked)).into();
    // A question to the server wakes another program and comes back, a local one asks the kernel alone.
    assert!(remote > 2.0 * local, "{remote} and {local}");
    for (cache, order) in COMPARED {
        match compare(&directories, cache, order) {
            Ok((remote, local, share, notes)) => {
                assert!(notes.starts_with("remote: fuse, 0 of 2048 pages in memory"), "{notes}");
                assert!(!notes.contains("no network in the difference"), "{notes}");
                assert!(remote > 0.0 && local > 0.0 && share <= 1.0, "{remote} and {local}");
            }
            Err(reason) => assert!(reason.contains("page cache") || reason.contains("lives in memory"), "{reason}"),
        }
    }
}

#[test]
fn a_search_ends_with_a_setting_that_was_measured_again() {
    let disk = common::on_disk();
    let directories = Directories::scratch(disk.path());
    for (cache, way) in [(CacheState::Cached, TunedEngine::Pread), (CacheState::Direct, TunedEngine::Uring)] {
        let case = Case::new().at(cache).at(way);
        let readings = match common::run_probe_at(&directories, &TUNE.id, &case, SLICE) {
            Attempt::Measured(readings) => readings,
            Attempt::Skipped(reason) => {
                assert!(
                    cache == CacheState::Direct && reason.0.contains("needs") || reason.0.contains("cannot"),
                    "{reason}"
                );
                continue;
            }
            Attempt::Failed(reason) => panic!("{case}: {reason}"),
        };
        let [rate, gain, block, threads, depth] =
            [&TUNE, &TUNE_GAIN, &TUNE_BLOCK, &TUNE_THREADS, &TUNE_DEPTH].map(|metric| figure(&readings, metric));
        let note = readings.iter().flat_map(|reading| reading.notes.clone()).collect::<Vec<_>>().join("; ");
        assert!(note.contains(&format!("blocks of {block} bytes, {threads} threads")), "{note}");
        assert!((4096.0..=4194304.0).contains(&block) && (1.0..=16.0).contains(&threads), "{note}");
        assert!(depth == 1.0 || way == TunedEngine::Uring, "{note}");
        // The search had the plain setting's like among its candidates: it ends with nothing far below.
        assert!(rate > 1e6 && gain > 0.4, "{rate} B/s, {gain} times the plain rate: {note}");
        let whole = note.contains("before: 16384 of 16384 pages in memory");
        assert_eq!(whole, cache == CacheState::Cached, "{note}");
    }
}
