//! The methods of copying a file, by name, and one block by each.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::str::FromStr;

use kelvin_sys::fs::kind;
use kelvin_sys::interrupt;
use kelvin_sys::memory::{Arena, Pages};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::Calls;
use crate::requests::Request;
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
    pub const TRIED: [Self; 3] = [Self::Reflink, Self::CopyFileRange, Self::ReadWrite];

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

/// A method, or the first of [`CopyMethod::TRIED`] that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The first that works.
    Auto,
    /// This one and no other.
    Only(CopyMethod),
}

impl Wish {
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
            Self::Auto => CopyMethod::TRIED.to_vec(),
            Self::Only(method) => vec![method],
        }
    }
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let all = CopyMethod::ALL.into_iter().map(Self::Only).chain([Self::Auto]);
        let wrong = || "the method is one of: auto, rw, copy_file_range, sendfile, reflink".to_owned();
        all.into_iter().find(|wish| wish.name() == name).ok_or_else(wrong)
    }
}

/// Why a method copied nothing.
pub(super) enum Refused {
    /// It cannot copy between these two files, and another may: the reason.
    Method(String),
    /// No method could.
    Copy(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Copy(error)
    }
}

/// Errors of a first call by which a kernel or file system says that it has not this method for these files (copy_file_range(2),
/// sendfile(2), ioctl_ficlone(2); EPERM is that of a seccomp filter).
const NOT_BY_IT: [Errno; 7] =
    [Errno::XDEV, Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOTTY, Errno::PERM, Errno::TXTBSY];

/// Both files, open.
pub(super) struct Ends<'a> {
    pub source: &'a Target,
    pub from: &'a File,
    pub to: &'a File,
    /// The target as the user named it.
    pub path: &'a Path,
}

/// Copies blocks by one method.
pub(super) struct Copier<'a> {
    ends: &'a Ends<'a>,
    method: CopyMethod,
    /// For one block, where the method needs it.
    buffer: Option<Arena>,
    /// Where the target is written next by calls that have no offset.
    position: u64,
    /// Bytes so far.
    copied: u64,
    pub calls: Calls,
}

impl<'a> Copier<'a> {
    pub fn new(ends: &'a Ends<'a>, method: CopyMethod, block: usize) -> Result<Self> {
        let failed = |error| Error::call("make a buffer to copy", ends.source.path(), error);
        let buffer = match method {
            CopyMethod::ReadWrite => Some(Arena::populated(block, Pages::Base).map_err(failed)?),
            _ => None,
        };
        Ok(Self { ends, method, buffer, position: 0, copied: 0, calls: Calls::default() })
    }

    /// Whether it sees the bytes, and so the end of a file that states another size than it has.
    pub fn is_through_memory(&self) -> bool {
        self.method == CopyMethod::ReadWrite
    }

    /// Copies a block or a part of it, and returns how many bytes; none at the end of the source. `middle` is called between reading and
    /// writing, where these are apart.
    #[inline]
    pub fn copy(&mut self, wanted: Request, middle: impl FnMut()) -> std::result::Result<usize, Refused> {
        let done = match self.method {
            CopyMethod::ReadWrite => return Ok(self.read_and_write(wanted, middle)?),
            CopyMethod::CopyFileRange => self.by_range(wanted),
            CopyMethod::Sendfile => self.by_sendfile(wanted),
            CopyMethod::Reflink => self.by_reflink(wanted),
        };
        match done {
            Ok(0) if self.copied == 0 && self.ends.has(wanted.offset) => {
                let (name, path) = (self.method.name(), self.ends.source.path().display());
                Err(Refused::Method(format!("{name} moves nothing of {path}")))
            }
            Ok(bytes) => {
                self.copied += bytes as u64;
                Ok(bytes)
            }
            Err(error) if self.copied == 0 && NOT_BY_IT.contains(&error) => {
                Err(Refused::Method(self.ends.why_not(self.method, error)))
            }
            Err(error) => Err(Refused::Copy(self.failed(wanted, error.into()))),
        }
    }

    fn read_and_write(&mut self, wanted: Request, mut middle: impl FnMut()) -> Result<usize> {
        let Some(buffer) = &mut self.buffer else { return Ok(0) };
        let block = &mut buffer.as_mut_slice()[..wanted.bytes];
        let bytes = loop {
            self.calls.read += 1;
            match self.ends.from.read_at(block, wanted.offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => interrupted()?,
                read => break read.map_err(|error| self.ends.source.read_error(wanted.offset, wanted.bytes, error))?,
            }
        };
        middle();
        let mut written = 0;
        while written < bytes {
            let offset = wanted.offset + written as u64;
            self.calls.write += 1;
            match self.ends.to.write_at(&block[written..bytes], offset) {
                Ok(0) => return Err(self.ends.not_written(offset, bytes - written, ErrorKind::WriteZero.into())),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => interrupted()?,
                Err(error) => return Err(self.ends.not_written(offset, bytes - written, error)),
            }
        }
        Ok(bytes)
    }

    fn by_range(&mut self, wanted: Request) -> rustix::io::Result<usize> {
        let (mut from, mut to) = (wanted.offset, wanted.offset);
        self.calls.copy_file_range += 1;
        rustix::fs::copy_file_range(self.ends.from, Some(&mut from), self.ends.to, Some(&mut to), wanted.bytes)
    }

    fn by_sendfile(&mut self, wanted: Request) -> rustix::io::Result<usize> {
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

    fn by_reflink(&mut self, wanted: Request) -> rustix::io::Result<usize> {
        self.calls.ioctl += 1;
        rustix::fs::ioctl_ficlone(self.ends.to, self.ends.from)?;
        Ok(wanted.bytes)
    }

    fn failed(&self, wanted: Request, error: std::io::Error) -> Error {
        if error.kind() == ErrorKind::Interrupted
            && let Some(signal) = interrupt::requested()
        {
            return Error::Interrupted(signal);
        }
        let Request { offset, bytes } = wanted;
        let doing = format!(
            "copy {bytes} bytes at {offset} of {} by {} to",
            self.ends.source.path().display(),
            self.method.name()
        );
        Error::call(doing, self.ends.path, error)
    }
}

/// A call that a signal cut short is made again, unless the signal is to end the work.
fn interrupted() -> Result<()> {
    interrupt::requested().map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))
}

impl Ends<'_> {
    fn not_written(&self, offset: u64, bytes: usize, error: std::io::Error) -> Error {
        Error::call(format!("write {bytes} bytes at {offset} of"), self.path, error)
    }

    /// Whether the source has a byte there now, as far as it states.
    fn has(&self, offset: u64) -> bool {
        // What cannot be looked at has ended.
        self.from.metadata().is_ok_and(|found| found.len() > offset)
            && self.from.read_at(&mut [0], offset).is_ok_and(|read| read > 0)
    }

    /// Why a method cannot copy between these files.
    fn why_not(&self, method: CopyMethod, error: Errno) -> String {
        let [source, target] = [self.from, self.to].map(|file| {
            let path = crate::temporary::reach(file);
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
