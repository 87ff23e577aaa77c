//! Runs on many hosts: a file of each in a shared directory, one process of a launcher for each host, what is kept of a run, a wait before
//! it; and hosts that look alike are as many machines.

mod test_dir;

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use kelvin_core::{Case, Fact, Metric, Name, Run, RunStatus, StoredHeadline};
use kelvin_machine::hardware_identity;
use kelvin_store::{HistoryFilter, Store};
use kelvin_testing::stored_run;
use serde_json::Value;
use test_dir::{
    KELVIN, TestDir, assert_refused, assert_success, handles_interrupts, is_met_within, signal, stderr, stdout,
};

/// As little as is a run.
const RUN: [&str; 8] = ["run", "os.syscall.null", "--quick", "--budget", "minimum", "--rounds", "2", "--no-canaries"];
/// A task of Slurm, one of two on its host.
const SLURM_TASK: [(&str, &str); 5] = [
    ("SLURM_JOB_ID", "42"),
    ("SLURMD_NODENAME", "n17"),
    ("SLURM_PROCID", "0"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_NTASKS", "2"),
];

/// A run with these further arguments and variables, and with a home that nothing can be written to.
fn run(dir: &TestDir, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = dir.command(KELVIN, &[&RUN, arguments].concat());
    // What starts these tests may be a launcher itself.
    let launcher_variables =
        ["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID", "PALS_RANKID"];
    launcher_variables.into_iter().chain(["FLUX_TASK_RANK"]).for_each(|name| {
        command.env_remove(name);
    });
    command.env("HOME", "/proc").env_remove("XDG_DATA_HOME").envs(variables.iter().copied());
    command.output().unwrap()
}

/// The files of a directory for runs, by name.
fn files(dir: &TestDir, directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.path().join(directory)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.collect();
    files.sort();
    files
}

fn name_of(file: &std::path::Path) -> &str {
    file.file_name().unwrap().to_str().unwrap()
}

fn read(file: &std::path::Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn directory_gets_a_file_of_each_run() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("runs")).unwrap();
    let tagged = run(&dir, &["--out", "runs", "--tag", "node=n17"], &[]);
    assert_success(&tagged);
    assert!(stdout(&tagged).contains("syscall.null") && stderr(&tagged).contains("the run is in runs/n17-"));
    let untagged = run(&dir, &["--out", "runs", "--note", "after the update"], &[]);
    assert_success(&untagged);
    // No page, no store.
    assert_eq!(dir.names(), ["runs"]);
    let files = files(&dir, "runs");
    assert_eq!(files.len(), 2);
    let host = read(&files[0])["machine"].clone();
    let hash = host["platform"]["host"]["known"]["value"].as_str().or(host["identity"].as_str()).unwrap();
    let expected = ["n17-", &format!("{}-", &hash[..8])];
    assert!(expected.iter().all(|start| files.iter().any(|file| name_of(file).starts_with(start))), "{files:?}");
    for file in &files {
        let file = file.to_str().unwrap();
        assert!(dir.stdout_of(&["report", file]).contains("syscall.null"));
        assert_success(&dir.run(&["runs", "import", file]));
    }
    let list = dir.stdout_of(&["runs", "list"]);
    assert!(list.lines().next().unwrap().contains("machine   node  processor"), "{list}");
    assert_eq!(list.matches("  n17   ").count(), 1, "{list}");
    let comparison = dir.run(&["compare", files[0].to_str().unwrap(), files[1].to_str().unwrap()]);
    assert_success(&comparison);
}

#[test]
fn directory_that_cannot_be_used_is_refused_before_the_run() {
    let dir = TestDir::new();
    fs::write(dir.path().join("file"), "").unwrap();
    for directory in ["no/such", "file"] {
        let output = run(&dir, &["--out", directory], &[]);
        assert_refused(&output, &["--out", directory]);
    }
    assert_eq!(dir.names(), ["file"]);
}

#[test]
fn dry_run_states_its_time_and_measures_nothing() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("runs")).unwrap();
    let forecast = run(&dir, &["--out", "runs", "--dry-run", "--json"], &SLURM_TASK);
    assert_success(&forecast);
    let forecast: Value = serde_json::from_str(stdout(&forecast)).unwrap();
    let cases = forecast["cases"].as_u64().unwrap();
    assert!(cases > 0 && forecast["seconds"].as_f64().unwrap() > 0.0, "{forecast}");
    assert_eq!(forecast["omitted"], serde_json::json!([]));
    let text = run(&dir, &["--dry-run"], &[]);
    assert_success(&text);
    assert!(stdout(&text).starts_with(&format!("{cases} cases in about ")), "{}", stdout(&text));
    // No file of a run, no store, no page.
    assert_eq!((files(&dir, "runs").len(), dir.names()), (0, vec!["runs".to_owned()]));
    let all = dir.run(&["run", "--budget", "30s", "--dry-run", "--json"]);
    let all: Value = serde_json::from_str(stdout(&all)).unwrap();
    assert_eq!(all["seconds"], 30.0);
    assert!(!all["omitted"].as_array().unwrap().is_empty(), "all cases do not fit into half a minute: {all}");
    assert_refused(&run(&dir, &["--dry-run", "--jitter", "1s"], &[]), &["--dry-run", "--jitter"]);
}

#[test]
fn launched_run_is_tagged_by_job_and_node() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("runs")).unwrap();
    assert_success(&run(&dir, &["--out", "runs"], &SLURM_TASK));
    assert_success(&run(&dir, &["--out", "runs", "--tag", "node=mine", "--tag", "fleet=a"], &SLURM_TASK));
    let tags: Vec<Value> = files(&dir, "runs").iter().map(|file| read(file)["tags"].clone()).collect();
    let expected = [
        serde_json::json!({"fleet": "a", "job": "42", "node": "mine"}),
        serde_json::json!({"job": "42", "node": "n17"}),
    ];
    assert_eq!(tags, expected);
    // Into a store.
    assert_success(&run(&dir, &["--store", "runs.sqlite"], &SLURM_TASK));
    let alone = [&SLURM_TASK[..4], &[("SLURM_NTASKS", "1")]].concat();
    assert_success(&run(&dir, &["--store", "runs.sqlite"], &alone));
    let list = dir.stdout_of(&["runs", "list", "--tag", "node=n17", "--store", "runs.sqlite"]);
    assert_eq!(list.matches("job=42 node=n17").count(), 2, "{list}");
    // Nobody has marked them: they are pruned as others.
    dir.stdout_of(&["runs", "prune", "--keep", "1", "--store", "runs.sqlite"]);
    let list = dir.stdout_of(&["runs", "list", "--store", "runs.sqlite"]);
    assert_eq!(list.matches("job=42 node=n17").count(), 1, "{list}");
}

#[test]
fn second_rank_on_a_host_measures_nothing() {
    let dir = TestDir::new();
    for variables in [
        [&SLURM_TASK[..3], &[("SLURM_LOCALID", "1")]].concat(),
        vec![("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1"), ("PMIX_NAMESPACE", "42")],
    ] {
        // Not even a directory that is not there matters.
        let output = run(&dir, &["--out", "no/such"], &variables);
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
        let message = stderr(&output);
        assert!(message.contains("of job 42 measures nothing: another rank measures this host"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(dir.names().is_empty());
}

#[test]
fn process_bound_to_one_cpu_says_so() {
    let dir = TestDir::new();
    let cpus = kelvin_sys::cpu::affinity().unwrap();
    if cpus.len() < 2 {
        return kelvin_testing::MissingRequirement::machine("a second CPU").report_skip("a process that is bound");
    }
    let bound = ["-c", &cpus[0].to_string(), KELVIN];
    let mut command = dir.command("taskset", &[&bound[..], &RUN, &["--no-store"]].concat());
    let output = command.envs(SLURM_TASK).output().unwrap();
    assert_success(&output);
    let message = stderr(&output);
    assert!(message.contains("kelvin: bound to 1 of the ") && message.contains("`srun --cpu-bind=none`"), "{message}");
}

/// The figure that a report has of a null call: its value, the upper end of its interval, and its rounds.
fn headline(report: &Value) -> (f64, f64, Value) {
    let results = report["analysis"]["results"].as_array().unwrap();
    let is_null_call =
        |result: &&Value| result["metric"]["id"] == "os.syscall.null" && result["case"]["call"] == "getppid";
    let outcome = &results.iter().find(is_null_call).unwrap()["outcome"];
    // On a busy machine it may be too disturbed to be known, and has a summary too.
    let summary = outcome.get("measured").or(outcome.get("not_known")).unwrap();
    let number = |pointer: &str| summary.pointer(pointer).unwrap().as_f64().unwrap();
    (number("/headline"), number("/interval/upper"), summary["rounds"].clone())
}

#[test]
fn headlines_are_kept_without_samples() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("runs")).unwrap();
    let store = ["--store", "runs.sqlite"];
    let kept = ["--keep", "headlines", "--json", "--out", "runs", "--tag", "node=n1"];
    let output = run(&dir, &[&store[..], &kept].concat(), &[]);
    assert_success(&output);
    let shown: Value = serde_json::from_str(stdout(&output)).unwrap();
    let file = files(&dir, "runs").remove(0);
    let file_text = file.to_str().unwrap();
    let is_close = |(value, upper, rounds): (f64, f64, Value)| {
        let (shown_value, shown_upper, shown_rounds) = headline(&shown);
        (value / shown_value - 1.0).abs() < 1e-5 && (upper / shown_upper - 1.0).abs() < 1e-5 && rounds == shown_rounds
    };
    for source in [
        &[&["report", "last", "--format", "json"][..], &store].concat()[..],
        &["report", file_text, "--format", "json"],
    ] {
        let report: Value = serde_json::from_str(&dir.stdout_of(source)).unwrap();
        assert!(is_close(headline(&report)));
        assert!(
            report["run"]["measurements"]
                .as_array()
                .unwrap()
                .iter()
                .all(|m| m["rounds"].as_array().unwrap().is_empty())
        );
        let findings = report["analysis"]["findings"].to_string();
        assert!(findings.contains("only_headlines"), "{findings}");
    }
    assert!(!fs::read_to_string(&file).unwrap().contains("nanoseconds\":["), "a sample is kept");
    let summary: Value =
        serde_json::from_str(&dir.stdout_of(&[&["runs", "list", "--json"], &store[..]].concat())).unwrap();
    assert_eq!(summary[0]["measured_rounds"], 0);
    // What it cannot do is said, in one line.
    assert_success(&run(&dir, &[&store[..], &[]].concat(), &[]));
    for command in [
        &["compare", "last~1", "last"][..],
        &["compare", "last", file_text],
        &["report", "last~1", "--format", "samples"],
        &["report", "last~1", "--format", "benchstat"],
        &["report", "last~1", "--format", "json", "--with-samples"],
    ] {
        let output = dir.run(&[command, &store[..]].concat());
        assert_refused(&output, &["--keep headlines", "samples"]);
    }
    // It teaches later runs, and goes from store to store.
    let history = dir.stdout_of(&[&["history", "os.syscall.null", "--json"], &store[..]].concat());
    assert_eq!(serde_json::from_str::<Value>(&history).unwrap()["runs"].as_array().unwrap().len(), 2);
    for command in
        [&["runs", "push", "--to", "other.sqlite"][..], &["runs", "import", file_text, "--store", "third.sqlite"]]
    {
        let command = if command[1] == "push" { [command, &store].concat() } else { command.to_vec() };
        assert_success(&dir.run(&command));
    }
    for other in ["other.sqlite", "third.sqlite"] {
        let id = shown["run"]["id"].as_str().unwrap();
        let report = dir.stdout_of(&["report", id, "--format", "json", "--store", other]);
        assert!(is_close(headline(&serde_json::from_str(&report).unwrap())));
        assert!(dir.stdout_of(&["history", "os.syscall.null", "--store", other]).contains("os.syscall.null"));
    }
}

#[test]
fn wait_before_the_run_ends_at_a_signal() {
    let dir = TestDir::new();
    let mut child = dir.start(&[&RUN[..], &["--jitter", "7d", "--store", "runs.sqlite"]].concat());
    assert!(is_met_within(Duration::from_secs(30), || handles_interrupts(&child)));
    signal(&child, "INT");
    assert!(is_met_within(Duration::from_secs(10), || child.try_wait().unwrap().is_some()));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(message.contains("of at most") && message.contains("SIGINT ended the wait of --jitter"), "{message}");
    assert!(dir.names().is_empty(), "nothing was opened: {:?}", dir.names());
}

#[test]
fn short_wait_is_followed_by_the_run() {
    let dir = TestDir::new();
    let output = run(&dir, &["--jitter", "20ms", "--no-store"], &[]);
    assert_success(&output);
    assert!(stderr(&output).contains("of at most 20.0 ms before the run (--jitter)"), "{}", stderr(&output));
    assert_refused(&run(&dir, &["--jitter", "soon"], &[]), &["--jitter"]);
}

/// Hosts that differ in their machine id alone.
const HOSTS: usize = 6;
/// Runs of each.
const RUNS: usize = 3;

/// A run of one of several alike hosts, of a processor that this machine has not.
fn run_of_host(template: &Run, host: usize, number: usize) -> Run {
    let mut run = template.clone();
    run.header.id = format!("host{host}-{number}");
    run.header.started = format!("2026-11-{:02}T10:{host:02}:00Z", 10 + number);
    run.header.machine.cpu.stepping = Fact::known(99, "a test");
    // As different as hashes are.
    let hash = (host as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    run.header.machine.platform.host = Fact::known(format!("{hash:032x}"), "a test");
    // That of kelvin-machine has these facts, the kernel and its mitigations, which are the same here.
    run.header.machine.identity = hardware_identity(&run.header.machine);
    run
}

/// The time of a null call on a host: 100 ns and 10 ns more on each next one.
fn level(host: usize) -> f64 {
    100.0 + 10.0 * host as f64
}

#[test]
fn six_alike_hosts_are_six_machines() {
    let dir = TestDir::new();
    let store = Store::open(dir.path().join("runs.sqlite")).unwrap();
    let mut template = Run::from_header(kelvin_store::import(stored_run("intel-guest-1").as_bytes()).unwrap().header);
    template.status = RunStatus::Complete;
    template.header.settings.mode = Name::new("default");
    template.measurements.clear();
    template.header.plan.clear();
    template.header.spread_history.clear();
    template.header.bounds.clear();
    let metric = *template.metric("os.syscall.null").unwrap();
    let Metric { id, version, .. } = metric;
    let mut identities = Vec::new();
    for host in 0..HOSTS {
        for number in 0..RUNS {
            let run = run_of_host(&template, host, number);
            store.insert(&run).unwrap();
            let value = level(host) + number as f64;
            let headline = StoredHeadline { metric: id, version, case: Case::new(), value, within_variance: 1.0 };
            store.record_headlines(&run.header.id, &[headline]).unwrap();
            identities.push(run.header.machine.identity);
        }
    }
    identities.dedup();
    assert_eq!(identities.len(), HOSTS);
    assert_eq!(store.machines().unwrap().len(), HOSTS);
    for (host, identity) in identities.iter().enumerate() {
        // What a run learns, of its figures and of its costs.
        let filter = HistoryFilter { machine: identity, mode: None, excluded: &[] };
        let learned = store.spread_history(&filter, &[metric], 100).unwrap();
        let expected: Vec<f64> = (0..RUNS).map(|number| level(host) + number as f64).collect();
        assert_eq!(learned.iter().map(|spread| spread.headlines.clone()).collect::<Vec<_>>(), [expected]);
        // What history, and so watch, follows.
        let arguments = ["history", "os.syscall.null", "--json", "--store", "runs.sqlite", "--machine", identity];
        let history: Value = serde_json::from_str(&dir.stdout_of(&arguments)).unwrap();
        let runs: Vec<&str> =
            history["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
        assert_eq!(runs, (0..RUNS).map(|number| format!("host{host}-{number}")).collect::<Vec<_>>());
        // The others are its peers: a lower time is better.
        let ranking = &history["series"][0]["ranking"];
        assert_eq!(
            (&ranking["machines"], &ranking["better"]),
            (&HOSTS.into(), &(host as f64 / (HOSTS - 1) as f64).into())
        );
    }
    let list = dir.stdout_of(&["runs", "list", "--store", "runs.sqlite"]);
    assert!(identities.iter().all(|identity| list.matches(&identity[..8]).count() == RUNS), "{list}");
    // The newest of each stays.
    dir.stdout_of(&["runs", "prune", "--keep", "1", "--store", "runs.sqlite"]);
    let mut left: Vec<String> = store.list(&Default::default()).unwrap().into_iter().map(|line| line.id).collect();
    left.sort();
    assert_eq!(left, (0..HOSTS).map(|host| format!("host{host}-{}", RUNS - 1)).collect::<Vec<_>>());
}

#[test]
fn alike_hosts_are_members_of_their_class() {
    let dir = TestDir::new();
    let mut template = kelvin_store::import(stored_run("intel-guest-3").as_bytes()).unwrap();
    // Figures enough for an area.
    let is_kept = |probe: &Name| ["os.syscall", "cpu."].iter().any(|area| probe.starts_with(area));
    template.header.plan.retain(|planned| is_kept(&planned.probe));
    template.measurements.retain(|measurement| is_kept(&measurement.planned.probe));
    for host in 0..HOSTS {
        let file = dir.path().join(format!("host{host}.json"));
        kelvin_store::export(&run_of_host(&template, host, 1), fs::File::create(&file).unwrap()).unwrap();
        assert_success(&dir.run(&["runs", "import", file.to_str().unwrap()]));
    }
    let report = dir.stdout_of(&["report", "host2-1", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let areas = report["analysis"]["class_comparison"]["areas"].as_array().unwrap();
    assert!(!areas.is_empty());
    for area in areas {
        assert_eq!(area["members"].as_array().unwrap().len(), HOSTS - 1, "{area}");
    }
}
