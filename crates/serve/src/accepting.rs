//! Accepting connections for those who serve them one at a time.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::hall::Hall;
use crate::server::LOOK;

/// Connections that are accepted before it is asked again whether the server is to end.
const ACCEPTED: usize = 64;

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
