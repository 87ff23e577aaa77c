//! Both ends with each other: any tree of files arrives as it was, at once or after connections that were cut anywhere.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown, symlink};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use kelvin_sys::random::split_mix;

use super::{Local, SETTINGS, content, file, into, names, place, shaken};
use crate::blocks::BLOCK;
use crate::channel::{Channel, PART};
use crate::decide::Desk;
use crate::message::Settings;
use crate::send::{Manner, Sender, Sent};
use crate::session::{SMALL, Session};
use crate::source::{Attributes, Collection, Keep};
use crate::summary::Summary;
use crate::tree;
use crate::{Error, Result};

const ALL: Keep = Keep { recursive: true, links: true, owners: true, attributes: Attributes::Kept };
/// Trees of each test.
const TREES: u64 = 12;

/// A random tree of files.
struct Grown<'a> {
    random: &'a mut u64,
    /// Large files that it may still have: each takes a while.
    large: usize,
}

impl Grown<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        split_mix(self.random) % bound
    }

    fn grow(&mut self, directory: &Path, depth: u32) {
        fs::create_dir(directory).unwrap();
        for number in 0..self.below(9) {
            let path = directory.join(format!("{number}"));
            match self.below(8) {
                0 | 1 if depth < 4 => self.grow(&path, depth + 1),
                2 => symlink(format!("{number}/../elsewhere"), &path).unwrap(),
                3 => self.sparse(&path),
                _ => self.file(&path),
            }
        }
        let mode = 0o700 | self.below(0o100) as u32;
        fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
        self.describe(&File::open(directory).unwrap());
    }

    fn length(&mut self) -> u64 {
        let edge = [0, 1, 4096, SMALL, PART as u64, BLOCK, 2 * BLOCK][self.below(7) as usize];
        let length = (edge + self.below(3)).saturating_sub(1);
        if length <= PART as u64 || self.large == 0 {
            return length % (2 * SMALL);
        }
        self.large -= 1;
        length
    }

    fn file(&mut self, path: &Path) {
        let content = content(self.length() as usize, self.below(1 << 30) as u32);
        fs::write(path, content).unwrap();
        self.set_rights(path);
    }

    /// A file with bytes here and there.
    fn sparse(&mut self, path: &Path) {
        let file = File::create(path).unwrap();
        let length = self.length();
        file.set_len(length).unwrap();
        for _ in 0..self.below(4) {
            let first = self.below(length + 1);
            let bytes = self.below(20_000).min(length - first);
            file.write_all_at(&content(bytes as usize, first as u32), first).unwrap();
        }
        self.set_rights(path);
    }

    fn set_rights(&mut self, path: &Path) {
        fs::set_permissions(path, Permissions::from_mode(0o600 | self.below(0o100) as u32)).unwrap();
        self.describe(&File::options().write(true).open(path).unwrap());
    }

    /// Gives it an attribute and an owner, perhaps, and a time.
    fn describe(&mut self, file: &File) {
        if self.below(4) == 0 {
            let value = content(self.below(100) as usize, 1);
            // Not every file system has them; then there are none to be compared.
            let _ = rustix::fs::fsetxattr(file, "user.of", &value, rustix::fs::XattrFlags::empty());
        }
        if self.below(4) == 0 && kelvin_testing::is_root() {
            fchown(file, Some(4711), Some(4712)).unwrap();
        }
        let time = Duration::new(self.below(2_000_000_000), self.below(1_000_000_000) as u32);
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + time)).unwrap();
    }
}

/// Makes the tree that follows from a number.
fn grown(directory: &Path, random: &mut u64) {
    Grown { random, large: 3 }.grow(directory, 0);
}

/// Everything of a file, directory or link but its content; directories have no length of their own.
#[derive(Debug, PartialEq)]
struct Found {
    kind: u32,
    rights: u32,
    modified: (i64, i64),
    owner: (u32, u32),
    bytes: Option<u64>,
    link: Option<std::path::PathBuf>,
    attribute: Option<Vec<u8>>,
}

fn found(path: &Path) -> Found {
    let found = path.symlink_metadata().unwrap();
    let mut value = vec![0; 200];
    let attribute = rustix::fs::lgetxattr(path, "user.of", &mut value).ok().map(|length| value[..length].to_vec());
    Found {
        kind: found.mode() & 0o170_000,
        rights: found.mode() & 0o7777,
        modified: (found.mtime(), found.mtime_nsec()),
        owner: (found.uid(), found.gid()),
        bytes: found.is_file().then_some(found.len()),
        link: fs::read_link(path).ok(),
        attribute,
    }
}

/// That two trees are the same, or that one is, as far as it has come.
fn are_same(source: &Path, target: &Path, is_whole: bool) {
    let (expected, there) = (found(source), found(target));
    if is_whole || expected.bytes.is_some() {
        assert_eq!(there, expected, "{}", target.display());
    }
    if expected.bytes.is_some() {
        assert!(fs::read(source).unwrap() == fs::read(target).unwrap(), "{}", target.display());
    } else if source.is_dir() && expected.link.is_none() {
        let (mut own, all) = (names(target), names(source));
        own.retain(|name| is_whole || !name.starts_with(tree::PART));
        assert!(own == all || (!is_whole && own.iter().all(|name| all.contains(name))), "{own:?} of {all:?}");
        own.iter().for_each(|name| are_same(&source.join(name), &target.join(name), is_whole));
    }
}

/// After how many bytes the sender's or the receiver's end is cut.
#[derive(Clone, Copy)]
struct Cut {
    sender: usize,
    receiver: usize,
}

const NEVER: Cut = Cut { sender: usize::MAX, receiver: usize::MAX };

/// Sends a tree by one end, in a thread, and receives it by the other.
fn exchanged(tree: &Path, directory: &Path, manner: Manner, cut: Cut) -> (Result<Sent>, Result<Summary>) {
    exchanged_with(tree, directory, (manner, &|_| {}), cut)
}

/// The same, where something is done as bytes are sent.
fn exchanged_with(
    tree: &Path,
    directory: &Path,
    (manner, progress): (Manner, &(dyn Fn(u64) + Sync)),
    cut: Cut,
) -> (Result<Sent>, Result<Summary>) {
    let (sender, receiver) = shaken();
    let (mut one, mut other) = Local::pair();
    (one.cut_after, other.cut_after) = (cut.sender, cut.receiver);
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let channel = Channel::new(one, sender)?;
            let collection = Collection::of(&[tree.to_owned()], ALL)?;
            Sender::over(channel, (manner, Instant::now())).unwrap().send(collection, &|sent, _| progress(sent))
        });
        let mut channel = Channel::new(other, receiver).unwrap();
        let desk = Desk::new(&into(directory), false).unwrap();
        let received = Session::new(&mut channel, desk, &|_| {}).serve();
        drop(channel);
        (sending.join().unwrap(), received)
    })
}

/// Manners that differ in all that both ends know.
fn manner(number: u64) -> Manner {
    let settings = Settings { plain: number % 2 == 1, verify: number % 3 != 1, update: true, ..SETTINGS };
    Manner { settings, acknowledge: number % 4 == 3, limit: None, moving: None, choose: None }
}

#[test]
fn any_tree_arrives_as_it_was() {
    for number in 0..TREES {
        let (outer, inner) = place();
        let source = outer.path().join("tree");
        grown(&source, &mut number.wrapping_mul(0x9E37_79B9));
        let (sent, received) = exchanged(&source, &inner, manner(number), NEVER);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(
            (sent.unsent.len(), sent.unchanged, sent.summary.moved.files),
            (0, 0, received.moved.files),
            "{number}"
        );
        assert_eq!((sent.summary.moved.amount, sent.summary.failed), (received.moved.amount, 0), "{number}");
        are_same(&source, &inner.join("tree"), true);
        // Once more, and nothing has to be sent.
        let (again, _) = exchanged(&source, &inner, manner(number), NEVER);
        let again = again.unwrap();
        assert_eq!(
            (again.unchanged, again.summary.moved.files, again.unsent.len()),
            (received.moved.files, 0, 0),
            "{number}"
        );
        are_same(&source, &inner.join("tree"), true);
    }
}

/// A file that is written while it is sent: its digests may be there at once or late, its end may be a hole or bytes.
#[test]
fn a_file_that_changes_while_it_is_sent_never_arrives() {
    let large = 2 * BLOCK as usize + 5;
    for (verify, has_hole) in [(true, false), (true, true), (false, false), (false, true)] {
        let (outer, inner) = place();
        let source = outer.path().join("tree");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("large"), content(large, 1)).unwrap();
        let file = File::options().write(true).open(source.join("large")).unwrap();
        if has_hole {
            file.set_len(4 * BLOCK).unwrap();
        }
        // Long ago: a clock's tick may be longer than all of this.
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
        let settings = Settings { verify, ..SETTINGS };
        let manner = Manner { settings, acknowledge: false, limit: None, moving: None, choose: None };
        let write = |sent| {
            if sent > 0 {
                file.write_all_at(b"other", 0).unwrap();
            }
        };
        let (sent, received) = exchanged_with(&source, &inner, (manner, &write), NEVER);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!((sent.unsent.len(), received.moved.files), (1, 0), "{verify} {has_hole}");
        let why = sent.unsent[0].why.to_string();
        assert!(why.contains("large was changed while it was read: it was written"), "{why}");
        assert_eq!(names(&inner.join("tree")), Vec::<String>::new());
    }
}

/// The receiver has much to say, that it refuses most files, while the sender sends others: neither waits for the other to read.
#[test]
fn many_refusals_and_much_content_do_not_wait_for_each_other() {
    let (outer, inner) = place();
    let (source, long) = (outer.path().join("tree"), "x".repeat(240));
    let deep = Path::new(&long).join(&long);
    let there = inner.join("tree").join(&deep);
    for directory in [&source.join(&deep), &there] {
        fs::create_dir_all(directory).unwrap();
    }
    for number in 0..2000 {
        let name = format!("{number:0>240}");
        fs::write(source.join(&deep).join(&name), content(16 << 10, number)).unwrap();
        if number % 4 > 0 {
            fs::write(there.join(&name), "there already").unwrap();
        }
    }
    let (sent, received) = exchanged(&source, &inner, manner(0), NEVER);
    assert_eq!((sent.unwrap().unsent.len(), received.unwrap().moved.files), (1500, 500));
}

/// More of them than are held open at one time, each with a file: nothing of this program's own is left in any.
#[test]
fn many_directories_arrive_with_nothing_else_in_them() {
    let (outer, inner) = place();
    let source = outer.path().join("tree");
    for number in 0..80 {
        let directory = source.join(number.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), number.to_string()).unwrap();
    }
    let (sent, received) = exchanged(&source, &inner, manner(0), NEVER);
    assert_eq!((sent.unwrap().summary.moved.files, received.unwrap().moved.files), (80, 80));
    are_same(&source, &inner.join("tree"), true);
}

#[test]
fn whatever_cuts_the_connection_every_file_is_whole_or_absent_and_another_one_goes_on() {
    let (mut cuts, mut resumed) = (0, 0);
    for number in 0..TREES {
        let (outer, inner) = place();
        let source = outer.path().join("tree");
        let mut random = number.wrapping_mul(0x9E37_79B9);
        grown(&source, &mut random);
        fs::write(source.join("large"), content(2 * BLOCK as usize + 5, number as u32)).unwrap();
        for turn in 0..8_u64 {
            // Of any order of size: later connections have less to send.
            let mut some = || split_mix(&mut random) as usize % ((3 * BLOCK as usize) >> (3 * (turn / 2)));
            let cut =
                if turn % 2 == 0 { Cut { sender: some(), ..NEVER } } else { Cut { receiver: some() >> 12, ..NEVER } };
            let (sent, received) = exchanged(&source, &inner, manner(number + turn), cut);
            resumed += sent.as_ref().map_or(0, |sent| sent.summary.moved.amount.resumed);
            for error in [sent.err(), received.err()].into_iter().flatten() {
                cuts += 1;
                let is_cut = matches!(&error, Error::Wire(_) | Error::During { .. });
                assert!(is_cut, "{number}: {error}");
            }
            if inner.join("tree").exists() {
                are_same(&source, &inner.join("tree"), false);
            }
        }
        let (sent, received) = exchanged(&source, &inner, manner(number), NEVER);
        let sent = sent.unwrap();
        assert_eq!((sent.unsent.len(), received.unwrap().moved.amount), (0, sent.summary.moved.amount), "{number}");
        resumed += sent.summary.moved.amount.resumed;
        are_same(&source, &inner.join("tree"), true);
    }
    assert!(cuts > 50 && resumed > 0, "{cuts} cuts, {resumed} bytes gone on with");
}

/// As where a file system knows no case, which shows a file that has its name under others too.
#[test]
fn of_two_files_whose_names_are_one_the_second_replaces_nothing() {
    let (_outer, inner) = place();
    fs::write(inner.join("before"), "before").unwrap();
    let mut desk = Desk::new(&into(&inner), true).unwrap();
    let settings = Settings { update: true, ..SETTINGS };
    desk.put(&file("Case", 5), b"first", false).unwrap();
    fs::hard_link(inner.join("Case"), inner.join("case")).unwrap();
    for (name, is_taken) in [("case", true), ("before", false), ("new", false)] {
        let offered = file(name, 5);
        let (decided, put) = (desk.decide(&offered, &settings, true), desk.put(&offered, b"other", false));
        for refused in [decided.err(), put.err()] {
            assert_eq!(matches!(refused, Some(Error::OneName { .. })), is_taken, "{name}: {refused:?}");
        }
        assert_eq!(fs::read(inner.join(name)).unwrap(), if is_taken { b"first" } else { b"other" }, "{name}");
    }
}
