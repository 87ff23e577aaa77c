//! A team's runs: tagged, noted, pruned, and copied from store to store, by the whole program.

mod test_dir;

use std::fs;

use kelvin_testing::postgres::TestPostgres;
use serde_json::Value;
use test_dir::{TestDir, assert_refused, stderr, stdout};

/// Imports as many runs as there are ids: the sample of the store's tests, a minute apart.
fn dir_with_runs(ids: &[&str]) -> TestDir {
    let place = TestDir::new();
    for (minute, id) in ids.iter().enumerate() {
        let mut run: Value = serde_json::from_str(include_str!("../../store/tests/format-1.json")).unwrap();
        run["id"] = (*id).into();
        run["started"] = format!("2026-02-01T10:{minute:02}:00Z").into();
        fs::write(place.path().join("run.json"), run.to_string()).unwrap();
        stderr_of(&place, &["runs", "import", "run.json"]);
    }
    place
}

/// What it says on standard error, and that it did what it was asked for.
fn stderr_of(place: &TestDir, arguments: &[&str]) -> String {
    let output = place.run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stderr(&output).to_owned()
}

/// Ids of the stored runs.
fn run_ids(place: &TestDir, arguments: &[&str]) -> Vec<String> {
    let lines = place.json(&[&["runs", "list"], arguments].concat());
    lines.as_array().unwrap().iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tags_select_runs_everywhere() {
    let place = dir_with_runs(&["a", "b", "c"]);
    assert_eq!(
        stderr_of(&place, &["runs", "tag", "a", "kernel=6.17", "disk=nvme"]),
        "kelvin: a has disk=nvme  kernel=6.17\n"
    );
    assert_eq!(stderr_of(&place, &["runs", "tag", "a", "--remove", "disk"]), "kelvin: a has kernel=6.17\n");
    stderr_of(&place, &["runs", "tag", "b", "kernel=6.18"]);
    stderr_of(&place, &["runs", "tag", "c", "kernel=6.18"]);
    assert_eq!(
        stderr_of(&place, &["runs", "note", "tag:kernel=6.17", "before \x1b[2Jthe update"]),
        "kelvin: a has this note\n"
    );

    assert_eq!(run_ids(&place, &["--tag", "kernel=6.18"]), ["b", "c"]);
    let list = place.run(&["runs", "list", "--tag", "kernel=6.17"]);
    assert!(stdout(&list).contains("\n  kernel=6.17\n  before \\u{1b}[2Jthe update\n"), "{}", stdout(&list));
    let none = stderr_of(&place, &["runs", "list", "--tag", "kernel=1"]);
    assert!(none.starts_with("kelvin: no runs with kernel=1 in "), "{none}");

    let exported: Value = serde_json::from_str(stdout(&place.run(&["runs", "export", "tag:kernel=6.17"]))).unwrap();
    assert_eq!(exported["id"], "a");
    assert_eq!(exported["tags"], serde_json::json!({"kernel": "6.17"}));
    assert_eq!(exported["note"], "before \u{1b}[2Jthe update");
    assert_refused(&place.run(&["report", "tag:kernel=6.18"]), &["\"tag:kernel=6.18\" could be c, b"]);
    assert_refused(&place.run(&["report", "tag:kernel=5"]), &["no run has the tag kernel=5"]);
    assert_refused(&place.run(&["runs", "show", "tag:x"]), &["a tag is NAME=VALUE"]);
    assert_refused(&place.run(&["runs", "tag", "a", "--remove", "disk"]), &["run a has no tag disk"]);

    let compared = place.json(&["compare", "tag:kernel=6.17", "tag:kernel=6.18"]);
    let runs = |side: &str| compared[side]["runs"].as_array().unwrap().len();
    assert_eq!((runs("base"), runs("other")), (1, 2), "{compared}");
    assert_refused(&place.run(&["compare", "tag:kernel=6.18", "b"]), &["both have b: name two that differ"]);
}

#[test]
fn prune_removes_what_dry_run_named() {
    let place = dir_with_runs(&["a", "b", "c", "d"]);
    stderr_of(&place, &["runs", "tag", "a", "release=1"]);
    let prune = ["runs", "prune", "--keep", "1"];
    let told = place.run(&[&prune[..], &["--dry-run"]].concat());
    assert!(stderr(&told).starts_with("kelvin: 2 runs would be deleted, "), "{}", stderr(&told));
    assert_eq!(run_ids(&place, &[]), ["a", "b", "c", "d"]);
    let done = place.run(&prune);
    assert_eq!(stdout(&done), stdout(&told));
    assert!(stderr(&done).starts_with("kelvin: 2 runs deleted, "), "{}", stderr(&done));
    assert_eq!(run_ids(&place, &[]), ["a", "d"]);
    assert!(stderr_of(&place, &[&prune[..], &["--labelled-too"]].concat()).starts_with("kelvin: 1 run deleted, "));
    assert_eq!(run_ids(&place, &[]), ["d"]);
}

#[test]
fn runs_are_copied_once() {
    let place = dir_with_runs(&["a", "b", "c"]);
    stderr_of(&place, &["runs", "tag", "b", "kernel=6.18"]);
    let push = |runs: &[&str]| stderr_of(&place, &[&["runs", "push", "--to", "team.sqlite"], runs].concat());
    assert_eq!(push(&["tag:kernel=6.18"]), "kelvin: 1 run sent to team.sqlite, 0 already there\n");
    assert_eq!(push(&[]), "kelvin: 2 runs sent to team.sqlite, 1 already there\n");
    assert_eq!(push(&[]), "kelvin: 0 runs sent to team.sqlite, 3 already there\n");
    assert_eq!(run_ids(&place, &["--store", "team.sqlite"]), ["a", "b", "c"]);

    let pulled = stderr_of(
        &place,
        &["runs", "pull", "--from", "team.sqlite", "--store", "mine.sqlite", "last", "tag:kernel=6.18"],
    );
    assert_eq!(pulled, "kelvin: 2 runs fetched into mine.sqlite, 0 already there\n");
    assert_eq!(run_ids(&place, &["--store", "mine.sqlite", "--tag", "kernel=6.18"]), ["b"]);
    let exported = |store| stdout(&place.run(&["runs", "export", "b", "--with-private", "--store", store])).to_owned();
    assert_eq!(exported("mine.sqlite"), exported("team.sqlite"));

    assert_refused(
        &place.run(&["runs", "pull", "--from", "nowhere.sqlite"]),
        &["--from nowhere.sqlite", "no such store"],
    );
    assert_refused(&place.run(&["runs", "push", "--to", "no/where.sqlite"]), &["--to", "no"]);
    assert_refused(
        &place.run(&["runs", "push", "--to", "./team.sqlite", "--store", "team.sqlite"]),
        &["name another one"],
    );
    assert_refused(&place.run(&["runs", "push", "--to", "team.sqlite", "z"]), &["no run is called \"z\""]);

    // Another run with the same id stays what it is.
    stderr_of(&place, &["runs", "delete", "a", "--store", "team.sqlite"]);
    let mut run: Value = serde_json::from_str(stdout(&place.run(&["runs", "export", "a"]))).unwrap();
    run["kelvin"] = "0.0.9".into();
    fs::write(place.path().join("other.json"), run.to_string()).unwrap();
    stderr_of(&place, &["runs", "import", "other.json", "--store", "team.sqlite"]);
    let output = place.run(&["runs", "push", "--to", "team.sqlite"]);
    assert_eq!(output.status.code(), Some(1));
    let told = "kelvin: a is another run in team.sqlite: left as it is there\nkelvin: 0 runs sent to team.sqlite, 2 already there\n";
    assert_eq!(stderr(&output), told);
}

#[test]
fn run_is_tagged_at_creation() {
    let place = TestDir::new();
    let measured = place.run(&[
        "run",
        "os.syscall.null",
        "--quick",
        "--budget",
        "minimum",
        "--no-report",
        "--tag",
        "kernel=6.18",
        "--note",
        "a first one",
    ]);
    assert_eq!(measured.status.code(), Some(0), "{}", stderr(&measured));
    let lines = place.json(&["runs", "list", "--tag", "kernel=6.18"]);
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
    let place = TestDir::new();
    let turn = || {
        let asked = ["watch", "cpu.frequency", "--once", "--cpu-share", "50", "--every", "10m", "--budget", "minimum"];
        // The CPU time of the turn before is to be paid for.
        let mut output = None;
        let is_made = test_dir::within(test_dir::HANG_TIMEOUT, || {
            let made = place.run(&[&asked[..], &["--with-private", "--store", &url]].concat());
            let is_made = !stderr(&made).contains("no turn");
            output = Some(made);
            is_made
        });
        assert!(is_made, "no turn is ever paid for");
        output.unwrap()
    };
    let first = turn();
    assert_eq!((first.status.code(), stdout(&first)), (Some(0), ""), "{}", stderr(&first));
    assert_eq!(server_run_ids(&server, &database).split(' ').count(), 1);
    assert_eq!(run_ids(&place, &[]), [""; 0], "nothing is left in the local store");
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
        [
            "run",
            "os.syscall.null",
            "--quick",
            "--no-report",
            "--with-private",
            "--store",
            &url,
            "--tag",
            "lab=1",
            "--budget",
            budget,
        ]
    };
    let place = TestDir::new();
    let measured = place.run(&run("minimum"));
    assert_eq!(measured.status.code(), Some(0), "{}{}", stdout(&measured), stderr(&measured));
    let said = stderr(&measured);
    assert!(said.contains(" by way of ") && said.contains("kelvin: 1 run sent to postgres://"), "{said}");
    assert_eq!(run_ids(&place, &[]), [""; 0], "nothing is left in the local store");
    assert_eq!(run_ids(&place, &["--store", &url, "--tag", "lab=1"]).len(), 1);

    // It is lost after the run has begun.
    let child = place.start(&run("3s"));
    assert!(test_dir::within(test_dir::HANG_TIMEOUT, || run_ids(&place, &[]).len() == 1));
    server.kill();
    let measured = test_dir::wait_for_output(child, &["run"]);
    assert_eq!(measured.status.code(), Some(0), "{}", stderr(&measured));
    let said = stderr(&measured);
    assert!(said.contains("the run waits in ") && said.contains("no server listens there"), "{said}");
    assert_refused(&place.run(&["runs", "list", "--store", &url]), &["no server listens there"]);
    assert!(stdout(&place.run(&["runs", "list"])).contains("\n  waits for "), "it is said where it is to go");
    server.restart();
    assert!(stderr_of(&place, &["runs", "list", "--store", &url]).contains("kelvin: 1 run sent to postgres://"));
    assert_eq!(stderr_of(&place, &["runs", "list", "--store", &url]), "");
    assert_eq!(server_run_ids(&server, &database).split(' ').count(), 2);
    assert_eq!(run_ids(&place, &[]), [""; 0]);

    // Killed, it is sent as far as it came, once nobody records it any more.
    let mut child = place.start(&run("3s"));
    assert!(test_dir::within(test_dir::HANG_TIMEOUT, || run_ids(&place, &[]).len() == 1));
    assert_eq!(stderr_of(&place, &["runs", "list", "--store", &url]), "", "it is still being recorded");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(stderr_of(&place, &["runs", "list", "--store", &url]).contains("kelvin: 1 run sent to postgres://"));
    let lines = place.json(&["runs", "list", "--store", &url]);
    assert!(lines[2]["status"]["partial"].is_string(), "{lines}");
    assert_eq!(run_ids(&place, &[]), [""; 0]);

    // From server to file and back, each once.
    let pulled = stderr_of(&place, &["runs", "pull", "--from", &url]);
    assert!(pulled.starts_with("kelvin: 3 runs fetched into "), "{pulled}");
    let pushed = stderr_of(&place, &["runs", "push", "--to", &url]);
    assert!(
        pushed.starts_with("kelvin: 0 runs sent to postgres://") && pushed.ends_with("3 already there\n"),
        "{pushed}"
    );
}

#[test]
fn password_is_never_printed_or_stored() {
    let place = dir_with_runs(&["a"]);
    for arguments in [
        &["runs", "list", "--store", "postgres://me:s3cret@nowhere.invalid/db"][..],
        &["runs", "push", "--to=postgres://me:s3cret@127.0.0.1:1/db"],
        &["runs", "push", "--to", "x.sqlite", "postgres://me:s3cret@host/db"],
        &["runs", "list", "postgres://me:s3cret@host/db"],
        &["runs", "list", "--store", "postgres://me:s3/cret@host:x/db"],
    ] {
        let output = place.run(arguments);
        assert_refused(&output, &[]);
        assert!(!stderr(&output).contains("s3") && !stderr(&output).contains("cret"), "{}", stderr(&output));
    }
    let Some(server) = TestPostgres::shared("a password that is given to a server") else { return };
    let database = server.database();
    server.sql(&database, "CREATE ROLE alice LOGIN SUPERUSER PASSWORD 's3cret'");
    let url = format!("postgres://alice:s3cret@{}/{database}", server.address());
    let measured = place.run(&[
        "run",
        "os.syscall.null",
        "--quick",
        "--budget",
        "minimum",
        "--no-report",
        "--with-private",
        "--store",
        &url,
    ]);
    assert_eq!(measured.status.code(), Some(0), "{}{}", stdout(&measured), stderr(&measured));
    assert!(!stderr(&measured).contains("s3cret"), "{}", stderr(&measured));
    let exported = place.run(&["runs", "export", "last", "--with-private", "--store", &url]);
    assert!(stdout(&exported).contains("postgres://alice:…@") && !stdout(&exported).contains("s3cret"));
}
