//! How far the cases of a run have come while it goes on: whether their rounds count, and what more rounds would narrow.
//!
//! Judged by the code that makes the report, so that the planner of a run aims at what the report will say.

use std::collections::HashMap;

use kelvin_model::{Case, Interval, Measurement, Name, Run, Standing};
use kelvin_stats::Samples;

use crate::canaries::References;
use crate::gather::Gathered;
use crate::headlines::{Desk, Settled, metrics_of};
use crate::summary::{drift, is_in_stretches};

/// Once a run has so many times the rounds, all its cases are judged anew: the steady states of its canaries, which all are judged by,
/// have changed little before.
const GROWN: f64 = 1.125;

/// How far the cases of a run have come, kept from one look at it to the next.
#[derive(Default)]
pub struct Standings {
    /// What all cases are judged by, and how many rounds the run had.
    references: References,
    rounds: usize,
    /// Of each case, with the number of its rounds.
    known: HashMap<(Name, Case), (usize, Standing)>,
}

impl Standings {
    /// How far each case of a run has come, of which no round has been taken away since the last look. A case without a new round is judged
    /// anew only with all others.
    pub fn of(&mut self, run: &Run) -> HashMap<(Name, Case), Standing> {
        let rounds = run.measurements.iter().map(|measurement| measurement.rounds.len()).sum();
        if rounds as f64 >= GROWN * self.rounds as f64 {
            *self = Self { references: References::of(run), rounds, known: HashMap::new() };
        }
        let desk = Desk::by(self.references.clone(), run);
        for measurement in &run.measurements {
            let key = (measurement.planned.probe, measurement.planned.case.clone());
            let rounds = measurement.rounds.len();
            if self.known.get(&key).is_none_or(|&(judged, _)| judged != rounds) {
                self.known.insert(key, (rounds, standing(run, measurement, &desk)));
            }
        }
        self.known.iter().map(|(key, &(_, standing))| (key.clone(), standing)).collect()
    }
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
