//! Block devices: their size, their exclusive use, and the discard of what is on them.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{Error, Result};

/// `BLKDISCARD` of `linux/fs.h`.
const BLKDISCARD: libc::c_ulong = 0x1277;

/// Bytes of a block device that is open.
///
/// # Errors
/// Those of lseek.
pub fn size(device: &File) -> Result<u64> {
    Ok(rustix::fs::seek(device, rustix::fs::SeekFrom::End(0))?)
}

/// Opens a block device so that nobody else can: neither as a part of a file system, of swap, of RAID or of a mapped device. While it is open it
/// cannot become one either.
///
/// # Errors
/// EBUSY where it is in use; those of open.
pub fn open_exclusively(path: &Path) -> Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_EXCL).open(path)
}

/// Discards what is on a part of a block device (BLKDISCARD). Bounds are multiples of 512.
///
/// # Errors
/// `Unsupported` for a device without it; those of ioctl.
pub fn discard(device: &File, range: Range<u64>) -> Result<()> {
    let argument = [range.start, range.end.saturating_sub(range.start)];
    // SAFETY: the request reads two numbers, which live until it returns.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD as _, argument.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_files_are_not_discarded() {
        let file = crate::mapping::memory_file().unwrap();
        file.set_len(8192).unwrap();
        assert_eq!(size(&file).unwrap(), 8192);
        assert!(discard(&file, 0..4096).is_err());
    }
}
