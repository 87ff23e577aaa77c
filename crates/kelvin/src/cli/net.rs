//! The arguments of `kelvin net`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use kelvin_core::quantity::{parse_bits_per_second, parse_bytes, parse_duration_within};
use kelvin_transfer::wire::test_socket::SEGMENTS;
use kelvin_transfer::wire::throughput::{MAX_MESSAGE_BYTES, MAX_SECONDS, MAX_STREAMS, RATES};

use super::{AnswerArgs, number_between, positive_number, socket_buffers};

/// Shortest time from one line to the next.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time: that of an agent's test.
const MAX_TIME: Duration = Duration::from_secs(MAX_SECONDS as u64);

/// `kelvin net`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("peer").args(["host", "client"]))]
pub struct NetArgs {
    /// Host that runs `kelvin agent`, with :PORT unless it is 27315 [default: this host, over loopback, without an agent]
    #[arg(value_name = "HOST[:PORT]", value_parser = NonEmptyStringValueParser::new())]
    host: Option<String>,
    /// The same as HOST
    #[arg(long, short = 'c', hide = true, value_name = "HOST[:PORT]", value_parser = NonEmptyStringValueParser::new())]
    client: Option<String>,
    /// File with that agent's secret
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub token_file: Option<PathBuf>,
    /// Streams at once in each direction, each by a thread
    #[arg(long, short = 'P', visible_alias = "parallel", value_name = "N", default_value = "1", value_parser = number_between(1, MAX_STREAMS))]
    pub streams: u32,
    /// From HOST to here [default: from here to HOST]
    #[arg(long, short = 'R')]
    pub reverse: bool,
    /// Both directions at once
    #[arg(long, conflicts_with = "reverse")]
    pub bidir: bool,
    /// Datagrams instead of TCP, with loss, reordering and jitter
    #[arg(long, short = 'u')]
    pub udp: bool,
    /// Bits of payload a second that each stream is offered, such as 100M or 1G; 0 for as many as possible [default: as many as
    /// possible; 1M with --udp]
    #[arg(long, short = 'b', visible_alias = "bandwidth", value_name = "RATE", value_parser = bit_rate)]
    pub bitrate: Option<u64>,
    /// Time that counts [default: 10s]
    #[arg(long, short = 't', short_alias = 'd', alias = "duration", value_name = "TIME", value_parser = test_time)]
    pub time: Option<Duration>,
    /// Send this many bytes instead, of all streams of a direction together
    #[arg(long, short = 'n', value_name = "BYTES", conflicts_with_all = ["time", "warm_up"], value_parser = amount)]
    pub bytes: Option<u64>,
    /// Send this many messages instead, of all streams of a direction together
    #[arg(long, short = 'k', visible_alias = "blockcount", value_name = "N", conflicts_with_all = ["time", "warm_up", "bytes"], value_parser = positive_number)]
    pub messages: Option<u64>,
    /// Time before it, which does not count
    #[arg(long, short = 'O', visible_alias = "omit", value_name = "TIME", value_parser = test_time)]
    pub warm_up: Option<Duration>,
    /// Bytes of each call that sends, or of a datagram [default: 128k; of a datagram, what fits into a packet]
    #[arg(long, short = 'l', visible_alias = "length", value_name = "BYTES", value_parser = message_bytes)]
    pub message: Option<u32>,
    /// Time from one line to the next; 0 for the result alone
    #[arg(long, short = 'i', value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Size of each socket buffer at both ends, 4k to 1G [default: autotuned by the kernel; 4M with --udp]
    #[arg(long, short = 'w', visible_alias = "window", value_name = "BYTES", value_parser = socket_buffers)]
    pub socket_buffers: Option<u32>,
    /// Congestion control at both ends [default: each host's]
    #[arg(long, short = 'C', visible_alias = "congestion", value_name = "NAME", conflicts_with = "udp")]
    pub congestion_control: Option<String>,
    /// Largest payload of a segment, in bytes
    #[arg(long, short = 'M', visible_alias = "set-mss", value_name = "BYTES", conflicts_with = "udp", value_parser = number_between(*SEGMENTS.start(), *SEGMENTS.end()))]
    pub segment: Option<u32>,
    /// Send small messages at once (TCP_NODELAY)
    #[arg(long, short = 'N', conflicts_with = "udp")]
    pub no_delay: bool,
    /// Only to an IPv4 address of HOST
    #[arg(long, short = '4', visible_alias = "version4", conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Only to an IPv6 address of HOST
    #[arg(long, short = '6', visible_alias = "version6")]
    pub ipv6: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

impl NetArgs {
    /// The host, unless it is this one.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref().or(self.client.as_deref())
    }
}

/// A rate, of which letters of either case are multiples by 1000; 0 where there is none.
fn bit_rate(text: &str) -> Result<u64, String> {
    let unit = |letter: char| match letter {
        'K' => 'k',
        'm' => 'M',
        'g' => 'G',
        letter => letter,
    };
    let bits = parse_bits_per_second(&text.chars().map(unit).collect::<String>())?;
    match bits as u64 {
        bits if bits == 0 || RATES.contains(&bits) => Ok(bits),
        _ => Err("it must be from 1k to 10000G, or 0 for as many as possible".into()),
    }
}

fn test_time(text: &str) -> Result<Duration, String> {
    parse_duration_within(text, Duration::from_millis(100), MAX_TIME)
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0.0) => Ok(Duration::ZERO),
        _ => parse_duration_within(text, MIN_INTERVAL, MAX_TIME)
            .map_err(|error| format!("{error}; 0 for the result alone")),
    }
}

fn message_bytes(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| (1..=MAX_MESSAGE_BYTES).contains(bytes));
    bytes.ok_or_else(|| "it must be from 1 to 1M".into())
}

fn amount(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes > 0 { Ok(bytes) } else { Err("it must be at least 1".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_iperf3() {
        assert_eq!(
            ["0", "1k", "100K", "10m", "1.5G", "1g"].map(|text| bit_rate(text).unwrap()),
            [0, 1000, 100_000, 10_000_000, 1_500_000_000, 1_000_000_000]
        );
        for text in ["", "999", "-1", "10M/8", "1e9", "20000G", "nan"] {
            assert!(bit_rate(text).is_err(), "{text}");
        }
        assert_eq!((interval("0"), interval("0.5")), (Ok(Duration::ZERO), Ok(Duration::from_millis(500))));
        assert!(interval("0.01").unwrap_err().contains("0 for the result alone"));
        assert_eq!((message_bytes("8K"), message_bytes("1M")), (Ok(8192), Ok(1 << 20)));
        assert!(message_bytes("0").is_err() && message_bytes("2M").is_err() && amount("0").is_err());
        assert_eq!((test_time("10"), test_time("1d")), (Ok(Duration::from_secs(10)), Ok(MAX_TIME)));
        assert!(test_time("0").is_err() && test_time("2d").is_err());
    }
}
