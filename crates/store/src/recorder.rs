//! Storing a run: event by event while it is measured, or whole when it is imported.

use std::collections::HashSet;

use kelvin_core::{
    Case, Event, Fact, Labels, Name, Round, RoundOutcome, Run, RunHeader, RunStatus, SkipReason, StoredHeadline,
};

use crate::conclusion::RunConclusion;
use crate::error::{AppendError, DatabaseError, FindError, InsertError, LoadError};
use crate::headlines::put_headlines;
use crate::labels::{self, OldLabels};
use crate::payload::pack;
use crate::run_key::{axes_json, existing_key, orphan};
use crate::sql::{SqlConnection, SqlResult, SqlValue, Transaction, TransactionMode, rows, values};
use crate::{InvalidField, Store, check};

/// Appends the events of one run. An event is on the disk when [`event`](Self::event) returns.
#[derive(Debug)]
pub struct Recorder<'a> {
    store: &'a Store,
    labels: Labels,
    /// Whether rounds that measured something are stored.
    keeps_samples: bool,
    /// The server that is to get the run when it has ended.
    pending_server: Option<String>,
    started: Option<StartedRun>,
}

/// A run that has a row.
#[derive(Debug)]
struct StartedRun {
    key: i64,
    id: String,
    next_sequence: i64,
    metrics: HashSet<Name>,
}

/// The outcome of storing a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertOutcome {
    /// It is stored now.
    New,
    /// The same run was stored already.
    AlreadyThere,
}

impl Store {
    /// A recorder for one run.
    pub fn recorder(&self) -> Recorder<'_> {
        Recorder { store: self, labels: Labels::default(), keeps_samples: true, pending_server: None, started: None }
    }

    /// Stores the end that a run without one is read with.
    pub(crate) fn store_partial_end(&self, run: &Run) -> Result<(), AppendError> {
        let end = RunEnd { status: &run.status, seconds: run.seconds, notes: &[] };
        self.append_to(&run.header.id, |engine, key| store_end(engine, key, &end))
    }

    /// Stores what is known after the last round. A second call replaces what the first one stored.
    ///
    /// # Errors
    /// If there is no such run, the data is inconsistent, or the store fails.
    pub fn store_conclusion(&self, run_id: &str, conclusion: &RunConclusion) -> Result<(), AppendError> {
        let header = self.stored_header(run_id)?;
        check::check_conclusion(conclusion, &check::defined_metrics(&header.metrics))?;
        self.append_to(run_id, |engine, key| upsert_conclusion(engine, key, conclusion))
    }

    /// Replaces the header of a stored run by a more complete one: with the clock source after the last round, a
    /// frequency measured meanwhile. The plan must be the same.
    ///
    /// # Errors
    /// If there is no such run, the plan differs, the header is inconsistent, or the store fails.
    pub fn replace_header(&self, header: &RunHeader) -> Result<(), AppendError> {
        check::check_header(header)?;
        if self.stored_header(&header.id)?.plan != header.plan {
            return Err(AppendError::OtherPlan(header.id.clone()));
        }
        let update = "UPDATE run SET header = $2, machine = $3, cpu_model = $4 WHERE id = $1";
        let values = values![&header.id, pack(header), &header.machine.identity, cpu_model(header)];
        let row_count = self.connection().execute(update, values)?;
        if row_count == 0 { Err(AppendError::Gone(header.id.clone())) } else { Ok(()) }
    }

    /// Stores a whole run, as it was imported. A run that is stored already is left alone.
    ///
    /// # Errors
    /// If another run has its id, the run is inconsistent, or the store fails; then nothing of it is stored.
    pub fn insert(&self, run: &Run) -> Result<InsertOutcome, InsertError> {
        self.insert_all(run, &[])
    }

    /// Stores a whole run and what belongs to it, in one transaction. Of a run that is stored already only labels are added.
    pub(crate) fn insert_all(&self, run: &Run, headlines: &[StoredHeadline]) -> Result<InsertOutcome, InsertError> {
        check::check(run).map_err(AppendError::Invalid)?;
        match self.in_transaction(|engine| insert_whole(engine, run, headlines)) {
            Ok(()) => Ok(InsertOutcome::New),
            Err(DatabaseError::Duplicate(_)) => self.compare_with_stored(run),
            Err(error) => Err(append_error(error, &run.header.id).into()),
        }
    }

    /// Compares a run with the stored one with its id.
    fn compare_with_stored(&self, run: &Run) -> Result<InsertOutcome, InsertError> {
        let id = &run.header.id;
        // Labels are no part of the run.
        let stored = self.load(id).map(|stored| Run { labels: run.labels.clone(), ..stored });
        match stored {
            Ok(stored) if stored == *run => {
                self.add_labels(id, &run.labels)?;
                Ok(InsertOutcome::AlreadyThere)
            }
            Ok(_) => Err(InsertError::Differs(id.clone())),
            Err(LoadError::Find(FindError::Database(fault))) => Err(AppendError::Database(fault).into()),
            Err(source) => Err(InsertError::Incomparable(id.clone(), Box::new(source))),
        }
    }

    /// Adds labels to a stored run, unless there are none to add.
    pub(crate) fn add_labels(&self, id: &str, labels: &Labels) -> Result<(), AppendError> {
        if labels.is_empty() {
            return Ok(());
        }
        self.append_to(id, |engine, key| labels::put_labels(labels, engine, key, OldLabels::Kept))
    }

    /// One transaction on the rows of the run with this id.
    pub(crate) fn append_to(
        &self,
        id: &str,
        work: impl FnOnce(&dyn SqlConnection, i64) -> SqlResult<()>,
    ) -> Result<(), AppendError> {
        self.in_transaction(|engine| work(engine, existing_key(engine, id)?)).map_err(|error| append_error(error, id))
    }

    /// Runs statements in a transaction: all of them or none.
    pub(crate) fn in_transaction<T>(&self, work: impl FnOnce(&dyn SqlConnection) -> SqlResult<T>) -> SqlResult<T> {
        let transaction = Transaction::begin(self.connection(), TransactionMode::Write)?;
        let result = work(self.connection())?;
        transaction.commit()?;
        Ok(result)
    }

    /// The stored header of a run.
    fn stored_header(&self, id: &str) -> Result<RunHeader, AppendError> {
        let select = "SELECT header FROM run WHERE id = $1";
        let packed: Option<Vec<u8>> = self.rows(select, values![id], |row| row.get(0))?.pop();
        let packed = packed.ok_or_else(|| AppendError::Gone(id.to_owned()))?;
        crate::payload::unpack(&packed).map_err(|problem| {
            let field = format!("header of stored run {id}");
            AppendError::Invalid(InvalidField { field, problem })
        })
    }
}

/// What went wrong while parts of this run were stored.
fn append_error(error: DatabaseError, id: &str) -> AppendError {
    match error {
        DatabaseError::Duplicate(_) => AppendError::Duplicate(id.to_owned()),
        DatabaseError::Orphan(_) => AppendError::Gone(id.to_owned()),
        DatabaseError::NotStorable(_, problem) => AppendError::NotStorable(id.to_owned(), problem),
        error => AppendError::Database(error),
    }
}

impl Recorder<'_> {
    /// The run has these labels from its beginning.
    #[must_use]
    pub fn with_labels(self, labels: Labels) -> Self {
        Self { labels, ..self }
    }

    /// The run is kept by its headlines, which [`Store::store_conclusion`] stores: no sample is. One that is killed has none.
    #[must_use]
    pub fn without_samples(self) -> Self {
        Self { keeps_samples: false, ..self }
    }

    /// The run is kept here until that server has it; see [`Store::upload_pending`].
    #[must_use]
    pub fn for_server(self, server: &str) -> Self {
        Self { pending_server: Some(server.to_owned()), ..self }
    }

    /// Stores one event; those of progress are ignored.
    ///
    /// # Errors
    /// If the event is inconsistent in itself or with earlier ones, or the store fails. Events stored before stay.
    pub fn event(&mut self, event: &Event) -> Result<(), AppendError> {
        match event {
            Event::Started(header) => self.start(header),
            Event::RoundStarted { .. } | Event::Extended { .. } => Ok(()),
            Event::RoundFinished { round, .. }
                if !self.keeps_samples && matches!(round.outcome, RoundOutcome::Measured(_)) =>
            {
                Ok(())
            }
            Event::RoundFinished { probe, case, round } => {
                let started = self.started_run()?;
                let at_round =
                    |error: InvalidField| error.under_parent(format_args!("{probe} {case} round {}", round.index));
                check::check_round(round, &started.metrics).map_err(at_round)?;
                self.append(|engine, run, sequence| {
                    engine.execute(INSERT_ROUND, &round_values(run, sequence, (*probe, case), round)).map(drop)
                })
            }
            Event::CaseSkipped { probe, case, reason } => self.append(|engine, run, sequence| {
                engine.execute(INSERT_SKIP, &skip_values(run, sequence, (*probe, case), reason)).map(drop)
            }),
            Event::Finished { status, seconds, notes } => {
                check::check_not_negative("seconds", *seconds)?;
                self.append(|engine, run, _| store_end(engine, run, &RunEnd { status, seconds: *seconds, notes }))
            }
        }
    }

    fn started_run(&self) -> Result<&StartedRun, AppendError> {
        self.started.as_ref().ok_or(AppendError::NotStarted)
    }

    fn start(&mut self, header: &RunHeader) -> Result<(), AppendError> {
        if let Some(started) = &self.started {
            return Err(AppendError::AlreadyStarted(started.id.clone()));
        }
        check::check_header(header)?;
        let inserted_key = self.store.in_transaction(|engine| {
            let key = insert_header(engine, header)?;
            labels::put_labels(&self.labels, engine, key, OldLabels::Replaced)?;
            let insert_upload = "INSERT INTO pending_upload (run, server) VALUES ($1, $2)";
            self.pending_server
                .iter()
                .try_for_each(|server| engine.execute(insert_upload, values![key, server]).map(drop))?;
            Ok(key)
        });
        let key = inserted_key.map_err(|error| append_error(error, &header.id))?;
        let metrics = check::defined_metrics(&header.metrics);
        self.started = Some(StartedRun { key, id: header.id.clone(), next_sequence: 0, metrics });
        Ok(())
    }

    /// One transaction for one event; the sequence advances only if it was committed.
    fn append(
        &mut self,
        insert: impl FnOnce(&dyn SqlConnection, i64, i64) -> SqlResult<()>,
    ) -> Result<(), AppendError> {
        let started = self.started_run()?;
        let result = self.store.in_transaction(|engine| insert(engine, started.key, started.next_sequence));
        result.map_err(|error| append_error(error, &started.id))?;
        if let Some(started) = &mut self.started {
            started.next_sequence += 1;
        }
        Ok(())
    }
}

/// How a run ended.
struct RunEnd<'a> {
    status: &'a RunStatus,
    seconds: f64,
    notes: &'a [String],
}

const INSERT_ROUND: &str = "INSERT INTO round (run, sequence, probe, axes, round, start_seconds, outcome, payload)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

const INSERT_SKIP: &str = "INSERT INTO skip (run, sequence, probe, axes, reason) VALUES ($1, $2, $3, $4, $5)";

fn insert_header(engine: &dyn SqlConnection, header: &RunHeader) -> SqlResult<i64> {
    let insert = "INSERT INTO run (id, format, started, started_us, machine, cpu_model, mode, kelvin, header)
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING key";
    let values = values![
        &header.id,
        header.format,
        &header.started,
        check::parse_started(&header.started),
        &header.machine.identity,
        cpu_model(header),
        header.settings.mode.as_str(),
        &header.kelvin,
        pack(header),
    ];
    rows(engine, insert, values, |row| row.get(0))?.pop().ok_or_else(|| orphan(engine))
}

fn round_values(run: i64, sequence: i64, (probe, case): (Name, &Case), round: &Round) -> Vec<SqlValue> {
    let outcome = match round.outcome {
        RoundOutcome::Measured(_) => "measured",
        RoundOutcome::Skipped(_) => "skipped",
        RoundOutcome::Failed(_) => "failed",
    };
    values![run, sequence, probe.as_str(), axes_json(case), round.index, round.start_seconds, outcome, pack(round)]
        .to_vec()
}

fn skip_values(run: i64, sequence: i64, (probe, case): (Name, &Case), reason: &SkipReason) -> Vec<SqlValue> {
    values![run, sequence, probe.as_str(), axes_json(case), &reason.0].to_vec()
}

fn store_end(engine: &dyn SqlConnection, run: i64, end: &RunEnd<'_>) -> SqlResult<()> {
    let (status, reason) = match end.status {
        RunStatus::Complete => ("complete", None),
        RunStatus::Partial(reason) => ("partial", Some(reason)),
    };
    let notes = serde_json::to_string(end.notes).expect("words are JSON");
    let update = "UPDATE run SET status = $2, partial_reason = $3, seconds = $4, notes = $5 WHERE key = $1";
    match engine.execute(update, values![run, status, reason, end.seconds, notes])? {
        0 => Err(orphan(engine)),
        _ => Ok(()),
    }
}

fn upsert_conclusion(engine: &dyn SqlConnection, run: i64, conclusion: &RunConclusion) -> SqlResult<()> {
    let upsert = "INSERT INTO conclusion (run, payload) VALUES ($1, $2)
                  ON CONFLICT (run) DO UPDATE SET payload = excluded.payload";
    engine.execute(upsert, values![run, pack(conclusion)]).map(drop)
}

/// All rows of a run, measurement after measurement, so that it loads as it was.
fn insert_whole(engine: &dyn SqlConnection, run: &Run, headlines: &[StoredHeadline]) -> SqlResult<()> {
    let key = insert_header(engine, &run.header)?;
    let (mut rounds, mut skips, mut sequence) = (Vec::new(), Vec::new(), 0..);
    for measurement in &run.measurements {
        let planned = (measurement.planned.probe, &measurement.planned.case);
        rounds.extend(measurement.rounds.iter().zip(&mut sequence).map(|(round, number)| (number, planned, round)));
        skips.extend(measurement.skipped.iter().zip(&mut sequence).map(|(reason, number)| (number, planned, reason)));
    }
    engine.execute_each(
        INSERT_ROUND,
        &mut rounds.iter().map(|&(number, planned, round)| round_values(key, number, planned, round)),
    )?;
    engine.execute_each(
        INSERT_SKIP,
        &mut skips.iter().map(|&(number, planned, reason)| skip_values(key, number, planned, reason)),
    )?;
    store_end(engine, key, &RunEnd { status: &run.status, seconds: run.seconds, notes: &run.notes })?;
    upsert_conclusion(engine, key, &RunConclusion::from_run(run))?;
    put_headlines(engine, key, headlines, Some(run))?;
    labels::put_labels(&run.labels, engine, key, OldLabels::Replaced)
}

fn cpu_model(header: &RunHeader) -> Option<&str> {
    match &header.machine.cpu.model_name {
        Fact::Known { value, .. } => Some(value),
        Fact::Unknown { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Case, Event, Name, Round};

    use super::*;
    use crate::common::{sample_events, sample_header, sample_round};
    use crate::error::DatabaseError;

    /// What a PRAGMA of SQLite says.
    fn pragma(store: &Store, pragma: &str) -> i64 {
        store.rows(&format!("PRAGMA {pragma}"), &[], |row| row.get(0)).unwrap()[0]
    }

    #[test]
    fn full_disk_is_named_and_keeps_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.sqlite");
        let store = Store::open(&path).unwrap();
        // SQLite reports a file that may not grow exactly as it reports a disk without space.
        let pages = pragma(&store, "page_count");
        pragma(&store, &format!("max_page_count = {}", pages + 8));

        let mut recorder = store.recorder();
        recorder.event(&Event::Started(Box::new(sample_header("full")))).unwrap();
        let round = |index| Event::RoundFinished {
            probe: Name::new("os.syscall.null"),
            case: Case::new().with_word(kelvin_core::AxisWord::from_names("call", "getppid")),
            round: Box::new(sample_round(index)),
        };
        let mut stored_count = 0;
        let error = loop {
            match recorder.event(&round(stored_count)) {
                Ok(()) => stored_count += 1,
                Err(error) => break error,
            }
        };
        assert!(stored_count > 0);
        assert_eq!(
            error.to_string(),
            format!(
                "the disk that holds {} is full: `kelvin runs prune` deletes old runs there, or name another place by --store",
                path.display()
            )
        );
        assert!(matches!(error, AppendError::Database(DatabaseError::Full { .. })));
        assert_eq!(store.load("full").unwrap().measurements[0].rounds.len(), stored_count as usize);

        // With space again it continues where it stopped.
        pragma(&store, "max_page_count = 1000000");
        recorder.event(&round(stored_count)).unwrap();
        let rounds: Vec<Round> = store.load("full").unwrap().measurements.remove(0).rounds;
        assert_eq!(rounds.last().unwrap().index, stored_count);
    }

    #[test]
    fn locked_store_is_reported_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.sqlite");
        let (first, second) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
        pragma(&second, "busy_timeout = 20");
        let transaction = Transaction::begin(first.connection(), TransactionMode::Write).unwrap();
        let error = second.recorder().event(&sample_events()[0]).unwrap_err();
        assert!(matches!(error, AppendError::Database(DatabaseError::Locked { .. })), "{error}");
        drop(transaction);
        second.recorder().event(&sample_events()[0]).unwrap();
    }

    #[test]
    fn commits_are_durable_with_foreign_keys() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("runs.sqlite")).unwrap();
        let value = |name: &str| pragma(&store, name);
        assert_eq!(value("synchronous"), 2, "FULL: the log is flushed at each commit");
        assert_eq!(value("foreign_keys"), 1);
        assert_eq!(value("auto_vacuum"), 2, "incremental");
    }
}
