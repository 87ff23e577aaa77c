//! Which options of the command line are for a probe.

use kelvin_core::Need;
use kelvin_core::catalogue::file::EXTENT;
use kelvin_core::catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_METHOD, BANDWIDTH_UNIX, PEER_BANDWIDTH, PEER_BANDWIDTH_MESSAGE,
};
use kelvin_harness::Probe;

/// The probes whose streams have a congestion control and socket buffers: on this machine, and to another host.
pub const LOCAL_STREAM_PROBES: [&str; 2] = [BANDWIDTH_TCP.id.as_str(), BANDWIDTH_TCP_METHOD.id.as_str()];
pub const PEER_STREAM_PROBES: [&str; 2] = [PEER_BANDWIDTH.id.as_str(), PEER_BANDWIDTH_MESSAGE.id.as_str()];

/// The one over Unix sockets, which have buffers and no congestion control.
pub const UNIX_STREAM_PROBE: &str = BANDWIDTH_UNIX.id.as_str();

/// Whether its streams have a congestion control.
pub fn is_over_tcp(probe: &str) -> bool {
    LOCAL_STREAM_PROBES.contains(&probe) || PEER_STREAM_PROBES.contains(&probe)
}

/// Whether its metrics need it.
pub fn has_need(probe: &Probe, need: Need) -> bool {
    probe.metrics.iter().any(|metric| metric.needs == Some(need))
}

/// Whether it covers a file of the size that --extent names.
pub fn covers_extent(probe: &Probe) -> bool {
    probe.metrics.iter().any(|metric| metric.axes().any(|axis| axis.name == EXTENT.name))
}
