//! Senders that send nothing, or almost nothing, over real connections: they end, receive the reason, and leave their places.

use std::time::{Duration, Instant};

use kelvin_sys::net::transfer_call::TransferRing;
use kelvin_testing::MissingRequirement;

use super::streams::{TestReceiver, with_receiver_options};
use super::{DEFAULT_SETTINGS, directory_destination, file, final_names, piece, target_directory};
use crate::blocks::BLOCK_BYTES;
use crate::datapath::{Mode, ReceiveMethod, ReceiveSetup};
use crate::message::{ReceiverMessage, RefusalReason, SenderMessage, SessionSettings};
use crate::progress::MinProgress;
use crate::receive::ReceiverOptions;
use crate::secure_channel::SecureChannel;
use crate::session::SessionEvent;
use crate::{Error, Result};

/// Far more than the senders here move.
const MIN_PROGRESS: MinProgress = MinProgress { bytes: 1 << 20, interval: Duration::from_millis(500) };
/// What the first message alone keeps, also where the time begins before it has come: only silence is too little.
const MIN_ONE_BYTE: MinProgress = MinProgress { bytes: 1, ..MIN_PROGRESS };
/// The pause between two bytes.
const PAUSE: Duration = Duration::from_millis(10);

/// What happened at a receiver of one sender, by this method, while a test went on.
fn events(
    min_progress: MinProgress,
    method: Option<ReceiveMethod>,
    test: impl FnOnce(&TestReceiver<'_>),
) -> Vec<SessionEvent> {
    let mode = if method == Some(ReceiveMethod::Uring) { Mode::Uring } else { Mode::Blocking };
    let timeout = Duration::from_secs(1);
    let setup = method.map(|method| ReceiveSetup { method, mode, buffer: 64 << 10, window: 16, timeout });
    let (_outer, inner) = target_directory();
    let options =
        ReceiverOptions { leave: super::MAY_OVERWRITE, method: setup, min_progress, ..ReceiverOptions::default() };
    let events = with_receiver_options(options, directory_destination(&inner), test);
    // A part of a large file may be left, to be gone on with.
    assert_eq!(final_names(&inner).0, [""; 0]);
    events
}

/// A sender who has begun, and whose large file is wanted.
fn begin(receiver: &TestReceiver<'_>, settings: SessionSettings) -> SecureChannel {
    let mut channel = receiver.connect();
    channel.send(&SenderMessage::Begin(settings)).unwrap();
    channel.send(&SenderMessage::Offer(vec![file("large", 3 * BLOCK_BYTES)])).unwrap();
    assert!(matches!(channel.receive().unwrap(), ReceiverMessage::Decisions(decisions) if decisions.len() == 1));
    channel
}

/// Does it again and again until the other end is gone.
fn repeat_until_error(mut step: impl FnMut() -> Result<()>) {
    while step().is_ok() {
        std::thread::sleep(PAUSE);
    }
}

/// How the sessions ended: whether each sender was too slow. One whose thread had no CPU for long was silent meanwhile.
fn slow_faults(events: &[SessionEvent]) -> Vec<bool> {
    let is_slow = |why: &Error| matches!(why, Error::TooSlow { .. } | Error::TimedOut { .. });
    events
        .iter()
        .filter_map(|event| if let SessionEvent::Fault(why) = event { Some(is_slow(why)) } else { None })
        .collect()
}

#[test]
fn trickled_plain_bytes_end_connection() {
    let plain = SessionSettings { plain: true, verify: false, ..DEFAULT_SETTINGS };
    let ring = TransferRing::new(0, 0).map(drop);
    if let Err(error) = &ring {
        MissingRequirement::machine(format!("no io_uring: {error}")).report_skip("slow senders to a receiver by uring");
    }
    let is_available = |method: &&ReceiveMethod| **method != ReceiveMethod::Uring || ring.is_ok();
    for method in [None].into_iter().chain(ReceiveMethod::ALL.iter().filter(is_available).copied().map(Some)) {
        let events = events(MIN_PROGRESS, method, |receiver| {
            let mut channel = begin(receiver, plain);
            channel.plain = true;
            channel.send(&SenderMessage::Block(piece(0, 0, BLOCK_BYTES as u32))).unwrap();
            repeat_until_error(|| channel.send_data(&[7]));
        });
        assert_eq!(slow_faults(&events), [true], "{method:?}: {events:?}");
    }
}

#[test]
fn trickled_encrypted_bytes_end_connection() {
    let faults = events(MIN_PROGRESS, None, |receiver| {
        let mut bytes = begin(receiver, DEFAULT_SETTINGS);
        bytes.send(&SenderMessage::Block(piece(0, 0, BLOCK_BYTES as u32))).unwrap();
        repeat_until_error(|| bytes.send_data(&[7]));
        let mut messages = begin(receiver, DEFAULT_SETTINGS);
        repeat_until_error(|| messages.send(&SenderMessage::Digests(Vec::new())));
    });
    assert_eq!(slow_faults(&faults), [true; 2], "{faults:?}");
}

#[test]
fn silent_sender_gets_the_reason() {
    let faults = events(MIN_ONE_BYTE, None, |receiver| {
        let mut silent = begin(receiver, DEFAULT_SETTINGS);
        let ReceiverMessage::Refused(RefusalReason(why)) = silent.receive().unwrap() else { panic!("no reason") };
        assert!(why.contains("did not send anything within"), "{why}");
    });
    assert_eq!(slow_faults(&faults), [true], "{faults:?}");
}

#[test]
fn joined_stream_may_stay_silent() {
    let min_progress = MinProgress { bytes: 64 << 10, interval: Duration::from_secs(2) };
    let events = events(min_progress, None, |receiver| {
        let (mut first, session) = receiver.begin(2);
        let mut stream = receiver.join(session).unwrap();
        // Files for which there is no room.
        let entries = (0..100).map(|number| file(&format!("{number:0>250}"), 1 << 60));
        let (offer, until) = (SenderMessage::Offer(entries.collect()), Instant::now() + 2 * min_progress.interval);
        while Instant::now() < until {
            first.send(&offer).unwrap();
            let ReceiverMessage::Decisions(_) = first.receive().unwrap() else { panic!("no decisions") };
            // More than it must send, and no more files than it may offer.
            std::thread::sleep(min_progress.interval / 10);
        }
        assert!(stream.try_receive::<ReceiverMessage>().unwrap().is_none());
    });
    assert_eq!(slow_faults(&events), [false], "its end without a word is all");
}
