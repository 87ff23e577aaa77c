//! The layout of the database, as the sequence of steps that led to it.
//!
//! A step that has been released is never edited, only followed by the next one; `schema.md` describes the outcome.

use rusqlite::{Connection, Result, Transaction, TransactionBehavior};

/// Marks a SQLite file as ours: "kelv" in ASCII, kept in the file's header.
pub(crate) const APPLICATION_ID: i64 = 0x6b65_6c76;

/// The newest layout that this program knows: the number of steps.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// The steps in the dialect of SQLite, from which `postgres_dialect` makes that of PostgreSQL.
const MIGRATIONS: [&str; 2] = [include_str!("../data/layout_1.sql"), include_str!("../data/layout_2.sql")];

/// What only a server has after a step, by its number: views that dashboards query, in its own dialect.
#[cfg(feature = "postgres")]
const POSTGRES_VIEWS: [(usize, &str); 1] = [(2, include_str!("../data/dashboard_views.sql"))];

/// What a server has before the first step: a schema of our own, and the version of its layout.
#[cfg(feature = "postgres")]
const POSTGRES_LAYOUT: &str = "
CREATE SCHEMA IF NOT EXISTS kelvin;
CREATE TABLE layout (version BIGINT NOT NULL);
INSERT INTO layout VALUES (0);
";

/// A step in the dialect of PostgreSQL: the same tables and columns. Texts are ordered by their bytes, as SQLite orders them, in any
/// locale of the database.
#[cfg(feature = "postgres")]
fn postgres_dialect(step: &str) -> String {
    [
        ("key           INTEGER PRIMARY KEY", "key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
        (" INTEGER", " BIGINT"),
        (" REAL", " DOUBLE PRECISION"),
        (" BLOB", " BYTEA"),
        (" TEXT", " TEXT COLLATE \"C\""),
        ("status IS 'partial'", "status IS NOT DISTINCT FROM 'partial'"),
        (" STRICT, WITHOUT ROWID", ""),
        (" STRICT", ""),
    ]
    .into_iter()
    .fold(step.to_owned(), |step, (sqlite, postgres)| step.replace(sqlite, postgres))
}

/// The steps of a server from this version on, each with the note that it was done.
#[cfg(feature = "postgres")]
pub(crate) fn postgres_migrations(version: i64) -> impl Iterator<Item = String> {
    let applied = usize::try_from(version).unwrap_or(MIGRATIONS.len());
    MIGRATIONS.iter().enumerate().skip(applied).map(|(index, step)| {
        let prefix = if index == 0 { POSTGRES_LAYOUT } else { "" };
        let version = index + 1;
        let views = POSTGRES_VIEWS.iter().filter(|(after, _)| *after == version).map(|(_, views)| *views);
        let views = views.collect::<String>();
        format!("{prefix}{}; {views}; UPDATE layout SET version = {version}", postgres_dialect(step))
    })
}

/// The layout version of a database; 0 is an empty one.
pub(crate) fn schema_version(connection: &Connection) -> Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Brings the database to [`SCHEMA_VERSION`] in one transaction. A database that is newer already stays as it is.
pub(crate) fn migrate(connection: &Connection) -> Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Read again under the lock: another process may have done it meanwhile.
    let version = schema_version(&transaction)?;
    let applied = usize::try_from(version).unwrap_or(MIGRATIONS.len()).min(MIGRATIONS.len());
    for step in &MIGRATIONS[applied..] {
        transaction.execute_batch(step)?;
    }
    if applied < MIGRATIONS.len() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()
}
