//! A team's runs: tagged, noted, pruned, and copied from store to store, by the whole program.

mod test_dir;

use std::fs;

use kelvin_testing::postgres::TestPostgres;
use serde_json::Value;
use test_dir::{TestDir, assert_refused, stderr, stdout};

/// Imports as many runs as there are ids: the sample of the store's tests, a minute apart.
fn dir_with_runs(ids: &[&str]) -> TestDir {
    let dir = TestDir::new();
    for (minute, id) in ids.iter().enumerate() {
        let mut run: Value = serde_json::from_str(include_str!("../../store/tests/format-1.json")).unwrap();
        run["id"] = (*id).into();
        run["started"] = format!("2026-02-01T10:{minute:02}:00Z").into();
        fs::write(dir.path().join("run.json"), run.to_string()).unwrap();
        stderr_of(&dir, &["runs", "import", "run.json"]);
    }
    dir
}

/// Its standard error, and that it succeeded.
fn stderr_of(dir: &TestDir, arguments: &[&str]) -> String {
    let output = dir.run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stderr(&output).to_owned()
}

/// Ids of the stored runs.
fn run_ids(dir: &TestDir, arguments: &[&str]) -> Vec<String> {
    let lines = dir.json(&[&["runs", "list"], arguments].concat());
    lines.as_array().unwrap().iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tags_select_runs_everywhere() {
    let dir = dir_with_runs(&["a", "b", "c"]);
    assert_eq!(
        stderr_of(&dir, &["runs", "tag", "a", "kernel=6.17", "disk=nvme"]),
        "kelvin: a has disk=nvme  kernel=6.17\n"
    );
    assert_eq!(stderr_of(&dir, &["runs", "tag", "a", "--remove", "disk"]), "kelvin: a has kernel=6.17\n");
    stderr_of(&dir, &["runs", "tag", "b", "kernel=6.18"]);
    stderr_of(&dir, &["runs", "tag", "c", "kernel=6.18"]);
    assert_eq!(
        stderr_of(&dir, &["runs", "note", "tag:kernel=6.17", "before \x1b[2Jthe update"]),
        "kelvin: a has this note\n"
    );

    assert_eq!(run_ids(&dir, &["--tag", "kernel=6.18"]), ["b", "c"]);
    let list = dir.run(&["runs", "list", "--tag", "kernel=6.17"]);
    assert!(stdout(&list).contains("\n  kernel=6.17\n  before \\u{1b}[2Jthe update\n"), "{}", stdout(&list));
    let message = stderr_of(&dir, &["runs", "list", "--tag", "kernel=1"]);
    assert!(message.starts_with("kelvin: no runs with kernel=1 in "), "{message}");

    let exported: Value = serde_json::from_str(stdout(&dir.run(&["runs", "export", "tag:kernel=6.17"]))).unwrap();
    assert_eq!(exported["id"], "a");
    assert_eq!(exported["tags"], serde_json::json!({"kernel": "6.17"}));
    assert_eq!(exported["note"], "before \u{1b}[2Jthe update");
    assert_refused(&dir.run(&["report", "tag:kernel=6.18"]), &["\"tag:kernel=6.18\" could be c, b"]);
    assert_refused(&dir.run(&["report", "tag:kernel=5"]), &["no run has the tag kernel=5"]);
    assert_refused(&dir.run(&["runs", "show", "tag:x"]), &["a tag is NAME=VALUE"]);
    assert_refused(&dir.run(&["runs", "tag", "a", "--remove", "disk"]), &["run a has no tag disk"]);

    let comparison = dir.json(&["compare", "tag:kernel=6.17", "tag:kernel=6.18"]);
    let runs = |side: &str| comparison[side]["runs"].as_array().unwrap().len();
    assert_eq!((runs("base"), runs("other")), (1, 2), "{comparison}");
    assert_refused(&dir.run(&["compare", "tag:kernel=6.18", "b"]), &["both have b: name two that differ"]);
}

#[test]
fn prune_removes_what_dry_run_named() {
    let dir = dir_with_runs(&["a", "b", "c", "d"]);
    stderr_of(&dir, &["runs", "tag", "a", "release=1"]);
    let prune = ["runs", "prune", "--keep", "1"];
    let dry_output = dir.run(&[&prune[..], &["--dry-run"]].concat());
    assert!(stderr(&dry_output).starts_with("kelvin: 2 runs would be deleted, "), "{}", stderr(&dry_output));
    assert_eq!(run_ids(&dir, &[]), ["a", "b", "c", "d"]);
    let prune_output = dir.run(&prune);
    assert_eq!(stdout(&prune_output), stdout(&dry_output));
    assert!(stderr(&prune_output).starts_with("kelvin: 2 runs deleted, "), "{}", stderr(&prune_output));
    assert_eq!(run_ids(&dir, &[]), ["a", "d"]);
    assert!(stderr_of(&dir, &[&prune[..], &["--labelled-too"]].concat()).starts_with("kelvin: 1 run deleted, "));
    assert_eq!(run_ids(&dir, &[]), ["d"]);
}

#[test]
fn runs_are_copied_once() {
    let dir = dir_with_runs(&["a", "b", "c"]);
    stderr_of(&dir, &["runs", "tag", "b", "kernel=6.18"]);
    let push = |runs: &[&str]| stderr_of(&dir, &[&["runs", "push", "--to", "team.sqlite"], runs].concat());
    assert_eq!(push(&["tag:kernel=6.18"]), "kelvin: 1 run sent to team.sqlite, 0 already there\n");
    assert_eq!(push(&[]), "kelvin: 2 runs sent to team.sqlite, 1 already there\n");
    assert_eq!(push(&[]), "kelvin: 0 runs sent to team.sqlite, 3 already there\n");
    assert_eq!(run_ids(&dir, &["--store", "team.sqlite"]), ["a", "b", "c"]);

    let pulled = stderr_of(
        &dir,
        &["runs", "pull", "--from", "team.sqlite", "--store", "mine.sqlite", "last", "tag:kernel=6.18"],
    );
    assert_eq!(pulled, "kelvin: 2 runs fetched into mine.sqlite, 0 already there\n");
    assert_eq!(run_ids(&dir, &["--store", "mine.sqlite", "--tag", "kernel=6.18"]), ["b"]);
    let exported = |store| stdout(&dir.run(&["runs", "export", "b", "--with-private", "--store", store])).to_owned();
    assert_eq!(exported("mine.sqlite"), exported("team.sqlite"));

    assert_refused(
        &dir.run(&["runs", "pull", "--from", "nowhere.sqlite"]),
        &["--from nowhere.sqlite", "no such store"],
    );
    assert_refused(&dir.run(&["runs", "push", "--to", "no/where.sqlite"]), &["--to", "no"]);
    assert_refused(
        &dir.run(&["runs", "push", "--to", "./team.sqlite", "--store", "team.sqlite"]),
        &["name another one"],
    );
    assert_refused(&dir.run(&["runs", "push", "--to", "team.sqlite", "z"]), &["no run is called \"z\""]);

    // Another run with the same id stays what it is.
    stderr_of(&dir, &["runs", "delete", "a", "--store", "team.sqlite"]);
    let mut run: Value = serde_json::from_str(stdout(&dir.run(&["runs", "export", "a"]))).unwrap();
    run["kelvin"] = "0.0.9".into();
    fs::write(dir.path().join("other.json"), run.to_string()).unwrap();
    stderr_of(&dir, &["runs", "import", "other.json", "--store", "team.sqlite"]);
    let output = dir.run(&["runs", "push", "--to", "team.sqlite"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "kelvin: a is another run in team.sqlite: left unchanged there\nkelvin: 0 runs sent to team.sqlite, 2 already there\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn run_is_tagged_at_creation() {
    let dir = TestDir::new();
    let output = dir.run(&[
        "run",
        "os.syscall.null",
        "--quick",
        "--budget",
        "minimum",
        "--tag",
        "kernel=6.18",
        "--note",
        "a first one",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = dir.json(&["runs", "list", "--tag", "kernel=6.18"]);
    assert_eq!((lines[0]["note"].as_str(), lines[0]["tags"]["kernel"].as_str()), (Some("a first one"), Some("6.18")));
}

/// Ids of the runs at a server.
fn server_run_ids(server: &TestPostgres, database: &str) -> String {
    server.sql(database, "SELECT string_agg(id, ' ' ORDER BY id) FROM kelvin.run").trim().to_owned()
}

/// A turn of a watch whose store is a server. Without that it knows no history, and measures nothing.
#[test]
fn watch_spools_while_server_is_down() {
    let Some(server) = TestPostgres::start("a watch whose runs go to a server") else { return };
    let database = server.database();
    let url = server.url(&database);
    let dir = TestDir::new();
    let turn = || {
        let arguments =
            ["watch", "cpu.frequency", "--once", "--cpu-share", "50", "--every", "10m", "--budget", "minimum"];
        // The CPU time of the turn before is to be paid for.
        let mut output = None;
        let is_made = test_dir::is_met_within(test_dir::HANG_TIMEOUT, || {
            let attempt = dir.run(&[&arguments[..], &["--with-private", "--store", &url]].concat());
            let is_made = !stderr(&attempt).contains("no run:");
            output = Some(attempt);
            is_made
        });
        assert!(is_made, "no run is ever covered");
        output.unwrap()
    };
    let first = turn();
    assert_eq!((first.status.code(), stdout(&first)), (Some(0), ""), "{}", stderr(&first));
    assert_eq!(server_run_ids(&server, &database).split(' ').count(), 1);
    assert_eq!(run_ids(&dir, &[]), [""; 0], "nothing is left in the local store");
    server.kill();
    assert_refused(&turn(), &["no server listens there"]);
    server.restart();
    let back = turn();
    assert_eq!((back.status.code(), stdout(&back)), (Some(0), ""), "{}", stderr(&back));
    assert_eq!(server_run_ids(&server, &database).split(' ').count(), 2);
}

#[test]
fn run_reaches_server_after_outage() {
    let Some(server) = TestPostgres::start("a server that is lost during a run") else { return };
    let database = server.database();
    let url = server.url(&database);
    let run = |budget| {
        ["run", "os.syscall.null", "--quick", "--with-private", "--store", &url, "--tag", "lab=1", "--budget", budget]
    };
    let dir = TestDir::new();
    let output = dir.run(&run("minimum"));
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let message = stderr(&output);
    assert!(message.contains(" by way of ") && message.contains("kelvin: 1 run sent to postgres://"), "{message}");
    assert_eq!(run_ids(&dir, &[]), [""; 0], "nothing is left in the local store");
    assert_eq!(run_ids(&dir, &["--store", &url, "--tag", "lab=1"]).len(), 1);

    // It is lost after the run has begun.
    let child = dir.start(&run("3s"));
    assert!(test_dir::is_met_within(test_dir::HANG_TIMEOUT, || run_ids(&dir, &[]).len() == 1));
    server.kill();
    let output = test_dir::wait_for_output(child, &["run"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("the run waits in ") && message.contains("no server listens there"), "{message}");
    assert_refused(&dir.run(&["runs", "list", "--store", &url]), &["no server listens there"]);
    assert!(stdout(&dir.run(&["runs", "list"])).contains("\n  waits for "), "it is said where it is to go");
    server.restart();
    assert!(stderr_of(&dir, &["runs", "list", "--store", &url]).contains("kelvin: 1 run sent to postgres://"));
    assert_eq!(stderr_of(&dir, &["runs", "list", "--store", &url]), "");
    assert_eq!(server_run_ids(&server, &database).split(' ').count(), 2);
    assert_eq!(run_ids(&dir, &[]), [""; 0]);

    // Killed, it is sent as far as it came, once nobody records it any more.
    let mut child = dir.start(&run("3s"));
    assert!(test_dir::is_met_within(test_dir::HANG_TIMEOUT, || run_ids(&dir, &[]).len() == 1));
    assert_eq!(stderr_of(&dir, &["runs", "list", "--store", &url]), "", "it is still being recorded");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(stderr_of(&dir, &["runs", "list", "--store", &url]).contains("kelvin: 1 run sent to postgres://"));
    let lines = dir.json(&["runs", "list", "--store", &url]);
    assert!(lines[2]["status"]["partial"].is_string(), "{lines}");
    assert_eq!(run_ids(&dir, &[]), [""; 0]);

    // From server to file and back, each once.
    let pulled = stderr_of(&dir, &["runs", "pull", "--from", &url]);
    assert!(pulled.starts_with("kelvin: 3 runs fetched into "), "{pulled}");
    let pushed = stderr_of(&dir, &["runs", "push", "--to", &url]);
    assert!(
        pushed.starts_with("kelvin: 0 runs sent to postgres://") && pushed.ends_with("3 already there\n"),
        "{pushed}"
    );
}

#[test]
fn password_is_never_printed_or_stored() {
    let dir = dir_with_runs(&["a"]);
    for arguments in [
        &["runs", "list", "--store", "postgres://me:s3cret@nowhere.invalid/db"][..],
        &["runs", "push", "--to=postgres://me:s3cret@127.0.0.1:1/db"],
        &["runs", "push", "--to", "x.sqlite", "postgres://me:s3cret@host/db"],
        &["runs", "list", "postgres://me:s3cret@host/db"],
        &["runs", "list", "--store", "postgres://me:s3/cret@host:x/db"],
    ] {
        let output = dir.run(arguments);
        assert_refused(&output, &[]);
        assert!(!stderr(&output).contains("s3") && !stderr(&output).contains("cret"), "{}", stderr(&output));
    }
    let Some(server) = TestPostgres::shared("a password that is given to a server") else { return };
    let database = server.database();
    server.sql(&database, "CREATE ROLE alice LOGIN SUPERUSER PASSWORD 's3cret'");
    let url = format!("postgres://alice:s3cret@{}/{database}", server.address());
    let output =
        dir.run(&["run", "os.syscall.null", "--quick", "--budget", "minimum", "--with-private", "--store", &url]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(!stderr(&output).contains("s3cret"), "{}", stderr(&output));
    let exported = dir.run(&["runs", "export", "last", "--with-private", "--store", &url]);
    assert!(stdout(&exported).contains("postgres://alice:…@") && !stdout(&exported).contains("s3cret"));
}
