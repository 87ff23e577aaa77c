//! The published schema of a comparison.

use kelvin_report::compare::schema;

/// The published schema is that of the types; `KELVIN_UPDATE_SCHEMA=1 cargo test -p kelvin-report` writes it anew.
#[test]
fn the_published_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compare.schema.json");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == schema, "docs/compare.schema.json is stale: run with KELVIN_UPDATE_SCHEMA=1");
}
