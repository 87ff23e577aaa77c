//! Looks at a server behind real sockets: what is counted is what was asked for, and whoever is busy is looked at all the same.

mod running;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_model::resources::{Look, Served};
use kelvin_serve::looks::Exposure;
use kelvin_serve::{Access, Model, Server, Setup};
use running::{await_byte, has_ring};

const LARGE: usize = 10_000_000;

/// A server that ends when it is dropped, and where it is looked at.
struct Running {
    address: SocketAddr,
    looks: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<kelvin_serve::Served>>,
}

impl Running {
    fn start(root: &Path, (model, threads): (Model, usize)) -> Self {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let allows = Box::new(|token: &str| token == "the right one");
        let exposure = Exposure { address: any, directory: root.into(), allows };
        let setup = Setup { model, ..Setup::of(threads) };
        let server =
            Server::listen_with(any, root, setup, Access { exposure: Some(exposure), ..Access::default() }).unwrap();
        let (address, looks) = (server.address().unwrap(), server.address_for_looks().unwrap().unwrap());
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || server.serve(|| told.load(Ordering::Relaxed)).unwrap());
        Self { address, looks, is_over, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        connected(self.address)
    }

    /// The answer to a request for a look.
    fn asked(&self, request: &str) -> String {
        let mut stream = connected(self.looks);
        stream.write_all(request.as_bytes()).unwrap();
        rest(&mut stream)
    }

    fn look(&self) -> Look {
        let answer = self.asked(&look("GET", "Bearer the right one"));
        let (head, json) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        Look::from_json(json.as_bytes()).unwrap()
    }

    fn served(&self) -> Served {
        self.look().served.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn rest(stream: &mut TcpStream) -> String {
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    all
}

fn look(method: &str, authorization: &str) -> String {
    format!("{method} /.kelvin/resources HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {authorization}\r\n\r\n")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
}

/// The length of the content that comes.
fn answer(stream: &mut TcpStream) -> usize {
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
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("large"), vec![7; LARGE]).unwrap();
    fs::write(top.path().join("small"), "small").unwrap();
    fs::create_dir(top.path().join(".kelvin")).unwrap();
    fs::write(top.path().join(".kelvin/resources"), "not this").unwrap();
    top
}

/// Every model that is watched. The pool has a thread for each client of a test.
fn every() -> impl Iterator<Item = (Model, usize)> {
    let models = [(Model::Epoll, 2), (Model::Uring, 2), (Model::Thread, 1), (Model::Pool, 32)];
    models.into_iter().filter(|(model, _)| *model != Model::Uring || has_ring())
}

#[test]
fn what_is_counted_is_what_was_asked_for() {
    let top = files();
    for model in every() {
        let server = Running::start(top.path(), model);
        let asked = |number: usize| {
            let mut stream = server.connect();
            let mut bytes = 0;
            for round in 0..10 {
                let path = if (number + round).is_multiple_of(5) { "/large" } else { "/small" };
                stream.write_all(get(path).as_bytes()).unwrap();
                bytes += answer(&mut stream);
            }
            // Several at once, and an answer that is an error.
            stream.write_all([get("/small"), get("/none"), get("/small")].concat().as_bytes()).unwrap();
            bytes += (0..3).map(|_| answer(&mut stream)).sum::<usize>();
            (stream, bytes)
        };
        let clients: Vec<(TcpStream, usize)> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8).map(|number| scope.spawn(move || asked(number))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let bytes: usize = clients.iter().map(|(_, bytes)| bytes).sum();
        let expected = (8 * 13, bytes as u64, 8, 0);
        let counted = |served: Served| (served.requests, served.bytes, served.connections, served.refused);
        // A thread says what it has given to the kernel when it has: the client may be faster.
        while counted(server.served()) != expected || server.served().in_flight_now > 0 {}
        drop(clients);
        // Nothing is lost when they end, and looks are not among them.
        assert_eq!(counted(server.served()), expected, "{}", model.0);
        let served = server.served();
        assert!(served.sampled > 0 && served.accept_queue.max > 0);
        assert_eq!(served.workers, (model.0 == Model::Pool).then_some(32));
    }
}

#[test]
fn a_client_that_reads_nothing_holds_its_request_in_flight_and_idle_ones_hold_none() {
    let top = files();
    for model in every() {
        let server = Running::start(top.path(), model);
        let mut idle: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
        for stream in &mut idle {
            stream.write_all(get("/small").as_bytes()).unwrap();
            answer(stream);
        }
        let mut slow = server.connect();
        slow.write_all(get("/large").as_bytes()).unwrap();
        await_byte(&slow);
        while server.served().in_flight_now != 1 {}
        let begin = server.served();
        while server.served().window_limited == 0.0 {}
        let end = server.served();
        // All are integrated over the same samples, so that their ratios are exact whatever the time between them was.
        let grown = |of: fn(&Served) -> f64| of(&end) - of(&begin);
        let in_flight = grown(|served| served.in_flight);
        assert!(in_flight > 0.0 && end.sampled > begin.sampled);
        let is = |found: f64, times: f64| (found / in_flight - times).abs() < 1e-6;
        let sending = grown(|served| served.sending.unwrap());
        assert!(sending >= grown(|served| served.window_limited), "{begin:?} {end:?}");
        assert!(is(grown(|served| served.worked), 1.0) && is(grown(|served| served.held), 5.0), "{begin:?} {end:?}");
        assert_eq!(answer(&mut slow), LARGE);
        while server.served().in_flight_now > 0 {}
    }
}

#[test]
fn a_pool_whose_workers_are_all_busy_is_looked_at_with_who_waits() {
    let top = files();
    let server = Running::start(top.path(), (Model::Pool, 1));
    let mut busy = server.connect();
    busy.write_all(get("/large").as_bytes()).unwrap();
    await_byte(&busy);
    let mut waiting: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(get("/small").as_bytes()).unwrap());
    while server.served().in_flight_now < 4 {}
    let (begin, end) = (server.served(), server.served());
    assert_eq!((end.workers, end.connections, end.requests), (Some(1), 4, 0));
    let (held, in_flight) = (end.held - begin.held, end.in_flight - begin.in_flight);
    assert!(held > 0.0 && (in_flight / held - 4.0).abs() < 1e-6, "{begin:?} {end:?}");
    answer(&mut busy);
    drop(busy);
    // Each holds the worker until it ends.
    waiting.into_iter().for_each(|mut stream| assert_eq!(answer(&mut stream), "small".len()));
}

#[test]
fn who_has_no_token_sees_nothing() {
    let top = files();
    let server = Running::start(top.path(), (Model::Epoll, 1));
    let right = "Bearer the right one";
    for (request, status) in [
        (look("GET", right), "200 OK"),
        (look("HEAD", right), "200 OK"),
        (look("GET", "bearer the right one"), "200 OK"),
        (look("GET", "Bearer the wrong one"), "401 Unauthorized"),
        (look("HEAD", "Bearer"), "401 Unauthorized"),
        (look("GET", "Basic the right one"), "401 Unauthorized"),
        (get("/.kelvin/resources"), "401 Unauthorized"),
        (look("GET", right).replace("resources", "other"), "404 Not Found"),
        (get("/small"), "404 Not Found"),
        (look("POST", right), "405 Method Not Allowed"),
        (look("GET", right).replace("Host", "Content-Length: 1\r\nHost"), "413 Content Too Large"),
        (look("GET", right).replace("Host: 127.0.0.1\r\n", ""), "400 Bad Request"),
        ("GET / HTTP/2.0\r\n\r\n".into(), "505 HTTP Version Not Supported"),
    ] {
        let answer = server.asked(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        assert!(answer.contains("\r\nCache-Control: no-store\r\n"), "{answer}");
        assert_eq!(answer.contains("\r\nWWW-Authenticate: Bearer "), status.starts_with("401"), "{answer}");
        let is_empty = answer.ends_with("\r\n\r\n");
        assert_eq!(is_empty, request.starts_with("HEAD"), "{answer}");
        assert!(!answer.contains("process") || (status == "200 OK" && !is_empty), "{answer}");
    }
    assert_eq!(server.served().requests, 0);
}

#[test]
fn who_says_nothing_keeps_nobody_from_looking() {
    let top = files();
    let server = Running::start(top.path(), (Model::Epoll, 1));
    let silent: Vec<TcpStream> = (0..100).map(|_| connected(server.looks)).collect();
    assert!(server.look().process.threads > 1);
    drop(silent);
}

#[test]
fn the_reserved_name_is_that_of_no_file() {
    let top = files();
    let server = Running::start(top.path(), (Model::Epoll, 1));
    for path in ["/.kelvin/resources", "/.kelvin", "/.kelvin/", "//.kelvin//resources", "/%2ekelvin/resources"] {
        let mut stream = server.connect();
        stream.write_all(get(path).as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = rest(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    let setup = Setup::of(1);
    let plain = Server::listen("127.0.0.1:0".parse().unwrap(), top.path(), setup).unwrap();
    assert_eq!(plain.address_for_looks().unwrap(), None);
}
