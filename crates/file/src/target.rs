//! A regular file that may be read or written, and how it is opened.

use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kelvin_sys::block_device;
use kelvin_sys::direct_io::{self, DirectIoSupport};
use kelvin_sys::uring::IoDirection;

use crate::access::Access;
use crate::block_requests::BlockRequest;
use crate::{Error, Result};

/// A regular file as it was when it was found.
#[derive(Clone, Debug)]
pub struct Target {
    path: PathBuf,
    bytes: u64,
    /// Device and inode: what is opened later must be the same file.
    identity: (u64, u64),
    /// The device that its bytes are on: that of its file system, or itself.
    device: u64,
    /// Time of the last change, in seconds and nanoseconds.
    modified: (i64, i64),
}

impl Target {
    /// Finds a file. It is not opened before it is known to be regular: opening a pipe would wait for a writer.
    ///
    /// # Errors
    /// A path that does not exist, may not be read, or is no regular file.
    pub fn find(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| Error::call("find", path, error))?;
        if let Some(kind) = special_kind(&metadata) {
            return Err(Error::NotRegular { path: path.to_owned(), kind });
        }
        let target = Self::new(path, metadata.len(), (&metadata, metadata.dev()));
        target.open(Access::Buffered)?;
        Ok(target)
    }

    /// Finds a block device; `None` if it is something else.
    ///
    /// # Errors
    /// A path that does not exist, or may not be read.
    pub(crate) fn find_device(path: &Path) -> Result<Option<Self>> {
        let metadata = std::fs::metadata(path).map_err(|error| Error::call("find", path, error))?;
        if !metadata.file_type().is_block_device() {
            return Ok(None);
        }
        let target = Self::new(path, 0, (&metadata, metadata.rdev()));
        let bytes = block_device::size(&target.open(Access::Buffered)?);
        Ok(Some(Self { bytes: bytes.map_err(|error| Error::call("find the size of", path, error))?, ..target }))
    }

    fn new(path: &Path, bytes: u64, (metadata, device): (&Metadata, u64)) -> Self {
        Self {
            path: path.to_owned(),
            bytes,
            identity: (metadata.dev(), metadata.ino()),
            device,
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size when it was found, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is the file of which this was found.
    pub(crate) fn is_file(&self, metadata: &Metadata) -> bool {
        (metadata.dev(), metadata.ino()) == self.identity
    }

    /// The number of the device that its file system is on, or of the device that it is.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Opens it to be read.
    ///
    /// # Errors
    /// Those of open; another file in its place; no direct I/O, or only an imitation.
    pub fn open(&self, access: Access) -> Result<File> {
        self.open_as(File::options().read(true), access, 0)
    }

    /// Opens it to be written, with further flags of open(2).
    ///
    /// # Errors
    /// As [`Target::open`].
    pub(crate) fn open_to_write(&self, access: Access, flags: i32) -> Result<File> {
        self.open_as(File::options().write(true), access, flags)
    }

    /// Opens it to be read and written.
    ///
    /// # Errors
    /// As [`Target::open`].
    pub(crate) fn open_to_change(&self, access: Access) -> Result<File> {
        self.open_as(File::options().read(true).write(true), access, 0)
    }

    fn open_as(&self, options: &mut OpenOptions, access: Access, flags: i32) -> Result<File> {
        if access == Access::Direct {
            self.alignment()?;
        }
        let direct = match access {
            // Without waiting, in case a pipe has taken its place since; it has no meaning for regular files.
            Access::Buffered => kelvin_sys::fs::O_NONBLOCK,
            Access::Direct => direct_io::O_DIRECT,
        };
        let file = options.custom_flags(direct | flags).open(&self.path).map_err(|error| match access {
            Access::Buffered => Error::call("open", &self.path, error),
            Access::Direct => {
                let why = format!("the file system refuses: {error}");
                Error::DirectUnsupported { path: self.path.clone(), why }
            }
        })?;
        let metadata = file.metadata().map_err(|error| Error::call("look at", &self.path, error))?;
        if !self.is_file(&metadata) {
            return Err(Error::Changed { path: self.path.clone(), change: "another file has taken its place".into() });
        }
        Ok(file)
    }

    /// The alignment of direct requests, offset and length, in bytes.
    ///
    /// # Errors
    /// A file system that has no direct I/O, or serves it from memory.
    pub fn alignment(&self) -> Result<u64> {
        let is_in_memory = || kelvin_sys::fs::kind(&self.path).is_ok_and(|kind| kind.is_in_memory());
        let why = match direct_io::direct_io_support(&self.path)
            .map_err(|error| Error::call("look at", &self.path, error))?
        {
            DirectIoSupport::Aligned { offset, .. } => return Ok(u64::from(offset)),
            DirectIoSupport::None => "the kernel reports no direct I/O for this file",
            DirectIoSupport::Unknown if is_in_memory() => "its file system lives in memory",
            // A page suits every device.
            DirectIoSupport::Unknown => return Ok(kelvin_sys::mapping::page_bytes() as u64),
        };
        Err(Error::DirectUnsupported { path: self.path.clone(), why: why.into() })
    }

    /// That nothing is behind the end that it states. Files of /proc state 0 bytes, and some of other machines or programs a size that
    /// is out of date.
    ///
    /// # Errors
    /// [`Error::SizeUnderstated`]; those of open and read.
    pub fn check_end(&self) -> Result<()> {
        let file = self.open(Access::Buffered)?;
        let outcome = loop {
            match file.read_at(&mut [0], self.bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        match outcome.map_err(|error| self.read_error(self.bytes, 1, error))? {
            0 => Ok(()),
            _ => Err(Error::SizeUnderstated { path: self.path.clone(), bytes: self.bytes }),
        }
    }

    /// An error if the file is not the one that was found: another size, or written since.
    ///
    /// # Errors
    /// That it changed, and how.
    pub fn check_unchanged(&self) -> Result<()> {
        let metadata = std::fs::metadata(&self.path).map_err(|error| Error::call("find", &self.path, error))?;
        let changed = |change: String| Err(Error::Changed { path: self.path.clone(), change });
        if !self.is_file(&metadata) {
            changed("another file has taken its place".into())
        } else if metadata.len() != self.bytes {
            changed(format!("its size went from {} to {} bytes", self.bytes, metadata.len()))
        } else if (metadata.mtime(), metadata.mtime_nsec()) != self.modified {
            changed("it was written".into())
        } else {
            Ok(())
        }
    }

    /// A failed read of a part of it.
    pub(crate) fn read_error(&self, offset: u64, bytes: usize, source: std::io::Error) -> Error {
        self.io_error(IoDirection::Read, BlockRequest { offset, bytes }, source)
    }

    /// A failed request for a part of it.
    pub(crate) fn io_error(&self, direction: IoDirection, part: BlockRequest, source: std::io::Error) -> Error {
        let doing = match direction {
            IoDirection::Read => "read",
            IoDirection::Write => "write",
        };
        Error::call(format!("{doing} {} bytes at {} of", part.bytes, part.offset), &self.path, source)
    }

    /// The file ended where it should not.
    pub(crate) fn truncated_error(&self, offset: u64) -> Error {
        let (path, bytes) = (self.path.clone(), self.bytes);
        match may_overstate(&path) {
            true => Error::size_overstated(&path, bytes),
            false => Error::Truncated { path, offset, bytes },
        }
    }

    /// A request that moved nothing, though there was something to move.
    pub(crate) fn zero_bytes_error(&self, direction: IoDirection, part: BlockRequest) -> Error {
        match direction {
            IoDirection::Read => self.truncated_error(part.offset),
            IoDirection::Write => self.io_error(direction, part, std::io::ErrorKind::WriteZero.into()),
        }
    }
}

/// Whether a file that ends early has stated too much: those of /sys state a page, however much they have. Every other one became shorter.
pub fn may_overstate(path: &Path) -> bool {
    kelvin_sys::fs::kind(path).is_ok_and(|kind| ["proc", "sysfs"].contains(&kind.name().as_str()))
}

/// The kind of a file that is no regular one.
pub(crate) fn special_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_symlink() => Some("a symbolic link"),
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_socket() => Some("a socket"),
        () if kind.is_block_device() => Some("a block device"),
        () if kind.is_char_device() => Some("a character device"),
        () => Some("no regular file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_regular_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error_text = |path: &Path| Target::find(path).unwrap_err().to_string();
        assert!(error_text(directory.path()).ends_with("is a directory, and no regular file"));
        assert!(error_text(Path::new("/dev/null")).contains("a character device"));
        assert!(error_text(&directory.path().join("none")).contains("No such file"));
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(error_text(&socket).contains("a socket"));
    }

    #[test]
    fn modified_file_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "some words").unwrap();
        let target = Target::find(&path).unwrap();
        assert_eq!(target.bytes(), 10);
        target.check_unchanged().unwrap();
        std::fs::write(&path, "some more words").unwrap();
        assert!(target.check_unchanged().unwrap_err().to_string().contains("10 to 15 bytes"));
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        std::fs::write(&path, "some words").unwrap();
        assert!(matches!(target.open(Access::Buffered), Err(Error::Changed { .. })));
    }

    #[test]
    fn zero_size_file_with_content_is_refused() {
        let stated = Target::find(Path::new("/proc/version")).unwrap();
        assert_eq!(stated.bytes(), 0);
        assert!(matches!(stated.check_end(), Err(Error::SizeUnderstated { bytes: 0, .. })));
        let file = tempfile::NamedTempFile::new().unwrap();
        Target::find(file.path()).unwrap().check_end().unwrap();
        std::fs::write(file.path(), "some words").unwrap();
        let target = Target::find(file.path()).unwrap();
        target.check_end().unwrap();
        std::fs::write(file.path(), "some more words").unwrap();
        assert!(target.check_end().unwrap_err().to_string().contains("more than the 10 bytes that it states"));
    }

    #[test]
    fn tmpfs_has_no_direct_io() {
        let Some(shm) = kelvin_testing::memory_dir("direct reads of what lives in memory") else { return };
        let file = tempfile::NamedTempFile::new_in(shm).unwrap();
        let target = Target::find(file.path()).unwrap();
        assert!(matches!(target.open(Access::Direct), Err(Error::DirectUnsupported { .. })));
    }
}
