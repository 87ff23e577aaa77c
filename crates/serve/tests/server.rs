//! A server behind real sockets: many clients, slow ones, too many, and its end.

mod running;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kelvin_serve::limits::Limits;
use kelvin_serve::{Error, Model, Server, Setup};
use running::{LARGE, Running, SMALL, answer, await_byte, every, files, head, models, named, noise, rest};

#[test]
fn files_arrive_whole_over_one_connection_and_over_many() {
    let (top, large) = files();
    for setup in every() {
        let server = Running::start(top.path(), setup);
        let mut stream = server.connect();
        for _ in 0..3 {
            stream.write_all(SMALL).unwrap();
            assert_eq!(answer(&mut stream).1, b"small");
            stream.write_all(LARGE).unwrap();
            assert!(answer(&mut stream).1 == large, "{}", named(&setup));
        }
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(server.ask(LARGE).ends_with(&large), "{}", named(&setup)));
            }
        });
        let served = server.end();
        assert_eq!((served.requests, served.connections, served.refused), (14, 9, 0));
        assert!(served.bytes > 11 * 10_000_000);
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
    let (head, content) = answer(stream);
    let code = if range.is_some() { "HTTP/1.1 206 " } else { "HTTP/1.1 200 " };
    assert!(head.starts_with(code), "{head}");
    content
}

#[test]
fn files_of_any_length_and_their_parts_arrive_byte_for_byte() {
    let top = tempfile::tempdir().unwrap();
    let all = noise(LENGTHS[LENGTHS.len() - 1] as u32);
    LENGTHS.iter().for_each(|length| fs::write(top.path().join(length.to_string()), &all[..*length]).unwrap());
    for setup in every() {
        let server = Running::start(top.path(), setup);
        let mut stream = server.connect();
        for length in LENGTHS {
            let path = format!("/{length}");
            assert!(get(&mut stream, &path, None) == all[..length], "{} {length}", named(&setup));
            stream.write_all(format!("HEAD {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).unwrap();
            let edges = [(0, 0), (1, 4096), (4095, 4096), (4096, 8191), (8192, 300_000), (2_097_151, 2_097_152)];
            let own = [(0, length.saturating_sub(2)), (length / 2, length.saturating_sub(1))];
            let head = head(&mut stream);
            assert!(head.contains(&format!("\r\nContent-Length: {length}\r\n")), "{head}");
            for (first, last) in edges.into_iter().chain(own).filter(|(first, last)| first <= last && *last < length) {
                let part = get(&mut stream, &path, Some((first, last)));
                assert!(part == all[first..=last], "{} {length}: {first}-{last}", named(&setup));
            }
        }
        let several = [(0, 5000), (9000, 9000), (2_097_000, 2_100_000)];
        stream.write_all(b"GET /4194305 HTTP/1.1\r\nHost: 127.0.0.1\r\n").unwrap();
        stream.write_all(b"Range: bytes=0-5000,9000-9000,2097000-2100000\r\n\r\n").unwrap();
        let (_, mut rest) = answer(&mut stream);
        for (first, last) in several {
            let begin = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            rest.drain(..begin);
            assert!(rest[..=last - first] == all[first..=last], "{} {first}-{last}", named(&setup));
            rest.drain(..=last - first);
        }
    }
}

#[test]
fn a_process_with_several_threads_does_not_fork() {
    let (top, _) = files();
    let (held, hold) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || hold.recv());
    let setup = Setup { model: Model::Fork, ..Setup::of(1) };
    let refused = Server::listen("127.0.0.1:0".parse().unwrap(), top.path(), setup);
    assert!(matches!(refused.unwrap_err(), Error::Threads(2..)));
    drop(held);
    other.join().unwrap().unwrap_err();
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let (top, large) = files();
    for setup in every() {
        let server = Running::start(top.path(), setup);
        let mut stream = server.connect();
        let requests = [SMALL.repeat(500), LARGE.repeat(2), SMALL.repeat(500)].concat();
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&requests).unwrap());
        for number in 0..1002 {
            let (_, content) = answer(&mut stream);
            let expected: &[u8] = if [500, 501].contains(&number) { &large } else { b"small" };
            assert!(content == expected, "{} {number}", named(&setup));
        }
        writing.join().unwrap();
    }
}

#[test]
fn who_reads_slowly_keeps_nobody_waiting_and_gets_all() {
    let (top, large) = files();
    for setup in every() {
        let server = Running::start(top.path(), setup);
        let mut slow: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
        slow.iter_mut().for_each(|stream| stream.write_all(LARGE).unwrap());
        // They read nothing, and others are served.
        (0..20).for_each(|_| assert!(server.ask(SMALL).ends_with(b"small")));
        for stream in &mut slow {
            assert!(answer(stream).1 == large, "{}", named(&setup));
        }
    }
}

#[test]
fn more_clients_than_are_read_for_at_one_time_get_all() {
    let (top, large) = files();
    for setup in models().filter(|setup| [Model::Epoll, Model::Uring].contains(&setup.model)) {
        let server = Running::start(top.path(), Setup { threads: 1, ..setup });
        let mut clients: Vec<TcpStream> = (0..50).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|stream| stream.write_all(LARGE).unwrap());
        // Some leave in the middle, and those who wait for their turn have it all the same.
        clients.drain(..10).for_each(|mut stream| stream.read_exact(&mut [0; 1000]).unwrap());
        assert!(server.ask(SMALL).ends_with(b"small"));
        for stream in &mut clients {
            assert!(answer(stream).1 == large, "{}", named(&setup));
        }
    }
}

#[test]
fn a_request_in_single_bytes_is_answered_and_a_refused_one_is_told_why() {
    let (top, _) = files();
    for setup in every() {
        let server = Running::start(top.path(), setup);
        let mut stream = server.connect();
        stream.set_nodelay(true).unwrap();
        SMALL.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        assert_eq!(answer(&mut stream).1, b"small");
        // A body that is on its way does not drop the answer.
        let mut stream = server.connect();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n").unwrap();
        let _ = stream.write_all(&vec![0; 100_000]);
        let (head, _) = answer(&mut stream);
        assert!(head.starts_with("HTTP/1.1 405") && head.contains("Connection: close"), "{head}");
    }
}

#[test]
fn who_does_not_ask_in_time_is_told_so_and_who_is_idle_is_dropped() {
    let (top, _) = files();
    let limits = Limits { request: Duration::from_millis(1), idle: Duration::from_millis(1), ..Limits::default() };
    for setup in models() {
        let server = Running::start(top.path(), Setup { limits, ..setup });
        let mut slow = server.connect();
        slow.write_all(b"GET / HT").unwrap();
        let told = rest(&mut slow);
        assert!(told.starts_with(b"HTTP/1.1 408 ") && told.ends_with(b"408 Request Timeout\n"));
        assert_eq!(rest(&mut server.connect()), b"");
    }
}

#[test]
fn one_connection_too_many_is_told_so_and_a_place_that_is_free_is_taken() {
    let (top, _) = files();
    let limits = Limits { connections: 3, ..Limits::default() };
    for setup in every() {
        let server = Running::start(top.path(), Setup { limits, ..setup });
        let mut inside: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
        for stream in &mut inside {
            stream.write_all(SMALL).unwrap();
            assert_eq!(answer(stream).1, b"small");
        }
        let mut outside = server.connect();
        // It asks only when it has been turned away already, and is not reset for that.
        await_byte(&outside);
        (0..3).for_each(|_| outside.write_all(SMALL).unwrap());
        let told = rest(&mut outside);
        assert!(told.starts_with(b"HTTP/1.1 503 ") && told.windows(13).any(|words| words == b"Retry-After: "));
        drop(inside);
        // The server notices in its own time.
        assert!((0..1000).any(|_| server.has_place()));
        assert!(server.end().refused >= 1);
    }
}

#[test]
fn at_its_end_what_was_begun_is_finished_and_idle_connections_are_closed() {
    let (top, large) = files();
    for setup in every() {
        let server = Running::start(top.path(), setup);
        let (mut idle, mut busy) = (server.connect(), server.connect());
        idle.write_all(SMALL).unwrap();
        answer(&mut idle);
        busy.write_all(LARGE).unwrap();
        let mut first = [0; 1];
        busy.read_exact(&mut first).unwrap();
        let address = server.address;
        let ending = std::thread::spawn(move || server.end());
        // Its end, which comes only after the server was told to end.
        assert_eq!(rest(&mut idle), b"");
        let arrived = rest(&mut busy);
        assert!(arrived.ends_with(&large));
        drop(busy);
        ending.join().unwrap();
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn at_its_end_every_answer_says_that_it_is_the_last() {
    let (top, large) = files();
    for setup in every() {
        let server = Running::start(top.path(), setup);
        let mut busy = server.connect();
        busy.write_all(&[LARGE, SMALL, SMALL].concat()).unwrap();
        busy.read_exact(&mut [0; 1]).unwrap();
        let mut idle = server.connect();
        idle.write_all(SMALL).unwrap();
        answer(&mut idle);
        let ending = std::thread::spawn(move || server.end());
        // Its end comes only when the server was told to end, and the second request waits until then behind the first.
        assert_eq!(rest(&mut idle), b"");
        let arrived = rest(&mut busy);
        let last = arrived.windows(9).rposition(|words| words == b"HTTP/1.1 ").unwrap();
        let last = String::from_utf8_lossy(&arrived[last..]).into_owned();
        assert!(last.contains("\r\nConnection: close\r\n") && last.ends_with("small"), "{} {last}", named(&setup));
        assert!(arrived.len() < large.len() + 1000, "only one more");
        drop(busy);
        ending.join().unwrap();
    }
}

#[test]
fn at_its_end_a_client_that_takes_nothing_is_not_waited_for_for_ever() {
    let (top, _) = files();
    let limits = Limits { drain: Duration::from_millis(1), ..Limits::default() };
    for setup in every() {
        let server = Running::start(top.path(), Setup { limits, ..setup });
        let mut stuck = server.connect();
        stuck.write_all(&LARGE.repeat(10)).unwrap();
        let mut first = [0; 1];
        stuck.read_exact(&mut first).unwrap();
        assert_eq!(server.end().connections, 1);
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_that_connection_alone() {
    let (top, large) = files();
    for setup in every() {
        fs::write(top.path().join("large"), &large).unwrap();
        let server = Running::start(top.path(), setup);
        let mut stream = server.connect();
        stream.write_all(LARGE).unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        fs::File::options().write(true).open(top.path().join("large")).unwrap().set_len(100).unwrap();
        let mut arrived = Vec::new();
        // The rest of what was sent, and then an end or a reset.
        let _ = stream.read_to_end(&mut arrived);
        assert!(arrived.len() < large.len(), "{}", named(&setup));
        assert!(server.ask(SMALL).ends_with(b"small"));
    }
}

#[test]
fn what_states_no_bytes_and_has_some_is_sent_by_every_model() {
    let version = fs::read("/proc/version").unwrap();
    for setup in models() {
        let server = Running::start(std::path::Path::new("/proc"), setup);
        let mut stream = server.connect();
        for _ in 0..2 {
            assert_eq!(get(&mut stream, "/version", None), version, "{}", named(&setup));
        }
        stream.write_all(b"HEAD /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        assert!(head(&mut stream).contains(&format!("Content-Length: {}\r\n", version.len())));
    }
}
