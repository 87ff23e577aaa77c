//! Several streams of one session, over real connections: whole files whatever their size, and streams that join and misbehave.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_wire::deadline::Deadline;
use kelvin_wire::noise::Handshake;
use kelvin_wire::secret::Secret;

use super::{LONG, SETTINGS, content, digest, file, finals, into, piece, place};
use crate::blocks::BLOCK;
use crate::channel::Channel;
use crate::decide::Destination;
use crate::joined::{STREAMS, SessionId};
use crate::message::{FromReceiver, FromSender, Join, Piece, Settings};
use crate::receive::{Manner, Receiver};
use crate::send::{self, Sender, Sent};
use crate::session::Event;
use crate::source::{Collection, Keep};
use crate::{PROTOCOL, Result};

const BYTES: usize = BLOCK as usize;
const SPLIT: Settings = Settings { streams: 4, ..SETTINGS };

/// A receiver that serves a test.
pub(super) struct Served<'a>(pub(super) &'a Receiver);

/// Runs a test with a receiver, which has ended when this returns; what happened there.
pub(super) fn with_receiver(destination: Destination, test: impl FnOnce(&Served<'_>)) -> Vec<Event> {
    with_receiver_of(Manner { overwrite: true, ..Manner::default() }, destination, test)
}

/// The same with one that receives in some manner.
pub(super) fn with_receiver_of(manner: Manner, destination: Destination, test: impl FnOnce(&Served<'_>)) -> Vec<Event> {
    let events = std::sync::Arc::new(Mutex::new(Vec::new()));
    let (told, is_over) = (std::sync::Arc::clone(&events), AtomicBool::new(false));
    let tell = Box::new(move |_, event| told.lock().unwrap().push(event));
    let address = "127.0.0.1:0".parse().unwrap();
    let receiver = Receiver::listen(address, destination, Secret::none(), manner, tell).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| receiver.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(&Served(&receiver));
        }));
        is_over.store(true, Ordering::Relaxed);
        tested.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
    drop(receiver);
    std::mem::take(&mut *events.lock().unwrap())
}

impl Served<'_> {
    fn send(&self, paths: &[PathBuf], settings: Settings) -> Result<Sent> {
        let manner = send::Manner { settings, acknowledge: false, limit: None, moving: None, choose: None };
        let collection = Collection::of(paths, Keep { recursive: true, ..Keep::default() }).unwrap();
        Sender::connect(&[self.0.address().unwrap()], &Secret::none(), manner)?.send(collection, &|_, _| {})
    }

    /// A connection that may say anything.
    pub(super) fn connect(&self) -> Channel {
        let mut stream = TcpStream::connect(self.0.address().unwrap()).unwrap();
        let secret = Secret::none();
        let handshake = Handshake { protocol: &PROTOCOL, secret: &secret, deadline: Deadline::within(LONG) };
        let halves = handshake.call(&mut stream).unwrap();
        Channel::new(stream, halves).unwrap()
    }

    /// The first stream of a session, which may be joined by so many others.
    pub(super) fn begin(&self, streams: u32) -> (Channel, SessionId) {
        let mut channel = self.connect();
        channel.send(&FromSender::Begin(Settings { streams, ..SETTINGS })).unwrap();
        let FromReceiver::Session(id) = channel.receive().unwrap() else { panic!("no session") };
        (channel, id)
    }

    /// The same with a large file, that is split.
    pub(super) fn split(&self, bytes: usize) -> (Channel, SessionId) {
        let (mut channel, id) = self.begin(STREAMS);
        channel.send(&FromSender::Offer(vec![file("large", bytes as u64)])).unwrap();
        assert!(matches!(channel.receive().unwrap(), FromReceiver::Decisions(one) if one.len() == 1));
        channel.send(&FromSender::Split { file: 0 }).unwrap();
        (channel, id)
    }

    pub(super) fn join(&self, id: SessionId) -> Result<Channel> {
        let mut channel = self.connect();
        channel.send(&FromSender::Join(Join { session: id, file: None }))?;
        let answer: FromReceiver = channel.receive()?;
        assert_eq!(answer, FromReceiver::Took(None));
        Ok(channel)
    }
}

/// Sends a block, and hears what becomes of it.
fn block(channel: &mut Channel, piece: Piece, content: &[u8]) -> Result<FromReceiver> {
    channel.queue(&FromSender::Block(piece))?;
    channel.send_data(content)?;
    channel.send(&FromSender::Digests(vec![digest(content)]))?;
    channel.receive()
}

fn is_taken(answer: &Result<FromReceiver>) -> bool {
    matches!(answer, Ok(FromReceiver::Took(None)))
}

/// Files of these sizes, in a directory of their own.
pub(super) fn sources(sizes: &[usize]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let make = |(number, bytes): (usize, &usize)| {
        let path = directory.path().join(format!("{number}"));
        fs::write(&path, content(*bytes, number as u32)).unwrap();
        path
    };
    let paths = sizes.iter().enumerate().map(make).collect();
    (directory, paths)
}

pub(super) fn are_equal(paths: &[PathBuf], target: &Path) {
    for path in paths {
        let arrived = target.join(path.file_name().unwrap());
        assert!(fs::read(path).unwrap() == fs::read(&arrived).unwrap(), "{} differs", arrived.display());
    }
}

#[test]
fn files_of_any_size_arrive_whole_over_any_number_of_streams() {
    let sizes = [0, 1, BYTES - 1, BYTES, BYTES + 1, 2 * BYTES, 2 * BYTES + 1, 3 * BYTES - 1, 5 * BYTES + 77];
    let (_directory, paths) = sources(&sizes);
    let all: u64 = sizes.iter().map(|bytes| *bytes as u64).sum();
    for (streams, plain, verify) in [(1, false, true), (2, true, true), (4, false, true), (STREAMS, true, false)] {
        let (_outer, inner) = place();
        let events = with_receiver(into(&inner), |served| {
            let sent = served.send(&paths, Settings { streams, plain, verify, ..SETTINGS }).unwrap();
            assert_eq!((sent.summary.moved.amount.moved, sent.summary.streams), (all, streams));
            assert!(sent.unsent.is_empty());
        });
        are_equal(&paths, &inner);
        assert_eq!(finals(&inner).1, 0);
        let done = events.iter().find_map(|event| if let Event::Done(done) = event { Some(done) } else { None });
        let moved = done.map(|done| (done.moved.amount.moved, done.streams));
        assert_eq!(moved, Some((all, streams)), "{events:?}");
        assert!(!events.iter().any(|event| matches!(event, Event::Fault(_))), "{events:?}");
    }
}

#[test]
fn several_senders_have_several_streams_each_at_one_time() {
    let (_directory, paths) = sources(&[5 * BYTES + 1, 4 * BYTES, 6 * BYTES + 3, 3 * BYTES]);
    let (_outer, inner) = place();
    with_receiver(into(&inner), |served| {
        std::thread::scope(|scope| {
            for path in &paths {
                scope.spawn(|| served.send(std::slice::from_ref(path), SPLIT).unwrap());
            }
        });
    });
    are_equal(&paths, &inner);
    assert_eq!(finals(&inner).1, 0);
}

#[test]
fn what_is_there_of_a_file_is_not_sent_again_over_any_stream() {
    let bytes = 6 * BYTES + 9;
    let (_directory, paths) = sources(&[bytes]);
    let (_outer, inner) = place();
    let collection = Collection::of(&paths, Keep::default()).unwrap();
    let all = content(bytes, 0);
    super::leave_part(
        &inner,
        &collection.sources[0].entry,
        &[&all[..2 * BYTES], &[0; 5], &all[2 * BYTES + 5..]].concat(),
    );
    with_receiver(into(&inner), |served| {
        let amount = served.send(&paths, SPLIT).unwrap().summary.moved.amount;
        assert_eq!((amount.moved, amount.resumed), (BLOCK, 5 * BLOCK + 9));
    });
    let truncated = &all[..3 * BYTES];
    fs::remove_file(inner.join("0")).unwrap();
    super::leave_part(&inner, &collection.sources[0].entry, truncated);
    with_receiver(into(&inner), |served| {
        let amount = served.send(&paths, SPLIT).unwrap().summary.moved.amount;
        assert_eq!((amount.moved, amount.resumed), (3 * BLOCK + 9, 3 * BLOCK));
    });
    are_equal(&paths, &inner);
}

#[test]
fn a_transfer_whose_first_stream_is_cut_is_gone_on_with() {
    let all = content(6 * BYTES, 1);
    let (_outer, inner) = place();
    for arrived in 1..5 {
        let events = with_receiver(into(&inner), |served| {
            let (first, id) = served.split(all.len());
            let mut joined = served.join(id).unwrap();
            for number in 0..arrived {
                let range = number * BYTES..(number + 1) * BYTES;
                let answer = block(&mut joined, piece(0, range.start as u64, BYTES as u32), &all[range]);
                assert!(is_taken(&answer), "{answer:?}");
            }
            drop(first);
            // The end of the session is the end of all its streams.
            assert!(joined.receive::<FromReceiver>().is_err());
        });
        assert!(events.iter().any(|event| matches!(event, Event::Left(_))), "{events:?}");
        assert_eq!(finals(&inner), (vec![], 1));
        fs::read_dir(&inner).unwrap().for_each(|part| fs::remove_file(part.unwrap().path()).unwrap());
    }
}

#[test]
fn a_source_that_changes_is_not_taken_for_whole() {
    let (_directory, paths) = sources(&[40 * BYTES]);
    let (_outer, inner) = place();
    with_receiver(into(&inner), |served| {
        let collection = Collection::of(&paths, Keep::default()).unwrap();
        let manner = send::Manner { settings: SPLIT, acknowledge: false, limit: None, moving: None, choose: None };
        let sender = Sender::connect(&[served.0.address().unwrap()], &Secret::none(), manner).unwrap();
        let is_cut = std::cell::Cell::new(false);
        let cut = |bytes, _| {
            if bytes > BLOCK && !is_cut.replace(true) {
                fs::File::options().write(true).open(&paths[0]).unwrap().set_len(BLOCK).unwrap();
            }
        };
        let sent = sender.send(collection, &cut).unwrap();
        assert!(matches!(&sent.unsent[..], [one] if one.why.to_string().contains("changed")), "{:?}", sent.unsent);
    });
    assert_eq!(finals(&inner), (vec![], 0));
}

#[test]
fn whoever_joins_no_session_or_a_full_one_is_not_heard() {
    let (_outer, inner) = place();
    let events = with_receiver(into(&inner), |served| {
        assert!(served.join([7; 32]).is_err());
        let (_first, id) = served.begin(2);
        let _second = served.join(id).unwrap();
        assert!(served.join(id).is_err());
        let (first, id) = served.begin(u32::MAX);
        let mut all: Vec<_> = (1..STREAMS).map(|_| served.join(id).unwrap()).collect();
        assert!(served.join(id).is_err());
        drop(first);
        assert!(all[0].receive::<FromReceiver>().is_err());
        assert!(served.join(id).is_err(), "the session has ended");
    });
    let faults = events.iter().filter(|event| matches!(event, Event::Fault(crate::Error::Nonsense(_)))).count();
    assert_eq!(faults, 4, "{events:?}");
}

#[test]
fn a_stream_that_sends_what_is_no_block_of_the_file_is_not_heard_any_more() {
    let bytes = 3 * BYTES + 5;
    let all = content(bytes, 1);
    let whole = BYTES as u32;
    let wrong = [
        piece(0, 1, whole),
        piece(0, 0, whole - 1),
        piece(0, 0, whole + 1),
        piece(0, 3 * BLOCK, 6),
        piece(0, 4 * BLOCK, 1),
        piece(0, u64::MAX, 1),
        piece(0, 0, u32::MAX),
    ];
    for wrong in wrong {
        let (_outer, inner) = place();
        with_receiver(into(&inner), |served| {
            let (_first, id) = served.split(bytes);
            let mut joined = served.join(id).unwrap();
            joined.send(&FromSender::Block(wrong)).unwrap();
            assert!(joined.receive::<FromReceiver>().is_err(), "{wrong:?}");
        });
        assert_eq!(finals(&inner).0, Vec::<String>::new());
    }
    let (_outer, inner) = place();
    with_receiver(into(&inner), |served| {
        let (_first, id) = served.split(bytes);
        for message in [
            FromSender::End,
            FromSender::Begin(SETTINGS),
            FromSender::Join(Join { session: id, file: None }),
            FromSender::Hole(piece(0, 0, 1)),
        ] {
            let mut joined = served.join(id).unwrap();
            joined.send(&message).unwrap();
            assert!(joined.receive::<FromReceiver>().is_err(), "{message:?}");
        }
        let mut joined = served.join(id).unwrap();
        assert!(is_taken(&block(&mut joined, piece(0, 0, whole), &all[..BYTES])));
        assert!(block(&mut joined, piece(0, 0, whole), &all[..BYTES]).is_err(), "a block twice");
    });
    assert_eq!(finals(&inner).0, Vec::<String>::new());
}

#[test]
fn a_block_that_came_over_one_stream_does_not_come_over_another() {
    let all = content(3 * BYTES, 1);
    let (_outer, inner) = place();
    let events = with_receiver(into(&inner), |served| {
        let (mut first, id) = served.split(all.len());
        let mut joined = served.join(id).unwrap();
        assert!(is_taken(&block(&mut joined, piece(0, 0, BYTES as u32), &all[..BYTES])));
        assert!(block(&mut first, piece(0, 0, BYTES as u32), &all[..BYTES]).is_err());
        assert!(joined.receive::<FromReceiver>().is_err());
    });
    let words = "bytes of a file out of order";
    assert!(
        events.iter().any(|event| matches!(event, Event::Fault(why) if why.to_string().contains(words))),
        "{events:?}"
    );
}

#[test]
fn a_block_that_is_wrong_fails_its_file_and_no_other() {
    let all = content(3 * BYTES, 1);
    let (_outer, inner) = place();
    let events = with_receiver(into(&inner), |served| {
        let (mut first, id) = served.split(all.len());
        let mut joined = served.join(id).unwrap();
        joined.queue(&FromSender::Block(piece(0, 0, BYTES as u32))).unwrap();
        joined.send_data(&all[..BYTES]).unwrap();
        joined.send(&FromSender::Digests(vec![[1; 32]])).unwrap();
        let answer: FromReceiver = joined.receive().unwrap();
        assert!(matches!(&answer, FromReceiver::Took(Some(why)) if why.0.contains("BLAKE3")), "{answer:?}");
        first.send(&FromSender::Abandoned { file: 0, why: "as it says".into() }).unwrap();
        // What comes after the end of the file, or of one that has failed, is dropped.
        first.send(&FromSender::Offer(vec![file("other", 2)])).unwrap();
        assert!(matches!(first.receive().unwrap(), FromReceiver::Decisions(_)));
        let late = block(&mut joined, piece(0, BLOCK, BYTES as u32), &all[BYTES..2 * BYTES]);
        assert!(matches!(&late, Ok(FromReceiver::Took(Some(why))) if why.0.contains("not wanted")), "{late:?}");
        let kept = block(&mut first, piece(1, 0, 2), b"ab").unwrap();
        assert!(matches!(kept, FromReceiver::Verdicts(_)), "{kept:?}");
    });
    assert!(events.iter().any(|event| matches!(event, Event::Unkept(_, crate::Error::Digest))), "{events:?}");
    assert_eq!(finals(&inner), (vec!["other".into()], 0));
}

#[test]
fn a_block_of_a_file_that_is_not_split_waits_for_the_end_of_the_session() {
    let (_outer, inner) = place();
    with_receiver(into(&inner), |served| {
        let (first, id) = served.split(3 * BYTES);
        let mut joined = served.join(id).unwrap();
        joined.send(&FromSender::Block(piece(1, 0, BYTES as u32))).unwrap();
        drop(first);
        assert!(joined.receive::<FromReceiver>().is_err());
    });
    assert_eq!(finals(&inner), (vec![], 0));
}

#[test]
fn what_has_to_come_in_order_takes_one_stream() {
    let (_directory, paths) = sources(&[3 * BYTES]);
    let output = Destination::Output(tempfile::tempfile().unwrap());
    with_receiver(output, |served| {
        let refused = served.send(&paths, SPLIT).unwrap_err().to_string();
        assert!(refused.contains("send without --streams"), "{refused}");
    });
}

#[test]
fn a_stream_needs_the_secret_of_its_session() {
    let (_outer, inner) = place();
    let other = Secret::new(&[7; 32]).unwrap();
    with_receiver(into(&inner), |served| {
        let (_first, _id) = served.begin(2);
        let mut stream = TcpStream::connect(served.0.address().unwrap()).unwrap();
        let handshake = Handshake { protocol: &PROTOCOL, secret: &other, deadline: Deadline::within(LONG) };
        assert!(handshake.call(&mut stream).is_err());
    });
}
