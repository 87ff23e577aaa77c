//! Errors of a transfer, in words that say what to do.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::wire::address::DisplayAddr;
use crate::wire::limits_serde::{MAX_REASON_BYTES, truncate};
use kelvin_core::units;
use kelvin_sys::kmod::KmodError;

use crate::datapath::ReceiveMethod;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection, a message, or the secret.
    #[error(transparent)]
    Wire(#[from] crate::wire::Error),
    /// A file.
    #[error(transparent)]
    File(#[from] kelvin_file::Error),
    /// A device of the kernel module.
    #[error(transparent)]
    Device(#[from] KmodError),
    /// A device that would listen for whoever comes by any network.
    #[error("{} is every address of this host: name the one that the sender will connect to", DisplayAddr(*address))]
    WildcardAddress {
        /// The address.
        address: SocketAddr,
    },
    /// Another host, and no secret.
    #[error("{} is another host: give the secret of both ends by --token-file", DisplayAddr(*address))]
    UnprotectedAddress {
        /// The host.
        address: SocketAddr,
    },
    /// The connection of a bare transfer.
    #[error("the connection: {0}")]
    Connection(std::io::Error),
    /// An address that is not this machine's, of a transfer that is neither encrypted nor authenticated.
    #[error("{} is another host: what is not encrypted stays on this one", DisplayAddr(*address))]
    NotLocal {
        /// The host.
        address: SocketAddr,
    },
    /// The other side breaks the protocol.
    #[error("the other side breaks the protocol: {0}")]
    ProtocolViolation(&'static str),
    /// The other side would not or could not do it for one file.
    #[error("the other side says: {0}")]
    Refused(String),
    /// The receiver takes nothing.
    #[error("the receiver says: {0}")]
    RefusedAll(String),
    /// A name that this program gives to what it has not finished.
    #[error("{} is not taken: names that begin so are of what kelvin has not finished, and it removes that", path.display())]
    ReservedName {
        /// Where it would be.
        path: PathBuf,
    },
    /// Two files that were sent have one name where they arrive: a file system that knows no case, or no forms of letters, has one file for both.
    #[error("{} has the name of another file that was sent: to this file system both names are one", path.display())]
    NameCollision {
        /// Where it would be.
        path: PathBuf,
    },
    /// There is no room for all.
    #[error("{} are to come, and there is room for {}", units::bytes(*bytes), units::bytes(*room))]
    NoSpace {
        /// Bytes to come.
        bytes: u64,
        /// Free bytes.
        room: u64,
    },
    /// More files or directories than one session can have.
    #[error("more files, directories or levels of them than one transfer can have: send them in several")]
    TooManyEntries,
    /// The connection ended while a file was being moved.
    #[error("{} was not moved: {why}", name.display())]
    WhileMoving {
        /// The file.
        name: OsString,
        /// Why.
        why: Box<Self>,
    },
    /// What arrived has another digest than what was read.
    #[error("what arrived differs from what was sent (BLAKE3)")]
    DigestMismatch,
    /// A sender that would have several streams, where bytes come in order.
    #[error("this receiver takes one stream: send without --streams")]
    SingleStreamOnly,
    /// A sender that would have a connection for each file, where there is one.
    #[error("this receiver takes one connection: send without --connection per-file")]
    SingleConnectionOnly,
    /// A sender whose bytes cannot come by the method that the receiver was told to use.
    #[error("this receiver takes the bytes of files by {0}: send with --plain, and over one stream")]
    UnsupportedMethod(ReceiveMethod),
    /// A signal stopped it.
    #[error("interrupted by {0}")]
    Interrupted(&'static str),
}

impl Error {
    /// Whether it concerns one file, so that the others can still be moved.
    pub fn is_per_file(&self) -> bool {
        let is_of_place = matches!(
            self,
            Self::File(_) | Self::ReservedName { .. } | Self::NameCollision { .. } | Self::NoSpace { .. }
        );
        is_of_place || matches!(self, Self::Refused(_) | Self::DigestMismatch | Self::TooManyEntries)
    }

    /// The same, with the file that was being moved.
    pub(crate) fn during(self, name: &OsStr) -> Self {
        Self::WhileMoving { name: name.to_owned(), why: Box::new(self) }
    }

    /// As much of its words as the other side accepts: of a long path less, since why it is stands at the end.
    pub(crate) fn wire_text(&self) -> String {
        const BETWEEN: &str = " ... ";
        // What it said itself comes back in its own words.
        let words = if let Self::Refused(why) = self { why.clone() } else { self.to_string() };
        let shown = truncate(&words, usize::MAX);
        if shown.len() <= MAX_REASON_BYTES {
            return shown;
        }
        let end = &shown[shown.ceil_char_boundary(shown.len() - MAX_REASON_BYTES / 2)..];
        format!("{}{BETWEEN}{end}", truncate(&shown, MAX_REASON_BYTES - BETWEEN.len() - end.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_path_error_keeps_reason() {
        for name in ["a".repeat(4000), "\u{4e00}".repeat(255), "\n".repeat(255), "a".repeat(300)] {
            let why = std::io::Error::from_raw_os_error(36);
            let told = Error::File(kelvin_file::Error::call("make", &PathBuf::from(name), why)).wire_text();
            assert!(
                told.len() <= MAX_REASON_BYTES
                    && told.starts_with("cannot make")
                    && told.contains("File name too long")
            );
            assert!(told.chars().all(kelvin_core::text::is_visible), "{told}");
        }
        assert_eq!(Error::DigestMismatch.wire_text(), Error::DigestMismatch.to_string());
        assert_eq!(Error::Refused(Error::DigestMismatch.wire_text()).wire_text(), Error::DigestMismatch.wire_text());
    }
}
