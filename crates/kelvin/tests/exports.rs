//! Runs for other tools and back: formats of `kelvin report` that others read.

mod test_dir;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use test_dir::{KELVIN, TestDir, assert_refused, stderr, stdout};

/// A directory with the export of a run that is kept for ever.
fn dir_with_stored_run() -> TestDir {
    let dir = TestDir::new();
    fs::write(dir.path().join("run.json"), kelvin_testing::stored_run("intel-guest-2")).unwrap();
    dir
}

/// What `kelvin report` prints of it, and what it remarks.
fn report(dir: &TestDir, format: &str) -> (String, String) {
    let output = dir.command(KELVIN, &["report", "run.json", "--format", format]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{format}: {}", stderr(&output));
    (stdout(&output).to_owned(), stderr(&output).to_owned())
}

#[test]
fn run_exports_to_every_tool_format() {
    let dir = dir_with_stored_run();
    let report_of = |format| report(&dir, format);
    let (openmetrics, remark) = report_of("openmetrics");
    let is_headline = |line: &&str| {
        let name = line.split('{').next().unwrap_or_default();
        line.contains("{metric=")
            && !line.contains("interval=")
            && !name.ends_with("_rounds")
            && !name.starts_with("kelvin_figure_")
            && !name.contains("_predicted")
    };
    let figures = openmetrics.lines().filter(is_headline).count();
    assert!(openmetrics.contains(&format!("kelvin_run_figures{{outcome=\"measured\"}} {figures}.0\n")), "{figures}");
    assert_eq!(remark, "kelvin: figures left out: 2 without a value\n");

    let (smaller, message) = report_of("custom-smaller-is-better");
    let (bigger, _) = report_of("custom-bigger-is-better");
    let [smaller, bigger] = [smaller, bigger].map(|json| serde_json::from_str::<Vec<Value>>(&json).unwrap());
    let expected = "25 where neither is better";
    assert!(message.contains(expected) && smaller.len() + bigger.len() + 25 == figures, "{message}");

    let (bencher, _) = report_of("bencher");
    assert_eq!(serde_json::from_str::<Value>(&bencher).unwrap().as_object().unwrap().len(), figures);
    let (benchstat, _) = report_of("benchstat");
    let names: BTreeSet<&str> = benchstat
        .lines()
        .filter(|line| line.starts_with("Benchmark"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names.len(), figures);
    let (influx, remark) = report_of("influx");
    let series: BTreeSet<&str> = influx.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!((influx.lines().count(), series.len()), (figures, figures));
    assert_eq!(remark, "kelvin: figures left out: 2 without a value\n");
}

#[test]
fn run_is_read_from_standard_input() {
    let dir = dir_with_stored_run();
    let format = ["--format", "csv"];
    let input = fs::File::open(dir.path().join("run.json")).unwrap();
    let output = dir.command(KELVIN, &["report", "-", format[0], format[1]]).stdin(input).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), report(&dir, "csv").0);
    let empty = dir.command(KELVIN, &["report", "-"]).stdin(Stdio::null()).output().unwrap();
    assert_refused(&empty, &["-: "]);
}

#[test]
fn openmetrics_file_is_replaced_atomically() {
    let dir = dir_with_stored_run();
    fs::write(dir.path().join("kelvin.prom"), "old").unwrap();
    let write = |run: &str| {
        let arguments = ["report", run, "--format", "openmetrics", "--output", "kelvin.prom"];
        dir.command(KELVIN, &arguments).output().unwrap()
    };
    assert_refused(&write("no-such.json"), &["no-such.json"]);
    assert_eq!(fs::read_to_string(dir.path().join("kelvin.prom")).unwrap(), "old");
    assert_eq!(write("run.json").status.code(), Some(0));
    let text = fs::read_to_string(dir.path().join("kelvin.prom")).unwrap();
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(dir.names(), ["data", "kelvin.prom", "run.json"]);
}

#[test]
fn tables_export_as_parquet() {
    let dir = dir_with_stored_run();
    for format in ["parquet", "parquet-samples"] {
        dir.stdout_of(&["report", "run.json", "--format", format, "--output", format]);
        let file = fs::read(dir.path().join(format)).unwrap();
        // Both ends of a file are its mark.
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1") && file.len() > 1000, "{format}");
    }
}

/// A file that another program wrote.
fn copy_foreign_file(dir: &TestDir, name: &str) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/data").join(name);
    fs::copy(data, dir.path().join(name)).unwrap();
}

#[test]
fn export_import_export_is_identical() {
    let dir = dir_with_stored_run();
    copy_foreign_file(&dir, "fio.json");
    dir.stdout_of(&["runs", "import", "run.json"]);
    dir.stdout_of(&["runs", "import", "fio.json"]);
    let ids: Vec<String> = serde_json::from_str::<Vec<Value>>(&dir.stdout_of(&["runs", "list", "--json"]))
        .unwrap()
        .iter()
        .map(|run| run["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 2);
    for id in ids {
        let export = || dir.stdout_of(&["runs", "export", &id]);
        let first = export();
        fs::write(dir.path().join("again.json"), &first).unwrap();
        dir.stdout_of(&["runs", "delete", &id]);
        dir.stdout_of(&["runs", "import", "again.json"]);
        assert!(export() == first, "{id}");
    }
}

#[test]
fn foreign_run_is_compared_without_spread() {
    let dir = dir_with_stored_run();
    for name in ["lmbench.out", "fio.json", "iperf3-reverse.json", "sysbench-fileio.txt"] {
        copy_foreign_file(&dir, name);
        let output = dir.run(&["runs", "import", name]);
        let message = stderr(&output);
        assert!(
            output.status.success() && message.contains(" a foreign run of ") && message.contains("figures: "),
            "{message}"
        );
        let second_import = dir.run(&["runs", "import", name]);
        assert!(stderr(&second_import).contains("already stored:"), "{}", stderr(&second_import));
    }
    let list = dir.stdout_of(&["runs", "list"]);
    assert_eq!(list.lines().filter(|line| line.contains("  foreign ")).count(), 4, "{list}");
    let id = list.lines().find(|line| line.contains("-lmbench")).unwrap().split(' ').next().unwrap();
    for format in ["terminal", "md", "html"] {
        let text = dir.stdout_of(&["report", id, "--format", format]).replace('\n', " ");
        assert!(text.contains("foreign run") && text.contains("lmbench 3.0-a9"), "{format}");
    }
    let comparison: Value =
        serde_json::from_str(&dir.stdout_of(&["compare", id, "run.json", "--format", "json"])).unwrap();
    assert_eq!(comparison["base"]["runs"][0]["foreign"]["tool"], "lmbench");
    let figures = comparison["figures"].as_array().unwrap();
    assert!(!figures.is_empty());
    for figure in figures {
        assert_eq!(figure["verdict"]["not_known"], "published", "{figure}");
    }
    let range = format!("{id}..{id}");
    assert_refused(&dir.run(&["compare", &range, "run.json"]), &[&range, "a foreign run"]);
}

#[test]
fn unknown_import_is_refused_and_not_stored() {
    let dir = TestDir::new();
    ["fio.json", "sysbench-cpu.txt"].iter().for_each(|name| copy_foreign_file(&dir, name));
    fs::write(dir.path().join("notes"), "fio and sysbench 1.0").unwrap();
    let expect_refusal = |arguments: &[&str], words: &[&str]| {
        assert_refused(&dir.run(&[&["runs", "import"], arguments].concat()), words);
    };
    expect_refusal(&["notes"], &["notes", "not JSON", "--from"]);
    expect_refusal(&["fio.json", "--from", "iperf3"], &["fio.json", "iperf3", "names the program"]);
    expect_refusal(&["fio.json", "--from", "kelvin"], &["fio.json"]);
    expect_refusal(&["fio.json", "--from", "dd"], &["--from", "lmbench"]);
    expect_refusal(&["sysbench-cpu.txt"], &["sysbench-cpu.txt", "primes"]);
    expect_refusal(&["no-such"], &["no-such"]);
    expect_refusal(&[], &["FILE"]);
    assert_eq!(dir.stdout_of(&["runs", "list", "--json"]).trim(), "[]");
    let table = dir.stdout_of(&["runs", "import", "--table"]);
    assert!(table.contains("os.syscall.null") && table.contains("not imported: "));
    assert!(table.lines().all(|line| line.chars().count() <= 80));
}
