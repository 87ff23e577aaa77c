//! What later runs of a machine learn from: one headline of each series and run, read without any sample.

use std::collections::HashSet;

use kelvin_model::{Headline, Learned, Metric, Run, RunStatus};
use rusqlite::{Connection, params};

use crate::Store;
use crate::check::{Invalid, finite, not_negative};
use crate::error::{AppendError, LoadError};
use crate::query::sql_limit;
use crate::record::{key_of, parameters};

/// Whose runs teach a run: those of its machine, in its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kin<'a> {
    /// Identity of the machine.
    pub machine: &'a str,
    /// `quick`, `default`, `thorough`, `study`; `None` for what does not depend on it.
    pub mode: Option<&'a str>,
    /// Ids of runs that do not teach.
    pub but: &'a [&'a str],
}

impl Store {
    /// Stores the headlines of a run, in place of those stored for it before.
    ///
    /// # Errors
    /// If there is no such run, a figure is not finite, a series comes twice, or the store fails.
    pub fn record_headlines(&self, run_id: &str, headlines: &[Headline]) -> Result<(), AppendError> {
        let mut seen = HashSet::new();
        for (i, headline) in headlines.iter().enumerate() {
            finite(&format!("headlines[{i}].value"), headline.value)?;
            not_negative(&format!("headlines[{i}].within_variance"), headline.within_variance)?;
            if !seen.insert((headline.metric, headline.version, &headline.case)) {
                let problem = format!("{} {} comes twice", headline.metric, headline.case);
                return Err(Invalid { field: format!("headlines[{i}]"), problem }.into());
            }
        }
        let replaced = self.in_transaction(|transaction| {
            let Some(run) = key_of(transaction, run_id)? else { return Ok(false) };
            transaction.execute("DELETE FROM headline WHERE run = ?1", [run])?;
            headlines.iter().try_for_each(|headline| insert(transaction, run, headline))?;
            Ok(true)
        });
        match replaced.map_err(|error| self.fault(error))? {
            true => Ok(()),
            false => Err(AppendError::Gone { id: run_id.to_owned() }),
        }
    }

    /// Stores what is known only at the end of a run, predictions and studies, and the headlines that later runs learn from,
    /// those of a complete run only.
    ///
    /// # Errors
    /// As of [`Store::amend`], [`Store::finish`] and [`Store::record_headlines`].
    pub fn keep(&self, run: &Run, headlines: &[Headline]) -> Result<(), AppendError> {
        self.amend(&run.outline)?;
        self.finish(&run.outline.id, &run.predictions, &run.studies, &[])?;
        if run.status == RunStatus::Complete { self.record_headlines(&run.outline.id, headlines) } else { Ok(()) }
    }

    /// The headlines of these metrics in complete runs of a machine in one mode, made by the same version of the method: for each
    /// metric and case the newest ones, at most `limit`, oldest first. A metric without any is left out. A quick run has fewer and
    /// shorter rounds than a default one, so that its headlines spread more.
    ///
    /// # Errors
    /// If the store fails, or a row of it is damaged.
    pub fn learned(&self, of: &Kin<'_>, metrics: &[Metric], limit: usize) -> Result<Vec<Learned>, LoadError> {
        let Kin { machine, mode, but } = *of;
        let but = serde_json::json!(but).to_string();
        let mut learned = Vec::new();
        for metric in metrics {
            let of_metric = [metric.id.to_string(), metric.id.former().unwrap_or_default()];
            let of = params![of_metric[0], of_metric[1], metric.version];
            for parameters in self.rows(CASES, of, |row| row.get::<_, String>(0))? {
                let case = serde_json::from_str(&parameters).map_err(|error| LoadError::Damaged {
                    id: format!("series {} {parameters}", metric.id),
                    part: "the case".into(),
                    problem: error.to_string(),
                })?;
                let limit = sql_limit(Some(limit));
                let of = params![of_metric[0], of_metric[1], metric.version, parameters, machine, mode, limit, but];
                let pairs: Vec<(f64, f64)> = self.rows(NEWEST, of, |row| Ok((row.get(0)?, row.get(1)?)))?;
                let (headlines, within): (Vec<f64>, Vec<f64>) = pairs.into_iter().rev().unzip();
                if !headlines.is_empty() {
                    learned.push(Learned { metric: metric.id, case, headlines, within });
                }
            }
        }
        Ok(learned)
    }
}

/// The cases with stored headlines of a metric, under its present or former id.
const CASES: &str =
    "SELECT DISTINCT parameters FROM series WHERE metric IN (?1, ?2) AND version = ?3 ORDER BY parameters";

/// Headline and variance of a metric at a case in the newest complete runs of a machine in a mode, newest first.
const NEWEST: &str = "SELECT value, within_variance FROM run CROSS JOIN headline ON headline.run = run.key
    WHERE series IN (SELECT key FROM series WHERE metric IN (?1, ?2) AND version = ?3 AND parameters = ?4)
    AND machine = ?5 AND (?6 IS NULL OR mode = ?6) AND status = 'complete' AND run.id NOT IN (SELECT value FROM json_each(?8)) ORDER BY started_us DESC, run.id DESC LIMIT ?7";

fn insert(connection: &Connection, run: i64, headline: &Headline) -> rusqlite::Result<()> {
    let of = params![headline.metric.as_str(), headline.version, parameters(&headline.case)];
    let add = "INSERT INTO series (metric, version, parameters) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    connection.prepare_cached(add)?.execute(of)?;
    let find = "SELECT key FROM series WHERE metric = ?1 AND version = ?2 AND parameters = ?3";
    let series: i64 = connection.prepare_cached(find)?.query_row(of, |row| row.get(0))?;
    let put = "INSERT INTO headline (series, run, value, within_variance) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(put)?.execute(params![series, run, headline.value, headline.within_variance])?;
    Ok(())
}
