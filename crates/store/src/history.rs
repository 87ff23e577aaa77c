//! Histories: the headlines of many runs of one machine, series by series, read without any sample.

use std::collections::{BTreeMap, HashMap, HashSet};

use kelvin_model::grammar::ID;
use kelvin_model::{Case, FORMAT, Name, Outline};
use rusqlite::params;

use crate::Store;
use crate::error::{Fault, FindError, LoadError};
use crate::payload::unpack;
use crate::query::sql_limit;

/// How many of a machine's newest runs are looked through for its latest values, where it is one of many.
const LATEST_IN: usize = 10;

/// Runs of one machine in one mode that have headlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRuns {
    /// Identity of the machine.
    pub machine: String,
    /// Marketing name of its processor in its newest run, if known.
    pub cpu_model: Option<String>,
    /// `quick`, `default`, `thorough` or `study`.
    pub mode: String,
    /// How many there are.
    pub runs: usize,
    /// Id of the newest.
    pub newest: String,
}

/// A run of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInHistory {
    key: i64,
    /// Its id.
    pub id: String,
    /// Its start, RFC 3339 in UTC.
    pub started: String,
    /// The same in microseconds since 1970.
    pub started_us: i64,
}

/// A metric at a case by one version of its method, over runs.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSeries {
    /// Id of the metric.
    pub metric: Name,
    /// Version of its method.
    pub version: u32,
    /// The case.
    pub case: Case,
    /// Its values in the order of the runs, each with the index of its run; at least one.
    pub values: Vec<StoredValue>,
}

/// The value of a series in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredValue {
    /// Index of the run.
    pub run: usize,
    /// The headline, in the metric's unit.
    pub value: f64,
}

/// A series by what identifies it: metric, version of its method, case.
pub type Identified = (Name, u32, Case);

impl Store {
    /// The machines and modes of which complete runs have headlines, the newest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn machines(&self) -> Result<Vec<MachineRuns>, Fault> {
        // A bare column beside max() is of the row that has the maximum.
        let select = "
            SELECT machine, cpu_model, mode, count(*), id, max(started_us) FROM run INDEXED BY run_by_machine
            WHERE status = 'complete' AND EXISTS (SELECT 1 FROM headline WHERE headline.run = run.key)
            GROUP BY machine, mode ORDER BY 6 DESC, 1, 3";
        self.rows(select, [], |row| {
            Ok(MachineRuns {
                machine: row.get(0)?,
                cpu_model: row.get(1)?,
                mode: row.get(2)?,
                runs: usize::try_from(row.get::<_, i64>(3)?).unwrap_or(usize::MAX),
                newest: row.get(4)?,
            })
        })
    }

    /// The newest complete runs with headlines of machines with these identities in a mode, at most `limit`, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn runs_in_history(&self, machines: &[String], mode: &str, limit: usize) -> Result<Vec<RunInHistory>, Fault> {
        let machines = serde_json::json!(machines).to_string();
        let select = "
            SELECT key, id, started, started_us FROM run
            WHERE machine IN (SELECT value FROM json_each(?1)) AND status = 'complete' AND mode = ?2
            AND EXISTS (SELECT 1 FROM headline WHERE headline.run = run.key)
            ORDER BY started_us DESC, id DESC LIMIT ?3";
        let mut runs = self.rows(select, params![machines, mode, sql_limit(Some(limit))], |row| {
            Ok(RunInHistory { key: row.get(0)?, id: row.get(1)?, started: row.get(2)?, started_us: row.get(3)? })
        })?;
        runs.reverse();
        Ok(runs)
    }

    /// The values of these runs, of the series that are wanted by the id of their metric; in the order of ids, cases and versions. A
    /// metric under its former id is that of today.
    ///
    /// # Errors
    /// If the store fails, or a row of it is damaged.
    pub fn histories(
        &self,
        runs: &[RunInHistory],
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<StoredSeries>, LoadError> {
        let places: HashMap<i64, usize> = runs.iter().enumerate().map(|(index, run)| (run.key, index)).collect();
        let keys = runs.iter().map(|run| run.key);
        let (Some(first), Some(last)) = (keys.clone().min(), keys.max()) else { return Ok(Vec::new()) };
        let mut found: BTreeMap<(Name, Case, u32), Vec<StoredValue>> = BTreeMap::new();
        for (series, (metric, version, case)) in self.series(is_wanted)? {
            let mut statement = self.connection.prepare_cached(VALUES).map_err(|error| self.fault(error))?;
            let mut rows = statement.query(params![series, first, last]).map_err(|error| self.fault(error))?;
            let mut values = Vec::new();
            while let Some(row) = rows.next().map_err(|error| self.fault(error))? {
                let read = || -> rusqlite::Result<(i64, f64)> { Ok((row.get(0)?, row.get(1)?)) };
                let (run, value) = read().map_err(|error| self.fault(error))?;
                let Some(&run) = places.get(&run) else { continue };
                if !value.is_finite() {
                    return Err(damaged(&format!("{metric} {case}"), "a value", "it is not finite"));
                }
                values.push(StoredValue { run, value });
            }
            if !values.is_empty() {
                found.entry((metric, case, version)).or_default().append(&mut values);
            }
        }
        let series = found.into_iter().map(|((metric, case, version), mut values)| {
            values.sort_by_key(|value| value.run);
            values.dedup_by_key(|value| value.run);
            StoredSeries { metric, version, case, values }
        });
        Ok(series.collect())
    }

    /// The latest values of several machines in a mode, by series: of each machine, which may have had several identities, that of the
    /// newest of its last runs that has one.
    ///
    /// # Errors
    /// If the store fails, or a row of it is damaged.
    pub fn latest(
        &self,
        machines: &[Vec<String>],
        mode: &str,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Result<HashMap<Identified, Vec<f64>>, LoadError> {
        let mut latest: HashMap<Identified, Vec<f64>> = HashMap::new();
        if machines.is_empty() {
            return Ok(latest);
        }
        let wanted: HashMap<i64, Identified> = self.series(is_wanted)?.into_iter().collect();
        for identities in machines {
            let mut seen: HashSet<i64> = HashSet::new();
            for run in self.runs_in_history(identities, mode, LATEST_IN)?.iter().rev() {
                let select = "SELECT series, value FROM headline WHERE run = ?1";
                for (series, value) in self.rows(select, [run.key], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))? {
                    if let Some(identified) = wanted.get(&series).filter(|_| seen.insert(series)) {
                        latest.entry(identified.clone()).or_default().push(value);
                    }
                }
            }
        }
        Ok(latest)
    }

    /// What was known of a run before its first measurement: the run with exactly this id.
    ///
    /// # Errors
    /// If there is no such run, or it is damaged, or of a newer format, or the store fails.
    pub fn outline_of(&self, id: &str) -> Result<Outline, LoadError> {
        let select = "SELECT format, outline FROM run WHERE id = ?1";
        let rows = self.rows(select, [id], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        let Some((format, outline)) = rows.into_iter().next() else {
            return Err(LoadError::Find(FindError::None { name: id.to_owned() }));
        };
        if format > FORMAT {
            return Err(LoadError::Newer { id: id.to_owned(), found: format });
        }
        unpack(&outline).map_err(|problem| LoadError::Damaged {
            id: id.to_owned(),
            part: "the outline".into(),
            problem,
        })
    }

    /// The keys of the wanted series.
    fn series(&self, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<(i64, Identified)>, LoadError> {
        let select = "SELECT key, metric, version, parameters FROM series";
        let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, String, u32, String)> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        };
        let mut series = Vec::new();
        for (key, metric, version, parameters) in self.rows(select, [], row)? {
            let id = Name::today(&metric);
            if !is_wanted(&id) {
                continue;
            }
            let whole = || format!("{metric} {parameters}");
            if !ID.allows(&id) {
                return Err(damaged(&whole(), "the metric", &format!("it must be {}", ID.words)));
            }
            let case =
                serde_json::from_str(&parameters).map_err(|error| damaged(&whole(), "the case", &error.to_string()))?;
            series.push((key, (Name::intern(&id), version, case)));
        }
        Ok(series)
    }
}

/// The values of a series in runs with keys between two.
const VALUES: &str = "SELECT run, value FROM headline WHERE series = ?1 AND run BETWEEN ?2 AND ?3";

fn damaged(series: &str, part: &str, problem: &str) -> LoadError {
    LoadError::Damaged { id: format!("series {series}"), part: part.to_owned(), problem: problem.to_owned() }
}
