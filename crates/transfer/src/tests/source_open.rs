//! What a sender finds and opens: by a directory that is held open or by a path, and only what it has found.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kelvin_testing::MissingRequirement;
use rustix::fs::{XattrFlags, fsetxattr};

use super::streams::with_receiver;
use super::{DEFAULT_SETTINGS, content, directory_destination, names, sender_options, target_directory};
use crate::message::MAX_SMALL_FILE;
use crate::send::{SendResult, Sender};
use crate::source::{AttributePolicy, PreserveOptions, SourceList, SourceOpener};
use crate::wire::secret::Secret;

fn preserve(attributes: AttributePolicy) -> PreserveOptions {
    PreserveOptions { recursive: true, attributes, ..PreserveOptions::default() }
}

fn collect(path: &Path, attributes: AttributePolicy) -> SourceList {
    SourceList::collect(&[path.to_owned()], preserve(attributes)).unwrap()
}

fn send(collection: SourceList, inner: &Path) -> SendResult {
    let mut sent = None;
    with_receiver(directory_destination(inner), |receiver| {
        let options = sender_options(DEFAULT_SETTINGS);
        let sender = Sender::connect(&[receiver.0.address().unwrap()], &Secret::none(), options).unwrap();
        sent = Some(sender.send(collection, &|_, _| {}).unwrap());
    });
    sent.unwrap()
}

#[test]
fn deep_tree_arrives_whole() {
    let (outer, inner) = target_directory();
    let top = outer.path().join("0");
    let mut deepest = PathBuf::from(&top);
    for level in 1..80_u32 {
        fs::create_dir(&deepest).unwrap();
        ["a", "z"].iter().for_each(|name| fs::write(deepest.join(name), content(100, level)).unwrap());
        deepest.push("m");
    }
    let collection = collect(&top, AttributePolicy::default());
    assert!(collection.unread.is_empty(), "{:?}", collection.unread);
    let sent = send(collection, &inner);
    assert_eq!((sent.summary.moved.files, sent.unsent.len()), (2 * 79, 0));
    let (mut source, mut target) = (top, inner.join("0"));
    while source.exists() {
        assert_eq!(names(&source), names(&target));
        ["a", "z"]
            .iter()
            .for_each(|name| assert!(fs::read(source.join(name)).unwrap() == fs::read(target.join(name)).unwrap()));
        (source, target) = (source.join("m"), target.join("m"));
    }
}

#[test]
fn unpreserved_attributes_are_counted_once() {
    let (outer, inner) = target_directory();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for (number, bytes) in [3, 4, MAX_SMALL_FILE as usize + 1, MAX_SMALL_FILE as usize + 2].into_iter().enumerate() {
        let path = tree.join(format!("{number}"));
        fs::write(&path, content(bytes, 1)).unwrap();
        let set = |file: &File| fsetxattr(file, "user.of", b"value", XattrFlags::empty());
        if number % 2 == 0 && set(&File::open(&path).unwrap()).is_err() {
            return MissingRequirement::machine("no extended attributes where temporary files are")
                .report_skip("counting files that have some");
        }
    }
    let attribute_count = |attributes| collect(&tree, attributes).skipped.attributes;
    let policies = [AttributePolicy::Preserve, AttributePolicy::CountWhenFound, AttributePolicy::CountWhenSent];
    assert_eq!(policies.map(attribute_count), [0, 2, 0]);
    assert_eq!(send(collect(&tree, AttributePolicy::CountWhenSent), &inner).omitted.attributes, 2);
    fs::remove_dir_all(inner.join("tree")).unwrap();
    assert_eq!(send(collect(&tree, AttributePolicy::CountWhenFound), &inner).omitted.attributes, 2);
}

#[test]
fn replaced_directory_yields_no_files() {
    let outer = tempfile::tempdir().unwrap();
    let tree = outer.path().join("tree");
    let make_tree = |bytes: &str| {
        fs::create_dir_all(tree.join("below")).unwrap();
        ["a", "b", "c"].iter().for_each(|name| fs::write(tree.join("below").join(name), bytes).unwrap());
    };
    make_tree("own");
    let collection = collect(&tree, AttributePolicy::default());
    let files: Vec<_> = collection.sources.iter().filter(|source| source.is_file()).collect();
    let mut opener = SourceOpener::default();
    // The second one is opened from the directory, which stays what it was.
    for source in &files[..2] {
        assert!(source.check_unchanged(&opener.open(source).unwrap()).is_ok());
    }
    fs::rename(tree.join("below"), tree.join("elsewhere")).unwrap();
    make_tree("not");
    assert!(files[2].check_unchanged(&opener.open(files[2]).unwrap()).is_ok());
    let mut opener = SourceOpener::default();
    for source in files {
        let why = source.check_unchanged(&opener.open(source).unwrap()).unwrap_err().to_string();
        assert!(why.contains("another file has taken its place"), "{why}");
    }
}

#[test]
fn link_replacing_file_is_not_followed() {
    let outer = tempfile::tempdir().unwrap();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    ["a", "b", "c"].iter().for_each(|name| fs::write(tree.join(name), "own").unwrap());
    let collection = collect(&tree, AttributePolicy::default());
    let mut opener = SourceOpener::default();
    let opened: Vec<_> = collection.sources[1..3].iter().map(|source| opener.open(source).is_ok()).collect();
    assert_eq!(opened, [true, true]);
    fs::rename(tree.join("c"), outer.path().join("c")).unwrap();
    std::os::unix::fs::symlink(outer.path().join("c"), tree.join("c")).unwrap();
    assert!(opener.open(&collection.sources[3]).is_err());
}
