//! The arguments of `kelvin load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kelvin_http::load::access_pattern::AccessPattern;
use kelvin_http::load::load_share::LoadShare;
use kelvin_http::load::schedule::TimeDistribution;
use kelvin_http::load::server_url::ServerUrl;
use kelvin_http::load::slo::{FailureThreshold, LatencyObjective};
use kelvin_http::load::stages::StageList;
use kelvin_http::load::verify::Verify;
use kelvin_store::Tag;

use super::{AnswerArgs, Word, duration, number_between, one_of, whole_number};

/// How times between requests, or of thought, are distributed.
const ARRIVALS: &[Word<TimeDistribution>] = &[
    ("constant", TimeDistribution::Constant, "All equal"),
    ("exponential", TimeDistribution::Exponential, "Exponentially: with --rate a Poisson process"),
    ("poisson", TimeDistribution::Exponential, ""),
];

/// What of a body is compared.
const VERIFIED: &[Word<Verify>] =
    &[("content", Verify::Content, "Its BLAKE3 hash"), ("length", Verify::Length, "Its length")];

/// `kelvin load`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LoadArgs {
    /// What else to do
    #[command(subcommand)]
    pub command: Option<LoadCommand>,
    /// URL to request, such as http://localhost:8080/index.html; with --files, the server
    #[arg(required_unless_present_any = ["files", "replay"])]
    pub url: Option<ServerUrl>,
    /// Connect to the Unix socket at this path; the URL then gives what is requested, and the Host header
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,
    /// File with the path or URL of a file in each line
    #[arg(long, value_name = "LIST", conflicts_with = "replay")]
    pub files: Option<PathBuf>,
    /// File (TOML) with kinds of requests, each with its weight, paths, method, headers and body: they are sent at random by
    /// their weights, and have figures of their own
    #[arg(long, value_name = "FILE", requires = "url", conflicts_with_all = ["files", "pattern", "replay", "stages", "user_stages"])]
    pub mix: Option<PathBuf>,
    /// Order of requests: random, fixed (always the first), sequence, zipf or zipf:EXPONENT
    #[arg(long, default_value = "random", conflicts_with = "replay")]
    pub pattern: AccessPattern,
    /// Closed loop: number of users, each of which sends its next request after the response, 1 to 100000; several, such
    /// as 1,2,4, run one after the other [default: 1]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = number_between(1, 100_000))]
    users: Vec<u32>,
    /// Think time of a user after each response, such as 1s or 50ms [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["slo", "replay"])]
    pub think: Option<Duration>,
    /// Open loop: requests per second, independent of responses; several, such as 100,200, run one after the other, after
    /// those of --users
    #[arg(long, short_aliases = ['R', 'q'], value_name = "R,...", value_delimiter = ',', value_parser = request_rate)]
    pub rate: Vec<f64>,
    /// Distribution of the times between requests of --rate, or of think times
    #[arg(long, value_parser = one_of(ARRIVALS), default_value = "constant", conflicts_with = "replay")]
    pub arrivals: TimeDistribution,
    /// Open loop whose rate changes: times and requests per second, such as 10s:100,30s:500, with figures of each stage
    #[arg(long, value_name = "TIME:R,...", conflicts_with_all = ["users", "rate", "slo", "replay", "requests", "duration", "warm_up"])]
    pub stages: Option<StageList<f64>>,
    /// Closed loop whose number of users changes: times and users, such as 10s:4,30s:64, with figures of each stage
    #[arg(long, value_name = "TIME:N,...", conflicts_with_all = ["users", "rate", "slo", "replay", "requests", "duration", "warm_up", "stages", "concurrency"])]
    pub user_stages: Option<StageList<u32>>,
    /// Open loop: maximum connections, and so requests in flight, with --http2 --streams of them on each; 1 to 100000 [default: 1000]
    #[arg(long, value_name = "N", value_parser = number_between(1, 100_000))]
    connections: Option<u32>,
    /// As wrk, oha and hey have it: --users, or with --rate, --slo or --replay --connections
    #[arg(short = 'c', value_name = "N", value_parser = number_between(1, 100_000), conflicts_with_all = ["users", "connections"])]
    concurrency: Option<u32>,
    /// Find the highest rate that meets a response time without errors, such as p99:50ms, or with a share of them, such
    /// as p99:50ms,errors:1%
    #[arg(long, value_name = "OBJECTIVE", conflicts_with_all = ["users", "rate", "replay"])]
    pub slo: Option<LatencyObjective>,
    /// Replay the requests of an access log (common or combined format), or of a HAR file as browsers record it, at its times
    #[arg(long, value_name = "LOG", requires = "url", conflicts_with_all = ["users", "rate", "verify", "warm_up"])]
    pub replay: Option<PathBuf>,
    /// With --replay: this many times as fast
    #[arg(long, value_name = "FACTOR", default_value = "1", requires = "replay", value_parser = request_rate)]
    #[arg(conflicts_with_all = ["users", "think", "rate", "slo", "verify", "warm_up"])]
    pub speed: f64,
    /// Part of this host in a load that several hosts make together, such as 2/4, the second of four: --rate, --users,
    /// --connections and --replay are those of all
    #[arg(long, value_name = "N/HOSTS", conflicts_with = "slo")]
    pub share: Option<LoadShare>,
    /// Begin at this time of day, as other hosts do: such as 2026-11-30T08:00:00Z, or @1796025600 in seconds since 1970; of several
    /// loads each begins 3 s after the planned end of the one before
    #[arg(long, value_name = "TIME", value_parser = time_of_day, conflicts_with = "slo")]
    pub start_at: Option<Timestamp>,
    /// Time to measure each load [default: 10s; 5s with several loads or with --slo; all of the log with --replay]
    #[arg(long, short = 'd', short_alias = 'z', value_name = "TIME", value_parser = load_duration)]
    pub duration: Option<Duration>,
    /// Send exactly this many requests, in each load, and measure from the first to the last answer; with --duration, what
    /// ends first
    #[arg(long, short = 'n', value_name = "N", value_parser = number_between(1, 1_000_000_000))]
    #[arg(conflicts_with_all = ["slo", "replay", "warm_up"])]
    pub requests: Option<u32>,
    /// Time before the measurement that is left out [default: a tenth of it, 10s at most]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "no_warm_up")]
    pub warm_up: Option<Duration>,
    /// Measure from the first request on
    #[arg(long)]
    pub no_warm_up: bool,
    /// Maximum time to wait for a response
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    /// Compare bodies with the first of each file, or with those in --root: by their BLAKE3 hash, or only by their length
    #[arg(long, value_name = "BY", value_parser = one_of(VERIFIED), num_args = 0..=1, require_equals = true, default_missing_value = "content")]
    pub verify: Option<Verify>,
    /// With --verify: directory that holds the correct files
    #[arg(long, value_name = "DIR", requires = "verify", conflicts_with = "replay")]
    pub root: Option<PathBuf>,
    /// Header of every request, such as 'Accept: text/html'; repeatable
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// Method of every request
    #[arg(long, short_aliases = ['m', 'X'], default_value = "GET", conflicts_with = "replay")]
    pub method: String,
    /// Body of every request; @FILE reads it from a file, @- from standard input
    #[arg(long, value_name = "BODY", conflicts_with = "replay")]
    pub body: Option<String>,
    /// File with the body of every request; - is standard input
    #[arg(long, short = 'D', value_name = "FILE", conflicts_with_all = ["body", "replay"])]
    pub body_file: Option<PathBuf>,
    /// Open a connection for each request, and close it after the response [default: connections stay open]
    #[arg(long, alias = "disable-keepalive")]
    pub no_keepalive: bool,
    /// Speak HTTP/2: as TLS agrees on it with https (ALPN), else from the first byte on (prior knowledge)
    #[arg(long, conflicts_with = "no_keepalive")]
    pub http2: bool,
    /// With --http2: maximum requests in flight on each connection, 1 to 1000. Users, each of which has one in flight, share as few
    /// connections as that takes in each thread; an open loop fills a connection before it opens another one [default: 1]
    #[arg(long, value_name = "N", requires = "http2", value_parser = number_between(1, 1000))]
    streams: Option<u32>,
    /// Certificates (PEM) to check https targets against: of authorities, or the server's own [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Accept any certificate of an https target
    #[arg(long, short = 'k', conflicts_with = "ca")]
    pub insecure: bool,
    /// Random seed
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number::<u64>, allow_negative_numbers = true)]
    pub seed: u64,
    /// Threads that send requests, each with its share of the users, of the rate and of the connections, 1 to 4096 [default:
    /// one for each CPU of --cpu, else 1]
    #[arg(long, short = 't', value_name = "N", value_parser = thread_count)]
    pub threads: Option<u32>,
    /// CPU of each thread, such as 2 or 2,3 [default: the last allowed ones if the server is on this host and they leave it
    /// one, else as the system places them]
    #[arg(long, value_name = "CPU,...", value_delimiter = ',', value_parser = whole_number::<u32>, allow_negative_numbers = true)]
    pub cpu: Vec<u32>,
    /// Let the system place the threads in any case
    #[arg(long, conflicts_with = "cpu")]
    pub no_pin: bool,
    /// Draw throughput against response time of all loads, as SVG
    #[arg(long, value_name = "FILE", conflicts_with_all = ["slo", "replay"])]
    pub plot: Option<PathBuf>,
    /// Exit with status 1 on a condition, such as 'p99>50ms', 'errors>0', 'errors>1%' or 'rate<1000'; repeatable
    #[arg(long, value_name = "CONDITION")]
    pub fail_on: Vec<FailureThreshold>,
    /// With --json: a tag of the result, such as node=n17, by which `kelvin load merge` names this generator; repeatable
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub tags: Vec<Tag>,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// What else `kelvin load` does.
#[derive(Debug, Subcommand)]
pub enum LoadCommand {
    /// Merge the results of generators that loaded a server at once: exact percentiles, rate, and which generators differ
    #[command(after_help = help!("load-merge"))]
    Merge(LoadMergeArgs),
}

/// `kelvin load merge`.
#[derive(Debug, Args)]
pub struct LoadMergeArgs {
    /// Files of `kelvin load --json`, one of each generator; - is standard input
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Merge loads on targets with different URLs: one server under several names, or several that do the same
    #[arg(long)]
    pub different_targets: bool,
    /// Draw throughput against response time of all loads, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Exit with status 1 on a condition, such as 'p99>50ms', 'errors>0', 'errors>1%' or 'rate<1000'; repeatable
    #[arg(long, value_name = "CONDITION")]
    pub fail_on: Vec<FailureThreshold>,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

impl LoadArgs {
    /// Whether requests are due at times, whatever their responses.
    pub fn is_open_loop(&self) -> bool {
        !self.rate.is_empty() || self.slo.is_some() || self.replay.is_some() || self.stages.is_some()
    }

    /// The numbers of users.
    pub fn users(&self) -> Vec<u32> {
        let concurrency = self.concurrency.filter(|_| !self.is_open_loop());
        self.users.iter().copied().chain(concurrency).collect()
    }

    /// Most connections of an open loop.
    pub fn connections(&self) -> Option<u32> {
        self.connections.or(self.concurrency.filter(|_| self.is_open_loop()))
    }

    /// Most requests in flight on each connection of HTTP/2; none if HTTP/1.1 is to be spoken.
    pub fn http2_streams(&self) -> Option<u32> {
        self.http2.then(|| self.streams.unwrap_or(1))
    }

    /// How many threads send requests.
    pub fn thread_count(&self) -> u32 {
        self.threads.unwrap_or_else(|| self.cpu.len().max(1) as u32)
    }

    /// The option that this number comes from, as it was given.
    pub fn thread_option(&self) -> String {
        match self.threads {
            Some(threads) => format!("--threads {threads}"),
            None => self.cpu_option(),
        }
    }

    /// The CPUs of the threads, as they were given.
    pub fn cpu_option(&self) -> String {
        format!("--cpu {}", self.cpu.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
    }
}

/// The time of a load. Other programs have the body of a request under `-d`.
fn load_duration(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|error| format!("{error}; the body of a request is --body"))
}

/// A number of threads. Other programs have a time-out under `-t`.
fn thread_count(text: &str) -> Result<u32, String> {
    number_between(1, 4096)(text).map_err(|error| format!("{error}; a time-out is --timeout"))
}

/// A time of day: as RFC 3339 has it, or `@` and seconds since 1970.
fn time_of_day(text: &str) -> Result<Timestamp, String> {
    let time = match text.strip_prefix('@') {
        Some(seconds) => seconds_since_1970(seconds),
        None => text.parse().ok(),
    };
    time.filter(|time| *time >= Timestamp::UNIX_EPOCH).ok_or_else(|| {
        "it must be a time such as 2026-11-30T08:00:00Z, or @1796025600 in seconds since 1970".to_owned()
    })
}

/// A time from seconds, with at most nine decimal places.
fn seconds_since_1970(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty() || fraction.len() > 9 || !is_number(seconds) || !is_number(fraction) {
        return None;
    }
    let nanoseconds = format!("{fraction:0<9}").parse().ok()?;
    Timestamp::new(seconds.parse().ok()?, nanoseconds).ok()
}

/// A rate or a factor.
fn request_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1_000_000.0).contains(rate));
    rate.ok_or_else(|| "it must be a number from 0.001 to 1000000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_day_is_rfc_3339_or_seconds() {
        let time = |text: &str| time_of_day(text).map(|time| time.as_nanosecond());
        assert_eq!(time("2026-11-30T08:00:00Z"), Ok(1_796_025_600_000_000_000));
        assert_eq!(time("2026-11-30T09:00:00.25+01:00"), Ok(1_796_025_600_250_000_000));
        assert_eq!((time("@1796025600"), time("@0.000000007")), (Ok(1_796_025_600_000_000_000), Ok(7)));
        for text in
            ["", "@", "@-1", "@1e9", "@+1", "@.5", "@1.0000000001", "@99999999999999", "08:00", "2026-11-30", "now"]
        {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
