//! The network: messages, streams and connections between two processes of this machine, and to another host.

mod peer;

use crate::{Axis, AxisScale, Better, Metric, Need, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics, rate};
use crate::catalogue::rivals::{Rival, RivalComparison};
use crate::catalogue::shared_axes::PairPlacement;

pub use peer::*;

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

/// By one process that holds both ends. A software interrupt delivers a packet over loopback, perhaps in a kernel thread.
const fn loopback_metric(id: &'static str) -> Metric {
    duration(id).with_axes([MESSAGE]).contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
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

const fn round_trip_metric(id: &'static str) -> Metric {
    two_process_metric(duration(id)).with_axes([PairPlacement::AXIS, MESSAGE]).version(3)
}

const fn stream_metric(id: &'static str) -> Metric {
    rate(id).unguarded().with_axes([MESSAGE, PairPlacement::AXIS])
}

const fn streams_metric(id: &'static str) -> Metric {
    stream_metric(id).with_axes([MESSAGE, STREAMS, PairPlacement::AXIS]).version(2)
}

const fn rival_metric(id: &'static str) -> Metric {
    rate(id).unguarded().with_axes([Rival::AXIS, MESSAGE, PairPlacement::AXIS]).needs(Need::Rivals)
}

/// Streams.
pub static RIVAL_COMPARISON_TCP: RivalComparison =
    RivalComparison { ratio: &RIVALS_TCP, kelvin: &RIVALS_TCP_KELVIN, other: &RIVALS_TCP_OTHER };

metrics! {
    /// The metrics within this machine, in the order of reports.
    pub const LOCAL_METRICS = [
        /// Sending a message over a local TCP connection and receiving it, by one process
        STACK_TCP = loopback_metric("net.stack.tcp"),
        /// Sending a datagram over loopback and receiving it, by one process
        STACK_UDP = loopback_metric("net.stack.udp"),
        /// Sending a message over Unix stream sockets and receiving it, by one process
        STACK_UNIX = loopback_metric("net.stack.unix"),
        /// Sending a message of a TCP stream, gathered into packets with others
        STREAM_TCP = loopback_metric("net.stream.tcp"),
        /// Receiving a message of a TCP stream that has arrived
        STREAM_TCP_RECEIVE = loopback_metric("net.stream.tcp.receive"),
        /// Sending one of many datagrams over loopback
        STREAM_UDP = loopback_metric("net.stream.udp"),
        /// Receiving a datagram that has arrived
        STREAM_UDP_RECEIVE = loopback_metric("net.stream.udp.receive"),
        /// Sending a message of a stream over Unix sockets
        STREAM_UNIX = loopback_metric("net.stream.unix"),
        /// Receiving a message over Unix sockets that has arrived
        STREAM_UNIX_RECEIVE = loopback_metric("net.stream.unix.receive"),
        /// Round trip of a message to another process over TCP, each timed by itself
        RTT_TCP = round_trip_metric("net.rtt.tcp").baseline(),
        /// Round trip of a datagram to another process over loopback, each timed by itself
        RTT_UDP = round_trip_metric("net.rtt.udp"),
        /// Round trip of a message to another process over Unix stream sockets, each timed by itself
        RTT_UNIX = round_trip_metric("net.rtt.unix"),
        /// An echo request over loopback and its reply, each timed by itself
        RTT_ICMP = loopback_metric("net.rtt.icmp").baseline().version(2),
        // No canary: how deep the other CPU sleeps decides, which canaries of this one do not show.
        /// Sending 64 bytes over TCP to a process that sleeps on another CPU: the call alone
        WAKE_TCP = duration("net.wake.tcp").unguarded()
            .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
            .not_in_cycles()
            .needs(Need::SecondCpu),
        /// Connecting over TCP to a process that accepts, including the creation of the socket
        CONNECT = two_process_metric(duration("net.connect")).with_axes([PairPlacement::AXIS]).version(3).baseline(),
        /// Closing a TCP connection over which a request was answered
        CLOSE = two_process_metric(duration("net.close")).with_axes([PairPlacement::AXIS]).version(3).baseline(),
        /// Transactions per second of connecting, one request, its answer, and closing
        CRR = two_process_metric(rate("net.crr"))
            .unit(Unit::PerSecond, Better::Higher)
            .with_axes([PairPlacement::AXIS])
            .version(2),
        /// Bytes per second that arrive at another process over TCP
        BANDWIDTH_TCP = streams_metric("net.bandwidth.tcp").baseline(),
        /// Share of the time that senders and receivers kept a CPU busy, for the busiest CPU
        BANDWIDTH_TCP_CPU = streams_metric("net.bandwidth.tcp.busy").unit(Unit::Ratio, Better::Neither),
        /// Bytes per second that arrive over one TCP stream, by sending method
        BANDWIDTH_TCP_METHOD = stream_metric("net.bandwidth.tcp.way")
            .with_axes([MESSAGE, PairPlacement::AXIS, SendMethod::AXIS]),
        /// Bytes per second that arrive over one TCP stream with the system's congestion control
        BANDWIDTH_TCP_SYSTEM = stream_metric("net.bandwidth.tcp.system"),
        /// Bytes per second that arrive at another process over UDP from a sender that never waits
        BANDWIDTH_UDP = stream_metric("net.bandwidth.udp"),
        /// Bytes per second sent over UDP, whether they arrived or not
        BANDWIDTH_UDP_SENT = stream_metric("net.bandwidth.udp.sent").unit(Unit::BytesPerSecond, Better::Neither),
        /// Share of the datagrams that did not arrive, by the gaps in their numbers
        BANDWIDTH_UDP_LOST = stream_metric("net.bandwidth.udp.lost").unit(Unit::Ratio, Better::Lower),
        /// Share of the datagrams that arrived after one sent later
        BANDWIDTH_UDP_REORDERED = stream_metric("net.bandwidth.udp.reordered").unit(Unit::Ratio, Better::Lower),
        /// Bytes per second that arrive at another process over a Unix stream socket
        BANDWIDTH_UNIX = stream_metric("net.bandwidth.unix"),
        // No canary: on a CPU that a stream keeps busy it would measure the stream.
        /// Round trip of 64 bytes to another process over TCP during a saturating stream
        LOADED_ROUND_TRIP = duration("net.loaded").unguarded()
            .with_axes([PairPlacement::AXIS])
            .version(2)
            .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
            .not_in_cycles(),
    ];
}

metrics! {
    /// The metrics of other programs, in the order of reports.
    pub const RIVAL_METRICS = [
        /// kelvin's rate of a local TCP stream over another program's
        RIVALS_TCP = rival_metric("net.rivals.tcp").unit(Unit::Ratio, Better::Neither),
        /// Bytes per second of a local TCP stream of kelvin, interleaved with another program
        RIVALS_TCP_KELVIN = rival_metric("net.rivals.tcp.kelvin"),
        /// Bytes per second of a local TCP stream of another program, interleaved with kelvin
        RIVALS_TCP_OTHER = rival_metric("net.rivals.tcp.other"),
    ];
}
