//! `kelvin serve`: the files below a directory over HTTP.

use kelvin_core::IndirectSort;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use kelvin_core::json;
use kelvin_http::serve::access_log::{AccessLog, LogTarget};
use kelvin_http::serve::cache_control::CacheRules;
use kelvin_http::serve::limits::ServerLimits;
use kelvin_http::serve::listener::UnixSocket;
use kelvin_http::serve::send_strategy::bulk_method::{BulkMethod, BulkStats, BulkTotals, PeerLocality, SizeClass};
use kelvin_http::serve::stats_endpoint::{STATS_PATH, StatsAccess};
use kelvin_http::serve::tls::TlsIdentity;
use kelvin_http::serve::tls_totals::TlsTotals;
use kelvin_http::serve::{Error, Server, ServerAccess, ServerModel, ServerSetup, ServerTotals};
use kelvin_sys::{passed_sockets, stop_signals};
use kelvin_transfer::wire::address::{DisplayAddr, UrlAddr};
use serde::Serialize;

use super::agent::LOG_FLUSH_TIMEOUT;
use super::agent::log::Log;
use crate::cli::ServeArgs;
use crate::cli_error::CliError;
use crate::output;
use crate::peer_agent::read_secret;
use crate::socket_options::check_congestion_control;

/// Threads of a pool, unless others are asked for: as many connections are served at one time.
const DEFAULT_POOL_THREADS: usize = 64;

/// What it costs to encrypt, said where it begins.
const TLS_EXPLANATION: &str = "by TLS 1.2 or 1.3: sendfile and mappings cannot encrypt, so that files are read into memory and encrypted \
                               there; the end of the output says how long that took";

/// Serves until asked to stop. Prints its address on standard output, and what it did on standard error.
pub fn serve(args: &ServeArgs) -> Result<(), CliError> {
    stop_signals::install_server_handlers()?;
    // With fewer descriptors it serves fewer clients, and reports their number.
    let _ = kelvin_sys::process::raise_open_file_limit();
    let access_log = open_access_log(args)?;
    let server = listen(args, access_log.clone())?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    let (address, url) = match server.path() {
        Some(path) => [(); 2].map(|()| format!("unix:{}", path.display())).into(),
        None => server
            .address()
            .map(|address| (DisplayAddr(address).to_string(), format!("{scheme}://{}/", UrlAddr(address))))?,
    };
    let stats = server.stats_address()?;
    // Whoever reads an address goes on to use it: what may still fail comes before.
    let log = Log::with_writer(std::io::stderr())?;
    let endpoints = ServedEndpoints { address, stats_address: stats.map(|stats| DisplayAddr(stats).to_string()) };
    output::print(|out| match args.json {
        true => writeln!(out, "{}", json::to_string(&endpoints)?),
        false => [Some(&endpoints.address), endpoints.stats_address.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(|address| writeln!(out, "{address}")),
    })?;
    let (root, limit) = (args.root.display(), server.max_connections());
    log.note(format_args!("serving {root} at {url}, at most {limit} connections, until Ctrl-C"));
    if args.tls_cert.is_some() {
        log.note(TLS_EXPLANATION);
    }
    if let Some(user) = &args.user {
        log.note(format_args!("serving as {user}, without a way to gain rights"));
    }
    if let Some(stats) = stats {
        log.note(format_args!("serving statistics to clients with the token at http://{}{STATS_PATH}", UrlAddr(stats)));
    }
    let reopen = server.reopener();
    let note_about_log = || access_log.iter().flat_map(|log| log.take_notices()).for_each(|notice| log.note(notice));
    let result = server.serve(|| {
        note_about_log();
        if stop_signals::take_log_reopen_request() {
            access_log.iter().for_each(|log| log.request_reopen());
        }
        if stop_signals::take_reopen_request() {
            match reopen() {
                Ok(()) => log.note(format_args!("reopened {root}")),
                Err(error) => log.note(format_args!("serving what was opened before: {error}")),
            }
        }
        stop_signals::stop_signal().is_some()
    });
    note_about_log();
    if let Ok(totals) = &result {
        log.note(summary_text(totals));
        choice_texts(&totals.bulk).iter().for_each(|line| log.note(line));
        if args.tls_cert.is_some() {
            log.note(tls_text(&totals.tls));
        }
    }
    log.close(LOG_FLUSH_TIMEOUT);
    let ServerTotals { requests, bytes, connections, refused, bulk: _, tls } = result.map_err(CliError::msg)?;
    if args.json {
        let tls = args.tls_cert.as_ref().map(|_| TlsSummary::new(&tls));
        let totals = ServedTotals { requests, bytes, connections, refused, tls };
        output::print(|out| writeln!(out, "{}", json::to_string(&totals)?))?;
    }
    Ok(())
}

/// Where a server listens, as JSON.
#[derive(Serialize)]
struct ServedEndpoints {
    address: String,
    stats_address: Option<String>,
}

/// What a server did, as JSON.
#[derive(Serialize)]
struct ServedTotals {
    requests: u64,
    bytes: u64,
    connections: u64,
    refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsSummary>,
}

/// What it did for TLS, as JSON.
#[derive(Serialize)]
struct TlsSummary {
    handshakes: u64,
    failures: u64,
    encrypted_bytes: u64,
    read_seconds: f64,
    encrypt_seconds: f64,
}

impl TlsSummary {
    fn new(totals: &TlsTotals) -> Self {
        let TlsTotals { handshakes, failures, bytes, read_nanoseconds, encrypt_nanoseconds } = *totals;
        let [read_seconds, encrypt_seconds] = [read_nanoseconds, encrypt_nanoseconds].map(|time| time as f64 / 1e9);
        Self { handshakes, failures, encrypted_bytes: bytes, read_seconds, encrypt_seconds }
    }
}

/// The access log, if one is asked for.
fn open_access_log(args: &ServeArgs) -> Result<Option<Arc<AccessLog>>, CliError> {
    let Some(target) = &args.access_log else { return Ok(None) };
    if args.json && *target == LogTarget::StandardOutput {
        return Err(CliError::new("--access-log -", "--json prints there as well: give a file"));
    }
    Ok(Some(Arc::new(AccessLog::new(target.clone(), args.log_format))))
}

fn listen(args: &ServeArgs, access_log: Option<Arc<AccessLog>>) -> Result<Server, CliError> {
    let cache_rules =
        CacheRules::new(args.cache_control.clone()).map_err(|error| CliError::new("--cache-control", error))?;
    let (names, user) = (args.host.clone(), args.user.clone());
    let tls = load_identity(args)?.map(Arc::new);
    let access = ServerAccess { names, stats_access: stats_access(args)?, user, cache_rules, access_log, tls };
    args.congestion_control.as_deref().map(check_congestion_control).transpose()?;
    let unix_socket = args.unix_socket.clone().map(|path| UnixSocket { path, mode: args.socket_mode });
    let listening = match &unix_socket {
        _ if args.socket_activation => Server::listen_passed(passed_socket()?, &args.root, setup(args)?, access),
        Some(socket) => Server::listen_unix(socket, &args.root, setup(args)?, access),
        None => Server::listen(args.listen, &args.root, setup(args)?, access),
    };
    let server = listening.map_err(|error| match error {
        error @ (Error::UnsupportedStrategy(..) | Error::UnencryptedStrategy) => {
            CliError::new(format!("--send {}", args.send), error)
        }
        error @ (Error::NoUring { .. } | Error::UnsupportedTls(_)) => {
            CliError::new(format!("--model {}", args.model), error)
        }
        Error::Listen(source) if args.socket_activation => CliError::new("--socket-activation", source),
        Error::Listen(source) => match &args.unix_socket {
            Some(path) => CliError::new(format!("--unix-socket {}", path.display()), source),
            None => CliError::new(format!("--listen {}", DisplayAddr(args.listen)), source),
        },
        Error::AccessLog(source) => {
            let target = args.access_log.as_ref().map(ToString::to_string).unwrap_or_default();
            CliError::new(format!("--access-log {target}"), source)
        }
        Error::User(source) => {
            let user = args.user.as_ref().map(ToString::to_string).unwrap_or_default();
            CliError::new(format!("--user {user}"), source)
        }
        Error::ListenStats(source) => {
            CliError::new(format!("--stats-listen {}", DisplayAddr(args.stats_address())), source)
        }
        error => CliError::msg(error),
    })?;
    args.congestion_control.as_deref().map(|name| server.set_congestion_control(name)).transpose()?;
    Ok(server)
}

/// The socket that systemd has passed.
fn passed_socket() -> Result<OwnedFd, CliError> {
    let argument = "--socket-activation";
    let sockets = passed_sockets::take_listening_sockets();
    let mut sockets =
        sockets.map_err(|error| CliError::new(argument, format!("{error}: a .socket unit needs Accept=no")))?;
    match (sockets.pop(), sockets.len()) {
        (Some(socket), 0) => Ok(socket),
        (Some(_), others) => {
            Err(CliError::new(argument, format!("{} sockets were passed: give the .socket unit one", others + 1)))
        }
        (None, _) => {
            Err(CliError::new(argument, "no socket was passed: start it by a .socket unit, or systemd-socket-activate"))
        }
    }
}

/// The certificate and its key, if it is to serve by TLS.
fn load_identity(args: &ServeArgs) -> Result<Option<TlsIdentity>, CliError> {
    let Some((certificate, key)) = args.tls_cert.as_ref().zip(args.tls_key.as_ref()) else { return Ok(None) };
    TlsIdentity::load(certificate, key).map(Some).map_err(|error| match error {
        error @ Error::Key(..) => CliError::new("--tls-key", error),
        error => CliError::new("--tls-cert", error),
    })
}

/// Who may ask what this host and the server have used.
fn stats_access(args: &ServeArgs) -> Result<Option<StatsAccess>, CliError> {
    if !args.expose_stats {
        return Ok(None);
    }
    let token = read_secret(args.token_file.as_deref())?;
    Ok(Some(StatsAccess { address: args.stats_address(), token }))
}

fn setup(args: &ServeArgs) -> Result<ServerSetup, CliError> {
    if matches!(args.model, ServerModel::Fork | ServerModel::Thread) && args.threads.is_some() {
        let reason = format!("the model {} has one for each connection: give --connections", args.model);
        return Err(CliError::new("--threads", reason));
    }
    let default_threads = || match args.model {
        ServerModel::Pool => DEFAULT_POOL_THREADS,
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut setup = ServerSetup::with_threads(args.threads.map_or_else(default_threads, |threads| threads as usize));
    setup.model = args.model;
    (setup.send_strategy, setup.lists_directories) = (args.send, args.index);
    setup.sends_compressed = args.precompressed;
    setup.limits =
        ServerLimits { connections: args.connections, min_progress: args.min_progress, ..ServerLimits::default() };
    Ok(setup)
}

/// What the server did, in one sentence.
fn summary_text(totals: &ServerTotals) -> String {
    let ServerTotals { requests, bytes, connections, refused, bulk: _, tls: _ } = totals;
    let counts = [(requests, "request"), (bytes, "byte"), (connections, "connection")];
    let [requests, bytes, connections] =
        counts.map(|(count, noun)| format!("{count} {noun}{}", if *count == 1 { "" } else { "s" }));
    let refusal_text = match refused {
        0 => String::new(),
        refused => format!("; {refused} more were turned away, because there were too many"),
    };
    format!("answered {requests} with {bytes} over {connections}{refusal_text}")
}

/// What TLS took, in one sentence.
fn tls_text(totals: &TlsTotals) -> String {
    let TlsTotals { handshakes, failures, bytes, read_nanoseconds, encrypt_nanoseconds } = *totals;
    let plural = if handshakes == 1 { "" } else { "s" };
    let counts = format!("TLS: {handshakes} handshake{plural}, {failures} failed");
    if bytes == 0 {
        return counts;
    }
    let per_mebibyte = |time: u64| time as f64 / bytes as f64 * f64::from(1 << 20) / 1e6;
    let (read, encrypt) = (per_mebibyte(read_nanoseconds), per_mebibyte(encrypt_nanoseconds));
    format!(
        "{counts}; of each MiB, {read:.3} ms to read it and {encrypt:.3} ms to encrypt it, neither of which sendfile needs"
    )
}

/// By which calls larger files went, a sentence for each kind of clients and size that there was.
fn choice_texts(choices: &BulkStats) -> Vec<String> {
    let line = |(peer, class)| {
        let mut methods = BulkMethod::ALL.map(|method| (method, choices.totals(peer, class, method)));
        methods.indirect_sort_by_key(|(_, totals)| std::cmp::Reverse(totals.answers));
        let text = |(method, totals): &(BulkMethod, BulkTotals)| {
            let method_text = if *method == BulkMethod::Mmap { "from a mapping" } else { "by sendfile" };
            let time = |per_byte: f64| format!(" ({:.3} ms/MiB)", per_byte * f64::from(1 << 20) / 1e6);
            format!("{} {method_text}{}", totals.answers, totals.nanoseconds_per_byte().map(time).unwrap_or_default())
        };
        let methods: Vec<String> = methods.iter().filter(|(_, totals)| totals.answers > 0).map(text).collect();
        let size = match class {
            SizeClass::Small => "of 16 to 128 KiB",
            SizeClass::Medium => "of 128 KiB to 1 MiB",
            SizeClass::Large => "of 1 MiB and more",
        };
        let location = if peer == PeerLocality::Local { "on this host" } else { "on other hosts" };
        (!methods.is_empty()).then(|| format!("answers {size} to clients {location}: {}", methods.join(", ")))
    };
    let kinds = PeerLocality::ALL.iter().flat_map(|&peer| SizeClass::ALL.map(move |class| (peer, class)));
    let mut lines: Vec<String> = kinds.filter_map(line).collect();
    if lines.iter().any(|line| line.contains("ms/MiB")) {
        lines.push("ms/MiB: in trials, from the first call for an answer until its client sent more".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_tls_is_reported_per_mebibyte() {
        let mut totals = TlsTotals { handshakes: 1, ..TlsTotals::default() };
        assert_eq!(tls_text(&totals), "TLS: 1 handshake, 0 failed");
        totals = TlsTotals {
            handshakes: 2,
            failures: 3,
            bytes: 4 << 20,
            read_nanoseconds: 500_000,
            encrypt_nanoseconds: 2_000_000,
        };
        let expected = "TLS: 2 handshakes, 3 failed; of each MiB, 0.125 ms to read it and 0.500 ms to encrypt it, neither of which \
                        sendfile needs";
        assert_eq!(tls_text(&totals), expected);
    }

    #[test]
    fn choices_are_reported_with_figures() {
        assert!(choice_texts(&BulkStats::default()).is_empty());
        let mut words = [0; BulkStats::WORDS];
        // Of clients here, large answers by either path, and a small one that nothing was compared of.
        words[12..18].copy_from_slice(&[70, 2 << 20, 1_000_000, 300, 1 << 20, 250_000]);
        words[0] = 1;
        let lines = [
            "answers of 16 to 128 KiB to clients on this host: 1 from a mapping",
            "answers of 1 MiB and more to clients on this host: 300 by sendfile (0.250 ms/MiB), 70 from a mapping (0.500 ms/MiB)",
            "ms/MiB: in trials, from the first call for an answer until its client sent more",
        ];
        assert_eq!(choice_texts(&BulkStats(words)), lines);
    }
}
