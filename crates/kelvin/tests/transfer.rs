//! `kelvin send` and `kelvin receive` as whole programs: byte for byte, refusals, kills, and full disks.

mod place;

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use kelvin_testing::{Missing, is_root};
use place::{KELVIN, PATIENCE, Place, assert_refused, finished, names, stderr, stdout, within};
use serde_json::Value;

/// A receiver into the directory `in` of a place, which is killed if the test does not end it.
struct Running {
    child: Option<Child>,
    output: BufReader<std::process::ChildStdout>,
    address: String,
}

impl Running {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let _ = fs::create_dir(place.path().join("in"));
        Self::by(place.command(KELVIN, &[&["receive", "in"], arguments].concat()))
    }

    fn by(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut address = String::new();
        output.read_line(&mut address).unwrap();
        Self { child: Some(child), output, address: address.trim().to_owned() }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }

    /// What it printed since, and its log and status, once it has ended.
    fn ended(mut self) -> (Option<i32>, String, String) {
        let output = finished(self.child.take().unwrap(), &["receive"]);
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).unwrap();
        (output.status.code(), printed, stderr(&output).to_owned())
    }

    /// Ends it by a signal.
    fn stop(mut self) -> (Option<i32>, String, String) {
        place::signal(self.child(), "INT");
        self.ended()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const FROM_HERE: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn send(place: &Place, files: &[&OsStr], to: &str, options: &[&str]) -> Output {
    let mut command = place.command(KELVIN, &["send"]);
    command.args(files).arg(to).args(options);
    finished(command.spawn().unwrap(), &["send"])
}

fn sent(place: &Place, files: &[&str], receiver: &Running, options: &[&str]) -> Output {
    let files: Vec<&OsStr> = files.iter().map(OsStr::new).collect();
    send(place, &files, &receiver.address, options)
}

fn token(place: &Place, name: &str, content: &str) -> String {
    let file = place.path().join(name);
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn arrived(place: &Place) -> Vec<String> {
    names(&place.path().join("in"))
}

/// Bytes that take minutes to encrypt without optimisation, and that most disks have room for.
const LARGE: u64 = 8 << 30;

/// A file of holes, too large to be sent in a moment.
fn large(place: &Place) -> PathBuf {
    let path = place.path().join("large");
    File::create(&path).unwrap().set_len(LARGE).unwrap();
    path
}

/// The one file that is still arriving, with some bytes in it.
fn unfinished(place: &Place) -> Option<PathBuf> {
    let entries = fs::read_dir(place.path().join("in")).unwrap().flatten();
    let is_unfinished = |name: &OsStr| name.as_bytes().starts_with(b".kelvin-unfinished-");
    let mut begun = entries.filter(|entry| is_unfinished(&entry.file_name()));
    begun.find(|entry| entry.metadata().is_ok_and(|found| found.len() > 0)).map(|entry| entry.path())
}

#[test]
fn files_of_every_length_arrive_byte_for_byte_in_every_manner() {
    let place = Place::new();
    let lengths = [0, 1, 4095, 4096, 4097, 65_535, 65_536, (1 << 20) + 1];
    let files: Vec<String> = lengths.iter().map(|length| format!("of {length} bytes")).collect();
    files.iter().zip(lengths).for_each(|(name, length)| drop(place.file(name, length)));
    let odd = OsStr::from_bytes(b"no text \xff\xfe\n");
    fs::write(place.path().join(odd), "odd").unwrap();
    let all: Vec<&OsStr> = files.iter().map(OsStr::new).chain([odd]).collect();
    for options in [&[][..], &["--plain"], &["--no-verify"], &["--plain", "--no-verify"]] {
        let receiver = Running::start(&place, &[&FROM_HERE[..], &["--once", "--overwrite"]].concat());
        let output = send(&place, &all, &receiver.address, options);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let (status, printed, log) = receiver.ended();
        assert_eq!(status, Some(0), "{log}");
        // Both ends say the same.
        assert_eq!(printed, stdout(&output));
        assert!(printed.starts_with("moved 9 files, "), "{printed}");
        assert_eq!(printed.contains("not encrypted"), options.contains(&"--plain"), "{printed}");
        assert_eq!(printed.contains("not verified"), options.contains(&"--no-verify"), "{printed}");
        assert!(
            printed.contains(" from connecting to the last byte: ") && printed.contains(" stage was "),
            "{printed}"
        );
        for name in &all {
            let content = |path: PathBuf| fs::read(path).unwrap();
            assert!(content(place.path().join(name)) == content(place.path().join("in").join(name)), "{name:?}");
        }
        assert_eq!(fs::read_dir(place.path().join("in")).unwrap().count(), all.len());
    }
}

#[test]
fn time_and_rights_are_kept_and_links_are_sent_by_their_own_name() {
    let place = Place::new();
    place.file("data", 100);
    let path = place.path().join("data");
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
    symlink("data", place.path().join("link")).unwrap();
    let receiver = Running::start(&place, &FROM_HERE);
    assert!(sent(&place, &["link"], &receiver, &[]).status.success());
    let found = place.path().join("in/link").symlink_metadata().unwrap();
    assert_eq!((found.mode(), found.mtime(), found.mtime_nsec()), (0o100_751, 1_234_567_890, 123_456_789));
    assert_eq!(fs::read(place.path().join("in/link")).unwrap(), fs::read(path).unwrap());
    let (status, _, log) = receiver.stop();
    assert_eq!(
        (status, log.contains("receiving from any process on this host until Ctrl-C")),
        (Some(0), true),
        "{log}"
    );
}

#[test]
fn an_existing_file_costs_only_itself_and_both_ends_say_it() {
    let place = Place::new();
    place.file("one", 10);
    place.file("two", 20);
    fs::create_dir(place.path().join("in")).unwrap();
    fs::write(place.path().join("in/one"), "old").unwrap();
    let receiver = Running::start(&place, &[&FROM_HERE[..], &["--once"]].concat());
    let output = sent(&place, &["one", "two"], &receiver, &["--json"]);
    let words = "one exists, and is replaced only with --overwrite";
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), format!("kelvin: one: the other side says: {words}\n"));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["files"], &said["bytes"], &said["failed"]), (&1.into(), &20.into(), &1.into()), "{said}");
    assert_eq!((&said["unsent"][0]["file"], said["stages"].as_array().unwrap().len()), (&"one".into(), 7), "{said}");
    let (status, printed, log) = receiver.ended();
    assert!(status == Some(1) && log.contains(words) && printed.starts_with("moved 1 file, 20 B"), "{printed}{log}");
    assert_eq!(fs::read_to_string(place.path().join("in/one")).unwrap(), "old");
    assert_eq!(arrived(&place), ["one", "two"]);
}

#[test]
fn only_senders_with_the_secret_are_let_in() {
    let place = Place::new();
    place.file("data", 10);
    let right = token(&place, "right", "a secret of sixteen bytes, or more");
    let wrong = token(&place, "wrong", "another secret of sixteen bytes, or more");
    let receiver = Running::start(&place, &["--listen", "0.0.0.0:0", "--token-file", &right]);
    let address = receiver.address.replace("0.0.0.0", "127.0.0.1");
    let to = |address: &str, options: &[&str]| send(&place, &[OsStr::new("data")], address, options);
    assert_refused(&to(&address, &[]), &["127.0.0.1", "the receiver requires a secret", "--token-file"]);
    assert_refused(&to(&address, &["--token-file", &wrong]), &["the secret differs", "--token-file"]);
    assert!(arrived(&place).is_empty());
    assert!(to(&address, &["--token-file", &right]).status.success());
    let (_, _, log) = receiver.stop();
    assert!(log.contains("receiving from senders with the secret") && !log.contains("sixteen"), "{log}");
    let open = Running::start(&place, &FROM_HERE);
    assert_refused(&to(&open.address, &["--token-file", &right]), &["the receiver has no secret"]);
    // A documentation address (RFC 5737): nothing is sent there.
    assert_refused(&to("192.0.2.1", &[]), &["192.0.2.1:27315 is another host", "--token-file"]);
}

#[test]
fn a_mistake_in_an_argument_is_one_line_and_nothing_is_sent() {
    let place = Place::new();
    place.file("data", 10);
    fs::create_dir(place.path().join("other")).unwrap();
    fs::copy(place.path().join("data"), place.path().join("other/data")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path().join("pipe")).status().unwrap().success());
    let receiver = Running::start(&place, &FROM_HERE);
    let to = receiver.address.as_str();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let cases: &[(&[&str], &str)] = &[
        (&["send"], "<FILE>"),
        // The last one is the host.
        (&["send", "localhost"], "<FILE>"),
        (&["send", "none", to], "cannot find none: No such file"),
        (&["send", "data", "other", to], "other is a directory, and no regular file"),
        (&["send", "pipe", to], "pipe is a pipe, and no regular file"),
        (&["send", "/dev/null", to], "/dev/null is a character device"),
        (&["send", "data", "other/data", to], "data and other/data would arrive under one name"),
        (&["send", "data", ":"], "give HOST or HOST:PORT"),
        (&["send", "data", "127.0.0.1:x"], "give HOST or HOST:PORT"),
        (&["send", "data", &nobody], "cannot connect to the receiver: Connection refused"),
        (&["send", "data", to, "--token-file", "none"], "--token-file: none: No such file"),
        (&["send", "data", to, "--overwrite"], "--overwrite"),
        (&["receive"], "<DIR>"),
        (&["receive", "none"], "cannot open none: No such file"),
        (&["receive", "data"], "cannot receive into data: not a directory"),
        (&["receive", "in", "--listen", "host"], "--listen"),
        (&["receive", "in", "--listen", "0.0.0.0"], "0.0.0.0:27315 can be reached from other hosts"),
        (&["receive", "in", "--listen", to], "Address already in use"),
    ];
    for (arguments, words) in cases {
        assert_refused(&place.run(arguments), &[words]);
    }
    assert!(arrived(&place).is_empty());
}

#[test]
fn what_is_no_kelvin_is_said_at_both_ends() {
    let place = Place::new();
    place.file("data", 10);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let web = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, &b"HTTP/1.1 400 Bad Request\r\n".repeat(9)).unwrap();
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    assert_refused(&send(&place, &[OsStr::new("data")], &address, &[]), &["the other side is no kelvin receive"]);
    web.join().unwrap();
    let receiver = Running::start(&place, &FROM_HERE);
    let mut stream = TcpStream::connect(&receiver.address).unwrap();
    std::io::Write::write_all(&mut stream, &b"GET / HTTP/1.1\r\n".repeat(9)).unwrap();
    // Until it is closed.
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    let (_, _, log) = receiver.stop();
    assert!(log.contains("the other side is no kelvin send"), "{log}");
}

#[test]
fn of_a_killed_sender_nothing_is_left_and_the_receiver_goes_on() {
    let place = Place::new();
    large(&place);
    place.file("small", 10);
    for signal in ["KILL", "INT"] {
        let receiver = Running::start(&place, &[&FROM_HERE[..], &["--overwrite"]].concat());
        let sender = place.start(&["send", "large", &receiver.address]);
        assert!(within(PATIENCE, || unfinished(&place).is_some()));
        place::signal(&sender, signal);
        let output = finished(sender, &["send"]);
        if signal == "INT" {
            assert_eq!(output.status.code(), Some(1));
            assert_eq!(stderr(&output), "kelvin: large was not moved: interrupted by SIGINT\n");
        }
        assert!(within(PATIENCE, || unfinished(&place).is_none()));
        assert!(sent(&place, &["small"], &receiver, &[]).status.success());
        assert_eq!(arrived(&place), ["small"]);
        let (status, _, log) = receiver.stop();
        assert_eq!(status, Some(0));
        assert!(log.contains("large was not moved: the other side closed the connection"), "{log}");
    }
}

#[test]
fn what_a_killed_receiver_leaves_is_removed_by_the_next_and_the_sender_says_it() {
    let place = Place::new();
    large(&place);
    for signal in ["KILL", "INT"] {
        let mut receiver = Running::start(&place, &FROM_HERE);
        let sender = place.start(&["send", "large", &receiver.address]);
        assert!(within(PATIENCE, || unfinished(&place).is_some()));
        place::signal(receiver.child(), signal);
        let output = finished(sender, &["send"]);
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(1), 1), "{}", stderr(&output));
        assert!(stderr(&output).starts_with("kelvin: large was not moved: "), "{}", stderr(&output));
        let (status, ..) = receiver.ended();
        // Asked to stop, it leaves nothing itself.
        assert_eq!(
            (status, unfinished(&place).is_some()),
            if signal == "INT" { (Some(0), false) } else { (None, true) }
        );
        drop(Running::start(&place, &FROM_HERE));
        assert!(arrived(&place).is_empty());
    }
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_an_error_of_that_file() {
    let place = Place::new();
    let path = large(&place);
    place.file("small", 10);
    let changes =
        [(0, "its size went from 8589934592 to 0 bytes"), (1 << 20, "its size went from 8589934592 to 1048576 bytes")];
    for (length, words) in changes {
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(LARGE).unwrap();
        let receiver = Running::start(&place, &[&FROM_HERE[..], &["--once"]].concat());
        let sender = place.start(&["send", "large", "small", &receiver.address]);
        // By then some megabytes were read.
        assert!(within(PATIENCE, || {
            unfinished(&place).is_some_and(|begun| begun.metadata().is_ok_and(|found| found.len() > 4 << 20))
        }));
        file.set_len(length).unwrap();
        let output = finished(sender, &["send"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("large was changed while it was read") && stderr(&output).contains(words));
        let (status, _, log) = receiver.ended();
        assert!(status == Some(1) && log.contains("large: the other side says: ") && log.contains(words), "{log}");
        assert_eq!(arrived(&place), ["small"]);
        fs::remove_file(place.path().join("in/small")).unwrap();
    }
}

/// Runs a shell script in a mount namespace of its own, which ends with it.
fn in_namespace(place: &Place, script: &str) -> Output {
    let arguments = ["--mount", "sh", "-c", script, KELVIN];
    finished(place.command("unshare", &arguments).spawn().unwrap(), &arguments)
}

/// Sends a file into a file system of 1 MiB, once seen to be too large and once while it fills up.
#[test]
fn a_full_disk_is_said_at_both_ends_and_nothing_is_left() {
    let what = "a full file system under receive";
    if !is_root() {
        return Missing::right("mounting a small file system (root may)").skips(what);
    }
    let place = Place::new();
    fs::create_dir(place.path().join("in")).unwrap();
    let prepare = "mount -t tmpfs -o size=1m none in";
    let check = in_namespace(&place, prepare);
    if !check.status.success() {
        return Missing::said(stderr(&check)).skips(what);
    }
    place.file("too large", (1 << 20) + 1);
    place.file("fits", 900_000);
    place.file("small", 10);
    let listen = "{ \"$0\" receive in --once --listen 127.0.0.1:0 > address 2> log & } && \
                  while ! [ -s address ]; do sleep 0.01; done && read to < address";
    let script = format!(
        "{prepare} && {listen} && \"$0\" send 'too large' fits small \"$to\"; echo status $?; wait; cat log >&2; ls -A in"
    );
    let output = in_namespace(&place, &script);
    let (said, words) = (stderr(&output), "too large cannot have 1048577 bytes: its file system has room for ");
    assert!(said.contains(&format!("kelvin: too large: the other side says: {words}")), "{said}");
    assert_eq!(said.matches(words).count(), 2, "{said}");
    let printed = stdout(&output);
    assert!(printed.contains("moved 2 files, ") && printed.ends_with("status 1\nfits\nsmall\n"), "{printed}");

    // There is room when a file is announced, and none any more when it arrives: somebody else has written.
    let script = format!(
        "mount -t tmpfs -o size=256m none in && rm address && {listen} && truncate -s 200M held && \
         {{ \"$0\" send held small \"$to\" & }} && sender=$! && \
         while [ \"$(du -sk in | cut -f 1)\" -lt 500 ]; do sleep 0.01; done && kill -STOP $sender && \
         ! cat /dev/zero > in/filler 2> filled; kill -CONT $sender; wait $sender; echo status $?; wait; cat log >&2; ls -A in"
    );
    let output = in_namespace(&place, &script);
    let said = stderr(&output);
    assert!(said.contains("kelvin: held: the other side says: cannot write held: No space left"), "{said}");
    assert_eq!(said.matches("cannot write held: No space left").count(), 2, "{said}");
    assert!(
        stdout(&output).contains("status 1\n") && stdout(&output).ends_with("filler\nsmall\n"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_planted_link_is_not_followed_and_a_swapped_directory_leads_nowhere() {
    let place = Place::new();
    place.file("data", 10);
    fs::write(place.path().join("victim"), "the user's").unwrap();
    let receiver = Running::start(&place, &[&FROM_HERE[..], &["--overwrite"]].concat());
    let inner = place.path().join("in");
    symlink("../victim", inner.join("data")).unwrap();
    let output = sent(&place, &["data"], &receiver, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("data is a symbolic link, and no regular file"), "{}", stderr(&output));
    fs::remove_file(inner.join("data")).unwrap();
    // Another directory takes its place: files still arrive in the one that was named.
    fs::rename(&inner, place.path().join("moved")).unwrap();
    fs::create_dir(&inner).unwrap();
    assert!(sent(&place, &["data"], &receiver, &[]).status.success());
    assert_eq!((names(&inner), names(&place.path().join("moved"))), (vec![], vec!["data".to_owned()]));
    assert_eq!(fs::read_to_string(place.path().join("victim")).unwrap(), "the user's");
}

/// As JSON, both ends print one document, and the receiver its address before it.
#[test]
fn programs_read_what_was_moved_from_either_end() {
    let place = Place::new();
    place.file("data", 1000);
    fs::create_dir(place.path().join("in")).unwrap();
    let mut command = place.command(KELVIN, &["receive", "in", "--once", "--json", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut documents = serde_json::Deserializer::from_reader(child.stdout.take().unwrap()).into_iter::<Value>();
    let first = documents.next().unwrap().unwrap();
    let address = first["listening"].as_str().unwrap();
    let output = send(&place, &[OsStr::new("data")], address, &["--json"]);
    let (sender, receiver) =
        (serde_json::from_slice::<Value>(&output.stdout).unwrap(), documents.next().unwrap().unwrap());
    assert!(documents.next().is_none() && child.wait().unwrap().success());
    for key in
        ["files", "bytes", "failed", "seconds", "bytes_per_second", "verified", "encrypted", "stages", "sentence"]
    {
        assert!(!sender[key].is_null() && sender[key] == receiver[key], "{key}: {sender} {receiver}");
    }
    assert!(Path::new(&place.path().join("in/data")).exists());
}
