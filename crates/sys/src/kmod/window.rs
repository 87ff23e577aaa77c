//! The window of a kernel end: pages that this process and the module both see.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use super::layout::WindowSpan;
use crate::region::Region;
use crate::{Error, Result};

/// Pages of a device, mapped.
#[derive(Debug)]
pub(super) struct DeviceWindow(Region);

impl DeviceWindow {
    /// Maps all of a device's window.
    pub fn map(device: &File, bytes: usize) -> Result<Self> {
        Region::map(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, device.as_raw_fd()).map(Self)
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as it is borrowed, and initialised by the module; the module writes only in a call for which
        // the window is borrowed exclusively.
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr(), self.0.bytes()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().as_ptr(), self.0.bytes()) }
    }

    /// A part of it, for a call.
    pub fn span(&self, part: &Range<usize>, flags: u32) -> Result<WindowSpan> {
        if part.start > part.end || part.end > self.0.bytes() {
            return Err(Error::from_raw_os_error(libc::EINVAL));
        }
        Ok(WindowSpan { offset: part.start as u64, length: part.len() as u64, flags, reserved: 0 })
    }
}
