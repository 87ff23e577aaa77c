//! Memory: latency and levels of caches, bandwidth, faults, and communication between cores.

pub(crate) mod allowance;
pub(crate) mod axes;
pub(crate) mod bandwidth;
pub(crate) mod core_to_core;
mod curve;
mod false_sharing;
pub(crate) mod fault;
mod fault_major;
mod first_touch;
pub(crate) mod latency;
mod limits;
mod loaded;
mod memcpy;
mod node;
mod operations;
mod page;
mod parallel;
mod partner;
pub(crate) mod published;
mod stride;
mod tlb;
mod widths;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[
    &latency::PROBE,
    &parallel::PROBE,
    &stride::PROBE,
    &tlb::PROBE,
    &fault::PROBE,
    &fault_major::PROBE,
    &first_touch::PROBE,
    &bandwidth::PROBE,
    &memcpy::PROBE,
    &loaded::PROBE,
    &core_to_core::PROBE,
    &false_sharing::PROBE,
    &node::PROBE,
    &page::PROBE,
];
