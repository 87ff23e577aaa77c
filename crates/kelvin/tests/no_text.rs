//! The whole program on arguments and an environment that are not UTF-8: nothing makes it panic, and files and directories may
//! have any name.

mod place;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Output;

use place::{KELVIN, Place, assert_refused, finished, stderr, stdout};

/// An exported run.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/format-1.json");

#[track_caller]
fn done(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", stderr(output), stdout(output));
}

/// An argument that is no UTF-8.
fn odd(end: &str) -> OsString {
    OsString::from_iter([OsStr::from_bytes(b"odd-\xff"), OsStr::new(end)])
}

/// The commands of kelvin, and those of its commands that have some, with what help says of them.
fn commands(place: &Place) -> Vec<(Vec<String>, String)> {
    let help = |path: &[String]| {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        stdout(&place.run(&words)).to_owned()
    };
    let mut found = vec![(Vec::new(), help(&[]))];
    let mut next = 0;
    while let Some((path, text)) = found.get(next).cloned() {
        let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        for name in listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|name| !name.is_empty())
        {
            let path = [&path[..], &[name.to_owned()]].concat();
            let text = help(&path);
            found.push((path, text));
        }
        next += 1;
    }
    // These are in no list.
    let hidden = ["probe-process", "file-cache-process", "book-page"];
    found.extend(hidden.map(|name| (vec![name.to_owned()], "<AREA>".to_owned())));
    found
}

#[test]
fn an_argument_that_is_no_text_is_never_a_panic() {
    let place = Place::new();
    let mut tried = 0;
    for (path, help) in commands(&place) {
        let options = help.lines().filter_map(|line| line.split("--").nth(1)?.split_once([' ', '=']));
        let with_value = options.filter(|(_, rest)| rest.starts_with('<')).map(|(name, _)| format!("--{name}"));
        for option in with_value.map(Some).chain([None]) {
            let mut command = place.command(KELVIN, &[]);
            // A run would begin that takes long: with a CPU that is not there it does not.
            let starts = matches!(path.first().map(String::as_str), Some("run" | "study" | "selfcheck" | "watch"));
            let starts = starts || path.get(1).is_some_and(|name| name == "sweep");
            command.args(&path).args(starts.then_some("--cpu=99999").filter(|_| option.as_deref() != Some("--cpu")));
            command.args(&option).arg(odd(""));
            let output = finished(command.spawn().unwrap(), &[&format!("{path:?} {option:?}")]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code().is_some_and(|code| code <= 2), "{path:?} {option:?}: {output:?}");
            assert!(!said.contains("panicked") && said.lines().count() <= 2, "{path:?} {option:?}: {said}");
            tried += 1;
        }
    }
    assert!(tried > 100, "only {tried} are found in the help");
    let mut command = place.command(KELVIN, &["run", "--budget"]);
    assert_refused(&command.arg(odd("")).output().unwrap(), &["odd-\\xFF", "UTF-8"]);
}

#[test]
fn files_and_directories_may_have_names_that_are_no_text() {
    let place = Place::new();
    let run = |arguments: &[&OsStr]| {
        let mut command = place.command(KELVIN, &[]);
        finished(command.args(arguments).spawn().unwrap(), &[&format!("{arguments:?}")])
    };
    let [directory, other, data, page, export, list, store] =
        ["", "-other", "-data", "-page", "-export", "-list", "-store"].map(odd);
    for directory in [&directory, &other] {
        fs::create_dir(place.path().join(directory)).unwrap();
    }
    let word = OsStr::new;
    let words = |text: &'static str| text.split(' ').map(OsStr::new);
    let all = |parts: Vec<Vec<&OsStr>>| run(&parts.concat());
    let measured = all(vec![
        words("run file.entry file.remote.round_trip --quick --budget 3s --rounds 2 --dir").collect(),
        vec![&directory, word("--remote"), &other, word("--report"), &page, word("--store"), &store],
    ]);
    done(&measured);
    let table = stdout(&measured);
    assert!(table.contains("remote.round_trip") && !table.contains("failed"), "{table}");
    assert!(fs::read_to_string(place.path().join(&page)).unwrap().starts_with("<!"));
    done(&run(&[word("runs"), word("export"), word("--store"), &store, word("--output"), &export]));
    done(&run(&[word("report"), &export, word("--assets"), &directory]));
    done(&run(&[word("runs"), word("import"), &export, word("--store"), &store]));
    done(&run(&[word("file"), word("write"), &data, word("--size"), word("64k"), word("--json")]));
    done(&run(&[word("file"), word("read"), &data, word("--json")]));
    done(&run(&[word("file"), word("cache"), &directory, word("--json")]));
    let digest = run(&[word("digest"), &data]);
    done(&digest);
    assert!(digest.stdout.ends_with(&[b"  ", data.as_bytes(), b"\n"].concat()));
    fs::write(place.path().join(&list), &digest.stdout).unwrap();
    done(&run(&[word("digest"), word("--check"), &list]));
}

#[test]
fn an_environment_that_is_no_text_is_never_a_panic() {
    let place = Place::new();
    for name in [
        "HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "TMPDIR",
        "PATH",
        "TERM",
        "NO_COLOR",
        "COLUMNS",
        "LANG",
        "RUST_BACKTRACE",
    ] {
        let value = place.path().join(odd(name));
        for arguments in [&["runs", "list"][..], &["machine"], &["digest", RUN], &["report", RUN], &["--help"]] {
            let mut command = place.command(KELVIN, arguments);
            let output = finished(command.env(name, &value).spawn().unwrap(), arguments);
            assert_eq!(output.status.code(), Some(0), "{name} {arguments:?}: {output:?}");
        }
    }
}
