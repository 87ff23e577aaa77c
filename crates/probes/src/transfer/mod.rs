//! Whole transfers of files, by the methods of either end.

mod cells;
mod cold;
mod cost_model;
mod endpoints;
mod file_sets;
mod prediction;
mod receiver;
mod study;
mod trials;

use kelvin_harness::Probe;

pub(crate) use cells::all_combinations;
pub(crate) use trials::bytes_per_round;

pub(crate) static PROBES: &[&Probe] = &[&study::PROBE, &cold::PROBE];
