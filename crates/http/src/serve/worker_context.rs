//! What a thread needs to serve any client, and how it speaks to one that it does not serve.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelvin_sys::net::rx_timestamp;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::serve::connection::{Connection, LargeBuffers};
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::request_tracker::RequestTracker;
use crate::serve::send_strategy::{FileSender, SendStrategy};
use crate::serve::server::ServerTotals;
use crate::serve::shared_state::is_local;
use crate::serve::site::Site;
use crate::serve::status::Status;

/// Room for what is received at a time: a request of a browser has less than 1 KiB.
pub const RECEIVE_CHUNK: usize = 16 << 10;
/// How long an ended connection is read from or held, so that its last answer is not lost with what it still sends (RFC 9112, 9.6).
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Most connections that are held so long after they were turned away: of a crowd, the oldest are let go.
const MAX_LINGERING: usize = 16;

/// What a thread needs to serve any client.
#[derive(Debug)]
pub struct WorkerContext {
    /// What answers.
    pub site: Site,
    /// By which calls the bytes of files go.
    pub sender: FileSender,
    /// What clients use by turns.
    pub buffers: LargeBuffers,
    /// What was done so far.
    pub stats: ServerTotals,
    /// Where connections are registered, if they are watched.
    pub sampler: Option<Arc<InFlightSampler>>,
    /// Who was turned away, and when: one whose request is still to come must not be reset before it has read why.
    lingering: VecDeque<(Instant, OwnedFd)>,
}

impl WorkerContext {
    /// One in which nobody was served yet.
    pub fn new(site: Site, sending: SendStrategy, sampler: Option<Arc<InFlightSampler>>) -> Self {
        Self {
            site,
            sender: FileSender::new(sending),
            buffers: LargeBuffers::default(),
            stats: ServerTotals::default(),
            sampler,
            lingering: VecDeque::new(),
        }
    }

    /// What was done since it was asked last.
    pub fn take_stats(&mut self) -> ServerTotals {
        ServerTotals { bulk: self.sender.take_bulk_stats(), ..std::mem::take(&mut self.stats) }
    }

    /// Registers a connection, if they are watched.
    pub fn register(&self, socket: impl AsFd) -> Option<RequestTracker> {
        self.sampler.as_ref()?.register(socket)
    }

    /// A connection over this socket, that is served from now on.
    pub fn new_connection(&self, socket: impl AsFd, registered: Option<RequestTracker>) -> Connection {
        let is_local = self.sender.needs_peer_locality() && is_local(&socket).unwrap_or(false);
        Connection::with_tracker(registered).with_local(is_local)
    }

    /// Receives what has come, or comes while a socket that waits does: how many bytes, none at the end. Of a connection that is tracked
    /// it is asked as well when they came, which costs more.
    ///
    /// # Errors
    /// Those of the call.
    #[inline]
    pub fn receive(&mut self, connection: &mut Connection, socket: &OwnedFd) -> rustix::io::Result<usize> {
        let is_tracked = connection.is_tracked();
        let buffer = connection.input_buffer(RECEIVE_CHUNK);
        let received = if is_tracked {
            let arrived = rx_timestamp::append(socket, buffer);
            let arrived = arrived.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            connection.mark_received_delayed(arrived.length, arrived.delay());
            arrived.length
        } else {
            let (_, received) = recv(socket, spare_capacity(buffer), RecvFlags::empty())?;
            connection.mark_received(received);
            received
        };
        self.sender.on_received(connection);
        Ok(received)
    }

    /// Says to a connection that there are too many, without waiting for anything.
    pub fn reject(&mut self, socket: OwnedFd, now: Instant) {
        self.stats.refused += 1;
        self.sampler.iter().for_each(|watch| watch.count_refused());
        let mut answer = Vec::new();
        self.site.refuse(Status::ServiceUnavailable, &mut answer);
        let _ = send(&socket, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        let _ = shutdown(&socket, Shutdown::Write);
        if self.lingering.len() >= MAX_LINGERING {
            self.lingering.pop_front().into_iter().for_each(close_rejected);
        }
        self.lingering.push_back((now, socket));
    }

    /// Lets go whoever was turned away long enough ago.
    pub fn close_lingering(&mut self, now: Instant) {
        while self.lingering.front().is_some_and(|(when, _)| now.saturating_duration_since(*when) >= LINGER_TIMEOUT) {
            self.lingering.pop_front().into_iter().for_each(close_rejected);
        }
    }

    /// Lets go all of them, because descriptors are lacking.
    pub fn close_all_lingering(&mut self) {
        self.lingering.drain(..).for_each(close_rejected);
    }
}

impl Drop for WorkerContext {
    fn drop(&mut self) {
        self.close_all_lingering();
    }
}

fn close_rejected((_, socket): (Instant, OwnedFd)) {
    // What has arrived is taken, so that the end is no reset, which would drop an answer that is not read yet.
    let _ = recv(&socket, &mut [0; 4096], RecvFlags::DONTWAIT);
}
