//! Trees of which the first files are sent before the last ones are found, and the room that there must be for them.

use std::fs;
use std::path::Path;
use std::time::Instant;

use kelvin_testing::mounted::{FileSystemKind, Mounted};

use super::{Heard, Hostile, Local, SETTINGS, content, entry, into, names, place, shaken};
use crate::Result;
use crate::channel::Channel;
use crate::decide::Desk;
use crate::message::{Decision, EntryKind, FromReceiver, FromSender, Settings};
use crate::send::{Manner, Sender, Sent};
use crate::session::{Session, WINDOW};
use crate::source::{Collection, Keep};
use crate::summary::Summary;

/// More files than the receiver is offered before it has one.
const FILES: usize = WINDOW + 700;
/// So many of them are found before anything is offered.
const FIRST: usize = 5;
const KEEP: Keep = Keep { recursive: true, links: true, owners: false, attributes: crate::source::Attributes::Kept };

/// A tree of small files in three directories, the last of which has a larger one as well.
fn planted(top: &Path) {
    for number in 0..FILES {
        let below = top.join((number % 3).to_string());
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(format!("{number}")), content(number % 50, number as u32)).unwrap();
    }
    fs::write(top.join("2/large"), content(100_000, 1)).unwrap();
}

fn are_same(one: &Path, other: &Path) {
    let all = names(one);
    assert_eq!(all, names(other));
    for name in all {
        let (one, other) = (one.join(&name), other.join(&name));
        if one.is_dir() {
            are_same(&one, &other);
        } else {
            assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{}", one.display());
        }
    }
}

fn found_later(tree: &Path) -> Collection {
    let mut collection = Collection::begun(&[tree.to_owned()], KEEP).unwrap();
    collection.find(FIRST).unwrap();
    assert!(!collection.is_whole());
    collection
}

/// Sends a tree that is said to have no more than so many bytes, found or not.
fn sent(tree: &Path, directory: &Path, at_most: u64) -> (Result<Sent>, Result<Summary>) {
    let (sender, receiver) = shaken();
    let (one, other) = Local::pair();
    let settings = Settings { plain: true, at_most: Some(at_most), ..SETTINGS };
    let manner = Manner { settings, acknowledge: false, limit: None, moving: None, choose: None };
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let channel = Channel::new(one, sender)?;
            Sender::over(channel, (manner, Instant::now()))?.send(found_later(tree), &|_, _| {})
        });
        let mut channel = Channel::new(other, receiver).unwrap();
        let received = Session::new(&mut channel, Desk::new(&into(directory), false).unwrap(), &|_| {}).serve();
        drop(channel);
        (sending.join().unwrap(), received)
    })
}

/// There is room for what it has at most; or there is not, and all must be found first; or it has more than was said.
#[test]
fn a_tree_arrives_whole_whenever_all_of_it_is_found() {
    let (outer, _) = place();
    let tree = outer.path().join("tree");
    planted(&tree);
    for at_most in [1 << 24, u64::MAX, 1] {
        let (_outer, inner) = place();
        let (sent, received) = sent(&tree, &inner, at_most);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!((sent.summary.moved.files as usize, sent.unsent.len()), (FILES + 1, 0));
        assert_eq!(received.moved, sent.summary.moved);
        are_same(&tree, &inner.join("tree"));
    }
}

#[test]
fn what_is_found_later_is_what_is_found_at_once() {
    let (outer, _) = place();
    let tree = outer.path().join("tree");
    planted(&tree);
    fs::create_dir_all(tree.join("1/empty/below")).unwrap();
    let at_once = Collection::of(std::slice::from_ref(&tree), KEEP).unwrap();
    for some in [1, 2, 7, 1000] {
        let mut later = Collection::begun(std::slice::from_ref(&tree), KEEP).unwrap();
        while !later.is_whole() {
            let before = later.sources.len();
            later.find(some).unwrap();
            assert!(later.sources.len() <= before + some);
        }
        let paths = |found: &Collection| found.sources.iter().map(|source| source.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&later), paths(&at_once));
        assert_eq!((later.stored(), later.bytes()), (at_once.stored(), at_once.bytes()));
        assert!(later.at_most() >= later.stored());
    }
}

fn room(heard: &Heard) -> Vec<bool> {
    let room = heard.answers.iter().filter_map(|answer| match answer {
        FromReceiver::Room { is_enough } => Some(*is_enough),
        _ => None,
    });
    room.collect()
}

/// A file system of 64 MiB.
#[test]
fn more_than_there_is_room_for_is_refused_before_any_of_it_comes_or_when_it_is_known() {
    let base = tempfile::tempdir().unwrap();
    let mounted = match Mounted::of(FileSystemKind::Tmpfs, base.path()) {
        Ok(mounted) => mounted,
        Err(missing) => return missing.skips("room for trees that are found later"),
    };
    let small = entry(0, "small", EntryKind::File { bytes: 5, stored: 5 });
    // At most so much, and then so much: what is said of room, and whether all is refused.
    let cases = [(32_u64, 16_u64, true, false), (128, 16, false, false), (128, 65, false, true)];
    for (at_most, bytes, has_room, is_refused) in cases {
        let settings = Settings { at_most: Some(at_most << 20), ..SETTINGS };
        let mut hostile = Hostile::new();
        hostile.say(&FromSender::Begin(settings)).offer(std::slice::from_ref(&small));
        let heard = hostile.say(&FromSender::Found { bytes: bytes << 20 }).heard(&mounted.path());
        assert_eq!(room(&heard), [has_room]);
        let refused = heard.answers.iter().any(|answer| matches!(answer, FromReceiver::Refused(_)));
        let is_wanted = heard.answers.contains(&FromReceiver::Decisions(vec![Decision::Wanted]));
        assert_eq!((refused, is_wanted), (is_refused, true));
        let why = if is_refused { "there is room for" } else { "closed the connection" };
        assert!(heard.errors().contains(why), "{}", heard.errors());
    }
}

#[test]
fn how_much_there_is_is_said_once_and_only_where_it_was_not_known() {
    let known = Settings { bytes: Some(5), ..SETTINGS };
    let unknown = Settings { at_most: Some(5), ..SETTINGS };
    for (settings, times) in [(known, 1), (SETTINGS, 1), (unknown, 2)] {
        let (_outer, inner) = place();
        let mut hostile = Hostile::new();
        hostile.say(&FromSender::Begin(settings));
        for _ in 0..times {
            hostile.say(&FromSender::Found { bytes: 5 });
        }
        let errors = hostile.heard(&inner).errors();
        assert!(errors.contains("it says again how much there is"), "{errors}");
    }
}
