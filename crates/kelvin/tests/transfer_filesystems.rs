//! Files that come onto, or from, file systems that are unlike a local disk: errors that come when a file is closed, sizes that are not
//! stated, coarse times, long names, no way to rename or link as others do.

mod place;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::sync::Arc;

use kelvin_testing::mounted::Mounted;
use kelvin_testing::served::{Asked, Behaviour};
use place::{KELVIN, Place, assert_refused, finished, names, stderr, stdout};

/// A file system that this test serves; `None`, with the reason printed, if there can be none here.
fn served(what: &str, behaviour: Behaviour) -> Option<(Mounted, Arc<Asked>)> {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Mounted::served(behaviour, base).inspect_err(|missing| missing.skips(what)).ok()
}

/// A receiver of one sender, that is killed when the test ends.
struct Receiving {
    child: Option<Child>,
    address: String,
}

impl Receiving {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let arguments = [&["receive", "--once", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = place.command(KELVIN, &arguments).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child: Some(child), address: address.trim().to_owned() }
    }

    /// Its exit status and log once its sender was served.
    fn end(mut self) -> (Option<i32>, String) {
        let output = finished(self.child.take().unwrap(), &["receive"]);
        (output.status.code(), stderr(&output).to_owned())
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends by these arguments to a receiver with those: what the sender printed, and the receiver's status and log.
fn moved(place: &Place, (receive, send): (&[&str], &[&str])) -> (Output, (Option<i32>, String)) {
    let receiving = Receiving::start(place, receive);
    let arguments = [&["send"], send, &[receiving.address.as_str()]].concat();
    let sent = place.run(&arguments);
    (sent, receiving.end())
}

fn read(path: PathBuf) -> Vec<u8> {
    fs::read(path).unwrap()
}

#[test]
fn what_could_not_be_stored_has_no_name_and_replaces_nothing() {
    let behaviour = Behaviour { most_stored: 1000, ..Behaviour::default() };
    let Some((mounted, _)) = served("receiving where a close fails", behaviour) else { return };
    let place = Place::new();
    for (name, bytes) in [("small", 100), ("middle", 70_000), ("large", 9 << 20)] {
        place.file(name, bytes);
    }
    let target = mounted.path();
    let into = target.to_str().unwrap();
    for how in [&["--streams", "1"][..], &["--streams", "3"], &["--connection", "per-file"], &["--plain"], &["--sync"]]
    {
        for name in names(&target) {
            fs::remove_file(target.join(name)).unwrap();
        }
        fs::write(target.join("large"), "good").unwrap();
        fs::write(target.join("middle"), "good").unwrap();
        let send = [how, &["small", "middle", "large"]].concat();
        let (sent, (status, log)) = moved(&place, (&[into, "--overwrite"], &send));
        assert_eq!((sent.status.code(), status), (Some(1), Some(1)), "{how:?}: {}{log}", stderr(&sent));
        for name in ["middle", "large"] {
            assert!(stderr(&sent).contains(name) && stderr(&sent).contains("quota exceeded"), "{}", stderr(&sent));
            assert_eq!(read(target.join(name)), b"good", "{how:?}");
        }
        assert!(log.contains("quota exceeded"), "{log}");
        assert!(stdout(&sent).starts_with("moved 1 file, 100 B"), "{}", stdout(&sent));
        assert_eq!(names(&target), ["large", "middle", "small"], "{how:?}");
    }
    // New names are not given either.
    fs::remove_file(target.join("large")).unwrap();
    let (sent, _) = moved(&place, (&[into], &["large"]));
    assert_eq!(sent.status.code(), Some(1), "{}", stdout(&sent));
    assert_eq!(names(&target), ["middle", "small"]);
}

#[test]
fn small_files_that_could_not_be_stored_have_no_names() {
    let behaviour = Behaviour { most_stored: 1000, ..Behaviour::default() };
    let Some((mounted, _)) = served("receiving small files where a close fails", behaviour) else { return };
    let place = Place::new();
    fs::create_dir(place.path().join("tree")).unwrap();
    place.file("tree/fits", 900);
    place.file("tree/more", 2000);
    let target = mounted.path();
    let (sent, _) = moved(&place, (&[target.to_str().unwrap()], &["-r", "tree"]));
    assert_eq!(sent.status.code(), Some(1), "{}", stdout(&sent));
    assert!(stderr(&sent).contains("more") && stderr(&sent).contains("quota exceeded"), "{}", stderr(&sent));
    assert_eq!(names(&target.join("tree")), ["fits"]);
}

#[test]
fn outputs_that_could_not_be_stored_are_errors() {
    let behaviour = Behaviour { most_stored: 1000, ..Behaviour::default() };
    let Some((mounted, _)) = served("outputs where a close fails", behaviour) else { return };
    let place = Place::new();
    fs::write(place.path().join("run.json"), kelvin_testing::stored_run("intel-guest-2").0).unwrap();
    let at = |name: &str| mounted.path().join(name);
    let [report, written, link, printed] = ["report.html", "data", "link", "printed"].map(at);
    fs::write(&report, "good").unwrap();
    std::os::unix::fs::symlink(&report, &link).unwrap();
    for output in [&report, &link] {
        let output = place.run(&["report", "run.json", "--format", "html", "-o", output.to_str().unwrap()]);
        assert_refused(&output, &["quota exceeded"]);
        assert_eq!(read(report.clone()), b"good");
    }
    for engine in ["write", "pwrite", "io_uring"] {
        let write = ["file", "write", written.to_str().unwrap(), "--size", "64k", "--block", "4k", "--engine", engine];
        let output = place.run(&write);
        if engine == "io_uring" && stderr(&output).contains("io_uring is unavailable") {
            continue;
        }
        assert_refused(&output, &["data", "quota exceeded"]);
    }
    assert_eq!(names(&mounted.path()), ["link", "report.html"]);
    // What the shell has opened for it, kelvin did not name, but has promised to write.
    let mut command = place.command(KELVIN, &["report", "run.json", "--format", "csv"]);
    let output = command.stdout(File::create(&printed).unwrap()).output().unwrap();
    assert_refused(&output, &["standard output", "quota exceeded"]);
    place.file("middle", 70_000);
    let mut receiving = place.command(KELVIN, &["receive", "-", "--listen", "127.0.0.1:0"]);
    let mut child = receiving.stdout(File::create(&printed).unwrap()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut address = String::new();
    log.read_line(&mut address).unwrap();
    let sent = place.run(&["send", "middle", address.trim().trim_start_matches("kelvin: ")]);
    assert_eq!(sent.status.code(), Some(1), "{}", stdout(&sent));
    assert!(stderr(&sent).contains("quota exceeded"), "{}", stderr(&sent));
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert_ne!(finished(child, &["receive", "-"]).status.code(), Some(0), "{rest}");
}
