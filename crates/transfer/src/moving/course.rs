//! How far one range of a file has been moved.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;

use kelvin_sys::net::moving::{Follows, Part};

/// Who wants to see the bytes that are moved, in order, after each call. The methods that show none do not call it.
pub type Seen<'a> = Option<&'a mut dyn FnMut(&[u8])>;

/// A range of a file on its way.
pub(super) struct Course<'a, 'seen> {
    pub file: &'a File,
    /// Where the next byte is in the file.
    pub next: u64,
    pub end: u64,
    /// Bytes that have gone into the socket, or come out of it.
    pub moved: u64,
    seen: Seen<'seen>,
}

impl<'a, 'seen> Course<'a, 'seen> {
    pub fn new(file: &'a File, range: Range<u64>, seen: Seen<'seen>) -> Self {
        Self { file, next: range.start, end: range.end.max(range.start), moved: 0, seen }
    }

    /// Bytes that are still to be moved.
    pub fn left(&self) -> u64 {
        self.end - self.next
    }

    /// The same, but at most so many.
    pub fn at_most(&self, bytes: usize) -> usize {
        usize::try_from(self.left()).unwrap_or(usize::MAX).min(bytes)
    }

    /// The next bytes, as many of these as are left.
    pub fn part(&self, bytes: usize) -> Part<'a> {
        Part { file: self.file, offset: self.next, bytes: self.at_most(bytes) }
    }

    /// Whether more follows the next so many bytes.
    pub fn follows(&self, bytes: usize) -> Follows {
        self.follows_until(self.next + bytes as u64)
    }

    /// Whether more follows what ends at this place in the file.
    pub fn follows_until(&self, place: u64) -> Follows {
        if place < self.end { Follows::More } else { Follows::Nothing }
    }

    /// So many bytes have gone from the file into the socket.
    pub fn sent(&mut self, bytes: usize) {
        self.next += bytes as u64;
        self.moved += bytes as u64;
    }

    /// So many bytes have come out of the socket.
    pub fn taken(&mut self, bytes: usize) {
        self.moved += bytes as u64;
    }

    /// So many bytes have gone into the file.
    pub fn written(&mut self, bytes: usize) {
        self.next += bytes as u64;
    }

    pub fn is_seen(&self) -> bool {
        self.seen.is_some()
    }

    pub fn see(&mut self, bytes: &[u8]) {
        if let Some(seen) = &mut self.seen {
            seen(bytes);
        }
    }
}

/// EFAULT of errno(3) on Linux: what is mapped there is not to be had.
pub(super) fn is_fault(error: &Error) -> bool {
    const FAULT: i32 = 14;
    error.raw_os_error() == Some(FAULT)
}

/// A call that moves at least one byte.
pub(super) fn some(moved: usize) -> Result<usize> {
    if moved == 0 { Err(ErrorKind::WriteZero.into()) } else { Ok(moved) }
}
