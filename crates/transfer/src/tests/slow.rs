//! Senders who say nothing, or next to nothing, over real connections: they end, are told why, and leave their places.

use std::time::{Duration, Instant};

use kelvin_sys::net::moving::Requests;
use kelvin_testing::Missing;
use kelvin_wire::Error as WireError;

use super::streams::{Served, with_receiver_of};
use super::{SETTINGS, file, finals, into, piece, place};
use crate::blocks::BLOCK;
use crate::channel::Channel;
use crate::message::{FromReceiver, FromSender, Reason, Settings};
use crate::moving::{Mode, ReceiveMethod, ReceiveSetup};
use crate::progress::MinProgress;
use crate::receive::Manner;
use crate::session::Event;
use crate::{Error, Result};

/// Far more than the senders here move.
const LEAST: MinProgress = MinProgress { bytes: 1 << 20, within: Duration::from_millis(500) };
/// What the first message alone keeps, also where the time begins before it has come: only silence is too little.
const SILENT: MinProgress = MinProgress { bytes: 1, ..LEAST };
/// The pause between two bytes.
const PAUSE: Duration = Duration::from_millis(10);

/// What happened at a receiver of one sender, by this method, while a test went on.
fn events(min_progress: MinProgress, method: Option<ReceiveMethod>, test: impl FnOnce(&Served<'_>)) -> Vec<Event> {
    let mode = if method == Some(ReceiveMethod::Uring) { Mode::Uring } else { Mode::Blocking };
    let patience = Duration::from_secs(1);
    let moving = method.map(|method| ReceiveSetup { method, mode, buffer: 64 << 10, window: 16, patience });
    let (_outer, inner) = place();
    let manner = Manner { overwrite: true, moving, min_progress, ..Manner::default() };
    let events = with_receiver_of(manner, into(&inner), test);
    // A part of a large file may be left, to be gone on with.
    assert_eq!(finals(&inner).0, [""; 0]);
    events
}

/// A sender who has begun, and whose large file is wanted.
fn begin(served: &Served<'_>, settings: Settings) -> Channel {
    let mut channel = served.connect();
    channel.send(&FromSender::Begin(settings)).unwrap();
    channel.send(&FromSender::Offer(vec![file("large", 3 * BLOCK)])).unwrap();
    assert!(matches!(channel.receive().unwrap(), FromReceiver::Decisions(one) if one.len() == 1));
    channel
}

/// Does it again and again until the other end is gone.
fn until_the_end(mut step: impl FnMut() -> Result<()>) {
    while step().is_ok() {
        std::thread::sleep(PAUSE);
    }
}

/// How the sessions ended: whether each sender was too slow. One whose thread had no CPU for long was silent meanwhile.
fn were_too_slow(events: &[Event]) -> Vec<bool> {
    let is_slow = |why: &Error| matches!(why, Error::Wire(WireError::Slow { .. } | WireError::Late { .. }));
    events.iter().filter_map(|event| if let Event::Fault(why) = event { Some(is_slow(why)) } else { None }).collect()
}

#[test]
fn plain_bytes_one_by_one_end_the_connection_by_every_method() {
    let plain = Settings { plain: true, verify: false, ..SETTINGS };
    let ring = Requests::new(0, 0).map(drop);
    if let Err(error) = &ring {
        Missing::machine(format!("no io_uring: {error}")).skips("slow senders to a receiver by uring");
    }
    let is_there = |method: &&ReceiveMethod| **method != ReceiveMethod::Uring || ring.is_ok();
    for method in [None].into_iter().chain(ReceiveMethod::ALL.iter().filter(is_there).copied().map(Some)) {
        let events = events(LEAST, method, |served| {
            let mut channel = begin(served, plain);
            channel.set_plain(true);
            channel.send(&FromSender::Block(piece(0, 0, BLOCK as u32))).unwrap();
            until_the_end(|| channel.send_data(&[7]));
        });
        assert_eq!(were_too_slow(&events), [true], "{method:?}: {events:?}");
    }
}

#[test]
fn encrypted_bytes_and_messages_one_by_one_end_it_too() {
    let faults = events(LEAST, None, |served| {
        let mut bytes = begin(served, SETTINGS);
        bytes.send(&FromSender::Block(piece(0, 0, BLOCK as u32))).unwrap();
        until_the_end(|| bytes.send_data(&[7]));
        let mut messages = begin(served, SETTINGS);
        until_the_end(|| messages.send(&FromSender::Digests(Vec::new())));
    });
    assert_eq!(were_too_slow(&faults), [true; 2], "{faults:?}");
}

#[test]
fn a_silent_sender_is_told_why_its_connection_ends() {
    let faults = events(SILENT, None, |served| {
        let mut silent = begin(served, SETTINGS);
        let FromReceiver::Refused(Reason(why)) = silent.receive().unwrap() else { panic!("no reason") };
        assert!(why.contains("did not send anything within"), "{why}");
    });
    assert_eq!(were_too_slow(&faults), [true], "{faults:?}");
}

#[test]
fn a_stream_that_has_joined_may_be_silent_while_others_are_not() {
    let least = MinProgress { bytes: 64 << 10, within: Duration::from_secs(2) };
    let events = events(least, None, |served| {
        let (mut first, session) = served.begin(2);
        let mut joined = served.join(session).unwrap();
        // Files for which there is no room.
        let entries = (0..100).map(|number| file(&format!("{number:0>250}"), 1 << 60));
        let (offer, until) = (FromSender::Offer(entries.collect()), Instant::now() + 2 * least.within);
        while Instant::now() < until {
            first.send(&offer).unwrap();
            let FromReceiver::Decisions(_) = first.receive().unwrap() else { panic!("no decisions") };
            // More than it must send, and no more files than it may offer.
            std::thread::sleep(least.within / 10);
        }
        assert!(joined.received::<FromReceiver>().unwrap().is_none());
    });
    assert_eq!(were_too_slow(&events), [false], "its end without a word is all");
}
