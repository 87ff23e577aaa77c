//! What a store asks of its database: statements with values, rows back, and transactions.
//!
//! One text of SQL serves all databases: parameters are `$1`, `$2` and so on, limits are numbers, and nothing but the layout
//! itself is spelled in the dialect of one of them.

use rusqlite::ToSql;
use rusqlite::types::{FromSql, ToSqlOutput};

use crate::error::DatabaseError;

/// One value of a row or of a statement, of the types that SQLite has.
pub(crate) use rusqlite::types::Value as SqlValue;

/// A database that holds a store: one connection to it.
pub(crate) trait SqlConnection: std::fmt::Debug {
    /// The database, in words.
    fn name(&self) -> &str;

    /// Gives each row of a statement to `row`, which may take its values; the first error ends it.
    fn each_row(&self, sql: &str, values: &[SqlValue], row: &mut RowReader<'_>) -> SqlResult<()>;

    /// Gives the first two columns of each row to `pair`: a history has millions of rows, and a database may make no value of each.
    fn each_pair(&self, sql: &str, values: &[SqlValue], pair: &mut dyn FnMut(i64, f64)) -> SqlResult<()>;

    /// A subquery for the keys in the JSON array that is this value of a statement.
    fn keys_of_json(&self, value: usize) -> String;

    /// Gives run, series and value of each headline of runs and series to `headline`; their keys are JSON arrays.
    fn each_headline(&self, keys: [&str; 2], headline: &mut dyn FnMut(i64, i64, f64)) -> SqlResult<()>;

    /// The few rows that a statement gives: more are no answer to it, and not kept.
    fn query(&self, sql: &str, values: &[SqlValue]) -> SqlResult<Vec<SqlRow>> {
        const MAX_QUERY_ROWS: usize = 10_000;
        let mut rows = Vec::new();
        let read = self.each_row(sql, values, &mut |row| {
            rows.push(std::mem::take(row));
            if rows.len() > MAX_QUERY_ROWS { Err(WrongColumn(0)) } else { Ok(()) }
        });
        match rows.len() > MAX_QUERY_ROWS {
            true => Err(DatabaseError::Damaged(self.name().to_owned(), "it gives rows without end".into())),
            false => read.map(|()| rows),
        }
    }

    /// Runs a statement; returns how many rows it changed.
    fn execute(&self, sql: &str, values: &[SqlValue]) -> SqlResult<u64>;

    /// Runs a statement once for each of these values, in their order, within the transaction that is open.
    fn execute_each(&self, sql: &str, parameters: &mut dyn Iterator<Item = Vec<SqlValue>>) -> SqlResult<()>;

    /// Begins a transaction.
    fn begin(&self, access: TransactionMode) -> SqlResult<()>;

    /// Makes durable what was done since `begin`.
    fn commit(&self) -> SqlResult<()>;

    /// Undoes what was done since `begin`, as far as the database has not done so by itself.
    fn roll_back(&self);

    /// Gives the space of deleted rows back.
    fn reclaim(&self) -> SqlResult<()>;
}

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionMode {
    /// Reads of one moment.
    Snapshot,
    /// Writes, in an order with those of others.
    Write,
}

/// The answer of a database.
pub(crate) type SqlResult<T> = Result<T, DatabaseError>;

/// A transaction that is rolled back unless it is committed.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    engine: &'a dyn SqlConnection,
    is_open: bool,
}

impl<'a> Transaction<'a> {
    /// Begins one.
    pub(crate) fn begin(engine: &'a dyn SqlConnection, access: TransactionMode) -> SqlResult<Self> {
        engine.begin(access)?;
        Ok(Self { engine, is_open: true })
    }

    /// Makes durable what was done in it.
    pub(crate) fn commit(mut self) -> SqlResult<()> {
        self.engine.commit()?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.engine.roll_back();
        }
    }
}

/// A value as one of a statement.
///
/// # Panics
/// If its type is none that SQLite has, which is a bug of this program.
pub(crate) fn sql_value(value: impl ToSql) -> SqlValue {
    match value.to_sql() {
        Ok(ToSqlOutput::Owned(value)) => value,
        Ok(ToSqlOutput::Borrowed(value)) => value.try_into().expect("a text is UTF-8"),
        other => unreachable!("{other:?} is no value of a database"),
    }
}

/// The values of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::sql::sql_value($value)),*] };
}
pub(crate) use values;

/// What is done with each row.
pub(crate) type RowReader<'a> = dyn FnMut(&mut SqlRow) -> Result<(), WrongColumn> + 'a;

/// A row that a statement gave.
#[derive(Debug, Default)]
pub(crate) struct SqlRow(pub(crate) Vec<SqlValue>);

/// A column that is missing or holds something else than it must.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("column {0} of a row holds something else than it must")]
pub(crate) struct WrongColumn(pub(crate) usize);

impl WrongColumn {
    /// As an error of the store with this name.
    pub(crate) fn in_store(self, store: &str) -> DatabaseError {
        DatabaseError::Damaged(store.to_owned(), self.into())
    }
}

impl SqlRow {
    /// The value of a column, counted from 0.
    pub(crate) fn get<T: FromSql>(&self, column: usize) -> Result<T, WrongColumn> {
        let value = self.0.get(column).and_then(|value| T::column_result(value.into()).ok());
        value.ok_or(WrongColumn(column))
    }
}

/// All rows that a query gives.
pub(crate) fn rows<T>(
    engine: &dyn SqlConnection,
    sql: &str,
    values: &[SqlValue],
    row: impl Fn(&SqlRow) -> Result<T, WrongColumn>,
) -> SqlResult<Vec<T>> {
    let mut results = Vec::new();
    engine.each_row(sql, values, &mut |sql_row| {
        results.push(row(sql_row)?);
        Ok(())
    })?;
    Ok(results)
}

/// A limit as a number; none is the largest.
pub(crate) fn sql_limit(limit: Option<usize>) -> i64 {
    limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX)
}
