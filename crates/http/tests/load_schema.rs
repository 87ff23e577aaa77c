//! The published schemas of `kelvin load --json` and `kelvin load merge --json`.

use kelvin_http::load::document::{LoadDocument, LoadSequence, RateSearch};
use kelvin_http::load::measured_load::MeasuredLoad;
use kelvin_http::load::merge::MergedLoads;
use schemars::{JsonSchema, Schema, schema_for};

/// What `kelvin load --json` prints.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum LoadOutput {
    /// One load.
    Single(Box<LoadDocument<MeasuredLoad>>),
    /// Several loads.
    Several(LoadDocument<LoadSequence>),
    /// The search of a rate.
    Search(LoadDocument<RateSearch>),
}

/// The published schema is that of the types; `KELVIN_UPDATE_SCHEMA=1 cargo test -p kelvin-http --test load_schema` writes it anew.
#[track_caller]
fn assert_current(name: &str, schema: &Schema) {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    let schema = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(published == schema, "docs/{name} is stale: run with KELVIN_UPDATE_SCHEMA=1");
}

#[test]
fn published_load_schema_is_current() {
    assert_current("load.schema.json", &schema_for!(LoadOutput));
}

#[test]
fn published_merge_schema_is_current() {
    assert_current("load-merge.schema.json", &schema_for!(MergedLoads));
}
