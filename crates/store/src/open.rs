//! Opening a store: its path, its file, and what is refused.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{DataDirectoryError, DatabaseError, OpenError};
use crate::location::Location;
use crate::migrations::{self, APPLICATION_ID, SCHEMA_VERSION};
use crate::postgres;
use crate::sql::SqlConnection;
use crate::sqlite::{self, SqliteConnection};

pub use in_place::InPlaceStore;

mod in_place;

/// How long to wait for another process that writes: its transactions are one round each, far below a second even on
/// a slow disk.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// What a statement may come to: far more than any of ours. A value may have as many bytes as a payload.
const SQLITE_LIMITS: [(Limit, i32); 6] = [
    (Limit::SQLITE_LIMIT_LENGTH, 1_000_000_000),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];
/// Bytes of the index of a log, of its first pages, and of what a file system needs for both.
const MIN_WAL_SPACE: u64 = 128 << 10;
/// Time between two tries of a locked store.
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A store of runs.
///
/// Several processes may have it open at once, each recording its own run.
#[derive(Debug)]
pub struct Store {
    connection: Box<dyn SqlConnection>,
    /// Identifies the database of a server.
    key: Option<String>,
    /// Whether it can only be read, since its disk has no space for a log.
    is_read_only: bool,
}

impl Store {
    /// The default path: `kelvin/runs.sqlite` in `XDG_DATA_HOME`, else in
    /// `HOME/.local/share`, as the XDG Base Directory Specification has it. `environment` looks a variable up.
    ///
    /// # Errors
    /// If neither variable is set, or the one that counts is not an absolute path.
    pub fn default_path(environment: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, DataDirectoryError> {
        let absolute = |variable: &'static str| -> Result<Option<PathBuf>, DataDirectoryError> {
            match environment(variable).filter(|value| !value.is_empty()).map(PathBuf::from) {
                Some(value) if !value.is_absolute() => Err(DataDirectoryError::NotAbsolute { variable, value }),
                value => Ok(value),
            }
        };
        let data = match absolute("XDG_DATA_HOME")? {
            Some(data) => data,
            None => absolute("HOME")?.ok_or(DataDirectoryError::NoHome)?.join(".local/share"),
        };
        Ok(data.join("kelvin/runs.sqlite"))
    }

    /// Opens the store at a location, of which one in a file is made where it is missing.
    ///
    /// # Errors
    /// As of a file, or if the server cannot be reached, does not let the user in, or holds a newer layout.
    pub fn open(location: impl Into<Location>) -> Result<Self, OpenError> {
        match location.into() {
            Location::File(path) => Self::open_file(path),
            Location::Server(address) => {
                let connection = postgres::open(&address)?;
                Ok(Self { key: Some(address.key().to_owned()), ..Self::from_connection(connection) })
            }
        }
    }

    /// Opens the store in this file; makes the file (for its owner only) and its directories where they are missing,
    /// and brings an older layout up to date. On a disk without space for a log it is opened to be read.
    ///
    /// # Errors
    /// If the path cannot hold a store, or holds something else, which is then left as it is.
    fn open_file(path: PathBuf) -> Result<Self, OpenError> {
        let is_new = create_file(&path)?;
        let store = Self::open_prepared(&path);
        if is_new && store.is_err() {
            remove_empty(&path);
        }
        store
    }

    /// Opens the store in a file that exists.
    fn open_prepared(path: &Path) -> Result<Self, OpenError> {
        let read_only_store = |connection| Self {
            is_read_only: true,
            ..Self::from_connection(Box::new(SqliteConnection::read_only(connection, path)))
        };
        if !has_wal_space(path)
            && let Some(connection) = open_read_only(path)?
        {
            return Ok(read_only_store(connection));
        }
        let deadline = Instant::now() + BUSY_TIMEOUT;
        loop {
            match open_read_write(path) {
                // Where several make a new store at once, the change to write-ahead logging is refused without waiting.
                Err(OpenError::Database(DatabaseError::Locked(_))) if Instant::now() < deadline => {
                    std::thread::sleep(BUSY_RETRY_INTERVAL)
                }
                Err(OpenError::Database(error @ (DatabaseError::Full(_) | DatabaseError::Limited(..)))) => {
                    return Ok(read_only_store(open_read_only(path)?.ok_or(error)?));
                }
                result => {
                    return result
                        .map(|connection| Self::from_connection(Box::new(SqliteConnection::new(connection, path))));
                }
            }
        }
    }

    /// The store in an open database whose layout is up to date.
    fn from_connection(connection: Box<dyn SqlConnection>) -> Self {
        Self { connection, key: None, is_read_only: false }
    }

    /// That there is space to write to it, as far as that was seen when it was opened.
    ///
    /// # Errors
    /// If its disk is full, or its files are as large as this process may make any.
    pub fn check_space(&self) -> Result<(), DatabaseError> {
        if self.is_read_only { Err(sqlite::no_space(self.name())) } else { Ok(()) }
    }

    /// Its name for people: the path of the file, or the URL without a password.
    pub fn name(&self) -> &str {
        self.connection.name()
    }

    /// Identifies the database of a server, the same for every user; none of a file.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Whether both are the same store, also under different names.
    pub fn is_same(&self, other: &Self) -> bool {
        let canonical_path = |store: &Self| fs::canonicalize(store.name()).ok();
        self.name() == other.name()
            || (self.key.is_some() && self.key == other.key)
            || canonical_path(self).is_some_and(|own_path| Some(own_path) == canonical_path(other))
    }

    pub(crate) fn connection(&self) -> &dyn SqlConnection {
        &*self.connection
    }
}

fn open_read_write(path: &Path) -> Result<Connection, OpenError> {
    let connection = connect_to_write(path)?;
    let version = check_schema_version(&connection, path)?;
    if version == 0 {
        // Lets the space of deleted runs be freed; takes effect only before the first table is made.
        connection.pragma_update(None, "auto_vacuum", "incremental").map_err(|error| open_error(path, error))?;
    }
    enable_wal(&connection, path)?;
    migrations::migrate(&connection).map_err(|error| open_error(path, error))?;
    check_schema_version(&connection, path)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(|error| open_error(path, error))?;
    Ok(connection)
}

/// Connects to a file, of which nothing is read yet.
fn connect_to_write(path: &Path) -> Result<Connection, OpenError> {
    // No SQLITE_OPEN_CREATE: the file is there, and its rights are set.
    let connected =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let set_up = connected.and_then(|connection| {
        set_untrusted(&connection)?;
        connection.busy_timeout(BUSY_TIMEOUT).map(|()| connection)
    });
    set_up.map_err(|error| open_error(path, error))
}

/// Whether there is room for a log and its index. SQLite maps the index, which may have holes where blocks are smaller than pages: where one
/// cannot be filled, the process gets a signal and no error.
fn has_wal_space(path: &Path) -> bool {
    // Of what is kept for root a part is for the file system alone. Some file systems report nothing.
    rustix::fs::statvfs(path)
        .map_or(true, |stats| stats.f_blocks == 0 || stats.f_bavail.saturating_mul(stats.f_frsize) >= MIN_WAL_SPACE)
}

/// Opens what is in the file by now, without a log or its index, for which there is no space; nothing where there is a log that counts too,
/// or a layout of another version. Who could change the file meanwhile would need that space as well.
fn open_read_only(path: &Path) -> Result<Option<Connection>, OpenError> {
    if fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0) {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection =
        Connection::open_with_flags(immutable_uri(path), flags).map_err(|error| open_error(path, error))?;
    set_untrusted(&connection).map_err(|error| open_error(path, error))?;
    Ok((check_schema_version(&connection, path)? == SCHEMA_VERSION).then_some(connection))
}

/// The file as the URI of one that nobody changes (sqlite.org/uri.html).
fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => uri.push(byte.into()),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

/// Has SQLite believe nothing that stands in the file: it may come from anybody.
///
/// # Errors
/// Those of SQLite.
fn set_untrusted(connection: &Connection) -> rusqlite::Result<()> {
    // No statement writes to the schema or to shadow tables.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // A view, an index or a trigger of the file calls no function that acts beyond its values, and no virtual table.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // Ours are none of either, and one of the file would run within our own statements.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    // A damaged page is found when it is read, not when it is believed.
    connection.pragma_update(None, "cell_size_check", true)?;
    // The file is not mapped: one that is cut while it is read would be a signal.
    connection.pragma_update(None, "mmap_size", 0)?;
    for (limit, value) in SQLITE_LIMITS {
        connection.set_limit(limit, value)?;
    }
    Ok(())
}

/// Creates missing directories and the file, or reports why it cannot. Returns whether the file is new.
fn create_file(path: &Path) -> Result<bool, OpenError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(OpenError::IsDirectory(path.to_path_buf())),
        Ok(metadata) if !metadata.is_file() => return Err(OpenError::NotRegular(path.to_path_buf())),
        _ => {}
    }
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        let result = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        result.map_err(|source| OpenError::Directory(directory.to_path_buf(), source))?;
    }
    // Opened for writing and closed at once, for the operating system's own error. Nothing is created through a dangling
    // link.
    let open = |new| OpenOptions::new().read(true).write(true).create_new(new).mode(0o600).open(path);
    let outcome = match open(true) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => open(false).map(|_| false),
        result => result.map(|_| true),
    };
    outcome.map_err(|source| OpenError::NotWritable(path.to_path_buf(), source))
}

/// Bytes of a database that has no table: each has a page of its own after the first one.
const EMPTY_DATABASE_BYTES: u64 = 4096;

/// Removes a new file in which no store could be made, unless another process has meanwhile made one there. Errors are ignored: an
/// empty file is a store as well.
fn remove_empty(path: &Path) {
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    if bytes(path) <= EMPTY_DATABASE_BYTES && bytes(&log_of(path)) == 0 {
        for file in [path, &log_of(path), &with_suffix(path, "-shm")] {
            let _ = fs::remove_file(file);
        }
    }
}

/// The write-ahead log of a database.
fn log_of(path: &Path) -> PathBuf {
    with_suffix(path, "-wal")
}

/// A file that SQLite keeps next to a database.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The layout version of a file that is ours or empty; an error for any other.
fn check_schema_version(connection: &Connection, path: &Path) -> Result<i64, OpenError> {
    let number = |sql: &str| -> Result<i64, OpenError> {
        connection.query_row(sql, [], |row| row.get(0)).map_err(|error| open_error(path, error))
    };
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    let application = number("PRAGMA application_id")?;
    let is_empty = tables == 0 && version == 0 && application == 0;
    if !is_empty && application != APPLICATION_ID {
        return Err(OpenError::Foreign(path.to_path_buf()));
    }
    if version > SCHEMA_VERSION {
        return Err(OpenError::Newer { store: path.display().to_string(), version, supported_version: SCHEMA_VERSION });
    }
    Ok(version)
}

/// Write-ahead logging, each commit flushed to the disk before it counts.
fn enable_wal(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let journal_mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(|error| open_error(path, error))?;
    if journal_mode != "wal" {
        return Err(OpenError::NoWriteAheadLog(path.to_path_buf(), journal_mode));
    }
    connection.pragma_update(None, "synchronous", "full").map_err(|error| open_error(path, error))
}

fn open_error(path: &Path, error: rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotSqlite(path.to_path_buf()),
        // The file itself could be opened: what fails is the log next to it, which needs a writable directory.
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
            OpenError::NotWritable(path.to_path_buf(), io::Error::new(ErrorKind::PermissionDenied, error))
        }
        _ => OpenError::Database(sqlite::database_error(&path.display().to_string(), error)),
    }
}
