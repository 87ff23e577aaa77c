//! Local communication between two processes.

use crate::{Axis, AxisScale, HeadlineSamples, Metric, SampleTags};

use crate::catalogue::PairPlacement;

/// Bytes of a message.
pub const MESSAGE: Axis = Axis::new("message", "size of a message, bytes", AxisScale::Bytes);

/// As found: between two CPUs the state of the partner's, which no canary here sees, is part of the figure.
const fn as_found_metric(metric: Metric) -> Metric {
    metric.headline(HeadlineSamples::AsFound).contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED).not_in_cycles()
}

const fn latency_metric(id: &'static str, summary: &'static str) -> Metric {
    as_found_metric(Metric::duration(id, summary)).with_axes([PairPlacement::AXIS])
}

const fn bandwidth_metric(id: &'static str, summary: &'static str) -> Metric {
    as_found_metric(Metric::rate(id, summary)).with_axes([PairPlacement::AXIS, MESSAGE])
}

/// A round trip over pipes.
pub static IPC_PIPE_LATENCY: Metric =
    latency_metric("os.ipc.pipe.latency", "A byte to another process and back over two pipes");

/// A round trip over Unix sockets.
pub static IPC_UNIX_LATENCY: Metric =
    latency_metric("os.ipc.unix.latency", "A byte to another process and back over a pair of Unix stream sockets");

/// A round trip through shared memory.
pub static IPC_FUTEX_LATENCY: Metric =
    latency_metric("os.ipc.futex.latency", "A word in shared memory to another process and back, waiting on a futex");

/// Bytes over a pipe.
pub static IPC_PIPE_BANDWIDTH: Metric =
    bandwidth_metric("os.ipc.pipe.bandwidth", "Bytes per second from one process to another over a pipe");

/// Bytes over Unix sockets.
pub static IPC_UNIX_BANDWIDTH: Metric =
    bandwidth_metric("os.ipc.unix.bandwidth", "Bytes per second from one process to another over Unix stream sockets");

/// Bytes through shared memory.
pub static IPC_FUTEX_BANDWIDTH: Metric = bandwidth_metric(
    "os.ipc.futex.bandwidth",
    "Bytes per second from one process to another through four blocks of shared memory passed by futexes",
);
