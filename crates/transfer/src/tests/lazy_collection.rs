//! Trees of which the first files are sent before the last ones are found, and the room that there must be for them.

use std::fs;
use std::path::Path;
use std::time::Instant;

use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};

use super::{
    DEFAULT_SETTINGS, HostileEnd, LocalStream, SessionOutcome, connected_halves, content, directory_destination, entry,
    names, sender_options, target_directory,
};
use crate::Result;
use crate::message::{EntryDecision, EntryKind, ReceiverMessage, SenderMessage, SessionSettings};
use crate::offer_policy::{OfferPolicy, SenderLeave};
use crate::path_filter::PathFilter;
use crate::secure_channel::SecureChannel;
use crate::send::{SendResult, Sender};
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
    copy_links: false,
    hard_links: false,
    owners: false,
    attributes: crate::source::AttributePolicy::Preserve,
    acls: false,
};

/// A tree of small files in three directories, the last of which has a larger one as well.
fn make_tree(top: &Path) {
    for number in 0..FILES {
        let directory = top.join((number % 3).to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{number}")), content(number % 50, number as u32)).unwrap();
    }
    fs::write(top.join("2/large"), content(100_000, 1)).unwrap();
}

fn assert_same_tree(left: &Path, right: &Path) {
    let entries = names(left);
    assert_eq!(entries, names(right));
    for name in entries {
        let (left, right) = (left.join(&name), right.join(&name));
        if left.is_dir() {
            assert_same_tree(&left, &right);
        } else {
            assert!(fs::read(&left).unwrap() == fs::read(&right).unwrap(), "{}", left.display());
        }
    }
}

fn collect_lazily(tree: &Path) -> SourceList {
    let mut collection = SourceList::begin(&[tree.to_owned()], PRESERVE, PathFilter::default()).unwrap();
    collection.find_more(FOUND_FIRST).unwrap();
    assert!(!collection.is_complete());
    collection
}

/// Sends a tree that is announced to have no more than this many bytes, found or not.
fn send_tree(tree: &Path, directory: &Path, at_most: u64) -> (Result<SendResult>, Result<TransferSummary>) {
    let (sender, receiver) = connected_halves();
    let (sender_stream, receiver_stream) = LocalStream::pair();
    let settings = SessionSettings { plain: true, at_most: Some(at_most), ..DEFAULT_SETTINGS };
    let options = sender_options(settings);
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let channel = SecureChannel::new(sender_stream, sender)?;
            Sender::from_channel(channel, (options, Instant::now()))?.send(collect_lazily(tree), &|_, _| {})
        });
        let mut channel = SecureChannel::new(receiver_stream, receiver).unwrap();
        let policy = OfferPolicy::new(&directory_destination(directory), SenderLeave::default()).unwrap();
        let first = channel.receive();
        let received = ReceiveSession::new(&mut channel, policy, &|_| {}).serve(first);
        drop(channel);
        (sending.join().unwrap(), received)
    })
}

/// There is room for what it has at most. Or there is not, and all must be found first. Or it has more than was announced.
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
    let eager = SourceList::collect(std::slice::from_ref(&tree), PRESERVE).unwrap();
    for batch in [1, 2, 7, 1000] {
        let mut lazy = SourceList::begin(std::slice::from_ref(&tree), PRESERVE, PathFilter::default()).unwrap();
        while !lazy.is_complete() {
            let before = lazy.sources.len();
            lazy.find_more(batch).unwrap();
            assert!(lazy.sources.len() <= before + batch);
        }
        let paths = |list: &SourceList| list.sources.iter().map(|source| source.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&lazy), paths(&eager));
        assert_eq!((lazy.stored_bytes, lazy.bytes()), (eager.stored_bytes, eager.bytes()));
        assert!(lazy.max_stored_bytes >= lazy.stored_bytes);
    }
}

fn space_answers(outcome: &SessionOutcome) -> Vec<bool> {
    let answers = outcome.answers.iter().filter_map(|answer| match answer {
        ReceiverMessage::SpaceAvailable(is_enough) => Some(*is_enough),
        _ => None,
    });
    answers.collect()
}

/// A file system of 64 MiB.
#[test]
fn oversized_tree_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let mounted = match MountedFs::new(FileSystemKind::Tmpfs, base.path()) {
        Ok(mounted) => mounted,
        Err(missing) => return missing.report_skip("room for trees that are found later"),
    };
    let small_file = entry(0, "small", EntryKind::File { bytes: 5, stored: 5 });
    // At most this much, and then this much: what is announced of room, and whether all is refused.
    let cases = [(32_u64, 16_u64, true, false), (128, 16, false, false), (128, 65, false, true)];
    for (at_most, bytes, has_room, is_refused) in cases {
        let settings = SessionSettings { at_most: Some(at_most << 20), ..DEFAULT_SETTINGS };
        let mut hostile = HostileEnd::new();
        hostile.send(&SenderMessage::Begin(settings)).offer(std::slice::from_ref(&small_file));
        let outcome = hostile.send(&SenderMessage::TotalFound(bytes << 20)).run_session(&mounted.path());
        assert_eq!(space_answers(&outcome), [has_room]);
        let refused = outcome.answers.iter().any(|answer| matches!(answer, ReceiverMessage::Refused(_)));
        let is_wanted = outcome.answers.contains(&ReceiverMessage::Decisions(vec![EntryDecision::Wanted]));
        assert_eq!((refused, is_wanted), (is_refused, true));
        let why = if is_refused { "there is room for" } else { "closed the connection" };
        assert!(outcome.errors().contains(why), "{}", outcome.errors());
    }
}

#[test]
fn total_is_sent_once_if_unknown() {
    let known_total = SessionSettings { bytes: Some(5), ..DEFAULT_SETTINGS };
    let unknown_total = SessionSettings { at_most: Some(5), ..DEFAULT_SETTINGS };
    for (settings, times) in [(known_total, 1), (DEFAULT_SETTINGS, 1), (unknown_total, 2)] {
        let (_outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        hostile.send(&SenderMessage::Begin(settings));
        for _ in 0..times {
            hostile.send(&SenderMessage::TotalFound(5));
        }
        let errors = hostile.run_session(&inner).errors();
        assert!(errors.contains("it says again how much there is"), "{errors}");
    }
}
