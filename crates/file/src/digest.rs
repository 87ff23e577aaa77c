//! The XOR of all 32-bit little-endian words of a file, from blocks in any order.

use std::fmt;
use std::ops::ControlFlow;

use kelvin_sys::kernels::xor;

use crate::block_requests::BlockRequest;
use crate::observer::Observer;

/// The XOR of all 32-bit little-endian words of the added bytes; an incomplete last word is padded with zeros.
///
/// It detects accidental errors of reading; it is no protection against an attacker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u32);

impl Digest {
    /// Adds a block that begins at `offset`, in any order of blocks and wherever they begin.
    #[inline(always)]
    pub fn add(&mut self, offset: u64, block: &[u8]) {
        // The bytes of a block that begins inside a word are shifted by as much in theirs.
        self.0 ^= xor(block).rotate_left(8 * (offset % 4) as u32);
    }

    /// Adds another one of other blocks.
    pub fn merge(&mut self, other: Self) {
        self.0 ^= other.0;
    }

    /// Its value.
    pub fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:08x}", self.0)
    }
}

/// Adds the digest to another observer.
#[derive(Clone, Copy, Debug, Default)]
pub struct DigestObserver<O> {
    /// The other one.
    pub inner: O,
    /// The digest so far.
    pub digest: Digest,
}

impl<O: Observer> Observer for DigestObserver<O> {
    type Stamp = O::Stamp;

    #[inline(always)]
    fn begin(&mut self) -> O::Stamp {
        self.inner.begin()
    }

    #[inline(always)]
    fn end(&mut self, stamp: O::Stamp, request: BlockRequest, data: &[u8]) -> ControlFlow<()> {
        self.digest.add(request.offset, data);
        self.inner.end(stamp, request, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_requests::{BlockOrder, BlockRequests};
    use proptest::prelude::*;

    /// The definition: zeros after the end, words from the beginning.
    fn reference_digest(bytes: &[u8]) -> u32 {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0);
        padded.chunks_exact(4).fold(0, |sum, word| sum ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    }

    #[test]
    fn digest_of_known_blocks() {
        let digest_text = |bytes: &[u8]| {
            let mut digest = Digest::default();
            digest.add(0, bytes);
            digest.to_string()
        };
        assert_eq!(digest_text(b""), "00000000");
        assert_eq!(digest_text(b"a"), "00000061");
        assert_eq!(digest_text(b"abcd"), "64636261");
        assert_eq!(digest_text(b"abcdabcd"), "00000000");
        assert_eq!(digest_text(b"abcde"), "64636204");
    }

    proptest! {
        #[test]
        fn digest_is_independent_of_block_order(bytes: Vec<u8>, block in 1usize..300, seed: u64) {
            let mut digest = Digest::default();
            for request in BlockRequests::new(0..bytes.len() as u64, block, BlockOrder::Random { seed }) {
                digest.add(request.offset, &bytes[request.offset as usize..][..request.bytes]);
            }
            prop_assert_eq!(digest.value(), reference_digest(&bytes));
        }
    }
}
