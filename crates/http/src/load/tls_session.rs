//! A session on a socket that does not wait.

use std::fmt::Debug;
use std::io::{self, ErrorKind};

use crate::load::stream_socket::StreamSocket;

/// The name of HTTP/2 in the list of protocols that a client offers (RFC 9113 3.1).
pub(crate) const HTTP2_PROTOCOL: &[u8] = b"h2";

/// The client's side of one connection with TLS.
pub(crate) trait TlsSession: Debug {
    /// Takes bytes to be sent; returns how many it could take now.
    fn write(&mut self, socket: &StreamSocket, bytes: &[u8]) -> io::Result<usize>;

    /// Sends what is left to be sent, as far as the socket takes it.
    fn flush(&mut self, socket: &StreamSocket) -> io::Result<()>;

    /// Whether something is to be sent that the socket did not take.
    fn wants_write(&self) -> bool;

    /// Whether keys have not been agreed on yet.
    fn is_handshaking(&self) -> bool;

    /// The protocol that the server chose (ALPN), if it chose one.
    fn protocol(&self) -> Option<&[u8]>;

    /// Reads what has come, from the socket only if it may be taken from; `WouldBlock` if nothing has.
    fn read(&mut self, socket: &StreamSocket, buffer: &mut [u8], may_take: bool) -> io::Result<usize>;
}

/// A socket that takes nothing now has taken nothing, which is no error.
pub(crate) fn accepted_bytes(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        written => written,
    }
}
