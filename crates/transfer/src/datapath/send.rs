//! The sending end: ranges of files into a socket.

mod pipeline;
mod zero_copy;

use std::fs::File;
use std::io::{Error, IoSlice, Result};
use std::net::TcpStream;
use std::ops::Range;

use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::socket_send::Splicer;
use kelvin_sys::net::transfer_call::{FileWindow, MoreFollows, PageAccess, TransferCall};
use kelvin_sys::sigbus::SigbusGuard;

use super::method::{Mode, SendMethod};
use super::range_cursor::{ByteObserver, RangeCursor, is_fault, nonzero};
use super::setup::{SendSetup, invalid_setup};
use super::socket_io::{IoCounts, SocketIo, WaitOptions};
pub(super) use zero_copy::PendingSends;
use zero_copy::ZeroCopyBuffers;

/// One connected socket, and what it takes to send files into it. It belongs to the thread that made it.
pub struct SendPath {
    setup: SendSetup,
    state: SendState,
    link: SocketIo,
    moved: u64,
}

/// What a method needs.
enum SendState {
    ReadWrite(Vec<u8>),
    Mmap(FileWindow),
    Sendfile,
    Splice(Splicer),
    ZeroCopy(ZeroCopyBuffers),
    /// In the ring of the link; whether without a copy.
    Ring {
        zero_copy: bool,
    },
}

impl SendPath {
    /// Takes a connected socket, sets its options for the mode, and makes what the method needs.
    ///
    /// # Errors
    /// `InvalidInput`, with the reason, for a setup that makes no sense; those of the calls, such as `Unsupported` where the kernel
    /// has no such ring.
    pub fn new(stream: TcpStream, setup: SendSetup) -> Result<Self> {
        setup.check().map_err(invalid_setup)?;
        let SendSetup { mode, timeout: patience, buffer, .. } = setup;
        let mut link = SocketIo::new(stream, WaitOptions { mode, timeout: patience, slots: setup.slots(), buffer })?;
        let method = SendState::new(&setup)?;
        method.prepare(&mut link)?;
        Ok(Self { setup, state: method, link, moved: 0 })
    }

    /// Takes another connected socket in the place of the present one, which is closed: as [`Self::new`], but what the method needs
    /// is already there.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn reconnect(&mut self, stream: TcpStream) -> Result<()> {
        self.link.reconnect(stream)?;
        if matches!(self.state, SendState::Splice(_) | SendState::ZeroCopy(_)) {
            // The pipe may hold bytes, and the buffers may still be in use, of a connection that failed.
            self.state = SendState::new(&self.setup)?;
        }
        self.state.prepare(&mut self.link)
    }

    /// How it was set up.
    pub fn setup(&self) -> SendSetup {
        self.setup
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        self.link.stream()
    }

    /// Sends these bytes of a file, and returns how many have gone into the socket: fewer only if the file ends before. `seen`
    /// gets them if the method shows them ([`SendMethod::shows_bytes`]).
    ///
    /// A range that is sent is one message: what does not fill a segment waits for the rest of it, 200 ms at most. Where the file
    /// ends before, what is written next sends it.
    ///
    /// # Errors
    /// Those of the calls; `TimedOut` for a peer that took nothing for as long as the patience; `Interrupted` if a signal asked to
    /// stop; a mapped file that became shorter while its bytes were looked at.
    pub fn send(&mut self, file: &File, range: Range<u64>, seen: ByteObserver<'_>) -> Result<u64> {
        let mut course = RangeCursor::new(file, range, seen);
        let sent = self.state.send(&mut self.link, &mut course, self.setup.buffer);
        self.moved = course.moved;
        sent.map(|()| course.moved)
    }

    /// Sends framing bytes.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn write(&mut self, parts: &[IoSlice<'_>]) -> Result<()> {
        self.link.write(parts, MoreFollows::No)
    }

    /// The same where more follows at once, such as a file that is not empty: what does not fill a segment waits for it, 200 ms at
    /// most.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn write_ahead(&mut self, parts: &[IoSlice<'_>]) -> Result<()> {
        self.link.write(parts, MoreFollows::Yes)
    }

    /// Receives some bytes of a reply; none at the end of the stream.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.link.read(buffer)
    }

    /// Receives all of a reply of this length.
    ///
    /// # Errors
    /// As [`Self::send`]; `UnexpectedEof` if the stream ends before.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.link.fill(buffer)
    }

    /// Waits until the kernel no longer uses any buffer that is sent without a copy, and so until the peer has acknowledged it. That
    /// takes up to 40 ms if the peer has nothing to say (delayed acknowledgements): a reply comes first, where there is one.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn finish(&mut self) -> Result<()> {
        while self.link.zero_copies.as_ref().is_some_and(|zero_copies| !zero_copies.is_empty()) {
            self.link.wait_completions()?;
        }
        pipeline::finish(&mut self.link)
    }

    /// Bytes of the last [`Self::send`] that have gone into the socket, also if it failed.
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
            SendState::Splice(pipe) => smaller_pipe_note(pipe, self.setup.buffer),
            _ => None,
        }
    }
}

/// What there is to say about a pipe that holds less than a call may move.
pub(super) fn smaller_pipe_note(pipe: &Splicer, buffer: usize) -> Option<String> {
    let capacity = pipe.capacity().ok().filter(|&capacity| capacity < buffer)?;
    Some(format!("the pipe holds {capacity} bytes instead of {buffer} (fs.pipe-max-size, fs.pipe-user-pages-soft)"))
}

impl SendState {
    fn new(setup: &SendSetup) -> Result<Self> {
        Ok(match (setup.method, setup.mode) {
            (SendMethod::ReadWrite, _) => Self::ReadWrite(vec![0; setup.buffer]),
            (SendMethod::Mmap, _) => Self::Mmap(FileWindow::reserve(setup.window, PageAccess::Read)?),
            (SendMethod::Sendfile, _) => Self::Sendfile,
            (SendMethod::Splice, _) => Self::Splice(Splicer::new(setup.buffer)?),
            (SendMethod::ZeroCopy, Mode::Uring) => Self::Ring { zero_copy: true },
            (SendMethod::ZeroCopy, _) => Self::ZeroCopy(ZeroCopyBuffers::new(setup.slots(), setup.buffer)?),
            (SendMethod::Uring, _) => Self::Ring { zero_copy: false },
        })
    }

    /// What a new socket must be told.
    fn prepare(&self, link: &mut SocketIo) -> Result<()> {
        if let Self::ZeroCopy(buffers) = self {
            kelvin_sys::net::socket_send::set_zero_copy(link.stream())?;
            link.zero_copies = Some(PendingSends::new(buffers.slots()));
        }
        Ok(())
    }

    fn send(&mut self, link: &mut SocketIo, course: &mut RangeCursor<'_, '_>, buffer: usize) -> Result<()> {
        match self {
            Self::ReadWrite(own) => send_buffered(link, course, own),
            Self::Mmap(window) => {
                let sent = send_mapped(link, course, (window, buffer));
                // Also after an error: a window keeps its file in use.
                window.unmap().and(sent)
            }
            Self::Sendfile => send_file(link, course, buffer),
            Self::Splice(pipe) => send_spliced(link, course, (pipe, buffer)),
            Self::ZeroCopy(buffers) => buffers.send(link, course),
            Self::Ring { zero_copy } => pipeline::send(link, course, *zero_copy),
        }
    }
}

fn send_buffered(link: &mut SocketIo, course: &mut RangeCursor<'_, '_>, buffer: &mut [u8]) -> Result<()> {
    while course.remaining() > 0 {
        let wanted = course.remaining_up_to(buffer.len());
        let read = link.call(TransferCall::Read(course.file, course.offset, &mut buffer[..wanted]))?;
        if read == 0 {
            break;
        }
        let mut sent = 0;
        while sent < read {
            let rest = &buffer[sent..read];
            let more = link.call(TransferCall::Send(rest, course.more_follows(rest.len())))?;
            course.mark_sent(more);
            sent += more;
        }
        course.observe(&buffer[..read]);
    }
    Ok(())
}

fn send_mapped(
    link: &mut SocketIo,
    course: &mut RangeCursor<'_, '_>,
    (window, buffer): (&mut FileWindow, usize),
) -> Result<()> {
    // Only who looks at the bytes here needs it: a system call reports what is missing.
    let guard = if course.is_observed() { Some(SigbusGuard::over(window.address(), window.bytes())?) } else { None };
    while course.remaining() > 0 {
        link.counts.system_calls += 2;
        let end = course.file.metadata()?.len().min(course.end);
        if course.offset >= end {
            break;
        }
        let ahead = course.offset % page_bytes() as u64;
        let shown = window.map_part(course.file, course.offset - ahead, end - course.offset + ahead)?;
        let mut at = ahead as usize;
        while at < shown {
            let part = at..shown.min(at.saturating_add(buffer));
            let sent = match link.call(TransferCall::SendWindow(window, part.clone(), course.more_follows(part.len())))
            {
                Err(error) if is_fault(&error) => {
                    check_truncated(course, part.len(), "its pages could not be read")?;
                    break;
                }
                sent => sent?,
            };
            course.mark_sent(sent);
            course.observe(window.part(at..at + sent));
            at += sent;
        }
        if guard.as_ref().is_some_and(SigbusGuard::has_faulted) {
            return Err(Error::other("the file was truncated while its bytes were looked at"));
        }
    }
    Ok(())
}

/// After a fault in the next so many bytes: an error unless the file has become too short for them, which is then seen.
fn check_truncated(course: &RangeCursor<'_, '_>, bytes: usize, why: &'static str) -> Result<()> {
    if course.file.metadata()?.len() >= course.offset + bytes as u64 { Err(Error::other(why)) } else { Ok(()) }
}

fn send_file(link: &mut SocketIo, course: &mut RangeCursor<'_, '_>, buffer: usize) -> Result<()> {
    while course.remaining() > 0 {
        match link.call(TransferCall::SendFile(course.next_part(buffer)))? {
            0 => break,
            sent => course.mark_sent(sent),
        }
    }
    Ok(())
}

fn send_spliced(
    link: &mut SocketIo,
    course: &mut RangeCursor<'_, '_>,
    (pipe, buffer): (&Splicer, usize),
) -> Result<()> {
    while course.remaining() > 0 {
        let mut held = link.call(TransferCall::FileToPipe(course.next_part(buffer), pipe))?;
        if held == 0 {
            break;
        }
        while held > 0 {
            let sent = nonzero(link.call(TransferCall::PipeToSocket(pipe, held, course.more_follows(held)))?)?;
            course.mark_sent(sent);
            held -= sent;
        }
    }
    Ok(())
}
