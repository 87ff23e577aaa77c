//! Hostile clients behind real sockets: requests that are none, and thousands of clients that are slow or silent.

mod hostile;
mod test_server;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use kelvin_core::quantity::MinProgress;
use kelvin_http::serve::limits::ServerLimits;
use kelvin_http::serve::send_strategy::SendStrategy;
use kelvin_http::serve::{ServerModel, ServerSetup};
use kelvin_testing::MissingRequirement;
use proptest::test_runner::TestRunner;
use test_server::{LARGE, SMALL, TestServer, all_models, files, has_ring, is_event_loop, setup_name};

/// What comes for this until the server ends the connection, which the client has ended before. A server that ends one with what it
/// has not read may have it reset.
fn exchange(server: &TestServer, input: &[u8], piece: usize) -> Vec<u8> {
    let mut stream = server.connect();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = input.chunks(piece).try_for_each(|piece| writer.write_all(piece));
            let _ = writer.shutdown(Shutdown::Write);
        });
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        response
    })
}

#[test]
fn mutated_requests_leave_server_usable() {
    let (root, _) = files();
    fs::write(root.path().join("a.txt"), "0123456789abcdef").unwrap();
    for setup in all_models() {
        let server = TestServer::start(root.path(), setup);
        let mut runner = TestRunner::new(hostile::fuzz_config(50));
        let outcome = runner.run(&(hostile::mutated_requests(), 1usize..3000), |(input, piece)| {
            hostile::answer_statuses(&exchange(&server, &input, piece));
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{}: {error}", setup_name(&setup)));
        assert!(server.accepts_client(), "{}", setup_name(&setup));
    }
}

#[test]
fn every_model_refuses_ambiguous_requests() {
    let (root, _) = files();
    for setup in all_models() {
        let server = TestServer::start(root.path(), setup);
        for (bytes, status) in hostile::smuggling_cases::CASES {
            let sent = exchange(&server, &[bytes, SMALL].concat(), 1 << 20);
            assert_eq!(
                hostile::answer_statuses(&sent),
                [status],
                "{}: {:?}",
                setup_name(&setup),
                String::from_utf8_lossy(bytes)
            );
        }
    }
}

/// A client that costs a server a connection and gives it nothing to do.
struct SlowClient {
    stream: TcpStream,
    kind: SlowKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlowKind {
    /// Sends nothing.
    Silent,
    /// Sends a head in single bytes.
    BytewiseHead,
    /// Asks for much, and reads nothing.
    NeverReads,
}

impl SlowClient {
    fn connect(server: &TestServer, number: usize) -> Self {
        let kind = [SlowKind::Silent, SlowKind::BytewiseHead, SlowKind::NeverReads][number % 3];
        let mut stream = TcpStream::connect(server.address).unwrap();
        if kind == SlowKind::NeverReads {
            // What it is sent and does not read lies in memory of this host, too.
            kelvin_sys::net::set_buffers(&stream, 4096).unwrap();
            stream.write_all(LARGE).unwrap();
        }
        Self { stream, kind }
    }

    /// Sends the next byte of a head that never ends.
    fn send_next(&mut self, round: usize) {
        let head = b"GET /small HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ";
        if self.kind == SlowKind::BytewiseHead {
            self.stream.write_all(&[*head.get(round).unwrap_or(&b'a')]).unwrap();
        }
    }

    /// Whether the server has refused it for lack of a slot.
    fn is_rejected(&mut self) -> bool {
        let mut first = [0; 12];
        self.stream.set_nonblocking(true).unwrap();
        let read = self.stream.peek(&mut first);
        read.is_ok_and(|read| first[..read] == *b"HTTP/1.1 503")
    }
}

/// Resident memory of a process, in bytes.
fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

fn open_descriptors(process: u32) -> u64 {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count() as u64
}

/// As many slow clients as are asked for, or as descriptors allow.
fn client_count(max_clients: u64) -> u64 {
    let descriptor_limit = kelvin_sys::process::raise_open_file_limit().unwrap();
    // The server leaves a quarter for files.
    let count = max_clients.min((descriptor_limit / 4 * 3).saturating_sub(200));
    if count < max_clients {
        MissingRequirement::privilege(format!("ulimit -n is {descriptor_limit}"))
            .report_skip(format!("{max_clients} slow clients, of which {count} come,"));
    }
    count
}

/// Memory that a slow client may cost: what a connection is, and the part of a head that has come or the head of an answer.
const MAX_CLIENT_BYTES: u64 = 2 << 10;
/// Memory that the first clients cost: stacks, buffers that threads keep, tables.
const FIXED_BYTES: u64 = 8 << 20;

#[test]
fn thousands_of_slow_clients_leave_server_usable() {
    let (root, _) = files();
    let count = client_count(10_000);
    let models = [
        (ServerModel::Epoll, SendStrategy::Auto),
        (ServerModel::Epoll, SendStrategy::ReadWrite),
        (ServerModel::Poll, SendStrategy::Auto),
        (ServerModel::Uring, SendStrategy::Auto),
    ];
    for (model, sending) in models.into_iter().filter(|(model, _)| *model != ServerModel::Uring || has_ring()) {
        let server = TestServer::fork(
            root.path(),
            ServerSetup { model, send_strategy: sending, ..ServerSetup::with_threads(2) },
        );
        assert!(server.accepts_client());
        let (memory, open) = (resident_bytes(server.process), open_descriptors(server.process));
        let mut clients: Vec<SlowClient> =
            (0..count as usize).map(|number| SlowClient::connect(&server, number)).collect();
        for round in 0..5 {
            clients.iter_mut().for_each(|client| client.send_next(round));
            assert!(server.accepts_client());
        }
        let (memory_growth, descriptor_growth) =
            (resident_bytes(server.process).saturating_sub(memory), open_descriptors(server.process) - open);
        assert!(
            memory_growth <= FIXED_BYTES + count * MAX_CLIENT_BYTES,
            "{model} {sending}: {memory_growth} bytes for {count} clients"
        );
        assert!(
            (count..=count + 32).contains(&descriptor_growth),
            "{model} {sending}: {descriptor_growth} descriptors for {count} clients"
        );
        drop(clients);
        // The server notices in its own time.
        while open_descriptors(server.process) > open + 32 {
            assert!(server.accepts_client());
        }
        assert_eq!(server.end().refused, 0);
    }
}

/// Requests of one client, who sends them without reading, and the size of the file that each is for.
const PIPELINED_REQUESTS: usize = 16_000;
const FILE_BYTES: usize = 10_000;

/// Sends as much as is taken while nothing is read, and returns how much that was.
fn send_without_reading(server: &TestServer, stream: &mut TcpStream, requests: &[u8]) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut blocked_writes) = (0, 0);
    while blocked_writes < 100 && sent < requests.len() {
        match stream.write(&requests[sent..]) {
            Ok(written) => (sent, blocked_writes) = (sent + written, 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => blocked_writes += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(server.accepts_client());
    }
    stream.set_nonblocking(false).unwrap();
    sent
}

/// The content of the next answer, if it is one of success.
fn read_content(reader: &mut impl BufRead) -> [u8; FILE_BYTES] {
    let (mut line, mut content) = (String::new(), [0; FILE_BYTES]);
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    reader.read_exact(&mut content).unwrap();
    content
}

#[test]
fn nonreading_pipeliner_gets_all_answers() {
    let (root, _) = files();
    fs::write(root.path().join("some"), [7; FILE_BYTES]).unwrap();
    let request = format!("GET /some HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(1000));
    let requests = request.repeat(PIPELINED_REQUESTS).into_bytes();
    for setup in all_models() {
        let server = TestServer::fork(root.path(), setup);
        assert!(server.accepts_client());
        let memory = resident_bytes(server.process);
        let mut stream = server.connect();
        let sent = send_without_reading(&server, &mut stream, &requests);
        assert!(sent < requests.len(), "{}: all was taken", setup_name(&setup));
        let memory_growth = resident_bytes(server.process).saturating_sub(memory);
        assert!(memory_growth <= FIXED_BYTES, "{}: {memory_growth} bytes", setup_name(&setup));
        let (mut writer, rest) = (stream.try_clone().unwrap(), &requests[sent..]);
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(rest).unwrap());
            let mut reader = BufReader::new(stream);
            (0..PIPELINED_REQUESTS).for_each(|_| assert_eq!(read_content(&mut reader), [7; FILE_BYTES]));
        });
    }
}

#[test]
fn one_worker_models_reject_excess_clients() {
    let (root, _) = files();
    let limits = ServerLimits { connections: 24, ..ServerLimits::default() };
    for setup in all_models().filter(|setup| !is_event_loop(setup.model)) {
        let server = TestServer::fork(root.path(), ServerSetup { limits, threads: 16, ..setup });
        let open = open_descriptors(server.process);
        let mut clients: Vec<SlowClient> = (0..200).map(|number| SlowClient::connect(&server, number)).collect();
        while clients.iter_mut().filter_map(|client| client.is_rejected().then_some(())).count() < 176 {}
        assert!(open_descriptors(server.process) <= open + 24 + 64, "{}", setup_name(&setup));
        drop(clients);
        while !server.accepts_client() {}
        let totals = server.end();
        assert!(totals.connections >= 24 && totals.refused >= 176, "{}: {totals:?}", setup_name(&setup));
    }
}

/// Clients that ask for a long list many times and read nothing, each with a process of its own.
#[test]
fn forked_processes_share_listing_limit() {
    let root = tempfile::tempdir().unwrap();
    (0..2000).for_each(|number| fs::write(root.path().join(format!("{number:0200}")), "").unwrap());
    let server = TestServer::fork(
        root.path(),
        ServerSetup { model: ServerModel::Fork, lists_directories: true, ..ServerSetup::with_threads(2) },
    );
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let send_requests = |times: usize| {
        let mut stream = server.connect();
        kelvin_sys::net::set_buffers(&stream, 4096).unwrap();
        stream.write_all(&request.repeat(times)).unwrap();
        stream
    };
    let is_refused = || {
        let mut first = [0; 12];
        send_requests(1).read_exact(&mut first).unwrap();
        assert!(first == *b"HTTP/1.1 200" || first == *b"HTTP/1.1 503");
        first.ends_with(b"503")
    };
    let until = Instant::now() + Duration::from_secs(600);
    let wait_for_refusal = |expected: bool| {
        while is_refused() != expected {
            assert!(Instant::now() < until, "never refused: {expected}");
        }
    };
    let mut clients: Vec<_> = (0..64).map(|_| send_requests(100)).collect();
    wait_for_refusal(true);
    clients.clear();
    wait_for_refusal(false);
}

#[test]
fn slow_reader_loses_its_connection() {
    const HOLE_BYTES: u64 = 1 << 30;
    let (root, _) = files();
    fs::File::create(root.path().join("hole")).unwrap().set_len(HOLE_BYTES).unwrap();
    for setup in all_models() {
        // More than any client takes: this one takes something at any time.
        let progress = MinProgress { bytes: 1 << 50, interval: Duration::from_secs(1) };
        let server = TestServer::start(
            root.path(),
            ServerSetup { limits: ServerLimits { min_progress: progress, ..ServerLimits::default() }, ..setup },
        );
        let mut client = server.connect();
        client.write_all(b"GET /hole HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        let (mut buffer, mut received) = (vec![0; 256 << 10], 0);
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            received += count as u64;
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(received < HOLE_BYTES, "{}", setup_name(&setup));
        assert!(server.accepts_client(), "{}", setup_name(&setup));
    }
}

#[test]
fn nonreader_is_dropped_after_progress_timeout() {
    let (root, _) = files();
    fs::File::create(root.path().join("hole")).unwrap().set_len(1 << 30).unwrap();
    for setup in all_models() {
        // Far less than the time for which a connection may be idle, which is no measure of this.
        let progress = MinProgress { bytes: 4096, interval: Duration::from_secs(1) };
        let limits = ServerLimits {
            min_progress: progress,
            connections: 1,
            idle_timeout: Duration::from_secs(3600),
            ..ServerLimits::default()
        };
        let server = TestServer::start(root.path(), ServerSetup { limits, ..setup });
        let mut client = server.connect();
        client.write_all(b"GET /hole HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        test_server::wait_readable(&client);
        assert!(!server.accepts_client(), "{}", setup_name(&setup));
        let until = Instant::now() + Duration::from_secs(120);
        while !server.accepts_client() {
            assert!(Instant::now() < until, "{}", setup_name(&setup));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
