//! Servers that run for a test, and the clients that ask them.
//!
//! No test needs all of it.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_http::serve::send_strategy::SendStrategy;
use kelvin_http::serve::send_strategy::bulk_method::BulkStats;
use kelvin_http::serve::tls_totals::TlsTotals;
use kelvin_http::serve::{Error, Server, ServerAccess, ServerModel, ServerSetup, ServerTotals};
use kelvin_sys::process::{Child, ExitKind, fork_worker_with};
use kelvin_testing::MissingRequirement;

/// A server that ends when it is dropped.
pub struct TestServer {
    pub address: SocketAddr,
    /// The process that it runs in.
    pub process: u32,
    end: Option<TestServerBackend>,
}

/// Where it runs, and how it is ended.
enum TestServerBackend {
    Thread(Arc<AtomicBool>, JoinHandle<ServerTotals>),
    /// By the end of a pipe; it reports in another what it did.
    Process(Child, PipeWriter, BufReader<PipeReader>),
}

impl TestServer {
    pub fn start(root: &Path, setup: ServerSetup) -> Self {
        Self::start_with(root, setup, ServerAccess::default)
    }

    pub fn start_with(root: &Path, setup: ServerSetup, access: impl FnOnce() -> ServerAccess) -> Self {
        match setup.model {
            ServerModel::Fork => Self::fork_with(root, setup, access),
            _ => Self::run(Server::listen(LOOPBACK, root, setup, access()).unwrap()),
        }
    }

    pub fn spawn(root: &Path, setup: ServerSetup) -> Self {
        Self::run(Server::listen(LOOPBACK, root, setup, ServerAccess::default()).unwrap())
    }

    fn run(server: Server) -> Self {
        let (address, is_over) = (server.address().unwrap(), Arc::new(AtomicBool::new(false)));
        let shutdown_flag = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || server.serve(|| shutdown_flag.load(Ordering::Relaxed)).unwrap());
        Self { address, process: std::process::id(), end: Some(TestServerBackend::Thread(is_over, thread)) }
    }

    /// In a process of one thread, with nothing of other tests.
    pub fn fork(root: &Path, setup: ServerSetup) -> Self {
        Self::fork_with(root, setup, ServerAccess::default)
    }

    fn fork_with(root: &Path, setup: ServerSetup, access: impl FnOnce() -> ServerAccess) -> Self {
        let ((wait, end), (reader, writer)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let child = fork_worker_with(&[wait.as_fd(), writer.as_fd()], || {
            let server = Server::listen(LOOPBACK, root, setup, access()).unwrap();
            writeln!(&writer, "{} {}", server.address().unwrap(), std::process::id()).unwrap();
            let is_over = || kelvin_sys::poll::wait_readable(wait.as_fd(), Duration::ZERO).unwrap();
            let totals = server.serve(is_over).unwrap();
            let ServerTotals { requests, bytes, connections, refused, bulk: choices, tls } = totals;
            let choices = choices.0.map(|word| word.to_string()).join(" ");
            writeln!(
                &writer,
                "{requests} {bytes} {connections} {refused} {} {} {choices}",
                tls.handshakes, tls.failures
            )
            .unwrap();
            0
        });
        let mut reader = BufReader::new(reader);
        let line = read_line(&mut reader);
        let (address, process) = line.split_once(' ').unwrap();
        let (address, process) = (address.parse().unwrap(), process.parse().unwrap());
        Self { address, process, end: Some(TestServerBackend::Process(child.unwrap(), end, reader)) }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Whether it serves one more client; it refuses one that it does not serve.
    pub fn accepts_client(&self) -> bool {
        let response = self.query(SMALL);
        assert!(response.starts_with(b"HTTP/1.1 200 ") || response.starts_with(b"HTTP/1.1 503 "));
        response.ends_with(b"small")
    }

    /// All that is sent for this, after which the client sends no more.
    pub fn query(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_to_end(&mut stream)
    }

    pub fn end(mut self) -> ServerTotals {
        self.end.take().unwrap().stop().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end.take().into_iter().for_each(|end| drop(end.stop()));
    }
}

impl TestServerBackend {
    fn stop(self) -> std::thread::Result<ServerTotals> {
        match self {
            Self::Thread(is_over, thread) => {
                is_over.store(true, Ordering::Relaxed);
                thread.join()
            }
            Self::Process(child, end, mut reader) => {
                drop(end);
                let line = read_line(&mut reader);
                assert_eq!(child.wait().unwrap(), ExitKind::Exited(0));
                let counts: Vec<u64> = line.split_whitespace().map(|count| count.parse().unwrap()).collect();
                let (counts, choices) = counts.split_at(6);
                let [requests, bytes, connections, refused, handshakes, failures] = counts.try_into().unwrap();
                let bulk = BulkStats(choices.try_into().unwrap());
                let tls = TlsTotals { handshakes, failures, ..TlsTotals::default() };
                Ok(ServerTotals { requests, bytes, connections, refused, bulk, tls })
            }
        }
    }
}

/// A port of this host that the system chooses.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn read_line(reader: &mut BufReader<PipeReader>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

pub fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The head of the next answer.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// The next answer: its head, and as much content as that states.
pub fn read_answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let head = read_head(stream);
    let length = head.split_once("Content-Length: ").unwrap().1.lines().next().unwrap().parse().unwrap();
    let mut content = vec![0; length];
    stream.read_exact(&mut content).unwrap();
    (head, content)
}

/// Waits for a first byte, and leaves it there. A call with a time is not made again by itself where the kernel has work for its thread,
/// such as the end of a ring that it used.
pub fn wait_readable(stream: &TcpStream) {
    while let Err(error) = stream.peek(&mut [0]) {
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
    }
}

pub fn random_bytes(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

pub fn files() -> (tempfile::TempDir, Vec<u8>) {
    let root = tempfile::tempdir().unwrap();
    let large = random_bytes(10_000_000);
    fs::write(root.path().join("large"), &large).unwrap();
    fs::write(root.path().join("small"), "small").unwrap();
    (root, large)
}

pub const SMALL: &[u8] = b"GET /small HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
pub const LARGE: &[u8] = b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

/// Every way to serve. A pool has a thread for each client of a test.
pub fn all_setups() -> impl Iterator<Item = ServerSetup> {
    let sendings =
        [SendStrategy::Auto, SendStrategy::ReadWrite, SendStrategy::Mmap, SendStrategy::SendFile, SendStrategy::Splice];
    let setups =
        all_models().flat_map(move |setup| sendings.map(|sending| ServerSetup { send_strategy: sending, ..setup }));
    setups.filter(|setup| {
        setup.model != ServerModel::Uring
            || [SendStrategy::Auto, SendStrategy::ReadWrite].contains(&setup.send_strategy)
    })
}

/// Every model, by the way of sending that is usual.
pub fn all_models() -> impl Iterator<Item = ServerSetup> {
    let models = [
        (ServerModel::Epoll, 2),
        (ServerModel::Poll, 2),
        (ServerModel::Uring, 2),
        (ServerModel::Fork, 1),
        (ServerModel::Thread, 1),
        (ServerModel::Pool, 32),
    ];
    let models = models.into_iter().filter(|(model, _)| *model != ServerModel::Uring || has_ring());
    models.map(|(model, threads)| ServerSetup { model, ..ServerSetup::with_threads(threads) })
}

/// Whether each thread of a model serves many connections.
pub fn is_event_loop(model: ServerModel) -> bool {
    matches!(model, ServerModel::Poll | ServerModel::Epoll | ServerModel::Uring)
}

/// Whether there is an io_uring; where there is none, that is reported.
pub fn has_ring() -> bool {
    let setup = ServerSetup { model: ServerModel::Uring, ..ServerSetup::with_threads(1) };
    match Server::listen(LOOPBACK, Path::new("/"), setup, ServerAccess::default()) {
        Ok(_) => true,
        Err(error @ Error::NoUring { .. }) => {
            MissingRequirement::machine(error).report_skip("kelvin serve --model uring");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn setup_name(setup: &ServerSetup) -> String {
    format!("{} {}", setup.model, setup.send_strategy)
}
