//! A client served with calls that wait, as in a thread or a process of its own.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::connection::{Connection, Wants};
use crate::hall::{Hall, LINGER};
use crate::limits::Limits;
use crate::pace::Pace;
use crate::receiving::receive;
use crate::registered::Registered;
use crate::status::Status;

/// Most calls that read and drop that.
const DROPPED: usize = 64;
/// The shortest time-out of a socket: zero would be for ever.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// Serves a client until its end; once the server is to end, with one more answer. A call that waits longer than a limit ends it.
pub fn attend((socket, registered): (&OwnedFd, Option<Registered>), hall: &mut Hall, is_over: &AtomicBool) {
    let mut connection = hall.connection(socket, registered);
    let mut buffers = std::mem::take(&mut hall.buffers);
    connection.lend(&mut buffers);
    let limits = hall.site.limits();
    let patience = limits.idle.min(limits.progress.within).max(LEAST_WAIT);
    let is_ready = [(Timeout::Recv, limits.idle), (Timeout::Send, patience)]
        .map(|(what, time)| set_socket_timeout(socket, what, Some(time)));
    if is_ready.iter().all(Result::is_ok) {
        // Whatever it is, it is the end.
        let _ =
            Attended { socket, connection: &mut connection, is_over, begun: None, taking: None, patience }.go_on(hall);
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
    /// How the client takes the answer that is being sent.
    taking: Option<Taking>,
    /// How long a call that sends waits at most.
    patience: Duration,
}

/// How a client takes what it is sent.
#[derive(Clone, Copy, Debug)]
struct Taking {
    pace: Pace,
    /// When it last took some.
    since: Instant,
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
                Wants::Send => {
                    if !self.send(hall)? {
                        return Ok(());
                    }
                }
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

    /// Sends some; `false` if its client takes too little of an answer, of which more is to be sent. The call waits no longer than
    /// until that is known.
    fn send(&mut self, hall: &mut Hall) -> rustix::io::Result<bool> {
        let Limits { idle, progress, .. } = *hall.site.limits();
        let mut taking = match self.taking {
            // The answer was made just now.
            None => {
                let now = hall.site.now();
                let pace = Pace::begin(now, self.connection.given());
                self.wait_at_most(idle.min(progress.within))?;
                Taking { pace, since: now }
            }
            Some(taking) => {
                let now = Instant::now();
                let left = taking.pace.left(now, progress);
                self.wait_at_most(left.min(idle.saturating_sub(now - taking.since)))?;
                taking
            }
        };
        let sent = match hall.sending.send_some(self.connection, self.socket) {
            Ok(sent) => sent,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(error) => return Err(error),
        };
        hall.served.bytes += sent as u64;
        if self.connection.wants() != Wants::Send {
            self.taking = None;
            return Ok(true);
        }
        let now = Instant::now();
        if sent > 0 {
            taking.since = now;
        }
        let is_slow = taking.pace.is_too_slow((now, self.connection.given()), progress);
        self.taking = Some(taking);
        Ok(!is_slow && now - taking.since < idle)
    }

    /// That a call that sends waits no longer.
    fn wait_at_most(&mut self, patience: Duration) -> rustix::io::Result<()> {
        let patience = patience.max(LEAST_WAIT);
        if patience != self.patience {
            set_socket_timeout(self.socket, Timeout::Send, Some(patience))?;
            self.patience = patience;
        }
        Ok(())
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
        set_socket_timeout(self.socket, Timeout::Recv, Some(left.max(LEAST_WAIT)))?;
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
