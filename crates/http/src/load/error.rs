//! Why a load could not be measured.

use std::io;
use std::net::SocketAddr;

use kelvin_transfer::wire::address::DisplayAddr;

/// Why a load could not be measured; what happens to single requests is counted instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's name has no address.
    #[error("{url}: {why}")]
    Resolve {
        /// As it was given.
        url: String,
        /// What the system says.
        why: String,
    },
    /// No first connection to the server.
    #[error("{url}: cannot connect to {}: {source}", DisplayAddr(*.address))]
    Connect {
        /// As it was given.
        url: String,
        /// The last address that was tried.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A system call of the generator itself.
    #[error("cannot {doing}: {source}")]
    Call {
        /// What was to be done.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(String),
}

/// The result of measuring a load.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a call of the generator itself.
pub(crate) fn call_error<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Call { doing, source: source.into() }
}
