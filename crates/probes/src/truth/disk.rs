//! A disk of known rate: a loop device whose reading a control group limits, read past the page cache and through it.
//!
//! The file system is mounted where only the process that reads it sees it: with that one, however it ends, the kernel takes
//! away both the mount and the loop device. Nothing is ever unmounted by its path, which somebody could have lead elsewhere.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use kelvin_catalogue::file::CacheState;
use kelvin_catalogue::truth::{DISK, DISK_COUNTED};
use kelvin_file::cache::{self, State};
use kelvin_file::group::{Controller, Group};
use kelvin_file::{Engine, How, Observer, Order, Request, Requests, Target, noise};
use kelvin_harness::{Bench, Effort, Facts, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::clock::monotonic;
use kelvin_sys::fs::{enter_own_mounts, major, minor, room};

/// Bytes a second that the group may read: far below what memory, on which the loop device rests, can do.
const RATE: u64 = 32 << 20;
/// Bytes of a block: some fifty are read at once when the kernel lets the group go on, so that one more or less does not matter.
const BLOCK: usize = 64 << 10;
/// Size of the file: six stretches of a tenth of a second.
const FILE: u64 = 20 << 20;
/// Size of the file system that holds it.
const IMAGE: u64 = FILE + (8 << 20);
/// Nanoseconds that a block must take at least to have been held back: two steps of the kernel's timer at 250 Hz.
const HELD: u64 = 8_000_000;
/// Stretches that a figure is made of at least.
const STRETCHES: usize = 3;
/// What the construction itself allows: at both ends of what is timed, a step of the kernel's timer of 4 ms and a block, of half
/// a second.
const EXACT: f64 = 0.02;

/// What it makes in the scratch directory: the place where the file system is mounted; with an ending, what that is made of.
const NAME: &str = "kelvin-truth-disk";

pub(super) static PROBE: Probe = Probe {
    id: DISK.id.as_str(),
    summary: "A loop device in a cgroup that may read 32 MiB a second of it",
    kind: ProbeKind::Truth,
    method: super::method(
        "An image of ext4 with a file of noise is made once a run in the scratch directory. Each round mounts it on a loop \
         device, read-only and seen by nobody else, makes a cgroup that may read 32 MiB a second of that \
         device (blkio.throttle.read_bps_device or io.max), moves into it, and reads with pread in blocks of 64 KiB in \
         random order, past the page cache or through it after the file was dropped. The kernel lets the group read a tenth of a second's \
         worth at once, and then holds it back: the figure is from the end of the first stretch of waiting to the end of \
         the last one, at each of which the cgroup's own count of bytes is read too. Needs root, mkfs.ext4 and mount.",
    ),
    metrics: &[&DISK, &DISK_COUNTED],
    inputs: &[],
    cases: |_: &Machine, _: Effort| {
        [CacheState::Direct, CacheState::Uncached].map(|state| Case::new().at(state)).into()
    },
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let state = match CacheState::of(case) {
        Some(CacheState::Direct) => State::Direct,
        Some(CacheState::Uncached) => State::Uncached,
        Some(CacheState::Cached) | None => {
            return Err(Stop::fail(format!("the case needs cache=direct or cache=uncached, not {case}")));
        }
    };
    let disk = Disk::open(&image(bench)?, bench.scratch())?;
    let group = Group::make(Controller::BlockIo).map_err(super::stopped)?;
    group.limit_reading(&disk.numbers, RATE).map_err(super::stopped)?;
    group.enter().map_err(super::stopped)?;
    let held = read(&disk, &group, (state, bench.seed()))?;
    let (first, last) = window(&held).ok_or_else(|| {
        Stop::fail(format!("the kernel held reading back only {} times: the limit is not in force", held.len()))
    })?;
    let (bytes, counted) = (last.bytes - first.bytes, last.counted - first.counted);
    let nanoseconds = last.time - first.time;
    bench.note(format!(
        "device {}, cgroup version {}: {bytes} bytes read and {counted} counted in {:.3} s",
        disk.numbers,
        group.version(),
        nanoseconds as f64 / 1e9
    ));
    bench.record(&DISK, vec![bytes as f64 * 1e9 / nanoseconds as f64]);
    bench.record(&DISK_COUNTED, vec![bytes as f64 / counted.max(1) as f64]);
    Ok(())
}

/// The end of a stretch in which the kernel held reading back.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    /// Nanoseconds that it lasted.
    lasted: u64,
    /// When it ended, in nanoseconds.
    time: u64,
    /// Bytes that were read until then.
    bytes: u64,
    /// Bytes that the group has counted until then.
    counted: u64,
}

/// Notes when a block was held back.
struct Holds<'a> {
    group: &'a Group,
    device: &'a str,
    last: u64,
    bytes: u64,
    found: kelvin_file::Result<Vec<Held>>,
}

impl Observer for Holds<'_> {
    type Stamp = ();

    fn begin(&mut self) {}

    fn end(&mut self, (): (), request: Request, _: &[u8]) -> ControlFlow<()> {
        self.bytes += request.bytes as u64;
        let time = monotonic();
        let lasted = time - std::mem::replace(&mut self.last, time);
        if lasted < HELD {
            return ControlFlow::Continue(());
        }
        match (self.group.bytes_read(self.device), &mut self.found) {
            (Ok(counted), Ok(found)) => found.push(Held { lasted, time, bytes: self.bytes, counted }),
            (Err(error), found) => *found = Err(error),
            (Ok(_), Err(_)) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }
}

fn read(disk: &Disk, group: &Group, (state, seed): (State, u64)) -> Result<Vec<Held>, Stop> {
    // In no order, so that the kernel does not read ahead: what it has asked for is counted, though nobody has it yet.
    let order = Order::Random { seed };
    cache::bring(&disk.target, state).map_err(super::stopped)?;
    let how = How { access: state.access(), block: BLOCK, order };
    let mut reader = Engine::Pread.open(&disk.target, how).map_err(super::stopped)?;
    let mut holds = Holds { group, device: &disk.numbers, last: monotonic(), bytes: 0, found: Ok(Vec::new()) };
    reader.read(&mut Requests::new(0..FILE, BLOCK, order), &mut holds).map_err(super::stopped)?;
    holds.found.map_err(super::stopped)
}

/// The ends of the first and of the last stretch of waiting. One that is far shorter than the usual one was something else: a
/// processor that was busy elsewhere.
fn window(held: &[Held]) -> Option<(Held, Held)> {
    let usual = super::median(held.iter().map(|one| one.lasted))?;
    let kept: Vec<&Held> = held.iter().filter(|one| one.lasted > usual / 2).collect();
    (kept.len() > STRETCHES).then(|| (*kept[0], *kept[kept.len() - 1]))
}

fn predict(_: &Facts<'_>, metric: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Ok(match metric.unit {
        Unit::BytesPerSecond => {
            super::known(RATE as f64, EXACT, Unit::BytesPerSecond, "the cgroup may read 32 MiB a second of the device")
        }
        _ => super::known(1.0, EXACT, Unit::Ratio, "what was read is what the device gave"),
    })
}

/// An image of a file system with the file in it, made by the first round that asks for it.
fn image(bench: &Bench<'_>) -> Result<PathBuf, Stop> {
    let path = bench.scratch().join(format!("{NAME}.image"));
    if path.exists() {
        return Ok(path);
    }
    // The file is written twice: by itself, and into the image.
    let bytes = FILE + IMAGE;
    let available = room(bench.scratch())?.available_bytes;
    if available < bytes {
        return Err(Stop::skip(format!(
            "needs {bytes} bytes of free room in the scratch directory, which has {available}; choose another by --dir"
        )));
    }
    bench.may_write(bytes)?;
    let content = bench.scratch().join(format!("{NAME}-{}.content", std::process::id()));
    let unfinished = bench.scratch().join(format!("{NAME}-{}.image", std::process::id()));
    let made = make_image(&content, &unfinished).and_then(|()| Ok(fs::rename(&unfinished, &path)?));
    // What is left of it is of no use to anyone; the error tells more than a failure to tidy up after it.
    let _ = fs::remove_dir_all(&content);
    let _ = fs::remove_file(&unfinished);
    made.map(|()| path)
}

fn make_image(content: &Path, image: &Path) -> Result<(), Stop> {
    fs::create_dir(content)?;
    noise::file(&content.join(DATA), FILE, 1)?;
    File::create_new(image)?.set_len(IMAGE)?;
    // Without a journal, which a read-only mount would want to replay, and without what is done later in the background.
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-O", "^has_journal", "-m", "0", "-E", "lazy_itable_init=0,nodiscard", "-d"]);
    done(command.arg(content).arg(image), "mkfs.ext4")
}

/// Name of the file in the image.
const DATA: &str = "data";

/// A file on a loop device that is there for as long as it is open.
struct Disk {
    /// Keeps the file system, by its directory.
    _root: File,
    target: Target,
    /// Its device, as `major:minor`.
    numbers: String,
}

impl Disk {
    fn open(image: &Path, scratch: &Path) -> Result<Self, Stop> {
        enter_own_mounts()
            .map_err(|error| Stop::skip(format!("needs a tree of mounts of its own (root may make one): {error}")))?;
        // Each process mounts it there for itself.
        let place = scratch.join(NAME);
        fs::create_dir_all(&place)?;
        done(Command::new("mount").args(["-o", "loop,ro,nosuid,nodev,noexec"]).arg(image).arg(&place), "mount")?;
        let root = File::open(&place)?;
        let target = Target::find(&PathBuf::from(format!("/proc/self/fd/{}/{DATA}", root.as_raw_fd())))
            .map_err(|error| Stop::fail(error.to_string()))?;
        let device = target.device();
        let numbers = format!("{}:{}", major(device), minor(device));
        let backed = fs::read_to_string(format!("/sys/dev/block/{numbers}/loop/backing_file"));
        // To limit any other device would hurt somebody else.
        backed.map_err(|error| {
            Stop::fail(format!("{numbers}, on which the image was mounted, is no loop device: {error}"))
        })?;
        Ok(Self { _root: root, target, numbers })
    }
}

/// Runs a program to its end; that it is not there, or may not, is a reason to skip.
fn done(command: &mut Command, name: &str) -> Result<(), Stop> {
    // Where users are not root, these programs are often out of their way.
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let output = command.env("PATH", path).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Stop::skip(format!("needs the program {name}")),
        _ => Stop::fail(format!("cannot start {name}: {error}")),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    Err(Stop::skip(format!("needs {name} of a loop device (root may), which says: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_timed_is_from_one_end_of_waiting_to_another() {
        let held =
            |lasted: u64, time: u64| Held { lasted: lasted * 1_000_000, time, bytes: time * 2, counted: time * 3 };
        let usual = [held(90, 1), held(95, 2), held(97, 3), held(96, 4)];
        assert_eq!(window(&usual), Some((usual[0], usual[3])));
        // A short pause at either end is none of the kernel's.
        let more = [&[held(9, 0)], &usual[..], &[held(12, 5)]].concat();
        assert_eq!(window(&more), Some((usual[0], usual[3])));
        assert_eq!((window(&usual[1..]), window(&[])), (None, None));
    }

    #[test]
    fn a_program_that_is_not_there_or_fails_is_a_reason_to_skip() {
        let reason = |name: &str, arguments: &[&str]| match done(Command::new(name).args(arguments), name) {
            Err(Stop::Skip(reason)) => format!("{reason:?}"),
            other => panic!("{other:?}"),
        };
        assert!(reason("kelvin-no-such-program", &[]).contains("needs the program kelvin-no-such-program"));
        assert!(reason("ls", &["/no/such/file"]).contains("No such file"));
        assert_eq!(done(&mut Command::new("true"), "true"), Ok(()));
    }
}
