//! Errors between two kelvins, in words that state what to do.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use kelvin_core::units;
use kelvin_sys::kmod::KmodError;
use kelvin_sys::stop_signals;

use crate::datapath::ReceiveMethod;
use crate::wire::address::DisplayAddr;
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
        "the other side closed the connection at once, {0} times: it is no kelvin agent, or has too many unauthenticated clients"
    )]
    HungUp(u32),
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
    #[error("the other side moved {moved} bytes in {seconds:.0} s, where {required} are the least")]
    TooSlow {
        /// Bytes that have moved.
        moved: u64,
        /// Those that must move in that time.
        required: u64,
        /// The time, in seconds.
        seconds: f64,
    },
    /// A frame longer than allowed, announced by the other side or about to be sent.
    #[error("a frame of {claimed} bytes, where {limit} are the most")]
    FrameTooLong {
        /// Its length, in bytes.
        claimed: usize,
        /// The longest, in bytes.
        limit: usize,
    },
    /// A malformed message, or one that exceeds a bound.
    #[error("malformed message from the other side: {0}")]
    Malformed(String),
    /// A message that breaks the protocol.
    #[error("the other side is no {program}, or not one of this version: {why}")]
    WrongProgram {
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
        "the other side uses version {theirs} of the protocol (kelvin {program}), this one version {ours}: use the \
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
    #[error("the {0} requires a secret: give its file by --token-file")]
    SecretRequired(&'static str),
    /// A secret was given, and the other side has none.
    #[error("the {0} has no secret: start it with --token-file too, or use none on the same host")]
    NoSecretAtPeer(&'static str),
    /// The other side has another secret.
    #[error("the secret differs from the other side's: --token-file must name a file with the same content on both")]
    WrongSecret,
    /// All places of authenticated clients are taken.
    #[error("the {0} already serves as many others as it may: try again later")]
    ServerFull(&'static str),
    /// The other side refused.
    #[error("the agent refused: {0}")]
    RefusedByAgent(String),
    /// An unsuitable file of a secret.
    #[error("{file}: {why}")]
    SecretFile {
        /// The file.
        file: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// An address that may not be listened on.
    #[error("{} can be reached from other hosts: name a file with a secret by --token-file", DisplayAddr(*.0))]
    UnprotectedAddress(SocketAddr),
    /// A file.
    #[error(transparent)]
    File(#[from] kelvin_file::Error),
    /// A device of the kernel module.
    #[error(transparent)]
    Device(#[from] KmodError),
    /// A device that would listen for whoever comes by any network.
    #[error("{} is every address of this host: name the one that the sender will connect to", DisplayAddr(*.0))]
    WildcardAddress(SocketAddr),
    /// Another host, and no secret.
    #[error("{} is another host: give the secret of both ends by --token-file", DisplayAddr(*.0))]
    NoSecretForHost(SocketAddr),
    /// The connection of a bare transfer.
    #[error("the connection: {0}")]
    Connection(io::Error),
    /// An address that is not this machine's, of a transfer that is neither encrypted nor authenticated.
    #[error("{} is another host: what is not encrypted stays on this one", DisplayAddr(*.0))]
    NotLocal(SocketAddr),
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
    #[error("{} is not taken: names that begin so are of what kelvin has not finished, and it removes that", .0.display())]
    ReservedName(PathBuf),
    /// Two files that were sent have one name where they arrive. A file system that knows no case, or no forms of letters, has one file for both.
    #[error("{} has the name of another file that was sent: to this file system both names are one", .0.display())]
    NameCollision(PathBuf),
    /// A hard link to a file that did not arrive, or was replaced by something else since.
    #[error("{} is a hard link to a file that is not in its place", .0.display())]
    FirstNameMissing(PathBuf),
    /// There is no room for all.
    #[error("{} are to come, and there is room for {}", units::bytes(*bytes), units::bytes(*free_bytes))]
    NoSpace {
        /// Bytes to come.
        bytes: u64,
        /// Free bytes.
        free_bytes: u64,
    },
    /// A sender that would have files deleted, at a receiver that may not.
    #[error("this receiver deletes nothing: start it with --delete")]
    DeletionNotAllowed,
    /// A sender that would have access control lists kept, at a receiver that may not.
    #[error("this receiver keeps no access control lists: start it with --acls")]
    AclsNotAllowed,
    /// Files that were sent are listed under other names.
    #[error("{}: its file system has other names for files that were sent, so nothing was deleted", .0.display())]
    NamesDiffer(PathBuf),
    /// More files that are not at the sender than can be listed.
    #[error("more files than can be listed are not at the sender, so nothing was deleted")]
    TooManyExtraneous,
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
    /// A piece that came compressed, and is not what was announced.
    #[error("what arrived cannot be decompressed: {0}")]
    Decompression(&'static str),
    /// A sender that would have several streams, where bytes come in order.
    #[error("this receiver takes one stream: send without --streams")]
    SingleStreamOnly,
    /// A sender that would have a connection for each file, where there is one.
    #[error("this receiver takes one connection: send without --connection per-file")]
    SingleConnectionOnly,
    /// A sender whose bytes cannot come by the method that the receiver was set to use.
    #[error("this receiver takes the bytes of files by {0}: send with --plain, over one stream and without --compress")]
    UnsupportedMethod(ReceiveMethod),
    /// A signal stopped it.
    #[error("interrupted by {0}")]
    Interrupted(&'static str),
}

impl Error {
    /// A violation of the protocol by the other side unless this holds.
    pub(crate) fn ensure(condition: bool, violation: &'static str) -> Result<()> {
        if condition { Ok(()) } else { Err(Self::ProtocolViolation(violation)) }
    }

    /// An error if a signal asked to stop.
    pub(crate) fn check_stop() -> Result<()> {
        stop_signals::stop_signal().map_or(Ok(()), |signal| Err(Self::Interrupted(signal)))
    }

    /// Whether it concerns one file, so that the others can still be moved.
    pub fn is_per_file(&self) -> bool {
        let is_of_place =
            matches!(self, Self::File(_) | Self::ReservedName(_) | Self::NameCollision(_) | Self::NoSpace { .. });
        let is_of_file = matches!(self, Self::Refused(_) | Self::DigestMismatch | Self::Decompression(_));
        is_of_place || is_of_file || matches!(self, Self::FirstNameMissing(_) | Self::TooManyEntries)
    }

    /// A message that breaks the protocol, with as much of the reason as fits: it may quote the other side.
    pub(crate) fn violation(program: &'static str, why: impl std::fmt::Display) -> Self {
        Self::WrongProgram { program, why: truncate(&why.to_string(), MAX_REASON_BYTES / 2) }
    }

    /// Like `violation`, of a malformed one.
    pub fn malformed(why: impl std::fmt::Display) -> Self {
        Self::Malformed(truncate(&why.to_string(), MAX_REASON_BYTES / 2))
    }

    /// Adds what was tried to a failed call; one whose time was over is not meant here.
    pub fn call(doing: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Call { doing, source },
        }
    }

    /// The same error with the file that was being moved.
    pub(crate) fn during(self, name: &OsStr) -> Self {
        Self::WhileMoving { name: name.to_owned(), why: Box::new(self) }
    }

    /// As much of its words as the other side accepts: of a long path less, since why it is stands at the end.
    pub(crate) fn wire_text(&self) -> String {
        const ELLIPSIS: &str = " ... ";
        // What it reported itself comes back in its own words.
        let words = if let Self::Refused(why) = self { why.clone() } else { self.to_string() };
        let text = truncate(&words, usize::MAX);
        if text.len() <= MAX_REASON_BYTES {
            return text;
        }
        let mut end_starts = text.len() - MAX_REASON_BYTES / 2..text.len();
        let end = &text[end_starts.find(|&start| text.is_char_boundary(start)).unwrap_or(text.len())..];
        format!("{}{ELLIPSIS}{end}", truncate(&text, MAX_REASON_BYTES - ELLIPSIS.len() - end.len()))
    }
}

/// Whether a call ended because its time was over.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_path_error_keeps_reason() {
        for name in ["a".repeat(4000), "\u{4e00}".repeat(255), "\n".repeat(255), "a".repeat(300)] {
            let why = std::io::Error::from_raw_os_error(36);
            let reason = Error::File(kelvin_file::Error::call("make", &PathBuf::from(name), why)).wire_text();
            assert!(
                reason.len() <= MAX_REASON_BYTES
                    && reason.starts_with("cannot make")
                    && reason.contains("File name too long")
            );
            assert!(reason.chars().all(kelvin_core::text::is_visible), "{reason}");
        }
        assert_eq!(Error::DigestMismatch.wire_text(), Error::DigestMismatch.to_string());
        assert_eq!(Error::Refused(Error::DigestMismatch.wire_text()).wire_text(), Error::DigestMismatch.wire_text());
    }
}
