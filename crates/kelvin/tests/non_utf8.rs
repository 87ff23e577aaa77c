//! The whole program on arguments and an environment that are not UTF-8: nothing makes it panic, and files and directories may
//! have any name.

mod test_dir;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use test_dir::{KELVIN, TestDir, assert_refused, assert_success, stdout, wait_for_output};

/// An exported run.
const EXPORTED_RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/format-1.json");

/// An argument that is no UTF-8.
fn non_utf8_arg(end: &str) -> OsString {
    OsString::from_iter([OsStr::from_bytes(b"odd-\xff"), OsStr::new(end)])
}

/// The titles of lists of commands in help. Studies have the same options.
const COMMAND_LISTS: [&str; 6] = ["Measure:", "Understand:", "Tools:", "Machine:", "Manage:", "Commands:"];

/// The commands of kelvin, and those of its commands that have some, with the help of each.
fn commands(dir: &TestDir) -> Vec<(Vec<String>, String)> {
    let help = |path: &[String]| {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        stdout(&dir.run(&words)).to_owned()
    };
    let mut list = vec![(Vec::new(), help(&[]))];
    let mut index = 0;
    while let Some((path, text)) = list.get(index).cloned() {
        let is_title = |line: &&str| COMMAND_LISTS.contains(line);
        let lists = text.split("\n\n").filter(|list| list.lines().next().as_ref().is_some_and(is_title));
        let listing = lists.flat_map(|list| list.lines().skip(1));
        for name in
            listing.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|name| !name.is_empty())
        {
            let path = [&path[..], &[name.to_owned()]].concat();
            let text = help(&path);
            list.push((path, text));
        }
        index += 1;
    }
    // These are in no list.
    list.push((vec!["study".into(), "load".into()], help(&["study".into(), "load".into()])));
    let hidden = ["probe-process", "file-cache-process", "book-page"];
    list.extend(hidden.map(|name| (vec![name.to_owned()], "<AREA>".to_owned())));
    list
}

#[test]
fn non_utf8_argument_never_panics() {
    let dir = TestDir::new();
    let mut attempts = 0;
    for (path, help) in commands(&dir) {
        let options = help.lines().filter_map(|line| line.split("--").nth(1)?.split_once([' ', '=']));
        let with_value = options.filter(|(_, rest)| rest.starts_with('<')).map(|(name, _)| format!("--{name}"));
        for option in with_value.map(Some).chain([None]) {
            let mut command = dir.command(KELVIN, &[]);
            // A run would begin that takes long: with a CPU that is not there it does not.
            let is_long_run = matches!(path.first().map(String::as_str), Some("run" | "study" | "selfcheck" | "watch"));
            let is_run = is_long_run || path.get(1).is_some_and(|name| name == "sweep");
            command.args(&path).args(is_run.then_some("--cpu=99999").filter(|_| option.as_deref() != Some("--cpu")));
            // So would a test of throughput, over loopback; at this port there is no agent.
            command.args((path == ["net"]).then_some("127.0.0.1:1"));
            command.args(&option).arg(non_utf8_arg(""));
            let output = wait_for_output(command.spawn().unwrap(), &[&format!("{path:?} {option:?}")]);
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code().is_some_and(|code| code <= 2), "{path:?} {option:?}: {output:?}");
            assert!(!message.contains("panicked") && message.lines().count() <= 2, "{path:?} {option:?}: {message}");
            attempts += 1;
        }
    }
    assert!(attempts > 100, "only {attempts} are found in the help");
    let mut command = dir.command(KELVIN, &["run", "--budget"]);
    assert_refused(&command.arg(non_utf8_arg("")).output().unwrap(), &["odd-\\xFF", "UTF-8"]);
}

#[test]
fn non_utf8_paths_work() {
    let dir = TestDir::new();
    let run = |arguments: &[&OsStr]| {
        let mut command = dir.command(KELVIN, &[]);
        wait_for_output(command.args(arguments).spawn().unwrap(), &[&format!("{arguments:?}")])
    };
    let [directory, remote, data, page, export, list, store] =
        ["", "-other", "-data", "-page.html", "-export", "-list", "-store"].map(non_utf8_arg);
    for directory in [&directory, &remote] {
        fs::create_dir(dir.path().join(directory)).unwrap();
    }
    let word = OsStr::new;
    let words = |text: &'static str| text.split(' ').map(OsStr::new);
    let run_parts = |parts: Vec<Vec<&OsStr>>| run(&parts.concat());
    let output = run_parts(vec![
        words("run file.entry file.remote.round_trip --quick --budget 3s --rounds 2 --dir").collect(),
        vec![&directory, word("--remote"), &remote, word("--output"), &page, word("--store"), &store],
    ]);
    assert_success(&output);
    let table = stdout(&output);
    assert!(table.contains("remote.round_trip") && !table.contains("failed"), "{table}");
    assert!(fs::read_to_string(dir.path().join(&page)).unwrap().starts_with("<!"));
    assert_success(&run(&[word("runs"), word("export"), word("--store"), &store, word("--output"), &export]));
    assert_success(&run(&[word("report"), &export, word("--assets"), &directory]));
    assert_success(&run(&[word("runs"), word("import"), &export, word("--store"), &store]));
    assert_success(&run(&[word("file"), word("write"), &data, word("--size"), word("64k"), word("--json")]));
    assert_success(&run(&[word("file"), word("read"), &data, word("--json")]));
    assert_success(&run(&[word("file"), word("cache"), &directory, word("--json")]));
    let digest = run(&[word("digest"), &data]);
    assert_success(&digest);
    assert!(digest.stdout.ends_with(&[b"  ", data.as_bytes(), b"\n"].concat()));
    fs::write(dir.path().join(&list), &digest.stdout).unwrap();
    assert_success(&run(&[word("digest"), word("--check"), &list]));
}

#[test]
fn non_utf8_environment_never_panics() {
    let dir = TestDir::new();
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
        let value = dir.path().join(non_utf8_arg(name));
        for arguments in
            [&["runs", "list"][..], &["machine"], &["digest", EXPORTED_RUN], &["report", EXPORTED_RUN], &["--help"]]
        {
            let mut command = dir.command(KELVIN, arguments);
            let output = wait_for_output(command.env(name, &value).spawn().unwrap(), arguments);
            assert_eq!(output.status.code(), Some(0), "{name} {arguments:?}: {output:?}");
        }
    }
}
