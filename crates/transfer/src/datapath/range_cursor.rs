//! How far one range of a file has been moved.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::ops::Range;

use kelvin_sys::net::transfer_call::{FileSlice, MoreFollows, PageAccess};

/// Who wants to see the bytes that are moved, in order, after each call. The methods that show none do not call it.
pub type ByteObserver<'a> = Option<&'a mut dyn FnMut(&[u8])>;

/// A range of a file that is being moved.
pub struct RangeCursor<'a, 'observer> {
    pub file: &'a File,
    /// Whether the file is read and sent, or received and written.
    pub access: PageAccess,
    /// Where the next byte is in the file.
    pub offset: u64,
    pub end: u64,
    /// Bytes that have gone into the socket, or come out of it.
    pub moved: u64,
    observer: ByteObserver<'observer>,
}

impl<'a, 'observer> RangeCursor<'a, 'observer> {
    pub fn new(file: &'a File, access: PageAccess, range: Range<u64>, observer: ByteObserver<'observer>) -> Self {
        Self { file, access, offset: range.start, end: range.end.max(range.start), moved: 0, observer }
    }

    /// Bytes that are still to be moved.
    pub fn remaining(&self) -> u64 {
        self.end - self.offset
    }

    /// Like `remaining`, but at most this many.
    pub fn remaining_up_to(&self, bytes: usize) -> usize {
        usize::try_from(self.remaining()).unwrap_or(usize::MAX).min(bytes)
    }

    /// The next bytes, as many of these as are left.
    pub fn next_part(&self, bytes: usize) -> FileSlice<'a> {
        FileSlice { file: self.file, offset: self.offset, bytes: self.remaining_up_to(bytes) }
    }

    /// Whether more follows the next this many bytes.
    pub fn more_follows(&self, bytes: usize) -> MoreFollows {
        self.more_follows_at(self.offset + bytes as u64)
    }

    /// Whether more follows what ends at this place in the file.
    pub fn more_follows_at(&self, position: u64) -> MoreFollows {
        if position < self.end { MoreFollows::Yes } else { MoreFollows::No }
    }

    /// This many bytes have come from the file or out of the socket, and go on from a buffer.
    pub fn mark_filled(&mut self, bytes: usize) {
        self.moved += if self.access == PageAccess::Write { bytes as u64 } else { 0 };
    }

    /// This many of them have gone on, into the socket or the file.
    pub fn mark_drained(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.moved += if self.access == PageAccess::Read { bytes as u64 } else { 0 };
    }

    /// This many bytes have gone between the file and the socket by one call.
    pub fn mark_moved(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.moved += bytes as u64;
    }

    pub fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    pub fn observe(&mut self, bytes: &[u8]) {
        if let Some(observer) = &mut self.observer {
            observer(bytes);
        }
    }
}

/// A call that moves at least one byte.
pub fn nonzero(moved: usize) -> Result<usize> {
    if moved == 0 { Err(ErrorKind::WriteZero.into()) } else { Ok(moved) }
}
