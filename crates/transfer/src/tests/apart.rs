//! A connection for each file, over real ones: whole files whatever their size and method, and connections that join and misbehave.

use std::fs;
use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::streams::{Served, are_equal, sources, with_receiver};
use super::{Hostile, SETTINGS, content, digest, file, finals, into, leave_part, piece, place};
use crate::bare::Connection;
use crate::blocks::BLOCK;
use crate::channel::Channel;
use crate::decide::Destination;
use crate::joined::{STREAMS, SessionId};
use crate::message::{FromReceiver, FromSender, Join, Number, Reason, Settings, Whole};
use crate::moving::{Mode, SendMethod, SendSetup};
use crate::send::{self, Sender, Sent};
use crate::session::Event;
use crate::source::{Collection, Keep};
use crate::{Error, Result};

const BYTES: usize = BLOCK as usize;
const APART: Settings = Settings { connection: Connection::PerFile, ..SETTINGS };
/// Around the bounds of what goes together, and of blocks.
const SIZES: [usize; 9] = [0, 1, 65_536, 65_537, BYTES - 1, BYTES, BYTES + 1, 2 * BYTES, 3 * BYTES + 77];

fn setup(method: SendMethod) -> SendSetup {
    let mode = if method == SendMethod::Uring { Mode::Uring } else { Mode::Blocking };
    SendSetup { method, mode, buffer: 64 << 10, window: 16, patience: Duration::from_secs(120) }
}

fn send_by(served: &Served<'_>, paths: &[PathBuf], manner: send::Manner) -> Result<Sent> {
    let collection = Collection::of(paths, Keep { recursive: true, ..Keep::default() }).unwrap();
    let (address, secret) = (served.0.address().unwrap(), kelvin_wire::secret::Secret::none());
    Sender::connect(&[address], &secret, manner)?.send(collection, &|_, _| {})
}

fn manner(settings: Settings) -> send::Manner {
    send::Manner { settings, acknowledge: false, limit: None, moving: None, choose: None }
}

/// The first connection of a session with these files, all of which are wanted.
fn begin(served: &Served<'_>, sizes: &[usize]) -> (Channel, SessionId) {
    let mut channel = served.connect();
    channel.send(&FromSender::Begin(APART)).unwrap();
    let FromReceiver::Session(id) = channel.receive().unwrap() else { panic!("no session") };
    let entries = sizes.iter().enumerate().map(|(number, bytes)| file(&format!("{number}"), *bytes as u64));
    channel.send(&FromSender::Offer(entries.collect())).unwrap();
    assert!(matches!(channel.receive().unwrap(), FromReceiver::Decisions(all) if all.len() == sizes.len()));
    (channel, id)
}

/// A connection that says that it joins; whether it is let in, it learns later.
fn join(served: &Served<'_>, session: SessionId, file: Option<Number>) -> Channel {
    let mut channel = served.connect();
    channel.send(&FromSender::Join(Join { session, file })).unwrap();
    channel
}

/// Whether the other end closes a connection without a word.
fn is_closed(mut channel: Channel) -> bool {
    channel.receive::<FromReceiver>().is_err()
}

/// The faults of sessions and of those who would join, in words.
fn faults(events: &[Event]) -> String {
    let fault = |event: &Event| if let Event::Fault(why) = event { Some(why.to_string()) } else { None };
    events.iter().filter_map(fault).collect::<Vec<_>>().join("\n")
}

#[test]
fn files_of_any_size_arrive_whole_by_any_method() {
    let (_directory, paths) = sources(&SIZES);
    let plain = Settings { plain: true, ..APART };
    let by = |method| send::Manner { moving: Some(setup(method)), ..manner(plain) };
    let manners = [
        manner(APART),
        send::Manner { acknowledge: true, ..manner(APART) },
        manner(Settings { sync: true, ..plain }),
        manner(Settings { verify: false, ..plain }),
        by(SendMethod::ReadWrite),
        by(SendMethod::Mmap),
        by(SendMethod::Sendfile),
        by(SendMethod::Splice),
        by(SendMethod::ZeroCopy),
        by(SendMethod::Uring),
    ];
    for manner in manners {
        let (_outer, inner) = place();
        let events = with_receiver(into(&inner), |served| {
            let sent = send_by(served, &paths, manner).unwrap();
            let summary = sent.summary;
            assert!(sent.unsent.is_empty(), "{manner:?}: {:?}", sent.unsent);
            assert_eq!((summary.moved.files, summary.streams), (SIZES.len() as u64, 1));
            assert!(summary.to_string().contains(", over a connection for each file, "), "{summary}");
        });
        are_equal(&paths, &inner);
        assert_eq!((finals(&inner).1, faults(&events).as_str()), (0, ""), "{manner:?}");
    }
}

/// Passes on what comes until it ends.
fn pass(from: &TcpStream, to: &TcpStream) {
    // Either side may end as it likes.
    let _ = copy(&mut &*from, &mut &*to);
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn each_file_has_one_connection_and_the_session_one_more() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir(&tree).unwrap();
    (0..300).for_each(|number| fs::write(tree.join(format!("{number}")), content(number, 3)).unwrap());
    fs::write(tree.join("large"), content(BYTES, 1)).unwrap();
    let (_outer, inner) = place();
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = between.local_addr().unwrap();
    let passed = AtomicUsize::new(0);
    with_receiver(into(&inner), |served| {
        let to = served.0.address().unwrap();
        let collection = Collection::of(&[tree], Keep { recursive: true, ..Keep::default() }).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..302 {
                    let (near, far) = (between.accept().unwrap().0, TcpStream::connect(to).unwrap());
                    passed.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(move || {
                        std::thread::scope(|both| {
                            both.spawn(|| pass(&near, &far));
                            pass(&far, &near);
                        });
                    });
                }
            });
            let sender = Sender::connect(&[address], &kelvin_wire::secret::Secret::none(), manner(APART)).unwrap();
            let sent = sender.send(collection, &|_, _| {}).unwrap();
            assert_eq!((sent.summary.moved.files, sent.unsent.len()), (301, 0));
        });
    });
    assert_eq!(passed.into_inner(), 302);
    assert_eq!(finals(&inner.join("tree")).0.len(), 301);
}

#[test]
fn a_file_is_gone_on_with_whichever_connection_was_cut() {
    let all = content(3 * BYTES, 0);
    for cuts_first in [false, true] {
        let (_directory, paths) = sources(&[3 * BYTES]);
        let (_outer, inner) = place();
        let collection = Collection::of(&paths, Keep::default()).unwrap();
        leave_part(&inner, &collection.sources[0].entry, &all[..BYTES]);
        let events = with_receiver(into(&inner), |served| {
            let mut first = served.connect();
            first.send(&FromSender::Begin(APART)).unwrap();
            let FromReceiver::Session(id) = first.receive().unwrap() else { panic!("no session") };
            first.send(&FromSender::Offer(vec![collection.sources[0].entry.clone()])).unwrap();
            assert!(matches!(first.receive().unwrap(), FromReceiver::Decisions(_)));
            assert!(matches!(first.receive().unwrap(), FromReceiver::Have { .. }));
            let mut own = join(served, id, Some(0));
            first.send(&FromSender::Keep { file: 0, blocks: vec![1] }).unwrap();
            first.send(&FromSender::Apart { file: 0 }).unwrap();
            own.queue(&FromSender::Block(piece(0, BLOCK, BLOCK as u32))).unwrap();
            own.send_data(&all[BYTES..2 * BYTES]).unwrap();
            own.send(&FromSender::Digests(vec![digest(&all[BYTES..2 * BYTES])])).unwrap();
            let (cut, other) = if cuts_first { (first, own) } else { (own, first) };
            drop(cut);
            if cuts_first {
                // What the session waits for is its file's connection. Its end is waited for: a receiver that stops drops what is on
                // the way to it.
                other.socket().unwrap().unwrap().shutdown(Shutdown::Write).unwrap();
            }
            assert!(is_closed(other));
        });
        assert!(events.iter().any(|event| matches!(event, Event::Left(_))), "{events:?}");
        with_receiver(into(&inner), |served| {
            let amount = send_by(served, &paths, manner(APART)).unwrap().summary.moved.amount;
            assert_eq!((amount.moved, amount.resumed), (BLOCK, 2 * BLOCK));
        });
        are_equal(&paths, &inner);
        assert_eq!(finals(&inner).1, 0);
    }
}

#[test]
fn a_source_that_became_shorter_costs_only_itself() {
    let (_directory, paths) = sources(&[2 * BYTES, 5, 2 * BYTES]);
    let (_outer, inner) = place();
    with_receiver(into(&inner), |served| {
        let collection = Collection::of(&paths, Keep::default()).unwrap();
        fs::File::options().write(true).open(&paths[0]).unwrap().set_len(BLOCK).unwrap();
        fs::File::options().write(true).open(&paths[1]).unwrap().set_len(2).unwrap();
        let (address, secret) = (served.0.address().unwrap(), kelvin_wire::secret::Secret::none());
        let sent = Sender::connect(&[address], &secret, manner(APART)).unwrap().send(collection, &|_, _| {}).unwrap();
        assert_eq!((sent.unsent.len(), sent.summary.moved.files), (2, 1), "{:?}", sent.unsent);
    });
    are_equal(&paths[2..], &inner);
    assert_eq!(finals(&inner), (vec!["2".into()], 0));
}

#[test]
fn whoever_joins_otherwise_than_the_session_has_it_is_not_heard() {
    let (_outer, inner) = place();
    let events = with_receiver(into(&inner), |served| {
        assert!(is_closed(join(served, [7; 32], Some(0))));
        let (_streams, id) = served.begin(2);
        assert!(is_closed(join(served, id, Some(0))));
        let (first, id) = begin(served, &[5; 9]);
        assert!(is_closed(join(served, id, None)));
        let mut all: Vec<_> = (0..STREAMS - 1).map(|number| join(served, id, Some(number))).collect();
        all.push(join(served, id, Some(STREAMS)));
        // Any of them may be the one that has come last.
        while !all.iter_mut().any(|one| one.received::<FromReceiver>().is_err()) {
            std::thread::yield_now();
        }
        drop(first);
        assert!(all.into_iter().all(is_closed), "the end of the session is that of all its connections");
        assert!(is_closed(join(served, id, Some(1))), "the session has ended");
    });
    let strangers = events.iter().filter(|event| matches!(event, Event::Fault(Error::Nonsense(_)))).count();
    assert_eq!(strangers, 5, "{events:?}");
    assert_eq!(finals(&inner), (vec![], 0));
}

#[test]
fn what_a_connection_of_a_file_may_not_say_ends_its_session() {
    let wrong = [
        FromSender::Offer(vec![file("other", 1)]),
        FromSender::Split { file: 0 },
        FromSender::Apart { file: 0 },
        FromSender::Keep { file: 0, blocks: vec![1] },
        FromSender::Begin(APART),
        FromSender::Batch { files: vec![Whole { file: 1, bytes: 0 }], digest: Some(digest(b"")) },
    ];
    for wrong in wrong {
        let (_outer, inner) = place();
        let events = with_receiver(into(&inner), |served| {
            let (mut first, id) = begin(served, &[5]);
            let mut own = join(served, id, Some(0));
            first.send(&FromSender::Apart { file: 0 }).unwrap();
            own.send(&wrong).unwrap();
            assert!(is_closed(own) && is_closed(first), "{wrong:?}");
        });
        assert!(faults(&events).contains("breaks the protocol"), "{wrong:?}: {events:?}");
        assert_eq!(finals(&inner), (vec![], 0));
    }
}

#[test]
fn a_session_waits_for_no_connection_that_does_not_come() {
    let (_outer, inner) = place();
    let events = with_receiver(into(&inner), |served| {
        let (mut first, id) = begin(served, &[5, 5]);
        let _other = join(served, id, Some(1));
        first.send(&FromSender::Apart { file: 0 }).unwrap();
        let FromReceiver::Refused(Reason(why)) = first.receive().unwrap() else { panic!("no reason") };
        assert!(why.contains("did not send anything") && is_closed(first), "{why}");
    });
    assert!(faults(&events).contains("did not send anything"), "{}", faults(&events));
}

#[test]
fn one_connection_alone_splits_nothing_and_none_is_split_apart() {
    let words = |message: &FromSender, settings| {
        let (_outer, inner) = place();
        let events = with_receiver(into(&inner), |served| {
            let mut first = served.connect();
            first.send(&FromSender::Begin(settings)).unwrap();
            first.send(message).unwrap();
            while first.receive::<FromReceiver>().is_ok() {}
        });
        faults(&events)
    };
    assert!(words(&FromSender::Apart { file: 0 }, SETTINGS).contains("one connection for all files"));
    let streams = Settings { streams: 2, ..SETTINGS };
    assert!(words(&FromSender::Apart { file: 0 }, streams).contains("one connection for all files"));
    assert!(words(&FromSender::Split { file: 0 }, Settings { streams: 2, ..APART }).contains("it splits a file"));
}

#[test]
fn standard_output_takes_a_file_by_a_connection_of_its_own_and_a_kernel_end_does_not() {
    let (_directory, paths) = sources(&[3 * BYTES + 1]);
    let mut output = tempfile::tempfile().unwrap();
    with_receiver(Destination::Output(output.try_clone().unwrap()), |served| {
        assert!(send_by(served, &paths, manner(APART)).unwrap().unsent.is_empty());
    });
    let mut arrived = Vec::new();
    std::io::Seek::rewind(&mut output).unwrap();
    std::io::Read::read_to_end(&mut output, &mut arrived).unwrap();
    assert!(arrived == fs::read(&paths[0]).unwrap());
    // One without sessions that can be joined.
    let (_outer, inner) = place();
    let mut hostile = Hostile::new();
    hostile.say(&FromSender::Begin(APART));
    let refused = hostile.heard(&inner).errors();
    assert!(refused.contains("send without --connection per-file"), "{refused}");
}
