//! The blocks of a file to request, and their order.

use std::ops::Range;

use kelvin_sys::random::{STEP, split_mix};

/// The order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after another, from the beginning.
    Sequential,
    /// Every block once, in an order that the seed chooses; another one at each pass.
    Random {
        /// Chooses the order.
        seed: u64,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes: a block, or less at the end of the file.
    pub bytes: usize,
}

/// Requests for a part of a file: every block of it once, then from the beginning again, for as many passes as wanted.
#[derive(Clone, Debug)]
pub struct Requests {
    range: Range<u64>,
    block: usize,
    blocks: u64,
    order: Order,
    passes: u64,
    pass: u64,
    /// Requests still to be made, whatever the passes.
    left: u64,
    /// Blocks of this pass already requested.
    position: u64,
    shuffle: Shuffle,
}

impl Requests {
    /// One pass over the bytes `range` of a file in blocks of `block` bytes, which must not be 0.
    pub fn new(range: Range<u64>, block: usize, order: Order) -> Self {
        let blocks = (range.end.saturating_sub(range.start)).div_ceil(block.max(1) as u64);
        Self {
            range,
            block: block.max(1),
            blocks,
            order,
            passes: 1,
            pass: 0,
            left: u64::MAX,
            position: 0,
            shuffle: shuffle(order, 0, blocks),
        }
    }

    /// As many passes.
    pub fn passes(mut self, passes: u64) -> Self {
        self.passes = passes;
        self
    }

    /// No more than this many requests.
    pub fn at_most(mut self, count: u64) -> Self {
        self.left = count;
        self
    }

    /// Allows this many more, and then none until it is called again: to continue where the last one ended.
    pub fn allow(&mut self, count: u64) {
        self.left = count;
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

fn shuffle(order: Order, pass: u64, blocks: u64) -> Shuffle {
    let seed = match order {
        Order::Sequential => 0,
        Order::Random { seed } => seed.wrapping_add(pass.wrapping_mul(STEP)),
    };
    Shuffle::new(blocks, seed)
}

impl Iterator for Requests {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        if self.pass == self.passes || self.blocks == 0 || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let block = match self.order {
            Order::Sequential => self.position,
            Order::Random { .. } => self.shuffle.place(self.position),
        };
        self.position += 1;
        if self.position == self.blocks {
            self.position = 0;
            self.pass += 1;
            self.shuffle = shuffle(self.order, self.pass, self.blocks);
        }
        let offset = self.range.start + block * self.block as u64;
        let bytes = (self.range.end - offset).min(self.block as u64) as usize;
        Some(Request { offset, bytes })
    }
}

/// A permutation of 0..n that needs no memory: a Feistel network over the next even number of bits, walked until it falls
/// inside (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
#[derive(Clone, Debug)]
struct Shuffle {
    count: u64,
    half: u32,
    keys: [u64; 4],
}

impl Shuffle {
    fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let mut state = seed;
        let keys = std::array::from_fn(|_| split_mix(&mut state));
        Self { count, half: bits.div_ceil(2).max(1), keys }
    }

    /// Where the element of this index lies.
    #[inline]
    fn place(&self, index: u64) -> u64 {
        let mut place = index;
        loop {
            place = self.once(place);
            if place < self.count {
                return place;
            }
        }
    }

    #[inline]
    fn once(&self, value: u64) -> u64 {
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
    fn the_last_block_is_what_is_left() {
        let requests: Vec<Request> = Requests::new(0..10, 4, Order::Sequential).collect();
        let expected = [(0, 4), (4, 4), (8, 2)];
        assert_eq!(requests, expected.map(|(offset, bytes)| Request { offset, bytes }));
        assert_eq!(Requests::new(0..10, 4, Order::Sequential).endless().at_most(7).count(), 7);
        assert_eq!(Requests::new(0..0, 4, Order::Sequential).endless().next(), None);
    }

    #[test]
    fn they_go_on_where_they_were_held() {
        let mut requests = Requests::new(0..30, 10, Order::Sequential).endless();
        let mut next = |count| {
            requests.allow(count);
            requests.by_ref().map(|request| request.offset).collect::<Vec<_>>()
        };
        assert_eq!((next(2), next(0), next(3)), (vec![0, 10], vec![], vec![20, 0, 10]));
    }

    #[test]
    fn passes_begin_anew_and_random_ones_differ() {
        let mut requests = Requests::new(100..200, 10, Order::Random { seed: 3 }).passes(2);
        let first: Vec<u64> = requests.by_ref().take(10).map(|request| request.offset).collect();
        assert_eq!(requests.complete_passes(), 1);
        let second: Vec<u64> = requests.map(|request| request.offset).collect();
        assert_ne!(first, second);
        let sorted = |mut places: Vec<u64>| {
            places.sort_unstable();
            places
        };
        let all: Vec<u64> = (100..200).step_by(10).collect();
        assert_eq!((sorted(first), sorted(second)), (all.clone(), all));
    }

    #[test]
    fn a_random_order_has_no_runs_and_no_bias() {
        // Of 65536 places in random order, neighbours follow one another about once in 65536, and the mean distance of
        // neighbours is a third of the range (deviation of the mean: 0.236 / 256 of it).
        let count = 1 << 16;
        let places: Vec<u64> =
            Requests::new(0..count, 1, Order::Random { seed: 42 }).map(|request| request.offset).collect();
        let following = places.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(following < 10, "{following}");
        let distance: f64 = places.windows(2).map(|pair| pair[1].abs_diff(pair[0]) as f64).sum::<f64>()
            / (places.len() - 1) as f64
            / count as f64;
        assert!((distance - 1.0 / 3.0).abs() < 0.005, "{distance}");
    }

    proptest! {
        #[test]
        fn every_byte_is_asked_for_once(start in 0u64..50, bytes in 0u64..3000, block in 1usize..200, seed: u64, random: bool) {
            let order = if random { Order::Random { seed } } else { Order::Sequential };
            let mut seen = vec![0u8; (start + bytes) as usize];
            for request in Requests::new(start..start + bytes, block, order) {
                let first = request.offset as usize;
                seen[first..first + request.bytes].iter_mut().for_each(|count| *count += 1);
            }
            prop_assert!(seen[..start as usize].iter().all(|&count| count == 0));
            prop_assert!(seen[start as usize..].iter().all(|&count| count == 1));
        }
    }
}
