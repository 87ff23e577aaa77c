//! Trees of which the first files are sent before the last ones are found, and the room that there must be for them.

use std::fs;
use std::path::Path;
use std::time::Instant;

use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};

use super::{
    DEFAULT_SETTINGS, HostileEnd, LocalStream, SessionOutcome, connected_halves, content, directory_destination, entry,
    names, target_directory,
};
use crate::Result;
use crate::message::{EntryDecision, EntryKind, ReceiverMessage, SenderMessage, SessionSettings};
use crate::offer_policy::OfferPolicy;
use crate::secure_channel::SecureChannel;
use crate::send::{SendResult, Sender, SenderOptions};
use crate::session::{MAX_WANTED_FILES, ReceiveSession};
use crate::source::{PreserveOptions, SourceList};
use crate::summary::TransferSummary;

/// More files than the receiver is offered before it has one.
const FILES: usize = MAX_WANTED_FILES + 700;
/// This many of them are found before anything is offered.
const FOUND_FIRST: usize = 5;
const PRESERVE: PreserveOptions = PreserveOptions {
    recursive: true,
    links: true,
    owners: false,
    attributes: crate::source::AttributePolicy::Preserve,
};

/// A tree of small files in three directories, the last of which has a larger one as well.
fn make_tree(top: &Path) {
    for number in 0..FILES {
        let below = top.join((number % 3).to_string());
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(format!("{number}")), content(number % 50, number as u32)).unwrap();
    }
    fs::write(top.join("2/large"), content(100_000, 1)).unwrap();
}

fn assert_same_tree(one: &Path, other: &Path) {
    let all = names(one);
    assert_eq!(all, names(other));
    for name in all {
        let (one, other) = (one.join(&name), other.join(&name));
        if one.is_dir() {
            assert_same_tree(&one, &other);
        } else {
            assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{}", one.display());
        }
    }
}

fn collect_lazily(tree: &Path) -> SourceList {
    let mut collection = SourceList::begin(&[tree.to_owned()], PRESERVE).unwrap();
    collection.find_more(FOUND_FIRST).unwrap();
    assert!(!collection.is_complete());
    collection
}

/// Sends a tree that is said to have no more than this many bytes, found or not.
fn send_tree(tree: &Path, directory: &Path, at_most: u64) -> (Result<SendResult>, Result<TransferSummary>) {
    let (sender, receiver) = connected_halves();
    let (one, other) = LocalStream::pair();
    let settings = SessionSettings { plain: true, at_most: Some(at_most), ..DEFAULT_SETTINGS };
    let manner = SenderOptions { settings, acknowledge: false, limit: None, method: None, stream_tuning: None };
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let channel = SecureChannel::new(one, sender)?;
            Sender::from_channel(channel, (manner, Instant::now()))?.send(collect_lazily(tree), &|_, _| {})
        });
        let mut channel = SecureChannel::new(other, receiver).unwrap();
        let policy = OfferPolicy::new(&directory_destination(directory), false).unwrap();
        let first = channel.receive();
        let received = ReceiveSession::new(&mut channel, policy, &|_| {}).serve(first);
        drop(channel);
        (sending.join().unwrap(), received)
    })
}

/// There is room for what it has at most; or there is not, and all must be found first; or it has more than was said.
#[test]
fn lazily_found_tree_arrives_whole() {
    let (outer, _) = target_directory();
    let tree = outer.path().join("tree");
    make_tree(&tree);
    for at_most in [1 << 24, u64::MAX, 1] {
        let (_outer, inner) = target_directory();
        let (sent, received) = send_tree(&tree, &inner, at_most);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!((sent.summary.moved.files as usize, sent.unsent.len()), (FILES + 1, 0));
        assert_eq!(received.moved, sent.summary.moved);
        assert_same_tree(&tree, &inner.join("tree"));
    }
}

#[test]
fn lazy_and_eager_collection_match() {
    let (outer, _) = target_directory();
    let tree = outer.path().join("tree");
    make_tree(&tree);
    fs::create_dir_all(tree.join("1/empty/below")).unwrap();
    let at_once = SourceList::collect(std::slice::from_ref(&tree), PRESERVE).unwrap();
    for some in [1, 2, 7, 1000] {
        let mut later = SourceList::begin(std::slice::from_ref(&tree), PRESERVE).unwrap();
        while !later.is_complete() {
            let before = later.sources.len();
            later.find_more(some).unwrap();
            assert!(later.sources.len() <= before + some);
        }
        let paths = |found: &SourceList| found.sources.iter().map(|source| source.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&later), paths(&at_once));
        assert_eq!((later.stored_bytes, later.bytes()), (at_once.stored_bytes, at_once.bytes()));
        assert!(later.max_stored_bytes >= later.stored_bytes);
    }
}

fn space_answers(heard: &SessionOutcome) -> Vec<bool> {
    let room = heard.answers.iter().filter_map(|answer| match answer {
        ReceiverMessage::SpaceAvailable(is_enough) => Some(*is_enough),
        _ => None,
    });
    room.collect()
}

/// A file system of 64 MiB.
#[test]
fn oversized_tree_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let mounted = match MountedFs::new(FileSystemKind::Tmpfs, base.path()) {
        Ok(mounted) => mounted,
        Err(missing) => return missing.report_skip("room for trees that are found later"),
    };
    let small = entry(0, "small", EntryKind::File { bytes: 5, stored: 5 });
    // At most so much, and then so much: what is said of room, and whether all is refused.
    let cases = [(32_u64, 16_u64, true, false), (128, 16, false, false), (128, 65, false, true)];
    for (at_most, bytes, has_room, is_refused) in cases {
        let settings = SessionSettings { at_most: Some(at_most << 20), ..DEFAULT_SETTINGS };
        let mut hostile = HostileEnd::new();
        hostile.say(&SenderMessage::Begin(settings)).offer(std::slice::from_ref(&small));
        let heard = hostile.say(&SenderMessage::TotalFound(bytes << 20)).run_session(&mounted.path());
        assert_eq!(space_answers(&heard), [has_room]);
        let refused = heard.answers.iter().any(|answer| matches!(answer, ReceiverMessage::Refused(_)));
        let is_wanted = heard.answers.contains(&ReceiverMessage::Decisions(vec![EntryDecision::Wanted]));
        assert_eq!((refused, is_wanted), (is_refused, true));
        let why = if is_refused { "there is room for" } else { "closed the connection" };
        assert!(heard.errors().contains(why), "{}", heard.errors());
    }
}

#[test]
fn total_is_sent_once_if_unknown() {
    let known = SessionSettings { bytes: Some(5), ..DEFAULT_SETTINGS };
    let unknown = SessionSettings { at_most: Some(5), ..DEFAULT_SETTINGS };
    for (settings, times) in [(known, 1), (DEFAULT_SETTINGS, 1), (unknown, 2)] {
        let (_outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        hostile.say(&SenderMessage::Begin(settings));
        for _ in 0..times {
            hostile.say(&SenderMessage::TotalFound(5));
        }
        let errors = hostile.run_session(&inner).errors();
        assert!(errors.contains("it says again how much there is"), "{errors}");
    }
}
