//! A million frames that nobody should send, on either end: no panic, no wait without end, and only whole files have names.
//!
//! Each test states how many are its share; the numbers that choose them begin with a constant, so that a failure can be repeated.
//! `KELVIN_FUZZ_TIMES=3` has three times as many, which are more than a million on either end.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use kelvin_sys::random::split_mix;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    DEFAULT_SETTINGS, HostileEnd, digest, directory, directory_destination, entry, file, names, piece, sender_options,
};
use crate::compression::CompressionReport;
use crate::link_usage::LinkUsage;
use crate::message::{
    Acl, AclKind, ArrivedBytes, Attribute, DeletionFailure, EntryDecision, EntryKind, ExtraneousEntry,
    ExtraneousParent, FileEntry, FilePiece, JoinInvitation, JoinRequest, ListEnd, ReceiverMessage, ReceiverReport,
    RefusalReason, SenderMessage, SenderReport, Verdict, WholeFile,
};
use crate::message::{SessionSettings, StreamChoice};
use crate::rate_prediction::StageCosts;
use crate::send::Sender;
use crate::session::SessionEvent;
use crate::source::{PreserveOptions, SourceList};
use crate::stage_times::EndLoad;

/// The share of each test.
const SENDER_MESSAGE_CASES: u64 = 400_000;
const RECEIVER_MESSAGE_CASES: u64 = 400_000;
const FRAME_CASES: u64 = 100_000;
const SESSION_CASES: u64 = 40_000;
const SENDER_CASES: u64 = 60_000;

#[test]
fn fuzz_cases_sum_to_million() {
    assert_eq!(SENDER_MESSAGE_CASES + RECEIVER_MESSAGE_CASES + FRAME_CASES + SESSION_CASES + SENDER_CASES, 1_000_000);
}

/// How many of a share are tried.
fn case_count(share: u64) -> u64 {
    let factor = std::env::var("KELVIN_FUZZ_TIMES").map_or(1, |factor| factor.parse().unwrap());
    share * factor
}

/// Bytes that mean something in a message.
const SPECIAL_BYTES: &[u8] = &[0, 1, 2, 3, 4, 0x7f, 0x80, 0xff, b'.', b'/'];

/// Numbers below bounds, which follow from the first.
struct Random(u64);

impl Random {
    fn next_below(&mut self, bound: usize) -> usize {
        (split_mix(&mut self.0) % bound.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.next_below(choices.len())].clone()
    }

    /// Bytes near valid ones: some of them changed, left out or repeated; or any bytes at all.
    fn mutated(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        if self.next_below(16) == 0 {
            bytes = (0..self.next_below(64)).map(|_| self.next_below(256) as u8).collect();
        }
        for _ in 0..=self.next_below(4) {
            let index = self.next_below(bytes.len());
            match self.next_below(4) {
                0 if !bytes.is_empty() => bytes[index] ^= 1 << self.next_below(8),
                1 if !bytes.is_empty() => bytes[index] = self.pick(SPECIAL_BYTES),
                2 => bytes.truncate(index),
                _ => bytes.extend_from_within(index..),
            }
        }
        // What fits into a frame, however often it was doubled.
        bytes.truncate(4096);
        bytes
    }
}

fn with_attribute() -> FileEntry {
    let attributes = vec![Attribute { name: b"of".to_vec(), value: b"value".to_vec() }];
    let acls =
        vec![Acl { kind: AclKind::Access, list: vec![2, 0, 0, 0] }, Acl { kind: AclKind::Default, list: vec![2] }];
    FileEntry { attributes, acls, owner: Some((0, 0)), ..file("attributed", 2) }
}

fn sender_messages() -> Vec<SenderMessage> {
    let link = entry(0, "link", EntryKind::Link { target: b"../elsewhere".to_vec() });
    let hard_link = entry(0, "hard", EntryKind::HardLink { first: 2 });
    let (file, digest) = (1, Some([7; 32]));
    vec![
        SenderMessage::Begin(SessionSettings { bytes: Some(4711), ..DEFAULT_SETTINGS }),
        SenderMessage::Offer(vec![
            super::file("name", 4711),
            directory(0, "directory"),
            link,
            with_attribute(),
            hard_link,
        ]),
        SenderMessage::ValidBlocks { file, blocks: vec![0b101, 1] },
        SenderMessage::QueryBlocks(file),
        SenderMessage::Enter(vec![b"store".to_vec().try_into().unwrap(); 2]),
        SenderMessage::Batch { files: vec![WholeFile { file, bytes: 5 }; 2], digest },
        SenderMessage::Block(piece(file, 1 << 22, 1 << 22)),
        SenderMessage::Hole(piece(file, 0, 1 << 22)),
        SenderMessage::Digests(vec![[7; 32]; 3]),
        SenderMessage::Abandoned { file, why: "it became shorter".into() },
        SenderMessage::Join(JoinRequest { session: [7; 32], file: None }),
        SenderMessage::Join(JoinRequest { session: [7; 32], file: Some(file) }),
        SenderMessage::Split(file),
        SenderMessage::QueryJoin,
        SenderMessage::QueryArrived,
        SenderMessage::FileConnection(file),
        SenderMessage::QueryExtraneous,
        SenderMessage::Delete { entries: vec![7, 0], is_all: true },
        SenderMessage::CompressedBatch { files: vec![WholeFile { file, bytes: 500 }], digest, frame_bytes: 300 },
        SenderMessage::CompressedBlock { piece: piece(file, 1 << 22, 1 << 22), frame_bytes: 1 << 20 },
        SenderMessage::End,
        SenderMessage::Finish(Box::new(SenderReport {
            nanoseconds: 5,
            failed: 1,
            load: EndLoad::default(),
            carried: Some(LinkUsage { link_rate: Some(5), ..LinkUsage::default() }),
            expected: None,
            method: None,
            chosen: Some(StreamChoice { streams: 2, thousandths: 1900, no_faster: None }),
            compression: Some(CompressionReport { content: 9, sent: 3, ..CompressionReport::default() }),
        })),
    ]
}

fn receiver_messages() -> Vec<ReceiverMessage> {
    let refused = || RefusalReason("there is no room".into());
    let decisions = [
        EntryDecision::Wanted,
        EntryDecision::Resumed,
        EntryDecision::Changed,
        EntryDecision::Unchanged,
        EntryDecision::Made,
        EntryDecision::Refused(refused()),
    ];
    vec![
        ReceiverMessage::Decisions(decisions.to_vec()),
        ReceiverMessage::PresentBlocks { file: 1, first: 0, digests: vec![[7; 32]; 2], is_all: true },
        ReceiverMessage::Verdicts(vec![Verdict { file: 1, why: None }, Verdict { file: 2, why: Some(refused()) }]),
        ReceiverMessage::Refused(refused()),
        ReceiverMessage::Session([7; 32]),
        ReceiverMessage::JoinInvitation(Some(JoinInvitation { session: [7; 32], max_streams: 8 })),
        ReceiverMessage::Arrived(ArrivedBytes { bytes: 5, nanoseconds: 7 }),
        ReceiverMessage::BlockWritten(Some(refused())),
        ReceiverMessage::Extraneous {
            entries: vec![ExtraneousEntry {
                parent: ExtraneousParent::Offered(1),
                name: b"old".to_vec().try_into().unwrap(),
                is_directory: true,
            }],
            end: Some(ListEnd::Failed(refused())),
        },
        ReceiverMessage::Deleted { failures: vec![DeletionFailure { entry: 7, why: refused() }], is_all: true },
        ReceiverMessage::Finished(ReceiverReport {
            since: 5,
            load: EndLoad::default(),
            costs: Some(StageCosts::default()),
            unwritten_bytes: Some(9),
            method: Some(crate::datapath::ReceiveMethod::Uring),
        }),
    ]
}

/// Has this many messages near these be received, and returns how many could be read.
fn read_all<T: DeserializeOwned + Serialize>(valid: &[T], count: u64, check: impl Fn(T)) -> u64 {
    let valid: Vec<Vec<u8>> = valid.iter().map(|message| postcard::to_stdvec(message).unwrap()).collect();
    let (mut random, mut read) = (Random(7), 0);
    let mut hostile = HostileEnd::new();
    for number in 0..count {
        let text = random.mutated(&valid[number as usize % valid.len()]);
        hostile.frame(&text);
        if let Ok(message) = hostile.channel.receive::<T>() {
            read += 1;
            check(message);
        }
    }
    assert!(hostile.stream.script.borrow().is_empty());
    read
}

fn assert_bounded(why: &str) {
    assert!(why.len() <= 400 && !why.contains(char::is_control), "{why:?}");
}

#[test]
fn any_sender_message_parses_bounded() {
    let read = read_all(&sender_messages(), case_count(SENDER_MESSAGE_CASES), |message| match message {
        SenderMessage::Offer(entries) => entries.iter().for_each(|entry| {
            let name = entry.name.as_os_str();
            assert!(!name.is_empty() && Path::new(name).file_name() == Some(name), "{name:?}");
            assert!(entry.attributes.len() <= crate::message::MAX_ATTRIBUTES);
            assert!(entry.acls.len() <= 2 && entry.acl_bytes() <= crate::message::MAX_ATTRIBUTE_BYTES);
        }),
        SenderMessage::Abandoned { why, .. } => assert_bounded(&why),
        SenderMessage::Enter(names) => names.iter().for_each(|name| {
            let name = name.as_os_str();
            assert!(!name.is_empty() && Path::new(name).file_name() == Some(name), "{name:?}");
        }),
        _ => {}
    });
    assert!((1000..case_count(SENDER_MESSAGE_CASES) - 1000).contains(&read), "{read}");
}

#[test]
fn any_receiver_message_parses_bounded() {
    let read = read_all(&receiver_messages(), case_count(RECEIVER_MESSAGE_CASES), |message| match message {
        ReceiverMessage::Refused(RefusalReason(why)) => assert_bounded(&why),
        ReceiverMessage::Extraneous { entries, .. } => entries.iter().for_each(|entry| {
            let name = entry.name.as_os_str();
            assert!(!name.is_empty() && Path::new(name).file_name() == Some(name), "{name:?}");
        }),
        ReceiverMessage::Verdicts(verdicts) => {
            verdicts.iter().filter_map(|verdict| verdict.why.as_ref()).for_each(|why| assert_bounded(&why.0));
        }
        _ => {}
    });
    assert!((1000..case_count(RECEIVER_MESSAGE_CASES) - 1000).contains(&read), "{read}");
}

/// Frames of any length and content but those that the other side has sealed. None is read, as a message or as bytes of a file.
#[test]
fn unsealed_frames_are_not_opened() {
    let mut random = Random(3);
    let mut hostile = HostileEnd::new();
    for number in 0..case_count(FRAME_CASES) {
        let length = random.next_below(200);
        let mut frame: Vec<u8> = (0..length).map(|_| random.next_below(256) as u8).collect();
        let claimed = if random.next_below(8) == 0 { random.0 as u32 } else { length as u32 };
        frame.splice(0..0, claimed.to_le_bytes());
        hostile.raw(&frame);
        let is_opened = match number % 2 {
            0 => hostile.channel.receive::<SenderMessage>().is_ok(),
            _ => hostile.channel.receive_data(&mut [0; 200], 1 + random.next_below(100)).is_ok(),
        };
        assert!(!is_opened, "{number}");
        // What is left of a frame that was longer or shorter than it claimed.
        hostile.channel.plain = true;
        while hostile.channel.receive_data(&mut [0], 1).is_ok() {}
        hostile.channel.plain = false;
    }
    hostile.begin();
    assert!(hostile.channel.receive::<SenderMessage>().is_ok(), "the next message that was sealed");
}

/// A sender that often sends what makes sense: else no session would be long.
struct RandomSender<'a> {
    hostile: &'a mut HostileEnd,
    random: &'a mut Random,
    /// How many entries it has offered, and the files among them that did not follow yet.
    offered_count: u32,
    files: Vec<u32>,
}

impl RandomSender<'_> {
    fn offer(&mut self) {
        let kinds = [
            EntryKind::File { bytes: 2, stored: 2 },
            EntryKind::File { bytes: 2, stored: 2 },
            EntryKind::Stream,
            EntryKind::Directory,
            EntryKind::Link { target: b"elsewhere".to_vec() },
            EntryKind::HardLink { first: 0 },
        ];
        let mut entries = Vec::new();
        for _ in 0..1 + self.random.next_below(5) {
            let mut kind = self.random.pick(&kinds);
            if let EntryKind::HardLink { first } = &mut kind {
                *first = self.random.next_below(self.offered_count as usize + 1) as u32;
            }
            if matches!(kind, EntryKind::File { .. } | EntryKind::Stream) {
                self.files.push(self.offered_count);
            }
            // Few names, so that some are there already.
            let name = if self.random.next_below(8) == 0 { "a".to_owned() } else { self.offered_count.to_string() };
            let parent = if self.random.next_below(64) == 0 { 1 } else { 0 };
            let has_links = self.random.next_below(2) == 0;
            let acls = if self.random.next_below(32) == 0 { with_attribute().acls } else { Vec::new() };
            entries.push(FileEntry { has_links, acls, ..entry(parent, &name, kind) });
            self.offered_count += 1;
        }
        self.hostile.offer(&entries);
    }

    /// The number of a file, most often of one that is wanted.
    fn file(&mut self) -> u32 {
        if self.files.is_empty() || self.random.next_below(64) == 0 {
            return self.random.next_below(8) as u32;
        }
        let index = self.random.next_below(self.files.len());
        self.files.swap_remove(index)
    }

    fn send_next(&mut self) {
        let number = if self.files.is_empty() { 0 } else { 1 + self.random.next_below(40) };
        if number <= 8 {
            return self.offer();
        }
        let file = self.file();
        let piece = piece(file, 0, self.random.pick(&[2, 2, 2, 1]));
        let piece = FilePiece { is_last: true, ..piece };
        let hostile = &mut *self.hostile;
        match number {
            9 => hostile.send(&SenderMessage::Hole(piece)),
            10 => hostile.send(&SenderMessage::ValidBlocks { file, blocks: vec![1] }),
            11 => hostile.data(b"hi"),
            12 => hostile.send(&SenderMessage::Digests(vec![digest(b"hi")])),
            13 => {
                let valid = postcard::to_stdvec(&self.random.pick(&sender_messages())).unwrap();
                hostile.frame(&self.random.mutated(&valid))
            }
            14 if self.random.next_below(4) == 0 => {
                let entries = vec![self.random.next_below(4) as u32];
                hostile.send(&SenderMessage::QueryExtraneous).send(&SenderMessage::Delete { entries, is_all: true })
            }
            14..=16 => hostile.send(&SenderMessage::Abandoned { file, why: "no reason".into() }),
            17 => hostile.send(&SenderMessage::Block(piece)).data(&b"hi"[..piece.bytes as usize]),
            18 => {
                let frame_bytes = self.random.next_below(3) as u32;
                let frame = hostile.send(&SenderMessage::CompressedBlock { piece, frame_bytes });
                frame.data(&b"hi"[..frame_bytes as usize]).send(&SenderMessage::Digests(vec![digest(b"hi")]))
            }
            19..=28 => hostile.block(piece, &b"hi"[..piece.bytes as usize]),
            _ => hostile.batch(&[(file, b"hi")]),
        };
    }
}

/// Files below a directory but directories and links, as paths from it.
fn files_below(directory: &Path, relative_path: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (path, relative_path) = (entry.path(), relative_path.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_below(&path, &relative_path, files);
        } else if kind.is_file() {
            files.push(relative_path);
        }
    }
}

/// Any messages and bytes in any order: a file has a name if and only if it was kept, and nothing is written elsewhere.
#[test]
fn any_message_order_leaves_whole_files() {
    let (outer, inner) = super::target_directory();
    let (mut frame_count, mut stored_count, mut random) = (0, 0, Random(1));
    while frame_count < case_count(SESSION_CASES) {
        let mut hostile = HostileEnd::new();
        let delete = random.next_below(2) == 0;
        let compressed = random.next_below(2) == 0;
        hostile.send(&SenderMessage::Begin(SessionSettings { delete, compressed, acls: true, ..DEFAULT_SETTINGS }));
        let mut sender =
            RandomSender { hostile: &mut hostile, random: &mut random, offered_count: 0, files: Vec::new() };
        (0..40).for_each(|_| sender.send_next());
        let events =
            hostile.run_session_with(&directory_destination(&inner), random.next_below(8) != 0, &|_| {}).events;
        frame_count += hostile.stream.frames_read.get();
        let mut files = Vec::new();
        files_below(&inner, Path::new(""), &mut files);
        let is_stored = |path: &std::path::PathBuf| {
            events.iter().any(|event| matches!(event, SessionEvent::FileStored(stored_path) if stored_path == path))
        };
        assert!(files.iter().all(is_stored), "{files:?} {events:?}");
        stored_count += files.len();
        assert_eq!(names(outer.path()), ["in"]);
        fs::remove_dir_all(&inner).unwrap();
        fs::create_dir(&inner).unwrap();
    }
    assert!(stored_count > 1000, "{stored_count}");
}

/// The next thing that a receiver might send after the offer of a directory, three files and a link.
fn random_answer(hostile: &mut HostileEnd, random: &mut Random) {
    let files = [1, 2, 3];
    let why = random.pick(&[None, None, Some(RefusalReason("no reason".into()))]);
    match random.next_below(16) {
        0 => hostile.send(&random.pick(&receiver_messages())),
        1 => hostile.send(&ReceiverMessage::PresentBlocks {
            file: random.pick(&files),
            first: 0,
            digests: vec![],
            is_all: true,
        }),
        2 => {
            let valid = postcard::to_stdvec(&random.pick(&receiver_messages())).unwrap();
            hostile.frame(&random.mutated(&valid))
        }
        3 => hostile.send(&ReceiverMessage::Finished(ReceiverReport {
            since: 1,
            load: EndLoad::default(),
            costs: None,
            unwritten_bytes: None,
            method: None,
        })),
        _ => hostile.send(&ReceiverMessage::Verdicts(vec![Verdict { file: random.pick(&files), why }])),
    };
}

/// Any answers in any order: the sender ends, and sends no byte but of the files that were named.
#[test]
fn any_answer_order_is_survived() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    (1..=3).for_each(|number| fs::write(tree.join(number.to_string()), "hi").unwrap());
    std::os::unix::fs::symlink("elsewhere", tree.join("4")).unwrap();
    let preserve = PreserveOptions { recursive: true, links: true, ..PreserveOptions::default() };
    let (mut frame_count, mut finished, mut random) = (0, 0, Random(1));
    while frame_count < case_count(SENDER_CASES) {
        let mut hostile = HostileEnd::new();
        hostile.is_late = random.next_below(2) == 0;
        let file_decisions = [
            EntryDecision::Wanted,
            EntryDecision::Wanted,
            EntryDecision::Wanted,
            EntryDecision::Resumed,
            EntryDecision::Unchanged,
        ];
        let files = [(); 3].map(|()| random.pick(&file_decisions));
        let decisions = [&[EntryDecision::Made][..], &files, &[EntryDecision::Made]].concat();
        hostile.send(&ReceiverMessage::Decisions(decisions)).late();
        (0..40).for_each(|_| random_answer(&mut hostile, &mut random));
        let frames_read = Rc::clone(&hostile.stream.frames_read);
        let sender = Sender::from_channel(hostile.channel, (sender_options(DEFAULT_SETTINGS), Instant::now())).unwrap();
        finished += u64::from(
            sender.send(SourceList::collect(std::slice::from_ref(&tree), preserve).unwrap(), &|_, _| {}).is_ok(),
        );
        frame_count += frames_read.get();
    }
    assert!(finished > 100, "{finished}");
}
