//! Connecting to a host that has several addresses.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::wire::Error;

/// Connects over TCP to the first of these addresses that answers within this time, which is returned too; what is sent leaves at once.
pub(crate) fn connect_tcp(
    addresses: &[SocketAddr],
    doing: &'static str,
    within: Duration,
) -> Result<(TcpStream, SocketAddr), Error> {
    let connect = |address| Ok((TcpStream::connect_timeout(&address, within)?, address));
    let (stream, address) = connect_first(addresses, doing, connect)?;
    stream.set_nodelay(true).map_err(Error::call("set up the connection"))?;
    Ok((stream, address))
}

/// Connects to the first of these addresses that answers.
pub(crate) fn connect_first<T>(
    addresses: &[SocketAddr],
    doing: &'static str,
    connect: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, Error> {
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for &address in addresses {
        match connect(address) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(Error::Call { doing, source: last })
}
