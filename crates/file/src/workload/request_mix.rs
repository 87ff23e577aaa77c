//! The requests of a job, one after another: direction, offset and size of each.

use std::ops::Range;

use kelvin_sys::random::split_mix;
use kelvin_sys::uring::IoDirection;

use super::{BlockSizes, ByDirection, Job, JobOrder, Mix};
use crate::block_requests::{BlockOrder, BlockRequest, BlockRequests};

/// A request of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MixedRequest {
    pub(super) direction: IoDirection,
    pub(super) block: BlockRequest,
}

/// The requests of a job for a part of a file.
#[derive(Clone, Debug)]
pub(super) struct RequestMix {
    mix: Mix,
    region: Range<u64>,
    blocks: ByDirection<BlockSizes>,
    order: Order,
    random: u64,
    /// Bytes still to be requested.
    remaining: u64,
}

#[derive(Clone, Debug)]
enum Order {
    /// Reads one after another, and writes one after another, each from the beginning.
    Sequential(ByDirection<u64>),
    /// Each place of the smallest block once a pass, for whichever direction.
    Permutation(BlockRequests),
    /// Any of so many places of the smallest block, which has so many bytes.
    Independent { places: u64, block: u64 },
}

impl RequestMix {
    /// Requests of a job for `region` of its file, which has whole blocks of the smallest size.
    pub(super) fn new(job: &Job, region: Range<u64>) -> Self {
        let smallest = job.blocks.smallest();
        let order = match job.order {
            JobOrder::Sequential => Order::Sequential(ByDirection::both(region.start)),
            JobOrder::RandomPermutation => {
                let order = BlockOrder::Random { seed: job.seed };
                Order::Permutation(BlockRequests::new(region.clone(), smallest, order).endless())
            }
            JobOrder::RandomIndependent => {
                let block = smallest as u64;
                Order::Independent { places: (region.end - region.start).div_ceil(block), block }
            }
        };
        let remaining = (region.end - region.start).saturating_mul(job.end.loops);
        Self { mix: job.mix, region, blocks: job.blocks.clone(), order, random: job.seed ^ !0, remaining }
    }

    /// A number of 0 to 1, below 1.
    fn chance(&mut self) -> f64 {
        (split_mix(&mut self.random) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below this, by multiplication (Lemire, 2019): each probability is exact to 2^-64.
    fn number_below(&mut self, bound: u64) -> u64 {
        ((u128::from(split_mix(&mut self.random)) * u128::from(bound)) >> 64) as u64
    }

    fn direction(&mut self) -> IoDirection {
        let reads = match self.mix {
            Mix::Reads => true,
            Mix::Writes => false,
            Mix::Both { read_percent } => self.chance() * 100.0 < f64::from(read_percent),
        };
        if reads { IoDirection::Read } else { IoDirection::Write }
    }
}

impl Iterator for RequestMix {
    type Item = MixedRequest;

    fn next(&mut self) -> Option<MixedRequest> {
        if self.remaining == 0 {
            return None;
        }
        let direction = self.direction();
        let chance = if self.blocks.of(direction).is_single() { 0.0 } else { self.chance() };
        let size = self.blocks.of(direction).choose(chance) as u64;
        let offset = match &mut self.order {
            Order::Sequential(cursors) => *cursors.of(direction),
            Order::Permutation(places) => places.next()?.offset,
            &mut Order::Independent { places, block } => self.region.start + self.number_below(places) * block,
        };
        let bytes = size.min(self.region.end - offset).min(self.remaining);
        if let Order::Sequential(cursors) = &mut self.order {
            let end = offset + bytes;
            *cursors.of_mut(direction) = if end == self.region.end { self.region.start } else { end };
        }
        if self.remaining != u64::MAX {
            self.remaining -= bytes;
        }
        Some(MixedRequest { direction, block: BlockRequest { offset, bytes: bytes as usize } })
    }
}
