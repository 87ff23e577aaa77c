//! What a run holds on whose machine it was made on: nothing, unless asked for.

mod test_dir;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Child;

use serde_json::{Value, json};
use test_dir::TestDir;

/// An agent on this host, ended when it is dropped.
struct AgentProcess {
    child: Child,
    port: String,
}

impl AgentProcess {
    fn start(dir: &TestDir) -> Self {
        let mut child = dir.start(&["agent", "--listen", "127.0.0.1:0"]);
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        let port = address.trim().rsplit(':').next().unwrap().to_owned();
        Self { child, port }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every output of the newest stored run, in every format.
fn all_outputs(dir: &TestDir, options: &[&str]) -> Vec<String> {
    let text_formats = ["terminal", "html", "md", "json", "csv", "samples"];
    let export_formats =
        ["openmetrics", "custom-smaller-is-better", "custom-bigger-is-better", "bencher", "benchstat", "influx"];
    let formats: Vec<Vec<&str>> =
        text_formats.into_iter().chain(export_formats).map(|format| vec!["report", "--format", format]).collect();
    let commands = [vec!["runs", "export"], vec!["runs", "show"], vec!["runs", "show", "--json", "--with-samples"]];
    formats.iter().chain(&commands).map(|arguments| dir.stdout_of(&[arguments, options].concat())).collect()
}

#[test]
fn run_hides_paths_and_hosts_by_default() {
    let dir = TestDir::new();
    let directory = dir.path().join("of-alice");
    fs::create_dir(&directory).unwrap();
    let directory = directory.to_str().unwrap();
    let run = ["run", "os.syscall.null", "--quick", "--budget", "1s", "--dir", directory, "-o", "report.html"];
    let secrets = ["of-alice", "localhost", dir.path().to_str().unwrap()];

    let printed_at_once = dir.stdout_of(&run);
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    for text in all_outputs(&dir, &["--with-private"]).iter().chain([&printed_at_once, &page]) {
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "it was never collected: {text:.3000}");
    }
    let agent = AgentProcess::start(&dir);
    let peer = format!("localhost:{}", agent.port);
    dir.stdout_of(&[&run[..], &["--peer", &peer, "--with-private"]].concat());
    for text in all_outputs(&dir, &[]) {
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text:.3000}");
    }
    let full_export = dir.stdout_of(&["runs", "export", "--with-private"]);
    assert!(secrets.iter().all(|secret| full_export.contains(secret)), "{full_export:.3000}");
}

/// A run that holds all of it.
#[test]
fn imported_run_is_redacted() {
    let dir = TestDir::new();
    let mut run: Value = serde_json::from_str(include_str!("../../store/tests/format-1.json")).unwrap();
    run["command"] = json!(["/home/alice/bin/kelvin", "run", "--peer", "lab7.example.org", "--dir=/srv/alice"]);
    run["machine"]["kernel"]["command_line"]["known"]["value"] =
        json!("BOOT_IMAGE=/vmlinuz root=UUID=1c2d-alice mitigations=off nohz_full=2-3 ip=192.0.2.7 quiet");
    run["machine"]["kernel"]["version"]["known"]["value"] = json!("Linux version 6.1 (alice@lab7.example.org) #1");
    run["machine"]["mounts"][0] = json!({
        "target": "/home/alice", "source": "nas.example.org:/alice", "kind": "nfs4",
        "options": "rw,vers=4.2,addr=192.0.2.8,username=alice",
    });
    run["machine"]["limits"]["cpu_quota"]["known"]["source"] =
        json!("/sys/fs/cgroup/user.slice/user-alice.slice/cpu.max");
    run["machine"]["nics"][0]["name"] = json!("enx001122aabbcc");
    run["hazards"][0]["source"] = json!("statvfs of /home/alice/x");
    run["measurements"][1]["rounds"][0]["outcome"]["failed"] = json!("cannot write /home/alice/x: it is full");
    run["measurements"][2]["skipped"] = json!("192.0.2.8:27315 does not answer");
    run["notes"][0] = json!("fio is /home/alice/bin/fio");
    run["predictions"][0]["prediction"]["derivation"] = json!("what enx001122aabbcc carries");
    fs::write(dir.path().join("old.json"), run.to_string()).unwrap();
    dir.stdout_of(&["runs", "import", "old.json"]);

    let secrets = ["alice", "lab7", "nas.example", "192.0.2.", "001122aabbcc", "1c2d"];
    for text in all_outputs(&dir, &[]).iter().chain([&dir.stdout_of(&[
        "report",
        "old.json",
        "--format",
        "json",
        "--with-samples",
    ])]) {
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} in {text:.5000}");
        }
    }
    let redacted: Value = serde_json::from_str(&dir.stdout_of(&["runs", "export"])).unwrap();
    let kernel = &redacted["machine"]["kernel"];
    assert_eq!(kernel["command_line"]["known"]["value"], "mitigations=off nohz_full=2-3");
    assert_eq!(kernel["omitted_boot_parameters"], 4);
    assert_eq!(redacted["command"], json!(["kelvin", "run", "--peer", "…", "--dir=…"]));
    assert_eq!(redacted["machine"]["mounts"][0]["options"], "rw,vers=4.2");
    let full_export: Value = serde_json::from_str(&dir.stdout_of(&["runs", "export", "--with-private"])).unwrap();
    for pointer in ["/command", "/machine/kernel", "/machine/mounts", "/hazards", "/measurements", "/notes", "/studies"]
    {
        assert_eq!(full_export.pointer(pointer), run.pointer(pointer), "nothing is lost in the store");
    }
    // What was exported is a run like any other, and nothing more is left out of it.
    fs::write(dir.path().join("told.json"), redacted.to_string()).unwrap();
    let reimported: Value =
        serde_json::from_str(&dir.stdout_of(&["report", "told.json", "--format", "json", "--with-samples"])).unwrap();
    assert_eq!(reimported["run"], redacted);
}

#[test]
fn machine_facts_are_redacted() {
    let dir = TestDir::new();
    let file = |name: &str, content: &str| {
        let path = dir.path().join("machine").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    file("proc/cmdline", "root=UUID=1c2d-33 nosmt quiet\n");
    file("proc/self/mountinfo", "36 35 98:0 / /home/alice rw,noatime - nfs4 nas:/alice rw,addr=192.0.2.8\n");
    file("sys/class/net/enx001122aabbcc/mtu", "1500\n");
    let secrets = ["1c2d", "alice", "nas", "192.0.2.8", "001122aabbcc"];
    for json in [&[][..], &["--json"]] {
        let redacted = dir.stdout_of(&[&["machine", "--root", "machine"], json].concat());
        assert!(!secrets.iter().any(|secret| redacted.contains(secret)), "{redacted}");
        assert!(redacted.contains("nosmt") && redacted.contains("noatime"), "{redacted}");
        let full_text = dir.stdout_of(&[&["machine", "--root", "machine", "--with-private"], json].concat());
        assert!(secrets.iter().all(|secret| full_text.contains(secret)), "{full_text}");
    }
}
