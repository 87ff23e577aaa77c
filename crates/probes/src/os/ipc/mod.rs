//! Local communication between two processes: how long a round trip takes, and how many bytes pass in a second.

pub(super) mod bandwidth;
pub(super) mod latency;

use kelvin_harness::{Bench, Stop};
use kelvin_model::{Axis, AxisScale, Case};

/// Where the two processes run.
pub(crate) const PLACEMENT: Axis = Axis::new("placement", "placement of the two processes", AxisScale::Category);

/// Both on one CPU, and each on a CPU of its own.
pub(crate) const PLACEMENTS: [&str; 2] = ["same_cpu", "two_cpus"];

/// The CPU for the other process.
pub(crate) fn peer_cpu(bench: &Bench<'_>, case: &Case) -> Result<u32, Stop> {
    match case.word("placement") {
        Some("same_cpu") => Ok(bench.cpu()),
        Some("two_cpus") => bench.peer_cpu(),
        _ => Err(Stop::fail(format!("the case needs placement=same_cpu or placement=two_cpus, not {case}"))),
    }
}
