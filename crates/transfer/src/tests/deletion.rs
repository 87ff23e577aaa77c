//! Deleting what was not sent: hostile senders reach nothing else, and hostile receivers cannot have anything deleted that is here.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::{
    DEFAULT_SETTINGS, HostileEnd, directory, directory_destination, file, names, open_frames, sender_options,
    target_directory,
};
use crate::extraneous::MAX_EXTRANEOUS;
use crate::message::{
    DeletionFailure, EntryDecision, ExtraneousEntry, ExtraneousParent, ListEnd, ReceiverMessage, ReceiverReport,
    RefusalReason, SenderMessage, SessionSettings,
};
use crate::offer_policy::OfferPolicy;
use crate::path_filter::{FilterAction, PathFilter};
use crate::send::{SendResult, Sender};
use crate::session::{ReceiveSession, SessionEvent};
use crate::source::{PreserveOptions, SourceList};
use crate::stage_times::EndLoad;
use crate::{Error, Result};

const DELETING: SessionSettings = SessionSettings { delete: true, ..DEFAULT_SETTINGS };

/// A sender that offers `tree` with the file `a`, which is there, and then would have others deleted.
fn deleting_sender() -> HostileEnd {
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::Begin(SessionSettings { update: true, ..DELETING }));
    hostile.offer(&[directory(0, "tree"), crate::message::FileEntry { parent: 1, ..file("a", 2) }]);
    hostile
}

/// Makes `tree` with what was not sent.
fn fill(inner: &Path) {
    fs::create_dir_all(inner.join("tree/old/deep")).unwrap();
    for name in ["a", "b", "old/deep/c"] {
        fs::write(inner.join("tree").join(name), "hi").unwrap();
    }
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
    let kept = fs::File::options().write(true).open(inner.join("tree/a")).unwrap();
    kept.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
    fs::write(inner.join("outside"), "hi").unwrap();
}

fn delete(entries: &[u32], is_all: bool) -> SenderMessage {
    SenderMessage::Delete { entries: entries.to_vec(), is_all }
}

/// What the receiver lists there: b, old, old/deep and old/deep/c.
const LISTED: [u32; 4] = [0, 1, 2, 3];

#[test]
fn sender_without_leave_is_refused() {
    let (_outer, inner) = target_directory();
    fill(&inner);
    let mut hostile = deleting_sender();
    let policy = OfferPolicy::new(&directory_destination(&inner), super::MAY_OVERWRITE).unwrap();
    let first = hostile.channel.receive();
    let result = ReceiveSession::new(&mut hostile.channel, policy, &|_| {}).serve(first);
    assert!(matches!(result, Err(Error::DeletionNotAllowed)), "{result:?}");
    assert_eq!(names(&inner.join("tree")), ["a", "b", "old"]);
}

#[test]
fn chosen_entries_alone_are_deleted() {
    let (outer, inner) = target_directory();
    fill(&inner);
    let mut hostile = deleting_sender();
    hostile.send(&SenderMessage::QueryExtraneous).send(&delete(&[3], false)).send(&delete(&[2, 0], true));
    let outcome = hostile.run_session(&inner);
    let listed = outcome.answers.iter().find_map(|answer| match answer {
        ReceiverMessage::Extraneous { entries, .. } if !entries.is_empty() => Some(entries.clone()),
        _ => None,
    });
    let listed: Vec<(ExtraneousParent, String, bool)> = listed
        .unwrap()
        .into_iter()
        .map(|entry| (entry.parent, entry.name.as_os_str().to_str().unwrap().to_owned(), entry.is_directory))
        .collect();
    let expected = [
        (ExtraneousParent::Offered(1), "b".to_owned(), false),
        (ExtraneousParent::Offered(1), "old".to_owned(), true),
        (ExtraneousParent::Extraneous(1), "deep".to_owned(), true),
        (ExtraneousParent::Extraneous(2), "c".to_owned(), false),
    ];
    assert_eq!(listed, expected);
    assert_eq!((names(&inner.join("tree")), names(&inner.join("tree/old"))), (vec!["a".into(), "old".into()], vec![]));
    assert_eq!((names(&inner), names(outer.path())), (vec!["outside".into(), "tree".into()], vec!["in".into()]));
}

type HostileScript = fn(&mut HostileEnd) -> &mut HostileEnd;

#[test]
fn invalid_choices_delete_nothing() {
    const CHOICE: &str = "it chooses what is not on the list";
    let query = &SenderMessage::QueryExtraneous;
    let cases: &[(HostileScript, &str)] = &[
        (|h| h.send(&delete(&[0], true)), "it neither offers nor sends anything"),
        (|h| h.send(&SenderMessage::QueryExtraneous).send(&delete(&[4], true)), CHOICE),
        (|h| h.send(&SenderMessage::QueryExtraneous).send(&delete(&[u32::MAX], true)), CHOICE),
        (|h| h.send(&SenderMessage::QueryExtraneous).send(&delete(&[0, 1], true)), CHOICE),
        (|h| h.send(&SenderMessage::QueryExtraneous).send(&delete(&[1, 1], true)), CHOICE),
        (|h| h.send(&SenderMessage::QueryExtraneous).send(&SenderMessage::End), "it does not choose"),
        (|h| h.offer(&[file("new", 2)]).send(&SenderMessage::QueryExtraneous), "before all has come"),
    ];
    for (script, words) in cases {
        let (_outer, inner) = target_directory();
        fill(&inner);
        let mut hostile = deleting_sender();
        script(&mut hostile);
        let errors = hostile.run_session(&inner).errors();
        assert!(errors.contains(words), "{words}: {errors}");
        assert_eq!(names(&inner.join("tree")), ["a", "b", "old"]);
    }
    // Once alone, and not where it was not announced.
    let (_outer, inner) = target_directory();
    fill(&inner);
    let mut hostile = deleting_sender();
    let errors = hostile.send(query).send(&delete(&[], true)).send(query).run_session(&inner).errors();
    assert!(errors.contains("it deletes again"), "{errors}");
    let errors = HostileEnd::new().begin().send(query).run_session(&inner).errors();
    assert!(errors.contains("what it did not announce"), "{errors}");
}

/// A name that means something else by the time that it is deleted, and a directory that is not empty.
#[test]
fn changed_entries_stay_and_are_reported() {
    let (_outer, inner) = target_directory();
    fill(&inner);
    let mut hostile = deleting_sender();
    hostile.send(&SenderMessage::QueryExtraneous).send(&delete(&LISTED.map(|entry| 3 - entry), true));
    let is_first = Cell::new(true);
    let hook = |event: &SessionEvent| {
        if matches!(event, SessionEvent::Deleted(_)) && is_first.replace(false) {
            fs::write(inner.join("tree/old/deep/new"), "hi").unwrap();
            fs::rename(inner.join("outside"), inner.join("tree/b")).unwrap();
        }
    };
    let outcome = hostile.run_session_with(&directory_destination(&inner), false, &hook);
    let failures: Vec<(u32, String)> = outcome
        .answers
        .iter()
        .flat_map(|answer| match answer {
            ReceiverMessage::Deleted { failures, .. } => failures.clone(),
            _ => Vec::new(),
        })
        .map(|DeletionFailure { entry, why }| (entry, why.0))
        .collect();
    assert_eq!(failures.iter().map(|(entry, _)| *entry).collect::<Vec<_>>(), [2, 1, 0]);
    assert!(
        failures[0].1.contains("Directory not empty") && failures[2].1.contains("another file has taken its place")
    );
    assert_eq!(
        (names(&inner.join("tree")), names(&inner.join("tree/old/deep"))),
        (vec!["a".into(), "b".into(), "old".into()], vec!["new".into()])
    );
}

#[test]
fn dry_run_deletes_nothing() {
    let (_outer, inner) = target_directory();
    fill(&inner);
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::Begin(SessionSettings { dry_run: true, ..DELETING }));
    hostile.offer(&[directory(0, "tree"), directory(0, "missing")]);
    hostile.send(&SenderMessage::QueryExtraneous).send(&delete(&[4, 3, 0], true));
    let outcome = hostile.run_session(&inner);
    let deleted = outcome.events.iter().filter(|event| matches!(event, SessionEvent::Deleted(_))).count();
    assert_eq!(
        (deleted, names(&inner.join("tree"))),
        (3, vec!["a".into(), "b".into(), "old".into()]),
        "{}",
        outcome.errors()
    );
}

fn listed(parent: ExtraneousParent, name: &str, is_directory: bool) -> ExtraneousEntry {
    ExtraneousEntry { parent, name: name.as_bytes().to_vec().try_into().unwrap(), is_directory }
}

/// Sends `tree`, with the file `here` and the unsent link `link`, to a receiver that lists this; what the sender chose, and the outcome.
fn choice_of(lists: &[ReceiverMessage], max_delete: Option<u64>) -> (Vec<u32>, Result<SendResult>) {
    let outer = tempfile::tempdir().unwrap();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("here"), "").unwrap();
    std::os::unix::fs::symlink("here", tree.join("link")).unwrap();
    let mut filter = PathFilter::default();
    filter.add(FilterAction::Exclude, "excluded".as_ref()).unwrap();
    let preserve = PreserveOptions { recursive: true, ..PreserveOptions::default() };
    let mut collection = SourceList::begin(&[tree], preserve, filter).unwrap();
    collection.find_all().unwrap();
    let mut hostile = HostileEnd::new();
    hostile.send(&ReceiverMessage::Decisions(vec![EntryDecision::Made, EntryDecision::Unchanged])).late();
    for list in lists {
        hostile.send(list);
    }
    hostile.send(&ReceiverMessage::Deleted { failures: Vec::new(), is_all: true });
    let (costs, unwritten_bytes, method) = (None, None, None);
    let report = ReceiverReport { since: 0, load: EndLoad::default(), costs, unwritten_bytes, method };
    hostile.send(&ReceiverMessage::Finished(report));
    let HostileEnd { mut opener, channel, stream, .. } = hostile;
    let options = crate::send::SenderOptions { max_delete, ..sender_options(DELETING) };
    let result = Sender::from_channel(channel, (options, Instant::now())).unwrap().send(collection, &|_, _| {});
    let frames = open_frames(&mut opener, &stream.received.take());
    let chosen = frames.iter().filter_map(|frame| match postcard::from_bytes(frame) {
        Ok(SenderMessage::Delete { entries, .. }) => Some(entries),
        _ => None,
    });
    (chosen.flatten().collect(), result)
}

fn complete(entries: Vec<ExtraneousEntry>) -> ReceiverMessage {
    ReceiverMessage::Extraneous { entries, end: Some(ListEnd::Complete) }
}

#[test]
fn receiver_cannot_have_kept_files_deleted() {
    use ExtraneousParent::{Extraneous, Offered};
    let entries = vec![
        listed(Offered(1), "here", false),
        listed(Offered(1), "link", true),
        listed(Extraneous(1), "below a link", false),
        listed(Offered(1), "excluded", true),
        listed(Extraneous(3), "below", false),
        listed(Offered(1), "gone", true),
        listed(Extraneous(5), "excluded", false),
        listed(Extraneous(5), "old", false),
        listed(Offered(1), "empty", true),
    ];
    let (chosen, result) = choice_of(&[complete(entries)], None);
    assert_eq!(chosen, [8, 7]);
    let deleted = result.unwrap().deletion.deleted;
    assert_eq!(deleted, [Path::new("tree/empty"), Path::new("tree/gone/old")]);
}

#[test]
fn invalid_lists_end_sending() {
    use ExtraneousParent::{Extraneous, Offered};
    const UNKNOWN: &str = "it names a directory that was not offered";
    let cases = [
        (vec![complete(vec![listed(Offered(0), "x", false)])], UNKNOWN),
        (vec![complete(vec![listed(Offered(2), "x", false)])], UNKNOWN),
        (vec![complete(vec![listed(Extraneous(0), "x", false)])], UNKNOWN),
        (vec![complete(vec![listed(Offered(1), "x", false), listed(Extraneous(0), "y", false)])], UNKNOWN),
        (vec![complete(vec![listed(Offered(1), "x", true), listed(Extraneous(u32::MAX), "y", false)])], UNKNOWN),
        (vec![ReceiverMessage::Deleted { failures: Vec::new(), is_all: true }], "it does not list"),
        (
            vec![
                complete(vec![listed(Offered(1), "x", false)]),
                ReceiverMessage::Deleted {
                    failures: vec![DeletionFailure { entry: 1, why: RefusalReason("no".into()) }],
                    is_all: false,
                },
            ],
            "it reports what was not to be deleted",
        ),
    ];
    for (lists, words) in cases {
        let error = choice_of(&lists, None).1.unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    let endless = ReceiverMessage::Extraneous { entries: vec![listed(Offered(1), "x", false); 4096], end: None };
    let error = choice_of(&vec![endless; MAX_EXTRANEOUS / 4096 + 1], None).1.unwrap_err().to_string();
    assert!(error.contains("it lists more than it may"), "{error}");
}

#[test]
fn too_many_or_unsure_deletes_nothing() {
    let entries = || (0..3).map(|number| listed(ExtraneousParent::Offered(1), &number.to_string(), false)).collect();
    assert_eq!(choice_of(&[complete(entries())], Some(3)).0, [2, 1, 0]);
    let (chosen, result) = choice_of(&[complete(entries())], Some(2));
    let DeletionOutcome { deleted, refused } = outcome(result);
    assert_eq!((chosen.len(), deleted), (0, 0));
    assert!(refused.contains("3 are to be, and --max-delete allows 2"), "{refused}");
    let end = Some(ListEnd::Failed(RefusalReason("cannot read".into())));
    let (chosen, result) = choice_of(&[ReceiverMessage::Extraneous { entries: entries(), end }], None);
    assert_eq!((chosen.len(), &outcome(result).refused[..]), (0, "the receiver says: cannot read"));
}

struct DeletionOutcome {
    deleted: usize,
    refused: String,
}

fn outcome(result: Result<SendResult>) -> DeletionOutcome {
    let deletion = result.unwrap().deletion;
    DeletionOutcome { deleted: deletion.deleted.len(), refused: deletion.refused.unwrap_or_default() }
}
