//! Files and disks: every way to read and write, what the device can do, and what its file system adds.

mod blocksize;
mod byte_calls;
mod cache_size;
mod cached_file;
mod cases;
mod contention;
mod derived_time;
mod device;
mod device_proof;
pub(crate) mod directory_entry;
mod engine_model;
mod engine_tuning;
mod engines;
pub(crate) mod extent;
mod idle_reclaim;
mod jobs;
pub(crate) mod metadata;
pub(crate) mod new_file;
mod overwrite;
mod page_read;
mod page_write;
mod prelude;
mod queue_depth;
mod read_ahead;
mod read_ahead_model;
pub(crate) mod remote;
mod request_rate;
mod rivals;
mod sequential_random;
mod sync;
pub(crate) mod test_files;
mod threads;
pub(crate) mod tree;
pub(crate) mod whole_file;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[
    &device::PROBE,
    &device::WRITE_PROBE,
    &read_ahead::PROBE,
    &page_read::PROBE,
    &page_write::PROBE,
    &blocksize::READ_PROBE,
    &blocksize::WRITE_PROBE,
    &sequential_random::PROBE,
    &queue_depth::PROBE,
    &jobs::PROBE,
    &contention::PROBE,
    &threads::PROBE,
    &byte_calls::PROBE,
    &engines::PROBE,
    &whole_file::PROBE,
    &cache_size::PROBE,
    &cache_size::BLOCK_PROBE,
    &idle_reclaim::PROBE,
    &new_file::PROBE,
    &sync::PROBE,
    &directory_entry::PROBE,
    &metadata::PROBE,
    &remote::ROUND_TRIP_PROBE,
    &remote::RATE_PROBE,
    &remote::READ_AHEAD_PROBE,
    &remote::PROBE,
    &engine_tuning::PROBE,
    &rivals::CACHED_PROBE,
    &rivals::DIRECT_PROBE,
];
