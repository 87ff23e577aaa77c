//! Local communication between two processes.

use crate::{Axis, AxisScale, HeadlineSamples, Metric, SampleTags};

use super::HandoffMechanism;
use crate::catalogue::PairPlacement;
use crate::catalogue::metric_list::{duration, metrics, rate};

/// Bytes of a message.
pub const MESSAGE: Axis = Axis::new("message", "size of a message, bytes", AxisScale::Bytes);

/// As found: between two CPUs the state of the partner's, which no canary here sees, is part of the figure.
const fn as_found_metric(metric: Metric) -> Metric {
    metric.headline(HeadlineSamples::AsFound).contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED).not_in_cycles()
}

metrics! {
    /// The metrics of local communication, in the order of reports.
    pub const IPC_METRICS = [
        /// A byte to another process and back over pipes or Unix stream sockets, or a word in shared memory by a futex
        IPC_LATENCY = as_found_metric(duration("os.ipc.latency"))
            .with_axes([HandoffMechanism::AXIS, PairPlacement::AXIS]),
        /// Bytes per second from one process to another over a pipe, Unix stream sockets, or four blocks of shared memory
        /// passed by futexes
        IPC_BANDWIDTH = as_found_metric(rate("os.ipc.bandwidth"))
            .with_axes([HandoffMechanism::AXIS, PairPlacement::AXIS, MESSAGE]),
    ];
}
