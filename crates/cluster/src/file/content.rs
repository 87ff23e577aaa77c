//! The content of blocks: random numbers that are the same for a rank, with the place of each page stamped into it.
//!
//! A stamp is all that differs from block to block, so that a block is made in no measurable part of the time in which it is written. Still no
//! two pages are equal: a file system that stores equal pages once, or that compresses, gains nothing.

use kelvin_file::random_data::RandomData;
use kelvin_sys::random::split_mix;

/// Bytes of a page: the unit of page caches, and of the stamps.
const PAGE_BYTES: usize = 4096;
/// Bytes of a stamp.
const STAMP_BYTES: usize = 8;

/// Bytes of a line of a processor's cache, on most.
const CACHE_LINE_BYTES: usize = 64;

/// Blocks of one rank.
#[derive(Debug)]
pub struct Content {
    seed: u64,
}

impl Content {
    /// The blocks that a rank writes in a job with this seed.
    pub fn new(job_seed: u64, rank: usize) -> Self {
        let mut state = job_seed ^ (rank as u64).rotate_left(32);
        Self { seed: split_mix(&mut state) }
    }

    /// Fills a block with all that its blocks have in common.
    pub fn fill(&self, block: &mut [u8]) {
        RandomData::fill_at(self.seed, 0, block);
    }

    /// Makes it the block at this offset of a file. It was filled before.
    pub fn stamp(&self, offset: u64, block: &mut [u8]) {
        for (page, bytes) in block.chunks_mut(PAGE_BYTES).enumerate() {
            let mut state = self.seed.wrapping_add(offset + (page * PAGE_BYTES) as u64);
            let stamp = split_mix(&mut state).to_le_bytes();
            let length = STAMP_BYTES.min(bytes.len());
            // Stamps at the beginning of each page would share a set of the processor's cache, and push each other out.
            let place = (page * CACHE_LINE_BYTES % PAGE_BYTES).min(bytes.len() - length);
            bytes[place..place + length].copy_from_slice(&stamp[..length]);
        }
    }

    /// Where a block that was read first differs from the expected one, in bytes from its beginning.
    pub fn first_difference(expected: &[u8], block: &[u8]) -> Option<usize> {
        // Whole slices compare many times faster than bytes one by one, and hardly any differ.
        (expected != block)
            .then(|| expected.iter().zip(block).position(|(expected, byte)| expected != byte).unwrap_or(block.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn block(content: &Content, offset: u64, bytes: usize) -> Vec<u8> {
        let mut block = vec![0; bytes];
        content.fill(&mut block);
        content.stamp(offset, &mut block);
        block
    }

    #[test]
    fn no_two_pages_are_equal() {
        let mut pages = BTreeSet::new();
        for rank in 0..4 {
            let content = Content::new(7, rank);
            for number in 0..16 {
                let block = block(&content, number * 16_384, 16_384);
                pages.extend(block.chunks(PAGE_BYTES).map(<[u8]>::to_vec));
            }
        }
        assert_eq!(pages.len(), 4 * 16 * 4);
    }

    #[test]
    fn block_depends_on_seed_rank_and_offset_alone() {
        let reference = block(&Content::new(7, 2), 8192, 5000);
        let mut reused = vec![0; 5000];
        let content = Content::new(7, 2);
        content.fill(&mut reused);
        content.stamp(0, &mut reused);
        content.stamp(8192, &mut reused);
        assert_eq!(reused, reference);
        for (seed, rank, offset) in [(8, 2, 8192), (7, 3, 8192), (7, 2, 0)] {
            assert_ne!(block(&Content::new(seed, rank), offset, 5000), reference);
        }
    }

    #[test]
    fn first_wrong_byte_is_found() {
        let expected = block(&Content::new(1, 0), 0, 10_000);
        assert_eq!(Content::first_difference(&expected, &expected), None);
        for wrong in [0, 4095, 4096, 9999] {
            let mut read = expected.clone();
            read[wrong] ^= 1;
            assert_eq!(Content::first_difference(&expected, &read), Some(wrong));
        }
        assert_eq!(Content::first_difference(&expected, &expected[..9000]), Some(9000));
    }
}
