//! Runs of a real machine, format 1: they are read for ever, with the same results.
//!
//! Three default runs made minutes apart on an Intel guest, exported: the third of them in the list is the first in time, and is
//! whole; of the others the probes with the longest readings are left out. Each run holds the headlines that the first kelvin of
//! format 1 found in the earlier ones (`spread_history`): a later kelvin must find the same.

mod test_dir;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use test_dir::TestDir;

/// The run that is whole, one with the headlines of it, and one with the headlines of that.
const FULL_RUN: &str = "intel-guest-3";
const SECOND_RUN: &str = "intel-guest-2";
const THIRD_RUN: &str = "intel-guest-1";

/// A metric at a case.
type SeriesKey = (String, String);

fn key(metric: &Value, case: &Value) -> SeriesKey {
    (metric.as_str().unwrap().to_owned(), case.to_string())
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no array"))
}

/// Puts the export of a run into a directory, and returns what is in it.
fn unpack_run(dir: &TestDir, name: &str) -> Value {
    let run = kelvin_testing::stored_run(name);
    fs::write(dir.path().join(name), &run).unwrap();
    serde_json::from_str(&run).unwrap()
}

/// The headlines of an analysis as JSON.
fn headlines(report: &Value) -> BTreeMap<SeriesKey, f64> {
    let measured_headline = |result: &Value| {
        let headline = result["outcome"]["measured"]["headline"].as_f64()?;
        Some((key(&result["metric"]["id"], &result["case"]), headline))
    };
    array(&report["analysis"]["results"]).iter().filter_map(measured_headline).collect()
}

/// That every metric of every case in the file has a result, and each its headline among those that a later run knew of it.
fn assert_headlines_unchanged(report: &Value, run: &Value, later: &Value) {
    assert!(report["run"] == *run, "what is read is what is in the file");
    let results = array(&report["analysis"]["results"]);
    let result_keys: BTreeSet<SeriesKey> =
        results.iter().map(|result| key(&result["metric"]["id"], &result["case"])).collect();
    let measurements = array(&run["measurements"]).iter();
    let keys_of = |measurement: &Value| {
        array(&measurement["metrics"]).iter().map(|id| key(id, &measurement["case"])).collect::<Vec<_>>()
    };
    assert_eq!(result_keys, measurements.flat_map(keys_of).collect());
    let headlines = headlines(report);
    let histories: BTreeMap<SeriesKey, &[Value]> = array(&later["spread_history"])
        .iter()
        .map(|history| (key(&history["metric"], &history["case"]), array(&history["headlines"])))
        .collect();
    // A processor of another kind may round a sum otherwise.
    let is_same = |current: f64, stored: &Value| {
        (current / stored.as_f64().unwrap() - 1.0).abs() < 1e-9 || stored.as_f64() == Some(current)
    };
    for (key, current) in &headlines {
        let stored = histories.get(key).unwrap_or_else(|| panic!("{key:?} was not known later"));
        assert!(
            stored.iter().any(|stored_value| is_same(*current, stored_value)),
            "{key:?}: {current}, and it was one of {stored:?}"
        );
    }
    assert!(headlines.len() > 100 && results.len() - headlines.len() < 30, "{} of {}", headlines.len(), results.len());
}

#[test]
fn stored_runs_keep_their_headlines() {
    let dir = TestDir::new();
    let [full, second, third] = [FULL_RUN, SECOND_RUN, THIRD_RUN].map(|name| unpack_run(&dir, name));
    for (name, run, later) in [(FULL_RUN, &full, &second), (SECOND_RUN, &second, &third)] {
        let report: Value = serde_json::from_str(&dir.stdout_of(&[
            "report",
            name,
            "--format",
            "json",
            "--with-private",
            "--with-samples",
        ]))
        .unwrap();
        assert_headlines_unchanged(&report, run, later);
    }
}

/// Samples in a run, by its file.
fn sample_count(run: &Value) -> usize {
    let rounds = array(&run["measurements"]).iter().flat_map(|measurement| array(&measurement["rounds"]));
    let readings = rounds.filter_map(|round| round["outcome"]["measured"].as_array()).flatten();
    let count = |reading: &Value| match &reading["readings"] {
        Value::Object(object) if object.contains_key("scalars") => array(&object["scalars"]).len(),
        batches => array(&batches["batches"]["iterations"]).len(),
    };
    readings.map(count).sum()
}

#[test]
fn stored_run_is_whole_in_every_format() {
    let dir = TestDir::new();
    let run = unpack_run(&dir, SECOND_RUN);
    dir.stdout_of(&["runs", "import", SECOND_RUN]);
    assert!(
        serde_json::from_str::<Value>(&dir.stdout_of(&["runs", "export", "last", "--with-private"])).unwrap() == run
    );
    let report = |format: &str| dir.stdout_of(&["report", "--format", format]);
    let json: Value = serde_json::from_str(&report("json")).unwrap();
    let headlines = headlines(&json);

    // A line for each result, of which the first field is its metric and the eighth its headline.
    let table = report("csv");
    let parse_line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Some((fields[0].to_owned(), fields[7].parse::<f64>().ok()?.to_bits()))
    };
    let written: BTreeSet<(String, u64)> = table.lines().skip(1).filter_map(parse_line).collect();
    let expected = headlines.iter().map(|((metric, _), headline)| (metric.clone(), headline.to_bits()));
    assert_eq!(written, expected.collect());
    assert_eq!(table.lines().count(), array(&json["analysis"]["results"]).len() + 1);
    assert_eq!(report("samples").lines().count(), sample_count(&run) + 1);

    // The others show metrics below the name of their area.
    let metrics: BTreeSet<&str> = headlines.keys().map(|(metric, _)| metric.as_str()).collect();
    let (terminal, markdown, page) = (dir.stdout_of(&["report", "--full"]), report("md"), report("html"));
    for metric in &metrics {
        let (_, short_name) = metric.split_once('.').unwrap();
        assert!(terminal.contains(short_name) && markdown.contains(metric), "{metric}");
    }
    let screen = report("terminal");
    assert!(screen.lines().count() <= 60 && screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.contains("system call") && screen.contains("kelvin report last --full"), "{screen}");
    let probes: BTreeSet<&str> = array(&run["plan"]).iter().map(|entry| entry["probe"].as_str().unwrap()).collect();
    assert!(probes.len() > 20 && probes.iter().all(|probe| page.contains(probe)), "{probes:?}");
    // What is predicted anew is of the same run.
    let repredicted = dir.stdout_of(&["report", "--repredict", "--format", "csv"]);
    assert_eq!(repredicted.lines().count(), table.lines().count());
}
