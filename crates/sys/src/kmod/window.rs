//! The window of a kernel end: pages that this process and the module both see.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::layout::WindowSpan;
use crate::{Error, Result};

/// It, mapped; unmapped when dropped.
#[derive(Debug)]
pub(super) struct DeviceWindow {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its mapping, and whoever reads or writes it has borrowed it.
unsafe impl Send for DeviceWindow {}
// SAFETY: who shares it can only read.
unsafe impl Sync for DeviceWindow {}

impl DeviceWindow {
    /// Maps all of a device's window.
    pub fn map(device: &File, bytes: usize) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at addresses of the kernel's choice.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, device.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let start = NonNull::new(mapped.cast()).ok_or_else(|| Error::other("mmap returned address zero"))?;
        Ok(Self { start, bytes })
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as it is borrowed, and initialised by the module; the module writes only in a call for which
        // the window is borrowed exclusively.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// A part of it, for a call.
    pub fn span(&self, part: &Range<usize>, flags: u32) -> Result<WindowSpan> {
        if part.start > part.end || part.end > self.bytes {
            return Err(Error::from_raw_os_error(libc::EINVAL));
        }
        Ok(WindowSpan { offset: part.start as u64, length: part.len() as u64, flags, reserved: 0 })
    }
}

impl Drop for DeviceWindow {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
