//! What later runs of a machine learn from: one headline of each series and run, read without any sample.

use std::collections::{HashMap, HashSet};

use kelvin_core::{Case, IndirectSort, Metric, Name, Prediction, Run, RunStatus, SpreadHistory, StoredHeadline};

use crate::Store;
use crate::check::{check_finite, check_not_negative};
use crate::conclusion::RunConclusion;
use crate::error::{AppendError, InvalidField, LoadError};
use crate::history::series_case;
use crate::run_key::axes_json;
use crate::sql::{SqlConnection, SqlResult, SqlRow, SqlValue, sql_limit, sql_value, values};

/// Whose runs teach a run: those of its machine, in its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryFilter<'a> {
    /// Identity of the machine.
    pub machine: &'a str,
    /// `quick`, `default`, `thorough`, `study`, `watch`; `None` for what does not depend on it.
    pub mode: Option<&'a str>,
    /// Ids of runs that do not teach.
    pub excluded: &'a [&'a str],
}

impl Store {
    /// Stores the headlines of a run, in place of those stored for it before.
    ///
    /// # Errors
    /// If there is no such run, a figure is not finite, a series comes twice, or the store fails.
    pub fn record_headlines(&self, run_id: &str, headlines: &[StoredHeadline]) -> Result<(), AppendError> {
        self.replace_headlines(run_id, headlines, None)
    }

    /// As [`Store::record_headlines`], with the definitions of the metrics and the predictions of the run, for dashboards.
    ///
    /// # Errors
    /// As of [`Store::record_headlines`].
    pub fn record_figures(&self, run: &Run, headlines: &[StoredHeadline]) -> Result<(), AppendError> {
        self.replace_headlines(&run.header.id, headlines, Some(run))
    }

    fn replace_headlines(
        &self,
        run_id: &str,
        headlines: &[StoredHeadline],
        definitions: Option<&Run>,
    ) -> Result<(), AppendError> {
        let mut series = HashSet::new();
        for (i, headline) in headlines.iter().enumerate() {
            check_finite(&format!("headlines[{i}].value"), headline.value)?;
            check_not_negative(&format!("headlines[{i}].within_variance"), headline.within_variance)?;
            if !series.insert((headline.metric, headline.version, &headline.case)) {
                let problem = format!("{} {} comes twice", headline.metric, headline.case);
                return Err(InvalidField { field: format!("headlines[{i}]"), problem }.into());
            }
        }
        self.append_to(run_id, |engine, key| {
            engine.execute("DELETE FROM headline WHERE run = $1", values![key])?;
            put_headlines(engine, key, headlines, definitions)
        })
    }

    /// Stores what is known only at the end of a run, predictions and explanations, and the headlines that later runs learn from,
    /// those of a complete run only.
    ///
    /// # Errors
    /// As of [`Store::replace_header`], [`Store::store_conclusion`] and [`Store::record_headlines`].
    pub fn store_results(&self, run: &Run, headlines: &[StoredHeadline]) -> Result<(), AppendError> {
        self.replace_header(&run.header)?;
        self.store_conclusion(&run.header.id, &RunConclusion::from_run(run))?;
        if run.status == RunStatus::Complete { self.record_figures(run, headlines) } else { Ok(()) }
    }

    /// The headlines of these metrics in complete runs of a machine in one mode, made by the same version of the method: for each
    /// metric and case the newest ones, at most `limit`, oldest first. A metric without any is left out. A quick run has fewer and
    /// shorter rounds than a default one, so that its headlines spread more.
    ///
    /// # Errors
    /// If the store fails, or a row of it is damaged.
    pub fn spread_history(
        &self,
        filter: &HistoryFilter<'_>,
        metrics: &[Metric],
        limit: usize,
    ) -> Result<Vec<SpreadHistory>, LoadError> {
        self.spread_history_over(filter, metrics, None, limit)
    }

    /// As [`Store::spread_history`], with each headline over that of another metric, without parameters, in the same run: runs that have none are
    /// left out.
    ///
    /// # Errors
    /// As of [`Store::spread_history`].
    pub fn spread_history_over(
        &self,
        filter: &HistoryFilter<'_>,
        metrics: &[Metric],
        base: Option<&Metric>,
        limit: usize,
    ) -> Result<Vec<SpreadHistory>, LoadError> {
        let HistoryFilter { machine, mode, excluded } = *filter;
        let select = newest_headlines_sql(excluded.len(), base.is_some());
        let excluded = excluded.iter().map(sql_value);
        let base_values = base
            .map(|base_metric| values![base_metric.id.as_str(), base_metric.version, axes_json(&Case::new())].to_vec());
        let extra_values: Vec<SqlValue> = excluded.chain(base_values.into_iter().flatten()).collect();
        let mut histories = Vec::new();
        for metric in metrics {
            let metric_values = values![metric.id.as_str(), metric.version];
            for axes in self.rows(SELECT_CASES, metric_values, |row| row.get::<String>(0))? {
                let case = series_case(&metric.id, &axes)?;
                let case_values = values![axes, machine, mode, sql_limit(Some(limit))];
                let filter = [&metric_values[..], case_values, &extra_values].concat();
                let pairs: Vec<(f64, f64)> = self.rows(&select, &filter, |row| Ok((row.get(0)?, row.get(1)?)))?;
                let (headlines, variances): (Vec<f64>, Vec<f64>) = pairs.into_iter().rev().unzip();
                if !headlines.is_empty() {
                    histories.push(SpreadHistory { metric: metric.id, case, headlines, within_variances: variances });
                }
            }
        }
        Ok(histories)
    }
}

/// The cases with stored headlines of a metric.
const SELECT_CASES: &str = "SELECT DISTINCT axes FROM series WHERE metric = $1 AND version = $2 ORDER BY axes";

/// Headline and variance of a metric at a case in the newest complete runs of a machine in a mode, newest first, but for this many
/// runs; over the headline of another metric or as they are. The order of the join is fixed: of a series there are far more headlines than
/// runs of one machine.
fn newest_headlines_sql(excluded: usize, has_base: bool) -> String {
    let exclusions: Vec<String> = (7..7 + excluded).map(|number| format!(" AND run.id <> ${number}")).collect();
    let (columns, join) = match has_base {
        false => ("headline.value, headline.within_variance", String::new()),
        true => (
            "headline.value / base.value, headline.within_variance / (base.value * base.value)",
            format!(
                "JOIN headline AS base ON base.run = run.key AND base.value > 0 AND base.series IN
                 (SELECT key FROM series WHERE metric = ${} AND version = ${} AND axes = ${})",
                7 + excluded,
                8 + excluded,
                9 + excluded
            ),
        ),
    };
    format!(
        "SELECT {columns} FROM run CROSS JOIN headline {join} WHERE headline.run = run.key
         AND headline.series IN (SELECT key FROM series WHERE metric = $1 AND version = $2 AND axes = $3)
         AND machine = $4 AND (CAST($5 AS TEXT) IS NULL OR mode = $5) AND status = 'complete'{}
         ORDER BY started_us DESC, run.id DESC LIMIT $6",
        exclusions.concat()
    )
}

/// The headlines of a run, by its row.
pub(crate) fn headlines_of(store: &Store, run: i64) -> Result<Vec<StoredHeadline>, LoadError> {
    let select = "SELECT metric, version, axes, value, within_variance FROM headline JOIN series ON series.key = series
                  WHERE run = $1 ORDER BY series.key";
    let headline = |row: &SqlRow| {
        let (metric, version, axes): (String, u32, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (value, within_variance) = (row.get(3)?, row.get(4)?);
        let case = series_case(&metric, &axes);
        let metric = Name::intern(&metric);
        Ok(case.map(|case| StoredHeadline { metric, version, case, value, within_variance }))
    };
    store.rows(select, values![run], headline)?.into_iter().collect()
}

/// Stores headlines of a run that has none yet: next to them its predictions, where it is given, and the definitions of its metrics.
pub(crate) fn put_headlines(
    engine: &dyn SqlConnection,
    run_key: i64,
    headlines: &[StoredHeadline],
    run: Option<&Run>,
) -> SqlResult<()> {
    let series_values = |headline: &StoredHeadline| {
        values![headline.metric.as_str(), headline.version, axes_json(&headline.case)].to_vec()
    };
    let insert_series = "INSERT INTO series (metric, version, axes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    // In one order, so that two writers of the same ones do not deadlock.
    let mut series: Vec<Vec<SqlValue>> = headlines.iter().map(series_values).collect();
    series.indirect_sort_by_key(|values| format!("{values:?}"));
    engine.execute_each(insert_series, &mut series.into_iter())?;
    put_metrics(engine, headlines, run)?;
    let insert_headlines = "INSERT INTO headline (series, run, value, within_variance, predicted, predicted_low, predicted_high)
               SELECT key, CAST($4 AS BIGINT), CAST($5 AS DOUBLE PRECISION), CAST($6 AS DOUBLE PRECISION), CAST($7 AS DOUBLE PRECISION),
               CAST($8 AS DOUBLE PRECISION), CAST($9 AS DOUBLE PRECISION) FROM series WHERE metric = $1 AND version = $2 AND axes = $3";
    let predictions = run.map(predictions_by_case).unwrap_or_default();
    let values = |headline: &StoredHeadline| {
        let prediction = predictions.get(&(headline.metric, &headline.case));
        let [predicted, low, high] = match prediction {
            Some(prediction) => [prediction.value, prediction.low, prediction.high].map(Some),
            None => [None; 3],
        };
        let figures = values![run_key, headline.value, headline.within_variance, predicted, low, high];
        [series_values(headline), figures.to_vec()].concat()
    };
    engine.execute_each(insert_headlines, &mut headlines.iter().map(values))
}

/// Stores the definitions of the metrics of these headlines, as far as the run has them.
fn put_metrics(engine: &dyn SqlConnection, headlines: &[StoredHeadline], run: Option<&Run>) -> SqlResult<()> {
    let used: HashSet<(Name, u32)> = headlines.iter().map(|headline| (headline.metric, headline.version)).collect();
    let defined = run.into_iter().flat_map(|run| &run.header.metrics);
    let mut metrics: Vec<&Metric> = defined.filter(|metric| used.contains(&(metric.id, metric.version))).collect();
    // In one order, as above.
    metrics.indirect_sort_by_key(|metric| (metric.id.as_str(), metric.version));
    let insert =
        "INSERT INTO metric (id, version, unit, better, summary) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let values = |metric: &Metric| {
        let (unit, better) = (metric.unit.name(), metric.better.name());
        values![metric.id.as_str(), metric.version, unit, better, metric.summary.as_str()].to_vec()
    };
    engine.execute_each(insert, &mut metrics.into_iter().map(values))
}

fn predictions_by_case(run: &Run) -> HashMap<(Name, &Case), &Prediction> {
    let predicted = run.predictions.iter().filter_map(|record| Some((record, record.prediction.as_ref()?)));
    predicted.map(|(record, prediction)| ((record.metric, &record.case), prediction)).collect()
}
