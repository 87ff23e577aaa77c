//! Accepting connections: what each may cost where there are many, and how they come to those who serve them one at a time.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::serve::server::SHUTDOWN_POLL_INTERVAL;
use crate::serve::worker_context::WorkerContext;

/// Connections that are accepted before it is asked again whether the server is to end.
const ACCEPT_BATCH: usize = 64;

/// Connections that may fill their send buffers: 4 MiB each by default (net.ipv4.tcp_wmem), of what all connections of the host may
/// have, 9 % of its memory (tcp_mem). A thousand clients who read nothing would leave none for others.
const UNTHROTTLED_CONNECTIONS: usize = 64;
/// Bytes that each further one may have given to the kernel and not sent.
const MAX_UNSENT_BYTES: u32 = 16 << 10;

/// Limits what a connection costs that comes where there are so many.
pub fn limit_unsent(socket: impl AsFd, connections: usize) {
    if connections >= UNTHROTTLED_CONNECTIONS {
        // Without it there is still what the kernel allows.
        let _ = kelvin_sys::net::set_unsent_low_water(&socket, MAX_UNSENT_BYTES);
    }
}

/// Accepts some; `false` if nobody waits, or nobody can be accepted. A connection for which there is no place comes back, and is
/// turned away at the door.
pub fn accept_batch(
    listener: &TcpListener,
    door: &mut WorkerContext,
    mut place: impl FnMut(OwnedFd, &mut WorkerContext) -> Option<OwnedFd>,
) -> bool {
    for _ in 0..ACCEPT_BATCH {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                let left = place(socket, door);
                left.into_iter().for_each(|socket| door.reject(socket, Instant::now()));
            }
            Err(Errno::AGAIN) => return false,
            // Whoever waits goes on waiting, and this thread does not spin meanwhile.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                door.close_all_lingering();
                std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
                return false;
            }
            // A connection that has ended meanwhile, or what else accept says about one.
            Err(_) => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use kelvin_sys::net::socket_queues::in_transit;

    use super::*;

    /// Bytes that wait to be sent to a client who reads nothing, of a connection that comes where there are so many.
    fn unsent_bytes(connections: usize) -> u32 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        limit_unsent(&socket, connections);
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 4096]).is_ok() {}
        in_transit(&socket).unwrap().not_sent
    }

    #[test]
    fn nonreading_client_among_many_has_little_unsent() {
        // Within a segment it is not asked how much there is.
        let most = MAX_UNSENT_BYTES + (64 << 10);
        assert!(unsent_bytes(UNTHROTTLED_CONNECTIONS) <= most && unsent_bytes(10_000) <= most);
        assert!(unsent_bytes(0) > most && unsent_bytes(UNTHROTTLED_CONNECTIONS - 1) > most);
    }
}
