//! The disk of known rate, for real: kelvin agrees with the control group's own count, and leaves nothing behind.
//! Whether the rate is right to the percent is for `kelvin selfcheck`, on an idle machine.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{TestDirectories, measure_if_possible_at, median, reading_of};
use kelvin_core::{Case, RoundOutcome};
use kelvin_sys::child::ChildEnd;

/// The backing files in a directory of loop devices in use.
fn loop_devices(scratch: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let backing = |device: std::fs::DirEntry| std::fs::read_to_string(device.path().join("loop/backing_file")).ok();
    devices.filter_map(backing).filter(|file| Path::new(file).starts_with(scratch)).collect()
}

#[test]
fn throttled_reads_match_cgroup_count() {
    let scratch = tempfile::tempdir().unwrap();
    for state in ["direct", "uncached"] {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("cache", state));
        let Some(readings) =
            measure_if_possible_at(&TestDirectories::with_scratch(scratch.path()), "truth.disk", &case, 400)
        else {
            return;
        };
        reading_of(&readings, "truth.disk");
        // At most one request of hundreds is counted but not yet read.
        let ratio = median(reading_of(&readings, "truth.disk.counted"));
        assert!((0.98..1.02).contains(&ratio), "{state}: {ratio} of what the group counted");
    }
    check_killed_round_cleanup(scratch.path());
}

/// Kills rounds at several moments: in one of them at least the device is in use.
fn check_killed_round_cleanup(scratch: &Path) {
    let case = Case::new().with_word(kelvin_core::AxisWord::from_names("cache", "direct"));
    let existing = leftover_cgroups();
    for milliseconds in [50, 120, 250, 400] {
        let end = common::kill_probe(scratch, "truth.disk", &case, Duration::from_millis(milliseconds));
        assert_eq!(end, ChildEnd::TimedOut, "after {milliseconds} ms");
        let deadline = Instant::now() + Duration::from_secs(5);
        // The kernel detaches a loop device a moment after its last user has ended.
        while !loop_devices(scratch).is_empty() {
            assert!(Instant::now() < deadline, "{milliseconds} ms: {:?}", loop_devices(scratch));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // The next round removes what a kill between mount and unmount left.
    assert!(matches!(common::run_probe("truth.disk", &case, 400), RoundOutcome::Measured(_)));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(scratch.to_str().unwrap()), "{mounts}");
    let remaining: Vec<PathBuf> = leftover_cgroups().into_iter().filter(|group| !existing.contains(group)).collect();
    assert_eq!(remaining, Vec::<PathBuf>::new());
}

/// Our control groups that limit block devices.
fn leftover_cgroups() -> Vec<PathBuf> {
    kelvin_testing::cgroups::find_named(|name| name.starts_with("kelvin-blkio-") || name.starts_with("kelvin-io-"))
}
