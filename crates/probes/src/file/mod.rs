//! Files and disks: every way to read and write, what the device can do, and what its file system adds.

mod ahead;
mod blocksize;
mod byte_calls;
mod cache_size;
mod cached;
mod cases;
mod contention;
mod data;
mod depth;
mod device;
mod engines;
mod entry;
mod expected;
mod idle;
mod metadata;
pub(crate) mod new;
mod page_read;
mod page_write;
mod proof;
mod read_ahead;
pub(crate) mod remote;
mod rivals;
mod seqrand;
mod sustained;
mod sync;
mod threads;
pub(crate) mod tree;
mod tune;
mod ways;
pub(crate) mod whole;
mod writing;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[
    &device::PROBE,
    &device::WRITE_PROBE,
    &read_ahead::PROBE,
    &page_read::PROBE,
    &page_write::PROBE,
    &blocksize::READ_PROBE,
    &blocksize::WRITE_PROBE,
    &seqrand::PROBE,
    &depth::PROBE,
    &contention::PROBE,
    &threads::PROBE,
    &byte_calls::PROBE,
    &engines::PROBE,
    &whole::PROBE,
    &cache_size::PROBE,
    &cache_size::BLOCK_PROBE,
    &idle::PROBE,
    &new::PROBE,
    &sync::PROBE,
    &entry::PROBE,
    &metadata::PROBE,
    &remote::ROUND_TRIP_PROBE,
    &remote::RATE_PROBE,
    &remote::READ_AHEAD_PROBE,
    &remote::PROBE,
    &tune::PROBE,
    &rivals::CACHED_PROBE,
    &rivals::DIRECT_PROBE,
];
