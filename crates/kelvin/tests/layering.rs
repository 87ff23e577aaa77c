//! The layers of the workspace, held by a table: which crate may import which, who may be unsafe, who may know flags.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates and what each may import of the others, by the table of the guide. `kelvin` may import all.
fn allowed_imports() -> BTreeMap<String, Vec<String>> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CONTRIBUTING.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let rows = guide.lines().skip_while(|line| *line != TABLE_HEADER).skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, imports] = cells[..] else { panic!("{line} has three cells") };
        let imports = imports.split(", ").filter(|name| !["-", "all"].contains(name)).map(str::to_owned);
        (name.trim_matches('`').to_owned(), imports.collect())
    };
    rows.map(row).collect()
}

const TABLE_HEADER: &str = "| crate | duty | may import |";

/// What only tests may import, those of every crate.
const TEST_ONLY_CRATE: &str = "kelvin-testing";

/// The manifests of all crates: of the workspace, and of the crate that is a workspace of its own because it needs an MPI.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "../cluster/Cargo.toml"];

/// Dependencies that only one crate may have: a flag parser belongs to the command line of each program, a database to the store.
const EXCLUSIVE_DEPENDENCIES: &[(&str, &str)] = &[
    ("clap", "kelvin kelvin-cluster"),
    ("mpi", "kelvin-cluster"),
    ("rusqlite", "kelvin-store"),
    ("tokio-postgres", "kelvin-store"),
    ("io-uring", "kelvin-sys"),
    ("hdrhistogram", "kelvin-stats"),
    ("blake3", "kelvin-transfer"),
    ("snow", "kelvin-transfer"),
    ("postcard", "kelvin-transfer"),
    ("parquet", "kelvin-report"),
];

/// What panics where a limit forbids more threads, in a crate's code but not its tests, and what is right instead. `scope` and `thread` are
/// what a scope and the module are called here.
const PANICKING_SPAWNS: &[&str] = &["thread::spawn(", "scope.spawn(", ".spawn(move ||", ".spawn(||"];
/// What starts a thread and does not report a limit: only the one place that adds it, and one crate that may not import that.
const UNCHECKED_SPAWNS: &[&str] = &["thread::Builder", "Builder::new().name(", "spawn_scoped("];
const THREAD_SPAWNING_FILES: &[&str] = &["crates/sys/src/thread_spawn.rs", "crates/analysis/src/history.rs"];
/// What starts a process: its error must go through what adds the limit, by itself or in what starts it.
const COMMAND_NEW: &str = "Command::new(";
const PROCESS_ERROR_HELPERS: [&str; 2] = ["process_error", "spawn_timed("];

/// The only crate with unsafe code.
const UNSAFE_CRATE: &str = "kelvin-sys";

/// A crate of the workspace as `cargo metadata` describes it.
struct Package {
    name: String,
    version: String,
    rust_version: String,
    manifest: PathBuf,
    /// The root files of its library and its programs.
    roots: Vec<PathBuf>,
    dependencies: BTreeSet<String>,
}

fn packages() -> Vec<Package> {
    MANIFESTS.into_iter().flat_map(packages_of).collect()
}

/// The crates of the workspace of a manifest.
fn packages_of(manifest: &str) -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest))
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    array(&metadata["packages"]).iter().map(package).collect()
}

fn package(value: &Value) -> Package {
    let is_root = |target: &&Value| array(&target["kind"]).iter().any(|kind| kind == "lib" || kind == "bin");
    let roots = array(&value["targets"]).iter().filter(is_root).map(|target| PathBuf::from(text(&target["src_path"])));
    let is_test_only = |dependency: &&Value| dependency["kind"] == "dev" && dependency["name"] == TEST_ONLY_CRATE;
    let dependencies = array(&value["dependencies"]).iter().filter(|dependency| !is_test_only(dependency));
    Package {
        name: text(&value["name"]).to_owned(),
        version: text(&value["version"]).to_owned(),
        rust_version: text(&value["rust_version"]).to_owned(),
        manifest: text(&value["manifest_path"]).into(),
        roots: roots.collect(),
        dependencies: dependencies.map(|dependency| text(&dependency["name"]).to_owned()).collect(),
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no array"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string"))
}

/// What of a crate's imports (those of its tests included) the table does not allow, one line each.
fn violations(packages: &[Package]) -> Vec<String> {
    let table = allowed_imports();
    let mut violations = Vec::new();
    for package in packages.iter().filter(|package| package.name != "kelvin") {
        let Some(allowed) = package.name.strip_prefix("kelvin-").and_then(|name| table.get(name)) else {
            violations.push(format!("{} is not in the table of layers", package.name));
            continue;
        };
        for import in &package.dependencies {
            let crate_name = import.strip_prefix("kelvin-").or_else(|| (import == "kelvin").then_some("kelvin"));
            if crate_name.is_some_and(|name| !allowed.iter().any(|allowed_name| allowed_name == name)) {
                violations.push(format!("{} must not import {import}", package.name));
            }
        }
    }
    violations
}

#[test]
fn crates_import_only_lower_layers() {
    let packages = packages();
    let short_name = |package: &Package| package.name.trim_start_matches("kelvin-").to_owned();
    let crate_names: BTreeSet<String> = packages.iter().map(short_name).collect();
    assert_eq!(allowed_imports().into_keys().collect::<BTreeSet<String>>(), crate_names);
    assert_eq!(violations(&packages), Vec::<String>::new());
}

#[test]
fn wrong_import_is_reported() {
    let package = |name: &str, imports: &[&str]| Package {
        name: name.into(),
        version: String::new(),
        rust_version: String::new(),
        manifest: PathBuf::new(),
        roots: Vec::new(),
        dependencies: imports.iter().map(|&import| import.to_owned()).collect(),
    };
    let invalid_packages = [
        package("kelvin-store", &["kelvin-core", "kelvin-sys", "serde"]),
        package("kelvin-stats", &["kelvin"]),
        package("kelvin-attic", &[]),
        package("kelvin", &["kelvin-sys", "kelvin-store"]),
    ];
    let expected = [
        "kelvin-store must not import kelvin-sys",
        "kelvin-stats must not import kelvin",
        "kelvin-attic is not in the table of layers",
    ];
    assert_eq!(violations(&invalid_packages), expected);
}

#[test]
fn exclusive_dependencies_have_their_importers() {
    for (dependency, owner) in EXCLUSIVE_DEPENDENCIES {
        let has_dependency = |package: &&Package| package.dependencies.contains(*dependency);
        let packages = packages();
        let owners: Vec<&str> = packages.iter().filter(has_dependency).map(|package| package.name.as_str()).collect();
        assert_eq!(owners.join(" "), *owner, "{dependency}");
    }
}

/// The sources of all crates but their tests, by their paths in the workspace: what follows `#[cfg(test)]`, and files of tests, are none.
fn sources() -> Vec<(String, String)> {
    fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("tests") || path.ends_with("testing") => {}
                true => collect(&path, files),
                false if path.ends_with("tests.rs") || path.ends_with("fuzz.rs") => {}
                false => files.push(path),
            }
        }
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut files = Vec::new();
    packages().iter().for_each(|package| {
        if package.name != TEST_ONLY_CRATE {
            collect(&package.manifest.parent().unwrap().join("src"), &mut files);
        }
    });
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        (path.strip_prefix(workspace).unwrap().display().to_string(), code.join("\n"))
    };
    rust.map(read).collect()
}

#[test]
fn thread_spawn_failures_are_errors() {
    let sources = sources();
    assert!(
        sources.len() > 300 && sources.iter().any(|(path, _)| path == THREAD_SPAWNING_FILES[0]),
        "{}",
        sources.len()
    );
    let mut forbidden_uses = Vec::new();
    for (path, code) in &sources {
        let is_allowed = THREAD_SPAWNING_FILES.contains(&path.as_str());
        let forbidden = PANICKING_SPAWNS.iter().chain(UNCHECKED_SPAWNS.iter().filter(|_| !is_allowed));
        forbidden_uses.extend(forbidden.filter(|words| code.contains(**words)).map(|words| format!("{path}: {words}")));
    }
    assert_eq!(forbidden_uses, Vec::<String>::new(), "kelvin_sys::thread_spawn::Thread is right");
}

#[test]
fn process_spawn_failures_name_the_limit() {
    let is_checked = |code: &str| PROCESS_ERROR_HELPERS.iter().any(|helper| code.contains(helper));
    let is_unchecked = |(_, code): &&(String, String)| code.contains(COMMAND_NEW) && !is_checked(code);
    let unchecked_files: Vec<String> = sources().iter().filter(is_unchecked).map(|(path, _)| path.clone()).collect();
    assert_eq!(unchecked_files, Vec::<String>::new(), "kelvin_sys::thread_spawn::process_error is right");
}

#[test]
fn only_sys_has_unsafe_code() {
    for package in packages().iter().filter(|package| package.name != UNSAFE_CRATE) {
        assert!(!package.roots.is_empty(), "{} has neither a library nor a program", package.name);
        for root in &package.roots {
            let source = std::fs::read_to_string(root).unwrap();
            let forbids = source.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
            assert!(forbids, "{} does not forbid unsafe code", root.display());
        }
    }
}

#[test]
fn every_crate_inherits_workspace_lints() {
    // They are what keeps libraries from printing and exiting.
    for package in packages() {
        let manifest = std::fs::read_to_string(&package.manifest).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", package.manifest.display());
    }
}

#[test]
fn all_crates_have_one_version() {
    let expected = (env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_RUST_VERSION"));
    for package in packages() {
        assert_eq!((package.version.as_str(), package.rust_version.as_str()), expected, "{}", package.name);
    }
}
