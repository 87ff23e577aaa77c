//! `kelvin compare`: two stored runs, files, ranges; what it refuses, and its gate.

mod place;

use std::fs;

use place::{KELVIN, Place, assert_refused, stderr, stdout};
use serde_json::Value;

/// Puts the export of a run that is kept for ever into a place.
fn kept(place: &Place, name: &str) {
    fs::write(place.path().join(name), kelvin_testing::stored_run(name).0).unwrap();
}

/// What kelvin prints: more than a pipe holds.
fn says(place: &Place, arguments: &[&str]) -> String {
    let output = place.command(KELVIN, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

/// Two short runs of one probe, stored; the second one as a file too, with every time so many times as long.
fn measured_twice(place: &Place, times: f64) {
    for _ in 0..2 {
        let run = ["run", "os.syscall.null", "--budget", "minimum", "--rounds", "5", "--no-report", "--quick"];
        let output = place.run(&run);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let export = place.run(&["runs", "export", "last"]);
    let mut run: Value = serde_json::from_slice(&export.stdout).unwrap();
    for one in run["measurements"].as_array_mut().unwrap() {
        if one["metrics"][0] == "os.syscall.null" {
            one["rounds"].as_array_mut().unwrap().iter_mut().for_each(|round| lengthen(round, times));
        }
    }
    fs::write(place.path().join("slower.json"), run.to_string()).unwrap();
}

fn lengthen(round: &mut Value, times: f64) {
    for reading in round["attempt"]["measured"].as_array_mut().into_iter().flatten() {
        let batches = reading["readings"]["batches"]["nanoseconds"].as_array_mut();
        batches.into_iter().flatten().for_each(|time| *time = (times * time.as_f64().unwrap()).into());
    }
}

#[test]
fn two_whole_runs_are_on_one_screen_and_every_figure_is_in_the_rest() {
    let place = Place::new();
    ["intel-guest-3", "intel-guest-2"].iter().for_each(|name| kept(&place, name));
    let compare = ["compare", "intel-guest-3", "intel-guest-2"];
    let screen = says(&place, &compare);
    assert!(screen.lines().count() <= 60 && screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.contains("0 worse, 0 better") && screen.contains("Not compared"), "{screen}");
    assert!(screen.contains("kelvin compare intel-guest-3 intel-guest-2 --full"), "{screen}");

    let comparison: Value = serde_json::from_str(&says(&place, &[&compare[..], &["--json"]].concat())).unwrap();
    let named = |list: &str| comparison[list].as_array().unwrap().clone();
    let (figures, apart) = (named("figures"), named("not_compared"));
    assert!(figures.len() > 100 && !apart.is_empty(), "{} {}", figures.len(), apart.len());
    let full = says(&place, &[&compare[..], &["--full"]].concat());
    for id in figures.iter().map(|figure| &figure["metric"]["id"]).chain(apart.iter().map(|one| &one["metric"])) {
        assert!(full.contains(id.as_str().unwrap()), "{id}");
    }
}

#[test]
fn a_figure_that_is_five_times_as_slow_is_worse_and_misses_the_gate() {
    let place = Place::new();
    measured_twice(&place, 5.0);
    let gate = |b: &str, gate: &str| place.run(&["compare", "last~1", b, "--fail-on", gate]);
    let missed = gate("slower.json", "worse:20%");
    assert_eq!(missed.status.code(), Some(1), "{}{}", stdout(&missed), stderr(&missed));
    assert!(stderr(&missed).contains("--fail-on: os.syscall.null"), "{}", stderr(&missed));
    assert!(stdout(&missed).contains("Worse"), "{}", stdout(&missed));
    let passed = place.run(&["compare", "slower.json", "last~1", "--fail-on", "worse"]);
    assert_eq!(passed.status.code(), Some(0), "{}{}", stdout(&passed), stderr(&passed));
    assert!(stdout(&passed).contains("Better"), "{}", stdout(&passed));
    // A range of runs is a side too, and one that goes backwards is refused.
    let comparison = place.json(&["compare", "slower.json", "last~1..last~1"]);
    assert_eq!(comparison["other"]["runs"].as_array().unwrap().len(), 1);
    assert_refused(&place.run(&["compare", "slower.json", "last..last~1"]), &["last..last~1", "later"]);
    assert_refused(&place.run(&["compare", "last~1..last", "last"]), &["name two that differ"]);
    let comparison = place.json(&["compare", "last~1", "slower.json"]);
    assert_eq!(comparison["compare_format"], 1);
    let worst = &comparison["figures"][0];
    assert_eq!((&worst["verdict"], &worst["metric"]["id"]), (&"worse".into(), &"os.syscall.null".into()));
    assert!((worst["ratio"]["value"].as_f64().unwrap() / 5.0 - 1.0).abs() < 0.5, "{worst}");
}

#[test]
fn what_cannot_be_compared_is_refused_by_its_name() {
    let place = Place::new();
    kept(&place, "intel-guest-2");
    let refused = |arguments: &[&str], words: &[&str]| {
        assert_refused(&place.run(&[&["compare"], arguments].concat()), words);
    };
    refused(&["intel-guest-2", "intel-guest-2"], &["intel-guest-2", "name two that differ"]);
    refused(&["nobody", "intel-guest-2"], &["nobody"]);
    refused(&["intel-guest-2", "last"], &[]);
    refused(&["intel-guest-2", "last", "--fail-on", "better"], &["--fail-on", "worse:5%"]);
    refused(&["intel-guest-2", "last", "--threshold", "0"], &["--threshold"]);
    refused(&["intel-guest-2", "last", "--full", "--json"], &["--full"]);
    fs::write(place.path().join("text"), "no run").unwrap();
    refused(&["text", "intel-guest-2"], &["text"]);
}
