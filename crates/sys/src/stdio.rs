//! A file read through the C library's streams.

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;

use crate::{Error, Result, check};

/// A `FILE` of the C library, with its usual buffer; closed when dropped.
#[derive(Debug)]
pub struct CFile {
    stream: NonNull<libc::FILE>,
}

// SAFETY: the stream is owned, and the C library locks it at each call.
unsafe impl Send for CFile {}

impl CFile {
    /// A stream over an open file, which it owns from now on (fdopen).
    ///
    /// # Errors
    /// Those of fdopen.
    pub fn new(file: File) -> Result<Self> {
        let descriptor = file.into_raw_fd();
        // SAFETY: the descriptor is open and owned by nobody else; the mode is a NUL-terminated string.
        let stream = unsafe { libc::fdopen(descriptor, c"r".as_ptr()) };
        NonNull::new(stream).map(|stream| Self { stream }).ok_or_else(|| {
            let error = Error::last_os_error();
            // SAFETY: fdopen failed, and so the descriptor is still ours.
            unsafe { libc::close(descriptor) };
            error
        })
    }

    /// Reads into all of `buffer`, or as much as there is before the end of the file (fread).
    ///
    /// # Errors
    /// The error that the stream met.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        // SAFETY: the buffer is writable for its length, and the stream is open.
        let read = unsafe { libc::fread(buffer.as_mut_ptr().cast(), 1, buffer.len(), self.stream.as_ptr()) };
        // SAFETY: the stream is open.
        if read < buffer.len() && unsafe { libc::ferror(self.stream.as_ptr()) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(read)
    }

    /// Seeks in the file (fseeko), which may discard the buffer.
    ///
    /// # Errors
    /// Those of fseeko.
    pub fn seek(&mut self, offset: u64) -> Result<()> {
        let offset = libc::off_t::try_from(offset).map_err(Error::other)?;
        // SAFETY: the stream is open.
        check(unsafe { libc::fseeko(self.stream.as_ptr(), offset, libc::SEEK_SET) }).map(drop)
    }
}

impl Drop for CFile {
    fn drop(&mut self) {
        // SAFETY: the stream is open and ours.
        unsafe { libc::fclose(self.stream.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn stream_reads_to_end_and_seeks() {
        let mut file = crate::mapping::memory_file().unwrap();
        file.write_all(&(0..=255).collect::<Vec<u8>>().repeat(40)).unwrap();
        let mut stream = CFile::new(file).unwrap();
        let mut buffer = [0; 100];
        stream.seek(0).unwrap();
        assert_eq!((stream.read(&mut buffer).unwrap(), buffer[99]), (100, 99));
        stream.seek(10_200).unwrap();
        assert_eq!((stream.read(&mut buffer).unwrap(), buffer[0]), (40, 10_200u32 as u8));
        assert_eq!(stream.read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn reading_directory_is_an_error() {
        let mut stream = CFile::new(File::open("/").unwrap()).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), std::io::ErrorKind::IsADirectory);
    }
}
