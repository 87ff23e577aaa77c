//! `kelvin send` and `kelvin receive` as whole programs: byte for byte, refusals, kills, and full disks.

mod test_dir;

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use kelvin_testing::{MissingRequirement, is_root};
use serde_json::Value;
use test_dir::{
    HANG_TIMEOUT, KELVIN, TestDir, assert_refused, names, run_in_namespace, stderr, stdout, wait_for_output, within,
};

/// A receiver into the directory `in` of a place, which is killed if the test does not end it.
struct TestReceiver {
    child: Option<Child>,
    output: BufReader<std::process::ChildStdout>,
    address: String,
}

impl TestReceiver {
    fn start(place: &TestDir, arguments: &[&str]) -> Self {
        let _ = fs::create_dir(place.path().join("in"));
        Self::spawn(place.command(KELVIN, &[&["receive", "in"], arguments].concat()))
    }

    fn spawn(mut command: Command) -> Self {
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
    fn wait_output(mut self) -> (Option<i32>, String, String) {
        let output = wait_for_output(self.child.take().unwrap(), &["receive"]);
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).unwrap();
        (output.status.code(), printed, stderr(&output).to_owned())
    }

    /// Ends it by a signal.
    fn stop(mut self) -> (Option<i32>, String, String) {
        test_dir::signal(self.child(), "INT");
        self.wait_output()
    }
}

impl Drop for TestReceiver {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const LISTEN_LOOPBACK: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn send(place: &TestDir, files: &[&OsStr], to: &str, options: &[&str]) -> Output {
    let mut command = place.command(KELVIN, &["send"]);
    command.args(files).arg(to).args(options);
    wait_for_output(command.spawn().unwrap(), &["send"])
}

fn send_files(place: &TestDir, files: &[&str], receiver: &TestReceiver, options: &[&str]) -> Output {
    let files: Vec<&OsStr> = files.iter().map(OsStr::new).collect();
    send(place, &files, &receiver.address, options)
}

fn write_token(place: &TestDir, name: &str, content: &str) -> String {
    let file = place.path().join(name);
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn received_names(place: &TestDir) -> Vec<String> {
    names(&place.path().join("in"))
}

/// Bytes of a file that takes a while at the limit: some blocks.
const LARGE_BYTES: usize = 24 << 20;
const LIMIT_OPTION: [&str; 2] = ["--limit", "8MiB"];

fn make_large_file(place: &TestDir) -> PathBuf {
    place.file("large", LARGE_BYTES);
    place.path().join("large")
}

/// The one file that is still arriving under this kind of name, with more than this many bytes in it.
fn incoming_file(place: &TestDir, kind: &str, least: u64) -> Option<PathBuf> {
    let entries = fs::read_dir(place.path().join("in")).unwrap().flatten();
    let mut begun = entries.filter(|entry| entry.file_name().as_bytes().starts_with(kind.as_bytes()));
    begun.find(|entry| entry.metadata().is_ok_and(|found| found.len() > least)).map(|entry| entry.path())
}

/// The part of a large file that has at least one block.
fn incoming_part(place: &TestDir) -> Option<PathBuf> {
    incoming_file(place, ".kelvin-part-", 4 << 20)
}

#[test]
fn files_of_every_length_arrive_identical() {
    let place = TestDir::new();
    let lengths = [0, 1, 4095, 4096, 4097, 65_535, 65_536, (1 << 20) + 1];
    let files: Vec<String> = lengths.iter().map(|length| format!("of {length} bytes")).collect();
    files.iter().zip(lengths).for_each(|(name, length)| drop(place.file(name, length)));
    let odd = OsStr::from_bytes(b"no text \xff\xfe\n");
    fs::write(place.path().join(odd), "odd").unwrap();
    let all: Vec<&OsStr> = files.iter().map(OsStr::new).chain([odd]).collect();
    let connection = &["--connection", "per-file"][..];
    for options in [&[][..], &["--plain"], &["--no-verify"], &["--plain", "--no-verify"], connection] {
        let receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--once", "--overwrite"]].concat());
        let output = send(&place, &all, &receiver.address, options);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let (status, printed, log) = receiver.wait_output();
        assert_eq!(status, Some(0), "{log}");
        // Both ends say the same.
        assert_eq!(printed, stdout(&output));
        assert!(printed.starts_with("moved 9 files, "), "{printed}");
        assert_eq!(printed.contains("not encrypted"), options.contains(&"--plain"), "{printed}");
        assert_eq!(printed.contains("not verified"), options.contains(&"--no-verify"), "{printed}");
        assert_eq!(printed.contains("a connection for each file"), options == connection, "{printed}");
        assert!(
            printed.contains(" from connecting to the last byte: ") && printed.contains("; limited by "),
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
fn mtime_and_permissions_are_kept() {
    let place = TestDir::new();
    place.file("data", 100);
    let path = place.path().join("data");
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
    symlink("data", place.path().join("link")).unwrap();
    let receiver = TestReceiver::start(&place, &LISTEN_LOOPBACK);
    assert!(send_files(&place, &["link"], &receiver, &[]).status.success());
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
fn existing_file_is_refused_alone() {
    let place = TestDir::new();
    place.file("one", 10);
    place.file("two", 20);
    fs::create_dir(place.path().join("in")).unwrap();
    fs::write(place.path().join("in/one"), "old").unwrap();
    let receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--once"]].concat());
    let output = send_files(&place, &["one", "two"], &receiver, &["--json"]);
    let words = "one exists, and is replaced only with --overwrite";
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), format!("kelvin: one: the other side says: {words}\n"));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["files"], &said["bytes"], &said["failed"]), (&1.into(), &20.into(), &1.into()), "{said}");
    assert_eq!((&said["unsent"][0]["file"], said["stages"].as_array().unwrap().len()), (&"one".into(), 10), "{said}");
    let (status, printed, log) = receiver.wait_output();
    assert!(status == Some(1) && log.contains(words) && printed.starts_with("moved 1 file, 20 B"), "{printed}{log}");
    assert_eq!(fs::read_to_string(place.path().join("in/one")).unwrap(), "old");
    assert_eq!(received_names(&place), ["one", "two"]);
}

#[test]
fn sender_without_secret_is_rejected() {
    let place = TestDir::new();
    place.file("data", 10);
    let right = write_token(&place, "right", "a secret of sixteen bytes, or more");
    let wrong = write_token(&place, "wrong", "another secret of sixteen bytes, or more");
    let receiver = TestReceiver::start(&place, &["--listen", "0.0.0.0:0", "--token-file", &right]);
    let address = receiver.address.replace("0.0.0.0", "127.0.0.1");
    let to = |address: &str, options: &[&str]| send(&place, &[OsStr::new("data")], address, options);
    assert_refused(&to(&address, &[]), &["127.0.0.1", "the receiver requires a secret", "--token-file"]);
    assert_refused(&to(&address, &["--token-file", &wrong]), &["the secret differs", "--token-file"]);
    assert!(received_names(&place).is_empty());
    assert!(to(&address, &["--token-file", &right]).status.success());
    let (_, _, log) = receiver.stop();
    assert!(log.contains("receiving from senders with the secret") && !log.contains("sixteen"), "{log}");
    let open = TestReceiver::start(&place, &LISTEN_LOOPBACK);
    assert_refused(&to(&open.address, &["--token-file", &right]), &["the receiver has no secret"]);
    // A documentation address (RFC 5737): nothing is sent there.
    assert_refused(&to("192.0.2.1", &[]), &["192.0.2.1:27315 is another host", "--token-file"]);
}

#[test]
fn send_usage_error_sends_nothing() {
    let place = TestDir::new();
    place.file("data", 10);
    fs::create_dir(place.path().join("other")).unwrap();
    fs::copy(place.path().join("data"), place.path().join("other/data")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path().join("pipe")).status().unwrap().success());
    let receiver = TestReceiver::start(&place, &LISTEN_LOOPBACK);
    let to = receiver.address.as_str();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let cases: &[(&[&str], &str)] = &[
        (&["send"], "<FILE>"),
        // The last one is the host.
        (&["send", "localhost"], "FILE... HOST[:PORT]"),
        (&["send", "-", "data", to], "-: standard input is sent alone"),
        (&["send", "-", "--name", "a/b", to], "--name"),
        (&["send", "data", to, "--limit", "fast"], "--limit"),
        (&["send", "data", to, "--links"], "--recursive"),
        (
            &["send", "data", to, "--connection", "per-file", "--streams", "2"],
            "--connection per-file: a file has one connection then: leave out --streams",
        ),
        (&["send", "data", to, "--streams", "9"], "--streams <N>': give auto, or a number from 1 to 8"),
        (&["send", "data", to, "--streams", "auto", "--plain", "--method", "rw"], "--streams"),
        (&["send", "data", to, "--plain", "--device", "--connection", "per-file"], "--device"),
        (&["receive", "in", "--discard"], "--discard"),
        (&["send", "none", to], "cannot find none: No such file"),
        (&["send", "data", "other", to], "other is a directory, which only -r sends"),
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
    assert!(received_names(&place).is_empty());
}

#[test]
fn non_kelvin_peer_is_reported() {
    let place = TestDir::new();
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
    let receiver = TestReceiver::start(&place, &LISTEN_LOOPBACK);
    let mut stream = TcpStream::connect(&receiver.address).unwrap();
    std::io::Write::write_all(&mut stream, &b"GET / HTTP/1.1\r\n".repeat(9)).unwrap();
    // Until it is closed.
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    let (_, _, log) = receiver.stop();
    assert!(log.contains("the other side is no kelvin send"), "{log}");
}

#[test]
fn transfer_of_killed_sender_is_resumed() {
    let place = TestDir::new();
    let path = make_large_file(&place);
    place.file("small", 10);
    for signal in ["KILL", "INT"] {
        let receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
        let sender = place.start(&[&["send", "large", &receiver.address], &LIMIT_OPTION[..]].concat());
        assert!(within(HANG_TIMEOUT, || incoming_part(&place).is_some()));
        test_dir::signal(&sender, signal);
        let output = wait_for_output(sender, &["send"]);
        if signal == "INT" {
            assert_eq!(output.status.code(), Some(1));
            assert_eq!(stderr(&output), "kelvin: large was not moved: interrupted by SIGINT\n");
        }
        assert!(send_files(&place, &["small"], &receiver, &[]).status.success());
        let output = send_files(&place, &["large"], &receiver, &[]);
        assert!(stdout(&output).contains(" there from before), in "), "{}{}", stdout(&output), stderr(&output));
        assert!(fs::read(&path).unwrap() == fs::read(place.path().join("in/large")).unwrap());
        assert_eq!(received_names(&place), ["large", "small"]);
        let (status, printed, log) = receiver.stop();
        assert!(status == Some(0) && printed.contains(stdout(&output)), "{printed}");
        assert!(log.contains("large: a part is left, to be gone on with"), "{log}");
    }
}

#[test]
fn killed_receiver_leaves_part() {
    let place = TestDir::new();
    let path = make_large_file(&place);
    for signal in ["KILL", "INT"] {
        let mut receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
        let sender = place.start(&[&["send", "large", &receiver.address], &LIMIT_OPTION[..]].concat());
        assert!(within(HANG_TIMEOUT, || incoming_part(&place).is_some()));
        test_dir::signal(receiver.child(), signal);
        let output = wait_for_output(sender, &["send"]);
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(1), 1), "{}", stderr(&output));
        assert!(stderr(&output).starts_with("kelvin: large was not moved: "), "{}", stderr(&output));
        let (status, ..) = receiver.wait_output();
        assert_eq!(status, if signal == "INT" { Some(0) } else { None });
        let receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
        let output = send_files(&place, &["large"], &receiver, &["--plain"]);
        assert!(stdout(&output).contains(" there from before), in "), "{}{}", stdout(&output), stderr(&output));
        assert!(fs::read(&path).unwrap() == fs::read(place.path().join("in/large")).unwrap());
        assert_eq!(received_names(&place), ["large"]);
    }
}

#[test]
fn changed_file_fails_alone() {
    let place = TestDir::new();
    place.file("small", 10);
    for (length, words) in
        [(0, "its size went from 25165824 to 0 bytes"), (1 << 20, "its size went from 25165824 to 1048576 bytes")]
    {
        let path = make_large_file(&place);
        let file = File::options().write(true).open(&path).unwrap();
        let receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--once"]].concat());
        let sender = place.start(&[&["send", "large", "small", &receiver.address], &LIMIT_OPTION[..]].concat());
        assert!(within(HANG_TIMEOUT, || incoming_part(&place).is_some()));
        file.set_len(length).unwrap();
        let output = wait_for_output(sender, &["send"]);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(said.contains("large was changed while it was read") && said.contains(words), "{said}");
        let (status, _, log) = receiver.wait_output();
        assert!(status == Some(1) && log.contains("large: the other side says: ") && log.contains(words), "{log}");
        assert_eq!(received_names(&place), ["small"]);
        fs::remove_file(place.path().join("in/small")).unwrap();
    }
}

/// Sends a file into a file system of 1 MiB, once seen to be too large and once while it fills up.
#[test]
fn full_disk_is_reported_at_both_ends() {
    let what = "a full file system under receive";
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)").report_skip(what);
    }
    let place = TestDir::new();
    fs::create_dir(place.path().join("in")).unwrap();
    let prepare = "mount -t tmpfs -o size=1m none in";
    let check = run_in_namespace(&place, prepare);
    if !check.status.success() {
        return MissingRequirement::from_message(stderr(&check)).report_skip(what);
    }
    place.file("too large", (1 << 20) + 1);
    place.file("fits", 900_000);
    place.file("small", 10);
    let listen = "{ \"$0\" receive in --once --listen 127.0.0.1:0 > address 2> log & } && \
                  while ! [ -s address ]; do sleep 0.01; done && read to < address";
    let script = format!(
        "{prepare} && {listen} && \"$0\" send 'too large' fits small \"$to\"; echo status $?; wait; cat log >&2; ls -A in"
    );
    let output = run_in_namespace(&place, &script);
    let (said, words) = (stderr(&output), "the receiver says: 1.86 MiB are to come, and there is room for ");
    assert!(said.contains(words), "{said}");
    assert!(stdout(&output).ends_with("status 2\n"), "{}", stdout(&output));

    // There is room when a file is announced, and none any more when it arrives: somebody else has written.
    let script = format!(
        "mount -t tmpfs -o size=80m none in && rm address && {listen} && head -c 60M /dev/urandom > held && \
         {{ \"$0\" send held small \"$to\" --limit 8MiB & }} && sender=$! && \
         while [ \"$(du -sk in | cut -f 1)\" -lt 500 ]; do sleep 0.01; done && kill -STOP $sender && \
         ! cat /dev/zero > in/filler 2> filled; kill -CONT $sender; wait $sender; echo status $?; wait; cat log >&2; ls -A in"
    );
    let output = run_in_namespace(&place, &script);
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
fn planted_symlinks_are_not_followed() {
    let place = TestDir::new();
    place.file("data", 10);
    fs::write(place.path().join("victim"), "the user's").unwrap();
    let receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
    let inner = place.path().join("in");
    symlink("../victim", inner.join("data")).unwrap();
    let output = send_files(&place, &["data"], &receiver, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("data is a symbolic link, and no regular file"), "{}", stderr(&output));
    fs::remove_file(inner.join("data")).unwrap();
    // Another directory takes its place: files still arrive in the one that was named.
    fs::rename(&inner, place.path().join("moved")).unwrap();
    fs::create_dir(&inner).unwrap();
    assert!(send_files(&place, &["data"], &receiver, &[]).status.success());
    assert_eq!((names(&inner), names(&place.path().join("moved"))), (vec![], vec!["data".to_owned()]));
    assert_eq!(fs::read_to_string(place.path().join("victim")).unwrap(), "the user's");
}

/// As JSON, both ends print one document, and the receiver its address before it.
#[test]
fn both_ends_print_json() {
    let place = TestDir::new();
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
        ["files", "bytes", "failed", "seconds", "bytes_per_second", "verified", "encrypted", "utilisation", "sentence"]
    {
        assert!(!sender[key].is_null() && sender[key] == receiver[key], "{key}: {sender} {receiver}");
    }
    assert!(Path::new(&place.path().join("in/data")).exists());
}

/// What `find` says of everything below a directory but sizes of directories: names, types, modes, times, sizes, links.
fn find_listing(directory: &Path) -> String {
    let format = "%P %y %m %T@ %l";
    let output =
        Command::new("find").arg(directory).args(["-mindepth", "1", "-printf", &format!("{format}\\n")]).output();
    let mut lines: Vec<String> = stdout(&output.unwrap()).lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

/// Makes `tree`, with what a tree can have: nested directories, an empty one, a link, a file with holes, a pipe.
fn make_tree(place: &TestDir) -> PathBuf {
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    place.file("tree/deep/er/five", 5);
    place.file("tree/deep/many", 300_000);
    symlink("deep/many", tree.join("link")).unwrap();
    symlink("/nowhere", tree.join("deep/dangling")).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 5000], 9_000_001).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    for name in ["deep/er", "deep", "empty"] {
        fs::set_permissions(tree.join(name), Permissions::from_mode(0o751)).unwrap();
        File::open(tree.join(name)).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    }
    tree
}

#[test]
fn tree_arrives_and_unchanged_files_stay() {
    let place = TestDir::new();
    let tree = make_tree(&place);
    let receiver = TestReceiver::start(&place, &LISTEN_LOOPBACK);
    let output = send_files(&place, &["tree"], &receiver, &["-r", "--links", "--sync"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("moved 3 files, 40.3 MiB ("), "{}", stdout(&output));
    assert!(stdout(&output).contains(" of holes), in "), "{}", stdout(&output));
    let there = place.path().join("in/tree");
    assert_eq!(find_listing(&there), find_listing(&tree));
    for name in ["sparse", "deep/many", "deep/er/five"] {
        assert!(fs::read(tree.join(name)).unwrap() == fs::read(there.join(name)).unwrap(), "{name}");
    }
    assert!(there.join("sparse").metadata().unwrap().blocks() < 4096, "its holes were written");

    let again = send_files(&place, &["tree"], &receiver, &["-r", "--links", "--update"]);
    assert_eq!((again.status.code(), stdout(&again)), (Some(0), "unchanged: 3 files\nmoved nothing\n"));
    // Without --overwrite each of them is refused.
    let refused = send_files(&place, &["tree"], &receiver, &["-r"]);
    assert_eq!((refused.status.code(), stderr(&refused).lines().count()), (Some(1), 3), "{}", stderr(&refused));
    assert!(stdout(&refused).starts_with("left out: 2 symbolic links (--links keeps them)\n"), "{}", stdout(&refused));
    assert_eq!(find_listing(&there), find_listing(&tree));
}

#[test]
fn dry_run_changes_nothing() {
    let place = TestDir::new();
    make_tree(&place);
    let receiver = TestReceiver::start(&place, &LISTEN_LOOPBACK);
    let output = send_files(&place, &["tree"], &receiver, &["-r", "--links", "--dry-run"]);
    let planned = "would send tree/deep/er/five\nwould send tree/deep/many\nwould send tree/sparse\n";
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), planned), "{}", stderr(&output));
    assert!(received_names(&place).is_empty());
}

#[test]
fn stdin_stdout_and_discard_work() {
    let place = TestDir::new();
    place.file("data", 700_000);
    let data = place.path().join("data");
    let receiver = TestReceiver::start(&place, &LISTEN_LOOPBACK);
    let mut command = place.command(KELVIN, &["send", "-", "--name", "from a pipe", &receiver.address]);
    command.stdin(Stdio::from(File::open(&data).unwrap()));
    let output = wait_for_output(command.spawn().unwrap(), &["send"]);
    assert!(
        stdout(&output).starts_with("moved 1 file, 700\u{202f}000 B, in "),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(fs::read(&data).unwrap() == fs::read(place.path().join("in/from a pipe")).unwrap());

    // A file keeps its name.
    let renamed = place.run(&["send", "data", "--name", "other", &receiver.address]);
    assert_eq!(renamed.status.code(), Some(2));
    assert!(stderr(&renamed).starts_with("kelvin: --name: "), "{}", stderr(&renamed));

    // One that is refused has the name that it was given on the command line.
    let mut command = place.command(KELVIN, &["send", "-", "--json", "--name", "from a pipe", &receiver.address]);
    let refused = command.stdin(File::open(&data).unwrap()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).starts_with("kelvin: -: the other side says: "), "{}", stderr(&refused));
    let told: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(told["unsent"][0]["file"], "-");

    let mut command = place.command(KELVIN, &["receive", "-", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(File::create(place.path().join("out")).unwrap()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("kelvin: ").to_owned();
    let reader = std::thread::spawn(move || log.lines().map_while(Result::ok).collect::<Vec<_>>());
    let output = send(&place, &[OsStr::new("data")], &address, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let received = wait_for_output(child, &["receive"]);
    assert!(received.status.success());
    assert!(fs::read(&data).unwrap() == fs::read(place.path().join("out")).unwrap());
    assert!(reader.join().unwrap().iter().any(|line| line.starts_with("kelvin: moved 1 file, 700\u{202f}000 B, in ")));

    let nothing =
        TestReceiver::spawn(place.command(KELVIN, &["receive", "--discard", "--once", "--listen", "127.0.0.1:0"]));
    let output = send(&place, &[OsStr::new("data")], &nothing.address, &[]);
    assert!(
        stdout(&output).starts_with("moved 1 file, 700\u{202f}000 B, in "),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert_eq!(nothing.wait_output().0, Some(0));
}

#[test]
fn every_send_method_and_mode_moves_every_byte() {
    let place = TestDir::new();
    // More than a block, so that pieces end within one; a window that no part of it fits; and one that goes with others.
    place.file("large", (4 << 20) + (64 << 10) + 4097);
    place.file("middle", (64 << 10) + 1);
    place.file("small", 5);
    let receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
    let mut moved = 0;
    for method in ["auto", "rw", "mmap", "sendfile", "splice", "zerocopy", "uring"] {
        for mode in ["blocking", "nonblocking", "signal", "uring"] {
            let makes_no_sense = match method {
                "auto" => mode != "blocking",
                "uring" => mode != "uring",
                "sendfile" => mode == "uring",
                _ => false,
            };
            if makes_no_sense {
                continue;
            }
            let more = match method {
                "auto" => vec![],
                "mmap" => vec!["--wait", mode, "--window", "3"],
                _ => vec!["--wait", mode, "--buffer", "100000"],
            };
            let options =
                [&["--plain", "--method", method][..], &more, if moved % 2 == 0 { &["--no-verify"] } else { &[] }];
            let output = send_files(&place, &["large", "middle", "small"], &receiver, &options.concat());
            if method == "zerocopy" && mode == "uring" && stderr(&output).contains("since Linux 6.2") {
                kelvin_testing::MissingRequirement::from_message(stderr(&output))
                    .report_skip("sends without a copy in a ring");
                continue;
            }
            assert_eq!(output.status.code(), Some(0), "{options:?}: {}", stderr(&output));
            let sentence = stdout(&output);
            let is_said = !matches!(method, "auto" | "rw");
            assert_eq!(sentence.contains(&format!(", by {method}; ")), is_said, "{options:?}: {sentence}");
            for name in ["large", "middle", "small"] {
                let content = |path: PathBuf| fs::read(path).unwrap();
                let arrived = place.path().join("in").join(name);
                assert!(content(place.path().join(name)) == content(arrived.clone()), "{options:?}: {name}");
                fs::remove_file(arrived).unwrap();
            }
            moved += 1;
        }
    }
    assert!(moved >= 20, "{moved} ways");
    receiver.stop();
}

#[test]
fn every_receive_method_and_mode_keeps_every_byte() {
    let place = TestDir::new();
    place.file("large", (4 << 20) + (64 << 10) + 4097);
    place.file("middle", (64 << 10) + 1);
    place.file("small", 5);
    // Holes at both ends.
    let sparse = File::create(place.path().join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 100_000], 5 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    let files = ["large", "middle", "small", "sparse"];
    let mut moved = 0;
    for method in ["auto", "rw", "mmap", "splice", "uring"] {
        for mode in ["blocking", "nonblocking", "signal", "uring"] {
            let more = match method {
                "auto" if mode == "blocking" => vec![],
                "auto" => continue,
                "uring" if mode != "uring" => continue,
                "mmap" => vec!["--wait", mode, "--window", "3"],
                _ => vec!["--wait", mode, "--buffer", "100000"],
            };
            let options = [&LISTEN_LOOPBACK[..], &["--method", method], &more].concat();
            let receiver = TestReceiver::start(&place, &options);
            for sender in [&["--plain"][..], &["--plain", "--no-verify"]] {
                let output = send_files(&place, &files, &receiver, sender);
                assert_eq!(output.status.code(), Some(0), "{options:?} {sender:?}: {}", stderr(&output));
                let is_said = stdout(&output).contains(&format!(", received by {method}; "));
                assert!(is_said != matches!(method, "auto" | "rw"), "{options:?}: {}", stdout(&output));
                for name in files {
                    let arrived = place.path().join("in").join(name);
                    let is_same = fs::read(place.path().join(name)).unwrap() == fs::read(&arrived).unwrap();
                    assert!(is_same, "{options:?} {sender:?}: {name}");
                    fs::remove_file(arrived).unwrap();
                }
                moved += 1;
            }
            receiver.stop();
        }
    }
    assert_eq!(moved, 2 * (1 + 4 * 4 - 3));
}

/// What a file of 4 GiB + 1 byte holds beside holes: its beginning, both sides of 4 GiB, where 32 bits end, and so its end.
const DATA_EXTENTS: [(u64, usize); 3] = [(0, 70_000), ((2 << 30) - 50_000, 100_000), ((4 << 30) - 100_000, 100_001)];

#[test]
fn sparse_file_above_4_gib_is_sent() {
    use std::os::unix::fs::FileExt;
    let place = TestDir::new();
    let data = |offset: u64, bytes: usize| (0..bytes as u64).map(|at| ((offset + at) % 251) as u8).collect::<Vec<u8>>();
    let file = File::create(place.path().join("huge")).unwrap();
    DATA_EXTENTS.iter().for_each(|&(offset, bytes)| file.write_all_at(&data(offset, bytes), offset).unwrap());
    let length = (4 << 30) + 1;
    assert_eq!(file.metadata().unwrap().len(), length);
    let senders = ["rw", "mmap", "sendfile", "splice", "zerocopy", "uring"].map(|method| (method, "rw"));
    let receivers = ["mmap", "splice", "uring"].map(|method| ("rw", method));
    for (number, (sender, receiver)) in senders.into_iter().chain(receivers).enumerate() {
        let receiving = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--method", receiver]].concat());
        let not_verified: &[&str] = if number % 2 == 0 { &[] } else { &["--no-verify"] };
        let options = [&["--plain", "--method", sender][..], not_verified].concat();
        let output = send_files(&place, &["huge"], &receiving, &options);
        assert_eq!(output.status.code(), Some(0), "{sender} {receiver}: {}", stderr(&output));
        let path = place.path().join("in/huge");
        let arrived = File::open(&path).unwrap();
        let found = arrived.metadata().unwrap();
        // Blocks that hold data at all, and no more.
        assert!(found.len() == length && found.blocks() * 512 <= 16 << 20, "{sender} {receiver}: {found:?}");
        for (offset, bytes) in DATA_EXTENTS {
            let mut content = vec![1; bytes];
            arrived.read_exact_at(&mut content, offset).unwrap();
            assert!(content == data(offset, bytes), "{sender} {receiver} at {offset}");
        }
        for offset in [1 << 20, (2 << 30) + (1 << 20), (4 << 30) - (1 << 20)] {
            let mut hole = [1; 4096];
            arrived.read_exact_at(&mut hole, offset).unwrap();
            assert_eq!(hole, [0; 4096], "{sender} {receiver} at {offset}");
        }
        receiving.stop();
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn receiver_refuses_incompatible_method() {
    let place = TestDir::new();
    place.file("data", 100_000);
    let receiver = TestReceiver::start(&place, &[&LISTEN_LOOPBACK[..], &["--method", "mmap"]].concat());
    for options in [&[][..], &["--plain", "--streams", "2"]] {
        let output = send_files(&place, &["data"], &receiver, options);
        assert_refused(
            &output,
            &["this receiver takes the bytes of files by mmap: send with --plain, and over one stream"],
        );
    }
    assert!(names(&place.path().join("in")).is_empty());
    receiver.stop();
    for (arguments, words) in [
        (&["receive", "-", "--method", "rw"][..], "--method: it is for files in a directory"),
        (&["receive", ".", "--method", "sendfile"], "there is: rw, mmap, splice, uring, auto"),
        (&["receive", ".", "--window", "3"], "--method"),
        (
            &["receive", ".", "--method", "uring", "--wait", "signal"],
            "--method uring: the method uring waits in its ring",
        ),
        (&["receive", "--discard", "--method", "rw"], "cannot be used with"),
        (&["receive", ".", "--device", "--method", "rw"], "cannot be used with"),
    ] {
        let output = place.run(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn impossible_method_options_are_refused() {
    let place = TestDir::new();
    place.file("data", 10);
    for (options, words) in [
        (&["--method", "mmap"][..], "--plain"),
        (&["--plain", "--wait", "signal"], "--method"),
        (&["--plain", "--method", "dd"], "there is: rw, mmap, sendfile, splice, zerocopy, uring, auto"),
        (&["--plain", "--method", "auto", "--buffer", "4k"], "--buffer: name a method with it, such as --method rw"),
        (&["--plain", "--method", "sendfile", "--wait", "uring"], "io_uring has no sendfile"),
        (&["--plain", "--method", "uring", "--wait", "signal"], "--method uring: the method uring waits in its ring"),
        (&["--plain", "--method", "rw", "--window", "5"], "--window: the method rw maps nothing: give --buffer"),
        (&["--plain", "--method", "rw", "--buffer", "511"], "a buffer of 511 bytes: there must be 512 to 67108864"),
        (&["--plain", "--method", "mmap", "--window", "0"], "a window of 0 pages"),
    ] {
        let output = send(&place, &[OsStr::new("data")], "127.0.0.1:1", options);
        let said = stderr(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{options:?}: {said}");
        assert!(said.contains(words), "{options:?}: {said}");
    }
}
