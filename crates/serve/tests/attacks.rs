//! Hostile clients behind real sockets: requests that are none, and thousands of clients that are slow or say nothing.

mod hostile;
mod running;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use kelvin_model::quantity::MinProgress;
use kelvin_serve::limits::Limits;
use kelvin_serve::sending::Sending;
use kelvin_serve::{Model, Setup};
use kelvin_testing::Missing;
use proptest::test_runner::TestRunner;
use running::{LARGE, Running, SMALL, files, has_ring, models, named};

/// What comes for this until the server ends the connection, which the client has ended before. A server that ends one with what it
/// has not read may have it reset.
fn asked(server: &Running, input: &[u8], piece: usize) -> Vec<u8> {
    let mut stream = server.connect();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = input.chunks(piece).try_for_each(|piece| writer.write_all(piece));
            let _ = writer.shutdown(Shutdown::Write);
        });
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        all
    })
}

#[test]
fn mutated_requests_get_whole_answers_and_the_next_client_is_served() {
    let (top, _) = files();
    fs::write(top.path().join("a.txt"), "0123456789abcdef").unwrap();
    for setup in models() {
        let server = Running::start(top.path(), setup);
        let mut runner = TestRunner::new(hostile::cases(50));
        let outcome = runner.run(&(hostile::requests(), 1usize..3000), |(input, piece)| {
            hostile::answers(&asked(&server, &input, piece));
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{}: {error}", named(&setup)));
        assert!(server.has_place(), "{}", named(&setup));
    }
}

#[test]
fn what_two_programs_could_read_differently_is_refused_by_every_model() {
    let (top, _) = files();
    for setup in models() {
        let server = Running::start(top.path(), setup);
        for (bytes, status) in hostile::smuggled::ALL {
            let sent = asked(&server, &[bytes, SMALL].concat(), 1 << 20);
            assert_eq!(hostile::answers(&sent), [status], "{}: {:?}", named(&setup), String::from_utf8_lossy(bytes));
        }
    }
}

/// A client that costs a server a connection and gives it nothing to do.
struct Slow {
    stream: TcpStream,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Says nothing.
    Silent,
    /// Sends a head in single bytes.
    Head,
    /// Asks for much, and reads nothing.
    Deaf,
}

impl Slow {
    fn of(server: &Running, number: usize) -> Self {
        let kind = [Kind::Silent, Kind::Head, Kind::Deaf][number % 3];
        let mut stream = TcpStream::connect(server.address).unwrap();
        if kind == Kind::Deaf {
            // What it is sent and does not read lies in memory of this host, too.
            kelvin_sys::net::set_buffers(&stream, 4096).unwrap();
            stream.write_all(LARGE).unwrap();
        }
        Self { stream, kind }
    }

    /// Sends the next byte of a head that never ends.
    fn go_on(&mut self, round: usize) {
        let head = b"GET /small HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ";
        if self.kind == Kind::Head {
            self.stream.write_all(&[*head.get(round).unwrap_or(&b'a')]).unwrap();
        }
    }

    /// Whether it was told that there is no place for it.
    fn is_turned_away(&mut self) -> bool {
        let mut first = [0; 12];
        self.stream.set_nonblocking(true).unwrap();
        let read = self.stream.peek(&mut first);
        read.is_ok_and(|read| first[..read] == *b"HTTP/1.1 503")
    }
}

/// Resident memory of a process, in bytes.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

fn descriptors(process: u32) -> u64 {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count() as u64
}

/// As many slow clients as are asked for, or as descriptors allow.
fn crowd(most: u64) -> u64 {
    let allowed = kelvin_sys::process::raise_open_files().unwrap();
    // The server leaves a quarter for files.
    let count = most.min((allowed / 4 * 3).saturating_sub(200));
    if count < most {
        Missing::right(format!("ulimit -n is {allowed}")).skips(format!("{most} slow clients, of which {count} come,"));
    }
    count
}

/// Memory that a slow client may cost: what a connection is, and the part of a head that has come or the head of an answer.
const COST: u64 = 2 << 10;
/// Memory that the first clients cost: stacks, buffers that threads keep, tables.
const FIXED: u64 = 8 << 20;

#[test]
fn thousands_of_slow_clients_cost_little_and_keep_nobody_from_being_served() {
    let (top, _) = files();
    let count = crowd(10_000);
    let models = [(Model::Epoll, Sending::Auto), (Model::Epoll, Sending::ReadWrite), (Model::Uring, Sending::Auto)];
    for (model, sending) in models.into_iter().filter(|(model, _)| *model != Model::Uring || has_ring()) {
        let server = Running::fork(top.path(), Setup { model, sending, ..Setup::of(2) });
        assert!(server.has_place());
        let (memory, open) = (resident(server.process), descriptors(server.process));
        let mut crowd: Vec<Slow> = (0..count as usize).map(|number| Slow::of(&server, number)).collect();
        for round in 0..5 {
            crowd.iter_mut().for_each(|slow| slow.go_on(round));
            assert!(server.has_place());
        }
        let (more, opened) = (resident(server.process).saturating_sub(memory), descriptors(server.process) - open);
        assert!(more <= FIXED + count * COST, "{model} {sending}: {more} bytes for {count} clients");
        assert!((count..=count + 32).contains(&opened), "{model} {sending}: {opened} descriptors for {count} clients");
        drop(crowd);
        // The server notices in its own time.
        while descriptors(server.process) > open + 32 {
            assert!(server.has_place());
        }
        assert_eq!(server.end().refused, 0);
    }
}

/// Requests of one client, who sends them without reading, and the size of the file that each is for.
const ASKED: usize = 16_000;
const SIZE: usize = 10_000;

/// Sends as much as is taken while nothing is read, and returns how much that was.
fn send_without_reading(server: &Running, stream: &mut TcpStream, requests: &[u8]) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut refused) = (0, 0);
    while refused < 100 && sent < requests.len() {
        match stream.write(&requests[sent..]) {
            Ok(more) => (sent, refused) = (sent + more, 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(server.has_place());
    }
    stream.set_nonblocking(false).unwrap();
    sent
}

/// The content of the next answer, if it is one of success.
fn content(reader: &mut impl BufRead) -> [u8; SIZE] {
    let (mut line, mut content) = (String::new(), [0; SIZE]);
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
fn who_asks_without_reading_costs_little_and_has_all_answers_in_the_end() {
    let (top, _) = files();
    fs::write(top.path().join("some"), [7; SIZE]).unwrap();
    let request = format!("GET /some HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(1000));
    let requests = request.repeat(ASKED).into_bytes();
    for setup in models() {
        let server = Running::fork(top.path(), setup);
        assert!(server.has_place());
        let memory = resident(server.process);
        let mut stream = server.connect();
        let sent = send_without_reading(&server, &mut stream, &requests);
        assert!(sent < requests.len(), "{}: all was taken", named(&setup));
        let more = resident(server.process).saturating_sub(memory);
        assert!(more <= FIXED, "{}: {more} bytes", named(&setup));
        let (mut writer, rest) = (stream.try_clone().unwrap(), &requests[sent..]);
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(rest).unwrap());
            let mut reader = BufReader::new(stream);
            (0..ASKED).for_each(|_| assert_eq!(content(&mut reader), [7; SIZE]));
        });
    }
}

#[test]
fn models_that_give_each_client_a_worker_turn_away_whom_they_cannot_serve() {
    let (top, _) = files();
    let limits = Limits { connections: 24, ..Limits::default() };
    for setup in models().filter(|setup| ![Model::Epoll, Model::Uring].contains(&setup.model)) {
        let server = Running::fork(top.path(), Setup { limits, threads: 16, ..setup });
        let open = descriptors(server.process);
        let mut crowd: Vec<Slow> = (0..200).map(|number| Slow::of(&server, number)).collect();
        while crowd.iter_mut().filter_map(|slow| slow.is_turned_away().then_some(())).count() < 176 {}
        assert!(descriptors(server.process) <= open + 24 + 64, "{}", named(&setup));
        drop(crowd);
        while !server.has_place() {}
        let served = server.end();
        assert!(served.connections >= 24 && served.refused >= 176, "{}: {served:?}", named(&setup));
    }
}

/// Clients that ask for a long list many times and read nothing, each with a process of its own.
#[test]
fn processes_hold_no_more_lists_together_than_so_many() {
    let top = tempfile::tempdir().unwrap();
    (0..2000).for_each(|number| fs::write(top.path().join(format!("{number:0200}")), "").unwrap());
    let server = Running::fork(top.path(), Setup { model: Model::Fork, lists: true, ..Setup::of(2) });
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let ask = |times: usize| {
        let mut stream = server.connect();
        kelvin_sys::net::set_buffers(&stream, 4096).unwrap();
        stream.write_all(&request.repeat(times)).unwrap();
        stream
    };
    let is_refused = || {
        let mut first = [0; 12];
        ask(1).read_exact(&mut first).unwrap();
        assert!(first == *b"HTTP/1.1 200" || first == *b"HTTP/1.1 503");
        first.ends_with(b"503")
    };
    let until = Instant::now() + Duration::from_secs(600);
    let wait_for = |refused: bool| {
        while is_refused() != refused {
            assert!(Instant::now() < until, "never refused: {refused}");
        }
    };
    let mut crowd: Vec<_> = (0..64).map(|_| ask(100)).collect();
    wait_for(true);
    crowd.clear();
    wait_for(false);
}

#[test]
fn who_takes_an_answer_too_slowly_does_not_keep_a_place() {
    const WHOLE: u64 = 1 << 30;
    let (top, _) = files();
    fs::File::create(top.path().join("hole")).unwrap().set_len(WHOLE).unwrap();
    for setup in models() {
        // More than any client takes: this one takes something at any time.
        let progress = MinProgress { bytes: 1 << 50, within: Duration::from_secs(1) };
        let server = Running::start(top.path(), Setup { limits: Limits { progress, ..Limits::default() }, ..setup });
        let mut slow = server.connect();
        slow.write_all(b"GET /hole HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        let (mut some, mut all) = (vec![0; 256 << 10], 0);
        while let Ok(taken @ 1..) = slow.read(&mut some) {
            all += taken as u64;
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(all < WHOLE, "{}", named(&setup));
        assert!(server.has_place(), "{}", named(&setup));
    }
}

#[test]
fn who_takes_nothing_of_an_answer_keeps_no_place_beyond_the_time_for_its_share() {
    let (top, _) = files();
    fs::File::create(top.path().join("hole")).unwrap().set_len(1 << 30).unwrap();
    for setup in models() {
        // Far less than the time for which a connection may be idle, which is no measure of this.
        let progress = MinProgress { bytes: 4096, within: Duration::from_secs(1) };
        let limits = Limits { progress, connections: 1, idle: Duration::from_secs(3600), ..Limits::default() };
        let server = Running::start(top.path(), Setup { limits, ..setup });
        let mut deaf = server.connect();
        deaf.write_all(b"GET /hole HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        running::await_byte(&deaf);
        assert!(!server.has_place(), "{}", named(&setup));
        let until = Instant::now() + Duration::from_secs(120);
        while !server.has_place() {
            assert!(Instant::now() < until, "{}", named(&setup));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
