//! What stands for TLS in a build without the feature `tls`: no certificate can be loaded, and the error states that.

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::serve::connection::Connection;
use crate::serve::error::{Error, Result};
use crate::serve::transport::ClientTransport;
use crate::serve::worker_context::WorkerContext;

/// A certificate with its key, and the server's end of TLS with a client: there is none.
#[derive(Debug)]
pub enum TlsIdentity {}
pub(crate) type TlsTransport = TlsIdentity;

impl TlsIdentity {
    /// # Errors
    /// Always.
    pub fn load(certificate: &Path, _: &Path) -> Result<Self> {
        let why = "this kelvin was built without TLS: build it with the feature tls";
        Err(Error::Certificate(certificate.to_owned(), why.into()))
    }

    /// # Errors
    /// None.
    pub fn reload(&self) -> Result<()> {
        match *self {}
    }
}

impl ClientTransport for TlsIdentity {
    const SHORT_READ_IS_ALL: bool = false;

    fn new(context: &WorkerContext) -> Self {
        match **context.tls.as_ref().expect("a server with TLS has a certificate") {}
    }

    fn receive(&mut self, _: &mut Connection, _: &OwnedFd, _: &mut WorkerContext) -> rustix::io::Result<usize> {
        match *self {}
    }

    fn send_some(&mut self, _: &mut Connection, _: &OwnedFd, _: &mut WorkerContext) -> rustix::io::Result<usize> {
        match *self {}
    }

    fn has_unsent(&self) -> bool {
        match *self {}
    }

    fn is_handshaking(&self) -> bool {
        match *self {}
    }

    fn bytes_sent(&self, _: &Connection) -> u64 {
        match *self {}
    }

    fn close(&mut self, _: &OwnedFd) {
        match *self {}
    }
}
