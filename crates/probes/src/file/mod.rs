//! Files and disks: every way to read and write, what the device can do, and what its file system adds.

pub(crate) mod axes;
mod blocksize;
mod contention;
pub(crate) mod data;
mod depth;
pub(crate) mod device;
mod expected;
mod proof;
mod seqrand;
mod threads;
mod writing;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[
    &device::PROBE,
    &device::WRITE_PROBE,
    &blocksize::READ_PROBE,
    &blocksize::WRITE_PROBE,
    &seqrand::PROBE,
    &depth::PROBE,
    &contention::PROBE,
    &threads::PROBE,
];
