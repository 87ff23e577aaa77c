//! The names that nearly every probe of files uses.

pub(super) use kelvin_core::catalogue::file::{AccessOrder, BLOCK, BYTES, CacheState};
pub(super) use kelvin_file::cache::PageCacheState;
pub(super) use kelvin_file::read_job::{EndCondition, ReadJob};
pub(super) use kelvin_file::{Access, BlockOrder, BlockRequests, Engine, IoTally, PagePolicy, ReadOptions, Target};
pub(super) use kelvin_sys::clock::{Clock, monotonic};

pub(super) use super::cached_file::{
    BlockReader, CachedFile, describe_residency, prove_resident, residency, set_cache_state,
};
pub(super) use super::cases::{block_order, cache_state, page_read_case, page_write_case};
pub(super) use super::derived_time::{self, IoDirection};
pub(super) use super::device_proof::DeviceCounters;
pub(super) use super::test_files::{self, KIB, MIB, SHARED_BYTES, probe_error};
pub(super) use crate::memory::{bandwidth, latency, memory_budget};
pub(super) use crate::prelude::*;
