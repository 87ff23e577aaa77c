//! Whole transfers of files, by the methods of either end.

mod cells;
mod cold;
mod ends;
mod expected;
mod files;
mod predicted;
mod receiver;
mod study;
mod trials;

use kelvin_harness::Probe;

pub(crate) use cells::all_combinations;
pub(crate) use trials::bytes_of_a_round;

pub(crate) static PROBES: &[&Probe] = &[&study::PROBE, &cold::PROBE];
