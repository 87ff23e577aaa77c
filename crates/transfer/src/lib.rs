//! Files moved between two kelvins: encrypted, verified, and under their names only when they are whole.
//!
//! A sender ([`mod@send`]) connects to a receiver ([`mod@receive`]) and shakes hands ([`handshake`]). From then on everything goes
//! through one encrypted [`channel`]: messages ([`message`]), and the bytes of files in bounded frames, which may go plain. Both
//! ends finish with the same [`summary`]: what was moved, how fast, and which stage was busiest.
//!
//! The receiver decides where bytes go: a [`name`] is one component, and a file is made in the directory that it holds open
//! ([`deposit`]). The sender decides what is read: no message of the receiver names a file.
#![forbid(unsafe_code)]

pub mod channel;
pub mod deposit;
pub mod error;
pub mod handshake;
pub mod message;
pub mod name;
pub mod receive;
mod seats;
pub mod send;
pub mod summary;
#[cfg(test)]
mod tests;

pub use error::{Error, Result};
