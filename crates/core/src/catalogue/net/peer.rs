//! Between this host and another one, on which `kelvin agent` runs: messages, streams, datagrams, connections.

use crate::{Axis, AxisScale, Better, Metric, Need, SampleTags, Unit};

use super::{MESSAGE, STREAMS, SendMethod, as_found_metric};
use crate::catalogue::axis_words::words;

/// Bits per second offered.
pub const OFFERED_RATE: Axis = Axis::new("offered", "offered, bits per second", AxisScale::Logarithmic);

words! {
    /// The direction of a stream.
    pub enum StreamDirection: "direction", "direction" {
        /// From this host to the agent's.
        ToAgent = "to_agent",
        /// From the agent's host to this one.
        FromAgent = "from_agent",
    }
}

words! {
    /// The transport of messages.
    pub enum Transport: "protocol", "protocol" {
        /// A TCP connection.
        Tcp = "tcp",
        /// UDP, a datagram each.
        Udp = "udp",
    }
}

/// Timed here, over a network and on another host whose disturbances cannot be seen here.
const fn peer_metric(metric: Metric) -> Metric {
    as_found_metric(metric).contaminants(SampleTags::NONE).not_in_cycles().needs(Need::Agent)
}

const fn peer_rate_metric<const N: usize>(id: &'static str, summary: &'static str, axes: [Axis; N]) -> Metric {
    as_found_metric(Metric::rate(id, summary)).with_axes(axes).needs(Need::Agent)
}

/// An echo request.
pub static PEER_PING: Metric = peer_metric(Metric::duration(
    "net.peer.ping",
    "Round trip of an echo request to another host, each timed by itself",
))
.with_axes([MESSAGE])
.baseline();

/// Connecting.
pub static PEER_CONNECT: Metric =
    peer_metric(Metric::duration("net.peer.connect", "Opening a TCP connection to another host, each timed by itself"))
        .version(2)
        .baseline();

/// Closing.
pub static PEER_CLOSE: Metric = peer_metric(Metric::duration(
    "net.peer.close",
    "Closing a TCP connection to another host over which a request was answered, each timed by itself",
))
.baseline();

/// Connecting, one request, closing.
pub static PEER_CRR: Metric = peer_metric(Metric::rate(
    "net.peer.crr",
    "Transactions per second with another host of connecting, one request, its answer, and closing",
))
.unit(Unit::PerSecond, Better::Higher);

/// Streams over TCP.
pub static PEER_BANDWIDTH: Metric = peer_rate_metric(
    "net.peer.bandwidth",
    "Bytes per second that arrive at another host over TCP, or from it, counted where they arrive",
    [STREAMS, StreamDirection::AXIS],
)
.version(2);

/// Streams over TCP of another program, which does not say whether their rate was limited. No probe measures it.
pub static PEER_BANDWIDTH_PERHAPS_LIMITED: Metric = peer_rate_metric(
    "net.peer.bandwidth.perhaps_limited",
    "Bytes per second that arrive at another host over TCP, or from it, of a sender that may have been limited to a rate",
    [STREAMS, StreamDirection::AXIS],
);

/// The burst before that rate.
pub static PEER_BANDWIDTH_BURST: Metric = peer_rate_metric(
    "net.peer.bandwidth.burst",
    "Bytes that arrived beyond the sustained rate before that held: what a token bucket had saved up",
    [STREAMS, StreamDirection::AXIS],
)
.unit(Unit::Bytes, Better::Neither);

/// CPU use of this host meanwhile.
pub static PEER_BANDWIDTH_BUSY_HERE: Metric = peer_rate_metric(
    "net.peer.bandwidth.busy_here",
    "Share of a CPU that the test kept busy on this host, by a thread or by its packets, for the busiest CPU",
    [STREAMS, StreamDirection::AXIS],
)
.version(2)
.unit(Unit::Ratio, Better::Neither);

/// CPU use of the agent's host meanwhile.
pub static PEER_BANDWIDTH_BUSY_THERE: Metric = peer_rate_metric(
    "net.peer.bandwidth.busy_there",
    "Share of a CPU that the test kept busy on the agent's host, by a thread or by its packets, for the busiest CPU",
    [STREAMS, StreamDirection::AXIS],
)
.version(2)
.unit(Unit::Ratio, Better::Neither);

/// One TCP stream, by message and sending method.
pub static PEER_BANDWIDTH_MESSAGE: Metric = peer_rate_metric(
    "net.peer.bandwidth.message",
    "Bytes per second that arrive at another host over one TCP stream, by message and sending method",
    [MESSAGE, SendMethod::AXIS],
)
.version(2)
.baseline();

/// Datagrams that arrive.
pub static PEER_BANDWIDTH_UDP: Metric = peer_rate_metric(
    "net.peer.bandwidth.udp",
    "Bytes per second that arrive at another host over UDP from a sender that never waits, counted there",
    [MESSAGE],
)
.version(2);

/// Datagrams that were sent.
pub static PEER_BANDWIDTH_UDP_SENT: Metric = peer_rate_metric(
    "net.peer.bandwidth.udp.sent",
    "Bytes per second sent over UDP to another host, whether they arrived or not",
    [MESSAGE],
)
.unit(Unit::BytesPerSecond, Better::Neither);

/// Datagrams that were lost.
pub static PEER_BANDWIDTH_UDP_LOST: Metric = peer_rate_metric(
    "net.peer.bandwidth.udp.lost",
    "Share of the datagrams that did not arrive, by the gaps in their numbers",
    [MESSAGE],
)
.unit(Unit::Ratio, Better::Lower);

/// Datagrams that were reordered.
pub static PEER_BANDWIDTH_UDP_REORDERED: Metric = peer_rate_metric(
    "net.peer.bandwidth.udp.reordered",
    "Share of the datagrams that arrived after one sent later",
    [MESSAGE],
)
.unit(Unit::Ratio, Better::Lower);

/// Arrivals of offered datagrams.
pub static PEER_OFFERED: Metric = peer_rate_metric(
    "net.peer.offered",
    "Bytes per second that arrive at another host of datagrams offered at an even rate, counted there",
    [OFFERED_RATE],
)
.version(2);

/// Those that were sent.
pub static PEER_OFFERED_SENT: Metric =
    peer_rate_metric("net.peer.offered.sent", "Bytes per second actually sent of those to be offered", [OFFERED_RATE])
        .unit(Unit::BytesPerSecond, Better::Neither);

/// Those that were lost.
pub static PEER_OFFERED_LOST: Metric = peer_rate_metric(
    "net.peer.offered.lost",
    "Share of the offered datagrams that did not arrive, by the gaps in their numbers",
    [OFFERED_RATE],
)
.unit(Unit::Ratio, Better::Lower);

/// Those that were reordered.
pub static PEER_OFFERED_REORDERED: Metric = peer_rate_metric(
    "net.peer.offered.reordered",
    "Share of the offered datagrams that arrived after one sent later",
    [OFFERED_RATE],
)
.unit(Unit::Ratio, Better::Lower);

/// A round trip.
pub static PEER_RTT: Metric = peer_metric(Metric::duration(
    "net.peer.rtt",
    "Round trip of a message to a program on another host, each timed by itself",
))
.with_axes([Transport::AXIS, MESSAGE])
.baseline();

/// A round trip beside a saturating stream.
pub static PEER_LOADED: Metric = peer_metric(Metric::duration(
    "net.peer.loaded",
    "Round trip of 64 bytes to a program on another host over TCP during a saturating stream",
));
