//! A listening socket whose callers shake hands: who knows the secret, and finds a slot, is served.
//!
//! The cost of unauthenticated callers is bounded: in connections, in connections from one network ([`crate::wire::admission`]), and
//! in time for each. One thread waits for all of them; it waits for no single one. Each is greeted when it is accepted, read when it
//! has sent something, and dropped when its time is over.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::wire::address::is_loopback;
use crate::wire::admission::{AdmissionLimits, AdmissionTable};
use crate::wire::cipher::{Opener, Sealer};
use crate::wire::deadline::Deadline;
use crate::wire::handshake::{Greeting, HANDSHAKE_STEP, Handshake, HandshakeProtocol};
use crate::wire::secret::Secret;
use crate::wire::{Error, Result};

/// The pause after a connection could not be accepted, as when no file descriptor is left.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Connections accepted in a row before earlier ones are read.
const ACCEPT_BATCH: usize = 64;
/// Backlog of the listening socket; the kernel limits it to net.core.somaxconn.
const LISTEN_BACKLOG: u32 = 4096;

/// Listens where only this host can connect, or who knows the secret.
///
/// # Errors
/// [`Error::UnprotectedAddress`] for an address that other hosts can reach, without a secret; an unavailable address.
pub(crate) fn listen(address: SocketAddr, secret: &Secret) -> Result<TcpListener> {
    check_is_protected(address, secret)?;
    let listener = TcpListener::bind(address).map_err(Error::call("listen"))?;
    kelvin_sys::net::set_backlog(&listener, LISTEN_BACKLOG).map_err(Error::call("listen"))?;
    // A connection that is gone before it is accepted must not block the loop.
    listener.set_nonblocking(true).map_err(Error::call("listen"))?;
    Ok(listener)
}

/// An error where other hosts can reach an address, and there is no secret.
pub(crate) fn check_is_protected(address: SocketAddr, secret: &Secret) -> Result<()> {
    if secret.is_some() || is_loopback(address) { Ok(()) } else { Err(Error::UnprotectedAddress(address)) }
}

/// A connection whose handshake is over.
pub(crate) struct AuthenticatedCaller<Slot> {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) halves: (Sealer, Opener),
    /// What it was admitted to.
    pub(crate) slot: Slot,
}

/// What becomes of callers.
pub(crate) trait CallerHandler {
    /// What an authenticated caller takes, and gives back when it is dropped.
    type Slot;

    /// A slot, if one is free: asked only about callers that know the secret.
    fn admit(&self) -> Option<Self::Slot>;
    /// Has a thread of its own serve a caller.
    fn serve(&self, caller: AuthenticatedCaller<Self::Slot>);
    /// A caller was refused, or has left: [`Error::ServerFull`] for one that knows the secret.
    fn on_rejected(&self, peer: SocketAddr, why: Error);
}

/// An unauthenticated connection.
struct PendingCaller {
    stream: TcpStream,
    peer: SocketAddr,
    /// What was sent to it.
    hello: Vec<u8>,
    /// What it has sent so far.
    greeting: Greeting,
    deadline: Deadline,
}

/// The listener, and the callers that are shaking hands.
pub(crate) struct HandshakeListener<'a, H> {
    listener: &'a TcpListener,
    protocol: &'static HandshakeProtocol,
    secret: &'a Secret,
    timeout: Duration,
    pending: AdmissionTable<PendingCaller>,
    handler: H,
}

impl<'a, H: CallerHandler> HandshakeListener<'a, H> {
    pub(crate) fn new(
        listener: &'a TcpListener,
        protocol: &'static HandshakeProtocol,
        secret: &'a Secret,
        (timeout, limits): (Duration, AdmissionLimits),
        handler: H,
    ) -> Self {
        Self { listener, protocol, secret, timeout, pending: AdmissionTable::new(limits), handler }
    }

    fn handshake(&self, deadline: Deadline) -> Handshake<'a> {
        Handshake { protocol: self.protocol, secret: self.secret, deadline }
    }

    /// Waits until a connection arrives, one of these has sent something, `stop` can be read, or this time is over; and does what is due.
    /// Returns whether `stop` can be read.
    ///
    /// # Errors
    /// A broken listener.
    pub(crate) fn wait(&mut self, stop: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<bool> {
        let pending = self.pending.entries.iter().map(|(_, caller)| caller.stream.as_fd());
        let descriptors: Vec<BorrowedFd<'_>> = [self.listener.as_fd()].into_iter().chain(pending).chain(stop).collect();
        let ready = kelvin_sys::poll::wait_any_readable(&descriptors, timeout).map_err(Error::call("wait"))?;
        for ((place, mut caller), is_ready) in std::mem::take(&mut self.pending.entries).into_iter().zip(&ready[1..]) {
            match self.read_greeting(&mut caller, *is_ready) {
                Ok(false) => self.pending.entries.push((place, caller)),
                Ok(true) => self.complete(caller),
                Err(error) => self.handler.on_rejected(caller.peer, error),
            }
        }
        if ready[0] {
            self.accept();
        }
        Ok(stop.is_some() && ready.last() == Some(&true))
    }

    /// Whether the greeting of a caller is complete, which may have sent something since, or closed.
    fn read_greeting(&self, caller: &mut PendingCaller, is_ready: bool) -> Result<bool> {
        let handshake = self.handshake(caller.deadline);
        let is_complete = is_ready && caller.greeting.read_from(&mut caller.stream, &handshake)?;
        caller.deadline.remaining(HANDSHAKE_STEP)?;
        Ok(is_complete)
    }

    /// Answers a greeting, and has the caller served if it knows the secret. The answer is short, and fits the socket buffer.
    fn complete(&self, caller: PendingCaller) {
        let PendingCaller { mut stream, peer, hello, greeting, deadline } = caller;
        let outcome = self.handshake(deadline).complete(&mut stream, (&hello, &greeting), || self.handler.admit());
        let set_up = |pair| stream.set_nonblocking(false).map(|()| pair).map_err(Error::call("set up the connection"));
        match outcome.and_then(set_up) {
            Ok((halves, slot)) => self.handler.serve(AuthenticatedCaller { stream, peer, halves, slot }),
            Err(error) => self.handler.on_rejected(peer, error),
        }
    }

    /// Accepts waiting connections.
    fn accept(&mut self) {
        let mut failures = 0;
        for _ in 0..ACCEPT_BATCH {
            match self.listener.accept() {
                Ok((stream, peer)) => self.greet(stream, peer),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // One that is gone again; the next one may be there.
                Err(_) => failures += 1,
            }
        }
        if failures == ACCEPT_BATCH {
            std::thread::sleep(ACCEPT_RETRY_PAUSE);
        }
    }

    /// Takes a connection in, if there is a place, and greets it without waiting for anything.
    fn greet(&mut self, mut stream: TcpStream, peer: SocketAddr) {
        let Some((place, evicted)) = self.pending.reserve(peer) else {
            return self.handler.on_rejected(peer, Error::TooManyPending);
        };
        if let Some(pending) = evicted {
            self.handler.on_rejected(pending.peer, Error::TooManyPending);
        }
        let deadline = Deadline::within(self.timeout);
        let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        let outcome = set_up
            .map_err(Error::call("set up the connection"))
            .and_then(|()| self.handshake(deadline).send_hello(&mut stream));
        match outcome {
            Ok(hello) => {
                let greeting = Greeting::default();
                self.pending.entries.push((place, PendingCaller { stream, peer, hello, greeting, deadline }));
            }
            Err(error) => self.handler.on_rejected(peer, error),
        }
    }
}
