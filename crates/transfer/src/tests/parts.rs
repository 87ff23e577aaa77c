//! Parts of files that a connection or a receiver left when it ended: what of them is believed, and when they stay.

use std::fs;

use super::{
    DEFAULT_SETTINGS, HostileEnd, content, digest, directory_destination, file, final_names, leave_part, piece,
    target_directory,
};
use crate::blocks::BLOCK_BYTES;
use crate::message::{EntryDecision, ReceiverMessage, SenderMessage, SessionSettings};
use crate::session::SessionEvent;

const BYTES: usize = BLOCK_BYTES as usize;

/// The decisions among answers.
fn decisions(answers: &[ReceiverMessage]) -> Vec<EntryDecision> {
    let decisions = answers.iter().filter_map(|answer| match answer {
        ReceiverMessage::Decisions(decisions) => Some(decisions.clone()),
        _ => None,
    });
    decisions.flatten().collect()
}

#[test]
fn partial_file_is_resumed_by_block() {
    let (_outer, inner) = target_directory();
    let data = content(3 * BYTES, 1);
    let large = file("large", data.len() as u64);
    leave_part(&inner, &large, &data[..BYTES + 5]);
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[large]).send(&SenderMessage::ValidBlocks { file: 0, blocks: vec![0b001] });
    hostile.block(piece(0, BLOCK_BYTES, BYTES as u32), &data[BYTES..2 * BYTES]);
    hostile.block(piece(0, 2 * BLOCK_BYTES, BYTES as u32), &data[2 * BYTES..]);
    let outcome = hostile.run_session(&inner);
    let present_blocks = ReceiverMessage::PresentBlocks {
        file: 0,
        first: 0,
        digests: vec![digest(&data[..BYTES]), digest(&data[BYTES..BYTES + 5])],
        is_all: true,
    };
    assert_eq!(outcome.answers[..2], [ReceiverMessage::Decisions(vec![EntryDecision::Resumed]), present_blocks]);
    assert_eq!((final_names(&inner), outcome.stored().len()), ((vec!["large".into()], 0), 1));
    assert!(fs::read(inner.join("large")).unwrap() == data);
}

#[test]
fn empty_part_restarts_file() {
    let (_outer, inner) = target_directory();
    let data = content(BYTES + 1, 1);
    let large = file("large", data.len() as u64);
    leave_part(&inner, &large, &[]);
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[large]);
    hostile.block(piece(0, 0, BYTES as u32), &data[..BYTES]).block(piece(0, BLOCK_BYTES, 1), &data[BYTES..]);
    let outcome = hostile.run_session(&inner);
    // Nobody waits for a report of blocks where there are none.
    assert_eq!(outcome.answers[0], ReceiverMessage::Decisions(vec![EntryDecision::Wanted]));
    assert_eq!(final_names(&inner), (vec!["large".into()], 0));
    assert!(fs::read(inner.join("large")).unwrap() == data);
}

#[test]
fn complete_part_is_published() {
    let (_outer, inner) = target_directory();
    let (arriving, complete) = (content(2 * BYTES, 1), content(BYTES + 9, 2));
    let entries = [file("arriving", arriving.len() as u64), file("there", complete.len() as u64)];
    leave_part(&inner, &entries[1], &complete);
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&entries).block(piece(0, 0, BYTES as u32), &arriving[..BYTES]);
    hostile.send(&SenderMessage::ValidBlocks { file: 1, blocks: vec![0b11] });
    hostile.block(piece(0, BLOCK_BYTES, BYTES as u32), &arriving[BYTES..]);
    let outcome = hostile.run_session(&inner);
    assert_eq!(final_names(&inner), (vec!["arriving".into(), "there".into()], 0), "{}", outcome.errors());
    assert!(
        fs::read(inner.join("arriving")).unwrap() == arriving && fs::read(inner.join("there")).unwrap() == complete
    );
}

#[test]
fn absent_blocks_cannot_be_kept() {
    for (blocks, is_repeated) in [(vec![0b11], false), (vec![0, 0, 0, 1], false), (vec![0b01], true)] {
        let (_outer, inner) = target_directory();
        let data = content(3 * BYTES, 1);
        let large = file("large", data.len() as u64);
        let part = leave_part(&inner, &large, &data[..BYTES]);
        let mut hostile = HostileEnd::new();
        hostile.begin().offer(&[large]);
        for _ in 0..=u8::from(is_repeated) {
            hostile.send(&SenderMessage::ValidBlocks { file: 0, blocks: blocks.clone() });
        }
        let outcome = hostile.run_session(&inner);
        assert!(outcome.errors().contains("it keeps blocks that are not there"), "{}", outcome.errors());
        assert_eq!(final_names(&inner), (vec![], 1));
        assert!(fs::read(part).unwrap() == data[..BYTES]);
    }
}

/// A connection that ends again before the turn of a part costs nothing of it.
#[test]
fn waiting_parts_are_kept() {
    let (_outer, inner) = target_directory();
    let data = content(2 * BYTES, 1);
    let large = file("large", data.len() as u64);
    let part = leave_part(&inner, &large, &data[..BYTES]);
    for sends_valid_blocks in [false, true] {
        let mut hostile = HostileEnd::new();
        hostile.begin().offer(&[file("small", 1), large.clone()]);
        if sends_valid_blocks {
            hostile.send(&SenderMessage::ValidBlocks { file: 1, blocks: vec![1] });
        }
        let outcome = hostile.run_session(&inner);
        assert!(outcome.result.is_err());
        assert!(fs::read(&part).unwrap() == data[..BYTES], "{sends_valid_blocks}");
    }
    // Its turn came, and no more of it.
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&[large]).send(&SenderMessage::Block(piece(0, 0, 100)));
    let outcome = hostile.run_session(&inner);
    assert!(matches!(&outcome.events[..], [SessionEvent::PartKept(_)]), "{:?}", outcome.events);
    assert!(fs::read(&part).unwrap() == data[..BYTES]);
}

#[test]
fn open_parts_are_bounded() {
    let (_outer, inner) = target_directory();
    let entries: Vec<_> = (0..12).map(|number| file(&format!("{number}"), BLOCK_BYTES + 1)).collect();
    let parts: Vec<_> = entries.iter().map(|entry| leave_part(&inner, entry, b"a part")).collect();
    let mut hostile = HostileEnd::new();
    hostile.begin().offer(&entries[..6]).offer(&entries[6..]);
    let (data, part_content) = (content(BYTES + 1, 1), b"a part");
    hostile.block(piece(11, 0, BYTES as u32), &data[..BYTES]).block(piece(11, BLOCK_BYTES, 1), &data[BYTES..]);
    let outcome = hostile.run_session(&inner);
    let decisions = decisions(&outcome.answers);
    assert_eq!(decisions[..8], vec![EntryDecision::Resumed; 8]);
    assert_eq!(decisions[8..], vec![EntryDecision::Wanted; 4]);
    assert!(fs::read(inner.join("11")).unwrap() == data);
    assert!(parts[..11].iter().all(|part| fs::read(part).unwrap() == part_content) && !parts[11].exists());
}

#[test]
fn dry_run_reports_resumable_parts() {
    let (_outer, inner) = target_directory();
    let large = file("large", 2 * BLOCK_BYTES);
    let part = leave_part(&inner, &large, b"a part");
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::Begin(SessionSettings { dry_run: true, ..DEFAULT_SETTINGS }));
    hostile.offer(&[large, file("small", 1)]).block(piece(0, 0, 1), b"x");
    let outcome = hostile.run_session_with(&directory_destination(&inner), true, &|_| {});
    assert_eq!(decisions(&outcome.answers), [EntryDecision::Resumed, EntryDecision::Wanted]);
    assert!(outcome.errors().contains("it sends a file that is not wanted"), "{}", outcome.errors());
    assert_eq!(fs::read(part).unwrap(), b"a part");
}
