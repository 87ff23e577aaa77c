//! A static file server over HTTP/1.1 that reports what it costs, in several designs.
//!
//! What a request gets is apart from how its bytes move: a [`connection`] is fed what arrives and returns what is to be sent, and a
//! [`site`] answers from the files below a [`document_root`], of which nothing outside is ever opened.
mod accept;
pub mod access_log;
pub mod body;
pub mod cache_control;
pub mod conditional;
pub mod connection;
mod content_coding;
mod counter_slot;
pub mod decoded_path;
pub mod document_root;
mod epoll;
pub mod error;
mod event_loop;
mod fork;
pub mod host;
pub mod in_flight_sampler;
mod keyword;
pub mod limits;
pub mod listener;
mod listing;
pub mod model;
pub mod open_file_cache;
mod poll;
mod readiness;
pub mod request;
mod request_tracker;
pub mod send_strategy;
pub mod server;
pub mod server_user;
pub mod site;
pub mod stats_endpoint;
mod stats_sources;
mod thread_server;
#[cfg_attr(not(feature = "tls"), path = "serve/without_tls.rs")]
pub mod tls;
pub mod tls_totals;
mod transport;
mod uring;
mod worker_context;

pub use error::{Error, Result};
pub use model::ServerModel;
pub use server::{Server, ServerAccess, ServerSetup};
pub use worker_context::ServerTotals;
