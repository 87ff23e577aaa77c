//! What stands for TLS in a build without the feature `tls`: no session can be made, and the error states that.

use std::io;

use crate::load::error::{Error, Result};
use crate::load::tls_session::TlsSession;
use crate::load::trust::Trust;

/// Whose certificates a client believes, and a server that shows one: there is none.
#[derive(Clone, Debug)]
pub enum TlsConfig {}
pub(crate) type TlsServer = TlsConfig;

/// # Errors
/// Always.
pub fn client_config(_: Trust<'_>) -> Result<TlsConfig> {
    Err(Error::Tls("this kelvin was built without TLS: build it with the feature tls".into()))
}

impl TlsConfig {
    /// The same, with HTTP/2 as the protocol that is offered.
    #[must_use]
    pub fn for_http2(&self) -> Self {
        match *self {}
    }

    pub(crate) fn new(config: &Self, _: &str) -> Result<Self> {
        match *config {}
    }

    pub(crate) fn session(&self) -> io::Result<Box<dyn TlsSession>> {
        match *self {}
    }
}
