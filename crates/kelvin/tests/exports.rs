//! Runs for other tools and back: formats of `kelvin report` that others read.

mod place;

use std::collections::BTreeSet;
use std::fs;

use place::{KELVIN, Place, assert_refused, stderr, stdout};
use serde_json::Value;

/// A place with the export of a run that is kept for ever.
fn with_kept_run() -> Place {
    let place = Place::new();
    fs::write(place.path().join("run.json"), kelvin_testing::stored_run("intel-guest-2").0).unwrap();
    place
}

/// What `kelvin report` prints of it, and what it remarks.
fn report(place: &Place, format: &str) -> (String, String) {
    let output = place.command(KELVIN, &["report", "run.json", "--format", format]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{format}: {}", stderr(&output));
    (stdout(&output).to_owned(), stderr(&output).to_owned())
}

#[test]
fn a_whole_run_is_in_every_format_of_other_tools() {
    let place = with_kept_run();
    let report_of = |format| report(&place, format);
    let (openmetrics, remark) = report_of("openmetrics");
    let is_headline = |line: &&str| {
        let name = line.split('{').next().unwrap_or_default();
        line.contains("{metric=")
            && !line.contains("interval=")
            && !name.ends_with("_rounds")
            && !name.contains("_predicted")
    };
    let figures = openmetrics.lines().filter(is_headline).count();
    assert!(openmetrics.contains(&format!("kelvin_run_figures{{outcome=\"measured\"}} {figures}.0\n")), "{figures}");
    assert_eq!(remark, "kelvin: figures left out: 5 without a value\n");

    let (smaller, said) = report_of("custom-smaller-is-better");
    let (bigger, _) = report_of("custom-bigger-is-better");
    let [smaller, bigger] = [smaller, bigger].map(|json| serde_json::from_str::<Vec<Value>>(&json).unwrap());
    let neither = "25 where neither is better";
    assert!(said.contains(neither) && smaller.len() + bigger.len() + 25 == figures, "{said}");

    let (bencher, _) = report_of("bencher");
    assert_eq!(serde_json::from_str::<Value>(&bencher).unwrap().as_object().unwrap().len(), figures);
    let (benchstat, _) = report_of("benchstat");
    let names: BTreeSet<&str> = benchstat
        .lines()
        .filter(|line| line.starts_with("Benchmark"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names.len(), figures);
}

#[test]
fn a_file_of_metrics_is_there_whole_or_not_at_all() {
    let place = with_kept_run();
    fs::write(place.path().join("kelvin.prom"), "old").unwrap();
    let write = |run: &str| {
        let arguments = ["report", run, "--format", "openmetrics", "--output", "kelvin.prom"];
        place.command(KELVIN, &arguments).output().unwrap()
    };
    assert_refused(&write("no-such.json"), &["no-such.json"]);
    assert_eq!(fs::read_to_string(place.path().join("kelvin.prom")).unwrap(), "old");
    assert_eq!(write("run.json").status.code(), Some(0));
    let text = fs::read_to_string(place.path().join("kelvin.prom")).unwrap();
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(place.names(), ["data", "kelvin.prom", "run.json"]);
}
