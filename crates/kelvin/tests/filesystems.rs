//! The whole program on file systems of every kind: what works comes with its proof, and what a file system cannot do is reported
//! in one line that names it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kelvin_testing::mounted_fs::{self, FileSystemKind, MountedFs};
use serde_json::Value;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");
/// Bytes of the file: many pages, and a last word that is not whole.
const BYTES: u64 = (8 << 20) + 4096;
/// Pages of it.
const PAGES: u64 = BYTES.div_ceil(4096);

/// The mounts are one at a time: what is dropped from memory by one test must not be looked for by another.
static MOUNT_LOCK: Mutex<()> = Mutex::new(());

/// Where they are mounted.
fn base() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

struct LockedMount(MountedFs, #[allow(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);

impl LockedMount {
    /// An empty mounted file system; `None`, with the reason printed, if there can be none here.
    fn mount(kind: FileSystemKind) -> Option<Self> {
        let guard = MOUNT_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let mounted = MountedFs::new(kind, base())
            .inspect_err(|missing| missing.report_skip(format!("files on {}", kind.name())));
        Some(Self(mounted.ok()?, guard))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(KELVIN);
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null()).env_remove("COLUMNS");
        command.output().unwrap()
    }

    /// What it prints as JSON.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// That it cannot be done, and the line that reports it.
    #[track_caller]
    fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let message = stderr(&output).to_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.lines().count() == 1 && message.starts_with("kelvin: "), "{message}");
        message
    }

    /// A file of random data that is on its device, and its digest by the definition.
    fn file(&self) -> String {
        let size = BYTES.to_string();
        let written = self.json(&["file", "write", "data", "--size", &size, "--block", "64k", "--sync", "fsync"]);
        let content = fs::read(self.0.path().join("data")).unwrap();
        assert_eq!(content.len() as u64, BYTES);
        let words = content.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let digest = format!("{:08x}", words.fold(0, |xor, word| xor ^ word));
        assert_eq!(written["digest"], digest.as_str());
        digest
    }

    fn read(&self, cache: &str) -> Value {
        self.json(&["file", "read", "data", "--block", "64k", "--cache", cache])
    }
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Pages in memory before and after reading, by mincore and by cachestat.
fn pages(report: &Value) -> [(u64, Option<u64>); 2] {
    ["before", "after"].map(|when| (report[when]["mincore"].as_u64().unwrap(), report[when]["cachestat"].as_u64()))
}

/// That it was read whole, in this cache state by mincore and cachestat.
#[track_caller]
fn assert_read(report: &Value, digest: &str, cached: bool) {
    assert_eq!((report["digest"].as_str(), report["bytes"].as_u64()), (Some(digest), Some(BYTES)), "{report:#}");
    let [(before, _), _] = pages(report);
    assert_eq!(before, if cached { PAGES } else { 0 }, "{report:#}");
}

fn notes(report: &Value) -> String {
    report["notes"].to_string()
}

/// Whether a digest is found however the file lies in memory.
fn assert_digest(system: &LockedMount, digest: &str) {
    for _ in 0..2 {
        let output = system.run(&["digest", "data"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), text.as_str()), (Some(0), format!("{digest}  data\n").as_str()));
    }
}

/// File systems on a block device have all three states, and the device counts what was not in memory.
fn assert_states_on_device(kind: FileSystemKind) {
    let Some(system) = LockedMount::mount(kind) else { return };
    let digest = system.file();
    assert_digest(&system, &digest);
    for (cache, in_memory) in [("cached", true), ("uncached", false), ("direct", false)] {
        let report = system.read(cache);
        assert_read(&report, &digest, in_memory);
        assert_eq!(report["file_system"], kind.name());
        // Both witnesses agree, if the kernel has both.
        let [(before, cachestat), (after, _)] = pages(&report);
        assert!(cachestat.is_none_or(|page_count| page_count == before), "{report:#}");
        assert!(cache != "direct" || after == 0, "{report:#}");
        let device = &report["device"]["known"];
        assert!(device["name"].as_str().is_some_and(|name| name.starts_with("loop")), "{report:#}");
        let read = device["read"].as_u64().unwrap();
        assert!(if in_memory { read < BYTES / 10 } else { read >= BYTES }, "{report:#}");
    }
    let written = system.json(&["file", "write", "direct", "--size", "1M", "--block", "64k", "--sync", "direct"]);
    let device_bytes = written["device"]["known"]["written"].as_u64().unwrap();
    assert!(device_bytes >= 1 << 20 && written["unwritten_bytes"] == 0, "{written:#}");
}

#[test]
fn ext4_has_all_cache_states() {
    assert_states_on_device(FileSystemKind::Ext4);
}

#[test]
fn xfs_has_all_cache_states() {
    assert_states_on_device(FileSystemKind::Xfs);
}

#[test]
fn btrfs_has_all_cache_states() {
    assert_states_on_device(FileSystemKind::Btrfs);
}

#[test]
fn tmpfs_is_always_cached() {
    let Some(system) = LockedMount::mount(FileSystemKind::Tmpfs) else { return };
    let digest = system.file();
    assert_digest(&system, &digest);
    assert_read(&system.read("cached"), &digest, true);
    for cache in ["uncached", "direct"] {
        let message = system.refusal(&["file", "read", "data", "--block", "64k", "--cache", cache]);
        assert!(
            message.contains(&format!("data is not {cache}")) && message.contains("tmpfs lives in memory"),
            "{message}"
        );
    }
    let message = system.refusal(&["file", "write", "direct", "--size", "1M", "--block", "64k", "--sync", "direct"]);
    assert!(message.contains("past the page cache") && message.contains("lives in memory"), "{message}");
    assert_eq!(fs::read_dir(system.0.path()).unwrap().count(), 1, "what could not be written is not there");
}

#[test]
fn overlay_residency_is_from_the_reliable_source() {
    let Some(system) = LockedMount::mount(FileSystemKind::Overlay) else { return };
    let digest = system.file();
    assert_digest(&system, &digest);
    let cached = system.read("cached");
    assert_read(&cached, &digest, true);
    // cachestat looks at the file of the overlay, which has no pages of its own, unless the kernel has learned better.
    let [(mincore, cachestat), _] = pages(&cached);
    assert!(
        mincore == PAGES && cachestat.is_none_or(|page_count| page_count == 0 || page_count == PAGES),
        "{cached:#}"
    );
    let uncached = system.read("uncached");
    assert_read(&uncached, &digest, false);
    // It was read through the page cache, so that it is there now.
    assert_eq!(pages(&uncached)[1].0, PAGES, "{uncached:#}");
    assert_read(&system.read("direct"), &digest, false);
    // It is on no device itself, and does not claim one.
    assert!(uncached["device"]["unknown"]["reason"].as_str().unwrap().contains("no block device"), "{uncached:#}");
}

#[test]
fn sshfs_is_read_in_every_cache_state() {
    let Some(system) = LockedMount::mount(FileSystemKind::Sshfs) else { return };
    let digest = system.file();
    assert_digest(&system, &digest);
    let cached = system.read("cached");
    assert_read(&cached, &digest, true);
    assert!(!notes(&cached).contains("serves this file system"), "{cached:#}");
    for cache in ["uncached", "direct"] {
        let output = system.run(&["file", "read", "data", "--block", "64k", "--cache", cache, "--json"]);
        if output.status.code() == Some(2) && cache == "direct" {
            // Without direct I/O in this kernel's FUSE or in this sshfs.
            assert!(stderr(&output).contains("past the page cache"), "{}", stderr(&output));
            continue;
        }
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_read(&report, &digest, false);
        assert_eq!(report["file_system"], "fuse");
        assert!(notes(&report).contains("another program or machine serves this file system (fuse)"), "{report:#}");
        assert!(report["device"]["unknown"].is_object(), "{report:#}");
    }
}

#[test]
fn page_cache_bypass_is_never_called_cached() {
    let Some(system) = LockedMount::mount(FileSystemKind::Bindfs) else { return };
    let digest = system.file();
    assert_digest(&system, &digest);
    let message = system.refusal(&["file", "read", "data", "--block", "64k", "--cache", "cached"]);
    assert!(message.contains("data is not cached") && message.contains("serves this file system (fuse)"), "{message}");
    let report = system.read("uncached");
    assert_read(&report, &digest, false);
    assert_eq!(pages(&report)[1].0, 0, "{report:#}");
    assert!(notes(&report).contains("another program or machine serves this file system"), "{report:#}");
}

#[test]
fn uncacheable_fuse_file_is_skipped() {
    let Some(system) = LockedMount::mount(FileSystemKind::Bindfs) else { return };
    let run = ["run", "file.page_read", "--quick", "--budget", "minimum", "--rounds", "2", "--no-store"];
    let report = system.json(&run);
    let outcomes: Vec<&Value> =
        report["analysis"]["results"].as_array().unwrap().iter().map(|result| &result["outcome"]).collect();
    let reasons = |kind: &str| -> Vec<&str> { outcomes.iter().filter_map(|outcome| outcome[kind].as_str()).collect() };
    assert!(reasons("failed").is_empty(), "{outcomes:#?}");
    let skip_reasons: Vec<&str> =
        reasons("skipped").into_iter().filter(|reason| reason.contains("stay in the page cache")).collect();
    // Each is the same text, which a report has once.
    assert!(!skip_reasons.is_empty() && skip_reasons.iter().all(|reason| *reason == skip_reasons[0]), "{outcomes:#?}");
    assert!(skip_reasons[0].contains("serves this file system (fuse)"), "{}", skip_reasons[0]);
}

#[test]
fn scratch_on_network_fs_is_left_alone() {
    // As another machine would have made it; none of its locks is seen here.
    let foreign_name = "kelvin-scratch-0123456789abcdef0123456789abcdef-4026531836-4194999";
    let run = ["run", "os.syscall.null", "--budget", "1s", "--rounds", "2", "--no-store"];
    for (kind, is_kept) in [(FileSystemKind::Sshfs, true), (FileSystemKind::Ext4, false)] {
        let Some(system) = LockedMount::mount(kind) else { continue };
        let path = system.0.path().join(foreign_name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("lock"), "").unwrap();
        let output = system.run(&run);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(path.exists(), is_kept, "{}", kind.name());
        // Its own directory is gone in any case.
        let names = fs::read_dir(system.0.path()).unwrap().flatten().map(|entry| entry.file_name());
        let own_names =
            names.filter(|name| name.to_string_lossy().starts_with("kelvin-scratch-") && *name != *foreign_name);
        assert_eq!(own_names.count(), 0, "{}", kind.name());
    }
}

#[test]
fn test_mount_ends_with_killed_test() {
    let _guard = MOUNT_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    for kind in FileSystemKind::ALL {
        let Ok(mounted) = MountedFs::new(kind, base()) else { continue };
        let path = mounted.path();
        assert!(mounts().contains(&*path.to_string_lossy()), "{}", kind.name());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _mounted = mounted;
            std::panic::resume_unwind(Box::new("a test that fails"));
        }));
        assert!(panicked.is_err());
        assert!(!mounts().contains(&*path.to_string_lossy()) && !path.exists(), "{}", kind.name());
    }
    // The next test removes what a killed one left.
    let base = tempfile::tempdir().unwrap();
    let leftover = base.path().join("kelvin-mounted-4194999-tmpfs");
    fs::create_dir_all(leftover.join("mount")).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(leftover.join("mount")).output();
    let foreign = base.path().join("kelvin-mounted-x");
    fs::create_dir(&foreign).unwrap();
    mounted_fs::remove_leftovers(base.path());
    assert!(!leftover.exists() && foreign.exists(), "{mounted:?}");
    assert!(!mounts().contains(&*leftover.to_string_lossy()));
    assert!(Path::new(&foreign).is_dir());
}
