//! What stands for TLS in a build without the feature `tls`: no session can be made, and that is said.

use std::convert::Infallible;
use std::io;
use std::net::TcpStream;

use crate::load::error::{Error, Result};
use crate::load::trust::Trust;

/// Whose certificates a client believes: there is none.
#[derive(Clone, Debug)]
pub struct TlsConfig(Infallible);

/// # Errors
/// Always.
pub fn client_config(_: Trust<'_>) -> Result<TlsConfig> {
    Err(Error::Tls("this kelvin was built without TLS: build it with the feature tls".into()))
}

#[derive(Clone, Debug)]
pub(crate) struct TlsServer(Infallible);

impl TlsServer {
    pub(crate) fn new(config: &TlsConfig, _: &str) -> Result<Self> {
        match config.0 {}
    }

    pub(crate) fn session(&self) -> io::Result<TlsSession> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(crate) struct TlsSession(Infallible);

impl TlsSession {
    pub(crate) fn write(&mut self, _: &TcpStream, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn flush(&mut self, _: &TcpStream) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn wants_write(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn read(&mut self, _: &TcpStream, _: &mut [u8], _: bool) -> io::Result<usize> {
        match self.0 {}
    }
}
