//! The handshake and both halves of a connection: who gets in, and what cannot be opened.

use std::io::{Cursor, Read};
use std::net::{TcpListener, TcpStream};

use super::{LONG, ScriptedStream, framed, frames, secret};
use crate::wire::cipher::{MAX_CONTENT_BYTES, MAX_SEALED_BYTES, Opener, Sealer, TAG_BYTES};
use crate::wire::deadline::Deadline;
use crate::wire::handshake::{Greeting, Handshake, HandshakeProtocol, ProgramRole};
use crate::wire::secret::Secret;
use crate::wire::{Error, Result, message};

/// A protocol of the tests.
pub(super) const TEST_PROTOCOL: HandshakeProtocol = HandshakeProtocol {
    listener: ProgramRole { program: "kelvin one", role: "one" },
    caller: ProgramRole { program: "kelvin other", role: "other" },
    magic: *b"kelvin of tests\n",
    context: "kelvin 2026 tests of wire, Noise pre-shared key",
    version: 7,
};

type Halves = (Sealer, Opener);

pub(super) fn handshake<'a>(protocol: &'a HandshakeProtocol, secret: &'a Secret) -> Handshake<'a> {
    Handshake { protocol, secret, deadline: Deadline::within(LONG) }
}

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// What a caller and a listener make of each other, where there is a place, or none.
fn run_handshake(
    caller: Handshake<'_>,
    listener: Handshake<'_>,
    place: Option<()>,
) -> (Result<Halves>, Result<Halves>) {
    let (mut one, mut other) = pair();
    std::thread::scope(|scope| {
        let called = scope.spawn(move || caller.connect(&mut one));
        let listened = listener.accept(&mut other, || place).map(|(halves, ())| halves);
        drop(other);
        (called.join().unwrap(), listened)
    })
}

/// The halves of a caller and of a listener.
pub(super) fn connected_halves() -> (Halves, Halves) {
    let secret = secret();
    let handshake = handshake(&TEST_PROTOCOL, &secret);
    let (called, listened) = run_handshake(handshake, handshake, Some(()));
    (called.unwrap(), listened.unwrap())
}

fn seal(sealer: &mut Sealer, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    sealer.seal(content, &mut out).unwrap();
    out
}

fn open(opener: &mut Opener, sealed: &[u8]) -> Result<Vec<u8>> {
    let mut out = vec![0; sealed.len()];
    let length = opener.open(sealed, &mut out)?;
    out.truncate(length);
    Ok(out)
}

#[test]
fn tampered_or_replayed_message_is_not_opened() {
    let ((mut sealer, mut own), (_, mut opener)) = connected_halves();
    let sealed = [&b"one"[..], b"two", b"two"].map(|content| seal(&mut sealer, content));
    assert_ne!(sealed[1], sealed[2], "the same content twice");
    for bit in 0..8 * sealed[0].len() {
        let mut changed = sealed[0].clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(open(&mut opener, &changed), Err(Error::Tampered)), "{bit}");
    }
    for length in 0..sealed[0].len() {
        assert!(matches!(open(&mut opener, &sealed[0][..length]), Err(Error::Tampered)), "{length}");
    }
    assert!(matches!(open(&mut opener, &sealed[1]), Err(Error::Tampered)), "one was dropped");
    assert!(matches!(open(&mut own, &sealed[0]), Err(Error::Tampered)), "reflected");
    assert_eq!(open(&mut opener, &sealed[0]).unwrap(), b"one");
    assert!(matches!(open(&mut opener, &sealed[0]), Err(Error::Tampered)), "repeated");
    assert!(matches!(open(&mut opener, &sealed[2]), Err(Error::Tampered)), "reordered");
    assert_eq!(open(&mut opener, &sealed[1]).unwrap(), b"two");
    assert!(matches!(open(&mut connected_halves().1.1, &sealed[0]), Err(Error::Tampered)), "of another connection");
}

#[test]
fn messages_of_every_length_round_trip() {
    let ((mut sealer, _), (_, mut opener)) = connected_halves();
    let content: Vec<u8> = (0..MAX_CONTENT_BYTES + 1).map(|i| ((i * i) >> 7) as u8).collect();
    let mut out = b"before".to_vec();
    for length in [0, 1, 15, 16, 17, 4096, MAX_CONTENT_BYTES - 1, MAX_CONTENT_BYTES] {
        out.truncate(6);
        sealer.seal(&content[..length], &mut out).unwrap();
        assert_eq!((&out[..6], out.len()), (&b"before"[..], 6 + length + TAG_BYTES), "{length}");
        // Once with just enough room.
        let mut opened = vec![0; if length % 2 == 0 { length } else { MAX_SEALED_BYTES }];
        assert_eq!(opener.open(&out[6..], &mut opened).unwrap(), length);
        assert!(opened[..length] == content[..length], "{length}");
    }
    let too_long = sealer.seal(&content, &mut out);
    assert!(
        matches!(too_long, Err(Error::FrameTooLong { claimed, limit: MAX_CONTENT_BYTES }) if claimed == MAX_CONTENT_BYTES + 1)
    );
    assert_eq!(out.len(), 6 + MAX_SEALED_BYTES);
    // What does not fit is lost no more than what was changed: it can be opened again.
    let sealed = seal(&mut sealer, b"ten bytes!");
    assert!(matches!(opener.open(&sealed, &mut [0; 9]), Err(Error::Tampered)));
    assert_eq!(open(&mut opener, &sealed).unwrap(), b"ten bytes!");
}

#[test]
fn sealing_and_opening_work_across_threads() {
    let (called, listened) = connected_halves();
    let (there, back) = (std::sync::mpsc::channel::<Vec<u8>>(), std::sync::mpsc::channel::<Vec<u8>>());
    std::thread::scope(|scope| {
        for ((mut sealer, mut opener), to, from) in [(called, there.0, back.1), (listened, back.0, there.1)] {
            scope.spawn(move || {
                (0..500_u32).for_each(|number| to.send(seal(&mut sealer, &number.to_le_bytes())).unwrap())
            });
            scope.spawn(move || {
                let opened: Vec<_> = from.iter().map(|sealed| open(&mut opener, &sealed).unwrap()).collect();
                assert_eq!(opened, (0..500_u32).map(|number| number.to_le_bytes().to_vec()).collect::<Vec<_>>());
            });
        }
    });
}

#[test]
fn only_same_secret_is_admitted() {
    let [one, other] = [secret(), Secret::new(b"incorrect horse battery staple").unwrap()];
    let none = Secret::none();
    let meet = |caller, listener| {
        run_handshake(handshake(&TEST_PROTOCOL, caller), handshake(&TEST_PROTOCOL, listener), Some(()))
    };
    for secret in [&one, &none] {
        let (called, listened) = meet(secret, secret);
        let ((mut sealer, mut opener), (mut other_sealer, mut other_opener)) = (called.unwrap(), listened.unwrap());
        assert_eq!(open(&mut other_opener, &seal(&mut sealer, b"there")).unwrap(), b"there");
        assert_eq!(open(&mut opener, &seal(&mut other_sealer, b"back")).unwrap(), b"back");
    }
    let wrong = meet(&one, &other);
    assert!(matches!(wrong, (Err(Error::WrongSecret), Err(Error::WrongSecret))), "{wrong:?}");
    // The caller sees in the hello that it need not try.
    assert!(matches!(meet(&none, &one), (Err(Error::SecretRequired("one")), Err(Error::Closed))));
    assert!(matches!(meet(&one, &none), (Err(Error::NoSecretAtPeer("one")), Err(Error::Closed))));
    // The same secret for another purpose is another key.
    let elsewhere = HandshakeProtocol { context: "kelvin 2026 tests of wire, another purpose", ..TEST_PROTOCOL };
    let wrong = run_handshake(handshake(&TEST_PROTOCOL, &one), handshake(&elsewhere, &one), Some(()));
    assert!(matches!(wrong, (Err(Error::WrongSecret), Err(Error::WrongSecret))), "{wrong:?}");
}

#[test]
fn rejection_reasons_are_distinguished() {
    let secret = secret();
    let own = handshake(&TEST_PROTOCOL, &secret);
    let full = run_handshake(own, own, None);
    assert!(matches!(full, (Err(Error::ServerFull("one")), Err(Error::ServerFull("one")))), "{full:?}");
    let newer = HandshakeProtocol { version: 8, ..TEST_PROTOCOL };
    let (called, listened) = run_handshake(own, handshake(&newer, &secret), Some(()));
    let said = called.unwrap_err().to_string();
    assert!(said.contains("version 8 of the protocol (kelvin 0") && said.contains("this one version 7"), "{said}");
    assert!(matches!(listened, Err(Error::Closed)));
    let another =
        HandshakeProtocol { listener: ProgramRole { program: "kelvin third", role: "third" }, ..TEST_PROTOCOL };
    let said = run_handshake(own, handshake(&another, &secret), Some(())).0.unwrap_err().to_string();
    assert!(said.contains("no kelvin one, or not one of this version: it calls itself \"kelvin third\""), "{said}");
    let call = |bytes: Vec<u8>| own.connect(&mut ScriptedStream::with_input(bytes)).unwrap_err().to_string();
    assert!(
        call(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())
            .contains("is no kelvin one, or not one of this version: it does not greet")
    );
    assert!(call(framed(b"{}")).contains("is no kelvin one"));
    let listened = own.accept(&mut ScriptedStream::with_input(b"GET / HTTP/1.1\r\n".repeat(9)), || Some(())).map(drop);
    assert!(listened.unwrap_err().to_string().contains("is no kelvin other"));
}

/// What a caller with the secret says to what it was sent.
fn greeting_bytes(protocol: &HandshakeProtocol, hello: &[u8]) -> Vec<u8> {
    let secret = secret();
    let mut stream = ScriptedStream::with_input(framed(hello));
    assert!(matches!(handshake(protocol, &secret).connect(&mut stream), Err(Error::Closed)));
    stream.received
}

/// Takes a greeting that has come whole.
fn read_greeting(bytes: &[u8], handshake: &Handshake<'_>) -> Result<Greeting> {
    let mut greeting = Greeting::default();
    greeting
        .read_from(&mut ScriptedStream::with_input(bytes.to_vec()), handshake)
        .map(|is_complete| assert!(is_complete))?;
    Ok(greeting)
}

/// What a new connection was sent.
fn received_hello(stream: &ScriptedStream) -> Vec<u8> {
    frames(&stream.received).remove(0)
}

/// One handshake of an agent, to be tried again and again.
pub(super) struct RecordedHandshake<'a> {
    handshake: Handshake<'a>,
    hello: Vec<u8>,
    /// What the client said in it, and the agent.
    pub(super) greeting: Vec<u8>,
    pub(super) answers: Vec<u8>,
}

impl<'a> RecordedHandshake<'a> {
    pub(super) fn new(secret: &'a Secret) -> Self {
        let deadline = Deadline::within(100 * LONG);
        let handshake = Handshake { protocol: &message::PROTOCOL, secret, deadline };
        let mut stream = ScriptedStream::default();
        let greeted = handshake.send_hello(&mut stream).unwrap();
        let greeting = greeting_bytes(&message::PROTOCOL, &received_hello(&stream));
        let come = read_greeting(&greeting, &handshake).unwrap();
        handshake.complete(&mut stream, (&greeted, &come), || Some(())).unwrap();
        Self { handshake, hello: greeted, greeting, answers: stream.received }
    }

    /// What the agent makes of a client's bytes.
    pub(super) fn replay(&self, bytes: &[u8]) -> Result<()> {
        let come = read_greeting(bytes, &self.handshake)?;
        self.handshake.complete(&mut ScriptedStream::default(), (&self.hello, &come), || Some(())).map(drop)
    }
}

#[test]
fn bytewise_greeting_is_assembled() {
    let secret = secret();
    let own = handshake(&TEST_PROTOCOL, &secret);
    let mut stream = ScriptedStream::default();
    let greeted = own.send_hello(&mut stream).unwrap();
    let whole = greeting_bytes(&TEST_PROTOCOL, &received_hello(&stream));
    let mut come = Greeting::default();
    for (number, byte) in whole.iter().enumerate() {
        // No end, like a connection that only waits.
        let is_complete = come.read_from(&mut Cursor::new([*byte]).chain(EmptyStream), &own).unwrap();
        assert_eq!(is_complete, number + 1 == whole.len(), "{number}");
    }
    // What follows is none of it.
    assert!(come.read_from(&mut EmptyStream, &own).unwrap());
    assert!(own.complete(&mut stream, (&greeted, &come), || Some(())).is_ok());
    let refused =
        |bytes: &[u8]| Greeting::default().read_from(&mut Cursor::new(bytes).chain(EmptyStream), &own).unwrap_err();
    for bytes in [&b"G"[..], b"GET / HTTP/1.1\r\n", b"kelvin of text", &[whole[..16].to_vec(), vec![8]].concat()] {
        assert!(refused(bytes).to_string().contains("is no kelvin other"));
    }
    assert!(matches!(Greeting::default().read_from(&mut Cursor::new(&whole[..50]), &own), Err(Error::Closed)));
}

/// A connection over which nothing has come.
struct EmptyStream;

impl Read for EmptyStream {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

#[test]
fn replayed_greeting_is_rejected() {
    let secret = secret();
    let own = handshake(&TEST_PROTOCOL, &secret);
    let mut streams = [ScriptedStream::default(), ScriptedStream::default()];
    let greeted = streams.each_mut().map(|stream| own.send_hello(stream).unwrap());
    let recorded = read_greeting(&greeting_bytes(&TEST_PROTOCOL, &received_hello(&streams[0])), &own).unwrap();
    let mut places = 0;
    let mut answer = |stream: &mut ScriptedStream, greeted| {
        let admit = || {
            places += 1;
            Some(())
        };
        own.complete(stream, (greeted, &recorded), admit).map(drop)
    };
    assert!(answer(&mut streams[0], &greeted[0]).is_ok());
    assert!(matches!(answer(&mut streams[1], &greeted[1]), Err(Error::WrongSecret)));
    assert_eq!(places, 1);
}

#[test]
fn tampered_handshake_fails() {
    let secret = secret();
    let own = handshake(&TEST_PROTOCOL, &secret);
    let mut stream = ScriptedStream::default();
    let greeted = own.send_hello(&mut stream).unwrap();
    let sent = received_hello(&stream);
    // The hello: the caller accepts it, and so has another prologue.
    let changed = String::from_utf8(sent.clone()).unwrap().replacen("\"program\":\"", "\"program\":\"9", 1);
    let answer = |greeting: &[u8]| {
        let mut stream = ScriptedStream::default();
        let outcome = read_greeting(greeting, &own)
            .and_then(|greeting| own.complete(&mut stream, (&greeted, &greeting), || Some(())))
            .map(drop);
        (outcome, stream.received)
    };
    assert!(matches!(answer(&greeting_bytes(&TEST_PROTOCOL, changed.as_bytes())).0, Err(Error::WrongSecret)));
    // The greeting, byte by byte.
    let whole = greeting_bytes(&TEST_PROTOCOL, &sent);
    assert!(answer(&whole).0.is_ok());
    for byte in 0..whole.len() {
        let mut changed = whole.clone();
        changed[byte] ^= 1;
        assert!(answer(&changed).0.is_err(), "{byte}");
    }
    // The verdict: that of another handshake, and of somebody who lets everybody in.
    for verdict in [answer(&whole).1, [&[1][..], &[0; 48]].concat()] {
        let mut stream = ScriptedStream::with_input([framed(&sent), verdict].concat());
        assert!(matches!(own.connect(&mut stream), Err(Error::WrongSecret)));
    }
}
