//! Errors of a transfer, in words that say what to do.

use std::ffi::OsString;
use std::net::SocketAddr;

use kelvin_wire::address::Shown;
use kelvin_wire::bounded::{REASON, cut};

use crate::handshake::PROTOCOL;
use crate::name::Name;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection, a message, or the secret.
    #[error(transparent)]
    Wire(#[from] kelvin_wire::Error),
    /// A file.
    #[error(transparent)]
    File(#[from] kelvin_file::Error),
    /// Something else listens there, or connects.
    #[error("the other side is no kelvin {0}")]
    NotKelvin(&'static str),
    /// Incompatible versions.
    #[error(
        "the other side speaks version {theirs} of the protocol, this one version {PROTOCOL}: use the same kelvin on both"
    )]
    Version {
        /// Its version.
        theirs: u16,
    },
    /// The receiver has a secret, and the sender gave none.
    #[error("the receiver requires a secret: give its file by --token-file")]
    SecretNeeded,
    /// The sender has a secret, and the receiver has none.
    #[error("the receiver has no secret: start it with --token-file too, or send without one on the same host")]
    NoSecretThere,
    /// The secrets differ.
    #[error("the secret differs from the other side's: --token-file must name a file with the same content on both")]
    SecretWrong,
    /// Another host, and no secret.
    #[error("{} is another host: give the secret of both ends by --token-file", Shown(*address))]
    Open {
        /// The host.
        address: SocketAddr,
    },
    /// All places of senders are taken.
    #[error("the receiver already serves as many senders as it may: try again later")]
    Busy,
    /// Bytes were changed on the way, or are of no connection with this key.
    #[error("what arrived was changed in transit")]
    Changed,
    /// The other side breaks the protocol.
    #[error("the other side breaks the protocol: {0}")]
    Nonsense(&'static str),
    /// The other side would not or could not do it for one file.
    #[error("the other side says: {0}")]
    Refused(String),
    /// The connection ended while a file was being moved.
    #[error("{} was not moved: {why}", name.display())]
    During {
        /// The file.
        name: OsString,
        /// Why.
        why: Box<Self>,
    },
    /// What arrived has another digest than what was read.
    #[error("what arrived differs from what was sent (BLAKE3)")]
    Digest,
    /// A signal stopped it.
    #[error("interrupted by {0}")]
    Interrupted(&'static str),
}

impl Error {
    /// Whether it concerns one file, so that the others can still be moved.
    pub fn is_of_one_file(&self) -> bool {
        matches!(self, Self::File(_) | Self::Refused(_) | Self::Digest)
    }

    /// The same, with the file that was being moved.
    pub(crate) fn during(self, name: &Name) -> Self {
        Self::During { name: name.as_os_str().to_owned(), why: Box::new(self) }
    }

    /// As much of its words as the other side accepts.
    pub(crate) fn told(&self) -> String {
        cut(&self.to_string(), REASON)
    }
}
