//! The disk of known rate, for real: kelvin agrees with the control group's own count, and leaves nothing behind.
//! Whether the rate is right to the percent is for `kelvin selfcheck`, on an idle machine.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Directories, measure_if_possible_at, median, of};
use kelvin_model::{Attempt, Case};
use kelvin_sys::child::End;

/// The backing files in a directory of loop devices in use.
fn loops(scratch: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let backing = |device: std::fs::DirEntry| std::fs::read_to_string(device.path().join("loop/backing_file")).ok();
    devices.filter_map(backing).filter(|file| Path::new(file).starts_with(scratch)).collect()
}

#[test]
fn what_is_read_of_a_throttled_disk_is_what_its_group_counts() {
    let scratch = tempfile::tempdir().unwrap();
    for state in ["direct", "uncached"] {
        let case = Case::new().at(kelvin_model::Point::named("cache", state));
        let Some(readings) = measure_if_possible_at(&Directories::scratch(scratch.path()), "truth.disk", &case, 400)
        else {
            return;
        };
        of(&readings, "truth.disk");
        // At most one request of hundreds is counted but not yet read.
        let counted = median(of(&readings, "truth.disk.counted"));
        assert!((0.98..1.02).contains(&counted), "{state}: {counted} of what the group counted");
    }
    a_killed_round_leaves_no_device_and_no_mount(scratch.path());
}

/// Kills rounds at several moments: in one of them at least the device is in use.
fn a_killed_round_leaves_no_device_and_no_mount(scratch: &Path) {
    let case = Case::new().at(kelvin_model::Point::named("cache", "direct"));
    let of_others = groups();
    for milliseconds in [50, 120, 250, 400] {
        let end = common::kill_probe(scratch, "truth.disk", &case, Duration::from_millis(milliseconds));
        assert_eq!(end, End::TimedOut, "after {milliseconds} ms");
        let deadline = Instant::now() + Duration::from_secs(5);
        // The kernel detaches a loop device a moment after its last user has ended.
        while !loops(scratch).is_empty() {
            assert!(Instant::now() < deadline, "{milliseconds} ms: {:?}", loops(scratch));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // The next round removes what a kill between mount and unmount left.
    assert!(matches!(common::run_probe("truth.disk", &case, 400), Attempt::Measured(_)));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(scratch.to_str().unwrap()), "{mounts}");
    let left: Vec<PathBuf> = groups().into_iter().filter(|group| !of_others.contains(group)).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

/// Our control groups that limit block devices.
fn groups() -> Vec<PathBuf> {
    kelvin_testing::groups::named(|name| name.starts_with("kelvin-blkio-") || name.starts_with("kelvin-io-"))
}
