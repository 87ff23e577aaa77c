//! An io_uring for a server: connections accepted, bytes received, files read, answers sent. What a request needs - its socket, its
//! file, its buffer - belongs to the ring until the kernel has done with it.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::{IoUring, cqueue, opcode, types};

use super::completion_result;
use super::provided_buffers::ProvidedBuffers;
pub use super::provided_buffers::ReceivedChunk;
use crate::Result;
use crate::net::rx_timestamp::CONTROL_BYTES;

/// Requests that are queued before they must be submitted.
const SUBMISSION_ENTRIES: u32 = 512;
/// Completions that have room; the kernel keeps more until there is room for them.
const COMPLETION_ENTRIES: u32 = 4096;
/// What the completion of a cancellation is known by.
const CANCEL_TOKEN: u64 = u64::MAX;

/// A ring of one thread, for sockets, and for files by a handle of type `F`.
pub struct SocketRing<F> {
    ring: ManuallyDrop<IoUring>,
    provided: ManuallyDrop<ProvidedBuffers>,
    requests: Vec<Option<PendingRequest<F>>>,
    free_slots: Vec<usize>,
    in_flight: usize,
    serial: u32,
}

/// A request that the kernel has, with what it needs.
struct PendingRequest<F> {
    id: RequestId,
    token: u64,
    resources: HeldResources<F>,
}

enum HeldResources<F> {
    Accept(#[allow(dead_code, reason = "open until the request is done")] Arc<TcpListener>),
    Receive(#[allow(dead_code, reason = "open until the request is done")] Arc<OwnedFd>),
    ReceiveWithTime(#[allow(dead_code, reason = "open until the request is done")] Arc<OwnedFd>, Box<MessageHeader>),
    Send(#[allow(dead_code, reason = "open until the request is done")] Arc<OwnedFd>, Vec<u8>),
    Read(#[allow(dead_code, reason = "open until the request is done")] F, Vec<u8>),
    Await(#[allow(dead_code, reason = "open until the request is done")] Arc<OwnedFd>),
}

/// The header of a message of which the time is asked for, and no address; the kernel has buffers for the rest.
struct MessageHeader(libc::msghdr);

// SAFETY: its pointers are null.
unsafe impl Send for MessageHeader {}

/// A request that can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

/// What has happened.
#[derive(Debug)]
pub struct RingEvent {
    /// What the request was given to be known by.
    pub token: u64,
    /// Whether the request is done; else it goes on.
    pub is_last: bool,
    /// What it was.
    pub outcome: RingOutcome,
}

/// What became of a request.
#[derive(Debug)]
pub enum RingOutcome {
    /// A connection.
    Accepted(Result<OwnedFd>),
    /// Bytes have arrived: see [`SocketRing::bytes`]. `None` at the end of the stream.
    Received(Result<Option<ReceivedChunk>>),
    /// This many bytes were sent.
    Sent(Result<usize>, Vec<u8>),
    /// This many bytes were read.
    Read(Result<usize>, Vec<u8>),
    /// A descriptor is ready.
    Ready(Result<()>),
}

/// What for a descriptor is to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// To be read.
    Read,
    /// To be written.
    Write,
}

/// Bytes of a buffer: from which on, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// The first.
    pub begin: usize,
    /// How many.
    pub bytes: usize,
}

impl<F: AsFd> SocketRing<F> {
    /// Sets up a ring, to be used by this thread alone: what another one submits fails.
    ///
    /// # Errors
    /// Those of io_uring_setup: ENOSYS for a kernel without it, EPERM where kernel.io_uring_disabled or a filter of system calls
    /// forbids it, EINVAL before Linux 6.1; those of io_uring_register.
    pub fn new() -> Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all().setup_cqsize(COMPLETION_ENTRIES);
        let ring = ManuallyDrop::new(builder.build(SUBMISSION_ENTRIES)?);
        let provided = ManuallyDrop::new(ProvidedBuffers::register(&ring)?);
        Ok(Self { ring, provided, requests: Vec::new(), free_slots: Vec::new(), in_flight: 0, serial: 0 })
    }

    /// Accepts connections, one after another until an error. The listening socket must be one that waits (without O_NONBLOCK), and
    /// so are the connections.
    ///
    /// # Errors
    /// Those of io_uring_enter, here and in what follows: the request was not made.
    pub fn accept(&mut self, token: u64, listener: &Arc<TcpListener>) -> Result<RequestId> {
        let entry = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC).build();
        self.push(token, entry, HeldResources::Accept(Arc::clone(listener)))
    }

    /// Receives what comes, one piece after another until an error or the end.
    ///
    /// # Errors
    /// As above.
    pub fn receive(&mut self, token: u64, socket: &Arc<OwnedFd>) -> Result<RequestId> {
        let entry = opcode::RecvMulti::new(types::Fd(socket.as_raw_fd()), ProvidedBuffers::GROUP).build();
        self.push(token, entry, HeldResources::Receive(Arc::clone(socket)))
    }

    /// Like `receive`, with the times at which the pieces came, of a socket that [keeps](crate::net::rx_timestamp::enable) them.
    ///
    /// # Errors
    /// As above.
    pub fn receive_with_time(&mut self, token: u64, socket: &Arc<OwnedFd>) -> Result<RequestId> {
        // SAFETY: an all-zero header is valid.
        let mut header = Box::new(MessageHeader(unsafe { std::mem::zeroed() }));
        header.0.msg_controllen = CONTROL_BYTES as _;
        let entry =
            opcode::RecvMsgMulti::new(types::Fd(socket.as_raw_fd()), &raw const header.0, ProvidedBuffers::GROUP)
                .build();
        self.push(token, entry, HeldResources::ReceiveWithTime(Arc::clone(socket), header))
    }

    /// Sends from a buffer, from this byte on, what the socket takes at once.
    ///
    /// # Errors
    /// As above.
    ///
    /// # Panics
    /// If the buffer has no such byte.
    pub fn send(&mut self, token: u64, socket: &Arc<OwnedFd>, (buffer, from): (Vec<u8>, usize)) -> Result<RequestId> {
        let bytes = &buffer[from..];
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), bytes.as_ptr(), length)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
            .build();
        self.push(token, entry, HeldResources::Send(Arc::clone(socket), buffer))
    }

    /// Reads from a file, from this offset on, into a part of a buffer.
    ///
    /// # Errors
    /// As above.
    ///
    /// # Panics
    /// If the buffer has no such part.
    pub fn read(
        &mut self,
        token: u64,
        (file, offset): (F, u64),
        (mut buffer, within): (Vec<u8>, BufferRange),
    ) -> Result<RequestId> {
        let target = &mut buffer[within.begin..][..within.bytes];
        let length = u32::try_from(target.len()).unwrap_or(u32::MAX);
        let descriptor = types::Fd(file.as_fd().as_raw_fd());
        let entry = opcode::Read::new(descriptor, target.as_mut_ptr(), length).offset(offset).build();
        self.push(token, entry, HeldResources::Read(file, buffer))
    }

    /// Waits until a descriptor is ready, once.
    ///
    /// # Errors
    /// As above.
    pub fn await_ready(&mut self, token: u64, descriptor: &Arc<OwnedFd>, readiness: Readiness) -> Result<RequestId> {
        let events = match readiness {
            Readiness::Read => libc::POLLIN,
            Readiness::Write => libc::POLLOUT,
        };
        let entry = opcode::PollAdd::new(types::Fd(descriptor.as_raw_fd()), events as u32).build();
        self.push(token, entry, HeldResources::Await(Arc::clone(descriptor)))
    }

    /// Has a request end, if it is not done: its last event reports it.
    ///
    /// # Errors
    /// As above.
    pub fn cancel(&mut self, id: RequestId) -> Result<()> {
        let request = self.requests.get(request_slot(id)).and_then(Option::as_ref);
        let is_pending = request.is_some_and(|request| request.id == id);
        let entry = opcode::AsyncCancel::new(id.0).build().user_data(CANCEL_TOKEN);
        if is_pending { self.queue(&entry) } else { Ok(()) }
    }

    /// Submits what is queued, and waits until something has happened, at most so long.
    ///
    /// # Errors
    /// As above; that the time is over, or an interruption, is none.
    #[inline]
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
        let time = types::Timespec::from(timeout);
        let arguments = types::SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // EBUSY: what has happened must be taken first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn push(&mut self, token: u64, entry: Entry, resources: HeldResources<F>) -> Result<RequestId> {
        let number = self.free_slots.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.serial = self.serial.wrapping_add(1) & (u32::MAX >> 1);
        let id = RequestId(u64::from(self.serial) << 32 | number as u64);
        // From here on the ring holds what the entry points to.
        self.requests[number] = Some(PendingRequest { id, token, resources });
        let queued = self.queue(&entry.user_data(id.0));
        if queued.is_err() {
            self.requests[number] = None;
            self.free_slots.push(number);
        } else {
            self.in_flight += 1;
        }
        queued.map(|()| id)
    }

    fn queue(&mut self, entry: &Entry) -> Result<()> {
        loop {
            // SAFETY: what the entry points to is a buffer or a header on the heap that the ring holds until the completion that is its last, or
            // nothing; the descriptor is open as long.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.ring.submit() {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

impl<F> SocketRing<F> {
    /// What has happened next.
    #[inline]
    pub fn next_event(&mut self) -> Option<RingEvent> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() != CANCEL_TOKEN {
                return Some(self.take_event(&entry));
            }
        }
    }

    fn take_event(&mut self, entry: &cqueue::Entry) -> RingEvent {
        let (number, is_last) = (request_slot(RequestId(entry.user_data())), !cqueue::more(entry.flags()));
        let result = completion_result(entry);
        let mut request = self.requests[number].take().expect("the kernel completes a request that it has");
        let token = request.token;
        let outcome = match &mut request.resources {
            HeldResources::Accept(_) => RingOutcome::Accepted(result.map(|descriptor| {
                // SAFETY: the kernel has just made this descriptor for this process, and nobody else knows its number.
                unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
            })),
            HeldResources::Receive(_) => {
                RingOutcome::Received(result.map(|bytes| self.provided.chunk(entry.flags(), bytes)))
            }
            HeldResources::ReceiveWithTime(_, header) => {
                let chunk = |bytes| self.provided.timed_chunk(entry.flags(), bytes, &header.0);
                RingOutcome::Received(result.map(chunk))
            }
            HeldResources::Send(_, buffer) => RingOutcome::Sent(result, std::mem::take(buffer)),
            HeldResources::Read(_, buffer) => RingOutcome::Read(result, std::mem::take(buffer)),
            HeldResources::Await(_) => RingOutcome::Ready(result.map(drop)),
        };
        if is_last {
            self.free_slots.push(number);
            self.in_flight -= 1;
        } else {
            self.requests[number] = Some(request);
        }
        RingEvent { token, is_last, outcome }
    }

    /// What has arrived.
    pub fn bytes(&self, chunk: &ReceivedChunk) -> &[u8] {
        self.provided.bytes(chunk)
    }

    /// Gives the room for it back.
    pub fn give_back(&mut self, chunk: ReceivedChunk) {
        self.provided.give_back(chunk);
    }

    /// Has all requests end, and waits for that: whether they have.
    fn cancel_all(&mut self) -> bool {
        let entry = opcode::AsyncCancel2::new(types::CancelBuilder::any().all()).build().user_data(CANCEL_TOKEN);
        // SAFETY: it points to nothing.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            if self.ring.submit().is_err() {
                return false;
            }
        }
        while self.in_flight > 0 {
            if self.ring.submit_and_wait(1).is_err_and(|error| error.raw_os_error() != Some(libc::EINTR)) {
                return false;
            }
            while self.next_event().is_some() {}
        }
        true
    }
}

impl<F> Drop for SocketRing<F> {
    fn drop(&mut self) {
        let has_ended = self.in_flight == 0 || self.cancel_all();
        // SAFETY: neither is used after this, and it happens once. The ring ends before the buffers that the kernel may write into.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            if has_ended {
                ManuallyDrop::drop(&mut self.provided);
            } else {
                // The kernel may still write: memory that is lost is better than memory that is written into.
                std::mem::take(&mut self.requests).into_iter().for_each(std::mem::forget);
            }
        }
    }
}

fn request_slot(RequestId(id): RequestId) -> usize {
    id as u32 as usize
}

#[cfg(test)]
mod tests;
