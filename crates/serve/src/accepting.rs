//! Accepting connections: what each may cost where there are many, and how they come to those who serve them one at a time.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::hall::Hall;
use crate::server::LOOK;

/// Connections that are accepted before it is asked again whether the server is to end.
const ACCEPTED: usize = 64;

/// Connections that may fill their send buffers: 4 MiB each by default (net.ipv4.tcp_wmem), of what all connections of the host may
/// have, 9 % of its memory (tcp_mem). A thousand clients who read nothing would leave none for others.
const FEW: usize = 64;
/// Bytes that each further one may have given to the kernel and not sent.
const UNSENT: u32 = 16 << 10;

/// Limits what a connection costs that comes where there are so many.
pub fn moderate(socket: impl AsFd, connections: usize) {
    if connections >= FEW {
        // Without it there is still what the kernel allows.
        let _ = kelvin_sys::net::set_most_unsent(&socket, UNSENT);
    }
}

/// Accepts some; `false` if nobody waits, or nobody can be accepted. A connection for which there is no place comes back, and is
/// turned away at the door.
pub fn accept_some(
    listener: &TcpListener,
    door: &mut Hall,
    mut place: impl FnMut(OwnedFd, &mut Hall) -> Option<OwnedFd>,
) -> bool {
    for _ in 0..ACCEPTED {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                let left = place(socket, door);
                left.into_iter().for_each(|socket| door.turn_away(socket, Instant::now()));
            }
            Err(Errno::AGAIN) => return false,
            // Whoever waits goes on waiting, and this thread does not spin meanwhile.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                door.let_all_go();
                std::thread::sleep(LOOK);
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

    use kelvin_sys::net::waiting::on_the_way;

    use super::*;

    /// Bytes that wait to be sent to a client who reads nothing, of a connection that comes where there are so many.
    fn unsent(connections: usize) -> u32 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        moderate(&socket, connections);
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 4096]).is_ok() {}
        on_the_way(&socket).unwrap().not_sent
    }

    #[test]
    fn one_of_many_who_reads_nothing_leaves_little_to_be_sent() {
        // Within a segment it is not asked how much there is.
        let most = UNSENT + (64 << 10);
        assert!(unsent(FEW) <= most && unsent(10_000) <= most);
        assert!(unsent(0) > most && unsent(FEW - 1) > most);
    }
}
