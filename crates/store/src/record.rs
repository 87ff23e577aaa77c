//! Storing a run: event by event while it is measured, or whole when it is imported.

use std::collections::HashSet;

use kelvin_model::{
    Attempt, Case, Event, Fact, Measurement, Name, Outline, PredictionRecord, Reason, Round, Run, RunStatus,
    WordedStudy,
};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

use crate::error::{AppendError, InsertError};
use crate::payload::pack;
use crate::{Store, check};

/// Appends the events of one run. An event is on the disk when [`event`](Self::event) returns.
#[derive(Debug)]
pub struct Recorder<'a> {
    store: &'a Store,
    started: Option<Begun>,
}

/// A run that has a row.
#[derive(Debug)]
struct Begun {
    key: i64,
    id: String,
    next_sequence: i64,
    metrics: HashSet<Name>,
}

/// The outcome of storing a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is stored now.
    New,
    /// The same run was stored already.
    AlreadyThere,
}

/// What is known of a run after its last round.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Conclusion {
    pub(crate) predictions: Vec<PredictionRecord>,
    pub(crate) studies: Vec<WordedStudy>,
    pub(crate) notes: Vec<String>,
}

impl Store {
    /// A recorder for one run.
    pub fn recorder(&self) -> Recorder<'_> {
        Recorder { store: self, started: None }
    }

    /// Stores what is known after the last round: predictions, studies, and notes that follow those of the
    /// [`Event::Finished`]. A second call replaces what the first one stored.
    ///
    /// # Errors
    /// If there is no such run, the data is inconsistent, or the store fails.
    pub fn finish(
        &self,
        run_id: &str,
        predictions: &[PredictionRecord],
        studies: &[WordedStudy],
        notes: &[String],
    ) -> Result<(), AppendError> {
        let outline = self.outline(run_id)?;
        let defined = check::defined(&outline.metrics);
        for (i, record) in predictions.iter().enumerate() {
            check::prediction(record, &defined, &format!("predictions[{i}]"))?;
        }
        let conclusion =
            Conclusion { predictions: predictions.to_vec(), studies: studies.to_vec(), notes: notes.to_vec() };
        self.in_transaction(|transaction| {
            let key = key_of(transaction, run_id)?.ok_or_else(|| rusqlite::Error::QueryReturnedNoRows)?;
            conclude(transaction, key, &conclusion)
        })
        .map_err(|error| self.append_error(error, run_id))
    }

    /// Replaces the outline of a stored run by a more complete one: with the clock source after the last round, a
    /// frequency measured meanwhile. The plan must be the same.
    ///
    /// # Errors
    /// If there is no such run, the plan differs, the outline is inconsistent, or the store fails.
    pub fn amend(&self, outline: &Outline) -> Result<(), AppendError> {
        check::outline(outline)?;
        if self.outline(&outline.id)?.plan != outline.plan {
            return Err(AppendError::OtherPlan { id: outline.id.clone() });
        }
        let update = "UPDATE run SET outline = ?2, machine = ?3, cpu_model = ?4 WHERE id = ?1";
        let values = params![outline.id, pack(outline), outline.machine.identity, cpu_model(outline)];
        let changed = self.connection.execute(update, values).map_err(|error| self.fault(error))?;
        if changed == 0 { Err(AppendError::Gone { id: outline.id.clone() }) } else { Ok(()) }
    }

    /// Stores a whole run, as it was imported. A run that is stored already is left alone.
    ///
    /// # Errors
    /// If another run has its id, the run is inconsistent, or the store fails; then nothing of it is stored.
    pub fn insert(&self, run: &Run) -> Result<Inserted, InsertError> {
        check::check(run).map_err(AppendError::Invalid)?;
        let id = &run.outline.id;
        if key_of(&self.connection, id).map_err(|error| self.fault(error))?.is_some() {
            let differs = || InsertError::Differs { id: id.clone() };
            return match self.load(id) {
                Ok(stored) if stored == *run => Ok(Inserted::AlreadyThere),
                Ok(_) => Err(differs()),
                Err(source) => Err(InsertError::Incomparable { id: id.clone(), source: Box::new(source) }),
            };
        }
        let stored = self.in_transaction(|transaction| whole(transaction, run));
        stored.map_err(|error| self.append_error(error, id))?;
        Ok(Inserted::New)
    }

    /// Runs SQL in a transaction that takes the write lock at once, so that it never fails half-way.
    pub(crate) fn in_transaction<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let result = work(&transaction)?;
        transaction.commit()?;
        Ok(result)
    }

    /// An error of SQLite while storing parts of this run.
    fn append_error(&self, error: rusqlite::Error, id: &str) -> AppendError {
        if is_unique_violation(&error) {
            return AppendError::Duplicate { id: id.to_owned() };
        }
        if is_orphan(&error) || matches!(error, rusqlite::Error::QueryReturnedNoRows) {
            return AppendError::Gone { id: id.to_owned() };
        }
        AppendError::Fault(self.fault(error))
    }

    /// The stored outline of a run.
    fn outline(&self, id: &str) -> Result<Outline, AppendError> {
        let packed: Option<Vec<u8>> = self
            .connection
            .query_row("SELECT outline FROM run WHERE id = ?1", [id], |row| row.get(0))
            .optional()
            .map_err(|error| self.fault(error))?;
        let packed = packed.ok_or_else(|| AppendError::Gone { id: id.to_owned() })?;
        crate::payload::unpack(&packed).map_err(|problem| {
            let field = format!("outline of stored run {id}");
            AppendError::Invalid(check::Invalid { field, problem })
        })
    }
}

impl Recorder<'_> {
    /// Stores one event; those of progress are ignored.
    ///
    /// # Errors
    /// If the event is inconsistent in itself or with earlier ones, or the store fails. Events stored before stay.
    pub fn event(&mut self, event: &Event) -> Result<(), AppendError> {
        match event {
            Event::Started(outline) => self.start(outline),
            Event::RoundStarted { .. } | Event::Lengthened { .. } => Ok(()),
            Event::RoundFinished { probe, case, round } => {
                let begun = self.begun()?;
                check::round(round, &begun.metrics, &format!("{probe} {case} round {}", round.index))?;
                self.append(|transaction, run, sequence| {
                    insert_round(transaction, run, sequence, (*probe, case), round)
                })
            }
            Event::CaseSkipped { probe, case, reason } => self
                .append(|transaction, run, sequence| insert_skip(transaction, run, sequence, (*probe, case), reason)),
            Event::Finished { status, seconds, notes } => {
                check::not_negative("seconds", *seconds)?;
                self.append(|transaction, run, _| end(transaction, run, &Ending { status, seconds: *seconds, notes }))
            }
        }
    }

    fn begun(&self) -> Result<&Begun, AppendError> {
        self.started.as_ref().ok_or(AppendError::NotStarted)
    }

    fn start(&mut self, outline: &Outline) -> Result<(), AppendError> {
        if let Some(begun) = &self.started {
            return Err(AppendError::AlreadyStarted { id: begun.id.clone() });
        }
        check::outline(outline)?;
        let inserted = self.store.in_transaction(|transaction| insert_outline(transaction, outline));
        let key = inserted.map_err(|error| self.store.append_error(error, &outline.id))?;
        let metrics = check::defined(&outline.metrics);
        self.started = Some(Begun { key, id: outline.id.clone(), next_sequence: 0, metrics });
        Ok(())
    }

    /// One transaction for one event; the sequence advances only if it was committed.
    fn append(
        &mut self,
        insert: impl FnOnce(&Transaction<'_>, i64, i64) -> rusqlite::Result<()>,
    ) -> Result<(), AppendError> {
        let begun = self.begun()?;
        let stored = self.store.in_transaction(|transaction| insert(transaction, begun.key, begun.next_sequence));
        stored.map_err(|error| self.store.append_error(error, &begun.id))?;
        if let Some(begun) = &mut self.started {
            begun.next_sequence += 1;
        }
        Ok(())
    }
}

/// How a run ended.
struct Ending<'a> {
    status: &'a RunStatus,
    seconds: f64,
    notes: &'a [String],
}

fn insert_outline(connection: &Connection, outline: &Outline) -> rusqlite::Result<i64> {
    let insert = "INSERT INTO run (id, format, started, started_us, machine, cpu_model, mode, kelvin, outline)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    connection.execute(
        insert,
        params![
            outline.id,
            outline.format,
            outline.started,
            check::started(&outline.started),
            outline.machine.identity,
            cpu_model(outline),
            outline.settings.mode.as_str(),
            outline.kelvin,
            pack(outline),
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

fn insert_round(
    connection: &Connection,
    run: i64,
    sequence: i64,
    (probe, case): (Name, &Case),
    round: &Round,
) -> rusqlite::Result<()> {
    let insert = "INSERT INTO round (run, sequence, probe, parameters, round, at, outcome, payload)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let outcome = match round.attempt {
        Attempt::Measured(_) => "measured",
        Attempt::Skipped(_) => "skipped",
        Attempt::Failed(_) => "failed",
    };
    let payload = pack(round);
    let values = params![run, sequence, probe.as_str(), parameters(case), round.index, round.at, outcome, payload];
    connection.prepare_cached(insert)?.execute(values)?;
    Ok(())
}

fn insert_skip(
    connection: &Connection,
    run: i64,
    sequence: i64,
    (probe, case): (Name, &Case),
    reason: &Reason,
) -> rusqlite::Result<()> {
    let insert = "INSERT INTO skip (run, sequence, probe, parameters, reason) VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.execute(insert, params![run, sequence, probe.as_str(), parameters(case), reason.0])?;
    Ok(())
}

fn end(connection: &Connection, run: i64, ending: &Ending<'_>) -> rusqlite::Result<()> {
    let (status, why) = match ending.status {
        RunStatus::Complete => ("complete", None),
        RunStatus::Partial(why) => ("partial", Some(why)),
    };
    let notes = serde_json::to_string(ending.notes).expect("words are JSON");
    let update = "UPDATE run SET status = ?2, partial_why = ?3, seconds = ?4, notes = ?5 WHERE key = ?1";
    match connection.execute(update, params![run, status, why, ending.seconds, notes])? {
        0 => Err(rusqlite::Error::QueryReturnedNoRows),
        _ => Ok(()),
    }
}

fn conclude(connection: &Connection, run: i64, conclusion: &Conclusion) -> rusqlite::Result<()> {
    let upsert = "INSERT INTO conclusion (run, payload) VALUES (?1, ?2)
                  ON CONFLICT (run) DO UPDATE SET payload = excluded.payload";
    connection.execute(upsert, params![run, pack(conclusion)])?;
    Ok(())
}

/// All rows of a run, measurement after measurement, so that it loads as it was.
fn whole(connection: &Connection, run: &Run) -> rusqlite::Result<()> {
    let key = insert_outline(connection, &run.outline)?;
    let mut sequence = 0;
    for Measurement { planned, rounds, skipped } in &run.measurements {
        let of = (planned.probe, &planned.case);
        for round in rounds {
            insert_round(connection, key, sequence, of, round)?;
            sequence += 1;
        }
        if let Some(reason) = skipped {
            insert_skip(connection, key, sequence, of, reason)?;
            sequence += 1;
        }
    }
    end(connection, key, &Ending { status: &run.status, seconds: run.seconds, notes: &run.notes })?;
    let conclusion =
        Conclusion { predictions: run.predictions.clone(), studies: run.studies.clone(), notes: Vec::new() };
    conclude(connection, key, &conclusion)
}

/// The row of a run.
pub(crate) fn key_of(connection: &Connection, id: &str) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT key FROM run WHERE id = ?1", [id], |row| row.get(0)).optional()
}

/// A case as the text that identifies it: JSON with its axes in the order of their names.
pub(crate) fn parameters(case: &Case) -> String {
    serde_json::to_string(case).expect("a case is JSON")
}

fn cpu_model(outline: &Outline) -> Option<&str> {
    match &outline.machine.cpu.model_name {
        Fact::Known { value, .. } => Some(value),
        Fact::Unknown { .. } => None,
    }
}

fn is_unique_violation(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE};
    matches!(error.sqlite_error(), Some(code) if code.code == ErrorCode::ConstraintViolation
        && [SQLITE_CONSTRAINT_UNIQUE, SQLITE_CONSTRAINT_PRIMARYKEY].contains(&code.extended_code))
}

fn is_orphan(error: &rusqlite::Error) -> bool {
    let orphan = rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
    matches!(error.sqlite_error(), Some(code) if code.extended_code == orphan)
}

#[cfg(test)]
mod tests {
    use kelvin_model::{Case, Event, Name, Round};

    use super::*;
    use crate::common::{sample_events, sample_outline, sample_round};
    use crate::error::Fault;

    #[test]
    fn a_full_disk_is_named_and_what_was_stored_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.sqlite");
        let store = Store::open(&path).unwrap();
        // SQLite reports a file that may not grow exactly as it reports a disk without space.
        let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        store.connection.pragma_update(None, "max_page_count", pages + 8).unwrap();

        let mut recorder = store.recorder();
        recorder.event(&Event::Started(Box::new(sample_outline("full")))).unwrap();
        let round = |index| Event::RoundFinished {
            probe: Name::new("os.syscall.null"),
            case: Case::new().at(kelvin_model::Point::named("call", "getppid")),
            round: Box::new(sample_round(index)),
        };
        let mut stored = 0;
        let error = loop {
            match recorder.event(&round(stored)) {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(stored > 0);
        assert_eq!(error.to_string(), format!("the disk that holds {} is full", path.display()));
        assert!(matches!(error, AppendError::Fault(Fault::Full { .. })));
        assert_eq!(store.load("full").unwrap().measurements[0].rounds.len(), stored as usize);

        // With space again it continues where it stopped.
        store.connection.pragma_update(None, "max_page_count", 1_000_000).unwrap();
        recorder.event(&round(stored)).unwrap();
        let rounds: Vec<Round> = store.load("full").unwrap().measurements.remove(0).rounds;
        assert_eq!(rounds.last().unwrap().index, stored);
    }

    #[test]
    fn a_store_that_another_process_holds_is_said_to_be_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.sqlite");
        let (one, other) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
        other.connection.busy_timeout(std::time::Duration::from_millis(20)).unwrap();
        let held = Transaction::new_unchecked(&one.connection, TransactionBehavior::Immediate).unwrap();
        let error = other.recorder().event(&sample_events()[0]).unwrap_err();
        assert!(matches!(error, AppendError::Fault(Fault::Locked { .. })), "{error}");
        drop(held);
        other.recorder().event(&sample_events()[0]).unwrap();
    }

    #[test]
    fn commits_reach_the_disk_and_references_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("runs.sqlite")).unwrap();
        let ask =
            |pragma: &str| -> i64 { store.connection.pragma_query_value(None, pragma, |row| row.get(0)).unwrap() };
        assert_eq!(ask("synchronous"), 2, "FULL: the log is flushed at each commit");
        assert_eq!(ask("foreign_keys"), 1);
        assert_eq!(ask("auto_vacuum"), 2, "incremental");
    }
}
