//! Parts of files that a connection or a receiver left when it ended: what of them is believed, and when they stay.

use std::fs;

use super::{Hostile, SETTINGS, content, digest, file, finals, into, leave_part, piece, place};
use crate::blocks::BLOCK;
use crate::message::{Decision, FromReceiver, FromSender, Settings};
use crate::session::Event;

const BYTES: usize = BLOCK as usize;

/// The decisions among answers.
fn decisions(answers: &[FromReceiver]) -> Vec<Decision> {
    let decisions = answers.iter().filter_map(|answer| match answer {
        FromReceiver::Decisions(decisions) => Some(decisions.clone()),
        _ => None,
    });
    decisions.flatten().collect()
}

#[test]
fn what_is_left_of_a_file_is_told_block_by_block_and_gone_on_with() {
    let (_outer, inner) = place();
    let all = content(3 * BYTES, 1);
    let large = file("large", all.len() as u64);
    leave_part(&inner, &large, &all[..BYTES + 5]);
    let mut hostile = Hostile::new();
    hostile.begin().offer(&[large]).say(&FromSender::Keep { file: 0, blocks: vec![0b001] });
    hostile.block(piece(0, BLOCK, BYTES as u32), &all[BYTES..2 * BYTES]);
    hostile.block(piece(0, 2 * BLOCK, BYTES as u32), &all[2 * BYTES..]);
    let heard = hostile.heard(&inner);
    let said = FromReceiver::Have {
        file: 0,
        first: 0,
        digests: vec![digest(&all[..BYTES]), digest(&all[BYTES..BYTES + 5])],
        is_all: true,
    };
    assert_eq!(heard.answers[..2], [FromReceiver::Decisions(vec![Decision::Resumed]), said]);
    assert_eq!((finals(&inner), heard.kept().len()), ((vec!["large".into()], 0), 1));
    assert!(fs::read(inner.join("large")).unwrap() == all);
}

#[test]
fn an_empty_part_is_a_file_that_begins_anew() {
    let (_outer, inner) = place();
    let all = content(BYTES + 1, 1);
    let large = file("large", all.len() as u64);
    leave_part(&inner, &large, &[]);
    let mut hostile = Hostile::new();
    hostile.begin().offer(&[large]);
    hostile.block(piece(0, 0, BYTES as u32), &all[..BYTES]).block(piece(0, BLOCK, 1), &all[BYTES..]);
    let heard = hostile.heard(&inner);
    // Nobody waits to be told of blocks that there are none of.
    assert_eq!(heard.answers[0], FromReceiver::Decisions(vec![Decision::Wanted]));
    assert_eq!(finals(&inner), (vec!["large".into()], 0));
    assert!(fs::read(inner.join("large")).unwrap() == all);
}

#[test]
fn a_part_that_is_whole_takes_its_place_while_another_file_arrives() {
    let (_outer, inner) = place();
    let (one, other) = (content(2 * BYTES, 1), content(BYTES + 9, 2));
    let entries = [file("arriving", one.len() as u64), file("there", other.len() as u64)];
    leave_part(&inner, &entries[1], &other);
    let mut hostile = Hostile::new();
    hostile.begin().offer(&entries).block(piece(0, 0, BYTES as u32), &one[..BYTES]);
    hostile.say(&FromSender::Keep { file: 1, blocks: vec![0b11] });
    hostile.block(piece(0, BLOCK, BYTES as u32), &one[BYTES..]);
    let heard = hostile.heard(&inner);
    assert_eq!(finals(&inner), (vec!["arriving".into(), "there".into()], 0), "{}", heard.errors());
    assert!(fs::read(inner.join("arriving")).unwrap() == one && fs::read(inner.join("there")).unwrap() == other);
}

#[test]
fn blocks_that_are_not_there_cannot_be_kept() {
    for (blocks, again) in [(vec![0b11], false), (vec![0, 0, 0, 1], false), (vec![0b01], true)] {
        let (_outer, inner) = place();
        let all = content(3 * BYTES, 1);
        let large = file("large", all.len() as u64);
        let part = leave_part(&inner, &large, &all[..BYTES]);
        let mut hostile = Hostile::new();
        hostile.begin().offer(&[large]);
        for _ in 0..=u8::from(again) {
            hostile.say(&FromSender::Keep { file: 0, blocks: blocks.clone() });
        }
        let heard = hostile.heard(&inner);
        assert!(heard.errors().contains("it keeps blocks that are not there"), "{}", heard.errors());
        assert_eq!(finals(&inner), (vec![], 1));
        assert!(fs::read(part).unwrap() == all[..BYTES]);
    }
}

/// A connection that ends again before the turn of a part costs nothing of it.
#[test]
fn parts_that_wait_for_their_turn_stay() {
    let (_outer, inner) = place();
    let all = content(2 * BYTES, 1);
    let large = file("large", all.len() as u64);
    let part = leave_part(&inner, &large, &all[..BYTES]);
    for keeps in [false, true] {
        let mut hostile = Hostile::new();
        hostile.begin().offer(&[file("small", 1), large.clone()]);
        if keeps {
            hostile.say(&FromSender::Keep { file: 1, blocks: vec![1] });
        }
        let heard = hostile.heard(&inner);
        assert!(heard.ended.is_err());
        assert!(fs::read(&part).unwrap() == all[..BYTES], "{keeps}");
    }
    // Its turn came, and no more of it.
    let mut hostile = Hostile::new();
    hostile.begin().offer(&[large]).say(&FromSender::Block(piece(0, 0, 100)));
    let heard = hostile.heard(&inner);
    assert!(matches!(&heard.events[..], [Event::Left(_)]), "{:?}", heard.events);
    assert!(fs::read(&part).unwrap() == all[..BYTES]);
}

#[test]
fn only_so_many_parts_are_held_open_and_the_others_begin_anew() {
    let (_outer, inner) = place();
    let entries: Vec<_> = (0..12).map(|number| file(&format!("{number}"), BLOCK + 1)).collect();
    let parts: Vec<_> = entries.iter().map(|entry| leave_part(&inner, entry, b"a part")).collect();
    let mut hostile = Hostile::new();
    hostile.begin().offer(&entries[..6]).offer(&entries[6..]);
    let (all, wrong) = (content(BYTES + 1, 1), b"a part");
    hostile.block(piece(11, 0, BYTES as u32), &all[..BYTES]).block(piece(11, BLOCK, 1), &all[BYTES..]);
    let heard = hostile.heard(&inner);
    let decisions = decisions(&heard.answers);
    assert_eq!(decisions[..8], vec![Decision::Resumed; 8]);
    assert_eq!(decisions[8..], vec![Decision::Wanted; 4]);
    assert!(fs::read(inner.join("11")).unwrap() == all);
    assert!(parts[..11].iter().all(|part| fs::read(part).unwrap() == wrong) && !parts[11].exists());
}

#[test]
fn a_dry_run_says_what_would_be_gone_on_with_and_touches_nothing() {
    let (_outer, inner) = place();
    let large = file("large", 2 * BLOCK);
    let part = leave_part(&inner, &large, b"a part");
    let mut hostile = Hostile::new();
    hostile.say(&FromSender::Begin(Settings { dry_run: true, ..SETTINGS }));
    hostile.offer(&[large, file("small", 1)]).block(piece(0, 0, 1), b"x");
    let heard = hostile.heard_by(&into(&inner), true, &|_| {});
    assert_eq!(decisions(&heard.answers), [Decision::Resumed, Decision::Wanted]);
    assert!(heard.errors().contains("it sends a file that is not wanted"), "{}", heard.errors());
    assert_eq!(fs::read(part).unwrap(), b"a part");
}
