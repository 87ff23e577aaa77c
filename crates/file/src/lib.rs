//! Files read and written in every way there is, with proof of where the bytes came from.
//!
//! A [`Target`] is a file that may be read. [`BlockRequests`] define which blocks of it in which order; an [`Engine`] is a way of
//! reading them; an [`Observer`] sees each. [`read_job`] combines these for many threads, with the state of the page cache before
//! and after, the device's own count of bytes, and every latency. [`mod@write_job`] does the same for a new file, and [`mod@copy`] for
//! one that is copied to another. [`workload`] mixes reads and writes, as [`job_file`] describes them. [`jobs`] counts what several threads, each on its own CPU, read in one window of time.
#![forbid(unsafe_code)]

mod access;
pub mod atomic_file;
mod block_requests;
pub mod cache;
pub mod cgroup;
pub mod copy;
pub mod device;
pub mod digest;
mod engine;
mod error;
pub mod fast_digest;
mod io_result;
pub mod job_file;
pub mod jobs;
mod method_search;
mod observer;
pub mod output_file;
pub mod page_cache_size;
pub mod random_data;
pub mod read_job;
mod reader_threads;
pub mod rename_noreplace;
pub mod start_barrier;
pub mod successive_halving;
mod target;
pub mod temporary_files;
pub mod workload;
pub mod write_job;

pub use access::Access;
pub use block_requests::{BlockOrder, BlockRequest, BlockRequests};
pub use digest::Digest;
pub use engine::{Engine, ReadOptions, Reader};
pub use error::Error;
pub use kelvin_sys::memory::PagePolicy;
pub use observer::{IoTally, LatencyObserver, Observer, recording_cost};
pub use target::{Target, may_overstate};

/// The result of work on a file.
pub type Result<T> = std::result::Result<T, Error>;
