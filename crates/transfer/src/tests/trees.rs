//! Both ends with each other: any tree of files arrives as it was, at once or after connections that were cut anywhere.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use kelvin_sys::random::split_mix;

use super::{
    DEFAULT_SETTINGS, LocalStream, connected_halves, content, directory_destination, file, names, sender_options,
    target_directory,
};
use crate::blocks::BLOCK_BYTES;
use crate::compression::CompressionLevel;
use crate::message::{MAX_SMALL_FILE, SessionSettings};
use crate::offer_policy::{OfferPolicy, SenderLeave};
use crate::secure_channel::{PART_BYTES, SecureChannel};
use crate::send::{SendResult, Sender, SenderOptions};
use crate::session::ReceiveSession;
use crate::source::{AttributePolicy, PreserveOptions, SourceList};
use crate::summary::TransferSummary;
use crate::{Error, Result, open_directory};

const PRESERVE_ALL: PreserveOptions = PreserveOptions {
    recursive: true,
    links: true,
    copy_links: false,
    hard_links: true,
    owners: true,
    attributes: AttributePolicy::Preserve,
    acls: true,
};
/// Trees of each test.
const TREES: u64 = 12;

/// A random tree of files.
struct TreeGenerator<'a> {
    random: &'a mut u64,
    /// Large files that it may still have: each takes a while.
    large: usize,
    /// The last file, which can have several names.
    last_file: Option<PathBuf>,
}

impl TreeGenerator<'_> {
    fn next_below(&mut self, bound: u64) -> u64 {
        split_mix(self.random) % bound
    }

    fn grow(&mut self, directory: &Path, depth: u32) {
        fs::create_dir(directory).unwrap();
        for number in 0..self.next_below(9) {
            let path = directory.join(format!("{number}"));
            match self.next_below(8) {
                0 | 1 if depth < 4 => self.grow(&path, depth + 1),
                2 => symlink(format!("{number}/../elsewhere"), &path).unwrap(),
                3 => self.sparse(&path),
                4 if let Some(file) = &self.last_file => fs::hard_link(file, &path).unwrap(),
                _ => {
                    self.file(&path);
                    self.last_file = Some(path);
                }
            }
        }
        let mode = 0o700 | self.next_below(0o100) as u32;
        fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
        self.describe(&File::open(directory).unwrap());
    }

    fn length(&mut self) -> u64 {
        let edge =
            [0, 1, 4096, MAX_SMALL_FILE, PART_BYTES as u64, BLOCK_BYTES, 2 * BLOCK_BYTES][self.next_below(7) as usize];
        let length = (edge + self.next_below(3)).saturating_sub(1);
        if length <= PART_BYTES as u64 || self.large == 0 {
            return length % (2 * MAX_SMALL_FILE);
        }
        self.large -= 1;
        length
    }

    fn file(&mut self, path: &Path) {
        let content = content(self.length() as usize, self.next_below(1 << 30) as u32);
        fs::write(path, content).unwrap();
        self.set_rights(path);
    }

    /// A file with bytes here and there.
    fn sparse(&mut self, path: &Path) {
        let file = File::create(path).unwrap();
        let length = self.length();
        file.set_len(length).unwrap();
        for _ in 0..self.next_below(4) {
            let first = self.next_below(length + 1);
            let bytes = self.next_below(20_000).min(length - first);
            file.write_all_at(&content(bytes as usize, first as u32), first).unwrap();
        }
        self.set_rights(path);
    }

    fn set_rights(&mut self, path: &Path) {
        fs::set_permissions(path, Permissions::from_mode(0o600 | self.next_below(0o100) as u32)).unwrap();
        self.describe(&File::options().write(true).open(path).unwrap());
    }

    /// Gives it an attribute and an owner, perhaps, and a time.
    fn describe(&mut self, file: &File) {
        if self.next_below(4) == 0 {
            let value = content(self.next_below(100) as usize, 1);
            // Not every file system has them; then there are none to be compared.
            let _ = rustix::fs::fsetxattr(file, "user.of", &value, rustix::fs::XattrFlags::empty());
        }
        if self.next_below(4) == 0 && kelvin_testing::is_root() {
            fchown(file, Some(4711), Some(4712)).unwrap();
        }
        let time = Duration::new(self.next_below(2_000_000_000), self.next_below(1_000_000_000) as u32);
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + time)).unwrap();
    }
}

/// Makes the tree that follows from a number.
fn make_tree(directory: &Path, random: &mut u64) {
    TreeGenerator { random, large: 3, last_file: None }.grow(directory, 0);
}

/// Everything of a file, directory or link but its content; directories have no length of their own.
#[derive(Debug, PartialEq)]
struct FileFacts {
    kind: u32,
    rights: u32,
    modified: (i64, i64),
    owner: (u32, u32),
    bytes: Option<u64>,
    link: Option<PathBuf>,
    attribute: Option<Vec<u8>>,
}

fn read_facts(path: &Path) -> FileFacts {
    let metadata = path.symlink_metadata().unwrap();
    let mut value = vec![0; 200];
    let attribute = rustix::fs::lgetxattr(path, "user.of", &mut value).ok().map(|length| value[..length].to_vec());
    FileFacts {
        kind: metadata.mode() & 0o170_000,
        rights: metadata.mode() & 0o7777,
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        owner: (metadata.uid(), metadata.gid()),
        bytes: metadata.is_file().then_some(metadata.len()),
        link: fs::read_link(path).ok(),
        attribute,
    }
}

/// That two trees are the same, or that one is, as far as it has come.
fn assert_same_tree(source: &Path, target: &Path, is_whole: bool) {
    let (expected, actual) = (read_facts(source), read_facts(target));
    if is_whole || expected.bytes.is_some() {
        assert_eq!(actual, expected, "{}", target.display());
    }
    if expected.bytes.is_some() {
        assert!(!is_whole || source.metadata().unwrap().nlink() == target.metadata().unwrap().nlink());
        assert!(fs::read(source).unwrap() == fs::read(target).unwrap(), "{}", target.display());
    } else if source.is_dir() && expected.link.is_none() {
        let (mut target_names, source_names) = (names(target), names(source));
        target_names.retain(|name| is_whole || !name.starts_with(open_directory::PART_PREFIX));
        assert!(
            target_names == source_names || (!is_whole && target_names.iter().all(|name| source_names.contains(name))),
            "{target_names:?} of {source_names:?}"
        );
        target_names.iter().for_each(|name| assert_same_tree(&source.join(name), &target.join(name), is_whole));
    }
}

/// After how many bytes the sender's or the receiver's end is cut.
#[derive(Clone, Copy)]
struct CutPoints {
    sender: usize,
    receiver: usize,
}

const NO_CUT: CutPoints = CutPoints { sender: usize::MAX, receiver: usize::MAX };

/// Sends a tree by one end, in a thread, and receives it by the other.
fn exchange(
    tree: &Path,
    directory: &Path,
    options: SenderOptions,
    cut: CutPoints,
) -> (Result<SendResult>, Result<TransferSummary>) {
    exchange_with(tree, directory, (options, &|_| {}), cut)
}

/// Like `exchange`, where something is done as bytes are sent.
fn exchange_with(
    tree: &Path,
    directory: &Path,
    (options, progress): (SenderOptions, &(dyn Fn(u64) + Sync)),
    cut: CutPoints,
) -> (Result<SendResult>, Result<TransferSummary>) {
    let (sender, receiver) = connected_halves();
    let (mut sender_stream, mut receiver_stream) = LocalStream::pair();
    (sender_stream.cut_after, receiver_stream.cut_after) = (cut.sender, cut.receiver);
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let channel = SecureChannel::new(sender_stream, sender)?;
            let collection = SourceList::collect(&[tree.to_owned()], PRESERVE_ALL)?;
            Sender::from_channel(channel, (options, Instant::now()))
                .unwrap()
                .send(collection, &|sent, _| progress(sent))
        });
        let mut channel = SecureChannel::new(receiver_stream, receiver).unwrap();
        let policy =
            OfferPolicy::new(&directory_destination(directory), SenderLeave { acls: true, ..SenderLeave::default() })
                .unwrap();
        let first = channel.receive();
        let received = ReceiveSession::new(&mut channel, policy, &|_| {}).serve(first);
        drop(channel);
        (sending.join().unwrap(), received)
    })
}

/// Manners that differ in all that both ends know.
fn random_options(number: u64) -> SenderOptions {
    let settings =
        SessionSettings { plain: number % 2 == 1, verify: number % 3 != 1, update: true, ..DEFAULT_SETTINGS };
    SenderOptions {
        settings,
        acknowledge: number % 4 == 3,
        limit: None,
        max_delete: None,
        lists_moved: false,
        compression: match number % 5 {
            0 => Some(CompressionLevel::Auto),
            3 => Some(CompressionLevel::Fixed(1)),
            _ => None,
        },
        method: None,
        stream_tuning: None,
    }
}

#[test]
fn any_tree_arrives_unchanged() {
    for number in 0..TREES {
        let (outer, inner) = target_directory();
        let source = outer.path().join("tree");
        make_tree(&source, &mut number.wrapping_mul(0x9E37_79B9));
        let (sent, received) = exchange(&source, &inner, random_options(number), NO_CUT);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(
            (sent.unsent.len(), sent.unchanged, sent.summary.moved.files),
            (0, 0, received.moved.files),
            "{number}"
        );
        assert_eq!((sent.summary.moved.amount, sent.summary.sent.failed), (received.moved.amount, 0), "{number}");
        assert_same_tree(&source, &inner.join("tree"), true);
        // Once more, and nothing has to be sent.
        let (repeated, _) = exchange(&source, &inner, random_options(number), NO_CUT);
        let repeated = repeated.unwrap();
        assert_eq!(
            (repeated.unchanged, repeated.summary.moved.files, repeated.unsent.len()),
            (received.moved.files + received.moved.hard_links, 0, 0),
            "{number}"
        );
        assert_same_tree(&source, &inner.join("tree"), true);
    }
}

/// A file that is written while it is sent. Its digests may be there at once or late, its end may be a hole or bytes.
#[test]
fn file_changed_during_send_is_not_stored() {
    let large = 2 * BLOCK_BYTES as usize + 5;
    for (verify, has_hole) in [(true, false), (true, true), (false, false), (false, true)] {
        let (outer, inner) = target_directory();
        let source = outer.path().join("tree");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("large"), content(large, 1)).unwrap();
        let file = File::options().write(true).open(source.join("large")).unwrap();
        if has_hole {
            file.set_len(4 * BLOCK_BYTES).unwrap();
        }
        // Long ago: a clock's tick may be longer than all of this.
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
        let settings = SessionSettings { verify, ..DEFAULT_SETTINGS };
        let options = sender_options(settings);
        let write = |sent| {
            if sent > 0 {
                file.write_all_at(b"other", 0).unwrap();
            }
        };
        let (sent, received) = exchange_with(&source, &inner, (options, &write), NO_CUT);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!((sent.unsent.len(), received.moved.files), (1, 0), "{verify} {has_hole}");
        let why = sent.unsent[0].why.to_string();
        assert!(why.contains("large was changed while it was read: it was written"), "{why}");
        assert_eq!(names(&inner.join("tree")), Vec::<String>::new());
    }
}

/// The receiver sends much, as it refuses most files, while the sender sends others: neither waits for the other to read.
#[test]
fn refusals_and_content_do_not_deadlock() {
    let (outer, inner) = target_directory();
    let (source, long_name) = (outer.path().join("tree"), "x".repeat(240));
    let relative_path = Path::new(&long_name).join(&long_name);
    let target = inner.join("tree").join(&relative_path);
    for directory in [&source.join(&relative_path), &target] {
        fs::create_dir_all(directory).unwrap();
    }
    for number in 0..2000 {
        let name = format!("{number:0>240}");
        fs::write(source.join(&relative_path).join(&name), content(16 << 10, number)).unwrap();
        if number % 4 > 0 {
            fs::write(target.join(&name), "there already").unwrap();
        }
    }
    let (sent, received) = exchange(&source, &inner, random_options(0), NO_CUT);
    assert_eq!((sent.unwrap().unsent.len(), received.unwrap().moved.files), (1500, 500));
}

/// More of them than are held open at one time, each with a file: nothing of this program's own is left in any.
#[test]
fn many_empty_directories_arrive() {
    let (outer, inner) = target_directory();
    let source = outer.path().join("tree");
    for number in 0..80 {
        let directory = source.join(number.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), number.to_string()).unwrap();
    }
    let (sent, received) = exchange(&source, &inner, random_options(0), NO_CUT);
    assert_eq!((sent.unwrap().summary.moved.files, received.unwrap().moved.files), (80, 80));
    assert_same_tree(&source, &inner.join("tree"), true);
}

#[test]
fn cut_transfer_leaves_whole_files_and_resumes() {
    let (mut cuts, mut resumed) = (0, 0);
    for number in 0..TREES {
        let (outer, inner) = target_directory();
        let source = outer.path().join("tree");
        let mut random = number.wrapping_mul(0x9E37_79B9);
        make_tree(&source, &mut random);
        fs::write(source.join("large"), content(2 * BLOCK_BYTES as usize + 5, number as u32)).unwrap();
        for turn in 0..8_u64 {
            // Of any order of size: later connections have less to send.
            let mut random_cut = || split_mix(&mut random) as usize % ((3 * BLOCK_BYTES as usize) >> (3 * (turn / 2)));
            let cut = if turn % 2 == 0 {
                CutPoints { sender: random_cut(), ..NO_CUT }
            } else {
                CutPoints { receiver: random_cut() >> 12, ..NO_CUT }
            };
            let (sent, received) = exchange(&source, &inner, random_options(number + turn), cut);
            resumed += sent.as_ref().map_or(0, |sent| sent.summary.moved.amount.resumed);
            for error in [sent.err(), received.err()].into_iter().flatten() {
                cuts += 1;
                let has_broken = matches!(
                    &error,
                    Error::Call { .. } | Error::Closed | Error::TimedOut { .. } | Error::TooSlow { .. }
                );
                let is_no_message =
                    matches!(&error, Error::FrameTooLong { .. } | Error::Malformed(_) | Error::Tampered);
                let is_cut = has_broken || is_no_message || matches!(&error, Error::WhileMoving { .. });
                assert!(is_cut, "{number}: {error}");
            }
            if inner.join("tree").exists() {
                assert_same_tree(&source, &inner.join("tree"), false);
            }
        }
        let (sent, received) = exchange(&source, &inner, random_options(number), NO_CUT);
        let sent = sent.unwrap();
        assert_eq!((sent.unsent.len(), received.unwrap().moved.amount), (0, sent.summary.moved.amount), "{number}");
        resumed += sent.summary.moved.amount.resumed;
        assert_same_tree(&source, &inner.join("tree"), true);
    }
    assert!(cuts > 50 && resumed > 0, "{cuts} cuts, {resumed} bytes gone on with");
}

/// As where a file system knows no case, which shows a file that has its name under others too.
#[test]
fn colliding_names_replace_nothing() {
    let (_outer, inner) = target_directory();
    fs::write(inner.join("before"), "before").unwrap();
    let mut policy = OfferPolicy::new(&directory_destination(&inner), super::MAY_OVERWRITE).unwrap();
    let settings = SessionSettings { update: true, ..DEFAULT_SETTINGS };
    policy.write_small(&file("Case", 5), b"first", false).unwrap();
    fs::hard_link(inner.join("Case"), inner.join("case")).unwrap();
    for (name, is_taken) in [("case", true), ("before", false), ("new", false)] {
        let offered = file(name, 5);
        let (decision, write_result) =
            (policy.decide(&offered, &settings, true), policy.write_small(&offered, b"other", false));
        for refused in [decision.err(), write_result.err()] {
            assert_eq!(matches!(refused, Some(Error::NameCollision(_))), is_taken, "{name}: {refused:?}");
        }
        assert_eq!(fs::read(inner.join(name)).unwrap(), if is_taken { b"first" } else { b"other" }, "{name}");
    }
}
