//! What a sender asks for, for all files of its session.

use serde::{Deserialize, Serialize};

/// How long a connection lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectionLifetime {
    /// One for each file.
    PerFile,
    /// One for all files.
    Persistent,
}

impl ConnectionLifetime {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::PerFile => "per-file",
            Self::Persistent => "persistent",
        }
    }
}

/// What holds for all files of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSettings {
    /// Whether the bytes of files go unencrypted.
    pub plain: bool,
    /// Whether their digests are compared.
    pub verify: bool,
    /// Whether all is flushed to its device.
    pub sync: bool,
    /// Whether files of the same size and time of modification are left as they are.
    pub update: bool,
    /// Whether nothing is to be written.
    pub dry_run: bool,
    /// Bytes of all files, holes not counted; none where unknown.
    pub bytes: Option<u64>,
    /// No more bytes than these, where it is not known yet how many: the receiver says whether there is room for them.
    pub at_most: Option<u64>,
    /// Over how many connections blocks come, this one included.
    pub streams: u32,
    /// Whether each file comes over a connection of its own, with the first one for all else.
    pub connection: ConnectionLifetime,
}

impl SessionSettings {
    /// All over one connection, encrypted and verified, and nothing more.
    pub const DEFAULT: Self = Self {
        plain: false,
        verify: true,
        sync: false,
        update: false,
        dry_run: false,
        bytes: None,
        at_most: None,
        streams: 1,
        connection: ConnectionLifetime::Persistent,
    };
}
