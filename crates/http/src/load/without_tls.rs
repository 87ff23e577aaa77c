//! What stands for TLS in a build without the feature `tls`: no session can be made, and that is said.

use std::io;
use std::net::TcpStream;

use crate::load::error::{Error, Result};
use crate::load::trust::Trust;

/// Whose certificates a client believes, a server that shows one, and a session with it: there is none.
#[derive(Clone, Debug)]
pub enum TlsConfig {}
pub(crate) type TlsServer = TlsConfig;
pub(crate) type TlsSession = TlsConfig;

/// # Errors
/// Always.
pub fn client_config(_: Trust<'_>) -> Result<TlsConfig> {
    Err(Error::Tls("this kelvin was built without TLS: build it with the feature tls".into()))
}

impl TlsConfig {
    pub(crate) fn new(config: &Self, _: &str) -> Result<Self> {
        match *config {}
    }

    pub(crate) fn session(&self) -> io::Result<Self> {
        match *self {}
    }

    pub(crate) fn write(&mut self, _: &TcpStream, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn flush(&mut self, _: &TcpStream) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn wants_write(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(crate) fn read(&mut self, _: &TcpStream, _: &mut [u8], _: bool) -> io::Result<usize> {
        match *self {}
    }
}
