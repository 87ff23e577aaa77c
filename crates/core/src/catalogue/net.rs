//! The network: messages, streams and connections between two processes of this machine, and to another host.

mod peer;

use crate::{Axis, AxisScale, Better, Canaries, HeadlineSamples, Metric, Need, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::rivals::{Rival, RivalComparison, speed_ratio_metric};
use crate::catalogue::shared_axes::PairPlacement;

pub use peer::*;

/// The metrics of this area, in the order of reports.
pub static ALL: &[&Metric] = &[
    &STACK_TCP,
    &STACK_UDP,
    &STACK_UNIX,
    &STREAM_TCP,
    &STREAM_TCP_RECEIVE,
    &STREAM_UDP,
    &STREAM_UDP_RECEIVE,
    &STREAM_UNIX,
    &STREAM_UNIX_RECEIVE,
    &RTT_TCP,
    &RTT_UDP,
    &RTT_UNIX,
    &RTT_ICMP,
    &WAKE_TCP,
    &CONNECT,
    &CLOSE,
    &CRR,
    &BANDWIDTH_TCP,
    &BANDWIDTH_TCP_CPU,
    &BANDWIDTH_TCP_METHOD,
    &BANDWIDTH_TCP_SYSTEM,
    &BANDWIDTH_UDP,
    &BANDWIDTH_UDP_SENT,
    &BANDWIDTH_UDP_LOST,
    &BANDWIDTH_UDP_REORDERED,
    &BANDWIDTH_UNIX,
    &LOADED_ROUND_TRIP,
    &PEER_PING,
    &PEER_CONNECT,
    &PEER_CLOSE,
    &PEER_CRR,
    &PEER_BANDWIDTH,
    &PEER_BANDWIDTH_BURST,
    &PEER_BANDWIDTH_BUSY_HERE,
    &PEER_BANDWIDTH_BUSY_THERE,
    &PEER_BANDWIDTH_MESSAGE,
    &PEER_BANDWIDTH_UDP,
    &PEER_BANDWIDTH_UDP_SENT,
    &PEER_BANDWIDTH_UDP_LOST,
    &PEER_BANDWIDTH_UDP_REORDERED,
    &PEER_OFFERED,
    &PEER_OFFERED_SENT,
    &PEER_OFFERED_LOST,
    &PEER_OFFERED_REORDERED,
    &PEER_RTT,
    &PEER_LOADED,
    &RIVALS_TCP,
    &RIVALS_TCP_KELVIN,
    &RIVALS_TCP_OTHER,
];

/// Bytes of a message.
pub const MESSAGE: Axis = Axis::new("message", "message", AxisScale::Bytes);

/// Connections at a time, each with a sending and a receiving thread.
pub const STREAMS: Axis = Axis::new("streams", "streams, one thread each", AxisScale::Linear);

words! {
    /// How the bytes of a stream are sent.
    pub enum SendMethod: "way", "sending method" {
        /// By a call that copies them from the program's memory.
        Send = "send",
        /// From a file in memory, by sendfile.
        Sendfile = "sendfile",
        /// From a file in memory through a pipe, by splice.
        Splice = "splice",
        /// From the program's memory without a copy, by MSG_ZEROCOPY.
        ZeroCopy = "zerocopy",
    }
}

/// All samples, and no canary.
const fn as_found_metric(metric: Metric) -> Metric {
    metric.headline(HeadlineSamples::AsFound).canaries(Canaries::NONE)
}

/// By one process that holds both ends. A software interrupt delivers a packet over loopback, perhaps in a kernel thread.
const fn loopback_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).with_axes([MESSAGE]).contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
}

/// Between two processes. On one CPU its canaries are read with this process's counters, and not between two operations, which
/// that would change: the scheduler would owe more of the CPU to the partner, which over Unix sockets decides how often it
/// switches. Between two CPUs there are none: how deep the other one sleeps decides, which canaries of this one do not show.
const fn two_process_metric(metric: Metric) -> Metric {
    metric
        .as_found_where(PairPlacement::TwoCpus.point())
        .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
        .not_in_cycles()
}

const fn round_trip_metric(id: &'static str, summary: &'static str) -> Metric {
    two_process_metric(Metric::duration(id, summary)).with_axes([PairPlacement::AXIS, MESSAGE]).version(3)
}

const fn stream_metric(id: &'static str, summary: &'static str) -> Metric {
    as_found_metric(Metric::rate(id, summary)).with_axes([MESSAGE, PairPlacement::AXIS])
}

const fn streams_metric(id: &'static str, summary: &'static str) -> Metric {
    stream_metric(id, summary).with_axes([MESSAGE, STREAMS, PairPlacement::AXIS]).version(2)
}

/// A message sent and received over TCP.
pub static STACK_TCP: Metric =
    loopback_metric("net.stack.tcp", "Sending a message over a local TCP connection and receiving it, by one process");

/// Like `STACK_TCP`, over UDP.
pub static STACK_UDP: Metric =
    loopback_metric("net.stack.udp", "Sending a datagram over loopback and receiving it, by one process");

/// Like `STACK_UDP`, over Unix sockets.
pub static STACK_UNIX: Metric =
    loopback_metric("net.stack.unix", "Sending a message over Unix stream sockets and receiving it, by one process");

/// The sender's part of a TCP stream.
pub static STREAM_TCP: Metric =
    loopback_metric("net.stream.tcp", "Sending a message of a TCP stream, gathered into packets with others");

/// The receiver's part of it.
pub static STREAM_TCP_RECEIVE: Metric =
    loopback_metric("net.stream.tcp.receive", "Receiving a message of a TCP stream that has arrived");

/// The sender's part of datagrams.
pub static STREAM_UDP: Metric = loopback_metric("net.stream.udp", "Sending one of many datagrams over loopback");

/// The receiver's part of them.
pub static STREAM_UDP_RECEIVE: Metric =
    loopback_metric("net.stream.udp.receive", "Receiving a datagram that has arrived");

/// The sender's part of a stream over Unix sockets.
pub static STREAM_UNIX: Metric = loopback_metric("net.stream.unix", "Sending a message of a stream over Unix sockets");

/// The receiver's part of it.
pub static STREAM_UNIX_RECEIVE: Metric =
    loopback_metric("net.stream.unix.receive", "Receiving a message over Unix sockets that has arrived");

/// A round trip over TCP.
pub static RTT_TCP: Metric =
    round_trip_metric("net.rtt.tcp", "Round trip of a message to another process over TCP, each timed by itself")
        .baseline();

/// A round trip over UDP.
pub static RTT_UDP: Metric =
    round_trip_metric("net.rtt.udp", "Round trip of a datagram to another process over loopback, each timed by itself");

/// A round trip over Unix sockets.
pub static RTT_UNIX: Metric = round_trip_metric(
    "net.rtt.unix",
    "Round trip of a message to another process over Unix stream sockets, each timed by itself",
);

/// An echo request to this machine.
pub static RTT_ICMP: Metric =
    loopback_metric("net.rtt.icmp", "An echo request over loopback and its reply, each timed by itself")
        .baseline()
        .version(2);

/// A send that wakes its receiver. No canary: how deep the other CPU sleeps decides, which canaries of this one do not show.
pub static WAKE_TCP: Metric = as_found_metric(Metric::duration(
    "net.wake.tcp",
    "Sending 64 bytes over TCP to a process that sleeps on another CPU: the call alone",
))
.contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
.not_in_cycles()
.needs(Need::SecondCpu);

/// Connecting.
pub static CONNECT: Metric = two_process_metric(Metric::duration(
    "net.connect",
    "Connecting over TCP to a process that accepts, including the creation of the socket",
))
.with_axes([PairPlacement::AXIS])
.version(3)
.baseline();

/// Closing.
pub static CLOSE: Metric =
    two_process_metric(Metric::duration("net.close", "Closing a TCP connection over which a request was answered"))
        .with_axes([PairPlacement::AXIS])
        .version(3)
        .baseline();

/// Connecting, one request, closing.
pub static CRR: Metric = two_process_metric(Metric::rate(
    "net.crr",
    "Transactions per second of connecting, one request, its answer, and closing",
))
.unit(Unit::PerSecond, Better::Higher)
.with_axes([PairPlacement::AXIS])
.version(2);

/// Streams over TCP.
pub static BANDWIDTH_TCP: Metric =
    streams_metric("net.bandwidth.tcp", "Bytes per second that arrive at another process over TCP").baseline();

/// The busiest CPU meanwhile.
pub static BANDWIDTH_TCP_CPU: Metric = streams_metric(
    "net.bandwidth.tcp.busy",
    "Share of the time that senders and receivers kept a CPU busy, for the busiest CPU",
)
.unit(Unit::Ratio, Better::Neither);

/// One TCP stream, by how it is sent.
pub static BANDWIDTH_TCP_METHOD: Metric =
    stream_metric("net.bandwidth.tcp.way", "Bytes per second that arrive over one TCP stream, by sending method")
        .with_axes([MESSAGE, PairPlacement::AXIS, SendMethod::AXIS]);

/// One TCP stream with the congestion control that programs here have by default.
pub static BANDWIDTH_TCP_SYSTEM: Metric = stream_metric(
    "net.bandwidth.tcp.system",
    "Bytes per second that arrive over one TCP stream with the system's congestion control",
);

/// Datagrams that arrive.
pub static BANDWIDTH_UDP: Metric = stream_metric(
    "net.bandwidth.udp",
    "Bytes per second that arrive at another process over UDP from a sender that never waits",
);

/// Datagrams that were sent.
pub static BANDWIDTH_UDP_SENT: Metric =
    stream_metric("net.bandwidth.udp.sent", "Bytes per second sent over UDP, whether they arrived or not")
        .unit(Unit::BytesPerSecond, Better::Neither);

/// Datagrams that were lost.
pub static BANDWIDTH_UDP_LOST: Metric =
    stream_metric("net.bandwidth.udp.lost", "Share of the datagrams that did not arrive, by the gaps in their numbers")
        .unit(Unit::Ratio, Better::Lower);

/// Datagrams that were reordered.
pub static BANDWIDTH_UDP_REORDERED: Metric =
    stream_metric("net.bandwidth.udp.reordered", "Share of the datagrams that arrived after one sent later")
        .unit(Unit::Ratio, Better::Lower);

/// A stream over Unix sockets.
pub static BANDWIDTH_UNIX: Metric =
    stream_metric("net.bandwidth.unix", "Bytes per second that arrive at another process over a Unix stream socket");

/// A round trip beside a saturating stream. No canary: on a CPU that a stream keeps busy it would measure the stream.
pub static LOADED_ROUND_TRIP: Metric = as_found_metric(Metric::duration(
    "net.loaded",
    "Round trip of 64 bytes to another process over TCP during a saturating stream",
))
.with_axes([PairPlacement::AXIS])
.version(2)
.contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
.not_in_cycles();

const fn rival_metric(id: &'static str, summary: &'static str) -> Metric {
    as_found_metric(Metric::rate(id, summary))
        .with_axes([Rival::AXIS, MESSAGE, PairPlacement::AXIS])
        .needs(Need::Rivals)
}

/// A local TCP stream, kelvin's rate over another program's.
pub static RIVALS_TCP: Metric =
    speed_ratio_metric(rival_metric("net.rivals.tcp", "kelvin's rate of a local TCP stream over another program's"));
/// kelvin's.
pub static RIVALS_TCP_KELVIN: Metric = rival_metric(
    "net.rivals.tcp.kelvin",
    "Bytes per second of a local TCP stream of kelvin, interleaved with another program",
);
/// The other program's.
pub static RIVALS_TCP_OTHER: Metric = rival_metric(
    "net.rivals.tcp.other",
    "Bytes per second of a local TCP stream of another program, interleaved with kelvin",
);

/// Streams.
pub static RIVAL_COMPARISON_TCP: RivalComparison =
    RivalComparison { ratio: &RIVALS_TCP, kelvin: &RIVALS_TCP_KELVIN, other: &RIVALS_TCP_OTHER };
