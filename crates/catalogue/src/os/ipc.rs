//! Local communication between two processes.

use kelvin_model::{Axis, AxisScale, Metric, Tags, Treatment};

use crate::Placement;

/// Bytes of a message.
pub const MESSAGE: Axis = Axis::new("message", "size of a message, bytes", AxisScale::Bytes);

/// As found: between two CPUs the state of the partner's, which no canary here sees, is part of the figure.
const fn as_found(metric: Metric) -> Metric {
    metric.headline(Treatment::AsFound).contaminants(Tags::CONTAMINATED_UNLESS_PREEMPTED).not_in_cycles()
}

const fn latency(id: &'static str, summary: &'static str) -> Metric {
    as_found(Metric::duration(id, summary)).over([Placement::AXIS])
}

const fn bandwidth(id: &'static str, summary: &'static str) -> Metric {
    as_found(Metric::rate(id, summary)).over([Placement::AXIS, MESSAGE])
}

/// A round trip over pipes.
pub static IPC_PIPE_LATENCY: Metric =
    latency("os.ipc.pipe.latency", "A byte to another process and back over two pipes");

/// A round trip over Unix sockets.
pub static IPC_UNIX_LATENCY: Metric =
    latency("os.ipc.unix.latency", "A byte to another process and back over a pair of Unix stream sockets");

/// A round trip through shared memory.
pub static IPC_FUTEX_LATENCY: Metric =
    latency("os.ipc.futex.latency", "A word in shared memory to another process and back, waiting on a futex");

/// Bytes over a pipe.
pub static IPC_PIPE_BANDWIDTH: Metric =
    bandwidth("os.ipc.pipe.bandwidth", "Bytes per second from one process to another over a pipe");

/// Bytes over Unix sockets.
pub static IPC_UNIX_BANDWIDTH: Metric =
    bandwidth("os.ipc.unix.bandwidth", "Bytes per second from one process to another over Unix stream sockets");

/// Bytes through shared memory.
pub static IPC_FUTEX_BANDWIDTH: Metric = bandwidth(
    "os.ipc.futex.bandwidth",
    "Bytes per second from one process to another through four blocks of shared memory passed by futexes",
);
