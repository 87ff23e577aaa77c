//! `kelvin agent` as a whole program: its clients, refusals and exit.

mod server_process;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use kelvin_testing::MissingRequirement;
use kelvin_transfer::wire::address::resolve;
use kelvin_transfer::wire::client::AgentClient;
use kelvin_transfer::wire::secret::Secret;
use server_process::ServerProcess;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");

impl ServerProcess {
    fn start(arguments: &[&str]) -> Self {
        Self::start_with(Command::new(KELVIN), arguments)
    }

    /// Like `start`, by a command that has the program's name as its last argument, or is the program.
    fn start_with(command: Command, arguments: &[&str]) -> Self {
        Self::start_with_log(command, arguments, Stdio::piped())
    }

    /// Like `start_with`, with its log to this file.
    fn start_with_log(mut command: Command, arguments: &[&str], log: Stdio) -> Self {
        command.arg("agent").args(arguments);
        Self::spawn(command, log)
    }
}

fn token(directory: &Path, content: &str) -> String {
    let file = directory.join("token");
    std::fs::write(&file, content).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn agent_serves_authenticated_clients_until_signal() {
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    let agent = ServerProcess::start(&["--listen", "0.0.0.0:0", "--token-file", &token]);
    let port = agent.address.strip_prefix("0.0.0.0:").unwrap();
    let addresses = resolve(&format!("127.0.0.1:{port}")).unwrap();
    assert!(AgentClient::connect(&addresses, &Secret::none()).is_err());
    let mut client = AgentClient::connect(&addresses, &Secret::read(Path::new(&token)).unwrap()).unwrap();
    let mut test = client.echo_tcp(3).unwrap();
    let mut answer = [0; 3];
    test.socket.write_all(b"abc").unwrap();
    test.socket.read_exact(&mut answer).unwrap();
    assert_eq!((&answer, test.finish().unwrap().arrived), (b"abc", 1));
    let (status, log) = agent.end("-INT");
    assert_eq!(status, Some(0));
    for words in
        ["serving clients with the secret, at most 4 at a time", "connected", "messages of 3 bytes back over TCP"]
    {
        assert!(log.contains(words), "{words:?} is not in {log}");
    }
    assert!(!log.contains("sixteen"));
}

/// A pipe that holds as much as it can, and nobody reads.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    // Opened anew, so that only this way to it does not wait.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut nonblocking_writer =
        File::options().write(true).custom_flags(kelvin_sys::fs::O_NONBLOCK).open(path).unwrap();
    while nonblocking_writer.write_all(b"x").is_ok() {}
    (reader, writer)
}

/// Opens this many connections and sends what is no frame of a client.
fn send_invalid_frames(address: &str, times: usize) {
    for _ in 0..times {
        let mut stream = TcpStream::connect(address).unwrap();
        let text = format!("{{\"protocol\":\"{}\"}}", "\\u001b[2J".repeat(100));
        stream.write_all(&(text.len() as u32).to_le_bytes()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        // Until it is closed.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
}

#[test]
fn unread_log_does_not_block_agent() {
    let (_reader, writer) = full_pipe();
    let full_device = File::options().write(true).open("/dev/full").unwrap();
    for log in [Stdio::from(writer), Stdio::from(full_device)] {
        let agent = ServerProcess::start_with_log(Command::new(KELVIN), &["--listen", "127.0.0.1:0"], log);
        let address = resolve(&agent.address).unwrap();
        for _ in 0..3 {
            send_invalid_frames(&agent.address, 200);
            let mut client = AgentClient::connect(&address, &Secret::none()).unwrap();
            assert_eq!(client.echo_tcp(3).unwrap().finish().unwrap().arrived, 0);
        }
        assert_eq!(agent.end("-TERM").0, Some(0));
    }
}

#[test]
fn unauthenticated_clients_cannot_fill_log() {
    let agent = ServerProcess::start(&["--listen", "127.0.0.1:0"]);
    send_invalid_frames(&agent.address, 500);
    AgentClient::connect(&resolve(&agent.address).unwrap(), &Secret::none())
        .unwrap()
        .echo_tcp(5)
        .unwrap()
        .finish()
        .unwrap();
    let (status, log) = agent.end("-TERM");
    assert_eq!(status, Some(0));
    assert!(log.len() < 100 * 320 && !log.contains('\u{1b}'), "{} bytes: {log}", log.len());
    assert!(log.contains(" lines dropped") && log.contains("messages of 5 bytes back"), "{log}");
}

#[test]
fn agent_without_secret_serves_loopback_only() {
    let agent = ServerProcess::start(&["--listen", "127.0.0.1:0"]);
    AgentClient::connect(&resolve(&agent.address).unwrap(), &Secret::none()).unwrap();
    // The address is taken now.
    let second = Command::new(KELVIN).args(["agent", "--listen", &agent.address]).output().unwrap();
    let message = String::from_utf8(second.stderr).unwrap();
    assert_eq!((second.status.code(), message.lines().count()), (Some(2), 1));
    assert!(message.contains(&format!("--listen {}: Address already in use", agent.address)), "{message}");
    assert_eq!(agent.end("-TERM").0, Some(0));
}

#[test]
fn invalid_agent_options_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let short_token = token(directory.path(), "short");
    let expect_refusal = |arguments: &[&str], words: &str| {
        let output = Command::new(KELVIN).arg("agent").args(arguments).stdin(Stdio::null()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains(words) && output.stdout.is_empty(), "{message}");
    };
    expect_refusal(
        &["--listen", "0.0.0.0"],
        "--listen: 0.0.0.0:27315 can be reached from other hosts: name a file with a secret",
    );
    expect_refusal(&["--token-file", &short_token], "--token-file: ");
    expect_refusal(&["--token-file", &short_token], "has 5 bytes, and a secret must have at least 16");
    expect_refusal(&["--token-file", "/none"], "/none: No such file");
    expect_refusal(&["--listen", "192.0.2.1:0", "--token-file", "/dev/null"], "not a regular file");
    expect_refusal(&["--listen", "example.org"], "give an IP address");
    expect_refusal(&["--clients", "65"], "--clients");
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    expect_refusal(
        &["--listen", "192.0.2.1:0", "--token-file", &token],
        "--listen 192.0.2.1:0: Cannot assign requested address",
    );
}

/// Another host: a network namespace, joined to this one by a pair of virtual interfaces of which this end is shaped.
struct NamespaceHost {
    name: String,
    /// The ends of the pair, here and there.
    near_interface: String,
    far_interface: String,
    /// Held while it is there, where others would have the same name and addresses.
    _turn: Option<MutexGuard<'static, ()>>,
}

/// Whose turn it is to have a shaped link.
static SHAPED_LINK: Mutex<()> = Mutex::new(());

impl NamespaceHost {
    const NEAR_ADDRESS: &str = "198.18.77.1/30";
    const FAR_ADDRESS: &str = "198.18.77.2";
    /// Addresses of the pair alone.
    const NEAR_LINK_LOCAL: &str = "fe80::4b:1";
    const FAR_LINK_LOCAL: &str = "fe80::4b:2";

    /// Makes it.
    fn with_link(mark: &str, turn: Option<MutexGuard<'static, ()>>) -> Result<Self, MissingRequirement> {
        let id = std::process::id();
        let host = Self {
            name: format!("kelvin-{mark}{id}"),
            near_interface: format!("n{mark}{id}"),
            far_interface: format!("f{mark}{id}"),
            _turn: turn,
        };
        let Self { name, near_interface, far_interface, .. } = &host;
        run(&format!("ip netns add {name}"))?;
        run(&format!("ip link add {near_interface} type veth peer name {far_interface} netns {name}"))?;
        Ok(host)
    }

    /// Makes it, with so much as the rate of the link.
    fn with_rate(rate: &str) -> Result<Self, MissingRequirement> {
        let host = Self::with_link("r", Some(kelvin_sys::lock(&SHAPED_LINK)))?;
        let Self { name, near_interface, far_interface, .. } = &host;
        run(&format!("ip address add {} dev {near_interface}", Self::NEAR_ADDRESS))?;
        run(&format!("ip link set {near_interface} up"))?;
        run(&format!("ip -netns {name} address add {}/30 dev {far_interface}", Self::FAR_ADDRESS))?;
        run(&format!("ip -netns {name} link set {far_interface} up"))?;
        run(&format!("tc qdisc add dev {near_interface} root tbf rate {rate} burst 128kb latency 50ms"))?;
        Ok(host)
    }

    /// Makes it, with nothing but addresses of the link.
    fn link_local_only() -> Result<Self, MissingRequirement> {
        let host = Self::with_link("l", None)?;
        let Self { name, near_interface, far_interface, .. } = &host;
        run(&format!("ip link set {near_interface} up"))?;
        run(&format!("ip -netns {name} link set {far_interface} up"))?;
        run(&format!("ip address add {}/64 dev {near_interface} nodad", Self::NEAR_LINK_LOCAL))?;
        run(&format!("ip -netns {name} address add {}/64 dev {far_interface} nodad", Self::FAR_LINK_LOCAL))?;
        Ok(host)
    }

    /// The program on that host.
    fn kelvin(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, KELVIN]);
        command
    }
}

/// Runs a command of a network.
fn run(line: &str) -> Result<(), MissingRequirement> {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| MissingRequirement::program(words[0], "iproute2", &error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(MissingRequirement::privilege(format!("{line} (root may): {}", String::from_utf8_lossy(&output.stderr))))
}

impl Drop for NamespaceHost {
    /// Its end of the pair goes with it, and so does this end.
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

/// What a run with an agent measured, by metric and case.
fn measured_run(arguments: &[&str]) -> (Option<i32>, serde_json::Value, String) {
    let options = [
        "run",
        "os.syscall.null",
        "--quick",
        // Time that was asked for is kept, whatever it costs: on a busy machine cases would be left out.
        "--budget",
        "minimum",
        "--rounds",
        "2",
        "--no-store",
        "--json",
        "--with-samples",
    ];
    let output = Command::new(KELVIN).args(options).args(arguments).stdin(Stdio::null()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), message)
}

/// The result of a metric at the first case that has this word.
fn result(run: &serde_json::Value, metric: &str, word: &str) -> serde_json::Value {
    let is_metric_at_case = |result: &&serde_json::Value| {
        result["metric"]["id"] == metric && (word.is_empty() || result["case"].to_string().contains(word))
    };
    let entry = run["analysis"]["results"].as_array().unwrap().iter().find(is_metric_at_case);
    entry.unwrap_or_else(|| panic!("no {metric} {word}")).clone()
}

/// The same run on a machine whose interface had a line of 10 Mbit/s: what arrived cannot have, and nothing is predicted from it.
fn assert_invalid_on_slower_line(mut run: serde_json::Value, directory: &Path) {
    let path = run["run"]["network_path"].clone();
    assert_eq!(path["protocol"], 4, "{path}");
    assert_eq!(path["agent_mtu"]["known"]["value"], 1500, "{path}");
    let nics = run["run"]["machine"]["nics"].as_array_mut().unwrap();
    let interface = nics.iter_mut().find(|nic| nic["name"] == path["interface"]["known"]["value"]).unwrap();
    interface["line_rate"] = serde_json::json!({ "known": { "value": 1e7, "source": "a test" } });
    let file = directory.join("run.json");
    std::fs::write(&file, run["run"].to_string()).unwrap();
    let arguments = ["report", file.to_str().unwrap(), "--repredict", "--format", "json"];
    let output = Command::new(KELVIN).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let invalid = result(&run, "net.peer.bandwidth", "")["outcome"]["invalid"].clone();
    // 1460 of 1538 bytes are payload at most.
    assert!((invalid["bound"].as_f64().unwrap() / (1.25e6 * 1460.0 / 1538.0) - 1.01).abs() < 1e-9, "{invalid}");
    assert!(invalid["likely_cause"].to_string().contains("not all bytes went by nr"), "{invalid}");
    let reason = result(&run, "net.peer.rtt", "tcp")["no_prediction_reason"].to_string();
    assert!(reason.contains("beyond what is possible"), "{reason}");
    // What was offered at 10 Mbit/s of datagrams is possible by 957 of 1000 of it, which is about what came.
    assert!(result(&run, "net.peer.offered.lost", "")["outcome"]["measured"].is_object());
}

#[test]
fn streams_stop_growing_at_link_rate() {
    let host = match NamespaceHost::with_rate("100mbit") {
        Ok(host) => host,
        Err(missing) => return missing.report_skip("streams over a link, which needs a network namespace"),
    };
    run(&format!(
        "tc -netns {} qdisc add dev {} root tbf rate 100mbit burst 128kb latency 50ms",
        host.name, host.far_interface
    ))
    .unwrap_or_else(|_| panic!("this end could be shaped"));
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    let agent =
        ServerProcess::start_with(host.kelvin(), &["--listen", NamespaceHost::FAR_ADDRESS, "--token-file", &token]);
    let options = ["--rounds", "4", "--no-store", "--json", "--with-samples"];
    // One of its metrics selects this probe alone: its id begins those of others, too.
    let output = Command::new(KELVIN)
        .args(["run", "net.peer.bandwidth.burst", "--peer", NamespaceHost::FAR_ADDRESS, "--token-file", &token])
        .args(options)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cpus = kelvin_sys::cpu::affinity().unwrap().len();
    assert_eq!(run["run"]["network_path"]["agent_cpus"]["known"]["value"], cpus);
    let results = run["analysis"]["results"].as_array().unwrap();
    let rates = results.iter().filter(|result| result["metric"]["id"] == "net.peer.bandwidth");
    let rates: Vec<_> = rates
        .map(|result| (&result["case"], result["outcome"]["measured"]["headline"].as_f64().unwrap() * 8.0))
        .collect();
    // The shaper lets 1448 of 1514 bytes of payload through; a busy machine less, or what it saved up meanwhile.
    assert!(rates.len() >= 5 && rates.iter().all(|&(_, rate)| 0.0 < rate && rate < 125e6), "{rates:?}");
    let studies = run["analysis"]["studies"].to_string();
    // At 1, or where the machine is too busy to be sure of that, later.
    let growth =
        studies.split("TCP streams to the agent stops growing at ").nth(1).unwrap_or_else(|| panic!("{studies}"));
    assert!(growth.split_once(", ").unwrap().1.starts_with("limited by the link or a shaper on it: "), "{studies}");
    let prediction = |streams: &str| {
        let is_of_streams = |result: &&serde_json::Value| result["case"].to_string().contains(streams);
        results
            .iter()
            .filter(|result| result["metric"]["id"] == "net.peer.bandwidth")
            .find(is_of_streams)
            .unwrap()
            .clone()
    };
    // The rate of the link is unknown: what is known is one stream.
    let two = prediction("2")["prediction"]["derivation"].to_string();
    assert!(two.contains("no more than one stream carries where the link is the limit"), "{two}");
    assert_eq!(agent.end("-TERM").0, Some(0));
}

#[test]
fn measured_bandwidth_is_below_link_rate() {
    let host = match NamespaceHost::with_rate("100mbit") {
        Ok(host) => host,
        Err(missing) => return missing.report_skip("a link to another host, which is a network namespace"),
    };
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    let agent =
        ServerProcess::start_with(host.kelvin(), &["--listen", NamespaceHost::FAR_ADDRESS, "--token-file", &token]);
    let (status, run, message) = measured_run(&["--peer", NamespaceHost::FAR_ADDRESS, "--token-file", &token]);
    assert_eq!(status, Some(0), "{message}");
    // What the shaper lets through is headers as well: 1448 of 1514 bytes are payload.
    let rate = result(&run, "net.peer.bandwidth", "")["outcome"]["measured"]["headline"].as_f64().unwrap() * 8.0;
    // A busy machine lets less through; and one that reads the clock late counts what the shaper saved up meanwhile.
    let max_rate = 125e6;
    assert!((0.0..max_rate).contains(&rate), "{rate}");
    let findings = run["analysis"]["findings"].to_string();
    assert!(findings.contains("Network to the other host: 1 TCP stream to the agent carries "), "{findings}");
    // A pair of virtual interfaces claims 10 Gbit/s, and has no line.
    let reason = result(&run, "net.peer.bandwidth", "")["no_prediction_reason"].to_string();
    assert!(
        reason.contains(&format!("packets to the agent leave by {}", host.near_interface))
            && reason.contains("has no device"),
        "{reason}"
    );
    assert_invalid_on_slower_line(run.clone(), directory.path());
    let headline = |metric: &str| result(&run, metric, "")["outcome"]["measured"]["headline"].as_f64().unwrap();
    for metric in ["net.peer.ping", "net.peer.connect", "net.peer.loaded", "net.peer.bandwidth.busy_there"] {
        assert!(headline(metric) > 0.0, "{metric}");
    }
    let notes = result(&run, "net.peer.loaded", "")["outcome"]["measured"]["notes"].to_string();
    assert!(notes.contains("the stream carried") && notes.contains("congestion control"), "{notes}");
    let notes = result(&run, "net.peer.bandwidth", "")["outcome"]["measured"]["notes"].to_string();
    for words in ["congestion control", "driver veth", "MTU 1500", "at the agent its busiest thread took"] {
        assert!(notes.contains(words), "{words:?} is not in {notes}");
    }
    // As fast as possible no more arrives than the link carries, and of what is offered no more than that.
    for (metric, limit) in [("net.peer.bandwidth.udp", max_rate), ("net.peer.offered", 12.5e6)] {
        let arrived = headline(metric) * 8.0;
        assert!((0.0..limit).contains(&arrived), "{metric}: {arrived}");
        let loss = result(&run, &format!("{metric}.lost"), "")["outcome"].clone();
        assert!(loss["measured"].is_object(), "{metric}: {loss}");
    }
    for word in ["tcp", "udp"] {
        let round_trip = result(&run, "net.peer.rtt", word);
        let has_one_cpu = round_trip["no_prediction_reason"].to_string().contains("needs two CPUs");
        let predicted = round_trip["prediction"].is_object() || has_one_cpu;
        assert!(round_trip["outcome"]["measured"].is_object() && predicted, "{round_trip}");
    }
    // Only what is named of what needs the agent.
    let arguments = ["run", "net.peer.connect", "--peer", NamespaceHost::FAR_ADDRESS, "--token-file", &token];
    let options = ["--quick", "--budget", "minimum", "--rounds", "2", "--no-store", "--json"];
    let output = Command::new(KELVIN).args([&arguments[..], &options].concat()).stdin(Stdio::null()).output().unwrap();
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = run["analysis"]["results"].as_array().unwrap().iter().filter(|result| result["only_input"] == false);
    let probes: Vec<_> = results.map(|result| &result["probe"]).collect();
    assert!(!probes.is_empty() && probes.iter().all(|probe| **probe == "net.peer.connect"), "{probes:?}");
    assert_eq!(agent.end("-TERM").0, Some(0));
    let (status, _, message) = measured_run(&["--peer", NamespaceHost::FAR_ADDRESS, "--token-file", &token]);
    assert_eq!((status, message.lines().count()), (Some(2), 1), "{message}");
    assert!(message.contains("--peer 198.18.77.2: cannot connect to the agent"), "{message}");
}

#[test]
#[allow(clippy::print_stderr)]
fn link_local_addresses_keep_their_zone() {
    let host = match NamespaceHost::link_local_only() {
        Ok(host) => host,
        Err(missing) => return missing.report_skip("an agent on the same link, by addresses of the link alone"),
    };
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    let agent_address = format!("{}%{}", NamespaceHost::FAR_LINK_LOCAL, host.far_interface);
    let agent = ServerProcess::start_with(host.kelvin(), &["--listen", &agent_address, "--token-file", &token]);
    assert_eq!(agent.address, format!("[{agent_address}]:27315"));
    let number = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", host.near_interface)).unwrap();
    // By name, and by number; over TCP in both directions, by datagrams, and by connections one after the other.
    for (zone, metrics) in [
        (host.near_interface.as_str(), &["net.peer.connect", "net.peer.rtt", "net.peer.bandwidth"][..]),
        (number.trim(), &["net.peer.offered", "net.peer.crr"]),
    ] {
        let peer = format!("{}%{zone}", NamespaceHost::FAR_LINK_LOCAL);
        let options =
            ["--quick", "--budget", "minimum", "--rounds", "2", "--no-store", "--json", "--token-file", &token];
        let output =
            Command::new(KELVIN).arg("run").args(metrics).args(options).args(["--peer", &peer]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{message}");
        let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(run["run"]["network_path"]["interface"]["known"]["value"], host.near_interface.as_str());
        for metric in metrics {
            let outcome = &result(&run, metric, "")["outcome"];
            assert!(outcome["measured"].is_object(), "{metric}: {outcome}");
        }
    }
    let refusal = measured_run(&["--peer", NamespaceHost::FAR_LINK_LOCAL, "--token-file", &token]);
    assert!(refusal.0 == Some(2) && refusal.2.contains("write fe80::4b:2%INTERFACE"), "{}", refusal.2);
    // The log has the client's address as it can be written there.
    let (_, log) = agent.end("-TERM");
    assert!(log.contains(&format!("kelvin: [{}%{}]:", NamespaceHost::NEAR_LINK_LOCAL, host.far_interface)), "{log}");
}

#[test]
fn agent_errors_precede_measurement() {
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    let agent = ServerProcess::start(&["--listen", "127.0.0.1:0", "--token-file", &token]);
    let expect_refusal = |arguments: &[&str], words: &str| {
        let (status, _, message) = measured_run(arguments);
        assert_eq!((status, message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains(words), "{message}");
    };
    expect_refusal(&["--peer", &agent.address], "the agent requires a secret: give its file by --token-file");
    expect_refusal(&["--peer", &agent.address, "--token-file", "/none"], "--token-file: /none: No such file");
    expect_refusal(&["--peer", "no such host"], "--peer no such host: ");
    expect_refusal(&["--peer", "127.0.0.1:port"], "give HOST or HOST:PORT");
    expect_refusal(&["--token-file", &token], "--peer");
    // This host's kernel has it, and an agent has its own limits.
    let token_file = ["--peer", &agent.address, "--token-file", &token, "--socket-buffers", "1G"];
    expect_refusal(&token_file, "the agent refused: a socket's buffer may have at most 65536 KiB");
    let wrong_token_path = directory.path().join("other");
    std::fs::write(&wrong_token_path, "another secret, which is as long").unwrap();
    std::fs::set_permissions(&wrong_token_path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let wrong_token = wrong_token_path.to_str().unwrap();
    expect_refusal(
        &["--peer", &agent.address, "--token-file", wrong_token],
        "the secret differs from the other side's",
    );
}

/// What `kelvin net` prints with these options, and its status.
fn net(options: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(KELVIN);
    command.arg("net").args(options).args((!options.contains(&"-t")).then_some("-t=200ms")).env("LC_ALL", "C.UTF-8");
    let output = command.output().unwrap();
    let [text, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), text, error)
}

#[test]
fn throughput_is_measured_with_an_agent() {
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    let agent = ServerProcess::start(&["--listen", "127.0.0.1:0", "--token-file", &token]);
    let host = [agent.address.as_str(), "--token-file", &token];
    let (status, text, error) = net(&[&host[..], &["--bidir", "-P", "2", "-i", "100ms", "-O", "100ms", "-J"]].concat());
    assert_eq!(status, Some(0), "{error}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let intervals = report["intervals"].as_array().unwrap();
    assert_eq!(intervals.len(), 3, "{report}");
    assert_eq!((&intervals[0]["warm_up"], &intervals[1]["warm_up"]), (&true.into(), &false.into()));
    let directions = report["directions"].as_array().unwrap();
    assert_eq!(directions.len(), 2);
    for direction in directions {
        assert_eq!(direction["whole"]["ends_agree"], true);
        assert_eq!(direction["whole"]["bytes_sent"], direction["whole"]["bytes_received"]);
        let streams = direction["stream_bytes"].as_array().unwrap();
        let bytes: u64 = streams.iter().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert!(streams.len() == 2 && Some(bytes) == direction["bytes"].as_u64() && bytes > 0, "{direction}");
    }
    // The same in words, with a line of each interval.
    let (status, text, _) = net(&[&host[..], &["-R", "-i", "100ms"]].concat());
    assert_eq!(status, Some(0), "{text}");
    let starts = ["TCP from 127.0.0.1:", "0-0.1 s ", "0.1-0.2 s ", "rate ", "verified ", "TCP ", "CPU ", "limit "];
    for start in starts {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    let (status, _, error) = net(&["127.0.0.1:1", "--token-file", &token]);
    assert!(status == Some(2) && error.starts_with("kelvin: 127.0.0.1:1: ") && error.lines().count() == 1, "{error}");
    let (_, log) = agent.end("-INT");
    assert!(log.contains("tests TCP: 2 streams in, 2 out, 131072 B, 1 s"), "{log}");
}

/// A link that lets 100 Mbit/s through is found to be the limit, of a connection and of more datagrams than it carries.
#[test]
fn shaped_link_is_the_limit_of_throughput() {
    let host = match NamespaceHost::with_rate("100mbit") {
        Ok(host) => host,
        Err(missing) => return missing.report_skip("a link to another host, which is a network namespace"),
    };
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path(), "a secret of sixteen bytes, or more");
    let far = [NamespaceHost::FAR_ADDRESS, "--token-file", &token];
    let _agent = ServerProcess::start_with(host.kelvin(), &["--listen", far[0], far[1], far[2]]);
    for options in [&["-t", "600ms"][..], &["-u", "-b", "200M", "-l", "1400"]] {
        let (status, text, error) = net(&[&far[..], options, &["-J"]].concat());
        assert_eq!(status, Some(0), "{error}");
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let direction = &report["directions"][0];
        let rate = direction["bits_per_second"].as_f64().unwrap();
        assert!((1.0..125e6).contains(&rate), "{rate}");
        assert_eq!(direction["limit"]["name"], "network", "{direction}");
        let lost = direction["whole"]["datagrams"]["lost"].as_u64();
        assert!(lost.is_none_or(|lost| lost > 0), "{direction}");
    }
}

#[test]
fn datagrams_over_loopback_need_no_agent() {
    let (status, text, error) = net(&["-u", "-b", "8M", "-l", "1000", "--json"]);
    assert_eq!(status, Some(0), "{error}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let datagrams = &report["directions"][0]["whole"]["datagrams"];
    let [sent, arrived, lost] = ["sent", "arrived", "lost"].map(|name| datagrams[name].as_u64().unwrap());
    assert!(sent >= 50 && sent == arrived + lost, "{datagrams}");
    assert!(datagrams["jitter"].as_f64().unwrap() > 0.0, "{datagrams}");
    assert!(report["agent"].is_null() && report["options"]["message"] == 1000, "{report}");
}

#[test]
fn interrupted_throughput_has_its_figures() {
    let mut command = Command::new(KELVIN);
    command.args(["net", "-t", "60", "-i", "100ms"]).env("LC_ALL", "C.UTF-8");
    let mut test = ServerProcess::spawn(command, Stdio::piped());
    // The title, an empty line, the head, and an interval.
    let lines = [(); 3].map(|()| test.line());
    assert!(lines[2].starts_with("0-0.1 s "), "{lines:?}");
    assert!(Command::new("kill").args(["-INT", &test.child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    test.child.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(test.child.wait().unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("verified") && rest.contains("interrupted: the figures are those until then"), "{rest}");
}
