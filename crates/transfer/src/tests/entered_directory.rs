//! Files that go into a directory below the receiver's: never above it, nor through a link.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde::Serialize;

use super::streams::with_receiver;
use super::{
    DEFAULT_SETTINGS, HostileEnd, SessionOutcome, directory, directory_destination, file, names, sender_options,
    target_directory,
};
use crate::file_name::FileName;
use crate::message::{SenderMessage, SessionSettings};
use crate::offer_policy::Destination;
use crate::send::{SendResult, Sender};
use crate::source::{PreserveOptions, SourceList};
use crate::wire::secret::Secret;
use crate::{Error, Result};

fn path_names(path: &str) -> Vec<FileName> {
    path.split('/').map(|name| name.as_bytes().to_vec().try_into().unwrap()).collect()
}

fn send(source: &Path, inner: &Path, path: &str, settings: SessionSettings) -> Result<SendResult> {
    let mut result = None;
    with_receiver(directory_destination(inner), |receiver| {
        let preserve = PreserveOptions { recursive: true, ..PreserveOptions::default() };
        let list = SourceList::collect(&[source.to_owned()], preserve).unwrap();
        let (address, names) = (receiver.0.address().unwrap(), path_names(path));
        let sender = Sender::connect_into(&[address], &Secret::none(), (sender_options(settings), &names)).unwrap();
        result = Some(sender.send(list, &|_, _| {}));
    });
    result.unwrap()
}

#[test]
fn files_go_below_the_receivers_directory() {
    let (outer, inner) = target_directory();
    let tree = outer.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "a").unwrap();
    fs::create_dir(inner.join("store")).unwrap();
    let dry = send(&tree, &inner, "store/new", SessionSettings { dry_run: true, ..DEFAULT_SETTINGS }).unwrap();
    assert_eq!((dry.planned.len(), names(&inner.join("store")).len()), (1, 0));
    for settings in
        [SessionSettings { sync: true, ..DEFAULT_SETTINGS }, SessionSettings { streams: 2, ..DEFAULT_SETTINGS }]
    {
        assert_eq!(send(&tree, &inner, "store/new", settings).unwrap().summary.moved.files, 1);
        assert_eq!(fs::read(inner.join("store/new/tree/a")).unwrap(), b"a");
        assert_eq!((names(&inner), names(&inner.join("store"))), (vec!["store".to_owned()], vec!["new".to_owned()]));
    }
    // What is deleted, and what fails, is named by its whole path.
    fs::write(inner.join("store/new/tree/old"), "").unwrap();
    fs::remove_file(tree.join("a")).unwrap();
    fs::write(tree.join("b"), "b").unwrap();
    fs::create_dir(inner.join("store/new/tree/b")).unwrap();
    let sent = send(&tree, &inner, "store/new", DEFAULT_SETTINGS).unwrap();
    assert!(sent.unsent[0].why.to_string().contains("store/new/tree/b is a directory"), "{}", sent.unsent[0].why);
    // Only the last one is made.
    let why = send(&tree, &inner, "none/new", DEFAULT_SETTINGS).unwrap_err();
    assert!(
        matches!(&why, Error::RefusedAll(why) if why.contains("cannot open the directory none: No such file")),
        "{why}"
    );
    assert_eq!(names(&inner), ["store"]);
}

#[derive(Serialize)]
enum Forged<'a> {
    _Other(()),
    Enter(Vec<&'a [u8]>),
}

/// Enters a directory, begins, and sends a file.
fn enter(inner: &Path, path: &str) -> SessionOutcome {
    let mut hostile = HostileEnd::new();
    hostile.send(&SenderMessage::Enter(path_names(path))).begin().offer(&[file("a", 1)]).batch(&[(0, b"x")]);
    hostile.run_session(inner)
}

#[test]
fn other_places_are_refused() {
    let (outer, inner) = target_directory();
    fs::create_dir(outer.path().join("outside")).unwrap();
    symlink("../outside", inner.join("link")).unwrap();
    symlink(".", inner.join("itself")).unwrap();
    fs::write(inner.join("file"), "").unwrap();
    for path in ["link", "itself", "file", "link/x", "file/x", ".kelvin-part-x", "itself/new"] {
        let outcome = enter(&inner, path);
        let words = if path.starts_with(".kelvin") { "names that begin so" } else { "cannot open the directory" };
        assert!(outcome.errors().contains(words), "{path}: {}", outcome.errors());
        assert_eq!((outcome.stored().len(), outcome.answers.len()), (0, 1), "{path}");
    }
    assert_eq!(enter(&inner, "new").stored(), [Path::new("new/a")]);
    assert_eq!(
        (names(&outer.path().join("outside")), names(outer.path())),
        (vec![], vec!["in".into(), "outside".into()])
    );
    assert_eq!(names(&inner), ["file", "itself", "link", "new"]);
}

#[test]
fn names_that_lead_up_are_no_names() {
    let number = postcard::to_stdvec(&SenderMessage::Enter(Vec::new())).unwrap()[0];
    let (_outer, inner) = target_directory();
    for name in [&b".."[..], b".", b"", b"a/b", b"/", b"a\0"] {
        let mut frame = postcard::to_stdvec(&Forged::Enter(vec![name])).unwrap();
        frame[0] = number;
        let mut hostile = HostileEnd::new();
        hostile.frame(&frame).begin();
        let errors = hostile.run_session(&inner).errors();
        assert!(errors.starts_with("malformed message"), "{name:?}: {errors}");
    }
}

#[test]
fn a_sender_enters_once_and_first() {
    let (_outer, inner) = target_directory();
    let store = || SenderMessage::Enter(path_names("store"));
    let mut twice = HostileEnd::new();
    twice.send(&store()).send(&store()).begin();
    assert!(twice.run_session(&inner).errors().contains("it does not begin"));
    let mut late = HostileEnd::new();
    late.begin().offer(&[directory(0, "tree")]).send(&store());
    assert!(late.run_session(&inner).errors().contains("neither offers nor sends"));
    let mut discarded = HostileEnd::new();
    discarded.send(&store()).begin().offer(&[file("a", 1)]).batch(&[(0, b"x")]);
    assert_eq!(discarded.run_session_with(&Destination::Nothing, false, &|_| {}).stored(), [Path::new("a")]);
    let mut output = HostileEnd::new();
    let null = Destination::Output(fs::File::options().write(true).open("/dev/null").unwrap());
    output.send(&store()).begin();
    assert!(output.run_session_with(&null, false, &|_| {}).errors().contains("standard output, where no directory is"));
    assert_eq!(names(&inner), ["tree"]);
}
