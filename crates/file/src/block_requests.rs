//! The blocks of a file to request, and their order.

use std::ops::Range;

use kelvin_sys::random::{GOLDEN_GAMMA, split_mix};

/// The order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOrder {
    /// One after another, from the beginning.
    Sequential,
    /// Every block once, in an order that the seed chooses; another one at each pass.
    Random {
        /// Chooses the order.
        seed: u64,
    },
}

impl BlockOrder {
    /// That of one of several parts: each has another one.
    pub(crate) fn of_part(self, number: u64) -> Self {
        match self {
            Self::Sequential => Self::Sequential,
            Self::Random { seed } => Self::Random { seed: seed.wrapping_add(number) },
        }
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes: a block, or less at the end of the file.
    pub bytes: usize,
}

/// Requests for a part of a file: every block of it once, then from the beginning again, for as many passes as wanted.
#[derive(Clone, Debug)]
pub struct BlockRequests {
    range: Range<u64>,
    block: usize,
    blocks: u64,
    order: BlockOrder,
    passes: u64,
    pass: u64,
    /// Requests still to be made, independent of passes.
    remaining: u64,
    /// Blocks of this pass already requested.
    position: u64,
    /// None of a sequential order.
    shuffle: Option<Permutation>,
}

impl BlockRequests {
    /// One pass over the bytes `range` of a file in blocks of `block` bytes, which must not be 0.
    pub fn new(range: Range<u64>, block: usize, order: BlockOrder) -> Self {
        let blocks = (range.end.saturating_sub(range.start)).div_ceil(block.max(1) as u64);
        Self {
            range,
            block: block.max(1),
            blocks,
            order,
            passes: 1,
            pass: 0,
            remaining: u64::MAX,
            position: 0,
            shuffle: pass_permutation(order, 0, blocks),
        }
    }

    /// As many passes.
    pub fn passes(mut self, passes: u64) -> Self {
        self.passes = passes;
        self
    }

    /// No more than this many requests.
    pub fn limit(mut self, count: u64) -> Self {
        self.remaining = count;
        self
    }

    /// Allows this many more, and then none until it is called again: to continue where the last one ended.
    pub fn extend_limit(&mut self, count: u64) {
        self.remaining = count;
    }

    /// Passes without end.
    pub fn endless(self) -> Self {
        self.passes(u64::MAX)
    }

    /// Bytes of a block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Blocks of one pass.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Passes that are complete.
    pub fn complete_passes(&self) -> u64 {
        self.pass
    }

    /// The part of the file that they cover, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

fn pass_permutation(order: BlockOrder, pass: u64, blocks: u64) -> Option<Permutation> {
    let BlockOrder::Random { seed } = order else { return None };
    Some(Permutation::new(blocks, seed.wrapping_add(pass.wrapping_mul(GOLDEN_GAMMA))))
}

impl Iterator for BlockRequests {
    type Item = BlockRequest;

    #[inline]
    fn next(&mut self) -> Option<BlockRequest> {
        if self.pass == self.passes || self.blocks == 0 || self.remaining == 0 {
            return None;
        }
        self.remaining -= 1;
        let block = self.shuffle.as_ref().map_or(self.position, |shuffle| shuffle.permute(self.position));
        self.position += 1;
        if self.position == self.blocks {
            self.position = 0;
            self.pass += 1;
            self.shuffle = pass_permutation(self.order, self.pass, self.blocks);
        }
        let offset = self.range.start + block * self.block as u64;
        let bytes = (self.range.end - offset).min(self.block as u64) as usize;
        Some(BlockRequest { offset, bytes })
    }
}

/// A permutation of 0..n that needs no memory. It is a Feistel network over the next even number of bits, walked until it falls
/// inside (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
#[derive(Clone, Debug)]
struct Permutation {
    count: u64,
    half: u32,
    keys: [u64; 4],
}

impl Permutation {
    fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let mut state = seed;
        let keys = std::array::from_fn(|_| split_mix(&mut state));
        Self { count, half: bits.div_ceil(2).max(1), keys }
    }

    /// Where the element of this index lies.
    #[inline]
    fn permute(&self, index: u64) -> u64 {
        let mut place = index;
        loop {
            place = self.feistel_pass(place);
            if place < self.count {
                return place;
            }
        }
    }

    #[inline]
    fn feistel_pass(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (value >> self.half, value & mask);
        for key in self.keys {
            let round = (right ^ key).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
            (left, right) = (right, left ^ ((round >> 33) & mask));
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn last_block_is_remainder() {
        let requests: Vec<BlockRequest> = BlockRequests::new(0..10, 4, BlockOrder::Sequential).collect();
        let expected = [(0, 4), (4, 4), (8, 2)];
        assert_eq!(requests, expected.map(|(offset, bytes)| BlockRequest { offset, bytes }));
        assert_eq!(BlockRequests::new(0..10, 4, BlockOrder::Sequential).endless().limit(7).count(), 7);
        assert_eq!(BlockRequests::new(0..0, 4, BlockOrder::Sequential).endless().next(), None);
    }

    #[test]
    fn limited_requests_resume_in_order() {
        let mut requests = BlockRequests::new(0..30, 10, BlockOrder::Sequential).endless();
        let mut next = |count| {
            requests.extend_limit(count);
            requests.by_ref().map(|request| request.offset).collect::<Vec<_>>()
        };
        assert_eq!((next(2), next(0), next(3)), (vec![0, 10], vec![], vec![20, 0, 10]));
    }

    #[test]
    fn random_passes_have_different_orders() {
        let mut requests = BlockRequests::new(100..200, 10, BlockOrder::Random { seed: 3 }).passes(2);
        let first: Vec<u64> = requests.by_ref().take(10).map(|request| request.offset).collect();
        assert_eq!(requests.complete_passes(), 1);
        let second: Vec<u64> = requests.map(|request| request.offset).collect();
        assert_ne!(first, second);
        let sorted = |mut offsets: Vec<u64>| {
            offsets.sort_unstable();
            offsets
        };
        let expected: Vec<u64> = (100..200).step_by(10).collect();
        assert_eq!((sorted(first), sorted(second)), (expected.clone(), expected));
    }

    #[test]
    fn random_order_is_unbiased() {
        // Of 65536 places in random order, neighbours follow one another about once in 65536, and the mean distance of
        // neighbours is a third of the range (deviation of the mean: 0.236 / 256 of it).
        let count = 1 << 16;
        let offsets: Vec<u64> =
            BlockRequests::new(0..count, 1, BlockOrder::Random { seed: 42 }).map(|request| request.offset).collect();
        let adjacent = offsets.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(adjacent < 10, "{adjacent}");
        let distance: f64 = offsets.windows(2).map(|pair| pair[1].abs_diff(pair[0]) as f64).sum::<f64>()
            / (offsets.len() - 1) as f64
            / count as f64;
        assert!((distance - 1.0 / 3.0).abs() < 0.005, "{distance}");
    }

    proptest! {
        #[test]
        fn every_byte_is_requested_once(start in 0u64..50, bytes in 0u64..3000, block in 1usize..200, seed: u64, random: bool) {
            let order = if random { BlockOrder::Random { seed } } else { BlockOrder::Sequential };
            let mut request_counts = vec![0u8; (start + bytes) as usize];
            for request in BlockRequests::new(start..start + bytes, block, order) {
                let first = request.offset as usize;
                request_counts[first..first + request.bytes].iter_mut().for_each(|count| *count += 1);
            }
            prop_assert!(request_counts[..start as usize].iter().all(|&count| count == 0));
            prop_assert!(request_counts[start as usize..].iter().all(|&count| count == 1));
        }
    }
}
