//! Every format that was ever released stays readable: one stored run and one file of each, kept for ever.
//!
//! A fixture is made once, by running these tests with `KELVIN_BLESS=1` while it does not exist, and never changed
//! after the release that first wrote it. The published JSON Schema is brought up to date in the same way.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{MACHINE, sample_metrics, sample_run};
use kelvin_core::identifiers::TextLengthLimit;
use kelvin_core::{Case, Name, RUN_FORMAT, Run, StoredHeadline};
use kelvin_store::{HistoryFilter, SCHEMA_VERSION, Store, export, import};
use schemars::generate::SchemaSettings;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn published_schema() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run.schema.json")
}

fn is_blessing() -> bool {
    std::env::var_os("KELVIN_BLESS").is_some_and(|value| value == "1")
}

/// Whose runs teach: those of the machine and mode of the sample.
const SAMPLE_FILTER: HistoryFilter<'_> = HistoryFilter { machine: MACHINE, mode: Some("quick"), excluded: &[] };

fn headlines() -> Vec<StoredHeadline> {
    let case = Case::new().with_word(kelvin_core::AxisWord::from_names("call", "getppid"));
    vec![StoredHeadline { metric: Name::new("os.syscall.null"), version: 1, case, value: 61.25, within_variance: 0.5 }]
}

#[test]
fn format_1_file_is_readable() {
    let path = fixture("format-1.json");
    if is_blessing() && !path.exists() {
        assert_eq!(RUN_FORMAT, 1, "only a kelvin of format 1 can make its fixture");
        export(&sample_run(), fs::File::create(&path).unwrap()).unwrap();
    }
    assert_eq!(import(fs::File::open(path).unwrap()).unwrap(), sample_run());
}

#[test]
fn format_1_store_is_readable() {
    let path = fixture("format-1.sqlite");
    if is_blessing() && !path.exists() {
        assert_eq!((RUN_FORMAT, SCHEMA_VERSION), (1, 1), "only a kelvin of format 1 can make its fixture");
        let store = Store::open(&path).unwrap();
        store.insert(&sample_run()).unwrap();
        store.record_headlines(&sample_run().header.id, &headlines()).unwrap();
    }
    // Opened as a copy: opening brings the layout up to date.
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("runs.sqlite");
    fs::write(&copy, fs::read(path).unwrap()).unwrap();
    let store = Store::open(copy).unwrap();
    assert_eq!(store.load("last").unwrap(), sample_run());
    let history = store.spread_history(&SAMPLE_FILTER, &sample_metrics(), 10).unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!((history[0].headlines[0], history[0].within_variances[0]), (61.25, 0.5));
}

#[test]
fn layout_2_store_is_readable() {
    let path = fixture("layout-2.sqlite");
    if is_blessing() && !path.exists() {
        assert_eq!(SCHEMA_VERSION, 2, "only a kelvin of layout 2 can make its fixture");
        let store = Store::open(&path).unwrap();
        store.insert(&sample_run()).unwrap();
        store.record_figures(&sample_run(), &headlines()).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("runs.sqlite");
    fs::write(&copy, fs::read(path).unwrap()).unwrap();
    let store = Store::open(&copy).unwrap();
    assert_eq!(store.load("last").unwrap(), sample_run());
    drop(store);
    let figures = "SELECT metric.unit, value, predicted, predicted_low, predicted_high FROM headline
                   JOIN series ON series.key = series JOIN metric ON metric.id = series.metric";
    let figures = rusqlite::Connection::open(copy).unwrap().query_row(figures, [], |row| {
        Ok((row.get::<_, String>(0)?, [1, 2, 3, 4].map(|column| row.get::<_, f64>(column).unwrap())))
    });
    assert_eq!(figures.unwrap(), ("nanoseconds".to_owned(), [61.25, 61.5, 40.0, 120.0]));
}

/// Runs of a real machine; `crates/kelvin/tests/stored_runs.rs` describes them and their expected results.
const REAL_RUNS: [&str; 3] = ["intel-guest-1", "intel-guest-2", "intel-guest-3"];

#[test]
fn format_1_runs_round_trip_through_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("runs.sqlite")).unwrap();
    for name in REAL_RUNS {
        let text = kelvin_testing::stored_run(name);
        let run = import(text.as_bytes()).unwrap();
        assert_eq!(run.header.format, 1, "{name} is of the first format");
        store.insert(&run).unwrap();
        let stored = store.load(&run.header.id).unwrap();
        assert!(stored == run, "{name}: the store gives what it was given");
        let mut exported = Vec::new();
        export(&stored, &mut exported).unwrap();
        let [written, read] =
            [exported.as_slice(), text.as_bytes()].map(|text| serde_json::from_slice::<Value>(text).unwrap());
        assert!(written == read, "{name}: what is exported is what was imported");
    }
}

#[test]
fn published_run_schema_is_current() {
    let mut schema =
        SchemaSettings::draft2020_12().with_transform(TextLengthLimit).into_generator().into_root_schema_for::<Run>();
    schema.insert("title".into(), format!("A run of kelvin, format {RUN_FORMAT}").into());
    let current = serde_json::to_value(&schema).unwrap();
    let path = published_schema();
    if is_blessing() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, serde_json::to_string_pretty(&current).unwrap() + "\n").unwrap();
    }
    let published: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert!(published == current, "docs/run.schema.json is out of date: run this test with KELVIN_BLESS=1");
}
