//! The whole program on paths that somebody else has a hand in: what it makes for a while nobody can foresee or swap, and
//! nothing there makes it wait.

mod place;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use place::{KELVIN, PATIENCE, Place, assert_refused, finished, is_root, names, skipped, stderr, stdout, within};

/// An exported run.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/format-1.json");
/// A run that is over soon.
const SHORT: [&str; 7] = ["run", "os.syscall.null", "--budget", "1s", "--rounds", "2", "--no-store"];
/// A process number that no process has.
const NOBODY: u32 = 4_194_999;

/// What `sh` does, in which `$0` is kelvin and `$1` a run.
fn shell(place: &Place, script: &str) -> Output {
    let arguments = ["-c", script, KELVIN, RUN];
    finished(place.command("sh", &arguments).spawn().unwrap(), &[script])
}

#[track_caller]
fn done(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", stderr(output), stdout(output));
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

// ---- what is made for a while

#[test]
fn finding_out_whether_a_report_can_be_written_changes_nothing_and_leaves_nothing() {
    let place = Place::new();
    let page = place.path().join("page");
    fs::write(&page, "old").unwrap();
    let before = page.metadata().unwrap();
    let run = ["run", "os", "--budget", "600s", "--no-store", "--report", "page"];
    let mut child = place.start(&run);
    let measures = || names(place.path()).iter().any(|name| name.starts_with("kelvin-scratch-"));
    assert!(within(PATIENCE, measures), "it does not begin");
    let scratch = names(place.path()).into_iter().find(|name| name.starts_with("kelvin-scratch-")).unwrap();
    let rights = mode(&place.path().join(&scratch));
    child.kill().unwrap();
    child.wait().unwrap();
    let after = page.metadata().unwrap();
    assert_eq!((before.ino(), before.modified().unwrap()), (after.ino(), after.modified().unwrap()));
    assert_eq!((place.names(), rights), (vec![scratch, "page".into()], 0o700));
    // What it left is gone with the next one.
    done(&place.run(&[&SHORT[..], &["--no-report"]].concat()));
    assert_eq!(place.names(), ["page"]);
}

/// Names of a directory and a file that a dead process of this system made.
fn left_by_the_dead() -> [String; 2] {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    ["kelvin-scratch-", ".kelvin-unfinished-"].map(|prefix| format!("{prefix}{boot}-{namespace}-{NOBODY}"))
}

#[test]
fn what_somebody_plants_for_the_sweep_neither_makes_it_wait_nor_leads_it_elsewhere() {
    let place = Place::new();
    let victim = place.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("lock"), "").unwrap();
    fs::write(victim.join("data"), "the user's").unwrap();
    let [directory, file] = left_by_the_dead();
    let pipe = |path: PathBuf| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    // By the names of today and by older ones, with a pipe as lock, and without any.
    for name in [directory.clone(), format!("{directory}-a")] {
        fs::create_dir(place.path().join(&name)).unwrap();
        pipe(place.path().join(&name).join("lock"));
    }
    fs::create_dir(place.path().join(format!("{directory}-b"))).unwrap();
    symlink(victim.join("lock"), place.path().join(format!("{directory}-b/lock"))).unwrap();
    symlink("victim", place.path().join(format!("{directory}-c"))).unwrap();
    pipe(place.path().join(format!("{file}-a")));
    symlink("victim/data", place.path().join(format!("{file}-b"))).unwrap();
    let before = place.names();
    done(&place.run(&[&SHORT[..], &["--no-report"]].concat()));
    done(&place.run(&["report", RUN, "--output", "page"]));
    done(&place.run(&["file", "write", "page", "--size", "4k", "--overwrite"]));
    assert_eq!(fs::read_to_string(victim.join("data")).unwrap(), "the user's");
    assert!(victim.join("lock").exists());
    let mut after = place.names();
    after.retain(|name| name != "page");
    assert_eq!(after, before);
}

#[test]
fn a_killed_writer_leaves_nothing_by_the_name_of_its_file_and_the_next_one_sweeps_up() {
    let place = Place::new();
    for more in [&[][..], &["--overwrite"]] {
        let write = [&["file", "write", "file", "--size", "1G", "--sync", "dsync"], more].concat();
        let mut child = place.start(&write);
        let grows =
            || unfinished(place.path()).is_some_and(|path| path.metadata().is_ok_and(|found| found.len() > 20_000));
        assert!(within(PATIENCE, grows), "it does not begin");
        assert_eq!(mode(&unfinished(place.path()).unwrap()), 0o600);
        assert!(!place.path().join("file").exists());
        // One that writes is left alone by others.
        done(&place.run(&["file", "write", "second", "--size", "4k"]));
        assert!(unfinished(place.path()).is_some() && child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(place.names().len(), 2, "{:?}", place.names());
        done(&place.run(&["file", "write", "second", "--size", "4k", "--overwrite"]));
        assert_eq!(place.names(), ["second"]);
        fs::remove_file(place.path().join("second")).unwrap();
    }
    // What somebody else makes by that name meanwhile stays his.
    let write = ["file", "write", "file", "--size", "64M", "--block", "64k", "--sync", "dsync"];
    let child = place.start(&write);
    assert!(within(PATIENCE, || unfinished(place.path()).is_some()), "it does not begin");
    fs::write(place.path().join("file"), "theirs").unwrap();
    assert_refused(&finished(child, &write), &["file is there already"]);
    assert_eq!(fs::read_to_string(place.path().join("file")).unwrap(), "theirs");
    assert_eq!(place.names(), ["file"]);
}

/// The file that is being made in a directory.
fn unfinished(directory: &Path) -> Option<PathBuf> {
    names(directory).into_iter().find(|name| name.starts_with(".kelvin-")).map(|name| directory.join(name))
}

#[test]
fn what_cannot_fit_is_refused_at_once() {
    let place = Place::new();
    for more in [&[][..], &["--pattern", "0"], &["--overwrite"], &["--sync", "direct"]] {
        let output = place.run(&[&["file", "write", "new", "--size", "100T"], more].concat());
        assert_refused(&output, &["new cannot have 109951162777600 bytes"]);
    }
    assert_refused(&place.run(&["file", "write", "new", "--count", "9000000000000"]), &["new cannot have"]);
    let limited = shell(&place, "ulimit -f 8 && \"$0\" file write new --size 1M");
    assert_refused(&limited, &["new cannot have 1048576 bytes", "ulimit -f"]);
    done(&shell(&place, "ulimit -f 8 && \"$0\" file write new --size 4k"));
    assert_eq!(place.names(), ["new"]);
}

// ---- what is mounted

/// Whoever mounts something by the name of what kelvin mounts keeps it: it may be where he has meanwhile put a link to elsewhere.
#[test]
fn nothing_is_unmounted_by_its_path() {
    if !is_root() {
        return skipped("nothing is unmounted by its path", "mounting needs root");
    }
    let place = Place::new();
    let name = format!("kelvin-truth-disk-{NOBODY}");
    let script = format!(
        "mkdir {name} && mount -t tmpfs kelvin-test {name} && \"$0\" {} --no-report > /dev/null; grep -c {name} /proc/self/mountinfo; \
         ls -d {name}",
        SHORT.join(" ")
    );
    let arguments = ["--mount", "sh", "-c", &script, KELVIN];
    let output = finished(place.command("unshare", &arguments).spawn().unwrap(), &arguments);
    assert_eq!(stdout(&output), format!("1\n{name}\n"), "{}", stderr(&output));
}

#[test]
fn what_is_mounted_to_be_measured_is_seen_by_nobody_else() {
    if !is_root() {
        return skipped("what is mounted to be measured", "mounting needs root");
    }
    let place = Place::new();
    let mut child = place.command(KELVIN, &["selfcheck", "--budget", "2s"]).stdout(Stdio::null()).spawn().unwrap();
    let image = || names(place.path()).into_iter().find(|name| name.starts_with("kelvin-scratch-"));
    let here = place.path().canonicalize().unwrap();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut seen = false;
    let over = within(Duration::from_secs(60), || {
        let scratch = image().map(|name| place.path().join(name).join("kelvin-truth-disk"));
        seen |= scratch.is_some_and(|path| path.exists());
        assert!(!mounts().contains(here.to_str().unwrap()), "{}", mounts());
        child.try_wait().unwrap().is_some()
    });
    assert!(over, "it hangs");
    if !seen {
        skipped("what is mounted to be measured", "the disk of known rate cannot be had here");
    }
    assert!(place.names().is_empty(), "{:?}", place.names());
}
