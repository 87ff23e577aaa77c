//! How far the cases of a run have come while it goes on: whether their rounds count, and what more rounds would narrow.
//!
//! Judged by the code that makes the report, so that the planner of a run aims at what the report will say.

use std::collections::HashMap;

use kelvin_model::{Case, Interval, Measurement, Name, Run, Standing};
use kelvin_stats::Samples;

use crate::gather::Gathered;
use crate::headlines::{Desk, Settled, metrics_of};
use crate::summary::{drift, is_in_stretches};

/// How far each case of a run has come.
pub fn standings(run: &Run) -> HashMap<(Name, Case), Standing> {
    let desk = Desk::of(run);
    let of = |measurement: &Measurement| {
        let key = (measurement.planned.probe, measurement.planned.case.clone());
        (key, standing(run, measurement, &desk))
    };
    run.measurements.iter().map(of).collect()
}

fn standing<'r>(run: &'r Run, measurement: &'r Measurement, desk: &Desk<'r>) -> Standing {
    let target = run.outline.settings.target;
    let mut standing = Standing { counting: u32::MAX, ..Standing::default() };
    for metric in metrics_of(run, measurement) {
        let gathered = Gathered::of(measurement, &metric, &desk.references);
        if gathered.rounds.is_empty() {
            continue;
        }
        standing.counting = standing.counting.min(gathered.counting_rounds());
        let history = desk.history(metric.id, &measurement.planned.case);
        let Some(settled) = Settled::headline(&gathered, history.as_ref()) else { continue };
        let half_width = |interval: Option<Interval>| relative_half_width(interval?, settled.headline);
        let Some(width) = half_width(settled.interval) else { continue };
        standing.half_width = widest(standing.half_width, width);
        let of_rounds = half_width(settled.of_rounds).filter(|&width| width > target && can_be_narrowed(&settled));
        standing.narrowable = of_rounds.map_or(standing.narrowable, |width| widest(standing.narrowable, width));
    }
    standing
}

fn widest(known: Option<f64>, width: f64) -> Option<f64> {
    Some(known.map_or(width, |known| known.max(width)))
}

/// Half-width of an interval as a share of the value; a share of zero means nothing.
fn relative_half_width(interval: Interval, headline: f64) -> Option<f64> {
    let width = interval.half_width() / headline.abs();
    width.is_finite().then_some(width)
}

/// Whether more rounds narrow an interval: not where each process settles in one of two states, where the machine changes in
/// stretches, or where the value drifts.
fn can_be_narrowed(settled: &Settled<'_>) -> bool {
    let changes_in_stretches = || {
        let pooled = Samples::new(settled.samples.concat());
        pooled.is_ok_and(|pooled| is_in_stretches(&settled.samples, &pooled.sorted(), settled.headline))
    };
    settled.states.is_none()
        && drift(&settled.round_times, &settled.round_headlines, settled.headline).is_none()
        && !changes_in_stretches()
}
