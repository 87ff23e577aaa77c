//! One connection to the server, plain or by TLS, on a socket that never waits.

use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kelvin_sys::net::rx_timestamp::TimedRead;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::load::error::{Error, Result};
use crate::load::setup::LoadSetup;
use crate::load::stream_socket::{ServerAddress, StreamSocket};
use crate::load::tls::TlsServer;
use crate::load::tls_session::{HTTP2_PROTOCOL, TlsSession, accepted_bytes};

/// Time within which the server must take the first connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where connections go, and how.
#[derive(Clone, Debug)]
pub struct ServerEndpoint {
    pub(crate) address: ServerAddress,
    pub(crate) tls: Option<TlsServer>,
}

impl ServerEndpoint {
    /// The first address of the server that takes a connection.
    ///
    /// # Errors
    /// A server that has no address or takes no connection.
    pub fn connect_first(setup: &LoadSetup) -> Result<Self> {
        let endpoint = Self::find(setup)?;
        if setup.http2_streams.is_some() && endpoint.tls.is_some() {
            let error = |error: io::Error| Error::Http2(format!("{}: {error}", setup.target.url));
            endpoint.negotiate_http2().map_err(error)?;
        }
        Ok(endpoint)
    }

    /// Makes one connection by TLS, for which the server must choose HTTP/2: a load would only count that it does not.
    fn negotiate_http2(&self) -> io::Result<()> {
        let mut transport = HttpTransport::connect(self)?;
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let is_secret =
            |transport: &HttpTransport| transport.session.as_ref().is_none_or(|session| !session.is_handshaking());
        wait_until(&transport, PollFlags::OUT, deadline)?;
        while !is_secret(&transport) {
            transport.flush()?;
            let wants_write = transport.session.as_ref().is_some_and(|session| session.wants_write());
            wait_until(&transport, if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }, deadline)?;
            match transport.read(&mut [0; 1], true) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(io::Error::other("the server closed the connection before TLS was agreed on"));
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        let protocol = transport.session.as_ref().and_then(|session| session.protocol());
        if protocol == Some(HTTP2_PROTOCOL) {
            return Ok(());
        }
        Err(io::Error::other("the server did not choose HTTP/2 (ALPN): leave out --http2, or enable it there"))
    }

    /// The first address of the server that takes a connection, whatever protocol it speaks.
    fn find(setup: &LoadSetup) -> Result<Self> {
        let target = &setup.target;
        let tls = setup.tls.as_ref().map(|config| TlsServer::new(config, &target.host)).transpose()?;
        let error = |address: ServerAddress, error| Error::Connect(target.url.clone(), address, error);
        if let Some(path) = &setup.unix_socket {
            let address = ServerAddress::Unix(path.clone());
            return match StreamSocket::connect(&address) {
                Ok(_) => Ok(Self { address, tls }),
                Err(reason) => Err(error(address, reason)),
            };
        }
        let addresses = target.addresses().map_err(|error| Error::Resolve(target.url.clone(), error))?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(_) => return Ok(Self { address: ServerAddress::Tcp(address), tls }),
                Err(reason) => last = Some((address, reason)),
            }
        }
        let (address, reason) = last.expect("at least one address was tried");
        Err(error(ServerAddress::Tcp(address), reason))
    }

    /// Whether the server is on this host.
    pub fn is_local(&self) -> bool {
        self.address.is_local()
    }
}

/// Waits until a socket is ready for one of these, or has failed.
fn wait_until(transport: &HttpTransport, flags: PollFlags, deadline: Instant) -> io::Result<()> {
    let timeout = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(timeout).unwrap_or_default();
    match rustix::event::poll(&mut [PollFd::new(&transport.socket, flags)], Some(&timeout)) {
        Ok(0) => Err(ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct HttpTransport {
    pub(crate) socket: StreamSocket,
    /// TLS, if it is spoken; without it a read that did not fill the buffer took all that there was.
    pub(crate) session: Option<Box<dyn TlsSession>>,
}

impl HttpTransport {
    /// Begins to connect: the socket can be written once it is connected.
    pub(crate) fn connect(peer: &ServerEndpoint) -> io::Result<Self> {
        let socket = StreamSocket::connect(&peer.address)?;
        let session = peer.tls.as_ref().map(TlsServer::session).transpose()?;
        Ok(Self { socket, session })
    }

    /// Whether from now on the kernel keeps when what is sent leaves: not with TLS, which sends more than was given to it, and at
    /// other times.
    pub(crate) fn enable_departure_times(&self) -> bool {
        self.session.is_none() && self.socket.enable_departure_times()
    }

    /// For how many nanoseconds what was sent last has been on its way; nothing if it has not left.
    pub(crate) fn transit_time(&self) -> Option<u64> {
        self.socket.transit_time()
    }

    /// Takes bytes to be sent; returns how many it could take now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            Some(session) => session.write(&self.socket, bytes),
            None => accepted_bytes((&self.socket).write(bytes)),
        }
    }

    /// Sends what TLS has yet to send.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.session.as_mut().map_or(Ok(()), |session| session.flush(&self.socket))
    }

    /// Reads what has come, from the socket only if it may be taken from; `WouldBlock` if nothing has. When it came is known of a
    /// plain connection.
    pub(crate) fn read(&mut self, buffer: &mut [u8], may_take: bool) -> io::Result<TimedRead> {
        match &mut self.session {
            Some(session) => Ok(TimedRead { length: session.read(&self.socket, buffer, may_take)?, arrival: None }),
            None if may_take => self.socket.timed_read(buffer),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

/// Whether no connection could be begun because every local port is taken: the system reports only that an address is not available.
pub(crate) fn has_no_port(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_exhaustion_differs_from_other_errors() {
        let error = io::Error::from(Errno::ADDRNOTAVAIL);
        assert!(has_no_port(&error) && !has_no_port(&io::Error::from(Errno::CONNREFUSED)));
    }
}
