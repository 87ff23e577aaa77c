//! Accepting connections: what each may cost where there are many, and how they come to those who serve them.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use crate::serve::error::{Error, Result};
use crate::serve::worker_context::WorkerContext;

/// How often it is asked whether the server is to end.
pub(crate) const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Connections that are accepted before others get their turn, and before it is asked again whether the server is to end.
pub const ACCEPT_BATCH: usize = 64;
/// Batches that are accepted at the end: who waits then is served, and a crowd keeps no server from ending.
const FINAL_BATCHES: usize = 64;

/// Connections that may fill their send buffers: 4 MiB each by default (net.ipv4.tcp_wmem), of what all connections of the host may
/// have, 9 % of its memory (tcp_mem). A thousand clients who read nothing would leave none for others.
const UNTHROTTLED_CONNECTIONS: usize = 64;
/// Bytes that each further one may have given to the kernel and not sent.
const MAX_UNSENT_BYTES: u32 = 16 << 10;

/// Limits what a connection costs that comes where there are this many.
pub fn limit_unsent(socket: impl AsFd, connections: usize) {
    if connections >= UNTHROTTLED_CONNECTIONS {
        // Without it there is still what the kernel allows.
        let _ = kelvin_sys::net::set_unsent_low_water(&socket, MAX_UNSENT_BYTES);
    }
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// There may be more connections.
    Full,
    /// Nobody waits.
    Empty,
    /// Descriptors or memory are lacking: who waits goes on waiting.
    NoDescriptors,
}

/// Accepts some connections, and gives each to `dispatch`.
pub fn accept_batch(listener: &TcpListener, flags: SocketFlags, mut dispatch: impl FnMut(OwnedFd)) -> BatchEnd {
    for _ in 0..ACCEPT_BATCH {
        match accept_with(listener, flags | SocketFlags::CLOEXEC) {
            Ok(socket) => dispatch(socket),
            // Another thread may have closed the listener.
            Err(Errno::AGAIN | Errno::INVAL) => return BatchEnd::Empty,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => return BatchEnd::NoDescriptors,
            // A connection that has ended meanwhile, or another error of one.
            Err(_) => {}
        }
    }
    BatchEnd::Full
}

/// Accepts the connections that wait at the end, batch by batch, and refuses further ones. At a socket that another program holds as well,
/// they wait for whoever serves there next.
pub fn accept_final(listener: &TcpListener, is_shared: bool, mut accept_batch: impl FnMut() -> BatchEnd) {
    if is_shared {
        return;
    }
    let _ = (0..FINAL_BATCHES).find(|_| accept_batch() != BatchEnd::Full);
    // One that is closed already refuses them, too.
    let _ = shutdown(listener, Shutdown::Both);
}

/// A thread or process that accepts connections for others, which each serve one at a time.
pub trait Acceptor {
    /// Has a connection served; it comes back if there is no place for it.
    fn dispatch(&mut self, socket: OwnedFd, context: &mut WorkerContext) -> Option<OwnedFd>;

    /// Does what is to be done from time to time.
    fn poll(&mut self) {}

    /// Accepts until it is to end, then those that wait, and refuses further connections.
    ///
    /// # Errors
    /// That it cannot be waited for connections.
    fn accept_until(
        &mut self,
        is_over: impl Fn() -> bool,
        listener: &TcpListener,
        context: &mut WorkerContext,
    ) -> Result<()> {
        while !is_over() {
            let is_ready = kelvin_sys::poll::wait_readable(listener.as_fd(), SHUTDOWN_POLL_INTERVAL);
            if is_ready.map_err(Error::call("wait for connections"))? {
                self.accept_pending(listener, context);
            }
            self.poll();
            context.close_lingering(Instant::now());
        }
        let is_shared = context.shares_listener;
        accept_final(listener, is_shared, || self.accept_pending(listener, context));
        Ok(())
    }

    /// Accepts some. A connection for which there is no place is rejected.
    fn accept_pending(&mut self, listener: &TcpListener, context: &mut WorkerContext) -> BatchEnd {
        let end = accept_batch(listener, SocketFlags::empty(), |socket| {
            if let Some(socket) = self.dispatch(socket, context) {
                context.reject(socket, Instant::now());
            }
        });
        if end == BatchEnd::NoDescriptors {
            context.close_all_lingering();
            // This thread does not spin meanwhile.
            std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use kelvin_sys::net::socket_queues::in_transit;

    use super::*;

    /// Bytes that wait to be sent to a client who reads nothing, of a connection that comes where there are this many.
    fn unsent_bytes(connections: usize) -> u32 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        limit_unsent(&socket, connections);
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 4096]).is_ok() {}
        in_transit(&socket).unwrap().unsent_bytes
    }

    #[test]
    fn nonreading_client_among_many_has_little_unsent() {
        // Within a segment it is not asked how much there is.
        let max_unsent = MAX_UNSENT_BYTES + (64 << 10);
        assert!(unsent_bytes(UNTHROTTLED_CONNECTIONS) <= max_unsent && unsent_bytes(10_000) <= max_unsent);
        assert!(unsent_bytes(0) > max_unsent && unsent_bytes(UNTHROTTLED_CONNECTIONS - 1) > max_unsent);
    }
}
