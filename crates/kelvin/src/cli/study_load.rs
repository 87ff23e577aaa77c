//! The arguments of `kelvin study load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::{NetworkSetup, RequestPattern};
use kelvin_http::load::server_url::ServerUrl;

use kelvin_core::quantity::{parse_bits_per_second, parse_bytes};

use super::{Word, duration, number_between, one_of, positive_number};

/// Which files users ask for.
const PATTERNS: &[Word<RequestPattern>] = &[
    ("random", RequestPattern::Random, "Any file, all equally likely"),
    ("fixed", RequestPattern::Fixed, "Always the same file"),
    ("sequence", RequestPattern::Sequence, "One file after another"),
    ("zipf", RequestPattern::Zipf, "Any file, a few of them most of the time"),
];

/// Where files are.
const CACHES: &[Word<CacheState>] = &[
    ("cached", CacheState::Cached, "In the page cache"),
    ("uncached", CacheState::Uncached, "On the disk: at least twice what the page cache may hold"),
];

/// Network between client and server on one host.
const NETWORKS: &[Word<NetworkSetup>] = &[
    ("loopback", NetworkSetup::Loopback, "The loopback interface"),
    ("namespaces", NetworkSetup::Namespaces, "A link between two network namespaces; root only"),
];

/// The heading of these options in help.
pub const STUDY_LOAD_HEADING: &str = "Options of the study load";

/// Options of a server of the study's own, and that of one on another host: with one that runs already they say nothing.
const OWN_SERVER_OPTIONS: [&str; 9] =
    ["peer", "cache", "server_memory", "file_count", "file_size", "network", "link", "server_group", "server_options"];

/// How a server under load is studied.
#[derive(Debug, Args)]
#[command(next_help_heading = STUDY_LOAD_HEADING)]
pub struct StudyLoadArgs {
    /// Numbers of users, each measured --rounds times [default: 1 to the larger of 20 and three times the expected
    /// knee]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = number_between(1, 10_000))]
    pub users: Vec<u32>,
    /// Mean think times, a sweep for each
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = duration_or_zero)]
    pub think: Vec<Duration>,
    /// Which files users ask for, a sweep for each [default: random]
    #[arg(long, value_name = "PATTERN,...", value_delimiter = ',', value_parser = one_of(PATTERNS))]
    pub pattern: Vec<RequestPattern>,
    /// Measured time of a step, which is one measurement of a number of users [default: what the budget leaves, and at
    /// least 25 requests]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub step: Option<Duration>,
    /// Whether files are in the page cache, or come from the disk, a sweep for each [default: cached]
    #[arg(long, value_name = "CACHE,...", value_delimiter = ',', value_parser = one_of(CACHES))]
    pub cache: Vec<CacheState>,
    /// Memory of the server, page cache included, from 16M; with --cache cached,uncached that of the uncached
    /// server; root only
    #[arg(long, value_name = "BYTES", value_parser = server_memory_size, conflicts_with = "peer")]
    pub server_memory: Option<u64>,
    /// Files of the set [default: 10000, or as many as fit and may be written]
    #[arg(long, value_name = "N", value_parser = positive_number, conflicts_with = "peer")]
    pub file_count: Option<u64>,
    /// Bytes of each [default: 2MB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, conflicts_with = "peer")]
    pub file_size: Option<u64>,
    /// Network between client and server [default: loopback]
    #[arg(long, value_parser = one_of(NETWORKS), conflicts_with = "peer")]
    pub network: Option<NetworkSetup>,
    /// Limit of the link between two namespaces, in bits a second, such as 100M; root only
    #[arg(long, value_name = "BITS", value_parser = link_rate, conflicts_with = "peer")]
    pub link: Option<u64>,
    /// Control group that the server enters, by its directory; repeatable
    #[arg(long, value_name = "DIR", conflicts_with = "peer")]
    pub server_group: Vec<PathBuf>,
    /// More options of `kelvin serve`, such as '--model pool --threads 4'
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, conflicts_with = "peer")]
    pub server_options: Option<String>,
    /// Study a server that runs already, `kelvin serve --expose-stats`, by the URL of its directory; one that
    /// `kelvin agent --serve` starts on another host is studied by --peer
    #[arg(long, value_name = "URL", requires_all = ["url_list", "stats_token"],
          conflicts_with_all = OWN_SERVER_OPTIONS)]
    pub url: Option<ServerUrl>,
    /// With --url: file with the name of a file of that directory in each line, all of one size
    #[arg(long, value_name = "LIST", requires = "url", conflicts_with_all = OWN_SERVER_OPTIONS)]
    pub url_list: Option<PathBuf>,
    /// With --url: file with the token for that server's statistics
    #[arg(long, value_name = "FILE", requires = "url", conflicts_with_all = OWN_SERVER_OPTIONS)]
    pub stats_token: Option<PathBuf>,
    /// With --url: address of that server's statistics, if not the one that serves files
    #[arg(long, value_name = "ADDRESS:PORT", requires = "url", conflicts_with_all = OWN_SERVER_OPTIONS)]
    pub stats_address: Option<std::net::SocketAddr>,
}

impl StudyLoadArgs {
    /// Where files are to be, each place once.
    pub fn caches(&self) -> Vec<CacheState> {
        let mut caches: Vec<CacheState> = Vec::new();
        for cache in self.cache.iter().copied() {
            if !caches.contains(&cache) {
                caches.push(cache);
            }
        }
        if caches.is_empty() { vec![CacheState::Cached] } else { caches }
    }

    /// The first of these options that was given.
    pub fn first_given_option(&self) -> Option<&'static str> {
        let options = [
            (!self.users.is_empty(), "--users"),
            (!self.think.is_empty(), "--think"),
            (!self.pattern.is_empty(), "--pattern"),
            (self.step.is_some(), "--step"),
            (!self.cache.is_empty(), "--cache"),
            (self.server_memory.is_some(), "--server-memory"),
            (self.file_count.is_some(), "--file-count"),
            (self.file_size.is_some(), "--file-size"),
            (self.network.is_some(), "--network"),
            (self.link.is_some(), "--link"),
            (!self.server_group.is_empty(), "--server-group"),
            (self.server_options.is_some(), "--server-options"),
            (self.url.is_some(), "--url"),
        ];
        options.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}

/// A time, or 0 for none.
fn duration_or_zero(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration(text) }
}

/// Memory in which a server can start.
fn server_memory_size(text: &str) -> Result<u64, String> {
    const MIN_SERVER_MEMORY: u64 = 16 << 20;
    let memory = parse_bytes(text)?;
    if memory < MIN_SERVER_MEMORY { Err("a server needs at least 16M".into()) } else { Ok(memory) }
}

/// Bits a second, with decimal prefixes as links have them.
fn link_rate(text: &str) -> Result<u64, String> {
    const LINK_RATE_HELP: &str = "give bits a second from 100k to 100G, such as 100M";
    let bits = parse_bits_per_second(text).map_err(|_| LINK_RATE_HELP.to_owned())?;
    if (1e5..=1e11).contains(&bits) { Ok(bits as u64) } else { Err(LINK_RATE_HELP.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_rate_has_decimal_prefixes() {
        assert_eq!(link_rate("100M"), Ok(100_000_000));
        assert_eq!(link_rate("1.5G"), Ok(1_500_000_000));
        assert_eq!(link_rate("250000"), Ok(250_000));
        for text in ["", "M", "100Mbit", "-1M", "10k", "1000G", "NaN", "inf"] {
            assert!(link_rate(text).is_err(), "{text}");
        }
    }
}
