//! Between this host and another one, on which `kelvin agent` runs: messages, streams, datagrams, connections.

use crate::{Axis, AxisScale, Better, Metric, Need, SampleTags, Unit};

use super::{MESSAGE, STREAMS, SendMethod};
use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics, rate};

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
    metric.unguarded().contaminants(SampleTags::NONE).not_in_cycles().needs(Need::Agent)
}

const fn peer_rate_metric<const N: usize>(id: &'static str, axes: [Axis; N]) -> Metric {
    rate(id).unguarded().with_axes(axes).needs(Need::Agent)
}

/// Streams over TCP of another program, which does not say whether their rate was limited. No probe measures it.
pub static PEER_BANDWIDTH_PERHAPS_LIMITED: Metric =
    peer_rate_metric("net.peer.bandwidth.perhaps_limited", [STREAMS, StreamDirection::AXIS]).summary(
        "Bytes per second that arrive at another host over TCP, or from it, of a sender that may have been limited to a rate",
    );

metrics! {
    /// The metrics of another host, in the order of reports.
    pub const PEER_METRICS = [
        /// Round trip of an echo request to another host, each timed by itself
        PEER_PING = peer_metric(duration("net.peer.ping")).with_axes([MESSAGE]).baseline(),
        /// Opening a TCP connection to another host, each timed by itself
        PEER_CONNECT = peer_metric(duration("net.peer.connect")).version(2).baseline(),
        /// Closing a TCP connection to another host over which a request was answered, each timed by itself
        PEER_CLOSE = peer_metric(duration("net.peer.close")).baseline(),
        /// Transactions per second with another host of connecting, one request, its answer, and closing
        PEER_CRR = peer_metric(rate("net.peer.crr")).unit(Unit::PerSecond, Better::Higher),
        /// Bytes per second that arrive at another host over TCP, or from it, counted where they arrive
        PEER_BANDWIDTH = peer_rate_metric("net.peer.bandwidth", [STREAMS, StreamDirection::AXIS]).version(3),
        /// Bytes that arrived beyond the sustained rate before that held: what a token bucket had accumulated
        PEER_BANDWIDTH_BURST = peer_rate_metric("net.peer.bandwidth.burst", [STREAMS, StreamDirection::AXIS])
            .version(2)
            .unit(Unit::Bytes, Better::Neither),
        /// Share of a CPU that the test kept busy on this host, by a thread or by its packets, for the busiest CPU
        PEER_BANDWIDTH_BUSY_HERE = peer_rate_metric("net.peer.bandwidth.busy_here", [STREAMS, StreamDirection::AXIS])
            .version(3)
            .unit(Unit::Ratio, Better::Neither),
        /// Share of a CPU that the test kept busy on the agent's host, by a thread or by its packets, for the busiest CPU
        PEER_BANDWIDTH_BUSY_THERE = peer_rate_metric("net.peer.bandwidth.busy_there", [STREAMS, StreamDirection::AXIS])
            .version(3)
            .unit(Unit::Ratio, Better::Neither),
        /// Bytes per second that arrive at another host over one TCP stream, by message and sending method
        PEER_BANDWIDTH_MESSAGE = peer_rate_metric("net.peer.bandwidth.message", [MESSAGE, SendMethod::AXIS])
            .version(2)
            .baseline(),
        /// Bytes per second that arrive at another host over UDP from a sender that never waits, counted there
        PEER_BANDWIDTH_UDP = peer_rate_metric("net.peer.bandwidth.udp", [MESSAGE]).version(2),
        /// Bytes per second sent over UDP to another host, whether they arrived or not
        PEER_BANDWIDTH_UDP_SENT = peer_rate_metric("net.peer.bandwidth.udp.sent", [MESSAGE])
            .unit(Unit::BytesPerSecond, Better::Neither),
        /// Share of the datagrams that did not arrive, by the gaps in their numbers
        PEER_BANDWIDTH_UDP_LOST = peer_rate_metric("net.peer.bandwidth.udp.lost", [MESSAGE])
            .unit(Unit::Ratio, Better::Lower),
        /// Share of the datagrams that arrived after one sent later
        PEER_BANDWIDTH_UDP_REORDERED = peer_rate_metric("net.peer.bandwidth.udp.reordered", [MESSAGE])
            .unit(Unit::Ratio, Better::Lower),
        /// Bytes per second that arrive at another host of datagrams offered at an even rate, counted there
        PEER_OFFERED = peer_rate_metric("net.peer.offered", [OFFERED_RATE]).version(2),
        /// Bytes per second actually sent of those to be offered
        PEER_OFFERED_SENT = peer_rate_metric("net.peer.offered.sent", [OFFERED_RATE])
            .unit(Unit::BytesPerSecond, Better::Neither),
        /// Share of the offered datagrams that did not arrive, by the gaps in their numbers
        PEER_OFFERED_LOST = peer_rate_metric("net.peer.offered.lost", [OFFERED_RATE]).unit(Unit::Ratio, Better::Lower),
        /// Share of the offered datagrams that arrived after one sent later
        PEER_OFFERED_REORDERED = peer_rate_metric("net.peer.offered.reordered", [OFFERED_RATE])
            .unit(Unit::Ratio, Better::Lower),
        /// Round trip of a message to a program on another host, each timed by itself
        PEER_RTT = peer_metric(duration("net.peer.rtt")).with_axes([Transport::AXIS, MESSAGE]).baseline(),
        /// Round trip of 64 bytes to a program on another host over TCP during a saturating stream
        PEER_LOADED = peer_metric(duration("net.peer.loaded")),
    ];
}
