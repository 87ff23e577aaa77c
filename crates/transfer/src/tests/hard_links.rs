//! Files of several names: sent once, linked at the receiver, and never to anything but a file of the same session.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use super::streams::{with_receiver, with_receiver_options};
use super::{
    DEFAULT_SETTINGS, HostileEnd, SessionOutcome, content, directory, directory_destination, entry, file, final_names,
    names, sender_options, target_directory,
};
use crate::blocks::BLOCK_BYTES;
use crate::message::{
    EntryDecision, EntryKind, EntryNumber, FileEntry, ReceiverMessage, SenderMessage, SessionSettings,
};
use crate::offer_policy::SenderLeave;
use crate::path_filter::PathFilter;
use crate::receive::ReceiverOptions;
use crate::send::{SendResult, Sender};
use crate::session::SessionEvent;
use crate::source::{PreserveOptions, SourceList};
use crate::wire::secret::Secret;

const UPDATE: SessionSettings = SessionSettings { update: true, ..DEFAULT_SETTINGS };
const PRESERVE: PreserveOptions = PreserveOptions {
    recursive: true,
    links: false,
    copy_links: false,
    hard_links: true,
    owners: false,
    attributes: crate::source::AttributePolicy::CountWhenSent,
    acls: false,
};

/// Sends a tree to a receiver that may replace files, or not; what came of it.
fn send(tree: &Path, directory: &Path, settings: SessionSettings, overwrite: bool) -> SendResult {
    let mut result = None;
    let leave = SenderLeave { overwrite, delete: true, acls: false };
    let options = ReceiverOptions { leave, ..ReceiverOptions::default() };
    with_receiver_options(options, directory_destination(directory), |receiver| {
        let list = SourceList::collect(&[tree.to_owned()], PRESERVE).unwrap();
        let address = receiver.0.address().unwrap();
        let sender = Sender::connect(&[address], &Secret::none(), sender_options(settings)).unwrap();
        result = Some(sender.send(list, &|_, _| {}).unwrap());
    });
    result.unwrap()
}

/// Files, hard links, and those that need not be moved.
fn counts(result: &SendResult) -> (u64, u64, u64) {
    assert!(result.unsent.is_empty(), "{:?}", result.unsent);
    (result.summary.moved.files, result.summary.moved.hard_links, result.unchanged)
}

fn inode(path: &Path) -> u64 {
    path.symlink_metadata().unwrap().ino()
}

/// A small and a large file of several names each, and one with another name that is not sent.
fn make_tree(outer: &Path) -> std::path::PathBuf {
    let tree = outer.join("tree");
    fs::create_dir_all(tree.join("b/deep")).unwrap();
    fs::write(tree.join("b/small"), "small").unwrap();
    fs::write(tree.join("large"), content(BLOCK_BYTES as usize + 7, 1)).unwrap();
    fs::write(tree.join("single"), "single").unwrap();
    for (first, further) in [("b/small", "a"), ("b/small", "b/deep/z"), ("large", "large too")] {
        fs::hard_link(tree.join(first), tree.join(further)).unwrap();
    }
    fs::hard_link(tree.join("single"), outer.join("elsewhere")).unwrap();
    tree
}

#[test]
fn names_of_a_file_stay_names_of_one_file() {
    let (outer, inner) = target_directory();
    let tree = make_tree(outer.path());
    let arrived = inner.join("tree");
    let same = |left: &str, right: &str| inode(&arrived.join(left)) == inode(&arrived.join(right));
    let sent = send(&tree, &inner, UPDATE, false);
    assert_eq!(counts(&sent), (3, 3, 0));
    assert_eq!(sent.summary.moved.amount.total(), BLOCK_BYTES + 7 + 5 + 6, "each content once");
    assert!(sent.summary.to_string().starts_with("moved 3 files and made 3 hard links, "), "{}", sent.summary);
    assert!(same("a", "b/small") && same("a", "b/deep/z") && same("large", "large too") && !same("a", "single"));
    assert_eq!(arrived.join("single").metadata().unwrap().nlink(), 1);
    assert_eq!(fs::read_to_string(arrived.join("b/deep/z")).unwrap(), "small");
    let modified = |path: &Path| path.metadata().unwrap().modified().unwrap();
    assert_eq!(modified(&arrived.join("b/deep")), modified(&tree.join("b/deep")), "set after its links were made");
    assert_eq!(counts(&send(&tree, &inner, UPDATE, false)), (0, 0, 6));

    // One name was lost, and one has become a file of its own, which only leave to replace makes a link again.
    fs::remove_file(arrived.join("b/deep/z")).unwrap();
    fs::remove_file(arrived.join("large too")).unwrap();
    fs::copy(tree.join("large"), arrived.join("large too")).unwrap();
    let sent = send(&tree, &inner, UPDATE, false);
    assert_eq!((sent.summary.moved.files, sent.summary.moved.hard_links, sent.unsent.len()), (0, 1, 1));
    assert!(sent.unsent[0].why.to_string().contains("large too exists"), "{}", sent.unsent[0].why);
    assert!(same("a", "b/deep/z") && !same("large", "large too"));
    let dry = send(&tree, &inner, SessionSettings { dry_run: true, ..UPDATE }, true);
    assert_eq!(dry.planned, [tree.join("large too")].map(|path| fs::canonicalize(path).unwrap()));
    assert!(!same("large", "large too"));
    assert_eq!(counts(&send(&tree, &inner, UPDATE, true)), (0, 1, 5));
    assert!(same("large", "large too"));

    // A file that changed is another one, and its names follow it; what is no more here goes, and nothing else.
    fs::write(tree.join("a"), "changed").unwrap();
    fs::write(arrived.join("old"), "").unwrap();
    let sent = send(&tree, &inner, SessionSettings { delete: true, ..UPDATE }, true);
    assert_eq!((counts(&sent), sent.deletion.deleted), ((1, 2, 3), vec!["tree/old".into()]));
    assert!(same("a", "b/small") && same("a", "b/deep/z"));
    assert_eq!(fs::read_to_string(arrived.join("b/small")).unwrap(), "changed");
    assert_eq!(final_names(&arrived.join("b")), (["deep", "small"].map(str::to_owned).to_vec(), 0));
}

#[test]
fn dry_run_lists_links_and_makes_none() {
    let (outer, inner) = target_directory();
    let tree = make_tree(outer.path());
    let sent = send(&tree, &inner, SessionSettings { dry_run: true, ..DEFAULT_SETTINGS }, false);
    assert_eq!((sent.planned.len(), sent.unsent.len(), names(&inner).len()), (6, 0, 0));
}

/// Of two names in a list, and of two that were named, the second is a link.
#[test]
fn listed_and_named_files_are_linked() {
    let (outer, inner) = target_directory();
    let tree = make_tree(outer.path());
    let listed = ["b/deep/z".into(), "a".into()];
    let list = SourceList::from_paths(&tree, &listed, (PRESERVE, PathFilter::default())).unwrap();
    let named = SourceList::collect(&[tree.join("large"), tree.join("large too")], PRESERVE).unwrap();
    with_receiver(directory_destination(&inner), |receiver| {
        for (list, files) in [(list, 1), (named, 1)] {
            let address = receiver.0.address().unwrap();
            let sender = Sender::connect(&[address], &Secret::none(), sender_options(DEFAULT_SETTINGS)).unwrap();
            assert_eq!(counts(&sender.send(list, &|_, _| {}).unwrap()), (files, 1, 0));
        }
    });
    assert!(inode(&inner.join("a")) == inode(&inner.join("b/deep/z")));
    assert!(inode(&inner.join("large")) == inode(&inner.join("large too")));
}

fn linkable(name: &str) -> FileEntry {
    FileEntry { has_links: true, ..file(name, 5) }
}

fn link(parent: u32, name: &str, first: EntryNumber) -> FileEntry {
    entry(parent, name, EntryKind::HardLink { first })
}

/// Offers a file, sends its content, and offers further names; `hook` is called once the file is in its place.
fn offer_links(inner: &Path, first: FileEntry, links: &[FileEntry], hook: &dyn Fn()) -> SessionOutcome {
    let mut hostile = HostileEnd::new();
    let is_wanted = !inner.join(first.name.as_os_str()).exists();
    hostile.begin().offer(&[directory(0, "sub"), first]);
    if is_wanted {
        hostile.batch(&[(1, b"hello")]);
    }
    hostile.offer(links);
    hostile.run_session_with(&directory_destination(inner), true, &|event| {
        if matches!(event, SessionEvent::FileStored(path) if path == Path::new("a")) {
            hook();
        }
    })
}

#[test]
fn links_to_other_files_are_refused() {
    const NOT_IN_PLACE: &str = "is a hard link to a file that is not in its place";
    const NOT_OFFERED: &str = "it links to a file that it did not offer";
    for (first, links, words) in [
        (linkable("a"), link(0, "b", 2), NOT_OFFERED),
        (linkable("a"), link(0, "b", u32::MAX), NOT_OFFERED),
        (linkable("a"), link(0, "b", 0), NOT_IN_PLACE),
        // Nobody said that it would have further names.
        (file("a", 5), link(0, "b", 1), NOT_IN_PLACE),
        // It was refused, since something else is there.
        (linkable("there"), link(0, "b", 1), NOT_IN_PLACE),
        (linkable("a"), link(0, "there", 1), "is a directory"),
        (linkable("a"), link(0, ".kelvin-part-x", 1), "names that begin so"),
        (linkable("a"), link(7, "b", 1), "it names a directory that it did not offer"),
    ] {
        let (outer, inner) = target_directory();
        fs::create_dir(inner.join("there")).unwrap();
        let outcome = offer_links(&inner, first, &[links], &|| ());
        assert!(outcome.errors().contains(words), "{words}: {}", outcome.errors());
        assert!(!inner.join("b").exists() && names(outer.path()) == ["in"]);
    }
}

/// While others change what is in the directory, nothing gets a name that did not come.
#[test]
fn replaced_file_gets_no_name() {
    let replacements: [fn(&Path, &Path); 4] = [
        |_, place| symlink("../secret", place).unwrap(),
        |secret, place| fs::hard_link(secret, place).unwrap(),
        |_, place| fs::create_dir(place).unwrap(),
        |_, _| (),
    ];
    for replace in replacements {
        let (outer, inner) = target_directory();
        let secret = outer.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        let hook = || {
            fs::remove_file(inner.join("a")).unwrap();
            replace(&secret, &inner.join("a"));
        };
        let outcome = offer_links(&inner, linkable("a"), &[link(0, "b", 1), link(1, "b", 1)], &hook);
        assert_eq!(outcome.errors().matches("hard link").count(), 2, "{}", outcome.errors());
        assert_eq!((names(&inner.join("sub")), final_names(&inner).1), (vec![], 0));
        assert!(!inner.join("b").exists() && secret.metadata().unwrap().nlink() <= 2);
    }
}

/// A directory that is replaced by a link leads nowhere.
#[test]
fn replaced_directory_is_not_followed() {
    let (outer, inner) = target_directory();
    let hook = || {
        fs::remove_dir(inner.join("sub")).unwrap();
        symlink("..", inner.join("sub")).unwrap();
    };
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[directory(0, "sub"), linkable("a")]).batch(&[(1, b"hello")]);
    let many = (2..40).map(|number| directory(0, &number.to_string())).collect::<Vec<_>>();
    // So that it is not held open any more.
    hostile.offer(&many).offer(&[linkable("last")]).batch(&[(40, b"hello")]).offer(&[link(1, "b", 1)]);
    let outcome = hostile.run_session_with(&directory_destination(&inner), true, &|event| {
        if matches!(event, SessionEvent::FileStored(path) if path == Path::new("last")) {
            hook();
        }
    });
    assert!(outcome.errors().contains("cannot open the directory sub"), "{}", outcome.errors());
    assert_eq!(names(outer.path()), ["in"]);
}

#[test]
fn link_is_decided_at_once() {
    let (_outer, inner) = target_directory();
    let outcome = offer_links(&inner, linkable("a"), &[link(1, "b", 1), link(1, "c", 1)], &|| ());
    let decisions: Vec<EntryDecision> = outcome.answers.iter().fold(Vec::new(), |mut all, answer| {
        if let ReceiverMessage::Decisions(decisions) = answer {
            all.extend(decisions.clone());
        }
        all
    });
    use EntryDecision::{Made, Wanted};
    assert_eq!(decisions, [Made, Wanted, Made, Made]);
    assert_eq!(outcome.stored(), [Path::new("a"), Path::new("sub/b"), Path::new("sub/c")]);
    assert_eq!(inode(&inner.join("a")), inode(&inner.join("sub/c")));
    // A receiver that keeps nothing makes none, and none is refused.
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[linkable("a")]).batch(&[(0, b"hello")]).offer(&[link(0, "b", 0)]);
    hostile.send(&SenderMessage::End);
    let outcome = hostile.run_session_with(&crate::offer_policy::Destination::Nothing, false, &|_| {});
    assert_eq!(outcome.errors(), "the other side closed the connection");
}
