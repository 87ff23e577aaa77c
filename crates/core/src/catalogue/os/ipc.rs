//! Local communication between two processes.

use crate::{Axis, AxisScale, HeadlineSamples, Metric, SampleTags};

use super::HandoffMechanism;
use crate::catalogue::PairPlacement;

/// Bytes of a message.
pub const MESSAGE: Axis = Axis::new("message", "size of a message, bytes", AxisScale::Bytes);

/// As found: between two CPUs the state of the partner's, which no canary here sees, is part of the figure.
const fn as_found_metric(metric: Metric) -> Metric {
    metric.headline(HeadlineSamples::AsFound).contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED).not_in_cycles()
}

/// A round trip of a byte or a word.
pub static IPC_LATENCY: Metric = as_found_metric(Metric::duration(
    "os.ipc.latency",
    "A byte to another process and back over pipes or Unix stream sockets, or a word in shared memory by a futex",
))
.with_axes([HandoffMechanism::AXIS, PairPlacement::AXIS]);

/// Bytes from one process to another.
pub static IPC_BANDWIDTH: Metric = as_found_metric(Metric::rate(
    "os.ipc.bandwidth",
    "Bytes per second from one process to another over a pipe, Unix stream sockets, or four blocks of shared memory \
     passed by futexes",
))
.with_axes([HandoffMechanism::AXIS, PairPlacement::AXIS, MESSAGE]);
