//! The arguments of `kelvin serve`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use kelvin_core::quantity::MinProgress;
use kelvin_http::serve::ServerModel;
use kelvin_http::serve::access_log::{LogFormat, LogTarget};
use kelvin_http::serve::cache_control::CacheRule;
use kelvin_http::serve::host::HostName;
use kelvin_http::serve::send_strategy::SendStrategy;
use kelvin_http::serve::server_user::ServerUser;

/// `kelvin serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Directory to serve; nothing outside it is served
    pub root: PathBuf,
    /// Print the addresses, and at the end what was served, each as one line of JSON
    #[arg(long, short_alias = 'J')]
    pub json: bool,
    /// IP address to listen on, with :PORT unless it is 8080; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = parse_address)]
    pub listen: SocketAddr,
    /// Listen at this path instead, for programs of this host; a socket that a server has left there is replaced
    #[arg(long, value_name = "PATH", conflicts_with_all = ["listen", "expose_stats", "congestion_control"])]
    pub unix_socket: Option<PathBuf>,
    /// Permissions of that socket: who may write may connect
    #[arg(long, value_name = "MODE", default_value = "600", requires = "unix_socket", value_parser = parse_mode)]
    pub socket_mode: u32,
    /// Serve at the one socket that systemd passes to this process (a unit of type .socket with Accept=no)
    #[arg(long, conflicts_with_all = ["listen", "unix_socket", "expose_stats"])]
    pub socket_activation: bool,
    /// Serve by TLS, at https://, with this certificate and those of the authorities between it and the root (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "expose_stats")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM, without a passphrase); others must not have access to a file of this user's
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Serve as this user, with this group or the user's own; root binds the socket and reads token, certificate and key,
    /// and all other files are opened after that
    #[arg(long, value_name = "USER[:GROUP]")]
    pub user: Option<ServerUser>,
    /// A host name that requests may use, besides IP addresses, localhost and names below it; repeatable [default: none
    /// on loopback, else any]
    #[arg(long, value_name = "NAME")]
    pub host: Vec<HostName>,
    /// List directories that have no index.html
    #[arg(long)]
    pub index: bool,
    /// Send FILE.br, FILE.zst or FILE.gz instead of FILE to clients that accept that coding, unless it is older
    #[arg(long)]
    pub precompressed: bool,
    /// Cache-Control of answers with files; with an ending of their names before it, such as .css:max-age=3600, of those
    /// alone; repeatable
    #[arg(long, value_name = "VALUE")]
    pub cache_control: Vec<CacheRule>,
    /// Serving model: epoll (a few threads, each with an event loop over many connections), uring (event loops on
    /// io_uring, Linux 6.1 or later), poll (event loops on poll(2)), fork (a process for each connection), thread (a
    /// thread for each connection) or pool (as many threads as --threads says, each of which serves one connection
    /// until it ends)
    #[arg(long, value_name = "MODEL", default_value_t)]
    pub model: ServerModel,
    /// System calls that send the bytes of files: auto (files up to 16 KiB are read and sent with their heads; larger
    /// ones go from a mapping or by sendfile, whichever is measured to answer clients of this host, or of others,
    /// sooner at that size; the end of the output says which), rw (read and sent), mmap (sent from a mapping), sendfile
    /// or splice (through a pipe); --model uring and TLS have only rw, which auto means there
    #[arg(long, value_name = "CALLS", default_value_t)]
    pub send: SendStrategy,
    /// Threads that serve, 1 to 1024 [default: one for each CPU that this process may use; 64 of a pool]; not with --model fork or
    /// thread, which have one for each connection
    #[arg(long, value_name = "N", value_parser = super::number_between(1, 1024))]
    pub threads: Option<u32>,
    /// Congestion control by which connections send, as net.ipv4.tcp_available_congestion_control lists them [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub congestion_control: Option<String>,
    /// Maximum concurrent connections, as far as file descriptors allow; further ones are answered 503
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = super::number_between(1, 1_000_000))]
    pub connections: u32,
    /// Close the connection of a client that receives fewer bytes of an answer in this time
    #[arg(long, value_name = "BYTES/TIME", default_value = "4KiB/2min")]
    pub min_progress: MinProgress,
    /// Append a line for each answered request to this file, or with - to standard output
    #[arg(long, value_name = "FILE", value_parser = parse_log_target)]
    pub access_log: Option<LogTarget>,
    /// Format of its lines, as of nginx and Apache: common, or combined (with Referer and User-Agent)
    #[arg(long, value_name = "FORMAT", default_value_t, requires = "access_log")]
    pub log_format: LogFormat,
    /// Answer GET /.kelvin/stats with the resource use of this host and the server, to clients with the token; serve
    /// nothing below .kelvin in ROOT
    #[arg(long, requires = "token_file")]
    pub expose_stats: bool,
    /// File with that token, which clients send as Authorization: Bearer TOKEN
    #[arg(long, value_name = "FILE", requires = "expose_stats")]
    pub token_file: Option<PathBuf>,
    /// Separate IP address for these statistics, answered even when the server is busy [default: the address of
    /// --listen, with the next port]
    #[arg(long, value_name = "ADDRESS", requires = "expose_stats", value_parser = parse_stats_address)]
    pub stats_listen: Option<SocketAddr>,
}

impl ServeArgs {
    /// Where statistics are answered.
    pub fn stats_address(&self) -> SocketAddr {
        let next_port = match self.listen.port() {
            // The system chooses both.
            0 => 0,
            port => port.checked_add(1).unwrap_or(0),
        };
        self.stats_listen.unwrap_or_else(|| SocketAddr::new(self.listen.ip(), next_port))
    }
}

/// The port of an address that has none: the one that is usual beside 80, which belongs to root.
const DEFAULT_PORT: u16 = 8080;

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or_else(|| "give permissions in octal digits, such as 660".into())
}

fn parse_log_target(text: &str) -> Result<LogTarget, Infallible> {
    Ok(if text == "-" { LogTarget::StandardOutput } else { LogTarget::File(text.into()) })
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    kelvin_transfer::wire::address::parse_with_default_port(text, DEFAULT_PORT)
}

fn parse_stats_address(text: &str) -> Result<SocketAddr, String> {
    kelvin_transfer::wire::address::parse_with_default_port(text, DEFAULT_PORT + 1)
}
