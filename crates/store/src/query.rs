//! Finding, listing, loading and deleting runs.

use kelvin_model::{Case, Event, FORMAT, Name, Reason, Run, RunStatus};
use rusqlite::{OptionalExtension, Row, params};

use crate::Store;
use crate::error::{Fault, FindError, LoadError};
use crate::payload::unpack;
use crate::record::{Conclusion, key_of};

/// How many candidates an ambiguous name lists.
const CANDIDATES: usize = 8;

/// Which runs to list; by default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only runs of the machine with this identity.
    pub machine: Option<String>,
    /// Only runs of this mode, such as `quick`.
    pub mode: Option<String>,
    /// Only runs that did all that was planned.
    pub complete: bool,
    /// At most this many, the newest ones.
    pub limit: Option<usize>,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLine {
    /// Its id.
    pub id: String,
    /// Its start, RFC 3339 in UTC.
    pub started: String,
    /// How it ended; `None` if it was killed, or is still running.
    pub status: Option<RunStatus>,
    /// Identity of the machine.
    pub machine: String,
    /// Marketing name of the processor, if known.
    pub cpu_model: Option<String>,
    /// `quick`, `default`, `thorough` or `study`.
    pub mode: String,
    /// Version of kelvin that made it.
    pub kelvin: String,
    /// Rounds that gave readings.
    pub measured_rounds: u64,
    /// Bytes that its data takes in the store, compressed.
    pub bytes: u64,
}

impl Store {
    /// The stored runs that pass the filter, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn list(&self, filter: &Filter) -> Result<Vec<RunLine>, Fault> {
        let select = "
            SELECT id, started, status, partial_why, machine, cpu_model, mode, kelvin,
                   (SELECT count(*) FROM round WHERE round.run = run.key AND outcome = 'measured'),
                   length(outline)
                     + (SELECT coalesce(sum(length(payload)), 0) FROM round WHERE round.run = run.key)
                     + coalesce((SELECT length(payload) FROM conclusion WHERE conclusion.run = run.key), 0)
            FROM run
            WHERE (?1 IS NULL OR machine = ?1) AND (?2 IS NULL OR mode = ?2) AND (NOT ?3 OR status = 'complete')
            ORDER BY started_us DESC, id DESC LIMIT ?4";
        let values = params![filter.machine, filter.mode, filter.complete, sql_limit(filter.limit)];
        let mut lines = self.rows(select, values, run_line)?;
        lines.reverse();
        Ok(lines)
    }

    /// The id that a name means: an id, a prefix of one, `last`, or `last~N` for the Nth before the last.
    ///
    /// # Errors
    /// If no run or several match, or the store fails.
    pub fn find(&self, name: &str) -> Result<String, FindError> {
        if let Some(back) = offset_from_last(name)? {
            return self.nth_newest(name, back);
        }
        let exact = key_of(&self.connection, name).map_err(|error| self.fault(error))?;
        if exact.is_some() {
            return Ok(name.to_owned());
        }
        let select =
            "SELECT id FROM run WHERE substr(id, 1, length(?1)) = ?1 AND ?1 <> '' ORDER BY started_us DESC, id DESC";
        let mut fitting: Vec<String> = self.rows(select, [name], |row| row.get(0))?;
        match fitting.len() {
            0 => Err(FindError::None { name: name.to_owned() }),
            1 => Ok(fitting.remove(0)),
            found => {
                fitting.truncate(CANDIDATES);
                let left_out = found - fitting.len();
                Err(FindError::Ambiguous { name: name.to_owned(), candidates: fitting, left_out })
            }
        }
    }

    /// The run that a name means, see [`find`](Self::find); a killed one is a partial run.
    ///
    /// # Errors
    /// If the name does not match exactly one run, or the run is damaged, or of a newer format, or the store fails.
    pub fn load(&self, name: &str) -> Result<Run, LoadError> {
        self.load_id(&self.find(name)?)
    }

    /// Deletes the run that a name means, see [`find`](Self::find), with everything learned from it; returns its id.
    /// The space is returned to the file system.
    ///
    /// # Errors
    /// If the name does not match exactly one run, or the store fails.
    pub fn delete(&self, name: &str) -> Result<String, FindError> {
        let id = self.find(name)?;
        self.connection.execute("DELETE FROM run WHERE id = ?1", [&id]).map_err(|error| self.fault(error))?;
        self.shrink()?;
        Ok(id)
    }

    /// All rows that a query gives.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fault> {
        let read =
            || -> rusqlite::Result<Vec<T>> { self.connection.prepare_cached(sql)?.query_map(values, row)?.collect() };
        read().map_err(|error| self.fault(error))
    }

    fn nth_newest(&self, name: &str, back: usize) -> Result<String, FindError> {
        let select = "SELECT id FROM run ORDER BY started_us DESC, id DESC LIMIT 1 OFFSET ?1";
        let offset = i64::try_from(back).unwrap_or(i64::MAX);
        if let Some(id) = self.rows(select, [offset], |row| row.get(0))?.pop() {
            return Ok(id);
        }
        let count: Vec<i64> = self.rows("SELECT count(*) FROM run", [], |row| row.get(0))?;
        match count[..] {
            [] | [0] => Err(FindError::Empty { path: self.path.clone() }),
            [runs, ..] => Err(FindError::TooFarBack { name: name.to_owned(), runs: runs.unsigned_abs() as usize }),
        }
    }

    /// The run with exactly this id, read at one moment even while another process adds to it.
    fn load_id(&self, id: &str) -> Result<Run, LoadError> {
        let snapshot = self.connection.unchecked_transaction().map_err(|error| self.fault(error))?;
        let head = self.head(id)?;
        if head.format > FORMAT {
            return Err(LoadError::Newer { id: id.to_owned(), found: head.format });
        }
        let damaged = |part: &str, problem| LoadError::Damaged { id: id.to_owned(), part: part.to_owned(), problem };
        let outline = unpack(&head.outline).map_err(|problem| damaged("the outline", problem))?;
        let mut run = Run::begin(outline);
        for event in self.happenings(head.key, id)? {
            run.apply(event);
        }
        if let Some(status) = head.status {
            let notes = serde_json::from_str(&head.notes).map_err(|error| damaged("the end", error.to_string()))?;
            run.apply(Event::Finished { status, seconds: head.seconds, notes });
        }
        if let Some(packed) = self.conclusion(head.key)? {
            let conclusion: Conclusion = unpack(&packed).map_err(|problem| damaged("the conclusion", problem))?;
            run.predictions = conclusion.predictions;
            run.studies = conclusion.studies;
            run.notes.extend(conclusion.notes);
        }
        drop(snapshot);
        Ok(run)
    }

    fn head(&self, id: &str) -> Result<Head, LoadError> {
        let select = "SELECT key, format, outline, status, partial_why, seconds, notes FROM run WHERE id = ?1";
        let found = self.connection.query_row(select, [id], Head::of).optional().map_err(|error| self.fault(error))?;
        found.ok_or_else(|| LoadError::Find(FindError::None { name: id.to_owned() }))
    }

    fn conclusion(&self, run: i64) -> Result<Option<Vec<u8>>, Fault> {
        let select = "SELECT payload FROM conclusion WHERE run = ?1";
        self.connection.query_row(select, [run], |row| row.get(0)).optional().map_err(|error| self.fault(error))
    }

    /// Rounds and skipped cases of a run as the events that they were, in their order.
    fn happenings(&self, run: i64, id: &str) -> Result<Vec<Event>, LoadError> {
        let select = "
            SELECT sequence, probe, parameters, payload, NULL FROM round WHERE run = ?1
            UNION ALL SELECT sequence, probe, parameters, NULL, reason FROM skip WHERE run = ?1
            ORDER BY sequence";
        let rows: Vec<Happening> = self.rows(select, [run], Happening::of)?;
        rows.into_iter()
            .map(|row| {
                let part = format!("event {} ({} {})", row.sequence, row.probe, row.parameters);
                row.event().map_err(|problem| LoadError::Damaged { id: id.to_owned(), part, problem })
            })
            .collect()
    }

    /// Returns the pages of deleted rows to the file system.
    fn shrink(&self) -> Result<(), Fault> {
        self.rows("PRAGMA incremental_vacuum", [], |_| Ok(()))?;
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}

/// The row of a run.
struct Head {
    key: i64,
    format: u32,
    outline: Vec<u8>,
    status: Option<RunStatus>,
    seconds: f64,
    notes: String,
}

impl Head {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            key: row.get(0)?,
            format: row.get(1)?,
            outline: row.get(2)?,
            status: status(row, 3)?,
            seconds: row.get::<_, Option<f64>>(5)?.unwrap_or_default(),
            notes: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
        })
    }
}

/// A row of `round` or `skip`.
struct Happening {
    sequence: i64,
    probe: String,
    parameters: String,
    payload: Option<Vec<u8>>,
    reason: Option<String>,
}

impl Happening {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            sequence: row.get(0)?,
            probe: row.get(1)?,
            parameters: row.get(2)?,
            payload: row.get(3)?,
            reason: row.get(4)?,
        })
    }

    fn event(self) -> Result<Event, String> {
        let probe = Name::intern(&Name::today(&self.probe));
        let case: Case = serde_json::from_str(&self.parameters).map_err(|error| error.to_string())?;
        match (self.payload, self.reason) {
            (Some(packed), _) => Ok(Event::RoundFinished { probe, case, round: unpack(&packed)? }),
            (None, reason) => Ok(Event::CaseSkipped { probe, case, reason: Reason::new(reason.unwrap_or_default()) }),
        }
    }
}

/// The status in column `column`, its reason in the one after it.
fn status(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<RunStatus>> {
    let why: Option<String> = row.get(column + 1)?;
    let status: Option<String> = row.get(column)?;
    Ok(status.map(|_| why.map_or(RunStatus::Complete, RunStatus::Partial)))
}

fn run_line(row: &Row<'_>) -> rusqlite::Result<RunLine> {
    Ok(RunLine {
        id: row.get(0)?,
        started: row.get(1)?,
        status: status(row, 2)?,
        machine: row.get(4)?,
        cpu_model: row.get(5)?,
        mode: row.get(6)?,
        kelvin: row.get(7)?,
        measured_rounds: row.get::<_, i64>(8)?.unsigned_abs(),
        bytes: row.get::<_, i64>(9)?.unsigned_abs(),
    })
}

/// How far before the last run `last` (0) and `last~N` (N) go; `None` for any other name.
fn offset_from_last(name: &str) -> Result<Option<usize>, FindError> {
    if name == "last" {
        return Ok(Some(0));
    }
    let Some(offset) = name.strip_prefix("last~") else { return Ok(None) };
    let all_digits = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_digit());
    match offset.parse() {
        Ok(back) if all_digits => Ok(Some(back)),
        _ => Err(FindError::BadOffset { name: name.to_owned() }),
    }
}

/// SQLite's spelling of a limit: -1 is none.
pub(crate) fn sql_limit(limit: Option<usize>) -> i64 {
    limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX))
}
