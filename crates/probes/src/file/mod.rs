//! Files and disks: every way to read and write, what the device can do, and what its file system adds.

pub(crate) mod axes;
mod byte_calls;
mod cached;
pub(crate) mod data;
mod engines;
mod remote;
mod tune;
mod ways;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] =
    &[&byte_calls::PROBE, &engines::PROBE, &remote::ROUND_TRIP_PROBE, &remote::PROBE, &tune::PROBE];
