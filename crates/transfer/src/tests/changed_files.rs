//! Large files that are there in an older state: only blocks that differ come, and the old file stays until the new one is whole.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use kelvin_sys::random::split_mix;

use super::streams::with_receiver;
use super::{
    DEFAULT_SETTINGS, HostileEnd, digest, directory_destination, entry, file, final_names, leave_part, piece,
    sender_options, target_directory,
};
use crate::blocks::{BLOCK_BYTES, BlockLayout};
use crate::compression::CompressionLevel;
use crate::message::{EntryDecision, EntryKind, FileEntry, ReceiverMessage, SenderMessage, SessionSettings};
use crate::send::{SendResult, Sender, SenderOptions};
use crate::source::{PreserveOptions, SourceList};
use crate::wire::secret::Secret;

const UPDATE: SessionSettings = SessionSettings { update: true, ..DEFAULT_SETTINGS };
/// Bytes of a block of files of these sizes.
const BLOCK: u64 = 64 << 10;

fn noise(bytes: u64) -> Vec<u8> {
    let mut state = 7;
    (0..bytes.div_ceil(8)).flat_map(|_| split_mix(&mut state).to_le_bytes()).take(bytes as usize).collect()
}

/// Writes a file that no clock's tick takes for an older one.
fn write_at(path: &Path, content: &[u8], seconds: u64) {
    let file = File::create(path).unwrap();
    file.write_all_at(content, 0).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

/// Sends a file that is there in another state; what came of it.
fn update(path: &Path, directory: &Path, options: SenderOptions) -> SendResult {
    let mut result = None;
    with_receiver(directory_destination(directory), |receiver| {
        let list = SourceList::collect(&[path.to_owned()], PreserveOptions::default()).unwrap();
        let sender = Sender::connect(&[receiver.0.address().unwrap()], &Secret::none(), options).unwrap();
        result = Some(sender.send(list, &|_, _| {}).unwrap());
    });
    result.unwrap()
}

/// With `change`, a file of some blocks and 5 bytes becomes another one, of which this many bytes are sent.
fn check_update(change: fn(&mut Vec<u8>), expected_moved: u64) {
    let (outer, inner) = target_directory();
    let (source, target) = (outer.path().join("data"), inner.join("data"));
    let mut content = noise(BLOCK_BYTES + 9 * BLOCK + 5);
    for (number, compression) in [None, Some(CompressionLevel::Fixed(1))].into_iter().enumerate() {
        write_at(&target, &content, 1);
        let old_inode = target.metadata().unwrap().ino();
        change(&mut content);
        write_at(&source, &content, 2 + number as u64);
        let result = update(&source, &inner, SenderOptions { compression, ..sender_options(UPDATE) });
        assert!(result.unsent.is_empty(), "{:?}", result.unsent);
        let amount = result.summary.moved.amount;
        assert_eq!((amount.moved, amount.total()), (expected_moved, content.len() as u64));
        assert!(fs::read(&target).unwrap() == content);
        assert_eq!(target.metadata().unwrap().mtime(), 2 + number as i64);
        assert_ne!(target.metadata().unwrap().ino(), old_inode, "another file has taken its place");
        assert_eq!(final_names(&inner), (vec!["data".to_owned()], 0));
        content = noise(BLOCK_BYTES + 9 * BLOCK + 5);
    }
}

#[test]
fn only_changed_blocks_are_sent() {
    // A byte, and a stretch over the border of two blocks.
    check_update(
        |content| {
            content[3] ^= 1;
            let middle = (20 * BLOCK) as usize;
            content[middle - 7..middle + 7].fill(0);
        },
        3 * BLOCK,
    );
    check_update(|_| {}, 0);
    check_update(|content| content.extend([7; 3]), 8);
    check_update(|content| content.truncate((BLOCK_BYTES + 3 * BLOCK + 1) as usize), 0);
    check_update(|content| content.extend(vec![9; (2 * BLOCK) as usize]), 2 * BLOCK + 5);
    // All of it has moved: these are no rolling checksums.
    check_update(|content| content.insert(0, 1), BLOCK_BYTES + 9 * BLOCK + 6);
    // Below this size files are sent whole.
    check_update(|content| content.truncate(BLOCK_BYTES as usize), BLOCK_BYTES);
}

#[test]
fn holes_replace_old_content() {
    let (outer, inner) = target_directory();
    let (source, target) = (outer.path().join("data"), inner.join("data"));
    let mut content = noise(2 * BLOCK_BYTES);
    content[..BLOCK_BYTES as usize].fill(0);
    write_at(&target, &content, 1);
    let (start, end) = (BLOCK_BYTES as usize + (4 * BLOCK) as usize, BLOCK_BYTES as usize + (8 * BLOCK) as usize);
    content[start..end].fill(0);
    write_at(&source, &[], 2);
    let file = File::options().write(true).open(&source).unwrap();
    file.set_len(2 * BLOCK_BYTES).unwrap();
    file.write_all_at(&content[BLOCK_BYTES as usize..start], BLOCK_BYTES).unwrap();
    file.write_all_at(&content[end..], end as u64).unwrap();
    let amount = update(&source, &inner, sender_options(UPDATE)).summary.moved.amount;
    assert_eq!((amount.moved, amount.holes, amount.resumed), (0, 4 * BLOCK, 2 * BLOCK_BYTES - 4 * BLOCK));
    assert!(fs::read(&target).unwrap() == content);
}

fn large(name: &str) -> FileEntry {
    let bytes = BLOCK_BYTES + BLOCK;
    entry(0, name, EntryKind::File { bytes, stored: bytes })
}

/// A connection that ends leaves the old file, and a part to be resumed.
#[test]
fn old_file_stays_until_new_one_is_whole() {
    let (_outer, inner) = target_directory();
    let content = noise(BLOCK_BYTES + BLOCK);
    write_at(&inner.join("data"), &content, 1);
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::Begin(UPDATE)).offer(&[large("data")]).send(&SenderMessage::QueryBlocks(0));
    let valid_blocks = [vec![0xff; 8], vec![0]].concat();
    hostile.send(&SenderMessage::ValidBlocks { file: 0, blocks: valid_blocks });
    let outcome = hostile.run_session_with(&directory_destination(&inner), true, &|_| {});
    assert!(outcome.errors().contains("closed the connection"), "{}", outcome.errors());
    assert!(
        matches!(&outcome.answers[0], ReceiverMessage::Decisions(decisions) if decisions == &[EntryDecision::Changed])
    );
    let ReceiverMessage::PresentBlocks { file: 0, first: 0, digests, is_all: true } = &outcome.answers[1] else {
        panic!("{:?}", outcome.answers)
    };
    let layout = BlockLayout::of_changed_file(content.len() as u64);
    let range = |block| layout.range(block).start as usize..layout.range(block).end as usize;
    let expected: Vec<_> = (0..layout.count()).map(|block| digest(&content[range(block)])).collect();
    assert_eq!(digests, &expected);
    assert!(fs::read(inner.join("data")).unwrap() == content);
    // Sent again, it goes on with that.
    assert_eq!(final_names(&inner), (vec!["data".to_owned()], 1));
    let mut again = HostileEnd::new();
    again.send(&SenderMessage::Begin(UPDATE)).offer(&[large("data")]);
    let outcome = again.run_session_with(&directory_destination(&inner), true, &|_| {});
    assert!(
        matches!(&outcome.answers[0], ReceiverMessage::Decisions(decisions) if decisions == &[EntryDecision::Resumed])
    );
}

#[test]
fn blocks_of_one_file_are_asked_for_beside_kept_parts() {
    let (_outer, inner) = target_directory();
    let kept: Vec<_> = (0..8).map(|number| file(&format!("kept {number}"), BLOCK_BYTES + 1)).collect();
    kept.iter().for_each(|entry| drop(leave_part(&inner, entry, b"a part")));
    ["first", "second"].iter().for_each(|name| write_at(&inner.join(name), &noise(BLOCK_BYTES + BLOCK), 1));
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::Begin(UPDATE)).offer(&kept).offer(&[large("first"), large("second")]);
    hostile.send(&SenderMessage::QueryBlocks(8)).send(&SenderMessage::QueryBlocks(9));
    let outcome = hostile.run_session_with(&directory_destination(&inner), true, &|_| {});
    let reported: Vec<_> = outcome
        .answers
        .iter()
        .filter_map(|answer| match answer {
            ReceiverMessage::PresentBlocks { file, is_all: true, .. } => Some(*file),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(outcome.errors().contains("it asks for the blocks of more files"), "{}", outcome.errors());
}

#[test]
fn blocks_of_other_files_are_not_reported() {
    const UNWANTED: &str = "it sends a file that is not wanted";
    type Script = fn(&mut HostileEnd) -> &mut HostileEnd;
    let scripts: [(bool, Script, &str); 7] = [
        (true, |h| h.send(&SenderMessage::QueryBlocks(0)), UNWANTED),
        (true, |h| h.offer(&[large("new")]).send(&SenderMessage::QueryBlocks(0)), UNWANTED),
        (true, |h| h.offer(&[file("data", 5)]).send(&SenderMessage::QueryBlocks(0)), UNWANTED),
        (false, |h| h.offer(&[large("data")]).send(&SenderMessage::QueryBlocks(0)), UNWANTED),
        (
            true,
            |h| h.offer(&[large("data")]).send(&SenderMessage::QueryBlocks(0)).send(&SenderMessage::QueryBlocks(0)),
            UNWANTED,
        ),
        (
            true,
            |h| {
                let blocks = [vec![0xff; 8], vec![0b11]].concat();
                h.offer(&[large("data")])
                    .send(&SenderMessage::QueryBlocks(0))
                    .send(&SenderMessage::ValidBlocks { file: 0, blocks: [blocks, vec![1]].concat() })
            },
            "it keeps blocks that are not there",
        ),
        (
            true,
            |h| {
                h.offer(&[large("data")])
                    .send(&SenderMessage::QueryBlocks(0))
                    .block(piece(0, 0, 2 * BLOCK as u32), &[1; 2 * BLOCK as usize])
            },
            "it sent bytes beyond the end of a file or of a block",
        ),
    ];
    for (number, (overwrite, script, words)) in scripts.into_iter().enumerate() {
        let (_outer, inner) = target_directory();
        let content = noise(BLOCK_BYTES + BLOCK);
        write_at(&inner.join("data"), &content, 1);
        let mut hostile = HostileEnd::new();
        script(hostile.send(&SenderMessage::Begin(UPDATE)));
        let outcome = hostile.run_session_with(&directory_destination(&inner), overwrite, &|_| {});
        assert!(outcome.errors().contains(words), "{number}: {}", outcome.errors());
        assert!(fs::read(inner.join("data")).unwrap() == content, "{number}");
    }
}
