//! Recorded reads of a group of hardware counters, and what they are in the end.

/// The ids of the group: cycles, instructions, misses of the last-level cache, misses of the data TLB, mispredicted branches.
pub const IDS: [u64; 5] = [71, 72, 73, 74, 75];

/// The ids of the group in the parts recorded in a guest: cycles and instructions.
pub const GUEST_IDS: [u64; 2] = [1, 2];

/// What the windows of `complete` counted, as a run holds it: the third of them by cycles, less what an empty one counted.
pub const COUNTED_OPERATIONS: &str = r#"{"operations":400,"events":{"cycles":5000,"instructions":20000,"last_level_misses":392,"tlb_misses":5,"branch_misses":100}}"#;

/// That for one operation, in words.
pub const EVENTS_OF_AN_OPERATION: &str = "12.5 cycles, 50 instructions (4 a cycle), 0.98 misses of the last-level cache, 0.0125 misses of the data TLB, \
     0.25 mispredicted branches";

const RECORD: &str = include_str!("recorded_counters.txt");

/// The reads of a part of the record, in 64-bit words.
///
/// # Panics
/// If there is no such part.
pub fn reads(part: &str) -> Vec<Vec<u64>> {
    let heading = format!("[{part}]");
    let lines = RECORD.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('['));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let reads: Vec<Vec<u64>> =
        lines.map(|line| line.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect()).collect();
    assert!(!reads.is_empty(), "the record has no part {part}");
    reads
}
