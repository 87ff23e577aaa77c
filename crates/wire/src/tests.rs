//! The protocol, byte for byte: proofs, tags, lengths; and a million invalid inputs.

mod authenticated;
mod noise;

use std::io::{Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use kelvin_sys::random::split_mix;

use crate::bounded::REASON;
use crate::busy::{Busy, BusyCpu};
use crate::channel::Channel;
use crate::deadline::{Connection, Deadline};
use crate::handshake::PROTOCOL;
use crate::interface::Interface;
use crate::limits::Limits;
use crate::message::{Answer, Ask, Counted, Direction, Seen, Transport};
use crate::secret::{Nonce, Secret, Side};
use crate::sockets::{Sockets, TcpEnd};
use crate::{Error, Result, frame, handshake};

const LONG: Duration = Duration::from_secs(5);

/// A peer with prepared bytes, whose listener keeps what it receives.
#[derive(Default)]
struct Scripted {
    says: Cursor<Vec<u8>>,
    received: Vec<u8>,
}

impl Scripted {
    fn saying(bytes: Vec<u8>) -> Self {
        Self { says: Cursor::new(bytes), received: Vec::new() }
    }
}

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.says.read(buffer)
    }
}

impl Write for Scripted {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.received.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Connection for Scripted {
    fn wait_at_most(&mut self, _: Duration) -> std::io::Result<()> {
        Ok(())
    }
}

fn secret() -> Secret {
    Secret::new(b"correct horse battery staple\n").unwrap()
}

fn framed(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text].concat()
}

/// The frames of this stream of bytes.
fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut stream = Scripted::saying(bytes.to_vec());
    std::iter::from_fn(|| frame::receive(&mut stream, &Deadline::within(LONG), "").ok()).collect()
}

#[test]
fn proofs_and_keys_differ_by_side_secret_and_nonce() {
    let nonces: [Nonce; 2] = [[1; 32], [2; 32]];
    let other = Secret::new(b"correct horse battery stable").unwrap();
    let said = [
        secret().proof(Side::Client, &nonces),
        secret().proof(Side::Agent, &nonces),
        secret().proof(Side::Client, &[[2; 32], [1; 32]]),
        other.proof(Side::Client, &nonces),
        Secret::none().proof(Side::Client, &nonces),
        secret().key(Side::Client, &nonces).into(),
        secret().key(Side::Agent, &nonces).into(),
    ];
    for (number, one) in said.iter().enumerate() {
        assert!(said[..number].iter().all(|earlier| earlier != one), "{number}");
    }
    // The same, computed once by b3sum's own keyed mode over the bytes that the source names.
    let key = blake3::derive_key("kelvin agent, shared secret", b"correct horse battery staple");
    let mut bytes = b"proof of the client\0".to_vec();
    bytes.extend([[1; 32], [2; 32]].concat());
    assert_eq!(secret().proof(Side::Client, &nonces), blake3::keyed_hash(&key, &bytes));
    assert!(!format!("{:?}", secret()).contains("horse"));
}

#[test]
fn a_secret_is_long_and_private() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let read = |content: &[u8], mode: u32| {
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Secret::read(&file).map_err(|error| error.to_string())
    };
    assert!(read(b"0123456789abcdef\n", 0o600).unwrap().is_some());
    assert!(read(b"0123456789abcde\n", 0o600).unwrap_err().contains("token: has 15 bytes"));
    assert!(read(b"0123456789abcdef\n", 0o640).unwrap_err().contains("to others (mode 640): chmod 600 it"));
    assert!(read(&[b'a'; 4097], 0o600).unwrap_err().contains("at most 4096"));
    assert!(Secret::read(directory.path()).unwrap_err().to_string().contains("is no regular file"));
    assert!(Secret::read(&directory.path().join("none")).unwrap_err().to_string().contains("No such file"));
}

#[test]
fn a_forged_length_costs_nothing() {
    for claimed in [frame::LONGEST as u32 + 1, u32::MAX] {
        let mut stream = Scripted::saying(claimed.to_le_bytes().to_vec());
        let error = frame::receive(&mut stream, &Deadline::within(LONG), "").unwrap_err();
        assert!(matches!(error, Error::TooLong { claimed: said, .. } if said == claimed as usize), "{error}");
    }
    let longest = framed(&vec![7; frame::LONGEST]);
    assert_eq!(frames(&longest), [vec![7; frame::LONGEST]]);
    // A frame that ends early is the end of its sender.
    let mut stream = Scripted::saying(longest[..1000].to_vec());
    assert!(matches!(frame::receive(&mut stream, &Deadline::within(LONG), ""), Err(Error::Gone)));
}

#[test]
fn a_missed_deadline_names_what_was_waited_for() {
    let mut stream = Scripted::saying(framed(b"late"));
    let error = frame::receive(&mut stream, &Deadline::within(Duration::ZERO), "speak").unwrap_err();
    assert_eq!(error.to_string(), "the other side did not speak within 0 s");
}

/// What a channel sent, frame by frame.
fn sent(messages: &[Ask]) -> Vec<Vec<u8>> {
    let mut channel = Channel::new(Scripted::default(), [1; 32], [2; 32]);
    messages.iter().for_each(|message| channel.send(message, LONG).unwrap());
    frames(&channel.stream().received)
}

/// What another channel makes of these frames.
fn heard(frames: &[Vec<u8>]) -> Vec<Result<Ask>> {
    let bytes = frames.iter().flat_map(|frame| framed(frame)).collect();
    let mut channel = Channel::new(Scripted::saying(bytes), [2; 32], [1; 32]);
    frames.iter().map(|_| channel.receive(LONG)).collect()
}

#[test]
fn a_changed_dropped_repeated_or_reflected_frame_is_rejected() {
    let asks = [Ask::Echo { transport: Transport::Tcp, bytes: 64 }, Ask::End, Ask::End];
    let frames = sent(&asks);
    assert_eq!(heard(&frames).into_iter().map(Result::unwrap).collect::<Vec<_>>(), asks);
    for byte in 0..frames[0].len() {
        let mut changed = frames.clone();
        changed[0][byte] ^= 1;
        assert!(matches!(heard(&changed)[0], Err(Error::Changed)), "{byte}");
    }
    assert!(matches!(heard(&[frames[1].clone()])[0], Err(Error::Changed)), "left out");
    let repeated = heard(&[frames[0].clone(), frames[0].clone()]);
    assert!(repeated[0].is_ok() && matches!(repeated[1], Err(Error::Changed)));
    // The same message twice has two tags.
    assert_ne!(frames[1], frames[2]);
    // What one end sent, sent back to it.
    let mut channel = Channel::new(Scripted::saying(framed(&frames[0])), [1; 32], [2; 32]);
    assert!(matches!(channel.receive::<Ask>(LONG), Err(Error::Changed)));
    assert!(matches!(heard(&[vec![0; 31]])[0], Err(Error::Changed)), "too short for a tag");
}

#[test]
fn no_agent_and_another_version_are_distinguished() {
    let hello = |name: &str, protocol: u32, has_secret: bool| {
        let nonce = [3_u8; 32];
        let hello = serde_json::json!({
            "name": name, "protocol": protocol, "program": "9.9.9", "secret": has_secret, "nonce": nonce
        });
        framed(hello.to_string().as_bytes())
    };
    let meet = |bytes: Vec<u8>, secret: &Secret| {
        handshake::client(Scripted::saying(bytes), secret, LONG).map(|_| ()).unwrap_err().to_string()
    };
    let none = Secret::none();
    assert!(meet(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), &none).contains("a frame of "));
    assert!(meet(hello("another", PROTOCOL, false), &none).contains("is no kelvin agent"));
    assert!(meet(framed(b"{}"), &none).contains("is no kelvin agent"));
    let version = meet(hello("kelvin agent", PROTOCOL + 1, false), &none);
    let expected = format!("version {} of the protocol (kelvin 9.9.9), this one version {PROTOCOL}", PROTOCOL + 1);
    assert!(version.contains(&expected), "{version}");
    assert!(meet(hello("kelvin agent", PROTOCOL, true), &none).contains("requires a secret: give its file"));
    // A client with a secret does not believe an agent that claims to need none.
    assert!(meet(hello("kelvin agent", PROTOCOL, false), &secret()).contains("differs from the other side's"));
    // Nor one that does not know it, but admits everybody.
    let proof = [0_u8; 32];
    let welcome = framed(serde_json::json!({ "welcome": { "proof": proof } }).to_string().as_bytes());
    let liar = [hello("kelvin agent", PROTOCOL, true), welcome].concat();
    assert!(meet(liar, &secret()).contains("differs from the other side's"));
}

/// One of each request.
fn asks() -> Vec<Ask> {
    let sockets = Sockets { congestion_control: Some("reno".into()), buffers: Some(65_536) };
    let streams = |direction| Ask::Streams { direction, count: 3, sockets: sockets.clone() };
    vec![
        Ask::Echo { transport: Transport::Udp, bytes: 64 },
        streams(Direction::ToAgent),
        streams(Direction::FromAgent),
        Ask::TakeDatagrams { bytes: 100 },
        Ask::Accept,
        Ask::Count,
        Ask::End,
    ]
}

/// One of each answer.
fn answers() -> Vec<Answer> {
    let interface = Interface {
        name: "eth0".into(),
        driver: Some("veth".into()),
        bits_per_second: Some(1e10),
        largest_packet: Some(1500),
        offloads: Some(vec!["tso".into(), "gro".into()]),
    };
    let stream = TcpEnd {
        round_trip: 50_000,
        retransmits: 1,
        congestion_window: 10,
        segment: 1448,
        path_mtu: 1500,
        congestion_control: "reno".into(),
        buffers: [65_536; 2],
    };
    let busy = Busy { busiest: 0.5, threads: 1.5, cpu: Some(BusyCpu { number: 1, share: 0.7, interrupts: 0.1 }) };
    vec![
        Answer::Ready { port: 9, cookie: [7; 16] },
        Answer::Counted(Counted { bytes: 1000, at: 2000, busy, ..Counted::default() }),
        Answer::Done(Seen {
            arrived: 3,
            tests: 1,
            interface: Some(interface),
            stream: Some(stream),
            ..Seen::default()
        }),
        Answer::failed("it is impossible"),
    ]
}

/// Valid beginnings of everything that is read from unauthenticated clients.
fn beginnings() -> Vec<Vec<u8>> {
    let nonce = [5_u8; 32];
    let agent = serde_json::json!({
        "name": "kelvin agent", "protocol": PROTOCOL, "program": "0.1.0", "secret": true, "nonce": nonce
    });
    let client = serde_json::json!({ "protocol": PROTOCOL, "program": "0.1.0", "nonce": nonce, "proof": nonce });
    let welcome = serde_json::json!({ "welcome": { "proof": nonce } });
    let agent = framed(agent.to_string().as_bytes());
    vec![framed(client.to_string().as_bytes()), [agent, framed(welcome.to_string().as_bytes())].concat(), Vec::new()]
}

/// Changes some bytes, cuts it, adds to it; sometimes makes a text in it as long as a frame can be.
fn mutate(bytes: &mut Vec<u8>, state: &mut u64) {
    let mut below = |most: usize| (split_mix(state) % most.max(1) as u64) as usize;
    if below(500) == 0 {
        let from = below(bytes.len());
        let quote = bytes[from..].iter().position(|&byte| byte == b'"');
        let room = frame::LONGEST - blake3::OUT_LEN - bytes.len().min(1000);
        bytes.splice(quote.map_or(0..0, |quote| from + quote + 1..from + quote + 1), vec![b'x'; room - below(100)]);
    }
    for _ in 0..below(6) {
        match (below(4), bytes.len()) {
            (0, 1..) => {
                let place = below(bytes.len());
                bytes[place] = below(256) as u8;
            }
            (1, 1..) => bytes.truncate(below(bytes.len())),
            (2, _) => bytes.insert(below(bytes.len() + 1), below(256) as u8),
            // JSON consists of digits and brackets.
            _ => {
                let place = below(bytes.len() + 1);
                bytes.splice(place..place, [b"[{\"-9e,}]"[below(9)]].repeat(below(40)));
            }
        }
    }
}

/// The agent's reaction to an unauthenticated client's bytes.
fn meet_newcomer(bytes: Vec<u8>, secret: &Secret) -> Result<()> {
    let (mut stream, deadline) = (Scripted::saying(bytes), Deadline::within(LONG));
    let own = handshake::greet(&mut stream, secret, deadline)?;
    let said = frame::Partial::new(frame::LONGEST).take(&mut stream)?.ok_or(Error::Gone)?;
    handshake::agent(stream, secret, (own, &said), deadline, || Ok(())).map(drop)
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_put_together() {
    let whole = [framed(b"abc"), framed(b"")].concat();
    let mut partial = frame::Partial::new(frame::LONGEST);
    let mut heard = Vec::new();
    for byte in whole {
        // No end, like a connection that only waits.
        let mut stream = std::io::Read::chain(Cursor::new([byte]), NothingYet);
        heard.extend(partial.take(&mut stream).unwrap());
        if heard.len() == 1 {
            partial = frame::Partial::new(frame::LONGEST);
            heard.push(Vec::new());
        }
    }
    assert_eq!(heard, [b"abc".to_vec(), Vec::new(), Vec::new()]);
    let mut greedy = Cursor::new(u32::MAX.to_le_bytes());
    assert!(matches!(frame::Partial::new(frame::LONGEST).take(&mut greedy), Err(Error::TooLong { .. })));
}

/// A connection over which nothing has come.
struct NothingYet;

impl Read for NothingYet {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

/// The reader of a million inputs: a quarter of them each the agent, the client, an open channel, and what a channel passes on
/// of an authenticated client.
#[test]
fn a_million_invalid_inputs_are_rejected() {
    let asked: Vec<Vec<u8>> = asks().iter().map(|ask| framed(&sent(std::slice::from_ref(ask))[0])).collect();
    let strange = [beginnings(), asked.clone()].concat();
    let mut said: Vec<Vec<u8>> = asks().iter().map(|ask| serde_json::to_vec(ask).unwrap()).collect();
    let asks = said.len();
    said.extend(answers().iter().map(|answer| serde_json::to_vec(answer).unwrap()));
    let (secret, limits, mut understood) = (secret(), Limits::default(), [0; 2]);
    let mut state = 1;
    for number in 0..1_000_000 {
        let of = |all: &[Vec<u8>]| all[number / 4 % all.len()].clone();
        let mut bytes = if number % 4 == 3 { of(&said) } else { of(&strange) };
        mutate(&mut bytes, &mut state);
        match number % 4 {
            0 => assert!(meet_newcomer(bytes, &secret).is_err()),
            1 => assert!(handshake::client(Scripted::saying(bytes), &secret, LONG).is_err()),
            2 => {
                let is_intact = asked.iter().any(|frame| bytes.starts_with(frame));
                let mut channel = Channel::new(Scripted::saying(bytes), [2; 32], [1; 32]);
                assert_eq!(channel.receive::<Ask>(LONG).is_ok(), is_intact, "{number}");
                assert!(channel.receive::<Answer>(LONG).is_err());
            }
            _ if number / 4 % said.len() < asks => understood[0] += u64::from(is_ask_bounded(&bytes, &limits)),
            _ => understood[1] += u64::from(is_answer_bounded(&bytes)),
        }
    }
    assert!(understood.iter().all(|&count| count > 10_000), "{understood:?}: mutations leave some of it whole");
}

/// Whether it is a valid request, of which nothing is too long; if not, the reason is short.
fn is_ask_bounded(text: &[u8], limits: &Limits) -> bool {
    let ask = match serde_json::from_slice::<Ask>(text).map_err(Error::not_understood) {
        Ok(ask) => ask,
        Err(why) => return is_short(&why),
    };
    assert!(ask.to_string().len() < 200, "{ask:?}");
    if let Ask::Streams { sockets, .. } = ask
        && sockets.check(limits).is_ok()
    {
        assert!(sockets.buffers.is_none_or(|bytes| bytes <= limits.buffers), "{sockets:?}");
        assert!(sockets.congestion_control.is_none_or(|name| name.len() <= 15));
    }
    true
}

/// The same of an answer.
fn is_answer_bounded(text: &[u8]) -> bool {
    let shown = match serde_json::from_slice::<Answer>(text).map_err(Error::not_understood) {
        Ok(Answer::Ready { .. }) => String::new(),
        Ok(Answer::Counted(counted)) => counted.busy.to_string(),
        Ok(Answer::Done(Seen { interface, stream, .. })) => {
            format!(
                "{}{}",
                interface.map_or_else(String::new, |one| one.to_string()),
                stream.map_or_else(String::new, |one| one.to_string())
            )
        }
        Ok(Answer::Failed { why }) => why,
        Err(why) => return is_short(&why),
    };
    assert!(shown.len() < 1000 + 128 * 65 && !shown.contains(char::is_control), "{shown}");
    true
}

/// False, once it is known that this can be reported.
fn is_short(why: &Error) -> bool {
    assert!(why.to_string().len() < REASON, "{why}");
    false
}
