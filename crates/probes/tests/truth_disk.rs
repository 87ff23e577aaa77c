//! The disk of known rate, for real: kelvin agrees with the control group's own count, and leaves nothing behind.

mod common;

use kelvin_model::{Attempt, Case};

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
    for state in ["direct", "uncached"] {
        let case = Case::new().with_word("cache", state);
        let (mut rates, mut counted) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let readings = match common::run_probe("truth.disk", &case, 400) {
                Attempt::Measured(readings) => readings,
                Attempt::Skipped(reason) => {
                    eprintln!("skipped: {reason:?}");
                    return;
                }
                other => panic!("{other:?}"),
            };
            let value = |id: &str| common::median(readings.iter().find(|reading| reading.metric == *id).unwrap());
            rates.push(value("truth.disk") / f64::from(32 << 20));
            counted.push(value("truth.disk.counted"));
        }
        for values in [&mut rates, &mut counted] {
            values.sort_by(f64::total_cmp);
        }
        let near = |values: &[f64]| (0.98..1.02).contains(&values[ROUNDS / 2]);
        assert!(near(&rates), "{state}: {rates:?} of the rate that is allowed");
        assert!(near(&counted), "{state}: {counted:?} of what the group counted");
    }
    let image = std::env::temp_dir().join("kelvin-truth-disk.image");
    std::fs::remove_file(&image).unwrap();
    // The kernel detaches a loop device a moment after its last user has ended.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while !loops().is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:?}", loops());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("kelvin-truth-disk"), "{mounts}");
}
