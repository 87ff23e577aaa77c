//! A block that can be checked by itself: it begins with its offset, its pass and a digest of all of it.

use kelvin_sys::random::GOLDEN_GAMMA;

use crate::random_data::RandomData;

/// The first bytes of such a block.
const MAGIC: u64 = u64::from_le_bytes(*b"kelvinB1");
/// Bytes before the data: magic, digest, offset, pass, length.
const HEAD_BYTES: usize = 40;
/// Where the digest lies.
const DIGEST_PLACE: std::ops::Range<usize> = 8..16;
/// Bytes of a block at least, so that it has data besides what it is checked by.
pub const MIN_VERIFIED_BLOCK: usize = 64;

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockIdentity {
    /// Where in the file it belongs.
    pub(super) offset: u64,
    /// How often its place was written, this time included.
    pub(super) pass: u64,
}

/// Fills a buffer with the block of this identity, of random data that a seed chooses.
pub(super) fn fill(seed: u64, identity: BlockIdentity, block: &mut [u8]) {
    let (head, data) = block.split_at_mut(HEAD_BYTES);
    let data_seed = seed ^ identity.pass.wrapping_mul(GOLDEN_GAMMA);
    RandomData::fill_at(data_seed, identity.offset & !7, data);
    let length = (head.len() + data.len()) as u64;
    let words = [MAGIC, 0, identity.offset, identity.pass, length];
    for (place, word) in head.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    let digest = digest(block);
    block[DIGEST_PLACE].copy_from_slice(&digest.to_le_bytes());
}

/// Checks a block that was read at an offset: of this pass, or of any.
///
/// # Errors
/// What is there instead.
pub(super) fn check(offset: u64, pass: Option<u64>, block: &[u8]) -> Result<(), String> {
    let word = |number: usize| u64::from_le_bytes(block[8 * number..][..8].try_into().unwrap_or_default());
    if word(0) != MAGIC {
        let what = if block.iter().all(|&byte| byte == 0) { "zeros" } else { "something else" };
        return Err(format!("{what} in place of a written block"));
    }
    if word(1) != digest(block) {
        return Err(format!(
            "the digest is {:016x}, and that of its bytes {:016x}: it is damaged or torn",
            word(1),
            digest(block)
        ));
    }
    if word(2) != offset || word(4) != block.len() as u64 {
        return Err(format!("the block of {} bytes that belongs at offset {}", word(4), word(2)));
    }
    match pass {
        Some(pass) if pass != word(3) => {
            Err(format!("what write {} of this place left, and not write {pass}", word(3)))
        }
        _ => Ok(()),
    }
}

/// A digest of a block without its own eight bytes. Each word is mixed with all before it: what is lost, swapped or changed shows but once in 2^64.
fn digest(block: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xFF51_AFD7_ED55_8CCD;
    let mix = |state: u64, word: u64| {
        let mixed = (state ^ word).wrapping_mul(MULTIPLIER);
        mixed ^ (mixed >> 32)
    };
    let (words, rest) = block.as_chunks::<8>();
    let others = words.iter().enumerate().filter(|&(number, _)| number != DIGEST_PLACE.start / 8);
    let state = others.fold(GOLDEN_GAMMA, |state, (_, word)| mix(state, u64::from_le_bytes(*word)));
    rest.iter().fold(state, |state, &byte| mix(state, u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        let identity = BlockIdentity { offset: 8192, pass: 3 };
        for bytes in [64, 100, 4096] {
            let mut block = vec![0; bytes];
            fill(1, identity, &mut block);
            assert_eq!(check(8192, Some(3), &block), Ok(()));
            assert_eq!(check(8192, None, &block), Ok(()));
            for place in 0..bytes {
                block[place] ^= 0x10;
                assert!(check(8192, Some(3), &block).is_err(), "byte {place} of {bytes}");
                block[place] ^= 0x10;
            }
        }
    }

    #[test]
    fn misplaced_and_lost_writes_are_named() {
        let mut block = vec![0; 512];
        assert!(check(0, None, &block).unwrap_err().starts_with("zeros"));
        fill(1, BlockIdentity { offset: 512, pass: 1 }, &mut block);
        assert!(check(1024, Some(1), &block).unwrap_err().contains("belongs at offset 512"));
        assert!(check(512, Some(2), &block).unwrap_err().contains("write 1 of this place left, and not write 2"));
        block[300] = !block[300];
        assert!(check(512, Some(1), &block).unwrap_err().contains("torn"));
    }
}
