//! Histories: the headlines of many runs of one machine, series by series, read without any sample.

use std::collections::{BTreeMap, HashMap, HashSet};

use kelvin_core::identifiers::ID_GRAMMAR;
use kelvin_core::{Case, HistoryPoint, IndirectSort, Name, RunHeader};

use crate::Store;
use crate::error::{DatabaseError, LoadError};
use crate::sql::{SqlRow, SqlValue, WrongColumn, sql_limit, sql_value, values};

/// How many of a machine's newest runs are looked through for its latest values, where it is one of many.
const MAX_LATEST_RUNS: usize = 10;

/// Runs of one machine in one mode that have headlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRuns {
    /// Identity of the machine.
    pub machine: String,
    /// Marketing name of its processor in its newest run, if known.
    pub cpu_model: Option<String>,
    /// `quick`, `default`, `thorough`, `study` or `watch`.
    pub mode: String,
    /// How many there are.
    pub runs: usize,
    /// Id of the newest.
    pub newest: String,
}

/// A run of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRunRow {
    key: i64,
    /// Its id.
    pub id: String,
    /// Its start, RFC 3339 in UTC.
    pub started: String,
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
    pub values: Vec<HistoryPoint>,
}

/// A series by what identifies it: metric, version of its method, case.
pub type SeriesId = (Name, u32, Case);

impl Store {
    /// The machines and modes of which complete runs have headlines, the newest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn machines(&self) -> Result<Vec<MachineRuns>, DatabaseError> {
        let select = "
            SELECT machine, mode, cpu_model, id FROM run
            WHERE status = 'complete' AND EXISTS (SELECT 1 FROM headline WHERE headline.run = run.key)
            ORDER BY started_us DESC, id DESC";
        let row = |row: &SqlRow| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let mut machines: Vec<MachineRuns> = Vec::new();
        let mut indices: HashMap<(String, String), usize> = HashMap::new();
        for (machine, mode, cpu_model, newest) in self.rows(select, &[], row)? {
            let index = *indices.entry((machine, mode)).or_insert_with_key(|(machine, mode)| {
                let (machine, mode) = (machine.clone(), mode.clone());
                machines.push(MachineRuns { machine, cpu_model, mode, runs: 0, newest });
                machines.len() - 1
            });
            machines[index].runs += 1;
        }
        Ok(machines)
    }

    /// The newest complete runs with headlines of machines with these identities in a mode, at most `limit`, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn history_runs(
        &self,
        machines: &[String],
        mode: &str,
        limit: usize,
    ) -> Result<Vec<HistoryRunRow>, DatabaseError> {
        if machines.is_empty() {
            return Ok(Vec::new());
        }
        let placeholders: Vec<String> = (3..3 + machines.len()).map(|number| format!("${number}")).collect();
        let select = format!(
            "SELECT key, id, started FROM run
             WHERE machine IN ({}) AND status = 'complete' AND mode = $1
             AND EXISTS (SELECT 1 FROM headline WHERE headline.run = run.key)
             ORDER BY started_us DESC, id DESC LIMIT $2",
            placeholders.join(", ")
        );
        let parameters: Vec<SqlValue> =
            values![mode, sql_limit(Some(limit))].iter().cloned().chain(machines.iter().map(sql_value)).collect();
        let mut runs = self.rows(&select, &parameters, |row| {
            Ok(HistoryRunRow { key: row.get(0)?, id: row.get(1)?, started: row.get(2)? })
        })?;
        runs.reverse();
        Ok(runs)
    }

    /// The values of these runs, of the series that are wanted by the id of their metric; in the order of ids, cases and versions.
    ///
    /// # Errors
    /// If the store fails, or a row of it is damaged.
    pub fn series_values(
        &self,
        runs: &[HistoryRunRow],
        is_requested: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<StoredSeries>, LoadError> {
        let mut run_indices: Vec<(i64, usize)> = runs.iter().enumerate().map(|(index, run)| (run.key, index)).collect();
        run_indices.sort_unstable();
        let (Some(&(first, _)), Some(&(last, _))) = (run_indices.first(), run_indices.last()) else {
            return Ok(Vec::new());
        };
        let mut by_series: BTreeMap<(Name, Case, u32), Vec<HistoryPoint>> = BTreeMap::new();
        for (series, (metric, version, case)) in self.requested_series(is_requested)? {
            let (mut values, mut next) = (Vec::new(), 0);
            self.connection().each_pair(SELECT_VALUES, values![series, first, last], &mut |key, value| {
                // Of most series the next run has the next value.
                if run_indices.get(next).is_none_or(|entry| entry.0 != key) {
                    next = run_indices.partition_point(|entry| entry.0 < key);
                }
                if let Some(&(_, run)) = run_indices.get(next).filter(|entry| entry.0 == key) {
                    values.push(HistoryPoint { run, value });
                    next += 1;
                }
            })?;
            if values.iter().any(|point: &HistoryPoint| !point.value.is_finite()) {
                return Err(damaged_series(&format!("{metric} {case}"), "a value", "it is not finite"));
            }
            if !values.is_empty() {
                by_series.entry((metric, case, version)).or_default().append(&mut values);
            }
        }
        let series = by_series.into_iter().map(|((metric, case, version), mut values)| {
            values.indirect_sort_by_key(|value| value.run);
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
    pub fn latest_values(
        &self,
        machines: &[Vec<String>],
        mode: &str,
        is_requested: &dyn Fn(&str) -> bool,
    ) -> Result<HashMap<SeriesId, Vec<f64>>, LoadError> {
        let mut latest: HashMap<SeriesId, Vec<f64>> = HashMap::new();
        if machines.is_empty() {
            return Ok(latest);
        }
        let series_ids: HashMap<i64, SeriesId> = self.requested_series(is_requested)?.into_iter().collect();
        for identities in machines {
            let mut series_keys: HashSet<i64> = HashSet::new();
            for run in self.history_runs(identities, mode, MAX_LATEST_RUNS)?.iter().rev() {
                let select = "SELECT series, value FROM headline WHERE run = $1";
                self.connection().each_pair(select, values![run.key], &mut |series, value| {
                    if let Some(series_id) = series_ids.get(&series).filter(|_| series_keys.insert(series)) {
                        latest.entry(series_id.clone()).or_default().push(value);
                    }
                })?;
            }
        }
        Ok(latest)
    }

    /// What was known of a run before its first measurement: the run with exactly this id.
    ///
    /// # Errors
    /// If there is no such run, or it is damaged, or of a newer format, or the store fails.
    pub fn header_of(&self, id: &str) -> Result<RunHeader, LoadError> {
        self.run_row(id)?.header(id)
    }

    /// The keys of the wanted series.
    pub(crate) fn requested_series(
        &self,
        is_requested: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<(i64, SeriesId)>, LoadError> {
        let select = "SELECT key, metric, version, axes FROM series";
        let row = |row: &SqlRow| -> Result<(i64, String, u32, String), WrongColumn> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        };
        let mut series = Vec::new();
        for (key, metric, version, axes) in self.rows(select, &[], row)? {
            let id = metric.as_str();
            if !is_requested(id) {
                continue;
            }
            if !ID_GRAMMAR.allows(id) {
                let problem = format!("it must be {}", ID_GRAMMAR.words);
                return Err(damaged_series(&format!("{metric} {axes}"), "the metric", &problem));
            }
            let case = series_case(id, &axes)?;
            series.push((key, (Name::intern(id), version, case)));
        }
        Ok(series)
    }
}

/// The values of a series in runs with keys between two.
const SELECT_VALUES: &str = "SELECT run, value FROM headline WHERE series = $1 AND run BETWEEN $2 AND $3";

/// The case of a series from its stored axes.
pub(crate) fn series_case(metric: &str, axes: &str) -> Result<Case, LoadError> {
    kelvin_core::json::from_str(axes)
        .map_err(|error| damaged_series(&format!("{metric} {axes}"), "the case", &error.to_string()))
}

pub(crate) fn damaged_series(series: &str, part: &str, problem: &str) -> LoadError {
    LoadError::Damaged { id: format!("series {series}"), part: part.to_owned(), problem: problem.to_owned() }
}
