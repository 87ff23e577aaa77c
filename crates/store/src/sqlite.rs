//! A store in one SQLite file.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, ErrorCode, Row, ffi};
use rustix::process::Resource;

use crate::error::DatabaseError;
use crate::sql::{RowReader, SqlConnection, SqlResult, SqlRow, SqlValue, TransactionMode, WrongColumn, sql_value};

/// A connection to a SQLite file.
#[derive(Debug)]
pub(crate) struct SqliteConnection {
    connection: Connection,
    /// The file, in words.
    name: String,
    /// Whether it can only be read, since there is no space to write.
    is_read_only: bool,
}

impl SqliteConnection {
    /// On an open connection to a file of this name.
    pub(crate) fn new(connection: Connection, path: &Path) -> Self {
        Self { connection, name: path.display().to_string(), is_read_only: false }
    }

    /// On a disk without space for a log: nothing can be written.
    pub(crate) fn read_only(connection: Connection, path: &Path) -> Self {
        Self { is_read_only: true, ..Self::new(connection, path) }
    }

    fn sql_error(&self, error: rusqlite::Error) -> DatabaseError {
        let store = self.name.clone();
        match error.sqlite_error().map(|error| error.extended_code) {
            Some(ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => DatabaseError::Duplicate(store),
            Some(ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => DatabaseError::Orphan(store),
            Some(ffi::SQLITE_READONLY) if self.is_read_only => no_space(&self.name),
            _ => database_error(&self.name, error),
        }
    }

    fn statement(&self, sql: &str, values: &[SqlValue]) -> rusqlite::Result<CachedStatement<'_>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        Ok(statement)
    }

    /// Gives each row of a statement to `read`; its first error ends it.
    fn stream_rows(
        &self,
        sql: &str,
        values: &[SqlValue],
        read: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<Result<(), WrongColumn>>,
    ) -> SqlResult<()> {
        let mut read_all = || {
            let mut statement = self.statement(sql, values)?;
            let mut rows = statement.raw_query();
            while let Some(sqlite_row) = rows.next()? {
                if let error @ Err(_) = read(sqlite_row)? {
                    return Ok(error);
                }
            }
            Ok(Ok(()))
        };
        read_all().map_err(|error| self.sql_error(error))?.map_err(|error| error.in_store(&self.name))
    }
}

impl SqlConnection for SqliteConnection {
    fn name(&self) -> &str {
        &self.name
    }

    fn each_row(&self, sql: &str, values: &[SqlValue], row: &mut RowReader<'_>) -> SqlResult<()> {
        let mut row_values = SqlRow::default();
        self.stream_rows(sql, values, &mut |sqlite_row| {
            row_values.0.clear();
            for column in 0..sqlite_row.as_ref().column_count() {
                row_values.0.push(sqlite_row.get_ref(column)?.try_into()?);
            }
            Ok(row(&mut row_values))
        })
    }

    fn each_pair(&self, sql: &str, values: &[SqlValue], pair: &mut dyn FnMut(i64, f64)) -> SqlResult<()> {
        self.stream_rows(sql, values, &mut |sqlite_row| {
            match (sqlite_row.get_ref(0)?, sqlite_row.get_ref(1)?) {
                (ValueRef::Integer(first), ValueRef::Real(second)) => pair(first, second),
                (ValueRef::Integer(_), _) => return Ok(Err(WrongColumn(1))),
                _ => return Ok(Err(WrongColumn(0))),
            }
            Ok(Ok(()))
        })
    }

    fn keys_of_json(&self, value: usize) -> String {
        format!("SELECT value FROM json_each(${value})")
    }

    fn each_headline(&self, keys: [&str; 2], headline: &mut dyn FnMut(i64, i64, f64)) -> SqlResult<()> {
        let [runs, series] = [1, 2].map(|value| self.keys_of_json(value));
        let select = format!("SELECT run, series, value FROM headline WHERE run IN ({runs}) AND series IN ({series})");
        self.stream_rows(&select, &keys.map(sql_value), &mut |row| {
            match (row.get_ref(0)?, row.get_ref(1)?, row.get_ref(2)?) {
                (ValueRef::Integer(run), ValueRef::Integer(series), ValueRef::Real(value)) => {
                    headline(run, series, value)
                }
                _ => return Ok(Err(WrongColumn(2))),
            }
            Ok(Ok(()))
        })
    }

    fn execute(&self, sql: &str, values: &[SqlValue]) -> SqlResult<u64> {
        let row_count = self.statement(sql, values).and_then(|mut statement| statement.raw_execute());
        row_count.map(|count| count as u64).map_err(|error| self.sql_error(error))
    }

    fn execute_each(&self, sql: &str, parameters: &mut dyn Iterator<Item = Vec<SqlValue>>) -> SqlResult<()> {
        for values in parameters {
            self.execute(sql, &values)?;
        }
        Ok(())
    }

    fn begin(&self, access: TransactionMode) -> SqlResult<()> {
        // A writer takes the lock at once, so that it never fails half-way.
        let begin = if access == TransactionMode::Write { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.execute(begin, &[]).map(drop)
    }

    fn commit(&self) -> SqlResult<()> {
        self.execute("COMMIT", &[]).map(drop)
    }

    fn roll_back(&self) {
        // Some failures have rolled back already. Whatever is left is undone when the connection ends.
        if !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK", &[]);
        }
    }

    fn reclaim(&self) -> SqlResult<()> {
        self.query("PRAGMA incremental_vacuum", &[])?;
        self.query("PRAGMA wal_checkpoint(TRUNCATE)", &[])?;
        Ok(())
    }
}

/// Values by the numbers of their parameters: `$2` is the second, wherever it stands.
fn bind(statement: &mut CachedStatement<'_>, values: &[SqlValue]) -> rusqlite::Result<()> {
    for (position, value) in values.iter().enumerate() {
        if let Some(index) = statement.parameter_index(&format!("${}", position + 1))? {
            statement.raw_bind_parameter(index, value)?;
        }
    }
    Ok(())
}

/// An error of SQLite as one of the store with this name.
pub(crate) fn database_error(name: &str, error: rusqlite::Error) -> DatabaseError {
    let store = name.to_owned();
    // The index of a log is a file that grows to its size before it is used.
    let extended_code = error.sqlite_error().map(|error| error.extended_code);
    let is_full = extended_code == Some(ffi::SQLITE_IOERR_SHMSIZE);
    let code = error.sqlite_error_code().filter(|_| !is_full).or(is_full.then_some(ErrorCode::DiskFull));
    // SQLite reports a write that a limit refuses as an I/O error, unless a part was written.
    let is_limited = extended_code == Some(ffi::SQLITE_IOERR_WRITE) && limit_reached(name).is_some();
    let source = error.into();
    match code {
        code if is_limited || code == Some(ErrorCode::DiskFull) => no_space(name),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => DatabaseError::Io(store, source),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DatabaseError::Locked(store),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => DatabaseError::ReadOnly(store),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => DatabaseError::Damaged(store, source),
        _ => DatabaseError::Other(store, source),
    }
}

/// Most bytes by which a file of a store grows at once: the index of a log by 32 KiB, the others by pages.
const MAX_GROWTH_STEP: u64 = 64 << 10;

/// That a store cannot grow: by the limit of this process if a file of it has come to that, else for want of space on its disk.
pub(crate) fn no_space(name: &str) -> DatabaseError {
    match limit_reached(name) {
        Some(limit) => DatabaseError::Limited(name.to_owned(), limit),
        None => DatabaseError::Full(name.to_owned()),
    }
}

/// The limit on files of this process (`ulimit -f`), if a file of this store has come to it.
fn limit_reached(store: &str) -> Option<u64> {
    let limit = rustix::process::getrlimit(Resource::Fsize).current?;
    let bytes = |suffix: &str| std::fs::metadata(format!("{store}{suffix}")).map_or(0, |file| file.len());
    let max_bytes = ["", "-wal", "-shm"].map(bytes).into_iter().max()?;
    (max_bytes.saturating_add(MAX_GROWTH_STEP) > limit).then_some(limit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sql::{Transaction, values};

    fn engine() -> SqliteConnection {
        let connection = Connection::open_in_memory().unwrap();
        connection.busy_timeout(Duration::from_millis(10)).unwrap();
        SqliteConnection::new(connection, Path::new("memory"))
    }

    #[test]
    fn parameters_bind_by_number() {
        let mut rows = engine().query("SELECT $2, $1, $2, $3", values!["one", 2_i64, None::<i64>]).unwrap();
        let expected = [SqlValue::Integer(2), SqlValue::from("one".to_owned()), SqlValue::Integer(2), SqlValue::Null];
        assert_eq!(rows.remove(0).0, expected);
    }

    #[test]
    fn uncommitted_changes_are_rolled_back() {
        let engine = engine();
        engine.execute("CREATE TABLE a (x INTEGER PRIMARY KEY) STRICT", &[]).unwrap();
        let transaction = Transaction::begin(&engine, TransactionMode::Write).unwrap();
        engine.execute("INSERT INTO a VALUES ($1)", values![1_i64]).unwrap();
        let result = engine.execute("INSERT INTO a VALUES ($1)", values![1_i64]);
        assert!(matches!(result, Err(DatabaseError::Duplicate { .. })));
        drop(transaction);
        assert!(engine.query("SELECT x FROM a", &[]).unwrap().is_empty());
        let transaction = Transaction::begin(&engine, TransactionMode::Write).unwrap();
        engine.execute("INSERT INTO a VALUES ($1)", values![1_i64]).unwrap();
        transaction.commit().unwrap();
        let rows = engine.query("SELECT x FROM a", &[]).unwrap();
        assert_eq!(rows[0].get::<i64>(0).unwrap(), 1);
        assert!(rows[0].get::<String>(0).is_err() && rows[0].get::<i64>(7).is_err());
    }

    #[test]
    fn pairs_equal_rows_and_reject_others() {
        let engine = engine();
        let pairs = |sql| {
            let mut rows = Vec::new();
            engine.each_pair(sql, values![7_i64], &mut |first, second| rows.push((first, second))).map(|()| rows)
        };
        assert_eq!(pairs("SELECT 1, 0.5 UNION ALL SELECT $1, -2.0").unwrap(), [(1, 0.5), (7, -2.0)]);
        for (sql, column) in [("SELECT 'x', 0.5", 0), ("SELECT 1.5, 0.5", 0), ("SELECT 1, NULL", 1), ("SELECT 1, 2", 1)]
        {
            let expected = format!("memory is damaged: {}", WrongColumn(column));
            assert_eq!(pairs(sql).unwrap_err().to_string(), expected, "{sql}");
        }
        assert!(matches!(pairs("SELECT 1"), Err(DatabaseError::Other { .. })));
    }
}
