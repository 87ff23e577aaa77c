//! What one direction of a test carried between two moments: a pure function of the counts of both ends.

use kelvin_transfer::wire::client::throughput::ThroughputSample;
use kelvin_transfer::wire::cpu_usage::CpuUsage;
use kelvin_transfer::wire::message::TestDirection;
use kelvin_transfer::wire::throughput::{DatagramCounts, EndCounts, StreamCounts, TcpSendCounts, ThroughputSpec};
use serde::Serialize;

/// Streams of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    pub(super) direction: TestDirection,
    /// The first of them, and how many.
    first: usize,
    pub(super) streams: usize,
}

/// The two ends of a direction at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends<'a> {
    pub(super) sender: &'a EndCounts,
    pub(super) receiver: &'a EndCounts,
    direction: Direction,
}

/// What was carried between two moments. Times are in seconds, sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Flow {
    pub(super) bytes: u64,
    /// By the receiver's clock.
    pub(super) seconds: f64,
    pub(super) bits_per_second: f64,
    /// Of each stream.
    pub(super) stream_bytes: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tcp: Option<TcpFlow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) datagrams: Option<DatagramFlow>,
    pub(super) cpu: FlowCpu,
}

/// What the sender's kernel reports of its connections: means over them, but for what was sent again.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TcpFlow {
    pub(super) retransmits: u64,
    pub(super) round_trip: f64,
    pub(super) congestion_window: u64,
    /// The receiver's window.
    pub(super) receive_window: u64,
    /// Shares of the time in which there was something to send or to be acknowledged, the receiver's window was full, and the send buffer was.
    pub(super) busy: f64,
    pub(super) window_limited: f64,
    pub(super) buffer_limited: f64,
}

/// Datagrams.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DatagramFlow {
    pub(super) sent: u64,
    pub(super) arrived: u64,
    /// By the gaps in their numbers.
    pub(super) lost: u64,
    /// Of these, those that found the receiver's socket full.
    pub(super) dropped_by_receiver: u64,
    pub(super) reordered: u64,
    /// The interarrival jitter of RFC 3550 at the end of the time, the mean of all streams.
    pub(super) jitter: f64,
}

/// How busy both ends were.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FlowCpu {
    pub(super) sender: CpuUsage,
    pub(super) receiver: CpuUsage,
}

impl Direction {
    /// Those of a test.
    pub(super) fn all(spec: &ThroughputSpec) -> Vec<Self> {
        let (to_agent, from_agent) = (spec.to_agent as usize, spec.from_agent as usize);
        let all = [
            Self { direction: TestDirection::ToAgent, first: 0, streams: to_agent },
            Self { direction: TestDirection::FromAgent, first: to_agent, streams: from_agent },
        ];
        all.into_iter().filter(|direction| direction.streams > 0).collect()
    }

    /// Its ends at a moment.
    pub(super) fn ends(self, sample: &ThroughputSample) -> Ends<'_> {
        let (sender, receiver) = match self.direction {
            TestDirection::ToAgent => (&sample.here, &sample.there),
            TestDirection::FromAgent => (&sample.there, &sample.here),
        };
        Ends { sender, receiver, direction: self }
    }

    /// What it carried between two moments.
    pub(super) fn flow(self, from: &ThroughputSample, to: &ThroughputSample) -> Flow {
        let (before, after) = (self.ends(from), self.ends(to));
        let nanoseconds = after.receiver.nanoseconds.saturating_sub(before.receiver.nanoseconds);
        self.flow_in(before, after, nanoseconds)
    }

    /// What it carried from its beginning until its last byte.
    pub(super) fn whole_flow(self, last: &ThroughputSample) -> Flow {
        let nothing = |end: &EndCounts| EndCounts {
            streams: end.streams.iter().map(StreamCounts::nothing).collect(),
            ..EndCounts::default()
        };
        let before = ThroughputSample { here: nothing(&last.here), there: nothing(&last.there), ..*last };
        self.flow_until_end(&before, last)
    }

    /// What it carried since a moment until its last byte.
    pub(super) fn flow_until_end(self, from: &ThroughputSample, last: &ThroughputSample) -> Flow {
        let (before, after) = (self.ends(from), self.ends(last));
        let end = after.receivers().iter().filter_map(|stream| stream.ended).max();
        let end = end.unwrap_or(after.receiver.nanoseconds);
        self.flow_in(before, after, end.saturating_sub(before.receiver.nanoseconds))
    }

    fn flow_in(self, before: Ends<'_>, after: Ends<'_>, nanoseconds: u64) -> Flow {
        let seconds = nanoseconds.max(1) as f64 / 1e9;
        let pairs = || before.receivers().iter().zip(after.receivers());
        let stream_bytes: Vec<u64> = pairs().map(|(before, after)| after.bytes.saturating_sub(before.bytes)).collect();
        let bytes = stream_bytes.iter().sum();
        Flow {
            bytes,
            seconds,
            bits_per_second: 8.0 * bytes as f64 / seconds,
            stream_bytes,
            tcp: tcp_flow(before.senders(), after.senders(), seconds),
            datagrams: datagram_flow(before, after),
            cpu: FlowCpu { sender: after.sender.busy, receiver: after.receiver.busy },
        }
    }
}

impl<'a> Ends<'a> {
    fn of_direction(self, end: &'a EndCounts) -> &'a [StreamCounts] {
        let Direction { first, streams, .. } = self.direction;
        end.streams.get(first..first + streams).unwrap_or_default()
    }

    /// The senders' counts.
    pub(super) fn senders(self) -> &'a [StreamCounts] {
        self.of_direction(self.sender)
    }

    /// The receivers' counts.
    pub(super) fn receivers(self) -> &'a [StreamCounts] {
        self.of_direction(self.receiver)
    }
}

fn tcp_flow(before: &[StreamCounts], after: &[StreamCounts], seconds: f64) -> Option<TcpFlow> {
    let pairs: Vec<(TcpSendCounts, TcpSendCounts)> =
        before.iter().zip(after).filter_map(|(before, after)| before.tcp.zip(after.tcp)).collect();
    let count = pairs.len() as u64;
    if count == 0 {
        return None;
    }
    let sum = |figure: fn(&TcpSendCounts) -> u64| pairs.iter().map(|(_, after)| figure(after)).sum::<u64>();
    let growth = |figure: fn(&TcpSendCounts) -> u64| {
        pairs.iter().map(|(before, after)| figure(after).saturating_sub(figure(before))).sum::<u64>()
    };
    let share = |figure| (growth(figure) as f64 / 1e9 / seconds / count as f64).min(1.0);
    Some(TcpFlow {
        retransmits: growth(|tcp| tcp.retransmits),
        round_trip: sum(|tcp| tcp.round_trip) as f64 / count as f64 / 1e9,
        congestion_window: sum(|tcp| tcp.congestion_window) / count,
        receive_window: sum(|tcp| tcp.window) / count,
        busy: share(|tcp| tcp.busy),
        window_limited: share(|tcp| tcp.window_limited),
        buffer_limited: share(|tcp| tcp.buffer_limited),
    })
}

fn datagram_flow(before: Ends<'_>, after: Ends<'_>) -> Option<DatagramFlow> {
    let counts = |streams: &[StreamCounts]| -> Vec<DatagramCounts> {
        streams.iter().filter_map(|stream| stream.datagrams).collect()
    };
    let [sent_before, sent_after, before, after] =
        [before.senders(), after.senders(), before.receivers(), after.receivers()].map(counts);
    if after.is_empty() || before.len() != after.len() {
        return None;
    }
    let growth = |before: &[DatagramCounts], after: &[DatagramCounts], figure: fn(&DatagramCounts) -> u64| {
        before.iter().zip(after).map(|(before, after)| figure(after).saturating_sub(figure(before))).sum::<u64>()
    };
    let arrived = |figure| growth(&before, &after, figure);
    Some(DatagramFlow {
        sent: growth(&sent_before, &sent_after, |counts| counts.count),
        arrived: arrived(|counts| counts.count),
        // One missing at the earlier moment may arrive later, and be one too many.
        lost: arrived(|counts| counts.latest).saturating_sub(arrived(|counts| counts.count)),
        dropped_by_receiver: arrived(|counts| counts.dropped),
        reordered: arrived(|counts| counts.reordered),
        jitter: after.iter().map(|counts| counts.jitter as f64).sum::<f64>() / after.len() as f64 / 1e9,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use kelvin_transfer::wire::message::Transport;
    use kelvin_transfer::wire::test_socket::TestSocketOptions;

    use super::*;

    /// A test of this many streams in each direction.
    pub(in crate::commands::net) fn spec(transport: Transport, to_agent: u32, from_agent: u32) -> ThroughputSpec {
        ThroughputSpec {
            transport,
            to_agent,
            from_agent,
            message: 1000,
            bits_per_second: None,
            bytes: None,
            seconds: 10,
            no_delay: false,
            sockets: TestSocketOptions::default(),
        }
    }

    /// The counts of both ends at a second.
    pub(in crate::commands::net) fn sample(
        second: u64,
        here: Vec<StreamCounts>,
        there: Vec<StreamCounts>,
    ) -> ThroughputSample {
        let nanoseconds = second * 1_000_000_000;
        let end = |streams| EndCounts { nanoseconds, busy: CpuUsage::default(), streams };
        let time = Duration::from_secs(second);
        ThroughputSample { due: time, time, here: end(here), there: end(there) }
    }

    pub(in crate::commands::net) fn bytes(bytes: u64) -> StreamCounts {
        StreamCounts { bytes, ..StreamCounts::default() }
    }

    #[test]
    fn rate_is_what_the_receiver_counts() {
        let spec = spec(Transport::Tcp, 1, 2);
        let before = sample(1, vec![bytes(9), bytes(100), bytes(200)], vec![bytes(10), bytes(7), bytes(7)]);
        let after = sample(3, vec![bytes(9000), bytes(1100), bytes(3200)], vec![bytes(2010), bytes(7), bytes(7)]);
        let [to, from] = Direction::all(&spec)[..] else { panic!("two directions") };
        let (to, from) = (to.flow(&before, &after), from.flow(&before, &after));
        assert_eq!((to.bytes, to.bits_per_second, to.seconds), (2000, 8000.0, 2.0));
        assert_eq!((from.bytes, from.stream_bytes), (4000, vec![1000, 3000]));
    }

    #[test]
    fn kernel_counts_are_of_the_sender() {
        let tcp = |retransmits, busy, by_window| StreamCounts {
            tcp: Some(TcpSendCounts {
                round_trip: 4_000_000,
                retransmits,
                congestion_window: 20_000,
                window: 64_000,
                busy,
                window_limited: by_window,
                buffer_limited: 0,
            }),
            ..StreamCounts::default()
        };
        let before = sample(0, vec![tcp(1, 0, 0), tcp(0, 0, 0)], vec![bytes(0), bytes(0)]);
        let after =
            sample(2, vec![tcp(4, 2_000_000_000, 1_000_000_000), tcp(2, 1_000_000_000, 0)], vec![bytes(1), bytes(1)]);
        let flow = Direction::all(&spec(Transport::Tcp, 2, 0))[0].flow(&before, &after).tcp.unwrap();
        assert_eq!((flow.retransmits, flow.round_trip, flow.congestion_window), (5, 0.004, 20_000));
        assert_eq!((flow.busy, flow.window_limited, flow.buffer_limited), (0.75, 0.25, 0.0));
    }

    #[test]
    fn lost_datagrams_are_gaps_in_numbers() {
        let datagrams = |count, latest, dropped, jitter| StreamCounts {
            datagrams: Some(DatagramCounts { count, latest, reordered: 0, dropped, jitter }),
            ..StreamCounts::default()
        };
        let before = sample(0, vec![datagrams(10, 0, 0, 0)], vec![datagrams(8, 9, 0, 0)]);
        let after = sample(1, vec![datagrams(110, 0, 0, 0)], vec![datagrams(100, 109, 3, 2000)]);
        let flow = Direction::all(&spec(Transport::Udp, 1, 0))[0].flow(&before, &after).datagrams.unwrap();
        assert_eq!((flow.sent, flow.arrived, flow.lost, flow.dropped_by_receiver), (100, 92, 8, 3));
        assert_eq!(flow.jitter, 2e-6);
    }

    #[test]
    fn test_of_an_amount_ends_with_its_last_byte() {
        let ended = |bytes, ended| StreamCounts { bytes, ended: Some(ended), ..StreamCounts::default() };
        let before = sample(1, vec![bytes(450)], vec![bytes(400)]);
        let after = sample(9, vec![bytes(500)], vec![ended(500, 2_000_000_000)]);
        let flow = Direction::all(&spec(Transport::Tcp, 1, 0))[0].whole_flow(&after);
        assert_eq!((flow.seconds, flow.bits_per_second), (2.0, 2000.0));
        let rest = Direction::all(&spec(Transport::Tcp, 1, 0))[0].flow_until_end(&before, &after);
        assert_eq!((rest.bytes, rest.seconds), (100, 1.0));
    }
}
