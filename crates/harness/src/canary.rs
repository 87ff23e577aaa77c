//! Canaries: short fixed kernels that are timed between batches.

use std::collections::BTreeMap;

use kelvin_model::{CANARY_CHAIN_MULTIPLIES, Canary};
use kelvin_sys::clock::Clock;
use kelvin_sys::kernels;
use kelvin_sys::memory::{Pages, Ring};

/// Adds of one reading of the block canary.
const BLOCK_ADDS: u64 = 16384;
/// Bytes that the cache canary walks through: more than any L1, less than any L2.
const CACHE_BYTES: usize = 128 << 10;
/// Loads per reading of the cache canary: an eighth of the ring. Each reading continues where the last stopped, so no
/// line is still in L1 when it is loaded again.
const CACHE_HOPS: u64 = 256;
/// System calls of one reading of the kernel canary.
const KERNEL_CALLS: u64 = 8;

/// The canaries of one process and the column of readings that they fill.
pub(crate) struct Canaries {
    clock: Clock,
    nanoseconds_per_tick: f64,
    ring: RingState,
    enabled: bool,
    seed: u64,
}

/// The memory of the cache canary. It is mapped at the first reading, because a process's mappings add to the cost of
/// its forks.
enum RingState {
    Unmade,
    Made(Ring),
    /// Allocation failed: the canary is absent from the data.
    Impossible,
}

impl Canaries {
    pub(crate) fn new(clock: Clock, nanoseconds_per_tick: f64, enabled: bool, seed: u64) -> Self {
        Self { clock, nanoseconds_per_tick, ring: RingState::Unmade, enabled, seed }
    }

    /// The canaries of another thread, with separate memory.
    pub(crate) fn of_another_thread(&self) -> Self {
        Self::new(self.clock, self.nanoseconds_per_tick, self.enabled, self.seed)
    }

    /// Whether they are read at all.
    pub(crate) fn are_read(&self) -> bool {
        self.enabled
    }

    /// Times every canary of `wanted` once and appends to its column.
    pub(crate) fn read(&mut self, wanted: kelvin_model::Canaries, columns: &mut BTreeMap<Canary, Vec<f32>>) {
        self.read_each(wanted, |canary, nanoseconds| columns.entry(canary).or_default().push(nanoseconds));
    }

    /// Times every canary of `wanted` once, and gives each reading in nanoseconds to `keep`.
    pub(crate) fn read_each(&mut self, wanted: kelvin_model::Canaries, mut keep: impl FnMut(Canary, f32)) {
        if !self.enabled {
            return;
        }
        for canary in wanted.iter() {
            if let Some(nanoseconds) = self.time(canary) {
                keep(canary, nanoseconds);
            }
        }
    }

    fn time(&mut self, canary: Canary) -> Option<f32> {
        let clock = self.clock;
        // The work before may have evicted even the canary's instructions: run a little of it untimed first.
        kernels::chain_multiply(1);
        kernels::independent_adds(1);
        let ticks = match canary {
            Canary::Chain => {
                timed(clock, || kernels::chain_multiply(u64::from(CANARY_CHAIN_MULTIPLIES) / kernels::CHAIN))
            }
            Canary::Block => timed(clock, || kernels::independent_adds(BLOCK_ADDS / kernels::BLOCK)),
            Canary::Cache => self.time_cache()?,
            Canary::Kernel => {
                // Cold caches left by the work must not look like a disturbance: warm the kernel entry path first,
                // untimed.
                std::hint::black_box(kernels::null_system_calls(KERNEL_CALLS));
                timed(clock, || {
                    std::hint::black_box(kernels::null_system_calls(KERNEL_CALLS));
                })
            }
        };
        Some((ticks as f64 * self.nanoseconds_per_tick) as f32)
    }

    fn time_cache(&mut self) -> Option<u64> {
        if matches!(self.ring, RingState::Unmade) {
            self.ring = Ring::new(CACHE_BYTES, Pages::Base, self.seed).map_or(RingState::Impossible, RingState::Made);
        }
        let RingState::Made(ring) = &mut self.ring else { return None };
        Some(timed(self.clock, || ring.chase(CACHE_HOPS)))
    }
}

#[inline(always)]
fn timed(clock: Clock, work: impl FnOnce()) -> u64 {
    let begun = clock.start();
    work();
    clock.stop() - begun
}
