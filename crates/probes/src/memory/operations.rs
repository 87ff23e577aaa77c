//! The operations of the memory bandwidth probe, and their metrics.

use kelvin_core::Metric;
use kelvin_core::catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD, BANDWIDTH_WRITE, BANDWIDTH_ZERO,
};
use kelvin_sys::kernels::bandwidth::Operation;

/// The operations in the order in which they are measured, each with its metric.
pub(super) static MEASURED_OPERATIONS: [(Operation, &Metric); 7] = [
    (Operation::Read, &BANDWIDTH_READ),
    (Operation::Write, &BANDWIDTH_WRITE),
    (Operation::Copy, &BANDWIDTH_COPY),
    (Operation::Fill, &BANDWIDTH_FILL),
    (Operation::Zero, &BANDWIDTH_ZERO),
    (Operation::NonTemporalWrite, &BANDWIDTH_NTWRITE),
    (Operation::Triad, &BANDWIDTH_TRIAD),
];
