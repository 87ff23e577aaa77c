//! A static file server over HTTP/1.1 that says what it costs, in several designs.
//!
//! What a request gets is apart from how its bytes move: a [`connection`] is fed what arrives and says what is to be sent, and a
//! [`site`] answers from the files below a [`root`], of which nothing outside is ever opened.
#![forbid(unsafe_code)]

mod accepting;
mod blocking;
pub mod body;
mod clients;
pub mod condition;
pub mod connection;
mod counters;
mod epoll;
pub mod error;
pub mod files;
mod fork;
mod hall;
pub mod host;
mod house;
pub mod limits;
mod listing;
pub mod looks;
mod pace;
mod passing;
pub mod range;
mod receiving;
pub mod registered;
pub mod request;
pub mod root;
pub mod sending;
pub mod server;
pub mod site;
pub mod status;
pub mod target;
mod threads;
pub mod types;
mod uring;
pub mod watch;
mod words;

pub use error::{Error, Result};
pub use server::{Access, Model, Reopener, Served, Server, Setup};
