//! Direct I/O (O_DIRECT), and its alignment requirements.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

use crate::Result;

/// Support of direct I/O on a file (statx, STATX_DIOALIGN, since Linux 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIoSupport {
    /// Supported, with these alignments of buffers and file offsets, in bytes.
    Aligned {
        /// Of the address of a buffer.
        memory: u32,
        /// Of offset and length.
        offset: u32,
    },
    /// Not supported for this file.
    None,
    /// Unknown to the kernel or the file system.
    Unknown,
}

/// The support of direct I/O on a file.
///
/// # Errors
/// Those of statx, except that the kernel does not have it.
pub fn direct_io_support(path: &Path) -> Result<DirectIoSupport> {
    let answer = match rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN) {
        Err(Errno::NOSYS) => return Ok(DirectIoSupport::Unknown),
        answer => answer?,
    };
    let is_reported = answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    Ok(match (is_reported, answer.stx_dio_mem_align, answer.stx_dio_offset_align) {
        (false, ..) => DirectIoSupport::Unknown,
        (true, 0, _) | (true, _, 0) => DirectIoSupport::None,
        (true, memory, offset) => DirectIoSupport::Aligned { memory, offset },
    })
}

/// The flag of open(2), for files opened in other ways.
pub const O_DIRECT: i32 = libc::O_DIRECT;
/// The flag of open(2) by which each write returns only when its data is on the device (O_DSYNC).
pub const O_DSYNC: i32 = libc::O_DSYNC;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_has_no_direct_io() {
        assert_ne!(
            direct_io_support(Path::new("/proc/self/status")).ok(),
            Some(DirectIoSupport::Aligned { memory: 1, offset: 1 })
        );
        assert_eq!(direct_io_support(Path::new("/no such file")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
