//! Files and disks: every way to read and write, what the device can do, and what its file system adds.

pub(crate) mod axes;
pub(crate) mod data;
pub(crate) mod device;
mod proof;
mod writing;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[&device::PROBE, &device::WRITE_PROBE];
