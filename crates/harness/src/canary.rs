//! Canaries: short fixed kernels that are timed between batches.

use std::collections::BTreeMap;

use kelvin_core::{CANARY_CHAIN_MULTIPLIES, Canary};
use kelvin_sys::clock::Clock;
use kelvin_sys::kernels;

/// Turns of the block in one reading of its canary: 16384 adds.
const BLOCK_ITERATIONS: u64 = 16384 / kernels::BLOCK_LENGTH;
/// Turns of the chain in one reading of its canary.
const CHAIN_ITERATIONS: u64 = CANARY_CHAIN_MULTIPLIES as u64 / kernels::CHAIN_LENGTH;

/// The canaries of one process.
#[derive(Clone, Copy)]
pub(crate) struct CanaryReader {
    clock: Clock,
    nanoseconds_per_tick: f64,
    /// Whether they are read at all.
    pub(crate) is_enabled: bool,
}

impl CanaryReader {
    pub(crate) fn new(clock: Clock, nanoseconds_per_tick: f64, is_enabled: bool) -> Self {
        Self { clock, nanoseconds_per_tick, is_enabled }
    }

    /// Times every canary of `canaries` once and appends to its column.
    pub(crate) fn read(&self, canaries: kelvin_core::Canaries, columns: &mut BTreeMap<Canary, Vec<f32>>) {
        self.read_each(canaries, |canary, nanoseconds| columns.entry(canary).or_default().push(nanoseconds));
    }

    /// Times every canary of `canaries` once, and gives each reading in nanoseconds to `record`.
    pub(crate) fn read_each(&self, canaries: kelvin_core::Canaries, mut record: impl FnMut(Canary, f32)) {
        if !self.is_enabled {
            return;
        }
        for canary in canaries.iter() {
            let ticks = match canary {
                Canary::Chain => warm_kernel_ticks(self.clock, CHAIN_ITERATIONS, kernels::chain_multiply),
                Canary::Block => warm_kernel_ticks(self.clock, BLOCK_ITERATIONS, kernels::independent_adds),
            };
            record(canary, (ticks as f64 * self.nanoseconds_per_tick) as f32);
        }
    }
}

/// Ticks of this many turns of a kernel. What was measured before may have evicted the instructions of the kernel and of reading the clock;
/// a turn before brings them back.
fn warm_kernel_ticks(clock: Clock, iterations: u64, kernel: impl Fn(u64)) -> u64 {
    kernel_ticks(clock, 1, &kernel);
    kernel_ticks(clock, iterations, &kernel)
}

/// Not inlined: a copy of the instructions would not be brought back by running another.
#[inline(never)]
fn kernel_ticks(clock: Clock, iterations: u64, kernel: &impl Fn(u64)) -> u64 {
    let start = clock.start();
    kernel(iterations);
    clock.stop() - start
}
