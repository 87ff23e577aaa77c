//! A connected socket in its mode: calls that are made until they have moved something, and what they cost.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kelvin_sys::kmod::KernelSocket;
use kelvin_sys::net::socket_send::next_completion;
use kelvin_sys::net::transfer_call::{
    Completion, MoreFollows, SocketEvent, SocketWaitMode, TransferCall, TransferRing, WaitingSocket, send_vectored,
};
use kelvin_sys::stop_signals;
use rustix::time::{ClockId, clock_gettime};

use super::method::{Mode, PathMethod, PathSetup, SendSetup};
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

impl IoCounts {
    /// Counts a send without a copy that is completed.
    pub(super) fn count_release(&mut self, completion: &Completion) {
        if let Completion::Released { copied, .. } = completion {
            *(if *copied { &mut self.copied } else { &mut self.zero_copied }) += 1;
        }
    }
}

/// The socket of a path.
pub struct SocketIo {
    backend: Backend,
    /// How it waits, how long, and its buffers in a ring.
    setup: SendSetup,
    pub counts: IoCounts,
    /// Sends without a copy that are not completed, where there are such sends.
    pub zero_copies: Option<PendingSends>,
    /// What comes while it is waited for, where that is to be enough.
    pub incoming: Option<ProgressMeter>,
}

enum Backend {
    Calls(WaitingSocket),
    Ring {
        stream: TcpStream,
        requests: Box<TransferRing>,
    },
    /// Its calls block.
    Device(KernelSocket),
}

/// A ring, its socket, and how it waits for it.
pub struct RingIo<'a> {
    pub socket: &'a TcpStream,
    pub requests: &'a mut TransferRing,
    pub counts: &'a mut IoCounts,
    pub timeout: Duration,
    /// What comes meanwhile, where that is to be enough.
    pub incoming: Option<&'a mut ProgressMeter>,
}

impl SocketIo {
    pub fn new<M: PathMethod>(stream: TcpStream, setup: &PathSetup<M>) -> Result<Self> {
        let backend = match wait_mode(setup.mode) {
            Some(waiting) => Backend::Calls(WaitingSocket::new(stream, waiting, setup.timeout)?),
            None => {
                set_waiting(&stream, setup.mode, setup.timeout)?;
                Backend::Ring { stream, requests: Box::new(TransferRing::new(setup.slots(), setup.buffer)?) }
            }
        };
        Ok(Self::from_backend(backend, setup))
    }

    /// A socket in the kernel, behind a device.
    pub fn over_device<M: PathMethod>(device: KernelSocket, setup: &PathSetup<M>) -> Self {
        Self::from_backend(Backend::Device(device), setup)
    }

    fn from_backend<M: PathMethod>(backend: Backend, setup: &PathSetup<M>) -> Self {
        let setup = setup.as_sending();
        Self { backend, setup, counts: IoCounts::default(), zero_copies: None, incoming: None }
    }

    /// Takes another socket in the place of the present one; a ring stays.
    pub fn reconnect(&mut self, next: TcpStream) -> Result<()> {
        match (&mut self.backend, wait_mode(self.setup.mode)) {
            (Backend::Ring { stream, requests }, _) => {
                set_waiting(&next, self.setup.mode, self.setup.timeout)?;
                *stream = next;
                // Buffers may still be in use by a connection that failed.
                if (0..requests.slots()).any(|slot| requests.is_in_use(slot)) {
                    **requests = TransferRing::new(self.setup.slots(), self.setup.buffer)?;
                }
                Ok(())
            }
            (Backend::Calls(socket), Some(waiting)) => {
                *socket = WaitingSocket::new(next, waiting, self.setup.timeout)?;
                Ok(())
            }
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// The socket, unless it is in the kernel.
    pub fn stream(&self) -> Option<&TcpStream> {
        match &self.backend {
            Backend::Calls(socket) => Some(socket.stream()),
            Backend::Ring { stream, .. } => Some(stream),
            Backend::Device(_) => None,
        }
    }

    /// The device, if the socket is in the kernel.
    pub fn device(&mut self) -> Option<&mut KernelSocket> {
        if let Backend::Device(device) = &mut self.backend { Some(device) } else { None }
    }

    pub fn into_device(self) -> Option<KernelSocket> {
        if let Backend::Device(device) = self.backend { Some(device) } else { None }
    }

    /// Has the calls of the socket wait as a mode has them, for this time.
    pub fn set_waiting(&self, mode: Mode, timeout: Duration) -> Result<()> {
        self.stream().map_or(Ok(()), |socket| set_waiting(socket, mode, timeout))
    }

    /// Its ring, if it has one.
    pub fn ring(&mut self) -> Option<RingIo<'_>> {
        let Backend::Ring { stream, requests } = &mut self.backend else { return None };
        let (timeout, incoming) = (self.setup.timeout, self.incoming.as_mut());
        Some(RingIo { socket: stream, requests, counts: &mut self.counts, timeout, incoming })
    }

    /// Makes a call until it has moved something, or returns that there is nothing more.
    pub fn call(&mut self, call: TransferCall<'_>) -> Result<usize> {
        if self.incoming.is_none() || call.wait_event() != Some(SocketEvent::Readable) {
            return self.call_unmeasured(call);
        }
        let start = coarse_now();
        let moved = self.call_unmeasured(call)?;
        record_progress(self.incoming.as_mut(), coarse_now().saturating_sub(start), moved)?;
        Ok(moved)
    }

    fn call_unmeasured(&mut self, mut call: TransferCall<'_>) -> Result<usize> {
        let awaited = call.wait_event();
        if let Backend::Ring { stream, requests } = &mut self.backend {
            self.counts.system_calls += 1;
            self.counts.waits += 1;
            return requests.execute(call, stream, self.setup.timeout).map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
                _ => error,
            });
        }
        self.retry_until_ready(awaited, |backend| match backend {
            Backend::Calls(socket) => call.execute(socket.stream()),
            Backend::Ring { stream, .. } => call.execute(stream),
            Backend::Device(device) => match &mut call {
                TransferCall::Send(bytes, _) => (&*device).write(bytes),
                TransferCall::Receive(buffer) => (&*device).read(buffer),
                other_call => other_call.execute(device),
            },
        })
    }

    /// Calls the device until no signal interrupts the call that does not ask to stop.
    pub fn call_device<T>(&mut self, mut call: impl FnMut(&mut KernelSocket) -> Result<T>) -> Result<T> {
        self.retry_until_ready(None, |backend| match backend {
            Backend::Device(device) => call(device),
            _ => Err(ErrorKind::Unsupported.into()),
        })
    }

    /// Tries until it is neither interrupted nor would block, and waits in between. No time is left to a blocking call that would
    /// block.
    fn retry_until_ready<T>(
        &mut self,
        awaited: Option<SocketEvent>,
        mut attempt: impl FnMut(&mut Backend) -> Result<T>,
    ) -> Result<T> {
        let mut start = None;
        loop {
            check_stop_signal()?;
            self.counts.system_calls += 1;
            match (attempt(&mut self.backend), awaited) {
                (Err(error), _) if error.kind() == ErrorKind::Interrupted => {}
                (Err(error), Some(awaited)) if error.kind() == ErrorKind::WouldBlock => {
                    if self.setup.mode == Mode::Blocking {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    self.take_completions()?;
                    self.wait(awaited, *start.get_or_insert_with(Instant::now))?;
                }
                (outcome, _) => return outcome,
            }
        }
    }

    /// Waits for something, for what is left of the timeout since this instant.
    fn wait(&mut self, awaited: SocketEvent, since: Instant) -> Result<()> {
        let remaining = self.setup.timeout.saturating_sub(since.elapsed());
        let Backend::Calls(socket) = &mut self.backend else { return Ok(()) };
        self.counts.system_calls += 1;
        self.counts.waits += 1;
        if remaining.is_zero() || !socket.wait(awaited, remaining)? {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Takes what the error queue reports of sends without a copy. What stays in it wakes every wait at once.
    pub fn take_completions(&mut self) -> Result<bool> {
        match (&mut self.zero_copies, &self.backend) {
            (Some(zero_copies), Backend::Calls(socket)) => {
                zero_copies.take_completions(socket.stream(), &mut self.counts)
            }
            _ => Ok(false),
        }
    }

    /// Waits until some sends without a copy are completed.
    pub fn wait_completions(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            check_stop_signal()?;
            if self.take_completions()? {
                return Ok(());
            }
            self.wait(SocketEvent::ErrorQueue, start)?;
        }
    }

    /// Sends framing bytes. Where more follows at once, such as a file that is not empty, what does not fill a segment waits for it, 200 ms
    /// at most.
    pub fn write(&mut self, parts: &[IoSlice<'_>], follows: MoreFollows) -> Result<()> {
        match self.backend {
            Backend::Calls(_) => {
                let mut parts: Vec<IoSlice<'_>> = parts.to_vec();
                let mut rest = parts.as_mut_slice();
                while rest.iter().any(|part| !part.is_empty()) {
                    let sent = self.retry_until_ready(Some(SocketEvent::Writable), |backend| match backend {
                        Backend::Calls(socket) => send_vectored(socket.stream(), rest, follows),
                        _ => Err(ErrorKind::Unsupported.into()),
                    })?;
                    IoSlice::advance_slices(&mut rest, sent);
                }
                Ok(())
            }
            Backend::Ring { .. } => {
                let last = parts.iter().rposition(|part| !part.is_empty());
                parts.iter().enumerate().try_for_each(|(number, part)| {
                    self.write_part(part, if Some(number) == last { follows } else { MoreFollows::Yes })
                })
            }
            // By one call. A device has no such flag as MSG_MORE.
            Backend::Device(_) => {
                self.write_part(&parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>(), follows)
            }
        }
    }

    fn write_part(&mut self, mut rest: &[u8], follows: MoreFollows) -> Result<()> {
        while !rest.is_empty() {
            rest = &rest[self.call(TransferCall::Send(rest, follows))?..];
        }
        Ok(())
    }

    /// Receives some framing bytes; none at the end of the stream.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() { Ok(0) } else { self.call(TransferCall::Receive(buffer)) }
    }

    /// Receives as many framing bytes as there is room for: `UnexpectedEof` if the stream ends before.
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

/// This many bytes have come after this time; an error if they are too few.
pub fn record_progress(incoming: Option<&mut ProgressMeter>, waited: Duration, bytes: usize) -> Result<()> {
    let progress = incoming.map_or(Ok(()), |incoming| incoming.record(waited, bytes));
    progress.map_err(|shortfall| Error::new(ErrorKind::TimedOut, shortfall))
}

/// A time to a few milliseconds, for a hundredth of the cost of a small call. Waits that are shorter come to as much on average.
pub fn coarse_now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// How a socket without a ring waits.
fn wait_mode(mode: Mode) -> Option<SocketWaitMode> {
    match mode {
        Mode::Blocking => Some(SocketWaitMode::InCall),
        Mode::Nonblocking => Some(SocketWaitMode::Epoll),
        Mode::Signal => Some(SocketWaitMode::Signal),
        Mode::Uring => None,
    }
}

/// Has the calls of a socket wait as a mode has them. Requests of a ring that the socket is not ready for wait in the kernel. It must block,
/// and a splice, which a thread of the kernel does, gives up by itself.
fn set_waiting(stream: &TcpStream, mode: Mode, timeout: Duration) -> Result<()> {
    stream.set_nonblocking(matches!(mode, Mode::Nonblocking | Mode::Signal))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

/// An error if a signal asked to stop.
pub fn check_stop_signal() -> Result<()> {
    match stop_signals::stop_signal() {
        Some(signal) => Err(Error::new(ErrorKind::Interrupted, format!("interrupted by {signal}"))),
        None => Ok(()),
    }
}

/// Sends of one socket that are not completed, and the buffers that they use.
#[derive(Debug)]
pub struct PendingSends {
    /// The number of the first send below.
    first: u32,
    /// The buffer of each send, from the first on that is not completed; `None` if it is.
    sends: VecDeque<Option<usize>>,
    /// How many sends use each buffer.
    uses: Vec<u32>,
}

impl PendingSends {
    /// None yet, of this many buffers.
    pub fn new(slots: usize) -> Self {
        Self { first: 0, sends: VecDeque::new(), uses: vec![0; slots] }
    }

    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    pub fn free_slot(&self) -> Option<usize> {
        self.uses.iter().position(|&uses| uses == 0)
    }

    pub fn free_slots(&self) -> usize {
        self.uses.iter().filter(|&&uses| uses == 0).count()
    }

    /// The next send uses this buffer.
    pub fn start_send(&mut self, slot: usize) {
        self.sends.push_back(Some(slot));
        self.uses[slot] += 1;
    }

    /// Takes what the socket's error queue reports, and returns whether it had anything.
    fn take_completions(&mut self, socket: &TcpStream, counts: &mut IoCounts) -> Result<bool> {
        let mut has_completions = false;
        loop {
            counts.system_calls += 1;
            let Some((numbers, copied)) = next_completion(socket)? else { return Ok(has_completions) };
            has_completions = true;
            let completed = self.complete_sends(*numbers.start(), *numbers.end());
            *(if copied { &mut counts.copied } else { &mut counts.zero_copied }) += completed;
        }
    }

    /// The sends from one number to another are completed; returns how many of them were not before.
    fn complete_sends(&mut self, first_send: u32, last_send: u32) -> u64 {
        let indexes = first_send.wrapping_sub(self.first) as usize..=last_send.wrapping_sub(self.first) as usize;
        let mut completed = 0;
        for (index, send) in self.sends.iter_mut().enumerate() {
            if let (true, Some(slot)) = (indexes.contains(&index), send.as_mut()) {
                self.uses[*slot] -= 1;
                *send = None;
                completed += 1;
            }
        }
        while self.sends.front() == Some(&None) {
            self.sends.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_free_after_all_sends_complete() {
        let mut sends = PendingSends::new(2);
        sends.first = u32::MAX;
        for slot in [0, 0, 1] {
            sends.start_send(slot);
        }
        assert_eq!(sends.free_slot(), None);
        assert_eq!(sends.complete_sends(0, 1), 2);
        assert_eq!((sends.free_slot(), sends.is_empty()), (Some(1), false));
        assert_eq!(sends.complete_sends(u32::MAX, u32::MAX), 1);
        assert_eq!((sends.free_slot(), sends.is_empty(), sends.first), (Some(0), true, 2));
        assert_eq!(sends.complete_sends(5, 4), 0, "nothing is in flight");
    }
}
