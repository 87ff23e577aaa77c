//! Stores of every kind, in files and at a server, which the tests of this program share.

#[path = "../common/mod.rs"]
mod common;
mod history;
mod hostile;
mod labels;
mod recording;
mod server;
mod stores;
