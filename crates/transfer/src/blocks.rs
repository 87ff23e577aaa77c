//! The blocks of a file: which of them have arrived.

use crate::message::Piece;
use crate::{Error, Result};

/// Bytes of a block: what is verified, sent again and gone on from as a whole. Its digest costs a hundred-thousandth of it to
/// send, and what is lost of it when a connection ends is sent again in a moment.
pub const BLOCK: u64 = 4 << 20;
/// Most blocks of a file: those of 64 TiB, whose bits are 2 MiB.
const MOST: u64 = 1 << 24;

/// What a sender did wrong.
const OUT_OF_ORDER: &str = "it sent bytes of a file out of order";
const BEYOND: &str = "it sent bytes beyond the end of a file or of a block";

/// How many blocks a file has.
pub fn count(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK)
}

/// Whether a bit is set.
pub fn bit(bits: &[u8], index: u64) -> bool {
    bits.get((index / 8) as usize).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// Sets a bit of so many bytes.
pub fn set_bit(bits: &mut [u8], index: u64) {
    bits[(index / 8) as usize] |= 1 << (index % 8);
}

/// How many blocks there are up to the last one whose bit is set.
pub fn end(bits: &[u8]) -> u64 {
    let last = bits.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |last| 8 * last as u64 + u64::from(8 - bits[last].leading_zeros()))
}

/// Which blocks of a file have arrived, and how far the one that is arriving is.
#[derive(Debug)]
pub struct Blocks {
    /// Its size; none until the end of one whose size is unknown, which comes in order.
    bytes: Option<u64>,
    done: Vec<u8>,
    missing: u64,
    /// The end of what arrived last.
    end: u64,
    /// Blocks that are arriving over other streams.
    claimed: Vec<u64>,
}

impl Blocks {
    /// The size of the file, if it is known.
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// None of a file of this size, or of an unknown one.
    ///
    /// # Errors
    /// A file of too many blocks.
    pub fn new(bytes: Option<u64>) -> Result<Self> {
        let blocks = count(bytes.unwrap_or_default());
        if blocks > MOST {
            return Err(Error::Refused(format!("it has more than {} TiB", (MOST * BLOCK) >> 40)));
        }
        // An empty file has no block, and is whole when its one empty piece has come.
        let missing = if bytes.is_some() { blocks.max(1) } else { 1 };
        Ok(Self { bytes, done: vec![0; blocks.div_ceil(8) as usize], missing, end: 0, claimed: Vec::new() })
    }

    /// These blocks are there already; says how many bytes that are.
    pub fn keep(&mut self, bits: &[u8]) -> u64 {
        let bytes = self.bytes.unwrap_or_default();
        let mut kept = 0;
        for block in (0..count(bytes)).filter(|block| bit(bits, *block)) {
            self.finish(block);
            kept += (bytes - block * BLOCK).min(BLOCK);
        }
        kept
    }

    /// A piece has arrived.
    ///
    /// # Errors
    /// One that is not the rest of a block or its beginning, or is there already.
    pub fn take(&mut self, piece: &Piece) -> Result<()> {
        let (first, end) = (piece.offset, piece.offset.checked_add(piece.bytes.into()).ok_or(Error::Nonsense(BEYOND))?);
        let Some(bytes) = self.bytes else {
            if first != self.end {
                return Err(Error::Nonsense(OUT_OF_ORDER));
            }
            self.end = end;
            self.missing -= u64::from(piece.is_last);
            return Ok(());
        };
        let block = first / BLOCK;
        let end_of_block = (block * BLOCK).saturating_add(BLOCK).min(bytes);
        if end > end_of_block || (first == end && bytes > 0) {
            return Err(Error::Nonsense(BEYOND));
        }
        let is_next = first == block * BLOCK || first == self.end;
        if !is_next || !self.is_free(block) || self.missing == 0 {
            return Err(Error::Nonsense(OUT_OF_ORDER));
        }
        self.end = end;
        if end == end_of_block {
            self.finish(block);
        }
        Ok(())
    }

    /// A whole block is arriving over another stream than the first.
    ///
    /// # Errors
    /// One that is none, or is arriving already, or there.
    pub fn claim(&mut self, piece: &Piece) -> Result<()> {
        let bytes = self.bytes.unwrap_or_default();
        let (block, first) = (piece.offset / BLOCK, piece.offset);
        if first % BLOCK != 0 || first >= bytes || u64::from(piece.bytes) != BLOCK.min(bytes - first) {
            return Err(Error::Nonsense(BEYOND));
        }
        let is_arriving = self.end > first && self.end < first + u64::from(piece.bytes);
        if is_arriving || !self.is_free(block) {
            return Err(Error::Nonsense(OUT_OF_ORDER));
        }
        self.claimed.push(block);
        Ok(())
    }

    /// A claimed block is there.
    pub fn arrived(&mut self, piece: &Piece) {
        let block = piece.offset / BLOCK;
        self.claimed.retain(|claimed| *claimed != block);
        self.finish(block);
    }

    fn is_free(&self, block: u64) -> bool {
        !bit(&self.done, block) && !self.claimed.contains(&block)
    }

    fn finish(&mut self, block: u64) {
        if bit(&self.done, block) {
            return;
        }
        if count(self.bytes.unwrap_or_default()) > 0 {
            set_bit(&mut self.done, block);
        }
        self.missing -= 1;
    }

    /// Whether all have arrived.
    pub fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Whether any has.
    pub fn has_any(&self) -> bool {
        self.done.iter().any(|bits| *bits != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, bytes: u64) -> Piece {
        Piece { file: 0, offset, bytes: bytes as u32, is_last: false }
    }

    #[test]
    fn a_file_is_whole_when_each_of_its_blocks_is() {
        let mut blocks = Blocks::new(Some(2 * BLOCK + 5)).unwrap();
        blocks.take(&piece(BLOCK, 7)).unwrap();
        assert!(!blocks.has_any());
        blocks.take(&piece(BLOCK + 7, BLOCK - 7)).unwrap();
        blocks.take(&piece(2 * BLOCK, 5)).unwrap();
        assert!(blocks.has_any() && !blocks.is_whole());
        blocks.take(&piece(0, BLOCK)).unwrap();
        assert!(blocks.is_whole());
        assert!(blocks.take(&piece(0, BLOCK)).is_err());
    }

    #[test]
    fn an_empty_file_and_one_of_unknown_size_end_by_their_last_piece() {
        let mut empty = Blocks::new(Some(0)).unwrap();
        assert!(!empty.is_whole());
        empty.take(&piece(0, 0)).unwrap();
        assert!(empty.is_whole() && empty.take(&piece(0, 0)).is_err());
        let mut stream = Blocks::new(None).unwrap();
        stream.take(&piece(0, 3 * BLOCK)).unwrap();
        assert!(stream.take(&piece(0, 1)).is_err());
        stream.take(&Piece { is_last: true, ..piece(3 * BLOCK, 0) }).unwrap();
        assert!(stream.is_whole());
    }

    #[test]
    fn a_block_is_claimed_once_and_whole() {
        let mut blocks = Blocks::new(Some(3 * BLOCK + 5)).unwrap();
        for wrong in
            [piece(1, BLOCK), piece(0, BLOCK - 1), piece(3 * BLOCK, 6), piece(4 * BLOCK, 0), piece(u64::MAX, 1)]
        {
            assert!(blocks.claim(&wrong).is_err(), "{wrong:?}");
        }
        assert!(Blocks::new(None).unwrap().claim(&piece(0, BLOCK)).is_err());
        blocks.claim(&piece(0, BLOCK)).unwrap();
        assert!(blocks.claim(&piece(0, BLOCK)).is_err() && blocks.take(&piece(0, 7)).is_err());
        // One that is arriving over the first stream is not claimed.
        blocks.take(&piece(BLOCK, 7)).unwrap();
        assert!(blocks.claim(&piece(BLOCK, BLOCK)).is_err());
        blocks.take(&piece(BLOCK + 7, BLOCK - 7)).unwrap();
        blocks.claim(&piece(2 * BLOCK, BLOCK)).unwrap();
        blocks.take(&piece(3 * BLOCK, 5)).unwrap();
        blocks.arrived(&piece(0, BLOCK));
        assert!(!blocks.is_whole());
        blocks.arrived(&piece(2 * BLOCK, BLOCK));
        assert!(blocks.is_whole() && blocks.claim(&piece(0, BLOCK)).is_err());
    }

    #[test]
    fn the_last_bit_is_where_the_blocks_end() {
        for (bits, expected) in [(&[][..], 0), (&[0, 0], 0), (&[1], 1), (&[0xff, 0], 8), (&[0, 0b0010_0001, 0], 14)] {
            assert_eq!(end(bits), expected, "{bits:?}");
        }
    }

    #[test]
    fn what_is_kept_is_not_missing() {
        let mut blocks = Blocks::new(Some(3 * BLOCK)).unwrap();
        assert_eq!(blocks.keep(&[0b1111_0101]), 2 * BLOCK);
        assert!(!blocks.is_whole());
        assert!(blocks.take(&piece(2 * BLOCK, 1)).is_err());
        blocks.take(&piece(BLOCK, BLOCK)).unwrap();
        assert!(blocks.is_whole());
    }

    #[test]
    fn pieces_out_of_order_or_beyond_the_end_are_refused() {
        let new = || Blocks::new(Some(BLOCK + 100)).unwrap();
        for wrong in [piece(1, 5), piece(0, BLOCK + 1), piece(BLOCK, 101), piece(BLOCK + 100, 0), piece(0, 0)] {
            assert!(new().take(&wrong).is_err(), "{wrong:?}");
        }
        assert!(new().take(&piece(u64::MAX, 5)).is_err());
        assert!(new().take(&piece(u64::MAX - 5, 5)).is_err());
        assert!(Blocks::new(Some(u64::MAX)).is_err());
    }
}
