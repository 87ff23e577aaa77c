//! HTTP/1.1: a file server, a load generator, and studies of a server under load.
//!
//! [`serve`] is the server in its models (blocking, pool, fork, poll, epoll, io_uring) with its statistics endpoint, [`load`] the client that
//! offers requests by a schedule and times each, and [`sweep`] visits numbers of users and reads what every resource of both hosts gives.
#![forbid(unsafe_code)]

pub mod load;
pub mod serve;
pub mod sweep;
