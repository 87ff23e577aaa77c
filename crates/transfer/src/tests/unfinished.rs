//! What a receiver has not finished: the directories of an interrupted transfer, the names that it gives, and the room of files
//! that are arriving.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use kelvin_testing::fuse_server::FuseBehavior;
use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};

use super::{
    HostileEnd, SessionOutcome, content, directory, directory_destination, entry, file, names, piece, target_directory,
};
use crate::blocks::BLOCK_BYTES;
use crate::directory_tree::DirectoryTree;
use crate::message::{EntryDecision, EntryKind, FileEntry, ReceiverMessage, SenderMessage};
use crate::open_directory::{OpenDirectory, PART_PREFIX};

fn rights_and_time(path: &Path) -> (u32, i64) {
    let metadata = path.metadata().unwrap();
    (metadata.mode() & 0o7777, metadata.mtime())
}

/// Offers directories, and one in the first of them; their transfer ends, or is cut off.
fn offer_directories(hostile: &mut HostileEnd, is_cut: bool) -> &mut HostileEnd {
    hostile.begin().offer(&[directory(0, "new"), directory(0, "own"), directory(1, "below")]);
    if is_cut { hostile } else { hostile.send(&SenderMessage::End) }
}

#[test]
fn interrupted_directories_are_finished_by_next() {
    let (_outer, inner) = target_directory();
    DirBuilder::new().mode(0o700).create(inner.join("own")).unwrap();
    let initial = rights_and_time(&inner.join("own"));
    for (is_cut, rights) in [(true, 0o1700), (true, 0o1700), (false, 0o755)] {
        let mut hostile = HostileEnd::new();
        offer_directories(&mut hostile, is_cut);
        assert!(hostile.run_session(&inner).errors().contains("closed the connection"));
        for name in ["new", "new/below"] {
            let (mode, time) = rights_and_time(&inner.join(name));
            assert_eq!((mode, time == 1_000_000_000), (rights, !is_cut), "{name}");
        }
        assert_eq!(rights_and_time(&inner.join("own")), initial);
    }
    // What is finished is the user's.
    fs::set_permissions(inner.join("new"), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    offer_directories(&mut HostileEnd::new(), false).run_session(&inner);
    assert_eq!(rights_and_time(&inner.join("new")), (0o711, 1_000_000_000));
}

/// The reason why each entry was refused.
fn refusals(outcome: &SessionOutcome) -> Vec<Option<String>> {
    let decisions = outcome.answers.iter().filter_map(|answer| match answer {
        ReceiverMessage::Decisions(decisions) => Some(decisions),
        _ => None,
    });
    let why = |decision: &EntryDecision| match decision {
        EntryDecision::Refused(why) => Some(why.0.clone()),
        _ => None,
    };
    decisions.flatten().map(why).collect()
}

#[test]
fn reserved_names_are_refused() {
    let kinds = [EntryKind::File { bytes: 1, stored: 1 }, EntryKind::Stream, EntryKind::Directory];
    for kind in [&kinds[..], &[EntryKind::Link { target: b"x".to_vec() }]].concat() {
        for prefix in [PART_PREFIX, ".kelvin-scratch-", ".kelvin-unfinished-"] {
            let (_outer, inner) = target_directory();
            let name = format!("{prefix}of a user");
            // What follows it has its number.
            let other_entries = [directory(0, "directory"), file(".kelvin", 1)];
            let mut hostile = HostileEnd::new();
            hostile.begin().offer(&[&[entry(0, &name, kind.clone())][..], &other_entries].concat()).batch(&[(2, b"x")]);
            let outcome = hostile.run_session(&inner);
            let why = refusals(&outcome);
            assert!(matches!(&why[..], [Some(why), None, None] if why.contains(&name)), "{kind:?}: {why:?}");
            assert_eq!(names(&inner), [".kelvin", "directory"]);
        }
    }
}

#[test]
fn refused_directory_takes_nothing() {
    let (_outer, inner) = target_directory();
    let name = format!("{PART_PREFIX}of a user");
    fs::create_dir(inner.join(&name)).unwrap();
    let mut hostile = HostileEnd::new();
    let kind = EntryKind::File { bytes: 1, stored: 1 };
    hostile.begin().offer(&[
        directory(0, &name),
        directory(1, "below"),
        entry(1, "a", kind.clone()),
        entry(2, "b", kind),
    ]);
    let outcome = hostile.run_session(&inner);
    assert!(refusals(&outcome).iter().all(Option::is_some) && outcome.answers.len() == 1, "{:?}", outcome.answers);
    assert_eq!(names(&inner.join(&name)), Vec::<String>::new());
}

/// As many megabytes as a file has.
fn sized_file(name: &str, mebibytes: u64) -> FileEntry {
    entry(0, name, EntryKind::File { bytes: mebibytes << 20, stored: mebibytes << 20 })
}

#[test]
fn used_space_is_not_reserved_twice() {
    let subject = "room of arriving files";
    let mounted = match MountedFs::new(FileSystemKind::Tmpfs, &std::env::temp_dir()) {
        Ok(mounted) => mounted,
        Err(missing) => return missing.report_skip(subject),
    };
    let mut hostile = HostileEnd::new();
    // Of 64 MiB, 40 are promised, 20 of them taken: 24 are left.
    hostile.begin().offer(&[sized_file("a", 40)]);
    for block in 0..5 {
        hostile.block(piece(0, block * BLOCK_BYTES, BLOCK_BYTES as u32), &content(BLOCK_BYTES as usize, block as u32));
    }
    hostile.offer(&[sized_file("b", 22)]).offer(&[sized_file("c", 4)]);
    // What it has taken and was promised is free again.
    hostile
        .send(&SenderMessage::Abandoned { file: 0, why: "no reason".into() })
        .offer(&[sized_file("d", 40)])
        .offer(&[sized_file("e", 4)]);
    let outcome = hostile.run_session_with(&directory_destination(&mounted.path()), false, &|_| {});
    let refused: Vec<_> = refusals(&outcome).iter().map(Option::is_some).collect();
    assert_eq!(refused, [false, false, true, false, true], "{}", outcome.errors());
}

#[test]
fn directory_is_listed_once() {
    /// More than are held open at one time.
    const DIRECTORIES: u32 = 40;
    let base = tempfile::tempdir().unwrap();
    let (mounted, requests) = match MountedFs::serve(FuseBehavior::default(), base.path()) {
        Ok(mount) => mount,
        Err(missing) => return missing.report_skip("listings of directories that are opened again"),
    };
    let listings = || requests.listings.swap(0, Ordering::Relaxed);
    (0..DIRECTORIES).for_each(|number| fs::create_dir(mounted.path().join(number.to_string())).unwrap());
    let mut tree = DirectoryTree::new(OpenDirectory::open_root(&mounted.path()).unwrap());
    assert_eq!(listings(), 1);
    (0..DIRECTORIES).for_each(|number| tree.add(&directory(0, &number.to_string()), (false, false)).unwrap());
    assert_eq!(listings(), u64::from(DIRECTORIES));
    for _ in 0..2 {
        (1..=DIRECTORIES).for_each(|number| drop(tree.open_directory(number).unwrap()));
    }
    assert_eq!(listings(), 0);
    // Nothing of others can be in one that was made now.
    tree.add(&directory(0, "new"), (false, false)).unwrap();
    drop(tree.open_directory(DIRECTORIES + 1).unwrap());
    assert_eq!(listings(), 0);
}
