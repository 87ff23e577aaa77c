//! Channels to pass a token between two tasks: pipes, sockets, eventfds, a futex, a condition variable, yielding.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::event::EventfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;

use crate::shared_memory::{FutexScope, Shared, Zeroed, futex_wait, futex_wake};
use crate::{Error, Result, check_code};

/// One end of a [`HandoffChannel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffSide {
    /// The task that measures.
    Near,
    /// Its partner.
    Far,
}

impl HandoffSide {
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
pub enum HandoffMethod {
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
pub struct HandoffChannel(HandoffState);

#[derive(Debug)]
enum HandoffState {
    Pipe { to_far: Pipe, to_near: Pipe },
    Unix { near: OwnedFd, far: OwnedFd },
    Eventfd { to_far: OwnedFd, to_near: OwnedFd },
    Futex { turn: Shared<AtomicU32>, scope: FutexScope },
    Condvar(Shared<CondvarTurn>),
    Yield(Shared<YieldTurn>),
}

impl HandoffChannel {
    /// A channel whose token is with the near side.
    pub fn new(method: HandoffMethod, scope: FutexScope) -> Result<Self> {
        Ok(Self(match method {
            HandoffMethod::Pipe => HandoffState::Pipe { to_far: Pipe::new()?, to_near: Pipe::new()? },
            HandoffMethod::Unix => {
                let (near, far) = socket_pair()?;
                HandoffState::Unix { near, far }
            }
            HandoffMethod::Eventfd => HandoffState::Eventfd { to_far: new_eventfd()?, to_near: new_eventfd()? },
            HandoffMethod::Futex => HandoffState::Futex { turn: Shared::new()?, scope },
            HandoffMethod::Condvar => HandoffState::Condvar(CondvarTurn::new(scope)?),
            HandoffMethod::Yield => HandoffState::Yield(Shared::new()?),
        }))
    }

    /// Gives the token to the other side.
    ///
    /// # Errors
    /// Those of the system call; every call is checked, as a failing one is fast and looks like a record.
    #[inline(always)]
    pub fn hand_over(&self, side: HandoffSide) -> Result<()> {
        match &self.0 {
            HandoffState::Pipe { to_far, to_near } => match side {
                HandoffSide::Near => to_far.write_byte(),
                HandoffSide::Far => to_near.write_byte(),
            },
            HandoffState::Unix { near, far } => {
                write_bytes(if side == HandoffSide::Near { near } else { far }.as_raw_fd(), &[1])
            }
            HandoffState::Eventfd { to_far, to_near } => {
                write_bytes(if side == HandoffSide::Near { to_far } else { to_near }.as_raw_fd(), &1u64.to_ne_bytes())
            }
            HandoffState::Futex { turn, scope } => {
                turn.store(side.other() as u32, Ordering::Release);
                futex_wake(turn, *scope)
            }
            HandoffState::Condvar(condvar) => condvar.hand_over(side),
            HandoffState::Yield(turns) => {
                turns.turn.store(side.other() as u32, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Waits until this side has the token.
    ///
    /// # Errors
    /// Those of the system call, and the end of a closed pipe.
    #[inline(always)]
    pub fn wait_for_turn(&self, side: HandoffSide) -> Result<()> {
        match &self.0 {
            HandoffState::Pipe { to_far, to_near } => match side {
                HandoffSide::Near => to_near.read_byte(),
                HandoffSide::Far => to_far.read_byte(),
            },
            HandoffState::Unix { near, far } => {
                read_bytes::<1>(if side == HandoffSide::Near { near } else { far }.as_raw_fd())
            }
            HandoffState::Eventfd { to_far, to_near } => {
                read_bytes::<8>(if side == HandoffSide::Near { to_near } else { to_far }.as_raw_fd())
            }
            HandoffState::Futex { turn, scope } => {
                while turn.load(Ordering::Acquire) != side as u32 {
                    futex_wait(turn, side.other() as u32, *scope)?;
                }
                Ok(())
            }
            HandoffState::Condvar(condvar) => condvar.wait_for_turn(side),
            HandoffState::Yield(turns) => {
                turns.wait_for_turn(side);
                Ok(())
            }
        }
    }

    /// The calls of a pass and a take, in one task, on a channel that nobody else uses: their cost without waiting. A
    /// futex is also waited for once with a stale value, which enters the kernel and fails there.
    ///
    /// # Errors
    /// As [`HandoffChannel::hand_over`] and [`HandoffChannel::wait_for_turn`]; a futex that let the wait sleep would never return.
    #[inline(always)]
    pub fn uncontended_handoff(&self) -> Result<()> {
        self.hand_over(HandoffSide::Near)?;
        if let HandoffState::Futex { turn, scope } = &self.0 {
            futex_wait(turn, HandoffSide::Near as u32, *scope)?;
        }
        self.wait_for_turn(HandoffSide::Far)
    }

    /// Calls of sched_yield by the near side; 0 with other channels.
    pub fn yields(&self) -> u64 {
        match &self.0 {
            HandoffState::Yield(turns) => turns.near_yields.load(Ordering::Relaxed),
            _ => 0,
        }
    }
}

/// A pipe, both ends open here. Closed when dropped.
#[derive(Debug)]
pub struct Pipe {
    /// The end that is read.
    pub(crate) read: OwnedFd,
    /// The end that is written.
    pub(crate) write: OwnedFd,
}

impl Pipe {
    /// An empty pipe.
    pub fn new() -> Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { read, write })
    }

    /// Writes one byte.
    #[inline(always)]
    pub fn write_byte(&self) -> Result<()> {
        write_bytes(self.write.as_raw_fd(), &[1])
    }

    /// Waits for one byte and reads it.
    #[inline(always)]
    pub fn read_byte(&self) -> Result<()> {
        read_bytes::<1>(self.read.as_raw_fd())
    }
}

/// Two connected Unix stream sockets.
pub(crate) fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

fn new_eventfd() -> Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?)
}

/// Writes a few bytes by the bare system call: the C library's `write` does more in a process with threads, because it
/// is a cancellation point.
#[inline(always)]
fn write_bytes(descriptor: RawFd, bytes: &[u8]) -> Result<()> {
    // SAFETY: the slice is valid for its length.
    let written = unsafe { libc::syscall(libc::SYS_write, descriptor, bytes.as_ptr(), bytes.len()) };
    if written == bytes.len() as libc::c_long { Ok(()) } else { Err(short_transfer("write", written)) }
}

/// Reads exactly `N` bytes by the bare system call, and drops them.
#[inline(always)]
fn read_bytes<const N: usize>(descriptor: RawFd) -> Result<()> {
    let mut bytes = [0u8; N];
    // SAFETY: the array is valid for its length.
    let read = unsafe { libc::syscall(libc::SYS_read, descriptor, bytes.as_mut_ptr(), N) };
    if read == N as libc::c_long { Ok(()) } else { Err(short_transfer("read", read)) }
}

/// Why a read or write of a few bytes failed.
#[cold]
fn short_transfer(call: &str, byte_count: libc::c_long) -> Error {
    match byte_count {
        -1 => Error::last_os_error(),
        0 => Error::other("the other end of the channel is closed"),
        _ => Error::other(format!("a {call} of a token moved only {byte_count} bytes of it")),
    }
}

/// Whose turn it is, for tasks that yield.
#[derive(Debug, Default)]
pub(crate) struct YieldTurn {
    turn: AtomicU32,
    near_yields: AtomicU64,
}

impl YieldTurn {
    /// Yields the CPU until the turn is this side's.
    #[inline(always)]
    fn wait_for_turn(&self, side: HandoffSide) {
        let mut yields = 0;
        while self.turn.load(Ordering::Acquire) != side as u32 {
            // SAFETY: takes no pointers, and cannot fail on Linux.
            unsafe { libc::syscall(libc::SYS_sched_yield) };
            yields += 1;
        }
        if side == HandoffSide::Near {
            self.near_yields.store(self.near_yields.load(Ordering::Relaxed) + yields, Ordering::Relaxed);
        }
    }
}

/// Whose turn it is, protected by a mutex, with a condition variable.
#[repr(C)]
struct CondvarTurn {
    mutex: std::cell::UnsafeCell<libc::pthread_mutex_t>,
    changed: std::cell::UnsafeCell<libc::pthread_cond_t>,
    turn: AtomicU32,
}

// SAFETY: mutex and condition variable are made for use by several tasks, and are only used through their own calls.
unsafe impl Sync for CondvarTurn {}
// SAFETY: they do not belong to the thread that made them.
unsafe impl Send for CondvarTurn {}

impl std::fmt::Debug for CondvarTurn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CondvarTurn").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl CondvarTurn {
    fn new(scope: FutexScope) -> Result<Shared<Self>> {
        let condvar = Shared::<Self>::new()?;
        let shared = match scope {
            FutexScope::Threads => libc::PTHREAD_PROCESS_PRIVATE,
            FutexScope::Processes => libc::PTHREAD_PROCESS_SHARED,
        };
        // SAFETY: attributes are initialised before they are used, and destroyed after; mutex and condition variable
        // lie in shared memory that nobody else uses yet, and stay where they are until it is unmapped.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            check_code(libc::pthread_mutexattr_init(&raw mut attributes))?;
            check_code(libc::pthread_mutexattr_setpshared(&raw mut attributes, shared))?;
            check_code(libc::pthread_mutex_init(condvar.mutex.get(), &raw const attributes))?;
            libc::pthread_mutexattr_destroy(&raw mut attributes);
            let mut attributes: libc::pthread_condattr_t = std::mem::zeroed();
            check_code(libc::pthread_condattr_init(&raw mut attributes))?;
            check_code(libc::pthread_condattr_setpshared(&raw mut attributes, shared))?;
            check_code(libc::pthread_cond_init(condvar.changed.get(), &raw const attributes))?;
            libc::pthread_condattr_destroy(&raw mut attributes);
        }
        Ok(condvar)
    }

    /// Changes the turn and signals after releasing the mutex: a task woken while it is held would only sleep again,
    /// and a pass would be two switches.
    #[inline(always)]
    fn hand_over(&self, side: HandoffSide) -> Result<()> {
        // SAFETY: both were initialised by `new`.
        unsafe {
            check_code(libc::pthread_mutex_lock(self.mutex.get()))?;
            self.turn.store(side.other() as u32, Ordering::Relaxed);
            check_code(libc::pthread_mutex_unlock(self.mutex.get()))?;
            check_code(libc::pthread_cond_signal(self.changed.get()))
        }
    }

    #[inline(always)]
    fn wait_for_turn(&self, side: HandoffSide) -> Result<()> {
        // SAFETY: both were initialised by `new`, and the mutex is held while waiting.
        unsafe {
            check_code(libc::pthread_mutex_lock(self.mutex.get()))?;
            while self.turn.load(Ordering::Relaxed) != side as u32 {
                check_code(libc::pthread_cond_wait(self.changed.get(), self.mutex.get()))?;
            }
            check_code(libc::pthread_mutex_unlock(self.mutex.get()))
        }
    }
}

// SAFETY: two zeros.
unsafe impl Zeroed for YieldTurn {}
// SAFETY: an all-zero mutex or condition variable is plain bytes, initialised before its first use.
unsafe impl Zeroed for CondvarTurn {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const ALL: [HandoffMethod; 6] = [
        HandoffMethod::Pipe,
        HandoffMethod::Unix,
        HandoffMethod::Eventfd,
        HandoffMethod::Futex,
        HandoffMethod::Condvar,
        HandoffMethod::Yield,
    ];

    #[test]
    fn token_round_trips_over_every_channel() {
        for method in ALL {
            for scope in [FutexScope::Threads, FutexScope::Processes] {
                let channel = Arc::new(HandoffChannel::new(method, scope).unwrap());
                // Written by each side in its turn only: any order but strict alternation shows in the sum.
                let log = Arc::new(AtomicU64::new(0));
                let (far_channel, far_log) = (Arc::clone(&channel), Arc::clone(&log));
                let far_task = std::thread::spawn(move || {
                    for _ in 0..50 {
                        far_channel.wait_for_turn(HandoffSide::Far).unwrap();
                        let count = far_log.load(Ordering::Relaxed);
                        assert_eq!(count % 2, 1);
                        far_log.store(count + 1, Ordering::Relaxed);
                        far_channel.hand_over(HandoffSide::Far).unwrap();
                    }
                });
                for trip in 0..50 {
                    assert_eq!(log.load(Ordering::Relaxed), 2 * trip);
                    log.store(2 * trip + 1, Ordering::Relaxed);
                    channel.hand_over(HandoffSide::Near).unwrap();
                    channel.wait_for_turn(HandoffSide::Near).unwrap();
                }
                far_task.join().unwrap();
                assert_eq!(channel.yields() > 0, method == HandoffMethod::Yield);
            }
        }
    }

    #[test]
    fn uncontended_handoff_never_waits() {
        for method in ALL {
            let channel = HandoffChannel::new(method, FutexScope::Processes).unwrap();
            for _ in 0..100 {
                channel.uncontended_handoff().unwrap();
            }
        }
    }

    #[test]
    fn closed_pipe_is_an_error() {
        let Pipe { read, write } = Pipe::new().unwrap();
        drop(write);
        assert_eq!(
            read_bytes::<1>(read.as_raw_fd()).unwrap_err().to_string(),
            "the other end of the channel is closed"
        );
    }
}
