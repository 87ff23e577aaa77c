//! Unauthenticated connections of an agent: each is greeted, heard when it has sent something, and dropped when its time is over.

use std::iter;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::AgentState;
use crate::wire::admission::AdmissionTable;
use crate::wire::deadline::Deadline;
use crate::wire::handshake::{Greeting, HANDSHAKE_STEP, SentHello};
use crate::wire::{Error, Result};

/// An unauthenticated connection.
pub(super) struct PendingClient {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    /// What was sent to it.
    pub(super) hello: SentHello,
    /// What it has sent so far.
    pub(super) greeting: Greeting,
    pub(super) deadline: Deadline,
    /// Whether it has sent something since, or closed.
    is_ready: bool,
}

impl PendingClient {
    /// Greets it, without waiting for anything.
    fn send_hello(mut stream: TcpStream, from: SocketAddr, house: &AgentState) -> Result<Self> {
        let deadline = Deadline::within(house.limits.handshake_timeout);
        let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        set_up.map_err(Error::call("set up the connection"))?;
        let greeted = house.handshake(deadline).send_hello(&mut stream)?;
        Ok(Self { stream, peer: from, hello: greeted, greeting: Greeting::default(), deadline, is_ready: false })
    }

    /// Whether its greeting is complete.
    fn read_greeting(&mut self, house: &AgentState) -> Result<bool> {
        let handshake = house.handshake(self.deadline);
        let is_complete = self.is_ready && self.greeting.read_from(&mut self.stream, &handshake)?;
        self.deadline.remaining(HANDSHAKE_STEP)?;
        Ok(is_complete)
    }
}

/// All of them.
pub(super) struct PendingHandshakes {
    state: Arc<AgentState>,
    table: AdmissionTable<PendingClient>,
}

impl PendingHandshakes {
    pub(super) fn new(house: Arc<AgentState>) -> Self {
        let all = AdmissionTable::new(house.limits.unauthenticated);
        Self { state: house, table: all }
    }

    /// Waits for a new connection, which is returned, or for one of these to send something.
    pub(super) fn wait(&mut self, listener: BorrowedFd<'_>, within: Duration) -> Result<bool> {
        let here = self.table.iter().map(|newcomer| newcomer.stream.as_fd());
        let all: Vec<BorrowedFd<'_>> = iter::once(listener).chain(here).collect();
        let ready = kelvin_sys::poll::wait_any_readable(&all, within).map_err(Error::call("wait"))?;
        for (newcomer, is_ready) in self.table.iter_mut().zip(&ready[1..]) {
            newcomer.is_ready = *is_ready;
        }
        Ok(ready[0])
    }

    /// Reads from those that have sent something, and drops those whose time is over.
    pub(super) fn read_ready(&mut self) {
        let house = &self.state;
        self.table.retain(|mut newcomer| {
            match newcomer.read_greeting(house) {
                Ok(false) => return Some(newcomer),
                Ok(true) => house.complete_handshake(newcomer),
                Err(error) => house.log_rejection(newcomer.peer, error),
            }
            None
        });
    }

    /// Takes a connection in, if there is a place.
    pub(super) fn add(&mut self, stream: TcpStream, from: SocketAddr) {
        let Some((place, evicted)) = self.table.reserve(from) else {
            return self.state.log_rejection(from, Error::TooManyPending);
        };
        if let Some(other) = evicted {
            self.state.log_rejection(other.peer, Error::TooManyPending);
        }
        match PendingClient::send_hello(stream, from, &self.state) {
            Ok(newcomer) => self.table.occupy(place, newcomer),
            Err(error) => self.state.log_rejection(from, error),
        }
    }
}
