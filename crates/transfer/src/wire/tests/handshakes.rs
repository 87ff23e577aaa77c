//! The handshake and both halves of a connection: who gets in, and what cannot be opened.

use std::io::{Cursor, Read};
use std::net::{TcpListener, TcpStream};

use super::{LONG_TIMEOUT, ScriptedStream, framed, frames, secret};
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
    Handshake { protocol, secret, deadline: Deadline::within(LONG_TIMEOUT) }
}

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// What a caller and a listener make of each other, where there is a place, or none.
fn run_handshake(
    caller: Handshake<'_>,
    listener: Handshake<'_>,
    place: Option<()>,
) -> (Result<Halves>, Result<Halves>) {
    let (mut caller_stream, mut listener_stream) = pair();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || caller.connect(&mut caller_stream));
        let listener_result = listener.accept(&mut listener_stream, || place).map(|(halves, ())| halves);
        drop(listener_stream);
        (thread.join().unwrap(), listener_result)
    })
}

/// The halves of a caller and of a listener.
pub(super) fn connected_halves() -> (Halves, Halves) {
    let secret = secret();
    let handshake = handshake(&TEST_PROTOCOL, &secret);
    let (caller_halves, listener_halves) = run_handshake(handshake, handshake, Some(()));
    (caller_halves.unwrap(), listener_halves.unwrap())
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
    let ((mut sealer, mut caller_opener), (_, mut opener)) = connected_halves();
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
    assert!(matches!(open(&mut caller_opener, &sealed[0]), Err(Error::Tampered)), "reflected");
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
    let (caller_halves, listener_halves) = connected_halves();
    let (forward, backward) = (std::sync::mpsc::channel::<Vec<u8>>(), std::sync::mpsc::channel::<Vec<u8>>());
    std::thread::scope(|scope| {
        for ((mut sealer, mut opener), sender, receiver) in
            [(caller_halves, forward.0, backward.1), (listener_halves, backward.0, forward.1)]
        {
            scope.spawn(move || {
                (0..500_u32).for_each(|number| sender.send(seal(&mut sealer, &number.to_le_bytes())).unwrap())
            });
            scope.spawn(move || {
                let opened: Vec<_> = receiver.iter().map(|sealed| open(&mut opener, &sealed).unwrap()).collect();
                assert_eq!(opened, (0..500_u32).map(|number| number.to_le_bytes().to_vec()).collect::<Vec<_>>());
            });
        }
    });
}

#[test]
fn only_same_secret_is_admitted() {
    let [first_secret, second_secret] = [secret(), Secret::new(b"incorrect horse battery staple").unwrap()];
    let no_secret = Secret::none();
    let handshake_between = |caller, listener| {
        run_handshake(handshake(&TEST_PROTOCOL, caller), handshake(&TEST_PROTOCOL, listener), Some(()))
    };
    for secret in [&first_secret, &no_secret] {
        let (caller_halves, listener_halves) = handshake_between(secret, secret);
        let ((mut sealer, mut opener), (mut other_sealer, mut other_opener)) =
            (caller_halves.unwrap(), listener_halves.unwrap());
        assert_eq!(open(&mut other_opener, &seal(&mut sealer, b"there")).unwrap(), b"there");
        assert_eq!(open(&mut opener, &seal(&mut other_sealer, b"back")).unwrap(), b"back");
    }
    let outcome = handshake_between(&first_secret, &second_secret);
    assert!(matches!(outcome, (Err(Error::WrongSecret), Err(Error::WrongSecret))), "{outcome:?}");
    // The caller sees in the hello that it need not try.
    assert!(matches!(
        handshake_between(&no_secret, &first_secret),
        (Err(Error::SecretRequired("one")), Err(Error::Closed))
    ));
    assert!(matches!(
        handshake_between(&first_secret, &no_secret),
        (Err(Error::NoSecretAtPeer("one")), Err(Error::Closed))
    ));
    // The same secret for another purpose is another key.
    let other_purpose = HandshakeProtocol { context: "kelvin 2026 tests of wire, another purpose", ..TEST_PROTOCOL };
    let outcome =
        run_handshake(handshake(&TEST_PROTOCOL, &first_secret), handshake(&other_purpose, &first_secret), Some(()));
    assert!(matches!(outcome, (Err(Error::WrongSecret), Err(Error::WrongSecret))), "{outcome:?}");
}

#[test]
fn rejection_reasons_are_distinguished() {
    let secret = secret();
    let valid_handshake = handshake(&TEST_PROTOCOL, &secret);
    let outcome = run_handshake(valid_handshake, valid_handshake, None);
    assert!(matches!(outcome, (Err(Error::ServerFull("one")), Err(Error::ServerFull("one")))), "{outcome:?}");
    let newer = HandshakeProtocol { version: 8, ..TEST_PROTOCOL };
    let (caller_result, listener_result) = run_handshake(valid_handshake, handshake(&newer, &secret), Some(()));
    let error_text = caller_result.unwrap_err().to_string();
    assert!(
        error_text.contains("version 8 of the protocol (kelvin 0") && error_text.contains("this one version 7"),
        "{error_text}"
    );
    assert!(matches!(listener_result, Err(Error::Closed)));
    let other_program =
        HandshakeProtocol { listener: ProgramRole { program: "kelvin third", role: "third" }, ..TEST_PROTOCOL };
    let error_text =
        run_handshake(valid_handshake, handshake(&other_program, &secret), Some(())).0.unwrap_err().to_string();
    assert!(
        error_text.contains("no kelvin one, or not one of this version: it calls itself \"kelvin third\""),
        "{error_text}"
    );
    let call =
        |bytes: Vec<u8>| valid_handshake.connect(&mut ScriptedStream::with_input(bytes)).unwrap_err().to_string();
    assert!(
        call(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())
            .contains("is no kelvin one, or not one of this version: it sends no greeting")
    );
    assert!(call(framed(b"{}")).contains("is no kelvin one"));
    let listener_result =
        valid_handshake.accept(&mut ScriptedStream::with_input(b"GET / HTTP/1.1\r\n".repeat(9)), || Some(())).map(drop);
    assert!(listener_result.unwrap_err().to_string().contains("is no kelvin other"));
}

/// What a caller with the secret answers to what it was sent.
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
    /// What the client sent in it, and the agent.
    pub(super) greeting: Vec<u8>,
    pub(super) answers: Vec<u8>,
}

impl<'a> RecordedHandshake<'a> {
    pub(super) fn new(secret: &'a Secret) -> Self {
        let deadline = Deadline::within(100 * LONG_TIMEOUT);
        let handshake = Handshake { protocol: &message::PROTOCOL, secret, deadline };
        let mut stream = ScriptedStream::default();
        let hello = handshake.send_hello(&mut stream).unwrap();
        let greeting = greeting_bytes(&message::PROTOCOL, &received_hello(&stream));
        let received_greeting = read_greeting(&greeting, &handshake).unwrap();
        handshake.complete(&mut stream, (&hello, &received_greeting), || Some(())).unwrap();
        Self { handshake, hello, greeting, answers: stream.received }
    }

    /// What the agent makes of a client's bytes.
    pub(super) fn replay(&self, bytes: &[u8]) -> Result<()> {
        let greeting = read_greeting(bytes, &self.handshake)?;
        self.handshake.complete(&mut ScriptedStream::default(), (&self.hello, &greeting), || Some(())).map(drop)
    }
}

#[test]
fn bytewise_greeting_is_assembled() {
    let secret = secret();
    let valid_handshake = handshake(&TEST_PROTOCOL, &secret);
    let mut stream = ScriptedStream::default();
    let hello = valid_handshake.send_hello(&mut stream).unwrap();
    let expected_bytes = greeting_bytes(&TEST_PROTOCOL, &received_hello(&stream));
    let mut greeting = Greeting::default();
    for (number, byte) in expected_bytes.iter().enumerate() {
        // No end, like a connection that only waits.
        let is_complete = greeting.read_from(&mut Cursor::new([*byte]).chain(EmptyStream), &valid_handshake).unwrap();
        assert_eq!(is_complete, number + 1 == expected_bytes.len(), "{number}");
    }
    // What follows is none of it.
    assert!(greeting.read_from(&mut EmptyStream, &valid_handshake).unwrap());
    assert!(valid_handshake.complete(&mut stream, (&hello, &greeting), || Some(())).is_ok());
    let read_error = |bytes: &[u8]| {
        Greeting::default().read_from(&mut Cursor::new(bytes).chain(EmptyStream), &valid_handshake).unwrap_err()
    };
    for bytes in
        [&b"G"[..], b"GET / HTTP/1.1\r\n", b"kelvin of text", &[expected_bytes[..16].to_vec(), vec![8]].concat()]
    {
        assert!(read_error(bytes).to_string().contains("is no kelvin other"));
    }
    assert!(matches!(
        Greeting::default().read_from(&mut Cursor::new(&expected_bytes[..50]), &valid_handshake),
        Err(Error::Closed)
    ));
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
    let valid_handshake = handshake(&TEST_PROTOCOL, &secret);
    let mut streams = [ScriptedStream::default(), ScriptedStream::default()];
    let hellos = streams.each_mut().map(|stream| valid_handshake.send_hello(stream).unwrap());
    let recorded =
        read_greeting(&greeting_bytes(&TEST_PROTOCOL, &received_hello(&streams[0])), &valid_handshake).unwrap();
    let mut places = 0;
    let mut answer = |stream: &mut ScriptedStream, hello| {
        let admit = || {
            places += 1;
            Some(())
        };
        valid_handshake.complete(stream, (hello, &recorded), admit).map(drop)
    };
    assert!(answer(&mut streams[0], &hellos[0]).is_ok());
    assert!(matches!(answer(&mut streams[1], &hellos[1]), Err(Error::WrongSecret)));
    assert_eq!(places, 1);
}

#[test]
fn tampered_handshake_fails() {
    let secret = secret();
    let valid_handshake = handshake(&TEST_PROTOCOL, &secret);
    let mut stream = ScriptedStream::default();
    let hello = valid_handshake.send_hello(&mut stream).unwrap();
    let sent = received_hello(&stream);
    // The hello: the caller accepts it, and so has another prologue.
    let changed = String::from_utf8(sent.clone()).unwrap().replacen("\"program\":\"", "\"program\":\"9", 1);
    let answer = |greeting: &[u8]| {
        let mut stream = ScriptedStream::default();
        let outcome = read_greeting(greeting, &valid_handshake)
            .and_then(|greeting| valid_handshake.complete(&mut stream, (&hello, &greeting), || Some(())))
            .map(drop);
        (outcome, stream.received)
    };
    assert!(matches!(answer(&greeting_bytes(&TEST_PROTOCOL, changed.as_bytes())).0, Err(Error::WrongSecret)));
    // The greeting, byte by byte.
    let valid_greeting = greeting_bytes(&TEST_PROTOCOL, &sent);
    assert!(answer(&valid_greeting).0.is_ok());
    for byte in 0..valid_greeting.len() {
        let mut changed = valid_greeting.clone();
        changed[byte] ^= 1;
        assert!(answer(&changed).0.is_err(), "{byte}");
    }
    // The verdict: that of another handshake, and of somebody who lets everybody in.
    for verdict in [answer(&valid_greeting).1, [&[1][..], &[0; 48]].concat()] {
        let mut stream = ScriptedStream::with_input([framed(&sent), verdict].concat());
        assert!(matches!(valid_handshake.connect(&mut stream), Err(Error::WrongSecret)));
    }
}
