//! Streams whose number is chosen while a file is sent: for any choice, at any time, every byte is right, and both ends report the
//! same of it. Moments are as short as can be here, so that much is chosen in little.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::wire::secret::Secret;

use super::streams::{TestReceiver, assert_equal_files, sources, with_receiver, with_receiver_options};
use super::{DEFAULT_SETTINGS, content, directory_destination, file, final_names, target_directory};
use crate::blocks::BLOCK_BYTES;
use crate::datapath::{Mode, ReceiveMethod, ReceiveSetup};
use crate::message::{ReceiverMessage, SenderMessage, SessionSettings};
use crate::offer_policy::Destination;
use crate::send::{SendResult, Sender, SenderOptions, TuningWindow};
use crate::session::SessionEvent;
use crate::session_streams::MAX_STREAMS;
use crate::source::{PreserveOptions, SourceList};
use crate::{Error, receive};

const BYTES: usize = BLOCK_BYTES as usize;
/// Moments that end with the next piece.
const ZERO_WINDOW: TuningWindow =
    TuningWindow { settle: Duration::ZERO, sample: Duration::ZERO, min_remaining: Duration::ZERO };
const TUNING: SenderOptions = SenderOptions {
    settings: DEFAULT_SETTINGS,
    acknowledge: false,
    limit: None,
    max_delete: None,
    lists_moved: false,
    compression: None,
    method: None,
    stream_tuning: Some(ZERO_WINDOW),
};

fn send(receiver: &TestReceiver<'_>, paths: &[PathBuf], options: SenderOptions) -> SendResult {
    let collection = SourceList::collect(paths, PreserveOptions::default()).unwrap();
    let sender = Sender::connect(&[receiver.0.address().unwrap()], &Secret::none(), options).unwrap();
    sender.send(collection, &|_, _| {}).unwrap()
}

/// That both ends report the same of how many streams there were, and why; returns how many.
fn streams_reported_by_both(sent: &SendResult, events: &[SessionEvent]) -> u32 {
    assert!(sent.unsent.is_empty(), "{:?}", sent.unsent);
    assert!(!events.iter().any(|event| matches!(event, SessionEvent::Fault(_))), "{events:?}");
    let summary = events
        .iter()
        .find_map(|event| if let SessionEvent::Finished(summary) = event { Some(summary) } else { None })
        .unwrap();
    assert_eq!(summary.to_string(), sent.summary.to_string());
    assert_eq!((summary.streams, summary.sent.chosen), (sent.summary.streams, sent.summary.sent.chosen));
    sent.summary.streams
}

#[test]
fn tuned_files_arrive_whole() {
    let sizes = [16 * BYTES + 7, 1, BYTES + 1, 10 * BYTES, 2 * BYTES, 10 * BYTES - 1];
    let (_directory, paths) = sources(&sizes);
    let mut compared = 0;
    for (plain, verify) in [(false, true), (true, true), (true, false), (false, false)] {
        let (_outer, inner) = target_directory();
        let mut sent = None;
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let options = SenderOptions { settings: SessionSettings { plain, verify, ..DEFAULT_SETTINGS }, ..TUNING };
            sent = Some(send(receiver, &paths, options));
        });
        assert_equal_files(&paths, &inner);
        let sent = sent.unwrap();
        let streams = streams_reported_by_both(&sent, &events);
        compared += u32::from(sent.summary.sent.chosen.is_some());
        assert!(streams.is_power_of_two() && streams <= MAX_STREAMS, "{}", sent.summary);
    }
    assert!(compared > 0, "nothing was compared in any of them");
}

#[test]
fn tuned_transfer_resumes_partial_file() {
    let bytes = 20 * BYTES + 9;
    let (_directory, paths) = sources(&[bytes]);
    let (_outer, inner) = target_directory();
    let entry = &SourceList::collect(&paths, PreserveOptions::default()).unwrap().sources[0].entry;
    super::leave_part(&inner, entry, &content(bytes, 0)[..6 * BYTES]);
    with_receiver(directory_destination(&inner), |receiver| {
        let amount = send(receiver, &paths, TUNING).summary.moved.amount;
        assert_eq!((amount.moved, amount.resumed), (14 * BLOCK_BYTES + 9, 6 * BLOCK_BYTES));
    });
    assert_equal_files(&paths, &inner);
    assert_eq!(final_names(&inner).1, 0);
}

#[test]
fn tuned_changing_source_is_not_whole() {
    let (_outer, inner) = target_directory();
    for after in [1, 4, 9] {
        let (_directory, paths) = sources(&[20 * BYTES, 3 * BYTES]);
        let events = with_receiver(directory_destination(&inner), |receiver| {
            let collection = SourceList::collect(&paths, PreserveOptions::default()).unwrap();
            let sender = Sender::connect(&[receiver.0.address().unwrap()], &Secret::none(), TUNING).unwrap();
            let is_cut = std::cell::Cell::new(false);
            let cut = |bytes, _| {
                if bytes > after * BLOCK_BYTES && !is_cut.replace(true) {
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
        assert!(!events.iter().any(|event| matches!(event, SessionEvent::Fault(_))), "{events:?}");
        assert_eq!(final_names(&inner), (vec!["1".to_owned()], 0));
        assert_equal_files(&paths[1..], &inner);
    }
}

/// One that writes to standard output, and one that was given a method.
#[test]
fn single_stream_receiver_gets_no_more() {
    let (_directory, paths) = sources(&[12 * BYTES]);
    let output = tempfile::NamedTempFile::new().unwrap();
    let (_outer, inner) = target_directory();
    let method = ReceiveMethod::Splice;
    let setup =
        ReceiveSetup { method, mode: Mode::Blocking, buffer: 1 << 20, window: 1, timeout: Duration::from_secs(30) };
    let plain = SenderOptions { settings: SessionSettings { plain: true, ..DEFAULT_SETTINGS }, ..TUNING };
    let check_single_stream = |destination, method_setup, options, arrived: &Path| {
        let mut sent = None;
        let receiver_options = receive::ReceiverOptions {
            leave: super::MAY_OVERWRITE,
            method: method_setup,
            ..receive::ReceiverOptions::default()
        };
        let events = with_receiver_options(receiver_options, destination, |receiver| {
            sent = Some(send(receiver, &paths, options))
        });
        let sent = sent.unwrap();
        assert_eq!((streams_reported_by_both(&sent, &events), sent.summary.sent.chosen), (1, None));
        assert!(!sent.summary.to_string().contains("stream"), "{}", sent.summary);
        assert!(fs::read(&paths[0]).unwrap() == fs::read(arrived).unwrap());
    };
    check_single_stream(Destination::Output(output.reopen().unwrap()), None, TUNING, output.path());
    check_single_stream(directory_destination(&inner), Some(setup), plain, &inner.join("0"));
}

#[test]
fn invitations_are_single_and_bounded() {
    let (_outer, inner) = target_directory();
    let events = with_receiver(directory_destination(&inner), |receiver| {
        let (mut announced, _) = receiver.begin(2);
        announced.send(&SenderMessage::QueryJoin).unwrap();
        assert!(announced.receive::<ReceiverMessage>().is_err());

        let mut first = receiver.connect();
        first.send(&SenderMessage::Begin(DEFAULT_SETTINGS)).unwrap();
        first.send(&SenderMessage::Offer(vec![file("large", 5 * BLOCK_BYTES)])).unwrap();
        assert!(matches!(first.receive().unwrap(), ReceiverMessage::Decisions(decisions) if decisions.len() == 1));
        first.send(&SenderMessage::QueryJoin).unwrap();
        let ReceiverMessage::JoinInvitation(Some(invitation)) = first.receive().unwrap() else {
            panic!("nobody is invited")
        };
        assert_eq!(invitation.max_streams, MAX_STREAMS);
        let mut streams: Vec<_> = (1..MAX_STREAMS).map(|_| receiver.join(invitation.session).unwrap()).collect();
        assert!(receiver.join(invitation.session).is_err());
        first.send(&SenderMessage::QueryArrived).unwrap();
        assert!(matches!(first.receive().unwrap(), ReceiverMessage::Arrived(arrived) if arrived.bytes == 0));
        first.send(&SenderMessage::QueryJoin).unwrap();
        assert!(first.receive::<ReceiverMessage>().is_err());
        assert!(streams[0].receive::<ReceiverMessage>().is_err(), "the session has ended");
    });
    let faults =
        events.iter().filter(|event| matches!(event, SessionEvent::Fault(Error::ProtocolViolation(_)))).count();
    assert_eq!(faults, 3, "{events:?}");
}

#[test]
fn arrived_bytes_cover_all_streams() {
    let (_outer, inner) = target_directory();
    let bytes = 3 * BYTES;
    let data = content(bytes, 1);
    with_receiver(directory_destination(&inner), |receiver| {
        let (mut first, id) = receiver.split(bytes);
        let mut stream = receiver.join(id).unwrap();
        for (number, arrived) in [(0, 1), (1, 2)] {
            let range = number * BYTES..(number + 1) * BYTES;
            let piece = super::piece(0, range.start as u64, BYTES as u32);
            let channel = if number == 0 { &mut stream } else { &mut first };
            channel.queue(&SenderMessage::Block(piece)).unwrap();
            channel.send_data(&data[range.clone()]).unwrap();
            channel.send(&SenderMessage::Digests(vec![super::digest(&data[range])])).unwrap();
            if number == 0 {
                assert_eq!(channel.receive::<ReceiverMessage>().unwrap(), ReceiverMessage::BlockWritten(None));
            }
            first.send(&SenderMessage::QueryArrived).unwrap();
            let answer = first.receive().unwrap();
            assert!(matches!(answer, ReceiverMessage::Arrived(r) if r.bytes == arrived * BLOCK_BYTES), "{answer:?}");
        }
    });
}
