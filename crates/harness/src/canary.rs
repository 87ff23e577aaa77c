//! Canaries: short fixed kernels that are timed between batches.

use std::collections::BTreeMap;

use kelvin_model::{CANARY_CHAIN_MULTIPLIES, Canary};
use kelvin_sys::clock::Clock;
use kelvin_sys::kernels;
use kelvin_sys::memory::{Pages, Ring};

/// Adds of one reading of the block canary.
const BLOCK_ADDS: u64 = 16384;
/// Bytes that the cache canary walks through: more than any first-level cache, less than any second-level one.
const CACHE_BYTES: usize = 128 << 10;
/// Hops of one reading of the cache canary: an eighth of the ring, and each reading goes on where the last one stopped,
/// so that no line is still in the first level when its turn comes again.
const CACHE_HOPS: u64 = 256;
/// Bytes that the shared-cache canary walks through: more than most second-level caches, and so little of a last-level one
/// that what it guards keeps its place there.
const SHARED_BYTES: usize = 2 << 20;
/// Hops of one reading of it: a hundred and twenty-eighth of the ring, so that a line has long left the inner caches when
/// its turn comes again.
const SHARED_HOPS: u64 = 256;
/// Bytes that the memory canary walks through, a line in each 4096 of them, in huge pages where there are any: so many that translations are missed
/// as well, which on a virtual machine is most of what disturbs (of 16 MiB it saw nothing, of 64 MiB it followed nine tenths
/// of what befell 256 MiB). Each line that it has read is flushed afterwards: it is in no cache next time, and takes no
/// place in one.
const MEMORY_BYTES: usize = 64 << 20;
/// Hops of one reading of it: a load from memory varies by a fifth, and the mean of so many by a hundredth.
const MEMORY_HOPS: u64 = 512;
/// System calls of one reading of the kernel canary.
const KERNEL_CALLS: u64 = 8;

/// The canaries of one process and the column of readings that they fill.
pub(crate) struct Canaries {
    clock: Clock,
    nanoseconds_per_tick: f64,
    cache: RingState,
    shared: RingState,
    memory: RingState,
    enabled: bool,
    seed: u64,
}

/// The memory of a canary. It is made when first read, because what a process maps is part of what forks cost.
enum RingState {
    Unmade,
    Made(Ring),
    /// There was no memory for it: the canary is absent from the data, which says so by itself.
    Impossible,
}

impl RingState {
    fn made(&mut self, make: impl FnOnce() -> kelvin_sys::Result<Ring>) -> Option<&mut Ring> {
        if matches!(self, Self::Unmade) {
            *self = make().map_or(Self::Impossible, Self::Made);
        }
        match self {
            Self::Made(ring) => Some(ring),
            _ => None,
        }
    }
}

impl Canaries {
    pub(crate) fn new(clock: Clock, nanoseconds_per_tick: f64, enabled: bool, seed: u64) -> Self {
        let unmade = || RingState::Unmade;
        let (cache, shared, memory) = (unmade(), unmade(), unmade());
        Self { clock, nanoseconds_per_tick, cache, shared, memory, enabled, seed }
    }

    /// Times every canary of `wanted` once and appends to its column.
    pub(crate) fn read(&mut self, wanted: kelvin_model::Canaries, columns: &mut BTreeMap<Canary, Vec<f32>>) {
        if !self.enabled {
            return;
        }
        for canary in wanted.iter() {
            if let Some(nanoseconds) = self.time(canary) {
                columns.entry(canary).or_default().push(nanoseconds);
            }
        }
    }

    fn time(&mut self, canary: Canary) -> Option<f32> {
        let clock = self.clock;
        // What was measured before may have left even the canary's own instructions cold: a little of it goes first,
        // untimed.
        kernels::chain_multiply(1);
        kernels::independent_adds(1);
        let ticks = match canary {
            Canary::Chain => {
                timed(clock, || kernels::chain_multiply(u64::from(CANARY_CHAIN_MULTIPLIES) / kernels::CHAIN))
            }
            Canary::Block => timed(clock, || kernels::independent_adds(BLOCK_ADDS / kernels::BLOCK)),
            Canary::Cache => self.time_cache()?,
            Canary::Kernel => {
                // Work that leaves cold caches behind must not look like a disturbance: the way into the kernel is
                // warmed first, untimed.
                std::hint::black_box(kernels::null_system_calls(KERNEL_CALLS));
                timed(clock, || {
                    std::hint::black_box(kernels::null_system_calls(KERNEL_CALLS));
                })
            }
            Canary::Shared => self.time_shared()?,
            Canary::Memory => self.time_memory()?,
        };
        Some((ticks as f64 * self.nanoseconds_per_tick) as f32)
    }

    fn time_cache(&mut self) -> Option<u64> {
        let ring = self.cache.made(|| Ring::new(CACHE_BYTES, Pages::Base, self.seed))?;
        Some(timed(self.clock, || ring.chase(CACHE_HOPS)))
    }

    fn time_shared(&mut self) -> Option<u64> {
        let ring = self.shared.made(|| Ring::new(SHARED_BYTES, Pages::Huge, self.seed))?;
        Some(timed(self.clock, || ring.chase(SHARED_HOPS)))
    }

    fn time_memory(&mut self) -> Option<u64> {
        let ring = self.memory.made(|| {
            let ring = Ring::one_line_a_page(MEMORY_BYTES / 4096, Pages::Huge, self.seed)?;
            ring.evict_followed(ring.offset(), ring.lines() as u64);
            Ok(ring)
        })?;
        let begun = ring.offset();
        let ticks = timed(self.clock, || ring.chase(MEMORY_HOPS));
        ring.evict_followed(begun, MEMORY_HOPS);
        Some(ticks)
    }
}

#[inline(always)]
fn timed(clock: Clock, work: impl FnOnce()) -> u64 {
    let begun = clock.start();
    work();
    clock.stop() - begun
}
