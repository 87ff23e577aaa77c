//! A million frames that nobody should send, on either end: no panic, no wait without end, and only whole files have names.
//!
//! Each test says how many are its share; the numbers that choose them begin with a constant, so that a failure can be repeated.
//! `KELVIN_FUZZ_TIMES=3` has three times as many, which are more than a million on either end.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use kelvin_sys::random::split_mix;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hostile_receiver::manner;
use super::{Hostile, SETTINGS, digest, directory, entry, file, into, names, piece};
use crate::carried::Carried;
use crate::chosen::Chosen;
use crate::expected::Costs;
use crate::load::Load;
use crate::message::{
    Arrived, Attribute, Decision, Entry, EntryKind, Finished, FromReceiver, FromSender, Invitation, Join, Measured,
    Piece, Reason, Settings, Verdict, Whole,
};
use crate::send::Sender;
use crate::session::Event;
use crate::source::{Collection, Keep};

/// The share of each test.
const MESSAGES_OF_SENDERS: u64 = 400_000;
const MESSAGES_OF_RECEIVERS: u64 = 400_000;
const FRAMES: u64 = 100_000;
const TO_SESSIONS: u64 = 40_000;
const TO_SENDERS: u64 = 60_000;

#[test]
fn the_shares_are_a_million() {
    assert_eq!(MESSAGES_OF_SENDERS + MESSAGES_OF_RECEIVERS + FRAMES + TO_SESSIONS + TO_SENDERS, 1_000_000);
}

/// How many of a share are tried.
fn times(share: u64) -> u64 {
    let by = std::env::var("KELVIN_FUZZ_TIMES").map_or(1, |by| by.parse().unwrap());
    share * by
}

/// Bytes that mean something in a message.
const TELLING: &[u8] = &[0, 1, 2, 3, 4, 0x7f, 0x80, 0xff, b'.', b'/'];

/// Numbers below bounds, which follow from the first.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        (split_mix(&mut self.0) % bound.max(1) as u64) as usize
    }

    fn of<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())].clone()
    }

    /// Bytes near valid ones: some of them changed, left out or repeated; or any bytes at all.
    fn mutated(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        if self.below(16) == 0 {
            bytes = (0..self.below(64)).map(|_| self.below(256) as u8).collect();
        }
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = self.of(TELLING),
                2 => bytes.truncate(at),
                _ => bytes.extend_from_within(at..),
            }
        }
        // What fits into a frame, however often it was doubled.
        bytes.truncate(4096);
        bytes
    }
}

fn with_attribute() -> Entry {
    let attributes = vec![Attribute { name: b"of".to_vec(), value: b"value".to_vec() }];
    Entry { attributes, owner: Some((0, 0)), ..file("attributed", 2) }
}

fn from_senders() -> Vec<FromSender> {
    let link = entry(0, "link", EntryKind::Link { target: b"../elsewhere".to_vec() });
    let (file, digest) = (1, Some([7; 32]));
    vec![
        FromSender::Begin(Settings { bytes: Some(4711), ..SETTINGS }),
        FromSender::Offer(vec![super::file("name", 4711), directory(0, "directory"), link, with_attribute()]),
        FromSender::Keep { file, blocks: vec![0b101, 1] },
        FromSender::Batch { files: vec![Whole { file, bytes: 5 }; 2], digest },
        FromSender::Block(piece(file, 1 << 22, 1 << 22)),
        FromSender::Hole(piece(file, 0, 1 << 22)),
        FromSender::Digests(vec![[7; 32]; 3]),
        FromSender::Abandoned { file, why: "it became shorter".into() },
        FromSender::Join(Join { session: [7; 32], file: None }),
        FromSender::Join(Join { session: [7; 32], file: Some(file) }),
        FromSender::Split { file },
        FromSender::MayOthersJoin,
        FromSender::HowMuch,
        FromSender::Apart { file },
        FromSender::End,
        FromSender::Finish(Box::new(Measured {
            nanoseconds: 5,
            failed: 1,
            load: Load::default(),
            carried: Some(Carried { most: Some(5), ..Carried::default() }),
            expected: None,
            method: None,
            chosen: Some(Chosen { streams: 2, thousandths: 1900, no_faster: None }),
        })),
    ]
}

fn from_receivers() -> Vec<FromReceiver> {
    let refused = || Reason("there is no room".into());
    let all = [Decision::Wanted, Decision::Resumed, Decision::Unchanged, Decision::Made, Decision::Refused(refused())];
    vec![
        FromReceiver::Decisions(all.to_vec()),
        FromReceiver::Have { file: 1, first: 0, digests: vec![[7; 32]; 2], is_all: true },
        FromReceiver::Verdicts(vec![Verdict { file: 1, why: None }, Verdict { file: 2, why: Some(refused()) }]),
        FromReceiver::Refused(refused()),
        FromReceiver::Session([7; 32]),
        FromReceiver::Invited(Some(Invitation { session: [7; 32], most: 8 })),
        FromReceiver::Arrived(Arrived { bytes: 5, nanoseconds: 7 }),
        FromReceiver::Took(Some(refused())),
        FromReceiver::Finished(Finished {
            since: 5,
            load: Load::default(),
            costs: Some(Costs::default()),
            unwritten: Some(9),
            method: Some(crate::moving::ReceiveMethod::Uring),
        }),
    ]
}

/// Has so many messages near these be received, and says how many could be read.
fn read_all<T: DeserializeOwned + Serialize>(valid: &[T], count: u64, reads: impl Fn(T)) -> u64 {
    let valid: Vec<Vec<u8>> = valid.iter().map(|message| postcard::to_stdvec(message).unwrap()).collect();
    let (mut random, mut read) = (Random(7), 0);
    let mut hostile = Hostile::new();
    for number in 0..count {
        let text = random.mutated(&valid[number as usize % valid.len()]);
        hostile.frame(&text);
        if let Ok(message) = hostile.channel.receive::<T>() {
            read += 1;
            reads(message);
        }
    }
    assert!(hostile.stream.says.borrow().is_empty());
    read
}

fn is_bounded(why: &str) {
    assert!(why.len() <= 400 && !why.contains(char::is_control), "{why:?}");
}

#[test]
fn no_message_of_a_sender_breaks_what_reads_it_and_what_is_read_is_bounded() {
    let read = read_all(&from_senders(), times(MESSAGES_OF_SENDERS), |message| match message {
        FromSender::Offer(entries) => entries.iter().for_each(|entry| {
            let name = entry.name.as_os_str();
            assert!(!name.is_empty() && Path::new(name).file_name() == Some(name), "{name:?}");
            assert!(entry.attributes.len() <= crate::message::ATTRIBUTES);
            entry.modified.time();
        }),
        FromSender::Abandoned { why, .. } => is_bounded(&why),
        _ => {}
    });
    assert!((1000..times(MESSAGES_OF_SENDERS) - 1000).contains(&read), "{read}");
}

#[test]
fn no_message_of_a_receiver_breaks_what_reads_it_and_what_is_read_is_bounded() {
    let read = read_all(&from_receivers(), times(MESSAGES_OF_RECEIVERS), |message| match message {
        FromReceiver::Refused(Reason(why)) => is_bounded(&why),
        FromReceiver::Verdicts(verdicts) => {
            verdicts.iter().filter_map(|verdict| verdict.why.as_ref()).for_each(|why| is_bounded(&why.0));
        }
        _ => {}
    });
    assert!((1000..times(MESSAGES_OF_RECEIVERS) - 1000).contains(&read), "{read}");
}

/// Frames of any length and content but those that the other side has sealed: none is read, as a message or as bytes of a file.
#[test]
fn no_frame_that_was_not_sealed_is_opened() {
    let mut random = Random(3);
    let mut hostile = Hostile::new();
    for number in 0..times(FRAMES) {
        let length = random.below(200);
        let mut frame: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let claimed = if random.below(8) == 0 { random.0 as u32 } else { length as u32 };
        frame.splice(0..0, claimed.to_le_bytes());
        hostile.raw(&frame);
        let is_opened = match number % 2 {
            0 => hostile.channel.receive::<FromSender>().is_ok(),
            _ => hostile.channel.data_into(&mut [0; 200], 1 + random.below(100)).is_ok(),
        };
        assert!(!is_opened, "{number}");
        // What is left of a frame that was longer or shorter than it claimed.
        hostile.channel.set_plain(true);
        while hostile.channel.data_into(&mut [0], 1).is_ok() {}
        hostile.channel.set_plain(false);
    }
    hostile.begin();
    assert!(hostile.channel.receive::<FromSender>().is_ok(), "the next message that was sealed");
}

/// A sender that often says what makes sense: else no session would be long.
struct Sayer<'a> {
    hostile: &'a mut Hostile,
    random: &'a mut Random,
    /// How many entries it has offered, and the files among them that did not follow yet.
    offered: u32,
    files: Vec<u32>,
}

impl Sayer<'_> {
    fn offer(&mut self) {
        let kinds = [
            EntryKind::File { bytes: 2, stored: 2 },
            EntryKind::File { bytes: 2, stored: 2 },
            EntryKind::Stream,
            EntryKind::Directory,
            EntryKind::Link { target: b"elsewhere".to_vec() },
        ];
        let mut entries = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let kind = self.random.of(&kinds);
            if matches!(kind, EntryKind::File { .. } | EntryKind::Stream) {
                self.files.push(self.offered);
            }
            // Few names, so that some are there already.
            let name = if self.random.below(8) == 0 { "a".to_owned() } else { self.offered.to_string() };
            let parent = if self.random.below(64) == 0 { 1 } else { 0 };
            entries.push(entry(parent, &name, kind));
            self.offered += 1;
        }
        self.hostile.offer(&entries);
    }

    /// The number of a file, most often of one that is wanted.
    fn file(&mut self) -> u32 {
        if self.files.is_empty() || self.random.below(64) == 0 {
            return self.random.below(8) as u32;
        }
        let index = self.random.below(self.files.len());
        self.files.swap_remove(index)
    }

    fn say_something(&mut self) {
        let number = if self.files.is_empty() { 0 } else { 1 + self.random.below(40) };
        if number <= 8 {
            return self.offer();
        }
        let file = self.file();
        let piece = piece(file, 0, self.random.of(&[2, 2, 2, 1]));
        let piece = Piece { is_last: true, ..piece };
        let hostile = &mut *self.hostile;
        match number {
            9 => hostile.say(&FromSender::Hole(piece)),
            10 => hostile.say(&FromSender::Keep { file, blocks: vec![1] }),
            11 => hostile.data(b"hi"),
            12 => hostile.say(&FromSender::Digests(vec![digest(b"hi")])),
            13 => {
                let valid = postcard::to_stdvec(&self.random.of(&from_senders())).unwrap();
                hostile.frame(&self.random.mutated(&valid))
            }
            14..=16 => hostile.say(&FromSender::Abandoned { file, why: "no reason".into() }),
            17 => hostile.say(&FromSender::Block(piece)).data(&b"hi"[..piece.bytes as usize]),
            18..=28 => hostile.block(piece, &b"hi"[..piece.bytes as usize]),
            _ => hostile.batch(&[(file, b"hi")]),
        };
    }
}

/// Files below a directory but directories and links, as paths from it.
fn files_below(directory: &Path, below: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (path, below) = (entry.path(), below.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_below(&path, &below, found);
        } else if kind.is_file() {
            found.push(below);
        }
    }
}

/// Any messages and bytes in any order: a file has a name if and only if it was kept, and nothing is written elsewhere.
#[test]
fn no_order_of_messages_leaves_what_is_not_whole() {
    let (outer, inner) = super::place();
    let (mut heard, mut kept, mut random) = (0, 0, Random(1));
    while heard < times(TO_SESSIONS) {
        let mut hostile = Hostile::new();
        hostile.begin();
        let mut sayer = Sayer { hostile: &mut hostile, random: &mut random, offered: 0, files: Vec::new() };
        (0..40).for_each(|_| sayer.say_something());
        let events = hostile.heard_by(&into(&inner), random.below(8) != 0, &|_| {}).events;
        heard += hostile.stream.heard.get();
        let mut found = Vec::new();
        files_below(&inner, Path::new(""), &mut found);
        let was_kept =
            |path: &std::path::PathBuf| events.iter().any(|event| matches!(event, Event::Kept(one) if one == path));
        assert!(found.iter().all(was_kept), "{found:?} {events:?}");
        kept += found.len();
        assert_eq!(names(outer.path()), ["in"]);
        fs::remove_dir_all(&inner).unwrap();
        fs::create_dir(&inner).unwrap();
    }
    assert!(kept > 1000, "{kept}");
}

/// The next thing that a receiver might say to the offer of a directory, three files and a link.
fn answer_something(hostile: &mut Hostile, random: &mut Random) {
    let files = [1, 2, 3];
    let why = random.of(&[None, None, Some(Reason("no reason".into()))]);
    match random.below(16) {
        0 => hostile.say(&random.of(&from_receivers())),
        1 => hostile.say(&FromReceiver::Have { file: random.of(&files), first: 0, digests: vec![], is_all: true }),
        2 => {
            let valid = postcard::to_stdvec(&random.of(&from_receivers())).unwrap();
            hostile.frame(&random.mutated(&valid))
        }
        3 => hostile.say(&FromReceiver::Finished(Finished {
            since: 1,
            load: Load::default(),
            costs: None,
            unwritten: None,
            method: None,
        })),
        _ => hostile.say(&FromReceiver::Verdicts(vec![Verdict { file: random.of(&files), why }])),
    };
}

/// Any answers in any order: the sender ends, and sends no byte but of the files that were named.
#[test]
fn no_order_of_answers_breaks_a_sender() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    (1..=3).for_each(|number| fs::write(tree.join(number.to_string()), "hi").unwrap());
    std::os::unix::fs::symlink("elsewhere", tree.join("4")).unwrap();
    let keep = Keep { recursive: true, links: true, ..Keep::default() };
    let (mut heard, mut finished, mut random) = (0, 0, Random(1));
    while heard < times(TO_SENDERS) {
        let mut hostile = Hostile::new();
        hostile.is_late = random.below(2) == 0;
        let of_files = [Decision::Wanted, Decision::Wanted, Decision::Wanted, Decision::Resumed, Decision::Unchanged];
        let files = [(); 3].map(|()| random.of(&of_files));
        let all = [&[Decision::Made][..], &files, &[Decision::Made]].concat();
        hostile.say(&FromReceiver::Decisions(all)).late();
        (0..40).for_each(|_| answer_something(&mut hostile, &mut random));
        let counted = Rc::clone(&hostile.stream.heard);
        let sender = Sender::over(hostile.channel, (manner(SETTINGS), Instant::now())).unwrap();
        finished +=
            u64::from(sender.send(Collection::of(std::slice::from_ref(&tree), keep).unwrap(), &|_, _| {}).is_ok());
        heard += counted.get();
    }
    assert!(finished > 100, "{finished}");
}
