//! Failures while kelvin runs: failing probes, a killed or interrupted run, a full disk, missing privileges. Each must affect
//! nothing else, be reported, and leave nothing behind.

mod test_dir;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use kelvin_testing::{MissingRequirement, is_root};
use serde_json::Value;
use tempfile::TempDir;
use test_dir::{HANG_TIMEOUT, KELVIN, is_met_within, signal, stderr, stdout};

/// A directory that is the working directory, home and scratch space of the kelvins that a test starts, by which every
/// process and file that they leave behind is found.
struct RunDir {
    directory: TempDir,
}

impl RunDir {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The program with this directory as its own.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command.env("HOME", self.path()).env("XDG_DATA_HOME", self.path().join("data")).env("TMPDIR", self.path());
        command
    }

    fn kelvin(&self, arguments: &[&str]) -> Command {
        self.command(KELVIN, arguments)
    }

    /// Starts a run that would take several seconds.
    fn start(&self) -> Child {
        self.kelvin(&["run", "--quick"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The runs in the store, oldest first.
    fn runs(&self) -> Vec<Value> {
        let output = self.kelvin(&["runs", "list", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Rounds that the store holds of the newest run; 0 if there is none.
    fn stored_rounds(&self) -> u64 {
        self.runs().last().map_or(0, |run| run["measured_rounds"].as_u64().unwrap())
    }

    /// Processes whose working directory is this directory: every kelvin started here and all that they started.
    fn processes(&self) -> Vec<u32> {
        let directory = self.path().canonicalize().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        ids.filter(|id| std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd == directory)).collect()
    }

    /// Waits until no process of this directory is left.
    fn assert_no_process_is_left(&self) {
        let remaining = || self.processes();
        assert!(is_met_within(HANG_TIMEOUT, || remaining().is_empty()), "still running: {:?}", remaining());
    }

    /// Scratch directories in this directory.
    fn scratch(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path()).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("kelvin-scratch-")).collect()
    }
}

#[test]
fn failing_probe_costs_only_itself() {
    let dir = RunDir::new();
    let output = dir.kelvin(&["selfcheck", "--faults", "--round-limit", "1s"]).output().unwrap();
    let (message, table) = (stderr(&output), stdout(&output));
    assert_eq!(output.status.code(), Some(0), "{message}{table}");
    for (probe, fault) in [
        ("truth.fault.hang", "still running after"),
        ("truth.fault.crash", "signal 6"),
        ("truth.fault.panic", "on purpose"),
        ("truth.fault.garbage", "hello, world"),
        ("truth.fault.silence", "without a reading"),
    ] {
        let line =
            table.lines().find(|line| line.starts_with(probe)).unwrap_or_else(|| panic!("no {probe} in {table}"));
        assert!(line.contains("failed") && line.contains(fault), "{line}");
    }
    dir.assert_no_process_is_left();
    assert_eq!(dir.scratch(), Vec::<PathBuf>::new());
}

#[test]
fn killed_run_keeps_finished_rounds() {
    // Instants from just after the start, at odd distances from anything periodic, to well inside of the run.
    for (milliseconds, rounds) in [(70, 0), (333, 0), (0, 1), (41, 5), (17, 12)] {
        let dir = RunDir::new();
        let mut child = dir.start();
        assert!(
            is_met_within(HANG_TIMEOUT, || rounds == 0 || dir.stored_rounds() >= rounds),
            "{rounds} rounds were not stored"
        );
        std::thread::sleep(Duration::from_millis(milliseconds));
        let before = dir.stored_rounds();
        signal(&child, "KILL");
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it ended by itself after {before} rounds");
        dir.assert_no_process_is_left();

        let runs = dir.runs();
        let after = dir.stored_rounds();
        assert!(after >= before, "{before} rounds were stored, {after} are left: {runs:?}");
        if rounds > 0 {
            assert_ne!(runs[0]["status"], "complete", "{runs:?}");
            let report = dir.kelvin(&["runs", "show"]).output().unwrap();
            assert!(report.status.success(), "{}", stderr(&report));
            assert!(stdout(&report).contains("killed"), "{}", stdout(&report));
        }

        // What it left in the scratch space is swept up by the next start.
        let arguments = ["run", "os.syscall.null", "--budget", "1s", "--rounds", "2"];
        let output = dir.kelvin(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(dir.scratch(), Vec::<PathBuf>::new());
    }
}

#[test]
fn interrupted_run_is_stored_as_partial() {
    for name in ["INT", "TERM"] {
        let dir = RunDir::new();
        let arguments = ["run", "--quick", "-o", "report.html"];
        let child = dir.kelvin(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(is_met_within(HANG_TIMEOUT, || dir.stored_rounds() >= 3), "no round was stored");
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stdout(&output).contains("interrupted"), "{}", stdout(&output));
        dir.assert_no_process_is_left();
        assert_eq!(dir.scratch(), Vec::<PathBuf>::new());
        let runs = dir.runs();
        assert!(runs[0]["status"]["partial"].as_str().unwrap().contains("interrupted"), "{runs:?}");
        assert!(runs[0]["measured_rounds"].as_u64().unwrap() >= 3);
        assert!(dir.path().join("report.html").exists());
    }
}

/// Control groups of kelvin's with one of these controllers, whose process is one of these.
fn groups_of(processes: &[u32], controllers: &[&str]) -> Vec<PathBuf> {
    kelvin_testing::cgroups::find_named(|name| {
        let mut parts = name.strip_prefix("kelvin-").into_iter().flat_map(|rest| rest.split('-'));
        let [controller, process] = [parts.next(), parts.next()].map(Option::unwrap_or_default);
        controllers.contains(&controller) && process.parse().is_ok_and(|process| processes.contains(&process))
    })
}

#[test]
fn interrupted_selfcheck_leaves_no_cgroup_or_mount() {
    for controllers in [&["cpu"][..], &["blkio", "io"]] {
        interrupt_selfcheck_with_group(controllers);
    }
}

/// Interrupts a selfcheck while it has a control group of one of these.
fn interrupt_selfcheck_with_group(controllers: &[&str]) {
    let dir = RunDir::new();
    let mut child = dir.kelvin(&["selfcheck"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut groups = Vec::new();
    let is_ready = is_met_within(HANG_TIMEOUT, || {
        groups = groups_of(&dir.processes(), controllers);
        !groups.is_empty() || child.try_wait().unwrap().is_some()
    });
    assert!(is_ready, "it hangs");
    if groups.is_empty() {
        let missing = format!("no control group of {controllers:?} can be made here (root may)");
        return MissingRequirement::privilege(missing).report_skip("an interrupted selfcheck");
    }
    signal(&child, "INT");
    assert!(is_met_within(HANG_TIMEOUT, || child.try_wait().unwrap().is_some()), "it hangs");
    dir.assert_no_process_is_left();
    let leftovers: Vec<&PathBuf> = groups.iter().filter(|group| group.exists()).collect();
    assert!(leftovers.is_empty(), "left behind: {leftovers:?}");
    assert_eq!(dir.scratch(), Vec::<PathBuf>::new());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&*dir.path().to_string_lossy()), "{mounts}");
}

/// Kelvin with a small file system of these options in the directory `small`, of which what is left at the end is printed last.
fn run_on_small_disk(dir: &RunDir, options: &str, arguments: &[&str]) -> Output {
    std::fs::create_dir(dir.path().join("small")).unwrap();
    // In a mount namespace of its own: the file system is gone when the run is.
    let script =
        "mount -t tmpfs -o \"$0\" kelvin-test small && { \"$@\"; status=$?; find small -mindepth 1; exit $status; }";
    let words = [&["--mount", "sh", "-c", script, options, KELVIN][..], arguments].concat();
    dir.command("unshare", &words).output().unwrap()
}

/// A stored run, as `runs export` writes it.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/format-1.json");

#[test]
fn failed_store_creation_leaves_nothing() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a new store on a full disk");
    }
    // Of each page that making it takes, one too few.
    for size in ["4k", "8k", "12k", "16k", "24k", "32k"] {
        let dir = RunDir::new();
        let output =
            run_on_small_disk(&dir, &format!("size={size}"), &["runs", "import", "--store", "small/runs.sqlite", RUN]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""), "{size}: {}", stderr(&output));
        assert!(stderr(&output).contains("full"), "{size}: {}", stderr(&output));
    }
}

#[test]
fn full_store_disk_still_prints_table() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a full disk under the store");
    }
    let users = ["study", "load", "--users", "1,2", "--step", "200ms", "--budget", "1s", "--file-size", "1kB"];
    let study = [&users[..], &["--rounds", "2", "--file-count", "16"]].concat();
    for (figure, command) in [("syscall.null", &["run", "os", "--quick", "--budget", "6s"][..]), ("2 users", &study)] {
        let dir = RunDir::new();
        let arguments = [command, &["--store", "small/runs.sqlite"]].concat();
        let output = run_on_small_disk(&dir, "size=300k", &arguments);
        let (message, table) = (stderr(&output), stdout(&output));
        assert_eq!(output.status.code(), Some(2), "{message}{table}");
        assert!(table.contains(figure), "{table}");
        let last = message.lines().last().unwrap();
        assert!(last.starts_with("kelvin: ") && last.contains("stored"), "{message}");
        assert!(last.contains("the disk that holds small/runs.sqlite is full"), "{last}");
        // All of it is in a file, with its rounds.
        let file = last.split("all of it is in ").nth(1).unwrap().split(", which").next().unwrap();
        let import = dir.kelvin(&["runs", "import", file]).output().unwrap();
        assert!(import.status.success(), "{}", stderr(&import));
        let report = dir.kelvin(&["runs", "show", "last"]).output().unwrap();
        assert!(report.status.success() && stdout(&report).contains(figure), "{}", stdout(&report));
        dir.assert_no_process_is_left();
        assert_eq!(dir.scratch(), Vec::<PathBuf>::new());
    }
}

#[test]
fn full_disk_of_runs_directory_loses_nothing() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a full disk under the directory of --out");
    }
    let dir = RunDir::new();
    let command = ["run", "os.syscall", "--quick", "--budget", "minimum", "--rounds", "2", "--out", "small"];
    let output = run_on_small_disk(&dir, "size=8k", &command);
    let (message, table) = (stderr(&output), stdout(&output));
    assert_eq!(output.status.code(), Some(2), "{message}{table}");
    assert!(table.contains("syscall.null") && !table.contains("small/"), "{table}");
    let last = message.lines().last().unwrap();
    assert!(last.starts_with("kelvin: the run could not be written as a file: "), "{message}");
    let file = last.split("all of it is in ").nth(1).unwrap().split(", which").next().unwrap();
    let report = dir.kelvin(&["report", file]).output().unwrap();
    assert!(report.status.success() && stdout(&report).contains("syscall.null"), "{}", stderr(&report));
    dir.assert_no_process_is_left();
    assert_eq!(dir.scratch(), Vec::<PathBuf>::new());
}

#[test]
fn missing_procfs_is_named() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a file system over /proc (root may)")
            .report_skip("a run without /proc");
    }
    let dir = RunDir::new();
    let script = "mount -t tmpfs kelvin-test /proc || exit 77; exec \"$0\" run os.syscall.null --quick --no-store";
    let output = dir.command("unshare", &["--mount", "sh", "-c", script, KELVIN]).output().unwrap();
    let expected = "kelvin: /proc is not mounted here, and kelvin needs it: mount -t proc proc /proc\n";
    assert_eq!((output.status.code(), stderr(&output)), (Some(2), expected));
}

#[test]
fn runs_can_be_pruned_on_full_disk() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a store on a full disk");
    }
    let dir = RunDir::new();
    std::fs::create_dir(dir.path().join("small")).unwrap();
    for name in ["intel-guest-1", "intel-guest-2", "intel-guest-3"] {
        std::fs::write(dir.path().join(name), kelvin_testing::stored_run(name)).unwrap();
    }
    // With nothing left, and with too little for a log; both are reported alike.
    // Blocks of 1 KiB: what is mapped has holes.
    let of_ext4 = "truncate -s 16M image && mkfs.ext4 -q -F -m 0 -b 1024 image && mount -o loop image small";
    for mount in ["mount -t tmpfs -o size=16m kelvin-test small", of_ext4] {
        assert_prune_on_full_disk(&dir, mount);
    }
}

/// That the runs of a store can be read and deleted on a disk that is made so in the directory `small`, and filled.
fn assert_prune_on_full_disk(dir: &RunDir, mount: &str) {
    let script = "store=small/runs.sqlite; { $MOUNT; } || exit 77; \
        for run in 1 2 3; do \"$0\" runs import intel-guest-$run --store $store || exit 1; done; \
        fill() { rm -f small/filler; cat /dev/zero > small/filler; truncate -s -$1 small/filler; }; \
        for left in 0 40960; do fill $left 2>/dev/null; \"$0\" runs list --store $store || exit 2; \
        \"$0\" runs show last --store $store > shown || exit 3; \"$0\" compare last~1 last --store $store > compared; \
        test $? -le 1 || exit 4; done; fill 0 2>/dev/null; \
        \"$0\" runs tag last a=b --store $store && exit 5; \
        \"$0\" run os.syscall.null --quick --store $store && exit 6; \
        \"$0\" runs prune --keep 1 --dry-run --store $store || exit 7; three=$(stat -c %s $store); \
        \"$0\" runs delete last --store $store || exit 8; two=$(stat -c %s $store); fill 0 2>/dev/null; \
        \"$0\" runs prune --keep 1 --store $store || exit 9; one=$(stat -c %s $store); \
        test $two -lt $three && test $one -lt $two || exit 10; \"$0\" runs list --store $store || exit 11; ls small";
    let script = script.replace("$MOUNT", mount);
    let output = dir.command("unshare", &["--mount", "sh", "-c", &script, KELVIN]).output().unwrap();
    let (message, text) = (stderr(&output), stdout(&output));
    if output.status.code() == Some(77) {
        return MissingRequirement::privilege(format!("mounting a small file system: {message}")).report_skip(mount);
    }
    assert_eq!(output.status.code(), Some(0), "{message}{text}");
    let full_disk_error = "the disk that holds small/runs.sqlite is full: `kelvin runs prune` deletes old runs there";
    assert_eq!(message.matches(full_disk_error).count(), 2, "{message}");
    assert_eq!(message.matches("the store as it was is in").count(), 2, "{message}");
    assert!(
        message.contains("kelvin: 2 runs would be deleted") && message.contains("kelvin: 1 run deleted"),
        "{message}"
    );
    assert!(
        text.trim_end().ends_with("filler\nruns.sqlite") || text.contains("filler\nlost+found\nruns.sqlite\n"),
        "{text}"
    );
    let entries = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!entries.into_iter().any(|name| name.to_string_lossy().ends_with(".sqlite")), "no copy is left");
}

#[test]
fn full_study_disk_ends_with_advice() {
    if !is_root() {
        return MissingRequirement::privilege("mounting a small file system (root may)")
            .report_skip("a full disk under the files of a study");
    }
    let study = ["study", "load", "--no-store", "--dir", "small", "--file-size", "1kB", "--file-count", "100"];
    // There is room for the bytes, but not for as many files; there is none for anything; there is too little, and that is known.
    for (options, expected_words) in [
        ("size=1m,nr_inodes=20", &["No space left", "of 100 files", "--file-count"][..]),
        ("size=1m,nr_inodes=1", &["No space left", "--dir"]),
        ("size=20k", &["there is room for", "--file-size"]),
    ] {
        let dir = RunDir::new();
        let output = run_on_small_disk(&dir, options, &study);
        let (message, text) = (stderr(&output), stdout(&output));
        assert_eq!(output.status.code(), Some(2), "{message}{text}");
        // One line, behind what the files will take where it is known only by trying that there is no room for them.
        let lines: Vec<&str> =
            message.lines().filter(|line| !line.contains("files take 100 kB until the end")).collect();
        let [line] = lines[..] else { panic!("{message}") };
        assert!(line.starts_with("kelvin: ") && line.contains("/small"), "{message}");
        expected_words.iter().for_each(|word| assert!(line.contains(word), "no {word} in {message}"));
        assert_eq!(text, "", "it leaves nothing there");
        dir.assert_no_process_is_left();
    }
}

#[test]
fn unwritable_store_is_reported_before_measuring() {
    let dir = RunDir::new();
    std::fs::write(dir.path().join("data"), "a file where a directory should be").unwrap();
    let output = dir.kelvin(&["run", "--quick", "-o", "report.html"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("data"), "{}", stderr(&output));
    assert!(output.stdout.is_empty() && !dir.path().join("report.html").exists());
    // And the same machine can still be measured without a store.
    let arguments = ["run", "os.syscall.null", "--budget", "1s", "--rounds", "2", "--no-store"];
    let output = dir.kelvin(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn one_cpu_skips_two_cpu_cases() {
    let dir = RunDir::new();
    let cpu = kelvin_sys::cpu::affinity().unwrap()[0].to_string();
    let arguments = ["-c", &cpu, KELVIN, "run", "os.switch.cross_cpu", "--budget", "10s", "--no-store", "--json"];
    let output = dir.command("taskset", &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = report["analysis"]["results"].as_array().unwrap();
    let figures: Vec<&Value> = results.iter().filter(|result| result["only_input"] == false).collect();
    assert!(!figures.is_empty());
    for result in figures {
        let reason = result["outcome"]["skipped"]
            .as_str()
            .unwrap_or_else(|| panic!("{} was not skipped", result["metric"]["id"]));
        assert!(reason.contains("CPU"), "{reason}");
    }
}

/// The program as a user who may start no other process or thread; why not, if that cannot be had.
fn run_without_threads(dir: &RunDir, arguments: &[&str]) -> Result<Output, MissingRequirement> {
    if !is_root() {
        return Err(MissingRequirement::privilege("the right to become another user (root)"));
    }
    let program = dir.path().join("kelvin");
    if !program.exists() {
        // A copy that anybody may execute: the build directory may lie where only root may look.
        std::fs::copy(KELVIN, &program).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), mode).unwrap();
    }
    // A user that has no processes.
    let user = (60_000 + std::process::id() % 5_000).to_string();
    let options = ["--reuid", &user, "--clear-groups", "--inh-caps=-all", "prlimit", "--nproc=1"];
    let mut command = dir.command("setpriv", &[&options[..], &[program.to_str().unwrap()], arguments].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let has_ended = is_met_within(HANG_TIMEOUT, || child.try_wait().unwrap().is_some());
    if !has_ended {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(has_ended, "{arguments:?} goes on: {}{}", stdout(&output), stderr(&output));
    Ok(output)
}

#[test]
fn refused_thread_is_one_line() {
    let dir = RunDir::new();
    std::fs::write(dir.path().join("data"), vec![7; 9 << 20]).unwrap();
    let no_thread: [&[&str]; 7] = [
        &["serve", ".", "--listen", "127.0.0.1:0"],
        &["serve", ".", "--listen", "127.0.0.1:0", "--model", "pool"],
        &["serve", ".", "--listen", "127.0.0.1:0", "--model", "uring"],
        &["run", "cpu", "--quick", "--budget", "5s", "--no-store"],
        &["agent", "--listen", "127.0.0.1:0"],
        &["receive", ".", "--once", "--listen", "127.0.0.1:0"],
        &["file", "read", "data", "--threads", "3"],
    ];
    let no_process: [&[&str]; 2] =
        [&["serve", ".", "--listen", "127.0.0.1:0", "--model", "fork"], &["ab", "--a-cmd", "true", "--b-cmd", "true"]];
    for arguments in no_thread.iter().chain(&no_process) {
        let output = match run_without_threads(&dir, arguments) {
            Ok(output) => output,
            Err(missing) => return missing.report_skip("a user who may start no thread"),
        };
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(
            !message.contains("panicked") && message.contains("ulimit -u allows this user 1 "),
            "{arguments:?}: {message}"
        );
        assert_eq!(stdout(&output), "", "{arguments:?}: no address of what does not run");
        assert_eq!(
            message.lines().filter(|line| line.starts_with("kelvin: ") && line.contains("ulimit")).count(),
            1,
            "{message}"
        );
    }
    // What needs no other thread goes on with one.
    let output = run_without_threads(&dir, &["digest", "data"]).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn run_works_without_root() {
    let dir = RunDir::new();
    // A copy that nobody may execute: the build directory may lie where only root may look.
    let program = dir.path().join("kelvin");
    std::fs::copy(KELVIN, &program).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), mode).unwrap();
    let program = program.to_str().unwrap();
    let probes = ["run", "os.syscall", "os.process.fork", "net.bandwidth.tcp"];
    let arguments = [&probes[..], &["--quick", "--budget", "6s", "-o", "report.html"]].concat();
    let setpriv_options = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", program];
    let mut command = match is_root() {
        true => dir.command("setpriv", &[&setpriv_options[..], &arguments].concat()),
        false => dir.command(program, &arguments),
    };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(table.contains("process.fork") && table.contains("bandwidth.tcp"), "{table}");
    // A system may keep a congestion control to root.
    assert!(!table.contains("failed"), "{table}");
    assert!(dir.path().join("report.html").exists());
    assert!(dir.path().join("data/kelvin/runs.sqlite").exists());
}

/// A control group that limits memory, with nothing in it when it is dropped.
struct MemoryGroup {
    path: PathBuf,
    /// What counts the processes that the kernel killed for want of memory: file and key.
    kills: (&'static str, &'static str),
}

impl MemoryGroup {
    /// A group of this many bytes, in whichever version of control groups there is; why not, if there can be none.
    fn new(bytes: u64) -> Result<Self, String> {
        let root = Path::new("/sys/fs/cgroup");
        let is_version_2 = root.join("cgroup.controllers").exists();
        let parent = if is_version_2 { root.to_path_buf() } else { root.join("memory") };
        let path = parent.join(format!("kelvin-test-{}", std::process::id()));
        let with_path = |error: std::io::Error| format!("{}: {error}", path.display());
        if is_version_2 {
            std::fs::write(parent.join("cgroup.subtree_control"), "+memory").map_err(with_path)?;
        }
        std::fs::create_dir(&path).map_err(with_path)?;
        let (limit, kills) = if is_version_2 {
            ("memory.max", ("memory.events", "oom_kill "))
        } else {
            ("memory.limit_in_bytes", ("memory.oom_control", "oom_kill "))
        };
        let group = Self { path, kills };
        std::fs::write(group.path.join(limit), bytes.to_string()).map_err(|error| format!("{limit}: {error}"))?;
        Ok(group)
    }

    fn kills(&self) -> u64 {
        let text = std::fs::read_to_string(self.path.join(self.kills.0)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(self.kills.1)).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just ended may still be counted for a moment.
        is_met_within(Duration::from_secs(5), || std::fs::remove_dir(&self.path).is_ok());
    }
}

#[test]
fn run_fits_in_512_mib() {
    let group = match MemoryGroup::new(512 << 20) {
        Ok(group) => group,
        Err(reason) => return MissingRequirement::privilege(reason).report_skip("a run with 512 MiB"),
    };
    let dir = RunDir::new();
    // The shell joins the group and becomes kelvin.
    let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.path.display());
    let arguments = [KELVIN, "run", "mem", "--quick", "--no-store", "--json"];
    let output = dir.command("sh", &[&["-c", &script, "sh"][..], &arguments].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(group.kills(), 0);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        report["run"]["machine"]["limits"]["memory_bytes"]["known"]["value"],
        512 << 20,
        "{}",
        report["run"]["machine"]["limits"]
    );
    for result in report["analysis"]["results"].as_array().unwrap() {
        let (metric, case) = (&result["metric"]["id"], &result["case"]);
        assert!(result["outcome"].get("failed").is_none(), "{metric} {case}: {}", result["outcome"]);
        // Half of the limit at most, for all CPUs together.
        let cpus = if case["cpus"] == "all" { std::thread::available_parallelism().unwrap().get() as u64 } else { 1 };
        let bytes = case["bytes"].as_u64().unwrap_or(0) * cpus;
        assert!(bytes <= 256 << 20, "{metric} {case}");
    }
}
