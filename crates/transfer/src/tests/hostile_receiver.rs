//! A hostile receiver and an honest sender: nothing is sent but what was named, and what makes no sense ends it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Instant;

use super::{DEFAULT_SETTINGS, HostileEnd, content, digest, open_frames, sender_options};
use crate::Result;
use crate::blocks::BLOCK_BYTES;
use crate::message::{
    Blake3Digest, EntryDecision, EntryNumber, ReceiverMessage, ReceiverReport, RefusalReason, SenderMessage,
    SessionSettings, Verdict,
};
use crate::path_filter::PathFilter;
use crate::send::{SendResult, Sender};
use crate::session::MAX_WANTED_FILES;
use crate::source::{AttributePolicy, PreserveOptions, SourceList};
use crate::stage_times::EndLoad;

/// What the sender has: in the order of its offer a directory, and in it a large file, a link and a small file.
const NUMBERS: [EntryNumber; 4] = [0, 1, 2, 3];
const SMALL_CONTENT: &[u8] = b"small content";

/// Makes it, next to what was not named; returns its path and the content of the large file.
fn sources() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let outer = tempfile::tempdir().unwrap();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(outer.path().join("secret"), "nobody named this").unwrap();
    let large = content(BLOCK_BYTES as usize + 9, 1);
    fs::write(tree.join("1 large"), &large).unwrap();
    symlink("../secret", tree.join("2 link")).unwrap();
    fs::write(tree.join("3 small"), SMALL_CONTENT).unwrap();
    (outer, tree, large)
}

/// What the sender sent, and the bytes of files among it.
fn sent_messages(mut frames: std::vec::IntoIter<Vec<u8>>) -> (Vec<SenderMessage>, Vec<u8>) {
    let (mut messages, mut bytes) = (Vec::new(), Vec::new());
    while let Some(frame) = frames.next() {
        let message: SenderMessage = postcard::from_bytes(&frame).unwrap();
        let announced = match &message {
            SenderMessage::Batch { files, .. } => files.iter().map(|file| file.bytes as usize).sum(),
            SenderMessage::Block(piece) => piece.bytes as usize,
            _ => 0,
        };
        let end = bytes.len() + announced;
        while bytes.len() < end {
            let Some(frame) = frames.next() else { break };
            bytes.extend(frame);
        }
        messages.push(message);
    }
    (messages, bytes)
}

/// How the sending ends, and what was sent.
struct SendRun {
    result: Result<SendResult>,
    messages: Vec<SenderMessage>,
    bytes: Vec<u8>,
}

fn send_to(receiver: HostileEnd, collection: SourceList, settings: SessionSettings) -> SendRun {
    let HostileEnd { mut opener, channel, stream, .. } = receiver;
    let sender = Sender::from_channel(channel, (sender_options(settings), Instant::now())).unwrap();
    let result = sender.send(collection, &|_, _| {});
    let (messages, bytes) = sent_messages(open_frames(&mut opener, &stream.received.take()).into_iter());
    SendRun { result, messages, bytes }
}

const PRESERVE: PreserveOptions = PreserveOptions {
    recursive: true,
    links: true,
    copy_links: false,
    hard_links: false,
    owners: false,
    attributes: AttributePolicy::CountWhenSent,
    acls: false,
};

fn collection(tree: PathBuf) -> SourceList {
    SourceList::collect(&[tree], PRESERVE).unwrap()
}

fn decisions(decisions: &[EntryDecision]) -> ReceiverMessage {
    ReceiverMessage::Decisions(decisions.to_vec())
}

fn present_blocks(file: EntryNumber, first: u32, digests: &[Blake3Digest]) -> ReceiverMessage {
    ReceiverMessage::PresentBlocks { file, first, digests: digests.to_vec(), is_all: true }
}

fn verdicts(files: &[EntryNumber]) -> ReceiverMessage {
    ReceiverMessage::Verdicts(files.iter().map(|file| Verdict { file: *file, why: None }).collect())
}

fn finished() -> ReceiverMessage {
    ReceiverMessage::Finished(ReceiverReport {
        since: 0,
        load: EndLoad::default(),
        costs: None,
        unwritten_bytes: None,
        method: None,
    })
}

const MADE: EntryDecision = EntryDecision::Made;
const WANTED: EntryDecision = EntryDecision::Wanted;
const RESUMED: EntryDecision = EntryDecision::Resumed;

type HostileScript = fn(&mut HostileEnd) -> &mut HostileEnd;

#[test]
fn invalid_answers_end_sending() {
    const UNKNOWN: &str = "it names a file that was not offered";
    const BLOCKS: &str = "it names blocks that it cannot have";
    let cases: &[(HostileScript, &str)] = &[
        (|h| h, "closed the connection"),
        (|h| h.frame(&[0xff; 9]), "malformed message"),
        (|h| h.frame(&[]), "malformed message"),
        (|h| h.raw(&[0xff; 9]), "a frame of 4294967295 bytes"),
        (|h| h.frame(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f]), "malformed message"),
        (|h| h.send(&decisions(&[MADE, WANTED, MADE, WANTED, WANTED])), UNKNOWN),
        (|h| h.send(&decisions(&[WANTED])), UNKNOWN),
        (|h| h.send(&decisions(&[RESUMED])), UNKNOWN),
        (|h| h.send(&decisions(&[MADE, WANTED, WANTED])), UNKNOWN),
        (|h| h.send(&decisions(&[MADE, WANTED, RESUMED])), UNKNOWN),
        (|h| h.send(&decisions(&[MADE, MADE])), UNKNOWN),
        (|h| h.send(&decisions(&[MADE, EntryDecision::Changed])), "it has an older state of a file that is sent whole"),
        (|h| h.send(&present_blocks(1, 0, &[])), UNKNOWN),
        (|h| h.send(&present_blocks(u32::MAX, 0, &[])), UNKNOWN),
        (|h| h.send(&decisions(&[MADE, RESUMED])).send(&present_blocks(3, 0, &[])), UNKNOWN),
        (
            |h| h.send(&decisions(&[MADE, RESUMED])).send(&present_blocks(1, 0, &[])).send(&present_blocks(1, 0, &[])),
            UNKNOWN,
        ),
        (|h| h.send(&decisions(&[MADE, RESUMED])).send(&present_blocks(1, 1, &[])), BLOCKS),
        (|h| h.send(&decisions(&[MADE, RESUMED])).send(&present_blocks(1, u32::MAX, &[[1; 32]])), UNKNOWN),
        (|h| h.send(&decisions(&[MADE, RESUMED])).send(&present_blocks(1, 0, &[[1; 32]; 3])), BLOCKS),
        (|h| h.send(&decisions(&[MADE, RESUMED])).send(&have_one_block(0)).send(&have_one_block(0)), BLOCKS),
        (|h| h.send(&verdicts(&[3])), UNKNOWN),
        (|h| h.send(&decisions(&[MADE, WANTED, MADE, WANTED])).send(&verdicts(&[4])), UNKNOWN),
        (|h| h.send(&decisions(&[MADE, WANTED, MADE, WANTED])).send(&verdicts(&[u32::MAX])), UNKNOWN),
        (|h| h.send(&finished()), "it has finished before all was sent"),
        (|h| h.send(&ReceiverMessage::SpaceAvailable(true)), "it reports room that was not asked for"),
        (|h| h.send(&decisions(&[MADE, WANTED, MADE, WANTED])).late().send(&finished()), "it has finished before"),
        (|h| h.send(&ReceiverMessage::Refused(RefusalReason("no room".into()))), "the receiver says: no room"),
        (|h| all_moved(h).send(&decisions(&[MADE])), "it does not report what it measured"),
        (|h| all_moved(h), "closed the connection"),
        // It was never sent, so nobody waits for it; but the other one's verdict does not come.
        (|h| h.send(&decisions(&[MADE, WANTED, MADE, WANTED])).send(&verdicts(&[2, 1, 3])), "closed the connection"),
    ];
    let (_outer, tree, large) = sources();
    for (number, (script, words)) in cases.iter().enumerate() {
        let mut hostile = HostileEnd::new();
        script(&mut hostile);
        let SendRun { result, bytes, .. } = send_to(hostile, collection(tree.clone()), DEFAULT_SETTINGS);
        let why = result.unwrap_err().to_string();
        assert!(why.contains(words), "{number}: no {words:?} in {why}");
        let source_content = [&large[..], SMALL_CONTENT].concat();
        assert!(source_content.starts_with(&bytes), "{number}: it sent what was not asked for");
    }
}

#[test]
fn changed_file_is_compared_as_asked() {
    const CHANGED: EntryDecision = EntryDecision::Changed;
    const UPDATE: SessionSettings = SessionSettings { update: true, ..DEFAULT_SETTINGS };
    let refused = || Verdict { file: 1, why: Some(RefusalReason("no room".into())) };
    let (_outer, tree, large) = sources();
    // A small file is none of which an older state is looked at.
    let mut hostile = HostileEnd::new();
    hostile.send(&decisions(&[MADE, WANTED, MADE, CHANGED]));
    let why = send_to(hostile, collection(tree.clone()), UPDATE).result.unwrap_err().to_string();
    assert!(why.contains("it has an older state of a file that is sent whole"), "{why}");
    // All blocks but the last one, which is the only one that is sent; or the receiver cannot go on with it, or has more than the file.
    let digests: Vec<Blake3Digest> = large.chunks(64 << 10).map(digest).collect();
    for (blocks, is_refused, expected) in
        [(64, false, Some(&large[64 << 16..])), (1, true, Some(&[])), (66, false, None)]
    {
        let mut hostile = HostileEnd::new();
        hostile.send(&decisions(&[MADE, CHANGED, MADE, EntryDecision::Unchanged])).late();
        let digests = [&digests[..], &digests].concat();
        if is_refused {
            hostile.send(&ReceiverMessage::Verdicts(vec![refused()]));
        } else {
            hostile.send(&present_blocks(1, 0, &digests[..blocks])).send(&verdicts(&[1]));
        }
        hostile.send(&finished());
        let SendRun { result, messages, bytes } = send_to(hostile, collection(tree.clone()), UPDATE);
        assert!(messages.contains(&SenderMessage::QueryBlocks(1)));
        let Some(expected) = expected else {
            assert!(result.unwrap_err().to_string().contains("it names blocks that it cannot have"));
            continue;
        };
        assert_eq!(bytes, expected);
        assert_eq!(result.unwrap().unsent.len(), usize::from(is_refused));
    }
}

/// Of a tree that is still being looked through no byte is sent before there is known to be room.
#[test]
fn content_waits_for_space_answer() {
    let outer = tempfile::tempdir().unwrap();
    // More than are offered before one of them is sent.
    (0..2 * MAX_WANTED_FILES)
        .for_each(|number| fs::write(outer.path().join(format!("{number:05}")), SMALL_CONTENT).unwrap());
    let settings = SessionSettings { at_most: Some(1 << 40), ..DEFAULT_SETTINGS };
    for is_enough in [None, Some(true), Some(false)] {
        let mut hostile = HostileEnd::new();
        is_enough.map(|is_enough| hostile.send(&ReceiverMessage::SpaceAvailable(is_enough)));
        hostile.send(&decisions(&[MADE, WANTED, WANTED]));
        let mut collection = SourceList::begin(&[outer.path().to_owned()], PRESERVE, PathFilter::default()).unwrap();
        collection.find_more(2).unwrap();
        let SendRun { result, messages, bytes } = send_to(hostile, collection, settings);
        assert!(result.unwrap_err().to_string().contains("closed the connection"));
        let position_of = |predicate: fn(&SenderMessage) -> bool| messages.iter().position(predicate);
        let total_position = position_of(|message| matches!(message, SenderMessage::TotalFound(_)));
        let batch_position = position_of(|message| matches!(message, SenderMessage::Batch { .. }));
        assert_eq!(bytes, if is_enough.is_some() { SMALL_CONTENT.repeat(2) } else { Vec::new() });
        // Where there may not be room, all is found and counted first; else it is sent meanwhile.
        assert_eq!(
            (total_position.is_some(), total_position < batch_position),
            (is_enough == Some(false), is_enough.is_some()),
            "{is_enough:?}"
        );
    }
}

/// Sends a message about one block, and that more follow.
fn have_one_block(first: u32) -> ReceiverMessage {
    ReceiverMessage::PresentBlocks { file: 1, first, digests: vec![[1; 32]], is_all: false }
}

fn all_moved(hostile: &mut HostileEnd) -> &mut HostileEnd {
    hostile.send(&decisions(&[MADE, WANTED, MADE, WANTED])).late().send(&verdicts(&[1, 3]))
}

#[test]
fn only_differing_blocks_are_resent() {
    let (_outer, tree, large) = sources();
    let first = digest(&large[..BLOCK_BYTES as usize]);
    for (digests, resumed_bytes) in
        [(vec![[1; 32], [2; 32]], 0), (vec![first], BLOCK_BYTES as usize), (vec![first, [2; 32]], BLOCK_BYTES as usize)]
    {
        let mut hostile = HostileEnd::new();
        hostile.send(&decisions(&[MADE, RESUMED, MADE, WANTED])).send(&present_blocks(1, 0, &digests));
        hostile.late().send(&verdicts(&[1, 3])).send(&finished());
        let SendRun { result, messages, bytes } = send_to(hostile, collection(tree.clone()), DEFAULT_SETTINGS);
        let amount = result.unwrap().summary.moved.amount;
        assert_eq!(
            (amount.resumed, amount.moved),
            (resumed_bytes as u64, (large.len() - resumed_bytes + SMALL_CONTENT.len()) as u64)
        );
        let sent = [&large[resumed_bytes..], SMALL_CONTENT].concat();
        let other_order = [SMALL_CONTENT, &large[resumed_bytes..]].concat();
        assert!(bytes == sent || bytes == other_order);
        let valid_blocks = SenderMessage::ValidBlocks { file: 1, blocks: vec![u8::from(resumed_bytes > 0)] };
        assert!(messages.contains(&valid_blocks) && matches!(messages.last(), Some(SenderMessage::Finish(_))));
    }
}

#[test]
fn refused_files_are_reported_unsent() {
    let (_outer, tree, large) = sources();
    let refused = || EntryDecision::Refused(RefusalReason("not this one".into()));
    let mut hostile = HostileEnd::new();
    hostile.send(&decisions(&[MADE, WANTED, refused(), refused()])).late();
    let verdict = Verdict { file: 1, why: Some(RefusalReason("disk full".into())) };
    hostile.send(&ReceiverMessage::Verdicts(vec![verdict])).send(&finished());
    let SendRun { result, bytes, .. } = send_to(hostile, collection(tree), DEFAULT_SETTINGS);
    let unsent = result.unwrap().unsent;
    let reports: Vec<_> = unsent
        .iter()
        .map(|unsent_file| (unsent_file.path.file_name().unwrap().to_str().unwrap(), unsent_file.why.to_string()))
        .collect();
    let why = |words: &str| format!("the other side says: {words}");
    assert_eq!(
        reports,
        [("2 link", why("not this one")), ("3 small", why("not this one")), ("1 large", why("disk full"))]
    );
    assert!(bytes == large);
}

#[test]
fn dry_run_sends_no_content() {
    let (_outer, tree, _) = sources();
    let mut hostile = HostileEnd::new();
    hostile.send(&decisions(&[MADE, RESUMED, MADE, WANTED])).late().send(&finished());
    let SendRun { result, messages, bytes } =
        send_to(hostile, collection(tree), SessionSettings { dry_run: true, ..DEFAULT_SETTINGS });
    assert_eq!((result.unwrap().planned.len(), bytes.len(), NUMBERS.len()), (2, 0, 4));
    assert!(
        matches!(&messages[..], [_, SenderMessage::Offer(entries), SenderMessage::End, _] if entries.len() == NUMBERS.len())
    );
}

/// What takes the place of a file after it was found is not sent in its stead.
#[test]
fn link_replacing_file_is_not_followed() {
    let (outer, tree, large) = sources();
    let source_list = collection(tree.clone());
    fs::remove_file(tree.join("3 small")).unwrap();
    symlink(outer.path().join("secret"), tree.join("3 small")).unwrap();
    fs::rename(tree.join("1 large"), tree.join("moved")).unwrap();
    fs::write(tree.join("1 large"), &large).unwrap();
    let mut hostile = HostileEnd::new();
    hostile.send(&decisions(&[MADE, WANTED, MADE, WANTED])).late().send(&finished());
    let SendRun { result, messages, bytes } = send_to(hostile, source_list, DEFAULT_SETTINGS);
    let unsent = result.unwrap().unsent;
    assert_eq!((unsent.len(), bytes.len()), (2, 0));
    assert_eq!(messages.iter().filter(|message| matches!(message, SenderMessage::Abandoned { .. })).count(), 2);
}
