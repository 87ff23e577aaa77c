//! A client served with calls that wait, as in a thread or a process of its own.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::serve::client::SendProgress;
use crate::serve::connection::{Connection, NextIo};
use crate::serve::limits::ServerLimits;
use crate::serve::request_tracker::RequestTracker;
use crate::serve::status::Status;
use crate::serve::worker_context::{LINGER_TIMEOUT, WorkerContext};

/// Most calls that read and drop that.
const MAX_DISCARD_READS: usize = 64;
/// The shortest time-out of a socket: zero would be for ever.
const MIN_SOCKET_TIMEOUT: Duration = Duration::from_millis(1);

/// Serves a client until its end; once the server is to end, with one more answer. A call that waits longer than a limit ends it.
pub fn serve_connection(
    socket: &OwnedFd,
    tracker: Option<RequestTracker>,
    hall: &mut WorkerContext,
    is_over: &AtomicBool,
) {
    let mut connection = hall.new_connection(socket, tracker);
    let mut buffers = std::mem::take(&mut hall.buffers);
    connection.attach_buffers(&mut buffers);
    let limits = hall.site.limits();
    let patience = limits.idle_timeout.min(limits.min_progress.within).max(MIN_SOCKET_TIMEOUT);
    let is_ready = [(Timeout::Recv, limits.idle_timeout), (Timeout::Send, patience)]
        .map(|(what, time)| set_socket_timeout(socket, what, Some(time)));
    if is_ready.iter().all(Result::is_ok) {
        // Whatever it is, it is the end.
        let _ = BlockingConnection {
            socket,
            connection: &mut connection,
            shutdown: is_over,
            partial_request: None,
            answer: None,
            send_timeout: patience,
        }
        .step(hall);
    }
    hall.stats.requests += connection.requests_answered();
    connection.detach_buffers(&mut buffers);
    hall.buffers = buffers;
}

struct BlockingConnection<'a> {
    socket: &'a OwnedFd,
    connection: &'a mut Connection,
    shutdown: &'a AtomicBool,
    partial_request: Option<PartialRequest>,
    /// How the client takes the answer that is being sent.
    answer: Option<AnswerState>,
    /// How long a call that sends waits at most.
    send_timeout: Duration,
}

/// How a client takes what it is sent.
#[derive(Clone, Copy, Debug)]
struct AnswerState {
    progress: SendProgress,
    /// When it last took some.
    last_progress: Instant,
}

/// When a request began to arrive that is not whole, and how many were answered before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartialRequest {
    started_at: Instant,
    answered_before: u64,
}

impl PartialRequest {
    /// The one that was known, if it is of the same request: each has its own time, also where one arrives with a part of the next.
    fn start_or_continue(known: Option<Self>, after: u64, now: Instant) -> Self {
        known.filter(|known| known.answered_before == after).unwrap_or(Self { started_at: now, answered_before: after })
    }
}

impl BlockingConnection<'_> {
    fn step(&mut self, hall: &mut WorkerContext) -> rustix::io::Result<()> {
        loop {
            match self.connection.next_io() {
                NextIo::Send => {
                    if !self.send(hall)? {
                        return Ok(());
                    }
                }
                NextIo::Advance => {
                    hall.site.tick(Instant::now());
                    hall.site.is_draining = self.shutdown.load(Ordering::Acquire);
                    self.connection.advance(&mut hall.site);
                }
                NextIo::Receive => {
                    if !self.receive(hall)? {
                        return Ok(());
                    }
                }
                NextIo::End => return self.linger(),
            }
        }
    }

    /// Sends some; `false` if its client takes too little of an answer, of which more is to be sent. The call waits no longer than
    /// until that is known.
    fn send(&mut self, hall: &mut WorkerContext) -> rustix::io::Result<bool> {
        let ServerLimits { idle_timeout: idle, min_progress: progress, .. } = *hall.site.limits();
        let mut taking = match self.answer {
            // The answer was made just now.
            None => {
                let now = hall.site.now();
                let pace = SendProgress::start(now, self.connection.bytes_sent());
                self.set_send_timeout(idle.min(progress.within))?;
                AnswerState { progress: pace, last_progress: now }
            }
            Some(taking) => {
                let now = Instant::now();
                let left = taking.progress.time_left(now, progress);
                self.set_send_timeout(left.min(idle.saturating_sub(now - taking.last_progress)))?;
                taking
            }
        };
        let sent = match hall.sender.send_some(self.connection, self.socket) {
            Ok(sent) => sent,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(error) => return Err(error),
        };
        hall.stats.bytes += sent as u64;
        if self.connection.next_io() != NextIo::Send {
            self.answer = None;
            return Ok(true);
        }
        let now = Instant::now();
        if sent > 0 {
            taking.last_progress = now;
        }
        let is_slow = taking.progress.is_too_slow((now, self.connection.bytes_sent()), progress);
        self.answer = Some(taking);
        Ok(!is_slow && now - taking.last_progress < idle)
    }

    /// That a call that sends waits no longer.
    fn set_send_timeout(&mut self, patience: Duration) -> rustix::io::Result<()> {
        let patience = patience.max(MIN_SOCKET_TIMEOUT);
        if patience != self.send_timeout {
            set_socket_timeout(self.socket, Timeout::Send, Some(patience))?;
            self.send_timeout = patience;
        }
        Ok(())
    }

    /// Receives what comes; `false` at the end.
    fn receive(&mut self, hall: &mut WorkerContext) -> rustix::io::Result<bool> {
        if !self.is_in_time(hall)? {
            self.connection.refuse(Status::RequestTimeout, &hall.site);
            return Ok(true);
        }
        match hall.receive(self.connection, self.socket) {
            Ok(received) => Ok(received > 0),
            Err(Errno::INTR) => Ok(true),
            // The time of a request that has begun is over, which is said; of one that has not, nothing is.
            Err(Errno::AGAIN) if self.partial_request.is_some() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether a request that has begun to arrive may go on arriving. Then no call waits longer than that.
    fn is_in_time(&mut self, hall: &WorkerContext) -> rustix::io::Result<bool> {
        let limits = hall.site.limits();
        if !self.connection.has_partial_request() {
            if self.partial_request.take().is_some() {
                set_socket_timeout(self.socket, Timeout::Recv, Some(limits.idle_timeout))?;
            }
            return Ok(true);
        }
        let answered = self.connection.requests_answered();
        let begun = PartialRequest::start_or_continue(self.partial_request, answered, Instant::now());
        self.partial_request = Some(begun);
        let left = limits.request_timeout.saturating_sub(begun.started_at.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        set_socket_timeout(self.socket, Timeout::Recv, Some(left.max(MIN_SOCKET_TIMEOUT)))?;
        Ok(true)
    }

    /// Sends no more, and drops what still comes.
    fn linger(&mut self) -> rustix::io::Result<()> {
        shutdown(self.socket, Shutdown::Write)?;
        let until = Instant::now() + LINGER_TIMEOUT;
        set_socket_timeout(self.socket, Timeout::Recv, Some(LINGER_TIMEOUT))?;
        let mut nothing = [0; 4096];
        for _ in 0..MAX_DISCARD_READS {
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
    fn each_request_has_own_deadline() {
        let (first, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        let begun = PartialRequest::start_or_continue(None, 0, first);
        assert_eq!(PartialRequest::start_or_continue(Some(begun), 0, later).started_at, first);
        assert_eq!(PartialRequest::start_or_continue(Some(begun), 1, later).started_at, later);
    }
}
