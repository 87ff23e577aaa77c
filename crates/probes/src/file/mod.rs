//! Files and disks: every way to read and write, what the device can do, and what its file system adds.

pub(crate) mod axes;
pub(crate) mod data;
mod metadata;
mod sync;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[&sync::PROBE, &metadata::PROBE];
