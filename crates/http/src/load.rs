//! Requests to any HTTP server, by users in a closed loop or at a rate, and how long their answers take.
//!
//! [`run_load`] measures what a [`LoadSetup`] asks for of the [`ServerEndpoint`] that was reached. When requests are due is a pure [`schedule`], what comes back a pure [`response_parser`];
//! each thread drives any number of connections by epoll, and speaks HTTP/1.1 or HTTP/2. Redirects are not followed.
pub mod access_pattern;
mod connection_pool;
pub mod document;
mod engine;
pub mod error;
mod generator_usage;
mod har;
mod histogram_text;
#[cfg_attr(not(feature = "http2"), path = "load/without_http2.rs")]
mod http2;
mod load_run;
pub mod load_share;
pub mod measured_load;
pub mod merge;
mod merged_result;
mod poll;
pub mod replay;
pub mod request;
pub mod request_mix;
mod request_pool;
mod request_stats;
pub mod response_parser;
pub mod schedule;
mod series;
pub mod server_url;
pub mod setup;
pub mod slo;
pub mod stages;
pub mod start_time;
pub(crate) mod stream_socket;
#[cfg(test)]
mod tests;
mod threads;
#[cfg_attr(not(feature = "tls"), path = "load/without_tls.rs")]
pub mod tls;
mod tls_session;
pub(crate) mod transport;
pub mod trust;
pub mod url_list;
pub mod verify;

pub use error::{Error, Result};
pub use measured_load::MeasuredLoad;
pub use setup::{Demand, GeneratorThreads, LoadSetup};
pub use stream_socket::ServerAddress;
pub use threads::run_load;
pub use transport::ServerEndpoint;
