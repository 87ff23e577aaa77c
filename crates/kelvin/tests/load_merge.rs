//! `kelvin load merge` as a whole program: two generators at once on a real server, what they print, and what is refused.

mod made_server;
mod test_dir;

use std::fs;
use std::net::SocketAddr;
use std::process::Output;
use std::time::{Duration, SystemTime};

use made_server::start_server;
use serde_json::{Value, json};
use test_dir::{KELVIN, TestDir, assert_refused, assert_success, stderr, stdout, wait_for_output};

/// Starts a server that answers each request with two bytes.
fn start_short_server() -> SocketAddr {
    start_server(|_| ("200 OK", "ok".to_owned()))
}

/// A time so far from now, as `--start-at` takes it.
fn time_after(duration: Duration) -> String {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + duration;
    format!("@{}.{:09}", time.as_secs(), time.subsec_nanos())
}

/// Runs two generators at once, and writes what they print into a.json and b.json.
fn load_from_two(dir: &TestDir, options: &[&str]) -> [Value; 2] {
    let url = format!("http://{}/", start_short_server());
    let mut outputs = outputs_of_two(dir, &url, Duration::from_secs(1), options);
    // Under other load they may be prepared later than that.
    for lead in [4, 16, 64].map(Duration::from_secs) {
        if outputs.iter().any(|output| stderr(output).contains("--start-at")) {
            outputs = outputs_of_two(dir, &url, lead, options);
        }
    }
    let mut names = ["a.json", "b.json"].into_iter();
    outputs.map(|output| {
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        fs::write(dir.path().join(names.next().unwrap()), stdout(&output)).unwrap();
        serde_json::from_str(stdout(&output)).unwrap()
    })
}

/// What two generators print that begin so long from now.
fn outputs_of_two(dir: &TestDir, url: &str, lead: Duration, options: &[&str]) -> [Output; 2] {
    let start = time_after(lead);
    let common = ["load", url, "--no-pin", "--no-warm-up", "--duration", "1s", "--start-at", &start, "--json"];
    let start = |name: &str, share: &str| {
        let tag = format!("node={name}");
        dir.start(&[&common[..], &["--tag", &tag, "--share", share], options].concat())
    };
    [start("a", "1/2"), start("b", "2/2")].map(|child| wait_for_output(child, &["load"]))
}

fn merge_json(dir: &TestDir, arguments: &[&str]) -> Value {
    let output = dir.run(&[&["load", "merge", "a.json", "b.json", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap()
}

#[test]
fn two_shares_are_one_load() {
    let dir = TestDir::new();
    let results = load_from_two(&dir, &["--rate", "200"]);
    for (result, number) in results.iter().zip([1, 2]) {
        // Of 200 a second each has every second one.
        assert_eq!((&result["requests"], &result["load_format"]), (&100.into(), &1.into()), "{result}");
        assert_eq!(result["schedule"]["share"], json!({"number": number, "of": 2}));
        assert_eq!(result["offered"]["rate"]["rate"], 100.0);
        assert!(result["scheduled_start"].is_string() && result["start"].is_string(), "{result}");
        let clock = &result["clock"];
        assert_eq!(clock["synchronized"] == true, clock["max_error"].is_number(), "{clock}");
    }
    let merged = merge_json(&dir, &[]);
    let load = &merged["loads"][0];
    assert_eq!((&merged["load_merge_format"], &load["requests"]), (&1.into(), &200.into()));
    assert_eq!((&load["offered"]["rate"]["rate"], &load["response"]["count"]), (&200.0.into(), &200.into()));
    let names: Vec<&Value> = load["generators"].as_array().unwrap().iter().map(|share| &share["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    let output = dir.run(&["load", "merge", "a.json", "b.json", "--fail-on", "errors>0"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let text = stdout(&output);
    for expected in
        ["200 requests a second, 2 generators", "no errors", "from when it was due", "\na   ", "\nb   ", "clocks of"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let single = dir.run(&["load", "merge", "b.json"]);
    assert!(stdout(&single).contains("The files lack 1 share of the load (--share)"), "{}", stdout(&single));
}

#[test]
fn launched_generator_has_its_job_and_node() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_short_server()));
    let tags = |arguments: &[&str]| {
        let common = ["load", &url, "--no-warm-up", "--duration", "100ms", "--json"];
        let variables = [("SLURM_PROCID", "3"), ("SLURM_JOB_ID", "42"), ("SLURMD_NODENAME", "n17")];
        let mut command = dir.command(KELVIN, &[&common[..], arguments].concat());
        let output = command.env_remove("OMPI_COMM_WORLD_RANK").envs(variables).output().unwrap();
        assert_success(&output);
        serde_json::from_str::<Value>(stdout(&output)).unwrap()["tags"].clone()
    };
    assert_eq!(tags(&[]), json!({"job": "42", "node": "n17"}));
    assert_eq!(tags(&["--tag", "node=mine"]), json!({"job": "42", "node": "mine"}));
}

#[test]
fn several_loads_are_merged_one_by_one() {
    let dir = TestDir::new();
    load_from_two(&dir, &["--users", "2,4", "--rate", "100"]);
    let merged = merge_json(&dir, &["--plot", "plot.svg"]);
    let loads = merged["loads"].as_array().unwrap();
    let users: Vec<&Value> = loads.iter().map(|load| &load["offered"]["users"]["users"]).collect();
    assert_eq!(users, [&json!(2), &json!(4), &Value::Null]);
    assert_eq!(loads[2]["requests"], 100);
    assert!(fs::read_to_string(dir.path().join("plot.svg")).unwrap().contains("users, median"));
    let output = dir.run(&["load", "merge", "a.json", "b.json", "--fail-on", "max>1us"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(" with 2 users\n"), "{}", stderr(&output));
    for expected in [": 2 generators\n", "\nWith 4 users:\n", "\nWith 100 a second:\n", "a second   "] {
        assert!(stdout(&output).contains(expected), "{expected}: {}", stdout(&output));
    }
}

#[test]
fn what_must_not_be_merged_is_refused() {
    let dir = TestDir::new();
    let [a, _] = load_from_two(&dir, &["--rate", "100"]);
    let write = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut result = a.clone();
        result["id"] = name.into();
        result["schedule"]["share"] = json!({"number": 2, "of": 2});
        change(&mut result);
        fs::write(dir.path().join(name), result.to_string()).unwrap();
    };
    write("newer", &|result| result["load_format"] = 2.into());
    write("old", &|result| drop(result.as_object_mut().unwrap().remove("load_format")));
    write("target", &|result| result["target"] = "http://other/".into());
    write("cut", &|result| result["histograms"]["response"] = "HISTF".into());
    write("method", &|result| result["schedule"]["method"] = "POST".into());
    write("share", &|result| result["schedule"]["share"]["number"] = 1.into());
    fs::write(dir.path().join("text"), "response time").unwrap();
    for (arguments, expected) in [
        (&["a.json", "./a.json"][..], "./a.json: it is the same result as a.json: give each result once"),
        (
            &["a.json", "newer"],
            "newer: its format 2 is newer than this kelvin, which reads up to 1: use a newer kelvin",
        ),
        (&["a.json", "old"], "old: it was written by a kelvin whose results have no histograms: measure again"),
        (&["a.json", "target"], "target: its target is http://other/, and that of a.json is http://127.0.0.1"),
        (&["a.json", "cut"], "cut: it is no valid result of kelvin load --json: "),
        (&["a.json", "method"], "method: its load is at a rate with constant times between requests, POST"),
        (&["a.json", "share"], "share: it is share 1 of 2, as a.json is"),
        (&["a.json", "text"], "text: it is no result of kelvin load --json"),
        (&["a.json", "none"], "none: No such file"),
        (&["/dev/zero"], "/dev/zero: "),
        (&[], "<FILES>"),
        (&["a.json", "--rate", "5"], "--rate"),
    ] {
        assert_refused(&dir.run(&[&["load", "merge"], arguments].concat()), &[expected]);
    }
    let output = dir.run(&["load", "merge", "a.json", "target", "--different-targets"]);
    assert!(stdout(&output).contains(", http://other/: "), "{} {}", stdout(&output), stderr(&output));
    fs::write(dir.path().join("merged"), merge_json(&dir, &[]).to_string()).unwrap();
    assert_refused(
        &dir.run(&["load", "merge", "merged"]),
        &["merged: it is merged already: give the results of its generators"],
    );
}

#[test]
fn start_and_share_errors_are_one_line() {
    let (dir, url) = (TestDir::new(), format!("http://{}/", start_short_server()));
    for (arguments, expected) in [
        (&["--start-at", "@5"][..], "--start-at 1970-01-01T00:00:05Z: that was "),
        (&["--start-at", "08:00"], "--start-at"),
        (&["--start-at", "@9999999999", "--slo", "p99:1ms"], "--slo"),
        (&["--share", "3/2"], "--share"),
        (
            &["--share", "2/2"],
            "--share 2/2: each thread of each host needs a user, and this one has 0: give at least --users 2",
        ),
        (&["--share", "1/2", "--rate", "5", "--connections", "1", "--threads", "2"], "give at least --connections 4"),
        (&["--tag", "node=a"], "--json"),
        (&["--json", "--tag", "node=a", "--tag", "node=b"], "node=b: a run has one value of the tag node"),
    ] {
        assert_refused(&dir.run(&[&["load", &url], arguments].concat()), &[expected]);
    }
}
