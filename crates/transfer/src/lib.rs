//! Files moved between two kelvins: encrypted, verified, and under their names only when they are whole.
//!
//! A sender ([`mod@send`]) connects to a receiver ([`mod@receive`]), and after a handshake everything goes through one encrypted
//! [`channel`]: messages ([`message`]), and the bytes of files that they announce, which may go plain. The sender collects what
//! is to be sent ([`source`]) and offers it; for each sender the receiver has a [`session`], which decides on every entry
//! ([`decide`]) and has the files arrive ([`deposit`]) in blocks ([`blocks`]). Both ends finish with the same [`summary`]: what
//! was moved, how fast, what limited it ([`load`], [`carried`]) and what was to be expected ([`expected`]). Blocks of large files may come over
//! more connections, which have [`joined`] the session, and each file over one of its own.
//!
//! Either end can have its socket in the kernel instead ([`device`]), whose module also tells the entry of a [`page`].
//!
//! The receiver decides where bytes go: a [`name`] is one component, and directories are found name by name from the one that is
//! held open ([`tree`]). The sender decides what is read: no message of the receiver names a file.
#![forbid(unsafe_code)]

pub mod bare;
pub mod blocks;
mod by_method;
pub mod carried;
pub mod channel;
pub mod chosen;
pub mod decide;
pub mod deposit;
pub mod device;
pub mod error;
pub mod expected;
pub mod joined;
mod kept_time;
pub mod load;
pub mod message;
pub mod moving;
pub mod name;
pub mod pace;
pub mod page;
pub mod progress;
pub mod receive;
mod seats;
pub mod send;
pub mod session;
pub mod source;
pub mod staging;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod tree;

use std::time::Duration;

pub use error::{Error, Result};
use kelvin_wire::noise::{Part, Protocol};

/// What is spoken, after which handshake.
pub const PROTOCOL: Protocol = Protocol {
    listener: Part { program: "kelvin receive", role: "receiver" },
    caller: Part { program: "kelvin send", role: "sender" },
    magic: *b"kelvin transfer\n",
    context: "kelvin 2026 transfer, Noise pre-shared key",
    version: 12,
};
/// Time for the handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(5);
