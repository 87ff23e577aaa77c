//! Claims on the transfer of files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Estimate, MetricValue};
use crate::{Case, Name};

/// A claim on what decides how long a transfer takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransferClaim {
    /// One factor, changed alone, makes transfers shorter, or longer.
    Factor {
        /// Which.
        factor: TransferFactor,
        /// What is common to all transfers with the usual value, without the files.
        base: Case,
        /// Like `base`, with the other value.
        other: Case,
        /// Files by files, the smallest first.
        by_files: Vec<FactorOverFiles>,
        /// Whether they were written to a file system in memory, whose pages have no blocks.
        in_memory: bool,
    },
    /// What mmap gains over read/write as published is the gain of more bytes in each call, not of mapping.
    Gain {
        /// Files by files, the smallest first.
        by_files: Vec<GainOverFiles>,
    },
    /// The method of one end decides, that of the other does not.
    Ends {
        /// What is common, and the files.
        fixed: Case,
        /// The time with mmap over that with read/write at the sender, and at the receiver, over both methods of the other end.
        ends: [Estimate; 2],
        /// How many times as much mmap at one end changes where the other end has it too.
        interaction: Estimate,
        /// Whether the receiver's method changes more than the sender's; `None` where that is not certain.
        receiver_decides: Option<bool>,
        /// Whether the published means say so, where there are some.
        published: Option<bool>,
    },
}

/// A factor of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransferFactor {
    /// mmap at both ends in place of read/write.
    Mmap,
    /// More bytes in each call.
    CallBytes,
    /// A larger window.
    Window,
    /// A connection for each file.
    ConnectionPerFile,
    /// A reply to each file before the next.
    Replies,
    /// Another way to wait.
    Mode,
    /// Another method of sending.
    Sender,
    /// Another method of receiving.
    Receiver,
    /// Files that are not in memory.
    ColdCache,
}

impl TransferFactor {
    /// Whether the claim is that it makes transfers shorter, rather than longer.
    pub const fn is_gain(self) -> bool {
        matches!(self, Self::Mmap | Self::CallBytes | Self::Window | Self::Sender | Self::Receiver)
    }
}

/// A factor over one set of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactorOverFiles {
    /// The set.
    pub files: Name,
    /// With the usual value, and with the other.
    pub sides: [MetricValue; 2],
    /// The time with the other value over that with the usual one.
    pub ratio: Estimate,
    /// What the ratio says.
    pub change: TimeChange,
    /// Nanoseconds that each file, or each further connection, costs by it, where it is a cost for each.
    pub per_file: Option<Estimate>,
    /// The ratio of the published means, where there are some.
    pub published: Option<f64>,
}

/// What mmap gains over read/write with few bytes a call, in two parts: the ratios of both multiply to the whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GainOverFiles {
    /// The set.
    pub files: Name,
    /// The time with mmap over that of read/write with few bytes a call.
    pub whole: Estimate,
    /// Of read/write alone, with as many bytes a call as a window has over few bytes.
    pub by_bytes: Estimate,
    /// With mmap over that of read/write with as many bytes a call.
    pub by_mapping: Estimate,
    /// The whole by the published means.
    pub published: Option<f64>,
}

/// What a ratio of times says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeChange {
    /// All of its interval is within the margin around 1.
    Same,
    /// All of its interval is below 1.
    Shorter,
    /// All of its interval is above 1.
    Longer,
    /// The data does not decide.
    NotKnown,
}

impl TimeChange {
    /// Distance from 1 within which two times are the same: less than the two halves of a run often differ by.
    pub const EQUIVALENCE_MARGIN: f64 = 0.05;

    /// What a ratio with its interval says.
    pub fn from_ratio(ratio: &Estimate) -> Self {
        let is_within = !ratio.is_range
            && ratio.low >= 1.0 - Self::EQUIVALENCE_MARGIN
            && ratio.high <= 1.0 + Self::EQUIVALENCE_MARGIN;
        match ratio.is_above(1.0) {
            _ if is_within => Self::Same,
            Some(true) => Self::Longer,
            Some(false) => Self::Shorter,
            None => Self::NotKnown,
        }
    }

    /// What a ratio of published means says: there is no interval.
    pub fn from_published_ratio(ratio: f64) -> Self {
        Self::from_ratio(&Estimate::exact(ratio))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_same_only_within_margin() {
        let change = |low, high| {
            TimeChange::from_ratio(&Estimate { value: f64::midpoint(low, high), low, high, is_range: false })
        };
        assert_eq!([change(0.96, 1.04), change(1.01, 1.04)], [TimeChange::Same; 2]);
        assert_eq!([change(1.01, 1.2), change(0.3, 0.99)], [TimeChange::Longer, TimeChange::Shorter]);
        assert_eq!([change(0.9, 1.2), change(0.96, 1.06)], [TimeChange::NotKnown; 2]);
        assert_eq!(
            [1.04, 1.06, 0.3].map(TimeChange::from_published_ratio),
            [TimeChange::Same, TimeChange::Longer, TimeChange::Shorter]
        );
    }
}
