//! `kelvin ab` and `kelvin time`: settings and commands interleaved, what they refuse, and that settings come back.

mod test_dir;

use std::process::{Command, Output};

use kelvin_testing::MissingRequirement;
use serde_json::Value;
use test_dir::{HANG_TIMEOUT, KELVIN, TestDir, assert_refused, is_met_within, signal, stderr, stdout};

const SHORT_OPTIONS: [&str; 4] = ["--budget", "minimum", "--rounds", "4"];

fn run(dir: &TestDir, arguments: &[&str]) -> Output {
    dir.command(KELVIN, &[&["ab"], arguments].concat()).output().unwrap()
}

fn compare_json(dir: &TestDir, arguments: &[&str]) -> Value {
    let output = run(dir, &[arguments, &SHORT_OPTIONS, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The output of a script in its own mount and network namespaces, with nothing in /run; `$0` is the program.
fn run_in_namespaces(script: &str) -> Option<Output> {
    let script = format!("mount -t tmpfs -o mode=755 tmpfs /run || exit 77; {script}");
    let output = Command::new("unshare").args(["--mount", "--net", "sh", "-c", &script, KELVIN]).output().unwrap();
    let is_alone = output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare:");
    if !is_alone {
        MissingRequirement::privilege(format!("namespaces of mounts and network (root): {}", stderr(&output)))
            .report_skip("settings of the system that are switched");
    }
    is_alone.then_some(output)
}

#[test]
fn every_figure_is_compared_in_blocks() {
    let dir = TestDir::new();
    let comparison = compare_json(&dir, &["--b", "env.KELVIN_TEST=1", "os.syscall.null", "cpu.call"]);
    let figures = comparison["figures"].as_array().unwrap();
    let id = |figure: &Value| figure["metric"]["id"].as_str().unwrap().to_owned();
    assert!(
        figures.iter().any(|figure| id(figure) == "os.syscall.null")
            && figures.iter().any(|figure| id(figure).starts_with("cpu.call"))
    );
    for figure in figures {
        assert_eq!(
            (&figure["spread_source"]["blocks"], &figure["rounds"]),
            (&Value::from(4), &serde_json::json!([8, 8])),
            "{figure}"
        );
    }
    assert_eq!(comparison["interleaving"]["blocks"], 4);
    assert_eq!(comparison["differences"][0]["label"], "env.KELVIN_TEST");
    assert!(dir.names().is_empty(), "{:?}", dir.names());
}

#[test]
fn two_commands_are_compared_by_usage() {
    let dir = TestDir::new();
    // Not a timing that may come out otherwise: a sleep never ends early.
    let arguments = ["--a-cmd", "true", "--b-cmd", "sleep 0.2; exit 0", "--rounds", "6", "--budget", "minimum"];
    let output = run(&dir, &[&arguments[..], &["--fail-on", "worse:50%", "--format", "junit"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("command.time"), "{}", stdout(&output));
    assert!(stderr(&output).contains("command.time is"), "{}", stderr(&output));
    let failing = run(&dir, &["--a-cmd", "true", "--b-cmd", "echo out of luck >&2; exit 3"]);
    assert_refused(&failing, &["--b-cmd", "exited with status 3", "out of luck"]);
}

#[test]
fn command_exceeding_budget_is_killed() {
    let dir = TestDir::new();
    for command in ["echo $$ > id; exec sleep 600", "echo $$ > id; kill -STOP $$"] {
        let output = run(&dir, &["--a-cmd", command, "--b-cmd", "true", "--budget", "2s"]);
        assert_refused(&output, &["--a-cmd", "longer than --budget 2s"]);
        let id = std::fs::read_to_string(dir.path().join("id")).unwrap();
        // Its present parent reaps it.
        let has_ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim()));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        assert!(is_met_within(HANG_TIMEOUT, has_ended), "{command}");
    }
}

#[test]
fn bimodal_command_is_compared_by_mean() {
    let dir = TestDir::new();
    // By turns a fifth of a second and nearly a whole one: a sleep never ends early, and what starts it takes little compared with either.
    let alternating_command = "if rm turn 2>/dev/null; then sleep 0.9; else touch turn; sleep 0.2; fi";
    let arguments = ["--a-cmd", alternating_command, "--b-cmd", "sleep 0.5", "--rounds", "6", "--budget", "minimum"];
    let measure_time = || {
        let output = run(&dir, &[&arguments[..], &["--json", "--with-private"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
        // Whole, since it was asked for.
        assert_eq!(comparison["base"]["name"], format!("A: {alternating_command}"));
        let figures = comparison["figures"].as_array().unwrap();
        let time = figures.iter().find(|figure| figure["metric"]["id"] == "command.time").unwrap().clone();
        assert_eq!(time["ratio_basis"], "means", "{time}");
        assert!(time["base"].as_f64() >= Some(0.5e9), "{time}");
        time
    };
    let has_two_modes = |time: &Value| time["sides"][0]["modes"].as_array().map(Vec::len) == Some(2);
    // Other work that has the processor may fill the gap between the two.
    let is_disturbed = |time: &Value| {
        let times = time["sides"][0]["rounds"][0]
            .as_array()
            .unwrap()
            .iter()
            .map(|nanoseconds| nanoseconds.as_f64().unwrap() / 1e9);
        times.into_iter().any(|seconds| (0.3..0.9).contains(&seconds) || seconds > 1.0)
    };
    let mut tries = vec![measure_time()];
    while !has_two_modes(&tries[tries.len() - 1]) && tries.len() < 3 {
        tries.push(measure_time());
    }
    if !tries.iter().any(has_two_modes) && tries.iter().all(is_disturbed) {
        return MissingRequirement::machine("other work has the processor").report_skip("the modes of a command");
    }
    assert!(tries.iter().any(has_two_modes), "{tries:#?}");
}

#[test]
fn command_with_leftover_child_has_ended() {
    let dir = TestDir::new();
    let arguments = ["--a-cmd", "sleep 600 & true", "--b-cmd", "true", "--rounds", "4", "--budget", "minimum"];
    let child = dir.command(KELVIN, &[&["ab"], &arguments[..]].concat()).spawn().unwrap();
    let output = test_dir::wait_for_output(child, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn interruption_ends_command_and_its_children() {
    let dir = TestDir::new();
    let mark = dir.path().join("began");
    let command = format!("touch {}; sleep 600", mark.display());
    let mut child = dir.command(KELVIN, &["ab", "--a-cmd", &command, "--b-cmd", "true"]).spawn().unwrap();
    assert!(is_met_within(test_dir::HANG_TIMEOUT, || mark.exists()), "it never began");
    signal(&child, "INT");
    assert!(is_met_within(test_dir::HANG_TIMEOUT, || child.try_wait().unwrap().is_some()), "it did not end");
    assert_eq!(child.wait().unwrap().code(), Some(2));
    // What was killed is gone when the kernel has had the time for it.
    let pgrep = || Command::new("pgrep").args(["-f", &format!("touch {}", mark.display())]).output().unwrap();
    assert!(is_met_within(test_dir::HANG_TIMEOUT, || pgrep().stdout.is_empty()), "{}", stdout(&pgrep()));
}

#[test]
fn system_setting_is_switched_and_restored() {
    let ttl = "/proc/sys/net/ipv4/ip_default_ttl";
    let ab = "$0 ab --b net.ipv4.ip_default_ttl=70 os.syscall.null --budget minimum --rounds 4 --json";
    let Some(output) = run_in_namespaces(&format!("{ab} && cat {ttl} && ls /run/kelvin")) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (json, rest) = stdout(&output).rsplit_once("}\n").unwrap();
    let comparison: Value = serde_json::from_str(&format!("{json}}}")).unwrap();
    assert_eq!(comparison["differences"][0]["base"], "as found: 64");
    assert_eq!(comparison["differences"][0]["other"], "70");
    assert_eq!(rest, "64\n", "put back, and no journal is left");

    // Killed at any moment: the journal holds the old value.
    let script = format!(
        "$0 ab --b net.ipv4.ip_default_ttl=70 os.syscall.null --budget 60s >/dev/null 2>&1 & \
         until test -e /run/kelvin/tune.json && grep -q 70 {ttl}; do :; done; kill -9 $!; wait $! 2>/dev/null; \
         $0 ab --b net.ipv4.ip_default_ttl=71 os.syscall.null; $0 tune --restore >/dev/null && cat {ttl} && ls /run/kelvin"
    );
    let Some(output) = run_in_namespaces(&script) else { return };
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "64\n"), "{}", stderr(&output));
    assert!(stderr(&output).contains("run kelvin tune --restore first"), "{}", stderr(&output));
}

#[test]
fn incomparable_settings_are_refused() {
    let dir = TestDir::new();
    let expect_refusal = |arguments: &[&str], words: &[&str]| assert_refused(&run(&dir, arguments), words);
    expect_refusal(&["os.syscall.null"], &["--b"]);
    expect_refusal(&["--b", "cpu=0"], &["name what to measure"]);
    expect_refusal(&["--b", "cpu=9999", "os.syscall.null"], &["--b cpu=9999", "this process may use CPUs"]);
    expect_refusal(&["--b", "speed=1", "os.syscall.null"], &["--b", "speed is no setting", "huge-pages=never"]);
    expect_refusal(&["--a", "quota=0%", "--b", "as-found", "os.syscall.null"], &["--a", "quota=50%"]);
    expect_refusal(&["--b", "vm.nothing=1", "os.syscall.null"], &["vm.nothing", "there is no file"]);
    expect_refusal(&["--b", "dir=/nowhere", "file.sync"], &["--b dir=/nowhere", "No such file"]);
    expect_refusal(&["--b", "group=/tmp", "os.syscall.null"], &["--b group=/tmp", "not a control group"]);
    expect_refusal(
        &["--b", "congestion-control=none", "net.bandwidth.tcp"],
        &["--b congestion-control=none", "no such"],
    );
    expect_refusal(&["--b", "cpu=0", "--b", "cpu=0", "os.syscall.null"], &["--b cpu", "given twice"]);
    expect_refusal(&["--b", "cpu=0", "os.nothing"], &["os.nothing"]);
    expect_refusal(&["--a-cmd", "true"], &["--b-cmd"]);
    expect_refusal(&["--a-cmd", "true", "--b-cmd", "true", "os.syscall.null"], &["--a-cmd"]);
    expect_refusal(&["--b", "cpu=0", "os.syscall.null", "--format", "junit"], &["--format junit", "--fail-on"]);
    expect_refusal(&["--b", "cpu=0", "os.syscall.null", "--until", "0"], &["--until"]);
}

fn time(dir: &TestDir, arguments: &[&str]) -> Output {
    dir.command(KELVIN, &[&["time"], arguments].concat()).output().unwrap()
}

fn lines_of(dir: &TestDir, file: &str) -> Vec<String> {
    std::fs::read_to_string(dir.path().join(file)).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn times_are_exported_as_hyperfine_has_them() {
    let dir = TestDir::new();
    // Not a timing that may come out otherwise: a sleep never ends early.
    let options = ["-r", "8", "-w", "0", "-L", "seconds", "0.01,0.1", "--export-json", "times.json", "-o", "times.csv"];
    let output = time(&dir, &[&["sleep {seconds}"], &options[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_str(&std::fs::read_to_string(dir.path().join("times.json")).unwrap()).unwrap();
    let [short, long] = [0, 1].map(|place| &json["results"][place]);
    assert_eq!((&long["command"], &long["parameters"]["seconds"]), (&Value::from("sleep 0.1"), &Value::from("0.1")));
    assert!(long["times"].as_array().unwrap().iter().all(|time| time.as_f64() >= Some(0.1)), "{long}");
    // Less than this program itself has: what it takes is not counted.
    let memory = long["memory_usage_byte"].as_array().unwrap();
    assert!(memory.iter().all(|bytes| bytes.as_u64() < Some(16 << 20)), "{long}");
    assert_eq!((long["times"].as_array().unwrap().len(), &long["exit_codes"][7]), (8, &Value::from(0)));
    assert_eq!(json["reference"], 0, "{short}");
    let relative = &long["relative"];
    assert!(relative["ratio"]["value"].as_f64() > Some(1.0), "{relative}");
    let csv = lines_of(&dir, "times.csv");
    assert!(csv[0].ends_with("min,max,parameter_seconds,mean_low,mean_high,ratio,ratio_low,ratio_high"), "{csv:?}");
    assert!(csv[2].starts_with("sleep 0.1,0.1"), "{csv:?}");
}

#[test]
fn steps_are_run_around_each_run() {
    let dir = TestDir::new();
    let steps = [
        "-s",
        "echo setup >> log",
        "-p",
        "echo prepare >> log",
        "-C",
        "echo conclude >> log",
        "-c",
        "echo cleanup >> log",
    ];
    let output = time(&dir, &[&["echo run >> log", "-r", "2", "-w", "1", "-S", "sh -e"], &steps[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let run = ["prepare", "run", "conclude"];
    let expected = [&["setup"][..], &run, &run, &run, &["cleanup"]].concat();
    assert_eq!(lines_of(&dir, "log"), expected);
}

#[test]
fn output_and_input_of_commands_are_files() {
    let dir = TestDir::new();
    std::fs::write(dir.path().join("in"), "of the file\n").unwrap();
    let output = time(&dir, &["-N", "cat", "-r", "2", "--input", "in", "--command-output", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(lines_of(&dir, "out"), ["of the file"]);
    let shown = time(&dir, &["echo shown; echo apart >&2", "-r", "2", "-w", "0", "--show-output"]);
    assert_eq!((stdout(&shown).matches("shown\n").count(), stderr(&shown).matches("apart\n").count()), (2, 2));
    let piped = time(&dir, &["yes | head -c 1000000", "-r", "1", "-w", "0", "--command-output", "pipe"]);
    assert_eq!(piped.status.code(), Some(0), "{}", stderr(&piped));
}

#[test]
fn failing_command_ends_timing_unless_ignored() {
    let dir = TestDir::new();
    let failing = ["echo out of luck >&2; exit 3", "-r", "2"];
    assert_refused(&time(&dir, &failing), &["exited with status 3: out of luck", "-i"]);
    let ignored = time(&dir, &[&failing[..], &["-i", "--json"]].concat());
    assert_eq!(ignored.status.code(), Some(0), "{}", stderr(&ignored));
    let json: Value = serde_json::from_slice(&ignored.stdout).unwrap();
    assert_eq!(json["results"][0]["exit_codes"], serde_json::json!([3, 3]));
    assert_refused(&time(&dir, &["-N", "/no/such/program"]), &["/no/such/program", "cannot be started"]);
    assert_refused(&time(&dir, &["true", "-p", "exit 4"]), &["--prepare 'exit 4'", "exited with status 4"]);
    assert_refused(&time(&dir, &["sleep", "1"]), &["'sleep'", "put one with arguments into quotes"]);
    assert_refused(&time(&dir, &["sleep 600", "--budget", "200ms"]), &["--budget"]);
    assert_refused(&time(&dir, &["true", "--output", "pipe"]), &["--command-output"]);
    assert!(!dir.path().join("pipe").exists());
    assert_refused(&time(&dir, &["true", "-m", "3", "-M", "2"]), &["--min-runs 3", "--max-runs 2"]);
}
