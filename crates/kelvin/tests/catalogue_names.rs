//! Metrics and axes are named by the items of the catalogue: their ids are spelled nowhere else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The only module that spells them.
const CATALOGUE: &str = "core/src/catalogue";

/// The table of what published rows are called in their files, some of them as the metrics are, and that of ids which were given up.
const EXEMPT_TABLES: [&str; 2] = ["reference/src/published/row_mapping.rs", "core/src/name.rs"];

/// How a case is read or made by the name of an axis, which only fixtures do.
const NAME_LOOKUPS: [&str; 3] = [".get(\"", ".with_number(\"", "AxisWord::from_names("];

/// All Rust files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let of_entry = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(of_entry).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// The code of a file: what stands before its tests, without comments.
fn code(text: &str) -> String {
    let non_test_code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    non_test_code.lines().filter(is_code).collect::<Vec<&str>>().join("\n")
}

/// The string literals of a line of code, as far as none of them holds a quotation mark.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// The ids of metrics and probes, and the names of axes.
fn catalogue_names() -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
    let probes = kelvin_probes::all();
    let metrics = kelvin_core::catalogue::all();
    let ids = metrics.map(|metric| metric.id.as_str()).chain(probes.iter().map(|probe| probe.id)).collect();
    let axes = kelvin_core::catalogue::all().flat_map(|metric| metric.axes().map(|axis| axis.name.as_str()));
    (ids, axes.collect())
}

/// Where a source spells a name that belongs to the catalogue.
fn spelled_names(text: &str) -> Vec<String> {
    let (ids, axes) = catalogue_names();
    let spelled_in_line = |line: &str| {
        let id = literals(line).any(|literal| ids.contains(literal));
        let axis = NAME_LOOKUPS.iter().any(|lookup| line.contains(lookup))
            && literals(line).any(|literal| axes.contains(literal));
        (id || axis).then(|| line.trim().to_owned())
    };
    code(text).lines().filter_map(spelled_in_line).collect()
}

#[test]
fn spelled_name_is_detected() {
    assert_eq!(spelled_names("let id = \"os.syscall.null\";\n// \"os.syscall.null\"").len(), 1);
    assert_eq!(spelled_names("case.with_number(\"message\", 64)").len(), 1);
    assert!(
        spelled_names("bench.note(\"os.syscall.null is the floor\");\n#[cfg(test)]\nconst ID: &str = \"os.fork\";")
            .is_empty()
    );
}

#[test]
fn only_catalogue_spells_metric_ids_and_axes() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut spellings = Vec::new();
    for directory in std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
        for file in sources(&directory.join("src"))
            .into_iter()
            .filter(|file| !file.ends_with("tests.rs") && !file.to_string_lossy().contains(CATALOGUE))
            .filter(|file| !EXEMPT_TABLES.iter().any(|table| file.ends_with(table)))
        {
            let lines = spelled_names(&std::fs::read_to_string(&file).unwrap());
            spellings.extend(lines.into_iter().map(|line| format!("{}: {line}", file.display())));
        }
    }
    assert!(spellings.is_empty(), "name these by the catalogue:\n{}", spellings.join("\n"));
}
