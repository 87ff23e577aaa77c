//! The layout of the database, as the sequence of steps that led to it.
//!
//! A step that has been released is never edited, only followed by the next one; `schema.md` describes the outcome.

use rusqlite::{Connection, Result, Transaction, TransactionBehavior};

/// Marks a SQLite file as ours: "kelv" in ASCII, kept in the file's header.
pub(crate) const APPLICATION_ID: i64 = 0x6b65_6c76;

/// The newest layout that this program knows: the number of steps.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// The steps in the dialect of SQLite, from which `postgres_dialect` makes that of PostgreSQL.
const MIGRATIONS: [&str; 1] = [LAYOUT_1];

const LAYOUT_1: &str = "
CREATE TABLE run (
    key           INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    format        INTEGER NOT NULL,
    started       TEXT    NOT NULL,
    started_us    INTEGER NOT NULL,
    machine       TEXT    NOT NULL,
    cpu_model     TEXT,
    mode          TEXT    NOT NULL,
    kelvin        TEXT    NOT NULL,
    header        BLOB    NOT NULL,
    status        TEXT    CHECK (status IN ('complete', 'partial')),
    partial_reason TEXT    CHECK ((partial_reason IS NOT NULL) = (status IS 'partial')),
    seconds       REAL    CHECK ((seconds IS NOT NULL) = (status IS NOT NULL)),
    notes         TEXT    CHECK ((notes IS NOT NULL) = (status IS NOT NULL))
) STRICT;
CREATE INDEX run_by_time ON run (started_us, id);
CREATE INDEX run_by_machine ON run (machine, status, started_us, id);

CREATE TABLE round (
    key           INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    sequence      INTEGER NOT NULL,
    probe         TEXT    NOT NULL,
    axes          TEXT    NOT NULL,
    round         INTEGER NOT NULL,
    start_seconds REAL    NOT NULL,
    outcome       TEXT    NOT NULL CHECK (outcome IN ('measured', 'skipped', 'failed')),
    payload       BLOB    NOT NULL,
    UNIQUE (run, sequence)
) STRICT;

CREATE TABLE skip (
    run           INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    sequence      INTEGER NOT NULL,
    probe         TEXT    NOT NULL,
    axes          TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    PRIMARY KEY (run, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE conclusion (
    run           INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    payload       BLOB    NOT NULL
) STRICT;

CREATE TABLE series (
    key           INTEGER PRIMARY KEY,
    metric        TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    axes          TEXT    NOT NULL,
    UNIQUE (metric, version, axes)
) STRICT;

CREATE TABLE headline (
    series        INTEGER NOT NULL REFERENCES series (key),
    run           INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    value         REAL    NOT NULL,
    within_variance REAL  NOT NULL CHECK (within_variance >= 0),
    PRIMARY KEY (series, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX headline_by_run ON headline (run);

CREATE TABLE tag (
    run           INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    name          TEXT    NOT NULL,
    value         TEXT    NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX tag_by_value ON tag (name, value);

CREATE TABLE note (
    run           INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    text          TEXT    NOT NULL
) STRICT;

CREATE TABLE pending_upload (
    run           INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    server        TEXT    NOT NULL
) STRICT;
";

/// What a server has before the first step: a schema of our own, and the version of its layout.
#[cfg(feature = "postgres")]
const POSTGRES_LAYOUT: &str = "
CREATE SCHEMA IF NOT EXISTS kelvin;
CREATE TABLE layout (version BIGINT NOT NULL);
INSERT INTO layout VALUES (0);
";

/// A step in the dialect of PostgreSQL: the same tables and columns. Texts are ordered by their bytes, as SQLite orders them, whatever the
/// language of the database.
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
    let done = usize::try_from(version).unwrap_or(MIGRATIONS.len());
    MIGRATIONS.iter().enumerate().skip(done).map(|(place, step)| {
        let before = if place == 0 { POSTGRES_LAYOUT } else { "" };
        format!("{before}{}; UPDATE layout SET version = {}", postgres_dialect(step), place + 1)
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
    let done = usize::try_from(version).unwrap_or(MIGRATIONS.len()).min(MIGRATIONS.len());
    for step in &MIGRATIONS[done..] {
        transaction.execute_batch(step)?;
    }
    if done < MIGRATIONS.len() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()
}
