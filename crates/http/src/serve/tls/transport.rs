//! The bytes of a client by TLS, on a socket that may wait or not.

use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;

use kelvin_sys::clock::monotonic;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::ServerConnection;

use crate::serve::connection::{Connection, PendingOutput};
use crate::serve::transport::ClientTransport;
use crate::serve::worker_context::WorkerContext;

/// Bytes of a file that are read and encrypted at a time: two records.
const READ_CHUNK: usize = 32 << 10;
/// Bytes that a client may send without any of a request among them. A handshake has at most 64 KiB, and a record 16.
const MAX_BYTES_WITHOUT_CONTENT: usize = 256 << 10;

/// The server's end of TLS with a client.
#[derive(Debug)]
pub(crate) struct TlsTransport {
    session: Box<ServerConnection>,
    /// Bytes that the socket has taken.
    sent: u64,
    /// Bytes that came since there was something for the connection.
    bytes_without_content: usize,
}

impl TlsTransport {
    /// Moves what was decrypted to the connection: how many bytes, none at the end.
    fn take_decrypted(&mut self, connection: &mut Connection) -> io::Result<usize> {
        let mut reader = self.session.reader();
        let decrypted = match reader.fill_buf() {
            // A client that closes its connection without a notice has asked for all that it wants.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
            decrypted => decrypted?,
        };
        let length = decrypted.len();
        connection.input_buffer(length).extend_from_slice(decrypted);
        reader.consume(length);
        connection.mark_received(length);
        self.bytes_without_content = 0;
        Ok(length)
    }

    /// Takes bytes from the socket, and decrypts them; `false` at the end.
    fn decrypt_some(&mut self, socket: &OwnedFd, context: &mut WorkerContext) -> rustix::io::Result<bool> {
        let received = self.session.read_tls(&mut Ciphertext(socket)).map_err(to_errno)?;
        let was_handshaking = self.session.is_handshaking();
        if self.session.process_new_packets().is_err() || self.bytes_without_content > MAX_BYTES_WITHOUT_CONTENT {
            context.stats.tls.failures += 1;
            // The alert has the reason; whether it arrives changes nothing.
            let _ = self.flush(socket);
            return Err(Errno::PROTO);
        }
        context.stats.tls.handshakes += u64::from(was_handshaking && !self.session.is_handshaking());
        self.bytes_without_content += received;
        Ok(received > 0)
    }

    /// Encrypts what the connection is to send next, as far as the session takes it.
    fn encrypt_some(&mut self, connection: &mut Connection, context: &mut WorkerContext) -> rustix::io::Result<()> {
        let start = monotonic();
        connection.read_file_range(READ_CHUNK)?;
        let read = monotonic();
        let length = match connection.pending_output() {
            Some(PendingOutput::Bytes(bytes, _)) => self.session.writer().write(bytes).map_err(to_errno)?,
            // It is read before it is sent.
            Some(PendingOutput::FileRange(_)) => return Err(Errno::IO),
            None => 0,
        };
        connection.mark_sent(length);
        let totals = &mut context.stats.tls;
        totals.bytes += length as u64;
        totals.read_nanoseconds += read - start;
        totals.encrypt_nanoseconds += monotonic() - read;
        Ok(())
    }

    /// Sends of what was encrypted by one call.
    fn flush(&mut self, socket: &OwnedFd) -> rustix::io::Result<usize> {
        let sent = self.session.write_tls(&mut Ciphertext(socket)).map_err(to_errno)?;
        self.sent += sent as u64;
        Ok(sent)
    }
}

impl ClientTransport for TlsTransport {
    /// What is received is less than what was taken from the socket.
    const SHORT_READ_IS_ALL: bool = false;

    fn new(context: &WorkerContext) -> Self {
        let identity = context.tls.as_ref().expect("a server with TLS has a certificate");
        Self { session: Box::new(identity.session()), sent: 0, bytes_without_content: 0 }
    }

    fn receive(
        &mut self,
        connection: &mut Connection,
        socket: &OwnedFd,
        context: &mut WorkerContext,
    ) -> rustix::io::Result<usize> {
        for may_take in [true, false] {
            match self.take_decrypted(connection) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                decrypted => return decrypted.map_err(to_errno),
            }
            if may_take && !self.decrypt_some(socket, context)? {
                return Ok(0);
            }
        }
        Err(Errno::INTR)
    }

    fn send_some(
        &mut self,
        connection: &mut Connection,
        socket: &OwnedFd,
        context: &mut WorkerContext,
    ) -> rustix::io::Result<usize> {
        if !self.session.wants_write() {
            self.encrypt_some(connection, context)?;
        }
        self.flush(socket)
    }

    fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn bytes_sent(&self, _: &Connection) -> u64 {
        self.sent
    }

    fn close(&mut self, socket: &OwnedFd) {
        self.session.send_close_notify();
        // A client that takes nothing now sees the end without a notice.
        let _ = self.flush(socket);
    }
}

/// The socket, by calls that take and send several records at once.
struct Ciphertext<'a>(&'a OwnedFd);

impl Read for Ciphertext<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, buffer, RecvFlags::empty())?.1)
    }
}

impl Write for Ciphertext<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self.0, records, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn to_errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
