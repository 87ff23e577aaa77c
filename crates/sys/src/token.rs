//! Channels to pass a token between two tasks: pipes, sockets, eventfds, a futex, a condition variable, yielding.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::shared::{Scope, Shared, Zeroed, futex_wait, futex_wake};
use crate::{Error, Result, check};

/// One end of a [`Channel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The task that measures.
    Near,
    /// Its partner.
    Far,
}

impl Side {
    /// The other end.
    #[inline(always)]
    pub const fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// How a token is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// A byte through a pipe, one pipe each way.
    Pipe,
    /// A byte through a pair of connected Unix stream sockets.
    Unix,
    /// An eventfd each way.
    Eventfd,
    /// A word in memory, and futex calls to sleep and to wake.
    Futex,
    /// A word guarded by a POSIX mutex, and a condition variable.
    Condvar,
    /// A word in memory, and sched_yield until it changes.
    Yield,
}

/// A channel for one token between two tasks. It works across `fork`: its memory is shared.
#[derive(Debug)]
pub struct Channel(Wires);

#[derive(Debug)]
enum Wires {
    Pipe { to_far: Pipe, to_near: Pipe },
    Unix { near: OwnedFd, far: OwnedFd },
    Eventfd { to_far: OwnedFd, to_near: OwnedFd },
    Futex { turn: Shared<AtomicU32>, scope: Scope },
    Condvar(Shared<Meeting>),
    Yield(Shared<Turns>),
}

impl Channel {
    /// A channel whose token is with the near side.
    pub fn new(means: Means, scope: Scope) -> Result<Self> {
        Ok(Self(match means {
            Means::Pipe => Wires::Pipe { to_far: Pipe::new()?, to_near: Pipe::new()? },
            Means::Unix => {
                let (near, far) = socket_pair()?;
                Wires::Unix { near, far }
            }
            Means::Eventfd => Wires::Eventfd { to_far: event_counter()?, to_near: event_counter()? },
            Means::Futex => Wires::Futex { turn: Shared::new()?, scope },
            Means::Condvar => Wires::Condvar(Meeting::new(scope)?),
            Means::Yield => Wires::Yield(Shared::new()?),
        }))
    }

    /// Gives the token to the other side.
    ///
    /// # Errors
    /// Those of the system call; every call is checked, as a failing one is fast and looks like a record.
    #[inline(always)]
    pub fn pass(&self, from: Side) -> Result<()> {
        match &self.0 {
            Wires::Pipe { to_far, to_near } => match from {
                Side::Near => to_far.put(),
                Side::Far => to_near.put(),
            },
            Wires::Unix { near, far } => put(if from == Side::Near { near } else { far }.as_raw_fd(), &[1]),
            Wires::Eventfd { to_far, to_near } => {
                put(if from == Side::Near { to_far } else { to_near }.as_raw_fd(), &1u64.to_ne_bytes())
            }
            Wires::Futex { turn, scope } => {
                turn.store(from.other() as u32, Ordering::Release);
                futex_wake(turn, *scope)
            }
            Wires::Condvar(meeting) => meeting.pass(from),
            Wires::Yield(turns) => {
                turns.turn.store(from.other() as u32, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Waits until this side has the token.
    ///
    /// # Errors
    /// Those of the system call, and the end of a closed pipe.
    #[inline(always)]
    pub fn take(&self, at: Side) -> Result<()> {
        match &self.0 {
            Wires::Pipe { to_far, to_near } => match at {
                Side::Near => to_near.get(),
                Side::Far => to_far.get(),
            },
            Wires::Unix { near, far } => get::<1>(if at == Side::Near { near } else { far }.as_raw_fd()),
            Wires::Eventfd { to_far, to_near } => get::<8>(if at == Side::Near { to_near } else { to_far }.as_raw_fd()),
            Wires::Futex { turn, scope } => {
                while turn.load(Ordering::Acquire) != at as u32 {
                    futex_wait(turn, at.other() as u32, *scope)?;
                }
                Ok(())
            }
            Wires::Condvar(meeting) => meeting.take(at),
            Wires::Yield(turns) => {
                turns.take(at);
                Ok(())
            }
        }
    }

    /// The calls of a pass and a take, in one task, on a channel that nobody else uses: their cost without waiting. A
    /// futex is also waited for once with a stale value, which enters the kernel and fails there.
    ///
    /// # Errors
    /// As [`Channel::pass`] and [`Channel::take`]; a futex that let the wait sleep would never return.
    #[inline(always)]
    pub fn alone(&self) -> Result<()> {
        self.pass(Side::Near)?;
        if let Wires::Futex { turn, scope } = &self.0 {
            futex_wait(turn, Side::Near as u32, *scope)?;
        }
        self.take(Side::Far)
    }

    /// Calls of sched_yield by the near side; 0 with other channels.
    pub fn yields(&self) -> u64 {
        match &self.0 {
            Wires::Yield(turns) => turns.near_yields.load(Ordering::Relaxed),
            _ => 0,
        }
    }
}

/// A pipe, both ends open here. Closed when dropped.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// An empty pipe.
    pub fn new() -> Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: the array holds the two descriptors that the call writes.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
        // SAFETY: both descriptors are new and owned by nobody else.
        Ok(unsafe { Self { read: OwnedFd::from_raw_fd(ends[0]), write: OwnedFd::from_raw_fd(ends[1]) } })
    }

    /// Writes one byte.
    #[inline(always)]
    pub fn put(&self) -> Result<()> {
        put(self.write.as_raw_fd(), &[1])
    }

    /// Waits for one byte and reads it.
    #[inline(always)]
    pub fn get(&self) -> Result<()> {
        get::<1>(self.read.as_raw_fd())
    }

    /// The end that is read.
    pub(crate) fn reader(&self) -> RawFd {
        self.read.as_raw_fd()
    }

    /// The end that is written.
    pub(crate) fn writer(&self) -> RawFd {
        self.write.as_raw_fd()
    }
}

/// Two connected Unix stream sockets.
pub(crate) fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array holds the two descriptors that the call writes.
    check(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) })?;
    // SAFETY: both descriptors are new and owned by nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn event_counter() -> Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let counter = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(counter) })
}

/// Writes a few bytes by the bare system call: the C library's `write` does more in a process with threads, because it
/// is a cancellation point.
#[inline(always)]
fn put(to: RawFd, bytes: &[u8]) -> Result<()> {
    // SAFETY: the slice is valid for its length.
    let written = unsafe { libc::syscall(libc::SYS_write, to, bytes.as_ptr(), bytes.len()) };
    if written == bytes.len() as libc::c_long { Ok(()) } else { Err(short("write", written)) }
}

/// Reads exactly `N` bytes by the bare system call, and drops them.
#[inline(always)]
fn get<const N: usize>(from: RawFd) -> Result<()> {
    let mut bytes = [0u8; N];
    // SAFETY: the array is valid for its length.
    let read = unsafe { libc::syscall(libc::SYS_read, from, bytes.as_mut_ptr(), N) };
    if read == N as libc::c_long { Ok(()) } else { Err(short("read", read)) }
}

/// Why a read or write of a few bytes failed.
#[cold]
fn short(call: &str, moved: libc::c_long) -> Error {
    match moved {
        -1 => Error::last_os_error(),
        0 => Error::other("the other end of the channel is closed"),
        _ => Error::other(format!("a {call} of a token moved only {moved} bytes of it")),
    }
}

/// Whose turn it is, for tasks that yield.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn: AtomicU32,
    near_yields: AtomicU64,
}

impl Turns {
    /// Yields the CPU until the turn is this side's.
    #[inline(always)]
    fn take(&self, at: Side) {
        let mut yields = 0;
        while self.turn.load(Ordering::Acquire) != at as u32 {
            // SAFETY: takes no pointers, and cannot fail on Linux.
            unsafe { libc::syscall(libc::SYS_sched_yield) };
            yields += 1;
        }
        if at == Side::Near {
            self.near_yields.store(self.near_yields.load(Ordering::Relaxed) + yields, Ordering::Relaxed);
        }
    }
}

/// Whose turn it is, protected by a mutex, with a condition variable.
#[repr(C)]
struct Meeting {
    mutex: std::cell::UnsafeCell<libc::pthread_mutex_t>,
    changed: std::cell::UnsafeCell<libc::pthread_cond_t>,
    turn: AtomicU32,
}

// SAFETY: mutex and condition variable are made for use by several tasks, and are only used through their own calls.
unsafe impl Sync for Meeting {}
// SAFETY: they do not belong to the thread that made them.
unsafe impl Send for Meeting {}

impl std::fmt::Debug for Meeting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meeting").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl Meeting {
    fn new(scope: Scope) -> Result<Shared<Self>> {
        let meeting = Shared::<Self>::new()?;
        let shared = match scope {
            Scope::Threads => libc::PTHREAD_PROCESS_PRIVATE,
            Scope::Processes => libc::PTHREAD_PROCESS_SHARED,
        };
        // SAFETY: attributes are initialised before they are used, and destroyed after; mutex and condition variable
        // lie in shared memory that nobody else uses yet, and stay where they are until it is unmapped.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            done(libc::pthread_mutexattr_init(&raw mut attributes))?;
            done(libc::pthread_mutexattr_setpshared(&raw mut attributes, shared))?;
            done(libc::pthread_mutex_init(meeting.mutex.get(), &raw const attributes))?;
            libc::pthread_mutexattr_destroy(&raw mut attributes);
            let mut attributes: libc::pthread_condattr_t = std::mem::zeroed();
            done(libc::pthread_condattr_init(&raw mut attributes))?;
            done(libc::pthread_condattr_setpshared(&raw mut attributes, shared))?;
            done(libc::pthread_cond_init(meeting.changed.get(), &raw const attributes))?;
            libc::pthread_condattr_destroy(&raw mut attributes);
        }
        Ok(meeting)
    }

    /// Changes the turn and signals after releasing the mutex: a task woken while it is held would only sleep again,
    /// and a pass would be two switches.
    #[inline(always)]
    fn pass(&self, from: Side) -> Result<()> {
        // SAFETY: both were initialised by `new`.
        unsafe {
            done(libc::pthread_mutex_lock(self.mutex.get()))?;
            self.turn.store(from.other() as u32, Ordering::Relaxed);
            done(libc::pthread_mutex_unlock(self.mutex.get()))?;
            done(libc::pthread_cond_signal(self.changed.get()))
        }
    }

    #[inline(always)]
    fn take(&self, at: Side) -> Result<()> {
        // SAFETY: both were initialised by `new`, and the mutex is held while waiting.
        unsafe {
            done(libc::pthread_mutex_lock(self.mutex.get()))?;
            while self.turn.load(Ordering::Relaxed) != at as u32 {
                done(libc::pthread_cond_wait(self.changed.get(), self.mutex.get()))?;
            }
            done(libc::pthread_mutex_unlock(self.mutex.get()))
        }
    }
}

/// The error that a pthread call returned.
#[inline(always)]
fn done(code: libc::c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::from_raw_os_error(code)) }
}

// SAFETY: two zeros.
unsafe impl Zeroed for Turns {}
// SAFETY: an all-zero mutex or condition variable is plain bytes, initialised before its first use.
unsafe impl Zeroed for Meeting {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const ALL: [Means; 6] = [Means::Pipe, Means::Unix, Means::Eventfd, Means::Futex, Means::Condvar, Means::Yield];

    #[test]
    fn the_token_goes_back_and_forth_over_every_channel() {
        for means in ALL {
            for scope in [Scope::Threads, Scope::Processes] {
                let channel = Arc::new(Channel::new(means, scope).unwrap());
                // Written by each side in its turn only: any order but strict alternation shows in the sum.
                let log = Arc::new(AtomicU64::new(0));
                let (far_channel, far_log) = (Arc::clone(&channel), Arc::clone(&log));
                let far = std::thread::spawn(move || {
                    for _ in 0..50 {
                        far_channel.take(Side::Far).unwrap();
                        let seen = far_log.load(Ordering::Relaxed);
                        assert_eq!(seen % 2, 1);
                        far_log.store(seen + 1, Ordering::Relaxed);
                        far_channel.pass(Side::Far).unwrap();
                    }
                });
                for trip in 0..50 {
                    assert_eq!(log.load(Ordering::Relaxed), 2 * trip);
                    log.store(2 * trip + 1, Ordering::Relaxed);
                    channel.pass(Side::Near).unwrap();
                    channel.take(Side::Near).unwrap();
                }
                far.join().unwrap();
                assert_eq!(channel.yields() > 0, means == Means::Yield);
            }
        }
    }

    #[test]
    fn one_task_never_waits() {
        for means in ALL {
            let channel = Channel::new(means, Scope::Processes).unwrap();
            for _ in 0..100 {
                channel.alone().unwrap();
            }
        }
    }

    #[test]
    fn a_closed_pipe_is_an_error_and_no_token() {
        let Pipe { read, write } = Pipe::new().unwrap();
        drop(write);
        assert_eq!(get::<1>(read.as_raw_fd()).unwrap_err().to_string(), "the other end of the channel is closed");
    }
}
