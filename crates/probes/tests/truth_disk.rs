//! The disk of known rate, for real: kelvin agrees with the control group's own count, and leaves nothing behind.

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kelvin_catalogue::file::CacheState;
use kelvin_catalogue::truth::{DISK, DISK_COUNTED};
use kelvin_model::{Attempt, Case, Metric};
use kelvin_sys::child::End;

/// Loop devices that are in use, with the files below them.
fn loops() -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let backing = |device: std::fs::DirEntry| std::fs::read_to_string(device.path().join("loop/backing_file")).ok();
    devices.filter_map(backing).filter(|file| file.contains("kelvin-truth-disk")).collect()
}

/// Rounds of each case: one in which a processor was busy elsewhere when the kernel let the group go on may be wrong.
const ROUNDS: usize = 5;

#[test]
#[allow(clippy::print_stderr)]
fn a_throttled_disk_is_read_at_its_rate_within_two_percent() {
    for state in [CacheState::Direct, CacheState::Uncached] {
        let case = Case::new().at(state);
        let (mut rates, mut counted) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let readings = match common::run_probe(&DISK.id, &case, 400) {
                Attempt::Measured(readings) => readings,
                Attempt::Skipped(reason) => {
                    eprintln!("skipped: {reason:?}");
                    return;
                }
                other => panic!("{other:?}"),
            };
            let value = |metric: &Metric| common::median(readings.iter().find(|one| one.metric == metric.id).unwrap());
            rates.push(value(&DISK) / f64::from(32 << 20));
            counted.push(value(&DISK_COUNTED));
        }
        for values in [&mut rates, &mut counted] {
            values.sort_by(f64::total_cmp);
        }
        let near = |values: &[f64]| (0.98..1.02).contains(&values[ROUNDS / 2]);
        assert!(near(&rates), "{state:?}: {rates:?} of the rate that is allowed");
        assert!(near(&counted), "{state:?}: {counted:?} of what the group counted");
    }
    a_killed_round_leaves_no_device_and_no_mount();
    std::fs::remove_file(std::env::temp_dir().join("kelvin-truth-disk.image")).unwrap();
    std::fs::remove_dir(std::env::temp_dir().join("kelvin-truth-disk")).unwrap();
}

/// Kills rounds at several moments: in one of them at least the device is in use.
fn a_killed_round_leaves_no_device_and_no_mount() {
    let case = Case::new().at(CacheState::Direct);
    for milliseconds in [50, 120, 250, 400] {
        let end = common::kill_probe(&DISK.id, &case, Duration::from_millis(milliseconds));
        assert_eq!(end, End::TimedOut, "after {milliseconds} ms");
        let deadline = Instant::now() + Duration::from_secs(5);
        // The kernel detaches a loop device a moment after its last user has ended.
        while !loops().is_empty() {
            assert!(Instant::now() < deadline, "{milliseconds} ms: {:?}", loops());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(matches!(common::run_probe(&DISK.id, &case, 400), Attempt::Measured(_)));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("kelvin-truth-disk"), "{mounts}");
    assert_eq!(groups(), Vec::<PathBuf>::new());
}

/// Control groups of ours that limit block devices, wherever they are.
fn groups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = left.pop() {
        let below = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let directories = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for path in directories.map(|entry| entry.path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("kelvin-blkio-") || name.starts_with("kelvin-io-") {
                found.push(path.clone());
            }
            left.push(path);
        }
    }
    found
}
