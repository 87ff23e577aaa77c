//! What rank 0 writes of a file system to the file of results: plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::layout::Layout;
use super::task::{Activity, WrongBlock};

/// What is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilePlan {
    /// The directory that the user named.
    pub directory: PathBuf,
    /// The kind of its file system.
    pub file_system: String,
    /// Whether its files are in memory only.
    pub is_in_memory: bool,
    /// Data of each rank, in bytes.
    pub part_bytes: u64,
    /// Data of a call, in bytes.
    pub block_bytes: usize,
    /// Whether the data goes past the page cache (O_DIRECT).
    pub is_direct: bool,
    /// How the data lies in files.
    pub layouts: Vec<Layout>,
    /// Files without content of each rank.
    pub files: u64,
    /// How often all of it is measured.
    pub passes: usize,
    /// Relative difference from which on a rank is slow, and a rate is less than that of as many ranks alone.
    pub tolerance: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FileEvent {
    /// The memory of the host of each rank, in bytes.
    Memory {
        /// In order of the ranks.
        bytes: Vec<u64>,
    },
    /// Ranks did the same at once.
    Step(Step),
    /// The data of a step was compared with what was written, and is the same.
    Verified {
        /// How it lies in files.
        layout: Layout,
        /// The pass, from 1.
        pass: usize,
        /// Ranks that wrote and read it.
        ranks: usize,
        /// Seconds of the slowest of them.
        seconds: f64,
    },
    /// A block is not what was written.
    WrongBlock {
        /// The rank that read it.
        reader: usize,
        /// The block.
        wrong: WrongBlock,
    },
}

/// What ranks did at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What they did.
    pub activity: Activity,
    /// The pass, from 1.
    pub pass: usize,
    /// Of each rank: bytes, or files.
    pub amount: u64,
    /// When each did it.
    pub parts: Vec<RankTime>,
    /// These times are wrong by at most this, in seconds.
    pub clock_error_s: f64,
}

/// When a rank did its part of a step, in seconds since the first rank began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankTime {
    /// The rank.
    pub rank: usize,
    /// The rank whose part it was.
    pub writer: usize,
    /// Its beginning.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Of which the flush at the end took this long, in seconds.
    pub flush_s: f64,
    /// The part of what was read that lay in the page cache of its kernel before; unknown of what is not read.
    pub cached_share: Option<f64>,
}

impl RankTime {
    /// How long it took, in seconds.
    pub fn seconds(&self) -> f64 {
        self.end_s - self.start_s
    }
}

impl Step {
    /// The rank that began first is at 0. Returns when the last one ended.
    pub fn seconds(&self) -> f64 {
        self.parts.iter().map(|part| part.end_s).fold(0.0, f64::max)
    }

    /// What all ranks did together for each second from the beginning of the first to the end of the last, as IOR defines a bandwidth.
    pub fn rate(&self) -> f64 {
        self.amount as f64 * self.parts.len() as f64 / self.seconds()
    }

    /// The first rank to end, and the last one.
    pub fn finishers(&self) -> Option<[RankTime; 2]> {
        let by_end = |first: &&RankTime, second: &&RankTime| first.end_s.total_cmp(&second.end_s);
        Some([*self.parts.iter().min_by(by_end)?, *self.parts.iter().max_by(by_end)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::task::{DataOperation, MetadataOperation, Sharing};

    #[test]
    fn rate_is_from_the_first_beginning_to_the_last_end() {
        let part =
            |rank, start_s, end_s| RankTime { rank, writer: rank, start_s, end_s, flush_s: 0.0, cached_share: None };
        let step = Step {
            activity: Activity::Data { operation: DataOperation::Write, layout: Layout::Own },
            pass: 1,
            amount: 1000,
            parts: vec![part(0, 0.0, 2.0), part(2, 0.5, 4.0), part(1, 0.1, 3.0)],
            clock_error_s: 0.0,
        };
        assert_eq!(step.seconds(), 4.0);
        assert_eq!(step.rate(), 750.0);
        assert_eq!(step.finishers().unwrap().map(|part| part.rank), [0, 2]);
        assert_eq!(step.parts[1].seconds(), 3.5);
    }

    #[test]
    fn line_of_a_step_is_read_again() {
        let activity = Activity::Metadata { operation: MetadataOperation::Stat, sharing: Sharing::Shared };
        let event = FileEvent::Step(Step { activity, pass: 2, amount: 7, parts: Vec::new(), clock_error_s: 1e-5 });
        let line = serde_json::to_string(&event).unwrap();
        let expected = r#"{"event":"step","activity":{"metadata":{"operation":"stat","sharing":"shared"}},"pass":2,"amount":7,"parts":[],"clock_error_s":0.00001}"#;
        assert_eq!(line, expected);
        assert_eq!(serde_json::from_str::<FileEvent>(&line).unwrap(), event);
    }
}
