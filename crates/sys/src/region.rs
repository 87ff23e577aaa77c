//! A range of addresses that is mapped, and unmapped by drop.

use std::os::fd::RawFd;
use std::ptr::NonNull;

use crate::{Error, Result};

/// What is mapped: memory, or a part of a file.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is a range of addresses; who may read and write there is up to its owner.
unsafe impl Send for Region {}
// SAFETY: as for Send.
unsafe impl Sync for Region {}

/// The descriptor of memory without a file.
pub(crate) const ANONYMOUS: RawFd = -1;

impl Region {
    /// Maps bytes of a file from its beginning on, or memory, where the kernel chooses.
    pub(crate) fn map(bytes: usize, protection: libc::c_int, flags: libc::c_int, file: RawFd) -> Result<Self> {
        // SAFETY: without a wanted address nothing that is mapped is touched.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or_else(|| Error::other("mmap returned address zero"))?;
        Ok(Self { start, bytes })
    }

    /// Maps private memory that begins at a multiple of `alignment`; of both, whole pages.
    pub(crate) fn aligned(bytes: usize, alignment: usize, protection: libc::c_int) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let padded = Self::map(bytes + alignment, protection, flags, ANONYMOUS)?;
        let (first, end) = (padded.address(), padded.address() + padded.bytes);
        let aligned = first.next_multiple_of(alignment);
        std::mem::forget(padded);
        // SAFETY: both parts are of the mapping above, which nobody knows yet, and outside of what is kept of it.
        unsafe {
            if aligned > first {
                libc::munmap(first as *mut _, aligned - first);
            }
            if end > aligned + bytes {
                libc::munmap((aligned + bytes) as *mut _, end - aligned - bytes);
            }
        }
        let start = NonNull::new(aligned as *mut u8).ok_or_else(|| Error::other("mmap returned address zero"))?;
        Ok(Self { start, bytes })
    }

    #[inline(always)]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's, whose owner goes with it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
