//! What a sender finds and opens: by a directory that is held open or by a path, and only what it has found.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kelvin_testing::Missing;
use kelvin_wire::secret::Secret;
use rustix::fs::{XattrFlags, fsetxattr};

use super::streams::with_receiver;
use super::{SETTINGS, content, into, names, place};
use crate::send::{Manner, Sender, Sent};
use crate::session::SMALL;
use crate::source::{Attributes, Collection, Keep, Opener};

fn keep(attributes: Attributes) -> Keep {
    Keep { recursive: true, attributes, ..Keep::default() }
}

fn collected(path: &Path, attributes: Attributes) -> Collection {
    Collection::of(&[path.to_owned()], keep(attributes)).unwrap()
}

fn sent(collection: Collection, inner: &Path) -> Sent {
    let mut sent = None;
    with_receiver(into(inner), |served| {
        let manner = Manner { settings: SETTINGS, acknowledge: false, limit: None, moving: None, choose: None };
        let sender = Sender::connect(&[served.0.address().unwrap()], &Secret::none(), manner).unwrap();
        sent = Some(sender.send(collection, &|_, _| {}).unwrap());
    });
    sent.unwrap()
}

#[test]
fn a_tree_deeper_than_directories_are_held_open_arrives_whole() {
    let (outer, inner) = place();
    let top = outer.path().join("0");
    let mut deepest = PathBuf::from(&top);
    for level in 1..80_u32 {
        fs::create_dir(&deepest).unwrap();
        ["a", "z"].iter().for_each(|name| fs::write(deepest.join(name), content(100, level)).unwrap());
        deepest.push("m");
    }
    let collection = collected(&top, Attributes::default());
    assert!(collection.unread.is_empty(), "{:?}", collection.unread);
    let sent = sent(collection, &inner);
    assert_eq!((sent.summary.moved.files, sent.unsent.len()), (2 * 79, 0));
    let (mut from, mut to) = (top, inner.join("0"));
    while from.exists() {
        assert_eq!(names(&from), names(&to));
        ["a", "z"]
            .iter()
            .for_each(|name| assert!(fs::read(from.join(name)).unwrap() == fs::read(to.join(name)).unwrap()));
        (from, to) = (from.join("m"), to.join("m"));
    }
}

#[test]
fn files_whose_attributes_are_not_kept_are_counted_once_found_or_sent() {
    let (outer, inner) = place();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for (number, bytes) in [3, 4, SMALL as usize + 1, SMALL as usize + 2].into_iter().enumerate() {
        let path = tree.join(format!("{number}"));
        fs::write(&path, content(bytes, 1)).unwrap();
        let set = |file: &File| fsetxattr(file, "user.of", b"value", XattrFlags::empty());
        if number % 2 == 0 && set(&File::open(&path).unwrap()).is_err() {
            return Missing::machine("no extended attributes where temporary files are")
                .skips("counting files that have some");
        }
    }
    let found = |attributes| collected(&tree, attributes).left_out.attributes;
    let found = [Attributes::Kept, Attributes::CountedAtOnce, Attributes::CountedWhenSent].map(found);
    assert_eq!(found, [0, 2, 0]);
    assert_eq!(sent(collected(&tree, Attributes::CountedWhenSent), &inner).left_out.attributes, 2);
    fs::remove_dir_all(inner.join("tree")).unwrap();
    assert_eq!(sent(collected(&tree, Attributes::CountedAtOnce), &inner).left_out.attributes, 2);
}

#[test]
fn a_directory_that_takes_the_place_of_another_has_none_of_its_files() {
    let outer = tempfile::tempdir().unwrap();
    let tree = outer.path().join("tree");
    let make = |bytes: &str| {
        fs::create_dir_all(tree.join("below")).unwrap();
        ["a", "b", "c"].iter().for_each(|name| fs::write(tree.join("below").join(name), bytes).unwrap());
    };
    make("own");
    let collection = collected(&tree, Attributes::default());
    let files: Vec<_> = collection.sources.iter().filter(|source| source.is_file()).collect();
    let mut opener = Opener::default();
    // The second one is opened from the directory, which stays what it was.
    for source in &files[..2] {
        assert!(source.check(&opener.open(source).unwrap()).is_ok());
    }
    fs::rename(tree.join("below"), tree.join("elsewhere")).unwrap();
    make("not");
    assert!(files[2].check(&opener.open(files[2]).unwrap()).is_ok());
    let mut opener = Opener::default();
    for source in files {
        let why = source.check(&opener.open(source).unwrap()).unwrap_err().to_string();
        assert!(why.contains("another file has taken its place"), "{why}");
    }
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_followed_from_a_directory_either() {
    let outer = tempfile::tempdir().unwrap();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    ["a", "b", "c"].iter().for_each(|name| fs::write(tree.join(name), "own").unwrap());
    let collection = collected(&tree, Attributes::default());
    let mut opener = Opener::default();
    let opened: Vec<_> = collection.sources[1..3].iter().map(|source| opener.open(source).is_ok()).collect();
    assert_eq!(opened, [true, true]);
    fs::rename(tree.join("c"), outer.path().join("c")).unwrap();
    std::os::unix::fs::symlink(outer.path().join("c"), tree.join("c")).unwrap();
    assert!(opener.open(&collection.sources[3]).is_err());
}
