//! Which files are sent: by size, by what is there already, and where links lead.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::streams::with_receiver_options;
use super::{DEFAULT_SETTINGS, directory_destination, names, sender_options, target_directory};
use crate::message::SessionSettings;
use crate::offer_policy::SenderLeave;
use crate::path_filter::PathFilter;
use crate::receive::ReceiverOptions;
use crate::send::{SendResult, Sender, SenderOptions};
use crate::source::{PreserveOptions, SourceList};
use crate::wire::secret::Secret;

const RECURSIVE: PreserveOptions = PreserveOptions {
    recursive: true,
    links: false,
    copy_links: false,
    hard_links: false,
    owners: false,
    attributes: crate::source::AttributePolicy::CountWhenSent,
    acls: false,
};

fn send(list: SourceList, inner: &Path, settings: SessionSettings, overwrite: bool) -> SendResult {
    let mut result = None;
    let options =
        ReceiverOptions { leave: SenderLeave { overwrite, ..SenderLeave::default() }, ..ReceiverOptions::default() };
    with_receiver_options(options, directory_destination(inner), |receiver| {
        let options = SenderOptions { lists_moved: true, ..sender_options(settings) };
        let sender = Sender::connect(&[receiver.0.address().unwrap()], &Secret::none(), options).unwrap();
        result = Some(sender.send(list, &|_, _| {}).unwrap());
    });
    result.unwrap()
}

fn collect(tree: &Path, preserve: PreserveOptions, filter: PathFilter) -> SourceList {
    let mut list = SourceList::begin(&[tree.to_owned()], preserve, filter).unwrap();
    list.find_all().unwrap();
    list
}

fn make_tree(outer: &Path, files: &[(&str, usize)]) -> PathBuf {
    let tree = outer.join("tree");
    for (name, bytes) in files {
        fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
        fs::write(tree.join(name), vec![b'x'; *bytes]).unwrap();
    }
    tree
}

#[test]
fn files_of_other_sizes_are_not_sent() {
    let (outer, inner) = target_directory();
    let tree = make_tree(outer.path(), &[("0", 0), ("9", 9), ("10", 10), ("20", 20), ("sub/21", 21)]);
    for (min_bytes, max_bytes, expected) in [
        (Some(10), None, &["10", "20", "sub/21"][..]),
        (None, Some(20), &["0", "10", "20", "9"]),
        (Some(10), Some(20), &["10", "20"]),
    ] {
        let mut filter = PathFilter::default();
        filter.limit_size(min_bytes, max_bytes);
        let mut sent = send(collect(&tree, RECURSIVE, filter), &inner, DEFAULT_SETTINGS, false).moved_paths;
        sent.sort();
        assert_eq!(sent, expected.iter().map(|name| tree.join(name)).collect::<Vec<_>>());
        fs::remove_dir_all(inner.join("tree")).unwrap();
    }
}

#[test]
fn what_is_there_is_left_as_it_is() {
    let (outer, inner) = target_directory();
    let tree = make_tree(outer.path(), &[("a", 1), ("b", 1), ("new", 1)]);
    symlink("a", tree.join("link")).unwrap();
    fs::create_dir_all(inner.join("tree/b")).unwrap();
    fs::write(inner.join("tree/a"), "other").unwrap();
    symlink("elsewhere", inner.join("tree/link")).unwrap();
    for (overwrite, moved) in [(true, 1), (false, 0)] {
        let list = collect(&tree, PreserveOptions { links: true, ..RECURSIVE }, PathFilter::default());
        let sent = send(list, &inner, SessionSettings { ignore_existing: true, ..DEFAULT_SETTINGS }, overwrite);
        assert_eq!((sent.summary.moved.files, sent.unchanged, sent.unsent.len()), (moved, 4 - moved, 0));
    }
    assert_eq!(fs::read_to_string(inner.join("tree/a")).unwrap(), "other");
    assert_eq!(fs::read_link(inner.join("tree/link")).unwrap(), Path::new("elsewhere"));
    assert!(inner.join("tree/b").is_dir());
}

#[test]
fn links_are_followed_and_loops_are_not() {
    let (outer, inner) = target_directory();
    let tree = make_tree(outer.path(), &[("sub/deep/a", 1)]);
    fs::create_dir(outer.path().join("other")).unwrap();
    fs::write(outer.path().join("other/b"), "b").unwrap();
    for (target, link) in [("../other", "directory"), ("../other/b", "file"), ("none", "broken"), ("..", "sub/up")] {
        symlink(target, tree.join(link)).unwrap();
    }
    symlink(".", tree.join("sub/deep/itself")).unwrap();
    let list = collect(&tree, PreserveOptions { copy_links: true, ..RECURSIVE }, PathFilter::default());
    let sent = send(list, &inner, DEFAULT_SETTINGS, false);
    let mut unsent: Vec<String> = sent.unsent.iter().map(|unsent| unsent.why.to_string()).collect();
    unsent.sort();
    assert_eq!(unsent.len(), 3, "{unsent:?}");
    assert!(unsent[0].contains("cannot follow the link") && unsent[0].contains("broken"), "{unsent:?}");
    assert!(unsent[1..].iter().all(|why| why.contains("leads to a directory that it is in")), "{unsent:?}");
    assert_eq!((sent.summary.moved.files, sent.omitted.links), (3, 0));
    assert_eq!(names(&inner.join("tree")), ["directory", "file", "sub"]);
    assert_eq!(fs::read(inner.join("tree/directory/b")).unwrap(), b"b");
    assert!(inner.join("tree/file").symlink_metadata().unwrap().is_file());
    assert_eq!(names(&inner.join("tree/sub/deep")), ["a"]);
    // Without the option they are left out.
    let sent = send(collect(&tree, RECURSIVE, PathFilter::default()), &inner, DEFAULT_SETTINGS, true);
    assert_eq!((sent.summary.moved.files, sent.omitted.links), (1, 5));
}
