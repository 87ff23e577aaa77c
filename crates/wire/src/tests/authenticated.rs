//! What an authenticated peer may send, in every state of a test: nothing of it makes a thread panic, or blocks anybody.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kelvin_sys::random::split_mix;

use super::{LONG, answers, asks, handshake, mutate, secret};
use crate::agent::Agent;
use crate::channel::Channel;
use crate::client::{Client, shake};
use crate::files::Design;
use crate::limits::Limits;
use crate::message::{Answer, Ask, Cookie, Direction, PROTOCOL, Transport};
use crate::sealed::CONTENT;
use crate::sockets::Sockets;
use crate::{Error, Result};

/// Where they are among all answers.
const READY: usize = 0;
const COUNTED: usize = 1;
const DONE: usize = 2;

/// Panics of the agent's threads: those of clients, and those without a name of their own.
static PANICS: AtomicU32 = AtomicU32::new(0);

/// Counts panics from now on.
fn count_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_of_test = std::thread::current().name().is_some_and(|name| name != "client");
        PANICS.fetch_add(u32::from(!is_of_test), Ordering::Relaxed);
        usual(panic);
    }));
}

/// Runs an agent, and something beside it.
fn beside_agent(body: impl FnOnce(SocketAddr)) {
    let limits = Limits { clients: 64, handshake: LONG, idle: LONG, ..Limits::default() };
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
struct UnderWay {
    channel: Channel,
    _streams: Vec<TcpStream>,
    _socket: Option<UdpSocket>,
}

/// Brings an agent into the state in which it serves this, or, without it, waits for a request.
fn under_way(agent: SocketAddr, ask: Option<&Ask>) -> UnderWay {
    let mut channel = shake(TcpStream::connect(agent).unwrap(), &secret(), LONG).unwrap();
    let Some(ask) = ask else { return UnderWay { channel, _streams: Vec::new(), _socket: None } };
    channel.send(ask, LONG).unwrap();
    let Answer::Ready { port, cookie } = channel.receive(LONG).unwrap() else { panic!("{ask:?}") };
    let there = SocketAddr::new(agent.ip(), port);
    let streams = match *ask {
        Ask::Echo { transport: Transport::Tcp, .. } => 1,
        Ask::Streams { count, .. } => count,
        _ => 0,
    };
    let streams = (0..streams).map(|_| stream(there, &cookie)).collect();
    let is_of_datagrams = matches!(ask, Ask::Echo { transport: Transport::Udp, .. } | Ask::TakeDatagrams { .. });
    UnderWay { channel, _streams: streams, _socket: is_of_datagrams.then(|| introduced(there, &cookie)) }
}

fn stream(there: SocketAddr, cookie: &Cookie) -> TcpStream {
    let mut stream = TcpStream::connect(there).unwrap();
    stream.write_all(cookie).unwrap();
    stream
}

fn introduced(there: SocketAddr, cookie: &Cookie) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(there).unwrap();
    socket.send(cookie).unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), cookie.len());
    socket
}

/// The states of an agent with an authenticated client.
fn states() -> Vec<Option<Ask>> {
    let streams = |direction| Some(Ask::Streams { direction, count: 2, sockets: Sockets::default() });
    let echo = |transport| Some(Ask::Echo { transport, bytes: 64 });
    let datagrams = Some(Ask::TakeDatagrams { bytes: 64 });
    vec![
        None,
        echo(Transport::Tcp),
        echo(Transport::Udp),
        streams(Direction::ToAgent),
        streams(Direction::FromAgent),
        datagrams,
        Some(Ask::Accept),
    ]
}

#[test]
fn an_agent_survives_any_message_of_an_authenticated_client() {
    count_panics();
    let said: Vec<Vec<u8>> = asks().iter().map(|ask| serde_json::to_vec(ask).unwrap()).collect();
    let mut state = 2;
    beside_agent(|agent| {
        for (number, ask) in states().iter().cycle().take(1400).enumerate() {
            let mut under_way = under_way(agent, ask.as_ref());
            for again in 0..3 {
                let mut text = said[(number + again) % said.len()].clone();
                mutate(&mut text, &mut state);
                if number % 50 == 0 {
                    text = [b"{\"".to_vec(), vec![b'x'; CONTENT - 5], b"\":1".to_vec()].concat();
                }
                text.truncate(CONTENT);
                // It may have left already.
                let _ = under_way.channel.send_text(&text, LONG);
            }
        }
        // It has places for all that come now: the sender is gone.
        let mut client = loop {
            match Client::connect(&[agent], &secret()) {
                Err(Error::Refused(_)) => std::thread::yield_now(),
                client => break client.unwrap(),
            }
        };
        assert_eq!(client.echo_tcp(8).unwrap().finish().unwrap().arrived, 0);
    });
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

/// An oversized request is refused to its sender, who is still served.
#[test]
fn a_text_as_long_as_a_frame_is_refused_with_a_reason_in_every_state() {
    beside_agent(|agent| {
        for ask in states() {
            for text in [
                format!("\"{}\"", "x".repeat(65_480)),
                format!("{{\"{}\":1}}", "\u{1b}".repeat(60_000)),
                format!(
                    r#"{{"streams":{{"direction":"to_agent","count":1,"sockets":{{"congestion_control":"{}"}}}}}}"#,
                    "y".repeat(60_000)
                ),
                "[".repeat(65_000),
            ] {
                let UnderWay { mut channel, _streams, _socket } = under_way(agent, ask.as_ref());
                channel.send_text(text.as_bytes(), LONG).unwrap();
                // An echo over TCP reads only its own connection.
                drop(_streams);
                let mut answer = channel.receive::<Answer>(LONG).unwrap();
                if matches!(answer, Answer::Done(_)) {
                    answer = channel.receive(LONG).unwrap();
                }
                let Answer::Failed { why } = answer else { panic!("{ask:?}: {answer:?}") };
                assert!(why.contains("malformed message") || why.contains("closed the connection"), "{ask:?}: {why}");
                channel.send(&Ask::Echo { transport: Transport::Tcp, bytes: 0 }, LONG).unwrap();
                let mut answer = channel.receive::<Answer>(LONG).unwrap();
                if matches!(&answer, Answer::Failed { why } if why.contains("malformed message")) {
                    answer = channel.receive(LONG).unwrap();
                }
                assert!(
                    matches!(&answer, Answer::Failed { why } if why.contains("at least one byte")),
                    "{ask:?} {answer:?}"
                );
            }
        }
    });
}

/// An agent that shakes hands properly, and answers each request by texts.
fn answer_with(listener: &TcpListener, mut texts: impl FnMut(&Ask) -> Vec<Vec<u8>>) -> Result<()> {
    let (mut stream, _) = listener.accept().map_err(Error::call("accept"))?;
    let (halves, ()) = handshake(&PROTOCOL, &secret()).listen(&mut stream, || Some(()))?;
    let mut channel = Channel::new(stream, halves);
    loop {
        let ask = channel.receive(LONG)?;
        texts(&ask).iter().try_for_each(|text| channel.send_text(text, LONG))?;
    }
}

/// Which of all answers are right for a request.
fn right(ask: &Ask) -> &'static [usize] {
    match ask {
        Ask::Echo { .. } => &[READY, DONE],
        Ask::Count => &[COUNTED],
        Ask::End => &[DONE],
        _ => &[READY],
    }
}

/// Does everything that a client does; the outcome does not matter.
fn use_all(client: &mut Client, number: usize) -> Result<()> {
    let sockets = Sockets::default();
    match number % 4 {
        0 => drop(client.echo_tcp(64)?.finish()?),
        1 => {
            let mut test = client.streams(Direction::FromAgent, 2, &sockets)?;
            test.counted()?;
            test.counted()?;
            drop(test.finish()?);
        }
        2 => {
            let mut test = client.streams(Direction::ToAgent, 1, &sockets)?;
            let (first, last) = (test.counted()?, test.counted()?);
            let numbers = (last.numbers.lost_since(&first.numbers), last.numbers.reordered_since(&first.numbers));
            assert!(last.at - first.at < u64::MAX && numbers.0.is_none_or(|lost| (0.0..=1.0).contains(&lost)));
        }
        _ => drop(client.accepting()?.finish()?),
    }
    Ok(())
}

#[test]
fn a_client_survives_any_answer_of_an_agent() {
    let (control, tests) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let ready = Answer::Ready { port: tests.local_addr().unwrap().port(), cookie: [7; 16] };
    let mut answers = answers();
    answers[READY] = ready;
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| serde_json::to_vec(answer).unwrap()).collect();
    let address = control.local_addr().unwrap();
    let (mut state, mut finished) = (3, 0);
    let mut text = move |right: usize| {
        let number = split_mix(&mut state);
        let mut text =
            answers[if number.is_multiple_of(16) { number as usize / 16 % answers.len() } else { right }].clone();
        if number.is_multiple_of(3) {
            mutate(&mut text, &mut state);
        }
        text.truncate(CONTENT);
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
                let _ = answer_with(&control, |ask| right(ask).iter().map(|&right| text(right)).collect());
            }
        });
        for number in 0..500 {
            let mut client = Client::connect(&[address], &secret()).unwrap();
            finished += u32::from(use_all(&mut client, number).is_ok());
        }
    });
    assert!(finished > 50, "{finished}");
}

#[test]
fn an_agent_that_counts_backwards_or_beyond_all_bounds_is_not_believed() {
    let counted = |bytes: u64, busiest: f64| {
        let zeros = serde_json::json!({ "arrived": 0, "latest": 0, "reordered": 0 });
        let busy = serde_json::json!({ "busiest": busiest, "threads": 0.0, "cpu": null });
        serde_json::json!({ "counted": { "bytes": bytes, "at": 1, "numbers": zeros, "dropped": 0, "busy": busy } })
            .to_string()
    };
    let (control, tests) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let ready = Answer::Ready { port: tests.local_addr().unwrap().port(), cookie: [7; 16] };
    let ready = serde_json::to_string(&ready).unwrap();
    for (last, why) in [
        (counted(99, 0.0), "it has counted less than before"),
        (counted(101, 1e9), "a number of 1000000000, where 1000000 is the most"),
        (counted(101, -1.0), "a number of -1, where"),
        (format!(r#"{{"failed":{{"why":"{}"}}}}"#, "x".repeat(401)), "a text of 401, where 400 is the most"),
        (r#"{"failed":{"why":"\u001b[2J"}}"#.to_owned(), "a text with a control character"),
    ] {
        let mut texts = [ready.clone(), counted(100, 0.5), last].into_iter();
        std::thread::scope(|scope| {
            scope.spawn(|| answer_with(&control, |_| texts.next().map(String::into_bytes).into_iter().collect()));
            let mut client = Client::connect(&[control.local_addr().unwrap()], &secret()).unwrap();
            let mut test = client.streams(Direction::ToAgent, 1, &Sockets::default()).unwrap();
            assert_eq!(test.counted().unwrap().bytes, 100);
            let said = test.counted().unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        });
    }
}

/// What comes of an agent's files by these answers, one for each request.
fn listed(texts: &[String]) -> Result<Vec<String>> {
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut texts = texts.iter();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            answer_with(&control, |_| texts.next().map(|text| text.clone().into_bytes()).into_iter().collect())
        });
        let client = Client::connect(&[control.local_addr().unwrap()], &secret()).unwrap();
        client.serve_files(&Design::default())?.names()
    })
}

fn serving(files: u64) -> String {
    let served = serde_json::json!({
        "files_port": 1, "looks_port": 2, "token": "t", "files": files, "bytes": 5, "left_out": 0, "may_be_cached": null
    });
    serde_json::json!({ "serving": served }).to_string()
}

fn names(names: &[&str]) -> String {
    serde_json::json!({ "names": names }).to_string()
}

#[test]
fn an_agent_that_lies_about_its_files_is_not_believed() {
    assert_eq!(listed(&[serving(3), names(&["a", "b"]), names(&["c"])]).unwrap(), ["a", "b", "c"]);
    let why = |texts: &[String]| listed(texts).unwrap_err().to_string();
    for files in [0, 100_001, 1_000_000_000] {
        assert!(why(&[serving(files)]).contains(&format!("{files} files, where 1 to 100000 are possible")));
    }
    assert!(why(&[serving(u64::MAX)]).contains("malformed message"));
    for name in ["", ".", "..", "a/b", "/etc/passwd", "../a", "a\nb", "\u{1b}[2J", &"x".repeat(256)] {
        assert!(why(&[serving(1), names(&[name])]).contains("a name of no file"), "{name:?}");
    }
    assert!(why(&[serving(200), names(&["a"; 101])]).contains("a list of 101, where 100 is the most"));
    for wrong in [names(&["a", "b"]), names(&[])] {
        assert!(why(&[serving(1), wrong]).contains("it names more or fewer files than it has"));
    }
    assert!(why(&[serving(1), "\"stays\"".into()]).contains("its answer does not match the request"));
    let token = serving(1).replace("\"t\"", &format!("\"{}\"", "t".repeat(65)));
    assert!(why(&[token]).contains("a text of 65, where 64 is the most"));
}
