//! The receiving end: a socket into ranges of files.

mod pipeline;

use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::TcpStream;
use std::ops::Range;

use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::socket_send::Splicer;
use kelvin_sys::net::transfer_call::{FileWindow, MoreFollows, PageAccess, TransferCall};
use kelvin_sys::sigbus::SigbusGuard;

use super::method::ReceiveMethod;
use super::range_cursor::{ByteObserver, RangeCursor, is_fault, nonzero};
use super::send::smaller_pipe_note;
use super::setup::{ReceiveSetup, invalid_setup};
use super::socket_io::{IoCounts, SocketIo, WaitOptions};
use crate::progress::ProgressMeter;

/// One connected socket, and what it takes to receive files from it. It belongs to the thread that made it.
pub struct ReceivePath {
    setup: ReceiveSetup,
    state: ReceiveState,
    link: SocketIo,
    moved: u64,
}

/// What a method needs.
enum ReceiveState {
    ReadWrite(Vec<u8>),
    Mmap(FileWindow),
    Splice(SplicePipe),
    /// In the ring of the link.
    Ring,
}

/// A pipe, and how many bytes it holds.
struct SplicePipe {
    pipe: Splicer,
    capacity: usize,
    held: usize,
}

impl ReceivePath {
    /// Takes a connected socket, sets its options for the mode, and makes what the method needs.
    ///
    /// # Errors
    /// `InvalidInput`, with the reason, for a setup that makes no sense; those of the calls, such as `Unsupported` where the kernel
    /// has no such ring.
    pub fn new(stream: TcpStream, setup: ReceiveSetup) -> Result<Self> {
        setup.check().map_err(invalid_setup)?;
        let ReceiveSetup { mode, timeout: patience, buffer, .. } = setup;
        let link = SocketIo::new(stream, WaitOptions { mode, timeout: patience, slots: setup.slots(), buffer })?;
        Ok(Self { setup, state: ReceiveState::new(&setup)?, link, moved: 0 })
    }

    /// Takes another connected socket in the place of the present one, which is closed: as [`Self::new`], but what the method needs
    /// is already there.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn reconnect(&mut self, stream: TcpStream) -> Result<()> {
        self.link.reconnect(stream)
    }

    /// How it was set up.
    pub fn setup(&self) -> ReceiveSetup {
        self.setup
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        self.link.stream()
    }

    /// Receives these bytes of a file, which is long enough for them if it is to be mapped, and returns how many have come: fewer
    /// only at the end of the stream. `seen` gets them if the method shows them ([`ReceiveMethod::shows_bytes`]).
    ///
    /// # Errors
    /// Those of the calls; `TimedOut` for a peer that sent nothing for as long as the patience; `Interrupted` if a signal asked to
    /// stop; of a mapped file that is too short, or whose pages cannot be made, `UnexpectedEof` and `StorageFull`.
    pub fn receive(&mut self, file: &File, range: Range<u64>, seen: ByteObserver<'_>) -> Result<u64> {
        let mut course = RangeCursor::new(file, range, seen);
        let received = self.state.receive(&mut self.link, &mut course, self.setup.buffer);
        self.moved = course.moved;
        received.map(|()| course.moved)
    }

    /// The same, where bytes must not come too slowly: `TimedOut` with the [`crate::progress::Shortfall`] if they do.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub(crate) fn receive_measured(
        &mut self,
        meter: &mut ProgressMeter,
        (file, range): (&File, Range<u64>),
        seen: ByteObserver<'_>,
    ) -> Result<u64> {
        self.link.incoming = Some(std::mem::take(meter));
        let received = self.receive(file, range, seen);
        *meter = self.link.incoming.take().unwrap_or_default();
        received
    }

    /// Receives so many bytes and drops them; fewer only at the end of the stream.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn discard(&mut self, bytes: u64, seen: ByteObserver<'_>) -> Result<u64> {
        let nowhere = File::options().write(true).open("/dev/null")?;
        let mut course = RangeCursor::new(&nowhere, 0..bytes, seen);
        let dropped = self.state.discard(&mut self.link, &mut course, self.setup.buffer);
        self.moved = course.moved;
        dropped.map(|()| course.moved)
    }

    /// Receives some framing bytes; none at the end of the stream.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.link.read(buffer)
    }

    /// Receives as many framing bytes as there is room for.
    ///
    /// # Errors
    /// As [`Self::receive`]; `UnexpectedEof` if the stream ends before.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.link.fill(buffer)
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn write(&mut self, parts: &[IoSlice<'_>]) -> Result<()> {
        self.link.write(parts, MoreFollows::No)
    }

    /// Bytes of the last [`Self::receive`] or [`Self::discard`] that have left the socket, also if it failed: where the file was to
    /// blame, discarding the rest of the range leads to what follows it.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// What was done since the path was made.
    pub fn counts(&self) -> IoCounts {
        self.link.counts
    }

    /// What was granted instead of what was asked for, if it differs: a smaller pipe.
    pub fn capacity_note(&self) -> Option<String> {
        match &self.state {
            ReceiveState::Splice(pipe) => smaller_pipe_note(&pipe.pipe, self.setup.buffer),
            _ => None,
        }
    }
}

impl SplicePipe {
    fn new(bytes: usize) -> Result<Self> {
        let pipe = Splicer::new(bytes)?;
        let capacity = pipe.capacity()?;
        Ok(Self { pipe, capacity, held: 0 })
    }
}

impl ReceiveState {
    fn new(setup: &ReceiveSetup) -> Result<Self> {
        Ok(match setup.method {
            ReceiveMethod::ReadWrite => Self::ReadWrite(vec![0; setup.buffer]),
            ReceiveMethod::Mmap => {
                Self::Mmap(FileWindow::reserve(setup.window, PageAccess::Write)?.without_readahead())
            }
            ReceiveMethod::Splice => Self::Splice(SplicePipe::new(setup.buffer)?),
            ReceiveMethod::Uring => Self::Ring,
        })
    }

    fn receive(&mut self, link: &mut SocketIo, course: &mut RangeCursor<'_, '_>, buffer: usize) -> Result<()> {
        match self {
            Self::ReadWrite(own) => receive_buffered(link, course, own),
            Self::Mmap(window) => {
                let received = receive_mapped(link, course, (window, buffer));
                // Also after an error: a window keeps its file in use.
                window.unmap().and(received)
            }
            Self::Splice(pipe) => receive_spliced(link, course, (pipe, buffer)),
            Self::Ring => pipeline::receive(link, course),
        }
    }

    fn discard(&mut self, link: &mut SocketIo, course: &mut RangeCursor<'_, '_>, buffer: usize) -> Result<()> {
        match self {
            Self::ReadWrite(own) => discard_all(link, course, own),
            Self::Mmap(_) | Self::Ring => discard_all(link, course, &mut vec![0; buffer]),
            Self::Splice(pipe) => receive_spliced(link, course, (pipe, buffer)),
        }
    }
}

fn receive_buffered(link: &mut SocketIo, course: &mut RangeCursor<'_, '_>, buffer: &mut [u8]) -> Result<()> {
    while course.remaining() > 0 {
        let wanted = course.remaining_up_to(buffer.len());
        let read = link.call(TransferCall::Receive(&mut buffer[..wanted]))?;
        if read == 0 {
            break;
        }
        course.mark_received(read);
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let written = nonzero(link.call(TransferCall::Write(course.file, course.offset, rest))?)?;
            course.mark_written(written);
            rest = &rest[written..];
        }
        course.observe(&buffer[..read]);
    }
    Ok(())
}

fn discard_all(link: &mut SocketIo, course: &mut RangeCursor<'_, '_>, buffer: &mut [u8]) -> Result<()> {
    while course.remaining() > 0 {
        let wanted = course.remaining_up_to(buffer.len());
        let read = link.call(TransferCall::Receive(&mut buffer[..wanted]))?;
        if read == 0 {
            break;
        }
        course.mark_received(read);
        course.mark_written(read);
        course.observe(&buffer[..read]);
    }
    Ok(())
}

fn receive_mapped(
    link: &mut SocketIo,
    course: &mut RangeCursor<'_, '_>,
    (window, buffer): (&mut FileWindow, usize),
) -> Result<()> {
    // Only who looks at the bytes here needs it: a system call reports what is missing.
    let guard = if course.is_observed() { Some(SigbusGuard::over(window.address(), window.bytes())?) } else { None };
    while course.remaining() > 0 {
        link.counts.system_calls += 1 + window.map_calls();
        // What arrives behind the end of a file, but within its last page, would be lost without an error.
        check_length(course, course.end)?;
        let ahead = course.offset % page_bytes() as u64;
        let shown = window.map_part(course.file, course.offset - ahead, course.remaining() + ahead)?;
        let mut at = ahead as usize;
        while at < shown {
            let part = at..shown.min(at.saturating_add(buffer));
            let until = course.offset + part.len() as u64;
            let taken = match link.call(TransferCall::ReceiveWindow(window, part)) {
                Ok(0) => return Ok(()),
                Err(error) if is_fault(&error) => return Err(page_error(course, until)),
                taken => taken?,
            };
            course.mark_received(taken);
            course.mark_written(taken);
            course.observe(window.part(at..at + taken));
            at += taken;
        }
        if guard.as_ref().is_some_and(SigbusGuard::has_faulted) {
            return Err(too_short());
        }
    }
    Ok(())
}

/// An error if the file is not this long.
fn check_length(course: &RangeCursor<'_, '_>, bytes: u64) -> Result<()> {
    if course.file.metadata()?.len() < bytes { Err(too_short()) } else { Ok(()) }
}

fn too_short() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the file is shorter than what is received into it: it was truncated")
}

/// Why a page before this place in the file could not be made.
fn page_error(course: &RangeCursor<'_, '_>, until: u64) -> Error {
    check_length(course, until).err().unwrap_or_else(|| {
        Error::new(ErrorKind::StorageFull, "no space is left for a page of the file, or its device failed")
    })
}

fn receive_spliced(
    link: &mut SocketIo,
    course: &mut RangeCursor<'_, '_>,
    (pipe, buffer): (&mut SplicePipe, usize),
) -> Result<()> {
    if pipe.held > 0 {
        // Bytes of a file that failed.
        *pipe = SplicePipe::new(buffer)?;
    }
    while course.remaining() > 0 {
        pipe.held =
            link.call(TransferCall::SocketToPipe(&pipe.pipe, course.remaining_up_to(buffer.min(pipe.capacity))))?;
        if pipe.held == 0 {
            break;
        }
        course.mark_received(pipe.held);
        while pipe.held > 0 {
            let written = nonzero(link.call(TransferCall::PipeToFile(&pipe.pipe, course.next_part(pipe.held)))?)?;
            course.mark_written(written);
            pipe.held -= written;
        }
    }
    Ok(())
}
