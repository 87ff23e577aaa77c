//! Why a load could not be measured.

use std::io;

use crate::load::stream_socket::ServerAddress;

/// Why a load could not be measured; what happens to single requests is counted instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server of this URL has no address.
    #[error("{0}: {1}")]
    Resolve(String, String),
    /// No first connection to the server of this URL, at the last of its addresses either.
    #[error("{0}: cannot connect to {1}: {2}")]
    Connect(String, ServerAddress, #[source] io::Error),
    /// A system call of the generator itself, which was to do this.
    #[error("cannot {0}: {1}")]
    Call(&'static str, #[source] io::Error),
    /// A thread of the generator could not be started.
    #[error(transparent)]
    Thread(io::Error),
    /// A request that HTTP/2 cannot send.
    #[error("--http2: {0}")]
    Http2(String),
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(String),
}

/// The result of measuring a load.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a call of the generator itself.
pub(crate) fn call_error<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::Call(call, error.into())
}
