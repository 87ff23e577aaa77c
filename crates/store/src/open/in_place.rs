//! A store on a full disk, changed within its own file: there is no space for a log of what changes.
//!
//! Whatever is killed half-way would leave a file that is neither the old store nor the new one. So a copy of it lies on another disk until
//! all is done.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{OpenError, SqliteConnection, Store, check_schema_version, connect_to_write, migrations, open_error};
use crate::error::DatabaseError;

/// A store that is changed within its file. Nobody else can use it meanwhile.
#[derive(Debug)]
pub struct InPlaceStore {
    store: Store,
    copy: PathBuf,
}

impl InPlaceStore {
    /// Opens the store in a file, and copies it into the first of these directories on another disk that has room for it.
    ///
    /// # Errors
    /// If another process uses it, none has room, or the store fails.
    pub fn open(path: &Path, directories: &[PathBuf]) -> Result<Self, OpenError> {
        let connection = connect_to_write(path)?;
        let set_pragma = |pragma: &str, value: &str| -> Result<String, OpenError> {
            let result = connection.pragma_update_and_check(None, pragma, value, |row| row.get(0));
            result.map_err(|error| open_error(path, error))
        };
        // The index of the log is in memory then, and the file is locked from the first read on.
        set_pragma("locking_mode", "exclusive")?;
        let version = check_schema_version(&connection, path)?;
        // What is in the log goes into the file, and is copied with it.
        let log = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        log.map_err(|error| open_error(path, error))?;
        if version != migrations::SCHEMA_VERSION {
            return Err(DatabaseError::Full(path.display().to_string()).into());
        }
        let copy = copy_to_other_disk(path, directories)?;
        let journal = set_pragma("journal_mode", "memory")?;
        let name = path.display().to_string();
        if journal != "memory" {
            let _ = fs::remove_file(&copy);
            return Err(DatabaseError::Other(name, "its log cannot be kept in memory".into()).into());
        }
        connection.pragma_update(None, "foreign_keys", true).map_err(|error| open_error(path, error))?;
        Ok(Self { store: Store::from_connection(Box::new(SqliteConnection::new(connection, path))), copy })
    }

    /// The copy that lies elsewhere until all is done.
    pub fn copy(&self) -> &Path {
        &self.copy
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Gives the space of deleted runs back, has a log again, and removes the copy.
    ///
    /// # Errors
    /// If the store fails: then the copy stays.
    pub fn finish(self) -> Result<(), DatabaseError> {
        self.store.reclaim()?;
        // Where there is no space even for this, whoever opens the store next does it.
        for journal in ["delete", "wal"] {
            let _ = self.store.connection().query(&format!("PRAGMA journal_mode = {journal}"), &[]);
        }
        let sync_result = File::open(self.store.name()).and_then(|file| file.sync_all());
        let store = self.store.name().to_owned();
        sync_result.map_err(|error| DatabaseError::Io(store, error.into()))?;
        drop(self.store);
        let _ = fs::remove_file(&self.copy);
        Ok(())
    }
}

/// Copies a file into the first of these directories on another disk that has room for it.
fn copy_to_other_disk(path: &Path, directories: &[PathBuf]) -> Result<PathBuf, OpenError> {
    let to_error = |source: io::Error| OpenError::NotWritable(path.to_path_buf(), source);
    let metadata = fs::metadata(path).map_err(to_error)?;
    let name = format!("kelvin-{}-{}.sqlite", std::process::id(), metadata.ino());
    for directory in directories {
        if fs::metadata(directory).map_or(true, |directory| directory.dev() == metadata.dev()) {
            continue;
        }
        let copy = directory.join(&name);
        // Nobody else may have put a file or a link there.
        let copy_file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&copy);
        let Ok(mut copy_file) = copy_file else { continue };
        let result = File::open(path)
            .and_then(|mut file| io::copy(&mut file, &mut copy_file))
            .and_then(|_| copy_file.sync_all());
        match result {
            Ok(()) => return Ok(copy),
            Err(_) => drop(fs::remove_file(&copy)),
        }
    }
    Err(OpenError::NoRoomForCopy(path.to_path_buf(), metadata.len()))
}
