//! How far figures usually lie from what is said of them.

use std::collections::BTreeMap;

use kelvin_model::{Case, Metric, Unit};
use kelvin_stats::mean;

/// Variance between machines of the natural logarithm of a figure that nothing else tells of: a factor of 1.28 either way, as a stated
/// tolerance. What few machines there are tell more of it where they agree.
pub(super) const OF_ANYTHING: f64 = 0.06;
/// The same of a figure over its yardstick: a factor of 1.15 either way.
pub(super) const OF_A_YARDSTICK: f64 = 0.02;
/// Least variance of a figure about its formula: 1 % of error is in any two figures.
const LEAST: f64 = 1e-4;
/// Share of metrics, the closest ones, by which a subject is judged: what fails on a machine is no rule.
const USUAL: f64 = 0.7;
/// How many metrics of a subject all others count as: one metric that a formula hits by chance makes no sharp subject.
const OF_ALL: f64 = 1.0;
/// The same of a stated tolerance.
const OF_TOLERANCE: f64 = 2.0;

/// What figures are about whose predictions are wrong by as much: the first two parts of a metric's id, and its unit, since a count is
/// known better than a time.
pub(super) type Subject = (String, Unit);

/// How far figures usually lie from what is said of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Usual {
    by_subject: BTreeMap<Subject, f64>,
    /// That of a subject of which nothing is known, if something is assumed.
    otherwise: Option<f64>,
}

impl Usual {
    /// About formulas, from the mean squares of the metrics of each subject: those of few metrics are drawn to those of all.
    pub(super) fn about_formulas(squares: BTreeMap<Subject, Vec<f64>>) -> Self {
        let all: Vec<f64> = squares.values().flatten().copied().collect();
        if all.is_empty() {
            return Self::default();
        }
        Self::drawn(squares, (closest(all), OF_ALL), None)
    }

    /// Of what has no formula: drawn to a stated tolerance, since machines that are alike tell little of one that is not.
    pub(super) fn between_machines(squares: BTreeMap<Subject, Vec<f64>>, tolerance: f64) -> Self {
        Self::drawn(squares, (tolerance, OF_TOLERANCE), Some(tolerance))
    }

    /// Drawn to a variance that counts as so many metrics.
    fn drawn(squares: BTreeMap<Subject, Vec<f64>>, (to, worth): (f64, f64), otherwise: Option<f64>) -> Self {
        let drawn = |squares: Vec<f64>| {
            let metrics = squares.len() as f64;
            (metrics * closest(squares) + worth * to) / (metrics + worth)
        };
        Self {
            by_subject: squares.into_iter().map(|(subject, squares)| (subject, drawn(squares))).collect(),
            otherwise,
        }
    }

    /// The variance of one more metric of a subject, as a natural logarithm.
    pub(super) fn variance(&self, subject: &Subject) -> Option<f64> {
        self.by_subject.get(subject).copied().or(self.otherwise)
    }
}

/// The subject of a metric.
pub(super) fn subject(metric: &Metric) -> Subject {
    (metric.id.split('.').take(2).collect::<Vec<_>>().join("."), metric.unit)
}

/// The mean of the closest of these mean squares.
fn closest(mut squares: Vec<f64>) -> f64 {
    squares.sort_by(f64::total_cmp);
    squares.truncate(((squares.len() as f64 * USUAL) as usize).max(1));
    mean(&squares).max(LEAST)
}

/// The mean square of natural logarithms.
pub(super) fn mean_square(cases: &[(Case, f64)]) -> f64 {
    mean(&cases.iter().map(|(_, off)| off * off).collect::<Vec<f64>>()).max(LEAST)
}
