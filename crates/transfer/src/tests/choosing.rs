//! Streams whose number is chosen while a file is sent: whatever is chosen, and whenever, every byte is right, and both ends say the
//! same of it. Moments are as short as can be here, so that much is chosen in little.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_wire::secret::Secret;

use super::streams::{Served, are_equal, sources, with_receiver, with_receiver_of};
use super::{SETTINGS, content, file, finals, into, place};
use crate::Error;
use crate::blocks::BLOCK;
use crate::decide::Destination;
use crate::joined::STREAMS;
use crate::message::{FromReceiver, FromSender, Settings};
use crate::moving::{Mode, ReceiveMethod, ReceiveSetup};
use crate::receive;
use crate::send::{Manner, Moments, Sender, Sent};
use crate::session::Event;
use crate::source::{Collection, Keep};

const BYTES: usize = BLOCK as usize;
/// Moments that end with the next piece.
const NONE: Moments = Moments { before: Duration::ZERO, each: Duration::ZERO, rest: Duration::ZERO };
const CHOOSING: Manner =
    Manner { settings: SETTINGS, acknowledge: false, limit: None, moving: None, choose: Some(NONE) };

fn send(served: &Served<'_>, paths: &[PathBuf], manner: Manner) -> Sent {
    let collection = Collection::of(paths, Keep::default()).unwrap();
    let sender = Sender::connect(&[served.0.address().unwrap()], &Secret::none(), manner).unwrap();
    sender.send(collection, &|_, _| {}).unwrap()
}

/// That both ends say the same of how many streams there were, and why; returns how many.
fn said_by_both(sent: &Sent, events: &[Event]) -> u32 {
    assert!(sent.unsent.is_empty(), "{:?}", sent.unsent);
    assert!(!events.iter().any(|event| matches!(event, Event::Fault(_))), "{events:?}");
    let done = events.iter().find_map(|event| if let Event::Done(done) = event { Some(done) } else { None }).unwrap();
    assert_eq!(done.to_string(), sent.summary.to_string());
    assert_eq!((done.streams, done.chosen), (sent.summary.streams, sent.summary.chosen));
    sent.summary.streams
}

#[test]
fn files_arrive_whole_while_the_number_of_streams_is_chosen() {
    let sizes = [16 * BYTES + 7, 1, BYTES + 1, 10 * BYTES, 2 * BYTES, 10 * BYTES - 1];
    let (_directory, paths) = sources(&sizes);
    let mut compared = 0;
    for (plain, verify) in [(false, true), (true, true), (true, false), (false, false)] {
        let (_outer, inner) = place();
        let mut sent = None;
        let events = with_receiver(into(&inner), |served| {
            let manner = Manner { settings: Settings { plain, verify, ..SETTINGS }, ..CHOOSING };
            sent = Some(send(served, &paths, manner));
        });
        are_equal(&paths, &inner);
        let sent = sent.unwrap();
        let streams = said_by_both(&sent, &events);
        compared += u32::from(sent.summary.chosen.is_some());
        assert!(streams.is_power_of_two() && streams <= STREAMS, "{}", sent.summary);
    }
    assert!(compared > 0, "nothing was compared in any of them");
}

#[test]
fn what_is_there_of_a_file_is_not_sent_again_while_the_number_of_streams_is_chosen() {
    let bytes = 20 * BYTES + 9;
    let (_directory, paths) = sources(&[bytes]);
    let (_outer, inner) = place();
    let entry = &Collection::of(&paths, Keep::default()).unwrap().sources[0].entry;
    super::leave_part(&inner, entry, &content(bytes, 0)[..6 * BYTES]);
    with_receiver(into(&inner), |served| {
        let amount = send(served, &paths, CHOOSING).summary.moved.amount;
        assert_eq!((amount.moved, amount.resumed), (14 * BLOCK + 9, 6 * BLOCK));
    });
    are_equal(&paths, &inner);
    assert_eq!(finals(&inner).1, 0);
}

#[test]
fn a_source_that_changes_while_the_number_of_streams_is_chosen_is_not_taken_for_whole() {
    let (_outer, inner) = place();
    for after in [1, 4, 9] {
        let (_directory, paths) = sources(&[20 * BYTES, 3 * BYTES]);
        let events = with_receiver(into(&inner), |served| {
            let collection = Collection::of(&paths, Keep::default()).unwrap();
            let sender = Sender::connect(&[served.0.address().unwrap()], &Secret::none(), CHOOSING).unwrap();
            let is_cut = std::cell::Cell::new(false);
            let cut = |bytes, _| {
                if bytes > after * BLOCK && !is_cut.replace(true) {
                    fs::File::options().write(true).open(&paths[0]).unwrap().set_len(BLOCK).unwrap();
                }
            };
            let sent = sender.send(collection, &cut).unwrap();
            assert!(matches!(&sent.unsent[..], [one] if one.why.to_string().contains("changed")), "{:?}", sent.unsent);
        });
        assert!(!events.iter().any(|event| matches!(event, Event::Fault(_))), "{events:?}");
        assert_eq!(finals(&inner), (vec!["1".to_owned()], 0));
        are_equal(&paths[1..], &inner);
    }
}

/// One that writes to standard output, and one that was told a method.
#[test]
fn a_receiver_that_takes_one_stream_has_one_and_nothing_is_said_of_more() {
    let (_directory, paths) = sources(&[12 * BYTES]);
    let output = tempfile::NamedTempFile::new().unwrap();
    let (_outer, inner) = place();
    let method = ReceiveMethod::Splice;
    let setup =
        ReceiveSetup { method, mode: Mode::Blocking, buffer: 1 << 20, window: 1, patience: Duration::from_secs(30) };
    let plain = Manner { settings: Settings { plain: true, ..SETTINGS }, ..CHOOSING };
    let one = |destination, moving, manner, arrived: &Path| {
        let mut sent = None;
        let by = receive::Manner { overwrite: true, moving, ..receive::Manner::default() };
        let events = with_receiver_of(by, destination, |served| sent = Some(send(served, &paths, manner)));
        let sent = sent.unwrap();
        assert_eq!((said_by_both(&sent, &events), sent.summary.chosen), (1, None));
        assert!(!sent.summary.to_string().contains("stream"), "{}", sent.summary);
        assert!(fs::read(&paths[0]).unwrap() == fs::read(arrived).unwrap());
    };
    one(Destination::Output(output.reopen().unwrap()), None, CHOOSING, output.path());
    one(into(&inner), Some(setup), plain, &inner.join("0"));
}

#[test]
fn nobody_is_invited_twice_or_where_streams_were_announced_and_no_more_join_than_may() {
    let (_outer, inner) = place();
    let events = with_receiver(into(&inner), |served| {
        let (mut announced, _) = served.begin(2);
        announced.send(&FromSender::MayOthersJoin).unwrap();
        assert!(announced.receive::<FromReceiver>().is_err());

        let mut first = served.connect();
        first.send(&FromSender::Begin(SETTINGS)).unwrap();
        first.send(&FromSender::Offer(vec![file("large", 5 * BLOCK)])).unwrap();
        assert!(matches!(first.receive().unwrap(), FromReceiver::Decisions(one) if one.len() == 1));
        first.send(&FromSender::MayOthersJoin).unwrap();
        let FromReceiver::Invited(Some(invitation)) = first.receive().unwrap() else { panic!("nobody is invited") };
        assert_eq!(invitation.most, STREAMS);
        let mut all: Vec<_> = (1..STREAMS).map(|_| served.join(invitation.session).unwrap()).collect();
        assert!(served.join(invitation.session).is_err());
        first.send(&FromSender::HowMuch).unwrap();
        assert!(matches!(first.receive().unwrap(), FromReceiver::Arrived(arrived) if arrived.bytes == 0));
        first.send(&FromSender::MayOthersJoin).unwrap();
        assert!(first.receive::<FromReceiver>().is_err());
        assert!(all[0].receive::<FromReceiver>().is_err(), "the session has ended");
    });
    let faults = events.iter().filter(|event| matches!(event, Event::Fault(Error::Nonsense(_)))).count();
    assert_eq!(faults, 3, "{events:?}");
}

#[test]
fn how_much_has_arrived_is_what_was_written_over_all_streams() {
    let (_outer, inner) = place();
    let bytes = 3 * BYTES;
    let all = content(bytes, 1);
    with_receiver(into(&inner), |served| {
        let (mut first, id) = served.split(bytes);
        let mut joined = served.join(id).unwrap();
        for (number, arrived) in [(0, 1), (1, 2)] {
            let range = number * BYTES..(number + 1) * BYTES;
            let piece = super::piece(0, range.start as u64, BYTES as u32);
            let channel = if number == 0 { &mut joined } else { &mut first };
            channel.queue(&FromSender::Block(piece)).unwrap();
            channel.send_data(&all[range.clone()]).unwrap();
            channel.send(&FromSender::Digests(vec![super::digest(&all[range])])).unwrap();
            if number == 0 {
                assert_eq!(channel.receive::<FromReceiver>().unwrap(), FromReceiver::Took(None));
            }
            first.send(&FromSender::HowMuch).unwrap();
            let told = first.receive().unwrap();
            assert!(matches!(told, FromReceiver::Arrived(told) if told.bytes == arrived * BLOCK), "{told:?}");
        }
    });
}
