//! Whole transfers of files, by the methods of either end.

mod files;
mod receiver;
mod study;

use kelvin_harness::Probe;

pub(crate) use study::bytes_of_a_round;

pub(crate) static PROBES: &[&Probe] = &[&study::PROBE];
