//! The file of `--extent` that the study of the device covers: written before the first round, and overwritten until the rate of writing is
//! steady.
//!
//! It is as large as the user needs to leave the caches of the device, which nothing inside the machine can drop.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kelvin_core::catalogue::file::EXTENT;
use kelvin_core::units;
use kelvin_harness::Setup;
use kelvin_stats::{MAX_STEADY_RANGE, MAX_STEADY_SLOPE, MeasurementWindow, STEADY_WINDOWS};
use kelvin_sys::fs::{allocate, space};

use super::overwrite::{STREAM_BLOCK, StreamPlan, stream};
use super::prelude::*;

/// Name of the file, before its size.
const EXTENT_FILE: &str = "kelvin-extent";
/// What is kept next to it: bytes per second of each window in which it was overwritten.
const WINDOW_RATES: &str = "windows";
/// Seeds of its content, and of what overwrites it.
const CONTENT_SEED: u64 = 4;
const OVERWRITE_SEED: u64 = 5;
/// Windows of writing after which it is given up: three times the file.
const MAX_WINDOWS: u64 = 3 * STEADY_WINDOWS as u64;
/// Free space that the file system must have, as a multiple of the file: full ones are slow, and the other files of a run need some.
const FREE_SPACE_FACTOR: f64 = 1.05;
/// Nanoseconds of writing from whose rate the time of all of it is told.
const RATE_TIME: u64 = 1_000_000_000;

/// The file for reads that reach the device at a case: that of `--extent` where the case names one.
pub(super) fn study_file(bench: &mut Bench<'_>, case: &Case) -> ProbeResult<Target> {
    let Some(bytes) = EXTENT.number_in(case) else { return test_files::device_file(bench, SHARED_BYTES) };
    bench.note(format!("on a file of {} (--extent)", units::bytes(bytes)));
    let path = file_path(bench.scratch(), bytes);
    Target::find(&path).map_err(probe_error)
}

/// The case of the device's own figures over the same file.
pub(super) fn study_case(case: &Case) -> Case {
    EXTENT.number_in(case).map_or_else(Case::new, |bytes| Case::new().with_number(EXTENT, bytes))
}

/// What the run needs of the file.
#[derive(Clone, Copy, Debug)]
pub struct ExtentFile {
    /// Its size.
    pub bytes: u64,
    /// Whether the rate of writing is measured as well, and so a steady state is needed.
    pub is_overwritten: bool,
}

impl ExtentFile {
    /// Bytes that are written at least.
    fn min_written_bytes(self) -> u64 {
        if self.is_overwritten { self.bytes + STEADY_WINDOWS as u64 * self.window_bytes() } else { self.bytes }
    }

    /// Bytes of a window: a few of them together are the whole file, so that what is steady is the device behind its caches.
    fn window_bytes(self) -> u64 {
        self.blocks().div_ceil(STEADY_WINDOWS as u64) * STREAM_BLOCK as u64
    }

    fn blocks(self) -> u64 {
        self.bytes / STREAM_BLOCK as u64
    }

    /// That a directory and the limit on writing have room for the file.
    ///
    /// # Errors
    /// What is missing, and what would help.
    pub fn check_room(self, directory: &Path, write_limit: u64) -> Result<(), String> {
        let needed = (FREE_SPACE_FACTOR * self.bytes as f64) as u64;
        let available = space(directory).map_err(|error| format!("{}: {error}", directory.display()))?.available_bytes;
        if available < needed {
            let [needed, available] = [needed, available].map(units::bytes);
            return Err(format!(
                "needs {needed} free in {}, which has {available}; choose a smaller one, or another directory by --dir",
                directory.display()
            ));
        }
        let written = self.min_written_bytes();
        if written > write_limit {
            let [written, limit] = [written, write_limit].map(units::bytes);
            return Err(format!(
                "{written} or more are written, and --write-limit allows {limit}; raise it, or choose a smaller one"
            ));
        }
        Ok(())
    }

    /// Writes the file into the scratch directory of a run, and overwrites it until the rate is steady. `report` gets what a user should
    /// know meanwhile.
    ///
    /// # Errors
    /// Those of writing; a limit on what may be written. Nothing is left behind then.
    pub fn write(self, setup: &Setup, report: &(dyn Fn(&str) + Sync)) -> ProbeResult {
        let path = file_path(Path::new(&setup.scratch), self.bytes);
        self.write_file(setup, &path, report).inspect_err(|_| {
            let _ = std::fs::remove_file(&path);
        })
    }

    fn write_file(self, setup: &Setup, path: &Path, report: &(dyn Fn(&str) + Sync)) -> ProbeResult {
        setup.reserve_write(self.min_written_bytes())?;
        let file = File::create_new(path).or_file_failure("create", path)?;
        allocate(&file, self.bytes).or_file_failure("allocate", path)?;
        let target = Target::find(path).map_err(probe_error)?;
        test_files::check_direct_io(&target, STREAM_BLOCK as u64)?;
        let fill = Fill::new(self, report);
        stream(&target, CONTENT_SEED, &fill)?;
        file.sync_all().or_file_failure("flush", path)?;
        fill.check()?;
        if !self.is_overwritten {
            return Ok(());
        }
        let (windows, counters) = (Windows::new(self, setup), DeviceCounters::now(&target));
        stream(&target, OVERWRITE_SEED, &windows)?;
        counters.prove_written(windows.completed.load(Ordering::Relaxed) * STREAM_BLOCK as u64)?;
        let rates = windows.finish()?;
        report(&describe(&rates, self.bytes));
        let text: Vec<String> = rates.iter().map(f64::to_string).collect();
        Ok(std::fs::write(path.with_extension(WINDOW_RATES), text.join("\n"))?)
    }
}

/// Where the file of this many bytes is.
fn file_path(scratch: &Path, bytes: u64) -> PathBuf {
    scratch.join(format!("{EXTENT_FILE}-{bytes}"))
}

/// Bytes per second of the windows in which the file of this many bytes was overwritten.
pub(super) fn window_rates(bench: &Bench<'_>, bytes: u64) -> ProbeResult<Vec<f64>> {
    let path = file_path(bench.scratch(), bytes).with_extension(WINDOW_RATES);
    let text = std::fs::read_to_string(&path).or_file_failure("read", &path)?;
    let rates = text.lines().map(|line| line.parse().or_fail(format!("{} does not hold rates", path.display())));
    rates.collect()
}

/// Whether rates of windows became steady, in words.
pub(super) fn describe(rates: &[f64], bytes: u64) -> String {
    let window_bytes = ExtentFile { bytes, is_overwritten: true }.window_bytes();
    let (windows, part) = (rates.len(), units::bytes(window_bytes));
    let Some(state) = MeasurementWindow::of_last(rates) else {
        return format!("no steady state: only {windows} windows of {part} were written");
    };
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let [range, slope, max_range, max_slope] =
        [state.range, state.slope, MAX_STEADY_RANGE, MAX_STEADY_SLOPE].map(percent);
    let rate = units::value_text(state.mean, Unit::BytesPerSecond);
    let head = if state.is_steady() { "writing reached a steady state" } else { "writing reached no steady state" };
    format!(
        "{head} at {rate}: the last {STEADY_WINDOWS} of {windows} windows of {part} have a range of {range} and a slope of {slope} of their \
         average (SNIA PTS: at most {max_range} and {max_slope})"
    )
}

/// Every block of the file once.
struct Fill<'r> {
    extent: ExtentFile,
    start: u64,
    next: AtomicU64,
    completed: AtomicU64,
    is_reported: AtomicBool,
    report: &'r (dyn Fn(&str) + Sync),
}

impl<'r> Fill<'r> {
    fn new(extent: ExtentFile, report: &'r (dyn Fn(&str) + Sync)) -> Self {
        let (next, completed, is_reported) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { extent, start: monotonic(), next, completed, is_reported, report }
    }

    /// That it came to its end.
    fn check(&self) -> ProbeResult {
        let (completed, blocks) = (self.completed.load(Ordering::Relaxed), self.extent.blocks());
        fail_if(completed < blocks, format!("interrupted: {completed} of {blocks} blocks were written"))
    }
}

impl StreamPlan for Fill<'_> {
    fn next_block(&self) -> Option<u64> {
        let block = self.next.fetch_add(1, Ordering::Relaxed);
        (block < self.extent.blocks() && !is_interrupted()).then_some(block * STREAM_BLOCK as u64)
    }

    fn complete_block(&self) {
        let completed = self.completed.fetch_add(1, Ordering::Relaxed) + 1;
        let elapsed = monotonic() - self.start;
        if elapsed >= RATE_TIME && !self.is_reported.swap(true, Ordering::Relaxed) {
            (self.report)(&expected_time(self.extent, completed * STREAM_BLOCK as u64, elapsed));
        }
    }
}

/// What writing takes at the rate so far, in words.
fn expected_time(extent: ExtentFile, bytes: u64, nanoseconds: u64) -> String {
    let rate = bytes as f64 * 1e9 / nanoseconds.max(1) as f64;
    let time = |bytes: u64| units::seconds(bytes as f64 / rate);
    let overwriting = if extent.is_overwritten {
        let (least, most) = (STEADY_WINDOWS as u64 * extent.window_bytes(), MAX_WINDOWS * extent.window_bytes());
        format!(", and overwriting it until the rate is steady {} to {}", time(least), time(most))
    } else {
        String::new()
    };
    let rate = units::value_text(rate, Unit::BytesPerSecond);
    format!("that takes about {} at the {rate} of the device so far{overwriting}", time(extent.bytes))
}

/// Whether a signal ends the run.
fn is_interrupted() -> bool {
    kelvin_sys::stop_signals::stop_signal().is_some()
}

/// The file over and over, in order, until the rate of successive windows is steady.
struct Windows<'s> {
    extent: ExtentFile,
    setup: &'s Setup,
    next: AtomicU64,
    completed: AtomicU64,
    is_over: AtomicBool,
    /// When the first window began, and when each has ended.
    bounds: Mutex<Vec<u64>>,
}

impl<'s> Windows<'s> {
    fn new(extent: ExtentFile, setup: &'s Setup) -> Self {
        let (next, completed, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { extent, setup, next, completed, is_over, bounds: Mutex::new(vec![monotonic()]) }
    }

    /// A window has ended. Whether there is to be another one.
    fn end_window(&self) -> bool {
        let mut bounds = kelvin_sys::lock(&self.bounds);
        bounds.push(monotonic());
        let windows = bounds.len() as u64 - 1;
        if windows < STEADY_WINDOWS as u64 {
            return true;
        }
        let state = MeasurementWindow::of_last(&rates(&bounds, self.extent.window_bytes()));
        let is_steady = state.is_some_and(|state| state.is_steady());
        // The first ones are reserved; without room for more it ends as it is, which the note says.
        !is_steady && windows < MAX_WINDOWS && self.setup.reserve_write(self.extent.window_bytes()).is_ok()
    }

    fn finish(self) -> ProbeResult<Vec<f64>> {
        let bounds = self.bounds.into_inner().or_fail("a writing thread panicked")?;
        fail_if(is_interrupted() || bounds.len() <= STEADY_WINDOWS, "interrupted while it was overwritten")?;
        Ok(rates(&bounds, self.extent.window_bytes()))
    }
}

/// Bytes per second of windows of this many bytes between these moments.
fn rates(bounds: &[u64], window_bytes: u64) -> Vec<f64> {
    bounds.windows(2).map(|pair| window_bytes as f64 * 1e9 / pair[1].saturating_sub(pair[0]).max(1) as f64).collect()
}

impl StreamPlan for Windows<'_> {
    fn next_block(&self) -> Option<u64> {
        if self.is_over.load(Ordering::Relaxed) || is_interrupted() {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed) % self.extent.blocks() * STREAM_BLOCK as u64)
    }

    fn complete_block(&self) {
        let completed = self.completed.fetch_add(1, Ordering::Relaxed) + 1;
        let window_blocks = self.extent.window_bytes() / STREAM_BLOCK as u64;
        // What is still in flight when it is over is in no window.
        if completed.is_multiple_of(window_blocks) && !self.is_over.load(Ordering::Relaxed) && !self.end_window() {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(mebibytes: u64, is_overwritten: bool) -> ExtentFile {
        ExtentFile { bytes: mebibytes * MIB, is_overwritten }
    }

    #[test]
    fn missing_room_is_said_before_anything_is_written() {
        let directory = std::env::temp_dir();
        assert_eq!(extent(64, false).check_room(&directory, 64 << 20), Ok(()));
        let error = extent(1 << 30, false).check_room(&directory, u64::MAX).unwrap_err();
        assert!(
            error.starts_with("needs 1080 TiB free in ") && error.ends_with("another directory by --dir"),
            "{error}"
        );
        // Five windows of 13 MiB, after the 64 MiB of the file.
        let error = extent(64, true).check_room(&directory, 128 << 20).unwrap_err();
        assert_eq!(
            error,
            "129 MiB or more are written, and --write-limit allows 128 MiB; raise it, or choose a smaller one"
        );
        assert!(extent(1, false).check_room(Path::new("/no such directory"), 1 << 20).is_err());
    }

    #[test]
    fn expected_time_follows_from_the_rate() {
        let bytes = 100 << 10;
        assert_eq!(
            expected_time(extent(bytes, false), 512 << 20, 1_073_741_824),
            "that takes about 3 min 35 s at the 500 MB/s of the device so far"
        );
        assert_eq!(
            expected_time(extent(bytes, true), 512 << 20, 1_073_741_824),
            "that takes about 3 min 35 s at the 500 MB/s of the device so far, and overwriting it until the rate is steady 3 min 35 s to 10 min 44 s"
        );
    }

    #[test]
    fn note_says_whether_a_steady_state_was_reached() {
        let steady = [3e9, 500e6, 510e6, 490e6, 500e6, 500e6];
        assert_eq!(
            describe(&steady, 100 * MIB),
            "writing reached a steady state at 500 MB/s: the last 5 of 6 windows of 20 MiB have a range of 4 % and a slope of 1 % of their \
             average (SNIA PTS: at most 20 % and 10 %)"
        );
        assert!(
            describe(&steady[..5], 100 * MIB)
                .starts_with("writing reached no steady state at 1.00 GB/s: the last 5 of 5")
        );
        assert_eq!(describe(&steady[..2], 100 * MIB), "no steady state: only 2 windows of 20 MiB were written");
    }

    #[test]
    fn rates_are_those_between_bounds() {
        assert_eq!(rates(&[1_000, 2_000_001_000, 3_000_001_000], 10), [5.0, 10.0]);
        assert!(rates(&[7], 10).is_empty());
    }
}
