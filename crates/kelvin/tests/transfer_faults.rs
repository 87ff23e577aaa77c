//! Transfers that are disturbed: either end killed at any instant, the link cut, the source changed, a sender that wants memory.
//!
//! Whatever happens, a file is whole or absent, and the next attempt completes it.

mod link;
mod place;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use kelvin_sys::random::split_mix;
use kelvin_transfer::channel::Channel;
use kelvin_transfer::message::{
    ATTRIBUTES, Attribute, Decision, Entry, EntryKind, FromReceiver, FromSender, Modified, Reason, Settings,
};
use kelvin_transfer::session::WINDOW;
use kelvin_transfer::tree;
use kelvin_transfer::{HANDSHAKE, PROTOCOL};
use kelvin_wire::bounded::REASON;
use kelvin_wire::deadline::Deadline;
use kelvin_wire::noise::Handshake;
use kelvin_wire::secret::Secret;
use link::Link;
use place::{KELVIN, PATIENCE, Place, finished, names, signal, stderr, stdout, within};

const MIB: u64 = 1 << 20;
/// Over what connections one attempt after the other goes.
const OVER: [[&str; 2]; 6] = [
    ["--streams", "1"],
    ["--streams", "3"],
    ["--connection", "per-file"],
    ["--streams", "8"],
    ["--streams", "1"],
    ["--streams", "2"],
];
/// How often each end is killed.
const KILLS: usize = 50;
/// Bytes of the large file of a tree: some blocks.
const LARGE: usize = 10 << 20;
/// So long it takes at least at this limit, and within so long somebody is killed.
const LIMIT: [&str; 2] = ["--limit", "64MiB"];
const INSTANTS: Duration = Duration::from_millis(150);

/// A receiver that is killed when the test ends.
struct Running {
    child: Child,
    address: String,
}

impl Running {
    fn by(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    fn start(place: &Place) -> Self {
        Self::by(place.command(KELVIN, &["receive", "in", "--listen", "127.0.0.1:0"]))
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Ends it by a signal: its status, and what it logged.
    fn stop(mut self) -> (Option<i32>, String) {
        signal(&self.child, "INT");
        assert!(within(PATIENCE, || self.child.try_wait().unwrap().is_some()), "the receiver hangs");
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes `tree`: a large file between small ones in two directories, and one with a hole.
fn make_tree(place: &Place) -> PathBuf {
    let tree = place.path().join("tree");
    for directory in ["a", "z"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
        (0..40).for_each(|number| drop(place.file(&format!("tree/{directory}/{number}"), 100 * number)));
    }
    place.file("tree/large", LARGE);
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(9 * MIB).unwrap();
    sparse.write_all_at(&[7; 5000], 5 * MIB + 1).unwrap();
    fs::create_dir(place.path().join("in")).unwrap();
    tree
}

/// That each file below a directory that has its name has its content too; returns how many there are, and what is kelvin's own.
fn whole_files(source: &Path, target: &Path) -> (usize, Vec<String>) {
    let (mut whole, mut own) = (0, Vec::new());
    for name in names(target) {
        let (from, to) = (source.join(&name), target.join(&name));
        if name.starts_with(".kelvin-") {
            own.push(name);
        } else if from.is_dir() {
            let below = whole_files(&from, &to);
            whole += below.0;
            own.extend(below.1);
        } else {
            assert!(fs::read(from).unwrap() == fs::read(&to).unwrap(), "{} is not whole", to.display());
            whole += 1;
        }
    }
    (whole, own)
}

fn arrived(place: &Place) -> (usize, Vec<String>) {
    let target = place.path().join("in/tree");
    if target.exists() { whole_files(&place.path().join("tree"), &target) } else { (0, Vec::new()) }
}

/// Sends over such connections.
fn sender(place: &Place, to: &str, over: [&str; 2]) -> Child {
    place.start(&[&["send", "tree", to, "-r", "--update"], &over[..], &LIMIT].concat())
}

/// Sends once more, until the receiver is done with the connection that was cut: all arrives, and nothing else is there.
fn completed(place: &Place, to: &str) {
    let mut last = None;
    let is_sent = within(PATIENCE, || {
        let output = finished(sender(place, to, ["--streams", "2"]), &["send"]);
        let is_sent = output.status.success();
        last = Some(output);
        is_sent
    });
    assert!(is_sent, "{}", last.as_ref().map_or("", stderr));
    assert_eq!(arrived(place), (82, vec![]));
    fs::remove_dir_all(place.path().join("in/tree")).unwrap();
}

/// Random instants after the beginning of a sending, from a constant seed.
struct Instants(u64);

impl Instants {
    fn wait(&mut self) {
        let part = split_mix(&mut self.0) % INSTANTS.as_micros() as u64;
        std::thread::sleep(Duration::from_micros(part));
    }
}

#[test]
fn whenever_the_sender_is_killed_files_are_whole_or_absent_and_the_next_one_completes_them() {
    let place = Place::new();
    make_tree(&place);
    let receiver = Running::start(&place);
    let (mut instants, mut killed) = (Instants(1), 0);
    while killed < KILLS {
        // Several on the same target: what one has left, the next goes on with.
        for over in OVER {
            let mut sender = sender(&place, &receiver.address, over);
            instants.wait();
            killed += usize::from(sender.try_wait().unwrap().is_none());
            sender.kill().unwrap();
            sender.wait().unwrap();
            arrived(&place);
        }
        completed(&place, &receiver.address);
    }
    let (status, log) = receiver.stop();
    assert_eq!(status, Some(0), "{log}");
    assert_eq!(names(&place.path().join("in")), Vec::<String>::new());
}

#[test]
fn whenever_the_receiver_is_killed_files_are_whole_or_absent_and_the_next_one_completes_them() {
    let place = Place::new();
    make_tree(&place);
    let (mut instants, mut killed) = (Instants(2), 0);
    while killed < KILLS {
        for over in OVER {
            let mut receiver = Running::start(&place);
            let mut sender = sender(&place, &receiver.address, over);
            instants.wait();
            killed += usize::from(sender.try_wait().unwrap().is_none());
            receiver.kill();
            let output = finished(sender, &["send"]);
            let said = stderr(&output);
            assert!(output.status.success() || (said.lines().count() == 1 && said.starts_with("kelvin: ")), "{said}");
            arrived(&place);
        }
        let receiver = Running::start(&place);
        completed(&place, &receiver.address);
        assert_eq!(receiver.stop().0, Some(0));
    }
    assert_eq!(names(&place.path().join("in")), Vec::<String>::new());
}

/// Waits until the first block of a large file has arrived in `in`.
fn wait_for_part(place: &Place) {
    let has_part = || {
        let entries = fs::read_dir(place.path().join("in")).unwrap().flatten();
        let mut parts = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b".kelvin-part-"));
        parts.any(|part| part.metadata().is_ok_and(|found| found.len() > 4 * MIB))
    };
    assert!(within(PATIENCE, has_part), "nothing has arrived");
}

#[test]
fn a_link_that_is_cut_leaves_a_part_and_both_ends_can_be_stopped() {
    let link = match Link::new() {
        Ok(link) => link,
        Err(missing) => return missing.skips("a cut link between sender and receiver"),
    };
    let place = Place::new();
    place.file("large", 2 * LARGE);
    fs::create_dir(place.path().join("in")).unwrap();
    let token = place.path().join("token");
    fs::write(&token, "a secret of sixteen bytes, or more").unwrap();
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let listen = format!("{}:0", Link::FAR);
    let receive = ["receive", "in", "--token-file", "token", "--listen", &listen];
    let receiver = Running::by(Link::kelvin(&place, &link.far, &receive));
    let to = receiver.address.clone();
    let send = ["send", "large", &to, "--token-file", "token", "--limit", "8MiB"];
    let sender = Link::kelvin(&place, &link.near, &send).spawn().unwrap();
    wait_for_part(&place);
    link.set("down").unwrap();
    signal(&sender, "INT");
    let output = finished(sender, &send);
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(1), "kelvin: large was not moved: interrupted by SIGINT\n")
    );
    let (status, log) = receiver.stop();
    assert!(status == Some(0) && log.contains("large: a part is left, to be gone on with"), "{log}");
    assert!(!place.path().join("in/large").exists());
    link.set("up").unwrap();
    let receiver = Running::by(Link::kelvin(&place, &link.far, &receive));
    let send = ["send", "large", &receiver.address, "--token-file", "token"];
    let output = finished(Link::kelvin(&place, &link.near, &send).spawn().unwrap(), &send);
    assert!(stdout(&output).contains(" there from before), in "), "{}{}", stdout(&output), stderr(&output));
    assert!(fs::read(place.path().join("large")).unwrap() == fs::read(place.path().join("in/large")).unwrap());
    assert_eq!(names(&place.path().join("in")), ["large"]);
}

/// Sends a large file, which is changed meanwhile.
fn changed(place: &Place, receiver: &Running, change: impl FnOnce(&File)) -> Output {
    place.file("large", 2 * LARGE);
    let file = File::options().write(true).open(place.path().join("large")).unwrap();
    let sender = place.start(&["send", "large", &receiver.address, "--limit", "8MiB"]);
    wait_for_part(place);
    change(&file);
    finished(sender, &["send"])
}

#[test]
fn a_source_that_is_written_meanwhile_does_not_arrive_and_the_next_attempt_sends_what_it_is() {
    let place = Place::new();
    fs::create_dir(place.path().join("in")).unwrap();
    let receiver = Running::start(&place);
    let append = |file: &File| file.write_all_at(b"more", 2 * LARGE as u64).unwrap();
    let write = |file: &File| file.write_all_at(b"other", 0).unwrap();
    for (change, words) in [(&append as &dyn Fn(&File), "its size went from"), (&write, "it was written")] {
        let output = changed(&place, &receiver, change);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(said.contains("large was changed while it was read: ") && said.contains(words), "{said}");
        assert_eq!(names(&place.path().join("in")), Vec::<String>::new());
        let output = place.run(&["send", "large", &receiver.address]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(fs::read(place.path().join("large")).unwrap() == fs::read(place.path().join("in/large")).unwrap());
        fs::remove_file(place.path().join("in/large")).unwrap();
    }
}

/// A connection of a sender that says what it likes.
struct Hostile(Channel);

impl Hostile {
    fn connect(receiver: &Running, dry_run: bool) -> Self {
        let mut stream = TcpStream::connect(&receiver.address).unwrap();
        let deadline = Deadline::within(HANDSHAKE);
        let halves = Handshake { protocol: &PROTOCOL, secret: &Secret::none(), deadline }.call(&mut stream).unwrap();
        let mut channel = Channel::new(stream, halves).unwrap();
        let settings = Settings { dry_run, ..Settings::USUAL };
        channel.send(&FromSender::Begin(settings)).unwrap();
        Self(channel)
    }

    /// Offers entries, of which each is accepted.
    fn offer(&mut self, entries: Vec<Entry>) {
        let mut undecided = entries.len();
        self.0.send(&FromSender::Offer(entries)).unwrap();
        while undecided > 0 {
            let FromReceiver::Decisions(decisions) = self.0.receive().unwrap() else { panic!("no decisions") };
            assert!(decisions.iter().all(|decision| !matches!(decision, Decision::Refused(_))), "{decisions:?}");
            undecided -= decisions.len();
        }
    }
}

fn entry(name: String, kind: EntryKind) -> Entry {
    let name = name.into_bytes().try_into().unwrap();
    let modified = Modified { seconds: 1_000_000_000, nanoseconds: 5 };
    Entry { parent: 0, name, kind, mode: 0o755, modified, owner: None, attributes: Vec::new() }
}

/// The most that a process had in memory so far.
fn most_memory(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// A receiver that says what it likes to the next sender.
fn listened(listener: &TcpListener) -> Channel {
    let mut stream = listener.accept().unwrap().0;
    let deadline = Deadline::within(HANDSHAKE);
    let handshake = Handshake { protocol: &PROTOCOL, secret: &Secret::none(), deadline };
    let (halves, ()) = handshake.listen(&mut stream, || Some(())).unwrap();
    Channel::new(stream, halves).unwrap()
}

/// Refuses each file with as many words as a reason may have, and says nothing at the end.
#[test]
fn a_receiver_cannot_make_the_sender_hold_much() {
    const FILES: usize = 10_000;
    let place = Place::new();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    (0..FILES).for_each(|number| drop(File::create(tree.join(format!("{number:0>200}"))).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut sender = place.start(&["send", "-r", "tree", &to]);
    let mut channel = listened(&listener);
    let why = Reason("x".repeat(REASON));
    assert!(matches!(channel.receive().unwrap(), FromSender::Begin(_)));
    let before = most_memory(&sender);
    loop {
        let decide = |entry: &Entry| match entry.kind {
            EntryKind::Directory => Decision::Made,
            _ => Decision::Refused(why.clone()),
        };
        match channel.receive().unwrap() {
            FromSender::Offer(entries) => {
                let decisions: Vec<_> = entries.iter().map(decide).collect();
                let mut some = decisions.chunks(100).map(<[_]>::to_vec);
                some.try_for_each(|some| channel.send(&FromReceiver::Decisions(some))).unwrap();
            }
            FromSender::Found { .. } => {}
            FromSender::End => break,
            other => panic!("{other:?}"),
        }
    }
    // It has heard all, and waits for what was measured here.
    let most = most_memory(&sender);
    assert!(most > before + (FILES * REASON) as u64, "{most} bytes instead of {before}: that is less than it was told");
    assert!(most < 64 * MIB, "{} MiB", most / MIB);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

/// Wants a large file and takes it in small pieces: the sender reads no further ahead than its buffers.
#[test]
fn a_slow_receiver_does_not_make_the_sender_hold_what_it_does_not_take() {
    let place = Place::new();
    place.file("large", 100 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut sender = place.start(&["send", "large", &to]);
    let mut channel = listened(&listener);
    while !matches!(channel.receive().unwrap(), FromSender::Offer(_)) {}
    channel.send(&FromReceiver::Decisions(vec![Decision::Wanted])).unwrap();
    assert!(matches!(channel.receive().unwrap(), FromSender::Block(_)));
    let mut taken = [0; 512];
    (0..4096).for_each(|_| channel.data_into(&mut taken, 512).unwrap());
    let most = most_memory(&sender);
    assert!(most < 64 * MIB, "{} MiB", most / MIB);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

/// Anonymous memory of a process now.
fn anonymous(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn a_sender_cannot_make_the_receiver_hold_much() {
    let place = Place::new();
    fs::create_dir(place.path().join("in")).unwrap();
    let receiver = Running::start(&place);
    let before = anonymous(&receiver.child);
    // As many files as may wait for their content, each with all attributes that it may have.
    let attribute = |number| Attribute { name: vec![b'a' + number as u8 % 26; 32], value: vec![b'x'; 32] };
    let attributes: Vec<_> = (0..ATTRIBUTES).map(attribute).collect();
    let with_all = |number| {
        let file = entry(format!("{number:0>255}"), EntryKind::File { bytes: u64::MAX, stored: 0 });
        Entry { attributes: attributes.clone(), ..file }
    };
    let mut files = Hostile::connect(&receiver, false);
    for first in (0..WINDOW).step_by(8) {
        files.offer((first..first + 8).map(with_all).collect());
    }
    // As many directories as a transfer may have, with names that are as long as all of them may be.
    let mut directories = Hostile::connect(&receiver, true);
    let length = tree::NAMES / tree::MOST;
    for first in (0..tree::MOST).step_by(500) {
        let some = first..first + 500;
        directories.offer(some.map(|number| entry(format!("{number:0>length$}"), EntryKind::Directory)).collect());
    }
    let held = anonymous(&receiver.child);
    assert!(held > before + 8 * MIB, "{held} bytes instead of {before}: that is nothing");
    assert!(held < 64 * MIB, "{} MiB", held / MIB);
    assert_eq!(receiver.stop().0, Some(0));
}
