//! Memory: latency and levels of caches, bandwidth, faults, and communication between cores.

pub(crate) mod axes;
pub(crate) mod bandwidth;
pub(crate) mod core_to_core;
mod false_sharing;
pub(crate) mod fault;
mod fault_major;
mod first_touch;
mod interleaved;
pub(crate) mod latency;
mod loaded_latency;
mod memcpy;
pub(crate) mod memory_budget;
mod numa_node;
mod page_flags;
mod parallel_chains;
mod published;
mod scaling;
mod stride;
mod tlb;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[
    &latency::PROBE,
    &parallel_chains::PROBE,
    &stride::PROBE,
    &tlb::PROBE,
    &fault::PROBE,
    &fault_major::PROBE,
    &first_touch::PROBE,
    &bandwidth::PROBE,
    &memcpy::PROBE,
    &scaling::PROBE,
    &loaded_latency::PROBE,
    &core_to_core::PROBE,
    &false_sharing::PROBE,
    &numa_node::PROBE,
    &interleaved::PROBE,
    &page_flags::PROBE,
];
