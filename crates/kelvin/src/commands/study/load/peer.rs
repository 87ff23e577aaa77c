//! A server that the agent of another host starts for a study, of its own files.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_catalogue::file::CacheState;
use kelvin_model::units::bytes;
use kelvin_serve::target::encode;
use kelvin_sweep::{DiskRate, KnownFiles, ROUNDS, RequestRate, Running};
use kelvin_sys::interrupt;
use kelvin_sys::spawn::Thread;
use kelvin_wire::address::InUrl;
use kelvin_wire::client::{Client, FileServer};
use kelvin_wire::files::{Cache, Design, Rate, Served};

use super::BEYOND_CACHE;
use crate::cli::StudyLoadArgs;
use crate::commands;
use crate::fault::Fault;
use crate::output;
use crate::prepare::Prepared;

/// How often the agent hears that the study goes on: some times in what it waits for.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The server, which ends when this is dropped.
pub struct Peer {
    /// What is studied.
    pub server: Running,
    _kept: Kept,
}

/// Has a server started, if an agent was named, with its files where they are to be.
///
/// # Errors
/// What the agent says; files that do not fit the question.
pub fn start(args: &StudyLoadArgs, prepared: &Prepared) -> Result<Option<Peer>, Fault> {
    let Some(agent) = &prepared.setup.agent else { return Ok(None) };
    let secret = commands::secret(agent.token_file.as_deref().map(Path::new))?;
    let [cache] = args.caches()[..] else {
        return Err(Fault::new(
            "--cache cached,uncached",
            "an agent has its files in one of these: give one with --peer",
        ));
    };
    let client = Client::connect(&[agent.address], &secret);
    let mut server = client.and_then(|client| client.serve_files(&Design::default())).map_err(of_peer)?;
    fits(server.served(), cache)?;
    tell(server.served());
    let names = server.names().map_err(of_peer)?;
    let disk = disk_rates(&mut server, cache)?;
    let wanted = if cache == CacheState::Cached { Cache::Cached } else { Cache::Uncached };
    server.bring(wanted, || interrupt::requested().is_none()).map_err(of_peer)?;
    let [address, resources] = server.addresses();
    let Served { token, bytes, .. } = server.served().clone();
    let server_of_files = Running {
        url: format!("http://{}/", InUrl(address)),
        paths: names.iter().map(|name| path(name)).collect(),
        resources,
        token,
        files: Some(KnownFiles { bytes, cache, disk }),
    };
    Ok(Some(Peer { server: server_of_files, _kept: Kept::keep(server)? }))
}

fn of_peer(error: kelvin_wire::Error) -> Fault {
    match interrupt::requested() {
        Some(signal) => Fault::because(format!("interrupted by {signal}")),
        None => Fault::new("--peer", error),
    }
}

/// Whether the files can be in memory, or cannot.
fn fits(served: &Served, cache: CacheState) -> Result<(), Fault> {
    let all = u64::from(served.files).saturating_mul(served.bytes);
    let holds = served.may_be_cached;
    match cache {
        CacheState::Cached if holds.is_some_and(|holds| all > holds) => {
            let [all, holds] = [all, holds.unwrap_or_default()].map(bytes);
            Err(Fault::new("--cache cached", format!("the agent serves {all}, and its page cache may hold {holds}")))
        }
        CacheState::Uncached if holds.is_none_or(|holds| all < holds.saturating_mul(BEYOND_CACHE)) => {
            let all = bytes(all);
            let needed = match holds {
                Some(holds) => {
                    let needed = bytes(holds.saturating_mul(BEYOND_CACHE));
                    format!("its page cache may hold {}, so files of at least {needed} are needed", bytes(holds))
                }
                None => "it does not say what its page cache may hold".into(),
            };
            Err(Fault::new("--cache uncached", format!("the agent serves {all}; {needed}")))
        }
        _ => Ok(()),
    }
}

fn tell(served: &Served) {
    let Served { files, left_out, .. } = served;
    let size = bytes(served.bytes);
    let rest = if *left_out > 0 { format!("; left out of its directory: {left_out}") } else { String::new() };
    output::remark(format_args!("kelvin: the agent serves {files} files of {size}{rest}"));
}

/// What the disk gives at the agent's, in each round; nothing if files are to be in memory.
fn disk_rates(server: &mut FileServer, cache: CacheState) -> Result<Vec<DiskRate>, Fault> {
    let rounds = if cache == CacheState::Uncached { ROUNDS } else { 0 };
    let rate = |_| {
        let Rate { bytes_per_second, read_per_second, requests } = server.disk_rate().map_err(of_peer)?;
        let requests =
            requests.map(|kelvin_wire::files::RequestRate { per_second, bytes }| RequestRate { per_second, bytes });
        Ok(DiskRate { bytes_per_second, read_per_second, requests })
    };
    (0..rounds).map(rate).collect()
}

/// The path of a URL to a file of this name.
fn path(name: &str) -> String {
    let mut path = "/".to_owned();
    encode(name.as_bytes(), &mut path);
    path
}

/// Keeps a server by saying from time to time that somebody is there. Dropped, it has the server end.
struct Kept {
    is_over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Kept {
    fn keep(mut server: FileServer) -> Result<Self, Fault> {
        let (is_over, over) = channel::<()>();
        let keep = move || {
            while over.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                // An agent that is gone shows in the visits, which fail.
                if server.stay().is_err() {
                    return;
                }
            }
            // One that is gone has ended it.
            let _ = server.end();
        };
        let thread = Thread::named("heartbeat").start(keep)?;
        Ok(Self { is_over: Some(is_over), thread: Some(thread) })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.is_over.take());
        // A panic there was told.
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_so_that_it_is_one_part_of_a_path() {
        assert_eq!(path("file-00001.bin_~"), "/file-00001.bin_~");
        assert_eq!(path("a b?c#d%2Fä"), "/a%20b%3Fc%23d%252F%C3%A4");
    }

    #[test]
    fn files_must_fit_into_the_page_cache_or_be_twice_of_it() {
        let served = |files, may_be_cached| Served {
            files_port: 1,
            looks_port: 2,
            token: String::new(),
            files,
            bytes: 1 << 20,
            left_out: 0,
            may_be_cached,
        };
        let why = |files, holds, cache| fits(&served(files, holds), cache).map_err(|fault| fault.to_string());
        let cached = |files, holds| why(files, holds, CacheState::Cached);
        let uncached = |files, holds| why(files, holds, CacheState::Uncached);
        assert_eq!(
            (cached(10, Some(10 << 20)), uncached(20, Some(10 << 20)), cached(10, None)),
            (Ok(()), Ok(()), Ok(()))
        );
        assert!(cached(11, Some(10 << 20)).unwrap_err().starts_with("--cache cached: the agent serves 11"));
        assert!(uncached(19, Some(10 << 20)).unwrap_err().contains("files of at least 20"));
        assert!(uncached(19, None).unwrap_err().contains("does not say"));
    }
}
