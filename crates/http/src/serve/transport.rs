//! How the bytes of a client come and go: by its socket alone, or encrypted.
//!
//! Threads are compiled for one of them, so that a request over plain TCP costs nothing more.

use std::fmt::Debug;
use std::os::fd::OwnedFd;

use rustix::io::Result;

use crate::serve::connection::Connection;
use crate::serve::worker_context::WorkerContext;

/// How the bytes of a client come and go.
pub trait ClientTransport: Debug + Sized {
    /// Whether a socket was emptied by a call that received less than it had room for.
    const SHORT_READ_IS_ALL: bool;

    /// For a client who is served from now on.
    fn new(context: &WorkerContext) -> Self;

    /// Receives what has come, or comes while a socket that waits does: how many bytes, none at the end. `INTR` if that was nothing
    /// for the connection.
    ///
    /// # Errors
    /// Those of the call, and `PROTO` of a client who breaks the protocol.
    fn receive(&mut self, connection: &mut Connection, socket: &OwnedFd, context: &mut WorkerContext) -> Result<usize>;

    /// Makes one call to the socket for what is to be sent next, and returns how many bytes it took.
    ///
    /// # Errors
    /// Those of the call: `AGAIN` of a socket that takes no more. A file that has become shorter than was stated is an error, too.
    fn send_some(
        &mut self,
        connection: &mut Connection,
        socket: &OwnedFd,
        context: &mut WorkerContext,
    ) -> Result<usize>;

    /// Whether there are bytes that the connection has given away and the socket has not taken.
    fn has_unsent(&self) -> bool;

    /// Whether nothing can be asked for yet.
    fn is_handshaking(&self) -> bool;

    /// Bytes that the socket has taken so far.
    fn bytes_sent(&self, connection: &Connection) -> u64;

    /// Tells the client that no more follows.
    fn close(&mut self, socket: &OwnedFd);
}

/// Bytes as they are.
#[derive(Clone, Copy, Debug)]
pub struct PlainTransport;

impl ClientTransport for PlainTransport {
    const SHORT_READ_IS_ALL: bool = true;

    fn new(_: &WorkerContext) -> Self {
        Self
    }

    #[inline]
    fn receive(&mut self, connection: &mut Connection, socket: &OwnedFd, context: &mut WorkerContext) -> Result<usize> {
        context.receive(connection, socket)
    }

    #[inline]
    fn send_some(
        &mut self,
        connection: &mut Connection,
        socket: &OwnedFd,
        context: &mut WorkerContext,
    ) -> Result<usize> {
        context.sender.send_some(connection, socket)
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        false
    }

    #[inline]
    fn is_handshaking(&self) -> bool {
        false
    }

    fn bytes_sent(&self, connection: &Connection) -> u64 {
        connection.bytes_sent
    }

    fn close(&mut self, _: &OwnedFd) {}
}
