//! Raw readings of one metric in one round, as timed: nothing subtracted, nothing dropped.

use std::collections::BTreeMap;
use std::ops::{BitOr, BitOrAssign};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Id;
use crate::{Canary, Name};

/// The readings of one metric that one round made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricReadings {
    /// Id of the metric.
    #[schemars(with = "Id")]
    pub metric: Name,
    /// The raw values.
    pub readings: Readings,
    /// The overhead, measured in the same process.
    pub overhead: OverheadReading,
    /// Remarks for the reader: counters that prove the claim, degradations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the processor counted, where it has counters and they may be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<CountedOperations>,
}

/// What the processor counted while the operations of a metric were repeated, apart from their timing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountedOperations {
    /// Operations.
    pub operations: u64,
    /// Events of all of them together.
    pub events: BTreeMap<HardwareEvent, u64>,
    /// Whether what the kernel does for them was left out, because it may not be counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excludes_kernel: bool,
}

/// What a processor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HardwareEvent {
    /// Cycles of the core, at whatever frequency it runs.
    Cycles,
    /// Instructions retired.
    Instructions,
    /// Loads and stores that the last-level cache did not hold, as the processor counts them.
    LastLevelMisses,
    /// Loads whose page the data TLB did not hold.
    TlbMisses,
    /// Branches that were predicted wrong.
    BranchMisses,
}

impl HardwareEvent {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] =
        [Self::Cycles, Self::Instructions, Self::LastLevelMisses, Self::TlbMisses, Self::BranchMisses];

    /// Its type and number in the interface of the kernel: linux/perf_event.h, `perf_type_id` and `perf_hw_id`; misses of the TLB are of
    /// the type of caches, whose number has the cache, the operation and the result in a byte each.
    pub const fn kernel_numbers(self) -> (u32, u64) {
        const HARDWARE: u32 = 0;
        const CACHE: u32 = 3;
        const DATA_TLB_READ_MISS: u64 = 3 | 1 << 16;
        match self {
            Self::Cycles => (HARDWARE, 0),
            Self::Instructions => (HARDWARE, 1),
            Self::LastLevelMisses => (HARDWARE, 3),
            Self::TlbMisses => (CACHE, DATA_TLB_READ_MISS),
            Self::BranchMisses => (HARDWARE, 5),
        }
    }

    /// In words, of several.
    pub fn words(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::LastLevelMisses => "misses of the last-level cache",
            Self::TlbMisses => "misses of the data TLB",
            Self::BranchMisses => "mispredicted branches",
        }
    }
}

/// How often an event happens in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventRate {
    /// The event.
    pub event: HardwareEvent,
    /// Events of one operation, the median over rounds.
    pub per_operation: f64,
}

/// Raw values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Readings {
    /// Timed batches, or operations timed one by one (then `iterations` is 1).
    Batches(Batches),
    /// Values already in the metric's unit, from counters or whole-round figures: one or a few a round.
    Scalars(Vec<f64>),
}

/// Timed batches, a column each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Batches {
    /// Operations of each batch.
    pub iterations: Vec<u64>,
    /// Raw time of each batch, in nanoseconds.
    pub nanoseconds: Vec<f64>,
    /// Cause tags of each batch.
    pub tags: Vec<SampleTags>,
    /// Bytes, or other units of work, that one operation moves; 0 where the metric is a duration.
    #[serde(default)]
    pub work_per_iteration: f64,
    /// Batches between two readings of the canaries; 1 is a reading between any two batches.
    pub canary_stride: usize,
    /// For each canary its times in nanoseconds: one before the first batch, then one after every `canary_stride`
    /// batches and after the last one.
    pub canaries: BTreeMap<Canary, Vec<f32>>,
}

impl Batches {
    /// Number of batches.
    pub fn len(&self) -> usize {
        self.nanoseconds.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nanoseconds.is_empty()
    }

    /// The two readings of a canary on either side of a batch, if the canary was read.
    pub fn neighbours(&self, canary: Canary, batch: usize) -> Option<(f32, f32)> {
        let readings = self.canaries.get(&canary)?;
        let index = batch / self.canary_stride.max(1);
        Some((*readings.get(index)?, *readings.get(index + 1)?))
    }
}

/// The cost of measuring, measured in the same process as the batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverheadReading {
    /// Median of the empty clock pair, in nanoseconds.
    pub clock_pair: f64,
    /// One iteration of a minimal counted loop, in nanoseconds.
    pub loop_iteration: f64,
}

/// A set of cause tags of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SampleTags(u8);

impl SampleTags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Taken while warming up: kept, not summarised.
    pub const WARM_UP: Self = Self(1);
    /// The thread was preempted (involuntary context switch).
    pub const PREEMPTED: Self = Self(2);
    /// The thread moved to another CPU.
    pub const MIGRATED: Self = Self(4);
    /// The hypervisor stole time from the CPU.
    pub const STOLEN: Self = Self(8);
    /// The cgroup's CPU quota ran out.
    pub const THROTTLED: Self = Self(16);
    /// A page fault went to the disk.
    pub const MAJOR_FAULT: Self = Self(32);
    /// Taken beyond the time planned for its round, which went on until the core was undisturbed: no part of what was found.
    pub const AWAITED: Self = Self(64);
    /// Every cause that spoils a sample on its own.
    pub const CONTAMINATED: Self = Self(2 | 4 | 8 | 16 | 32);
    /// Contamination of work that sleeps or yields the CPU on purpose, where a preemption is part of the work.
    pub const CONTAMINATED_UNLESS_PREEMPTED: Self = Self(4 | 8 | 16 | 32);

    /// Names of the single tags, for people.
    pub const NAMES: [(SampleTags, &'static str); 7] = [
        (Self::WARM_UP, "warm-up"),
        (Self::PREEMPTED, "preempted"),
        (Self::MIGRATED, "migrated"),
        (Self::STOLEN, "stolen"),
        (Self::THROTTLED, "throttled"),
        (Self::MAJOR_FAULT, "major fault"),
        (Self::AWAITED, "awaited"),
    ];

    /// Whether any of these tags is set.
    pub const fn intersects(self, tags: SampleTags) -> bool {
        self.0 & tags.0 != 0
    }
}

impl BitOr for SampleTags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for SampleTags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
