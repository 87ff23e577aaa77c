//! The rows by which runs and cases are identified.

use kelvin_core::Case;

use crate::error::DatabaseError;
use crate::sql::{SqlConnection, SqlResult, rows, values};

/// The row of a run.
pub(crate) fn key_of(engine: &dyn SqlConnection, id: &str) -> SqlResult<Option<i64>> {
    Ok(rows(engine, "SELECT key FROM run WHERE id = $1", values![id], |row| row.get(0))?.pop())
}

/// The row of a run that must be there.
pub(crate) fn existing_key(engine: &dyn SqlConnection, id: &str) -> SqlResult<i64> {
    key_of(engine, id)?.ok_or_else(|| orphan(engine))
}

pub(crate) fn orphan(engine: &dyn SqlConnection) -> DatabaseError {
    DatabaseError::Orphan(engine.name().to_owned())
}

/// A case as the text that identifies it: JSON with its axes in the order of their names.
pub(crate) fn axes_json(case: &Case) -> String {
    serde_json::to_string(case).expect("a case is JSON")
}
