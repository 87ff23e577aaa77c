//! The agent: listens, authenticates clients, and serves each in its own thread.
//!
//! Until a client is authenticated it costs little (`listener.rs`).

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kelvin_sys::cpu;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::wire::admission::{AgentLimits, PoolSlot, SlotPool};
use crate::wire::control_channel::ControlChannel;
use crate::wire::file_server::StartFileServer;
use crate::wire::listener::{self, AuthenticatedCaller, CallerHandler, HandshakeListener};
use crate::wire::message::{AgentRequest, AgentResponse, PROTOCOL};
use crate::wire::secret::Secret;
use crate::wire::service::TestSession;
use crate::wire::{Error, Result};

/// How often the agent checks whether it is to stop while no connection arrives.
const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Stack of a thread: little is on it.
const STACK_BYTES: usize = 256 << 10;

/// Receives events, for a log: the client, and what happened.
pub type AgentLog = dyn Fn(SocketAddr, &AgentEvent) + Send + Sync;

/// The CPUs that this process may use, in the order in which streams are put on them.
pub type CpuOrder = dyn Fn() -> Vec<u32> + Send + Sync;

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
    client_slots: SlotPool,
    /// Tests being served, one of each client at most.
    running_tests: SlotPool,
    /// Starts servers of files, if there are any.
    start_file_server: OnceLock<Box<StartFileServer>>,
    cpu_order: OnceLock<Box<CpuOrder>>,
}

impl Agent {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::UnprotectedAddress`] for an address that other hosts can reach, without a secret; an unavailable address.
    pub fn listen(address: SocketAddr, secret: Secret, limits: AgentLimits, log: Box<AgentLog>) -> Result<Self> {
        let listener = listener::listen(address, &secret)?;
        let clients = limits.max_clients as usize;
        let (client_slots, running_tests) = (SlotPool::new(clients), SlotPool::new(clients));
        let (start_file_server, cpu_order) = (OnceLock::new(), OnceLock::new());
        let state = AgentState { secret, limits, log, client_slots, running_tests, start_file_server, cpu_order };
        Ok(Self { listener, state: Arc::new(state) })
    }

    /// Lets clients have files served, each by one server at a time, which this starts.
    #[must_use]
    pub fn with_files(self, start: Box<StartFileServer>) -> Self {
        self.state.start_file_server.get_or_init(|| start);
        self
    }

    /// Puts streams on CPUs in this order, instead of that of their numbers. It is asked at each test: CPUs come and go.
    #[must_use]
    pub fn with_cpu_order(self, order: Box<CpuOrder>) -> Self {
        self.state.cpu_order.get_or_init(|| order);
        self
    }

    /// Where it listens: the port too, if the system chose it.
    ///
    /// # Errors
    /// A failed system call.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::call("read the address"))
    }

    /// Serves until it is to stop. Clients then lose their connections when the process ends.
    ///
    /// # Errors
    /// A broken listener.
    pub fn serve(&self, is_over: impl Fn() -> bool) -> Result<()> {
        let AgentState { secret, limits, .. } = &*self.state;
        let pending = (limits.handshake_timeout, limits.unauthenticated);
        let mut callers = HandshakeListener::new(&self.listener, &PROTOCOL, secret, pending, &self.state);
        while !is_over() {
            callers.wait(None, SHUTDOWN_POLL_INTERVAL)?;
        }
        Ok(())
    }
}

impl CallerHandler for &Arc<AgentState> {
    type Slot = PoolSlot;

    fn admit(&self) -> Option<PoolSlot> {
        self.client_slots.acquire()
    }

    fn serve(&self, AuthenticatedCaller { stream, peer, halves, slot }: AuthenticatedCaller<PoolSlot>) {
        (self.log)(peer, &AgentEvent::Authenticated);
        let state = Arc::clone(self);
        let serve = move || {
            let outcome = state.serve_client(ControlChannel::new(stream, halves), peer);
            (state.log)(peer, &outcome.map_or_else(AgentEvent::Fault, |()| AgentEvent::Disconnected));
            drop(slot);
        };
        // Without a thread the connection ends, and the client sees that.
        if let Err(error) = ThreadBuilder::named("client").stack_bytes(STACK_BYTES).start(serve) {
            (self.log)(peer, &AgentEvent::Fault(Error::Thread(error)));
        }
    }

    fn on_rejected(&self, peer: SocketAddr, why: Error) {
        // Only authenticated clients learn that there is no place.
        let event = if matches!(why, Error::ServerFull(_)) { AgentEvent::Fault } else { AgentEvent::Rejected };
        (self.log)(peer, &event(why));
    }
}

impl AgentState {
    /// Serves a client's requests, one after the other, until it leaves.
    fn serve_client(&self, mut channel: ControlChannel, peer: SocketAddr) -> Result<()> {
        loop {
            let request: AgentRequest = match channel.receive(self.limits.idle_timeout) {
                Ok(request) => request,
                Err(Error::Closed) => return Ok(()),
                // A malformed message is the client's own fault, and the next one may be well-formed.
                Err(error @ Error::Malformed(_)) => {
                    channel.send(&AgentResponse::failed(error), self.limits.idle_timeout)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // It crossed the answer that its test had ended.
            if matches!(request, AgentRequest::Count | AgentRequest::StopSending | AgentRequest::End) {
                continue;
            }
            (self.log)(peer, &AgentEvent::TestRequested(request.clone()));
            let files = self.start_file_server.get().map(Box::as_ref);
            let cpus = self.cpu_order.get().map_or_else(|| cpu::affinity().unwrap_or_default(), |order| order());
            let test = TestSession::begin(&mut channel, &self.limits, cpus, &self.running_tests);
            let response = match test.and_then(|test| test.serve(&request, files)) {
                Ok(report) => AgentResponse::Done(report),
                // The client itself reports that it was refused.
                Err(Error::RefusedByAgent(why)) => AgentResponse::failed(why),
                Err(error) => AgentResponse::failed(error),
            };
            channel.send(&response, self.limits.idle_timeout)?;
        }
    }
}
