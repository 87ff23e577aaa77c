//! What a receiver has not finished: the directories of an interrupted transfer, the names that it gives, and the room of files
//! that are arriving.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use kelvin_testing::mounted::{FileSystemKind, Mounted};
use kelvin_testing::served::Behaviour;

use super::{Heard, Hostile, content, directory, entry, file, into, names, piece, place};
use crate::blocks::BLOCK;
use crate::message::{Decision, Entry, EntryKind, FromReceiver, FromSender};
use crate::tree::{PART, Root, Tree};

fn rights_and_time(path: &Path) -> (u32, i64) {
    let found = path.metadata().unwrap();
    (found.mode() & 0o7777, found.mtime())
}

/// Offers directories, and one in the first of them; their transfer ends, or is cut off.
fn offered(hostile: &mut Hostile, is_cut: bool) -> &mut Hostile {
    hostile.begin().offer(&[directory(0, "new"), directory(0, "own"), directory(1, "below")]);
    if is_cut { hostile } else { hostile.say(&FromSender::End) }
}

#[test]
fn directories_of_an_interrupted_transfer_are_finished_by_the_next_and_the_users_own_stay() {
    let (_outer, inner) = place();
    DirBuilder::new().mode(0o700).create(inner.join("own")).unwrap();
    let own = rights_and_time(&inner.join("own"));
    for (is_cut, rights) in [(true, 0o1700), (true, 0o1700), (false, 0o755)] {
        let mut hostile = Hostile::new();
        offered(&mut hostile, is_cut);
        assert!(hostile.heard(&inner).errors().contains("closed the connection"));
        for made in ["new", "new/below"] {
            let (found, time) = rights_and_time(&inner.join(made));
            assert_eq!((found, time == 1_000_000_000), (rights, !is_cut), "{made}");
        }
        assert_eq!(rights_and_time(&inner.join("own")), own);
    }
    // What is finished is the user's.
    fs::set_permissions(inner.join("new"), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    offered(&mut Hostile::new(), false).heard(&inner);
    assert_eq!(rights_and_time(&inner.join("new")), (0o711, 1_000_000_000));
}

/// The reason why each entry was refused.
fn refused(heard: &Heard) -> Vec<Option<String>> {
    let decisions = heard.answers.iter().filter_map(|answer| match answer {
        FromReceiver::Decisions(decisions) => Some(decisions),
        _ => None,
    });
    let why = |decision: &Decision| match decision {
        Decision::Refused(why) => Some(why.0.clone()),
        _ => None,
    };
    decisions.flatten().map(why).collect()
}

#[test]
fn names_of_what_a_receiver_removes_are_refused() {
    let kinds = [EntryKind::File { bytes: 1, stored: 1 }, EntryKind::Stream, EntryKind::Directory];
    for kind in [&kinds[..], &[EntryKind::Link { target: b"x".to_vec() }]].concat() {
        for beginning in [PART, ".kelvin-scratch-", ".kelvin-unfinished-"] {
            let (_outer, inner) = place();
            let name = format!("{beginning}of a user");
            // What follows it has its number.
            let others = [directory(0, "directory"), file(".kelvin", 1)];
            let mut hostile = Hostile::new();
            hostile.begin().offer(&[&[entry(0, &name, kind.clone())][..], &others].concat()).batch(&[(2, b"x")]);
            let heard = hostile.heard(&inner);
            let why = refused(&heard);
            assert!(matches!(&why[..], [Some(why), None, None] if why.contains(&name)), "{kind:?}: {why:?}");
            assert_eq!(names(&inner), [".kelvin", "directory"]);
        }
    }
}

#[test]
fn nothing_comes_into_a_directory_that_was_refused() {
    let (_outer, inner) = place();
    let name = format!("{PART}of a user");
    fs::create_dir(inner.join(&name)).unwrap();
    let mut hostile = Hostile::new();
    let one = EntryKind::File { bytes: 1, stored: 1 };
    hostile.begin().offer(&[
        directory(0, &name),
        directory(1, "below"),
        entry(1, "a", one.clone()),
        entry(2, "b", one),
    ]);
    let heard = hostile.heard(&inner);
    assert!(refused(&heard).iter().all(Option::is_some) && heard.answers.len() == 1, "{:?}", heard.answers);
    assert_eq!(names(&inner.join(&name)), Vec::<String>::new());
}

/// As many megabytes as a file has.
fn of(name: &str, mebibytes: u64) -> Entry {
    entry(0, name, EntryKind::File { bytes: mebibytes << 20, stored: mebibytes << 20 })
}

#[test]
fn room_that_an_arriving_file_has_taken_is_not_promised_as_well() {
    let what = "room of arriving files";
    let mounted = match Mounted::of(FileSystemKind::Tmpfs, &std::env::temp_dir()) {
        Ok(mounted) => mounted,
        Err(missing) => return missing.skips(what),
    };
    let mut hostile = Hostile::new();
    // Of 64 MiB, 40 are promised, 20 of them taken: 24 are left.
    hostile.begin().offer(&[of("a", 40)]);
    for block in 0..5 {
        hostile.block(piece(0, block * BLOCK, BLOCK as u32), &content(BLOCK as usize, block as u32));
    }
    hostile.offer(&[of("b", 22)]).offer(&[of("c", 4)]);
    // What it has taken and was promised is free again.
    hostile.say(&FromSender::Abandoned { file: 0, why: "no reason".into() }).offer(&[of("d", 40)]).offer(&[of("e", 4)]);
    let heard = hostile.heard_by(&into(&mounted.path()), false, &|_| {});
    let refused: Vec<_> = refused(&heard).iter().map(Option::is_some).collect();
    assert_eq!(refused, [false, false, true, false, true], "{}", heard.errors());
}

#[test]
fn a_directory_is_listed_once_however_often_it_is_opened() {
    /// More than are held open at one time.
    const DIRECTORIES: u32 = 40;
    let base = tempfile::tempdir().unwrap();
    let (mounted, asked) = match Mounted::served(Behaviour::default(), base.path()) {
        Ok(served) => served,
        Err(missing) => return missing.skips("listings of directories that are opened again"),
    };
    let listings = || asked.listings.swap(0, Ordering::Relaxed);
    (0..DIRECTORIES).for_each(|number| fs::create_dir(mounted.path().join(number.to_string())).unwrap());
    let mut tree = Tree::new(Root::open(&mounted.path()).unwrap());
    assert_eq!(listings(), 1);
    (0..DIRECTORIES).for_each(|number| tree.add(&directory(0, &number.to_string()), (false, false)).unwrap());
    assert_eq!(listings(), u64::from(DIRECTORIES));
    for _ in 0..2 {
        (1..=DIRECTORIES).for_each(|number| drop(tree.held(number).unwrap()));
    }
    assert_eq!(listings(), 0);
    // Nothing of others can be in one that was made now.
    tree.add(&directory(0, "new"), (false, false)).unwrap();
    drop(tree.held(DIRECTORIES + 1).unwrap());
    assert_eq!(listings(), 0);
}
