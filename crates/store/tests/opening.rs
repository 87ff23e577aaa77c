//! What opens as a store, what is refused and in which words, and where the store is by default.

mod common;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use common::sample_run;
use kelvin_store::{DataDirectoryError, OpenError, RunFilter, SCHEMA_VERSION, Store};
use rusqlite::Connection;

fn open_error(path: &Path) -> OpenError {
    let error = Store::open(path).expect_err("this is no store");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn new_store_is_private_to_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/runs.sqlite");
    let store = Store::open(&path).unwrap();
    store.insert(&sample_run()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&directory.path().join("a/b/runs.sqlite-wal")), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    drop(store);
    assert_eq!(Store::open(&path).unwrap().load("last").unwrap(), sample_run());
}

#[test]
fn commits_use_wal_and_full_sync() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    drop(Store::open(&path).unwrap());
    let connection = Connection::open(&path).unwrap();
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, SCHEMA_VERSION);
}

#[test]
fn non_database_is_refused_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "not a database, but long enough to be read as the header of one: ".repeat(20);
    fs::write(&path, &text).unwrap();
    assert!(matches!(open_error(&path), OpenError::NotSqlite { .. }));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn foreign_database_is_refused_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.sqlite");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(open_error(&path), OpenError::Foreign { .. }));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn newer_schema_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    drop(Store::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    let error = open_error(&path);
    assert!(matches!(error, OpenError::Newer { version, supported_version, .. } if version == supported_version + 1));
    assert!(error.to_string().ends_with("use a newer kelvin"), "{error}");
}

#[test]
fn directories_and_devices_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(open_error(directory.path()), OpenError::IsDirectory { .. }));
    assert!(matches!(open_error(Path::new("/dev/null")), OpenError::NotRegular { .. }));
    // Nobody, not even root, makes files and directories in /proc.
    assert!(matches!(open_error(Path::new("/proc/kelvin/runs.sqlite")), OpenError::Directory { .. }));
    assert!(matches!(open_error(Path::new("/proc/runs.sqlite")), OpenError::NotWritable { .. }));
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(open_error(&file.join("runs.sqlite")), OpenError::Directory { .. }));
}

#[test]
fn empty_file_becomes_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    fs::write(&path, "").unwrap();
    assert!(Store::open(&path).unwrap().list(&RunFilter::default()).unwrap().is_empty());
}

#[test]
fn concurrent_creators_all_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    let threads: Vec<_> = (0..8)
        .map(|i| {
            let path = path.clone();
            thread::spawn(move || {
                let mut run = sample_run();
                run.header.id = format!("run-{i}");
                Store::open(&path).unwrap().insert(&run).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(Store::open(&path).unwrap().list(&RunFilter::default()).unwrap().len(), 8);
}

#[test]
fn default_path_follows_xdg_variables() {
    let default_path = |variables: &'static [(&'static str, &'static str)]| {
        Store::default_path(|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, v)| OsString::from(v))
        })
    };
    let home = PathBuf::from("/home/k/.local/share/kelvin/runs.sqlite");
    assert_eq!(default_path(&[("HOME", "/home/k"), ("XDG_DATA_HOME", "/data")]), Ok("/data/kelvin/runs.sqlite".into()));
    assert_eq!(default_path(&[("HOME", "/home/k")]), Ok(home.clone()));
    assert_eq!(default_path(&[("HOME", "/home/k"), ("XDG_DATA_HOME", "")]), Ok(home));
    assert_eq!(default_path(&[]), Err(DataDirectoryError::NoHome));
    assert!(DataDirectoryError::NoHome.to_string().contains("--store"));
    let relative = default_path(&[("HOME", "/home/k"), ("XDG_DATA_HOME", "data")]).unwrap_err();
    assert!(relative.to_string().starts_with("XDG_DATA_HOME is not an absolute path: data"), "{relative}");
}

#[test]
fn planted_sql_is_not_executed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.sqlite");
    let run = |id: &str| {
        let mut run = sample_run();
        run.header.id = id.into();
        run
    };
    let store = Store::open(&path).unwrap();
    store.insert(&run("one")).unwrap();
    drop(store);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TRIGGER theirs AFTER INSERT ON run BEGIN DELETE FROM run WHERE key <> new.key; END;
             ALTER TABLE note RENAME TO note_of_ours;
             CREATE VIEW note AS SELECT run, hex(randomblob(1000000000)) AS text FROM note_of_ours;",
        )
        .unwrap();
    let store = Store::open(&path).unwrap();
    let error = store.list(&RunFilter::default()).unwrap_err().to_string();
    assert!(error.contains("access to view \"note\" prohibited") && !error.contains('\n'), "{error}");
    connection.execute_batch("DROP VIEW note; ALTER TABLE note_of_ours RENAME TO note;").unwrap();
    store.insert(&run("two")).unwrap();
    assert_eq!(store.list(&RunFilter::default()).unwrap().len(), 2);
}
