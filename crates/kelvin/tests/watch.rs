//! `kelvin watch`: turns of a real measurement, what they store, what is reported of them and how often, and how it ends.

mod test_dir;

use std::fs::{self, File};
use std::process::{Child, Command, Output};
use std::time::Duration;

use kelvin_core::catalogue::cpu::{BusyCpus, FREQUENCY};
use kelvin_core::{Case, Fact, Run, RunStatus, StoredHeadline};
use kelvin_store::{RunFilter, RunSummary, Store};
use kelvin_testing::MissingRequirement;
use serde_json::Value;
use test_dir::{HANG_TIMEOUT, KELVIN, TestDir, assert_refused, is_met_within, signal, stderr, stdout, wait_for_output};

/// What is cheap, and has a figure however busy the machine is; a share that pays for it soon, and an interval that holds it anywhere.
fn watch_args<'a>(options: &[&'a str]) -> Vec<&'a str> {
    watch_args_with_pace(["50", "10m"], options)
}

fn watch_args_with_pace<'a>([share, every]: [&'a str; 2], options: &[&'a str]) -> Vec<&'a str> {
    let pace_options = ["--cpu-share", share, "--every", every, "--budget", "minimum", "--store", "runs.sqlite"];
    [&["watch", FREQUENCY.id.as_str()], &pace_options[..], options].concat()
}

/// One turn, as soon as the CPU time of the last one is paid for.
fn run_one_cycle(dir: &TestDir) -> Output {
    run_one_cycle_with(dir, &[])
}

fn run_one_cycle_with(dir: &TestDir, options: &[&str]) -> Output {
    let options = [&["--once", "--tag", "rack=b7", "--openmetrics", "watch.prom"], options].concat();
    for _ in 0..600 {
        let output = dir.run(&watch_args(&options));
        if !stderr(&output).contains("no run:") {
            return output;
        }
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no run is ever covered");
}

fn store(dir: &TestDir) -> Store {
    Store::open(dir.path().join("runs.sqlite")).unwrap()
}

fn lines(dir: &TestDir) -> Vec<RunSummary> {
    store(dir).list(&RunFilter::default()).unwrap()
}

fn busy_case() -> Case {
    Case::new().with_word(BusyCpus::One.point())
}

/// Earlier runs like this one: until the last two of them the CPU was ten times as fast as it is now, and the kernel another one.
fn insert_step(store: &Store, template: &Run, frequency: f64) {
    for number in 0..14 {
        let mut outline = template.header.clone();
        outline.id = format!("earlier-{number:02}");
        outline.started = format!("2024-10-{:02}T10:00:00Z", 1 + number);
        outline.plan.clear();
        outline.spread_history.clear();
        outline.bounds.clear();
        let is_slower = number >= 12;
        outline.machine.kernel.release = Fact::known(if is_slower { "6.99.1" } else { "6.18.5" }.into(), "a test");
        let mut run = Run::from_header(outline);
        run.status = RunStatus::Complete;
        let spread = 1.0 + 0.01 * (f64::from(number * 5 % 7) - 3.0);
        let value = spread * frequency * if is_slower { 1.0 } else { 10.0 };
        store.insert(&run).unwrap();
        let (metric, version) = (FREQUENCY.id, FREQUENCY.version);
        let headline = StoredHeadline { metric, version, case: busy_case(), value, within_variance: 0.0 };
        store.record_headlines(&run.header.id, &[headline]).unwrap();
    }
}

/// The frequency that the last run has measured.
fn last_value(dir: &TestDir) -> f64 {
    let report = dir.run(&["report", "--store", "runs.sqlite", "--format", "json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let case = serde_json::to_value(busy_case()).unwrap();
    let is_frequency = |result: &&Value| result["metric"]["id"] == FREQUENCY.id.as_str() && result["case"] == case;
    let result = report["analysis"]["results"].as_array().unwrap().iter().find(is_frequency).unwrap();
    result["outcome"]["measured"]["headline"].as_f64().unwrap_or_else(|| panic!("{result}"))
}

#[test]
fn step_is_reported_once_with_changed_facts() {
    let dir = TestDir::new();
    let first = run_one_cycle(&dir);
    assert_eq!((first.status.code(), stdout(&first)), (Some(0), ""), "{}", stderr(&first));
    let runs = lines(&dir);
    assert_eq!((runs.len(), runs[0].mode.as_str()), (1, "watch"));
    assert_eq!(runs[0].labels.tags.get("rack").map(String::as_str), Some("b7"));
    insert_step(&store(&dir), &store(&dir).load(&runs[0].id).unwrap(), last_value(&dir));
    // The slower ones are four with this one, the last two real.
    let second = run_one_cycle(&dir);
    let metrics = fs::read_to_string(dir.path().join("watch.prom")).unwrap();
    for line in [
        "kelvin_watch_interval_seconds 600.0\n",
        "kelvin_watch_regressions 1.0\n",
        "kelvin_watch_regression_ratio{metric=\"cpu.frequency\",case=\"load=one\",load=\"one\"} 0.",
        "kelvin_cpu_frequency_hertz{metric=\"cpu.frequency\",case=\"load=one\",load=\"one\"} ",
    ] {
        assert!(metrics.contains(line), "no {line:?} in {metrics}");
    }
    assert_eq!(second.status.code(), Some(1), "{}{}", stdout(&second), stderr(&second));
    let text = stdout(&second);
    assert_eq!(text.lines().count(), 1, "{text}");
    let words =
        ["cpu.frequency load=one: ", " -> ", "worse by a factor of", "run earlier-12", "p < 0.001", "6.18.5 -> 6.99.1"];
    for words in words {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let third = run_one_cycle(&dir);
    assert_eq!((third.status.code(), stdout(&third)), (Some(0), ""), "{}", stderr(&third));
    assert!(lines(&dir).iter().all(|line| line.mode == "watch"));
    // As if it had not been reported yet.
    let file = dir.path().join("runs.sqlite-watch.json");
    let mut state: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    (state["reported"], state["last_cycle"]) = (Value::Array(Vec::new()), Value::Null);
    fs::write(&file, state.to_string()).unwrap();
    let again = run_one_cycle_with(&dir, &["--json"]);
    let line: Value = serde_json::from_str(stdout(&again)).unwrap_or_else(|error| panic!("{error}: {again:?}"));
    assert_eq!((line["metric"].as_str(), line["run"].as_str()), (Some("cpu.frequency"), Some("earlier-12")));
    assert_eq!((line["unit"].as_str(), &line["case"]["load"]), (Some("hertz"), &Value::from("one")));
    assert!(line["worse_by"].as_f64().unwrap() > 0.8 && line["p_value"].as_f64().unwrap() < 0.001, "{line}");
    assert_eq!(line["differences"][0]["other"], "6.99.1", "{line}");
}

/// A watch that goes on, and its standard error.
struct WatchProcess<'p> {
    child: Option<Child>,
    dir: &'p TestDir,
}

impl<'p> WatchProcess<'p> {
    fn start(dir: &'p TestDir, arguments: &[&str]) -> Self {
        let log = File::create(dir.path().join("said")).unwrap();
        let child = dir.command(KELVIN, arguments).stderr(log).spawn().unwrap();
        Self { child: Some(child), dir }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.dir.path().join("said")).unwrap()
    }

    #[track_caller]
    fn wait_until(&self, condition: impl Fn() -> bool) {
        assert!(is_met_within(HANG_TIMEOUT, condition), "{}", self.stderr());
    }

    fn stop_with(mut self, name: &str) -> Output {
        let child = self.child.take().unwrap();
        signal(&child, name);
        wait_for_output(child, &["watch"])
    }
}

impl Drop for WatchProcess<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn only_one_watch_runs_until_signal() {
    let dir = TestDir::new();
    let watch = WatchProcess::start(&dir, &watch_args(&[]));
    watch.wait_until(|| watch.stderr().contains("the next run is in"));
    let message = watch.stderr();
    assert!(
        message
            .contains("watching cpu.frequency, every 10 min 0 s within 50 % of one CPU: 5 min 0 s of CPU time a run"),
        "{message}"
    );
    assert!(
        message.contains("kelvin: that took ") && message.contains(" of CPU time, of 5 min 0 s; the next run is in "),
        "{message}"
    );
    assert_refused(&dir.run(&watch_args(&["--once"])), &["another `kelvin watch`", "runs.sqlite"]);
    let output = watch.stop_with("INT");
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
    assert_eq!(lines(&dir).len(), 1);
    // One that begins again waits until its share has paid for the last turn: a minute or longer with this one.
    let restarted = WatchProcess::start(&dir, &watch_args_with_pace(["0.1", "100h"], &[]));
    restarted.wait_until(|| restarted.stderr().contains("the first run is in"));
    assert_eq!(restarted.stop_with("TERM").status.code(), Some(0));
    assert_eq!(lines(&dir).len(), 1);
}

#[test]
fn interrupted_cycle_is_stored_as_partial() {
    for options in [&[][..], &["--once"]] {
        let dir = TestDir::new();
        let watch = WatchProcess::start(&dir, &watch_args(&[&["--rounds", "1000"], options].concat()));
        watch.wait_until(|| {
            dir.path().join("runs.sqlite").exists() && lines(&dir).iter().any(|line| line.measured_rounds > 0)
        });
        let output = watch.stop_with("TERM");
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
        let runs = lines(&dir);
        assert!(matches!(runs[..], [RunSummary { status: Some(RunStatus::Partial(_)), .. }]), "{runs:?}");
        let names = dir.names();
        assert!(names.iter().all(|name| name.starts_with("runs.sqlite") || name == "said"), "{names:?}");
    }
}

#[test]
fn too_short_interval_is_refused_with_minimum() {
    let dir = TestDir::new();
    let expect_refusal = |arguments: &[&str], words: &[&str]| {
        let output = dir.run(&[&["watch", "--store", "runs.sqlite"], arguments].concat());
        assert_refused(&output, words);
    };
    expect_refusal(
        &["--once", "--every", "10s"],
        &["--every 10s: the minimum of rounds takes", "give --every ", "--cpu-share"],
    );
    expect_refusal(
        &["os.syscall.null", "--every", "1h", "--budget", "2m"],
        &["--budget 2 min 0 s", "give --every 200m"],
    );
    expect_refusal(&["os.syscal.null"], &["os.syscal.null", "did you mean os.syscall.null"]);
    expect_refusal(&["--cpu", "99999"], &["--cpu 99999"]);
    expect_refusal(&["--every", "soon"], &["--every", "45s, 10m or 2h"]);
    expect_refusal(&["--cpu-share", "60%"], &["--cpu-share", "at most 50"]);
    expect_refusal(&["--alert", "0"], &["--alert"]);
    assert_refused(&dir.run(&["watch", "--store", "no/where.sqlite"]), &["--store", "no"]);
    fs::write(dir.path().join("runs.sqlite-watch.json"), "{").unwrap();
    expect_refusal(&["--once"], &["runs.sqlite-watch.json", "remove it"]);
    assert!(lines(&dir).is_empty());
}

/// The values of a setting in a unit of systemd.
fn settings<'u>(unit: &'u str, name: &str) -> Vec<&'u str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// systemd looks for it in the directories of programs.
const COMMAND: &str = "ExecStart=kelvin ";

#[test]
fn systemd_units_are_valid_and_run_cycle() {
    let dir = TestDir::new();
    let contrib = |file: &str| {
        let path = format!("{}/../../contrib/{file}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).unwrap().replace(COMMAND, &format!("ExecStart={KELVIN} "))
    };
    let [service, timer] = ["kelvin-watch.service", "kelvin-watch.timer"].map(contrib);
    for (name, unit) in [("kelvin-watch.service", &service), ("kelvin-watch.timer", &timer)] {
        fs::write(dir.path().join(name), unit).unwrap();
    }
    // What it starts, with less to measure.
    let [command] = settings(&service, "ExecStart")[..] else { panic!("{service}") };
    let words: Vec<&str> = command.split(' ').chain([FREQUENCY.id.as_str(), "--budget", "minimum"]).collect();
    let output = dir.command(words[0], &words[1..]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""), "{}", stderr(&output));
    assert!(dir.path().join("data/kelvin/runs.sqlite").exists(), "where XDG_DATA_HOME says");
    assert_eq!(settings(&service, "Environment"), ["XDG_DATA_HOME=%S"]);
    // What installs a filter of system calls (systemd.exec(5)) would be measured with every one of them.
    let filters = ["SystemCall", "Restrict", "ProtectKernel", "ProtectClock", "ProtectHostname", "LockPersonality"];
    let resource_settings = ["MemoryDenyWriteExecute", "PrivateDevices", "DynamicUser", "CPUQuota"];
    let has_setting = |setting: &&str| service.lines().any(|line| line.starts_with(setting));
    assert_eq!(filters.iter().chain(&resource_settings).copied().find(has_setting), None);
    match Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(["kelvin-watch.service", "kelvin-watch.timer"])
        .current_dir(dir.path())
        .output()
    {
        Err(error) => {
            MissingRequirement::program("systemd-analyze", "systemd", &error).report_skip("the units of systemd")
        }
        Ok(output) => {
            assert!(output.status.success() && output.stderr.is_empty(), "{}{}", stdout(&output), stderr(&output))
        }
    }
}
