//! A database of a server as a store: many at once, a killed server, a full disk, and what is refused in which words.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{sample_events, sample_run};
use crate::stores::location;
use kelvin_core::{AxisWord, Case, Event, Name, Run, RunStatus, StoredHeadline};
use kelvin_store::{InsertOutcome, Location, OpenError, RunFilter, SCHEMA_VERSION, Store, copy};
use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};
use kelvin_testing::postgres::TestPostgres;

fn run_called(id: &str) -> Run {
    let mut run = sample_run();
    run.header.id = id.into();
    run
}

fn ids(store: &Store) -> Vec<String> {
    store.list(&RunFilter::default()).unwrap().into_iter().map(|line| line.id).collect()
}

fn headline(value: f64) -> StoredHeadline {
    StoredHeadline {
        metric: Name::new("os.syscall.null"),
        version: 1,
        case: Case::new().with_word(AxisWord::from_names("call", "getppid")),
        value,
        within_variance: 0.25,
    }
}

/// Records a run for a server in a local file, as far as to its end.
fn record_until_end(local: &Store, key: &str, id: &str) {
    let mut recorder = local.recorder().for_server(key);
    for event in sample_events_as(id) {
        recorder.event(&event).unwrap();
    }
    local.record_headlines(id, &[headline(1.0)]).unwrap();
}

/// The events of the sample run under another id.
fn sample_events_as(id: &str) -> Vec<Event> {
    let mut events = sample_events();
    let Event::Started(header) = &mut events[0] else { panic!("it begins with its start") };
    header.id = id.into();
    events
}

#[test]
fn twenty_clients_create_store_concurrently() {
    let Some(server) = TestPostgres::shared("twenty writers at once") else { return };
    let url = server.url(&server.database());
    let writers: Vec<_> = (0..20)
        .map(|i| {
            let address = location(&url);
            thread::spawn(move || {
                let store = Store::open(address).unwrap();
                let id = format!("run-{i:02}");
                assert_eq!(store.insert(&run_called(&id)).unwrap(), InsertOutcome::New);
                store.record_headlines(&id, &[headline(f64::from(i))]).unwrap();
                // Each of them also offers what all the others have.
                store.insert(&run_called("shared")).unwrap();
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let store = Store::open(location(&url)).unwrap();
    let expected: BTreeSet<String> = (0..20).map(|i| format!("run-{i:02}")).chain(["shared".into()]).collect();
    assert_eq!(ids(&store).len(), 21);
    assert_eq!(ids(&store).into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(store.load("run-07").unwrap(), run_called("run-07"));
}

#[test]
fn sqlite_and_postgres_schemas_are_equal() {
    let Some(server) = TestPostgres::shared("the layout of a server") else { return };
    let database = server.database();
    drop(Store::open(location(&server.url(&database))).unwrap());
    let server_columns = server.sql(
        &database,
        "SELECT table_name || '.' || column_name || ' ' || is_nullable FROM information_schema.columns
         WHERE table_schema = 'kelvin' AND table_name <> 'layout' AND table_name NOT LIKE 'dashboard%'",
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    drop(Store::open(&path).unwrap());
    let file = rusqlite::Connection::open(path).unwrap();
    let select = "SELECT m.name || '.' || c.name || iif(c.\"notnull\" OR c.pk > 0, ' NO', ' YES')
                  FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'";
    let mut statement = file.prepare(select).unwrap();
    let file_columns: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let column_set = |lines: Vec<&str>| lines.into_iter().map(str::to_owned).collect::<BTreeSet<String>>();
    assert_eq!(
        column_set(server_columns.lines().collect()),
        column_set(file_columns.iter().map(String::as_str).collect())
    );
    assert!(file_columns.len() > 40, "{file_columns:?}");
}

/// What takes a database of a server back to the layout before dashboards.
const BACK_TO_LAYOUT_1: &str =
    "SET search_path TO kelvin; DROP VIEW dashboard_run, dashboard_figure; DROP TABLE metric;
    ALTER TABLE headline DROP COLUMN predicted, DROP COLUMN predicted_low, DROP COLUMN predicted_high;
    UPDATE layout SET version = 1";

#[test]
fn dashboard_views_have_base_units_and_predictions() {
    let Some(server) = TestPostgres::shared("the views of dashboards") else { return };
    let database = server.database();
    let store = Store::open(location(&server.url(&database))).unwrap();
    store.insert(&run_called("before")).unwrap();
    store.record_headlines("before", &[headline(50.0)]).unwrap();
    server.sql(&database, BACK_TO_LAYOUT_1);
    // Brought up to date, it has what was stored before, without a prediction.
    drop(store);
    let store = Store::open(location(&server.url(&database))).unwrap();
    let run = run_called("after");
    store.insert(&run).unwrap();
    store.record_figures(&run, &[headline(62.0)]).unwrap();
    store.update_tags("after", &["node=n7".parse().unwrap()], &[]).unwrap();
    let rounded = ["value", "standard_error", "predicted", "predicted_low", "predicted_high"]
        .map(|column| format!("round(CAST({column} * 1e9 AS NUMERIC), 1)"))
        .join(", ");
    let select = format!(
        "SELECT run, host, metric, \"case\", unit, better, {rounded} FROM kelvin.dashboard_figure ORDER BY run"
    );
    let figures = server.sql(&database, &select);
    let machine: String = run.header.machine.identity.chars().take(8).collect();
    let [after, before] = figures.lines().collect::<Vec<_>>()[..] else { panic!("{figures}") };
    assert_eq!(after, "after|n7|os.syscall.null|call=getppid|seconds|lower|62.0|0.5|61.5|40.0|120.0");
    assert_eq!(before, format!("before|{machine}|os.syscall.null|call=getppid|seconds|lower|50.0|0.5|||"));
    let runs = server.sql(
        &database,
        "SELECT run, host, status, tags ->> 'node', extract(epoch FROM time) FROM kelvin.dashboard_run WHERE run = 'after'",
    );
    assert_eq!(runs.trim(), "after|n7|complete|n7|1769860800.250000");
    // Somebody who may see the views alone sees no stored run.
    server.sql(
        &database,
        "CREATE ROLE reader; GRANT USAGE ON SCHEMA kelvin TO reader;
         GRANT SELECT ON kelvin.dashboard_run, kelvin.dashboard_figure TO reader",
    );
    assert_eq!(server.sql(&database, "SET ROLE reader; SELECT count(*) FROM kelvin.dashboard_figure").trim(), "2");
    let may_read = "SELECT has_table_privilege('reader', 'kelvin.run', 'SELECT')";
    assert_eq!(server.sql(&database, may_read).trim(), "f");
}

fn refusal(url: &str) -> OpenError {
    let error = Store::open(location(url)).expect_err(url);
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn newer_or_foreign_schema_is_refused() {
    let Some(server) = TestPostgres::shared("refused layouts") else { return };
    let database = server.database();
    let url = server.url(&database);
    drop(Store::open(location(&url)).unwrap());
    server.sql(&database, "UPDATE kelvin.layout SET version = version + 1");
    let error = refusal(&url);
    assert!(
        matches!(error, OpenError::Newer { version, supported_version, .. } if version == supported_version + 1 && supported_version == SCHEMA_VERSION)
    );
    assert!(error.to_string().ends_with("use a newer kelvin"), "{error}");

    let foreign_database = server.database();
    server.sql(&foreign_database, "CREATE SCHEMA kelvin; CREATE TABLE kelvin.run (x int)");
    assert!(matches!(refusal(&server.url(&foreign_database)), OpenError::ForeignSchema { .. }));
    assert_eq!(server.sql(&foreign_database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'kelvin'").trim(), "1");
}

#[test]
fn unreachable_server_is_one_line() {
    let refusal_text = |url: &str| refusal(url).to_string();
    let text = refusal_text("postgres://me@nowhere.invalid/db");
    assert_eq!(
        text,
        "postgres://me@nowhere.invalid/db: there is no host nowhere.invalid, or its name cannot be looked up"
    );
    let free_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(
        refusal_text(&format!("postgres://me@{free_address}/db"))
            .contains("the connection was refused: no server listens there")
    );
    assert!(refusal_text("postgres://me@/db?host=/nonexistent").contains("no server listens there"));

    let Some(server) = TestPostgres::shared("what a server refuses") else { return };
    let text = refusal_text(&server.url("nothing"));
    assert!(text.ends_with("the server has no database \"nothing\": createdb creates one"), "{text}");
    let database = server.database();
    server.sql(&database, "CREATE ROLE alice LOGIN PASSWORD 'right'");
    let network_url = |password: &str| format!("postgres://alice{password}@{}/{database}", server.address());
    let text = refusal_text(&network_url(":wrong"));
    assert!(text.contains("alice was refused: password authentication failed") && !text.contains("wrong"), "{text}");
    assert!(refusal_text(&network_url("")).contains("set PGPASSWORD, or write it into ~/.pgpass"));
    // She may come in, but make nothing.
    let text = refusal_text(&network_url(":right"));
    assert!(text.contains("permission denied for database"), "{text}");
    server.sql(&database, &format!("GRANT CREATE ON DATABASE {database} TO alice"));
    let environment = |name: &str| (name == "PGPASSWORD").then(|| OsString::from("right"));
    let server_location = Location::parse(OsStr::new(&network_url("")), environment).unwrap();
    let store = Store::open(server_location).unwrap();
    assert_eq!(store.insert(&sample_run()).unwrap(), InsertOutcome::New);
    assert!(!store.name().contains("right"));
}

#[test]
fn certificate_check_follows_sslmode() {
    let Some(server) = TestPostgres::shared("certificates of a server") else { return };
    let signed = rcgen::generate_simple_self_signed(["db.example.org".to_owned()]).unwrap();
    let data = server.directory().join("data");
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&data).unwrap());
    for (name, text) in [("server.crt", signed.cert.pem()), ("server.key", signed.signing_key.serialize_pem())] {
        let path = data.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    }
    server.sql("postgres", "CREATE ROLE bob LOGIN SUPERUSER PASSWORD 'right'");
    let database = server.database();
    let url = |options: &str| format!("postgres://bob:right@{}/{database}?{options}", server.address());
    let uses_tls = |options: &str| -> Result<bool, OpenError> {
        let store = Store::open(location(&url(options)))?;
        let ssl_state = server
            .sql("postgres", "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'bob'");
        drop(store);
        // Sessions end a little after their clients.
        while !server.sql("postgres", "SELECT 1 FROM pg_stat_activity WHERE usename = 'bob'").is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(ssl_state.trim() == "t")
    };
    // A server without TLS.
    assert!(!uses_tls("sslmode=prefer").unwrap() && !uses_tls("sslmode=allow").unwrap());
    assert!(matches!(uses_tls("sslmode=require"), Err(OpenError::Unreachable { .. })));
    server.sql("postgres", "ALTER SYSTEM SET ssl = on");
    server.sql("postgres", "SELECT pg_reload_conf()");
    while server.sql("postgres", "SHOW ssl").trim() != "on" {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(uses_tls("").unwrap() && uses_tls("sslmode=require").unwrap());
    assert!(!uses_tls("sslmode=disable").unwrap() && !uses_tls("sslmode=allow").unwrap());
    let authority = data.join("server.crt").display().to_string();
    assert!(uses_tls(&format!("sslmode=verify-ca&sslrootcert={authority}")).unwrap());
    // The name of the certificate is not that of the host.
    assert!(uses_tls(&format!("sslmode=verify-full&sslrootcert={authority}")).is_err());
    let other_certificate = server.directory().join("other.crt");
    fs::write(&other_certificate, rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap().cert.pem())
        .unwrap();
    for mode in ["require", "verify-ca"] {
        assert!(uses_tls(&format!("sslmode={mode}&sslrootcert={}", other_certificate.display())).is_err(), "{mode}");
    }
    let error = uses_tls("sslmode=verify-ca&sslrootcert=/nonexistent").unwrap_err();
    assert!(
        matches!(&error, OpenError::Server { .. }) && error.to_string().contains("sslrootcert /nonexistent: "),
        "{error}"
    );
}

#[test]
fn pending_runs_are_uploaded_except_recording() {
    let Some(server) = TestPostgres::shared("runs that wait for a server") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    let (local, recording_store) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
    let remote = Store::open(location(&server.url(&server.database()))).unwrap();
    let key = remote.key().unwrap();
    local.insert(&run_called("mine")).unwrap();
    record_until_end(&local, key, "ended");
    record_until_end(&local, "elsewhere:5432/db", "elsewhere");
    let recording = recording_store.lock_recording().unwrap();
    let mut recorder = recording_store.recorder().for_server(key);
    let events = sample_events_as("running");
    events[..3].iter().for_each(|event| recorder.event(event).unwrap());

    assert_eq!(local.upload_pending(&remote).unwrap().sent, 1);
    assert_eq!(ids(&remote), ["ended"]);
    assert_eq!(remote.load("ended").unwrap(), Run::from_events(sample_events_as("ended")).unwrap());
    assert_eq!(
        ids(&local).into_iter().collect::<BTreeSet<_>>(),
        ["elsewhere", "mine", "running"].map(String::from).into()
    );

    // Sent, and killed before it was removed here: it is there once.
    record_until_end(&local, key, "twice");
    let line = local.list(&RunFilter::default()).unwrap().into_iter().find(|line| line.id == "twice").unwrap();
    assert_eq!(copy(&local, &remote, &line).unwrap(), InsertOutcome::New);
    assert_eq!(local.upload_pending(&remote).unwrap().sent, 1);
    assert_eq!(ids(&remote).len(), 2);

    // The program that recorded it was killed.
    drop(recording);
    assert_eq!(local.upload_pending(&remote).unwrap().sent, 1);
    let killed_run = remote.load("running").unwrap();
    assert_eq!(killed_run, Run::from_events(events[..3].to_vec()).unwrap());
    assert!(matches!(killed_run.status, RunStatus::Partial(_)));
    assert_eq!(local.upload_pending(&remote).unwrap().sent, 0);

    // Another run has the id there: it stays here, and the others go.
    record_until_end(&local, key, "mine-too");
    let mut different_run = run_called("taken");
    different_run.notes.push("another".into());
    remote.insert(&different_run).unwrap();
    record_until_end(&local, key, "taken");
    let result = local.upload_pending(&remote).unwrap();
    assert_eq!((result.sent, result.failures.len()), (1, 1));
    assert_eq!(remote.load("taken").unwrap(), different_run);
}

#[test]
fn unstorable_run_stays_local() {
    let Some(server) = TestPostgres::shared("a run with a NUL") else { return };
    let directory = tempfile::tempdir().unwrap();
    let local = Store::open(directory.path().join("runs.sqlite")).unwrap();
    let remote = Store::open(location(&server.url(&server.database()))).unwrap();
    let run_with_nul = |id: &str| {
        let mut run = run_called(id);
        run.status = RunStatus::Partial("killed by \0".into());
        run
    };
    // The one in the middle was stored before such texts were refused.
    for run in [run_called("a"), run_with_nul("b"), run_called("c")] {
        local.insert(&run).unwrap();
    }
    let lines = local.list(&RunFilter::default()).unwrap();
    let results: Vec<_> = lines.iter().map(|line| copy(&local, &remote, line)).collect();
    assert!(matches!(results[..], [Ok(InsertOutcome::New), Err(_), Ok(InsertOutcome::New)]), "{results:?}");
    let error = results[1].as_ref().unwrap_err();
    assert!(
        !error.is_store_failure()
            && error.to_string().starts_with("run b cannot be stored there: the text \"killed by"),
        "{error}"
    );
    assert_eq!(ids(&remote), ["a", "c"]);
    assert_eq!(local.load("b").unwrap(), run_with_nul("b"));

    // Nor does one that waits for the server stop the others.
    for id in ["d", "e", "f"] {
        record_until_end(&local, remote.key().unwrap(), id);
    }
    let file = rusqlite::Connection::open(directory.path().join("runs.sqlite")).unwrap();
    file.execute("UPDATE run SET cpu_model = char(0) || 'x' WHERE id = 'e'", []).unwrap();
    file.execute("UPDATE run SET header = x'00' WHERE id = 'f'", []).unwrap();
    let result = local.upload_pending(&remote).unwrap();
    assert_eq!(result.failures.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["f"]);
    assert_eq!(ids(&remote).len(), 4);
}

/// One server of its own for both, since it takes long to make: what befalls it must befall no other test.
#[test]
fn server_failure_loses_no_run() {
    if let Some(server) = TestPostgres::start("a server that is killed or has no space") {
        restarts_neither_lose_nor_duplicate_runs(&server);
        full_disk_is_named_and_upload_retried(&server);
    }
}

fn restarts_neither_lose_nor_duplicate_runs(server: &TestPostgres) {
    let url = server.url(&server.database());
    let directory = tempfile::tempdir().unwrap();
    let local = Store::open(directory.path().join("runs.sqlite")).unwrap();
    let key = Store::open(location(&url)).unwrap().key().unwrap().to_owned();
    let names: Vec<String> = (0..30).map(|i| format!("run-{i:02}")).collect();
    names.iter().for_each(|id| record_until_end(&local, &key, id));
    let path = directory.path().join("runs.sqlite");
    let is_stable = AtomicBool::new(false);
    thread::scope(|scope| {
        let senders: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let local = Store::open(&path).unwrap();
                    loop {
                        let is_last = is_stable.load(Ordering::SeqCst);
                        match Store::open(location(&url)).map(|remote| local.upload_pending(&remote)) {
                            Ok(Ok(_)) if ids(&local).is_empty() => break,
                            outcome => assert!(!is_last, "the server is there, and yet: {outcome:?}"),
                        }
                        thread::sleep(Duration::from_millis(2));
                    }
                })
            })
            .collect();
        for pause in [20, 50] {
            thread::sleep(Duration::from_millis(pause));
            server.kill();
            server.restart();
        }
        is_stable.store(true, Ordering::SeqCst);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
    let remote = Store::open(location(&url)).unwrap();
    assert_eq!(ids(&remote), names);
    names.iter().for_each(|id| assert_eq!(remote.load(id).unwrap(), Run::from_events(sample_events_as(id)).unwrap()));
}

fn full_disk_is_named_and_upload_retried(server: &TestPostgres) {
    let tmpfs = match MountedFs::new(FileSystemKind::Tmpfs, Path::new("/tmp")) {
        Ok(tmpfs) => tmpfs,
        Err(missing) => return missing.report_skip("a full disk at a server"),
    };
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(server.directory()).unwrap());
    let tablespace = tmpfs.path().join("space");
    fs::create_dir(&tablespace).unwrap();
    chown(&tablespace, Some(owner), Some(owner)).unwrap();
    server.sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", tablespace.display()));
    let database = server.database_with("TABLESPACE small");
    let remote = Store::open(location(&server.url(&database))).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let local = Store::open(directory.path().join("runs.sqlite")).unwrap();
    record_until_end(&local, remote.key().unwrap(), "waits");
    let filler = tmpfs.path().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    let error = local.upload_pending(&remote).unwrap_err().to_string();
    assert!(error.starts_with(&format!("the disk that holds {} is full: ", remote.name())), "{error}");
    assert_eq!((ids(&remote).len(), ids(&local).len()), (0, 1));
    drop(file);
    fs::remove_file(filler).unwrap();
    assert_eq!(local.upload_pending(&remote).unwrap().sent, 1);
    assert_eq!(remote.load("waits").unwrap(), Run::from_events(sample_events_as("waits")).unwrap());
    drop(remote);
    server.sql("postgres", &format!("DROP DATABASE {database} WITH (FORCE)"));
    server.sql("postgres", "DROP TABLESPACE small");
}
