//! `kelvin fleet report`: runs of many hosts, from stores and files to every format, and what it refuses.

mod test_dir;

use std::fs;
use std::process::Output;
use std::sync::LazyLock;

use kelvin_core::{Case, Fact, Name, Run, RunHeader, RunStatus, StoredHeadline};
use kelvin_stats::Random;
use kelvin_store::{Store, labels};
use kelvin_testing::stored_run;
use serde_json::{Value, json};
use test_dir::{KELVIN, TestDir, assert_refused, stderr, stdout};

const HOSTS: usize = 12;
const RUNS: usize = 3;
/// The host with a slow metric, and the one with another governor.
const SLOW_HOST: usize = 5;
const SLOW_METRIC: &str = "os.process.fork";
const GOVERNED_HOST: usize = 9;

fn run(dir: &TestDir, arguments: &[&str]) -> Output {
    let mut command = dir.command(KELVIN, &[&["fleet", "report"], arguments].concat());
    command.args(["--store", "runs.sqlite"]).env("LC_ALL", "C.UTF-8").output().unwrap()
}

#[track_caller]
fn stdout_of(dir: &TestDir, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

fn run_header(host: usize, number: usize) -> RunHeader {
    static STORED_HEADER: LazyLock<RunHeader> =
        LazyLock::new(|| kelvin_store::import(stored_run("intel-guest-1").as_bytes()).unwrap().header);
    let mut header = STORED_HEADER.clone();
    header.id = format!("h{host:02}-{number}");
    header.started = format!("2026-10-{:02}T10:{host:02}:00Z", 1 + number);
    // Another kernel gives a host another identity, and it is the same host.
    header.machine.identity = format!("{host:02}-{}", number / 2);
    header.machine.platform.host = Fact::known(format!("{host:08x}{:024}", 0), "a test");
    let governor = if host == GOVERNED_HOST { "powersave" } else { "performance" };
    header.machine.cpu.governor = Fact::known(governor.into(), "a test");
    header.settings.mode = Name::new("default");
    header.plan.clear();
    header.spread_history.clear();
    header.bounds.clear();
    header
}

/// A store of alike hosts of 1 % spread but for two, each with a tag.
fn fleet() -> TestDir {
    let dir = TestDir::new();
    let store = Store::open(dir.path().join("runs.sqlite")).unwrap();
    let mut random = Random::new(7);
    for host in 0..HOSTS {
        for number in 0..RUNS {
            let header = run_header(host, number);
            let mut run = Run::from_header(header);
            run.status = RunStatus::Complete;
            let rack = if host < 4 { "a" } else { "b" };
            let tags = [format!("node=n{host}"), format!("rack={rack}"), "fleet=x".into()];
            run.labels = labels(&tags.map(|tag| tag.parse().unwrap()), None);
            store.insert(&run).unwrap();
            let headlines: Vec<StoredHeadline> = run
                .header
                .metrics
                .iter()
                .map(|metric| {
                    let factor = if host == SLOW_HOST && metric.id == *SLOW_METRIC { 1.4 } else { 1.0 };
                    let value = 100.0 * factor * (0.01 * random.normal()).exp();
                    let (case, within_variance) = (Case::new(), 0.25);
                    StoredHeadline { metric: metric.id, version: metric.version, case, value, within_variance }
                })
                .collect();
            store.record_headlines(&run.header.id, &headlines).unwrap();
        }
    }
    dir
}

#[test]
fn odd_hosts_are_named_in_every_format() {
    let dir = fleet();
    let screen = stdout_of(&dir, &["tag:fleet=x"]);
    assert!(screen.starts_with("12 hosts with 36 runs in mode default\n2 hosts are out of 12:\n"), "{screen}");
    assert!(screen.contains("n5: os.process.fork 40 % above its 11 peers, and nothing else"), "{screen}");
    assert!(screen.contains("n9: frequency governor powersave, its 11 peers have performance"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let report: Value = serde_json::from_str(&stdout_of(&dir, &["--json", "--html", "fleet.html"])).unwrap();
    let named: Vec<&str> = report["groups"][0]["outliers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| host["label"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["n5", "n9"]);
    assert_eq!(report["groups"][0]["runs_of_host"], json!([3, 3, 3]));
    let page = fs::read_to_string(dir.path().join("fleet.html")).unwrap();
    let cell = page.split("host n5 metric os.process.fork: ").nth(1).unwrap();
    assert!((38.0..42.0).contains(&cell.split('<').next().unwrap().parse::<f64>().unwrap()), "{cell:.40}");
    for (format, part) in [
        ("md", "- n5: os.process.fork"),
        ("csv", ",n5\r\n"),
        ("junit", "failures=\"2\""),
        ("openmetrics", "host=\"n5\"} 1.0\n"),
        ("html", "<h1>Fleet</h1>"),
    ] {
        let text = stdout_of(&dir, &["--format", format]);
        assert!(text.contains(part), "{format}: {text:.2000}");
    }
    assert_eq!(run(&dir, &["--fail-on", "outlier"]).status.code(), Some(1));
    assert_eq!(run(&dir, &["--fail-on", "outlier", "--by", "rack", "tag:rack=a"]).status.code(), Some(0));
}

#[test]
fn hosts_are_accepted_against_others() {
    let dir = fleet();
    let store = Store::open(dir.path().join("runs.sqlite")).unwrap();
    for host in [0, 1, 2, 3, 4, 6, 7] {
        for number in 0..RUNS {
            store.update_tags(&format!("h{host:02}-{number}"), &["golden=yes".parse().unwrap()], &[]).unwrap();
        }
    }
    let output = run(&dir, &["tag:rack=b", "--like", "tag:golden=yes", "--fail-on", "outlier"]);
    let screen = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(screen.contains("FAIL n5: os.process.fork 40 % above its 7 peers"), "{screen}");
    assert!(screen.contains("FAIL n9: frequency governor powersave, its 7 peers have performance"), "{screen}");
    assert!(screen.contains("  pass n8\n  pass n10\n  pass n11\n"), "{screen}");
    assert!(!screen.contains(" n4\n"), "a reference host is not accepted: {screen}");
}

#[test]
fn directory_of_run_files_is_a_fleet() {
    let dir = TestDir::new();
    let results = dir.path().join("results");
    fs::create_dir(&results).unwrap();
    let mut run_file: Value = serde_json::from_str(include_str!("../../store/tests/format-1.json")).unwrap();
    for host in 0..4 {
        run_file["id"] = format!("run-{host}").into();
        run_file["machine"]["identity"] = format!("{host:032x}").into();
        if host > 0 {
            run_file["machine"]["platform"]["host"] =
                json!({"known": {"value": format!("{host:032x}"), "source": "a test"}});
        }
        fs::write(results.join(format!("{host}.json")), run_file.to_string()).unwrap();
    }
    let screen = stdout_of(&dir, &["results"]);
    assert!(screen.starts_with("4 hosts with 4 runs in mode "), "{screen}");
    assert!(screen.contains("No host is out of 4.") && screen.contains("1 host has no host id"), "{screen}");
    let three: Vec<String> = (0..3).map(|host| format!("results/{host}.json")).collect();
    let screen = stdout_of(&dir, &three.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(screen.contains("not compared, 3 hosts alike, at least 4 are needed"), "{screen}");
    assert!(!dir.path().join("runs.sqlite").exists(), "no store was asked for");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("empty")).unwrap();
    fs::write(dir.path().join("text.json"), "{}").unwrap();
    for (arguments, part) in [
        (&[][..], "there is no store yet"),
        (&["empty"], "empty: the directory has no run file"),
        (&["text.json"], "text.json: "),
        (&["tag:x"], "a tag is NAME=VALUE"),
        (&["--threshold", "0"], "--threshold"),
        (&["--fail-on", "worse"], "--fail-on"),
        (&["--full", "--json"], "--full"),
        (&["--by", "A B"], "--by"),
    ] {
        assert_refused(&run(&dir, arguments), &[part]);
    }
    let dir = fleet();
    for (arguments, part) in [
        (&["tag:fleet=y"][..], "tag:fleet=y: no complete run with this tag"),
        (&["--mode", "quick"], "--mode: no run is in mode quick; there are default"),
        (&["--by", "row"], "--by row: no run has this tag"),
        (&["nothing"], "nothing"),
        (&["h00-0..nothing"], "nothing"),
    ] {
        assert_refused(&run(&dir, arguments), &[part]);
    }
}
