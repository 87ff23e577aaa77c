//! A hostile receiver and an honest sender: nothing is sent but what was named, and what makes no sense ends it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Instant;

use super::{Hostile, SETTINGS, content, digest, opened};
use crate::Result;
use crate::blocks::BLOCK;
use crate::load::Load;
use crate::message::{Decision, Digest, Finished, FromReceiver, FromSender, Number, Reason, Settings, Verdict};
use crate::send::{Manner, Sender, Sent};
use crate::session::WINDOW;
use crate::source::{Attributes, Collection, Keep};

/// What the sender has: in the order of its offer a directory, and in it a large file, a link and a small file.
const NUMBERS: [Number; 4] = [0, 1, 2, 3];
const SMALL: &[u8] = b"small content";

/// Makes it, beside what was not named; returns its path and the content of the large file.
fn sources() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let outer = tempfile::tempdir().unwrap();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(outer.path().join("secret"), "nobody named this").unwrap();
    let large = content(BLOCK as usize + 9, 1);
    fs::write(tree.join("1 large"), &large).unwrap();
    symlink("../secret", tree.join("2 link")).unwrap();
    fs::write(tree.join("3 small"), SMALL).unwrap();
    (outer, tree, large)
}

pub(super) fn manner(settings: Settings) -> Manner {
    Manner { settings, acknowledge: false, limit: None, moving: None, choose: None }
}

/// What the sender said, and the bytes of files among it.
fn heard(mut frames: std::vec::IntoIter<Vec<u8>>) -> (Vec<FromSender>, Vec<u8>) {
    let (mut messages, mut bytes) = (Vec::new(), Vec::new());
    while let Some(frame) = frames.next() {
        let message: FromSender = postcard::from_bytes(&frame).unwrap();
        let announced = match &message {
            FromSender::Batch { files, .. } => files.iter().map(|file| file.bytes as usize).sum(),
            FromSender::Block(piece) => piece.bytes as usize,
            _ => 0,
        };
        let end = bytes.len() + announced;
        while bytes.len() < end {
            let Some(frame) = frames.next() else { break };
            bytes.extend(frame);
        }
        messages.push(message);
    }
    (messages, bytes)
}

/// How the sending ends, and what was sent.
struct Outcome {
    ended: Result<Sent>,
    messages: Vec<FromSender>,
    bytes: Vec<u8>,
}

fn sent_to(receiver: Hostile, collection: Collection, settings: Settings) -> Outcome {
    let Hostile { mut opener, channel, stream, .. } = receiver;
    let sender = Sender::over(channel, (manner(settings), Instant::now())).unwrap();
    let ended = sender.send(collection, &|_, _| {});
    let (messages, bytes) = heard(opened(&mut opener, &stream.received.take()).into_iter());
    Outcome { ended, messages, bytes }
}

const KEEP: Keep = Keep { recursive: true, links: true, owners: false, attributes: Attributes::CountedWhenSent };

fn collection(tree: PathBuf) -> Collection {
    Collection::of(&[tree], KEEP).unwrap()
}

fn decisions(decisions: &[Decision]) -> FromReceiver {
    FromReceiver::Decisions(decisions.to_vec())
}

fn have(file: Number, first: u32, digests: &[Digest]) -> FromReceiver {
    FromReceiver::Have { file, first, digests: digests.to_vec(), is_all: true }
}

fn verdicts(files: &[Number]) -> FromReceiver {
    FromReceiver::Verdicts(files.iter().map(|file| Verdict { file: *file, why: None }).collect())
}

fn finished() -> FromReceiver {
    FromReceiver::Finished(Finished { since: 0, load: Load::default(), costs: None, unwritten: None, method: None })
}

const MADE: Decision = Decision::Made;
const WANTED: Decision = Decision::Wanted;
const RESUMED: Decision = Decision::Resumed;

type Says = fn(&mut Hostile) -> &mut Hostile;

#[test]
fn what_makes_no_sense_ends_the_sending() {
    const UNKNOWN: &str = "it speaks of a file that was not offered";
    const BLOCKS: &str = "it speaks of blocks that it cannot have";
    let cases: &[(Says, &str)] = &[
        (|h| h, "closed the connection"),
        (|h| h.frame(&[0xff; 9]), "malformed message"),
        (|h| h.frame(&[]), "malformed message"),
        (|h| h.raw(&[0xff; 9]), "a frame of 4294967295 bytes"),
        (|h| h.frame(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f]), "malformed message"),
        (|h| h.say(&decisions(&[MADE, WANTED, MADE, WANTED, WANTED])), UNKNOWN),
        (|h| h.say(&decisions(&[WANTED])), UNKNOWN),
        (|h| h.say(&decisions(&[RESUMED])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, WANTED, WANTED])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, WANTED, RESUMED])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, MADE])), UNKNOWN),
        (|h| h.say(&have(1, 0, &[])), UNKNOWN),
        (|h| h.say(&have(u32::MAX, 0, &[])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, RESUMED])).say(&have(3, 0, &[])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, RESUMED])).say(&have(1, 0, &[])).say(&have(1, 0, &[])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, RESUMED])).say(&have(1, 1, &[])), BLOCKS),
        (|h| h.say(&decisions(&[MADE, RESUMED])).say(&have(1, u32::MAX, &[[1; 32]])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, RESUMED])).say(&have(1, 0, &[[1; 32]; 3])), BLOCKS),
        (|h| h.say(&decisions(&[MADE, RESUMED])).say(&again(0)).say(&again(0)), BLOCKS),
        (|h| h.say(&verdicts(&[3])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, WANTED, MADE, WANTED])).say(&verdicts(&[4])), UNKNOWN),
        (|h| h.say(&decisions(&[MADE, WANTED, MADE, WANTED])).say(&verdicts(&[u32::MAX])), UNKNOWN),
        (|h| h.say(&finished()), "it has finished before all was sent"),
        (|h| h.say(&FromReceiver::Room { is_enough: true }), "it speaks of room that was not asked for"),
        (|h| h.say(&decisions(&[MADE, WANTED, MADE, WANTED])).late().say(&finished()), "it has finished before"),
        (|h| h.say(&FromReceiver::Refused(Reason("no room".into()))), "the receiver says: no room"),
        (|h| all_moved(h).say(&decisions(&[MADE])), "it does not say what it measured"),
        (|h| all_moved(h), "closed the connection"),
        // It was never sent, so nobody waits for it; but the other one's verdict does not come.
        (|h| h.say(&decisions(&[MADE, WANTED, MADE, WANTED])).say(&verdicts(&[2, 1, 3])), "closed the connection"),
    ];
    let (_outer, tree, large) = sources();
    for (number, (says, words)) in cases.iter().enumerate() {
        let mut hostile = Hostile::new();
        says(&mut hostile);
        let Outcome { ended, bytes, .. } = sent_to(hostile, collection(tree.clone()), SETTINGS);
        let why = ended.unwrap_err().to_string();
        assert!(why.contains(words), "{number}: no {words:?} in {why}");
        let named = [&large[..], SMALL].concat();
        assert!(named.starts_with(&bytes), "{number}: it sent what was not asked for");
    }
}

/// Of a tree that is still being looked through no byte is sent before there is known to be room.
#[test]
fn nothing_is_sent_before_there_is_room_for_it() {
    let outer = tempfile::tempdir().unwrap();
    // More than are offered before one of them is sent.
    (0..2 * WINDOW).for_each(|number| fs::write(outer.path().join(format!("{number:05}")), SMALL).unwrap());
    let settings = Settings { at_most: Some(1 << 40), ..SETTINGS };
    for is_enough in [None, Some(true), Some(false)] {
        let mut hostile = Hostile::new();
        is_enough.map(|is_enough| hostile.say(&FromReceiver::Room { is_enough }));
        hostile.say(&decisions(&[MADE, WANTED, WANTED]));
        let mut collection = Collection::begun(&[outer.path().to_owned()], KEEP).unwrap();
        collection.find(2).unwrap();
        let Outcome { ended, messages, bytes } = sent_to(hostile, collection, settings);
        assert!(ended.unwrap_err().to_string().contains("closed the connection"));
        let place = |is_it: fn(&FromSender) -> bool| messages.iter().position(is_it);
        let found = place(|message| matches!(message, FromSender::Found { .. }));
        let sent = place(|message| matches!(message, FromSender::Batch { .. }));
        assert_eq!(bytes, if is_enough.is_some() { SMALL.repeat(2) } else { Vec::new() });
        // Where there may not be room, all is found and said first; else it is sent meanwhile.
        assert_eq!((found.is_some(), found < sent), (is_enough == Some(false), is_enough.is_some()), "{is_enough:?}");
    }
}

/// Speaks of one block, and says that more follow.
fn again(first: u32) -> FromReceiver {
    FromReceiver::Have { file: 1, first, digests: vec![[1; 32]], is_all: false }
}

fn all_moved(hostile: &mut Hostile) -> &mut Hostile {
    hostile.say(&decisions(&[MADE, WANTED, MADE, WANTED])).late().say(&verdicts(&[1, 3]))
}

#[test]
fn blocks_that_differ_are_sent_again_and_others_are_not() {
    let (_outer, tree, large) = sources();
    let first = digest(&large[..BLOCK as usize]);
    for (digests, kept) in
        [(vec![[1; 32], [2; 32]], 0), (vec![first], BLOCK as usize), (vec![first, [2; 32]], BLOCK as usize)]
    {
        let mut hostile = Hostile::new();
        hostile.say(&decisions(&[MADE, RESUMED, MADE, WANTED])).say(&have(1, 0, &digests));
        hostile.late().say(&verdicts(&[1, 3])).say(&finished());
        let Outcome { ended, messages, bytes } = sent_to(hostile, collection(tree.clone()), SETTINGS);
        let amount = ended.unwrap().summary.moved.amount;
        assert_eq!((amount.resumed, amount.moved), (kept as u64, (large.len() - kept + SMALL.len()) as u64));
        let sent = [&large[kept..], SMALL].concat();
        let other_order = [SMALL, &large[kept..]].concat();
        assert!(bytes == sent || bytes == other_order);
        let keep = FromSender::Keep { file: 1, blocks: vec![u8::from(kept > 0)] };
        assert!(messages.contains(&keep) && matches!(messages.last(), Some(FromSender::Finish(_))));
    }
}

#[test]
fn what_the_receiver_refuses_is_not_sent_and_said() {
    let (_outer, tree, large) = sources();
    let refused = || Decision::Refused(Reason("not this one".into()));
    let mut hostile = Hostile::new();
    hostile.say(&decisions(&[MADE, WANTED, refused(), refused()])).late();
    let verdict = Verdict { file: 1, why: Some(Reason("disk full".into())) };
    hostile.say(&FromReceiver::Verdicts(vec![verdict])).say(&finished());
    let Outcome { ended, bytes, .. } = sent_to(hostile, collection(tree), SETTINGS);
    let unsent = ended.unwrap().unsent;
    let said: Vec<_> =
        unsent.iter().map(|one| (one.path.file_name().unwrap().to_str().unwrap(), one.why.to_string())).collect();
    let why = |words: &str| format!("the other side says: {words}");
    assert_eq!(
        said,
        [("2 link", why("not this one")), ("3 small", why("not this one")), ("1 large", why("disk full"))]
    );
    assert!(bytes == large);
}

#[test]
fn in_a_dry_run_no_byte_of_a_file_is_sent() {
    let (_outer, tree, _) = sources();
    let mut hostile = Hostile::new();
    hostile.say(&decisions(&[MADE, RESUMED, MADE, WANTED])).late().say(&finished());
    let Outcome { ended, messages, bytes } = sent_to(hostile, collection(tree), Settings { dry_run: true, ..SETTINGS });
    assert_eq!((ended.unwrap().planned.len(), bytes.len(), NUMBERS.len()), (2, 0, 4));
    assert!(matches!(&messages[..], [_, FromSender::Offer(four), FromSender::End, _] if four.len() == NUMBERS.len()));
}

/// What takes the place of a file after it was found is not sent in its stead.
#[test]
fn a_link_that_takes_the_place_of_a_file_is_not_followed() {
    let (outer, tree, large) = sources();
    let found = collection(tree.clone());
    fs::remove_file(tree.join("3 small")).unwrap();
    symlink(outer.path().join("secret"), tree.join("3 small")).unwrap();
    fs::rename(tree.join("1 large"), tree.join("moved")).unwrap();
    fs::write(tree.join("1 large"), &large).unwrap();
    let mut hostile = Hostile::new();
    hostile.say(&decisions(&[MADE, WANTED, MADE, WANTED])).late().say(&finished());
    let Outcome { ended, messages, bytes } = sent_to(hostile, found, SETTINGS);
    let unsent = ended.unwrap().unsent;
    assert_eq!((unsent.len(), bytes.len()), (2, 0));
    assert_eq!(messages.iter().filter(|message| matches!(message, FromSender::Abandoned { .. })).count(), 2);
}
