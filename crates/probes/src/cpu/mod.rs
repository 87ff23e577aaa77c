//! The processor: clocks, frequency, loops, calls.

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[];
