//! A real agent on loopback: what it serves, which clients it rejects, and what unauthenticated clients cost it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use kelvin_testing::MissingRequirement;
use kelvin_transfer::wire::Error;
use kelvin_transfer::wire::admission::AdmissionLimits;
use kelvin_transfer::wire::admission::AgentLimits;
use kelvin_transfer::wire::agent::{Agent, AgentEvent};
use kelvin_transfer::wire::client::{AgentClient, RunningTest, client_handshake};
use kelvin_transfer::wire::message::SequenceCounts;
use kelvin_transfer::wire::message::{
    AgentRequest, AgentResponse, PROTOCOL, StreamPlacement, TestCounts, TestDirection,
};
use kelvin_transfer::wire::secret::Secret;
use kelvin_transfer::wire::test_socket::TestSocketOptions;

const SECRET: &[u8] = b"an agent of the tests";

fn secret() -> Secret {
    Secret::new(SECRET).unwrap()
}

/// Limits short enough for tests.
fn short_limits() -> AgentLimits {
    AgentLimits {
        max_clients: 2,
        unauthenticated: AdmissionLimits { total: 8, per_network: 8, grace_period: Duration::from_secs(1) },
        handshake_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_millis(1500),
        test_timeout: Duration::from_secs(2),
        max_message_bytes: 1 << 16,
        max_streams: 3,
        max_buffer_bytes: 1 << 20,
    }
}

/// Runs an agent with a secret, and at the same time a function of its address and the faults that it logs.
fn with_agent(limits: AgentLimits, body: impl FnOnce(SocketAddr, &Receiver<String>)) {
    with_agent_on(|| kelvin_sys::cpu::affinity().unwrap(), limits, body);
}

/// Like `with_agent`, of an agent that puts streams on these CPUs.
fn with_agent_on(
    cpus: impl Fn() -> Vec<u32> + Send + Sync + 'static,
    limits: AgentLimits,
    body: impl FnOnce(SocketAddr, &Receiver<String>),
) {
    let (sender, faults) = channel();
    let log = move |_: SocketAddr, event: &AgentEvent| {
        if let AgentEvent::Fault(error) | AgentEvent::Rejected(error) = event {
            // The test may be over.
            let _ = sender.send(error.to_string());
        }
    };
    let agent = Agent::listen("127.0.0.1:0".parse().unwrap(), secret(), limits, Box::new(log)).unwrap();
    let agent = agent.with_cpu_order(Box::new(cpus));
    let (address, is_over) = (agent.address().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(address, &faults)));
        is_over.store(true, Ordering::Relaxed);
        server.join().unwrap().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn next_fault(faults: &Receiver<String>) -> String {
    faults.recv_timeout(Duration::from_secs(10)).unwrap()
}

/// This many round trips of a message over a connection.
fn round_trips(stream: &mut TcpStream, bytes: usize, count: usize) {
    for number in 0..count {
        let message = vec![number as u8; bytes];
        let mut answer = vec![0; bytes];
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == message, "{number}");
    }
}

/// This many streams in a direction, with default socket options.
fn streams(
    client: &mut AgentClient,
    direction: TestDirection,
    count: u32,
) -> Result<RunningTest<'_, Vec<TcpStream>>, Error> {
    client.open_streams(direction, count, StreamPlacement::Scheduler, &TestSocketOptions::default())
}

#[test]
fn echo_returns_and_counts_messages() {
    with_agent(short_limits(), |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        for bytes in [1_u16, 64, 65_535] {
            let mut test = client.echo_tcp(bytes.into()).unwrap();
            round_trips(&mut test.socket, bytes.into(), 100);
            let report = test.finish().unwrap();
            assert_eq!((report.arrived, report.max_concurrent_tests), (100, 1), "{bytes}");
        }
        let test = client.echo_udp(64).unwrap();
        for number in 0..100_u8 {
            let mut answer = [0; 64];
            test.socket.send(&[number; 64]).unwrap();
            assert_eq!(test.socket.recv(&mut answer).unwrap(), 64);
            assert_eq!(answer, [number; 64]);
        }
        let report = test.finish().unwrap();
        assert_eq!(report.arrived, 100);
        assert!(report.cpu_nanoseconds.iter().sum::<u64>() > 0, "{report:?}");
    });
}

#[test]
fn agent_counts_received_streams() {
    with_agent(short_limits(), |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let mut test = streams(&mut client, TestDirection::ToAgent, 3).unwrap();
        let before = test.counts().unwrap();
        for stream in &mut test.socket {
            stream.write_all(&[7; 100_000]).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        let after = loop {
            let after = test.counts().unwrap();
            if after.bytes == 300_000 || Instant::now() > deadline {
                break after;
            }
        };
        assert_eq!((before.bytes, after.bytes), (0, 300_000));
        assert!(after.spread.is_some_and(|spread| spread.slowest <= spread.fastest && spread.fastest <= 100_000));
        assert!(after.nanoseconds > before.nanoseconds);
        assert_eq!(test.finish().unwrap().arrived, 300_000);
        // A stream that is closed early is no part of a measurement.
        let mut test = streams(&mut client, TestDirection::ToAgent, 2).unwrap();
        test.socket.pop();
        let failed = (0..1000).find_map(|_| (test.counts().err(), std::thread::sleep(Duration::from_millis(1))).0);
        assert!(failed.unwrap().to_string().contains("closed the connection"));
    });
}

/// The CPUs that the threads of streams may use of the agents of this process, of those that may use one alone; in ascending order.
fn pinned_stream_threads() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let pinned_cpu = |task: std::fs::DirEntry| {
        // One that has ended meanwhile is none.
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        (field("Name:") == Some("moves")).then(|| field("Cpus_allowed_list:")?.parse().ok())?
    };
    let mut cpus: Vec<u32> = tasks.filter_map(pinned_cpu).collect();
    cpus.sort_unstable();
    cpus
}

#[test]
fn streams_get_own_cpus_where_there_are_enough() {
    let (first, last) = {
        let allowed = kelvin_sys::cpu::affinity().unwrap();
        (allowed[0], *allowed.last().unwrap())
    };
    if first == last {
        return MissingRequirement::machine("a second CPU").report_skip("the CPUs of streams");
    }
    let sockets = TestSocketOptions::default();
    let open = |client: &mut AgentClient, count, placement| {
        let mut test = client.open_streams(TestDirection::ToAgent, count, placement, &sockets).unwrap();
        // Once it has counted, its threads are there; they are pinned a moment later.
        test.counts().unwrap();
        let deadline =
            Instant::now() + Duration::from_millis(if placement == StreamPlacement::OwnCpus { 1000 } else { 0 });
        while pinned_stream_threads().len() < count as usize && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (threads, report) = (pinned_stream_threads(), test.finish().unwrap());
        (threads, report.had_own_cpus, report.cpus)
    };
    let limits =
        AgentLimits { test_timeout: Duration::from_secs(20), idle_timeout: Duration::from_secs(10), ..short_limits() };
    // A CPU more than once stands for others, which the machine of the test may not have.
    with_agent_on(
        move || vec![last, first, last],
        limits,
        |address, _| {
            let mut client = AgentClient::connect(&[address], &secret()).unwrap();
            let expected = {
                let mut cpus = vec![last, first, last];
                cpus.sort_unstable();
                cpus
            };
            assert_eq!(open(&mut client, 3, StreamPlacement::OwnCpus), (expected, true, 3));
            assert_eq!(open(&mut client, 1, StreamPlacement::OwnCpus), (vec![last], true, 3));
            assert_eq!(open(&mut client, 1, StreamPlacement::Scheduler), (vec![], false, 3));
            let mut other = AgentClient::connect(&[address], &secret()).unwrap();
            let echo = other.echo_tcp(1).unwrap();
            assert_eq!(open(&mut client, 1, StreamPlacement::OwnCpus), (vec![], false, 3), "another test runs");
            drop(echo);
        },
    );
    with_agent_on(
        move || vec![last, first],
        limits,
        |address, _| {
            let mut client = AgentClient::connect(&[address], &secret()).unwrap();
            assert_eq!(open(&mut client, 2, StreamPlacement::OwnCpus), (vec![], false, 2), "packets need one of two");
        },
    );
}

/// Numbered datagrams of 100 bytes.
fn send_numbered(socket: &UdpSocket, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let mut datagram = [0; 100];
        datagram[..8].copy_from_slice(&number.to_le_bytes());
        socket.send(&datagram).unwrap();
    }
}

/// Asks for the count until it is this many datagrams.
fn wait_for_datagrams(test: &mut RunningTest<'_, UdpSocket>, count: u64) -> TestCounts {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let counts = test.counts().unwrap();
        if counts.numbers.arrived >= count || Instant::now() > deadline {
            return counts;
        }
    }
}

#[test]
fn agent_counts_datagrams_and_losses() {
    with_agent(short_limits(), |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let mut test = client.count_datagrams(100).unwrap();
        let socket = test.socket.try_clone().unwrap();
        let before = test.counts().unwrap();
        assert_eq!((before.bytes, before.numbers, before.dropped), (0, SequenceCounts::default(), 0));
        send_numbered(&socket, [1, 2, 3, 5, 4, 9]);
        // Of another size: none of the test's.
        socket.send(&[7; 99]).unwrap();
        socket.send(&[7; 101]).unwrap();
        let after = wait_for_datagrams(&mut test, 6);
        assert_eq!(after.numbers, SequenceCounts { arrived: 6, latest: 9, reordered: 1 });
        assert_eq!((after.bytes, after.numbers.loss_share_since(&before.numbers)), (600, Some(1.0 - 6.0 / 9.0)));
        assert!(after.nanoseconds > before.nanoseconds);
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 200]).is_err(), "an agent that takes datagrams sends none");
        let report = test.finish().unwrap();
        assert_eq!((report.arrived, report.interface.unwrap().name.as_str()), (600, "lo"));
        // The next test has another socket: late datagrams to the old one count for nobody.
        let _ = socket.send(&[0; 100]);
        let mut next = client.count_datagrams(100).unwrap();
        assert_eq!(next.counts().unwrap().numbers.arrived, 0);
    });
}

#[test]
fn endless_sender_is_stopped_with_test() {
    with_agent(short_limits(), |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let mut test = client.count_datagrams(100).unwrap();
        let socket = test.socket.try_clone().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = socket.send(&[1; 100]);
                }
            });
            std::thread::sleep(Duration::from_millis(200));
            let busy = test.counts().unwrap().busy;
            let refused =
                (0..1000).find_map(|_| (test.counts().err(), std::thread::sleep(Duration::from_millis(10))).0);
            is_over.store(true, Ordering::Relaxed);
            let refused = refused.expect("it goes on").to_string();
            assert!(busy.busiest_thread > 0.0 && busy.busiest_thread <= busy.threads, "{busy:?}");
            assert!(refused.contains("did not end the test within"), "{refused}");
        });
        drop(test);
        assert_eq!(client.echo_tcp(1).unwrap().finish().unwrap().arrived, 0);
    });
}

/// Reads this many bytes from a stream.
fn read_all(stream: &mut TcpStream, bytes: usize) {
    let (mut buffer, mut remaining) = (vec![0; 1 << 16], bytes);
    while remaining > 0 {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "it ended {remaining} bytes early");
        remaining -= count.min(remaining);
    }
}

#[test]
fn agent_streams_until_client_ends() {
    with_agent(short_limits(), |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let mut test = streams(&mut client, TestDirection::FromAgent, 3).unwrap();
        let before = test.counts().unwrap();
        // What the kernel buffers before the first count may be all that is read, while the agent's threads wait for a CPU.
        let deadline = Instant::now() + Duration::from_secs(10);
        let after = loop {
            test.socket.iter_mut().for_each(|stream| read_all(stream, 1 << 20));
            let after = test.counts().unwrap();
            let is_counted = after.bytes >= 3 << 20 && after.bytes > before.bytes && after.busy.busiest_thread > 0.0;
            if is_counted || Instant::now() > deadline {
                assert!(is_counted && after.nanoseconds > before.nanoseconds, "{before:?} {after:?}");
                break after;
            }
        };
        assert!(after.busy.busiest_thread <= after.busy.threads, "{after:?}");
        let report = test.finish().unwrap();
        assert!(report.arrived >= after.bytes && report.max_concurrent_tests == 1, "{report:?}");
        assert!(report.cpu_nanoseconds.iter().sum::<u64>() > 0, "{report:?}");
        assert!(report.stream.is_some_and(|end| end.congestion_window > 0));
        // A stream that is closed early is no part of a measurement.
        let mut test = streams(&mut client, TestDirection::FromAgent, 2).unwrap();
        test.socket.pop();
        let failed = (0..1000).find_map(|_| (test.counts().err(), std::thread::sleep(Duration::from_millis(1))).0);
        assert!(failed.unwrap().to_string().contains("closed the connection"));
    });
}

#[test]
fn nonreading_client_is_cut_off() {
    let limits = AgentLimits {
        idle_timeout: Duration::from_millis(500),
        test_timeout: Duration::from_secs(20),
        ..short_limits()
    };
    with_agent(limits, |address, _| {
        let mut clients = [(); 2].map(|()| AgentClient::connect(&[address], &secret()).unwrap());
        let [slow, fast] = &mut clients;
        let mut test = streams(slow, TestDirection::FromAgent, 3).unwrap();
        let start = Instant::now();
        // It goes on to ask, and receives nothing; the other one is served meanwhile.
        let why = loop {
            let mut echo = fast.echo_tcp(64).unwrap();
            round_trips(&mut echo.socket, 64, 10);
            assert_eq!(echo.finish().unwrap().arrived, 10);
            match test.counts() {
                Ok(_) => assert!(start.elapsed() < Duration::from_secs(10)),
                Err(error) => break error.to_string(),
            }
        };
        // The reason is that of the stream, or, if that ended first, the test's.
        assert!(why.contains("did not continue the test within"), "{why}");
        drop(test);
        // It may request the next test; what was not received is gone with its connections.
        assert_eq!(slow.echo_tcp(1).unwrap().finish().unwrap().arrived, 0);
    });
}

#[test]
fn agent_sending_ends_at_test_limit() {
    with_agent(AgentLimits { test_timeout: Duration::from_millis(300), ..short_limits() }, |address, faults| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let mut test = streams(&mut client, TestDirection::FromAgent, 1).unwrap();
        let start = Instant::now();
        let refused = loop {
            read_all(&mut test.socket[0], 1 << 16);
            match test.counts() {
                Ok(_) => assert!(start.elapsed() < Duration::from_secs(10)),
                Err(error) => break error.to_string(),
            }
        };
        assert!(refused.contains("did not end the test within"), "{refused}");
        drop(test);
        // One that receives all and sends nothing on the control connection has the time limit for silence.
        let mut test = streams(&mut client, TestDirection::FromAgent, 1).unwrap();
        let mut buffer = vec![0; 1 << 16];
        while matches!(test.socket[0].read(&mut buffer), Ok(1..)) {
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        assert!(test.finish().unwrap_err().to_string().contains("did not say anything within"));
        // One that leaves, and its connections with it, leaves nothing behind that keeps others out.
        let test = streams(&mut client, TestDirection::FromAgent, 3).unwrap();
        drop(test);
        drop(client);
        let mut next = [(); 2].map(|()| {
            loop {
                if let Ok(client) = AgentClient::connect(&[address], &secret()) {
                    break client;
                }
                assert!(start.elapsed() < Duration::from_secs(20));
            }
        });
        round_trips(&mut next[0].echo_tcp(8).unwrap().socket, 8, 3);
        drop(next);
        let is_known = |fault: String| {
            fault.contains("closed the connection") || fault.contains("already serves as many others as it may")
        };
        assert!(faults.try_iter().all(is_known));
    });
}

#[test]
fn agent_sends_only_with_cookie() {
    with_agent(short_limits(), |address, _| {
        let control = TcpStream::connect(address).unwrap();
        let timeout = Duration::from_secs(5);
        let mut channel = client_handshake(control, &secret(), timeout).unwrap();
        let request = AgentRequest::Streams {
            direction: TestDirection::FromAgent,
            count: 1,
            placement: StreamPlacement::Scheduler,
            sockets: TestSocketOptions::default(),
        };
        channel.send(&request, timeout).unwrap();
        let AgentResponse::Ready { port, cookie } = channel.receive(timeout).unwrap() else { panic!("not ready") };
        let test_address = SocketAddr::new(address.ip(), port);
        let mut intruder = TcpStream::connect(test_address).unwrap();
        let mut wrong_cookie = cookie;
        wrong_cookie[15] ^= 1;
        intruder.write_all(&wrong_cookie).unwrap();
        let mut buffer = [0; 100];
        assert!(matches!(intruder.read(&mut buffer), Ok(0) | Err(_)), "somebody else was sent something");
        let mut client = TcpStream::connect(test_address).unwrap();
        client.write_all(&cookie).unwrap();
        read_all(&mut client, 1 << 20);
        // The port is closed to all others from then on.
        assert!(TcpStream::connect(test_address).is_err());
        channel.send(&AgentRequest::End, timeout).unwrap();
        assert!(matches!(channel.receive(timeout).unwrap(), AgentResponse::Done(report) if report.arrived >= 1 << 20));
    });
}

#[test]
fn socket_options_apply_on_both_sides() {
    with_agent(short_limits(), |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        // Reno is part of every kernel, which counts as many bytes again for its own book-keeping.
        let sockets =
            TestSocketOptions { congestion_control: Some("reno".into()), buffers: Some(48 << 10), segment: None };
        for direction in [TestDirection::ToAgent, TestDirection::FromAgent] {
            let test = client.open_streams(direction, 2, StreamPlacement::Scheduler, &sockets).unwrap();
            let client_end = kelvin_transfer::wire::test_socket::TcpEndInfo::of_socket(&test.socket[0]).unwrap();
            let agent_end = test.finish().unwrap().stream.unwrap();
            for end in [client_end, agent_end] {
                assert_eq!((end.congestion_control.as_str(), end.buffers), ("reno", [96 << 10; 2]), "{direction:?}");
            }
        }
    });
}

#[test]
fn accepted_connections_are_answered_and_reset() {
    with_agent(short_limits(), |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let test = client.accept_connections().unwrap();
        let accept_target = test.socket;
        let mut ports = Vec::new();
        let mut connect = || {
            let connection = accept_target.connect().unwrap();
            ports.push(connection.local_addr().unwrap().port());
            connection
        };
        for _ in 0..20 {
            accept_target.exchange(&mut connect()).unwrap();
        }
        // One without the cookie, and one that is closed at once, are none of the test's.
        let mut intruder = connect();
        intruder.write_all(&[0; 16]).unwrap();
        assert!(matches!(intruder.read(&mut [0; 16]), Ok(0) | Err(_)));
        drop(connect());
        accept_target.exchange(&mut connect()).unwrap();
        assert_eq!(test.finish().unwrap().arrived, 21);
        // Fourth column 06 is TIME_WAIT; addresses are `address:port` in hexadecimal. Other programs have connections of their own.
        let waiting = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let port = accept_target.address.port();
        let is_waiting = |client_port: &&u16| {
            waiting.lines().any(|line| line.contains(&format!(":{client_port:04X} 0100007F:{port:04X} 06 ")))
        };
        assert_eq!(ports.iter().filter(is_waiting).count(), 0, "connections in TIME_WAIT");
    });
}

#[test]
fn invalid_request_is_refused_and_next_served() {
    with_agent(short_limits(), |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let assert_refused = |error: Error, words: &str| {
            let error_text = error.to_string();
            assert!(error_text.contains(words) && error_text.matches("the agent refused").count() == 1, "{error_text}");
        };
        assert_refused(client.echo_tcp(0).unwrap_err(), "the agent refused: a message must have at least one byte");
        assert_refused(client.echo_tcp(1 << 17).unwrap_err(), "at most 65536 bytes");
        assert_refused(client.echo_udp(65_508).unwrap_err(), "at most 65507 bytes");
        assert_refused(client.count_datagrams(16).unwrap_err(), "at least 17 bytes");
        assert_refused(client.count_datagrams(65_508).unwrap_err(), "at most 65507 bytes");
        for direction in [TestDirection::ToAgent, TestDirection::FromAgent] {
            for count in [0, 4] {
                let error = streams(&mut client, direction, count).unwrap_err();
                assert_refused(error, "from 1 to 3 connections");
            }
            let mut options_error = |congestion_control: Option<&str>, buffers| {
                let congestion_control = congestion_control.map(str::to_owned);
                let sockets = TestSocketOptions { congestion_control, buffers, segment: None };
                client.open_streams(direction, 1, StreamPlacement::Scheduler, &sockets).unwrap_err()
            };
            assert_refused(options_error(None, Some((1 << 20) + 1)), "may have at most 1024 KiB");
            assert_refused(
                options_error(Some("nosuch"), None),
                "the kernel of the agent's host has no congestion control nosuch; it has ",
            );
            for (length, words) in
                [(16, "a text of 16, where 15 is the most"), (65_300, "a text of 65300, where 15 is the most")]
            {
                assert_refused(options_error(Some(&"x".repeat(length)), None), words);
            }
        }
        assert_eq!(client.echo_tcp(1).unwrap().finish().unwrap().arrived, 0);
    });
}

#[test]
fn concurrent_tests_are_reported_to_both() {
    with_agent(short_limits(), |address, _| {
        let mut clients = [(); 2].map(|()| AgentClient::connect(&[address], &secret()).unwrap());
        let [first_client, second_client] = &mut clients;
        let (mut first, mut second) = (first_client.echo_tcp(8).unwrap(), second_client.echo_tcp(8).unwrap());
        // The agent checks the others now and then.
        round_trips(&mut first.socket, 8, 600);
        round_trips(&mut second.socket, 8, 10);
        assert_eq!(
            (first.finish().unwrap().max_concurrent_tests, second.finish().unwrap().max_concurrent_tests),
            (2, 2)
        );
        let third = AgentClient::connect(&[address], &secret()).unwrap_err();
        assert_eq!(third.to_string(), "the agent already serves as many others as it may: try again later");
    });
}

#[test]
fn client_without_secret_is_rejected() {
    with_agent(short_limits(), |address, faults| {
        let other_secret = Secret::new(b"another secret, as long").unwrap();
        assert!(matches!(AgentClient::connect(&[address], &other_secret), Err(Error::WrongSecret)));
        assert!(next_fault(faults).contains("the secret differs from the other side's"));
        assert!(matches!(AgentClient::connect(&[address], &Secret::none()), Err(Error::SecretRequired(_))));
        assert!(next_fault(faults).contains("closed the connection"));
    });
}

#[test]
fn public_address_requires_secret() {
    let listen = |address: &str| {
        Agent::listen(address.parse().unwrap(), Secret::none(), short_limits(), Box::new(|_, _| {})).map(|_| ())
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        assert!(matches!(listen(address), Err(Error::UnprotectedAddress(_))), "{address}");
    }
    listen("127.0.0.1:0").unwrap();
    listen("127.8.9.10:0").unwrap();
}

#[test]
fn slow_or_silent_peer_is_cut_off() {
    with_agent(short_limits(), |address, faults| {
        let start = Instant::now();
        let mut greedy = TcpStream::connect(address).unwrap();
        greedy.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(next_fault(faults).contains("is no client of kelvin agent"));
        // A byte now and then does not buy time.
        let mut slow = TcpStream::connect(address).unwrap();
        let greeting = [&PROTOCOL.magic[..], &PROTOCOL.version.to_le_bytes(), &[0; 47]].concat();
        let mut drip = |byte| (slow.write_all(&[byte]).is_ok(), std::thread::sleep(Duration::from_millis(50))).0;
        assert!(greeting.into_iter().map_while(|byte| drip(byte).then_some(())).count() < 67, "it was let go on");
        assert!(next_fault(faults).contains("did not finish the handshake within 1 s"));
        // A client that requests nothing, and one that does not continue its test.
        let _silent = AgentClient::connect(&[address], &secret()).unwrap();
        assert!(next_fault(faults).contains("did not say anything within"));
        let mut idle = AgentClient::connect(&[address], &secret()).unwrap();
        let test = idle.echo_tcp(64).unwrap();
        std::thread::sleep(Duration::from_millis(2000));
        assert!(test.finish().unwrap_err().to_string().contains("did not continue the test within"));
        assert!(start.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn test_ends_at_time_limit() {
    with_agent(AgentLimits { test_timeout: Duration::from_millis(200), ..short_limits() }, |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let mut test = client.echo_tcp(64).unwrap();
        let start = Instant::now();
        let mut message = [0; 64];
        while test.socket.write_all(&message).is_ok() && test.socket.read_exact(&mut message).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        assert!(test.finish().unwrap_err().to_string().contains("did not end the test within"));
    });
}

#[test]
fn lost_peer_ends_test_on_both_sides() {
    // The client leaves: its control connection is lost, and the agent's thread ends.
    with_agent(short_limits(), |address, faults| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let mut test = client.echo_tcp(64).unwrap();
        // Half a message, and gone.
        test.socket.write_all(&[1; 32]).unwrap();
        assert!(test.finish().unwrap_err().to_string().contains("the other side closed the connection"));
        drop(client);
        // It can be served again at once.
        let mut next = AgentClient::connect(&[address], &secret()).unwrap();
        round_trips(&mut next.echo_tcp(8).unwrap().socket, 8, 3);
        drop(next);
        assert!(faults.try_iter().all(|fault| fault.contains("closed the connection")));
    });
    // No agent, but something that hangs up.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let hang_up = std::thread::spawn(move || listener.incoming().take(20).for_each(drop));
    assert!(matches!(AgentClient::connect(&[address], &secret()), Err(Error::HungUp(20))));
    hang_up.join().unwrap();
}

/// A value of /proc/self/status.
fn proc_status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn thousand_silent_connections_leave_agent_usable() {
    // The longest time limits, so that they are rejected for their number, and not for being late.
    let unauthenticated = AdmissionLimits { per_network: 200, ..AdmissionLimits::default() };
    with_agent(AgentLimits { unauthenticated, ..AgentLimits::default() }, |address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let mut test = client.echo_tcp(64).unwrap();
        round_trips(&mut test.socket, 64, 10);
        let before = (proc_status("Threads"), proc_status("VmRSS"));
        let mut idle = Vec::new();
        for _ in 0..1000 {
            idle.push(TcpStream::connect(address).unwrap());
            // The running test continues.
            round_trips(&mut test.socket, 64, 1);
        }
        let mut second_client = AgentClient::connect(&[address], &secret()).unwrap();
        round_trips(&mut second_client.echo_tcp(64).unwrap().socket, 64, 3);
        let after = (proc_status("Threads"), proc_status("VmRSS"));
        // The other client; other tests have a few of their own. None for the 200 that wait.
        assert!(after.0 < before.0 + 40, "{before:?} {after:?}");
        assert!(after.1 < before.1 + 8 * 1024, "KiB: {before:?} {after:?}");
        assert_eq!(test.finish().unwrap().arrived, 1010);
    });
}
