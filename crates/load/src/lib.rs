//! Requests to any HTTP server, by users in a closed loop or at a rate, and how long their answers take.
//!
//! [`load`] measures what a [`Setup`] asks for of the [`Peer`] that was reached. When requests are due is a pure [`schedule`], what comes back a pure [`exchange`];
//! one thread drives any number of connections by epoll. Redirects are not followed.
#![forbid(unsafe_code)]

mod chunks;
mod connection;
mod engine;
pub mod error;
pub mod exchange;
pub mod files;
pub mod gate;
mod own;
pub mod pattern;
mod poll;
pub mod replay;
pub mod request;
pub mod schedule;
pub mod search;
pub mod setup;
mod tally;
pub mod target;
#[cfg(test)]
mod tests;
pub mod tls;
mod traffic;
pub mod verify;
mod wire;

pub use engine::load;
pub use error::{Error, Result};
pub use setup::{Demand, Setup};
pub use wire::Peer;
