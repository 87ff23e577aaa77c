//! The protocol between two kelvins: the agent that answers on one host, and the client that asks from another.
//!
//! All control messages go over one TCP connection, in frames ([`control_channel`]) of at most 64 KiB. A handshake by the Noise protocol
//! ([`mod@handshake`]) checks that both speak the same version and know the same secret, which is never sent. From then on each frame is
//! encrypted and numbered ([`cipher`]), so that nobody in between can read, forge or change one. The bytes of a test travel over
//! connections of their own, which begin with a cookie sent over the first. They are random, and neither secret nor protected.
//!
//! The agent ([`agent`]) gives away only time and random bytes, and the [`mod@file_server`] of one directory where whoever started it allows it.
//! No message of a client names a file, a program or a third address.
pub mod address;
pub mod admission;
pub mod agent;
pub mod cipher;
pub mod client;
pub(crate) mod connect;
pub mod control_channel;
pub mod cpu_usage;
pub mod deadline;
pub mod file_server;
pub mod handshake;
pub mod limits_serde;
pub(crate) mod listener;
pub mod message;
pub mod secret;
mod service;
pub mod stream_spread;
pub mod test_socket;
#[cfg(test)]
mod tests;
pub mod throughput;

pub use crate::error::{Error, Result};
/// The hash of contents, by the crate that the secret's keys are derived with.
pub use blake3::{Hash, Hasher, hash};

/// The default TCP port of an agent: 273.15 kelvin are 0 degrees Celsius.
pub const PORT: u16 = 27_315;
