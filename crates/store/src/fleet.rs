//! The runs of many hosts: their headlines, one header of each machine, and nothing else.

use std::collections::HashMap;
use std::sync::Arc;

use kelvin_core::{IndirectSort, Machine, Metric, RUN_FORMAT};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Store;
use crate::error::{FindError, LoadError};
use crate::history::{SeriesId, damaged_series};
use crate::payload::unpack;
use crate::sql::{SqlRow, SqlValue, sql_value, values};
use crate::tag::Tag;

/// Headers, and runs with their headlines, of one statement: an answer has a bounded size, however many hosts there are.
const HEADERS_PER_STATEMENT: usize = 500;
const RUNS_PER_STATEMENT: usize = 10_000;

/// Runs of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunSelection {
    /// All.
    All,
    /// Those with a tag.
    Tag(Tag),
    /// From one id to another, both included, in the order of their starts.
    Range(String, String),
}

/// A run of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRun {
    key: i64,
    /// Its id.
    pub id: String,
    /// Its start in microseconds since 1970.
    pub started_us: i64,
    /// Identity of the machine.
    pub machine: String,
    /// `quick`, `default`, `thorough`, `study` or `watch`.
    pub mode: String,
}

/// What is read of a header.
#[derive(Clone, Debug)]
pub struct FleetHeader {
    /// The machine.
    pub machine: Machine,
    /// The metrics, which the headers of most runs share.
    pub metrics: Arc<[Metric]>,
    /// The tags of the run.
    pub tags: Vec<(String, String)>,
}

/// A series over the runs of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSeries {
    /// Metric, version and case.
    pub id: SeriesId,
    /// One headline for each run, in the order of the runs; not a number where a run has none.
    pub values: Vec<f32>,
}

impl Store {
    /// The complete runs of a selection that have headlines, oldest first, without those that other programs made.
    ///
    /// # Errors
    /// If an id of a range is none, or the store fails.
    pub fn fleet_runs(&self, selection: &RunSelection) -> Result<Vec<FleetRun>, FindError> {
        let (condition, values): (&str, Vec<SqlValue>) = match selection {
            RunSelection::All => ("", Vec::new()),
            RunSelection::Tag(tag) => (
                " AND EXISTS (SELECT 1 FROM tag WHERE tag.run = run.key AND name = $1 AND value = $2)",
                values![tag.name(), tag.value()].to_vec(),
            ),
            RunSelection::Range(first, last) => (
                " AND (started_us, id) >= (SELECT started_us, id FROM run WHERE id = $1)
                 AND (started_us, id) <= (SELECT started_us, id FROM run WHERE id = $2)",
                values![first, last].to_vec(),
            ),
        };
        let select = format!(
            "SELECT key, id, started_us, machine, mode FROM run
             WHERE status = 'complete' AND mode <> 'foreign'
             AND EXISTS (SELECT 1 FROM headline WHERE headline.run = run.key){condition}
             ORDER BY started_us, id"
        );
        let row = |row: &SqlRow| {
            Ok(FleetRun {
                key: row.get(0)?,
                id: row.get(1)?,
                started_us: row.get(2)?,
                machine: row.get(3)?,
                mode: row.get(4)?,
            })
        };
        Ok(self.rows(&select, &values, row)?)
    }

    /// The headers of these runs, in their order.
    ///
    /// # Errors
    /// If one is damaged, missing or of a newer format, or the store fails.
    pub fn fleet_headers(&self, runs: &[&FleetRun]) -> Result<Vec<FleetHeader>, LoadError> {
        let mut metrics = MetricsParser::default();
        let mut headers = Vec::with_capacity(runs.len());
        for batch in runs.chunks(HEADERS_PER_STATEMENT) {
            headers.extend(self.header_batch(batch, &mut metrics)?);
        }
        Ok(headers)
    }

    fn header_batch(&self, runs: &[&FleetRun], metrics: &mut MetricsParser) -> Result<Vec<FleetHeader>, LoadError> {
        let keys = sql_value(keys_json(runs.iter().map(|run| run.key)));
        let select_tags =
            format!("SELECT run, name, value FROM tag WHERE run IN ({})", self.connection().keys_of_json(1));
        let mut tags: HashMap<i64, Vec<(String, String)>> = HashMap::new();
        let tag = |row: &SqlRow| Ok((row.get::<i64>(0)?, row.get(1)?, row.get(2)?));
        for (run, name, value) in self.rows(&select_tags, std::slice::from_ref(&keys), tag)? {
            tags.entry(run).or_default().push((name, value));
        }
        let select =
            format!("SELECT key, id, format, header FROM run WHERE key IN ({})", self.connection().keys_of_json(1));
        let mut headers: HashMap<i64, FleetHeader> = HashMap::new();
        let mut fault = None;
        self.connection().each_row(&select, &[keys], &mut |row| {
            let (key, id, format): (i64, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let packed: Vec<u8> = row.get(3)?;
            let header = match u32::try_from(format).ok().filter(|format| *format <= RUN_FORMAT) {
                Some(_) => metrics
                    .header(&packed, tags.remove(&key).unwrap_or_default())
                    .map_err(|problem| LoadError::Damaged { id, part: "the header".into(), problem }),
                None => Err(LoadError::Newer(id, u32::try_from(format).unwrap_or(u32::MAX))),
            };
            match header {
                Ok(header) => drop(headers.insert(key, header)),
                Err(error) => fault = fault.take().or(Some(error)),
            }
            Ok(())
        })?;
        if let Some(error) = fault {
            return Err(error);
        }
        let header = |run: &&FleetRun| {
            headers.get(&run.key).cloned().ok_or_else(|| LoadError::Find(FindError::None(run.id.clone())))
        };
        runs.iter().map(header).collect()
    }

    /// The headlines of these runs, of these metrics at these versions of their methods; in the order of ids and cases.
    ///
    /// # Errors
    /// If the store fails, or a row of it is damaged.
    pub fn fleet_series(
        &self,
        runs: &[FleetRun],
        metrics: &HashMap<String, u32>,
    ) -> Result<Vec<FleetSeries>, LoadError> {
        let mut ids = self.requested_series(&|metric| metrics.contains_key(metric))?;
        ids.retain(|(_, (metric, version, _))| metrics.get(metric.as_str()) == Some(version));
        ids.indirect_sort_by(|a, b| (&a.1.0, &a.1.2).cmp(&(&b.1.0, &b.1.2)));
        let rows: HashMap<i64, usize> = ids.iter().enumerate().map(|(index, (key, _))| (*key, index)).collect();
        let columns: HashMap<i64, usize> = runs.iter().enumerate().map(|(index, run)| (run.key, index)).collect();
        let mut values: Vec<Option<Vec<f32>>> = vec![None; ids.len()];
        let mut has_infinite = None;
        let series_keys = keys_json(ids.iter().map(|(key, _)| *key));
        // The headlines of a run mostly follow each other.
        let mut last: (i64, Option<usize>) = (0, None);
        for batch in runs.chunks(RUNS_PER_STATEMENT) {
            let run_keys = keys_json(batch.iter().map(|run| run.key));
            self.connection().each_headline([&run_keys, &series_keys], &mut |run, series, value| {
                if last.1.is_none() || last.0 != run {
                    last = (run, columns.get(&run).copied());
                }
                if let (Some(&row), Some(column)) = (rows.get(&series), last.1) {
                    values[row].get_or_insert_with(|| vec![f32::NAN; runs.len()])[column] = value as f32;
                    if !value.is_finite() {
                        has_infinite = Some(row);
                    }
                }
            })?;
        }
        if let Some(row) = has_infinite {
            let (metric, _, case) = &ids[row].1;
            return Err(damaged_series(&format!("{metric} {case}"), "a value", "it is not finite"));
        }
        let series = ids.into_iter().zip(values);
        Ok(series.filter_map(|((_, id), values)| Some(FleetSeries { id, values: values? })).collect())
    }
}

/// Keys as JSON, which both databases make rows of: one statement serves any number of them.
fn keys_json(keys: impl Iterator<Item = i64>) -> String {
    let keys: Vec<String> = keys.map(|key| key.to_string()).collect();
    format!("[{}]", keys.join(","))
}

/// Reads the metrics of headers, of which most runs have the same.
#[derive(Default)]
struct MetricsParser {
    text: String,
    metrics: Arc<[Metric]>,
}

impl MetricsParser {
    fn header(&mut self, packed: &[u8], tags: Vec<(String, String)>) -> Result<FleetHeader, String> {
        #[derive(Deserialize)]
        struct Parts {
            machine: Machine,
            metrics: Box<RawValue>,
        }
        let Parts { machine, metrics } = unpack(packed)?;
        if metrics.get() != self.text {
            let parsed: Vec<Metric> = kelvin_core::json::from_str(metrics.get()).map_err(|error| error.to_string())?;
            self.metrics = parsed.into();
            self.text = metrics.get().to_owned();
        }
        Ok(FleetHeader { machine, metrics: Arc::clone(&self.metrics), tags })
    }
}
