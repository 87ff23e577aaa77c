//! The processor: clocks, frequency, loops, calls.

mod branch_mispredict;
mod call_args;
mod clock_gettime;
pub(crate) mod clock_pair;
mod core_kinds;
pub(crate) mod frequency;
mod latency;
mod loop_overhead;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[
    &clock_pair::PROBE,
    &clock_gettime::PROBE,
    &frequency::PROBE,
    &core_kinds::PROBE,
    &latency::PROBE,
    &loop_overhead::PROBE,
    &call_args::PROBE,
    &branch_mispredict::PROBE,
];
