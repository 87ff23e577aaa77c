//! What every command keeps to wherever it is started: readers that go away, no home, no locale, narrow terminals, no /sys; and the
//! settings of a user.

mod made_server;
mod test_dir;

use std::fs;
use std::process::{Command, Output};

use kelvin_testing::{MissingRequirement, is_root};
use made_server::start_server;
use serde_json::Value;
use test_dir::{KELVIN, TestDir, assert_refused, assert_success, run_in_namespace, stderr, stdout, wait_for_output};

/// A run in a file.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/format-1.json");

/// A short measurement.
const SHORT_RUN: [&str; 8] =
    ["run", "os.syscall.null", "--quick", "--budget", "minimum", "--rounds", "2", "--no-store"];

/// A directory with a file, and what each command that prints an answer can be asked for there without changing anything.
struct Surroundings {
    dir: TestDir,
    /// The URL of a server.
    url: String,
    /// A store with a run.
    store: String,
}

/// Commands that the list has not, and why.
const UNLISTED: [(&str, &str); 6] = [
    ("agent", "serves until it is stopped"),
    ("receive", "serves until it is stopped"),
    ("selfcheck", "measures for a minute"),
    ("send", "needs a receiver"),
    ("serve", "serves until it is stopped"),
    ("watch", "prints nothing while nothing becomes worse"),
];

impl Surroundings {
    fn new() -> Self {
        let dir = TestDir::new();
        fs::write(dir.path().join("data"), [7; 100_000]).unwrap();
        let url = format!("http://{}/", start_server(|path| ("200 OK", path.to_owned())));
        let store = dir.path().join("runs.sqlite").to_str().unwrap().to_owned();
        assert_success(&dir.run(&["runs", "import", RUN, "--store", &store]));
        Self { dir, url, store }
    }

    /// Commands that end by themselves with status 0, and need no home.
    fn commands(&self) -> Vec<Vec<&str>> {
        let fixed: [&[&str]; 28] = [
            &[],
            &["--help"],
            &["--version"],
            &["help"],
            &["help", "environment"],
            &["help", "file", "read"],
            &["study", "load", "--help"],
            &["config"],
            &["config", "--json"],
            &SHORT_RUN,
            &["study", "load", "--published"],
            &["list", "os.syscall"],
            &["list", "os.syscall", "--json"],
            &["explain", "os"],
            &["machine"],
            &["machine", "--json"],
            &["tune"],
            &["report", RUN],
            &["report", RUN, "--full"],
            &["report", RUN, "--format", "html"],
            &["compare", "zenbook-2011", RUN],
            &["why", "--causes"],
            &["why", "--causes", "--json"],
            &["ab", "--a-cmd", "true", "--b-cmd", "true", "--budget", "minimum", "--rounds", "2"],
            &["time", "true", "false || true", "-r", "2"],
            &["file", "read", "data"],
            &["digest", "data", "data"],
            &["net", "-t", "200ms", "-i", "100ms"],
        ];
        let mut commands: Vec<Vec<&str>> = fixed.map(<[&str]>::to_vec).into();
        commands.push(vec!["load", &self.url, "-d", "100ms", "-c", "2"]);
        commands.push(vec!["file", "cache"]);
        commands.push(vec!["runs", "import", "--table"]);
        commands.push(vec!["runs", "import", "--table", "--json"]);
        let of_store: [&[&str]; 6] = [
            &["runs", "list"],
            &["runs", "show", "last"],
            &["runs", "export", "last"],
            &["runs", "prune", "--keep", "1", "--dry-run", "--json"],
            &["history", "--all", "--machine", "5f2c9e7a"],
            &["fleet", "report"],
        ];
        commands.extend(of_store.iter().map(|words| [*words, &["--store", self.store.as_str()]].concat()));
        commands
    }

    /// Runs one, changed.
    fn run(&self, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Output {
        let mut command = self.dir.command(KELVIN, arguments);
        change(&mut command);
        wait_for_output(command.spawn().unwrap(), arguments)
    }
}

#[test]
fn every_command_is_listed() {
    let surroundings = Surroundings::new();
    let help = surroundings.dir.run(&["--help"]);
    let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase());
    let commands = stdout(&help).lines().take_while(|line| !line.starts_with("Topics"));
    let commands: Vec<&str> = commands
        .filter_map(|line| line.strip_prefix("  ")?.split_once("  "))
        .map(|(name, _)| name)
        .filter(is_name)
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    let listed = surroundings.commands();
    for name in commands {
        let is_listed = listed.iter().any(|arguments| arguments.first() == Some(&name));
        let is_unlisted = UNLISTED.iter().any(|(unlisted, _)| *unlisted == name);
        assert!(is_listed != is_unlisted, "{name}");
    }
}

#[test]
fn reader_that_goes_away_is_no_failure() {
    let surroundings = Surroundings::new();
    for arguments in surroundings.commands() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = surroundings.run(&arguments, |command| {
            command.stdout(writer);
        });
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
        assert!(!message.contains("pipe") && !message.contains("standard output"), "{arguments:?}: {message}");
    }
}

#[test]
fn bare_environment_is_no_failure() {
    let surroundings = Surroundings::new();
    let places = ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR"];
    for arguments in surroundings.commands() {
        let output = surroundings.run(&arguments, |command| {
            places.iter().chain(&["LANG", "LC_ALL", "LC_CTYPE", "TZ"]).for_each(|name| {
                command.env_remove(name);
            });
            command.env("TERM", "dumb").env("NO_COLOR", "1");
        });
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        assert!(!output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{arguments:?}");
    }
    // What needs a store says which option names one.
    for arguments in [&["runs", "list"][..], &["run", "os.syscall.null"], &["report"]] {
        let output = surroundings.run(arguments, |command| {
            places.iter().for_each(|name| {
                command.env_remove(name);
            });
        });
        assert_refused(&output, &["HOME", "--store"]);
    }
}

#[test]
fn unwritable_home_and_spaces_in_paths_are_no_failure() {
    let surroundings = Surroundings::new();
    let spaced = surroundings.dir.path().join("with some spaces");
    fs::create_dir(&spaced).unwrap();
    fs::copy(surroundings.dir.path().join("data"), spaced.join("data")).unwrap();
    for arguments in surroundings.commands() {
        let output = surroundings.run(&arguments, |command| {
            command.env("HOME", "/proc/self").env_remove("XDG_DATA_HOME").env_remove("XDG_CACHE_HOME");
            command.current_dir(&spaced).env("TMPDIR", &spaced);
        });
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    }
    let output = surroundings.run(&["run", "os.syscall.null"], |command| {
        command.env("HOME", "/proc/self").env_remove("XDG_DATA_HOME");
    });
    assert_refused(&output, &["/proc/self", "--store"]);
}

/// More than a paragraph is indented: what stands behind it is a cell of a table.
const CELL_INDENT: &str = "                ";

/// Paragraphs that are wider than a terminal: lines without columns, which could be broken, and are no commands to be copied.
fn overlong_paragraphs(text: &str, width: usize) -> Vec<&str> {
    let has_columns = |line: &str| line.trim_start().contains("  ") || line.starts_with(CELL_INDENT);
    let is_broken = |line: &str| line.split_whitespace().all(|word| word.chars().count() < width / 3);
    let is_paragraph = |line: &&str| !has_columns(line) && is_broken(line) && !line.contains("kelvin ");
    text.lines().filter(|line| line.chars().count() > width).filter(is_paragraph).collect()
}

#[test]
fn paragraphs_keep_to_forty_columns() {
    let surroundings = Surroundings::new();
    // What programs read has one line for each.
    let is_text = |arguments: &&Vec<&str>| {
        !["--json", "html", "--help", "--version", "list"].iter().any(|word| arguments.contains(word))
    };
    let commands = surroundings.commands();
    let mut lines = Vec::new();
    for arguments in commands.iter().filter(is_text) {
        let output = surroundings.run(arguments, |command| {
            command.env("COLUMNS", "40");
        });
        lines.extend(overlong_paragraphs(stdout(&output), 40).into_iter().map(|line| format!("{arguments:?}: {line}")));
    }
    assert!(lines.is_empty(), "{lines:#?}");
}

#[test]
fn missing_sys_is_no_failure() {
    if !is_root() {
        return MissingRequirement::privilege("hiding /sys needs root").report_skip("commands without /sys");
    }
    let surroundings = Surroundings::new();
    for arguments in surroundings.commands() {
        let words = arguments.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let script = format!("mount -t tmpfs none /sys && exec \"$0\" {words}");
        let output = run_in_namespace(&surroundings.dir, &script);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn answers_go_to_named_files() {
    let surroundings = Surroundings::new();
    let in_file = |arguments: &[&str], name: &str| {
        let output = surroundings.run(&[arguments, &["-o", name]].concat(), |_| {});
        assert_success(&output);
        assert_eq!(stdout(&output), "", "{arguments:?} {name}");
        fs::read_to_string(surroundings.dir.path().join(name)).unwrap()
    };
    let commands: [&[&str]; 10] = [
        &["list", "os.syscall"],
        &["explain", "os.syscall"],
        &["machine"],
        &["config"],
        &["tune"],
        &["report", RUN],
        &["compare", "zenbook-2011", RUN],
        &["file", "read", "data"],
        &["digest", "data"],
        &["load", &surroundings.url, "-d", "100ms"],
    ];
    for arguments in commands {
        let json: Result<Value, _> = serde_json::from_str(&in_file(arguments, "answer.json"));
        assert!(json.is_ok(), "{arguments:?}: {json:?}");
        let text = in_file(arguments, "answer.txt");
        assert!(!text.is_empty() && !text.starts_with(['{', '[']), "{arguments:?}: {text}");
        // And `-` is standard output.
        let output = surroundings.run(&[arguments, &["--json", "-o", "-"]].concat(), |_| {});
        let json: Result<Value, _> = serde_json::from_slice(&output.stdout);
        assert!(json.is_ok(), "{arguments:?}: {json:?}");
    }
    for (name, beginning) in [("x.html", "<!"), ("x.md", "#"), ("x.csv", "metric"), ("x.prom", "#")] {
        let text = in_file(&["report", RUN], name);
        assert!(text.starts_with(beginning), "{name}: {text:.80}");
    }
    assert!(in_file(&["compare", "zenbook-2011", RUN, "--fail-on", "worse"], "x.xml").starts_with("<?xml"));
}

#[test]
fn flag_wins_over_variable_over_file() {
    let dir = TestDir::new();
    let config = dir.path().join("my config.toml");
    fs::write(&config, "rounds = 3\nbudget = \"minimum\"\nstore = \"of-file.sqlite\"\n").unwrap();
    let run = |options: &[&str], variables: &[(&str, &str)]| -> (Output, Option<Value>) {
        let mut command = dir.command(KELVIN, &[&["run", "os.syscall.null", "--quick", "--json"], options].concat());
        command.env("KELVIN_CONFIG", &config).envs(variables.iter().copied());
        let output = wait_for_output(command.spawn().unwrap(), options);
        let json = serde_json::from_slice(&output.stdout).ok();
        (output, json)
    };
    let rounds = |json: &Option<Value>| json.as_ref().unwrap()["run"]["settings"]["rounds"].as_u64();
    let (output, json) = run(&[], &[]);
    assert_success(&output);
    assert_eq!(rounds(&json), Some(3));
    assert!(dir.names().contains(&"of-file.sqlite".to_owned()), "{:?}", dir.names());
    let (_, json) = run(&[], &[("KELVIN_ROUNDS", "4"), ("KELVIN_STORE", "of-variable.sqlite")]);
    assert_eq!(rounds(&json), Some(4));
    assert!(dir.names().contains(&"of-variable.sqlite".to_owned()), "{:?}", dir.names());
    let (_, json) = run(&["--rounds", "2", "--no-store"], &[("KELVIN_ROUNDS", "4")]);
    assert_eq!(rounds(&json), Some(2));
    // A value that the flag would refuse is refused with the place that it is from.
    let (output, _) = run(&[], &[("KELVIN_ROUNDS", "1")]);
    assert_refused(&output, &["KELVIN_ROUNDS: ", "a whole number from 2 to 1000"]);

    let config_report = |variables: &[(&str, &str)]| {
        let mut command = dir.command(KELVIN, &["config", "--json"]);
        command.env("KELVIN_CONFIG", &config).envs(variables.iter().copied());
        let output = wait_for_output(command.spawn().unwrap(), &["config"]);
        assert_success(&output);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let report = config_report(&[("KELVIN_ROUNDS", "4")]);
    let line = |name: &str| report["settings"].as_array().unwrap().iter().find(|line| line["name"] == name).unwrap();
    assert_eq!(
        (&line("rounds")["value"], &line("rounds")["source"]["variable"]),
        (&"4".into(), &"KELVIN_ROUNDS".into())
    );
    assert_eq!(line("budget")["source"]["file"], config.to_str().unwrap());
    assert_eq!((&line("cpu")["source"], &line("token-file")["value"]), (&Value::Null, &"none".into()));
}

#[test]
fn faults_of_settings_are_refused_by_all_but_help() {
    let dir = TestDir::new();
    let config = dir.path().join("config.toml");
    let run = |arguments: &[&str]| {
        let mut command = dir.command(KELVIN, arguments);
        wait_for_output(command.env("KELVIN_CONFIG", &config).spawn().unwrap(), arguments)
    };
    assert_refused(&run(&["list"]), &["config.toml", "No such file"]);
    for (text, words) in [
        ("rouns = 3", ["there is no setting 'rouns'", "did you mean rounds?"]),
        ("rounds = ", ["config.toml, line 1", ":"]),
        ("rounds = 1", ["config.toml: ", "a whole number from 2 to 1000"]),
    ] {
        fs::write(&config, text).unwrap();
        assert_refused(&run(&["run", "os.syscall.null"]), &words);
        assert_success(&run(&["help", "environment"]));
    }
}
