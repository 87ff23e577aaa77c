//! `kelvin agent` as a whole program: whom it serves, what it refuses, how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kelvin_wire::client::{Client, addresses};
use kelvin_wire::secret::Secret;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");

/// An agent that is killed if the test does not end it.
struct Running {
    child: Child,
    address: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(KELVIN);
        command.arg("agent").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    /// Ends it by a signal, and returns its status and what it told.
    fn end(mut self, signal: &str) -> (Option<i32>, String) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        (self.child.wait().unwrap().code(), told)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token(directory: &Path, content: &str) -> String {
    let file = directory.join("token");
    std::fs::write(&file, content).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn an_agent_serves_whoever_knows_the_secret_and_ends_by_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    let agent = Running::start(&["--listen", "0.0.0.0:0", "--token-file", &token]);
    let port = agent.address.strip_prefix("0.0.0.0:").unwrap();
    let here = addresses(&format!("127.0.0.1:{port}")).unwrap();
    assert!(Client::connect(&here, &Secret::none()).is_err());
    let mut client = Client::connect(&here, &Secret::read(Path::new(&token)).unwrap()).unwrap();
    let mut test = client.echo_tcp(3).unwrap();
    let mut answer = [0; 3];
    test.socket().write_all(b"abc").unwrap();
    test.socket().read_exact(&mut answer).unwrap();
    assert_eq!((&answer, test.finish().unwrap().arrived), (b"abc", 1));
    let (status, told) = agent.end("-INT");
    assert_eq!(status, Some(0));
    for words in ["serves whoever knows the secret, 4 at one time", "came", "messages of 3 bytes back over TCP"] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    assert!(!told.contains("sixteen"));
}

#[test]
fn without_a_secret_it_serves_this_host() {
    let agent = Running::start(&["--listen", "127.0.0.1:0"]);
    Client::connect(&addresses(&agent.address).unwrap(), &Secret::none()).unwrap();
    // The address is taken now.
    let second = Command::new(KELVIN).args(["agent", "--listen", &agent.address]).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!((second.status.code(), said.lines().count()), (Some(2), 1));
    assert!(said.contains(&format!("--listen {}: Address already in use", agent.address)), "{said}");
    assert_eq!(agent.end("-TERM").0, Some(0));
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let short = token(directory.path(), "short");
    let refused = |arguments: &[&str], words: &str| {
        let output = Command::new(KELVIN).arg("agent").args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(words) && output.stdout.is_empty(), "{said}");
    };
    refused(
        &["--listen", "0.0.0.0"],
        "--listen: 0.0.0.0:27315 can be reached from other hosts: name a file with a secret",
    );
    refused(&["--token-file", &short], "--token-file: ");
    refused(&["--token-file", &short], "has 5 bytes, and a secret must have 16 at least");
    refused(&["--token-file", "/none"], "/none: No such file");
    refused(&["--listen", "192.0.2.1:0", "--token-file", "/dev/null"], "is no regular file");
    refused(&["--listen", "example.org"], "an IP address is wanted");
    refused(&["--clients", "65"], "--clients");
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    refused(
        &["--listen", "192.0.2.1:0", "--token-file", &token],
        "--listen 192.0.2.1:0: Cannot assign requested address",
    );
}
