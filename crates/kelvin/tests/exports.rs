//! Runs for other tools and back: formats of `kelvin report` that others read.

mod test_dir;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use test_dir::{KELVIN, TestDir, assert_refused, stderr, stdout};

/// A place with the export of a run that is kept for ever.
fn dir_with_stored_run() -> TestDir {
    let place = TestDir::new();
    fs::write(place.path().join("run.json"), kelvin_testing::stored_run("intel-guest-2")).unwrap();
    place
}

/// What `kelvin report` prints of it, and what it remarks.
fn report(place: &TestDir, format: &str) -> (String, String) {
    let output = place.command(KELVIN, &["report", "run.json", "--format", format]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{format}: {}", stderr(&output));
    (stdout(&output).to_owned(), stderr(&output).to_owned())
}

#[test]
fn run_exports_to_every_tool_format() {
    let place = dir_with_stored_run();
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
    assert_eq!(remark, "kelvin: figures left out: 2 without a value\n");

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
fn openmetrics_file_is_replaced_atomically() {
    let place = dir_with_stored_run();
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

#[test]
fn tables_export_as_parquet() {
    let place = dir_with_stored_run();
    for format in ["parquet", "parquet-samples"] {
        place.stdout_of(&["report", "run.json", "--format", format, "--output", format]);
        let file = fs::read(place.path().join(format)).unwrap();
        // Both ends of a file are its mark.
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1") && file.len() > 1000, "{format}");
    }
}

/// A file that another program wrote.
fn copy_foreign_file(place: &TestDir, name: &str) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/data").join(name);
    fs::copy(data, place.path().join(name)).unwrap();
}

#[test]
fn export_import_export_is_identical() {
    let place = dir_with_stored_run();
    copy_foreign_file(&place, "fio.json");
    place.stdout_of(&["runs", "import", "run.json"]);
    place.stdout_of(&["runs", "import", "fio.json"]);
    let ids: Vec<String> = serde_json::from_str::<Vec<Value>>(&place.stdout_of(&["runs", "list", "--json"]))
        .unwrap()
        .iter()
        .map(|run| run["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 2);
    for id in ids {
        let export = || place.stdout_of(&["runs", "export", &id]);
        let first = export();
        fs::write(place.path().join("again.json"), &first).unwrap();
        place.stdout_of(&["runs", "delete", &id]);
        place.stdout_of(&["runs", "import", "again.json"]);
        assert!(export() == first, "{id}");
    }
}

#[test]
fn foreign_run_is_compared_without_spread() {
    let place = dir_with_stored_run();
    for name in ["lmbench.out", "fio.json", "iperf3-reverse.json", "sysbench-fileio.txt"] {
        copy_foreign_file(&place, name);
        let output = place.run(&["runs", "import", name]);
        let said = stderr(&output);
        assert!(output.status.success() && said.contains(" a foreign run of ") && said.contains("figures: "), "{said}");
        let again = place.run(&["runs", "import", name]);
        assert!(stderr(&again).contains("already stored:"), "{}", stderr(&again));
    }
    let list = place.stdout_of(&["runs", "list"]);
    assert_eq!(list.lines().filter(|line| line.contains("  foreign ")).count(), 4, "{list}");
    let id = list.lines().find(|line| line.contains("-lmbench")).unwrap().split(' ').next().unwrap();
    for format in ["terminal", "md", "html"] {
        let text = place.stdout_of(&["report", id, "--format", format]).replace('\n', " ");
        assert!(text.contains("foreign run") && text.contains("lmbench 3.0-a9"), "{format}");
    }
    let compared: Value =
        serde_json::from_str(&place.stdout_of(&["compare", id, "run.json", "--format", "json"])).unwrap();
    assert_eq!(compared["base"]["runs"][0]["foreign"]["tool"], "lmbench");
    let figures = compared["figures"].as_array().unwrap();
    assert!(!figures.is_empty());
    for figure in figures {
        assert_eq!(figure["verdict"]["not_known"], "published", "{figure}");
    }
    let range = format!("{id}..{id}");
    assert_refused(&place.run(&["compare", &range, "run.json"]), &[&range, "a foreign run"]);
}

#[test]
fn unknown_import_is_refused_and_not_stored() {
    let place = TestDir::new();
    ["fio.json", "sysbench-cpu.txt"].iter().for_each(|name| copy_foreign_file(&place, name));
    fs::write(place.path().join("notes"), "fio and sysbench 1.0").unwrap();
    let refused = |arguments: &[&str], words: &[&str]| {
        assert_refused(&place.run(&[&["runs", "import"], arguments].concat()), words);
    };
    refused(&["notes"], &["notes", "not JSON", "--from"]);
    refused(&["fio.json", "--from", "iperf3"], &["fio.json", "iperf3", "names the program"]);
    refused(&["fio.json", "--from", "kelvin"], &["fio.json"]);
    refused(&["fio.json", "--from", "dd"], &["--from", "lmbench"]);
    refused(&["sysbench-cpu.txt"], &["sysbench-cpu.txt", "primes"]);
    refused(&["no-such"], &["no-such"]);
    refused(&[], &["FILE"]);
    assert_eq!(place.stdout_of(&["runs", "list", "--json"]).trim(), "[]");
    let table = place.stdout_of(&["runs", "import", "--table"]);
    assert!(table.contains("os.syscall.null") && table.contains("not imported: "));
    assert!(table.lines().all(|line| line.chars().count() <= 80));
}
