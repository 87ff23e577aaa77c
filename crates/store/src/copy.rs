//! Runs from one store to another, with all that belongs to them.

use crate::error::{CopyError, DatabaseError, FindError, LoadError};
use crate::headlines::headlines_of;
use crate::recorder::InsertOutcome;
use crate::run_key::key_of;
use crate::sql::values;
use crate::{RunSummary, Store};

/// Copies a run by its line in one store to another one, in one transaction: after any interruption it is there whole or not
/// at all. A run that is there already is left as it is; tags and a note that it lacks are added.
///
/// # Errors
/// If the run cannot be read, the other store has another run with its id, or one of the stores fails.
pub fn copy(from: &Store, to: &Store, line: &RunSummary) -> Result<InsertOutcome, CopyError> {
    if to.has_same_run(line).map_err(|fault| CopyError::Load(fault.into()))? {
        to.add_labels(&line.id, &line.labels).map_err(|error| CopyError::Insert(error.into()))?;
        return Ok(InsertOutcome::AlreadyThere);
    }
    copy_compared(from, to, line)
}

/// Copies a run; one that is there already is compared with it sample by sample: the copy may be all that is left.
pub(crate) fn copy_compared(from: &Store, to: &Store, line: &RunSummary) -> Result<InsertOutcome, CopyError> {
    let id = &line.id;
    let run = from.load_id(id)?;
    let key = key_of(from.connection(), id).map_err(LoadError::from)?;
    let key = key.ok_or_else(|| LoadError::Find(FindError::None(id.clone())))?;
    let headlines = headlines_of(from, key)?;
    Ok(to.insert_all(&run, &headlines)?)
}

impl Store {
    /// Whether the same run is here, by all fields of its line: a store of a thousand runs is compared without reading a sample.
    fn has_same_run(&self, line: &RunSummary) -> Result<bool, DatabaseError> {
        let select = "SELECT 1 FROM run WHERE id = $1 AND started = $2 AND machine = $3 AND mode = $4 AND kelvin = $5
                      AND coalesce(status, '') = $6
                      AND (SELECT count(*) FROM round WHERE round.run = run.key AND outcome = 'measured') = $7
                      AND length(header) + (SELECT coalesce(sum(length(payload)), 0) FROM round WHERE round.run = run.key)
                          + coalesce((SELECT length(payload) FROM conclusion WHERE conclusion.run = run.key), 0) = $8";
        let status = line.status.as_ref().map_or("", |status| match status {
            kelvin_core::RunStatus::Complete => "complete",
            kelvin_core::RunStatus::Partial(_) => "partial",
        });
        let [rounds, bytes] = [line.measured_rounds, line.bytes].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        let parameters =
            values![&line.id, &line.started, &line.machine, &line.mode, &line.kelvin, status, rounds, bytes];
        Ok(!self.rows(select, parameters, |_| Ok(()))?.is_empty())
    }
}
