//! Both ends, byte for byte: the handshake, frames, hostile senders; and a hundred thousand invalid inputs of each kind.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use kelvin_sys::random::split_mix;
use kelvin_wire::deadline::Connection;
use kelvin_wire::secret::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use snow::TransportState;

use crate::channel::{Channel, PART};
use crate::deposit::Directory;
use crate::message::{FromReceiver, FromSender, Header, Modified, Settings};
use crate::receive::{Event, Session};
use crate::summary::Times;
use crate::{Error, Result, handshake};

/// Invalid inputs of each kind.
const INPUTS: u64 = 100_000;

/// A peer with prepared bytes, whose listener keeps what it receives.
#[derive(Default)]
struct Scripted {
    says: Cursor<Vec<u8>>,
    received: Vec<u8>,
}

/// One end of a local connection.
struct Local(UnixStream);

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

impl Read for Local {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Local {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Connection for Local {
    fn wait_at_most(&mut self, time: Duration) -> std::io::Result<()> {
        self.0.set_read_timeout(Some(time))?;
        self.0.set_write_timeout(Some(time))
    }
}

fn secret(text: &str) -> Secret {
    if text.is_empty() { Secret::none() } else { Secret::new(text.as_bytes()).unwrap() }
}

const ONE: &str = "correct horse battery staple";
const OTHER: &str = "incorrect horse battery staple";

/// What a sender and a receiver with these secrets make of each other.
fn shaken(sender: &str, receiver: &str) -> (Result<TransportState>, Result<TransportState>) {
    met(sender, receiver, Some(()))
}

/// The same where the receiver has a place, or none.
fn met(sender: &str, receiver: &str, place: Option<()>) -> (Result<TransportState>, Result<TransportState>) {
    let (one, other) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| handshake::sender(&mut Local(one), &secret(sender)));
        let received = handshake::receiver(&mut Local(other), &secret(receiver), || place);
        (sending.join().unwrap(), received.map(|(noise, ())| noise))
    })
}

/// A sender that says whatever it likes, to a receiver that listens.
struct Hostile {
    noise: TransportState,
    channel: Channel<Scripted>,
    says: Vec<u8>,
}

impl Hostile {
    fn new() -> Self {
        let (sender, receiver) = shaken(ONE, ONE);
        Self { noise: sender.unwrap(), channel: Channel::new(Scripted::default(), receiver.unwrap()), says: Vec::new() }
    }

    /// An encrypted frame.
    fn part(&mut self, content: &[u8]) -> &mut Self {
        let mut frame = vec![0; content.len() + 16];
        self.noise.write_message(content, &mut frame).unwrap();
        self.says.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        self.says.extend_from_slice(&frame);
        self
    }

    fn say(&mut self, message: &impl Serialize) -> &mut Self {
        self.part(&serde_json::to_vec(message).unwrap())
    }

    fn begin(&mut self) -> &mut Self {
        self.say(&FromSender::Begin(Settings { plain: false, verify: true }))
    }

    fn finish(&mut self) -> &mut Self {
        self.say(&FromSender::Finish { nanoseconds: 1, failed: 0, times: Times::default() })
    }

    /// Has it be heard: how it ended, what happened, and what was answered.
    fn heard(&mut self, directory: &Path, overwrite: bool) -> (Result<()>, Vec<Event>, Vec<FromReceiver>) {
        self.listen();
        let directory = Directory::open(directory).unwrap();
        let events = std::cell::RefCell::new(Vec::new());
        let tell = |event| events.borrow_mut().push(event);
        let channel = &mut self.channel;
        let session = Session { channel, directory: &directory, overwrite, tell: &tell, verify: true };
        let ended = session.serve().map(drop);
        (ended, events.into_inner(), self.answers())
    }

    /// Gives the receiver's end what was said so far, whatever it made of what was said before.
    fn listen(&mut self) {
        let (stream, _) = self.channel.parts();
        stream.says = Cursor::new(std::mem::take(&mut self.says));
    }

    fn answers(&mut self) -> Vec<FromReceiver> {
        let (stream, _) = self.channel.parts();
        let received = std::mem::take(&mut stream.received);
        let (mut rest, mut answers) = (&received[..], Vec::new());
        while let Some((head, after)) = rest.split_first_chunk() {
            let (frame, after) = after.split_at(u32::from_le_bytes(*head) as usize);
            let mut text = vec![0; frame.len()];
            let length = self.noise.read_message(frame, &mut text).unwrap();
            answers.push(serde_json::from_slice(&text[..length]).unwrap());
            rest = after;
        }
        answers
    }

    /// Both ends forget what was said, and go on with the same number.
    fn forget(&mut self) {
        self.says.clear();
        let nonce = self.noise.sending_nonce();
        self.channel.parts().1.set_receiving_nonce(nonce);
    }
}

fn header(name: &[u8], bytes: u64) -> Header {
    let modified = Modified { seconds: 1_000_000_000, nanoseconds: 5 };
    Header { name: name.to_vec().try_into().unwrap(), bytes, mode: 0o104_755, modified }
}

fn file(name: &[u8], bytes: u64) -> FromSender {
    FromSender::File(header(name, bytes))
}

fn whole(content: &[u8]) -> FromSender {
    FromSender::Whole { digest: Some(*kelvin_wire::Hasher::new().update(content).finalize().as_bytes()) }
}

/// A directory for what arrives, in another one that must stay as it is.
fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("in");
    fs::create_dir(&inner).unwrap();
    (outer, inner)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn whoever_has_the_same_secret_is_let_in_and_nobody_else() {
    for (sender, receiver) in [(ONE, ONE), ("", "")] {
        let (sent, received) = shaken(sender, receiver);
        let (mut sent, mut received) = (sent.unwrap(), received.unwrap());
        let (mut frame, mut text) = ([0; 21], [0; 21]);
        sent.write_message(b"hello", &mut frame).unwrap();
        assert_eq!((received.read_message(&frame, &mut text).unwrap(), &text[..5]), (5, &b"hello"[..]));
    }
    let wrong = shaken(ONE, OTHER);
    assert!(matches!(wrong, (Err(Error::SecretWrong), Err(Error::SecretWrong))), "{:?}", wrong.0.err());
    assert!(matches!(shaken("", ONE), (Err(Error::SecretNeeded), Err(Error::SecretNeeded))));
    assert!(matches!(shaken(ONE, ""), (Err(Error::NoSecretThere), Err(Error::NoSecretThere))));
}

#[test]
fn a_full_receiver_another_version_and_another_program_are_said() {
    assert!(matches!(met(ONE, ONE, None), (Err(Error::Busy), Err(Error::Busy))));

    let mut greeting = greeting();
    greeting[16] = 99;
    let mut stream = Scripted { says: Cursor::new(greeting.clone()), ..Scripted::default() };
    let received = handshake::receiver(&mut stream, &secret(ONE), || Some(()));
    assert!(matches!(received.map(drop), Err(Error::Version { theirs: 99 })));
    // It learns which version this one has.
    let mut sender = Scripted { says: Cursor::new(stream.received), ..Scripted::default() };
    sender.says.get_mut()[16] = 98;
    assert!(matches!(handshake::sender(&mut sender, &secret(ONE)), Err(Error::Version { theirs: 98 })));
    let mut web = Scripted { says: Cursor::new(b"GET / HTTP/1.1\r\n".repeat(9)), ..Scripted::default() };
    assert!(matches!(
        handshake::receiver(&mut web, &secret(ONE), || Some(())).map(drop),
        Err(Error::NotKelvin("send"))
    ));
}

/// What a sender with the secret says first.
fn greeting() -> Vec<u8> {
    let mut stream = Scripted::default();
    assert!(matches!(handshake::sender(&mut stream, &secret(ONE)), Err(Error::Wire(kelvin_wire::Error::Gone))));
    stream.received
}

#[test]
fn parts_of_every_length_arrive_encrypted_and_plain() {
    let content: Vec<u8> = (0..PART as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 11) as u8).collect();
    for plain in [false, true] {
        let (sender, receiver) = shaken(ONE, ONE);
        let mut sender = Channel::new(Scripted::default(), sender.unwrap());
        let mut receiver = Channel::new(Scripted::default(), receiver.unwrap());
        sender.set_plain(plain);
        receiver.set_plain(plain);
        for length in [1, 4095, 4096, 4097, 65_518, 65_519, 65_520, 65_535, 65_536, PART, 0] {
            sender.send_part(&content[..length]).unwrap();
            let sent = std::mem::take(&mut sender.parts().0.received);
            // A few bytes can be among encrypted ones by chance.
            let is_readable = length > 1000 && sent.windows(length).any(|window| *window == content[..length]);
            assert_eq!(is_readable, plain && length > 1000, "{length}");
            receiver.parts().0.says = Cursor::new(sent);
            let (mut buffer, mut came) = (vec![0; PART], Vec::new());
            while came.len() < length {
                let length = receiver.receive_part(&mut buffer).unwrap();
                came.extend_from_slice(&buffer[..length]);
            }
            assert!(came == content[..length], "{length}");
            if length == 0 {
                assert_eq!(receiver.receive_part(&mut buffer).unwrap(), 0);
            }
        }
    }
}

#[test]
fn a_frame_that_is_changed_repeated_or_too_long_is_refused() {
    let received = |change: fn(&mut Vec<u8>)| {
        let mut hostile = Hostile::new();
        hostile.begin().finish();
        change(&mut hostile.says);
        hostile.listen();
        let first = hostile.channel.receive::<FromSender>().map(drop);
        (first, hostile.channel.receive::<FromSender>().map(drop))
    };
    assert!(matches!(received(|_| {}), (Ok(()), Ok(()))));
    assert!(matches!(received(|says| says[9] ^= 1).0, Err(Error::Changed)));
    let repeat = |says: &mut Vec<u8>| {
        let length = u32::from_le_bytes(*says.first_chunk().unwrap()) as usize + 4;
        says.truncate(length);
        says.extend_from_within(..);
    };
    assert!(matches!(received(repeat), (Ok(()), Err(Error::Changed))));
    assert!(matches!(
        received(|says| says[..4].fill(0xff)).0,
        Err(Error::Wire(kelvin_wire::Error::TooLong { claimed: 0xffff_ffff, .. }))
    ));
    let mut hostile = Hostile::new();
    for plain in [false, true] {
        hostile.channel.set_plain(plain);
        hostile.says = (PART as u32 + 1).to_le_bytes().to_vec();
        hostile.listen();
        let too_long = hostile.channel.receive_part(&mut vec![0; PART]);
        assert!(matches!(too_long, Err(Error::Wire(kelvin_wire::Error::TooLong { .. }))), "{too_long:?}");
    }
}

#[test]
fn a_file_arrives_with_its_time_and_rights_but_no_others() {
    let (_outer, inner) = place();
    let mut hostile = Hostile::new();
    hostile.begin().say(&file(b"a", 5)).part(b"he").part(b"llo").say(&whole(b"hello")).finish();
    let (ended, events, answers) = hostile.heard(&inner, false);
    ended.unwrap();
    assert!(matches!(events[..], [Event::Kept(_)]), "{events:?}");
    assert!(
        matches!(answers[..], [FromReceiver::Go, FromReceiver::Kept { .. }, FromReceiver::Times(_)]),
        "{answers:?}"
    );
    let found = inner.join("a").metadata().unwrap();
    assert_eq!((found.permissions().mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o755, 1_000_000_000, 5));
    assert_eq!(fs::read_to_string(inner.join("a")).unwrap(), "hello");
}

/// What a hostile sender says, and words of what becomes of it; nothing is left behind.
#[test]
fn whatever_a_sender_says_nothing_is_left_of_what_is_not_whole() {
    type Says = fn(&mut Hostile) -> &mut Hostile;
    let cases: [(Says, &str); 10] = [
        (|h| h.say(&file(b"a", 5)).part(b"hello"), "closed the connection"),
        (|h| h.say(&file(b"a", 5)).part(b"hello").say(&whole(b"hallo")).finish(), "differs from what was sent"),
        (|h| h.say(&file(b"a", 5)).part(b"hello").say(&FromSender::Whole { digest: None }).finish(), "differs"),
        (|h| h.say(&file(b"a", 5)).part(b"hello, world").say(&whole(b"hello")), "more bytes"),
        (|h| h.say(&file(b"a", 5)).part(b"he").say(&whole(b"he")), "more bytes"),
        (|h| h.say(&file(b"a", 5)).part(b"he").part(b"").say(&whole(b"he")), "why a file ended early"),
        (|h| h.say(&file(b"a", 5)).part(b"hello").say(&file(b"b", 1)), "how a file ended"),
        (|h| h.say(&file(b"a", u64::MAX)).finish(), "a cannot have 18446744073709551615 bytes"),
        (|h| h.say(&file(b"a", i64::MAX as u64)).finish(), "a cannot have 9223372036854775807 bytes"),
        (|h| h.say(&whole(b"")), "neither announces a file nor finishes"),
    ];
    for (says, words) in cases {
        let (outer, inner) = place();
        let mut hostile = Hostile::new();
        says(hostile.begin());
        let (ended, events, _) = hostile.heard(&inner, true);
        let unkept = events.iter().map(|event| format!("{event:?}"));
        let said =
            format!("{} {}", ended.err().map_or(String::new(), |error| error.to_string()), unkept.collect::<String>());
        let told = events.into_iter().filter_map(|event| match event {
            Event::Unkept(_, why) => Some(why.to_string()),
            _ => None,
        });
        let told = told.collect::<String>();
        assert!(said.contains(words) || told.contains(words), "{words}: {said} {told}");
        assert_eq!((names(outer.path()), names(&inner)), (vec!["in".to_owned()], Vec::new()), "{words}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused_and_nothing_is_written() {
    let (outer, inner) = place();
    for name in ["../x", "/etc/x", "a/b", "..", ".", "", "a\u{0}b"] {
        let mut hostile = Hostile::new();
        let header = serde_json::json!({"file": {"name": name.as_bytes(), "bytes": 1, "mode": 0o644,
                                                 "modified": {"seconds": 0, "nanoseconds": 0}}});
        hostile.begin().say(&header).part(b"x").say(&whole(b"x")).finish();
        let (ended, _, answers) = hostile.heard(&inner, true);
        assert!(ended.unwrap_err().to_string().contains("name"), "{name:?}");
        assert_eq!((answers, names(outer.path()), names(&inner)), (vec![], vec!["in".to_owned()], vec![]));
    }
}

#[test]
fn what_is_there_stays_unless_it_may_be_replaced_and_no_link_is_followed() {
    let (outer, inner) = place();
    fs::write(outer.path().join("victim"), "the user's").unwrap();
    fs::write(inner.join("old"), "old").unwrap();
    symlink("../victim", inner.join("link")).unwrap();
    fs::create_dir(inner.join("directory")).unwrap();
    let refused = |name: &[u8], overwrite| {
        let mut hostile = Hostile::new();
        hostile.begin().say(&file(name, 3)).finish();
        let (ended, _, answers) = hostile.heard(&inner, overwrite);
        ended.unwrap();
        match answers.into_iter().next() {
            Some(FromReceiver::Failed { why }) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(b"old", false), "old exists, and is replaced only with --overwrite");
    for overwrite in [false, true] {
        assert_eq!(refused(b"link", overwrite), "link is a symbolic link, and no regular file");
        assert_eq!(refused(b"directory", overwrite), "directory is a directory, and no regular file");
    }
    let mut hostile = Hostile::new();
    hostile.begin().say(&file(b"old", 3)).part(b"new").say(&whole(b"new")).finish();
    hostile.heard(&inner, true).0.unwrap();
    let content = |path: &Path| fs::read_to_string(path).unwrap();
    assert_eq!(
        (content(&inner.join("old")), content(&outer.path().join("victim"))),
        ("new".into(), "the user's".into())
    );
    assert_eq!(names(&inner), ["directory", "link", "old"]);
}

/// Bytes that mean something in a message, or nothing anywhere.
const TELLING: &[u8] = b"0123456789{}[]\",:-\0\xff/.";

/// Bytes near valid ones: some of them changed, left out or repeated.
fn mutated(valid: &[u8], random: &mut u64) -> Vec<u8> {
    let mut next = |below: usize| (split_mix(random) % below.max(1) as u64) as usize;
    let mut bytes = valid.to_vec();
    for _ in 0..=next(4) {
        let at = next(bytes.len());
        match next(4) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << next(8),
            1 if !bytes.is_empty() => bytes[at] = TELLING[next(TELLING.len())],
            2 => bytes.truncate(at),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

#[test]
fn no_greeting_breaks_either_end_or_gets_in() {
    let (valid, mut random) = (greeting(), 1);
    let answer = {
        let mut stream = Scripted { says: Cursor::new(valid.clone()), ..Scripted::default() };
        handshake::receiver(&mut stream, &secret(ONE), || Some(())).unwrap();
        stream.received
    };
    let key = secret(ONE);
    for number in 0..INPUTS {
        let changed = mutated(&valid, &mut random);
        let is_valid = changed.starts_with(&valid);
        let mut stream = Scripted { says: Cursor::new(changed), ..Scripted::default() };
        assert!(is_valid || handshake::receiver(&mut stream, &key, || Some(())).is_err(), "{number}");
        // The sender's end costs a key pair each time.
        if number % 100 == 0 {
            let mut stream = Scripted { says: Cursor::new(mutated(&answer, &mut random)), ..Scripted::default() };
            assert!(handshake::sender(&mut stream, &key).is_err(), "{number}");
        }
    }
}

/// Messages that are read, and are near valid ones.
fn read_all<T: DeserializeOwned + Serialize>(valid: &[T], reads: impl Fn(T)) -> u64 {
    let valid: Vec<Vec<u8>> = valid.iter().map(|message| serde_json::to_vec(message).unwrap()).collect();
    let (mut random, mut read) = (7, 0);
    let mut hostile = Hostile::new();
    for number in 0..INPUTS {
        let text = mutated(&valid[number as usize % valid.len()], &mut random);
        hostile.part(&text).listen();
        if let Ok(message) = hostile.channel.receive::<T>() {
            read += 1;
            reads(message);
        }
    }
    read
}

#[test]
fn no_message_breaks_either_end_and_what_is_read_is_bounded() {
    let from_sender = [
        FromSender::Begin(Settings { plain: true, verify: true }),
        file(b"name", 4711),
        whole(b""),
        FromSender::Abandoned { why: "it became shorter".into() },
        FromSender::Finish { nanoseconds: 5, failed: 1, times: Times::default() },
    ];
    let read = read_all(&from_sender, |message| match message {
        FromSender::File(header) => {
            let name = header.name.as_os_str();
            assert!(!name.is_empty() && Path::new(name).file_name() == Some(name), "{name:?}");
            header.modified.time();
        }
        FromSender::Abandoned { why } => assert!(why.len() <= 400 && !why.contains(char::is_control)),
        _ => {}
    });
    assert!((100..INPUTS - 100).contains(&read), "{read}");
    let from_receiver = [
        FromReceiver::Go,
        FromReceiver::Kept { after: 3 },
        FromReceiver::Failed { why: "no room".into() },
        FromReceiver::Times(Times::default()),
    ];
    let read = read_all(&from_receiver, |message| {
        let why = if let FromReceiver::Failed { why } = message { why } else { String::new() };
        assert!(why.len() <= 400 && !why.contains(char::is_control));
    });
    assert!((100..INPUTS - 100).contains(&read), "{read}");
}

/// Any messages and parts in any order: only whole files are kept, and nothing else is left.
#[test]
fn no_order_of_messages_leaves_what_is_not_whole() {
    let (outer, inner) = place();
    let mut hostile = Hostile::new();
    let mut kept = 0;
    for seed in 0..3000_u64 {
        hostile.forget();
        hostile.begin();
        let mut random = seed;
        for _ in 0..8 {
            match split_mix(&mut random) % 8 {
                0 | 1 => hostile.say(&file(b"a", 2)),
                2 | 3 => hostile.part(b"hi"),
                4 | 5 => hostile.say(&whole(b"hi")),
                6 => hostile.part(b""),
                _ => hostile.finish(),
            };
        }
        let (_, events, _) = hostile.heard(&inner, false);
        let is_kept = events.iter().any(|event| matches!(event, Event::Kept(_)));
        let left = names(&inner);
        assert_eq!(left, if is_kept { vec!["a"] } else { vec![] }, "{seed}");
        if is_kept {
            kept += 1;
            assert_eq!(fs::read(inner.join("a")).unwrap(), b"hi");
            fs::remove_file(inner.join("a")).unwrap();
        }
    }
    assert!(kept > 10, "{kept}");
    assert_eq!(names(outer.path()), ["in"]);
}
