//! A disk of known rate: a loop device whose read rate a control group limits, read with O_DIRECT and through the page
//! cache.
//!
//! The file system is mounted in a private mount namespace: when the reading process ends, however it ends, the kernel
//! removes both the mount and the loop device. Nothing is ever unmounted by path, which somebody could redirect.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::truth::{DISK, DISK_COUNTED_RATIO};
use kelvin_file::cache::{self, PageCacheState};
use kelvin_file::cgroup::{Cgroup, Controller};
use kelvin_file::{
    BlockOrder, BlockRequest, BlockRequests, Engine, Observer, PagePolicy, ReadOptions, Target, random_data,
};
use kelvin_sys::clock::monotonic;
use kelvin_sys::fs::{enter_private_mounts, major, minor};
use kelvin_sys::thread_spawn::process_error;

use crate::prelude::*;
use crate::room::has_room;

/// Bytes per second that the group may read: far below the rate of memory, which backs the loop device.
const THROTTLE_RATE: u64 = 32 << 20;
/// Bytes of a block: some fifty are read in a burst when the kernel lets the group continue, so one more or less does
/// not matter.
const READ_BLOCK: usize = 64 << 10;
/// Size of the file: six periods of a tenth of a second.
const FILE_BYTES: u64 = 20 << 20;
/// Size of the file system that holds it.
const IMAGE_BYTES: u64 = FILE_BYTES + (8 << 20);
/// Minimum nanoseconds of a throttled block: two kernel ticks at 250 Hz.
const MIN_PAUSE_NANOSECONDS: u64 = 8_000_000;
/// Minimum periods per figure.
const MIN_PERIODS: usize = 3;
/// Accuracy of the construction: at both ends of the timed half second, a kernel tick of 4 ms and a block.
const MAX_RELATIVE_ERROR: f64 = 0.02;

/// Its names in the scratch directory: the mount point, and with a suffix the files behind it.
const TRUTH_DISK_PREFIX: &str = "kelvin-truth-disk";

/// In which the file is read.
const CACHE_STATES: [CacheState; 2] = [CacheState::Direct, CacheState::Uncached];

pub(super) static PROBE: Probe = Probe {
    summary: "A loop device in a cgroup that may read 32 MiB/s of it",
    method: include_str!("disk.md"),
    cases: |_, _| words(&CACHE_STATES),
    run,
    predict,
    ..Probe::truth(&[&DISK, &DISK_COUNTED_RATIO])
};

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let state = match required_word(CacheState::of(case), &CACHE_STATES, case)? {
        CacheState::Direct => PageCacheState::Direct,
        _ => PageCacheState::Uncached,
    };
    let disk = LoopDisk::open(&shared_image(bench)?, bench.scratch())?;
    let group = Cgroup::create(Controller::BlockIo).map_err(super::probe_error)?;
    group.limit_read_rate(&disk.numbers, THROTTLE_RATE).map_err(super::probe_error)?;
    group.enter().map_err(super::probe_error)?;
    let pauses = read_throttled(&disk, &group, (state, bench.seed()))?;
    let (first, last) = timed_window(&pauses)
        .or_fail(format!("the kernel throttled reads only {} times: the limit is not in force", pauses.len()))?;
    let (bytes, counted_bytes) = (last.bytes - first.bytes, last.counted_bytes - first.counted_bytes);
    let nanoseconds = last.time - first.time;
    bench.note(format!(
        "device {}, cgroup version {}: {bytes} bytes read and {counted_bytes} counted in {:.3} s",
        disk.numbers,
        group.version(),
        nanoseconds as f64 / 1e9
    ));
    bench.record(&DISK, vec![bytes as f64 * 1e9 / nanoseconds as f64]);
    bench.record(&DISK_COUNTED_RATIO, vec![bytes as f64 / counted_bytes.max(1) as f64]);
    Ok(())
}

/// The end of a throttled period.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ThrottlePause {
    /// Nanoseconds that it lasted.
    duration: u64,
    /// When it ended, in nanoseconds.
    time: u64,
    /// Bytes read until then.
    bytes: u64,
    /// Bytes counted by the group until then.
    counted_bytes: u64,
}

/// Records when a block was throttled.
struct PauseObserver<'a> {
    group: &'a Cgroup,
    device: &'a str,
    last: u64,
    bytes: u64,
    pauses: kelvin_file::Result<Vec<ThrottlePause>>,
}

impl Observer for PauseObserver<'_> {
    type Stamp = ();

    fn begin(&mut self) {}

    fn end(&mut self, (): (), request: BlockRequest, _: &[u8]) -> ControlFlow<()> {
        self.bytes += request.bytes as u64;
        let time = monotonic();
        let duration = time - std::mem::replace(&mut self.last, time);
        if duration < MIN_PAUSE_NANOSECONDS {
            return ControlFlow::Continue(());
        }
        match (self.group.bytes_read(self.device), &mut self.pauses) {
            (Ok(counted_bytes), Ok(pauses)) => {
                pauses.push(ThrottlePause { duration, time, bytes: self.bytes, counted_bytes })
            }
            (Err(error), pauses) => *pauses = Err(error),
            (Ok(_), Err(_)) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }
}

fn read_throttled(
    disk: &LoopDisk,
    group: &Cgroup,
    (state, seed): (PageCacheState, u64),
) -> ProbeResult<Vec<ThrottlePause>> {
    // In random order, against read-ahead: requested bytes would be counted before they are read.
    let order = BlockOrder::Random { seed };
    cache::set_cache_state(&disk.target, state).map_err(super::probe_error)?;
    let options = ReadOptions { access: state.access(), block: READ_BLOCK, order, pages: PagePolicy::Base };
    let mut reader = Engine::Pread.open(&disk.target, options).map_err(super::probe_error)?;
    let mut observer =
        PauseObserver { group, device: &disk.numbers, last: monotonic(), bytes: 0, pauses: Ok(Vec::new()) };
    reader
        .read(&mut BlockRequests::new(0..FILE_BYTES, READ_BLOCK, order), &mut observer)
        .map_err(super::probe_error)?;
    observer.pauses.map_err(super::probe_error)
}

/// The ends of the first and the last throttled period. A far shorter one was something else, such as a busy CPU.
fn timed_window(pauses: &[ThrottlePause]) -> Option<(ThrottlePause, ThrottlePause)> {
    let mut lengths: Vec<u64> = pauses.iter().map(|pause| pause.duration).collect();
    lengths.sort_unstable();
    let median = *lengths.get(lengths.len() / 2)?;
    let full_pauses: Vec<&ThrottlePause> = pauses.iter().filter(|pause| pause.duration > median / 2).collect();
    (full_pauses.len() > MIN_PERIODS).then(|| (*full_pauses[0], *full_pauses[full_pauses.len() - 1]))
}

fn predict(_: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    let (value, construction) = match metric.unit {
        Unit::BytesPerSecond => (THROTTLE_RATE as f64, "the cgroup may read 32 MiB/s of the device"),
        _ => (1.0, "the bytes read are the bytes counted on the device"),
    };
    Ok(super::known_prediction(value, MAX_RELATIVE_ERROR, metric.unit, construction))
}

/// A file-system image with the file in it, made by the first round that needs it.
fn shared_image(bench: &Bench<'_>) -> ProbeResult<PathBuf> {
    let path = bench.scratch().join(format!("{TRUTH_DISK_PREFIX}.image"));
    if path.exists() {
        return Ok(path);
    }
    // The file is written twice: on its own, and into the image.
    let bytes = FILE_BYTES + IMAGE_BYTES;
    has_room(bench.scratch(), bytes)?;
    bench.reserve_write(bytes)?;
    let content = bench.scratch().join(format!("{TRUTH_DISK_PREFIX}-{}.content", std::process::id()));
    let temporary = bench.scratch().join(format!("{TRUTH_DISK_PREFIX}-{}.image", std::process::id()));
    let outcome = make_image(&content, &temporary).and_then(|()| Ok(fs::rename(&temporary, &path)?));
    // The error matters more than a failure to remove the remains.
    let _ = fs::remove_dir_all(&content);
    let _ = fs::remove_file(&temporary);
    outcome.map(|()| path)
}

fn make_image(content: &Path, image: &Path) -> ProbeResult {
    fs::create_dir(content)?;
    random_data::write_file(&content.join(DATA), FILE_BYTES, 1)?;
    File::create_new(image)?.set_len(IMAGE_BYTES)?;
    // Without a journal, which a read-only mount would replay, and without lazy initialisation.
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-O", "^has_journal", "-m", "0", "-E", "lazy_itable_init=0,nodiscard", "-d"]);
    run_command(command.arg(content).arg(image), "mkfs.ext4")
}

/// Name of the file in the image.
const DATA: &str = "data";

/// A file on a loop device that exists as long as it is open.
struct LoopDisk {
    /// Keeps the file system, by its directory.
    _root: File,
    target: Target,
    /// Its device, as `major:minor`.
    numbers: String,
}

impl LoopDisk {
    fn open(image: &Path, scratch: &Path) -> ProbeResult<Self> {
        enter_private_mounts().or_skip("needs a mount namespace (root may create one)")?;
        // Each process mounts it in its own namespace.
        let mount_point = scratch.join(TRUTH_DISK_PREFIX);
        fs::create_dir_all(&mount_point)?;
        run_command(
            Command::new("mount").args(["-o", "loop,ro,nosuid,nodev,noexec"]).arg(image).arg(&mount_point),
            "mount",
        )?;
        let root = File::open(&mount_point)?;
        let target = Target::find(&PathBuf::from(format!("/proc/self/fd/{}/{DATA}", root.as_raw_fd())))
            .map_err(|error| ProbeError::fail(error.to_string()))?;
        let device = target.device();
        let numbers = format!("{}:{}", major(device), minor(device));
        let backing_file = fs::read_to_string(format!("/sys/dev/block/{numbers}/loop/backing_file"));
        // Limiting any other device would affect others.
        backing_file.or_fail(format!("{numbers}, on which the image was mounted, is not a loop device"))?;
        Ok(Self { _root: root, target, numbers })
    }
}

/// Runs a program to its end; a missing program or permission is a reason to skip.
fn run_command(command: &mut Command, name: &str) -> ProbeResult {
    // These programs are often not in the PATH of ordinary users.
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let output = command.env("PATH", path).output().map_err(process_error).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ProbeError::skip(format!("needs the program {name}")),
        _ => ProbeError::fail(format!("cannot start {name}: {error}")),
    })?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason = format!("needs {name} of a loop device (root may), which failed: {complaint}");
    skip_if(!output.status.success(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_spans_throttled_periods() {
        let pause = |duration: u64, time: u64| ThrottlePause {
            duration: duration * 1_000_000,
            time,
            bytes: time * 2,
            counted_bytes: time * 3,
        };
        let pauses = [pause(90, 1), pause(95, 2), pause(97, 3), pause(96, 4)];
        assert_eq!(timed_window(&pauses), Some((pauses[0], pauses[3])));
        // A short pause at either end is not throttling.
        let with_short_pauses = [&[pause(9, 0)], &pauses[..], &[pause(12, 5)]].concat();
        assert_eq!(timed_window(&with_short_pauses), Some((pauses[0], pauses[3])));
        assert_eq!((timed_window(&pauses[1..]), timed_window(&[])), (None, None));
    }

    #[test]
    fn missing_program_is_skipped() {
        let reason = |name: &str, arguments: &[&str]| match run_command(Command::new(name).args(arguments), name) {
            Err(ProbeError::Skip(reason)) => format!("{reason:?}"),
            other => panic!("{other:?}"),
        };
        assert!(reason("kelvin-no-such-program", &[]).contains("needs the program kelvin-no-such-program"));
        assert!(reason("ls", &["/no/such/file"]).contains("No such file"));
        assert_eq!(run_command(&mut Command::new("true"), "true"), Ok(()));
    }
}
