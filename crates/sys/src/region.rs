//! A range of addresses that is mapped, and unmapped by drop.

use std::os::fd::RawFd;
use std::ptr::NonNull;

use crate::{Error, Result, check};

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

    /// Maps bytes of a file from an offset on, or memory, in place of those of `range`.
    ///
    /// # Safety
    /// No reference leads there.
    pub(crate) unsafe fn map_over(
        &self,
        range: std::ops::Range<usize>,
        protection: libc::c_int,
        flags: libc::c_int,
        (file, offset): (RawFd, u64),
    ) -> Result<()> {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} leaves the region");
        // SAFETY: the place lies in the region; the caller answers for what refers to it.
        let mapped = unsafe {
            let start = self.start.as_ptr().add(range.start).cast();
            libc::mmap(start, range.len(), protection, flags | libc::MAP_FIXED, file, offset as libc::off_t)
        };
        if mapped == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(()) }
    }

    /// Advises the kernel of `bytes` from an offset on (madvise), by advice that keeps them mapped.
    ///
    /// # Errors
    /// Those of madvise; a part that is not inside.
    pub(crate) fn advise(&self, offset: usize, bytes: usize, advice: libc::c_int) -> Result<()> {
        if offset > self.bytes || bytes > self.bytes - offset {
            return Err(Error::other(format!("{bytes} bytes at {offset} leave the mapping")));
        }
        // SAFETY: the part is this mapping's.
        check(unsafe { libc::madvise(self.start.as_ptr().add(offset).cast(), bytes, advice) }).map(drop)
    }

    /// Its bytes.
    ///
    /// # Safety
    /// They are readable and initialised, and nobody else writes them meanwhile.
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped for as long as it is borrowed; the caller answers for the rest.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Its bytes, to write.
    ///
    /// # Safety
    /// As for [`Self::as_slice`], and they are writable.
    pub(crate) unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
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
