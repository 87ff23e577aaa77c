//! `kelvin serve` as a whole program: its address, the clients that people use, its refusals and its end.

mod running;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kelvin_model::resources::Look;
use kelvin_testing::Missing;
use running::Running;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");

impl Running {
    fn start(root: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(KELVIN);
        command.arg("serve").arg(root).args(["--listen", "127.0.0.1:0"]).args(arguments);
        Self::of(command, Stdio::piped())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// What a client does; `None`, and said, where it is not installed.
fn client(name: &str, package: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(name).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            Missing::program(name, package, &error).skips(format!("kelvin serve with {name}"));
            None
        }
    }
}

fn curl(arguments: &[&str]) -> Option<String> {
    let output = client("curl", "curl", &[&["-sS", "--max-time", "30"], arguments].concat())?;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn site() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("a b.txt"), "0123456789").unwrap();
    fs::write(top.path().join("large"), vec![7; 5_000_000]).unwrap();
    fs::create_dir(top.path().join("sub")).unwrap();
    fs::write(top.path().join("sub/c.html"), "<p>").unwrap();
    top
}

#[test]
fn curl_gets_files_parts_and_what_has_changed() {
    let top = site();
    let server = Running::start(top.path(), &[]);
    let url = server.url("/a%20b.txt");
    let Some(content) = curl(&[&url]) else { return };
    assert_eq!(content, "0123456789");
    let code = |arguments: &[&str]| curl(&[&["-o", "/dev/null", "-w", "%{http_code}"], arguments].concat()).unwrap();
    assert_eq!(curl(&["-r", "2-4", &url]).unwrap(), "234");
    assert!(curl(&["-r", "0-0,-1", &url]).unwrap().contains("Content-Range: bytes 9-9/10"));
    assert_eq!(code(&["-r", "10-", &url]), "416");
    assert_eq!(code(&["-I", &url]), "200");
    assert_eq!(code(&["-d", "x=y", &url]), "405");
    assert_eq!(code(&["-z", "Thu, 01 Jan 2099 00:00:00 GMT", &url]), "304");
    assert_eq!(code(&["--path-as-is", &server.url("/../etc/passwd")]), "400");
    assert_eq!(code(&[&server.url("/sub/")]), "403");
    assert_eq!(code(&["-0", &url]), "200");
    let saved = top.path().join("etag");
    let saved = saved.to_str().unwrap();
    assert_eq!(code(&["--etag-save", saved, &url]), "200");
    assert_eq!(code(&["--etag-compare", saved, &url]), "304");
    let part = top.path().join("part");
    fs::write(&part, vec![7; 1_000_000]).unwrap();
    let told = curl(&["-C", "-", "-w", "%{http_code}", "-o", part.to_str().unwrap(), &server.url("/large")]);
    assert_eq!(told.unwrap(), "206");
    assert_eq!(fs::read(&part).unwrap(), vec![7; 5_000_000]);
}

#[test]
fn other_clients_get_what_they_ask_for() {
    let top = site();
    let server = Running::start(top.path(), &["--index", "--threads", "2"]);
    if let Some(output) =
        client("wget", "wget", &["-nv", "-r", "-np", "-P", top.path().join("got").to_str().unwrap(), &server.url("/")])
    {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let got = top.path().join("got").join(&server.address);
        assert_eq!(fs::read_to_string(got.join("a b.txt")).unwrap(), "0123456789");
        assert_eq!(fs::read_to_string(got.join("sub/c.html")).unwrap(), "<p>");
    }
    if let Some(output) = client("wrk", "wrk", &["-t1", "-c8", "-d1", &server.url("/large")]) {
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("requests in") && !told.contains("Socket errors") && !told.contains("Non-2xx"), "{told}");
    }
    for keeps in [&["-k"][..], &[]] {
        let url = server.url("/sub/c.html");
        let Some(output) = client("ab", "apache2-utils", &[keeps, &["-q", "-n", "500", "-c", "8", &url]].concat())
        else {
            break;
        };
        let told = String::from_utf8_lossy(&output.stdout);
        let kept = if keeps.is_empty() { "Keep-Alive requests" } else { "Keep-Alive requests:    500" };
        assert!(told.contains("Complete requests:      500\nFailed requests:        0\n"), "{told}");
        assert!(told.contains(kept) != keeps.is_empty(), "{told}");
    }
}

#[test]
fn it_ends_by_a_signal_and_says_what_it_did() {
    let top = site();
    for signal in ["-TERM", "-INT"] {
        let server = Running::start(top.path(), &[]);
        if curl(&[&server.url("/a%20b.txt")]).is_none() {
            return;
        }
        let (status, told) = server.end(signal);
        assert_eq!(status, Some(0));
        assert!(told.contains("serving ") && told.contains("answered 1 request with "), "{told}");
    }
}

#[test]
fn what_it_uses_is_told_to_who_has_the_token() {
    let top = site();
    let token = top.path().join("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let mut server = Running::start(top.path(), &["--expose-resources", "--token-file", token.to_str().unwrap()]);
    let url = format!("http://{}/.kelvin/resources", server.line());
    if curl(&["-o", "/dev/null", &server.url("/large")]).is_none() {
        return;
    }
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let look = || {
        let json = curl(&["-H", &bearer("0123456789abcdef"), &url]).unwrap();
        Look::from_json(json.as_bytes()).unwrap()
    };
    let served = || look().served.unwrap();
    // The server counts an answer when it has given it to the kernel: the client may be faster.
    while served().requests < 1 {}
    assert_eq!((served().requests, served().bytes, served().connections), (1, 5_000_000, 1));
    assert!(look().process.memory > 0);
    for wrong in [bearer("0123456789abcdeF"), bearer(""), "X: y".into()] {
        let code = curl(&["-o", "/dev/null", "-w", "%{http_code}", "-H", &wrong, &url]).unwrap();
        assert_eq!(code, "401", "{wrong}");
    }
    let code = curl(&["-o", "/dev/null", "-w", "%{http_code}", &server.url("/.kelvin/resources")]).unwrap();
    assert_eq!(code, "404");
    let (status, told) = server.end("-TERM");
    assert!(status == Some(0) && told.contains(&format!("at {url}")), "{told}");
}

#[test]
fn what_cannot_be_served_is_one_line() {
    let top = site();
    let refused = |arguments: &[&str]| {
        let output = Command::new(KELVIN).arg("serve").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let root = top.path().to_str().unwrap();
    assert!(refused(&["/no such directory"]).contains("/no such directory: No such file or directory"));
    assert!(refused(&[&format!("{root}/large")]).contains("/large: Not a directory"));
    assert!(refused(&[root, "--listen", "203.0.113.1:0"]).starts_with("kelvin: --listen 203.0.113.1:0: "));
    assert!(refused(&[root, "--listen", "localhost"]).contains("give an IP address"));
    assert!(refused(&[root, "--send", "pigeon"]).contains("it must be one of auto, rw, sendfile"));
    assert!(refused(&[root, "--model", "prefork"]).contains("it must be one of thread, pool, epoll"));
    assert!(refused(&[root, "--model", "thread", "--threads", "2"]).contains("give --connections"));
    assert!(refused(&[root, "--threads", "0"]).contains("from 1 to 1024"));
    let exposed = |file: &str| refused(&[root, "--expose-resources", "--token-file", file]);
    assert!(refused(&[root, "--expose-resources"]).contains("--token-file <FILE>"));
    assert!(refused(&[root, "--token-file", "x"]).contains("--expose-resources"));
    assert!(refused(&[root, "--resources-listen", "127.0.0.1"]).contains("--expose-resources"));
    assert!(exposed("/no such file").starts_with("kelvin: --token-file: "));
    assert!(exposed(&format!("{root}/sub/c.html")).contains("chmod 600"));
    let token = top.path().join("token");
    fs::write(&token, "0123456789abcdef").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let token = token.to_str().unwrap();
    let elsewhere = ["--listen", "127.0.0.1:0", "--resources-listen", "203.0.113.1:0"];
    let told = refused(&[&[root, "--expose-resources", "--token-file", token][..], &elsewhere].concat());
    assert!(told.starts_with("kelvin: --resources-listen 203.0.113.1:0: "), "{told}");
}
