//! The methods of copying a file, by name, and one block by each.

use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use kelvin_stats::Histogram;
use kelvin_sys::clock::Clock;
use kelvin_sys::fs::kind;
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::stop_signals;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::{CopyRun, SyscallCounts};
use crate::block_requests::BlockRequest;
use crate::error::check_stop_signal;
use crate::observer::{DeadlineObserver, EndCondition, Observer};
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

/// A method, or the first that works.
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

    /// The methods to try, in order, for a file that states this many bytes. Those within the kernel copy what a file states: nothing,
    /// of one of /proc that has something.
    pub(super) fn methods(self, bytes: u64) -> Vec<CopyMethod> {
        match self {
            Self::Auto if bytes == 0 => vec![CopyMethod::ReadWrite],
            // The one that moves least first, as cp(1) does.
            Self::Auto => vec![CopyMethod::Reflink, CopyMethod::CopyFileRange, CopyMethod::ReadWrite],
            Self::Only(method) => vec![method],
        }
    }
}

impl FromStr for MethodChoice {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let choices = CopyMethod::ALL.into_iter().map(Self::Only).chain([Self::Auto]);
        let unknown_method = || "the method is one of: auto, rw, copy_file_range, sendfile, reflink".to_owned();
        choices.into_iter().find(|choice| choice.name() == name).ok_or_else(unknown_method)
    }
}

/// Why a method copied nothing.
pub(super) enum MethodError {
    /// It cannot copy between these two files, and another may: the reason.
    Unsupported(String),
    /// No method could.
    Failed(Error),
}

/// The result of a method.
pub(super) type MethodResult<T> = std::result::Result<T, MethodError>;

impl From<Error> for MethodError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Errors of a first call by which a kernel or file system reports that it has not this method for these files (copy_file_range(2),
/// sendfile(2), ioctl_ficlone(2)). EPERM is that of a seccomp filter.
const UNSUPPORTED_ERRNOS: [Errno; 7] =
    [Errno::XDEV, Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOTTY, Errno::PERM, Errno::TXTBSY];

/// A copy by one method: its files, its buffer, and what was counted and timed.
pub(super) struct Copier<'a> {
    run: &'a CopyRun<'a>,
    pub method: CopyMethod,
    /// Most bytes that a call is asked to move: all, of a method that has one call.
    block: usize,
    /// For one block, where the method needs it.
    pub buffer: Option<Arena>,
    /// Where the target is written next by calls that have no offset.
    position: u64,
    pub calls: SyscallCounts,
    /// Counts what was copied, and checks the clock.
    pub observer: DeadlineObserver<'a>,
    pub timing: Option<CopyTiming>,
    /// Bytes of which progress was reported.
    reported: u64,
}

/// The time of blocks, and of reading within them.
pub(super) struct CopyTiming {
    clock: Clock,
    /// Nanoseconds of a tick.
    scale: f64,
    pub histogram: Histogram,
    /// Ticks in calls that read, and in all.
    reading: u64,
    total: u64,
}

impl CopyTiming {
    fn nanoseconds(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.scale) as u64
    }

    /// Nanoseconds of reading, and of writing.
    pub fn split(&self) -> (u64, u64) {
        (self.nanoseconds(self.reading), self.nanoseconds(self.total - self.reading))
    }
}

/// How often progress is reported, in bytes.
const PROGRESS_STEP: u64 = 8 << 20;

impl<'a> Copier<'a> {
    pub fn new(run: &'a CopyRun<'a>, method: CopyMethod, stop: &'a AtomicBool) -> Result<Self> {
        let job = run.job;
        let failed = |error| Error::call("make a buffer to copy", job.source.path(), error);
        let block = if method == CopyMethod::Reflink { usize::MAX } else { job.block };
        let timing = job.latencies.map(|(clock, hertz)| CopyTiming {
            clock,
            scale: 1e9 / hertz,
            histogram: Histogram::new(),
            reading: 0,
            total: 0,
        });
        let buffer = match method {
            CopyMethod::ReadWrite => Some(Arena::populated(block, PagePolicy::Base).map_err(failed)?),
            _ => None,
        };
        let (calls, observer) = (SyscallCounts::default(), DeadlineObserver::new(EndCondition::Passes(1), stop));
        Ok(Self { run, method, block, buffer, position: 0, calls, observer, timing, reported: 0 })
    }

    /// Copies a part in blocks, as far as there is something; returns where that ended.
    pub fn copy_range(&mut self, part: Range<u64>) -> MethodResult<u64> {
        let mut offset = part.start;
        while offset < part.end {
            let bytes = self.block.min(usize::try_from(part.end - offset).unwrap_or(usize::MAX));
            let moved = self.copy_block(BlockRequest { offset, bytes })?;
            if moved == 0 {
                break;
            }
            offset += moved as u64;
            if self.observer.end((), BlockRequest { offset, bytes: moved }, &[]).is_break() {
                check_stop_signal()?;
            }
            if self.observer.tally.bytes - self.reported >= PROGRESS_STEP {
                self.reported = self.observer.tally.bytes;
                (self.run.progress)(self.reported);
            }
        }
        Ok(offset)
    }

    #[inline]
    fn copy_block(&mut self, request: BlockRequest) -> MethodResult<usize> {
        let Some(clock) = self.timing.as_ref().map(|timing| timing.clock) else { return self.copy(request, || ()) };
        let start = clock.start();
        let mut read_end = start;
        let moved = self.copy(request, || read_end = clock.stop())?;
        let ticks = clock.stop().wrapping_sub(start);
        // What finds the end is no request.
        if moved > 0
            && let Some(timing) = &mut self.timing
        {
            timing.histogram.record(timing.nanoseconds(ticks));
            timing.total += ticks;
            timing.reading += read_end.wrapping_sub(start);
        }
        Ok(moved)
    }

    /// Copies a block or a part of it, and returns how many bytes; none at the end of the source. `middle` is called between reading and
    /// writing, where these are apart.
    #[inline]
    fn copy(&mut self, request: BlockRequest, after_read: impl FnMut()) -> MethodResult<usize> {
        let outcome = match self.method {
            CopyMethod::ReadWrite => return Ok(self.read_and_write(request, after_read)?),
            CopyMethod::CopyFileRange => self.copy_file_range(request),
            CopyMethod::Sendfile => self.sendfile(request),
            CopyMethod::Reflink => {
                self.calls.ioctl += 1;
                rustix::fs::ioctl_ficlone(self.run.target_file, self.run.source_file).map(|()| request.bytes)
            }
        };
        let is_first = self.observer.tally.bytes == 0;
        match outcome {
            Ok(0) if is_first && self.run.has_byte_at(request.offset) => {
                let (name, path) = (self.method.name(), self.run.job.source.path().display());
                Err(MethodError::Unsupported(format!("{name} moves nothing of {path}")))
            }
            Ok(bytes) => Ok(bytes),
            Err(error) if is_first && UNSUPPORTED_ERRNOS.contains(&error) => {
                Err(MethodError::Unsupported(self.run.unsupported_reason(self.method, error)))
            }
            Err(error) => {
                if error == Errno::INTR
                    && let Some(signal) = stop_signals::stop_signal()
                {
                    return Err(Error::Interrupted(signal).into());
                }
                let BlockRequest { offset, bytes } = request;
                let (source, name) = (self.run.job.source.path().display(), self.method.name());
                let doing = format!("copy {bytes} bytes at {offset} of {source} by {name} to");
                Err(Error::call(doing, &self.run.job.path, error.into()).into())
            }
        }
    }

    fn read_and_write(&mut self, request: BlockRequest, mut after_read: impl FnMut()) -> Result<usize> {
        let Some(buffer) = &mut self.buffer else { return Ok(0) };
        let block = &mut buffer.as_mut_slice()[..request.bytes];
        let bytes = loop {
            self.calls.read += 1;
            match self.run.source_file.read_at(block, request.offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => check_stop_signal()?,
                read => {
                    let failed = |error| self.run.job.source.read_error(request.offset, request.bytes, error);
                    break read.map_err(failed)?;
                }
            }
        };
        after_read();
        let mut written = 0;
        while written < bytes {
            let (offset, remaining) = (request.offset + written as u64, bytes - written);
            self.calls.write += 1;
            let failed =
                |error| Error::call(format!("write {remaining} bytes at {offset} of"), &self.run.job.path, error);
            match self.run.target_file.write_at(&block[written..bytes], offset) {
                Ok(0) => return Err(failed(ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => check_stop_signal()?,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(bytes)
    }

    fn copy_file_range(&mut self, request: BlockRequest) -> rustix::io::Result<usize> {
        let (mut source_offset, mut target_offset) = (request.offset, request.offset);
        self.calls.copy_file_range += 1;
        rustix::fs::copy_file_range(
            self.run.source_file,
            Some(&mut source_offset),
            self.run.target_file,
            Some(&mut target_offset),
            request.bytes,
        )
    }

    fn sendfile(&mut self, request: BlockRequest) -> rustix::io::Result<usize> {
        if self.position != request.offset {
            self.calls.lseek += 1;
            self.position = rustix::fs::seek(self.run.target_file, SeekFrom::Start(request.offset))?;
        }
        let mut source_offset = request.offset;
        self.calls.sendfile += 1;
        let sent =
            rustix::fs::sendfile(self.run.target_file, self.run.source_file, Some(&mut source_offset), request.bytes)?;
        self.position += sent as u64;
        Ok(sent)
    }
}

impl CopyRun<'_> {
    /// Whether the source has a byte there now, as far as it states.
    fn has_byte_at(&self, offset: u64) -> bool {
        // What cannot be looked at has ended.
        self.source_file.metadata().is_ok_and(|metadata| metadata.len() > offset)
            && self.source_file.read_at(&mut [0], offset).is_ok_and(|read| read > 0)
    }

    /// Why a method cannot copy between these files.
    fn unsupported_reason(&self, method: CopyMethod, error: Errno) -> String {
        let [source, target] = [self.source_file, self.target_file].map(|file| {
            let path = crate::temporary_files::descriptor_path(file);
            kind(&path).map_or_else(|_| "an unknown file system".to_owned(), |kind| kind.name())
        });
        let name = method.name();
        let is_across = error == Errno::XDEV;
        let error = std::io::Error::from(error);
        match method {
            CopyMethod::Reflink if is_across => {
                format!(
                    "{name} shares blocks within one file system, and source ({source}) and target ({target}) are on two"
                )
            }
            CopyMethod::Reflink => format!(
                "{name} is not available on {target} ({error}): files share blocks on btrfs, on XFS made with reflink=1 and on some others"
            ),
            CopyMethod::CopyFileRange if is_across => {
                format!(
                    "{name} does not go from {source} to {target}: they are two file systems, or one without that call ({error})"
                )
            }
            _ => format!("{name} is not available from {source} to {target}: {error}"),
        }
    }
}
