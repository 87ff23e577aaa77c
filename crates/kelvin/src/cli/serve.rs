//! The arguments of `kelvin serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use kelvin_core::quantity::MinProgress;
use kelvin_http::serve::ServerModel;
use kelvin_http::serve::host::HostName;
use kelvin_http::serve::send_strategy::SendStrategy;

/// `kelvin serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Directory to serve, and nothing outside of it
    pub root: PathBuf,
    /// IP address to listen on, with :PORT unless it is 8080; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = parse_address)]
    pub listen: SocketAddr,
    /// A name by which the server may be asked for, besides IP addresses, localhost and names below it; may be given several times.
    /// [default: none on loopback, else any]
    #[arg(long, value_name = "NAME")]
    pub host: Vec<HostName>,
    /// List directories that have no index.html
    #[arg(long)]
    pub index: bool,
    /// Who serves connections: epoll (a few threads, each of which serves many connections as they become ready), uring (the same by
    /// requests to an io_uring, of Linux 6.1 or later), fork (a process for each connection), thread (a thread for each connection)
    /// or pool (this many threads as --threads says, each of which serves one connection until its end)
    #[arg(long, value_name = "MODEL", default_value_t)]
    pub model: ServerModel,
    /// By which calls the bytes of files go: auto (files up to 16 KiB are read and sent with their heads; larger ones go from a mapping or by
    /// sendfile, whichever is shown to give clients of this host, or of others, answers of that size sooner, and at the end it says so), rw (read and sent), mmap (sent from a mapping), sendfile or splice (through a pipe); of uring, auto is rw, and the others are not
    #[arg(long, value_name = "CALLS", default_value_t)]
    pub send: SendStrategy,
    /// Threads that serve, 1 to 1024 [default: one for each CPU that this process may use; 64 of a pool]; not with --model fork or
    /// thread, which have one for each connection
    #[arg(long, value_name = "N", value_parser = super::number_between(1, 1024))]
    pub threads: Option<u32>,
    /// Congestion control by which connections send, as net.ipv4.tcp_available_congestion_control lists them [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub congestion_control: Option<String>,
    /// Most connections at one time, as far as there are descriptors for them; one more is answered 503
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = super::number_between(1, 1_000_000))]
    pub connections: u32,
    /// End the connection of a client that takes fewer bytes of an answer in so much time
    #[arg(long, value_name = "BYTES/TIME", default_value = "4KiB/2min")]
    pub min_progress: MinProgress,
    /// Answer GET /.kelvin/stats with what this host and the server have used, to clients with the token; serve nothing below
    /// .kelvin in ROOT
    #[arg(long, requires = "token_file")]
    pub expose_stats: bool,
    /// File with that token, which clients send as Authorization: Bearer TOKEN
    #[arg(long, value_name = "FILE", requires = "expose_stats")]
    pub token_file: Option<PathBuf>,
    /// IP address to answer it on, so that it is answered however busy the server is [default: the address of --listen, with the
    /// next port]
    #[arg(long, value_name = "ADDRESS", requires = "expose_stats", value_parser = parse_stats_address)]
    pub stats_listen: Option<SocketAddr>,
}

impl ServeArgs {
    /// Where statistics are answered.
    pub fn stats_address(&self) -> SocketAddr {
        let next = match self.listen.port() {
            // The system chooses both.
            0 => 0,
            port => port.checked_add(1).unwrap_or(0),
        };
        self.stats_listen.unwrap_or_else(|| SocketAddr::new(self.listen.ip(), next))
    }
}

/// The port of an address that has none: the one that is usual beside 80, which belongs to root.
const DEFAULT_PORT: u16 = 8080;

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    kelvin_transfer::wire::address::parse_with_default_port(text, DEFAULT_PORT)
}

fn parse_stats_address(text: &str) -> Result<SocketAddr, String> {
    kelvin_transfer::wire::address::parse_with_default_port(text, DEFAULT_PORT + 1)
}
