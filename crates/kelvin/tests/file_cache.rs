//! `kelvin file cache` from outside: the quick figure, the proof under a limit, and that nothing is left behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kelvin_testing::Missing;
use serde_json::Value;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");

/// Runs `kelvin file cache` in a directory on a disk.
fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(KELVIN).args(["file", "cache"]).arg(directory).args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory that is not in memory, as a temporary one may be.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

/// Control groups of ours, wherever they are mounted.
fn groups() -> Vec<PathBuf> {
    fn below(directory: &Path, depth: u32, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("kelvin-memory-") {
                found.push(entry.path());
            }
            if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below(&entry.path(), depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    below(Path::new("/sys/fs/cgroup"), 6, &mut found);
    found
}

#[test]
fn the_quick_figure_is_the_least_bound_and_its_terms_add_up() {
    let found = json(&run(Path::new("."), &["--json"]));
    let bounds = found["bounds"].as_array().unwrap();
    let bytes = |bound: &Value| bound["bytes"].as_u64().unwrap();
    assert_eq!(found["bytes"].as_u64(), bounds.iter().map(bytes).min());
    assert!(found["measured"].is_null());
    for bound in bounds {
        let terms = bound["terms"].as_array().unwrap();
        let sum: i64 = terms.iter().map(|term| term["bytes"].as_i64().unwrap()).sum();
        assert_eq!(sum, bound["bytes"].as_i64().unwrap(), "{bound}");
        assert!(!bound["source"].as_str().unwrap().is_empty());
    }
}

#[test]
fn mistakes_are_refused_before_anything_is_written() {
    let directory = on_disk();
    let refused = |directory: &Path, arguments: &[&str], words: &str| {
        let output = run(directory, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(words), "{}", said(&output));
    };
    refused(directory.path(), &["--limit", "128M"], "--measure");
    refused(directory.path(), &["--measure", "--limit", "1M"], "it must be at least 64 MiB");
    refused(directory.path(), &["--measure", "--limit", "4000T"], "the whole file cache can hold only");
    refused(&directory.path().join("none"), &["--measure"], "No such file");
    refused(Path::new("/proc"), &["--measure"], "/proc is on proc, which is memory");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The same as a user without rights; `None` where this one cannot become another, or that one may not run the program.
fn run_as_nobody(arguments: &[&str]) -> Option<Output> {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    Command::new(KELVIN).args(arguments).uid(NOBODY).gid(NOBODY).output().ok()
}

#[test]
fn without_rights_there_is_the_quick_figure_and_the_reason() {
    let directory = on_disk();
    let place = directory.path().to_str().unwrap();
    let Some(output) = run_as_nobody(&["file", "cache", place, "--measure", "--limit", "64M", "--json"]) else {
        return Missing::right("to become another user, and a program that all users may run")
            .skips("file cache without rights");
    };
    let found = json(&output);
    assert!(found["bytes"].as_u64().unwrap() > 1 << 20);
    let reason = found["measured"]["outcome"]["not_possible"].as_str().unwrap();
    assert!(reason.contains("cannot use a control group here"), "{reason}");
    assert_eq!((output.status.code(), std::fs::read_dir(directory.path()).unwrap().count()), (Some(1), 0));

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [1; 10_000]).unwrap();
    std::fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let name = file.path().to_str().unwrap();
    let refused = |arguments: &[&str], words: &str| {
        let output = run_as_nobody(&[&["file", "read", name, "--drop-caches"], arguments].concat()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    };
    refused(&["--cache", "uncached"], "--drop-caches: cannot drop the machine's caches (root only) by /proc/sys/vm");
    refused(&["--cache", "cached"], "--drop-caches: needs --cache uncached, not --cache cached");
    refused(&[], "not --cache as-found");
}

/// One test for all that makes a group, so that none sees the groups of another.
#[test]
fn a_limit_of_128_mib_is_found_within_a_tenth_and_nothing_is_left() {
    let directory = on_disk();
    let output = run(directory.path(), &["--measure", "--limit", "128M", "--json"]);
    let measured = json(&output)["measured"].clone();
    if let Some(reason) = measured["outcome"]["not_possible"].as_str() {
        assert_eq!(output.status.code(), Some(1));
        return Missing::said(reason).skips("file cache under a limit");
    }
    assert!(said(&output).contains("writing one file of 215 MiB in "), "{}", said(&output));
    // Other users of disk and memory can spoil it, which is reported; a wrong size never is.
    let found = &measured["outcome"]["found"];
    assert_eq!(output.status.code(), Some(0), "{measured:#}");
    let bytes = found["bytes"].as_u64().unwrap();
    assert!(bytes.abs_diff(128 << 20) <= (128 << 20) / 10, "{measured:#}");
    assert!(found["agrees"].as_bool().unwrap() && found["resident_bytes"].as_u64().unwrap() <= 128 << 20, "{found}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(groups(), Vec::<PathBuf>::new());

    interrupted_leaves_nothing(directory.path());
    killed_is_tidied_up_by_the_next(directory.path());
}

fn is_empty(group: &Path) -> bool {
    std::fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty())
}

fn within_half_a_minute(what: &str, is_so: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "not within half a minute: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Starts a measurement, and waits until it reads.
fn start(directory: &Path) -> std::process::Child {
    let mut command = Command::new(KELVIN);
    command.args(["file", "cache"]).arg(directory).args(["--measure", "--limit", "128M"]);
    let child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let own = format!("-{}", child.id());
    within_half_a_minute("it reads", || {
        groups().iter().any(|group| group.to_string_lossy().ends_with(&own) && !is_empty(group))
    });
    child
}

fn interrupted_leaves_nothing(directory: &Path) {
    let mut child = start(directory);
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert_eq!((std::fs::read_dir(directory).unwrap().count(), groups()), (0, Vec::new()));
}

fn killed_is_tidied_up_by_the_next(directory: &Path) {
    let mut child = start(directory);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((std::fs::read_dir(directory).unwrap().count(), groups().len()), (1, 1));
    within_half_a_minute("the reading process has died with it", || groups().iter().all(|group| is_empty(group)));
    // What it left is removed by the first step of the next, even if that fails.
    let mut next = start(directory);
    let left = groups();
    assert!(left.len() == 1 && left[0].to_string_lossy().ends_with(&next.id().to_string()), "{left:?}");
    let status = Command::new("kill").args(["-TERM", &next.id().to_string()]).status().unwrap();
    assert!(status.success());
    next.wait().unwrap();
    assert_eq!((std::fs::read_dir(directory).unwrap().count(), groups()), (0, Vec::new()));
}
