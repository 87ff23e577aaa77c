//! A client served with calls that wait, as in a thread or a process of its own.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::serve::client::{ClientState, SendProgress};
use crate::serve::connection::NextIo;
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
    context: &mut WorkerContext,
    shutdown: &AtomicBool,
) {
    let mut state = ClientState::new(context.new_connection(socket, tracker), Instant::now());
    let mut buffers = std::mem::take(&mut context.buffers);
    state.connection.attach_buffers(&mut buffers);
    let limits = context.site.limits();
    let send_timeout = limits.idle_timeout.min(limits.min_progress.within).max(MIN_SOCKET_TIMEOUT);
    let is_ready = set_socket_timeout(socket, Timeout::Recv, Some(limits.idle_timeout))
        .and_then(|()| set_socket_timeout(socket, Timeout::Send, Some(send_timeout)));
    let (partial_request, is_sending) = (None, false);
    let mut client = BlockingClient { socket, state, shutdown, partial_request, is_sending, send_timeout };
    if is_ready.is_ok() {
        // Whatever it is, it is the end.
        let _ = client.run(context);
    }
    context.stats.requests += client.state.connection.requests_answered();
    client.state.connection.detach_buffers(&mut buffers);
    context.buffers = buffers;
}

struct BlockingClient<'a> {
    socket: &'a OwnedFd,
    state: ClientState,
    shutdown: &'a AtomicBool,
    partial_request: Option<PartialRequest>,
    /// Whether a part of an answer was sent.
    is_sending: bool,
    /// How long a call that sends waits at most.
    send_timeout: Duration,
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

impl BlockingClient<'_> {
    fn run(&mut self, context: &mut WorkerContext) -> rustix::io::Result<()> {
        loop {
            match self.state.connection.next_io() {
                NextIo::Send => {
                    if !self.send(context)? {
                        return Ok(());
                    }
                }
                NextIo::Advance => {
                    context.site.tick(Instant::now());
                    context.site.is_draining = self.shutdown.load(Ordering::Acquire);
                    self.state.connection.advance(&mut context.site);
                }
                NextIo::Receive => {
                    if !self.receive(context)? {
                        return Ok(());
                    }
                }
                NextIo::End => return self.linger(),
            }
        }
    }

    /// Sends some; `false` if its client takes too little of an answer, of which more is to be sent. The call waits no longer than
    /// until that is known.
    fn send(&mut self, context: &mut WorkerContext) -> rustix::io::Result<bool> {
        let ServerLimits { idle_timeout, min_progress, .. } = *context.site.limits();
        let Self { state, .. } = self;
        let patience = if self.is_sending {
            let now = Instant::now();
            state.progress.time_left(now, min_progress).min(idle_timeout.saturating_sub(now - state.last_active))
        } else {
            // The answer was made just now.
            state.last_active = context.site.now();
            state.progress = SendProgress::start(state.last_active, state.connection.bytes_sent());
            idle_timeout.min(min_progress.within)
        };
        self.set_send_timeout(patience)?;
        let Self { state, .. } = self;
        let sent = match context.sender.send_some(&mut state.connection, self.socket) {
            Ok(sent) => sent,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(error) => return Err(error),
        };
        context.stats.bytes += sent as u64;
        self.is_sending = state.connection.next_io() == NextIo::Send;
        if !self.is_sending {
            return Ok(true);
        }
        let now = Instant::now();
        if sent > 0 {
            state.last_active = now;
        }
        let is_slow = state.progress.is_too_slow((now, state.connection.bytes_sent()), min_progress);
        Ok(!is_slow && now - state.last_active < idle_timeout)
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
    fn receive(&mut self, context: &mut WorkerContext) -> rustix::io::Result<bool> {
        if !self.is_in_time(context)? {
            self.state.connection.refuse(Status::RequestTimeout, &context.site);
            return Ok(true);
        }
        match context.receive(&mut self.state.connection, self.socket) {
            Ok(received) => Ok(received > 0),
            Err(Errno::INTR) => Ok(true),
            // The time of a request that has begun is over, which is said; of one that has not, nothing is.
            Err(Errno::AGAIN) if self.partial_request.is_some() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether a request that has begun to arrive may go on arriving. Then no call waits longer than that.
    fn is_in_time(&mut self, context: &WorkerContext) -> rustix::io::Result<bool> {
        let limits = context.site.limits();
        if !self.state.connection.has_partial_request() {
            if self.partial_request.take().is_some() {
                set_socket_timeout(self.socket, Timeout::Recv, Some(limits.idle_timeout))?;
            }
            return Ok(true);
        }
        let answered = self.state.connection.requests_answered();
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
