//! A connection for each file, over real ones: whole files of any size and by any method, and connections that join and misbehave.

use std::fs;
use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::streams::{TestReceiver, assert_equal_files, sources, with_receiver};
use super::{
    DEFAULT_SETTINGS, HostileEnd, content, digest, directory_destination, file, final_names, leave_part, piece,
    sender_options, target_directory,
};
use crate::blocks::BLOCK_BYTES;
use crate::datapath::{Mode, SendMethod, SendSetup};
use crate::message::{
    ConnectionLifetime, EntryNumber, JoinRequest, ReceiverMessage, RefusalReason, SenderMessage, SessionId,
    SessionSettings, WholeFile,
};
use crate::offer_policy::Destination;
use crate::secure_channel::SecureChannel;
use crate::send::{self, SendResult, Sender};
use crate::session::SessionEvent;
use crate::session_streams::MAX_STREAMS;
use crate::source::{PreserveOptions, SourceList};
use crate::{Error, Result};

const BYTES: usize = BLOCK_BYTES as usize;
const PER_FILE: SessionSettings = SessionSettings { connection: ConnectionLifetime::PerFile, ..DEFAULT_SETTINGS };
/// Around the bounds of what goes together, and of blocks.
const SIZES: [usize; 9] = [0, 1, 65_536, 65_537, BYTES - 1, BYTES, BYTES + 1, 2 * BYTES, 3 * BYTES + 77];

fn setup(method: SendMethod) -> SendSetup {
    let mode = if method == SendMethod::Uring { Mode::Uring } else { Mode::Blocking };
    SendSetup { method, mode, buffer: 64 << 10, window: 16, timeout: Duration::from_secs(120) }
}

fn send_by(receiver: &TestReceiver<'_>, paths: &[PathBuf], options: send::SenderOptions) -> Result<SendResult> {
    let collection =
        SourceList::collect(paths, PreserveOptions { recursive: true, ..PreserveOptions::default() }).unwrap();
    let (address, secret) = (receiver.0.address().unwrap(), crate::wire::secret::Secret::none());
    Sender::connect(&[address], &secret, options)?.send(collection, &|_, _| {})
}

/// The first connection of a session with these files, all of which are wanted.
fn begin(receiver: &TestReceiver<'_>, sizes: &[usize]) -> (SecureChannel, SessionId) {
    let mut channel = receiver.connect();
    channel.send(&SenderMessage::Begin(PER_FILE)).unwrap();
    let ReceiverMessage::Session(id) = channel.receive().unwrap() else { panic!("no session") };
    let entries = sizes.iter().enumerate().map(|(number, bytes)| file(&format!("{number}"), *bytes as u64));
    channel.send(&SenderMessage::Offer(entries.collect())).unwrap();
    assert!(matches!(channel.receive().unwrap(), ReceiverMessage::Decisions(all) if all.len() == sizes.len()));
    (channel, id)
}

/// A connection that asks to join; whether it is let in, it learns later.
fn join(receiver: &TestReceiver<'_>, session: SessionId, file: Option<EntryNumber>) -> SecureChannel {
    let mut channel = receiver.connect();
    channel.send(&SenderMessage::Join(JoinRequest { session, file })).unwrap();
    channel
}

/// Whether the other end closes a connection without a word.
fn is_closed(mut channel: SecureChannel) -> bool {
    channel.receive::<ReceiverMessage>().is_err()
}

/// The faults of sessions and of those who would join, in words.
fn faults(events: &[SessionEvent]) -> String {
    let fault = |event: &SessionEvent| if let SessionEvent::Fault(why) = event { Some(why.to_string()) } else { None };
    events.iter().filter_map(fault).collect::<Vec<_>>().join("\n")
}

#[test]
fn per_file_connections_deliver_whole_files() {
    let (_directory, paths) = sources(&SIZES);
    let plain = SessionSettings { plain: true, ..PER_FILE };
    let with_method = |method| send::SenderOptions { method: Some(setup(method)), ..sender_options(plain) };
    let option_sets = [
        sender_options(PER_FILE),
        send::SenderOptions { acknowledge: true, ..sender_options(PER_FILE) },
        sender_options(SessionSettings { sync: true, ..plain }),
        sender_options(SessionSettings { verify: false, ..plain }),
        with_method(SendMethod::ReadWrite),
        with_method(SendMethod::Mmap),
        with_method(SendMethod::Sendfile),
        with_method(SendMethod::Splice),
        with_method(SendMethod::ZeroCopy),
        with_method(SendMethod::Uring),
    ];
    for options in option_sets {
        let (_outer, inner) = target_directory();
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let sent = send_by(receiver, &paths, options).unwrap();
            let summary = sent.summary;
            assert!(sent.unsent.is_empty(), "{options:?}: {:?}", sent.unsent);
            assert_eq!((summary.moved.files, summary.streams), (SIZES.len() as u64, 1));
            assert!(summary.to_string().contains(", over a connection for each file, "), "{summary}");
        });
        assert_equal_files(&paths, &inner);
        assert_eq!((final_names(&inner).1, faults(&events).as_str()), (0, ""), "{options:?}");
    }
}

/// Passes on what comes until it ends.
fn forward(source: &TcpStream, target: &TcpStream) {
    // Either side may end as it likes.
    let _ = copy(&mut &*source, &mut &*target);
    let _ = target.shutdown(Shutdown::Write);
}

#[test]
fn one_connection_per_file_plus_control() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir(&tree).unwrap();
    (0..300).for_each(|number| fs::write(tree.join(format!("{number}")), content(number, 3)).unwrap());
    fs::write(tree.join("large"), content(BYTES, 1)).unwrap();
    let (_outer, inner) = target_directory();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let connection_count = AtomicUsize::new(0);
    with_receiver(directory_destination(&inner), |receiver| {
        let receiver_address = receiver.0.address().unwrap();
        let collection =
            SourceList::collect(&[tree], PreserveOptions { recursive: true, ..PreserveOptions::default() }).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..302 {
                    let (client, server) = (proxy.accept().unwrap().0, TcpStream::connect(receiver_address).unwrap());
                    connection_count.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(move || {
                        std::thread::scope(|pair_scope| {
                            pair_scope.spawn(|| forward(&client, &server));
                            forward(&server, &client);
                        });
                    });
                }
            });
            let sender =
                Sender::connect(&[address], &crate::wire::secret::Secret::none(), sender_options(PER_FILE)).unwrap();
            let sent = sender.send(collection, &|_, _| {}).unwrap();
            assert_eq!((sent.summary.moved.files, sent.unsent.len()), (301, 0));
        });
    });
    assert_eq!(connection_count.into_inner(), 302);
    assert_eq!(final_names(&inner.join("tree")).0.len(), 301);
}

#[test]
fn transfer_resumes_after_any_cut() {
    let data = content(3 * BYTES, 0);
    for cuts_first in [false, true] {
        let (_directory, paths) = sources(&[3 * BYTES]);
        let (_outer, inner) = target_directory();
        let collection = SourceList::collect(&paths, PreserveOptions::default()).unwrap();
        leave_part(&inner, &collection.sources[0].entry, &data[..BYTES]);
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let mut first = receiver.connect();
            first.send(&SenderMessage::Begin(PER_FILE)).unwrap();
            let ReceiverMessage::Session(id) = first.receive().unwrap() else { panic!("no session") };
            first.send(&SenderMessage::Offer(vec![collection.sources[0].entry.clone()])).unwrap();
            assert!(matches!(first.receive().unwrap(), ReceiverMessage::Decisions(_)));
            assert!(matches!(first.receive().unwrap(), ReceiverMessage::PresentBlocks { .. }));
            let mut file_channel = join(receiver, id, Some(0));
            first.send(&SenderMessage::ValidBlocks { file: 0, blocks: vec![1] }).unwrap();
            first.send(&SenderMessage::FileConnection(0)).unwrap();
            file_channel.queue(&SenderMessage::Block(piece(0, BLOCK_BYTES, BLOCK_BYTES as u32))).unwrap();
            file_channel.send_data(&data[BYTES..2 * BYTES]).unwrap();
            file_channel.send(&SenderMessage::Digests(vec![digest(&data[BYTES..2 * BYTES])])).unwrap();
            let (cut, survivor) = if cuts_first { (first, file_channel) } else { (file_channel, first) };
            drop(cut);
            if cuts_first {
                // What the session waits for is its file's connection. Its end is waited for: a receiver that stops drops what is on
                // the way to it.
                survivor.socket().unwrap().unwrap().shutdown(Shutdown::Write).unwrap();
            }
            assert!(is_closed(survivor));
        });
        assert!(events.iter().any(|event| matches!(event, SessionEvent::PartKept(_))), "{events:?}");
        with_receiver(directory_destination(&inner), |receiver| {
            let amount = send_by(receiver, &paths, sender_options(PER_FILE)).unwrap().summary.moved.amount;
            assert_eq!((amount.moved, amount.resumed), (BLOCK_BYTES, 2 * BLOCK_BYTES));
        });
        assert_equal_files(&paths, &inner);
        assert_eq!(final_names(&inner).1, 0);
    }
}

#[test]
fn shortened_source_fails_alone() {
    let (_directory, paths) = sources(&[2 * BYTES, 5, 2 * BYTES]);
    let (_outer, inner) = target_directory();
    with_receiver(directory_destination(&inner), |receiver| {
        let collection = SourceList::collect(&paths, PreserveOptions::default()).unwrap();
        fs::File::options().write(true).open(&paths[0]).unwrap().set_len(BLOCK_BYTES).unwrap();
        fs::File::options().write(true).open(&paths[1]).unwrap().set_len(2).unwrap();
        let (address, secret) = (receiver.0.address().unwrap(), crate::wire::secret::Secret::none());
        let sent = Sender::connect(&[address], &secret, sender_options(PER_FILE))
            .unwrap()
            .send(collection, &|_, _| {})
            .unwrap();
        assert_eq!((sent.unsent.len(), sent.summary.moved.files), (2, 1), "{:?}", sent.unsent);
    });
    assert_equal_files(&paths[2..], &inner);
    assert_eq!(final_names(&inner), (vec!["2".into()], 0));
}

#[test]
fn mismatched_join_is_refused() {
    let (_outer, inner) = target_directory();
    let events = with_receiver(directory_destination(&inner), |receiver| {
        assert!(is_closed(join(receiver, [7; 32], Some(0))));
        let (_streams, id) = receiver.begin(2);
        assert!(is_closed(join(receiver, id, Some(0))));
        let (first, id) = begin(receiver, &[5; 9]);
        assert!(is_closed(join(receiver, id, None)));
        let mut channels: Vec<_> = (0..MAX_STREAMS - 1).map(|number| join(receiver, id, Some(number))).collect();
        channels.push(join(receiver, id, Some(MAX_STREAMS)));
        // Any of them may be the one that has come last.
        while !channels.iter_mut().any(|channel| channel.try_receive::<ReceiverMessage>().is_err()) {
            std::thread::yield_now();
        }
        drop(first);
        assert!(channels.into_iter().all(is_closed), "the end of the session is that of all its connections");
        assert!(is_closed(join(receiver, id, Some(1))), "the session has ended");
    });
    let strangers =
        events.iter().filter(|event| matches!(event, SessionEvent::Fault(Error::ProtocolViolation(_)))).count();
    assert_eq!(strangers, 5, "{events:?}");
    assert_eq!(final_names(&inner), (vec![], 0));
}

#[test]
fn invalid_file_connection_message_ends_session() {
    let messages = [
        SenderMessage::Offer(vec![file("other", 1)]),
        SenderMessage::Split(0),
        SenderMessage::FileConnection(0),
        SenderMessage::ValidBlocks { file: 0, blocks: vec![1] },
        SenderMessage::Begin(PER_FILE),
        SenderMessage::Batch { files: vec![WholeFile { file: 1, bytes: 0 }], digest: Some(digest(b"")) },
    ];
    for message in messages {
        let (_outer, inner) = target_directory();
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let (mut first, id) = begin(receiver, &[5]);
            let mut file_channel = join(receiver, id, Some(0));
            first.send(&SenderMessage::FileConnection(0)).unwrap();
            file_channel.send(&message).unwrap();
            assert!(is_closed(file_channel) && is_closed(first), "{message:?}");
        });
        assert!(faults(&events).contains("breaks the protocol"), "{message:?}: {events:?}");
        assert_eq!(final_names(&inner), (vec![], 0));
    }
}

#[test]
fn missing_file_connection_times_out() {
    let (_outer, inner) = target_directory();
    let events = with_receiver(directory_destination(&inner), |receiver| {
        let (mut first, id) = begin(receiver, &[5, 5]);
        let _second_channel = join(receiver, id, Some(1));
        first.send(&SenderMessage::FileConnection(0)).unwrap();
        let ReceiverMessage::Refused(RefusalReason(why)) = first.receive().unwrap() else { panic!("no reason") };
        assert!(why.contains("did not send anything") && is_closed(first), "{why}");
    });
    assert!(faults(&events).contains("did not send anything"), "{}", faults(&events));
}

#[test]
fn per_file_connections_never_split() {
    let words = |message: &SenderMessage, settings| {
        let (_outer, inner) = target_directory();
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let mut first = receiver.connect();
            first.send(&SenderMessage::Begin(settings)).unwrap();
            first.send(message).unwrap();
            while first.receive::<ReceiverMessage>().is_ok() {}
        });
        faults(&events)
    };
    assert!(words(&SenderMessage::FileConnection(0), DEFAULT_SETTINGS).contains("one connection for all files"));
    let streams = SessionSettings { streams: 2, ..DEFAULT_SETTINGS };
    assert!(words(&SenderMessage::FileConnection(0), streams).contains("one connection for all files"));
    assert!(words(&SenderMessage::Split(0), SessionSettings { streams: 2, ..PER_FILE }).contains("it splits a file"));
}

#[test]
fn stdout_accepts_per_file_connection() {
    let (_directory, paths) = sources(&[3 * BYTES + 1]);
    let mut output = tempfile::tempfile().unwrap();
    with_receiver(Destination::Output(output.try_clone().unwrap()), |receiver| {
        assert!(send_by(receiver, &paths, sender_options(PER_FILE)).unwrap().unsent.is_empty());
    });
    let mut arrived = Vec::new();
    std::io::Seek::rewind(&mut output).unwrap();
    std::io::Read::read_to_end(&mut output, &mut arrived).unwrap();
    assert!(arrived == fs::read(&paths[0]).unwrap());
    // One without sessions that can be joined.
    let (_outer, inner) = target_directory();
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::Begin(PER_FILE));
    let refused = hostile.run_session(&inner).errors();
    assert!(refused.contains("send without --connection per-file"), "{refused}");
}
