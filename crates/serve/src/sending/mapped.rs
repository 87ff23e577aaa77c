//! Files sent from a mapping of a part of them, which the kernel alone reads: where a file has become shorter, that is an error of
//! the call and no signal.

use std::io::Result;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::moving::{Access, Call, Follows, Window};

use crate::body::Part;
use crate::connection::Connection;
use crate::files::Opened;

/// Bytes that are mapped at a time, and most of one call, as by sendfile. A multiple of every page size.
const WINDOW: u64 = 2 << 20;
/// The end of a part that is read instead, since behind its end a mapped file has zeros up to the end of a page: a part whose last
/// bytes could be read was there while those before them were sent.
const LAST: u64 = 4096;

/// A window on one file at a time.
#[derive(Debug, Default)]
pub struct Mapped {
    window: Option<Window>,
    /// What it shows: the file, unless that was closed meanwhile, and its bytes from which offset on.
    shown: (Weak<Opened>, u64),
}

impl Mapped {
    /// Sends some of a part, whose end was left to [`read_last`].
    pub fn send(&mut self, part: &Part, socket: &impl AsFd) -> Result<usize> {
        let offset = part.range.start / WINDOW * WINDOW;
        let end = begin_of_last(part.range.end).min(offset + WINDOW);
        let within = (part.range.start - offset) as usize..(end - offset) as usize;
        let window = self.show(&part.opened, offset)?;
        Call::SendWindow(window, within, Follows::More).make(socket)
    }

    /// Whether the file of a part can be mapped, which it is then.
    pub fn can_show(&mut self, part: &Part) -> bool {
        self.show(&part.opened, part.range.start / WINDOW * WINDOW).is_ok()
    }

    /// Shows the file from this offset on, unless it does already: then its pages need not be mapped again.
    fn show(&mut self, opened: &Arc<Opened>, offset: u64) -> Result<&Window> {
        let window = match self.window.take() {
            Some(window) if self.shown.1 == offset && self.shown.0.as_ptr() == Arc::as_ptr(opened) => window,
            window => {
                let pages = WINDOW as usize / page_bytes();
                let mut window = window.map_or_else(|| Window::reserve(pages, Access::Read), Ok)?;
                window.show(&opened.file, offset, opened.identity.size - offset)?;
                window
            }
        };
        self.shown = (Arc::downgrade(opened), offset);
        Ok(self.window.insert(window))
    }
}

/// Reads the end of the part that is to be sent next, if nothing else of it is left.
pub fn read_last(connection: &mut Connection) -> rustix::io::Result<()> {
    match connection.part() {
        Some(part) if part.range.start >= begin_of_last(part.range.end) => connection.read_part(LAST as usize),
        _ => Ok(()),
    }
}

fn begin_of_last(end: u64) -> u64 {
    (end - 1) / LAST * LAST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_of_every_part_are_read() {
        for (end, begin) in [(1, 0), (4095, 0), (4096, 0), (4097, 4096), (8192, 4096), (8193, 8192)] {
            assert_eq!(begin_of_last(end), begin);
        }
    }
}
