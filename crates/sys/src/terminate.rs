//! SIGTERM to a process that serves one client: it receives no more, and so ends when it has answered what has come.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::Result;
use crate::signal_handler::set_handler;

/// Whether the signal has come.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// The socket that receives no more once it comes; none below 0.
static CLIENT_SOCKET: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_sigterm(_: libc::c_int) {
    IS_REQUESTED.store(true, Ordering::SeqCst);
    shut_down_read(CLIENT_SOCKET.load(Ordering::SeqCst));
}

/// Has every receiving call on a socket return, as at the end of the stream.
fn shut_down_read(socket: RawFd) {
    if socket >= 0 {
        // SAFETY: shutdown takes no pointers and may be called in a signal handler; errno is this thread's own, and is put back for
        // the code that the signal interrupted.
        unsafe {
            let before = *libc::__errno_location();
            libc::shutdown(socket, libc::SHUT_RD);
            *libc::__errno_location() = before;
        }
    }
}

/// From now on SIGTERM does that instead of ending the process, here and in children that are forked later.
///
/// # Errors
/// Those of sigaction.
pub fn install_handler() -> Result<()> {
    // SAFETY: the handler stores to atomics and calls shutdown, all of which is async-signal-safe.
    unsafe { set_handler(libc::SIGTERM, on_sigterm as *const () as usize, 0) }.map(drop)
}

/// Whether it has come.
pub fn shutdown_flag() -> &'static AtomicBool {
    &IS_REQUESTED
}

/// The socket of the client that this process serves, which receives no more once SIGTERM comes, or if it has come already. One at a
/// time.
#[derive(Debug)]
pub struct InterruptibleSocket<'a>(#[allow(dead_code, reason = "it keeps the socket open")] BorrowedFd<'a>);

impl<'a> InterruptibleSocket<'a> {
    /// Of this socket.
    pub fn new(socket: &'a impl AsFd) -> Self {
        let socket = socket.as_fd();
        CLIENT_SOCKET.store(socket.as_raw_fd(), Ordering::SeqCst);
        if IS_REQUESTED.load(Ordering::SeqCst) {
            shut_down_read(socket.as_raw_fd());
        }
        Self(socket)
    }
}

impl Drop for InterruptibleSocket<'_> {
    fn drop(&mut self) {
        CLIENT_SOCKET.store(-1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::process::{ExitKind, fork_worker};

    /// What a child reads of a stream that never ends, after a SIGTERM to itself before or after it took the socket.
    fn read_around_signal(is_early: bool) -> std::io::Result<usize> {
        let (mut stream, _peer) = UnixStream::pair()?;
        install_handler()?;
        // SAFETY: takes no pointers.
        let raise = || unsafe { libc::raise(libc::SIGTERM) };
        let other = stream.try_clone()?;
        if is_early {
            raise();
        }
        let receiving = InterruptibleSocket::new(&other);
        if !is_early {
            raise();
        }
        let read = stream.read(&mut [0]);
        drop(receiving);
        read
    }

    #[test]
    fn sigterm_ends_receiving_at_any_time() {
        for is_early in [false, true] {
            let child = fork_worker(|| {
                let is_quiet = !shutdown_flag().load(Ordering::SeqCst);
                u8::from(
                    !(is_quiet
                        && matches!(read_around_signal(is_early), Ok(0))
                        && shutdown_flag().load(Ordering::SeqCst)),
                )
            });
            assert_eq!(child.unwrap().wait().unwrap(), ExitKind::Exited(0), "early: {is_early}");
        }
    }
}
