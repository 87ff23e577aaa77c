//! The agent: listens, authenticates clients, and serves each in its own thread.
//!
//! The cost of unauthenticated clients is bounded: in connections, in connections from one network ([`places`](crate::wire::admission)),
//! and in time for each. One thread waits for all of them; it waits for no single one, and for no log.

mod pending;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::wire::address::is_loopback;
use crate::wire::control_channel::ControlChannel;
use crate::wire::deadline::Deadline;
use crate::wire::file_server::StartFileServer;
use crate::wire::handshake::Handshake;
use crate::wire::limits::AgentLimits;
use crate::wire::message::{AgentRequest, AgentResponse, PROTOCOL};
use crate::wire::secret::Secret;
use crate::wire::service::{self, ServiceContext};
use crate::wire::{Error, Result};
use kelvin_sys::thread_spawn::ThreadBuilder;
use pending::{PendingClient, PendingHandshakes};

/// How often the agent checks whether it is to stop while no connection arrives.
const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The pause after a connection could not be accepted, as when no file descriptor is left.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Connections accepted in a row before earlier ones are heard.
const ACCEPT_BATCH: usize = 64;
/// Backlog of the listening socket; the kernel limits it to net.core.somaxconn.
const LISTEN_BACKLOG: u32 = 4096;
/// Stack of a thread: little is on it.
const STACK_BYTES: usize = 256 << 10;

/// Receives events, for a log: the client, and what happened.
pub type AgentLog = dyn Fn(SocketAddr, &AgentEvent) + Send + Sync;

/// What happens.
#[derive(Debug)]
pub enum AgentEvent {
    /// A client was authenticated.
    Authenticated,
    /// A client requested a test.
    TestRequested(AgentRequest),
    /// A client left, with all its requests done.
    Disconnected,
    /// A fault ended a client's connection.
    Fault(Error),
    /// An unauthenticated client was refused, or left.
    Rejected(Error),
}

/// A listening agent.
pub struct Agent {
    listener: TcpListener,
    state: Arc<AgentState>,
}

/// Shared by all threads.
struct AgentState {
    secret: Secret,
    limits: AgentLimits,
    log: Box<AgentLog>,
    client_count: AtomicU32,
    /// Tests being served.
    running_tests: AtomicU32,
    /// Starts servers of files, if there are any.
    start_file_server: OnceLock<Box<StartFileServer>>,
}

impl Agent {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::UnprotectedAddress`] for an address that other hosts can reach, without a secret; an unavailable address.
    pub fn listen(address: SocketAddr, secret: Secret, limits: AgentLimits, log: Box<AgentLog>) -> Result<Self> {
        if !secret.is_some() && !is_loopback(address) {
            return Err(Error::UnprotectedAddress { address });
        }
        let listener = TcpListener::bind(address).map_err(Error::call("listen"))?;
        kelvin_sys::net::set_backlog(&listener, LISTEN_BACKLOG).map_err(Error::call("listen"))?;
        // A connection that is gone before it is accepted must not block the loop.
        listener.set_nonblocking(true).map_err(Error::call("listen"))?;
        let (clients, tests, files) = (AtomicU32::new(0), AtomicU32::new(0), OnceLock::new());
        let house =
            AgentState { secret, limits, log, client_count: clients, running_tests: tests, start_file_server: files };
        Ok(Self { listener, state: Arc::new(house) })
    }

    /// Lets clients have files served, each by one server at a time, which this starts.
    #[must_use]
    pub fn with_files(self, start: Box<StartFileServer>) -> Self {
        self.state.start_file_server.get_or_init(|| start);
        self
    }

    /// Where it listens: the port too, if the system chose it.
    ///
    /// # Errors
    /// A failed system call.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::call("see the address"))
    }

    /// Serves until it is to stop. Clients then lose their connections when the process ends.
    ///
    /// # Errors
    /// A broken listener.
    pub fn serve(&self, is_over: impl Fn() -> bool) -> Result<()> {
        let mut crowd = PendingHandshakes::new(Arc::clone(&self.state));
        while !is_over() {
            let is_called = crowd.wait(self.listener.as_fd(), SHUTDOWN_POLL_INTERVAL)?;
            crowd.read_ready();
            if is_called {
                self.accept(&mut crowd);
            }
        }
        Ok(())
    }

    /// Accepts waiting connections.
    fn accept(&self, crowd: &mut PendingHandshakes) {
        let mut failed = 0;
        for _ in 0..ACCEPT_BATCH {
            match self.listener.accept() {
                Ok((stream, from)) => crowd.add(stream, from),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // One that is gone again; the next one may be there.
                Err(_) => failed += 1,
            }
        }
        if failed == ACCEPT_BATCH {
            std::thread::sleep(ACCEPT_RETRY_PAUSE);
        }
    }
}

impl AgentState {
    /// The handshake of a connection that must be over by then.
    fn handshake(&self, deadline: Deadline) -> Handshake<'_> {
        Handshake { protocol: &PROTOCOL, secret: &self.secret, deadline }
    }

    /// Answers a new client's greeting, and has a thread serve it if it knows the secret. It waits for no one: the answer is
    /// short, and fits the socket buffer.
    fn complete_handshake(self: &Arc<Self>, newcomer: PendingClient) {
        let PendingClient { mut stream, peer: from, hello: greeted, greeting, deadline, .. } = newcomer;
        let shaken =
            self.handshake(deadline).complete(&mut stream, (&greeted, &greeting), || ClientSlot::acquire(self));
        let shaken = shaken.and_then(|(halves, seat)| {
            stream.set_nonblocking(false).map_err(Error::call("set up the connection"))?;
            Ok((ControlChannel::new(stream, halves), seat))
        });
        let (channel, seat) = match shaken {
            Ok(client) => client,
            // Only authenticated clients learn the reason.
            Err(error @ Error::ServerFull { .. }) => return (self.log)(from, &AgentEvent::Fault(error)),
            Err(error) => return self.log_rejection(from, error),
        };
        (self.log)(from, &AgentEvent::Authenticated);
        let serve = move || {
            match seat.0.serve_client(channel, from) {
                Ok(()) => (seat.0.log)(from, &AgentEvent::Disconnected),
                Err(error) => (seat.0.log)(from, &AgentEvent::Fault(error)),
            }
            drop(seat);
        };
        // Without a thread the connection ends, and the client sees that.
        if let Err(error) = ThreadBuilder::named("client").stack_bytes(STACK_BYTES).start(serve) {
            (self.log)(from, &AgentEvent::Fault(Error::Thread(error)));
        }
    }

    /// Logs a client that was refused.
    fn log_rejection(&self, from: SocketAddr, why: Error) {
        (self.log)(from, &AgentEvent::Rejected(why));
    }

    /// Serves a client's requests, one after the other, until it leaves.
    fn serve_client(&self, mut channel: ControlChannel, from: SocketAddr) -> Result<()> {
        loop {
            let ask: AgentRequest = match channel.receive(self.limits.idle_timeout) {
                Ok(ask) => ask,
                Err(Error::Closed) => return Ok(()),
                // A malformed message is the client's own fault, and the next one may be well-formed.
                Err(error @ Error::Malformed(_)) => {
                    channel.send(&AgentResponse::failed(error), self.limits.idle_timeout)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // It crossed the answer that its test had ended.
            if matches!(ask, AgentRequest::Count | AgentRequest::End) {
                continue;
            }
            (self.log)(from, &AgentEvent::TestRequested(ask.clone()));
            let means = ServiceContext {
                limits: &self.limits,
                running_tests: &self.running_tests,
                start_file_server: self.start_file_server.get().map(Box::as_ref),
            };
            let answer = match service::serve_test(&ask, &mut channel, &means) {
                Ok(seen) => AgentResponse::Done(seen),
                // The client itself reports that it was refused.
                Err(Error::Refused(why)) => AgentResponse::failed(why),
                Err(error) => AgentResponse::failed(error),
            };
            channel.send(&answer, self.limits.idle_timeout)?;
        }
    }
}

/// One of few places for clients, returned on drop.
struct ClientSlot(Arc<AgentState>);

impl ClientSlot {
    fn acquire(house: &Arc<AgentState>) -> Option<Self> {
        let one_more = |taken: u32| (taken < house.limits.max_clients).then_some(taken + 1);
        let took = house.client_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        took.is_ok().then(|| Self(Arc::clone(house)))
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.client_count.fetch_sub(1, Ordering::Relaxed);
    }
}
