//! What every model serves with, what a thread needs to serve any client, what it knows of one that it serves, by when that must have
//! asked and taken something, and how it speaks to one that it does not serve.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use kelvin_core::quantity::MinProgress;
use kelvin_sys::net::rx_timestamp;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, getpeername, getsockname, recv, send, shutdown};

use crate::serve::access_log::{AccessLog, ConnectionLog};
use crate::serve::connection::{Connection, LargeBuffers, NextIo};
use crate::serve::document_root::DocumentRoot;
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::open_file_cache::{FileBudget, OpenFileCache};
use crate::serve::request_tracker::RequestTracker;
use crate::serve::send_strategy::bulk_method::BulkStats;
use crate::serve::send_strategy::{FileSender, SendStrategy};
use crate::serve::site::{Site, SiteConfig};
use crate::serve::stats_sources::RESERVED_NAME;
use crate::serve::tls::TlsIdentity;
use crate::serve::tls_totals::TlsTotals;
use crate::serve::transport::{ClientTransport, PlainTransport};

/// Room for what is received at a time: a request of a browser has less than 1 KiB.
pub const RECEIVE_CHUNK: usize = 16 << 10;
/// How long an ended connection is read from or held, so that its last answer is not lost with what it still sends (RFC 9112, 9.6).
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Most connections that are held open after they were turned away: of more, the oldest are closed.
const MAX_LINGERING: usize = 16;

/// What every model serves with: its socket, its limits, and what each thread or process answers from.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// The socket that listens, without waiting.
    pub listener: Arc<TcpListener>,
    /// Whether another program holds that as well.
    pub is_listener_shared: bool,
    /// The directory that is served.
    pub root: Arc<DocumentRoot>,
    /// How it answers, and the limits.
    pub site: SiteConfig,
    /// Threads that serve, of a model that has a fixed number.
    pub threads: usize,
    pub send_strategy: SendStrategy,
    /// Files that each thread holds open, at most, and what is left to all of them.
    pub files_per_thread: usize,
    pub file_budget: Arc<FileBudget>,
    /// Where connections are registered, if they are tracked. Then nothing is served below `.kelvin` in the root.
    pub sampler: Option<Arc<InFlightSampler>>,
    /// Where requests are logged, if they are.
    pub access_log: Option<Arc<AccessLog>>,
    /// With what connections are encrypted, if they are.
    pub tls: Option<Arc<TlsIdentity>>,
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTotals {
    /// Requests that were answered, by any status.
    pub requests: u64,
    /// Bytes that were sent, heads included; with TLS as they were encrypted.
    pub bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were turned away because there were too many.
    pub refused: u64,
    /// By which calls larger files went, if they were chosen.
    pub bulk: BulkStats,
    /// What was done for TLS.
    pub tls: TlsTotals,
}

impl std::ops::Add for ServerTotals {
    type Output = Self;

    fn add(mut self, mut other: Self) -> Self {
        self.words().zip(other.words()).for_each(|(sum, count)| *sum += *count);
        self
    }
}

impl ServerTotals {
    /// Numbers that it consists of.
    pub(crate) const WORDS: usize = 4 + BulkStats::WORDS + TlsTotals::WORDS;

    pub(crate) fn words(&mut self) -> impl Iterator<Item = &mut u64> {
        let Self { requests, bytes, connections, refused, bulk, tls } = self;
        [requests, bytes, connections, refused].into_iter().chain(&mut bulk.0).chain(tls.words())
    }
}

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// It waits for an event.
    Wait,
    /// It goes on when others have had their turn.
    Requeue,
    /// It is gone.
    Gone,
}

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
    /// Where requests are logged, if they are.
    access_log: Option<Arc<AccessLog>>,
    /// With what connections are encrypted, if they are.
    pub(crate) tls: Option<Arc<TlsIdentity>>,
    /// Whether another program holds the listening socket as well, which then goes on listening.
    pub shares_listener: bool,
    /// Who was turned away, and when: one whose request is still to come must not be reset before it has read why.
    lingering: VecDeque<(Instant, RejectedClient)>,
}

impl WorkerContext {
    /// One in which nobody was served yet.
    pub(crate) fn new(service: &Service) -> Self {
        let mut files = OpenFileCache::new(Arc::clone(&service.root), service.files_per_thread);
        files.budget = Arc::clone(&service.file_budget);
        files.reserved = service.sampler.as_ref().map(|_| RESERVED_NAME);
        Self {
            site: Site::new(files, service.site.clone()),
            sender: FileSender::new(service.send_strategy),
            buffers: LargeBuffers::default(),
            stats: ServerTotals::default(),
            sampler: service.sampler.clone(),
            access_log: service.access_log.clone(),
            tls: service.tls.clone(),
            shares_listener: service.is_listener_shared,
            lingering: VecDeque::new(),
        }
    }

    /// What was done since it was asked last.
    pub fn take_stats(&mut self) -> ServerTotals {
        let (requests, bulk) = (std::mem::take(&mut self.site.answered), self.sender.take_bulk_stats());
        ServerTotals { requests, bulk, ..std::mem::take(&mut self.stats) }
    }

    /// Registers a connection, if they are watched.
    pub fn register(&self, socket: impl AsFd) -> Option<RequestTracker> {
        RequestTracker::register(self.sampler.as_ref()?, socket)
    }

    /// A client over this socket, that is served from now on.
    pub fn new_client<T: ClientTransport>(
        &self,
        socket: impl AsFd,
        tracker: Option<RequestTracker>,
        now: Instant,
    ) -> ClientState<T> {
        let is_local = self.sender.chooser.is_some() && is_local(&socket).unwrap_or(false);
        let mut connection = Connection::with_tracker(tracker, is_local);
        connection.log = self.access_log.as_ref().map(|log| Box::new(ConnectionLog::new(log, &socket)));
        let progress = SendProgress::start(now, 0);
        let transport = T::new(self);
        ClientState { connection, transport, has_ended: false, is_lingering: false, last_active: now, progress }
    }

    /// Receives what has come, or comes while a socket that waits does: how many bytes, none at the end. Of a connection that is tracked
    /// it is asked as well when they came, which costs more.
    ///
    /// # Errors
    /// Those of the call.
    #[inline]
    pub fn receive(&mut self, connection: &mut Connection, socket: &OwnedFd) -> rustix::io::Result<usize> {
        let is_tracked = connection.tracker.is_some();
        let buffer = connection.input_buffer(RECEIVE_CHUNK);
        let received = if is_tracked {
            let timed_read = rx_timestamp::append(socket, buffer);
            let timed_read = timed_read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            connection.mark_received_delayed(timed_read.length, timed_read.delay());
            timed_read.length
        } else {
            let (_, received) = recv(socket, spare_capacity(buffer), RecvFlags::empty())?;
            connection.mark_received(received);
            received
        };
        self.sender.on_received(connection);
        Ok(received)
    }

    /// Refuses a connection because there are too many, without waiting for anything.
    pub fn reject(&mut self, socket: OwnedFd, now: Instant) {
        self.stats.refused += 1;
        self.sampler.iter().for_each(|sampler| sampler.count_refused());
        // With TLS that could be said only after a handshake, which costs more than the answer.
        if self.tls.is_none() {
            let mut answer = Vec::new();
            self.site.refuse(StatusCode::SERVICE_UNAVAILABLE, &mut answer);
            let _ = send(&socket, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        let _ = shutdown(&socket, Shutdown::Write);
        if self.lingering.len() >= MAX_LINGERING {
            self.lingering.pop_front();
        }
        self.lingering.push_back((now, RejectedClient(socket)));
    }

    /// Closes connections that were turned away long enough ago.
    pub fn close_lingering(&mut self, now: Instant) {
        while self
            .lingering
            .front()
            .is_some_and(|(rejection, _)| now.saturating_duration_since(*rejection) >= LINGER_TIMEOUT)
        {
            self.lingering.pop_front();
        }
    }

    /// Closes all of them, because descriptors are lacking.
    pub fn close_all_lingering(&mut self) {
        self.lingering.clear();
    }
}

/// A client that was turned away.
#[derive(Debug)]
struct RejectedClient(OwnedFd);

impl Drop for RejectedClient {
    fn drop(&mut self) {
        // What has arrived is taken, so that the end is no reset, which would drop an answer that is not read yet.
        let _ = recv(&self.0, &mut [0; 4096], RecvFlags::DONTWAIT);
    }
}

/// Whether both ends of a connection are on this host: then what arrives comes from the CPU of the client.
///
/// # Errors
/// Those of getsockname and getpeername.
pub fn is_local(socket: impl AsFd) -> rustix::io::Result<bool> {
    let local = getsockname(&socket)?;
    if local.address_family() == AddressFamily::UNIX {
        return Ok(true);
    }
    let local: SocketAddr = local.try_into()?;
    let peer: SocketAddr = getpeername(&socket)?.ok_or(rustix::io::Errno::NOTCONN)?.try_into()?;
    Ok(local.ip() == peer.ip() || peer.ip().to_canonical().is_loopback())
}

/// A client.
#[derive(Debug)]
pub struct ClientState<T = PlainTransport> {
    pub connection: Connection,
    pub transport: T,
    /// Whether the client sends no more.
    pub has_ended: bool,
    /// Whether the server sends no more, and reads only that nothing is lost.
    pub is_lingering: bool,
    /// When it was last between two requests, began one, or took something.
    pub last_active: Instant,
    /// How it takes answers.
    pub progress: SendProgress,
}

impl<T: ClientTransport> ClientState<T> {
    /// What it waits for. What was encrypted is sent before anything else is done.
    #[inline]
    pub fn next_io(&self) -> NextIo {
        if self.transport.has_unsent() { NextIo::Send } else { self.connection.next_io() }
    }

    /// It took something. A handshake has one time for all that is sent and received for it.
    #[inline]
    pub fn mark_active(&mut self, now: Instant) {
        if !self.transport.is_handshaking() {
            self.last_active = now;
        }
    }

    /// Sends no more.
    pub fn shut_down_write(&mut self, socket: &OwnedFd, now: Instant) {
        self.transport.close(socket);
        let _ = shutdown(socket, Shutdown::Write);
        (self.is_lingering, self.last_active) = (true, now);
    }

    /// Time until a limit is over, counted from the clock of the site, if the client takes and sends nothing until then.
    pub fn remaining_time(&self, site: &Site) -> Duration {
        let limits = &site.config.limits;
        let limit = match self.next_io() {
            _ if self.transport.is_handshaking() => limits.request_timeout,
            NextIo::Receive if self.connection.has_partial_request() => limits.request_timeout,
            _ => limits.idle_timeout,
        };
        let remaining = limit.saturating_sub(site.now().saturating_duration_since(self.last_active));
        match self.next_io() {
            NextIo::Send => {
                remaining.min(limits.min_progress.interval.saturating_sub(site.now() - self.progress.since))
            }
            _ => remaining,
        }
    }

    /// Whether its time is over by the clock of the site, or that of its request, which the answer states. Of a client
    /// that waits for an operation, no request is read.
    pub fn check_deadlines(&mut self, site: &Site, is_busy: bool) -> ClientStep {
        let (limits, now) = (&site.config.limits, site.now());
        let idle_time = now.saturating_duration_since(self.last_active);
        let next = self.next_io();
        if self.is_lingering {
            return if idle_time >= LINGER_TIMEOUT { ClientStep::Gone } else { ClientStep::Wait };
        }
        if self.transport.is_handshaking() {
            return if idle_time >= limits.request_timeout { ClientStep::Gone } else { ClientStep::Wait };
        }
        let is_receiving = !is_busy && next == NextIo::Receive && self.connection.has_partial_request();
        if is_receiving && idle_time >= limits.request_timeout {
            self.connection.refuse(StatusCode::REQUEST_TIMEOUT, site);
            return ClientStep::Requeue;
        }
        let sent = self.transport.bytes_sent(&self.connection);
        let is_too_slow = if is_busy || next == NextIo::Send {
            self.progress.is_too_slow((now, sent), limits.min_progress)
        } else {
            self.progress = SendProgress::start(now, sent);
            false
        };
        if idle_time >= limits.idle_timeout || is_too_slow { ClientStep::Gone } else { ClientStep::Wait }
    }
}

/// What had been sent to a client at a moment since which it has been sent answers without a pause.
#[derive(Clone, Copy, Debug)]
pub struct SendProgress {
    since: Instant,
    sent: u64,
}

impl SendProgress {
    /// Of one who is sent something from now on; this many bytes were sent to it before.
    pub fn start(now: Instant, sent: u64) -> Self {
        Self { since: now, sent }
    }

    /// Whether a client to whom this many bytes were sent by now, and who is being sent more, has taken too few of them. Each time that
    /// is over is followed by another.
    pub fn is_too_slow(&mut self, (now, sent): (Instant, u64), required: MinProgress) -> bool {
        if now.saturating_duration_since(self.since) < required.interval {
            return false;
        }
        let before = std::mem::replace(self, Self::start(now, sent));
        sent - before.sent < required.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIN_PROGRESS: MinProgress = MinProgress { bytes: 4096, interval: Duration::from_secs(120) };

    /// After how many seconds a client is too slow that takes this many bytes in each of these many seconds; nothing if never.
    fn too_slow_after(period: u32, bytes: u64) -> Option<u32> {
        let start = Instant::now();
        let mut pace = SendProgress::start(start, 1000);
        (0..10_000).find(|&second| {
            let sent = 1000 + u64::from(second / period) * bytes;
            pace.is_too_slow((start + second * SECOND, sent), MIN_PROGRESS)
        })
    }

    #[test]
    fn trickling_client_fails_and_slow_link_passes() {
        assert_eq!(
            [too_slow_after(59, 1), too_slow_after(1, 1), too_slow_after(1, 34), too_slow_after(1, 0)],
            [Some(120); 4]
        );
        // 300 bits a second, and bursts between which nothing goes for long.
        assert_eq!([too_slow_after(1, 37), too_slow_after(110, 8192), too_slow_after(1, 1 << 20)], [None; 3]);
    }
}
