//! How far the cases of a run have come while it goes on: whether their rounds count, and what more rounds would narrow.
//!
//! Judged by the code that makes the report, so that the planner of a run aims at the figures of the report.

use std::collections::HashMap;

use crate::prelude::*;
use crate::summary::{has_persistent_modes, value_drift};

/// Once a run has this many times the rounds, all its cases are judged anew: the steady states of its canaries, which all are judged by,
/// have changed little before.
const REJUDGE_GROWTH: f64 = 1.125;

/// How far the cases of a run have come, kept from one update to the next.
#[derive(Default)]
pub struct RunProgress {
    /// What all cases are judged by, and how many rounds the run had.
    references: CanaryReferences,
    rounds: usize,
    /// Of each case, with the number of its rounds.
    cases: HashMap<(Name, Case), (usize, CaseStatus)>,
}

impl RunProgress {
    /// How far each case of a run has come, of which no round has been taken away since the last look. A case without a new round is judged
    /// anew only with all others.
    pub fn update(&mut self, run: &Run) -> HashMap<(Name, Case), CaseStatus> {
        let rounds = run.measurements.iter().map(|measurement| measurement.rounds.len()).sum();
        if rounds as f64 >= REJUDGE_GROWTH * self.rounds as f64 {
            *self = Self { references: CanaryReferences::from_run(run), rounds, cases: HashMap::new() };
        }
        let baselines = Baselines::with_references(self.references.clone(), run);
        for measurement in &run.measurements {
            let key = (measurement.planned.probe, measurement.planned.case.clone());
            let rounds = measurement.rounds.len();
            if self.cases.get(&key).is_none_or(|&(judged_rounds, _)| judged_rounds != rounds) {
                self.cases.insert(key, (rounds, case_status(run, measurement, &baselines)));
            }
        }
        self.cases.iter().map(|(key, &(_, status))| (key.clone(), status)).collect()
    }
}

fn case_status<'r>(run: &'r Run, measurement: &'r Measurement, baselines: &Baselines<'r>) -> CaseStatus {
    let target = run.header.settings.target;
    let mut status = CaseStatus { counted_rounds: u32::MAX, ..CaseStatus::default() };
    for metric in metrics_of(run, measurement) {
        let samples = SampleSet::from_measurement(measurement, &metric, &baselines.references);
        if samples.rounds.is_empty() {
            continue;
        }
        status.counted_rounds = status.counted_rounds.min(samples.counting_rounds());
        let history = baselines.between_run_variance(metric.id, &measurement.planned.case);
        let Some(computed) = ComputedHeadline::from_samples(&samples, history.as_ref()) else { continue };
        let half_width = |interval: Option<Interval>| {
            Some(interval?.half_width() / computed.headline.abs()).filter(|width| width.is_finite())
        };
        let Some(width) = half_width(computed.interval) else { continue };
        status.half_width = max_width(status.half_width, width);
        // More rounds do not narrow what has states, drifts or changes in stretches.
        let has_stretches = || {
            let sorted = Sorted::new(computed.samples.concat());
            sorted.is_some_and(|sorted| has_persistent_modes(&computed.samples, &sorted, computed.headline))
        };
        let can_be_narrowed = || {
            computed.states.is_none()
                && value_drift(&computed.round_times, &computed.round_headlines, computed.headline).is_none()
                && !has_stretches()
        };
        let narrowable_width = half_width(computed.own_interval).filter(|&width| width > target && can_be_narrowed());
        status.narrowable = narrowable_width.map_or(status.narrowable, |width| max_width(status.narrowable, width));
    }
    status
}

fn max_width(current: Option<f64>, width: f64) -> Option<f64> {
    Some(current.map_or(width, |current| current.max(width)))
}
