//! What two kelvins say to each other: the agent that answers on one host, and the client that asks from another.
//!
//! Everything is said over one TCP connection, in frames ([`frame`]) of at most 64 KiB. A handshake ([`handshake`]) checks that
//! both speak the same version and know the same secret, which is never sent: each proves that it has it by a keyed hash of two
//! numbers that nobody could foresee. From then on each frame carries a tag of its own ([`channel`]), so that nobody in between
//! can say a word. The bytes of a test itself travel over connections of their own, which begin with a number that was told over
//! the first; they are noise, and are neither secret nor protected.
//!
//! The agent ([`agent`]) gives away nothing but time and bytes of noise: no message names a file, a program or a third address.
#![forbid(unsafe_code)]

pub mod address;
pub mod agent;
pub mod bounded;
pub mod busy;
pub mod channel;
pub mod client;
pub mod deadline;
pub mod error;
pub mod frame;
pub mod handshake;
pub mod interface;
pub mod limits;
pub mod message;
pub mod numbered;
pub mod secret;
mod service;
pub mod sockets;
#[cfg(test)]
mod tests;

pub use error::{Error, Result};

/// The TCP port of an agent if none is named: 273.15 kelvin are 0 degrees Celsius.
pub const PORT: u16 = 27_315;
