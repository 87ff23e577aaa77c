//! The whole program on paths that somebody else has a hand in.

mod place;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use place::{KELVIN, Place, finished, is_root, names, skipped, stderr, stdout, within};

/// A run that is over soon.
const SHORT: [&str; 7] = ["run", "os.syscall.null", "--budget", "1s", "--rounds", "2", "--no-store"];
/// A process number that no process has.
const NOBODY: u32 = 4_194_999;

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
