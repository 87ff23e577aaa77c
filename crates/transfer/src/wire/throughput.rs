//! Throughput tests: streams or datagrams in one direction or both, for a time or an amount, as `kelvin net` asks for them.
//!
//! Both ends run the same [`StreamGroup`]: a thread for each stream. The client decides when a test ends, and counts of both ends are
//! compared at its end.

pub mod counts;
mod datagram;
mod pacer;
pub mod streams;

use std::fmt;

use kelvin_core::units;
use serde::{Deserialize, Serialize};

pub use self::counts::{DatagramCounts, EndCounts, StreamCounts, TcpSendCounts};
pub use self::datagram::MIN_DATAGRAM_BYTES;
pub use self::pacer::Pacer;
pub use self::streams::{RunningStreams, StreamGroup, StreamRole, StreamSocket};
use crate::wire::admission::AgentLimits;
use crate::wire::message::Transport;
use crate::wire::test_socket::TestSocketOptions;
use crate::wire::{Error, Result};

/// Streams of one test at most, of both directions together.
pub const MAX_STREAMS: u32 = 128;
/// Bytes of a call of TCP at most, and of a datagram: the most that IPv4 carries.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 20;
/// See [`MAX_MESSAGE_BYTES`].
pub const MAX_DATAGRAM_BYTES: u32 = 65_507;
/// Longest time of a test, in seconds: a day.
pub const MAX_SECONDS: u32 = 86_400;
/// Rates of a stream that can be asked for, in bits per second.
pub const RATES: std::ops::RangeInclusive<u64> = 1000..=10_000_000_000_000;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputSpec {
    /// Its transport.
    pub transport: Transport,
    /// Streams to the agent.
    pub to_agent: u32,
    /// Streams from the agent.
    pub from_agent: u32,
    /// Bytes of each call that sends, or of a datagram.
    pub message: u32,
    /// Bits of payload per second that each stream is offered; as many as it takes without.
    pub bits_per_second: Option<u64>,
    /// Bytes of all streams of a direction together, after which they end.
    pub bytes: Option<u64>,
    /// The agent ends the test after this time, in seconds.
    pub seconds: u32,
    /// Whether TCP sends small messages at once (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Options of all sockets.
    pub sockets: TestSocketOptions,
}

impl ThroughputSpec {
    /// All streams.
    pub fn streams(&self) -> u32 {
        self.to_agent.saturating_add(self.from_agent)
    }

    /// Whether an agent may serve it.
    pub(crate) fn check(&self, limits: &AgentLimits) -> Result<()> {
        let refuse = |what: &str, low: u64, high: u64| {
            Err(Error::RefusedByAgent(format!("{what} must be from {low} to {high} in a test of throughput")))
        };
        let (low, high) = match self.transport {
            Transport::Tcp => (1, MAX_MESSAGE_BYTES),
            Transport::Udp => (MIN_DATAGRAM_BYTES, MAX_DATAGRAM_BYTES),
        };
        match self {
            _ if !(1..=MAX_STREAMS).contains(&self.streams()) => refuse("streams", 1, MAX_STREAMS.into()),
            _ if !(low..=high).contains(&self.message) => refuse("bytes of a message", low.into(), high.into()),
            _ if !(1..=MAX_SECONDS).contains(&self.seconds) => refuse("seconds", 1, MAX_SECONDS.into()),
            Self { bits_per_second: Some(bits), .. } if !RATES.contains(bits) => {
                refuse("bits per second", *RATES.start(), *RATES.end())
            }
            Self { bytes: Some(0), .. } => refuse("bytes", 1, u64::MAX),
            _ => self.sockets.check(limits),
        }
    }
}

impl fmt::Display for ThroughputSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, to_agent, from_agent, message, seconds, sockets, .. } = self;
        write!(out, "tests {transport}: {to_agent} streams in, {from_agent} out, {message} B, {seconds} s")?;
        if let Some(bits) = self.bits_per_second {
            write!(out, ", {} each", units::bit_rate(bits as f64))?;
        }
        write!(out, "{sockets}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(transport: Transport) -> ThroughputSpec {
        ThroughputSpec {
            transport,
            to_agent: 2,
            from_agent: 1,
            message: 1000,
            bits_per_second: Some(1_000_000),
            bytes: None,
            seconds: 10,
            no_delay: false,
            sockets: TestSocketOptions::default(),
        }
    }

    #[test]
    fn every_figure_of_a_request_is_bounded() {
        let limits = AgentLimits::default();
        let refused = |change: fn(&mut ThroughputSpec), transport| {
            let mut spec = spec(transport);
            change(&mut spec);
            spec.check(&limits).map_err(|error| error.to_string())
        };
        for transport in [Transport::Tcp, Transport::Udp] {
            assert_eq!(refused(|_| {}, transport), Ok(()));
            for (change, what) in [
                ((|spec| spec.to_agent = u32::MAX) as fn(&mut ThroughputSpec), "streams must be from 1 to 128"),
                (|spec| (spec.to_agent, spec.from_agent) = (0, 0), "streams must be from 1 to 128"),
                (|spec| (spec.to_agent, spec.from_agent) = (65, 64), "streams must be from 1 to 128"),
                (|spec| spec.message = 0, "bytes of a message must be from"),
                (|spec| spec.message = MAX_MESSAGE_BYTES + 1, "bytes of a message must be from"),
                (|spec| spec.bits_per_second = Some(999), "bits per second must be from 1000"),
                (|spec| spec.bits_per_second = Some(u64::MAX), "bits per second must be from 1000"),
                (|spec| spec.bytes = Some(0), "bytes must be from 1"),
                (|spec| spec.seconds = 0, "seconds must be from 1 to 86400"),
                (|spec| spec.seconds = 86_401, "seconds must be from 1 to 86400"),
                (|spec| spec.sockets.segment = Some(1 << 20), "a segment has from 88 to 32767 bytes"),
                (|spec| spec.sockets.buffers = Some(u32::MAX), "a socket's buffer may have at most"),
            ] {
                let why = refused(change, transport).unwrap_err();
                assert!(why.contains(what), "{transport}: {why}");
            }
        }
        // A datagram holds its number and its time, and is no cookie; and it fits into a packet.
        let datagrams = |bytes| ThroughputSpec { message: bytes, ..spec(Transport::Udp) }.check(&limits).is_ok();
        assert_eq!([16, 17, 65_507, 65_508].map(datagrams), [false, true, true, false]);
    }
}
