//! A connected socket in its mode: calls that are made until they have moved something, and what they cost.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kelvin_sys::net::transfer_call::{
    MoreFollows, SocketEvent, SocketWaitMode, TransferCall, TransferRing, WaitingSocket, send_vectored,
};
use kelvin_sys::stop_signals;
use rustix::time::{ClockId, clock_gettime};

use super::method::Mode;
use super::send::PendingSends;
use crate::progress::ProgressMeter;

/// What was done for the bytes that were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// System calls that move bytes, look at the file, map it, or wait.
    pub system_calls: u64,
    /// Those of them that waited for the socket by epoll or for a signal, or for a ring.
    pub waits: u64,
    /// Sends without a copy that the kernel has completed so.
    pub zero_copied: u64,
    /// Sends without a copy that the kernel has completed by copying after all.
    pub copied: u64,
}

/// How a path waits, how long, and its buffers in a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitOptions {
    pub mode: Mode,
    pub timeout: Duration,
    pub slots: usize,
    pub buffer: usize,
}

/// The socket of a path.
pub(super) struct SocketIo {
    backend: Backend,
    options: WaitOptions,
    pub counts: IoCounts,
    /// Sends without a copy that are not completed, where there are such sends.
    pub zero_copies: Option<PendingSends>,
    /// What comes while it is waited for, where that is to be enough.
    pub incoming: Option<ProgressMeter>,
}

enum Backend {
    Calls(WaitingSocket),
    Ring { stream: TcpStream, requests: Box<TransferRing> },
}

impl SocketIo {
    pub fn new(stream: TcpStream, manner: WaitOptions) -> Result<Self> {
        let way = match wait_mode(manner.mode) {
            Some(waiting) => Backend::Calls(WaitingSocket::new(stream, waiting, manner.timeout)?),
            None => {
                prepare_for_ring(&stream, manner.timeout)?;
                Backend::Ring { stream, requests: Box::new(TransferRing::new(manner.slots, manner.buffer)?) }
            }
        };
        Ok(Self { backend: way, options: manner, counts: IoCounts::default(), zero_copies: None, incoming: None })
    }

    /// The same with another socket; a ring stays.
    pub fn reconnect(&mut self, next: TcpStream) -> Result<()> {
        match (&mut self.backend, wait_mode(self.options.mode)) {
            (Backend::Ring { stream, requests }, _) => {
                prepare_for_ring(&next, self.options.timeout)?;
                *stream = next;
                // Buffers may still be in use by a connection that failed.
                if (0..requests.slots()).any(|slot| requests.is_in_use(slot)) {
                    **requests = TransferRing::new(self.options.slots, self.options.buffer)?;
                }
            }
            (way, Some(waiting)) => *way = Backend::Calls(WaitingSocket::new(next, waiting, self.options.timeout)?),
            (Backend::Calls(_), None) => unreachable!("the mode of a ring has one"),
        }
        Ok(())
    }

    pub fn stream(&self) -> &TcpStream {
        match &self.backend {
            Backend::Calls(socket) => socket.stream(),
            Backend::Ring { stream, .. } => stream,
        }
    }

    /// Its socket and its ring, if it has one, and what comes by it.
    pub fn ring(&mut self) -> Option<(&TcpStream, &mut TransferRing, &mut IoCounts, RingWait<'_>)> {
        let waits = RingWait { timeout: self.options.timeout, incoming: self.incoming.as_mut() };
        match &mut self.backend {
            Backend::Calls(_) => None,
            Backend::Ring { stream, requests } => Some((stream, requests, &mut self.counts, waits)),
        }
    }

    /// Makes a call until it has moved something, or says that there is nothing more.
    pub fn call(&mut self, call: TransferCall<'_>) -> Result<usize> {
        if self.incoming.is_none() || call.awaited() != Some(SocketEvent::Readable) {
            return self.call_unmeasured(call);
        }
        let begun = coarse_now();
        let moved = self.call_unmeasured(call)?;
        record_progress(self.incoming.as_mut(), coarse_now().saturating_sub(begun), moved)?;
        Ok(moved)
    }

    fn call_unmeasured(&mut self, mut call: TransferCall<'_>) -> Result<usize> {
        let awaited = call.awaited();
        match &mut self.backend {
            Backend::Ring { stream, requests } => {
                self.counts.system_calls += 1;
                self.counts.waits += 1;
                requests.execute(call, stream, self.options.timeout).map_err(|error| match error.kind() {
                    ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
                    _ => error,
                })
            }
            Backend::Calls(_) => self.retry_until_ready(awaited, |stream| call.execute(stream)),
        }
    }

    /// Tries until it is neither interrupted nor would block, and waits in between. No patience is left to a blocking call that
    /// would block.
    fn retry_until_ready(
        &mut self,
        awaited: Option<SocketEvent>,
        mut attempt: impl FnMut(&TcpStream) -> Result<usize>,
    ) -> Result<usize> {
        let mut begun = None;
        loop {
            stop_if_asked()?;
            self.counts.system_calls += 1;
            match (attempt(self.stream()), awaited) {
                (Err(error), _) if error.kind() == ErrorKind::Interrupted => {}
                (Err(error), Some(awaited)) if error.kind() == ErrorKind::WouldBlock => {
                    if self.options.mode == Mode::Blocking {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    self.take_completions()?;
                    self.wait(awaited, *begun.get_or_insert_with(Instant::now))?;
                }
                (outcome, _) => return outcome,
            }
        }
    }

    /// Waits for something, for what is left of the patience since this instant.
    fn wait(&mut self, awaited: SocketEvent, since: Instant) -> Result<()> {
        let left = self.options.timeout.saturating_sub(since.elapsed());
        let Backend::Calls(socket) = &mut self.backend else { return Ok(()) };
        self.counts.system_calls += 1;
        self.counts.waits += 1;
        if left.is_zero() || !socket.wait(awaited, left)? {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Takes what the error queue says of sends without a copy. What stays in it wakes every wait at once.
    pub fn take_completions(&mut self) -> Result<bool> {
        let Some(mut zero_copies) = self.zero_copies.take() else { return Ok(false) };
        let mut counts = self.counts;
        let taken = zero_copies.take_completions(self.stream(), &mut counts);
        self.counts = counts;
        self.zero_copies = Some(zero_copies);
        taken
    }

    /// Waits until some sends without a copy are completed.
    pub fn wait_completions(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            stop_if_asked()?;
            if self.take_completions()? {
                return Ok(());
            }
            self.wait(SocketEvent::ErrorQueue, begun)?;
        }
    }

    /// Sends framing bytes.
    pub fn write(&mut self, parts: &[IoSlice<'_>], follows: MoreFollows) -> Result<()> {
        if matches!(self.backend, Backend::Ring { .. }) {
            return self.write_in_ring(parts, follows);
        }
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut sent = 0;
        while sent < bytes {
            let mut rest: Vec<IoSlice<'_>> = parts.to_vec();
            let mut rest = rest.as_mut_slice();
            IoSlice::advance_slices(&mut rest, sent);
            sent +=
                self.retry_until_ready(Some(SocketEvent::Writable), |stream| send_vectored(stream, rest, follows))?;
        }
        Ok(())
    }

    fn write_in_ring(&mut self, parts: &[IoSlice<'_>], follows: MoreFollows) -> Result<()> {
        let last = parts.iter().rposition(|part| !part.is_empty());
        for (number, part) in parts.iter().enumerate() {
            let mut rest: &[u8] = part;
            while !rest.is_empty() {
                let follows = if Some(number) == last { follows } else { MoreFollows::Yes };
                rest = &rest[self.call(TransferCall::Send(rest, follows))?..];
            }
        }
        Ok(())
    }

    /// Receives some framing bytes; none at the end of the stream.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() { Ok(0) } else { self.call(TransferCall::Receive(buffer)) }
    }

    /// Receives so many framing bytes.
    pub fn fill(&mut self, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => buffer = &mut buffer[read..],
            }
        }
        Ok(())
    }
}

/// How a ring waits for its socket.
pub(super) struct RingWait<'a> {
    pub timeout: Duration,
    /// What comes meanwhile, where that is to be enough.
    pub incoming: Option<&'a mut ProgressMeter>,
}

/// So many bytes have come after so long; an error if they are too few.
pub(super) fn record_progress(incoming: Option<&mut ProgressMeter>, waited: Duration, bytes: usize) -> Result<()> {
    let measured = incoming.map_or(Ok(()), |incoming| incoming.record(waited, bytes));
    measured.map_err(|shortfall| Error::new(ErrorKind::TimedOut, shortfall))
}

/// A time to a few milliseconds, for a hundredth of the cost of a small call: waits that are shorter come to as much on average.
pub(super) fn coarse_now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The way of waiting without a ring.
fn wait_mode(mode: Mode) -> Option<SocketWaitMode> {
    match mode {
        Mode::Blocking => Some(SocketWaitMode::InCall),
        Mode::Nonblocking => Some(SocketWaitMode::Epoll),
        Mode::Signal => Some(SocketWaitMode::Signal),
        Mode::Uring => None,
    }
}

/// Requests that the socket is not ready for wait in the kernel: it must block, and a splice, which a thread of the kernel does,
/// gives up by itself.
fn prepare_for_ring(stream: &TcpStream, patience: Duration) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

/// An error if a signal asked to stop.
pub(super) fn stop_if_asked() -> Result<()> {
    match stop_signals::stop_signal() {
        Some(signal) => Err(Error::new(ErrorKind::Interrupted, format!("interrupted by {signal}"))),
        None => Ok(()),
    }
}
