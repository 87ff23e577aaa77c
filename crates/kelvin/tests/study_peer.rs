//! `kelvin study load --peer` and `kelvin agent --serve` as whole programs: two hosts, what is served to whom, and agents that are gone.

mod link;
mod server_process;
mod test_dir;

use std::fs;
use std::io::{Read, Seek, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};

use kelvin_transfer::wire::address::resolve;
use kelvin_transfer::wire::client::AgentClient;
use kelvin_transfer::wire::file_server::FileServerOptions;
use kelvin_transfer::wire::secret::Secret;
use link::Link;
use serde_json::Value;
use server_process::ServerProcess;
use test_dir::{HANG_TIMEOUT, KELVIN, TestDir, assert_refused, is_met_within, stderr, wait_for_output};

const SECRET: &str = "a secret of sixteen bytes, or more";

/// A directory with a secret and a directory of this many files of this size.
fn dir_with_files(files: usize, bytes: usize) -> TestDir {
    let dir = TestDir::new();
    let token = dir.path().join("token");
    fs::write(&token, SECRET).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(dir.path().join("files")).unwrap();
    (0..files).for_each(|number| fs::write(dir.path().join(format!("files/file {number}")), vec![7; bytes]).unwrap());
    dir
}

/// The words of an agent that listens there.
fn agent_args(listen: &str) -> Vec<&str> {
    vec!["agent", "--serve", "files", "--listen", listen, "--token-file", "token"]
}

fn start_agent(dir: &TestDir) -> ServerProcess {
    ServerProcess::spawn(dir.command(KELVIN, &agent_args("127.0.0.1:0")), Stdio::piped())
}

/// The words of a study of an agent's files.
fn study_args<'a>(peer: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["study", "load", "--no-store", "--json", "--peer", peer, "--token-file", "token"];
    [&fixed[..], options].concat()
}

/// What a study prints, which is more than a pipe holds, and what became of it.
fn json_output(mut command: Command) -> (Output, Value) {
    let mut file = tempfile::tempfile().unwrap();
    let output = command.stdout(file.try_clone().unwrap()).output().unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    let study = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    (output, study)
}

fn client(address: &str) -> AgentClient {
    AgentClient::connect(&resolve(address).unwrap(), &Secret::new(SECRET.as_bytes()).unwrap()).unwrap()
}

/// The processes that a process has started.
fn children(process: u32) -> usize {
    let path = format!("/proc/{process}/task");
    let tasks = fs::read_dir(path).into_iter().flatten().flatten();
    let child_list = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.map(|task| child_list(task).split_whitespace().count()).sum()
}

/// The head and body of what a server answers.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn limited_link_is_named_as_bottleneck() {
    let link = match Link::new().and_then(|link| link.limit("20mbit").map(|()| link)) {
        Ok(link) => link,
        Err(missing) => return missing.report_skip("a study of a server on another host"),
    };
    let dir = dir_with_files(16, 100_000);
    fs::write(dir.path().join("files/other"), [1; 7]).unwrap();
    let listen = format!("{}:0", Link::FAR_ADDRESS);
    let agent = ServerProcess::spawn(Link::kelvin(&dir, &link.far_host, &agent_args(&listen)), Stdio::piped());
    let options = ["--users", "1,2,4,8", "--rounds", "3", "--step", "1s"];
    let words = study_args(&agent.address, &options);
    let (output, study) = json_output(Link::kelvin(&dir, &link.near_host, &words));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(
        message.contains("the agent serves 16 files of ") && message.contains("; left out of its directory: 1"),
        "{message}"
    );
    let conclusions = study["analysis"]["studies"][0]["conclusions"].as_array().unwrap();
    let limit = conclusions.iter().find_map(|conclusion| conclusion["claim"]["load"].get("limit")).unwrap();
    assert_eq!(limit["verdict"]["resource"]["resource"], "link", "{limit}");
    let measurements = study["run"]["measurements"].as_array().unwrap();
    assert!(
        measurements.iter().all(
            |measurement| measurement["case"]["between"] == "hosts" && measurement["case"]["file_bytes"] == 100_000
        )
    );
    assert!(is_met_within(HANG_TIMEOUT, || children(agent.child.id()) == 0), "its server ended with the study");
    let (status, log) = agent.end("-TERM");
    assert_eq!(status, Some(0));
    let first = log.lines().next().unwrap_or_default();
    assert!(first.contains("can read the files of files by HTTP, unencrypted"), "{log}");
    assert!(log.contains("asks for a server of files"), "{log}");
}

#[test]
fn regular_files_are_served_while_client_connected() {
    let dir = dir_with_files(3, 500);
    fs::write(dir.path().join("outside"), "secret").unwrap();
    symlink("../outside", dir.path().join("files/link")).unwrap();
    let agent = start_agent(&dir);
    let mut server = client(&agent.address).serve_files(&FileServerOptions::default()).unwrap();
    let [files, stats_address] = server.addresses();
    assert_eq!(server.file_names().unwrap(), ["file 0", "file 1", "file 2"]);
    assert_eq!((server.info.files, server.info.bytes, server.info.skipped), (3, 500, 1));
    assert!(get(files, "/file%201").starts_with("HTTP/1.1 200 "));
    for outside in ["/link", "/../outside", "/%2e%2e/outside"] {
        let answer = get(files, outside);
        assert!(!answer.starts_with("HTTP/1.1 200 ") && !answer.contains("secret"), "{outside}: {answer}");
    }
    assert!(get(stats_address, "/.kelvin/stats").starts_with("HTTP/1.1 401 "), "its token is asked for");
    drop(server);
    assert!(is_met_within(HANG_TIMEOUT, || TcpStream::connect(files).is_err()), "it ends with the client");
    assert!(is_met_within(HANG_TIMEOUT, || children(agent.child.id()) == 0));
}

#[test]
fn client_has_at_most_one_server() {
    let dir = dir_with_files(1, 10);
    let agent = start_agent(&dir);
    let mut client = client(&agent.address);
    for _ in 0..20 {
        let server = client
            .serve_files(&FileServerOptions { model: Some("fork".into()), ..FileServerOptions::default() })
            .unwrap();
        assert_eq!(children(agent.child.id()), 1);
        client = server.stop().unwrap();
        assert_eq!(children(agent.child.id()), 0);
    }
    let error = client
        .serve_files(&FileServerOptions { model: Some("--index".into()), ..FileServerOptions::default() })
        .unwrap_err();
    assert!(error.to_string().contains("the agent refused: "), "{error}");
    assert_eq!(children(agent.child.id()), 0);
    assert_eq!(agent.end("-TERM").0, Some(0));
}

#[test]
fn invalid_peer_studies_are_refused() {
    let dir = dir_with_files(16, 5000);
    let expect_refusal = |arguments: &[&str], words: &[&str]| assert_refused(&dir.run(arguments), words);
    expect_refusal(&["agent", "--serve", "none"], &["--serve none: No such file"]);
    expect_refusal(&["agent", "--serve", "token"], &["--serve: ", "token: Not a directory"]);
    let agent = start_agent(&dir);
    for (option, value) in [
        ("--network", "namespaces"),
        ("--link", "100M"),
        ("--server-memory", "1G"),
        ("--server-group", "/x"),
        ("--server-options", "--index"),
        ("--file-count", "3"),
        ("--file-size", "1M"),
        ("--url", "http://127.0.0.1:1/"),
    ] {
        expect_refusal(&study_args(&agent.address, &[option, value]), &[option, "--peer"]);
    }
    expect_refusal(
        &study_args(&agent.address, &["--cache", "uncached"]),
        &["--cache uncached: the agent serves", "may hold"],
    );
    let plain_agent = ServerProcess::spawn(dir.command(KELVIN, &["agent", "--listen", "127.0.0.1:0"]), Stdio::null());
    let peer = ["study", "load", "--no-store", "--peer", &plain_agent.address];
    expect_refusal(&peer, &["--peer: the agent refused: it serves no files: start it with --serve DIR"]);
}

#[test]
fn disk_rate_is_measured_past_page_cache() {
    const FILES: u64 = 4000;
    // Holes, of which there is more than twice the memory.
    let dir = dir_with_files(0, 0);
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let memory = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
    for number in 0..FILES {
        let file = fs::File::create(dir.path().join(format!("files/{number}"))).unwrap();
        file.set_len(2 * memory / FILES + 1).unwrap();
    }
    let agent = start_agent(&dir);
    let options = ["--cache", "uncached", "--users", "1,2", "--rounds", "2", "--step", "300ms"];
    let (output, study) = json_output(dir.command(KELVIN, &study_args(&agent.address, &options)));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let measurements = study["run"]["measurements"].as_array().unwrap();
    assert!(
        measurements
            .iter()
            .all(|measurement| measurement["case"]["cache"] == "uncached" && measurement["case"]["files"] == FILES)
    );
    let is_disk_capacity =
        |measurement: &&Value| measurement["probe"] == "load.capacity" && measurement["case"]["resource"] == "disk";
    let disk = measurements.iter().find(is_disk_capacity).unwrap_or_else(|| panic!("{}", stderr(&output)));
    assert_eq!(disk["rounds"].as_array().unwrap().len(), 3, "{disk}");
}

#[test]
fn killed_agent_makes_study_partial() {
    let dir = dir_with_files(16, 5000);
    let mut agent = start_agent(&dir);
    let words = study_args(&agent.address, &["--users", "1,2", "--rounds", "20", "--step", "300ms"]);
    let mut file = tempfile::tempfile().unwrap();
    let mut command = dir.command(KELVIN, &words);
    let mut study = command.stdout(file.try_clone().unwrap()).spawn().unwrap();
    let mut log_text = String::new();
    // Its output before the first visit.
    let log = study.stderr.as_mut().unwrap();
    let mut byte = [0];
    while !log_text.contains(" visits in about ") && log.read(&mut byte).unwrap() > 0 {
        log_text.push(char::from(byte[0]));
    }
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    let output = wait_for_output(study, &words);
    assert_eq!(output.status.code(), Some(1), "{log_text}{}", stderr(&output));
    file.rewind().unwrap();
    let study: Value = serde_json::from_reader(file).unwrap();
    let reason = study["run"]["status"]["partial"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("3 visits in a row failed: ") && reason.lines().count() == 1, "{reason}");
    assert_eq!(dir.names(), ["files", "token"], "nothing is left");
}
