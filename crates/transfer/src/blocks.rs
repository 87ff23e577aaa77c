//! The blocks of a file: which of them have arrived.

use std::ops::Range;

use crate::message::FilePiece;
use crate::{Error, Result};

/// Bytes of a block: what is verified, sent again and gone on from as a whole. Its digest costs a hundred-thousandth of it to
/// send, and what is lost of it when a connection ends is sent again in a moment.
pub const BLOCK_BYTES: u64 = 4 << 20;
/// Bytes of a block of a file that is there in an older state, as long as it has no more than so many blocks: their bits fit into a
/// message. Its digest is a two-thousandth of it.
const CHANGED_BLOCK_BYTES: u64 = 64 << 10;
const MAX_CHANGED_BLOCKS: u64 = 1 << 18;
/// Most blocks of a file: those of 64 TiB, whose bits are 2 MiB.
const MAX_BLOCKS: u64 = 1 << 24;

/// What a sender did wrong.
const OUT_OF_ORDER: &str = "it sent bytes of a file out of order";
const BEYOND_END: &str = "it sent bytes beyond the end of a file or of a block";

/// Into which blocks a file is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    bytes: u64,
    block_bytes: u64,
}

impl BlockLayout {
    /// A file of this size.
    pub fn of_file(bytes: u64) -> Self {
        Self { bytes, block_bytes: BLOCK_BYTES }
    }

    /// A file of this size of which the receiver has an older state: in smaller blocks, of which fewer differ.
    pub fn of_changed_file(bytes: u64) -> Self {
        let is_fine = |block_bytes: &u64| bytes.div_ceil(*block_bytes) <= MAX_CHANGED_BLOCKS;
        let sizes = (CHANGED_BLOCK_BYTES.ilog2()..BLOCK_BYTES.ilog2()).map(|log| 1 << log);
        Self { bytes, block_bytes: sizes.into_iter().find(is_fine).unwrap_or(BLOCK_BYTES) }
    }

    /// The beginning of it, of this size.
    pub(crate) fn truncated(self, bytes: u64) -> Self {
        Self { bytes: self.bytes.min(bytes), ..self }
    }

    /// How many blocks there are.
    pub fn count(&self) -> u64 {
        self.bytes.div_ceil(self.block_bytes)
    }

    /// Where a block is.
    pub(crate) fn range(&self, block: u64) -> Range<u64> {
        block * self.block_bytes..self.bytes.min((block + 1) * self.block_bytes)
    }

    /// A bit for each block, none of them set.
    pub(crate) fn no_bits(&self) -> Vec<u8> {
        vec![0; self.count().div_ceil(8) as usize]
    }

    /// How many bytes are in blocks whose bit is set.
    pub(crate) fn present_bytes(&self, bits: &[u8]) -> u64 {
        let blocks = (0..self.count()).filter(|block| is_bit_set(bits, *block));
        blocks.map(|block| self.range(block)).map(|range| range.end - range.start).sum()
    }
}

/// The parts of a range of this many bytes at most: where each begins, and its bytes.
pub(crate) fn parts(range: Range<u64>, max_bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    range.clone().step_by(max_bytes as usize).map(move |offset| (offset, max_bytes.min(range.end - offset) as usize))
}

/// Whether a bit is set.
pub fn is_bit_set(bits: &[u8], index: u64) -> bool {
    bits.get((index / 8) as usize).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// Sets a bit of this many bytes.
pub fn set_bit(bits: &mut [u8], index: u64) {
    bits[(index / 8) as usize] |= 1 << (index % 8);
}

/// That a piece is no longer than a block.
///
/// # Errors
/// That it is.
pub fn check_piece_length(piece: &FilePiece) -> Result<()> {
    Error::ensure(u64::from(piece.bytes) <= BLOCK_BYTES, "a part of a block that is longer than a block")
}

/// How many blocks there are up to the last one whose bit is set.
pub fn last_block_end(bits: &[u8]) -> u64 {
    let last = bits.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |last| 8 * last as u64 + u64::from(8 - bits[last].leading_zeros()))
}

/// Which blocks of a file have arrived, and how far the one that is arriving is.
#[derive(Debug)]
pub struct BlockMap {
    /// Its size; none of one whose size is unknown, which comes in order.
    pub bytes: Option<u64>,
    layout: BlockLayout,
    arrived: Vec<u8>,
    missing: u64,
    /// The end of what arrived last.
    next_offset: u64,
    /// Blocks that are arriving over other streams.
    claimed: Vec<u64>,
}

impl BlockMap {
    /// None of a file of this size, or of an unknown one.
    ///
    /// # Errors
    /// A file of too many blocks.
    pub fn new(bytes: Option<u64>) -> Result<Self> {
        Self::with_layout(bytes, BlockLayout::of_file(bytes.unwrap_or_default()))
    }

    /// None of a file that is there in an older state.
    ///
    /// # Errors
    /// A file of too many blocks.
    pub fn of_changed_file(bytes: u64) -> Result<Self> {
        Self::with_layout(Some(bytes), BlockLayout::of_changed_file(bytes))
    }

    fn with_layout(bytes: Option<u64>, layout: BlockLayout) -> Result<Self> {
        let blocks = layout.count();
        if blocks > MAX_BLOCKS {
            return Err(Error::Refused(format!("it has more than {} TiB", (MAX_BLOCKS * BLOCK_BYTES) >> 40)));
        }
        // An empty file has no block, and is whole when its one empty piece has come.
        let missing = if bytes.is_some() { blocks.max(1) } else { 1 };
        Ok(Self { bytes, layout, arrived: layout.no_bits(), missing, next_offset: 0, claimed: Vec::new() })
    }

    /// These blocks are there already; returns how many bytes that are.
    pub fn mark_present(&mut self, bits: &[u8]) -> u64 {
        let blocks = 0..self.layout.count();
        blocks.filter(|block| is_bit_set(bits, *block)).for_each(|block| self.mark_arrived(block));
        self.layout.present_bytes(bits)
    }

    /// A piece has arrived.
    ///
    /// # Errors
    /// One that is not the rest of a block or its beginning, or is there already.
    pub fn record_piece(&mut self, piece: &FilePiece) -> Result<()> {
        let (first, end) =
            (piece.offset, piece.offset.checked_add(piece.bytes.into()).ok_or(Error::ProtocolViolation(BEYOND_END))?);
        let Some(bytes) = self.bytes else {
            Error::ensure(first == self.next_offset, OUT_OF_ORDER)?;
            self.next_offset = end;
            self.missing -= u64::from(piece.is_last);
            return Ok(());
        };
        let block_bytes = self.layout.block_bytes;
        let block = first / block_bytes;
        let end_of_block = (block * block_bytes).saturating_add(block_bytes).min(bytes);
        Error::ensure(end <= end_of_block && (first < end || bytes == 0), BEYOND_END)?;
        let is_next = first == block * block_bytes || first == self.next_offset;
        Error::ensure(is_next && self.is_unclaimed(block) && self.missing > 0, OUT_OF_ORDER)?;
        self.next_offset = end;
        if end == end_of_block {
            self.mark_arrived(block);
        }
        Ok(())
    }

    /// A whole block is arriving over another stream than the first.
    ///
    /// # Errors
    /// One that is none, or is arriving already, or there.
    pub fn claim(&mut self, piece: &FilePiece) -> Result<()> {
        let bytes = self.bytes.unwrap_or_default();
        Error::ensure(self.layout == BlockLayout::of_file(bytes), OUT_OF_ORDER)?;
        let (block, first) = (piece.offset / BLOCK_BYTES, piece.offset);
        let is_block =
            first % BLOCK_BYTES == 0 && first < bytes && u64::from(piece.bytes) == BLOCK_BYTES.min(bytes - first);
        Error::ensure(is_block, BEYOND_END)?;
        let is_arriving = self.next_offset > first && self.next_offset < first + u64::from(piece.bytes);
        Error::ensure(!is_arriving && self.is_unclaimed(block), OUT_OF_ORDER)?;
        self.claimed.push(block);
        Ok(())
    }

    /// A claimed block is there.
    pub fn complete_claim(&mut self, piece: &FilePiece) {
        let block = piece.offset / BLOCK_BYTES;
        self.claimed.retain(|claimed| *claimed != block);
        self.mark_arrived(block);
    }

    fn is_unclaimed(&self, block: u64) -> bool {
        !is_bit_set(&self.arrived, block) && !self.claimed.contains(&block)
    }

    fn mark_arrived(&mut self, block: u64) {
        if is_bit_set(&self.arrived, block) {
            return;
        }
        if self.layout.count() > 0 {
            set_bit(&mut self.arrived, block);
        }
        self.missing -= 1;
    }

    /// Whether all have arrived.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Whether any has.
    pub fn has_any(&self) -> bool {
        self.arrived.iter().any(|bits| *bits != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, bytes: u64) -> FilePiece {
        FilePiece { file: 0, offset, bytes: bytes as u32, is_last: false }
    }

    #[test]
    fn file_is_whole_with_all_blocks() {
        let mut blocks = BlockMap::new(Some(2 * BLOCK_BYTES + 5)).unwrap();
        blocks.record_piece(&piece(BLOCK_BYTES, 7)).unwrap();
        assert!(!blocks.has_any());
        blocks.record_piece(&piece(BLOCK_BYTES + 7, BLOCK_BYTES - 7)).unwrap();
        blocks.record_piece(&piece(2 * BLOCK_BYTES, 5)).unwrap();
        assert!(blocks.has_any() && !blocks.is_complete());
        blocks.record_piece(&piece(0, BLOCK_BYTES)).unwrap();
        assert!(blocks.is_complete());
        assert!(blocks.record_piece(&piece(0, BLOCK_BYTES)).is_err());
    }

    #[test]
    fn last_piece_ends_unsized_file() {
        let mut empty = BlockMap::new(Some(0)).unwrap();
        assert!(!empty.is_complete());
        empty.record_piece(&piece(0, 0)).unwrap();
        assert!(empty.is_complete() && empty.record_piece(&piece(0, 0)).is_err());
        let mut stream = BlockMap::new(None).unwrap();
        stream.record_piece(&piece(0, 3 * BLOCK_BYTES)).unwrap();
        assert!(stream.record_piece(&piece(0, 1)).is_err());
        stream.record_piece(&FilePiece { is_last: true, ..piece(3 * BLOCK_BYTES, 0) }).unwrap();
        assert!(stream.is_complete());
    }

    #[test]
    fn block_is_claimed_once_and_whole() {
        let mut blocks = BlockMap::new(Some(3 * BLOCK_BYTES + 5)).unwrap();
        for invalid_piece in [
            piece(1, BLOCK_BYTES),
            piece(0, BLOCK_BYTES - 1),
            piece(3 * BLOCK_BYTES, 6),
            piece(4 * BLOCK_BYTES, 0),
            piece(u64::MAX, 1),
        ] {
            assert!(blocks.claim(&invalid_piece).is_err(), "{invalid_piece:?}");
        }
        assert!(BlockMap::new(None).unwrap().claim(&piece(0, BLOCK_BYTES)).is_err());
        blocks.claim(&piece(0, BLOCK_BYTES)).unwrap();
        assert!(blocks.claim(&piece(0, BLOCK_BYTES)).is_err() && blocks.record_piece(&piece(0, 7)).is_err());
        // One that is arriving over the first stream is not claimed.
        blocks.record_piece(&piece(BLOCK_BYTES, 7)).unwrap();
        assert!(blocks.claim(&piece(BLOCK_BYTES, BLOCK_BYTES)).is_err());
        blocks.record_piece(&piece(BLOCK_BYTES + 7, BLOCK_BYTES - 7)).unwrap();
        blocks.claim(&piece(2 * BLOCK_BYTES, BLOCK_BYTES)).unwrap();
        blocks.record_piece(&piece(3 * BLOCK_BYTES, 5)).unwrap();
        blocks.complete_claim(&piece(0, BLOCK_BYTES));
        assert!(!blocks.is_complete());
        blocks.complete_claim(&piece(2 * BLOCK_BYTES, BLOCK_BYTES));
        assert!(blocks.is_complete() && blocks.claim(&piece(0, BLOCK_BYTES)).is_err());
    }

    #[test]
    fn last_block_end_is_last_set_bit() {
        for (bits, expected) in [(&[][..], 0), (&[0, 0], 0), (&[1], 1), (&[0xff, 0], 8), (&[0, 0b0010_0001, 0], 14)] {
            assert_eq!(last_block_end(bits), expected, "{bits:?}");
        }
    }

    #[test]
    fn present_blocks_are_not_missing() {
        let mut blocks = BlockMap::new(Some(3 * BLOCK_BYTES)).unwrap();
        assert_eq!(blocks.mark_present(&[0b1111_0101]), 2 * BLOCK_BYTES);
        assert!(!blocks.is_complete());
        assert!(blocks.record_piece(&piece(2 * BLOCK_BYTES, 1)).is_err());
        blocks.record_piece(&piece(BLOCK_BYTES, BLOCK_BYTES)).unwrap();
        assert!(blocks.is_complete());
    }

    #[test]
    fn changed_files_have_smaller_blocks() {
        let block_bytes = |bytes| BlockLayout::of_changed_file(bytes).block_bytes;
        assert_eq!(block_bytes(1_000_000_000), 64 << 10);
        assert_eq!([block_bytes(16 << 30), block_bytes((16 << 30) + 1)], [64 << 10, 128 << 10]);
        assert_eq!([block_bytes(1 << 40), block_bytes(u64::MAX)], [BLOCK_BYTES; 2]);
        let mut blocks = BlockMap::of_changed_file(3 * CHANGED_BLOCK_BYTES + 5).unwrap();
        assert_eq!(blocks.mark_present(&[0b1001]), CHANGED_BLOCK_BYTES + 5);
        assert!(blocks.record_piece(&piece(CHANGED_BLOCK_BYTES, CHANGED_BLOCK_BYTES + 1)).is_err());
        assert!(blocks.claim(&piece(CHANGED_BLOCK_BYTES, CHANGED_BLOCK_BYTES)).is_err());
        blocks.record_piece(&piece(2 * CHANGED_BLOCK_BYTES, CHANGED_BLOCK_BYTES)).unwrap();
        assert!(!blocks.is_complete());
        blocks.record_piece(&piece(CHANGED_BLOCK_BYTES, CHANGED_BLOCK_BYTES)).unwrap();
        assert!(blocks.is_complete());
    }

    #[test]
    fn invalid_pieces_are_refused() {
        let new = || BlockMap::new(Some(BLOCK_BYTES + 100)).unwrap();
        for invalid_piece in
            [piece(1, 5), piece(0, BLOCK_BYTES + 1), piece(BLOCK_BYTES, 101), piece(BLOCK_BYTES + 100, 0), piece(0, 0)]
        {
            assert!(new().record_piece(&invalid_piece).is_err(), "{invalid_piece:?}");
        }
        assert!(new().record_piece(&piece(u64::MAX, 5)).is_err());
        assert!(new().record_piece(&piece(u64::MAX - 5, 5)).is_err());
        assert!(BlockMap::new(Some(u64::MAX)).is_err());
    }
}
