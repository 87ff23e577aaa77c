//! Files sent from a mapping of a part of them, which the kernel alone reads: where a file has become shorter, that is an error of
//! the call and no signal.

use std::io::Result;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::transfer_call::{FileWindow, MoreFollows, PageAccess, TransferCall};

use crate::serve::body::FileRange;
use crate::serve::connection::Connection;
use crate::serve::open_file_cache::OpenFile;

/// Bytes that are mapped at a time, and most of one call, as by sendfile. A multiple of every page size.
const WINDOW_BYTES: u64 = 2 << 20;
/// The end of a part that is read instead, since behind its end a mapped file has zeros up to the end of a page: a part whose last
/// bytes could be read was there while those before them were sent.
const TAIL_BYTES: u64 = 4096;

/// A window on one file at a time.
#[derive(Debug, Default)]
pub struct MmapSender {
    window: Option<FileWindow>,
    /// What it shows: the file, unless that was closed meanwhile, and its bytes from which offset on.
    mapped: (Weak<OpenFile>, u64),
}

impl MmapSender {
    /// Sends some of a part, whose end was left to [`read_tail`].
    pub fn send(&mut self, part: &FileRange, socket: &impl AsFd) -> Result<usize> {
        let offset = part.range.start / WINDOW_BYTES * WINDOW_BYTES;
        let end = tail_start(part.range.end).min(offset + WINDOW_BYTES);
        let within = (part.range.start - offset) as usize..(end - offset) as usize;
        let window = self.map_window(&part.opened, offset)?;
        TransferCall::SendWindow(window, within, MoreFollows::Yes).execute(socket)
    }

    /// Whether the file of a part can be mapped, which it is then.
    pub fn try_map(&mut self, part: &FileRange) -> bool {
        self.map_window(&part.opened, part.range.start / WINDOW_BYTES * WINDOW_BYTES).is_ok()
    }

    /// Shows the file from this offset on, unless it does already: then its pages need not be mapped again.
    fn map_window(&mut self, opened: &Arc<OpenFile>, offset: u64) -> Result<&FileWindow> {
        let window = match self.window.take() {
            Some(window) if self.mapped.1 == offset && self.mapped.0.as_ptr() == Arc::as_ptr(opened) => window,
            window => {
                let pages = WINDOW_BYTES as usize / page_bytes();
                let mut window = window.map_or_else(|| FileWindow::reserve(pages, PageAccess::Read), Ok)?;
                window.map_part(&opened.file, offset, opened.identity.size - offset)?;
                window
            }
        };
        self.mapped = (Arc::downgrade(opened), offset);
        Ok(self.window.insert(window))
    }
}

/// Reads the end of the part that is to be sent next, if nothing else of it is left.
pub fn read_tail(connection: &mut Connection) -> rustix::io::Result<()> {
    match &connection.file_range {
        Some(part) if part.range.start >= tail_start(part.range.end) => connection.read_file_range(TAIL_BYTES as usize),
        _ => Ok(()),
    }
}

fn tail_start(end: u64) -> u64 {
    (end - 1) / TAIL_BYTES * TAIL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_of_each_range_is_read() {
        for (end, begin) in [(1, 0), (4095, 0), (4096, 0), (4097, 4096), (8192, 4096), (8193, 8192)] {
            assert_eq!(tail_start(end), begin);
        }
    }
}
