//! What can go wrong between two kelvins, in words that say what to do.

use std::io;

use crate::bounded::{REASON, cut};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call failed.
    #[error("cannot {doing}: {source}")]
    Call {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// One of too many who had not proven the secret.
    #[error("too many others have not proven the secret")]
    Crowded,
    /// The other side ended each connection before the handshake was over.
    #[error(
        "the other side hung up {times} times at once: it is no kelvin agent, or has too many others that do not know its secret"
    )]
    TurnedAway {
        /// How often it was tried.
        times: u32,
    },
    /// The other side went away.
    #[error("the other side went away")]
    Gone,
    /// The other side did not answer.
    #[error("the other side did not {doing} within {seconds:.0} s")]
    Late {
        /// What was waited for.
        doing: &'static str,
        /// How long, in seconds.
        seconds: f64,
    },
    /// A frame that is longer than any may be, announced by the other side or about to be sent.
    #[error("a frame of {claimed} bytes, where none may have more than {most}")]
    TooLong {
        /// Its length, in bytes.
        claimed: usize,
        /// The longest, in bytes.
        most: usize,
    },
    /// A message that is none, or has more in it than any may.
    #[error("what the other side says is not understood: {0}")]
    NotUnderstood(String),
    /// Not what was to be said.
    #[error("the other side is no kelvin agent, or not one of this version: {0}")]
    Nonsense(String),
    /// A frame whose tag is wrong.
    #[error("a frame was changed on its way")]
    Changed,
    /// Versions that do not know each other.
    #[error(
        "the other side speaks version {theirs} of the protocol (kelvin {program}) and this one version {ours}: use the same kelvin on both"
    )]
    Version {
        /// Its version.
        theirs: u32,
        /// The version of its program.
        program: String,
        /// This version.
        ours: u32,
    },
    /// A secret is asked for, and none was given.
    #[error("the agent wants a secret: give the file with it by --token-file")]
    SecretNeeded,
    /// The other side has another secret.
    #[error("the secret is not that of the other side: --token-file must name a file with the same content on both")]
    SecretWrong,
    /// The other side said no.
    #[error("the agent refused: {0}")]
    Refused(String),
    /// A file that is no good as a secret.
    #[error("{file}: {why}")]
    SecretFile {
        /// The file.
        file: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// An address that may not be listened on.
    #[error("{} can be reached from other hosts: name a file with a secret by --token-file", crate::address::Shown(*address))]
    Open {
        /// The address.
        address: std::net::SocketAddr,
    },
}

impl Error {
    /// Not what was to be said, with so much of the reason as can be told: it may quote the other side.
    pub(crate) fn nonsense(why: impl std::fmt::Display) -> Self {
        Self::Nonsense(cut(&why.to_string(), REASON / 2))
    }

    /// The same of a message.
    pub(crate) fn not_understood(why: impl std::fmt::Display) -> Self {
        Self::NotUnderstood(cut(&why.to_string(), REASON / 2))
    }

    /// Puts what was tried before a failed call; a call that failed because its time was over is not meant here.
    pub(crate) fn call(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Gone,
            _ => Self::Call { doing, source },
        }
    }
}

/// Whether a call ended because its time was over.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
