//! A window of addresses through which a file is seen, one part after another.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::mapping::page_bytes;
use crate::region::{ANONYMOUS, Region};
use crate::{Error, Result};

/// What may be done with the pages of a [`FileWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
    /// They are read.
    Read,
    /// They are written too, by the kernel or by [`FileWindow::copy_in`]: the file must be open for reading and writing.
    Write,
}

/// Addresses for this many pages, in which parts of files are mapped shared, one at a time; unmapped when dropped.
///
/// A file that becomes shorter under it is an EFAULT for a system call, and a SIGBUS for who reads it here: see
/// [`crate::sigbus::SigbusGuard`].
#[derive(Debug)]
pub struct FileWindow {
    region: Region,
    access: PageAccess,
    reads_ahead: bool,
    /// Bytes from the start that show a file.
    mapped_bytes: usize,
}

impl FileWindow {
    /// Reserves the addresses.
    ///
    /// # Errors
    /// Those of mmap; none at all or too many pages.
    pub fn reserve(pages: usize, access: PageAccess) -> Result<Self> {
        let bytes = pages.checked_mul(page_bytes()).filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or_else(|| Error::from_raw_os_error(libc::EINVAL))?;
        let region = Region::map(bytes, libc::PROT_NONE, RESERVED, ANONYMOUS)?;
        Ok(Self { region, access, reads_ahead: true, mapped_bytes: 0 })
    }

    /// Has the kernel read only pages that are accessed, and not ahead of them (MADV_RANDOM).
    ///
    /// For a file that is written for the first time there is nothing to read but zeros; and reading ahead makes folios that grow up to
    /// 2 MiB, all of whose blocks a file system with buffer heads (ext4) walks at the first write to each page: 12 to 23 us a page of
    /// a file beyond some 40 MiB, where 3 us are enough.
    #[must_use]
    pub fn without_readahead(mut self) -> Self {
        self.reads_ahead = false;
        self
    }

    /// System calls that [`Self::map_part`] makes.
    pub fn map_calls(&self) -> u64 {
        if self.reads_ahead { 1 } else { 2 }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// Its first address.
    pub fn address(&self) -> usize {
        self.region.address()
    }

    /// Shows as many bytes of a file as fit of the `length` ones that begin at `offset`, a multiple of the page, and returns how
    /// many that are.
    ///
    /// # Errors
    /// Those of mmap: EINVAL for another offset, EACCES for a file that is not open for it; those of madvise.
    pub fn map_part(&mut self, file: &File, offset: u64, length: u64) -> Result<usize> {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX).min(self.region.bytes());
        self.mapped_bytes = 0;
        if bytes > 0 {
            let protection = match self.access {
                PageAccess::Read => libc::PROT_READ,
                PageAccess::Write => libc::PROT_READ | libc::PROT_WRITE,
            };
            // SAFETY: no reference into the window outlives a borrow of it.
            unsafe { self.region.map_over(0..bytes, protection, libc::MAP_SHARED, (file.as_raw_fd(), offset)) }?;
            self.mapped_bytes = bytes;
            if !self.reads_ahead {
                self.region.advise(0, bytes, libc::MADV_RANDOM)?;
            }
        }
        Ok(bytes)
    }

    /// Shows nothing any more, and so keeps no file in use.
    ///
    /// # Errors
    /// Those of mmap.
    pub fn unmap(&mut self) -> Result<()> {
        self.mapped_bytes = 0;
        // SAFETY: no reference into the window outlives a borrow of it.
        unsafe { self.region.map_over(0..self.region.bytes(), libc::PROT_NONE, RESERVED, (ANONYMOUS, 0)) }
    }

    /// Reads the next bytes of another file into a part, and returns how many came. The pages are made by the kernel within the
    /// call, as for [`super::TransferCall::ReceiveWindow`].
    ///
    /// # Errors
    /// Those of read: EFAULT where the file shown is shorter, or a page of it cannot be made.
    ///
    /// # Panics
    /// If they are not shown.
    pub fn fill(&mut self, range: Range<usize>, file: &File) -> Result<usize> {
        let pointer = self.part_ptr(&range);
        // SAFETY: the part lies in the mapping, which is borrowed exclusively; a page that is not to be had is EFAULT.
        super::byte_count(unsafe { libc::read(file.as_raw_fd(), pointer.cast(), range.len()) })
    }

    /// The bytes of a part, in place. If somebody else writes the file meanwhile, they are a mixture of old and new; the caller
    /// guards against a file that becomes shorter.
    ///
    /// # Panics
    /// If they are not shown.
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: inside what is mapped, as `part_ptr` checks, readable, and mapped for as long as it is borrowed.
        unsafe { std::slice::from_raw_parts(self.part_ptr(&range), range.len()) }
    }

    /// Copies bytes into it from this place on. The caller guards against a page that cannot be made.
    ///
    /// # Panics
    /// If they leave what is shown, or it is only to be read.
    pub fn copy_in(&mut self, start: usize, bytes: &[u8]) {
        assert!(self.access == PageAccess::Write, "a window that is only to be read");
        let pointer = self.part_ptr(&(start..start.saturating_add(bytes.len())));
        // SAFETY: the place lies in the mapping, which is writable and borrowed exclusively, and so is no part of `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, bytes.len()) };
    }

    /// Where a part begins, all of which is shown.
    pub(super) fn part_ptr(&self, range: &Range<usize>) -> *mut u8 {
        assert!(
            range.start <= range.end && range.end <= self.mapped_bytes,
            "{range:?} leaves the {} bytes shown",
            self.mapped_bytes
        );
        self.region.start().as_ptr().wrapping_add(range.start)
    }
}

/// Of addresses that show nothing.
const RESERVED: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
