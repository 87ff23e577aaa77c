//! `kelvin history`: stored headlines of many runs, from the store to every format, and what it refuses.

mod test_dir;

use std::fs;
use std::process::Output;
use std::sync::LazyLock;

use kelvin_core::{Case, Fact, Metric, Name, Run, RunHeader, RunStatus, StoredHeadline};
use kelvin_store::Store;
use kelvin_testing::stored_run;
use serde_json::Value;
use test_dir::{KELVIN, TestDir, assert_refused, stderr, stdout};

/// A metric of the run that is kept for ever, and another one.
const SLOWER_METRIC: &str = "os.syscall.null";
const STEADY_METRIC: &str = "os.process.fork";
/// Runs of a history, and the first of them that is slower, with a newer kernel.
const RUNS: usize = 14;
const FIRST_SLOWER: usize = 9;

fn run(dir: &TestDir, arguments: &[&str]) -> Output {
    let mut command = dir.command(KELVIN, &[&["history"], arguments].concat());
    command.args(["--store", "runs.sqlite"]).env("LC_ALL", "C.UTF-8").output().unwrap()
}

fn stdout_of(dir: &TestDir, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

fn history(dir: &TestDir, arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout_of(dir, &[arguments, &["--json"]].concat())).unwrap()
}

/// The outline of a run of a machine that no test runs on, with nothing planned.
fn run_header(number: usize, identity: &str) -> RunHeader {
    static STORED_HEADER: LazyLock<RunHeader> =
        LazyLock::new(|| kelvin_store::import(stored_run("intel-guest-1").as_bytes()).unwrap().header);
    let mut outline = STORED_HEADER.clone();
    outline.id = format!("{identity}-{number:03}");
    outline.started = format!("2026-10-{:02}T10:00:00Z", 1 + number);
    outline.machine.identity = identity.into();
    // Of the same processor as the host, its runs would be taken for runs of this host.
    outline.machine.cpu.stepping = Fact::known(99, "a test");
    outline.settings.mode = Name::new("default");
    outline.plan.clear();
    outline.spread_history.clear();
    outline.bounds.clear();
    outline
}

/// A spread of 1 %, the same in each test: what lies outside of it is no coincidence.
fn spread(number: usize) -> f64 {
    1.0 + 0.005 * [0.3, -1.2, 0.9, -0.4, 1.4, -0.8, 0.1, 0.6, -1.6, 1.1, -0.2, 0.7, -0.9, 0.4][number % 14]
}

fn store_run(store: &Store, outline: RunHeader, values: &[(&str, f64)]) {
    let metric = |id: &str| *outline.metrics.iter().find(|metric| metric.id == *id).unwrap();
    let headline = |&(id, value): &(&str, f64)| {
        let Metric { id, version, .. } = metric(id);
        StoredHeadline { metric: id, version, case: Case::new(), value, within_variance: 0.0 }
    };
    let headlines: Vec<StoredHeadline> = values.iter().map(headline).collect();
    let mut run = Run::from_header(outline);
    run.status = RunStatus::Complete;
    store.insert(&run).unwrap();
    store.record_headlines(&run.header.id, &headlines).unwrap();
}

/// This many runs of one machine: from one on, system calls take two fifths more, and the kernel is another one.
fn filled_store(dir: &TestDir, runs: usize) -> Store {
    let store = Store::open(dir.path().join("runs.sqlite")).unwrap();
    for number in 0..runs {
        let mut outline = run_header(number, if number < FIRST_SLOWER { "aaaa1" } else { "bbbb2" });
        let is_slower = number >= FIRST_SLOWER;
        outline.machine.kernel.release = Fact::known(if is_slower { "6.99.1" } else { "6.18.5" }.into(), "uname");
        let slower = if is_slower { 140.0 } else { 100.0 };
        store_run(
            &store,
            outline,
            &[(SLOWER_METRIC, slower * spread(number)), (STEADY_METRIC, 5e5 * spread(number + 5))],
        );
    }
    store
}

#[test]
fn step_is_reported_with_changed_facts() {
    let dir = TestDir::new();
    filled_store(&dir, RUNS);
    let screen = stdout_of(&dir, &["--all", "--machine", "aaaa"]);
    assert!(screen.lines().count() <= 60 && screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let text = screen.split_whitespace().collect::<Vec<&str>>().join(" ");
    for words in
        ["Last changed for the worse", "worse from 2026-10-10 on", "Kernel, Release: 6.18.5 -> 6.99.1", "No change"]
    {
        assert!(text.contains(words), "no {words:?} in {screen}");
    }
    let history = history(&dir, &["os", "--machine", "bbbb2"]);
    assert_eq!((&history["history_format"], history["runs"].as_array().unwrap().len()), (&1.into(), RUNS));
    let [slower, steady] = [0, 1].map(|index| &history["series"][index]);
    assert_eq!((&slower["metric"]["id"], &steady["metric"]["id"]), (&SLOWER_METRIC.into(), &STEADY_METRIC.into()));
    let changes = slower["versions"][0]["changes"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["run"], &changes[0]["kind"]), (1, &FIRST_SLOWER.into(), &"step".into()));
    assert_eq!(changes[0]["runs"], serde_json::json!([FIRST_SLOWER - 1, FIRST_SLOWER]));
    assert!(steady["versions"][0]["changes"].as_array().unwrap().is_empty(), "{steady}");
    // Only what is named.
    assert!(!stdout_of(&dir, &[STEADY_METRIC, "--machine", "aaaa"]).contains(SLOWER_METRIC));
}

#[test]
fn step_is_in_every_format() {
    let dir = TestDir::new();
    filled_store(&dir, RUNS);
    for (format, words) in [("md", "#### Last changed for the worse"), ("html", "<svg class=\"drawing\"")] {
        let text = stdout_of(&dir, &["--all", "--machine", "aaaa", "--format", format]);
        assert!(text.contains(words) && text.contains("6.99.1"), "{format}: {text}");
    }
    let output = stdout_of(&dir, &["--all", "--machine", "aaaa", "--format", "html", "-o", "history.html"]);
    assert!(output.is_empty() && fs::read_to_string(dir.path().join("history.html")).unwrap().contains("</html>"));
    let mut ascii = dir.command(KELVIN, &["history", "--all", "--machine", "aaaa", "--store", "runs.sqlite"]);
    assert!(ascii.env("LC_ALL", "C").output().unwrap().stdout.is_ascii());
    let recent_history = history(&dir, &["--all", "--machine", "aaaa", "--since", "2026-10-12"]);
    assert_eq!((recent_history["runs"].as_array().unwrap().len(), &recent_history["has_older"]), (3, &true.into()));
    let limit = history(&dir, &["--all", "--machine", "aaaa", "--limit", "5"]);
    assert_eq!((limit["runs"].as_array().unwrap().len(), &limit["has_older"]), (5, &true.into()));
}

#[test]
fn alert_is_given_once_per_change() {
    let dir = TestDir::new();
    let alert =
        |dir: &TestDir, options: &[&str]| run(dir, &[&["--all", "--machine", "aaaa", "--alert"], options].concat());
    let mut alerts = Vec::new();
    for runs in FIRST_SLOWER..=RUNS {
        // From nothing each time: runs are never changed.
        let dir = TestDir::new();
        filled_store(&dir, runs);
        let output = alert(&dir, &[]);
        match output.status.code() {
            Some(0) => assert!(stdout(&output).is_empty() && stderr(&output).is_empty()),
            Some(1) => {
                assert!(
                    stdout(&output).contains(SLOWER_METRIC) && !stdout(&output).contains(STEADY_METRIC),
                    "{}",
                    stdout(&output)
                );
                alerts.push(runs);
            }
            code => panic!("{code:?} {}", stderr(&output)),
        }
    }
    assert_eq!(alerts, [FIRST_SLOWER + 3], "with the third run that is slower");
    filled_store(&dir, RUNS);
    assert_eq!(alert(&dir, &["--since", "2026-10-10"]).status.code(), Some(1));
    assert_eq!(alert(&dir, &["60", "--since", "2026-10-10"]).status.code(), Some(2), "50 % at most");
    assert_eq!(alert(&dir, &["45", "--since", "2026-10-10"]).status.code(), Some(0));
}

#[test]
fn rank_needs_five_machines() {
    let dir = TestDir::new();
    let store = filled_store(&dir, RUNS);
    for (machine, value) in [90.0, 110.0, 120.0].into_iter().enumerate() {
        let mut outline = run_header(machine, &format!("other{machine}"));
        outline.machine.cpu.stepping = Fact::known(100 + machine as u64 as u32, "a test");
        store_run(&store, outline, &[(SLOWER_METRIC, value)]);
    }
    assert!(history(&dir, &[SLOWER_METRIC, "--machine", "aaaa"])["series"][0]["ranking"].is_null());
    let mut fifth = run_header(9, "other9");
    fifth.machine.cpu.stepping = Fact::known(200, "a test");
    store_run(&store, fifth, &[(SLOWER_METRIC, 300.0)]);
    let ranking = &history(&dir, &[SLOWER_METRIC, "--machine", "aaaa"])["series"][0]["ranking"];
    assert_eq!((&ranking["machines"], &ranking["better"]), (&5.into(), &0.75.into()));
    assert!(stdout_of(&dir, &[SLOWER_METRIC, "--machine", "aaaa"]).contains("of 4 other machines 75 % are better"));
}

#[test]
fn unknown_history_names_are_refused() {
    let dir = TestDir::new();
    let expect_refusal = |arguments: &[&str], words: &[&str]| assert_refused(&run(&dir, arguments), words);
    expect_refusal(&["--all"], &["no store"]);
    drop(Store::open(dir.path().join("runs.sqlite")).unwrap());
    expect_refusal(&["--all"], &["no complete run"]);
    filled_store(&dir, 3);
    expect_refusal(&[], &["--all"]);
    expect_refusal(&["os.syscal.null", "--machine", "aaaa"], &["os.syscal.null", "did you mean os.syscall.null"]);
    expect_refusal(&["net", "--machine", "aaaa"], &["net"]);
    expect_refusal(&["--all"], &["--machine", "aaaa1"]);
    expect_refusal(&["--all", "--machine", "cccc"], &["--machine", "cccc"]);
    expect_refusal(&["--all", "--machine", ""], &["--machine"]);
    expect_refusal(&["--all", "--machine", "aaaa", "--mode", "quick"], &["--mode", "default"]);
    expect_refusal(&["--all", "--machine", "aaaa", "--since", "soon"], &["--since", "30d"]);
    expect_refusal(&["--all", "--machine", "aaaa", "--since", "2027-01-01"], &["--since", "2026-10-03"]);
    expect_refusal(&["--all", "--limit", "0"], &["--limit"]);
    expect_refusal(&["--all", "--alert", "-o", "file"], &["--alert"]);
    expect_refusal(&["--all", "--alert", "--format", "md"], &["--alert"]);
    expect_refusal(&["--all", "--full", "--json"], &["--full"]);
}
