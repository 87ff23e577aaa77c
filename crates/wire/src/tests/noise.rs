//! The handshake and both halves of a connection: who gets in, and what cannot be opened.

use std::io::{Cursor, Read};
use std::net::{TcpListener, TcpStream};

use super::{LONG, Scripted, framed, frames, secret};
use crate::deadline::Deadline;
use crate::message;
use crate::noise::{Greeted, Greeting, Handshake, Part, Protocol};
use crate::sealed::{CONTENT, Opener, SEALED, Sealer, TAG};
use crate::secret::Secret;
use crate::{Error, Result};

/// A protocol of the tests.
pub(super) const PROTOCOL: Protocol = Protocol {
    listener: Part { program: "kelvin one", role: "one" },
    caller: Part { program: "kelvin other", role: "other" },
    magic: *b"kelvin of tests\n",
    context: "kelvin 2026 tests of wire, Noise pre-shared key",
    version: 7,
};

type Halves = (Sealer, Opener);

pub(super) fn handshake<'a>(protocol: &'a Protocol, secret: &'a Secret) -> Handshake<'a> {
    Handshake { protocol, secret, deadline: Deadline::within(LONG) }
}

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// What a caller and a listener make of each other, where there is a place, or none.
fn met(caller: Handshake<'_>, listener: Handshake<'_>, place: Option<()>) -> (Result<Halves>, Result<Halves>) {
    let (mut one, mut other) = pair();
    std::thread::scope(|scope| {
        let called = scope.spawn(move || caller.call(&mut one));
        let listened = listener.listen(&mut other, || place).map(|(halves, ())| halves);
        drop(other);
        (called.join().unwrap(), listened)
    })
}

/// The halves of a caller and of a listener.
pub(super) fn shaken() -> (Halves, Halves) {
    let secret = secret();
    let handshake = handshake(&PROTOCOL, &secret);
    let (called, listened) = met(handshake, handshake, Some(()));
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
fn a_changed_dropped_repeated_reordered_or_reflected_message_is_not_opened() {
    let ((mut sealer, mut own), (_, mut opener)) = shaken();
    let sealed = [&b"one"[..], b"two", b"two"].map(|content| seal(&mut sealer, content));
    assert_ne!(sealed[1], sealed[2], "the same content twice");
    for bit in 0..8 * sealed[0].len() {
        let mut changed = sealed[0].clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(open(&mut opener, &changed), Err(Error::Changed)), "{bit}");
    }
    for length in 0..sealed[0].len() {
        assert!(matches!(open(&mut opener, &sealed[0][..length]), Err(Error::Changed)), "{length}");
    }
    assert!(matches!(open(&mut opener, &sealed[1]), Err(Error::Changed)), "one was dropped");
    assert!(matches!(open(&mut own, &sealed[0]), Err(Error::Changed)), "reflected");
    assert_eq!(open(&mut opener, &sealed[0]).unwrap(), b"one");
    assert!(matches!(open(&mut opener, &sealed[0]), Err(Error::Changed)), "repeated");
    assert!(matches!(open(&mut opener, &sealed[2]), Err(Error::Changed)), "reordered");
    assert_eq!(open(&mut opener, &sealed[1]).unwrap(), b"two");
    assert!(matches!(open(&mut shaken().1.1, &sealed[0]), Err(Error::Changed)), "of another connection");
}

#[test]
fn messages_of_every_length_fit_and_are_appended() {
    let ((mut sealer, _), (_, mut opener)) = shaken();
    let content: Vec<u8> = (0..CONTENT + 1).map(|i| ((i * i) >> 7) as u8).collect();
    let mut out = b"before".to_vec();
    for length in [0, 1, 15, 16, 17, 4096, CONTENT - 1, CONTENT] {
        out.truncate(6);
        sealer.seal(&content[..length], &mut out).unwrap();
        assert_eq!((&out[..6], out.len()), (&b"before"[..], 6 + length + TAG), "{length}");
        // Once with just enough room.
        let mut opened = vec![0; if length % 2 == 0 { length } else { SEALED }];
        assert_eq!(opener.open(&out[6..], &mut opened).unwrap(), length);
        assert!(opened[..length] == content[..length], "{length}");
    }
    let too_long = sealer.seal(&content, &mut out);
    assert!(matches!(too_long, Err(Error::TooLong { claimed, most: CONTENT }) if claimed == CONTENT + 1));
    assert_eq!(out.len(), 6 + SEALED);
    // What does not fit is lost no more than what was changed: it can be opened again.
    let sealed = seal(&mut sealer, b"ten bytes!");
    assert!(matches!(opener.open(&sealed, &mut [0; 9]), Err(Error::Changed)));
    assert_eq!(open(&mut opener, &sealed).unwrap(), b"ten bytes!");
}

#[test]
fn both_ends_seal_and_open_in_threads_of_their_own() {
    let (called, listened) = shaken();
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
fn whoever_has_the_same_secret_is_let_in_and_nobody_else() {
    let [one, other] = [secret(), Secret::new(b"incorrect horse battery staple").unwrap()];
    let none = Secret::none();
    let meet = |caller, listener| met(handshake(&PROTOCOL, caller), handshake(&PROTOCOL, listener), Some(()));
    for secret in [&one, &none] {
        let (called, listened) = meet(secret, secret);
        let ((mut sealer, mut opener), (mut other_sealer, mut other_opener)) = (called.unwrap(), listened.unwrap());
        assert_eq!(open(&mut other_opener, &seal(&mut sealer, b"there")).unwrap(), b"there");
        assert_eq!(open(&mut opener, &seal(&mut other_sealer, b"back")).unwrap(), b"back");
    }
    let wrong = meet(&one, &other);
    assert!(matches!(wrong, (Err(Error::SecretWrong), Err(Error::SecretWrong))), "{wrong:?}");
    // The caller sees in the hello that it need not try.
    assert!(matches!(meet(&none, &one), (Err(Error::SecretNeeded { role: "one" }), Err(Error::Gone))));
    assert!(matches!(meet(&one, &none), (Err(Error::NoSecretThere { role: "one" }), Err(Error::Gone))));
    // The same secret for another purpose is another key.
    let elsewhere = Protocol { context: "kelvin 2026 tests of wire, another purpose", ..PROTOCOL };
    let wrong = met(handshake(&PROTOCOL, &one), handshake(&elsewhere, &one), Some(()));
    assert!(matches!(wrong, (Err(Error::SecretWrong), Err(Error::SecretWrong))), "{wrong:?}");
}

#[test]
fn a_full_listener_another_version_and_another_program_are_told_apart() {
    let secret = secret();
    let own = handshake(&PROTOCOL, &secret);
    let full = met(own, own, None);
    assert!(matches!(full, (Err(Error::Busy { role: "one" }), Err(Error::Busy { role: "one" }))), "{full:?}");
    let newer = Protocol { version: 8, ..PROTOCOL };
    let (called, listened) = met(own, handshake(&newer, &secret), Some(()));
    let said = called.unwrap_err().to_string();
    assert!(said.contains("version 8 of the protocol (kelvin 0") && said.contains("this one version 7"), "{said}");
    assert!(matches!(listened, Err(Error::Gone)));
    let another = Protocol { listener: Part { program: "kelvin third", role: "third" }, ..PROTOCOL };
    let said = met(own, handshake(&another, &secret), Some(())).0.unwrap_err().to_string();
    assert!(said.contains("no kelvin one, or not one of this version: it calls itself \"kelvin third\""), "{said}");
    let call = |bytes: Vec<u8>| own.call(&mut Scripted::saying(bytes)).unwrap_err().to_string();
    assert!(
        call(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())
            .contains("is no kelvin one, or not one of this version: it does not greet")
    );
    assert!(call(framed(b"{}")).contains("is no kelvin one"));
    let listened = own.listen(&mut Scripted::saying(b"GET / HTTP/1.1\r\n".repeat(9)), || Some(())).map(drop);
    assert!(listened.unwrap_err().to_string().contains("is no kelvin other"));
}

/// What a caller with the secret says to what it was sent.
fn greeting(protocol: &Protocol, hello: &[u8]) -> Vec<u8> {
    let secret = secret();
    let mut stream = Scripted::saying(framed(hello));
    assert!(matches!(handshake(protocol, &secret).call(&mut stream), Err(Error::Gone)));
    stream.received
}

/// Takes a greeting that has come whole.
fn taken(bytes: &[u8], handshake: &Handshake<'_>) -> Result<Greeting> {
    let mut greeting = Greeting::default();
    greeting.take(&mut Scripted::saying(bytes.to_vec()), handshake).map(|is_complete| assert!(is_complete))?;
    Ok(greeting)
}

/// What a new connection was sent.
fn hello(stream: &Scripted) -> Vec<u8> {
    frames(&stream.received).remove(0)
}

/// One handshake of an agent, to be tried again and again.
pub(super) struct Recorded<'a> {
    handshake: Handshake<'a>,
    greeted: Greeted,
    /// What the client said in it, and the agent.
    pub(super) greeting: Vec<u8>,
    pub(super) answers: Vec<u8>,
}

impl<'a> Recorded<'a> {
    pub(super) fn new(secret: &'a Secret) -> Self {
        let deadline = Deadline::within(100 * LONG);
        let handshake = Handshake { protocol: &message::PROTOCOL, secret, deadline };
        let mut stream = Scripted::default();
        let greeted = handshake.greet(&mut stream).unwrap();
        let greeting = greeting(&message::PROTOCOL, &hello(&stream));
        let come = taken(&greeting, &handshake).unwrap();
        handshake.answer(&mut stream, (&greeted, &come), || Some(())).unwrap();
        Self { handshake, greeted, greeting, answers: stream.received }
    }

    /// What the agent makes of a client's bytes.
    pub(super) fn meet(&self, bytes: &[u8]) -> Result<()> {
        let come = taken(bytes, &self.handshake)?;
        self.handshake.answer(&mut Scripted::default(), (&self.greeted, &come), || Some(())).map(drop)
    }
}

#[test]
fn a_greeting_that_comes_byte_by_byte_is_put_together_and_another_program_is_known_at_once() {
    let secret = secret();
    let own = handshake(&PROTOCOL, &secret);
    let mut stream = Scripted::default();
    let greeted = own.greet(&mut stream).unwrap();
    let whole = greeting(&PROTOCOL, &hello(&stream));
    let mut come = Greeting::default();
    for (number, byte) in whole.iter().enumerate() {
        // No end, like a connection that only waits.
        let is_complete = come.take(&mut Cursor::new([*byte]).chain(NothingYet), &own).unwrap();
        assert_eq!(is_complete, number + 1 == whole.len(), "{number}");
    }
    // What follows is none of it.
    assert!(come.take(&mut NothingYet, &own).unwrap());
    assert!(own.answer(&mut stream, (&greeted, &come), || Some(())).is_ok());
    let refused = |bytes: &[u8]| Greeting::default().take(&mut Cursor::new(bytes).chain(NothingYet), &own).unwrap_err();
    for bytes in [&b"G"[..], b"GET / HTTP/1.1\r\n", b"kelvin of text", &[whole[..16].to_vec(), vec![8]].concat()] {
        assert!(refused(bytes).to_string().contains("is no kelvin other"));
    }
    assert!(matches!(Greeting::default().take(&mut Cursor::new(&whole[..50]), &own), Err(Error::Gone)));
}

/// A connection over which nothing has come.
struct NothingYet;

impl Read for NothingYet {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

#[test]
fn a_recorded_greeting_gets_no_place_in_another_connection() {
    let secret = secret();
    let own = handshake(&PROTOCOL, &secret);
    let mut streams = [Scripted::default(), Scripted::default()];
    let greeted = streams.each_mut().map(|stream| own.greet(stream).unwrap());
    let recorded = taken(&greeting(&PROTOCOL, &hello(&streams[0])), &own).unwrap();
    let mut places = 0;
    let mut answer = |stream: &mut Scripted, greeted| {
        let admit = || {
            places += 1;
            Some(())
        };
        own.answer(stream, (greeted, &recorded), admit).map(drop)
    };
    assert!(answer(&mut streams[0], &greeted[0]).is_ok());
    assert!(matches!(answer(&mut streams[1], &greeted[1]), Err(Error::SecretWrong)));
    assert_eq!(places, 1);
}

#[test]
fn a_handshake_that_was_changed_in_transit_fails() {
    let secret = secret();
    let own = handshake(&PROTOCOL, &secret);
    let mut stream = Scripted::default();
    let greeted = own.greet(&mut stream).unwrap();
    let sent = hello(&stream);
    // The hello: the caller accepts it, and so has another prologue.
    let changed = String::from_utf8(sent.clone()).unwrap().replacen("\"program\":\"", "\"program\":\"9", 1);
    let answer = |greeting: &[u8]| {
        let mut stream = Scripted::default();
        let outcome = taken(greeting, &own)
            .and_then(|greeting| own.answer(&mut stream, (&greeted, &greeting), || Some(())))
            .map(drop);
        (outcome, stream.received)
    };
    assert!(matches!(answer(&greeting(&PROTOCOL, changed.as_bytes())).0, Err(Error::SecretWrong)));
    // The greeting, byte by byte.
    let whole = greeting(&PROTOCOL, &sent);
    assert!(answer(&whole).0.is_ok());
    for byte in 0..whole.len() {
        let mut changed = whole.clone();
        changed[byte] ^= 1;
        assert!(answer(&changed).0.is_err(), "{byte}");
    }
    // The verdict: that of another handshake, and of somebody who lets everybody in.
    for verdict in [answer(&whole).1, [&[1][..], &[0; 48]].concat()] {
        let mut stream = Scripted::saying([framed(&sent), verdict].concat());
        assert!(matches!(own.call(&mut stream), Err(Error::SecretWrong)));
    }
}
