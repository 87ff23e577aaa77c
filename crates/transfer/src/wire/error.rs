//! Errors between two kelvins, in words that say what to do.

use std::io;

use crate::wire::limits_serde::{MAX_REASON_BYTES, truncate};

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
    /// A thread could not be started.
    #[error("{0}")]
    Thread(io::Error),
    /// One of too many unauthenticated connections.
    #[error("too many other connections are unauthenticated")]
    TooManyPending,
    /// The other side closed each connection before the handshake was over.
    #[error(
        "the other side hung up {times} times at once: it is no kelvin agent, or has too many unauthenticated clients"
    )]
    HungUp {
        /// How often it was tried.
        times: u32,
    },
    /// The other side closed the connection.
    #[error("the other side closed the connection")]
    Closed,
    /// The other side did not answer.
    #[error("the other side did not {doing} within {seconds:.0} s")]
    TimedOut {
        /// What was waited for.
        doing: &'static str,
        /// How long, in seconds.
        seconds: f64,
    },
    /// The other side moved too little.
    #[error("the other side moved {moved} bytes in {seconds:.0} s, where {least} are the least")]
    TooSlow {
        /// Bytes that have moved.
        moved: u64,
        /// Those that must move in that time.
        least: u64,
        /// The time, in seconds.
        seconds: f64,
    },
    /// A frame longer than allowed, announced by the other side or about to be sent.
    #[error("a frame of {claimed} bytes, where {most} are the most")]
    FrameTooLong {
        /// Its length, in bytes.
        claimed: usize,
        /// The longest, in bytes.
        most: usize,
    },
    /// A malformed message, or one that exceeds a bound.
    #[error("malformed message from the other side: {0}")]
    Malformed(String),
    /// A message that breaks the protocol.
    #[error("the other side is no {program}, or not one of this version: {why}")]
    ProtocolViolation {
        /// The program that it should be.
        program: &'static str,
        /// What it did.
        why: String,
    },
    /// A message that was changed, dropped, repeated or reordered, or is of no connection with these keys.
    #[error("what arrived was changed in transit")]
    Tampered,
    /// Incompatible versions.
    #[error(
        "the other side speaks version {theirs} of the protocol (kelvin {program}), this one version {ours}: use the \
         same kelvin on both"
    )]
    VersionMismatch {
        /// Its version.
        theirs: u32,
        /// The version of its program.
        program: String,
        /// This version.
        ours: u32,
    },
    /// A secret is required, and none was given.
    #[error("the {role} requires a secret: give its file by --token-file")]
    SecretRequired {
        /// The other side: `agent`.
        role: &'static str,
    },
    /// A secret was given, and the other side has none.
    #[error("the {role} has no secret: start it with --token-file too, or use none on the same host")]
    NoSecretAtPeer {
        /// The other side.
        role: &'static str,
    },
    /// The other side has another secret.
    #[error("the secret differs from the other side's: --token-file must name a file with the same content on both")]
    WrongSecret,
    /// All places of authenticated clients are taken.
    #[error("the {role} already serves as many others as it may: try again later")]
    ServerFull {
        /// The other side.
        role: &'static str,
    },
    /// The other side refused.
    #[error("the agent refused: {0}")]
    Refused(String),
    /// An unsuitable file of a secret.
    #[error("{file}: {why}")]
    SecretFile {
        /// The file.
        file: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// An address that may not be listened on.
    #[error("{} can be reached from other hosts: name a file with a secret by --token-file", crate::wire::address::DisplayAddr(*address))]
    UnprotectedAddress {
        /// The address.
        address: std::net::SocketAddr,
    },
}

impl Error {
    /// A message that breaks the protocol, with as much of the reason as fits: it may quote the other side.
    pub(crate) fn violation(program: &'static str, why: impl std::fmt::Display) -> Self {
        Self::ProtocolViolation { program, why: truncate(&why.to_string(), MAX_REASON_BYTES / 2) }
    }

    /// The same of a malformed one.
    pub fn malformed(why: impl std::fmt::Display) -> Self {
        Self::Malformed(truncate(&why.to_string(), MAX_REASON_BYTES / 2))
    }

    /// Adds what was tried to a failed call; one whose time was over is not meant here.
    pub fn call(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Call { doing, source },
        }
    }
}

/// Whether a call ended because its time was over.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
