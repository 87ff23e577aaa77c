//! The counters of a server behind real sockets: they count what was requested, and busy threads are sampled, too.

mod test_server;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_core::resources::{ResourceSnapshot, ServerStats};
use kelvin_http::serve::stats_endpoint::StatsAccess;
use kelvin_http::serve::{Server, ServerAccess, ServerModel, ServerSetup};
use kelvin_transfer::wire::secret::Secret;
use test_server::{has_ring, wait_readable};

const LARGE: usize = 10_000_000;

/// A server that ends when it is dropped, and where it is looked at.
struct StatsTestServer {
    address: SocketAddr,
    stats_address: SocketAddr,
    shutdown: Arc<AtomicBool>,
    thread: Option<JoinHandle<kelvin_http::serve::ServerTotals>>,
}

impl StatsTestServer {
    fn start(root: &Path, (model, threads): (ServerModel, usize)) -> Self {
        let any_port: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let exposure = StatsAccess { address: any_port, token: Secret::new(b"the right one of two").unwrap() };
        let setup = ServerSetup { model, ..ServerSetup::with_threads(threads) };
        let server = Server::listen(
            any_port,
            root,
            setup,
            ServerAccess { stats_access: Some(exposure), ..ServerAccess::default() },
        )
        .unwrap();
        let (address, stats_address) = (server.address().unwrap(), server.stats_address().unwrap().unwrap());
        let shutdown = Arc::new(AtomicBool::new(false));
        let shutdown_flag = Arc::clone(&shutdown);
        let thread = std::thread::spawn(move || server.serve(|| shutdown_flag.load(Ordering::Relaxed)).unwrap());
        Self { address, stats_address, shutdown, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// The answer to a request for a look.
    fn query(&self, request: &str) -> String {
        let mut stream = connect(self.stats_address);
        stream.write_all(request.as_bytes()).unwrap();
        read_to_end(&mut stream)
    }

    fn snapshot(&self) -> ResourceSnapshot {
        let answer = self.query(&stats_request("GET", "Bearer the right one of two"));
        let (head, json) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        ResourceSnapshot::from_json(json.as_bytes()).unwrap()
    }

    fn server_stats(&self) -> ServerStats {
        self.snapshot().server.unwrap()
    }
}

impl Drop for StatsTestServer {
    fn drop(&mut self) {
        self.shutdown.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn stats_request(method: &str, authorization: &str) -> String {
    format!("{method} /.kelvin/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {authorization}\r\n\r\n")
}

fn get_request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
}

/// The length of the content that comes.
fn read_answer(stream: &mut TcpStream) -> usize {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split_once("Content-Length: ").unwrap().1.lines().next().unwrap().parse().unwrap();
    stream.read_exact(&mut vec![0; length]).unwrap();
    length
}

fn files() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("large"), vec![7; LARGE]).unwrap();
    fs::write(root.path().join("small"), "small").unwrap();
    fs::create_dir(root.path().join(".kelvin")).unwrap();
    fs::write(root.path().join(".kelvin/stats"), "not this").unwrap();
    root
}

/// Every model that is watched. The pool has a thread for each client of a test.
fn tracked_models() -> impl Iterator<Item = (ServerModel, usize)> {
    let models = [
        (ServerModel::Epoll, 2),
        (ServerModel::Poll, 2),
        (ServerModel::Uring, 2),
        (ServerModel::Thread, 1),
        (ServerModel::Pool, 32),
    ];
    models.into_iter().filter(|(model, _)| *model != ServerModel::Uring || has_ring())
}

#[test]
fn counters_match_requests() {
    let root = files();
    for model in tracked_models() {
        let server = StatsTestServer::start(root.path(), model);
        let run_client = |number: usize| {
            let mut stream = server.connect();
            let mut bytes = 0;
            for round in 0..10 {
                let path = if (number + round).is_multiple_of(5) { "/large" } else { "/small" };
                stream.write_all(get_request(path).as_bytes()).unwrap();
                bytes += read_answer(&mut stream);
            }
            // Several at once, and an answer that is an error.
            stream
                .write_all([get_request("/small"), get_request("/none"), get_request("/small")].concat().as_bytes())
                .unwrap();
            bytes += (0..3).map(|_| read_answer(&mut stream)).sum::<usize>();
            (stream, bytes)
        };
        let clients: Vec<(TcpStream, usize)> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8).map(|number| scope.spawn(move || run_client(number))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let bytes: usize = clients.iter().map(|(_, bytes)| bytes).sum();
        let expected = (8 * 13, bytes as u64, 8, 0);
        let counts = |stats: ServerStats| (stats.requests, stats.bytes, stats.connections, stats.refused);
        // A thread reports what it has given to the kernel after the call: the client may be faster.
        while counts(server.server_stats()) != expected || server.server_stats().in_flight_now > 0 {}
        drop(clients);
        // Nothing is lost when they end, and looks are not among them.
        assert_eq!(counts(server.server_stats()), expected, "{}", model.0);
        let stats = server.server_stats();
        assert!(stats.samples > 0 && stats.accept_queue.max > 0);
        assert_eq!(stats.workers, (model.0 == ServerModel::Pool).then_some(32));
    }
}

#[test]
fn nonreading_client_stays_in_flight() {
    let root = files();
    for model in tracked_models() {
        let server = StatsTestServer::start(root.path(), model);
        let mut idle: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
        for stream in &mut idle {
            stream.write_all(get_request("/small").as_bytes()).unwrap();
            read_answer(stream);
        }
        let mut reader = server.connect();
        reader.write_all(get_request("/large").as_bytes()).unwrap();
        wait_readable(&reader);
        while server.server_stats().in_flight_now != 1 {}
        let begin = server.server_stats();
        while server.server_stats().window_limited == 0.0 {}
        let end = server.server_stats();
        // All are integrated over the same samples, so that their ratios are exact for any time between them.
        let growth = |counter: fn(&ServerStats) -> f64| counter(&end) - counter(&begin);
        let in_flight = growth(|stats| stats.in_flight);
        assert!(in_flight > 0.0 && end.samples > begin.samples);
        let is_ratio = |integral: f64, ratio: f64| (integral / in_flight - ratio).abs() < 1e-6;
        let sending = growth(|stats| stats.sending);
        assert!(sending >= growth(|stats| stats.window_limited), "{begin:?} {end:?}");
        assert!(
            is_ratio(growth(|stats| stats.service_integral), 1.0) && is_ratio(growth(|stats| stats.held_integral), 5.0),
            "{begin:?} {end:?}"
        );
        assert_eq!(read_answer(&mut reader), LARGE);
        while server.server_stats().in_flight_now > 0 {}
    }
}

#[test]
fn busy_pool_reports_accept_queue() {
    let root = files();
    let server = StatsTestServer::start(root.path(), (ServerModel::Pool, 1));
    let mut busy = server.connect();
    busy.write_all(get_request("/large").as_bytes()).unwrap();
    wait_readable(&busy);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|stream| stream.write_all(get_request("/small").as_bytes()).unwrap());
    while server.server_stats().in_flight_now < 4 {}
    let (begin, end) = (server.server_stats(), server.server_stats());
    assert_eq!((end.workers, end.connections, end.requests), (Some(1), 4, 0));
    let (held_time, in_flight) = (end.held_integral - begin.held_integral, end.in_flight - begin.in_flight);
    assert!(held_time > 0.0 && (in_flight / held_time - 4.0).abs() < 1e-6, "{begin:?} {end:?}");
    read_answer(&mut busy);
    drop(busy);
    // Each holds the worker until it ends.
    clients.into_iter().for_each(|mut stream| assert_eq!(read_answer(&mut stream), "small".len()));
}

#[test]
fn missing_token_is_401() {
    let root = files();
    let server = StatsTestServer::start(root.path(), (ServerModel::Epoll, 1));
    let right = "Bearer the right one of two";
    for (request, status) in [
        (stats_request("GET", right), "200 OK"),
        (stats_request("HEAD", right), "200 OK"),
        (stats_request("GET", "bearer the right one of two"), "200 OK"),
        (stats_request("GET", "Bearer the wrong one of two"), "401 Unauthorized"),
        (stats_request("HEAD", "Bearer"), "401 Unauthorized"),
        (stats_request("GET", "Basic the right one of two"), "401 Unauthorized"),
        (get_request("/.kelvin/stats"), "401 Unauthorized"),
        (stats_request("GET", right).replace("stats", "other"), "404 Not Found"),
        (get_request("/small"), "404 Not Found"),
        (stats_request("POST", right), "405 Method Not Allowed"),
        (stats_request("GET", right).replace("Host", "Content-Length: 1\r\nHost"), "413 Content Too Large"),
        (stats_request("GET", right).replace("Host: 127.0.0.1\r\n", ""), "400 Bad Request"),
        ("GET / HTTP/2.0\r\n\r\n".into(), "505 HTTP Version Not Supported"),
    ] {
        let answer = server.query(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        assert!(answer.contains("\r\nCache-Control: no-store\r\n"), "{answer}");
        assert_eq!(answer.contains("\r\nWWW-Authenticate: Bearer "), status.starts_with("401"), "{answer}");
        let is_empty = answer.ends_with("\r\n\r\n");
        assert_eq!(is_empty, request.starts_with("HEAD"), "{answer}");
        assert!(!answer.contains("process") || (status == "200 OK" && !is_empty), "{answer}");
    }
    assert_eq!(server.server_stats().requests, 0);
}

#[test]
fn silent_client_does_not_block_stats() {
    let root = files();
    let server = StatsTestServer::start(root.path(), (ServerModel::Epoll, 1));
    let silent: Vec<TcpStream> = (0..100).map(|_| connect(server.stats_address)).collect();
    assert!(server.snapshot().process.threads > 1);
    drop(silent);
}

#[test]
fn reserved_name_is_never_served() {
    let root = files();
    let server = StatsTestServer::start(root.path(), (ServerModel::Epoll, 1));
    for path in ["/.kelvin/stats", "/.kelvin", "/.kelvin/", "//.kelvin//stats", "/%2ekelvin/stats"] {
        let mut stream = server.connect();
        stream.write_all(get_request(path).as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = read_to_end(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    let setup = ServerSetup::with_threads(1);
    let server = Server::listen("127.0.0.1:0".parse().unwrap(), root.path(), setup, ServerAccess::default()).unwrap();
    assert_eq!(server.stats_address().unwrap(), None);
}
