//! A ring whose requests move bytes between a file and a socket: one at a time with the caller's memory, or many in flight with
//! buffers of its own.

use std::collections::VecDeque;
use std::fs::File;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};

use super::{MoreFollows, TransferCall, flags, ring_length};
use crate::memory::Arena;
use crate::uring::{buffer_stride, completion_result};
use crate::{Error, Result, stop_signals};

/// `IORING_SEND_ZC_REPORT_USAGE` and `IORING_NOTIF_USAGE_ZC_COPIED` of `linux/io_uring.h`.
const REPORT_USAGE: u16 = 8;
const USAGE_COPIED: u32 = 1 << 31;

/// The name of the one request that has no buffer of the ring's.
const CALL_NAME: u64 = u64::MAX;
/// What the names of requests are multiples of, apart from their buffers: more than there are buffers.
const NAME_STEP: u64 = 1 << 16;

/// A request with a buffer of the ring's.
#[derive(Clone, Copy, Debug)]
pub enum BufferRequest<'a> {
    /// Fills it from a file, from this offset on.
    Read(&'a File, u64),
    /// Writes it to a file, from this offset on.
    Write(&'a File, u64),
    /// Sends all of it.
    Send(BorrowedFd<'a>, MoreFollows),
    /// Like `Send`, without a copy; its result and the end of the buffer's use are two completions.
    SendZeroCopy(BorrowedFd<'a>, MoreFollows),
    /// Fills it with what has arrived.
    Receive(BorrowedFd<'a>),
}

impl BufferRequest<'_> {
    /// As a request of a ring for this many bytes of memory; one that sends has these flags as well.
    pub(super) fn entry(self, place: *mut u8, bytes: usize, send_flags: libc::c_int) -> squeue::Entry {
        let bytes = ring_length(bytes);
        match self {
            Self::Read(file, offset) => opcode::Read::new(Fd(file.as_raw_fd()), place, bytes).offset(offset).build(),
            Self::Write(file, offset) => opcode::Write::new(Fd(file.as_raw_fd()), place, bytes).offset(offset).build(),
            Self::Send(socket, follows) => {
                opcode::Send::new(Fd(socket.as_raw_fd()), place, bytes).flags(flags(follows) | send_flags).build()
            }
            Self::SendZeroCopy(socket, follows) => opcode::SendZc::new(Fd(socket.as_raw_fd()), place, bytes)
                .flags(flags(follows) | send_flags)
                .zc_flags(REPORT_USAGE)
                .build(),
            Self::Receive(socket) => opcode::Recv::new(Fd(socket.as_raw_fd()), place, bytes).build(),
        }
    }
}

/// What happened to a request.
#[derive(Debug)]
pub enum Completion {
    /// It ended: this many bytes were moved.
    Moved {
        /// Its buffer.
        slot: usize,
        /// How many, or why none.
        bytes: Result<usize>,
    },
    /// The bytes of a [`BufferRequest::SendZeroCopy`] are no longer used.
    Released {
        /// Their buffer.
        slot: usize,
        /// Whether the kernel copied them after all.
        copied: bool,
    },
}

/// What the kernel does with a buffer.
#[derive(Clone, Debug, Default)]
struct BufferUse {
    /// Requests in flight.
    requests: u32,
    /// Whether one of them writes into it.
    fills: bool,
    /// Sends without a copy that have ended, but still use it: their names, and whether they sent anything.
    pending_notifications: Vec<(u64, bool)>,
}

/// A ring and its buffers.
pub struct TransferRing {
    ring: IoUring,
    /// Bytes of a buffer.
    bytes: usize,
    buffers: Option<Arena>,
    uses: Vec<BufferUse>,
    /// Requests that are queued or submitted, and not yet done. Bytes sent without a copy may be used for longer; they lie in pages
    /// that the kernel holds.
    in_flight: usize,
    /// Completions that were taken from the ring and are not yet returned.
    completions: VecDeque<cqueue::Entry>,
    /// The name of the next request, to which its buffer is added: the kernel may complete a send without a copy that was cancelled
    /// when its buffer is already used for another.
    next: u64,
}

impl TransferRing {
    /// A ring with this many buffers of this many bytes, which may be none.
    ///
    /// # Errors
    /// Those of [`crate::uring::FileRing::new`]; `Unsupported` for a kernel before 6.0, which cannot wait for what it cancels.
    pub fn new(slots: usize, bytes: usize) -> Result<Self> {
        let (ring, _) = crate::uring::new_io_uring(ring_length(slots.next_power_of_two().max(2)))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::SendZc::CODE) {
            return Err(Error::new(ErrorKind::Unsupported, "io_uring with sockets needs Linux 6.0"));
        }
        let buffers = if slots == 0 { None } else { Some(Arena::io_buffer(buffer_stride(bytes) * slots)?) };
        let (uses, completions) = (vec![BufferUse::default(); slots], VecDeque::new());
        Ok(Self { ring, bytes, buffers, uses, in_flight: 0, completions, next: 0 })
    }

    /// How many buffers it has.
    pub fn slots(&self) -> usize {
        self.uses.len()
    }

    /// Bytes of a buffer.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests that are queued or submitted, and not yet done.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Completions that are yet to be returned.
    #[cfg(test)]
    pub(super) fn completion_count(&self) -> usize {
        self.completions.len()
    }

    /// Whether the kernel uses a buffer: for a request, or because bytes in it were sent without a copy.
    pub fn is_in_use(&self, slot: usize) -> bool {
        self.uses[slot].requests > 0 || !self.uses[slot].pending_notifications.is_empty()
    }

    /// A buffer, which the kernel may read at the same time.
    ///
    /// # Panics
    /// If a request fills it just now.
    pub fn buffer(&self, slot: usize) -> &[u8] {
        assert!(!self.uses[slot].fills, "buffer {slot} is being filled");
        let buffers = self.buffers.as_ref().expect("a slot has a buffer");
        &buffers.as_slice()[slot * buffer_stride(self.bytes)..][..self.bytes]
    }

    /// Where a part of a buffer begins.
    fn buffer_ptr(&mut self, slot: usize, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} leaves a buffer");
        // As an address of the arena, so that no reference covers what the kernel fills.
        let first = self.buffers.as_ref().map_or(0, Arena::address);
        std::ptr::with_exposed_provenance_mut(first + slot * buffer_stride(self.bytes) + range.start)
    }

    /// Has `work` queue requests on files and sockets that live longer than this call: none of them is queued or in flight when it
    /// returns, however it ends.
    pub fn scope<'env, T>(&mut self, work: impl FnOnce(&mut RingScope<'_, 'env>) -> T) -> T {
        let mut scope_end = ScopeEnd(RingScope { requests: self, files: PhantomData });
        work(&mut scope_end.0)
    }

    /// # Safety
    /// What the request uses must be left to the kernel until it is done.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: as the caller promises.
        let result = unsafe { self.ring.submission().push(entry) };
        assert!(result.is_ok(), "the queue has a place for each buffer");
        self.in_flight += 1;
    }

    /// Submits what is queued, without waiting; what the kernel does not take just now, the next one submits.
    ///
    /// # Errors
    /// Those of io_uring_enter.
    fn submit(&mut self) -> Result<()> {
        match self.ring.submit() {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Submits what is queued, and waits until a request is done: `false` if none was within this time.
    ///
    /// # Errors
    /// Those of io_uring_enter; `Interrupted` if a signal asked to stop.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        if !self.completions.is_empty() {
            return self.submit().map(|()| true);
        }
        self.wait_in_kernel(timeout)
    }

    fn wait_in_kernel(&mut self, timeout: Option<Duration>) -> Result<bool> {
        let start = Instant::now();
        loop {
            if stop_signals::stop_signal().is_some() {
                return Err(ErrorKind::Interrupted.into());
            }
            let remaining = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let enter_result = self.enter(remaining);
            // What a call submitted hides that its time was over, or that a signal came.
            if !self.ring.completion().is_empty() {
                return Ok(true);
            }
            match enter_result {
                Err(error) if !is_transient(&error) => return Err(error),
                _ if remaining.is_some_and(|remaining| remaining.is_zero()) => return Ok(false),
                _ => {}
            }
        }
    }

    /// Submits what is queued, and waits for one request, at most this time.
    fn enter(&mut self, timeout: Option<Duration>) -> Result<usize> {
        let Some(timeout) = timeout else { return self.ring.submit_and_wait(1) };
        let timespec = Timespec::from(timeout);
        self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
    }

    /// What became of a request.
    pub fn next_completion(&mut self) -> Option<Completion> {
        loop {
            let entry = self.completions.pop_front().or_else(|| self.ring.completion().next())?;
            if let Some(completion) = self.record_completion(&entry) {
                return Some(completion);
            }
        }
    }

    fn record_completion(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let name = entry.user_data();
        let slot = (name % NAME_STEP) as usize;
        let usage = &mut self.uses[slot];
        if cqueue::notif(entry.flags()) {
            // One that was cancelled in a chain completes without having been announced.
            let position = usage.pending_notifications.iter().position(|notification| notification.0 == name)?;
            let (_, has_sent) = usage.pending_notifications.swap_remove(position);
            return has_sent
                .then_some(Completion::Released { slot, copied: entry.result() as u32 & USAGE_COPIED != 0 });
        }
        self.in_flight -= 1;
        usage.requests -= 1;
        usage.fills = false;
        if cqueue::more(entry.flags()) {
            usage.pending_notifications.push((name, entry.result() > 0));
        }
        Some(Completion::Moved { slot, bytes: completion_result(entry) })
    }

    /// Makes a call as a request, and waits until it is done: for a file however long it takes, for the socket at most this time.
    /// One that a signal ended before it moved anything is made again.
    ///
    /// # Errors
    /// Those of the request; `TimedOut`; `Interrupted` if a signal asked to stop; `Unsupported` for a call that is no request.
    ///
    /// # Panics
    /// If other requests are in flight.
    pub fn execute(&mut self, mut call: TransferCall<'_>, socket: &impl AsFd, timeout: Duration) -> Result<usize> {
        assert_eq!(self.in_flight, 0, "other requests are in flight");
        let start = Instant::now();
        loop {
            let remaining = call.wait_event().map(|_| timeout.saturating_sub(start.elapsed()));
            let entry = call.submission_entry(socket).ok_or(ErrorKind::Unsupported)?;
            // SAFETY: what the call borrows is borrowed until this function returns, and the request is done before that.
            unsafe { self.push(&entry.user_data(CALL_NAME)) };
            let (call_result, wait_result) = self.wait_for_call(remaining);
            self.in_flight -= 1;
            match (call_result, wait_result) {
                // Work that the kernel has for this thread counts as a signal too.
                (Err(error), Ok(true)) if is_cancelled(&error) => {}
                (Err(error), Ok(false)) if is_cancelled(&error) => return Err(ErrorKind::TimedOut.into()),
                (Err(error), Err(wait_error)) if is_cancelled(&error) => return Err(wait_error),
                (call_result, _) => return call_result,
            }
        }
    }

    /// Waits until the one call is done, called back if need be: what it moved, and whether it was in time.
    fn wait_for_call(&mut self, timeout: Option<Duration>) -> (Result<usize>, Result<bool>) {
        let start = Instant::now();
        let mut wait_result = Ok(true);
        loop {
            self.completions.extend(self.ring.completion());
            let position = self.completions.iter().position(|entry| entry.user_data() == CALL_NAME);
            if let Some(entry) = position.and_then(|index| self.completions.remove(index)) {
                return (completion_result(&entry), wait_result);
            }
            wait_result = self.wait_in_kernel(timeout.map(|timeout| timeout.saturating_sub(start.elapsed())));
            if !matches!(wait_result, Ok(true)) {
                self.cancel_all();
            }
        }
    }

    /// Ends what is in flight: cancels it where that is possible, waits for the rest, and leaves what became of all to
    /// [`Self::next_completion`].
    fn cancel_all(&mut self) {
        let is_end = |entry: &cqueue::Entry| !cqueue::notif(entry.flags());
        let mut remaining = self.in_flight - self.completions.iter().filter(|entry| is_end(entry)).count();
        loop {
            for entry in self.ring.completion() {
                remaining -= usize::from(is_end(&entry));
                self.completions.push_back(entry);
            }
            if remaining == 0 {
                return;
            }
            // That nothing is found to be cancelled is no error: it may just be ending. It is cancelled again where a request was
            // between two steps.
            let _ = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
            match self.enter(Some(Duration::from_millis(10))) {
                // The kernel may still write into memory that is about to be used otherwise.
                Err(error) if !is_transient(&error) => std::process::abort(),
                _ => {}
            }
        }
    }
}

/// Queues requests on files and sockets that are open for at least `'env`.
///
/// It gives no way to the ring itself: who exchanged that for another one would take requests beyond the lives of their files.
pub struct RingScope<'ring, 'env> {
    requests: &'ring mut TransferRing,
    files: PhantomData<&'env mut &'env ()>,
}

impl<'env> RingScope<'_, 'env> {
    /// Queues a request for the bytes in `range` of a buffer, which [`Self::submit`] or [`Self::wait`] submits. One that is linked ends
    /// before the next one begins, which is cancelled if it moves fewer bytes than asked for.
    ///
    /// # Panics
    /// If the buffer is used in a way that excludes this one, or the bytes are not inside it.
    pub fn queue(&mut self, request: BufferRequest<'env>, slot: usize, range: Range<usize>, is_linked: bool) {
        let ring = &mut *self.requests;
        let fills = matches!(request, BufferRequest::Read(..) | BufferRequest::Receive(_));
        assert!(!ring.uses[slot].fills && (!fills || !ring.is_in_use(slot)), "buffer {slot} is in use");
        let entry = request.entry(ring.buffer_ptr(slot, &range), range.len(), libc::MSG_WAITALL);
        let link = if is_linked { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
        // SAFETY: the buffer belongs to this ring, which waits for its requests before it frees it, and nobody gets a reference
        // that this use excludes. File and socket are open until it is done: they outlive the scope, which ends what is in flight.
        unsafe { ring.push(&entry.flags(link).user_data(ring.next | slot as u64)) };
        ring.next = ring.next.wrapping_add(NAME_STEP);
        ring.uses[slot].requests += 1;
        ring.uses[slot].fills = fills;
    }

    /// Submits what is queued, without waiting; what the kernel does not take just now, the next one submits.
    ///
    /// # Errors
    /// Those of io_uring_enter.
    pub fn submit(&mut self) -> Result<()> {
        self.requests.submit()
    }

    /// Submits what is queued, and waits until a request is done: `false` if none was within this time.
    ///
    /// # Errors
    /// Those of io_uring_enter; `Interrupted` if a signal asked to stop.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        self.requests.wait(timeout)
    }

    /// As [`TransferRing::next_completion`].
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.requests.next_completion()
    }

    /// Ends what is in flight: cancels it where that is possible, waits for the rest, and leaves what became of all to
    /// [`Self::next_completion`].
    pub fn cancel_all(&mut self) {
        self.requests.cancel_all();
    }
}

/// What only looks at the ring. That which changes it is named above: a ring may not be taken out of its scope.
impl Deref for RingScope<'_, '_> {
    type Target = TransferRing;

    fn deref(&self) -> &TransferRing {
        self.requests
    }
}

/// Ends all requests when the scope is left, also by a panic.
struct ScopeEnd<'ring, 'env>(RingScope<'ring, 'env>);

impl Drop for ScopeEnd<'_, '_> {
    fn drop(&mut self) {
        self.0.cancel_all();
    }
}

impl Drop for TransferRing {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

/// Whether an error of io_uring_enter is none of the requests: a signal, a time that is over, too little memory or too many
/// completions just now.
fn is_transient(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY))
}

/// Whether a request was ended before it moved anything, by [`RingScope::cancel_all`] or a signal.
pub fn is_cancelled(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECANCELED | libc::EINTR))
}
