//! A hostile sender and an honest receiver: nothing is written elsewhere, and nothing that is not whole has a name.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use serde::Serialize;

use super::{
    DEFAULT_SETTINGS, HostileEnd, content, digest, directory, directory_destination, entry, file, final_names,
    leave_part, names, piece, target_directory,
};
use crate::blocks::BLOCK_BYTES;
use crate::directory_tree;
use crate::message::{
    Acl, AclKind, Attribute, EntryDecision, EntryKind, FileEntry, FilePiece, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES,
    Mtime, ReceiverMessage, RefusalReason, SenderMessage, SenderReport, SessionSettings, WholeFile,
};
use crate::offer_policy::Destination;
use crate::session::{
    MAX_BATCH_BYTES, MAX_BATCH_FILES, MAX_OPEN_FILES, MAX_PENDING_CHECKS, MAX_WANTED_FILES, SessionEvent,
};
use crate::stage_times::{EndLoad, StageTimes, StorageKind};

pub(super) fn finish() -> SenderMessage {
    SenderMessage::Finish(Box::new(SenderReport {
        nanoseconds: 1,
        failed: 0,
        load: EndLoad {
            times: StageTimes {
                file: 0,
                file_wait: 0,
                verify: 0,
                compress: 0,
                cipher: 0,
                connection: 0,
                sync: 0,
                limit: 0,
            },
            cpu: 0,
            ready: 0,
            throttled: 0,
            storage: StorageKind::Disk,
        },
        carried: None,
        expected: None,
        method: None,
        chosen: None,
        compression: None,
    }))
}

#[test]
fn files_keep_mtime_and_permitted_modes() {
    let (_outer, inner) = target_directory();
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[file("a", 5), file("empty", 0)]).batch(&[(0, b"hello"), (1, b"")]);
    hostile.send(&SenderMessage::End).send(&finish());
    let outcome = hostile.run_session(&inner);
    assert_eq!(outcome.result.as_ref().map(|summary| summary.moved.files).unwrap(), 2);
    assert_eq!(outcome.stored(), [Path::new("a"), Path::new("empty")]);
    assert!(
        matches!(&outcome.answers[..], [_, ReceiverMessage::Verdicts(verdicts), ReceiverMessage::Finished(_)] if verdicts.len() == 2)
    );
    let metadata = inner.join("a").metadata().unwrap();
    assert_eq!(
        (metadata.permissions().mode() & 0o7777, metadata.mtime(), metadata.mtime_nsec()),
        (0o755, 1_000_000_000, 5)
    );
    assert_eq!(fs::read_to_string(inner.join("a")).unwrap(), "hello");
}

#[test]
fn verdicts_are_batched_until_sender_waits() {
    let verdicts = |files: u32, sync, waits| {
        let (_outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        let entries: Vec<FileEntry> = (0..files).map(|number| file(&number.to_string(), 1)).collect();
        hostile.send(&SenderMessage::Begin(SessionSettings { sync, ..DEFAULT_SETTINGS })).offer(&entries);
        hostile.is_late = waits;
        for number in 0..files {
            hostile.batch(&[(number, b"x")]);
        }
        hostile.late().send(&SenderMessage::End).send(&finish());
        let outcome = hostile.run_session(&inner);
        assert_eq!(outcome.result.unwrap().moved.files, u64::from(files));
        let verdict_count = |answer: &ReceiverMessage| {
            if let ReceiverMessage::Verdicts(batch) = answer { Some(batch.len()) } else { None }
        };
        outcome.answers.iter().filter_map(verdict_count).collect::<Vec<usize>>()
    };
    assert_eq!(verdicts(300, false, false), [128, 128, 44]);
    assert_eq!(verdicts(300, false, true), [1; 300]);
    assert_eq!(verdicts(3, true, false), [1; 3]);
}

/// An offer of a name that no [`crate::file_name::FileName`] can be.
#[derive(Serialize)]
enum Forged<'a> {
    _Begin,
    Offer(Vec<ForgedEntry<'a>>),
}

#[derive(Serialize)]
struct ForgedEntry<'a> {
    parent: u32,
    name: &'a [u8],
    kind: EntryKind,
    mode: u32,
    modified: Mtime,
    owner: Option<(u32, u32)>,
    attributes: Vec<Attribute>,
    has_links: bool,
    acls: Vec<Acl>,
}

#[test]
fn escaping_names_are_refused_on_read() {
    let (outer, inner) = target_directory();
    let link = EntryKind::Link { target: b"x".to_vec() };
    let hard_link = EntryKind::HardLink { first: 0 };
    for kind in [EntryKind::File { bytes: 1, stored: 1 }, EntryKind::Stream, EntryKind::Directory, link, hard_link] {
        for name in [&b"../x"[..], b"/etc/x", b"a/b", b"a/", b"/", b"..", b".", b"", b"a\0b", &[b'x'; 4096]] {
            let FileEntry { mode, modified, .. } = file("a", 1);
            let (kind, attributes) = (kind.clone(), Vec::new());
            let forged = ForgedEntry {
                parent: 0,
                name,
                kind,
                mode,
                modified,
                owner: None,
                attributes,
                has_links: false,
                acls: Vec::new(),
            };
            let mut hostile = HostileEnd::new();
            hostile.begin().send(&Forged::Offer(vec![forged])).batch(&[(0, b"x")]);
            let outcome = hostile.run_session(&inner);
            assert!(outcome.errors().starts_with("malformed message"), "{name:?}: {}", outcome.errors());
            assert_eq!((outcome.answers, outcome.events.len()), (vec![], 0));
            assert_eq!((names(outer.path()), names(&inner)), (vec!["in".to_owned()], vec![]));
        }
    }
}

/// What a hostile sender sends after it has begun.
type HostileScript = fn(&mut HostileEnd) -> &mut HostileEnd;

/// Runs each of them; the errors contain these words, and nothing is left but this many parts.
fn assert_nothing_left(cases: &[(HostileScript, &str, usize)]) {
    for (number, (script, words, parts)) in cases.iter().enumerate() {
        let (outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        script(hostile.begin());
        let outcome = hostile.run_session_with(&directory_destination(&inner), true, &|_| {});
        assert!(outcome.errors().contains(words), "{number}: no {words:?} in {}", outcome.errors());
        assert_eq!((names(outer.path()), final_names(&inner)), (vec!["in".to_owned()], (vec![], *parts)), "{number}");
    }
}

const UNKNOWN: &str = "it sends a file that is not wanted";
const UNKNOWN_DIRECTORY: &str = "it names a directory that it did not offer";
const BEYOND_END: &str = "it sent bytes beyond the end of a file or of a block";
const OUT_OF_ORDER: &str = "it sent bytes of a file out of order";
const LARGE: u64 = 2 * BLOCK_BYTES + 100;

fn in_directory(parent: u32, kind: EntryKind) -> [FileEntry; 1] {
    [entry(parent, "a", kind)]
}

#[test]
fn message_order_violation_ends_session() {
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::End);
    let (_outer, inner) = target_directory();
    assert!(hostile.run_session(&inner).errors().contains("it does not begin"));
    assert_nothing_left(&[
        (|h| h.begin(), "neither offers nor sends", 0),
        (|h| h.send(&finish()), "neither offers nor sends", 0),
        (|h| h.send(&SenderMessage::Digests(vec![[1; 32]])), "the digest of nothing", 0),
        (|h| h.send(&SenderMessage::End).send(&SenderMessage::End), "it does not report what it measured", 0),
        (|h| h.send(&SenderMessage::End), "closed the connection", 0),
        (|h| h.frame(&[]), "malformed message", 0),
        (|h| h.frame(&[0xff; 100]), "malformed message", 0),
        (|h| h.raw(&[0xff; 100]), "a frame of 4294967295 bytes", 0),
        (|h| h.raw(&[0; 4]), "changed in transit", 0),
        // Lists that claim to be longer than the frame.
        (|h| h.frame(&[1, 0xff, 0xff, 0xff, 0xff, 0x0f]), "malformed message", 0),
        (|h| h.frame(&[3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]), "malformed message", 0),
        (|h| h.frame(&[6, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]), "malformed message", 0),
        (|h| h.frame(&[2, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]), "malformed message", 0),
    ]);
}

#[test]
fn unoffered_or_unwanted_files_are_refused() {
    assert_nothing_left(&[
        (|h| h.batch(&[(0, b"x")]), UNKNOWN, 0),
        (|h| h.block(piece(u32::MAX, 0, 1), b"x"), UNKNOWN, 0),
        (|h| h.send(&SenderMessage::Hole(piece(0, 0, 1))), UNKNOWN, 0),
        (|h| h.send(&SenderMessage::ValidBlocks { file: 0, blocks: vec![1] }), UNKNOWN, 0),
        (
            |h| h.offer(&[file("a", BLOCK_BYTES + 1)]).send(&SenderMessage::ValidBlocks { file: 0, blocks: vec![] }),
            UNKNOWN,
            0,
        ),
        (
            |h| h.offer(&[file("a", BLOCK_BYTES + 1)]).send(&SenderMessage::ValidBlocks { file: 0, blocks: vec![1] }),
            "not there",
            0,
        ),
        (|h| h.send(&SenderMessage::Abandoned { file: 0, why: String::new() }), UNKNOWN, 0),
        (|h| h.offer(&in_directory(1, EntryKind::Directory)), UNKNOWN_DIRECTORY, 0),
        (|h| h.offer(&in_directory(1, EntryKind::Stream)), UNKNOWN_DIRECTORY, 0),
        (|h| h.offer(&in_directory(u32::MAX, EntryKind::File { bytes: 1, stored: 1 })), UNKNOWN_DIRECTORY, 0),
        (|h| h.offer(&in_directory(1, EntryKind::Link { target: b"x".to_vec() })), UNKNOWN_DIRECTORY, 0),
        // Ahead of its content no more than may wait for it.
        (|h| h.offer(&vec![file("a", 1); MAX_WANTED_FILES + 1]), "it offers more files than it may", 0),
        (
            |h| {
                h.offer(&vec![file("a", 1); MAX_WANTED_FILES / 2])
                    .offer(&vec![file("a", 1); MAX_WANTED_FILES / 2])
                    .offer(&[file("b", 1)])
            },
            "it offers more files than it may",
            0,
        ),
    ]);
}

#[test]
fn arrived_file_is_not_accepted_again() {
    let (_outer, inner) = target_directory();
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[file("a", 1)]).block(piece(0, 0, 1), b"x").block(piece(0, 0, 1), b"y");
    let outcome = hostile.run_session(&inner);
    assert!(outcome.errors().contains(UNKNOWN), "{}", outcome.errors());
    assert_eq!(fs::read(inner.join("a")).unwrap(), b"x");
}

#[test]
fn wrong_sizes_leave_nothing() {
    assert_nothing_left(&[
        (|h| h.offer(&[file("a", 5)]).batch(&[(0, b"hell")]), "another number of bytes", 0),
        (|h| h.offer(&[file("a", 5)]).batch(&[(0, b"hello, world")]), "another number of bytes", 0),
        (|h| h.offer(&[file("a", 5)]).send(&batch(&[5])).data(b"hello, world"), "more bytes of a file", 0),
        (
            |h| h.offer(&[file("a", 5)]).send(&batch(&[5])).data(b"he").send(&SenderMessage::End),
            "closed the connection",
            0,
        ),
        (|h| h.offer(&[file("a", 5)]).send(&batch(&[5])).frame(b""), "fewer bytes of a file", 0),
        (|h| h.offer(&[file("a", 5)]).send(&batch(&[5])).data(b"he"), "closed the connection", 0),
        (|h| h.send(&batch(&[0; MAX_BATCH_FILES + 1])), "too many files at once", 0),
        (|h| h.send(&batch(&[MAX_BATCH_BYTES as u32, 1])), "too many files at once", 0),
        (|h| h.send(&batch(&[u32::MAX; MAX_BATCH_FILES])), "too many files at once", 0),
        (|h| h.offer(&[file("a", LARGE)]).batch(&[(0, b"x")]), "another number of bytes", 0),
        (|h| h.offer(&[file("a", u64::MAX)]).block(piece(0, 0, 1), b"x"), "a cannot have 18446744073709551615", 0),
        (|h| h.offer(&[file("a", i64::MAX as u64)]).block(piece(0, 0, 1), b"x"), "a cannot have 92233720368547", 0),
        (|h| h.offer(&[stored("a", u64::MAX)]), "there is room for ", 0),
        (|h| h.offer(&[stored("a", u64::MAX), stored("b", u64::MAX)]), "there is room for ", 0),
    ]);
}

/// A batch of files of this many bytes, without a digest.
fn batch(bytes: &[u32]) -> SenderMessage {
    SenderMessage::Batch { files: bytes.iter().map(|&bytes| WholeFile { file: 0, bytes }).collect(), digest: None }
}

fn stored(name: &str, stored: u64) -> FileEntry {
    entry(0, name, EntryKind::File { bytes: u64::MAX, stored })
}

/// Offers a large file, a small one and a stream, in this order.
fn offer_three(hostile: &mut HostileEnd) -> &mut HostileEnd {
    hostile.offer(&[file("large", LARGE), file("small", 9), entry(0, "stream", EntryKind::Stream)])
}

#[test]
fn inconsistent_pieces_leave_no_file() {
    assert_nothing_left(&[
        (|h| offer_three(h).send(&SenderMessage::Block(piece(0, 0, BLOCK_BYTES as u32 + 1))), "longer than a block", 0),
        (|h| offer_three(h).send(&SenderMessage::Block(piece(2, 0, u32::MAX))), "longer than a block", 0),
        (|h| offer_three(h).send(&SenderMessage::Hole(piece(2, 0, u32::MAX))), "longer than a block", 0),
        (|h| offer_three(h).send(&SenderMessage::Block(piece(0, 1, 5))), OUT_OF_ORDER, 0),
        (|h| offer_three(h).send(&SenderMessage::Block(piece(0, BLOCK_BYTES - 1, 2))), BEYOND_END, 0),
        (|h| offer_three(h).send(&SenderMessage::Block(piece(0, 2 * BLOCK_BYTES, 101))), BEYOND_END, 0),
        (|h| offer_three(h).send(&SenderMessage::Block(piece(0, LARGE, 1))), BEYOND_END, 0),
        (|h| offer_three(h).send(&SenderMessage::Block(piece(0, u64::MAX, 1))), BEYOND_END, 0),
        (|h| offer_three(h).send(&SenderMessage::Block(piece(0, u64::MAX - 1, 1))), BEYOND_END, 0),
        (|h| offer_three(h).send(&SenderMessage::Hole(piece(0, u64::MAX - 5, 5))), BEYOND_END, 0),
        (|h| offer_three(h).send(&SenderMessage::Block(piece(0, 0, 0))), BEYOND_END, 0),
        (|h| offer_three(h).block(piece(1, 0, 9), b"more than 9"), "more bytes of a file", 0),
        (
            |h| offer_three(h).block(piece(1, 0, 5), b"hello").send(&SenderMessage::Block(piece(1, 4, 5))),
            OUT_OF_ORDER,
            0,
        ),
        (
            |h| offer_three(h).block(piece(1, 0, 5), b"hello").send(&SenderMessage::Block(piece(1, 6, 3))),
            OUT_OF_ORDER,
            0,
        ),
        (|h| offer_three(h).block(piece(1, 0, 5), b"hello").send(&SenderMessage::Block(piece(1, 5, 5))), BEYOND_END, 0),
        (|h| begin_files(h, MAX_OPEN_FILES + 1), "it begins more files than it may", 0),
        (
            |h| begin_files(h, MAX_OPEN_FILES).send(&SenderMessage::Hole(piece(MAX_OPEN_FILES as u32, 0, 1))),
            "it begins more files",
            0,
        ),
        (
            |h| offer_three(h).block(piece(1, 0, 5), b"hello").send(&SenderMessage::End),
            "it ends before a file has ended",
            0,
        ),
        (|h| offer_three(h).block(piece(2, 0, 5), b"hello").block(piece(2, 6, 1), b"x"), OUT_OF_ORDER, 0),
        (
            |h| offer_three(h).block(piece(2, 0, 5), b"hello").send(&SenderMessage::Hole(piece(2, 0, 1))),
            OUT_OF_ORDER,
            0,
        ),
        (|h| offer_three(h).block(piece(2, 0, 5), b"hello"), "closed the connection", 0),
        (
            |h| offer_three(h).send(&SenderMessage::Block(piece(1, 0, 9))).data(b"123456789").send(&SenderMessage::End),
            "it ends before",
            0,
        ),
        // Whole blocks of a large file stay as a part.
        (|h| offer_three(h).block(whole_block(), &content(BLOCK_BYTES as usize, 1)), "closed the connection", 1),
        (
            |h| offer_three(h).block(whole_block(), &content(BLOCK_BYTES as usize, 1)).send(&SenderMessage::End),
            "it ends before",
            1,
        ),
        (
            |h| {
                let hole = SenderMessage::Hole(whole_block());
                offer_three(h).block(whole_block(), &content(BLOCK_BYTES as usize, 1)).send(&hole)
            },
            OUT_OF_ORDER,
            1,
        ),
    ]);
}

fn whole_block() -> FilePiece {
    piece(0, 0, BLOCK_BYTES as u32)
}

fn abandoned(file: u32) -> SenderMessage {
    SenderMessage::Abandoned { file, why: "no reason".into() }
}

/// Begins this many files of two bytes, of which one is offered more.
fn begin_files(hostile: &mut HostileEnd, count: usize) -> &mut HostileEnd {
    let offered: Vec<_> = (0..=count).map(|number| file(&number.to_string(), 2)).collect();
    (0..count as u32).fold(hostile.offer(&offered), |hostile, number| hostile.block(piece(number, 0, 1), b"x"))
}

#[test]
fn wrong_or_missing_digest_leaves_nothing() {
    const DIFFERS: &str = "what arrived differs from what was sent";
    const NOTHING: &str = "it sends the digest of nothing";
    assert_nothing_left(&[
        (|h| h.offer(&[file("a", 1)]).send(&batch(&[1])).data(b"x"), DIFFERS, 0),
        (|h| h.offer(&[file("a", 0)]).send(&batch(&[0])), DIFFERS, 0),
        (
            |h| offer_three(h).send(&SenderMessage::Block(piece(1, 0, 9))).data(b"123456789").send(&digests(0)),
            "closed",
            0,
        ),
        (
            |h| offer_three(h).send(&SenderMessage::Block(piece(1, 0, 9))).data(b"123456789").send(&digests(1)),
            DIFFERS,
            0,
        ),
        (|h| offer_three(h).block(piece(0, 0, 9), b"123456789").send(&digests(1)), NOTHING, 0),
        (|h| offer_three(h).send(&SenderMessage::Hole(piece(0, 0, 9))).send(&digests(1)), NOTHING, 0),
        (
            |h| {
                let second = SenderMessage::Block(piece(0, BLOCK_BYTES, 9));
                let large = offer_three(h).block(whole_block(), &content(BLOCK_BYTES as usize, 1)).send(&second);
                large.data(b"123456789").send(&digests(1))
            },
            DIFFERS,
            0,
        ),
        (
            |h| {
                let pieces = 0..=MAX_PENDING_CHECKS as u64;
                pieces.fold(offer_three(h), |h, first| h.send(&SenderMessage::Block(piece(2, first, 1))).data(b"x"))
            },
            "it sends more than it may before it sends digests",
            0,
        ),
        (|h| offer_three(h).block(piece(0, 0, 9), b"123456789").send(&abandoned(0)).send(&abandoned(0)), UNKNOWN, 0),
    ]);
}

/// This many digests of nothing that was sent.
fn digests(count: usize) -> SenderMessage {
    SenderMessage::Digests(vec![[1; 32]; count])
}

/// A file that failed is passed over until the sender knows of it, and the next one arrives.
#[test]
fn content_of_failed_file_is_skipped() {
    let (_outer, inner) = target_directory();
    let mut hostile = HostileEnd::new();
    offer_three(hostile.begin()).send(&SenderMessage::Block(piece(0, 0, 3))).data(b"abc").send(&digests(1));
    hostile.block(piece(0, 3, 3), b"def").send(&SenderMessage::Hole(piece(0, 6, 1))).send(&abandoned(0));
    hostile.batch(&[(1, b"123456789")]).block(FilePiece { is_last: true, ..piece(2, 0, 2) }, b"in");
    hostile.send(&SenderMessage::End).send(&finish());
    let outcome = hostile.run_session(&inner);
    assert!(outcome.result.is_ok(), "{}", outcome.errors());
    assert_eq!(final_names(&inner), (vec!["small".into(), "stream".into()], 0));
}

#[test]
fn unverified_content_is_still_bounded() {
    let (_outer, inner) = target_directory();
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::Begin(SessionSettings { verify: false, plain: true, ..DEFAULT_SETTINGS }));
    offer_three(&mut hostile).send(&batch_of(1, 9)).raw(b"123456789");
    hostile.send(&SenderMessage::Block(piece(0, 0, 9))).raw(b"123456789");
    let outcome = hostile.run_session(&inner);
    assert_eq!(
        (final_names(&inner).0, outcome.errors()),
        (vec!["small".into()], "the other side closed the connection".into())
    );
}

fn batch_of(file: u32, bytes: u32) -> SenderMessage {
    SenderMessage::Batch { files: vec![WholeFile { file, bytes }], digest: None }
}

/// Why each of these was refused, in the order of their offer.
fn refusals(answers: &[ReceiverMessage]) -> Vec<Option<String>> {
    let reason = |decision: &EntryDecision| match decision {
        EntryDecision::Refused(RefusalReason(why)) => Some(why.clone()),
        _ => None,
    };
    let decisions = answers.iter().filter_map(|answer| match answer {
        ReceiverMessage::Decisions(decisions) => Some(decisions.iter().map(reason)),
        _ => None,
    });
    decisions.flatten().collect()
}

#[test]
fn existing_files_stay_without_overwrite() {
    let (outer, inner) = target_directory();
    fs::write(outer.path().join("victim"), "the user's").unwrap();
    fs::write(inner.join("old"), "old").unwrap();
    symlink("../victim", inner.join("link")).unwrap();
    fs::create_dir(inner.join("directory")).unwrap();
    for (overwrite, old_refusal) in [(false, Some("old exists, and is replaced only with --overwrite")), (true, None)] {
        let mut hostile = HostileEnd::new();
        hostile.begin().offer(&["old", "link", "directory"].map(|name| file(name, 3)));
        let outcome = hostile.run_session_with(&directory_destination(&inner), overwrite, &|_| {});
        let expected = [
            old_refusal,
            Some("link is a symbolic link, and no regular file"),
            Some("directory is a directory, and no regular file"),
        ];
        assert_eq!(refusals(&outcome.answers), expected.map(|why| why.map(str::to_owned)));
    }
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[file("old", 3)]).batch(&[(0, b"new")]);
    hostile.run_session_with(&directory_destination(&inner), true, &|_| {});
    assert_eq!(fs::read_to_string(inner.join("old")).unwrap(), "new");
    assert_eq!(fs::read_to_string(outer.path().join("victim")).unwrap(), "the user's");
    assert_eq!(names(&inner), ["directory", "link", "old"]);
}

#[test]
fn file_or_link_parent_is_refused() {
    let (outer, inner) = target_directory();
    let elsewhere = outer.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(inner.join("file"), "a file").unwrap();
    symlink("../elsewhere", inner.join("link")).unwrap();
    let target = EntryKind::Link { target: b"../elsewhere".to_vec() };
    let inside = |parent, name| entry(parent, name, EntryKind::File { bytes: 1, stored: 1 });
    let offers = [
        directory(0, "file"),
        inside(1, "x"),
        directory(1, "deeper"),
        directory(0, "link"),
        inside(3, "x"),
        directory(3, "made"),
        entry(3, "y", target.clone()),
        // A link of its own making is none that it may pass.
        entry(0, "own", target),
        directory(0, "own"),
        inside(5, "x"),
    ];
    for overwrite in [false, true] {
        let mut hostile = HostileEnd::new();
        hostile.begin().offer(&offers).send(&SenderMessage::End).send(&finish());
        let outcome = hostile.run_session_with(&directory_destination(&inner), overwrite, &|_| {});
        let are_refused: Vec<_> = refusals(&outcome.answers).iter().map(Option::is_some).collect();
        assert_eq!(
            are_refused,
            offers.each_ref().map(|entry| entry.name.as_os_str() != "own" || entry.kind == EntryKind::Directory)
        );
        assert!(outcome.result.is_ok(), "{}", outcome.errors());
        assert_eq!((names(&elsewhere), names(&inner)), (vec![], vec!["file".into(), "link".into(), "own".into()]));
        assert_eq!(fs::read(inner.join("file")).unwrap(), b"a file");
    }
}

/// Somebody swaps a directory for a link while files arrive in it: whether it is held open or not, none arrives elsewhere.
#[test]
fn directory_swapped_for_link_is_not_followed() {
    for directory_count in [0, 40] {
        let (outer, inner) = target_directory();
        let elsewhere = outer.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let inside = |name| entry(1, name, EntryKind::File { bytes: 1, stored: 1 });
        let mut offers = vec![directory(0, "swapped"), inside("first"), inside("second")];
        // Enough that the first is not held open any more.
        offers.extend((0..directory_count).map(|number| directory(0, &format!("{number}"))));
        let mut hostile = HostileEnd::new();
        hostile.begin().offer(&offers).batch(&[(1, b"x")]);
        let entries: Vec<_> = (0..directory_count).map(|index| entry(index + 2, "z", EntryKind::Stream)).collect();
        let number = offers.len() as u32;
        hostile
            .offer(&entries)
            .batch(&[(2, b"x")])
            .offer(&[inside("third")])
            .batch(&[(number + entries.len() as u32, b"x")]);
        let swap = |event: &SessionEvent| {
            if matches!(event, SessionEvent::FileStored(path) if path == Path::new("swapped/first")) {
                fs::rename(inner.join("swapped"), outer.path().join("moved")).unwrap();
                symlink("../elsewhere", inner.join("swapped")).unwrap();
            }
        };
        let outcome = hostile.run_session_with(&directory_destination(&inner), true, &swap);
        assert_eq!(names(&elsewhere), Vec::<String>::new());
        let arrived = names(&outer.path().join("moved"));
        if entries.is_empty() {
            assert_eq!(arrived, ["first", "second", "third"], "{}", outcome.errors());
        } else {
            assert_eq!(arrived, ["first"]);
            assert!(
                outcome.errors().contains("cannot open the directory swapped: Not a directory"),
                "{}",
                outcome.errors()
            );
        }
    }
}

#[test]
fn directory_limits_are_enforced() {
    let dry = SenderMessage::Begin(SessionSettings { dry_run: true, ..DEFAULT_SETTINGS });
    let session_errors = |offers: &mut dyn Iterator<Item = FileEntry>| {
        let (_outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        hostile.send(&dry);
        let offers: Vec<_> = offers.collect();
        offers.chunks(200).fold(&mut hostile, HostileEnd::offer);
        let outcome = hostile.run_session(&inner);
        assert!(names(&inner).is_empty());
        outcome.errors()
    };
    let (closed, too_many) =
        ("the other side closed the connection", "it offers more directories than one transfer can have");
    let mut flat = (0..directory_tree::MAX_DIRECTORIES).map(|number| directory(0, &format!("{number:x}")));
    assert_eq!(session_errors(&mut flat), closed);
    assert!(
        session_errors(&mut (0..=directory_tree::MAX_DIRECTORIES).map(|number| directory(0, &format!("{number:x}"))))
            .contains(too_many)
    );
    let name = "x".repeat(255);
    assert!(
        session_errors(&mut (0..directory_tree::MAX_NAME_BYTES / 255 + 1).map(|_| directory(0, &name)))
            .contains(too_many)
    );
    assert_eq!(session_errors(&mut (0..2048).map(|parent| directory(parent, "x"))), closed);
    assert!(session_errors(&mut (0..2049).map(|parent| directory(parent, "x"))).contains(too_many));
}

#[test]
fn invalid_link_targets_are_refused() {
    let (outer, inner) = target_directory();
    fs::write(outer.path().join("victim"), "the user's").unwrap();
    let link = |name, target: &[u8]| entry(0, name, EntryKind::Link { target: target.to_vec() });
    let mut hostile = HostileEnd::new();
    let offers = [
        link("empty", b""),
        link("long", &[b'x'; 4096]),
        link("nul", b"a\0b"),
        link("right", b"../victim"),
        file("right", 3),
        link("right", b"elsewhere"),
    ];
    hostile.begin().offer(&offers).batch(&[(3, b"new")]);
    let outcome = hostile.run_session(&inner);
    let refused: Vec<_> = refusals(&outcome.answers).iter().map(Option::is_some).collect();
    assert_eq!(refused, [true, true, true, false, true, true]);
    assert!(outcome.errors().contains(UNKNOWN));
    assert_eq!(
        (names(&inner), fs::read_link(inner.join("right")).unwrap().as_path()),
        (vec!["right".into()], Path::new("../victim"))
    );
    assert_eq!(fs::read(outer.path().join("victim")).unwrap(), b"the user's");
}

#[test]
fn invalid_attributes_fail_only_their_file() {
    let with_attribute = |name: &[u8], value: usize| {
        let attributes = vec![Attribute { name: name.to_vec(), value: vec![b'x'; value] }];
        FileEntry { attributes, ..file("a", 1) }
    };
    for invalid_entry in [with_attribute(b"", 1), with_attribute(b"a\0b", 1), with_attribute(&[b'x'; 255], 1)] {
        let (_outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        hostile.begin().offer(&[invalid_entry, file("b", 1)]).batch(&[(0, b"x"), (1, b"x")]);
        let outcome = hostile.run_session(&inner);
        assert!(outcome.errors().contains("cannot keep an extended attribute of a: "), "{}", outcome.errors());
        assert_eq!(names(&inner), ["b"]);
    }
    let too_long = with_attribute(b"a", MAX_ATTRIBUTE_BYTES);
    let attributes = vec![Attribute { name: Vec::new(), value: Vec::new() }; MAX_ATTRIBUTES + 1];
    for invalid_entry in [too_long, FileEntry { attributes, ..file("a", 1) }] {
        let (_outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        hostile.begin().offer(&[invalid_entry]).batch(&[(0, b"x")]);
        assert!(hostile.run_session(&inner).errors().starts_with("malformed message"));
        assert!(names(&inner).is_empty());
    }
}

#[test]
fn invalid_acls_fail_only_their_file() {
    let with_acl = |kind, list: &[u8]| FileEntry { acls: vec![Acl { kind, list: list.to_vec() }], ..file("a", 1) };
    let begin = |acls| SenderMessage::Begin(SessionSettings { acls, ..DEFAULT_SETTINGS });
    let of_file =
        [with_acl(AclKind::Access, b"none"), with_acl(AclKind::Access, &[2; 4000]), with_acl(AclKind::Default, &[2])];
    for invalid_entry in &of_file {
        let (_outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        hostile.send(&begin(true)).offer(&[invalid_entry.clone(), file("b", 1)]).batch(&[(0, b"x"), (1, b"x")]);
        let outcome = hostile.run_session(&inner);
        assert!(outcome.errors().contains("cannot keep an access control list of a: "), "{}", outcome.errors());
        assert_eq!(names(&inner), ["b"]);
    }
    let acls = vec![Acl { kind: AclKind::Access, list: Vec::new() }; 3];
    let too_long = with_acl(AclKind::Access, &[2; MAX_ATTRIBUTE_BYTES + 1]);
    let of_session =
        [(too_long, true, "malformed message"), (FileEntry { acls, ..file("a", 1) }, true, "malformed message")];
    let unannounced = (of_file[0].clone(), false, "the other side breaks the protocol: it sends access control lists");
    for (invalid_entry, is_announced, words) in of_session.into_iter().chain([unannounced]) {
        let (_outer, inner) = target_directory();
        let mut hostile = HostileEnd::new();
        hostile.send(&begin(is_announced)).offer(&[invalid_entry]).batch(&[(0, b"x")]);
        let errors = hostile.run_session(&inner).errors();
        assert!(errors.starts_with(words), "{words}: {errors}");
        assert!(names(&inner).is_empty());
    }
}

#[test]
fn invalid_mtime_fails_only_its_file() {
    let (_outer, inner) = target_directory();
    let modified = Mtime { seconds: 0, nanoseconds: u32::MAX };
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[FileEntry { modified, ..file("a", 1) }, file("b", 1)]).batch(&[(0, b"x"), (1, b"y")]);
    let outcome = hostile.run_session(&inner);
    assert!(outcome.errors().contains("cannot keep the time of a"), "{}", outcome.errors());
    assert_eq!(names(&inner), ["b"]);
}

/// Room that was promised to a file that will not come is there for others.
#[test]
fn space_is_reserved_once_and_released() {
    let (_outer, inner) = target_directory();
    let root = crate::open_directory::OpenDirectory::open_root(&inner).unwrap();
    let Some(free_bytes) = crate::directory_tree::DirectoryTree::new(root).free_bytes().unwrap() else {
        return no_known_space();
    };
    // Two of them are too many, even if others use the file system meanwhile.
    let file_bytes = free_bytes / 10 * 7;
    let large = |name| entry(0, name, EntryKind::File { bytes: file_bytes, stored: file_bytes });
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[large("a")]).offer(&[large("b")]).send(&abandoned(0)).offer(&[large("c")]);
    // One that is begun, and then abandoned.
    hostile.block(piece(2, 0, 1), b"x").send(&abandoned(2)).offer(&[large("d")]);
    let outcome = hostile.run_session(&inner);
    let refused: Vec<_> = refusals(&outcome.answers).iter().map(Option::is_some).collect();
    assert_eq!(refused, [false, true, false, false], "{}", outcome.errors());
    assert_eq!(final_names(&inner), (vec![], 0));
}

fn no_known_space() {
    kelvin_testing::MissingRequirement::machine("the file system of temporary files does not say what room it has")
        .report_skip("promised room");
}

#[test]
fn stdout_takes_one_file_and_discard_none() {
    let (outer, _inner) = target_directory();
    let path = outer.path().join("out");
    let output = Destination::Output(fs::File::create(&path).unwrap());
    let mut hostile = HostileEnd::new();
    let offers =
        [file("a", 2), file("b", 1), directory(0, "c"), entry(0, "d", EntryKind::Link { target: b"x".into() })];
    hostile
        .begin()
        .offer(&offers)
        .batch(&[(0, b"in")])
        .offer(&[file("e", 1)])
        .send(&SenderMessage::End)
        .send(&finish());
    let outcome = hostile.run_session_with(&output, true, &|_| {});
    assert_eq!(refusals(&outcome.answers).iter().filter(|why| why.is_some()).count(), 4);
    assert_eq!(fs::read(&path).unwrap(), b"in");
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&offers).batch(&[(0, b"in"), (1, b"x")]).send(&SenderMessage::End).send(&finish());
    let outcome = hostile.run_session_with(&Destination::Nothing, false, &|_| {});
    assert_eq!(outcome.result.map(|summary| summary.moved.files).unwrap(), 2);
    assert_eq!(names(outer.path()), ["in", "out"]);
}

/// A name that is one of this receiver's own is that of a file like any other.
#[test]
fn link_at_part_name_is_not_followed() {
    let (outer, inner) = target_directory();
    let data = content(BLOCK_BYTES as usize + 1, 1);
    let large = file("large", data.len() as u64);
    let part = leave_part(&inner, &large, b"");
    fs::remove_file(&part).unwrap();
    fs::write(outer.path().join("victim"), "the user's").unwrap();
    symlink(outer.path().join("victim"), &part).unwrap();
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[large]).send(&SenderMessage::ValidBlocks { file: 0, blocks: vec![1] });
    let outcome = hostile.run_session(&inner);
    assert!(refusals(&outcome.answers)[0].is_some());
    assert_eq!(fs::read(outer.path().join("victim")).unwrap(), b"the user's");
    assert_eq!(digest(&fs::read(&part).unwrap()), digest(b"the user's"));
}
