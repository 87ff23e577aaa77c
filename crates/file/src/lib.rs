//! Files read and written in every way there is, with proof of where the bytes came from.
//!
//! A [`Target`] is a file that may be read; [`Requests`] say which blocks of it in which order; an [`Engine`] is a way of
//! reading them; an [`Observer`] sees each. [`job`] combines these for many threads, with the state of the page cache before
//! and after, the device's own count of bytes, and every latency; [`mod@write`] does the same for a new file, and [`mod@copy`] for
//! one that is copied to another.
#![forbid(unsafe_code)]

pub mod cache;
pub mod capacity;
pub mod copy;
mod crew;
pub mod device;
pub mod digest;
mod done;
mod engine;
mod engines;
mod error;
pub mod fast;
pub mod group;
pub mod halving;
pub mod job;
pub mod noise;
mod observe;
mod pace;
pub mod rename;
mod requests;
mod search;
pub mod start_line;
mod target;
pub mod temporary;
pub mod unfinished;
pub mod user_file;
pub mod write;
mod writer;

pub use digest::Digest;
pub use engine::{Engine, How, Reader};
pub use error::Error;
pub use kelvin_sys::memory::Pages;
pub use observe::{Latencies, Observer, Tally, recording_cost};
pub use requests::{Order, Request, Requests};
pub use target::{Access, Target, may_overstate};

/// The result of work on a file.
pub type Result<T> = std::result::Result<T, Error>;
