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
    HANG_TIMEOUT, KELVIN, TestDir, assert_refused, assert_success, is_met_within, names, run_in_namespace, stderr,
    stdout, wait_for_output,
};

/// A receiver into the directory `in` of a test directory, which is killed if the test does not end it.
struct TestReceiver {
    child: Option<Child>,
    output: BufReader<std::process::ChildStdout>,
    address: String,
}

impl TestReceiver {
    fn start(dir: &TestDir, arguments: &[&str]) -> Self {
        let _ = fs::create_dir(dir.path().join("in"));
        Self::spawn(dir.command(KELVIN, &[&["receive", "in"], arguments].concat()))
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
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        (output.status.code(), text, stderr(&output).to_owned())
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

fn send(dir: &TestDir, files: &[&OsStr], to: &str, options: &[&str]) -> Output {
    let mut command = dir.command(KELVIN, &["send"]);
    command.args(files).arg(to).args(options);
    wait_for_output(command.spawn().unwrap(), &["send"])
}

fn send_files(dir: &TestDir, files: &[&str], receiver: &TestReceiver, options: &[&str]) -> Output {
    let files: Vec<&OsStr> = files.iter().map(OsStr::new).collect();
    send(dir, &files, &receiver.address, options)
}

fn write_token(dir: &TestDir, name: &str, content: &str) -> String {
    let file = dir.path().join(name);
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn received_names(dir: &TestDir) -> Vec<String> {
    names(&dir.path().join("in"))
}

/// Bytes of a file that takes a while at the limit: some blocks.
const LARGE_BYTES: usize = 24 << 20;
const LIMIT_OPTION: [&str; 2] = ["--limit", "8MiB"];

fn make_large_file(dir: &TestDir) -> PathBuf {
    dir.file("large", LARGE_BYTES);
    dir.path().join("large")
}

/// The one file that is still arriving under this kind of name, with more than this many bytes in it.
fn incoming_file(dir: &TestDir, kind: &str, min_bytes: u64) -> Option<PathBuf> {
    let entries = fs::read_dir(dir.path().join("in")).unwrap().flatten();
    let mut incoming = entries.filter(|entry| entry.file_name().as_bytes().starts_with(kind.as_bytes()));
    incoming.find(|entry| entry.metadata().is_ok_and(|metadata| metadata.len() > min_bytes)).map(|entry| entry.path())
}

/// The part of a large file that has at least one block.
fn incoming_part(dir: &TestDir) -> Option<PathBuf> {
    incoming_file(dir, ".kelvin-part-", 4 << 20)
}

#[test]
fn files_of_every_length_arrive_identical() {
    let dir = TestDir::new();
    let lengths = [0, 1, 4095, 4096, 4097, 65_535, 65_536, (1 << 20) + 1];
    let files: Vec<String> = lengths.iter().map(|length| format!("of {length} bytes")).collect();
    files.iter().zip(lengths).for_each(|(name, length)| drop(dir.file(name, length)));
    let non_utf8_name = OsStr::from_bytes(b"no text \xff\xfe\n");
    fs::write(dir.path().join(non_utf8_name), "odd").unwrap();
    let names: Vec<&OsStr> = files.iter().map(OsStr::new).chain([non_utf8_name]).collect();
    let connection = &["--connection", "per-file"][..];
    for options in [&[][..], &["--plain"], &["--no-verify"], &["--plain", "--no-verify"], connection] {
        let receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--once", "--overwrite"]].concat());
        let output = send(&dir, &names, &receiver.address, options);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let (status, text, log) = receiver.wait_output();
        assert_eq!(status, Some(0), "{log}");
        // Both ends print the same.
        assert_eq!(text, stdout(&output));
        assert!(text.starts_with("moved 9 files, "), "{text}");
        assert_eq!(text.contains("not encrypted"), options.contains(&"--plain"), "{text}");
        assert_eq!(text.contains("not verified"), options.contains(&"--no-verify"), "{text}");
        assert_eq!(text.contains("a connection for each file"), options == connection, "{text}");
        assert!(text.contains(" from connecting to the last byte: ") && text.contains("; limited by "), "{text}");
        for name in &names {
            let content = |path: PathBuf| fs::read(path).unwrap();
            assert!(content(dir.path().join(name)) == content(dir.path().join("in").join(name)), "{name:?}");
        }
        assert_eq!(fs::read_dir(dir.path().join("in")).unwrap().count(), names.len());
    }
}

#[test]
fn mtime_and_permissions_are_kept() {
    let dir = TestDir::new();
    dir.file("data", 100);
    let path = dir.path().join("data");
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
    symlink("data", dir.path().join("link")).unwrap();
    let receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    assert!(send_files(&dir, &["link"], &receiver, &[]).status.success());
    let metadata = dir.path().join("in/link").symlink_metadata().unwrap();
    assert_eq!((metadata.mode(), metadata.mtime(), metadata.mtime_nsec()), (0o100_751, 1_234_567_890, 123_456_789));
    assert_eq!(fs::read(dir.path().join("in/link")).unwrap(), fs::read(path).unwrap());
    let (status, _, log) = receiver.stop();
    assert_eq!(
        (status, log.contains("receiving from any process on this host until Ctrl-C")),
        (Some(0), true),
        "{log}"
    );
}

#[test]
fn existing_file_is_refused_alone() {
    let dir = TestDir::new();
    dir.file("one", 10);
    dir.file("two", 20);
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/one"), "old").unwrap();
    let receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--once"]].concat());
    let output = send_files(&dir, &["one", "two"], &receiver, &["--json"]);
    let words = "one exists, and is replaced only with --overwrite";
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), format!("kelvin: one: the other side says: {words}\n"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["files"], &report["bytes"], &report["failed"]), (&1.into(), &20.into(), &1.into()), "{report}");
    assert_eq!(
        (&report["unsent"][0]["file"], report["stages"].as_array().unwrap().len()),
        (&"one".into(), 12),
        "{report}"
    );
    let (status, text, log) = receiver.wait_output();
    assert!(status == Some(1) && log.contains(words) && text.starts_with("moved 1 file, 20 B"), "{text}{log}");
    assert_eq!(fs::read_to_string(dir.path().join("in/one")).unwrap(), "old");
    assert_eq!(received_names(&dir), ["one", "two"]);
}

#[test]
fn sender_without_secret_is_rejected() {
    let dir = TestDir::new();
    dir.file("data", 10);
    let token = write_token(&dir, "right", "a secret of sixteen bytes, or more");
    let wrong_token = write_token(&dir, "wrong", "another secret of sixteen bytes, or more");
    let receiver = TestReceiver::start(&dir, &["--listen", "0.0.0.0:0", "--token-file", &token]);
    let address = receiver.address.replace("0.0.0.0", "127.0.0.1");
    let send_to = |address: &str, options: &[&str]| send(&dir, &[OsStr::new("data")], address, options);
    assert_refused(&send_to(&address, &[]), &["127.0.0.1", "the receiver requires a secret", "--token-file"]);
    assert_refused(&send_to(&address, &["--token-file", &wrong_token]), &["the secret differs", "--token-file"]);
    assert!(received_names(&dir).is_empty());
    assert!(send_to(&address, &["--token-file", &token]).status.success());
    let (_, _, log) = receiver.stop();
    assert!(log.contains("receiving from senders with the secret") && !log.contains("sixteen"), "{log}");
    let open_receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    assert_refused(&send_to(&open_receiver.address, &["--token-file", &token]), &["the receiver has no secret"]);
    // A documentation address (RFC 5737): nothing is sent there.
    assert_refused(&send_to("192.0.2.1", &[]), &["192.0.2.1:27315 is another host", "--token-file"]);
}

#[test]
fn files_go_into_directory_below() {
    let dir = TestDir::new();
    dir.file("data", 10);
    let receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    let into = |directory: &str| format!("{}:{directory}", receiver.address);
    assert_success(&dir.run(&["send", "data", &into("store")]));
    assert_success(&dir.run(&["send", "data", &into("store/2026/")]));
    assert!(dir.path().join("in/store/data").exists() && dir.path().join("in/store/2026/data").exists());
    let refused = dir.run(&["send", "data", &into("none/new")]);
    assert_refused(&refused, &["the receiver says: cannot open the directory none: No such file"]);
}

#[test]
fn send_usage_error_sends_nothing() {
    let dir = TestDir::new();
    dir.file("data", 10);
    fs::create_dir(dir.path().join("other")).unwrap();
    fs::copy(dir.path().join("data"), dir.path().join("other/data")).unwrap();
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
    let receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    let to = receiver.address.as_str();
    let closed_address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
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
        (&["send", "data", ":"], "give HOST, HOST:PORT or HOST:DIRECTORY"),
        (&["send", "data", "127.0.0.1:../x"], "127.0.0.1:../x: a directory is below the receiver's"),
        (&["send", "data", &closed_address], "cannot connect to the receiver: Connection refused"),
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
        assert_refused(&dir.run(arguments), &[words]);
    }
    assert!(received_names(&dir).is_empty());
}

#[test]
fn non_kelvin_peer_is_reported() {
    let dir = TestDir::new();
    dir.file("data", 10);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, &b"HTTP/1.1 400 Bad Request\r\n".repeat(9)).unwrap();
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    assert_refused(&send(&dir, &[OsStr::new("data")], &address, &[]), &["the other side is no kelvin receive"]);
    server.join().unwrap();
    let receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    let mut stream = TcpStream::connect(&receiver.address).unwrap();
    std::io::Write::write_all(&mut stream, &b"GET / HTTP/1.1\r\n".repeat(9)).unwrap();
    // Until it is closed.
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    let (_, _, log) = receiver.stop();
    assert!(log.contains("the other side is no kelvin send"), "{log}");
}

#[test]
fn transfer_of_killed_sender_is_resumed() {
    let dir = TestDir::new();
    let path = make_large_file(&dir);
    dir.file("small", 10);
    for signal in ["KILL", "INT"] {
        let receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
        let sender = dir.start(&[&["send", "large", &receiver.address], &LIMIT_OPTION[..]].concat());
        assert!(is_met_within(HANG_TIMEOUT, || incoming_part(&dir).is_some()));
        test_dir::signal(&sender, signal);
        let output = wait_for_output(sender, &["send"]);
        if signal == "INT" {
            assert_eq!(output.status.code(), Some(1));
            assert_eq!(stderr(&output), "kelvin: large was not moved: interrupted by SIGINT\n");
        }
        assert!(send_files(&dir, &["small"], &receiver, &[]).status.success());
        let output = send_files(&dir, &["large"], &receiver, &[]);
        assert!(stdout(&output).contains(" there from before), in "), "{}{}", stdout(&output), stderr(&output));
        assert!(fs::read(&path).unwrap() == fs::read(dir.path().join("in/large")).unwrap());
        assert_eq!(received_names(&dir), ["large", "small"]);
        let (status, text, log) = receiver.stop();
        assert!(status == Some(0) && text.contains(stdout(&output)), "{text}");
        assert!(log.contains("large: a part is kept, to be resumed"), "{log}");
    }
}

#[test]
fn killed_receiver_leaves_part() {
    let dir = TestDir::new();
    let path = make_large_file(&dir);
    for signal in ["KILL", "INT"] {
        let mut receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
        let sender = dir.start(&[&["send", "large", &receiver.address], &LIMIT_OPTION[..]].concat());
        assert!(is_met_within(HANG_TIMEOUT, || incoming_part(&dir).is_some()));
        test_dir::signal(receiver.child(), signal);
        let output = wait_for_output(sender, &["send"]);
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(1), 1), "{}", stderr(&output));
        assert!(stderr(&output).starts_with("kelvin: large was not moved: "), "{}", stderr(&output));
        let (status, ..) = receiver.wait_output();
        assert_eq!(status, if signal == "INT" { Some(0) } else { None });
        let receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
        let output = send_files(&dir, &["large"], &receiver, &["--plain"]);
        assert!(stdout(&output).contains(" there from before), in "), "{}{}", stdout(&output), stderr(&output));
        assert!(fs::read(&path).unwrap() == fs::read(dir.path().join("in/large")).unwrap());
        assert_eq!(received_names(&dir), ["large"]);
    }
}

#[test]
fn changed_file_fails_alone() {
    let dir = TestDir::new();
    dir.file("small", 10);
    for (length, words) in
        [(0, "its size went from 25165824 to 0 bytes"), (1 << 20, "its size went from 25165824 to 1048576 bytes")]
    {
        let path = make_large_file(&dir);
        let file = File::options().write(true).open(&path).unwrap();
        let receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--once"]].concat());
        let sender = dir.start(&[&["send", "large", "small", &receiver.address], &LIMIT_OPTION[..]].concat());
        assert!(is_met_within(HANG_TIMEOUT, || incoming_part(&dir).is_some()));
        file.set_len(length).unwrap();
        let output = wait_for_output(sender, &["send"]);
        assert_eq!(output.status.code(), Some(1));
        let message = stderr(&output);
        assert!(message.contains("large was changed while it was read") && message.contains(words), "{message}");
        let (status, _, log) = receiver.wait_output();
        assert!(status == Some(1) && log.contains("large: the other side says: ") && log.contains(words), "{log}");
        assert_eq!(received_names(&dir), ["small"]);
        fs::remove_file(dir.path().join("in/small")).unwrap();
    }
}

/// Sends a file into a file system of 1 MiB, once seen to be too large and once while it fills up.
#[test]
fn full_disk_is_reported_at_both_ends() {
    let subject = "a full file system under receive";
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)").report_skip(subject);
    }
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("in")).unwrap();
    let prepare = "mount -t tmpfs -o size=1m none in";
    let check = run_in_namespace(&dir, prepare);
    if !check.status.success() {
        return MissingRequirement::from_message(stderr(&check)).report_skip(subject);
    }
    dir.file("too large", (1 << 20) + 1);
    dir.file("fits", 900_000);
    dir.file("small", 10);
    let listen = "{ \"$0\" receive in --once --listen 127.0.0.1:0 > address 2> log & } && \
                  while ! [ -s address ]; do sleep 0.01; done && read to < address";
    let script = format!(
        "{prepare} && {listen} && \"$0\" send 'too large' fits small \"$to\"; echo status $?; wait; cat log >&2; ls -A in"
    );
    let output = run_in_namespace(&dir, &script);
    let (message, words) = (stderr(&output), "the receiver says: 1.86 MiB are to come, and there is room for ");
    assert!(message.contains(words), "{message}");
    assert!(stdout(&output).ends_with("status 2\n"), "{}", stdout(&output));

    // There is room when a file is announced, and none any more when it arrives: somebody else has written.
    let script = format!(
        "mount -t tmpfs -o size=80m none in && rm address && {listen} && head -c 60M /dev/urandom > held && \
         {{ \"$0\" send held small \"$to\" --limit 8MiB & }} && sender=$! && \
         while [ \"$(du -sk in | cut -f 1)\" -lt 500 ]; do sleep 0.01; done && kill -STOP $sender && \
         ! cat /dev/zero > in/filler 2> filled; kill -CONT $sender; wait $sender; echo status $?; wait; cat log >&2; ls -A in"
    );
    let output = run_in_namespace(&dir, &script);
    let message = stderr(&output);
    assert!(message.contains("kelvin: held: the other side says: cannot write held: No space left"), "{message}");
    assert_eq!(message.matches("cannot write held: No space left").count(), 2, "{message}");
    assert!(
        stdout(&output).contains("status 1\n") && stdout(&output).ends_with("filler\nsmall\n"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn planted_symlinks_are_not_followed() {
    let dir = TestDir::new();
    dir.file("data", 10);
    fs::write(dir.path().join("victim"), "the user's").unwrap();
    let receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
    let inner = dir.path().join("in");
    symlink("../victim", inner.join("data")).unwrap();
    let output = send_files(&dir, &["data"], &receiver, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("data is a symbolic link, and no regular file"), "{}", stderr(&output));
    fs::remove_file(inner.join("data")).unwrap();
    // Another directory takes its place: files still arrive in the one that was named.
    fs::rename(&inner, dir.path().join("moved")).unwrap();
    fs::create_dir(&inner).unwrap();
    assert!(send_files(&dir, &["data"], &receiver, &[]).status.success());
    assert_eq!((names(&inner), names(&dir.path().join("moved"))), (vec![], vec!["data".to_owned()]));
    assert_eq!(fs::read_to_string(dir.path().join("victim")).unwrap(), "the user's");
}

/// As JSON, both ends print one document, and the receiver its address before it.
#[test]
fn both_ends_print_json() {
    let dir = TestDir::new();
    dir.file("data", 1000);
    fs::create_dir(dir.path().join("in")).unwrap();
    let mut command = dir.command(KELVIN, &["receive", "in", "--once", "--json", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut documents = serde_json::Deserializer::from_reader(child.stdout.take().unwrap()).into_iter::<Value>();
    let first = documents.next().unwrap().unwrap();
    let address = first["listening"].as_str().unwrap();
    let output = send(&dir, &[OsStr::new("data")], address, &["--json"]);
    let (sender, receiver) =
        (serde_json::from_slice::<Value>(&output.stdout).unwrap(), documents.next().unwrap().unwrap());
    assert!(documents.next().is_none() && child.wait().unwrap().success());
    for key in
        ["files", "bytes", "failed", "seconds", "bytes_per_second", "verified", "encrypted", "utilisation", "sentence"]
    {
        assert!(!sender[key].is_null() && sender[key] == receiver[key], "{key}: {sender} {receiver}");
    }
    assert!(Path::new(&dir.path().join("in/data")).exists());
}

/// The listing of `find` of everything below a directory but sizes of directories: names, types, modes, times, sizes, links.
fn find_listing(directory: &Path) -> String {
    let format = "%P %y %m %T@ %l";
    let output =
        Command::new("find").arg(directory).args(["-mindepth", "1", "-printf", &format!("{format}\\n")]).output();
    let mut lines: Vec<String> = stdout(&output.unwrap()).lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

/// Makes `tree`, with what a tree can have: nested directories, an empty one, a link, a file with holes, a pipe.
fn make_tree(dir: &TestDir) -> PathBuf {
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    dir.file("tree/deep/er/five", 5);
    dir.file("tree/deep/many", 300_000);
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
    let dir = TestDir::new();
    let tree = make_tree(&dir);
    let receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    let output = send_files(&dir, &["tree"], &receiver, &["-r", "--links", "--sync"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("moved 3 files, 40.3 MiB ("), "{}", stdout(&output));
    assert!(stdout(&output).contains(" of holes), in "), "{}", stdout(&output));
    let target = dir.path().join("in/tree");
    assert_eq!(find_listing(&target), find_listing(&tree));
    for name in ["sparse", "deep/many", "deep/er/five"] {
        assert!(fs::read(tree.join(name)).unwrap() == fs::read(target.join(name)).unwrap(), "{name}");
    }
    assert!(target.join("sparse").metadata().unwrap().blocks() < 4096, "its holes were written");

    let second = send_files(&dir, &["tree"], &receiver, &["-r", "--links", "--update"]);
    assert_eq!((second.status.code(), stdout(&second)), (Some(0), "unchanged: 3 files\nmoved nothing\n"));
    // Without --overwrite each of them is refused.
    let refusal = send_files(&dir, &["tree"], &receiver, &["-r"]);
    assert_eq!((refusal.status.code(), stderr(&refusal).lines().count()), (Some(1), 3), "{}", stderr(&refusal));
    assert!(stdout(&refusal).starts_with("left out: 2 symbolic links (--links keeps them)\n"), "{}", stdout(&refusal));
    assert_eq!(find_listing(&target), find_listing(&tree));
}

#[test]
fn dry_run_changes_nothing() {
    let dir = TestDir::new();
    make_tree(&dir);
    let receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    let output = send_files(&dir, &["tree"], &receiver, &["-r", "--links", "--dry-run"]);
    let planned = "would send tree/deep/er/five\nwould send tree/deep/many\nwould send tree/sparse\n";
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), planned), "{}", stderr(&output));
    assert!(received_names(&dir).is_empty());
}

#[test]
fn stdin_stdout_and_discard_work() {
    let dir = TestDir::new();
    dir.file("data", 700_000);
    let data = dir.path().join("data");
    let receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    let mut command = dir.command(KELVIN, &["send", "-", "--name", "from a pipe", &receiver.address]);
    command.stdin(Stdio::from(File::open(&data).unwrap()));
    let output = wait_for_output(command.spawn().unwrap(), &["send"]);
    assert!(
        stdout(&output).starts_with("moved 1 file, 700\u{202f}000 B, in "),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(fs::read(&data).unwrap() == fs::read(dir.path().join("in/from a pipe")).unwrap());

    // A file keeps its name.
    let output = dir.run(&["send", "data", "--name", "other", &receiver.address]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("kelvin: --name: "), "{}", stderr(&output));

    // One that is refused has the name that it was given on the command line.
    let mut command = dir.command(KELVIN, &["send", "-", "--json", "--name", "from a pipe", &receiver.address]);
    let refusal = command.stdin(File::open(&data).unwrap()).output().unwrap();
    assert_eq!(refusal.status.code(), Some(1));
    assert!(stderr(&refusal).starts_with("kelvin: -: the other side says: "), "{}", stderr(&refusal));
    let report: Value = serde_json::from_slice(&refusal.stdout).unwrap();
    assert_eq!(report["unsent"][0]["file"], "-");

    let mut command = dir.command(KELVIN, &["receive", "-", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(File::create(dir.path().join("out")).unwrap()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("kelvin: ").to_owned();
    let reader = std::thread::spawn(move || log.lines().map_while(Result::ok).collect::<Vec<_>>());
    let output = send(&dir, &[OsStr::new("data")], &address, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let receive_output = wait_for_output(child, &["receive"]);
    assert!(receive_output.status.success());
    assert!(fs::read(&data).unwrap() == fs::read(dir.path().join("out")).unwrap());
    assert!(reader.join().unwrap().iter().any(|line| line.starts_with("kelvin: moved 1 file, 700\u{202f}000 B, in ")));

    let discarding =
        TestReceiver::spawn(dir.command(KELVIN, &["receive", "--discard", "--once", "--listen", "127.0.0.1:0"]));
    let output = send(&dir, &[OsStr::new("data")], &discarding.address, &[]);
    assert!(
        stdout(&output).starts_with("moved 1 file, 700\u{202f}000 B, in "),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert_eq!(discarding.wait_output().0, Some(0));
}

#[test]
fn every_send_method_and_mode_moves_every_byte() {
    let dir = TestDir::new();
    // More than a block, so that pieces end within one; a window that no part of it fits; and one that goes with others.
    dir.file("large", (4 << 20) + (64 << 10) + 4097);
    dir.file("middle", (64 << 10) + 1);
    dir.file("small", 5);
    let receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--overwrite"]].concat());
    let mut transfers = 0;
    for method in ["auto", "rw", "mmap", "sendfile", "splice", "zerocopy", "uring"] {
        for mode in ["blocking", "nonblocking", "signal", "uring"] {
            let is_invalid = match method {
                "auto" => mode != "blocking",
                "uring" => mode != "uring",
                "sendfile" => mode == "uring",
                _ => false,
            };
            if is_invalid {
                continue;
            }
            let call_options = match method {
                "auto" => vec![],
                "mmap" => vec!["--wait", mode, "--window", "3"],
                _ => vec!["--wait", mode, "--buffer", "100000"],
            };
            let options = [
                &["--plain", "--method", method][..],
                &call_options,
                if transfers % 2 == 0 { &["--no-verify"] } else { &[] },
            ];
            let output = send_files(&dir, &["large", "middle", "small"], &receiver, &options.concat());
            if method == "zerocopy" && mode == "uring" && stderr(&output).contains("since Linux 6.2") {
                kelvin_testing::MissingRequirement::from_message(stderr(&output))
                    .report_skip("sends without a copy in a ring");
                continue;
            }
            assert_eq!(output.status.code(), Some(0), "{options:?}: {}", stderr(&output));
            let sentence = stdout(&output);
            let is_named = !matches!(method, "auto" | "rw");
            assert_eq!(sentence.contains(&format!(", by {method}; ")), is_named, "{options:?}: {sentence}");
            for name in ["large", "middle", "small"] {
                let content = |path: PathBuf| fs::read(path).unwrap();
                let copy = dir.path().join("in").join(name);
                assert!(content(dir.path().join(name)) == content(copy.clone()), "{options:?}: {name}");
                fs::remove_file(copy).unwrap();
            }
            transfers += 1;
        }
    }
    assert!(transfers >= 20, "{transfers} ways");
    receiver.stop();
}

#[test]
fn every_receive_method_and_mode_keeps_every_byte() {
    let dir = TestDir::new();
    dir.file("large", (4 << 20) + (64 << 10) + 4097);
    dir.file("middle", (64 << 10) + 1);
    dir.file("small", 5);
    // Holes at both ends.
    let sparse = File::create(dir.path().join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 100_000], 5 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    let files = ["large", "middle", "small", "sparse"];
    let mut transfers = 0;
    for method in ["auto", "rw", "mmap", "splice", "uring"] {
        for mode in ["blocking", "nonblocking", "signal", "uring"] {
            let call_options = match method {
                "auto" if mode == "blocking" => vec![],
                "auto" => continue,
                "uring" if mode != "uring" => continue,
                "mmap" => vec!["--wait", mode, "--window", "3"],
                _ => vec!["--wait", mode, "--buffer", "100000"],
            };
            let options = [&LISTEN_LOOPBACK[..], &["--method", method], &call_options].concat();
            let receiver = TestReceiver::start(&dir, &options);
            for sender in [&["--plain"][..], &["--plain", "--no-verify"]] {
                let output = send_files(&dir, &files, &receiver, sender);
                assert_eq!(output.status.code(), Some(0), "{options:?} {sender:?}: {}", stderr(&output));
                let is_named = stdout(&output).contains(&format!(", received by {method}; "));
                assert!(is_named != matches!(method, "auto" | "rw"), "{options:?}: {}", stdout(&output));
                for name in files {
                    let copy = dir.path().join("in").join(name);
                    let is_same = fs::read(dir.path().join(name)).unwrap() == fs::read(&copy).unwrap();
                    assert!(is_same, "{options:?} {sender:?}: {name}");
                    fs::remove_file(copy).unwrap();
                }
                transfers += 1;
            }
            receiver.stop();
        }
    }
    assert_eq!(transfers, 2 * (1 + 4 * 4 - 3));
}

/// What a file of 4 GiB + 1 byte holds besides holes: its beginning, both sides of 4 GiB, where 32 bits end, and so its end.
const DATA_EXTENTS: [(u64, usize); 3] = [(0, 70_000), ((2 << 30) - 50_000, 100_000), ((4 << 30) - 100_000, 100_001)];

#[test]
fn sparse_file_above_4_gib_is_sent() {
    use std::os::unix::fs::FileExt;
    let dir = TestDir::new();
    let data =
        |offset: u64, bytes: usize| (0..bytes as u64).map(|index| ((offset + index) % 251) as u8).collect::<Vec<u8>>();
    let file = File::create(dir.path().join("huge")).unwrap();
    DATA_EXTENTS.iter().for_each(|&(offset, bytes)| file.write_all_at(&data(offset, bytes), offset).unwrap());
    let length = (4 << 30) + 1;
    assert_eq!(file.metadata().unwrap().len(), length);
    let senders = ["rw", "mmap", "sendfile", "splice", "zerocopy", "uring"].map(|method| (method, "rw"));
    let receivers = ["mmap", "splice", "uring"].map(|method| ("rw", method));
    for (number, (sender, receiver)) in senders.into_iter().chain(receivers).enumerate() {
        let test_receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--method", receiver]].concat());
        let verify_options: &[&str] = if number % 2 == 0 { &[] } else { &["--no-verify"] };
        let options = [&["--plain", "--method", sender][..], verify_options].concat();
        let output = send_files(&dir, &["huge"], &test_receiver, &options);
        assert_eq!(output.status.code(), Some(0), "{sender} {receiver}: {}", stderr(&output));
        let path = dir.path().join("in/huge");
        let copy = File::open(&path).unwrap();
        let metadata = copy.metadata().unwrap();
        // Blocks that hold data at all, and no more.
        assert!(metadata.len() == length && metadata.blocks() * 512 <= 16 << 20, "{sender} {receiver}: {metadata:?}");
        for (offset, bytes) in DATA_EXTENTS {
            let mut content = vec![1; bytes];
            copy.read_exact_at(&mut content, offset).unwrap();
            assert!(content == data(offset, bytes), "{sender} {receiver} at {offset}");
        }
        for offset in [1 << 20, (2 << 30) + (1 << 20), (4 << 30) - (1 << 20)] {
            let mut hole = [1; 4096];
            copy.read_exact_at(&mut hole, offset).unwrap();
            assert_eq!(hole, [0; 4096], "{sender} {receiver} at {offset}");
        }
        test_receiver.stop();
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn receiver_refuses_incompatible_method() {
    let dir = TestDir::new();
    dir.file("data", 100_000);
    let receiver = TestReceiver::start(&dir, &[&LISTEN_LOOPBACK[..], &["--method", "mmap"]].concat());
    for options in [&[][..], &["--plain", "--streams", "2"], &["--plain", "-z"]] {
        let output = send_files(&dir, &["data"], &receiver, options);
        assert_refused(
            &output,
            &[
                "this receiver takes the bytes of files by mmap: send with --plain, over one stream and without --compress",
            ],
        );
    }
    assert!(names(&dir.path().join("in")).is_empty());
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
        let output = dir.run(arguments);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
}

#[test]
fn compressed_files_arrive_and_report_says_how_far() {
    let dir = TestDir::new();
    let line = "a line of a log that repeats and repeats\n";
    fs::write(dir.path().join("log"), line.repeat(100_000)).unwrap();
    dir.file("small", 1000);
    let receiver = TestReceiver::start(&dir, &LISTEN_LOOPBACK);
    let output = send_files(&dir, &["log", "small"], &receiver, &["-z=zstd:2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let compression = &report["compression"];
    assert_eq!(compression["level"], 2);
    assert!(compression["ratio"].as_f64().unwrap() > 100.0, "{compression}");
    assert!(compression["words"].as_str().unwrap().ends_with(" times (zstd, level 2)"), "{compression}");
    for name in ["log", "small"] {
        assert!(fs::read(dir.path().join(name)).unwrap() == fs::read(dir.path().join("in").join(name)).unwrap());
    }
    receiver.stop();
    for (option, words) in [
        ("-z=zstd:0", "give zstd, or zstd:N with a level N from 1 to 22"),
        ("--compress=zstd:23", "give zstd, or zstd:N with a level N from 1 to 22"),
        ("--compress=gzip", "give zstd, or zstd:N with a level N from 1 to 22"),
    ] {
        let output = send(&dir, &[OsStr::new("log")], "127.0.0.1:1", &[option]);
        let message = stderr(&output);
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{option}: {message}");
        assert!(message.contains(words), "{option}: {message}");
    }
}

#[test]
fn impossible_method_options_are_refused() {
    let dir = TestDir::new();
    dir.file("data", 10);
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
        let output = send(&dir, &[OsStr::new("data")], "127.0.0.1:1", options);
        let message = stderr(&output);
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{options:?}: {message}");
        assert!(message.contains(words), "{options:?}: {message}");
    }
}
