//! Several streams of one session, over real connections: whole files of any size, and streams that join and misbehave.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::wire::deadline::Deadline;
use crate::wire::handshake::Handshake;
use crate::wire::secret::Secret;

use super::{
    DEFAULT_SETTINGS, LONG_TIMEOUT, content, digest, directory_destination, file, final_names, piece, sender_options,
    target_directory,
};
use crate::blocks::BLOCK_BYTES;
use crate::message::{FilePiece, JoinRequest, ReceiverMessage, SenderMessage, SessionId, SessionSettings};
use crate::offer_policy::Destination;
use crate::receive::{Receiver, ReceiverOptions};
use crate::secure_channel::SecureChannel;
use crate::send::{SendResult, Sender};
use crate::session::SessionEvent;
use crate::session_streams::MAX_STREAMS;
use crate::source::{PreserveOptions, SourceList};
use crate::{PROTOCOL, Result};

const BYTES: usize = BLOCK_BYTES as usize;
const SPLIT: SessionSettings = SessionSettings { streams: 4, ..DEFAULT_SETTINGS };

/// A receiver that serves a test.
pub(super) struct TestReceiver<'a>(pub(super) &'a Receiver);

/// Runs a test with a receiver, which has ended when this returns; what happened there.
pub(super) fn with_receiver(destination: Destination, test: impl FnOnce(&TestReceiver<'_>)) -> Vec<SessionEvent> {
    with_receiver_options(
        ReceiverOptions { leave: super::MAY_OVERWRITE, ..ReceiverOptions::default() },
        destination,
        test,
    )
}

/// Like `with_receiver`, with one that receives in some manner.
pub(super) fn with_receiver_options(
    options: ReceiverOptions,
    destination: Destination,
    test: impl FnOnce(&TestReceiver<'_>),
) -> Vec<SessionEvent> {
    let events = std::sync::Arc::new(Mutex::new(Vec::new()));
    let (event_log, is_over) = (std::sync::Arc::clone(&events), AtomicBool::new(false));
    let on_event = Box::new(move |_, event| event_log.lock().unwrap().push(event));
    let address = "127.0.0.1:0".parse().unwrap();
    let receiver = Receiver::listen(address, destination, Secret::none(), options, on_event).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| receiver.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(&TestReceiver(&receiver));
        }));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
    drop(receiver);
    std::mem::take(&mut *events.lock().unwrap())
}

impl TestReceiver<'_> {
    fn send(&self, paths: &[PathBuf], settings: SessionSettings) -> Result<SendResult> {
        let options = sender_options(settings);
        let collection =
            SourceList::collect(paths, PreserveOptions { recursive: true, ..PreserveOptions::default() }).unwrap();
        Sender::connect(&[self.0.address().unwrap()], &Secret::none(), options)?.send(collection, &|_, _| {})
    }

    /// A connection that may send anything.
    pub(super) fn connect(&self) -> SecureChannel {
        let mut stream = TcpStream::connect(self.0.address().unwrap()).unwrap();
        let secret = Secret::none();
        let handshake = Handshake { protocol: &PROTOCOL, secret: &secret, deadline: Deadline::within(LONG_TIMEOUT) };
        let halves = handshake.connect(&mut stream).unwrap();
        SecureChannel::new(stream, halves).unwrap()
    }

    /// The first stream of a session, which may be joined by this many others.
    pub(super) fn begin(&self, streams: u32) -> (SecureChannel, SessionId) {
        let mut channel = self.connect();
        channel.send(&SenderMessage::Begin(SessionSettings { streams, ..DEFAULT_SETTINGS })).unwrap();
        let ReceiverMessage::Session(id) = channel.receive().unwrap() else { panic!("no session") };
        (channel, id)
    }

    /// Like `begin`, with a large file, that is split.
    pub(super) fn split(&self, bytes: usize) -> (SecureChannel, SessionId) {
        let (mut channel, id) = self.begin(MAX_STREAMS);
        channel.send(&SenderMessage::Offer(vec![file("large", bytes as u64)])).unwrap();
        assert!(matches!(channel.receive().unwrap(), ReceiverMessage::Decisions(decisions) if decisions.len() == 1));
        channel.send(&SenderMessage::Split(0)).unwrap();
        (channel, id)
    }

    pub(super) fn join(&self, id: SessionId) -> Result<SecureChannel> {
        let mut channel = self.connect();
        channel.send(&SenderMessage::Join(JoinRequest { session: id, file: None }))?;
        let answer: ReceiverMessage = channel.receive()?;
        assert_eq!(answer, ReceiverMessage::BlockWritten(None));
        Ok(channel)
    }
}

/// Sends a block, and receives what becomes of it.
fn block(channel: &mut SecureChannel, piece: FilePiece, content: &[u8]) -> Result<ReceiverMessage> {
    channel.queue(&SenderMessage::Block(piece))?;
    channel.send_data(content)?;
    channel.send(&SenderMessage::Digests(vec![digest(content)]))?;
    channel.receive()
}

fn is_written(answer: &Result<ReceiverMessage>) -> bool {
    matches!(answer, Ok(ReceiverMessage::BlockWritten(None)))
}

/// Files of these sizes, in a directory of their own.
pub(super) fn sources(sizes: &[usize]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let make_file = |(number, bytes): (usize, &usize)| {
        let path = directory.path().join(format!("{number}"));
        fs::write(&path, content(*bytes, number as u32)).unwrap();
        path
    };
    let paths = sizes.iter().enumerate().map(make_file).collect();
    (directory, paths)
}

pub(super) fn assert_equal_files(paths: &[PathBuf], target: &Path) {
    for path in paths {
        let arrived = target.join(path.file_name().unwrap());
        assert!(fs::read(path).unwrap() == fs::read(&arrived).unwrap(), "{} differs", arrived.display());
    }
}

#[test]
fn parallel_streams_deliver_whole_files() {
    let sizes = [0, 1, BYTES - 1, BYTES, BYTES + 1, 2 * BYTES, 2 * BYTES + 1, 3 * BYTES - 1, 5 * BYTES + 77];
    let (_directory, paths) = sources(&sizes);
    let total_bytes: u64 = sizes.iter().map(|bytes| *bytes as u64).sum();
    for (streams, plain, verify) in [(1, false, true), (2, true, true), (4, false, true), (MAX_STREAMS, true, false)] {
        let (_outer, inner) = target_directory();
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let sent = receiver.send(&paths, SessionSettings { streams, plain, verify, ..DEFAULT_SETTINGS }).unwrap();
            assert_eq!((sent.summary.moved.amount.moved, sent.summary.streams), (total_bytes, streams));
            assert!(sent.unsent.is_empty());
        });
        assert_equal_files(&paths, &inner);
        assert_eq!(final_names(&inner).1, 0);
        let summary = events
            .iter()
            .find_map(|event| if let SessionEvent::Finished(summary) = event { Some(summary) } else { None });
        let moved = summary.map(|summary| (summary.moved.amount.moved, summary.streams));
        assert_eq!(moved, Some((total_bytes, streams)), "{events:?}");
        assert!(!events.iter().any(|event| matches!(event, SessionEvent::Fault(_))), "{events:?}");
    }
}

#[test]
fn concurrent_senders_use_parallel_streams() {
    let (_directory, paths) = sources(&[5 * BYTES + 1, 4 * BYTES, 6 * BYTES + 3, 3 * BYTES]);
    let (_outer, inner) = target_directory();
    with_receiver(directory_destination(&inner), |receiver| {
        std::thread::scope(|scope| {
            for path in &paths {
                scope.spawn(|| receiver.send(std::slice::from_ref(path), SPLIT).unwrap());
            }
        });
    });
    assert_equal_files(&paths, &inner);
    assert_eq!(final_names(&inner).1, 0);
}

#[test]
fn parallel_transfer_resumes_partial_file() {
    let bytes = 6 * BYTES + 9;
    let (_directory, paths) = sources(&[bytes]);
    let (_outer, inner) = target_directory();
    let collection = SourceList::collect(&paths, PreserveOptions::default()).unwrap();
    let data = content(bytes, 0);
    super::leave_part(
        &inner,
        &collection.sources[0].entry,
        &[&data[..2 * BYTES], &[0; 5], &data[2 * BYTES + 5..]].concat(),
    );
    with_receiver(directory_destination(&inner), |receiver| {
        let amount = receiver.send(&paths, SPLIT).unwrap().summary.moved.amount;
        assert_eq!((amount.moved, amount.resumed), (BLOCK_BYTES, 5 * BLOCK_BYTES + 9));
    });
    let truncated = &data[..3 * BYTES];
    fs::remove_file(inner.join("0")).unwrap();
    super::leave_part(&inner, &collection.sources[0].entry, truncated);
    with_receiver(directory_destination(&inner), |receiver| {
        let amount = receiver.send(&paths, SPLIT).unwrap().summary.moved.amount;
        assert_eq!((amount.moved, amount.resumed), (3 * BLOCK_BYTES + 9, 3 * BLOCK_BYTES));
    });
    assert_equal_files(&paths, &inner);
}

#[test]
fn transfer_resumes_after_first_stream_cut() {
    let data = content(6 * BYTES, 1);
    let (_outer, inner) = target_directory();
    for arrived in 1..5 {
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let (first, id) = receiver.split(data.len());
            let mut stream = receiver.join(id).unwrap();
            for number in 0..arrived {
                let range = number * BYTES..(number + 1) * BYTES;
                let answer = block(&mut stream, piece(0, range.start as u64, BYTES as u32), &data[range]);
                assert!(is_written(&answer), "{answer:?}");
            }
            drop(first);
            // The end of the session is the end of all its streams.
            assert!(stream.receive::<ReceiverMessage>().is_err());
        });
        assert!(events.iter().any(|event| matches!(event, SessionEvent::PartKept(_))), "{events:?}");
        assert_eq!(final_names(&inner), (vec![], 1));
        fs::read_dir(&inner).unwrap().for_each(|part| fs::remove_file(part.unwrap().path()).unwrap());
    }
}

#[test]
fn changing_source_is_not_whole() {
    let (_directory, paths) = sources(&[40 * BYTES]);
    let (_outer, inner) = target_directory();
    with_receiver(directory_destination(&inner), |receiver| {
        let collection = SourceList::collect(&paths, PreserveOptions::default()).unwrap();
        let options = sender_options(SPLIT);
        let sender = Sender::connect(&[receiver.0.address().unwrap()], &Secret::none(), options).unwrap();
        let is_cut = std::cell::Cell::new(false);
        let cut = |bytes, _| {
            if bytes > BLOCK_BYTES && !is_cut.replace(true) {
                fs::File::options().write(true).open(&paths[0]).unwrap().set_len(BLOCK_BYTES).unwrap();
            }
        };
        let sent = sender.send(collection, &cut).unwrap();
        assert!(
            matches!(&sent.unsent[..], [unsent_file] if unsent_file.why.to_string().contains("changed")),
            "{:?}",
            sent.unsent
        );
    });
    assert_eq!(final_names(&inner), (vec![], 0));
}

#[test]
fn join_of_unknown_or_full_session_fails() {
    let (_outer, inner) = target_directory();
    let events = with_receiver(directory_destination(&inner), |receiver| {
        assert!(receiver.join([7; 32]).is_err());
        let (_first, id) = receiver.begin(2);
        let _second = receiver.join(id).unwrap();
        assert!(receiver.join(id).is_err());
        let (first, id) = receiver.begin(u32::MAX);
        let mut streams: Vec<_> = (1..MAX_STREAMS).map(|_| receiver.join(id).unwrap()).collect();
        assert!(receiver.join(id).is_err());
        drop(first);
        assert!(streams[0].receive::<ReceiverMessage>().is_err());
        assert!(receiver.join(id).is_err(), "the session has ended");
    });
    let faults =
        events.iter().filter(|event| matches!(event, SessionEvent::Fault(crate::Error::ProtocolViolation(_)))).count();
    assert_eq!(faults, 4, "{events:?}");
}

#[test]
fn invalid_block_ends_stream() {
    let bytes = 3 * BYTES + 5;
    let data = content(bytes, 1);
    let block_bytes = BYTES as u32;
    let pieces = [
        piece(0, 1, block_bytes),
        piece(0, 0, block_bytes - 1),
        piece(0, 0, block_bytes + 1),
        piece(0, 3 * BLOCK_BYTES, 6),
        piece(0, 4 * BLOCK_BYTES, 1),
        piece(0, u64::MAX, 1),
        piece(0, 0, u32::MAX),
    ];
    for invalid_piece in pieces {
        let (_outer, inner) = target_directory();
        with_receiver(directory_destination(&inner), |receiver| {
            let (_first, id) = receiver.split(bytes);
            let mut stream = receiver.join(id).unwrap();
            stream.send(&SenderMessage::Block(invalid_piece)).unwrap();
            assert!(stream.receive::<ReceiverMessage>().is_err(), "{invalid_piece:?}");
        });
        assert_eq!(final_names(&inner).0, Vec::<String>::new());
    }
    let (_outer, inner) = target_directory();
    with_receiver(directory_destination(&inner), |receiver| {
        let (_first, id) = receiver.split(bytes);
        for message in [
            SenderMessage::End,
            SenderMessage::Begin(DEFAULT_SETTINGS),
            SenderMessage::Join(JoinRequest { session: id, file: None }),
            SenderMessage::Hole(piece(0, 0, 1)),
        ] {
            let mut stream = receiver.join(id).unwrap();
            stream.send(&message).unwrap();
            assert!(stream.receive::<ReceiverMessage>().is_err(), "{message:?}");
        }
        let mut stream = receiver.join(id).unwrap();
        assert!(is_written(&block(&mut stream, piece(0, 0, block_bytes), &data[..BYTES])));
        assert!(block(&mut stream, piece(0, 0, block_bytes), &data[..BYTES]).is_err(), "a block twice");
    });
    assert_eq!(final_names(&inner).0, Vec::<String>::new());
}

#[test]
fn duplicate_block_is_refused() {
    let data = content(3 * BYTES, 1);
    let (_outer, inner) = target_directory();
    let events = with_receiver(directory_destination(&inner), |receiver| {
        let (mut first, id) = receiver.split(data.len());
        let mut stream = receiver.join(id).unwrap();
        assert!(is_written(&block(&mut stream, piece(0, 0, BYTES as u32), &data[..BYTES])));
        assert!(block(&mut first, piece(0, 0, BYTES as u32), &data[..BYTES]).is_err());
        assert!(stream.receive::<ReceiverMessage>().is_err());
    });
    let words = "bytes of a file out of order";
    assert!(
        events.iter().any(|event| matches!(event, SessionEvent::Fault(why) if why.to_string().contains(words))),
        "{events:?}"
    );
}

#[test]
fn wrong_block_fails_only_its_file() {
    let data = content(3 * BYTES, 1);
    let (_outer, inner) = target_directory();
    let events = with_receiver(directory_destination(&inner), |receiver| {
        let (mut first, id) = receiver.split(data.len());
        let mut stream = receiver.join(id).unwrap();
        stream.queue(&SenderMessage::Block(piece(0, 0, BYTES as u32))).unwrap();
        stream.send_data(&data[..BYTES]).unwrap();
        stream.send(&SenderMessage::Digests(vec![[1; 32]])).unwrap();
        let answer: ReceiverMessage = stream.receive().unwrap();
        assert!(matches!(&answer, ReceiverMessage::BlockWritten(Some(why)) if why.0.contains("BLAKE3")), "{answer:?}");
        first.send(&SenderMessage::Abandoned { file: 0, why: "as it says".into() }).unwrap();
        // What comes after the end of the file, or of one that has failed, is dropped.
        first.send(&SenderMessage::Offer(vec![file("other", 2)])).unwrap();
        assert!(matches!(first.receive().unwrap(), ReceiverMessage::Decisions(_)));
        let late = block(&mut stream, piece(0, BLOCK_BYTES, BYTES as u32), &data[BYTES..2 * BYTES]);
        assert!(
            matches!(&late, Ok(ReceiverMessage::BlockWritten(Some(why))) if why.0.contains("not wanted")),
            "{late:?}"
        );
        let verdicts = block(&mut first, piece(1, 0, 2), b"ab").unwrap();
        assert!(matches!(verdicts, ReceiverMessage::Verdicts(_)), "{verdicts:?}");
    });
    assert!(
        events.iter().any(|event| matches!(event, SessionEvent::FileFailed(_, crate::Error::DigestMismatch))),
        "{events:?}"
    );
    assert_eq!(final_names(&inner), (vec!["other".into()], 0));
}

#[test]
fn block_of_unsplit_file_waits() {
    let (_outer, inner) = target_directory();
    with_receiver(directory_destination(&inner), |receiver| {
        let (first, id) = receiver.split(3 * BYTES);
        let mut stream = receiver.join(id).unwrap();
        stream.send(&SenderMessage::Block(piece(1, 0, BYTES as u32))).unwrap();
        drop(first);
        assert!(stream.receive::<ReceiverMessage>().is_err());
    });
    assert_eq!(final_names(&inner), (vec![], 0));
}

#[test]
fn ordered_destination_takes_one_stream() {
    let (_directory, paths) = sources(&[3 * BYTES]);
    let output = Destination::Output(tempfile::tempfile().unwrap());
    with_receiver(output, |receiver| {
        let refused = receiver.send(&paths, SPLIT).unwrap_err().to_string();
        assert!(refused.contains("send without --streams"), "{refused}");
    });
}

#[test]
fn joining_stream_needs_secret() {
    let (_outer, inner) = target_directory();
    let other_secret = Secret::new(&[7; 32]).unwrap();
    with_receiver(directory_destination(&inner), |receiver| {
        let (_first, _id) = receiver.begin(2);
        let mut stream = TcpStream::connect(receiver.0.address().unwrap()).unwrap();
        let handshake =
            Handshake { protocol: &PROTOCOL, secret: &other_secret, deadline: Deadline::within(LONG_TIMEOUT) };
        assert!(handshake.connect(&mut stream).is_err());
    });
}
