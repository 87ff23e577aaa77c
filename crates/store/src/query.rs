//! Finding, listing, loading and deleting runs.

use std::collections::BTreeMap;

use kelvin_core::{Case, Event, Labels, Name, RUN_FORMAT, Run, RunHeader, RunStatus, SkipReason};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::Store;
use crate::conclusion::RunConclusion;
use crate::error::{DatabaseError, FindError, LoadError};
use crate::labels;
use crate::payload::unpack;
use crate::run_key::key_of;
use crate::sql::{
    SqlConnection, SqlResult, SqlRow, SqlValue, Transaction, TransactionMode, WrongColumn, rows, sql_limit, values,
};
use crate::tag::Tag;

/// How many candidates an ambiguous name lists.
const MAX_CANDIDATES: usize = 8;

/// Which runs to list; by default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of the machine with this identity.
    pub machine: Option<String>,
    /// Only runs of this mode, such as `quick`.
    pub mode: Option<String>,
    /// Only runs that did all that was planned.
    pub complete: bool,
    /// Only runs that have all these tags.
    pub tags: Vec<Tag>,
    /// At most this many, the newest ones.
    pub limit: Option<usize>,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunSummary {
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
    /// `quick`, `default`, `thorough`, `study` or `watch`.
    pub mode: String,
    /// Version of kelvin that made it.
    pub kelvin: String,
    /// Rounds that gave readings.
    pub measured_rounds: u64,
    /// Bytes that its data takes in the store, compressed.
    pub bytes: u64,
    /// Its tags and its note.
    #[serde(flatten, serialize_with = "serialize_all_labels")]
    pub labels: Labels,
    /// The server that is yet to get it, if there is one; see [`Recorder::for_server`](crate::Recorder::for_server).
    pub pending_server: Option<String>,
}

/// Labels with those that are not there.
fn serialize_all_labels<S: Serializer>(labels: &Labels, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("Labels", 2)?;
    fields.serialize_field("tags", &labels.tags)?;
    fields.serialize_field("note", &labels.note)?;
    fields.end()
}

impl Store {
    /// The stored runs that pass the filter, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn list(&self, filter: &RunFilter) -> Result<Vec<RunSummary>, DatabaseError> {
        let _snapshot = Transaction::begin(self.connection(), TransactionMode::Snapshot)?;
        run_summaries(self.connection(), filter)
    }

    /// The id that a name means: an id, a prefix of one, `last`, `last~N` for the Nth before the last, or `tag:NAME=VALUE` for the
    /// run with this tag.
    ///
    /// # Errors
    /// If no run or several match, or the store fails.
    pub fn find(&self, name: &str) -> Result<String, FindError> {
        if let Some(steps) = offset_from_last(name)? {
            return self.nth_newest(name, steps);
        }
        if let Some(tag) = Tag::parse_selector(name)? {
            let mut ids = self.ids_with_tag(&tag)?;
            ids.reverse();
            return single_match(name, ids);
        }
        if key_of(self.connection(), name)?.is_some() {
            return Ok(name.to_owned());
        }
        let select = "SELECT id FROM run WHERE substr(id, 1, length(CAST($1 AS TEXT))) = $1 AND $1 <> ''
                      ORDER BY started_us DESC, id DESC";
        single_match(name, self.rows(select, values![name], |row| row.get(0))?)
    }

    /// The ids that a name means, oldest first: those of all runs with a tag, or the one that [`find`](Self::find) finds.
    ///
    /// # Errors
    /// As of [`find`](Self::find), except that several may have the tag.
    pub fn find_all(&self, name: &str) -> Result<Vec<String>, FindError> {
        match Tag::parse_selector(name)? {
            Some(tag) => self.ids_with_tag(&tag),
            None => self.find(name).map(|id| vec![id]),
        }
    }

    /// The ids of the runs with a tag, at least one, oldest first.
    fn ids_with_tag(&self, tag: &Tag) -> Result<Vec<String>, FindError> {
        let select = "SELECT id FROM run JOIN tag ON tag.run = run.key WHERE name = $1 AND value = $2
                      ORDER BY started_us, id";
        let ids: Vec<String> = self.rows(select, values![tag.name(), tag.value()], |row| row.get(0))?;
        if ids.is_empty() { Err(FindError::NoneTagged(tag.clone())) } else { Ok(ids) }
    }

    /// The run that a name means, see [`find`](Self::find); a killed one is a partial run.
    ///
    /// # Errors
    /// If the name does not match exactly one run, or the run is damaged, or of a newer format, or the store fails.
    pub fn load(&self, name: &str) -> Result<Run, LoadError> {
        self.load_id(&self.find(name)?)
    }

    /// Deletes the run that a name means, see [`find`](Self::find), with everything learned from it; returns its id.
    /// [`reclaim`](Self::reclaim) returns the space to the file system.
    ///
    /// # Errors
    /// If the name does not match exactly one run, or the store fails.
    pub fn delete(&self, name: &str) -> Result<String, FindError> {
        let id = self.find(name)?;
        self.connection().execute("DELETE FROM run WHERE id = $1", values![&id])?;
        Ok(id)
    }

    /// All rows that a query gives.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        values: &[SqlValue],
        row: impl Fn(&SqlRow) -> Result<T, WrongColumn>,
    ) -> Result<Vec<T>, DatabaseError> {
        rows(self.connection(), sql, values, row)
    }

    /// Returns the space of deleted runs to the file system.
    ///
    /// # Errors
    /// If the store fails.
    pub fn reclaim(&self) -> Result<(), DatabaseError> {
        self.connection().reclaim()
    }

    fn nth_newest(&self, name: &str, steps: usize) -> Result<String, FindError> {
        let select = "SELECT id FROM run ORDER BY started_us DESC, id DESC LIMIT 1 OFFSET $1";
        let offset = i64::try_from(steps).unwrap_or(i64::MAX);
        if let Some(id) = self.rows(select, values![offset], |row| row.get::<String>(0))?.pop() {
            return Ok(id);
        }
        let count: Vec<i64> = self.rows("SELECT count(*) FROM run", &[], |row| row.get(0))?;
        match count[..] {
            [] | [0] => Err(FindError::Empty(self.name().to_owned())),
            [runs, ..] => Err(FindError::TooFarBack(name.to_owned(), runs.unsigned_abs() as usize)),
        }
    }

    /// The run with exactly this id, read at one moment even while another process adds to it.
    pub(crate) fn load_id(&self, id: &str) -> Result<Run, LoadError> {
        let snapshot = Transaction::begin(self.connection(), TransactionMode::Snapshot)?;
        let run_row = self.run_row(id)?;
        let damage_error =
            |part: &str, problem| LoadError::Damaged { id: id.to_owned(), part: part.to_owned(), problem };
        let mut run = Run::from_header(run_row.header(id)?);
        for event in self.events(run_row.key, id)? {
            run.apply(event);
        }
        if let Some(status) = run_row.status {
            let notes = kelvin_core::json::from_str(&run_row.notes)
                .map_err(|error| damage_error("the end", error.to_string()))?;
            run.apply(Event::Finished { status, seconds: run_row.seconds, notes });
        }
        let select = "SELECT payload FROM conclusion WHERE run = $1";
        if let Some(packed) = self.rows(select, values![run_row.key], |row| row.get::<Vec<u8>>(0))?.pop() {
            let conclusion: RunConclusion =
                unpack(&packed).map_err(|problem| damage_error("the conclusion", problem))?;
            run.predictions = conclusion.predictions;
            run.explanations = conclusion.explanations;
            run.kept_headlines = conclusion.kept_headlines;
            run.notes.extend(conclusion.notes);
        }
        run.labels = labels::labels_of(self, run_row.key)?;
        drop(snapshot);
        Ok(run)
    }

    /// The row of the run with exactly this id.
    pub(crate) fn run_row(&self, id: &str) -> Result<RunRow, LoadError> {
        let select = "SELECT key, format, header, status, partial_reason, seconds, notes FROM run WHERE id = $1";
        let row = self.rows(select, values![id], RunRow::from_row)?.pop();
        row.ok_or_else(|| LoadError::Find(FindError::None(id.to_owned())))
    }

    /// Rounds and skipped cases of a run as the events that they were, in their order.
    fn events(&self, run: i64, id: &str) -> Result<Vec<Event>, LoadError> {
        let select = "
            SELECT sequence, probe, axes, payload, NULL FROM round WHERE run = $1
            UNION ALL SELECT sequence, probe, axes, NULL, reason FROM skip WHERE run = $1
            ORDER BY sequence";
        let row = |row: &SqlRow| {
            let (sequence, probe, axes): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let part = format!("event {sequence} ({probe} {axes})");
            let event = stored_event(&probe, &axes, row.get(3)?, row.get(4)?);
            Ok(event.map_err(|problem| LoadError::Damaged { id: id.to_owned(), part, problem }))
        };
        self.rows(select, values![run], row)?.into_iter().collect()
    }
}

/// The row of a run.
pub(crate) struct RunRow {
    key: i64,
    format: u32,
    header: Vec<u8>,
    status: Option<RunStatus>,
    seconds: f64,
    notes: String,
}

impl RunRow {
    /// What was known of the run with this id before its first measurement.
    pub(crate) fn header(&self, id: &str) -> Result<RunHeader, LoadError> {
        if self.format > RUN_FORMAT {
            return Err(LoadError::Newer(id.to_owned(), self.format));
        }
        let damage_error = |problem| LoadError::Damaged { id: id.to_owned(), part: "the header".into(), problem };
        unpack(&self.header).map_err(damage_error)
    }

    fn from_row(row: &SqlRow) -> Result<Self, WrongColumn> {
        Ok(Self {
            key: row.get(0)?,
            // A number that is out of range is that of no format that this program knows.
            format: u32::try_from(row.get::<i64>(1)?).unwrap_or(u32::MAX),
            header: row.get(2)?,
            status: read_status(row, 3)?,
            seconds: row.get::<Option<f64>>(5)?.unwrap_or_default(),
            notes: row.get::<Option<String>>(6)?.unwrap_or_default(),
        })
    }
}

/// The event of a row of `round`, which has a payload, or of `skip`, which has a reason.
fn stored_event(probe: &str, axes: &str, payload: Option<Vec<u8>>, reason: Option<String>) -> Result<Event, String> {
    let probe = Name::intern(probe);
    let case: Case = kelvin_core::json::from_str(axes).map_err(|error| error.to_string())?;
    Ok(match payload {
        Some(packed) => Event::RoundFinished { probe, case, round: unpack(&packed)? },
        None => Event::CaseSkipped { probe, case, reason: SkipReason::new(reason.unwrap_or_default()) },
    })
}

/// The status in column `column`, its reason in the one after it.
fn read_status(row: &SqlRow, column: usize) -> Result<Option<RunStatus>, WrongColumn> {
    let reason: Option<String> = row.get(column + 1)?;
    let status: Option<String> = row.get(column)?;
    Ok(status.map(|_| reason.map_or(RunStatus::Complete, RunStatus::Partial)))
}

/// The runs that pass the filter, oldest first.
pub(crate) fn run_summaries(engine: &dyn SqlConnection, filter: &RunFilter) -> SqlResult<Vec<RunSummary>> {
    let mut values =
        values![filter.machine.clone(), filter.mode.clone(), filter.complete, sql_limit(filter.limit)].to_vec();
    let mut tag_conditions = String::new();
    for tag in &filter.tags {
        let name = values.len() + 1;
        tag_conditions += &format!(
            " AND EXISTS (SELECT 1 FROM tag WHERE tag.run = run.key AND name = ${name} AND value = ${})",
            name + 1
        );
        values.extend(values![tag.name(), tag.value()].iter().cloned());
    }
    let select = format!(
        "SELECT id, started, status, partial_reason, machine, cpu_model, mode, kelvin,
                (SELECT count(*) FROM round WHERE round.run = run.key AND outcome = 'measured'),
                length(header)
                  + (SELECT coalesce(sum(length(payload)), 0) FROM round WHERE round.run = run.key)
                  + coalesce((SELECT length(payload) FROM conclusion WHERE conclusion.run = run.key), 0),
                (SELECT text FROM note WHERE note.run = run.key), (SELECT server FROM pending_upload WHERE pending_upload.run = run.key), key
         FROM run
         WHERE (CAST($1 AS TEXT) IS NULL OR machine = $1) AND (CAST($2 AS TEXT) IS NULL OR mode = $2)
               AND ($3 = 0 OR status = 'complete'){tag_conditions}
         ORDER BY started_us DESC, id DESC LIMIT $4"
    );
    let mut summaries = rows(engine, &select, &values, |row| Ok((row.get::<i64>(12)?, read_summary(row)?)))?;
    summaries.reverse();
    let select_tags = "SELECT run, name, value FROM tag";
    let mut tags: BTreeMap<i64, BTreeMap<String, String>> = BTreeMap::new();
    for (run, name, value) in rows(engine, select_tags, &[], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))? {
        tags.entry(run).or_default().insert(name, value);
    }
    let with_tags = |(key, mut line): (i64, RunSummary)| {
        line.labels.tags = tags.remove(&key).unwrap_or_default();
        line
    };
    Ok(summaries.into_iter().map(with_tags).collect())
}

fn read_summary(row: &SqlRow) -> Result<RunSummary, WrongColumn> {
    Ok(RunSummary {
        id: row.get(0)?,
        started: row.get(1)?,
        status: read_status(row, 2)?,
        machine: row.get(4)?,
        cpu_model: row.get(5)?,
        mode: row.get(6)?,
        kelvin: row.get(7)?,
        measured_rounds: row.get::<i64>(8)?.unsigned_abs(),
        bytes: row.get::<i64>(9)?.unsigned_abs(),
        labels: Labels { note: row.get(10)?, ..Labels::default() },
        pending_server: row.get(11)?,
    })
}

/// The one id that a name means, or an error that lists the first of them.
fn single_match(name: &str, mut ids: Vec<String>) -> Result<String, FindError> {
    let suffix = match ids.len() {
        0 => return Err(FindError::None(name.to_owned())),
        1 => return Ok(ids.remove(0)),
        2..=MAX_CANDIDATES => String::new(),
        count => format!(" or {} more", count - MAX_CANDIDATES),
    };
    ids.truncate(MAX_CANDIDATES);
    Err(FindError::Ambiguous(name.to_owned(), ids.join(", ") + &suffix))
}

/// How far before the last run `last` (0) and `last~N` (N) go; `None` for any other name.
fn offset_from_last(name: &str) -> Result<Option<usize>, FindError> {
    if name == "last" {
        return Ok(Some(0));
    }
    let Some(offset) = name.strip_prefix("last~") else { return Ok(None) };
    let is_number = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_digit());
    match offset.parse() {
        Ok(steps) if is_number => Ok(Some(steps)),
        _ => Err(FindError::BadOffset(name.to_owned())),
    }
}
