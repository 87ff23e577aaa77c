//! Connecting to a host that has several addresses.

use std::io;
use std::net::SocketAddr;

use crate::wire::Error;

/// Connects to the first of these addresses that answers.
pub(crate) fn connect_first<T>(
    addresses: &[SocketAddr],
    doing: &'static str,
    connect: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, Error> {
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for &address in addresses {
        match connect(address) {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(Error::Call { doing, source: last })
}
