//! Transfers that are disturbed: either end killed at any instant, the link cut, the source changed, a sender that wants memory.
//!
//! Whatever happens, a file is whole or absent, and the next attempt completes it.

mod link;
mod test_dir;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use kelvin_sys::random::split_mix;
use kelvin_transfer::directory_tree;
use kelvin_transfer::message::{
    Attribute, EntryDecision, EntryKind, FileEntry, MAX_ATTRIBUTES, Mtime, ReceiverMessage, RefusalReason,
    SenderMessage, SessionSettings,
};
use kelvin_transfer::secure_channel::SecureChannel;
use kelvin_transfer::session::MAX_WANTED_FILES;
use kelvin_transfer::wire::deadline::Deadline;
use kelvin_transfer::wire::handshake::Handshake;
use kelvin_transfer::wire::limits_serde::MAX_REASON_BYTES;
use kelvin_transfer::wire::secret::Secret;
use kelvin_transfer::{HANDSHAKE, PROTOCOL};
use link::Link;
use test_dir::{HANG_TIMEOUT, KELVIN, TestDir, is_met_within, names, signal, stderr, stdout, wait_for_output};

const MIB: u64 = 1 << 20;
/// Over what connections one attempt after the other goes.
const CONNECTION_OPTIONS: [[&str; 2]; 6] = [
    ["--streams", "1"],
    ["--streams", "3"],
    ["--connection", "per-file"],
    ["--streams", "8"],
    ["--streams", "1"],
    ["--streams", "2"],
];
/// How often each end is killed.
const KILLS_PER_END: usize = 50;
/// Bytes of the large file of a tree: some blocks.
const LARGE_BYTES: usize = 10 << 20;
/// So long it takes at least at this limit, and within so long somebody is killed.
const LIMIT_OPTION: [&str; 2] = ["--limit", "64MiB"];
const MAX_KILL_DELAY: Duration = Duration::from_millis(150);

/// A receiver that is killed when the test ends.
struct TestReceiver {
    child: Child,
    address: String,
}

impl TestReceiver {
    fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    fn start(dir: &TestDir) -> Self {
        Self::spawn(dir.command(KELVIN, &["receive", "in", "--listen", "127.0.0.1:0"]))
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Ends it by a signal: its status, and what it logged.
    fn stop(mut self) -> (Option<i32>, String) {
        signal(&self.child, "INT");
        assert!(is_met_within(HANG_TIMEOUT, || self.child.try_wait().unwrap().is_some()), "the receiver hangs");
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

impl Drop for TestReceiver {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes `tree`: a large file between small ones in two directories, and one with a hole.
fn make_tree(dir: &TestDir) -> PathBuf {
    let tree = dir.path().join("tree");
    for directory in ["a", "z"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
        (0..40).for_each(|number| drop(dir.file(&format!("tree/{directory}/{number}"), 100 * number)));
    }
    dir.file("tree/large", LARGE_BYTES);
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(9 * MIB).unwrap();
    sparse.write_all_at(&[7; 5000], 5 * MIB + 1).unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    tree
}

/// That each file below a directory that has its name has its content too; returns how many there are, and what is kelvin's own.
fn whole_files(source: &Path, target: &Path) -> (usize, Vec<String>) {
    let (mut count, mut partial_files) = (0, Vec::new());
    for name in names(target) {
        let (from, to) = (source.join(&name), target.join(&name));
        if name.starts_with(".kelvin-") {
            partial_files.push(name);
        } else if from.is_dir() {
            let nested = whole_files(&from, &to);
            count += nested.0;
            partial_files.extend(nested.1);
        } else {
            assert!(fs::read(from).unwrap() == fs::read(&to).unwrap(), "{} is not whole", to.display());
            count += 1;
        }
    }
    (count, partial_files)
}

fn arrived_files(dir: &TestDir) -> (usize, Vec<String>) {
    let target = dir.path().join("in/tree");
    if target.exists() { whole_files(&dir.path().join("tree"), &target) } else { (0, Vec::new()) }
}

/// Sends over such connections.
fn start_sender(dir: &TestDir, to: &str, connection_options: [&str; 2]) -> Child {
    dir.start(&[&["send", "tree", to, "-r", "--update"], &connection_options[..], &LIMIT_OPTION].concat())
}

/// Sends once more, until the receiver is done with the connection that was cut: all arrives, and nothing else is there.
fn assert_completes(dir: &TestDir, to: &str) {
    let mut last = None;
    let is_sent = is_met_within(HANG_TIMEOUT, || {
        let output = wait_for_output(start_sender(dir, to, ["--streams", "2"]), &["send"]);
        let is_sent = output.status.success();
        last = Some(output);
        is_sent
    });
    assert!(is_sent, "{}", last.as_ref().map_or("", stderr));
    assert_eq!(arrived_files(dir), (82, vec![]));
    fs::remove_dir_all(dir.path().join("in/tree")).unwrap();
}

/// Random instants after the beginning of a sending, from a constant seed.
struct KillTimes(u64);

impl KillTimes {
    fn wait(&mut self) {
        let part = split_mix(&mut self.0) % MAX_KILL_DELAY.as_micros() as u64;
        std::thread::sleep(Duration::from_micros(part));
    }
}

#[test]
fn killed_sender_leaves_whole_or_absent_files() {
    let dir = TestDir::new();
    make_tree(&dir);
    let receiver = TestReceiver::start(&dir);
    let (mut instants, mut kills) = (KillTimes(1), 0);
    while kills < KILLS_PER_END {
        // Several on the same target: what one has left, the next goes on with.
        for connection_options in CONNECTION_OPTIONS {
            let mut sender = start_sender(&dir, &receiver.address, connection_options);
            instants.wait();
            kills += usize::from(sender.try_wait().unwrap().is_none());
            sender.kill().unwrap();
            sender.wait().unwrap();
            arrived_files(&dir);
        }
        assert_completes(&dir, &receiver.address);
    }
    let (status, log) = receiver.stop();
    assert_eq!(status, Some(0), "{log}");
    assert_eq!(names(&dir.path().join("in")), Vec::<String>::new());
}

#[test]
fn killed_receiver_leaves_whole_or_absent_files() {
    let dir = TestDir::new();
    make_tree(&dir);
    let (mut instants, mut kills) = (KillTimes(2), 0);
    while kills < KILLS_PER_END {
        for connection_options in CONNECTION_OPTIONS {
            let mut receiver = TestReceiver::start(&dir);
            let mut sender = start_sender(&dir, &receiver.address, connection_options);
            instants.wait();
            kills += usize::from(sender.try_wait().unwrap().is_none());
            receiver.kill();
            let output = wait_for_output(sender, &["send"]);
            let message = stderr(&output);
            assert!(
                output.status.success() || (message.lines().count() == 1 && message.starts_with("kelvin: ")),
                "{message}"
            );
            arrived_files(&dir);
        }
        let receiver = TestReceiver::start(&dir);
        assert_completes(&dir, &receiver.address);
        assert_eq!(receiver.stop().0, Some(0));
    }
    assert_eq!(names(&dir.path().join("in")), Vec::<String>::new());
}

/// Waits until the first block of a large file has arrived in `in`.
fn wait_for_part(dir: &TestDir) {
    let has_part = || {
        let entries = fs::read_dir(dir.path().join("in")).unwrap().flatten();
        let mut parts = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b".kelvin-part-"));
        parts.any(|part| part.metadata().is_ok_and(|metadata| metadata.len() > 4 * MIB))
    };
    assert!(is_met_within(HANG_TIMEOUT, has_part), "nothing has arrived");
}

#[test]
fn cut_link_leaves_resumable_part() {
    let link = match Link::new() {
        Ok(link) => link,
        Err(missing) => return missing.report_skip("a cut link between sender and receiver"),
    };
    let dir = TestDir::new();
    dir.file("large", 2 * LARGE_BYTES);
    fs::create_dir(dir.path().join("in")).unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "a secret of sixteen bytes, or more").unwrap();
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let listen = format!("{}:0", Link::FAR_ADDRESS);
    let receive = ["receive", "in", "--token-file", "token", "--listen", &listen];
    let receiver = TestReceiver::spawn(Link::kelvin(&dir, &link.far_host, &receive));
    let to = receiver.address.clone();
    let send = ["send", "large", &to, "--token-file", "token", "--limit", "8MiB"];
    let sender = Link::kelvin(&dir, &link.near_host, &send).spawn().unwrap();
    wait_for_part(&dir);
    link.set("down").unwrap();
    signal(&sender, "INT");
    let output = wait_for_output(sender, &send);
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(1), "kelvin: large was not moved: interrupted by SIGINT\n")
    );
    let (status, log) = receiver.stop();
    assert!(status == Some(0) && log.contains("large: a part is kept, to be resumed"), "{log}");
    assert!(!dir.path().join("in/large").exists());
    link.set("up").unwrap();
    let receiver = TestReceiver::spawn(Link::kelvin(&dir, &link.far_host, &receive));
    let send = ["send", "large", &receiver.address, "--token-file", "token"];
    let output = wait_for_output(Link::kelvin(&dir, &link.near_host, &send).spawn().unwrap(), &send);
    assert!(stdout(&output).contains(" there from before), in "), "{}{}", stdout(&output), stderr(&output));
    assert!(fs::read(dir.path().join("large")).unwrap() == fs::read(dir.path().join("in/large")).unwrap());
    assert_eq!(names(&dir.path().join("in")), ["large"]);
}

/// Sends a large file, which is changed meanwhile.
fn send_while_changing(dir: &TestDir, receiver: &TestReceiver, change: impl FnOnce(&File)) -> Output {
    dir.file("large", 2 * LARGE_BYTES);
    let file = File::options().write(true).open(dir.path().join("large")).unwrap();
    let sender = dir.start(&["send", "large", &receiver.address, "--limit", "8MiB"]);
    wait_for_part(dir);
    change(&file);
    wait_for_output(sender, &["send"])
}

#[test]
fn changed_source_is_rejected_then_resent() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("in")).unwrap();
    let receiver = TestReceiver::start(&dir);
    let append = |file: &File| file.write_all_at(b"more", 2 * LARGE_BYTES as u64).unwrap();
    let write = |file: &File| file.write_all_at(b"other", 0).unwrap();
    for (change, words) in [(&append as &dyn Fn(&File), "its size went from"), (&write, "it was written")] {
        let output = send_while_changing(&dir, &receiver, change);
        assert_eq!(output.status.code(), Some(1));
        let message = stderr(&output);
        assert!(message.contains("large was changed while it was read: ") && message.contains(words), "{message}");
        assert_eq!(names(&dir.path().join("in")), Vec::<String>::new());
        let output = dir.run(&["send", "large", &receiver.address]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(fs::read(dir.path().join("large")).unwrap() == fs::read(dir.path().join("in/large")).unwrap());
        fs::remove_file(dir.path().join("in/large")).unwrap();
    }
}

/// A connection of a sender that sends any messages.
struct RawSender(SecureChannel);

impl RawSender {
    fn connect(receiver: &TestReceiver, dry_run: bool) -> Self {
        let mut stream = TcpStream::connect(&receiver.address).unwrap();
        let deadline = Deadline::within(HANDSHAKE);
        let halves = Handshake { protocol: &PROTOCOL, secret: &Secret::none(), deadline }.connect(&mut stream).unwrap();
        let mut channel = SecureChannel::new(stream, halves).unwrap();
        let settings = SessionSettings { dry_run, ..SessionSettings::DEFAULT };
        channel.send(&SenderMessage::Begin(settings)).unwrap();
        Self(channel)
    }

    /// Offers entries, of which each is accepted.
    fn offer(&mut self, entries: Vec<FileEntry>) {
        let mut undecided = entries.len();
        self.0.send(&SenderMessage::Offer(entries)).unwrap();
        while undecided > 0 {
            let ReceiverMessage::Decisions(decisions) = self.0.receive().unwrap() else { panic!("no decisions") };
            assert!(decisions.iter().all(|decision| !matches!(decision, EntryDecision::Refused(_))), "{decisions:?}");
            undecided -= decisions.len();
        }
    }
}

fn entry(name: String, kind: EntryKind) -> FileEntry {
    let name = name.into_bytes().try_into().unwrap();
    let modified = Mtime { seconds: 1_000_000_000, nanoseconds: 5 };
    FileEntry {
        parent: 0,
        name,
        kind,
        mode: 0o755,
        modified,
        owner: None,
        attributes: Vec::new(),
        has_links: false,
        acls: Vec::new(),
    }
}

/// The most that a process had in memory so far.
fn peak_memory(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// A receiver that sends any messages to the next sender.
fn accept_sender(listener: &TcpListener) -> SecureChannel {
    let mut stream = listener.accept().unwrap().0;
    let deadline = Deadline::within(HANDSHAKE);
    let handshake = Handshake { protocol: &PROTOCOL, secret: &Secret::none(), deadline };
    let (halves, ()) = handshake.accept(&mut stream, || Some(())).unwrap();
    SecureChannel::new(stream, halves).unwrap()
}

/// Refuses each file with as many words as a reason may have, and sends nothing at the end.
#[test]
fn hostile_receiver_cannot_exhaust_sender_memory() {
    const FILES: usize = 10_000;
    let dir = TestDir::new();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    (0..FILES).for_each(|number| drop(File::create(tree.join(format!("{number:0>200}"))).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut sender = dir.start(&["send", "-r", "tree", &to]);
    let mut channel = accept_sender(&listener);
    let reason = RefusalReason("x".repeat(MAX_REASON_BYTES));
    assert!(matches!(channel.receive().unwrap(), SenderMessage::Begin(_)));
    let before = peak_memory(&sender);
    loop {
        let decide = |entry: &FileEntry| match entry.kind {
            EntryKind::Directory => EntryDecision::Made,
            _ => EntryDecision::Refused(reason.clone()),
        };
        match channel.receive().unwrap() {
            SenderMessage::Offer(entries) => {
                let decisions: Vec<_> = entries.iter().map(decide).collect();
                let mut batches = decisions.chunks(100).map(<[_]>::to_vec);
                batches.try_for_each(|batch| channel.send(&ReceiverMessage::Decisions(batch))).unwrap();
            }
            SenderMessage::TotalFound { .. } => {}
            SenderMessage::End => break,
            other => panic!("{other:?}"),
        }
    }
    // It has heard all, and waits for what was measured here.
    let peak = peak_memory(&sender);
    assert!(
        peak > before + (FILES * MAX_REASON_BYTES) as u64,
        "{peak} bytes instead of {before}: that is less than it was told"
    );
    assert!(peak < 64 * MIB, "{} MiB", peak / MIB);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

/// Wants a large file and takes it in small pieces: the sender reads no further ahead than its buffers.
#[test]
fn slow_receiver_does_not_grow_sender_memory() {
    let dir = TestDir::new();
    dir.file("large", 100 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut sender = dir.start(&["send", "large", &to]);
    let mut channel = accept_sender(&listener);
    while !matches!(channel.receive().unwrap(), SenderMessage::Offer(_)) {}
    channel.send(&ReceiverMessage::Decisions(vec![EntryDecision::Wanted])).unwrap();
    assert!(matches!(channel.receive().unwrap(), SenderMessage::Block(_)));
    let mut buffer = [0; 512];
    (0..4096).for_each(|_| channel.receive_data(&mut buffer, 512).unwrap());
    let peak = peak_memory(&sender);
    assert!(peak < 64 * MIB, "{} MiB", peak / MIB);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

/// Anonymous memory of a process now.
fn anonymous_memory(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn hostile_sender_cannot_exhaust_receiver_memory() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("in")).unwrap();
    let receiver = TestReceiver::start(&dir);
    let before = anonymous_memory(&receiver.child);
    // As many files as may wait for their content, each with all attributes that it may have.
    let attribute = |number| Attribute { name: vec![b'a' + number as u8 % 26; 32], value: vec![b'x'; 32] };
    let attributes: Vec<_> = (0..MAX_ATTRIBUTES).map(attribute).collect();
    let entry_with_all_attributes = |number| {
        let file = entry(format!("{number:0>255}"), EntryKind::File { bytes: u64::MAX, stored: 0 });
        FileEntry { attributes: attributes.clone(), ..file }
    };
    let mut files = RawSender::connect(&receiver, false);
    for first in (0..MAX_WANTED_FILES).step_by(8) {
        files.offer((first..first + 8).map(entry_with_all_attributes).collect());
    }
    // As many directories as a transfer may have, with names that are as long as all of them may be.
    let mut directories = RawSender::connect(&receiver, true);
    let length = directory_tree::MAX_NAME_BYTES / directory_tree::MAX_DIRECTORIES;
    for first in (0..directory_tree::MAX_DIRECTORIES).step_by(500) {
        let numbers = first..first + 500;
        directories.offer(numbers.map(|number| entry(format!("{number:0>length$}"), EntryKind::Directory)).collect());
    }
    let memory = anonymous_memory(&receiver.child);
    assert!(memory > before + 8 * MIB, "{memory} bytes instead of {before}: that is nothing");
    assert!(memory < 64 * MIB, "{} MiB", memory / MIB);
    assert_eq!(receiver.stop().0, Some(0));
}
