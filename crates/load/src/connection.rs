//! One connection of the generator and the request on it.

use kelvin_wire::Hasher;

use crate::exchange::Exchange;
use crate::poll::Token;
use crate::tally::Times;
use crate::wire::Wire;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing: no request, and maybe no socket.
    Idle,
    /// Waiting until it is connected, to send its request.
    Connecting,
    /// Sending its request, or waiting for the answer.
    InFlight,
}

/// One connection and the request on it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) wire: Option<Wire>,
    pub(crate) token: Token,
    pub(crate) phase: Phase,
    pub(crate) exchange: Exchange,
    /// Which request, and how many bytes of it were sent.
    pub(crate) request: usize,
    pub(crate) written: usize,
    /// When the request was due and sent.
    pub(crate) times: Times,
    /// Whether the socket is watched for room to write.
    pub(crate) watched_for_room: bool,
    /// Whether an answer has come over this socket.
    pub(crate) was_used: bool,
    /// Whether the request was sent before, over a socket that the server had closed.
    pub(crate) sent_again: bool,
    /// How often in turn its socket was ready and there was nothing to be done.
    pub(crate) futile: u32,
    /// When it was last free to take a request.
    pub(crate) freed: u64,
    pub(crate) hasher: Option<Box<Hasher>>,
}

impl Connection {
    pub(crate) fn new(number: u32, head_only: bool, hashes: bool) -> Self {
        Self {
            wire: None,
            token: Token { connection: number, generation: 0 },
            phase: Phase::Idle,
            exchange: Exchange::new(head_only),
            request: 0,
            written: 0,
            times: Times::default(),
            watched_for_room: false,
            was_used: false,
            sent_again: false,
            futile: 0,
            freed: 0,
            hasher: hashes.then(Box::default),
        }
    }

    /// Takes a request, to be sent from its beginning.
    pub(crate) fn take(&mut self, request: usize, times: Times) {
        self.request = request;
        self.times = times;
        self.sent_again = false;
        self.rewind();
    }

    /// Nothing is sent of the request, and nothing has come.
    pub(crate) fn rewind(&mut self) {
        self.written = 0;
        self.exchange.restart();
        if let Some(hasher) = &mut self.hasher {
            hasher.reset();
        }
    }

    /// Takes what the kernel tells of when requests left, if that is what there is: it would be an event of the socket for ever. There
    /// is more than one message where the kernel sends a request again.
    pub(crate) fn take_message(&mut self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.departed().is_some())
    }

    /// Closes the socket; what events of it are still to be seen belong to nobody.
    pub(crate) fn close(&mut self) {
        self.wire = None;
        self.was_used = false;
        self.watched_for_room = false;
        self.futile = 0;
        self.token.generation = self.token.generation.wrapping_add(1);
    }

    /// Whether a lost request may be sent again: the server closed a used connection before any byte of an answer, as it may at any
    /// time while it is idle (RFC 9112 9.3.1).
    pub(crate) fn may_send_again(&self) -> bool {
        self.was_used && !self.sent_again && !self.exchange.has_begun()
    }
}
