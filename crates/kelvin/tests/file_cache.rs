//! `kelvin file cache` from outside: the quick figure, the proof under a limit, and that nothing is left behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kelvin_testing::{MissingRequirement, cgroups};
use serde_json::Value;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");

/// `kelvin file cache` in a directory on a disk.
fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(KELVIN);
    command.args(["file", "cache"]).arg(directory).args(arguments);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory that is not in memory, as a temporary one may be.
fn disk_directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

/// The control groups that a process has made.
fn groups_of(process: u32) -> Vec<PathBuf> {
    cgroups::find_named(|name| name.starts_with(&format!("kelvin-memory-{process}-")))
}

#[test]
fn quick_size_is_smallest_bound() {
    let report = json(&run(Path::new("."), &["--json"]));
    let bounds = report["bounds"].as_array().unwrap();
    let bytes = |bound: &Value| bound["bytes"].as_u64().unwrap();
    assert_eq!(report["bytes"].as_u64(), bounds.iter().map(bytes).min());
    assert!(report["measured"].is_null());
    for bound in bounds {
        let terms = bound["terms"].as_array().unwrap();
        let sum: i64 = terms.iter().map(|term| term["bytes"].as_i64().unwrap()).sum();
        assert_eq!(sum, bound["bytes"].as_i64().unwrap(), "{bound}");
        assert!(!bound["source"].as_str().unwrap().is_empty());
    }
}

#[test]
fn invalid_options_write_nothing() {
    let directory = disk_directory();
    let expect_refusal = |directory: &Path, arguments: &[&str], words: &str| {
        let output = run(directory, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    expect_refusal(directory.path(), &["--limit", "128M"], "--measure");
    expect_refusal(directory.path(), &["--measure", "--limit", "1M"], "it must be at least 64 MiB");
    expect_refusal(directory.path(), &["--measure", "--limit", "4000T"], "the whole file cache can hold only");
    expect_refusal(&directory.path().join("none"), &["--measure"], "No such file");
    expect_refusal(Path::new("/proc"), &["--measure"], "/proc is on proc, which is memory");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Runs kelvin as a user without rights; `None` where this one cannot become another, or that one may not run the program.
fn run_as_nobody(arguments: &[&str]) -> Option<Output> {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    Command::new(KELVIN).args(arguments).uid(NOBODY).gid(NOBODY).output().ok()
}

#[test]
fn unprivileged_gets_quick_size_and_reason() {
    let directory = disk_directory();
    let path = directory.path().to_str().unwrap();
    let Some(output) = run_as_nobody(&["file", "cache", path, "--measure", "--limit", "64M", "--json"]) else {
        return MissingRequirement::privilege("to become another user, and a program that all users may run")
            .report_skip("file cache without rights");
    };
    let report = json(&output);
    assert!(report["bytes"].as_u64().unwrap() > 1 << 20);
    let reason = report["measured"]["outcome"]["not_possible"].as_str().unwrap();
    assert!(reason.contains("cannot use a control group here"), "{reason}");
    assert_eq!((output.status.code(), std::fs::read_dir(directory.path()).unwrap().count()), (Some(1), 0));

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [1; 10_000]).unwrap();
    std::fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let name = file.path().to_str().unwrap();
    let expect_refusal = |arguments: &[&str], words: &str| {
        let output = run_as_nobody(&[&["file", "read", name, "--drop-caches"], arguments].concat()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    expect_refusal(
        &["--cache", "uncached"],
        "--drop-caches: cannot drop the machine's caches (root only) by /proc/sys/vm",
    );
    expect_refusal(&["--cache", "cached"], "--drop-caches: needs --cache uncached, not --cache cached");
    expect_refusal(&[], "not --cache as-found");
}

#[test]
fn limit_of_128_mib_is_measured() {
    let directory = disk_directory();
    let mut measure_command = command(directory.path(), &["--measure", "--limit", "128M", "--json"]);
    let child = measure_command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    let measurement = json(&output)["measured"].clone();
    if let Some(reason) = measurement["outcome"]["not_possible"].as_str() {
        assert_eq!(output.status.code(), Some(1));
        return MissingRequirement::from_message(reason).report_skip("file cache under a limit");
    }
    assert!(stderr(&output).contains("writing one file of 215 MiB in "), "{}", stderr(&output));
    // Other users of disk and memory can spoil it, which is reported; a wrong size never is.
    let cache_end = &measurement["outcome"]["found"];
    assert_eq!(output.status.code(), Some(0), "{measurement:#}");
    let bytes = cache_end["bytes"].as_u64().unwrap();
    assert!(bytes.abs_diff(128 << 20) <= (128 << 20) / 10, "{measurement:#}");
    assert!(
        cache_end["matches_limit"].as_bool().unwrap() && cache_end["resident_bytes"].as_u64().unwrap() <= 128 << 20,
        "{cache_end}"
    );
    assert_nothing_left(directory.path(), process);

    assert_interrupt_leaves_nothing(directory.path());
    assert_next_cleans_up_killed(directory.path());
}

fn is_empty(group: &Path) -> bool {
    std::fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty())
}

fn wait_half_a_minute(condition: &str, is_met: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_met() {
        assert!(std::time::Instant::now() < deadline, "not within half a minute: {condition}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Starts a measurement, and waits until it reads.
fn start(directory: &Path) -> std::process::Child {
    let mut command = command(directory, &["--measure", "--limit", "128M"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_half_a_minute("it reads", || groups_of(child.id()).iter().any(|group| !is_empty(group)));
    child
}

fn signal(child: &std::process::Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// Nothing in the directory, and no group of the process.
fn assert_nothing_left(directory: &Path, process: u32) {
    assert_eq!((std::fs::read_dir(directory).unwrap().count(), groups_of(process)), (0, Vec::new()));
}

fn assert_interrupt_leaves_nothing(directory: &Path) {
    let mut child = start(directory);
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert_nothing_left(directory, child.id());
}

fn assert_next_cleans_up_killed(directory: &Path) {
    let mut child = start(directory);
    child.kill().unwrap();
    child.wait().unwrap();
    let groups = groups_of(child.id());
    assert_eq!((std::fs::read_dir(directory).unwrap().count(), groups.len()), (1, 1));
    wait_half_a_minute("the reading process has died with it", || is_empty(&groups[0]));
    // What it left is removed by the first step of the next, even if that fails.
    let mut next = start(directory);
    assert_eq!(groups_of(child.id()), Vec::<PathBuf>::new());
    signal(&next, "-TERM");
    next.wait().unwrap();
    assert_nothing_left(directory, next.id());
}
