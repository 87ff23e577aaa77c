//! A server behind real sockets: many clients, slow ones, too many, and its end.

mod test_server;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kelvin_http::serve::limits::ServerLimits;
use kelvin_http::serve::{Error, Server, ServerAccess, ServerModel, ServerSetup};
use test_server::{
    LARGE, SMALL, TestServer, all_models, all_setups, files, is_event_loop, random_bytes, read_answer, read_head,
    read_to_end, setup_name, wait_readable,
};

#[test]
fn files_arrive_whole_on_every_connection() {
    let (root, large) = files();
    for setup in all_setups() {
        let server = TestServer::start(root.path(), setup);
        let mut stream = server.connect();
        for _ in 0..3 {
            stream.write_all(SMALL).unwrap();
            assert_eq!(read_answer(&mut stream).1, b"small");
            stream.write_all(LARGE).unwrap();
            assert!(read_answer(&mut stream).1 == large, "{}", setup_name(&setup));
        }
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(server.query(LARGE).ends_with(&large), "{}", setup_name(&setup)));
            }
        });
        let totals = server.end();
        assert_eq!((totals.requests, totals.connections, totals.refused), (14, 9, 0));
        assert!(totals.bytes > 11 * 10_000_000);
    }
}

/// Lengths around what is read, mapped, or goes through a pipe at a time.
const LENGTHS: [usize; 15] = [
    0,
    1,
    4095,
    4096,
    4097,
    16_384,
    16_385,
    65_537,
    (256 << 10) - 1,
    (256 << 10) + 1,
    (2 << 20) - 1,
    2 << 20,
    (2 << 20) + 1,
    (2 << 20) + 4097,
    (4 << 20) + 1,
];

/// Asks for a file, or a part of it, and returns what came.
fn get(stream: &mut TcpStream, path: &str, range: Option<(usize, usize)>) -> Vec<u8> {
    let field = range.map_or(String::new(), |(first, last)| format!("Range: bytes={first}-{last}\r\n"));
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{field}\r\n").as_bytes()).unwrap();
    let (head, content) = read_answer(stream);
    let code = if range.is_some() { "HTTP/1.1 206 " } else { "HTTP/1.1 200 " };
    assert!(head.starts_with(code), "{head}");
    content
}

#[test]
fn files_and_ranges_arrive_byte_for_byte() {
    let root = tempfile::tempdir().unwrap();
    let content = random_bytes(LENGTHS[LENGTHS.len() - 1] as u32);
    LENGTHS.iter().for_each(|length| fs::write(root.path().join(length.to_string()), &content[..*length]).unwrap());
    for setup in all_setups() {
        let server = TestServer::start(root.path(), setup);
        let mut stream = server.connect();
        for length in LENGTHS {
            let path = format!("/{length}");
            assert!(get(&mut stream, &path, None) == content[..length], "{} {length}", setup_name(&setup));
            stream.write_all(format!("HEAD {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).unwrap();
            let edges = [(0, 0), (1, 4096), (4095, 4096), (4096, 8191), (8192, 300_000), (2_097_151, 2_097_152)];
            let length_edges = [(0, length.saturating_sub(2)), (length / 2, length.saturating_sub(1))];
            let head = read_head(&mut stream);
            assert!(head.contains(&format!("\r\nContent-Length: {length}\r\n")), "{head}");
            for (first, last) in
                edges.into_iter().chain(length_edges).filter(|(first, last)| first <= last && *last < length)
            {
                let part = get(&mut stream, &path, Some((first, last)));
                assert!(part == content[first..=last], "{} {length}: {first}-{last}", setup_name(&setup));
            }
        }
        let ranges = [(0, 5000), (9000, 9000), (2_097_000, 2_100_000)];
        stream.write_all(b"GET /4194305 HTTP/1.1\r\nHost: 127.0.0.1\r\n").unwrap();
        stream.write_all(b"Range: bytes=0-5000,9000-9000,2097000-2100000\r\n\r\n").unwrap();
        let (_, mut rest) = read_answer(&mut stream);
        for (first, last) in ranges {
            let begin = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            rest.drain(..begin);
            assert!(rest[..=last - first] == content[first..=last], "{} {first}-{last}", setup_name(&setup));
            rest.drain(..=last - first);
        }
    }
}

#[test]
fn fork_model_requires_single_thread() {
    let (root, _) = files();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || receiver.recv());
    let setup = ServerSetup { model: ServerModel::Fork, ..ServerSetup::with_threads(1) };
    let result = Server::listen("127.0.0.1:0".parse().unwrap(), root.path(), setup, ServerAccess::default());
    assert!(matches!(result.unwrap_err(), Error::ForkWithThreads(2..)));
    drop(sender);
    other.join().unwrap().unwrap_err();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (root, large) = files();
    for setup in all_setups() {
        let server = TestServer::start(root.path(), setup);
        let mut stream = server.connect();
        let requests = [SMALL.repeat(500), LARGE.repeat(2), SMALL.repeat(500)].concat();
        let mut writer = stream.try_clone().unwrap();
        let writer_thread = std::thread::spawn(move || writer.write_all(&requests).unwrap());
        for number in 0..1002 {
            let (_, content) = read_answer(&mut stream);
            let expected: &[u8] = if [500, 501].contains(&number) { &large } else { b"small" };
            assert!(content == expected, "{} {number}", setup_name(&setup));
        }
        writer_thread.join().unwrap();
    }
}

#[test]
fn slow_reader_blocks_nobody() {
    let (root, large) = files();
    for setup in all_setups() {
        let server = TestServer::start(root.path(), setup);
        let mut slow_clients: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
        slow_clients.iter_mut().for_each(|stream| stream.write_all(LARGE).unwrap());
        // They read nothing, and others are served.
        (0..20).for_each(|_| assert!(server.query(SMALL).ends_with(b"small")));
        for stream in &mut slow_clients {
            assert!(read_answer(stream).1 == large, "{}", setup_name(&setup));
        }
    }
}

#[test]
fn more_clients_than_pieces_are_served() {
    let (root, large) = files();
    for setup in all_models().filter(|setup| is_event_loop(setup.model)) {
        let server = TestServer::start(root.path(), ServerSetup { threads: 1, ..setup });
        let mut clients: Vec<TcpStream> = (0..50).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|stream| stream.write_all(LARGE).unwrap());
        // Some leave in the middle, and those who wait for their turn have it all the same.
        clients.drain(..10).for_each(|mut stream| stream.read_exact(&mut [0; 1000]).unwrap());
        assert!(server.query(SMALL).ends_with(b"small"));
        for stream in &mut clients {
            assert!(read_answer(stream).1 == large, "{}", setup_name(&setup));
        }
    }
}

#[test]
fn bytewise_request_is_answered_or_refused() {
    let (root, _) = files();
    for setup in all_setups() {
        let server = TestServer::start(root.path(), setup);
        let mut stream = server.connect();
        stream.set_nodelay(true).unwrap();
        SMALL.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        assert_eq!(read_answer(&mut stream).1, b"small");
        // A body that is on its way does not drop the answer.
        let mut stream = server.connect();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n").unwrap();
        let _ = stream.write_all(&vec![0; 100_000]);
        let (head, _) = read_answer(&mut stream);
        assert!(head.starts_with("HTTP/1.1 405") && head.contains("Connection: close"), "{head}");
    }
}

#[test]
fn late_request_is_408_and_idle_is_closed() {
    let (root, _) = files();
    let limits = ServerLimits {
        request_timeout: Duration::from_millis(1),
        idle_timeout: Duration::from_millis(1),
        ..ServerLimits::default()
    };
    for setup in all_models() {
        let server = TestServer::start(root.path(), ServerSetup { limits, ..setup });
        let mut client = server.connect();
        client.write_all(b"GET / HT").unwrap();
        let response = read_to_end(&mut client);
        assert!(response.starts_with(b"HTTP/1.1 408 ") && response.ends_with(b"408 Request Timeout\n"));
        assert_eq!(read_to_end(&mut server.connect()), b"");
    }
}

#[test]
fn excess_connection_is_503_until_slot_frees() {
    let (root, _) = files();
    let limits = ServerLimits { connections: 3, ..ServerLimits::default() };
    for setup in all_setups() {
        let server = TestServer::start(root.path(), ServerSetup { limits, ..setup });
        let mut clients: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
        for stream in &mut clients {
            stream.write_all(SMALL).unwrap();
            assert_eq!(read_answer(stream).1, b"small");
        }
        let mut rejected = server.connect();
        // It asks only when it has been turned away already, and is not reset for that.
        wait_readable(&rejected);
        (0..3).for_each(|_| rejected.write_all(SMALL).unwrap());
        let response = read_to_end(&mut rejected);
        assert!(response.starts_with(b"HTTP/1.1 503 ") && response.windows(13).any(|words| words == b"Retry-After: "));
        drop(clients);
        // The server notices in its own time.
        assert!((0..1000).any(|_| server.accepts_client()));
        assert!(server.end().refused >= 1);
    }
}

#[test]
fn shutdown_finishes_requests_and_closes_idle() {
    let (root, large) = files();
    for setup in all_setups() {
        let server = TestServer::start(root.path(), setup);
        let (mut idle, mut busy) = (server.connect(), server.connect());
        idle.write_all(SMALL).unwrap();
        read_answer(&mut idle);
        busy.write_all(LARGE).unwrap();
        let mut first = [0; 1];
        busy.read_exact(&mut first).unwrap();
        let address = server.address;
        let shutdown_thread = std::thread::spawn(move || server.end());
        // Its end, which comes only after the server was asked to end.
        assert_eq!(read_to_end(&mut idle), b"");
        let response = read_to_end(&mut busy);
        assert!(response.ends_with(&large));
        drop(busy);
        shutdown_thread.join().unwrap();
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn shutdown_answers_say_connection_close() {
    let (root, large) = files();
    for setup in all_setups() {
        let server = TestServer::start(root.path(), setup);
        let mut busy = server.connect();
        busy.write_all(&[LARGE, SMALL, SMALL].concat()).unwrap();
        busy.read_exact(&mut [0; 1]).unwrap();
        let mut idle = server.connect();
        idle.write_all(SMALL).unwrap();
        read_answer(&mut idle);
        let shutdown_thread = std::thread::spawn(move || server.end());
        // Its end comes only when the server was asked to end, and the second request waits until then behind the first.
        assert_eq!(read_to_end(&mut idle), b"");
        let response = read_to_end(&mut busy);
        let last = response.windows(9).rposition(|words| words == b"HTTP/1.1 ").unwrap();
        let last = String::from_utf8_lossy(&response[last..]).into_owned();
        assert!(last.contains("\r\nConnection: close\r\n") && last.ends_with("small"), "{} {last}", setup_name(&setup));
        assert!(response.len() < large.len() + 1000, "only one more");
        drop(busy);
        shutdown_thread.join().unwrap();
    }
}

#[test]
fn shutdown_drops_nonreading_client() {
    let (root, _) = files();
    let limits = ServerLimits { drain_timeout: Duration::from_millis(1), ..ServerLimits::default() };
    for setup in all_setups() {
        let server = TestServer::start(root.path(), ServerSetup { limits, ..setup });
        let mut client = server.connect();
        client.write_all(&LARGE.repeat(10)).unwrap();
        let mut first = [0; 1];
        client.read_exact(&mut first).unwrap();
        assert_eq!(server.end().connections, 1);
    }
}

#[test]
fn shrinking_file_ends_only_its_connection() {
    let (root, large) = files();
    for setup in all_setups() {
        fs::write(root.path().join("large"), &large).unwrap();
        let server = TestServer::start(root.path(), setup);
        let mut stream = server.connect();
        stream.write_all(LARGE).unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        fs::File::options().write(true).open(root.path().join("large")).unwrap().set_len(100).unwrap();
        let mut response = Vec::new();
        // The rest of what was sent, and then an end or a reset.
        let _ = stream.read_to_end(&mut response);
        assert!(response.len() < large.len(), "{}", setup_name(&setup));
        assert!(server.query(SMALL).ends_with(b"small"));
    }
}

#[test]
fn every_model_serves_unsized_files() {
    let version = fs::read("/proc/version").unwrap();
    for setup in all_models() {
        let server = TestServer::start(std::path::Path::new("/proc"), setup);
        let mut stream = server.connect();
        for _ in 0..2 {
            assert_eq!(get(&mut stream, "/version", None), version, "{}", setup_name(&setup));
        }
        stream.write_all(b"HEAD /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).contains(&format!("Content-Length: {}\r\n", version.len())));
    }
}
