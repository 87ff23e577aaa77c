//! What a store asks of its database: statements with values, rows back, and transactions.
//!
//! One text of SQL serves all databases: parameters are `$1`, `$2` and so on, limits are numbers, and nothing but the layout
//! itself is spelled in the dialect of one of them.

use crate::error::DatabaseError;

/// A database that holds a store: one connection to it.
pub(crate) trait SqlConnection: std::fmt::Debug {
    /// The database, in words.
    fn name(&self) -> &str;

    /// Gives each row of a statement to `row`, which may take its values; the first error ends it.
    fn each_row(&self, sql: &str, values: &[SqlValue], row: &mut RowReader<'_>) -> SqlResult<()>;

    /// Gives the first two columns of each row to `pair`: a history has millions of rows, and a database may make no value of each.
    fn each_pair(&self, sql: &str, values: &[SqlValue], pair: &mut dyn FnMut(i64, f64)) -> SqlResult<()> {
        self.each_row(sql, values, &mut |row| {
            pair(row.take(0)?, row.take(1)?);
            Ok(())
        })
    }

    /// The few rows that a statement gives: more are no answer to it, and not kept.
    fn query(&self, sql: &str, values: &[SqlValue]) -> SqlResult<Vec<SqlRow>> {
        const MAX_QUERY_ROWS: usize = 10_000;
        let mut rows = Vec::new();
        let read = self.each_row(sql, values, &mut |row| {
            rows.push(std::mem::take(row));
            if rows.len() > MAX_QUERY_ROWS { Err(WrongColumn(0)) } else { Ok(()) }
        });
        match rows.len() > MAX_QUERY_ROWS {
            true => Err(DatabaseError::Damaged {
                store: self.name().to_owned(),
                source: "it gives rows without end".into(),
            }
            .into()),
            false => read.map(|()| rows),
        }
    }

    /// Runs a statement; returns how many rows it changed.
    fn execute(&self, sql: &str, values: &[SqlValue]) -> SqlResult<u64>;

    /// Runs a statement once for each of these values, in their order, within the transaction that is open.
    fn execute_each(&self, sql: &str, each: &mut dyn Iterator<Item = Vec<SqlValue>>) -> SqlResult<()>;

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

/// What went wrong in a database.
#[derive(Debug)]
pub(crate) enum SqlError {
    /// A row with the same key is there.
    Duplicate,
    /// The row that it belongs to is not there.
    Orphan,
    /// A row holds something else than it must.
    WrongColumn(WrongColumn),
    /// The database cannot hold a value, in words.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only PostgreSQL has such values"))]
    NotStorable(String),
    /// The database failed.
    Database(DatabaseError),
}

impl From<DatabaseError> for SqlError {
    fn from(fault: DatabaseError) -> Self {
        Self::Database(fault)
    }
}

impl SqlError {
    /// As a fault of the store with this name, where no key can be the reason.
    pub(crate) fn into_database_error(self, store: &str) -> DatabaseError {
        let store = store.to_owned();
        match self {
            Self::Database(fault) => fault,
            Self::WrongColumn(source) => DatabaseError::Damaged { store, source: source.into() },
            Self::NotStorable(problem) => DatabaseError::Other { store, source: problem.into() },
            Self::Duplicate => DatabaseError::Other { store, source: "a row with this key is there already".into() },
            Self::Orphan => DatabaseError::Other { store, source: "the row that another belongs to is gone".into() },
        }
    }
}

/// What a database says.
pub(crate) type SqlResult<T> = Result<T, SqlError>;

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

/// One value of a row or of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SqlValue {
    /// None.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for SqlValue {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<bool> for SqlValue {
    fn from(is_true: bool) -> Self {
        Self::Integer(is_true.into())
    }
}

impl From<f64> for SqlValue {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for SqlValue {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for SqlValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The values of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::sql::SqlValue::from($value)),*] };
}
pub(crate) use values;

/// What is done with each row.
pub(crate) type RowReader<'a> = dyn FnMut(&mut SqlRow) -> Result<(), WrongColumn> + 'a;

/// A row that a statement gave.
#[derive(Debug, Default)]
pub(crate) struct SqlRow(pub(crate) Vec<SqlValue>);

/// What a column must hold.
pub(crate) trait FromSqlValue: Sized {
    /// It, if the value is one.
    fn from_value(value: SqlValue) -> Option<Self>;
}

impl FromSqlValue for u32 {
    fn from_value(value: SqlValue) -> Option<Self> {
        if let SqlValue::Integer(number) = value { Self::try_from(number).ok() } else { None }
    }
}

impl FromSqlValue for i64 {
    fn from_value(value: SqlValue) -> Option<Self> {
        if let SqlValue::Integer(number) = value { Some(number) } else { None }
    }
}

impl FromSqlValue for f64 {
    fn from_value(value: SqlValue) -> Option<Self> {
        if let SqlValue::Real(number) = value { Some(number) } else { None }
    }
}

impl FromSqlValue for String {
    fn from_value(value: SqlValue) -> Option<Self> {
        if let SqlValue::Text(text) = value { Some(text) } else { None }
    }
}

impl FromSqlValue for Vec<u8> {
    fn from_value(value: SqlValue) -> Option<Self> {
        if let SqlValue::Bytes(bytes) = value { Some(bytes) } else { None }
    }
}

impl<T: FromSqlValue> FromSqlValue for Option<T> {
    fn from_value(value: SqlValue) -> Option<Self> {
        if value == SqlValue::Null { Some(None) } else { T::from_value(value).map(Some) }
    }
}

/// A column that is missing or holds something else than it must.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("column {0} of a row holds something else than it must")]
pub(crate) struct WrongColumn(pub(crate) usize);

impl SqlRow {
    /// Takes the value of a column, counted from 0.
    pub(crate) fn take<T: FromSqlValue>(&mut self, column: usize) -> Result<T, WrongColumn> {
        let value = self.0.get_mut(column).map(|value| std::mem::replace(value, SqlValue::Null));
        value.and_then(T::from_value).ok_or(WrongColumn(column))
    }
}
