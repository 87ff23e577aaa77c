//! One connection to the server, plain or by TLS, on a socket that never waits.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use kelvin_sys::net::rx_timestamp::{self, TimedRead};
use kelvin_sys::net::tx_timestamp;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::load::error::{Error, Result};
use crate::load::setup::LoadSetup;
use crate::load::tls::TlsServer;
use crate::load::tls_session::{TlsSession, accepted_bytes};

/// Time within which the server must take the first connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where connections go, and how.
#[derive(Clone, Debug)]
pub struct ServerEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsServer>,
}

impl ServerEndpoint {
    /// The first address of the server that takes a connection.
    ///
    /// # Errors
    /// A server that has no address or takes no connection.
    pub fn connect_first(setup: &LoadSetup) -> Result<Self> {
        let target = &setup.target;
        let addresses = target.addresses().map_err(|error| Error::Resolve(target.url.clone(), error))?;
        let tls = setup.tls.as_ref().map(|config| TlsServer::new(config, &target.host)).transpose()?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(_) => return Ok(Self { address, tls }),
                Err(error) => last = Some((address, error)),
            }
        }
        let (address, error): (SocketAddr, _) = last.expect("at least one address was tried");
        Err(Error::Connect(target.url.clone(), address, error))
    }

    /// Whether the server is on this host.
    pub fn is_local(&self) -> bool {
        is_own_address(self.address)
    }
}

/// Whether an address is this host's: a socket here can have it.
pub(crate) fn is_own_address(mut address: SocketAddr) -> bool {
    address.set_port(0);
    UdpSocket::bind(address).is_ok()
}

/// A connection.
#[derive(Debug)]
pub(crate) struct HttpTransport {
    pub(crate) socket: TcpStream,
    /// TLS, if it is spoken; without it a read that did not fill the buffer took all that there was.
    pub(crate) session: Option<Box<dyn TlsSession>>,
}

impl HttpTransport {
    /// Begins to connect: the socket can be written once it is connected.
    pub(crate) fn connect(peer: &ServerEndpoint) -> io::Result<Self> {
        let family = if peer.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = TcpStream::from(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?);
        // A request is one write; Nagle's algorithm would hold back the rest of one that is not.
        socket.set_nodelay(true)?;
        rx_timestamp::enable(&socket)?;
        match rustix::net::connect(&socket, &peer.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let session = peer.tls.as_ref().map(TlsServer::session).transpose()?;
        Ok(Self { socket, session })
    }

    /// Whether from now on the kernel keeps when what is sent leaves: not with TLS, which sends more than was given to it, and at
    /// other times.
    pub(crate) fn enable_departure_times(&self) -> bool {
        self.session.is_none() && tx_timestamp::enable(&self.socket).is_ok()
    }

    /// For how many nanoseconds what was sent last has been on its way; nothing if it has not left.
    pub(crate) fn transit_time(&self) -> Option<u64> {
        tx_timestamp::last_departure(&self.socket).ok().flatten().and_then(tx_timestamp::time_since)
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
            None if may_take => rx_timestamp::read(&self.socket, buffer),
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
