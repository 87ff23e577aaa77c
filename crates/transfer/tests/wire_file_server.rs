//! Servers of files that an agent starts: for which clients, how many, and when they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use kelvin_transfer::wire::Error;
use kelvin_transfer::wire::admission::AgentLimits;
use kelvin_transfer::wire::agent::{Agent, AgentEvent};
use kelvin_transfer::wire::client::{AgentClient, client_handshake};
use kelvin_transfer::wire::file_server::{
    DiskRateReport, FileCacheState, FileHost, FileServerInfo, FileServerOptions, RequestRate,
};
use kelvin_transfer::wire::message::{AgentRequest, AgentResponse};
use kelvin_transfer::wire::secret::Secret;

const RATE: DiskRateReport = DiskRateReport {
    bytes_per_second: 1e6,
    read_per_second: None,
    requests: Some(RequestRate { per_second: 100.0, bytes: 4096.0 }),
};

const LONG_TIMEOUT: Duration = Duration::from_secs(10);

fn secret() -> Secret {
    Secret::new(b"an agent of the tests").unwrap()
}

/// A server that is none, and counts how many of it there are.
struct FakeFileHost {
    names: Vec<String>,
    live_servers: Arc<AtomicU32>,
}

impl FileHost for FakeFileHost {
    fn info(&self) -> FileServerInfo {
        let (files_port, stats_port, token) = (81, 82, "token".into());
        let files = self.names.len() as u32;
        FileServerInfo { files_port, stats_port, token, files, bytes: 5, skipped: 2, cacheable_bytes: Some(9) }
    }

    fn file_names(&self) -> &[String] {
        &self.names
    }

    fn disk_rate(&self) -> Result<DiskRateReport, String> {
        Ok(RATE)
    }

    fn set_cache_state(&self, cache: FileCacheState, first_file: u32) -> Result<u32, String> {
        if cache == FileCacheState::Cached { Err("they do not fit".into()) } else { Ok(first_file + 100) }
    }
}

impl Drop for FakeFileHost {
    fn drop(&mut self) {
        self.live_servers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs an agent that serves this many files, and at the same time a function of its address and of how many servers there are.
fn with_agent(files: Option<usize>, idle: Duration, body: impl FnOnce(SocketAddr, &AtomicU32)) {
    let live_servers = Arc::new(AtomicU32::new(0));
    let limits = AgentLimits { idle_timeout: idle, ..AgentLimits::default() };
    let log = Box::new(|_: SocketAddr, _: &AgentEvent| {});
    let mut agent = Agent::listen("127.0.0.1:0".parse().unwrap(), secret(), limits, log).unwrap();
    if let Some(files) = files {
        let live_servers = Arc::clone(&live_servers);
        agent = agent.with_files(Box::new(move |design, listen| {
            assert_eq!((listen.ip().to_string().as_str(), listen.port()), ("127.0.0.1", 0));
            if let Some(model) = &design.model {
                return Err(format!("there is no model {model}"));
            }
            live_servers.fetch_add(1, Ordering::SeqCst);
            let names = (0..files).map(|number| format!("file {number}")).collect();
            Ok(Box::new(FakeFileHost { names, live_servers: Arc::clone(&live_servers) }))
        }));
    }
    let (address, is_over) = (agent.address().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(address, &live_servers)));
        is_over.store(true, Ordering::Relaxed);
        server.join().unwrap().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn connect_client(address: SocketAddr) -> AgentClient {
    AgentClient::connect(&[address], &secret()).unwrap()
}

/// Waits until none of them is there.
fn wait_until_stopped(live_servers: &AtomicU32) {
    let start = std::time::Instant::now();
    while live_servers.load(Ordering::SeqCst) > 0 {
        assert!(start.elapsed() < LONG_TIMEOUT, "it is still there");
        std::thread::yield_now();
    }
}

#[test]
fn client_can_list_read_and_cache_files() {
    with_agent(Some(250), LONG_TIMEOUT, |address, live_servers| {
        let mut server = connect_client(address).serve_files(&FileServerOptions::default()).unwrap();
        assert_eq!(server.addresses().map(|endpoint| endpoint.port()), [81, 82]);
        let names = server.file_names().unwrap();
        assert_eq!((names.len(), names[249].as_str()), (250, "file 249"));
        assert_eq!(server.disk_rate().unwrap(), RATE);
        server.set_cache_state(FileCacheState::Uncached, || true).unwrap();
        assert!(matches!(server.set_cache_state(FileCacheState::Uncached, || false), Err(Error::Closed)));
        let refused = server.set_cache_state(FileCacheState::Cached, || true).unwrap_err();
        assert_eq!(refused.to_string(), "the agent refused: they do not fit");
        // What cannot be done does not end it.
        server.keep_alive().unwrap();
        assert_eq!(live_servers.load(Ordering::SeqCst), 1);
        let mut client = server.stop().unwrap();
        assert_eq!(live_servers.load(Ordering::SeqCst), 0);
        assert_eq!(client.echo_tcp(1).unwrap().finish().unwrap().arrived, 0);
        drop(client.serve_files(&FileServerOptions::default()).unwrap());
        wait_until_stopped(live_servers);
    });
}

#[test]
fn second_server_is_refused_and_first_ends() {
    with_agent(Some(1), LONG_TIMEOUT, |address, live_servers| {
        let mut channel =
            client_handshake(std::net::TcpStream::connect(address).unwrap(), &secret(), LONG_TIMEOUT).unwrap();
        for _ in 0..50 {
            channel.send(&AgentRequest::ServeFiles(FileServerOptions::default()), LONG_TIMEOUT).unwrap();
            assert!(matches!(channel.receive(LONG_TIMEOUT).unwrap(), AgentResponse::Serving(_)));
            assert_eq!(live_servers.load(Ordering::SeqCst), 1);
            channel.send(&AgentRequest::ServeFiles(FileServerOptions::default()), LONG_TIMEOUT).unwrap();
            let AgentResponse::Failed { why } = channel.receive(LONG_TIMEOUT).unwrap() else {
                panic!("it was not refused")
            };
            assert_eq!(why, "one test must end before the next one begins");
            assert_eq!(live_servers.load(Ordering::SeqCst), 0);
        }
        for request in [AgentRequest::KeepAlive, AgentRequest::ReadFromDisk, AgentRequest::Names { from: 0 }] {
            channel.send(&request, LONG_TIMEOUT).unwrap();
            let AgentResponse::Failed { why } = channel.receive(LONG_TIMEOUT).unwrap() else {
                panic!("it was not refused")
            };
            assert_eq!(why, "no server of files is running");
        }
    });
}

#[test]
fn server_of_silent_client_ends() {
    with_agent(Some(1), Duration::from_millis(50), |address, live_servers| {
        let mut server = connect_client(address).serve_files(&FileServerOptions::default()).unwrap();
        wait_until_stopped(live_servers);
        assert!(server.keep_alive().is_err());
    });
}

#[test]
fn unavailable_file_server_is_an_error() {
    let why =
        |address, design: &FileServerOptions| connect_client(address).serve_files(design).unwrap_err().to_string();
    with_agent(None, LONG_TIMEOUT, |address, _| {
        let expected = "the agent refused: it serves no files: start it with --serve DIR";
        assert_eq!(why(address, &FileServerOptions::default()), expected);
    });
    with_agent(Some(1), LONG_TIMEOUT, |address, _| {
        let design = FileServerOptions { model: Some("pigeon".into()), ..FileServerOptions::default() };
        assert_eq!(why(address, &design), "the agent refused: there is no model pigeon");
        assert!(
            why(address, &FileServerOptions { model: Some("m".repeat(17)), ..design }).contains("malformed message")
        );
    });
    with_agent(Some(0), LONG_TIMEOUT, |address, _| {
        assert!(why(address, &FileServerOptions::default()).contains("0 files, where 1 to 100000 are possible"));
    });
}
