//! The whole program from outside: help, version, usage errors, and readers that go away.

mod test_dir;

use std::process::{Command, Output};

use test_dir::{KELVIN, TestDir, stderr, stdout};

/// Runs kelvin, which may print more than a pipe holds.
fn kelvin(dir: &TestDir, arguments: &[&str]) -> Output {
    dir.command(KELVIN, arguments).output().unwrap()
}

/// A wrong command line and what the one line about it must name.
const USAGE_ERRORS: &[(&[&str], &str)] = &[
    (&["frobnicate"], "frobnicate"),
    (&["--frobnicate"], "--frobnicate"),
    (&["run", "no.such.probe"], "no.such.probe"),
    (&["run", "os.sys"], "os.sys"),
    (&["run", "net.peer.bandwidth"], "net.peer.bandwidth needs --peer HOST: a host running `kelvin agent`"),
    (&["run", "os", "net.peer"], "net.peer needs --peer HOST"),
    (&["run", "file.remote"], "file.remote needs --remote DIR: a directory mounted from another machine"),
    (&["run", "net.peer.bandwith"], "did you mean net.peer.bandwidth"),
    (&["run", "OS"], "did you mean os?"),
    (&["explain", "OS.Syscall"], "did you mean os.syscall?"),
    (&["run", "os.tasks"], "'os.tasks' is a study: `kelvin study os.tasks`"),
    (&["run", "os.syscall.null", "--dir", "no/such"], "--dir no/such: No such file"),
    (&["run", "os.syscall.null", "--dir", "/proc"], "cannot make a scratch directory in /proc"),
    (&["run", "os.syscall.null", "-o", "no/such/page.html"], "there is no directory no/such; make it first"),
    (
        &["run", "os.syscall.null", "--store", "no/such/runs"],
        "--store no/such/runs: there is no directory no/such; make",
    ),
    (&["runs", "list", "--store", "no/such/runs"], "--store no/such/runs: there is no directory"),
    (&["study", "net.peer.rtt"], "net.peer.rtt needs --peer HOST"),
    (&["study", "net.peer"], "net.peer needs --peer HOST"),
    (&["study", "net.bandwith"], "did you mean net.bandwidth"),
    (&["study", "file.depth", "--only", "dpth=4"], "its axes are depth; did you mean depth?"),
    (&["study", "file.depth", "--only", "depth=3"], "depth is 1, "),
    (&["study", "frob"], "; `kelvin study --help` lists them"),
    (&["study", "truth.wait"], "'truth.wait' is a known truth, not a study: `kelvin selfcheck`"),
    (&["list", "--studies", "net.rtt"], "'net.rtt' is part of a plain run, `kelvin list net.rtt`"),
    (&["study", "file.remote"], "needs --remote DIR"),
    (&["study", "file.remote", "--remote", ".", "--remote-size", "10k"], "between 1M and 1T"),
    (&["study", "file.remote", "--remote", ".", "--remote-size", "5000001"], "multiple of 4k"),
    (&["study", "file.remote", "--remote-size", "128M"], "--remote"),
    (&["study", "os.tasks", "--remote", ".", "--remote-size", "8M"], "unexpected argument '--remote'"),
    (&["run", "os.syscall.null", "--remote", ".", "--remote-size", "10k"], "between 1M and 1T"),
    (&["run", "file.device", "--extent", "10M"], "--extent <BYTES>': it must be between 64M and 1024T"),
    (&["run", "file.device", "--extent", "100000000"], "multiple of 1M"),
    (
        &["run", "os.syscall.null", "--extent", "1G"],
        "--extent: none of file.device, file.depth and file.jobs is measured",
    ),
    (&["run", "file.jobs", "--extent", "1000T"], "choose a smaller one, or another directory by --dir"),
    (
        &["run", "file.jobs", "--extent", "64M", "--write-limit", "32M"],
        "--extent: 64 MiB or more are written, and --write-limit allows 32 MiB",
    ),
    (&["why", "file.device.read", "--extent", "1G"], "--extent: nothing here covers a file of that size"),
    (&["list", "os.tasks"], "'os.tasks' is a study: `kelvin list --studies os.tasks`"),
    (&["why"], "<METRIC>"),
    (&["why", "net.rtt"], "name one: net.rtt.icmp, net.rtt.tcp"),
    (&["why", "net.rtt.tpc"], "did you mean net.rtt.tcp"),
    (&["why", "os.tasks.elapsed"], "is of a study"),
    (&["why", "net.rtt.tcp"], "name one by placement=same_cpu, two_cpus"),
    (&["why", "net.rtt.tcp", "placement"], "placement"),
    (&["why", "net.rtt.tcp", "place=two_cpus"], "no axis of that name; it has message, placement"),
    (&["why", "net.rtt.tcp", "placement=two"], "placement is same_cpu, two_cpus"),
    (&["why", "os.syscall.null", "--dir", "no/such"], "--dir no/such: No such file"),
    (&["run", "--budget", "soon"], "--budget"),
    (&["run", "--budget", "0s"], "--budget"),
    (&["run", "--budget=-1s"], "--budget"),
    (&["run", "--budget", "9000h"], "--budget"),
    (&["run", "--budget"], "--budget"),
    (&["run", "--rounds", "1"], "--rounds"),
    (&["run", "--rounds", "1001"], "--rounds"),
    (&["run", "--rounds", "many"], "--rounds"),
    (&["run", "--target", "0"], "--target"),
    (&["run", "--target", "51"], "--target"),
    (&["run", "--target", "NaN"], "--target"),
    (&["run", "--cpu", "one"], "--cpu"),
    (&["run", "--cpu=-1"], "--cpu"),
    (&["run", "--cpu", "99999"], "--cpu"),
    (&["run", "--seed", "dice"], "--seed"),
    (
        &["run", "net.bandwidth.tcp", "--congestion-control", "no-such"],
        "this kernel has no such congestion control; it has ",
    ),
    (&["run", "net.bandwidth.tcp", "--congestion-control", "a-name-longer-than-any"], "--congestion-control"),
    (
        &["run", "os", "--congestion-control", "reno"],
        "applies to net.bandwidth.tcp, and with --peer to net.peer.bandwidth",
    ),
    (&["run", "net.bandwidth.tcp", "--socket-buffers", "3k"], "it must be between 4k and 1G"),
    (&["run", "os", "--socket-buffers", "64k"], "--socket-buffers"),
    (&["selfcheck", "--socket-buffers", "64k"], "--socket-buffers"),
    (&["run", "--quick", "--thorough"], "--thorough"),
    (&["run", "--quick=yes"], "--quick"),
    (&["run", "-o", "x.svg"], "give a name that ends in .html, .md, "),
    (&["list", "-o", "x.csv"], "give a name that ends in .json or .txt"),
    (&["run", "os.syscall.null", "-o", "x.html", "--with-samples"], "--with-samples: only JSON may lack samples"),
    (&["runs", "show", "-o", "x.txt", "--with-samples"], "--with-samples: only JSON may lack samples"),
    (&["run", "--bugdet", "5s"], "a similar one is '--budget'"),
    (&["run", "--zzz"], "`kelvin run --help` lists what there is"),
    (&["help", "exit-statsu"], "a similar one is 'exit-status'"),
    (&["help", "frob"], "`kelvin help` lists them"),
    (&["report", "--format", "htlm"], "a similar one is 'html'"),
    // Options of other programs.
    (&["load", "http://localhost:1/", "-p", "file"], "-p: give --method POST --body-file FILE"),
    (&["load", "http://localhost:1/", "-T", "text/html"], "-T: give -H 'Content-Type: TYPE'; a time-out is --timeout"),
    (&["load", "http://localhost:1/", "-n", "9", "-k"], "(connections stay open in any case)"),
    (&["load", "http://localhost:1/", "--latency"], "leave it out"),
    (&["file", "read", "x", "--rw=randread"], "with --random in random order"),
    (&["file", "write", "x", "--direct=1", "--size", "1M"], "give --sync direct"),
    (&["file", "read", "x", "--ioengine", "libaio"], "--engine"),
    (&["run", "net.peer", "-c", "localhost", "-t", "10"], "-t: give --budget TIME"),
    (&["run", "net.peer", "-c", "localhost", "-P", "4"], "kelvin net HOST"),
    (&["agent", "-p", "5201"], "give --listen ADDRESS:PORT"),
    (&["send", "-c", "x", "localhost"], "leave --update out"),
    (&["ab", "-n", "10"], "kelvin load sends requests"),
    (&["run", "--compare-with", "cray-1"], "cray-1"),
    (&["run", "--store"], "--store"),
    (&["run", "--store", "/proc/no/such/store"], "/proc/no/such"),
    (&["run", "--frobnicate"], "--frobnicate"),
    (&["study"], "`kelvin study --help`"),
    (&["study", "page", "--quick"], "`kelvin study page --help` lists what there is"),
    (&["study", "tasks", "--users", "3"], "unexpected argument '--users'"),
    (&["study", "file.depth", "--extnet", "1G"], "a similar one is '--extent'"),
    (&["study", "no-such-study"], "no-such-study"),
    (&["study", "tasks", "--budget", "never"], "--budget"),
    (&["runs"], "kelvin"),
    (&["runs", "burn"], "burn"),
    (&["runs", "show", "no-such-run"], "no-such-run"),
    (&["runs", "delete"], "<RUN>"),
    (&["runs", "delete", "no-such-run"], "no-such-run"),
    (&["run", "--frobnicate", "os"], "unexpected argument '--frobnicate' found"),
    (&["file", "cache", "no/such"], "no/such: "),
    (&["file", "cache", "/dev/null"], "/dev/null: not a directory"),
    (&["file", "read", "x", "--random", "--seed", "-1"], "'--seed <N>': it must be a whole number from 0"),
    (&["file", "write", "x", "--size", "1M", "--seed", "x"], "'--seed <N>': it must be a whole number from 0"),
    (&["explain", "os.syscall.nul"], "did you mean os.syscall.null"),
    (&["run", "cpu", "--store", ""], "'--store <STORE>'"),
    (&["runs", "push", "--to", ""], "'--to <STORE>'"),
    (&["runs", "pull", "--from", ""], "'--from <STORE>'"),
    (&["run", "net", "--peer", ""], "'--peer <HOST[:PORT]>'"),
    (&["send", "", "localhost"], "<FILE>"),
    (&["run", "cpu", "--tag", "a=1", "--tag", "b=1", "--tag", "a=2"], "a=2: a run has one value of the tag a"),
    (&["ab", "os.syscall.null", "--b", "memory=1"], "the program needs at least 16M"),
    (&["runs", "tag", "last", "a=1", "a=2"], "a=2: a run has one value of the tag a"),
    (&["study", "load", "--published", "--users", "3"], "--users: --published measures nothing"),
    (&["load", "http://localhost:1/", "--insecure"], "--insecure: an http server shows no certificate"),
    (&["load", "http://localhost:1/", "--ca", "x"], "--ca: an http server shows no certificate"),
    (&["load", "http://localhost:1/", "--connections", "5"], "--connections: users have one connection each"),
    (&["runs", "export", "no-such-run"], "no-such-run"),
    (&["runs", "import"], "<FILE>"),
    (&["runs", "import", "no-such-file.json"], "no-such-file.json"),
    (&["runs", "import", "/dev/null"], "/dev/null"),
    (&["study", "tasks", "--cpu", "99999"], "--cpu"),
    (&["selfcheck", "--cpu", "99999"], "--cpu"),
    (&["selfcheck", "--rounds", "0"], "--rounds"),
    (&["selfcheck", "--round-limit", "x"], "--round-limit"),
    (&["selfcheck", "os"], "os"),
    (&["send", "--device", "Cargo.toml", "127.0.0.1"], "--plain"),
    (&["receive", "--device", "--discard", "--listen", "0.0.0.0:0"], "is every address of this host: name the one"),
    (&["list", "no.such.probe"], "no.such.probe"),
    (&["explain"], "<NAME>"),
    (&["explain", "no.such.probe"], "no.such.probe"),
    (&["machine", "--root", "/no/such/directory"], "--root"),
    (&["machine", "extra"], "extra"),
    (&["tune", "--apply", "--restore"], "--restore"),
    (&["tune", "--optional"], "--apply"),
    (&["report", "no-such-run"], "no-such-run"),
    (&["report", "--format", "pdf"], "--format"),
    (&["report", "--full", "--format", "html"], "--full"),
    (&["report", "--compare-with", "cray-1"], "cray-1"),
    (&["report", "--with-samples"], "--with-samples: only JSON may lack samples"),
    (&["run", "os.syscall.null", "--with-samples"], "--json"),
    (&["runs", "show", "--with-samples"], "--json"),
    (&["load", "http://localhost/", "--rate", "-1"], "'-1' for '--rate"),
    (&["load", "http://localhost/", "--duration", "-5s"], "'-5s' for '--duration"),
    (&["send", "Cargo.toml", "localhost", "--limit", "-1KiB/s"], "'-1KiB/s' for '--limit"),
    (&["serve", ".", "--min-progress", "-4KiB/2s"], "'-4KiB/2s' for '--min-progress"),
    (&["run", "--budget", "-.5"], "'-.5' for '--budget"),
    (&["digest", "--check", "-1"], "-1"),
    // What an option needs cannot be given with another one: neither can it.
    (&["tune", "--restore", "abc"], "--restore"),
    (&["tune", "--restore", "--budget", "5s"], "--restore"),
    (&["tune", "--restore", "--optional"], "--restore"),
    (&["load", "http://localhost/", "--speed", "2"], "--replay"),
    (&["load", "http://localhost/", "--rate", "5", "--speed", "2"], "--speed"),
    (&["load", "http://localhost/", "--users", "5", "--speed", "2"], "--speed"),
    (&["load", "http://localhost/", "--slo", "p99:50ms", "--speed", "2"], "--speed"),
    (&["load", "http://localhost/", "--replay", "log", "--root", "."], "--root"),
    (&["why", "net.rtt.tcp", "--run", "last"], "--run"),
    (&["ab", "--a-cmd", "true", "--b", "as-found"], "--a-cmd"),
    (&["send", "Cargo.toml", "localhost", "--streams", "4", "--wait", "blocking"], "--streams"),
    (&["study", "load", "--peer", "localhost", "--stats-address", "127.0.0.1:1"], "--stats-address"),
];

/// What is wrong with the answer to a mistake.
fn message_defects(output: &Output, expected: &str) -> Vec<&'static str> {
    let message = stderr(output);
    let checks = [
        (output.status.code() != Some(2), "the exit status is not 2"),
        (message.lines().count() != 1, "it is not one line"),
        (!message.starts_with("kelvin: "), "it does not say who speaks"),
        (!message.contains(expected), "it does not name the argument"),
        (!output.stdout.is_empty(), "something is on standard output"),
        (message.contains("tip:"), "it tells how to pass an option as a value"),
    ];
    checks.into_iter().filter_map(|(has_defect, text)| has_defect.then_some(text)).collect()
}

#[test]
fn usage_errors_are_one_line_and_status_2() {
    let dir = TestDir::new();
    let mut problems = Vec::new();
    for (arguments, expected) in USAGE_ERRORS {
        let output = kelvin(&dir, arguments);
        let faults = message_defects(&output, expected);
        if !faults.is_empty() {
            problems.push(format!("{arguments:?}: {}: {:?}", faults.join(", "), stderr(&output)));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn socket_options_are_applied_and_reported() {
    let dir = TestDir::new();
    let options = ["--congestion-control", "reno", "--socket-buffers", "64k"];
    let run = ["run", "net.bandwidth.tcp", "--quick", "--budget", "minimum", "--rounds", "2", "--json"];
    let output = kelvin(&dir, &[&run[..], &options].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    for words in ["requested: reno, buffers of 64 KiB", "congestion control reno; socket buffers of 128 KiB to send"] {
        assert!(stdout(&output).contains(words), "{words}");
    }
}

#[test]
fn usage_error_leaves_nothing_behind() {
    let dir = TestDir::new();
    for arguments in [&["run", "no.such.probe"][..], &["run", "--cpu", "99999"], &["run", "--budget", "x"]] {
        kelvin(&dir, arguments);
    }
    let leftovers: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

/// Every sub-command that a user may call.
const COMMANDS: &[&[&str]] = &[
    &["run"],
    &["study"],
    &["file"],
    &["file", "read"],
    &["file", "autosize"],
    &["file", "write"],
    &["file", "copy"],
    &["file", "mix"],
    &["file", "run"],
    &["digest"],
    &["runs"],
    &["runs", "list"],
    &["runs", "show"],
    &["runs", "delete"],
    &["runs", "export"],
    &["runs", "import"],
    &["selfcheck"],
    &["list"],
    &["explain"],
    &["machine"],
    &["tune"],
    &["report"],
    &["why"],
    &["compare"],
    &["history"],
    &["fleet"],
    &["ab"],
    &["time"],
    &["watch"],
    &["send"],
    &["receive"],
    &["load"],
    &["serve"],
    &["net"],
    &["agent"],
    &["config"],
    &["help"],
];

#[test]
fn every_command_has_help() {
    let dir = TestDir::new();
    let general = kelvin(&dir, &["--help"]);
    assert_eq!(general.status.code(), Some(0));
    for command in COMMANDS {
        let output = kelvin(&dir, &[*command, &["--help"]].concat());
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", stderr(&output));
        assert!(stdout(&output).contains("Usage: kelvin"), "{command:?}: {}", stdout(&output));
        assert!(stderr(&output).is_empty(), "{command:?}: {}", stderr(&output));
        let is_listed = stdout(&general).lines().any(|line| line.trim_start().starts_with(command[0]));
        assert!(is_listed, "kelvin --help does not list {command:?}");
        if command.len() == 1 {
            assert!(stdout(&output).contains("Example"), "{command:?} shows no example");
        }
    }
    assert!(
        !stdout(&general).contains("probe-process"),
        "the hidden role of a probe's process is no command of a user's"
    );
}

/// Lines of a terminal's text that are wider than it, but for commands to be copied and words that cannot be broken.
fn overlong_lines(text: &str, width: usize) -> Vec<&str> {
    let is_broken = |line: &&str| line.split_whitespace().all(|word| word.chars().count() < width / 2);
    let is_command = |line: &str| line.contains("$ ");
    let long_lines = text.lines().filter(|line| line.chars().count() > width && !is_command(line));
    long_lines.filter(is_broken).collect()
}

#[test]
fn text_for_people_fits_eighty_columns() {
    let dir = TestDir::new();
    std::fs::write(dir.path().join("data"), [7; 100_000]).unwrap();
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/format-1.json");
    let commands: &[&[&str]] = &[
        // Not those of `list`, which keep room for words next to the longest name.
        &["machine"],
        &["explain", "os.syscall.null"],
        &["why", "--causes"],
        &["tune"],
        &["report", run],
        &["report", run, "--full"],
        &["compare", "zenbook-2011", run],
        &["study", "load", "--published"],
        &["file", "read", "data"],
        &["file", "copy", "data", "copy"],
        &["file", "write", "new", "--count", "1"],
        &["file", "cache", "."],
        &["runs", "list"],
    ];
    let mut lines = Vec::new();
    for arguments in commands {
        let output = dir.command(KELVIN, arguments).env("COLUMNS", "80").output().unwrap();
        assert!(!stdout(&output).is_empty() || arguments[0] == "runs", "{arguments:?}: {}", stderr(&output));
        lines.extend(overlong_lines(stdout(&output), 80).into_iter().map(|line| format!("{arguments:?}: {line}")));
    }
    assert!(lines.is_empty(), "{lines:#?}");
}

#[test]
fn version_begins_with_that_of_the_package() {
    let dir = TestDir::new();
    let [short, long] = ["-V", "--version"].map(|flag| kelvin(&dir, &[flag]));
    assert_eq!((short.status.code(), long.status.code()), (Some(0), Some(0)));
    assert_eq!(stdout(&short), concat!("kelvin ", env!("CARGO_PKG_VERSION"), "\n"));
    let details = stdout(&long).strip_prefix(stdout(&short)).expect("the first line is the short version");
    let labels: Vec<&str> = details.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert_eq!(labels, ["commit", "target", "C library", "compiler", "features", "formats", "protocols"]);
}

#[test]
fn full_stdout_is_an_error() {
    let full_device = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = TestDir::new().command(KELVIN, &["list"]).stdout(full_device).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("standard output"), "{}", stderr(&output));
}

/// The program with its standard streams as the shell redirects them.
fn run_redirected(dir: &TestDir, arguments: &[&str], redirection: &str) -> Output {
    let command = dir.command(KELVIN, arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}")]).arg(command.get_program()).args(arguments);
    shell.current_dir(dir.path()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.output().unwrap()
}

#[test]
fn closed_standard_stream_is_an_error() {
    let dir = TestDir::new();
    std::fs::write(dir.path().join("one"), "1").unwrap();
    let receive = ["receive", "-", "--once", "--listen", "127.0.0.1:0"];
    for (arguments, redirection, words) in [
        (&["digest", "one"][..], ">&-", "cannot write to standard output: it is closed"),
        (&["digest", "one"], "<&- >&-", "cannot write to standard output: it is closed"),
        (&["digest", "one"], "1< one", "cannot write to standard output: it is not open for writing"),
        (&["list"], ">&-", "cannot write to standard output: it is closed"),
        (&receive, ">&-", "cannot write to standard output: it is closed"),
        (&["digest"], "<&-", "cannot read standard input: it is closed"),
        (&["digest"], "0> two", "cannot read standard input: it is not open for reading"),
        (&["digest", "--check", "-"], "<&-", "cannot read standard input: it is closed"),
        (&["runs", "import", "-"], "<&-", "cannot read standard input: it is closed"),
        (&["send", "-", "--name", "x", "127.0.0.1:9"], "<&-", "cannot read standard input: it is closed"),
    ] {
        let output = run_redirected(&dir, arguments, redirection);
        assert!(stderr(&output).contains(words), "{arguments:?} {redirection}: {output:?}");
        assert_ne!(output.status.code(), Some(0), "{arguments:?} {redirection}");
    }
    // What is not needed may be closed, and /dev/null is a user's own however it is open.
    for redirection in ["<&-", "2>&-", ">/dev/null", "1<>/dev/null"] {
        assert_eq!(run_redirected(&dir, &["digest", "one"], redirection).status.code(), Some(0), "{redirection}");
    }
    assert_eq!(stdout(&run_redirected(&dir, &["digest"], "0<>/dev/null")), "00000000  -\n");
}

/// What a fork of this program costs depends on what it loads, and the published comparison is with a C program.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn only_libc_is_loaded() {
    let output = Command::new("ldd").arg(env!("CARGO_BIN_EXE_kelvin")).output().unwrap();
    let libraries = stdout(&output);
    assert!(libraries.contains("libc.so"), "{libraries}");
    assert!(!libraries.contains("libm.so") && !libraries.contains("libgcc_s.so"), "{libraries}");
}

#[test]
fn listed_names_can_be_explained() {
    let dir = TestDir::new();
    let listing: serde_json::Value = serde_json::from_slice(&kelvin(&dir, &["list", "--json"]).stdout).unwrap();
    let ids: Vec<&str> =
        listing.as_array().unwrap().iter().map(|line| line["metric"]["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"os.syscall.null"), "{ids:?}");
    for id in ids {
        let output = kelvin(&dir, &["explain", id]);
        assert_eq!(output.status.code(), Some(0), "{id}: {}", stderr(&output));
        for part in ["How", "Prediction", "Must not be used for", id] {
            assert!(stdout(&output).contains(part), "{id} has no {part}: {}", stdout(&output));
        }
    }
}

#[test]
fn run_learns_from_earlier_runs() {
    let dir = TestDir::new();
    // What a first run learns on a busy machine may be too long for any budget, so that there is none. The frequency is known there too.
    let probes = ["cpu.frequency", "os.syscall.null"];
    let run = || kelvin(&dir, &[&["run"], &probes[..], &["--quick", "--budget", "minimum"]].concat());
    for earlier_runs in 0..2 {
        let output = run();
        assert!(output.status.success(), "{}{}", stderr(&output), stdout(&output));
        let exported: serde_json::Value =
            serde_json::from_slice(&kelvin(&dir, &["runs", "export", "last"]).stdout).unwrap();
        let histories = exported["spread_history"].as_array().unwrap();
        assert_eq!(histories.is_empty(), earlier_runs == 0, "{histories:?}");
        assert!(
            histories.iter().all(|history| history["headlines"].as_array().unwrap().len() == earlier_runs),
            "{histories:?}"
        );
        assert_eq!(exported["core_ratio_history"].as_array().unwrap().len(), earlier_runs);
    }
}

#[test]
fn list_names_required_options() {
    let dir = TestDir::new();
    let list = |arguments: &[&str]| stdout(&kelvin(&dir, &[&["list"], arguments].concat())).to_owned();
    let listing = list(&[]);
    let line = |metric: &str| {
        let entry = listing.lines().find(|line| line.split(' ').next() == Some(metric));
        entry.unwrap_or_else(|| panic!("no {metric} in {listing}"))
    };
    assert!(line("net.peer.connect").ends_with(" (with --peer HOST)"), "{}", line("net.peer.connect"));
    assert!(line("net.peer.rtt").ends_with(" cases; with --peer HOST)"), "{}", line("net.peer.rtt"));
    assert!(line("file.remote.round_trip").ends_with("with --remote DIR)"));
    assert!(!line("os.syscall.null").contains("with --"));
    let peer_metrics = list(&["net.peer"]);
    assert!(
        peer_metrics.lines().count() > 3 && peer_metrics.lines().all(|line| line.starts_with("net.peer.")),
        "{peer_metrics}"
    );
    assert!(list(&["net"]).contains("net.peer.connect ") && list(&["file"]).contains("file.remote.round_trip "));
    // A plain run does not measure what an option adds.
    let bandwidth_metrics = list(&["net.bandwidth"]);
    assert!(!bandwidth_metrics.contains("net.peer"), "{bandwidth_metrics}");
    let json: serde_json::Value =
        serde_json::from_slice(&kelvin(&dir, &["list", "net.peer.ping", "--json"]).stdout).unwrap();
    assert_eq!(json[0]["needs"], "--peer HOST");
}

#[test]
fn remote_size_sets_remote_file_size() {
    let (dir, remote) = (TestDir::new(), tempfile::tempdir().unwrap());
    let directory = remote.path().to_str().unwrap();
    let common_options = ["--quick", "--budget", "minimum", "--rounds", "2", "--no-store", "--json"];
    let sizes = |options: &[&str]| -> Vec<(String, u64)> {
        let output =
            kelvin(&dir, &[&["study", "file.remote", "--remote", directory], options, &common_options].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let is_announced = stderr(&output).contains("kelvin: writing 12 MiB to ");
        assert_eq!(is_announced, !options.is_empty(), "{}", stderr(&output));
        let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let measurements =
            run["run"]["plan"].as_array().unwrap().iter().filter(|planned| planned["probe"] == "file.remote");
        let case = |planned: &serde_json::Value| {
            let case = &planned["case"];
            (case["cache"].as_str().unwrap_or_default().to_owned(), case["bytes"].as_u64().unwrap_or_default())
        };
        measurements.map(case).collect()
    };
    let default_sizes = sizes(&[]);
    assert!(
        [1 << 20, 8 << 20, 128 << 20].iter().all(|size| default_sizes.iter().any(|(_, bytes)| bytes == size)),
        "{default_sizes:?}"
    );
    // What is left out by --quick is of that size as well.
    let fixed_sizes = sizes(&["--remote-size", "12M"]);
    assert_eq!(fixed_sizes.iter().filter(|(cache, _)| cache != "cached").count(), 4, "{fixed_sizes:?}");
    assert!(
        fixed_sizes.iter().all(|(cache, bytes)| *bytes == if cache == "cached" { 8 << 20 } else { 12 << 20 }),
        "{fixed_sizes:?}"
    );
    assert_eq!(std::fs::read_dir(remote.path()).unwrap().count(), 0);
}

#[test]
fn extent_is_written_first_and_an_axis_of_the_device() {
    let dir = TestDir::new();
    let run = kelvin(
        &dir,
        &[
            "run",
            "file.device.write",
            "file.jobs",
            "--extent",
            "64M",
            "--dir",
            env!("CARGO_TARGET_TMPDIR"),
            "--quick",
            "--budget",
            "minimum",
            "--rounds",
            "2",
            "--no-store",
            "--json",
        ],
    );
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
    assert!(stderr(&run).contains("kelvin: writing 64 MiB to "), "{}", stderr(&run));
    assert!(stderr(&run).contains("steady state"), "{}", stderr(&run));
    let run: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let planned = run["run"]["plan"].as_array().unwrap().iter();
    let requested: Vec<_> = planned.filter(|planned| planned["only_input"] != true).collect();
    assert!(
        !requested.is_empty() && requested.iter().all(|planned| planned["case"]["extent"] == 64 << 20),
        "{requested:?}"
    );
}

#[test]
fn remote_directory_is_measured_and_left_clean() {
    let (dir, remote) = (TestDir::new(), tempfile::tempdir().unwrap());
    let directory = remote.path().to_str().unwrap();
    let common_options = ["--quick", "--budget", "2s", "--no-store", "--json"];
    let output = kelvin(&dir, &[&["run", "os.syscall.null", "--remote", directory], &common_options[..]].concat());
    let text = stdout(&output);
    assert!(text.contains("file.remote.round_trip") && text.contains("os.syscall.null"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
    // Named, nothing else is measured.
    let remote_output = kelvin(&dir, &[&["run", "file.remote", "--remote", directory], &common_options[..]].concat());
    let run: serde_json::Value =
        serde_json::from_slice(&remote_output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&remote_output)));
    let measurements = run["run"]["plan"].as_array().unwrap().iter().filter(|planned| planned["only_input"] == false);
    let probes: Vec<&str> = measurements.map(|planned| planned["probe"].as_str().unwrap()).collect();
    assert!(!probes.is_empty() && probes.iter().all(|probe| probe.starts_with("file.remote")), "{probes:?}");
    // It is no part of a run without the argument.
    let local_output = kelvin(&dir, &[&["run", "os.syscall.null"], &common_options[..]].concat());
    assert!(!stdout(&local_output).contains("file.remote.round_trip"));
    let refusal = kelvin(&dir, &[&["run", "os.syscall.null", "--remote", "no/such"], &common_options[..]].concat());
    assert_eq!(refusal.status.code(), Some(2));
    assert!(stderr(&refusal).contains("--remote no/such"), "{}", stderr(&refusal));
}

#[test]
fn rivals_are_compared_with_kelvin() {
    let dir = TestDir::new();
    let refusal = kelvin(&dir, &["run", "mem.tlb", "--rivals", "--quick", "--no-store"]);
    assert_eq!(refusal.status.code(), Some(2));
    assert!(
        stderr(&refusal).contains("--rivals: other programs measure only file, net, os")
            && stderr(&refusal).contains("run file --rivals")
    );

    let run = kelvin(
        &dir,
        &[
            &["run", "file.byte_calls", "--rivals", "--quick", "--budget", "12s", "--rounds", "2", "--seed", "7"][..],
            &["-o", "report.html"],
        ]
        .concat(),
    );
    assert!(run.status.code().is_some_and(|status| status < 2), "{}", stderr(&run));
    let text = stdout(&run);
    let (areas, table) = text.split_once("Other programs next to kelvin").unwrap_or_else(|| panic!("{text}"));
    let json: serde_json::Value =
        serde_json::from_slice(&kelvin(&dir, &["report", "--format", "json"]).stdout).unwrap();
    let comparisons = json["analysis"]["rivals"].as_array().unwrap();
    let is_left_out = |rival: &&serde_json::Value| rival.to_string().contains("omitted by --quick");
    let (omitted, rivals): (Vec<_>, Vec<_>) = comparisons.iter().partition(is_left_out);
    assert_eq!((omitted.len(), rivals.len()), (7, 6), "{comparisons:#?}");
    for (program, package) in [("fio", "fio"), ("dd", "coreutils"), ("cat", "coreutils")] {
        assert!(table.contains(program), "{table}");
        let installed = std::process::Command::new(program).arg("--version").output().is_ok();
        for rival in rivals.iter().filter(|rival| rival["program"] == program) {
            let (comparison, missing) = (&rival["outcome"]["compared"], &rival["outcome"]["missing"]);
            if !installed {
                assert!(missing.to_string().contains(&format!("apt-get install {package}")), "{rival}");
            } else if comparison.is_object() {
                let value = |side: &str| comparison[side]["value"].as_f64().unwrap();
                assert!(value("kelvin") > 0.0 && value("other") > 0.0 && value("ratio") > 0.0, "{rival}");
                let n = comparison["ratio"]["n"].as_u64().unwrap();
                assert!(comparison["ratio"]["interval"].is_object() || n < 2, "{rival}");
            } else {
                // A disk without direct I/O, or a cache that does not keep the file, is reported.
                assert!(missing["skipped"].is_string() || missing["failed"].is_string(), "{rival}");
            }
        }
    }
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("id=\"rivals\"") && page.contains("Other programs next to kelvin"));
    let markdown = kelvin(&dir, &["report", "--format", "md"]);
    assert!(stdout(&markdown).contains("## Other programs next to kelvin"), "{}", stdout(&markdown));
    // It has a table of its own, and is not among the metrics of the area.
    assert!(!areas.lines().any(|line| line.starts_with("rivals.")), "{areas}");
}

#[test]
fn round_costs_are_learned_from_equal_conditions() {
    let dir = TestDir::new();
    let first_message = |directory: &str| {
        std::fs::create_dir_all(dir.path().join(directory)).unwrap();
        let arguments = ["run", "os.syscall", "cpu", "--quick", "--rounds", "2", "--budget", "minimum"];
        let run = kelvin(&dir, &[&arguments[..], &["--dir", directory, "--store", "runs.sqlite"]].concat());
        assert!(run.status.success(), "{}", stderr(&run));
        stderr(&run).lines().next().unwrap().to_owned()
    };
    for expected in ["going by other machines", "going by earlier runs here"] {
        let message = first_message("here");
        assert!(message.contains(expected), "{message}");
    }
    let Some(memory) = kelvin_testing::memory_dir("files on another file system") else { return };
    let directory = memory.join(format!("kelvin-costs-{}", std::process::id()));
    let message = first_message(directory.to_str().unwrap());
    std::fs::remove_dir(&directory).unwrap();
    assert!(message.contains("going by other machines"), "{message}");
}

#[test]
fn cases_beyond_budget_are_named() {
    let dir = TestDir::new();
    let run = kelvin(&dir, &["run", "cpu", "os", "--budget", "1s", "--no-store", "--json"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let message = stderr(&run);
    let (summary, names) = message
        .split_once("1.00 s is too short for these, which matter less and are left out:")
        .unwrap_or_else(|| panic!("{message}"));
    assert!(summary.contains("cases in about 1.00 s"), "{message}");
    assert!(names.contains("os.switch") && message.lines().skip(1).all(|line| line.len() <= 80), "{message}");
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let results = report["analysis"]["results"].as_array().unwrap();
    let is_left_out = |result: &&serde_json::Value| {
        result["outcome"]["skipped"].as_str().is_some_and(|reason| reason.starts_with("no time for it"))
    };
    // Nothing of it is left.
    let ring: Vec<_> = results.iter().filter(|result| result["probe"] == "os.switch.ring").collect();
    assert!(!ring.is_empty() && ring.iter().all(is_left_out), "{ring:?}");
    // A case has as many rounds as an interval needs, if time ran out, or none that count.
    for result in results.iter().filter(|result| result["outcome"]["measured"].is_object()) {
        assert!(result["outcome"]["measured"]["rounds"].as_u64() >= Some(4), "{result}");
    }
    let refusal = kelvin(&dir, &["run", "net.bandwidth.tcp", "--budget", "1s", "--rounds", "500", "--no-store"]);
    assert_eq!(refusal.status.code(), Some(2));
    assert!(
        stderr(&refusal).contains("--budget 1.00 s: 500 rounds of no case fit; all take about"),
        "{}",
        stderr(&refusal)
    );
}

#[test]
fn one_probe_is_measured_stored_reported() {
    let dir = TestDir::new();
    let run = ["run", "os.syscall.null", "--quick", "--budget", "2s", "--seed", "7"];
    let run = kelvin(&dir, &[&run[..], &["-o", "report.html", "-o", "run.csv"]].concat());
    assert!(run.status.success(), "{}{}", stderr(&run), stdout(&run));
    assert!(stdout(&run).contains("syscall.null"), "{}", stdout(&run));
    assert!(!run.stdout.contains(&0x1b), "colours belong on a terminal only");
    let announcement = stderr(&run).lines().next().unwrap();
    assert!(announcement.contains("report.html") && announcement.contains("runs.sqlite"), "{announcement}");
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("os.syscall.null"));
    assert!(std::fs::read_to_string(dir.path().join("run.csv")).unwrap().contains("os.syscall.null"));

    let listing: serde_json::Value = serde_json::from_slice(&kelvin(&dir, &["runs", "list", "--json"]).stdout).unwrap();
    assert_eq!(listing[0]["status"], "complete");
    assert_eq!(listing[0]["mode"], "quick");

    // The same run through the store, as an exported file, and imported into another store.
    let exported = kelvin(&dir, &["runs", "export", "last"]);
    let file = dir.path().join("run.json");
    std::fs::write(&file, &exported.stdout).unwrap();
    let file = file.to_str().unwrap();
    let other_store = dir.path().join("other.sqlite");
    let imported = kelvin(&dir, &["runs", "import", file, "--store", other_store.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    let csv = |arguments: &[&str]| kelvin(&dir, &[&["report", "--format", "csv"], arguments].concat()).stdout;
    let direct = csv(&[]);
    assert!(std::str::from_utf8(&direct).unwrap().contains("os.syscall.null"));
    assert_eq!(csv(&[file]), direct);
    assert_eq!(csv(&["--store", other_store.to_str().unwrap()]), direct);
    for format in ["terminal", "html", "md", "json", "samples"] {
        let output = kelvin(&dir, &["report", "--format", format]);
        assert!(output.status.success() && !output.stdout.is_empty(), "{format}: {}", stderr(&output));
    }
}

/// The readings of all rounds that measured.
fn measured_readings(report: &serde_json::Value) -> Vec<&Vec<serde_json::Value>> {
    let measurements = report["run"]["measurements"].as_array().unwrap().iter();
    let rounds = measurements.flat_map(|measurement| measurement["rounds"].as_array().unwrap());
    rounds.filter_map(|round| round["outcome"]["measured"].as_array()).collect()
}

#[test]
fn json_has_samples_only_on_request() {
    let dir = TestDir::new();
    let parse_report = |output: &Output| -> serde_json::Value {
        assert!(output.status.success(), "{}", stderr(output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let run = ["run", "os.syscall.null", "--quick", "--budget", "minimum", "--rounds", "2", "--json"];
    let without_samples = kelvin(&dir, &run);
    let commands = [&["report", "--format", "json"][..], &["runs", "show", "--json"]];
    let stored_reports = commands.map(|command| kelvin(&dir, command));
    for report in [&without_samples].into_iter().chain(&stored_reports).map(parse_report) {
        assert_eq!(report["samples"], false);
        let measured = measured_readings(&report);
        assert!(!measured.is_empty() && measured.iter().all(|readings| readings.is_empty()), "{measured:?}");
        assert!(report["analysis"]["results"].as_array().is_some_and(|results| !results.is_empty()));
    }
    let mut with_samples = commands.map(|command| kelvin(&dir, &[command, &["--with-samples"]].concat())).to_vec();
    with_samples.push(kelvin(&dir, &[&run[..], &["--with-samples", "--no-store"]].concat()));
    for report in with_samples.iter().map(parse_report) {
        assert_eq!(report["samples"], true);
        let measured = measured_readings(&report);
        assert!(!measured.is_empty() && measured.iter().all(|readings| !readings.is_empty()));
    }

    // Only with them it is a run again.
    let file = |name: &str, text: &[u8]| std::fs::write(dir.path().join(name), text).unwrap();
    file("without.json", &without_samples.stdout);
    file("cut-out.json", parse_report(&without_samples)["run"].to_string().as_bytes());
    file("with.json", &with_samples[0].stdout);
    for name in ["without.json", "cut-out.json"] {
        for command in [&["runs", "import", name][..], &["report", name], &["compare", name, "last"]] {
            let output = kelvin(&dir, command);
            assert_eq!(message_defects(&output, "`kelvin runs export`"), [""; 0], "{command:?}: {}", stderr(&output));
            assert!(stderr(&output).contains("--with-samples"), "{}", stderr(&output));
        }
    }
    let imported = kelvin(&dir, &["runs", "import", "with.json", "--store", "other.sqlite"]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    let csv = |options: &[&str]| kelvin(&dir, &[&["report", "--format", "csv"], options].concat()).stdout;
    assert!(!csv(&[]).is_empty() && csv(&["--store", "other.sqlite"]) == csv(&[]));
}
