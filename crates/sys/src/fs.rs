//! What a file system says of its own room.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::{Error, Result, check};

/// Room of a file system, in bytes and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Size of the file system, in bytes.
    pub total_bytes: u64,
    /// Bytes that a user without privileges may still write.
    pub available_bytes: u64,
    /// Files that it can hold; 0 where it has no such bound.
    pub total_files: u64,
    /// Files that can still be made.
    pub free_files: u64,
}

/// Room of the file system that holds a path (statvfs(3)).
///
/// # Errors
/// Those of statvfs, such as `NotFound`; `InvalidInput` for a path with a NUL byte.
pub fn room(path: &Path) -> Result<Room> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(Error::from)?;
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `name` is a NUL-terminated string and `answer` has room for what statvfs writes.
    check(unsafe { libc::statvfs(name.as_ptr(), answer.as_mut_ptr()) })?;
    // SAFETY: statvfs succeeded, so it has filled the structure.
    let answer = unsafe { answer.assume_init() };
    // The fields are 64 bits wide on the targets we build for and narrower on others.
    #[allow(clippy::unnecessary_cast)]
    let (unit, total, available) = (answer.f_frsize as u64, answer.f_blocks as u64, answer.f_bavail as u64);
    #[allow(clippy::unnecessary_cast)]
    let (total_files, free_files) = (answer.f_files as u64, answer.f_favail as u64);
    Ok(Room {
        total_bytes: unit.saturating_mul(total),
        available_bytes: unit.saturating_mul(available),
        total_files,
        free_files,
    })
}

/// Share of a file system that a user without privileges may still fill, 0 to 1; 0 for one without any size.
///
/// # Errors
/// As [`room`].
pub fn free_share(path: &Path) -> Result<f64> {
    let room = room(path)?;
    Ok(if room.total_bytes == 0 { 0.0 } else { room.available_bytes as f64 / room.total_bytes as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_file_system_has_a_size() {
        let room = room(Path::new("/")).unwrap();
        assert!(room.total_bytes > 0 && room.available_bytes <= room.total_bytes);
        assert!((0.0..=1.0).contains(&free_share(Path::new("/")).unwrap()));
    }

    #[test]
    fn a_missing_path_is_an_error() {
        let error = room(Path::new("/no such directory")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
