//! The levels of the memory hierarchy.

use kelvin_core::Interval;

use super::*;

/// The levels of the memory hierarchy, found from the latency of loads against the working set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLevels {
    /// Id of the metric whose curve they were read from.
    pub metric: Name,
    /// The levels with base pages, innermost first; a single one where the curve has no step.
    pub levels: Vec<MemoryLevel>,
    /// The additional cost of base pages over huge ones, if both were measured.
    pub translation: Option<TranslationCost>,
    /// One sentence for each level, each reported cache without a level, and translation.
    pub conclusions: Vec<StatedConclusion>,
}

/// One level: a plateau of the curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLevel {
    /// `L1`, `L2`, `L3` or `DRAM`.
    pub name: String,
    /// Median latency over its working sets, in nanoseconds; of those alone that are known where some are.
    pub latency: f64,
    /// From the lowest to the highest interval over its working sets, in nanoseconds.
    pub interval: Interval,
    /// The smallest working set on the plateau, in bytes.
    pub from_bytes: u64,
    /// The largest working set on the plateau, in bytes.
    pub to_bytes: u64,
    /// Working sets between which it ends; `None` for the last one, whose end was not measured.
    pub capacity: Option<LevelCapacity>,
    /// The cache that the machine reports for it, in bytes.
    pub reported_bytes: Option<u64>,
    /// Whether the reported size lies within the capacity; `None` without either.
    pub matches_reported: Option<bool>,
}

/// Two working sets between which a level ends, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LevelCapacity {
    /// The largest one that still fits: by its latency at most a quarter of the loads miss.
    pub low: u64,
    /// The smallest one that does not: by its latency at least half of the loads miss.
    pub high: u64,
}

impl LevelCapacity {
    /// Whether a cache of this size would end so.
    pub fn contains(&self, bytes: u64) -> bool {
        (self.low..=self.high).contains(&bytes)
    }
}

/// The additional cost of base pages over huge ones at the same working set: TLB misses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TranslationCost {
    /// The largest working set that was measured with both, in bytes.
    pub bytes: u64,
    /// Latency there with base pages, in nanoseconds.
    pub base: f64,
    /// Latency there with huge pages, in nanoseconds.
    pub huge: f64,
    /// Whether base pages are certainly slower there.
    pub disjoint: bool,
    /// The smallest working set at which they are slower by a tenth or more, in bytes.
    pub visible_from: Option<u64>,
}
