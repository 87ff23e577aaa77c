//! `kelvin serve` as a whole program: its address, the clients that people use, its refusals and its end.

mod server_process;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use kelvin_core::resources::{ResourceSnapshot, ServerStats};
use kelvin_testing::MissingRequirement;
use server_process::ServerProcess;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");

impl ServerProcess {
    fn start(root: &Path, arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", root, arguments)
    }

    fn start_at(listen: &str, root: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(KELVIN);
        command.arg("serve").arg(root).args(["--listen", listen]).args(arguments);
        Self::spawn(command, Stdio::piped())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// What a client does; `None`, with a message, where it is not installed.
fn run_client(name: &str, package: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(name).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            MissingRequirement::program(name, package, &error).report_skip(format!("kelvin serve with {name}"));
            None
        }
    }
}

fn curl(arguments: &[&str]) -> Option<String> {
    let output = run_client("curl", "curl", &[&["-sS", "--max-time", "30"], arguments].concat())?;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn make_site() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("a b.txt"), "0123456789").unwrap();
    fs::write(top.path().join("large"), vec![7; 5_000_000]).unwrap();
    fs::create_dir(top.path().join("sub")).unwrap();
    fs::write(top.path().join("sub/c.html"), "<p>").unwrap();
    top
}

#[test]
fn curl_gets_files_ranges_and_conditionals() {
    let top = make_site();
    let server = ServerProcess::start(top.path(), &[]);
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
    let status = curl(&["-C", "-", "-w", "%{http_code}", "-o", part.to_str().unwrap(), &server.url("/large")]);
    assert_eq!(status.unwrap(), "206");
    assert_eq!(fs::read(&part).unwrap(), vec![7; 5_000_000]);
}

#[test]
fn loopback_server_rejects_foreign_host_names() {
    let top = make_site();
    let code = |server: &ServerProcess, host: &str| {
        let host = format!("Host: {host}");
        curl(&["-o", "/dev/null", "-w", "%{http_code}", "-H", &host, &server.url("/sub/c.html")])
    };
    let (default_server, named_server) =
        (ServerProcess::start(top.path(), &[]), ServerProcess::start(top.path(), &["--host", "a.test", "--host", "b"]));
    for (host, by_own, by_named) in [
        ("localhost:80", "200", "200"),
        ("192.0.2.1", "200", "200"),
        ("evil.example", "421", "421"),
        ("A.test:8080", "421", "200"),
        ("b", "421", "200"),
        ("a.test.evil.example", "421", "421"),
        ("a b", "400", "400"),
    ] {
        let Some(response_code) = code(&default_server, host) else { return };
        assert_eq!((response_code.as_str(), code(&named_server, host).unwrap().as_str()), (by_own, by_named), "{host}");
    }
    assert!(
        curl(&["-H", "Host: evil.example", &default_server.url("/")]).unwrap().contains("kelvin serve --host NAME")
    );
    for (arguments, expected) in [(&[][..], "200"), (&["--host", "a.test"], "421")] {
        let server = ServerProcess::start_at("0.0.0.0:0", top.path(), arguments);
        assert_eq!(code(&server, "any.example").unwrap(), expected);
    }
}

/// A configuration of nginx that passes requests on, by its own directives alone.
const NGINX_PROXY_CONF: &str = "daemon off; master_process off; pid nginx.pid; error_log stderr; events {} http { access_log off; \
    client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; \
    server { listen unix:nginx.socket; location / { proxy_pass http://SERVER; } } }";

#[test]
fn nginx_proxy_passes_requests() {
    let (top, dir) = (make_site(), tempfile::tempdir().unwrap());
    let server = ServerProcess::start(top.path(), &[]);
    fs::write(dir.path().join("nginx.conf"), NGINX_PROXY_CONF.replace("SERVER", &server.address)).unwrap();
    let mut command = Command::new("nginx");
    command.current_dir(&dir).arg("-p").arg(dir.path()).args(["-c", "nginx.conf"]).stderr(Stdio::null());
    let mut nginx = match command.spawn() {
        Ok(nginx) => nginx,
        Err(error) => {
            return MissingRequirement::program("nginx", "nginx", &error).report_skip("kelvin serve behind nginx");
        }
    };
    let socket = dir.path().join("nginx.socket");
    wait_until(|| std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let get = |path: &str| curl(&["--unix-socket", socket.to_str().unwrap(), &format!("http://any.example{path}")]);
    let contents = get("/a%20b.txt").map(|content| (content, get("/large").unwrap().len()));
    nginx.kill().unwrap();
    nginx.wait().unwrap();
    assert!(contents.is_none_or(|pair| pair == ("0123456789".into(), 5_000_000)));
}

#[test]
fn wget_and_wrk_get_files() {
    let top = make_site();
    let server = ServerProcess::start(top.path(), &["--index", "--threads", "2"]);
    if let Some(output) = run_client(
        "wget",
        "wget",
        &["-nv", "-r", "-np", "-P", top.path().join("got").to_str().unwrap(), &server.url("/")],
    ) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let directory = top.path().join("got").join(&server.address);
        assert_eq!(fs::read_to_string(directory.join("a b.txt")).unwrap(), "0123456789");
        assert_eq!(fs::read_to_string(directory.join("sub/c.html")).unwrap(), "<p>");
    }
    if let Some(output) = run_client("wrk", "wrk", &["-t1", "-c8", "-d1", &server.url("/large")]) {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("requests in") && !text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
    }
    for keep_alive_options in [&["-k"][..], &[]] {
        let url = server.url("/sub/c.html");
        let Some(output) =
            run_client("ab", "apache2-utils", &[keep_alive_options, &["-q", "-n", "500", "-c", "8", &url]].concat())
        else {
            break;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let keep_alive_line =
            if keep_alive_options.is_empty() { "Keep-Alive requests" } else { "Keep-Alive requests:    500" };
        assert!(text.contains("Complete requests:      500\nFailed requests:        0\n"), "{text}");
        assert!(text.contains(keep_alive_line) != keep_alive_options.is_empty(), "{text}");
    }
}

/// A client that keeps its connection.
struct Client(TcpStream);

impl Client {
    fn connect(server: &ServerProcess) -> Self {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(stream)
    }

    /// Asks for a file.
    fn request(&mut self, path: &str) {
        write!(self.0, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    }

    /// Whether it gets a file.
    fn is_served(&mut self) -> bool {
        let request = b"GET /a%20b.txt HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let mut answer = Vec::new();
        // One that has ended may be reset for what it is asked.
        while self.0.write_all(if answer.is_empty() { request } else { b"" }).is_ok()
            && !answer.ends_with(b"0123456789")
        {
            let mut buffer = [0; 1024];
            match self.0.read(&mut buffer) {
                Ok(read @ 1..) => answer.extend_from_slice(&buffer[..read]),
                _ => return false,
            }
        }
        answer.ends_with(b"0123456789")
    }
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let parent = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
    };
    processes.filter(|process| parent(process) == Some(pid)).collect()
}

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// All that comes for this.
fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits for what comes in the time of another process.
fn wait_until(mut condition: impl FnMut() -> bool) {
    let is_met = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        condition()
    });
    assert!(is_met);
}

/// A server of processes with clients that were each served once, and the processes: the one that forks and its children.
fn forking_server(root: &Path, clients: usize) -> (ServerProcess, Vec<Client>, u32, Vec<u32>) {
    let server = ServerProcess::start(root, &["--model", "fork"]);
    let mut clients: Vec<Client> = (0..clients).map(|_| Client::connect(&server)).collect();
    assert!(clients.iter_mut().all(Client::is_served));
    let forks = children(server.child.id());
    assert_eq!(forks.len(), 1);
    let client_processes = children(forks[0]);
    assert_eq!(client_processes.len(), clients.len());
    (server, clients, forks[0], client_processes)
}

#[test]
fn crashed_process_ends_only_its_connection() {
    let top = make_site();
    let (server, mut clients, forks, processes) = forking_server(top.path(), 3);
    // Of a SIGSEGV that somebody sends, the handler of the Rust runtime makes nothing.
    signal("-ABRT", processes[1]);
    wait_until(|| children(forks).len() == 2);
    assert_eq!(clients.iter_mut().filter_map(|client| client.is_served().then_some(())).count(), 2);
    assert!(Client::connect(&server).is_served());
    let (status, log) = server.end("-TERM");
    assert_eq!(status, Some(0), "{log}");
    // What a process did is known from those that have ended by themselves.
    assert!(log.contains(" over 4 connections") && log.contains("answered 5 requests"), "{log}");
}

#[test]
fn terminated_process_ends_only_its_connection() {
    let top = make_site();
    let (server, mut clients, forks, processes) = forking_server(top.path(), 2);
    signal("-TERM", processes[0]);
    wait_until(|| children(forks).len() == 1);
    assert_eq!(clients.iter_mut().filter_map(|client| client.is_served().then_some(())).count(), 1);
    assert_eq!(server.end("-INT").0, Some(0));
}

#[test]
fn killed_server_leaves_no_process() {
    let top = make_site();
    for first in [true, false] {
        let (mut server, mut clients, forks, processes) = forking_server(top.path(), 3);
        // Either the program itself, or the process that forks.
        signal("-KILL", if first { server.child.id() } else { forks });
        clients.iter_mut().for_each(|client| wait_until(|| !client.is_served()));
        // Their new parent may not reap them.
        wait_until(|| processes.iter().chain([&forks]).all(|process| !is_running(*process)));
        let status = server.child.wait().unwrap();
        let mut log = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(first || (status.code() == Some(2) && log.contains("was ended by signal 9")), "{log}");
    }
}

fn is_running(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn signal_ends_server_with_summary() {
    let top = make_site();
    for signal in ["-TERM", "-INT"] {
        let server = ServerProcess::start(top.path(), &[]);
        if curl(&[&server.url("/a%20b.txt")]).is_none() {
            return;
        }
        let (status, log) = server.end(signal);
        assert_eq!(status, Some(0));
        assert!(log.contains("serving ") && log.contains("answered 1 request with "), "{log}");
    }
}

#[test]
fn sighup_reopens_directory_and_keeps_connections() {
    for model in ["epoll", "pool", "fork"] {
        let top = tempfile::tempdir().unwrap();
        let site = |name: &str, content: &str| {
            let directory = top.path().join(name);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("which"), content).unwrap();
            fs::write(directory.join("a b.txt"), "0123456789").unwrap();
            directory
        };
        let (served_site, next_site) = (site("served", "old"), site("next", "new"));
        let server = ServerProcess::start(&served_site, &["--model", model]);
        let served_content = || {
            let mut client = Client::connect(&server);
            client.request("/which");
            let mut answer = [0; 4096];
            let read = client.0.read(&mut answer).unwrap();
            String::from_utf8_lossy(&answer[..read]).into_owned()
        };
        let mut kept_client = Client::connect(&server);
        assert!(kept_client.is_served() && served_content().ends_with("old"), "{model}");
        // A deployment by renaming: the directory that was opened has another name now.
        fs::rename(&served_site, top.path().join("before")).unwrap();
        assert!(served_content().ends_with("old"), "{model}");
        // Nothing is there to be opened: what was opened is served on.
        signal("-HUP", server.child.id());
        std::thread::sleep(Duration::from_millis(200));
        assert!(served_content().ends_with("old"), "{model}");
        fs::rename(&next_site, &served_site).unwrap();
        signal("-HUP", server.child.id());
        wait_until(|| served_content().ends_with("new"));
        assert!(kept_client.is_served(), "{model}");
        let (status, log) = server.end("-TERM");
        assert_eq!(status, Some(0), "{model}: {log}");
        assert!(log.contains("serving what was opened before: ") && log.contains("reopened "), "{log}");
    }
}

#[test]
fn initially_ignored_signals_stay_ignored() {
    let top = make_site();
    for (ignored, end_signal) in [("HUP", "-INT"), ("INT", "-TERM"), ("TERM", "-INT")] {
        let ignore = format!("--ignore-signal={ignored}");
        for words in [["serve"].as_slice(), &["receive"], &["agent"]] {
            let mut command = Command::new("env");
            command.args([&ignore, KELVIN]).args(words).args(["--listen", "127.0.0.1:0"]);
            if words != ["agent"] {
                command.arg(top.path());
            }
            let mut server = ServerProcess::spawn(command, Stdio::piped());
            signal(&format!("-{ignored}"), server.child.id());
            std::thread::sleep(Duration::from_millis(300));
            assert!(server.child.try_wait().unwrap().is_none(), "{words:?} ended by SIG{ignored}");
            assert_eq!(server.end(end_signal).0, Some(0), "{words:?}");
        }
    }
}

/// A server that reports its resource usage, and the address of the report.
fn server_with_stats(root: &Path, arguments: &[&str]) -> (ServerProcess, String) {
    let token = root.join("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let options = ["--expose-stats", "--token-file", token.to_str().unwrap()];
    let mut server = ServerProcess::start(root, &[&options, arguments].concat());
    let stats_address = server.line();
    (server, stats_address)
}

/// What it knows of its requests.
fn parse_stats(stats_address: &str) -> ServerStats {
    let fields = "Host: 127.0.0.1\r\nAuthorization: Bearer 0123456789abcdef";
    let answer = exchange(stats_address, &format!("GET /.kelvin/stats HTTP/1.1\r\n{fields}\r\n\r\n"));
    let json = answer.split_once("\r\n\r\n").unwrap().1;
    ResourceSnapshot::from_json(json.as_bytes()).unwrap().server.unwrap()
}

#[test]
fn connections_use_requested_congestion_control() {
    let top = make_site();
    for model in ["epoll", "fork"] {
        let (server, stats_address) =
            server_with_stats(top.path(), &["--model", model, "--congestion-control", "reno"]);
        assert_eq!(parse_stats(&stats_address).congestion_control.as_deref(), Some("reno"), "{model}");
        assert!(Client::connect(&server).is_served(), "{model}");
    }
}

#[test]
fn killed_process_leaves_nothing_in_flight() {
    let top = make_site();
    // More than all buffers between a server and a client who does not read.
    fs::File::create(top.path().join("endless")).unwrap().set_len(1 << 30).unwrap();
    let (server, stats_address) = server_with_stats(top.path(), &["--model", "fork"]);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    assert!(clients.iter_mut().all(Client::is_served));
    wait_until(|| parse_stats(&stats_address).in_flight_now == 0 && parse_stats(&stats_address).requests == 3);
    let stats = parse_stats(&stats_address);
    assert_eq!((stats.bytes, stats.connections, stats.refused), (30, 3, 0));
    assert!(stats.in_flight > 0.0 && stats.held_integral > stats.in_flight, "{stats:?}");
    // An answer that left before its call had ended is in service for no time that can be told: other work had the processor.
    wait_until(|| clients[0].is_served() && parse_stats(&stats_address).service_integral > 0.0);
    wait_until(|| parse_stats(&stats_address).in_flight_now == 0);
    let requests = parse_stats(&stats_address).requests;
    let processes = children(children(server.child.id())[0]);
    let mut slow_client = Client::connect(&server);
    slow_client.request("/endless");
    wait_until(|| parse_stats(&stats_address).in_flight_now == 1 && parse_stats(&stats_address).window_limited > 0.0);
    let (before, after) = (parse_stats(&stats_address), parse_stats(&stats_address));
    let growth = [
        after.in_flight - before.in_flight,
        after.service_integral - before.service_integral,
        after.held_integral - before.held_integral,
    ];
    assert!(growth[0] > 0.0 && growth[0] == growth[1] && growth[2] == 4.0 * growth[0], "{before:?} {after:?}");
    let all_processes = children(children(server.child.id())[0]);
    let busy_process = all_processes.iter().find(|child| !processes.contains(child)).unwrap();
    signal("-KILL", *busy_process);
    wait_until(|| parse_stats(&stats_address).in_flight_now == 0);
    let (after_kill, later) = (parse_stats(&stats_address), parse_stats(&stats_address));
    assert_eq!(
        (after_kill.in_flight, after_kill.service_integral, after_kill.connections),
        (later.in_flight, later.service_integral, 4)
    );
    assert!(clients.iter_mut().all(Client::is_served), "the others are served");
    wait_until(|| parse_stats(&stats_address).requests == requests + 3);
    assert_eq!(server.end("-TERM").0, Some(0));
}

#[test]
fn stats_need_the_token() {
    let top = make_site();
    let (server, stats_address) = server_with_stats(top.path(), &[]);
    let url = format!("http://{stats_address}/.kelvin/stats");
    if curl(&["-o", "/dev/null", &server.url("/large")]).is_none() {
        return;
    }
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let snapshot = || {
        let json = curl(&["-H", &bearer("0123456789abcdef"), &url]).unwrap();
        ResourceSnapshot::from_json(json.as_bytes()).unwrap()
    };
    let server_stats = || snapshot().server.unwrap();
    // The server counts an answer when it has given it to the kernel: the client may be faster.
    while server_stats().requests < 1 {}
    assert_eq!((server_stats().requests, server_stats().bytes, server_stats().connections), (1, 5_000_000, 1));
    assert!(snapshot().process.memory > 0);
    for header in [bearer("0123456789abcdeF"), bearer(""), "X: y".into()] {
        let code = curl(&["-o", "/dev/null", "-w", "%{http_code}", "-H", &header, &url]).unwrap();
        assert_eq!(code, "401", "{header}");
    }
    let code = curl(&["-o", "/dev/null", "-w", "%{http_code}", &server.url("/.kelvin/stats")]).unwrap();
    assert_eq!(code, "404");
    let (status, log) = server.end("-TERM");
    assert!(status == Some(0) && log.contains(&format!("at {url}")), "{log}");
}

#[test]
fn forbidden_io_uring_is_one_line() {
    let top = make_site();
    let root = top.path().to_owned();
    let thread = std::thread::spawn(move || {
        kelvin_sys::seccomp::deny(kelvin_sys::seccomp::IO_URING_SETUP).unwrap();
        Command::new(KELVIN)
            .arg("serve")
            .arg(root)
            .args(["--model", "uring", "--listen", "127.0.0.1:0"])
            .output()
            .unwrap()
    });
    let output = thread.join().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
    assert!(message.starts_with("kelvin: --model uring: io_uring is not allowed here, by the sysctl"), "{message}");
}

/// The requests of the lines of an access log.
fn logged_requests(path: &Path) -> Vec<String> {
    let log = fs::read_to_string(path).unwrap();
    log.lines().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn access_log_is_reopened_by_sigusr1() {
    let (top, logs) = (make_site(), tempfile::tempdir().unwrap());
    let [path, renamed] = ["access.log", "access.log.1"].map(|name| logs.path().join(name));
    let server = ServerProcess::start(top.path(), &["--access-log", path.to_str().unwrap(), "--log-format", "common"]);
    let get = |path: &str| exchange(&server.address, &format!("GET {path} HTTP/1.0\r\n\r\n"));
    assert!(get("/a%20b.txt").ends_with("0123456789"));
    fs::rename(&path, &renamed).unwrap();
    let process = server.child.id().to_string();
    assert!(Command::new("kill").args(["-USR1", &process]).status().unwrap().success());
    wait_until(|| path.exists());
    assert!(get("/none").starts_with("HTTP/1.1 404"));
    let (status, log) = server.end("-TERM");
    assert!(status == Some(0) && !log.contains("access log"), "{log}");
    assert_eq!(logged_requests(&renamed), ["GET /a%20b.txt HTTP/1.0"]);
    assert_eq!(logged_requests(&path), ["GET /none HTTP/1.0"]);
    assert!(fs::read_to_string(&renamed).unwrap().ends_with("\" 200 10\n"));
}

#[test]
fn full_disk_of_access_log_is_reported_once() {
    let top = make_site();
    let server = ServerProcess::start(top.path(), &["--access-log", "/dev/full"]);
    for _ in 0..3 {
        assert!(exchange(&server.address, "GET /a%20b.txt HTTP/1.0\r\n\r\n").ends_with("0123456789"));
    }
    let (status, log) = server.end("-TERM");
    let notices: Vec<&str> = log.lines().filter(|line| line.contains("access log")).collect();
    assert_eq!(
        (status, notices),
        (
            Some(0),
            vec![
                "kelvin: access log /dev/full: lines are lost: No space left on device (os error 28)",
                "kelvin: access log /dev/full: 3 lines were lost",
            ]
        )
    );
}

#[test]
fn access_log_goes_to_standard_output() {
    let top = make_site();
    let mut server = ServerProcess::start(top.path(), &["--access-log", "-"]);
    exchange(&server.address, "GET /none HTTP/1.0\r\nUser-Agent: a\r\n\r\n");
    let line = server.line();
    assert!(
        line.starts_with("127.0.0.1 - - [") && line.ends_with("] \"GET /none HTTP/1.0\" 404 14 \"-\" \"a\""),
        "{line}"
    );
}

#[test]
fn curl_decodes_a_precompressed_file() {
    let top = make_site();
    let text = "0123456789".repeat(1000);
    fs::write(top.path().join("text.css"), &text).unwrap();
    let Some(output) = run_client("gzip", "gzip", &["-k", top.path().join("text.css").to_str().unwrap()]) else {
        return;
    };
    assert!(output.status.success());
    let server = ServerProcess::start(top.path(), &["--precompressed", "--cache-control", ".css:max-age=60"]);
    let url = server.url("/text.css");
    let Some(content) = curl(&["--compressed", &url]) else { return };
    assert_eq!(content, text);
    let head = curl(&["-I", "-H", "Accept-Encoding: gzip", &url]).unwrap();
    for field in
        ["Content-Encoding: gzip", "Vary: Accept-Encoding", "Cache-Control: max-age=60", "Content-Type: text/css"]
    {
        assert!(head.contains(field), "{field}: {head}");
    }
}

#[test]
fn socket_of_a_path_is_served_and_removed() {
    let (top, directory) = (make_site(), tempfile::tempdir().unwrap());
    let path = directory.path().join("socket");
    let socket = path.to_str().unwrap();
    let arguments = ["serve", top.path().to_str().unwrap(), "--unix-socket", socket];
    for model in ["epoll", "fork"] {
        let mut command = Command::new(KELVIN);
        command.args(arguments).args(["--socket-mode", "660", "--model", model]);
        let server = ServerProcess::spawn(command, Stdio::piped());
        assert_eq!(server.address, format!("unix:{socket}"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let content = curl(&["--unix-socket", socket, "http://any.example/a%20b.txt"]);
        assert!(content.is_none_or(|content| content == "0123456789"), "{model}");
        let output = Command::new(KELVIN).args(arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message, format!("kelvin: --unix-socket {socket}: another program listens there\n"));
        let (status, log) = server.end("-TERM");
        assert!(status == Some(0) && log.contains(&format!(" at unix:{socket}, at most ")), "{log}");
        assert!(!path.exists(), "{model}");
    }
}

/// A server of this site to which this socket is passed, as systemd does.
fn start_activated(listener: OwnedFd, root: &Path, arguments: &[&str]) -> ServerProcess {
    let mut command = Command::new("sh");
    let script = r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@""#;
    command.args(["-c", script, "sh", KELVIN, "serve", "--socket-activation"]).arg(root).args(arguments);
    command.stdin(listener);
    ServerProcess::spawn(command, Stdio::piped())
}

#[test]
fn passed_socket_outlives_each_server() {
    let top = make_site();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for model in ["epoll", "fork", "pool"] {
        // It waits until a server is there.
        let mut early = TcpStream::connect(&address).unwrap();
        early.write_all(b"GET /sub/c.html HTTP/1.0\r\n\r\n").unwrap();
        let passed = listener.as_fd().try_clone_to_owned().unwrap();
        let server = start_activated(passed, top.path(), &["--model", model]);
        assert_eq!(server.address, address);
        let mut answer = String::new();
        early.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\n<p>"), "{model}: {answer}");
        // Who is asked for by a foreign name may be asked for by a page.
        let answer = exchange(&address, "GET /sub/c.html HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 421 "), "{model}: {answer}");
        let (status, log) = server.end("-TERM");
        assert!(status == Some(0) && log.contains(&format!(" at http://{address}/, at most ")), "{model}: {log}");
    }
    drop(TcpStream::connect(&address).unwrap());
}

#[test]
fn passed_path_is_served_and_stays() {
    let (top, directory) = (make_site(), tempfile::tempdir().unwrap());
    let path = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let server = start_activated(listener.as_fd().try_clone_to_owned().unwrap(), top.path(), &[]);
    assert_eq!(server.address, format!("unix:{}", path.display()));
    let content = curl(&["--unix-socket", path.to_str().unwrap(), "http://any.example/a%20b.txt"]);
    assert!(content.is_none_or(|content| content == "0123456789"));
    assert_eq!(server.end("-TERM").0, Some(0));
    assert!(path.exists() && std::os::unix::net::UnixStream::connect(&path).is_ok());
}

#[test]
fn systemd_activates_it() {
    let (top, directory) = (make_site(), tempfile::tempdir().unwrap());
    let path = directory.path().join("socket");
    let mut command = Command::new("systemd-socket-activate");
    command.arg("-l").arg(&path).args([KELVIN, "serve", "--socket-activation"]).arg(top.path());
    let mut child = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) => {
            return MissingRequirement::program("systemd-socket-activate", "systemd", &error)
                .report_skip("kelvin serve by systemd-socket-activate");
        }
    };
    wait_until(|| path.exists());
    let content = curl(&["--unix-socket", path.to_str().unwrap(), "http://any.example/a%20b.txt"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(content.is_none_or(|content| content == "0123456789"));
}

#[test]
fn missing_or_unsuitable_passed_socket_is_one_line() {
    let top = make_site();
    let output = Command::new(KELVIN).args(["serve", "--socket-activation"]).arg(top.path()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    let none =
        "kelvin: --socket-activation: no socket was passed: start it by a .socket unit, or systemd-socket-activate\n";
    assert_eq!((output.status.code(), message.as_str()), (Some(2), none));
    // One connection, as with Accept=yes.
    let connection = std::os::unix::net::UnixStream::pair().unwrap().0;
    let mut server = start_activated(connection.into(), top.path(), &[]);
    let mut message = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    let unsuitable =
        "kelvin: --socket-activation: descriptor 3 is no stream socket that listens: a .socket unit needs Accept=no\n";
    assert_eq!((server.child.wait().unwrap().code(), message.as_str()), (Some(2), unsuitable));
}

/// Writes a certificate of `localhost` and its key, with these permissions.
fn write_identity(directory: &Path, mode: u32) -> [String; 2] {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    [("cert.pem", cert.pem(), 0o644), ("key.pem", signing_key.serialize_pem(), mode)].map(|(name, text, mode)| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

#[test]
fn curl_and_kelvin_load_ask_by_tls() {
    let (top, directory) = (make_site(), tempfile::tempdir().unwrap());
    let [certificate, key] = write_identity(directory.path(), 0o600);
    for model in ["epoll", "fork"] {
        let server =
            ServerProcess::start(top.path(), &["--tls-cert", &certificate, "--tls-key", &key, "--model", model]);
        let port = server.address.rsplit(':').next().unwrap().to_owned();
        let url = format!("https://localhost:{port}/a%20b.txt");
        for version in ["1.2", "1.3"] {
            let limits = [&format!("--tlsv{version}")[..], "--tls-max", version, "--http1.1"];
            let content = curl(&[&["--cacert", &certificate][..], &limits, &[&url]].concat());
            assert!(content.is_none_or(|content| content == "0123456789"), "{model} {version}");
        }
        let load = ["load", &url, "--ca", &certificate, "--requests", "50", "--users", "2", "--json"];
        let output = Command::new(KELVIN).args(load).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((result["requests"].as_u64(), result["bytes"].as_u64()), (Some(50), Some(500)), "{model} {result}");
        // New files are used from the next connection on.
        let former = fs::read(&certificate).unwrap();
        write_identity(directory.path(), 0o600);
        let reopened = Command::new("kill").args(["-HUP", &server.child.id().to_string()]).status().unwrap();
        assert!(reopened.success());
        let is_trusted = || {
            let arguments = ["-sS", "--max-time", "30", "--cacert", &certificate, &url];
            run_client("curl", "curl", &arguments).is_none_or(|output| output.status.success())
        };
        wait_until(is_trusted);
        assert_ne!(fs::read(&certificate).unwrap(), former);
        let (status, log) = server.end("-TERM");
        assert!(status == Some(0) && log.contains(&format!(" at https://127.0.0.1:{port}/, at most ")), "{log}");
        assert!(log.contains("sendfile and mappings cannot encrypt"), "{log}");
        assert!(log.contains("TLS: ") && log.contains(" ms to encrypt it"), "{log}");
    }
}

#[test]
fn unusable_tls_is_one_line() {
    let (top, directory) = (make_site(), tempfile::tempdir().unwrap());
    let [certificate, key] = write_identity(directory.path(), 0o640);
    let root = top.path().to_str().unwrap();
    let refusal = |arguments: &[&str]| {
        let output = Command::new(KELVIN).args(["serve", root]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let both = ["--tls-cert", &certificate, "--tls-key", &key];
    let message = refusal(&both);
    assert_eq!(message, format!("kelvin: --tls-key: {key}: is accessible to others (mode 640): chmod 600 it\n"));
    write_identity(directory.path(), 0o600);
    let message = refusal(&[&both[..], &["--model", "uring"]].concat());
    let uring_help = "kelvin: --model uring: the model uring has no TLS: give epoll, poll, fork, thread or pool\n";
    assert_eq!(message, uring_help);
    let message = refusal(&[&both[..], &["--send", "sendfile"]].concat());
    let sendfile_help = "kelvin: --send sendfile: with TLS files are read and encrypted in memory, by auto or rw\n";
    assert_eq!(message, sendfile_help);
    let message = refusal(&["--tls-cert", &key, "--tls-key", &key]);
    assert_eq!(message, format!("kelvin: --tls-cert: {key}: it holds no certificate (PEM)\n"));
    assert!(refusal(&["--tls-cert", &certificate]).contains("--tls-key <FILE>"));
    assert!(refusal(&["--tls-key", &key]).contains("--tls-cert <FILE>"));
    let message = refusal(&[&both[..], &["--expose-stats", "--token-file", &key]].concat());
    assert!(message.contains("cannot be used with"), "{message}");
}

#[test]
fn server_of_root_serves_as_another_user() {
    let top = make_site();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(top.path().join("large"), fs::Permissions::from_mode(0o600)).unwrap();
    let log_path = top.path().join("access.log");
    let arguments = ["--user", "65534:65533", "--access-log", log_path.to_str().unwrap()];
    if !kelvin_testing::is_root() {
        let listen = ["serve", top.path().to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let output = Command::new(KELVIN).args(listen).args(arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message, "kelvin: --user 65534:65533: only root can become another user\n");
        return;
    }
    for model in ["epoll", "fork"] {
        let server = ServerProcess::start(top.path(), &[&["--model", model][..], &arguments].concat());
        let mut client = Client::connect(&server);
        assert!(client.is_served(), "{model}");
        let answer = exchange(&server.address, "GET /large HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{model}: {answer}");
        let process = server.child.id();
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
        for process in children.split_whitespace().chain([process.to_string().as_str()]) {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
            let ids = ["Uid:", "Gid:", "Groups:", "NoNewPrivs:", "CapEff:", "CapPrm:"].map(field);
            let none = "0000000000000000";
            assert_eq!(
                ids.each_ref().map(String::as_str),
                ["65534\t65534\t65534\t65534", "65533\t65533\t65533\t65533", "", "1", none, none],
                "{model}"
            );
        }
        drop(client);
        let (status, log) = server.end("-TERM");
        assert!(status == Some(0) && log.contains("serving as 65534:65533, without a way to gain rights"), "{log}");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(&log_path).unwrap()), 65534);
    }
}

#[test]
fn unservable_directory_is_one_line() {
    let top = make_site();
    let refusal = |arguments: &[&str]| {
        let output = Command::new(KELVIN).arg("serve").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let root = top.path().to_str().unwrap();
    assert!(refusal(&["/no such directory"]).contains("/no such directory: No such file or directory"));
    assert!(refusal(&[&format!("{root}/large")]).contains("/large: Not a directory"));
    assert!(refusal(&[root, "--listen", "203.0.113.1:0"]).starts_with("kelvin: --listen 203.0.113.1:0: "));
    assert!(refusal(&[root, "--listen", "localhost"]).contains("give an IP address"));
    assert!(refusal(&[root, "--send", "pigeon"]).contains("it must be one of auto, rw, mmap, sendfile, splice"));
    assert!(
        refusal(&[root, "--model", "prefork"]).contains("it must be one of fork, thread, pool, poll, epoll, uring")
    );
    for send in ["mmap", "sendfile", "splice"] {
        let message = refusal(&[root, "--model", "uring", "--send", send]);
        assert_eq!(message, format!("kelvin: --send {send}: the model uring sends by auto or rw\n"));
    }
    for model in ["fork", "thread"] {
        let message = refusal(&[root, "--model", model, "--threads", "2"]);
        assert!(
            message.contains(&format!("the model {model} has one for each connection: give --connections")),
            "{message}"
        );
    }
    assert!(refusal(&[root, "--host", "a:80"]).contains("'--host <NAME>': give a host name without a port"));
    let message = refusal(&[root, "--congestion-control", "nosuch"]);
    assert!(message.starts_with("kelvin: --congestion-control nosuch: this kernel has no such"), "{message}");
    assert!(refusal(&[root, "--threads", "0"]).contains("from 1 to 1024"));
    assert!(refusal(&[root, "--access-log", "/none/a"]).starts_with("kelvin: --access-log /none/a: No such file"));
    assert!(refusal(&[root, "--access-log", "-", "--json"]).contains("--json prints there as well: give a file"));
    assert!(refusal(&[root, "--access-log", "-", "--log-format", "x"]).contains("it must be one of common, combined"));
    assert!(refusal(&[root, "--unix-socket", "x", "--listen", "127.0.0.1"]).contains("cannot be used with"));
    assert!(refusal(&[root, "--unix-socket", root]).contains("there is something else than a socket"));
    assert!(refusal(&[root, "--unix-socket", "x", "--socket-mode", "888"]).contains("in octal digits, such as 660"));
    assert!(refusal(&[root, "--user", "a:"]).contains("give a user, or USER:GROUP, by names or numbers"));
    assert!(refusal(&[root, "--log-format", "common"]).contains("--access-log <FILE>"));
    assert!(refusal(&[root, "--cache-control", "maxage=1"]).contains("'maxage' is no directive of an answer"));
    let message = refusal(&[root, "--cache-control", "public", "--cache-control", "private"]);
    assert_eq!(message, "kelvin: --cache-control: give one value for all names\n");
    let stats_refusal = |file: &str| refusal(&[root, "--expose-stats", "--token-file", file]);
    assert!(refusal(&[root, "--expose-stats"]).contains("--token-file <FILE>"));
    assert!(refusal(&[root, "--token-file", "x"]).contains("--expose-stats"));
    assert!(refusal(&[root, "--stats-listen", "127.0.0.1"]).contains("--expose-stats"));
    assert!(stats_refusal("/no such file").starts_with("kelvin: --token-file: "));
    assert!(stats_refusal(&format!("{root}/sub/c.html")).contains("chmod 600"));
    let token = top.path().join("token");
    fs::write(&token, "0123456789abcdef").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let token = token.to_str().unwrap();
    let elsewhere = ["--listen", "127.0.0.1:0", "--stats-listen", "203.0.113.1:0"];
    let message = refusal(&[&[root, "--expose-stats", "--token-file", token][..], &elsewhere].concat());
    assert!(message.starts_with("kelvin: --stats-listen 203.0.113.1:0: "), "{message}");
}
