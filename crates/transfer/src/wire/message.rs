//! The messages after the handshake: the client requests one test after the other, and the agent answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wire::cpu_usage::CpuUsage;
use crate::wire::file_server::{self, DiskRateReport, FileCacheState, FileServerInfo, FileServerOptions};
use crate::wire::handshake::{HandshakeProtocol, ProgramRole};
use crate::wire::limits_serde::{self, MAX_REASON_BYTES};
use crate::wire::stream_spread::StreamSpread;
use crate::wire::test_socket::{Interface, TcpEndInfo, TestSocketOptions};
use crate::wire::throughput::{EndCounts, ThroughputSpec};

/// What is spoken with an agent.
pub const PROTOCOL: HandshakeProtocol = HandshakeProtocol {
    listener: ProgramRole { program: "kelvin agent", role: "agent" },
    caller: ProgramRole { program: "client of kelvin agent", role: "client" },
    magic: *b"kelvin to agent\n",
    context: "kelvin 2026 agent, Noise pre-shared key",
    version: 9,
};

/// A number that marks a connection, or a datagram, as part of a test.
pub type Cookie = [u8; 16];

/// The transport of a test's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A connection that loses nothing.
    Tcp,
    /// Datagrams, some of which may be lost.
    Udp,
}

/// The direction of streams.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestDirection {
    /// The client sends, and the agent counts what arrives.
    ToAgent,
    /// The agent sends, and the client counts what arrives.
    FromAgent,
}

/// Where the agent's threads of streams run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamPlacement {
    /// Where the scheduler puts them.
    Scheduler,
    /// Each on a CPU of its own, if there are enough.
    OwnCpus,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRequest {
    /// Return every message of this many bytes, until the client ends it.
    Echo {
        /// Their transport.
        transport: Transport,
        /// Bytes of a message.
        bytes: u32,
    },
    /// Receive over this many TCP connections, or send over them without end, and count.
    Streams {
        /// Which of the two.
        direction: TestDirection,
        /// The connections.
        count: u32,
        /// Where their threads are to run.
        placement: StreamPlacement,
        /// Options of their sockets.
        sockets: TestSocketOptions,
    },
    /// Receive and send over streams or by datagrams, in one direction or both.
    Throughput(ThroughputSpec),
    /// Of a test of throughput: stop sending, and report the counts once all that was sent to the agent has arrived.
    StopSending,
    /// Receive numbered datagrams of this many bytes, and count them.
    ReceiveDatagrams {
        /// Bytes of a datagram.
        bytes: u32,
    },
    /// Accept connections one after the other: return the cookie with which each begins, and reset it when the client has
    /// closed it.
    Accept,
    /// Start a server of the agent's files, and keep it until the client ends it or is silent.
    ServeFiles(FileServerOptions),
    /// Name the files that are served, from this one on.
    Names {
        /// How many are known.
        from: u32,
    },
    /// Read the files that are served past the page cache, and report how fast.
    ReadFromDisk,
    /// Have the files that are served in memory or not, from this one on.
    SetCacheState {
        /// Which of the two.
        cache: FileCacheState,
        /// How many are where they are to be.
        from: u32,
    },
    /// Keep the server of files: the client is there.
    KeepAlive,
    /// Report what has arrived so far in the running test, or was sent.
    Count,
    /// End the running test: one over datagrams has no end of its own.
    End,
}

impl fmt::Display for AgentRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo { transport, bytes } => write!(out, "asks for messages of {bytes} bytes back over {transport}"),
            Self::Streams { direction, count, sockets, .. } => {
                let doing = if *direction == TestDirection::ToAgent { "sends" } else { "asks for bytes" };
                write!(out, "{doing} by {count} connections{sockets}")
            }
            Self::Throughput(spec) => spec.fmt(out),
            Self::StopSending => write!(out, "asks for no more to be sent"),
            Self::ReceiveDatagrams { bytes } => write!(out, "sends datagrams of {bytes} bytes"),
            Self::Accept => write!(out, "asks for connections to be accepted"),
            Self::ServeFiles(_) => write!(out, "asks for a server of files"),
            Self::Names { from } => write!(out, "asks for the names of files from {from} on"),
            Self::ReadFromDisk => write!(out, "asks for files to be read from the disk"),
            Self::SetCacheState { cache, from } => {
                let not = if *cache == FileCacheState::Cached { "" } else { "not " };
                write!(out, "asks for files from {from} on {not}to be in memory")
            }
            Self::KeepAlive => write!(out, "asks for the server of files to stay"),
            Self::Count => write!(out, "asks what has been counted"),
            Self::End => write!(out, "asks for the end of a test"),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// An agent's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentResponse {
    /// The test can begin, at this port of the agent's address.
    Ready {
        /// The port.
        port: u16,
        /// The beginning of each connection.
        cookie: Cookie,
    },
    /// What has arrived so far, or was sent, in the agent's own time: a rate is a difference of two of these.
    Counted(TestCounts),
    /// What the streams of a test of throughput have carried so far, as the agent's end of them counts it.
    Carried(EndCounts),
    /// The server of files runs.
    Serving(FileServerInfo),
    /// Names of files that are served.
    Names(#[serde(deserialize_with = "file_server::file_names")] Vec<String>),
    /// How fast the disk gave them.
    Read(DiskRateReport),
    /// This many of the files are where they are to be.
    CacheStateSet(u32),
    /// The server of files is there.
    Alive,
    /// It is over, and this is the agent's account of it.
    Done(TestReport),
    /// It is impossible, or ended by a fault.
    Failed {
        /// Why.
        #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_REASON_BYTES as u64 }, _, _>")]
        why: String,
    },
}

impl AgentResponse {
    /// That it is impossible, for this reason.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed { why: limits_serde::truncate(&why.to_string(), MAX_REASON_BYTES) }
    }
}

/// Bytes of a number, with which each datagram begins: from 1 on, the least significant first.
pub const NUMBER_BYTES: usize = size_of::<u64>();

/// The counts of numbered datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceCounts {
    /// Datagrams that arrived.
    pub arrived: u64,
    /// The highest number among them.
    pub latest: u64,
    /// Datagrams that arrived after one with a higher number, or twice.
    pub reordered: u64,
}

impl SequenceCounts {
    /// Counts one that arrived.
    pub fn record(&mut self, number: u64) {
        self.arrived += 1;
        if number > self.latest {
            self.latest = number;
        } else {
            self.reordered += 1;
        }
    }

    /// Share of the datagrams since an earlier moment that did not arrive, by the gaps in their numbers; `None` if none
    /// arrived.
    pub fn loss_share_since(&self, earlier: &Self) -> Option<f64> {
        let (numbered, arrived) = (self.latest - earlier.latest, self.arrived - earlier.arrived);
        // One missing at the earlier moment may arrive later, and be one too many.
        (numbered > 0).then(|| (1.0 - arrived as f64 / numbered as f64).max(0.0))
    }

    /// Share of the datagrams since an earlier moment that arrived reordered; `None` if none arrived.
    pub fn reordered_share_since(&self, earlier: &Self) -> Option<f64> {
        let arrived = self.arrived - earlier.arrived;
        (arrived > 0).then(|| (self.reordered - earlier.reordered) as f64 / arrived as f64)
    }
}

/// What has arrived by a moment, or, of streams from the agent, was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestCounts {
    /// Bytes of streams, or of datagrams.
    pub bytes: u64,
    /// Nanoseconds since the test began, by the agent's clock, when they were counted.
    pub nanoseconds: u64,
    /// The counts by number of datagrams; none of streams.
    pub numbers: SequenceCounts,
    /// Datagrams that reached the agent's host and found the socket full: the agent was too slow for them.
    pub dropped: u64,
    /// How busy the agent's host was since the last request.
    pub busy: CpuUsage,
    /// What the streams that the agent receives carried since the last request.
    pub spread: Option<StreamSpread>,
}

impl TestCounts {
    /// Whether it can follow this one: no count ever falls, and no stream carries more than the fastest, nor that one more than all.
    pub(crate) fn can_follow(&self, earlier: &Self) -> bool {
        let figures = |counts: &Self| {
            [
                counts.bytes,
                counts.nanoseconds,
                counts.dropped,
                counts.numbers.arrived,
                counts.numbers.latest,
                counts.numbers.reordered,
            ]
        };
        let all_streams = self.bytes.saturating_sub(earlier.bytes);
        figures(self).iter().zip(figures(earlier)).all(|(now, before)| *now >= before)
            && self.spread.is_none_or(|StreamSpread { slowest, fastest }| slowest <= fastest && fastest <= all_streams)
    }
}

/// The agent's account of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestReport {
    /// What arrived: whole messages of an echo, bytes of streams and of counted datagrams, connections. Of streams from the
    /// agent, bytes sent.
    pub arrived: u64,
    /// Nanoseconds of CPU time of the threads that served it: in user mode, and in the kernel.
    pub cpu_nanoseconds: [u64; 2],
    /// Most tests that the agent served at one time, including this one: with more than one, each had only a share of it.
    pub max_concurrent_tests: u32,
    /// The agent's own interface, where its system names it.
    pub interface: Option<Interface>,
    /// The agent's socket of the first of the streams, where its system reports on it.
    pub stream: Option<TcpEndInfo>,
    /// Segments that the agent sent again, over all streams.
    pub retransmits: u64,
    /// CPUs that the agent may use.
    pub cpus: u32,
    /// Whether each stream had one of these to itself.
    pub had_own_cpus: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_reordering_follow_numbers() {
        let zero = SequenceCounts::default();
        let mut counts = zero;
        [1, 2, 5, 4, 8].into_iter().for_each(|number| counts.record(number));
        assert_eq!(counts, SequenceCounts { arrived: 5, latest: 8, reordered: 1 });
        assert_eq!(
            (counts.loss_share_since(&zero), counts.reordered_share_since(&zero)),
            (Some(3.0 / 8.0), Some(1.0 / 5.0))
        );
        assert_eq!((zero.loss_share_since(&zero), zero.reordered_share_since(&zero)), (None, None));
        let mut later = counts;
        [9, 10, 3].into_iter().for_each(|number| later.record(number));
        assert_eq!(later.loss_share_since(&counts), Some(0.0), "the late one is one of those counted as lost before");
    }

    #[test]
    fn impossible_counts_cannot_follow() {
        let earlier = TestCounts { bytes: 1000, nanoseconds: 5, ..TestCounts::default() };
        let follows = |bytes, spread: Option<(u64, u64)>| {
            let spread = spread.map(|(slowest, fastest)| StreamSpread { slowest, fastest });
            TestCounts { bytes, nanoseconds: 6, spread, ..TestCounts::default() }.can_follow(&earlier)
        };
        assert!(follows(1000, None) && follows(4000, Some((1000, 2000))) && follows(4000, Some((0, 3000))));
        assert!(!follows(999, None), "fewer bytes than before");
        assert!(!follows(4000, Some((2001, 2000))), "the slowest carries more than the fastest");
        assert!(!follows(4000, Some((0, 3001))), "the fastest carries more than all");
    }
}
