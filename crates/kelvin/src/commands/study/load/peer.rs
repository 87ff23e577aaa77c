//! A server that the agent of another host starts for a study, of its own files.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::units::bytes;
use kelvin_http::serve::decoded_path::percent_encode;
use kelvin_http::sweep::{CAPACITY_ROUNDS, ExistingServer, KnownFiles};
use kelvin_sys::stop_signals;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_transfer::wire::address::UrlAddr;
use kelvin_transfer::wire::client::{AgentClient, RemoteFileServer};
use kelvin_transfer::wire::file_server::{FileCacheState, FileServerInfo, FileServerOptions};

use super::MIN_CACHE_MULTIPLE;
use crate::cli::StudyLoadArgs;
use crate::cli_error::CliError;
use crate::peer_agent::read_secret;
use crate::run_plan::RunPlan;

/// Interval of heartbeats to the agent: several within its timeout.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// The server, which ends when this is dropped.
pub struct PeerServer {
    /// What is studied.
    pub server: ExistingServer,
    /// Stops the thread that sends heartbeats.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Has a server started, if an agent was named, with its files where they are to be.
///
/// # Errors
/// The agent's error; files that do not fit the cache state.
pub fn start(args: &StudyLoadArgs, plan: &RunPlan) -> Result<Option<PeerServer>, CliError> {
    let Some(agent) = &plan.setup.agent else { return Ok(None) };
    let secret = read_secret(agent.token_file.as_deref().map(Path::new))?;
    let [cache] = args.caches()[..] else {
        bail!("--cache cached,uncached: an agent has its files in one of these: give one with --peer");
    };
    let client = AgentClient::connect(&[agent.address], &secret);
    let mut server = client.and_then(|client| client.serve_files(&FileServerOptions::default())).map_err(peer_error)?;
    check_fits(&server.info, cache)?;
    let FileServerInfo { files, skipped, bytes: size, token, .. } = server.info.clone();
    let skipped_text = if skipped > 0 { format!("; left out of its directory: {skipped}") } else { String::new() };
    notice!("the agent serves {files} files of {}{skipped_text}", bytes(size));
    let names = server.file_names().map_err(peer_error)?;
    // What the disk gives at the agent's, in each round.
    let rounds = if cache == CacheState::Uncached { CAPACITY_ROUNDS } else { 0 };
    let disk = (0..rounds).map(|_| server.disk_rate().map_err(peer_error)).collect::<Result<_, _>>()?;
    let state = if cache == CacheState::Cached { FileCacheState::Cached } else { FileCacheState::Uncached };
    server.set_cache_state(state, || stop_signals::stop_signal().is_none()).map_err(peer_error)?;
    let [address, stats_address] = server.addresses();
    let file_server = ExistingServer {
        url: format!("http://{}/", UrlAddr(address)),
        paths: names.iter().map(|name| url_path(name)).collect(),
        stats_address,
        token,
        files: Some(KnownFiles { bytes: size, cache, disk }),
    };
    PeerServer::keep_alive(file_server, server).map(Some)
}

fn peer_error(error: kelvin_transfer::wire::Error) -> CliError {
    match stop_signals::stop_signal() {
        Some(signal) => CliError::msg(format!("interrupted by {signal}")),
        None => CliError::new("--peer", error),
    }
}

/// Whether the files can be in memory, or cannot.
fn check_fits(info: &FileServerInfo, cache: CacheState) -> Result<(), CliError> {
    let total = u64::from(info.files).saturating_mul(info.bytes);
    let (capacity, served_text) = (info.cacheable_bytes, bytes(total));
    let needed = capacity.map(|capacity| capacity.saturating_mul(MIN_CACHE_MULTIPLE));
    match (cache, capacity, needed) {
        (CacheState::Cached, Some(capacity), _) if total > capacity => {
            bail!("--cache cached: the agent serves {served_text}, and its page cache may hold {}", bytes(capacity))
        }
        (CacheState::Uncached, Some(capacity), Some(needed)) if total < needed => bail!(
            "--cache uncached: the agent serves {served_text}; its page cache may hold {}, so files of at least {} are needed",
            bytes(capacity),
            bytes(needed)
        ),
        (CacheState::Uncached, None, _) => {
            bail!("--cache uncached: the agent serves {served_text}; it does not say what its page cache may hold")
        }
        _ => Ok(()),
    }
}

/// The path of a URL to a file of this name.
fn url_path(name: &str) -> String {
    let mut path = "/".to_owned();
    percent_encode(name.as_bytes(), &mut path);
    path
}

impl PeerServer {
    fn keep_alive(server: ExistingServer, mut remote: RemoteFileServer) -> Result<Self, CliError> {
        let (stop_sender, stop_receiver) = channel::<()>();
        let heartbeat = move || {
            while stop_receiver.recv_timeout(HEARTBEAT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // An agent that is gone shows in the visits, which fail.
                if remote.keep_alive().is_err() {
                    return;
                }
            }
            // One that is gone has ended it.
            let _ = remote.stop();
        };
        let thread = ThreadBuilder::named("heartbeat").start(heartbeat)?;
        Ok(Self { server, stop: Some(stop_sender), thread: Some(thread) })
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic there was reported.
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_is_one_path_segment() {
        assert_eq!(url_path("file-00001.bin_~"), "/file-00001.bin_~");
        assert_eq!(url_path("a b?c#d%2Fä"), "/a%20b%3Fc%23d%252F%C3%A4");
    }

    #[test]
    fn files_fit_or_exceed_page_cache_twofold() {
        let server_info = |files, cacheable_bytes| FileServerInfo {
            files_port: 1,
            stats_port: 2,
            token: String::new(),
            files,
            bytes: 1 << 20,
            skipped: 0,
            cacheable_bytes,
        };
        let fit_error = |files, capacity, cache| {
            check_fits(&server_info(files, capacity), cache).map_err(|fault| fault.to_string())
        };
        let cached = |files, capacity| fit_error(files, capacity, CacheState::Cached);
        let uncached = |files, capacity| fit_error(files, capacity, CacheState::Uncached);
        assert_eq!(
            (cached(10, Some(10 << 20)), uncached(20, Some(10 << 20)), cached(10, None)),
            (Ok(()), Ok(()), Ok(()))
        );
        assert!(cached(11, Some(10 << 20)).unwrap_err().starts_with("--cache cached: the agent serves 11"));
        assert!(uncached(19, Some(10 << 20)).unwrap_err().contains("files of at least 20"));
        assert!(uncached(19, None).unwrap_err().contains("does not say"));
    }
}
