//! What an authenticated peer may send, in every state of a test: nothing of it makes a thread panic, or blocks anybody.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kelvin_sys::random::split_mix;

use super::{LONG_TIMEOUT, all_requests, all_responses, handshake, mutate, secret};
use crate::wire::admission::AgentLimits;
use crate::wire::agent::Agent;
use crate::wire::cipher::MAX_CONTENT_BYTES;
use crate::wire::client::{AgentClient, client_handshake};
use crate::wire::control_channel::ControlChannel;
use crate::wire::file_server::FileServerOptions;
use crate::wire::message::{AgentRequest, AgentResponse, Cookie, PROTOCOL, StreamPlacement, TestDirection, Transport};
use crate::wire::test_socket::TestSocketOptions;
use crate::wire::{Error, Result};

/// Where they are among all answers.
const READY_INDEX: usize = 0;
const COUNTED_INDEX: usize = 1;
const DONE_INDEX: usize = 2;

/// Panics of the agent's threads: those of clients, and those without a name of their own.
static PANICS: AtomicU32 = AtomicU32::new(0);

/// Counts panics from now on.
fn count_panics() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_of_test = std::thread::current().name().is_some_and(|name| name != "client");
        PANICS.fetch_add(u32::from(!is_of_test), Ordering::Relaxed);
        default_hook(panic);
    }));
}

/// Runs an agent, and something at the same time.
fn with_agent(body: impl FnOnce(SocketAddr)) {
    let limits = AgentLimits {
        max_clients: 64,
        handshake_timeout: LONG_TIMEOUT,
        idle_timeout: LONG_TIMEOUT,
        ..AgentLimits::default()
    };
    let agent = Agent::listen("127.0.0.1:0".parse().unwrap(), secret(), limits, Box::new(|_, _| {})).unwrap();
    let (address, is_over) = (agent.address().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(address)));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A running test, and the sockets of its bytes.
struct TestInProgress {
    channel: ControlChannel,
    _streams: Vec<TcpStream>,
    _socket: Option<UdpSocket>,
}

/// Brings an agent into the state in which it serves this, or, without it, waits for a request.
fn enter_state(agent: SocketAddr, request: Option<&AgentRequest>) -> TestInProgress {
    let mut channel = client_handshake(TcpStream::connect(agent).unwrap(), &secret(), LONG_TIMEOUT).unwrap();
    let Some(request) = request else { return TestInProgress { channel, _streams: Vec::new(), _socket: None } };
    channel.send(request, LONG_TIMEOUT).unwrap();
    let AgentResponse::Ready { port, cookie } = channel.receive(LONG_TIMEOUT).unwrap() else { panic!("{request:?}") };
    let address = SocketAddr::new(agent.ip(), port);
    let streams = match *request {
        AgentRequest::Echo { transport: Transport::Tcp, .. } => 1,
        AgentRequest::Streams { count, .. } => count,
        _ => 0,
    };
    let streams = (0..streams).map(|_| stream(address, &cookie)).collect();
    let is_of_datagrams =
        matches!(request, AgentRequest::Echo { transport: Transport::Udp, .. } | AgentRequest::ReceiveDatagrams { .. });
    TestInProgress { channel, _streams: streams, _socket: is_of_datagrams.then(|| introduced(address, &cookie)) }
}

fn stream(address: SocketAddr, cookie: &Cookie) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(cookie).unwrap();
    stream
}

fn introduced(address: SocketAddr, cookie: &Cookie) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    socket.send(cookie).unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), cookie.len());
    socket
}

/// The states of an agent with an authenticated client.
fn states() -> Vec<Option<AgentRequest>> {
    let (placement, sockets) = (StreamPlacement::OwnCpus, TestSocketOptions::default());
    let streams = |direction| Some(AgentRequest::Streams { direction, count: 2, placement, sockets: sockets.clone() });
    let echo = |transport| Some(AgentRequest::Echo { transport, bytes: 64 });
    let datagrams = Some(AgentRequest::ReceiveDatagrams { bytes: 64 });
    vec![
        None,
        echo(Transport::Tcp),
        echo(Transport::Udp),
        streams(TestDirection::ToAgent),
        streams(TestDirection::FromAgent),
        datagrams,
        Some(AgentRequest::Accept),
    ]
}

#[test]
fn agent_survives_any_authenticated_message() {
    count_panics();
    let messages: Vec<Vec<u8>> = all_requests().iter().map(|request| serde_json::to_vec(request).unwrap()).collect();
    let mut state = 2;
    with_agent(|agent| {
        for (number, request) in states().iter().cycle().take(1400).enumerate() {
            let mut test = enter_state(agent, request.as_ref());
            for repetition in 0..3 {
                let mut text = messages[(number + repetition) % messages.len()].clone();
                mutate(&mut text, &mut state);
                if number % 50 == 0 {
                    text = [b"{\"".to_vec(), vec![b'x'; MAX_CONTENT_BYTES - 5], b"\":1".to_vec()].concat();
                }
                text.truncate(MAX_CONTENT_BYTES);
                // It may have left already.
                let _ = test.channel.send_serialized(&text, LONG_TIMEOUT);
            }
        }
        // It has places for all that come now: the sender is gone.
        let mut client = loop {
            match AgentClient::connect(&[agent], &secret()) {
                Err(Error::RefusedByAgent(_)) => std::thread::yield_now(),
                client => break client.unwrap(),
            }
        };
        assert_eq!(client.echo_tcp(8).unwrap().finish().unwrap().arrived, 0);
    });
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

/// An oversized request is refused to its sender, who is still served.
#[test]
fn oversized_text_is_refused_in_every_state() {
    with_agent(|agent| {
        for request in states() {
            for text in [
                format!("\"{}\"", "x".repeat(65_480)),
                format!("{{\"{}\":1}}", "\u{1b}".repeat(60_000)),
                format!(
                    r#"{{"streams":{{"direction":"to_agent","count":1,"sockets":{{"congestion_control":"{}"}}}}}}"#,
                    "y".repeat(60_000)
                ),
                "[".repeat(65_000),
            ] {
                let TestInProgress { mut channel, _streams, _socket } = enter_state(agent, request.as_ref());
                channel.send_serialized(text.as_bytes(), LONG_TIMEOUT).unwrap();
                // An echo over TCP reads only its own connection.
                drop(_streams);
                let mut answer = channel.receive::<AgentResponse>(LONG_TIMEOUT).unwrap();
                if matches!(answer, AgentResponse::Done(_)) {
                    answer = channel.receive(LONG_TIMEOUT).unwrap();
                }
                let AgentResponse::Failed { why } = answer else { panic!("{request:?}: {answer:?}") };
                assert!(
                    why.contains("malformed message") || why.contains("closed the connection"),
                    "{request:?}: {why}"
                );
                channel.send(&AgentRequest::Echo { transport: Transport::Tcp, bytes: 0 }, LONG_TIMEOUT).unwrap();
                let mut answer = channel.receive::<AgentResponse>(LONG_TIMEOUT).unwrap();
                if matches!(&answer, AgentResponse::Failed { why } if why.contains("malformed message")) {
                    answer = channel.receive(LONG_TIMEOUT).unwrap();
                }
                assert!(
                    matches!(&answer, AgentResponse::Failed { why } if why.contains("at least one byte")),
                    "{request:?} {answer:?}"
                );
            }
        }
    });
}

/// An agent that shakes hands properly, and answers each request by texts.
fn answer_with(listener: &TcpListener, mut texts: impl FnMut(&AgentRequest) -> Vec<Vec<u8>>) -> Result<()> {
    let (mut stream, _) = listener.accept().map_err(Error::call("accept"))?;
    let (halves, ()) = handshake(&PROTOCOL, &secret()).accept(&mut stream, || Some(()))?;
    let mut channel = ControlChannel::new(stream, halves);
    loop {
        let request = channel.receive(LONG_TIMEOUT)?;
        texts(&request).iter().try_for_each(|text| channel.send_serialized(text, LONG_TIMEOUT))?;
    }
}

/// Which of all answers are right for a request.
fn valid_responses(request: &AgentRequest) -> &'static [usize] {
    match request {
        AgentRequest::Echo { .. } => &[READY_INDEX, DONE_INDEX],
        AgentRequest::Count => &[COUNTED_INDEX],
        AgentRequest::End => &[DONE_INDEX],
        _ => &[READY_INDEX],
    }
}

/// Does everything that a client does; the outcome does not matter.
fn exercise_client(client: &mut AgentClient, number: usize) -> Result<()> {
    let sockets = TestSocketOptions::default();
    match number % 4 {
        0 => drop(client.echo_tcp(64)?.finish()?),
        1 => {
            let mut test = client.open_streams(TestDirection::FromAgent, 2, StreamPlacement::OwnCpus, &sockets)?;
            test.counts()?;
            test.counts()?;
            drop(test.finish()?);
        }
        2 => {
            let mut test = client.open_streams(TestDirection::ToAgent, 1, StreamPlacement::OwnCpus, &sockets)?;
            let (first, last) = (test.counts()?, test.counts()?);
            let numbers =
                (last.numbers.loss_share_since(&first.numbers), last.numbers.reordered_share_since(&first.numbers));
            assert!(
                last.nanoseconds - first.nanoseconds < u64::MAX
                    && numbers.0.is_none_or(|lost| (0.0..=1.0).contains(&lost))
            );
        }
        _ => drop(client.accept_connections()?.finish()?),
    }
    Ok(())
}

#[test]
fn client_survives_any_response() {
    let (control, tests) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let ready = AgentResponse::Ready { port: tests.local_addr().unwrap().port(), cookie: [7; 16] };
    let mut answers = all_responses();
    answers[READY_INDEX] = ready;
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| serde_json::to_vec(answer).unwrap()).collect();
    let address = control.local_addr().unwrap();
    let (mut state, mut finished) = (3, 0);
    let mut text = move |valid_index: usize| {
        let number = split_mix(&mut state);
        let mut text =
            answers[if number.is_multiple_of(16) { number as usize / 16 % answers.len() } else { valid_index }].clone();
        if number.is_multiple_of(3) {
            mutate(&mut text, &mut state);
        }
        text.truncate(MAX_CONTENT_BYTES);
        text
    };
    // For as long as the tests run.
    std::thread::spawn(move || {
        let mut last = VecDeque::new();
        for stream in tests.incoming() {
            last.push_back(stream);
            last.drain(..last.len().saturating_sub(16));
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..500 {
                // The client hangs up.
                let _ = answer_with(&control, |request| {
                    valid_responses(request).iter().map(|&valid_index| text(valid_index)).collect()
                });
            }
        });
        for number in 0..500 {
            let mut client = AgentClient::connect(&[address], &secret()).unwrap();
            finished += u32::from(exercise_client(&mut client, number).is_ok());
        }
    });
    assert!(finished > 50, "{finished}");
}

#[test]
fn invalid_agent_counts_are_refused() {
    let counts_json = |bytes: u64, busiest_thread: f64| {
        let zeros = serde_json::json!({ "arrived": 0, "latest": 0, "reordered": 0 });
        let busy = serde_json::json!({ "busiest_thread": busiest_thread, "threads": 0.0, "cpu": null });
        serde_json::json!({ "counted": { "bytes": bytes, "nanoseconds": 1, "numbers": zeros, "dropped": 0, "busy": busy } })
            .to_string()
    };
    let (control, tests) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let ready = AgentResponse::Ready { port: tests.local_addr().unwrap().port(), cookie: [7; 16] };
    let ready = serde_json::to_string(&ready).unwrap();
    for (last, why) in [
        (counts_json(99, 0.0), "it has counted what cannot be"),
        (counts_json(101, 1e9), "a number of 1000000000, where 1000000 is the most"),
        (counts_json(101, -1.0), "a number of -1, where"),
        (format!(r#"{{"failed":{{"why":"{}"}}}}"#, "x".repeat(401)), "a text of 401, where 400 is the most"),
        (r#"{"failed":{"why":"\u001b[2J"}}"#.to_owned(), "a text with a control character"),
    ] {
        let mut texts = [ready.clone(), counts_json(100, 0.5), last].into_iter();
        std::thread::scope(|scope| {
            scope.spawn(|| answer_with(&control, |_| texts.next().map(String::into_bytes).into_iter().collect()));
            let mut client = AgentClient::connect(&[control.local_addr().unwrap()], &secret()).unwrap();
            let sockets = TestSocketOptions::default();
            let mut test = client.open_streams(TestDirection::ToAgent, 1, StreamPlacement::OwnCpus, &sockets).unwrap();
            assert_eq!(test.counts().unwrap().bytes, 100);
            let error_text = test.counts().unwrap_err().to_string();
            assert!(error_text.contains(why), "{error_text}");
        });
    }
}

/// What comes of an agent's files by these answers, one for each request.
fn list_files(texts: &[String]) -> Result<Vec<String>> {
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut texts = texts.iter();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            answer_with(&control, |_| texts.next().map(|text| text.clone().into_bytes()).into_iter().collect())
        });
        let client = AgentClient::connect(&[control.local_addr().unwrap()], &secret()).unwrap();
        client.serve_files(&FileServerOptions::default())?.file_names()
    })
}

fn serving(files: u64) -> String {
    let info = serde_json::json!({
        "files_port": 1, "stats_port": 2, "token": "t", "files": files, "bytes": 5, "skipped": 0, "cacheable_bytes": null
    });
    serde_json::json!({ "serving": info }).to_string()
}

fn names(names: &[&str]) -> String {
    serde_json::json!({ "names": names }).to_string()
}

#[test]
fn invalid_file_lists_are_refused() {
    assert_eq!(list_files(&[serving(3), names(&["a", "b"]), names(&["c"])]).unwrap(), ["a", "b", "c"]);
    let why = |texts: &[String]| list_files(texts).unwrap_err().to_string();
    for files in [0, 100_001, 1_000_000_000] {
        assert!(why(&[serving(files)]).contains(&format!("{files} files, where 1 to 100000 are possible")));
    }
    assert!(why(&[serving(u64::MAX)]).contains("malformed message"));
    for name in ["", ".", "..", "a/b", "/etc/passwd", "../a", "a\nb", "\u{1b}[2J", &"x".repeat(256)] {
        assert!(why(&[serving(1), names(&[name])]).contains("a name of no file"), "{name:?}");
    }
    assert!(why(&[serving(200), names(&["a"; 101])]).contains("a list of 101, where 100 is the most"));
    for response in [names(&["a", "b"]), names(&[])] {
        assert!(why(&[serving(1), response]).contains("it names more or fewer files than it has"));
    }
    assert!(why(&[serving(1), "\"alive\"".into()]).contains("its answer does not match the request"));
    let token = serving(1).replace("\"t\"", &format!("\"{}\"", "t".repeat(65)));
    assert!(why(&[token]).contains("a text of 65, where 64 is the most"));
}
