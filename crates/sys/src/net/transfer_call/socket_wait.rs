//! A connected socket, and how to wait until it can go on: in the call itself, by epoll, or by a signal.

use std::cell::Cell;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};

use crate::fs::{ASYNC_FLAG, set_status_flag};
use crate::poll::whole_milliseconds;
use crate::signal_handler::signal_set;
use crate::{Error, Result, check, check_code};

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketWaitMode {
    /// In the call itself, which gives up after the timeout (SO_RCVTIMEO, SO_SNDTIMEO).
    InCall,
    /// By epoll; calls do not block.
    Epoll,
    /// For a signal that the socket sends (O_ASYNC); calls do not block.
    Signal,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// Bytes have arrived, or the peer has gone.
    Readable,
    /// There is room for bytes to send, or the peer has gone.
    Writable,
    /// The error queue has a message, such as that bytes sent without a copy are no longer used.
    ErrorQueue,
}

/// A connected socket in its way of waiting, which all its users share. One of [`SocketWaitMode::Signal`] belongs to the thread that made
/// it: that thread gets the signals.
#[derive(Debug)]
pub struct WaitingSocket {
    /// Dropped before the stream, which it may have to change back.
    waiter: Waiter,
    stream: TcpStream,
    /// Not `Send`.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

#[derive(Debug)]
enum Waiter {
    InCall,
    Epoll { set: OwnedFd, interest: EventFlags },
    Signal(SignalBlock),
}

impl WaitingSocket {
    /// Sets the socket's options and flags; calls that block give up after the timeout.
    ///
    /// # Errors
    /// Those of the calls; a timeout of zero.
    pub fn new(stream: TcpStream, mode: SocketWaitMode, timeout: Duration) -> Result<Self> {
        stream.set_nonblocking(mode != SocketWaitMode::InCall)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let waiter = match mode {
            SocketWaitMode::InCall => Waiter::InCall,
            SocketWaitMode::Epoll => {
                let (set, interest) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, EventFlags::empty());
                epoll::add(&set, &stream, EventData::new_u64(0), interest)?;
                Waiter::Epoll { set, interest }
            }
            SocketWaitMode::Signal => {
                // Held first, so that no signal can end the process.
                let block = SignalBlock::new()?;
                enable_signals(&stream)?;
                Waiter::Signal(block)
            }
        };
        Ok(Self { waiter, stream, _of_this_thread: std::marker::PhantomData })
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Waits until the socket may be as wanted, to be called only after it was found not to be: `false` if it was not within this
    /// time. It may return early, also for a signal; what was waited for is then to be tried again.
    ///
    /// # Errors
    /// Those of the calls, an interruption not among them.
    pub fn wait(&mut self, event: SocketEvent, timeout: Duration) -> Result<bool> {
        let poll_timeout = whole_milliseconds(timeout);
        let interest_flags = match event {
            SocketEvent::Readable => EventFlags::IN | EventFlags::RDHUP,
            SocketEvent::Writable => EventFlags::OUT,
            // Errors are always reported.
            SocketEvent::ErrorQueue => EventFlags::empty(),
        };
        let result = match &mut self.waiter {
            Waiter::InCall => {
                // The bits of poll are those of epoll.
                let events = PollFlags::from_bits_retain(interest_flags.bits() as u16);
                let mut sockets = [PollFd::new(&self.stream, events)];
                rustix::event::poll(&mut sockets, Some(&poll_timeout)).map(|ready| ready > 0).map_err(Error::from)
            }
            Waiter::Epoll { set, interest } => {
                if *interest != interest_flags {
                    epoll::modify(&*set, &self.stream, EventData::new_u64(0), interest_flags)?;
                    *interest = interest_flags;
                }
                let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
                epoll::wait(&*set, &mut events, Some(&poll_timeout)).map(|ready| ready > 0).map_err(Error::from)
            }
            Waiter::Signal(block) => block.wait(timeout),
        };
        match result {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(true),
            other => other,
        }
    }
}

impl Drop for WaitingSocket {
    fn drop(&mut self) {
        if matches!(self.waiter, Waiter::Signal(_)) {
            // Before the signal is let through again. It cannot fail for a descriptor that is open.
            let _ = set_status_flag(&self.stream, ASYNC_FLAG, false);
        }
    }
}

/// `F_SETSIG`, `F_SETOWN_EX` and `struct f_owner_ex` of `linux/fcntl.h`, and its `F_OWNER_TID`.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

#[repr(C)]
struct SignalOwner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// Signals taken at a time that had queued up while nobody waited: as many as a user may have pending on most machines.
const MAX_STALE_SIGNALS: usize = 1 << 16;

/// The signal of a socket: the first of the real-time ones, which report each event. Where too many are pending, the kernel sends
/// SIGIO instead.
fn socket_signals() -> libc::sigset_t {
    signal_set(&[libc::SIGRTMIN(), libc::SIGIO])
}

/// Has a socket send its signal to this thread whenever something happens to it.
fn enable_signals(stream: &TcpStream) -> Result<()> {
    let owner = SignalOwner { kind: F_OWNER_TID, id: rustix::thread::gettid().as_raw_nonzero().get() };
    let socket: RawFd = stream.as_raw_fd();
    // SAFETY: the owner is laid out as the call has it, and outlives it.
    check(unsafe { libc::fcntl(socket, F_SETOWN_EX, &raw const owner) })?;
    // SAFETY: takes no pointers.
    check(unsafe { libc::fcntl(socket, F_SETSIG, libc::SIGRTMIN()) })?;
    set_status_flag(stream, ASYNC_FLAG, true)
}

thread_local! {
    /// How many sockets of this thread need the signals held back, and which were held back before the first.
    static BLOCKED: Cell<(usize, Option<libc::sigset_t>)> = const { Cell::new((0, None)) };
}

/// Holds the signals of sockets back in this thread, so that they can be waited for: let through, they would end the process. The
/// last one to be dropped takes what is pending, and lets them through again as before.
#[derive(Debug)]
struct SignalBlock;

impl SignalBlock {
    fn new() -> Result<Self> {
        let (count, mut before) = BLOCKED.get();
        if count == 0 {
            // SAFETY: all zeros are a set, which the call fills; both sets outlive it.
            before = Some(unsafe {
                let mut before: libc::sigset_t = std::mem::zeroed();
                let set = socket_signals();
                check_code(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before))?;
                before
            });
        }
        BLOCKED.set((count + 1, before));
        Ok(Self)
    }

    /// Waits for a signal, and takes the others that have queued up: the next call that is tried sees what they reported.
    fn wait(&self, timeout: Duration) -> Result<bool> {
        if !take_signal(timeout)? {
            return Ok(false);
        }
        for _ in 0..MAX_STALE_SIGNALS {
            if !take_signal(Duration::ZERO)? {
                break;
            }
        }
        Ok(true)
    }
}

impl Drop for SignalBlock {
    fn drop(&mut self) {
        let (count, before) = BLOCKED.get();
        BLOCKED.set((count - 1, before));
        let (1, Some(before)) = (count, before) else { return };
        while take_signal(Duration::ZERO).is_ok_and(|was_pending| was_pending) {}
        // SAFETY: both sets are valid and outlive the calls; only what was not held back before is let through.
        unsafe {
            let mut unblocked = socket_signals();
            for signal in [libc::SIGRTMIN(), libc::SIGIO] {
                if libc::sigismember(&raw const before, signal) == 1 {
                    libc::sigdelset(&raw mut unblocked, signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const unblocked, std::ptr::null_mut());
        }
    }
}

/// Takes one signal, if there is one within this time.
fn take_signal(timeout: Duration) -> Result<bool> {
    let set = socket_signals();
    let timespec = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos() as _,
    };
    // SAFETY: set and time outlive the call, and null is allowed for the information about the signal.
    match check(unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const timespec) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}
