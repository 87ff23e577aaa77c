//! One connection of the generator and the request on it.

use kelvin_transfer::wire::Hasher;

use crate::load::poll::ConnectionToken;
use crate::load::request_stats::RequestTimestamps;
use crate::load::response_parser::ResponseParser;
use crate::load::transport::HttpTransport;

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
pub(crate) struct LoadConnection {
    pub(crate) transport: Option<HttpTransport>,
    pub(crate) token: ConnectionToken,
    pub(crate) phase: Phase,
    pub(crate) parser: ResponseParser,
    /// Which request, and how many bytes of it were sent.
    pub(crate) request: usize,
    pub(crate) written: usize,
    /// When the request was due and sent.
    pub(crate) times: RequestTimestamps,
    /// Whether the socket is watched for room to write.
    pub(crate) watches_writable: bool,
    /// Whether an answer has come over this socket.
    pub(crate) was_used: bool,
    /// Whether the request was sent before, over a socket that the server had closed.
    pub(crate) is_retry: bool,
    /// How often in turn its socket was ready and there was nothing to be done.
    pub(crate) futile_wakeups: u32,
    /// When it was last free to take a request.
    pub(crate) free_since: u64,
    pub(crate) hasher: Option<Box<Hasher>>,
}

impl LoadConnection {
    pub(crate) fn new(number: u32, head_only: bool, hashes: bool) -> Self {
        Self {
            transport: None,
            token: ConnectionToken { connection: number, generation: 0 },
            phase: Phase::Idle,
            parser: ResponseParser::new(head_only),
            request: 0,
            written: 0,
            times: RequestTimestamps::default(),
            watches_writable: false,
            was_used: false,
            is_retry: false,
            futile_wakeups: 0,
            free_since: 0,
            hasher: hashes.then(Box::default),
        }
    }

    /// Nothing is sent of the request, and nothing has come.
    pub(crate) fn rewind(&mut self) {
        self.written = 0;
        self.parser.restart();
        if let Some(hasher) = &mut self.hasher {
            hasher.reset();
        }
    }

    /// Closes the socket; what events of it are still to be seen belong to nobody.
    pub(crate) fn close(&mut self) {
        self.transport = None;
        self.was_used = false;
        self.watches_writable = false;
        self.futile_wakeups = 0;
        self.token.generation = self.token.generation.wrapping_add(1);
    }

    /// Whether a lost request may be sent again: the server closed a used connection before any byte of an answer, as it may at any
    /// time while it is idle (RFC 9112 9.3.1).
    pub(crate) fn can_retry(&self) -> bool {
        self.was_used && !self.is_retry && !self.parser.has_begun()
    }
}
