//! Files moved between two kelvins: encrypted, verified, and under their names only when they are whole.
//!
//! A sender ([`mod@send`]) connects to a receiver ([`mod@receive`]), and after a handshake everything goes through one encrypted
//! [`secure_channel`]. These are messages ([`message`]), and the bytes of files that they announce, which may go plain. The sender collects what
//! is to be sent ([`source`]) and offers it. For each sender, whose [settings](message::SessionSettings) hold for all files, the receiver has a
//! [`session`], which decides on every entry ([`offer_policy`]) and has the files arrive ([`incoming_file`]) in blocks ([`blocks`]).
//! Both ends finish with the same [`summary`]: what was moved, how fast, what limited it ([`stage_times`], [`link_usage`]) and what was
//! to be expected ([`rate_prediction`]). Blocks of large files may come over more connections ([`session_streams`]), and each file over
//! one of its own.
//!
//! Where the sender is asked to, what is sent is compressed ([`compression`]) as far as that pays.
//!
//! Instead of a network a remote shell can connect both ends ([`remote_shell`]), by its pipes ([`pipe_stream`]).
//! Either end can have its socket in the kernel instead ([`device`]), whose module also reports the entry of a [`page_tables`].
//!
//! A [`path_filter`] excludes some of what is found. Where the receiver allows it, what is [`extraneous`] there is deleted.
//!
//! The receiver decides where bytes go. A [`file_name`] is one component, and directories are found name by name from the one that is
//! held open ([`open_directory`], [`directory_tree`]). The sender decides what is read: no message of the receiver names a file.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod compression;
pub mod datapath;
pub mod device;
pub mod directory_tree;
pub mod error;
pub mod extraneous;
pub mod file_name;
pub mod incoming_file;
pub mod link_usage;
mod links;
pub mod message;
mod metadata;
mod method_chooser;
pub mod offer_policy;
pub mod open_directory;
pub mod page_tables;
pub mod path_filter;
pub mod pipe_stream;
pub mod progress;
pub mod rate_limiter;
pub mod rate_prediction;
pub mod raw_protocol;
pub mod receive;
pub mod remote_shell;
pub mod secure_channel;
pub mod send;
pub mod session;
pub mod session_streams;
pub mod source;
pub mod stage_costs;
pub mod stage_times;
pub mod staging;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod wire;

use std::time::Duration;

use crate::wire::handshake::{HandshakeProtocol, ProgramRole};
pub use error::{Error, Result};

/// What is spoken, after which handshake.
pub const PROTOCOL: HandshakeProtocol = HandshakeProtocol {
    listener: ProgramRole { program: "kelvin receive", role: "receiver" },
    caller: ProgramRole { program: "kelvin send", role: "sender" },
    magic: *b"kelvin transfer\n",
    context: "kelvin 2026 transfer, Noise pre-shared key",
    version: 16,
};
/// Time for the handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(5);
