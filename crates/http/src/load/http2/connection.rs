//! One connection by HTTP/2: connecting, its preface, and then streams. The protocol is a future that never waits; the pool asks it again
//! whenever there is something for it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::Request;

use super::socket::SharedSocket;
use crate::load::transport::{HttpTransport, ServerEndpoint};

/// Bytes that the server may send before any are taken, of a stream and of all: the most that the protocol has, so that the windows never
/// limit a server. What comes is taken at once.
const RECEIVE_WINDOW: u32 = (1 << 31) - 1;

/// Bytes of the head of an answer beyond which it is refused, as by HTTP/1.1.
const MAX_HEAD_BYTES: u32 = 64 << 10;

type Handshake =
    Pin<Box<dyn Future<Output = Result<(SendRequest<Bytes>, Connection<SharedSocket, Bytes>), h2::Error>>>>;

/// How far it is.
enum Phase {
    /// Until the socket is connected.
    Connecting,
    /// Until the first bytes of the protocol are taken by the socket.
    Preface(Handshake),
    /// Requests may be sent, once the server's settings have come.
    Open { connection: Box<Connection<SharedSocket, Bytes>>, requests: SendRequest<Bytes> },
}

pub(super) struct Http2Connection {
    /// The number that its streams have it by.
    pub(super) lane: u32,
    /// What its events carry.
    pub(super) token: u64,
    pub(super) socket: SharedSocket,
    phase: Phase,
    /// Requests on it.
    pub(super) in_flight: u32,
    /// Whether any was ever sent over it, and whether any was answered.
    pub(super) was_used: bool,
    pub(super) has_answered: bool,
    /// Whether it takes no more requests.
    pub(super) is_draining: bool,
    /// Whether the server's settings have come: with them it has spoken HTTP/2.
    pub(super) has_settings: bool,
    /// Whether the socket is watched for room to write.
    pub(super) watches_writable: bool,
    /// When bytes came last.
    pub(super) last_receive: u64,
    /// How often in a row its socket was ready with nothing to be done.
    pub(super) futile_wakeups: u32,
}

impl fmt::Debug for Http2Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lane, in_flight, is_draining, .. } = self;
        write!(out, "Http2Connection {{ lane: {lane}, in_flight: {in_flight}, is_draining: {is_draining} }}")
    }
}

impl Http2Connection {
    /// Begins to connect: the socket can be written once it is connected.
    pub(super) fn connect(peer: &ServerEndpoint, lane: u32, token: u64) -> io::Result<Self> {
        Ok(Self {
            lane,
            token,
            socket: SharedSocket::new(HttpTransport::connect(peer)?),
            phase: Phase::Connecting,
            in_flight: 0,
            was_used: false,
            has_answered: false,
            is_draining: false,
            has_settings: false,
            watches_writable: true,
            last_receive: 0,
            futile_wakeups: 0,
        })
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting)
    }

    /// Whether keys of TLS have not been agreed on yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.socket.with(|state| state.transport.session.as_ref().is_some_and(|session| session.is_handshaking()))
    }

    /// The socket is connected: the protocol begins.
    pub(super) fn begin(&mut self) {
        let mut builder = Builder::new();
        builder
            .initial_window_size(RECEIVE_WINDOW)
            .initial_connection_window_size(RECEIVE_WINDOW)
            .max_header_list_size(MAX_HEAD_BYTES)
            .enable_push(false)
            // None until the server has said how many it allows: what is sent before that may be refused.
            .initial_max_send_streams(0);
        self.phase = Phase::Preface(Box::pin({
            let socket = self.socket.clone();
            async move { builder.handshake(socket).await }
        }));
    }

    /// Has the protocol do what it can. It is ready when the connection is over.
    pub(super) fn poll(&mut self) -> Poll<Result<(), h2::Error>> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match &mut self.phase {
                Phase::Connecting => return Poll::Pending,
                Phase::Preface(handshake) => match handshake.as_mut().poll(&mut context) {
                    Poll::Ready(Ok((requests, connection))) => {
                        self.phase = Phase::Open { connection: Box::new(connection), requests }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                },
                Phase::Open { connection, .. } => return Pin::new(connection).poll(&mut context),
            }
        }
    }

    /// How many requests the server allows in flight; none before its settings have come.
    pub(super) fn allowed_streams(&self) -> usize {
        match &self.phase {
            Phase::Open { connection, .. } => connection.max_concurrent_send_streams(),
            _ => 0,
        }
    }

    /// Why it takes no more requests, if it does not.
    pub(super) fn refusal(&mut self) -> Option<h2::Error> {
        let Phase::Open { requests, .. } = &mut self.phase else { return None };
        match requests.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(error)) => Some(error),
            Poll::Ready(Ok(())) | Poll::Pending => None,
        }
    }

    /// Sends a request with its body as far as the server's windows allow, and the rest later.
    pub(super) fn send(&mut self, request: Request<()>, body: &Bytes) -> Result<ResponseFuture, h2::Error> {
        let Phase::Open { requests, .. } = &mut self.phase else { return Err(h2::Reason::INTERNAL_ERROR.into()) };
        let (response, mut stream) = requests.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(body.clone(), true)?;
        }
        Ok(response)
    }
}
