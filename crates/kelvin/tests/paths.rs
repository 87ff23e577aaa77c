//! The whole program on paths that another user may tamper with: it writes where its user directs it and nowhere else, nobody can
//! predict or swap its temporary files, and nothing there makes it wait.

mod test_dir;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use kelvin_testing::{MissingRequirement, is_root};
use test_dir::{
    HANG_TIMEOUT, KELVIN, TestDir, assert_refused, assert_success, is_met_within, names, stderr, stdout,
    wait_for_output,
};

/// An exported run.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/format-1.json");
/// A run that is over soon.
const SHORT_RUN: [&str; 7] = ["run", "os.syscall.null", "--budget", "1s", "--rounds", "2", "--no-store"];
/// A process number that no process has.
const UNUSED_PID: u32 = 4_194_999;

/// What `sh` does, in which `$0` is kelvin and `$1` a run.
fn shell(dir: &TestDir, script: &str) -> Output {
    let arguments = ["-c", script, KELVIN, RUN];
    wait_for_output(dir.command("sh", &arguments).spawn().unwrap(), &[script])
}

fn file_type(path: &Path) -> fs::FileType {
    path.symlink_metadata().unwrap().file_type()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

fn is_page(path: &Path) -> bool {
    fs::read_to_string(path).unwrap().starts_with("<!")
}

/// A device of the test's own, where one can be made: replacing one of /dev would break the machine.
fn make_device(dir: &TestDir, name: &str, minor: &str) -> PathBuf {
    let status = Command::new("mknod").args([name, "c", "1", minor]).current_dir(dir.path()).status();
    if status.unwrap().success() { dir.path().join(name) } else { Path::new("/dev").join(name) }
}

/// Runs a command as one who has no rights of root's, where the tests have them: by a copy, for the build directory may lie
/// where only root may look.
fn run_as_nobody(dir: &TestDir, arguments: &[&str]) -> Output {
    if !is_root() {
        return dir.run(arguments);
    }
    let [program, run] = ["kelvin", "run.json"].map(|name| dir.path().join(name));
    for (from, to) in [(KELVIN, &program), (RUN, &run)] {
        assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
    }
    let arguments: Vec<&str> = arguments.iter().map(|&word| if word == RUN { "run.json" } else { word }).collect();
    let mut command = dir.command(program.to_str().unwrap(), &arguments);
    let output = wait_for_output(command.uid(65534).gid(65534).spawn().unwrap(), &arguments);
    fs::remove_file(program).unwrap();
    fs::remove_file(run).unwrap();
    output
}

/// A directory that everybody may enter.
fn public_dir() -> TestDir {
    let dir = TestDir { directory: tempfile::tempdir().unwrap(), ..TestDir::new() };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

// ---- where what a user names is written

#[test]
fn output_commands_write_to_devices_and_pipes() {
    let dir = TestDir::new();
    let [device, full_device] = [("null", "3"), ("full", "7")].map(|(name, minor)| make_device(&dir, name, minor));
    let name = device.to_str().unwrap();
    symlink(name, dir.path().join("link")).unwrap();
    for target in [name, "link"] {
        assert_success(&dir.run(&["report", RUN, "--format", "html", "--output", target]));
        assert_success(&dir.run(&["report", RUN, "--format", "json", "--output", target]));
        assert_success(&dir.run(&[&SHORT_RUN[..], &["--output", target]].concat()));
        assert!(file_type(&device).is_char_device() && file_type(&dir.path().join("link")).is_symlink(), "{target}");
    }
    assert_success(&shell(&dir, "\"$0\" runs import \"$1\" && \"$0\" runs export last --output link"));
    let script =
        "mkfifo pipe && { cat pipe > read & \"$0\" report \"$1\" --format html --output pipe || kill $!; wait $!; }";
    assert_success(&shell(&dir, script));
    assert!(is_page(&dir.path().join("read")) && file_type(&dir.path().join("pipe")).is_fifo());
    assert!(file_type(&device).is_char_device());
    // Its reader is waited for, also by a program that handles signals.
    let child = dir.start(&["file", "sweep", "--no-store", "--output", "pipe"]);
    assert!(is_met_within(HANG_TIMEOUT, || test_dir::handles_interrupts(&child)), "it handles no signal");
    test_dir::signal(&child, "INT");
    assert_refused(&wait_for_output(child, &["file sweep"]), &["interrupted by SIGINT"]);
    assert_refused(&dir.run(&["report", RUN, "--output", full_device.to_str().unwrap()]), &["full", "No space left"]);
    assert!(file_type(&full_device).is_char_device());
}

#[test]
fn mounted_disk_is_not_written_to() {
    if !is_root() {
        return MissingRequirement::privilege("a loop device needs root").report_skip("a disk is written through");
    }
    let dir = TestDir::new();
    let script = "truncate -s 8M image && mkfs.ext4 -q image && disk=$(losetup --find --show image) && mkdir mounted && \
                  mount $disk mounted && { \"$0\" report \"$1\" --format html --output $disk; echo $?; umount mounted; \
                  \"$0\" report \"$1\" --format html --output $disk; echo $?; test -b $disk && head -c 2 image; losetup -d $disk; }";
    let arguments = ["--mount", "sh", "-c", script, KELVIN, RUN];
    let output = wait_for_output(dir.command("unshare", &arguments).spawn().unwrap(), &arguments);
    if stdout(&output).is_empty() {
        return MissingRequirement::from_message(stderr(&output)).report_skip("a disk is written through");
    }
    assert!(stdout(&output) == "2\n0\n<!" && stderr(&output).contains("busy"), "{output:?}");
}

#[test]
fn shell_opened_output_is_written_in_place() {
    let dir = TestDir::new();
    let content = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let csv = stdout(&dir.run(&["report", RUN, "--format", "csv"])).to_owned();
    // As /dev/stdout is, which the tests leave alone: it must be there when they are over.
    for (link, target) in [("stdout", "/proc/self/fd/1"), ("link", "stdout")] {
        symlink(target, dir.path().join(link)).unwrap();
    }
    for (path, open) in [
        ("stdout", ">> file"),
        ("link", ">> file"),
        ("/dev/fd/1", ">> file"),
        ("/proc/self/fd/2", "2>> file"),
        ("/proc/self/fd/5", "5>> file"),
        ("/proc/thread-self/fd/5", "5>> file"),
    ] {
        let script = format!(
            "echo before > file && \"$0\" report \"$1\" --format csv --output {path} {open} && echo behind >> file"
        );
        assert_success(&shell(&dir, &script));
        assert_eq!(content("file"), format!("before\n{csv}behind\n"), "{path}");
    }
    assert_success(&shell(&dir, "\"$0\" report \"$1\" --format csv --output stdout | cat > piped"));
    assert_eq!(content("piped"), csv);
    // A reader that has seen enough goes away.
    assert_success(&shell(
        &dir,
        "(\"$0\" report \"$1\" --format html --output link; echo $? > status) | head -c 1 > /dev/null",
    ));
    assert_eq!(content("status"), "0\n");
    for (path, words) in [
        ("/dev/fd/0", "open for reading only"),
        ("/dev/fd/77", "/dev/fd/77"),
        // Nobody opened it but kelvin itself: it may be the store.
        ("/proc/self/fd/3", "/proc/self/fd/3"),
        ("/proc/self/cwd", "Is a directory"),
    ] {
        let output = shell(
            &dir,
            &format!(
                "exec 3>&-; \"$0\" runs import \"$1\" 2> /dev/null; \"$0\" runs export last --output {path} < /dev/null"
            ),
        );
        assert_refused(&output, &[words]);
    }
    assert_success(&dir.run(&["runs", "show"]));
    assert_eq!(dir.names(), ["data", "file", "link", "piped", "status", "stdout"]);
}

#[test]
fn output_symlink_is_kept_and_directory_refused() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("far")).unwrap();
    for (link, target) in [("link", "far/page"), ("dangling", "far/nothing"), ("away", "no/where"), ("loop", "loop")] {
        symlink(target, dir.path().join(link)).unwrap();
    }
    fs::write(dir.path().join("far/page"), "old").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let before = dir.names();
    let report_to = |path| dir.run(&["report", RUN, "--format", "html", "--output", path]);
    assert_success(&report_to("link"));
    assert!(file_type(&dir.path().join("link")).is_symlink() && is_page(&dir.path().join("far/page")));
    for (path, words) in [
        ("dangling", "dangling is a symbolic link that leads nowhere"),
        ("away", "away is a symbolic link that leads nowhere"),
        ("loop", "loop is a symbolic link"),
        ("socket", "socket is a socket"),
        ("far", "far is a directory"),
        ("new/", "new/ is the name of a directory"),
        ("no/such", "there is no directory no; make it first"),
        ("far/page/below", "far/page/below"),
        ("/proc/version", "/proc/version"),
    ] {
        assert_refused(&report_to(path), &[words]);
        // And before anything is measured.
        let run = dir.run(&["run", "os.syscall.null", "--budget", "600s", "--no-store", "--output", path]);
        assert_refused(&run, &[words]);
    }
    // Nor is anything printed, asked for or measured.
    let before_all: [&[&str]; 7] = [
        &["report", RUN, "--assets", "far/page"],
        &["load", "http://127.0.0.1:9/", "--plot", "far"],
        &["why", "os.syscall.null", "-o", "far"],
        &["why", "--gaps", "--run", RUN, "-o", "far"],
        &["ab", "--a-cmd", "touch measured", "--b-cmd", "touch measured", "-o", "far"],
        &["compare", RUN, RUN, "-o", "far"],
        &["history", "--all", "-o", "far"],
    ];
    for arguments in before_all {
        let output = dir.run(arguments);
        assert_refused(&output, &["far"]);
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
    assert_eq!((dir.names(), names(&dir.path().join("far"))), (before, vec!["page".to_owned()]));
    assert_refused(&dir.run(&["runs", "list", "--store", "dangling"]), &["dangling"]);
    assert!(!dir.path().join("far/nothing").exists());
}

#[test]
fn report_has_umask_or_old_permissions() {
    let dir = public_dir();
    let page = dir.path().join("page");
    for (mask, expected) in [("022", 0o644), ("027", 0o640), ("077", 0o600)] {
        assert_success(&shell(&dir, &format!("umask {mask} && \"$0\" report \"$1\" --output page")));
        assert_eq!(mode(&page), expected);
        fs::remove_file(&page).unwrap();
    }
    fs::write(&page, "old").unwrap();
    fs::hard_link(&page, dir.path().join("other")).unwrap();
    for rights in [0o600, 0o666] {
        fs::set_permissions(&page, fs::Permissions::from_mode(rights)).unwrap();
        assert_success(&shell(&dir, "umask 077 && \"$0\" report \"$1\" --output page"));
        assert_eq!(mode(&page), rights);
    }
    assert_eq!(fs::read_to_string(dir.path().join("other")).unwrap(), "old");
    // A user who may not write a file does not replace it, even with a writable directory; and vice versa.
    let report_to = |path| run_as_nobody(&dir, &["report", RUN, "--output", path]);
    fs::create_dir(dir.path().join("open")).unwrap();
    fs::set_permissions(dir.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let fixed = dir.path().join("open/fixed");
    fs::write(&fixed, "fixed").unwrap();
    fs::set_permissions(&fixed, fs::Permissions::from_mode(0o444)).unwrap();
    assert_refused(&report_to("open/fixed"), &["open/fixed", "Permission denied"]);
    assert_success(&report_to("open/new"));
    if is_root() {
        assert_refused(&report_to("page"), &["page", "Permission denied"]);
        assert_refused(&report_to("new"), &["new", "Permission denied"]);
        // Root leaves a file to whom it belongs.
        assert_success(&dir.run(&["report", RUN, "--output", "open/new"]));
        assert_eq!(fs::metadata(dir.path().join("open/new")).unwrap().uid(), 65534);
    }
    assert_eq!(names(&dir.path().join("open")), ["fixed", "new"]);
    assert_eq!(dir.names(), ["open", "other", "page"]);
}

#[test]
fn longest_name_is_written_full_disk_keeps_old() {
    let dir = TestDir::new();
    let longest = "x".repeat(255);
    assert_success(&dir.run(&["report", RUN, "--output", &longest]));
    assert_refused(&dir.run(&["report", RUN, "--output", &"x".repeat(256)]), &["File name too long"]);
    let arguments = ["report", RUN, "--format", "html", "--output", "page"];
    let children: Vec<_> = (0..8).map(|_| dir.start(&arguments)).collect();
    children.into_iter().for_each(|child| assert_success(&wait_for_output(child, &arguments)));
    assert!(is_page(&dir.path().join("page")));
    assert_eq!(dir.names(), ["page".to_owned(), longest]);
    // As on a full disk: no signal, nothing left.
    let output = shell(&dir, "ulimit -f 8 && \"$0\" report \"$1\" --format html --output page");
    assert_refused(&output, &["page", "File too large"]);
    if is_root() {
        let script = "mkdir small && mount -t tmpfs -o size=64k kelvin-test small && echo old > small/page && \
                      \"$0\" report \"$1\" --format html --output small/page; echo $?; ls -A small; cat small/page";
        let arguments = ["--mount", "sh", "-c", script, KELVIN, RUN];
        let output = wait_for_output(dir.command("unshare", &arguments).spawn().unwrap(), &arguments);
        assert!(stderr(&output).contains("No space left"), "{}", stderr(&output));
        assert_eq!(stdout(&output), "2\npage\nold\n");
    }
    assert!(is_page(&dir.path().join("page")));
}

// ---- what is made for a while

/// A temporary file of a predictable name would be written through a link that somebody put there.
#[test]
fn predictable_symlinks_are_not_followed() {
    let dir = TestDir::new();
    fs::write(dir.path().join("victim"), "the user's").unwrap();
    for script in [
        "ln -s victim .page.$$.partial; exec \"$0\" report \"$1\" --output page",
        "ln -s victim .kelvin-$$-0.partial; exec \"$0\" file write data --size 1M --overwrite",
    ] {
        assert_success(&shell(&dir, script));
        assert_eq!(fs::read_to_string(dir.path().join("victim")).unwrap(), "the user's", "{script}");
    }
}

#[test]
fn checking_report_path_changes_nothing() {
    let dir = TestDir::new();
    let page = dir.path().join("page");
    fs::write(&page, "old").unwrap();
    let before = page.metadata().unwrap();
    let run = ["run", "os", "--budget", "600s", "--no-store", "--output", "page"];
    let mut child = dir.start(&run);
    let is_measuring = || names(dir.path()).iter().any(|name| name.starts_with("kelvin-scratch-"));
    assert!(is_met_within(HANG_TIMEOUT, is_measuring), "it does not begin");
    let scratch = names(dir.path()).into_iter().find(|name| name.starts_with("kelvin-scratch-")).unwrap();
    let rights = mode(&dir.path().join(&scratch));
    child.kill().unwrap();
    child.wait().unwrap();
    let after = page.metadata().unwrap();
    assert_eq!((before.ino(), before.modified().unwrap()), (after.ino(), after.modified().unwrap()));
    assert_eq!((dir.names(), rights), (vec![scratch, "page".into()], 0o700));
    // What it left is gone with the next one.
    assert_success(&dir.run(&SHORT_RUN));
    assert_eq!(dir.names(), ["page"]);
}

/// Names of a directory and a file that a dead process of this system made.
fn names_of_dead_process() -> [String; 2] {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    ["kelvin-scratch-", ".kelvin-unfinished-"].map(|prefix| format!("{prefix}{boot}-{namespace}-{UNUSED_PID}"))
}

#[test]
fn planted_leftovers_do_not_mislead_cleanup() {
    let dir = TestDir::new();
    let victim = dir.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("lock"), "").unwrap();
    fs::write(victim.join("data"), "the user's").unwrap();
    let [directory, file] = names_of_dead_process();
    let pipe = |path: PathBuf| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    // By the names of today and by older ones, with a pipe as lock, and without any.
    for name in [directory.clone(), format!("{directory}-a")] {
        fs::create_dir(dir.path().join(&name)).unwrap();
        pipe(dir.path().join(&name).join("lock"));
    }
    fs::create_dir(dir.path().join(format!("{directory}-b"))).unwrap();
    symlink(victim.join("lock"), dir.path().join(format!("{directory}-b/lock"))).unwrap();
    symlink("victim", dir.path().join(format!("{directory}-c"))).unwrap();
    pipe(dir.path().join(format!("{file}-a")));
    symlink("victim/data", dir.path().join(format!("{file}-b"))).unwrap();
    let before = dir.names();
    assert_success(&dir.run(&SHORT_RUN));
    assert_success(&dir.run(&["report", RUN, "--output", "page"]));
    assert_success(&dir.run(&["file", "write", "page", "--size", "4k", "--overwrite"]));
    assert_eq!(fs::read_to_string(victim.join("data")).unwrap(), "the user's");
    assert!(victim.join("lock").exists());
    let mut after = dir.names();
    after.retain(|name| name != "page");
    assert_eq!(after, before);
}

#[test]
fn next_writer_removes_files_of_killed_writer() {
    let dir = TestDir::new();
    for options in [&[][..], &["--overwrite"]] {
        let write = [&["file", "write", "file", "--size", "1G", "--sync", "dsync"], options].concat();
        let mut child = dir.start(&write);
        let is_growing = || {
            unfinished_file(dir.path())
                .is_some_and(|path| path.metadata().is_ok_and(|metadata| metadata.len() > 20_000))
        };
        assert!(is_met_within(HANG_TIMEOUT, is_growing), "it does not begin");
        assert_eq!(mode(&unfinished_file(dir.path()).unwrap()), 0o600);
        assert!(!dir.path().join("file").exists());
        // One that writes is left alone by others.
        assert_success(&dir.run(&["file", "write", "second", "--size", "4k"]));
        assert!(unfinished_file(dir.path()).is_some() && child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(dir.names().len(), 2, "{:?}", dir.names());
        assert_success(&dir.run(&["file", "write", "second", "--size", "4k", "--overwrite"]));
        assert_eq!(dir.names(), ["second"]);
        fs::remove_file(dir.path().join("second")).unwrap();
    }
    // A file that somebody else creates under that name meanwhile is kept.
    let write = ["file", "write", "file", "--size", "64M", "--block", "64k", "--sync", "dsync"];
    let child = dir.start(&write);
    assert!(is_met_within(HANG_TIMEOUT, || unfinished_file(dir.path()).is_some()), "it does not begin");
    fs::write(dir.path().join("file"), "theirs").unwrap();
    assert_refused(&wait_for_output(child, &write), &["file exists"]);
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "theirs");
    assert_eq!(dir.names(), ["file"]);
}

/// The file that is being made in a directory.
fn unfinished_file(directory: &Path) -> Option<PathBuf> {
    names(directory).into_iter().find(|name| name.starts_with(".kelvin-")).map(|name| directory.join(name))
}

#[test]
fn oversized_file_is_refused_at_once() {
    let dir = TestDir::new();
    for options in [&[][..], &["--pattern", "0"], &["--overwrite"], &["--sync", "direct"]] {
        let output = dir.run(&[&["file", "write", "new", "--size", "100T"], options].concat());
        assert_refused(&output, &["new cannot have 109951162777600 bytes"]);
    }
    assert_refused(&dir.run(&["file", "write", "new", "--count", "9000000000000"]), &["new cannot have"]);
    let limited_output = shell(&dir, "ulimit -f 8 && \"$0\" file write new --size 1M");
    assert_refused(&limited_output, &["new cannot have 1048576 bytes", "ulimit -f"]);
    assert_success(&shell(&dir, "ulimit -f 8 && \"$0\" file write new --size 4k"));
    let load_output = shell(&dir, "ulimit -n 16 && \"$0\" load http://127.0.0.1:9/ --users 4");
    assert_refused(
        &load_output,
        &["4 connections need 71 descriptors and 16 are allowed: raise the limit by ulimit -n 71"],
    );
    assert_eq!(dir.names(), ["new"]);
}

/// SQLite reports it as a full disk, or as a broken one.
#[test]
fn store_growth_error_names_limit() {
    // In blocks of 512 or 1024 bytes: within the first page, the index of the log, and the log.
    for blocks in [1, 8, 16, 32] {
        let dir = TestDir::new();
        let output = shell(&dir, &format!("ulimit -f {blocks} && \"$0\" runs import \"$1\" --store store.sqlite"));
        assert_refused(&output, &["store.sqlite or its log would become larger than the ", "ulimit -f"]);
    }
}

/// A store is made by what writes runs to it; a name of one that is read is a typo.
#[test]
fn missing_store_is_not_created_by_reading() {
    let dir = TestDir::new();
    for words in [
        &["runs", "list"][..],
        &["runs", "show", "last"],
        &["runs", "tag", "last", "a=b"],
        &["runs", "note", "last", "x"],
        &["runs", "delete", "last"],
        &["runs", "prune", "--keep", "1"],
        &["runs", "export", "last"],
        &["runs", "push", "--to", "other.sqlite"],
        &["report", "last"],
        &["compare", "a", "b"],
        &["history", "--all"],
    ] {
        let output = dir.run(&[words, &["--store", "typo.sqlite"]].concat());
        assert_refused(&output, &["there is no"]);
        assert_eq!(dir.names(), [""; 0], "{words:?}");
    }
    assert_success(&dir.run(&["runs", "import", RUN, "--store", "typo.sqlite"]));
    assert_success(&dir.run(&["runs", "list", "--store", "typo.sqlite"]));
}

// ---- what is mounted

/// A mount by someone else under the name of kelvin's mount is kept: a link there may lead elsewhere.
#[test]
fn foreign_mounts_are_not_unmounted() {
    if !is_root() {
        return MissingRequirement::privilege("mounting needs root").report_skip("nothing is unmounted by its path");
    }
    let dir = TestDir::new();
    let name = format!("kelvin-truth-disk-{UNUSED_PID}");
    let script = format!(
        "mkdir {name} && mount -t tmpfs kelvin-test {name} && \"$0\" {} > /dev/null; grep -c {name} /proc/self/mountinfo; \
         ls -d {name}",
        SHORT_RUN.join(" ")
    );
    let arguments = ["--mount", "sh", "-c", &script, KELVIN];
    let output = wait_for_output(dir.command("unshare", &arguments).spawn().unwrap(), &arguments);
    assert_eq!(stdout(&output), format!("1\n{name}\n"), "{}", stderr(&output));
}

#[test]
fn measured_mounts_are_private() {
    if !is_root() {
        return MissingRequirement::privilege("mounting needs root").report_skip("what is mounted to be measured");
    }
    let dir = TestDir::new();
    let mut child = dir.command(KELVIN, &["selfcheck", "--budget", "2s"]).stdout(Stdio::null()).spawn().unwrap();
    let directory = dir.path().canonicalize().unwrap();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut was_mounted = false;
    let is_over = is_met_within(Duration::from_secs(60), || {
        let is_mounted = has_loop_device(&directory);
        was_mounted |= is_mounted;
        assert!(!mounts().contains(directory.to_str().unwrap()), "{}", mounts());
        // One round of it is enough.
        was_mounted && !is_mounted || child.try_wait().unwrap().is_some()
    });
    assert!(is_over, "it hangs");
    let has_ended = is_met_within(Duration::from_secs(60), || {
        child.try_wait().unwrap().is_some() || {
            test_dir::signal(&child, "INT");
            false
        }
    });
    assert!(has_ended, "it is not interrupted");
    if !was_mounted {
        MissingRequirement::from_message("the disk of known rate cannot be had here")
            .report_skip("what is mounted to be measured");
    }
    assert!(dir.names().is_empty(), "{:?}", dir.names());
}

/// Whether a loop device has its content in a file below a directory.
fn has_loop_device(directory: &Path) -> bool {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.into_iter().any(|file| Path::new(&file).starts_with(directory))
}
