//! The peak of resident memory, set back for real: a process of its own, since other tests use memory at the same time.

use kelvin_sys::resident_set::shrink;
use kelvin_testing::MissingRequirement;

/// Bytes of the largest resident set so far.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

#[test]
fn code_runs_on_and_the_peak_falls() {
    const BYTES: usize = 64 << 20;
    let memory = std::hint::black_box(vec![1u8; BYTES]);
    assert!(peak_bytes() > BYTES as u64, "{}", peak_bytes());
    drop(memory);
    for _ in 0..2 {
        if let Err(error) = shrink() {
            return MissingRequirement::machine(format!("/proc/self/clear_refs: {error}"))
                .report_skip("a peak of resident memory that is set back");
        }
    }
    assert!(peak_bytes() < BYTES as u64, "{}", peak_bytes());
}
