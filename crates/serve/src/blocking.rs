//! A client served with calls that wait, as in a thread or a process of its own.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::connection::{Connection, Wants};
use crate::hall::{Hall, LINGER};
use crate::pace::Pace;
use crate::receiving::receive;
use crate::registered::Registered;
use crate::status::Status;

/// Most calls that read and drop that.
const DROPPED: usize = 64;

/// Serves a client until its end; once the server is to end, with one more answer. A call that waits longer than a limit ends it.
pub fn attend((socket, registered): (&OwnedFd, Option<Registered>), hall: &mut Hall, is_over: &AtomicBool) {
    let mut connection = hall.connection(socket, registered);
    let mut buffers = std::mem::take(&mut hall.buffers);
    connection.lend(&mut buffers);
    let idle = hall.site.limits().idle;
    let is_ready = [Timeout::Recv, Timeout::Send].map(|what| set_socket_timeout(socket, what, Some(idle)));
    if is_ready.iter().all(Result::is_ok) {
        // Whatever it is, it is the end.
        let _ = Attended { socket, connection: &mut connection, is_over, begun: None, pace: None }.go_on(hall);
    }
    hall.served.requests += connection.answered();
    connection.give_back(&mut buffers);
    hall.buffers = buffers;
}

struct Attended<'a> {
    socket: &'a OwnedFd,
    connection: &'a mut Connection,
    is_over: &'a AtomicBool,
    begun: Option<Begun>,
    /// How the client takes the answer that is being sent, of which some was.
    pace: Option<Pace>,
}

/// When a request began to arrive that is not whole, and how many were answered before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    when: Instant,
    after: u64,
}

impl Begun {
    /// The one that was known, if it is of the same request: each has its own time, also where one arrives with a part of the next.
    fn of(known: Option<Self>, after: u64, now: Instant) -> Self {
        known.filter(|known| known.after == after).unwrap_or(Self { when: now, after })
    }
}

impl Attended<'_> {
    fn go_on(&mut self, hall: &mut Hall) -> rustix::io::Result<()> {
        loop {
            match self.connection.wants() {
                Wants::Send => match hall.sending.send_some(self.connection, self.socket) {
                    Ok(sent) => {
                        hall.served.bytes += sent as u64;
                        if self.is_too_slow(hall) {
                            return Ok(());
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                },
                Wants::Advance => {
                    hall.site.tick(Instant::now());
                    hall.site.is_draining = self.is_over.load(Ordering::Acquire);
                    self.connection.advance(&mut hall.site);
                }
                Wants::Receive => {
                    if !self.receive(hall)? {
                        return Ok(());
                    }
                }
                Wants::End => return self.end(),
            }
        }
    }

    /// Whether its client takes too little of an answer, of which more is to be sent.
    fn is_too_slow(&mut self, hall: &Hall) -> bool {
        if self.connection.wants() != Wants::Send {
            self.pace = None;
            return false;
        }
        let (now, given) = (Instant::now(), self.connection.given());
        let pace = self.pace.get_or_insert(Pace::begin(now, given));
        pace.is_too_slow((now, given), hall.site.limits().progress)
    }

    /// Receives what comes; `false` at the end.
    fn receive(&mut self, hall: &mut Hall) -> rustix::io::Result<bool> {
        if !self.is_in_time(hall)? {
            self.connection.refuse(Status::RequestTimeout, &hall.site);
            return Ok(true);
        }
        match receive(self.connection, self.socket) {
            Ok(received) => {
                hall.sending.received(self.connection);
                Ok(received > 0)
            }
            Err(Errno::INTR) => Ok(true),
            // The time of a request that has begun is over, which is said; of one that has not, nothing is.
            Err(Errno::AGAIN) if self.begun.is_some() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether a request that has begun to arrive may go on arriving. Then no call waits longer than that.
    fn is_in_time(&mut self, hall: &Hall) -> rustix::io::Result<bool> {
        let limits = hall.site.limits();
        if !self.connection.has_begun() {
            if self.begun.take().is_some() {
                set_socket_timeout(self.socket, Timeout::Recv, Some(limits.idle))?;
            }
            return Ok(true);
        }
        let answered = self.connection.answered();
        let begun = Begun::of(self.begun, answered, Instant::now());
        self.begun = Some(begun);
        let left = limits.request.saturating_sub(begun.when.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        // Zero would be for ever.
        set_socket_timeout(self.socket, Timeout::Recv, Some(left.max(Duration::from_millis(1))))?;
        Ok(true)
    }

    /// Sends no more, and drops what still comes.
    fn end(&mut self) -> rustix::io::Result<()> {
        shutdown(self.socket, Shutdown::Write)?;
        let until = Instant::now() + LINGER;
        set_socket_timeout(self.socket, Timeout::Recv, Some(LINGER))?;
        let mut nothing = [0; 4096];
        for _ in 0..DROPPED {
            if Instant::now() >= until || recv(self.socket, &mut nothing, RecvFlags::empty())?.1 == 0 {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_time_to_arrive() {
        let (first, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        let begun = Begun::of(None, 0, first);
        assert_eq!(Begun::of(Some(begun), 0, later).when, first);
        assert_eq!(Begun::of(Some(begun), 1, later).when, later);
    }
}
