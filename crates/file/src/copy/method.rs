//! The methods of copying a file, by name, and one block by each.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::str::FromStr;

use kelvin_sys::fs::kind;
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::stop_signals;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::SyscallCounts;
use crate::block_requests::BlockRequest;
use crate::cache::check_stop_signal;
use crate::target::Target;
use crate::{Error, Result};

/// A method of copying a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// pread(2) into a buffer and pwrite(2) from it, as dd(1) does with read and write.
    ReadWrite,
    /// copy_file_range(2): within the kernel, on some file systems without moving a byte.
    CopyFileRange,
    /// sendfile(2): within the kernel.
    Sendfile,
    /// The FICLONE ioctl: both files have the same blocks until one of them is written.
    Reflink,
}

impl CopyMethod {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::ReadWrite, Self::CopyFileRange, Self::Sendfile, Self::Reflink];

    /// Those that are tried where none is asked for, the one that moves least first, as cp(1) does.
    pub const AUTO_ORDER: [Self; 3] = [Self::Reflink, Self::CopyFileRange, Self::ReadWrite];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "rw",
            Self::CopyFileRange => "copy_file_range",
            Self::Sendfile => "sendfile",
            Self::Reflink => "reflink",
        }
    }
}

/// A method, or the first of [`CopyMethod::AUTO_ORDER`] that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodChoice {
    /// The first that works.
    Auto,
    /// This one and no other.
    Only(CopyMethod),
}

impl MethodChoice {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Only(method) => method.name(),
        }
    }

    /// The methods to try, in order, for a file that states so many bytes. Those within the kernel copy what a file states: nothing,
    /// of one of /proc that has something.
    pub(super) fn methods(self, bytes: u64) -> Vec<CopyMethod> {
        match self {
            Self::Auto if bytes == 0 => vec![CopyMethod::ReadWrite],
            Self::Auto => CopyMethod::AUTO_ORDER.to_vec(),
            Self::Only(method) => vec![method],
        }
    }
}

impl FromStr for MethodChoice {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let all = CopyMethod::ALL.into_iter().map(Self::Only).chain([Self::Auto]);
        let wrong = || "the method is one of: auto, rw, copy_file_range, sendfile, reflink".to_owned();
        all.into_iter().find(|wish| wish.name() == name).ok_or_else(wrong)
    }
}

/// Why a method copied nothing.
pub(super) enum MethodError {
    /// It cannot copy between these two files, and another may: the reason.
    Unsupported(String),
    /// No method could.
    Failed(Error),
}

impl From<Error> for MethodError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Errors of a first call by which a kernel or file system says that it has not this method for these files (copy_file_range(2),
/// sendfile(2), ioctl_ficlone(2); EPERM is that of a seccomp filter).
const UNSUPPORTED_ERRNOS: [Errno; 7] =
    [Errno::XDEV, Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOTTY, Errno::PERM, Errno::TXTBSY];

/// Both files, open.
pub(super) struct CopyFiles<'a> {
    pub source: &'a Target,
    pub from: &'a File,
    pub to: &'a File,
    /// The target as the user named it.
    pub path: &'a Path,
}

/// Copies blocks by one method.
pub(super) struct Copier<'a> {
    ends: &'a CopyFiles<'a>,
    method: CopyMethod,
    /// For one block, where the method needs it.
    buffer: Option<Arena>,
    /// Where the target is written next by calls that have no offset.
    position: u64,
    /// Bytes so far.
    copied: u64,
    pub calls: SyscallCounts,
}

impl<'a> Copier<'a> {
    pub fn new(ends: &'a CopyFiles<'a>, method: CopyMethod, block: usize) -> Result<Self> {
        let failed = |error| Error::call("make a buffer to copy", ends.source.path(), error);
        let buffer = match method {
            CopyMethod::ReadWrite => Some(Arena::populated(block, PagePolicy::Base).map_err(failed)?),
            _ => None,
        };
        Ok(Self { ends, method, buffer, position: 0, copied: 0, calls: SyscallCounts::default() })
    }

    /// Whether it sees the bytes, and so the end of a file that states another size than it has.
    pub fn sees_bytes(&self) -> bool {
        self.method == CopyMethod::ReadWrite
    }

    /// Copies a block or a part of it, and returns how many bytes; none at the end of the source. `middle` is called between reading and
    /// writing, where these are apart.
    #[inline]
    pub fn copy(&mut self, wanted: BlockRequest, middle: impl FnMut()) -> std::result::Result<usize, MethodError> {
        let done = match self.method {
            CopyMethod::ReadWrite => return Ok(self.read_and_write(wanted, middle)?),
            CopyMethod::CopyFileRange => self.copy_file_range(wanted),
            CopyMethod::Sendfile => self.sendfile(wanted),
            CopyMethod::Reflink => self.reflink(wanted),
        };
        match done {
            Ok(0) if self.copied == 0 && self.ends.has_byte_at(wanted.offset) => {
                let (name, path) = (self.method.name(), self.ends.source.path().display());
                Err(MethodError::Unsupported(format!("{name} moves nothing of {path}")))
            }
            Ok(bytes) => {
                self.copied += bytes as u64;
                Ok(bytes)
            }
            Err(error) if self.copied == 0 && UNSUPPORTED_ERRNOS.contains(&error) => {
                Err(MethodError::Unsupported(self.ends.unsupported_reason(self.method, error)))
            }
            Err(error) => Err(MethodError::Failed(self.failed(wanted, error.into()))),
        }
    }

    fn read_and_write(&mut self, wanted: BlockRequest, mut middle: impl FnMut()) -> Result<usize> {
        let Some(buffer) = &mut self.buffer else { return Ok(0) };
        let block = &mut buffer.as_mut_slice()[..wanted.bytes];
        let bytes = loop {
            self.calls.read += 1;
            match self.ends.from.read_at(block, wanted.offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => check_stop_signal()?,
                read => break read.map_err(|error| self.ends.source.read_error(wanted.offset, wanted.bytes, error))?,
            }
        };
        middle();
        let mut written = 0;
        while written < bytes {
            let offset = wanted.offset + written as u64;
            self.calls.write += 1;
            match self.ends.to.write_at(&block[written..bytes], offset) {
                Ok(0) => return Err(self.ends.write_error(offset, bytes - written, ErrorKind::WriteZero.into())),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => check_stop_signal()?,
                Err(error) => return Err(self.ends.write_error(offset, bytes - written, error)),
            }
        }
        Ok(bytes)
    }

    fn copy_file_range(&mut self, wanted: BlockRequest) -> rustix::io::Result<usize> {
        let (mut from, mut to) = (wanted.offset, wanted.offset);
        self.calls.copy_file_range += 1;
        rustix::fs::copy_file_range(self.ends.from, Some(&mut from), self.ends.to, Some(&mut to), wanted.bytes)
    }

    fn sendfile(&mut self, wanted: BlockRequest) -> rustix::io::Result<usize> {
        if self.position != wanted.offset {
            self.calls.lseek += 1;
            self.position = rustix::fs::seek(self.ends.to, SeekFrom::Start(wanted.offset))?;
        }
        let mut from = wanted.offset;
        self.calls.sendfile += 1;
        let sent = rustix::fs::sendfile(self.ends.to, self.ends.from, Some(&mut from), wanted.bytes)?;
        self.position += sent as u64;
        Ok(sent)
    }

    fn reflink(&mut self, wanted: BlockRequest) -> rustix::io::Result<usize> {
        self.calls.ioctl += 1;
        rustix::fs::ioctl_ficlone(self.ends.to, self.ends.from)?;
        Ok(wanted.bytes)
    }

    fn failed(&self, wanted: BlockRequest, error: std::io::Error) -> Error {
        if error.kind() == ErrorKind::Interrupted
            && let Some(signal) = stop_signals::stop_signal()
        {
            return Error::Interrupted(signal);
        }
        let BlockRequest { offset, bytes } = wanted;
        let doing = format!(
            "copy {bytes} bytes at {offset} of {} by {} to",
            self.ends.source.path().display(),
            self.method.name()
        );
        Error::call(doing, self.ends.path, error)
    }
}

impl CopyFiles<'_> {
    fn write_error(&self, offset: u64, bytes: usize, error: std::io::Error) -> Error {
        Error::call(format!("write {bytes} bytes at {offset} of"), self.path, error)
    }

    /// Whether the source has a byte there now, as far as it states.
    fn has_byte_at(&self, offset: u64) -> bool {
        // What cannot be looked at has ended.
        self.from.metadata().is_ok_and(|found| found.len() > offset)
            && self.from.read_at(&mut [0], offset).is_ok_and(|read| read > 0)
    }

    /// Why a method cannot copy between these files.
    fn unsupported_reason(&self, method: CopyMethod, error: Errno) -> String {
        let [source, target] = [self.from, self.to].map(|file| {
            let path = crate::temporary_files::descriptor_path(file);
            kind(&path).map_or_else(|_| "an unknown file system".to_owned(), |kind| kind.name())
        });
        let name = method.name();
        let error = std::io::Error::from(error);
        match method {
            CopyMethod::Reflink if error.kind() == ErrorKind::CrossesDevices => {
                format!(
                    "{name} shares blocks within one file system, and source ({source}) and target ({target}) are on two"
                )
            }
            CopyMethod::Reflink => format!(
                "{name} is not available on {target} ({error}): files share blocks on btrfs, on XFS made with reflink=1 and on some others"
            ),
            CopyMethod::CopyFileRange if error.kind() == ErrorKind::CrossesDevices => {
                format!(
                    "{name} does not go from {source} to {target}: they are two file systems, or one without that call ({error})"
                )
            }
            _ => format!("{name} is not available from {source} to {target}: {error}"),
        }
    }
}
