//! Stores of every kind, in files and at a server, which the tests of this program share.
#![cfg(feature = "postgres")]

#[path = "../common/mod.rs"]
mod common;
mod fleet;
mod history;
mod hostile_server;
mod labels;
mod postgres;
mod recording;
mod stores;
