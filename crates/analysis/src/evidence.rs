//! The evidence of conclusions: headlines of the rounds of a metric at a case, and tests between two of them.

use kelvin_model::{
    Case, Claim, Conclusion, Estimate, Measurement, Metric, RatioQuestion, Run, ShareQuestion, Side, Test,
};
use kelvin_stats::{headline, headline_interval, median_ratio};

use crate::bounds::broken_bound;
use crate::gather::Gathered;
use crate::headlines::{Desk, Settled};

/// A run as a source of evidence.
pub(crate) struct Evidence<'r> {
    pub run: &'r Run,
    desk: Desk<'r>,
}

/// The headlines of the rounds of a metric at a case.
#[derive(Clone, Debug)]
pub(crate) struct Rounds<'r> {
    pub metric: &'r Metric,
    pub case: &'r Case,
    pub values: Vec<f64>,
}

impl<'r> Evidence<'r> {
    pub fn of(run: &'r Run) -> Self {
        Self { run, desk: Desk::of(run) }
    }

    /// The rounds of a metric at each case, in the order in which they were planned.
    pub fn all(&self, metric: &Metric) -> Vec<Rounds<'r>> {
        let Some(definition) = self.run.metric(&metric.id) else { return Vec::new() };
        let measured = self.run.measurements.iter().filter(|one| one.readings(&metric.id).next().is_some());
        measured.filter_map(|one| self.rounds(definition, one)).collect()
    }

    fn rounds(&self, metric: &'r Metric, measurement: &'r Measurement) -> Option<Rounds<'r>> {
        let case = &measurement.planned.case;
        let gathered = Gathered::of(measurement, metric, &self.desk.references);
        let settled = Settled::headline(&gathered, None)?;
        // Nothing follows from an impossible figure.
        let is_impossible = broken_bound(metric, self.run.bound(&metric.id, case), settled.headline).is_some();
        (!is_impossible).then_some(Rounds { metric, case, values: settled.round_headlines })
    }

    /// The rounds of a metric at a case.
    pub fn at(&self, metric: &Metric, case: &Case) -> Option<Rounds<'r>> {
        self.all(metric).into_iter().find(|rounds| rounds.case == case)
    }
}

impl Rounds<'_> {
    pub fn headline(&self) -> f64 {
        headline(&self.values)
    }

    /// It as a side of a conclusion.
    pub fn side(&self) -> Side {
        Side {
            metric: self.metric.id,
            case: self.case.clone(),
            value: self.headline(),
            unit: self.metric.unit,
            rounds: self.values.len(),
        }
    }

    /// Every round times a factor.
    pub fn times(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// Whether all rounds are above zero, as logarithms need.
    pub fn are_positive(&self) -> bool {
        self.values.iter().all(|&value| value > 0.0)
    }

    /// The median with its interval; `None` with a single round.
    pub fn estimate(&self) -> Option<Estimate> {
        let interval = headline_interval(&self.values, None)?;
        Some(Estimate { value: self.headline(), low: interval.lower, high: interval.upper })
    }
}

/// Which side of its limit a figure is claimed to be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    Above,
    Below,
}

impl Beyond {
    pub fn holds(self, estimate: &Estimate, limit: f64) -> Option<bool> {
        match self {
            Self::Above => estimate.is_above(limit),
            Self::Below => estimate.is_below(limit),
        }
    }
}

/// A question about a ratio of medians: what it asks, on which side of which limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub question: RatioQuestion,
    pub beyond: Beyond,
    pub limit: f64,
}

impl Ask {
    pub const fn above(question: RatioQuestion, limit: f64) -> Self {
        Self { question, beyond: Beyond::Above, limit }
    }

    pub const fn below(question: RatioQuestion, limit: f64) -> Self {
        Self { question, beyond: Beyond::Below, limit }
    }

    /// The answer for two figures, the other against the base; `None` without two rounds of each.
    pub fn of(self, base: &Rounds<'_>, other: &Rounds<'_>) -> Option<Conclusion> {
        self.chosen_among(base, other, None)
    }

    /// The same where one of the two was chosen from the same rounds.
    pub fn chosen_among(self, base: &Rounds<'_>, other: &Rounds<'_>, among: Option<usize>) -> Option<Conclusion> {
        let ratio = ratio(base, other)?;
        Some(Conclusion {
            claim: Claim::Ratio {
                question: self.question,
                base: base.side(),
                other: other.side(),
                ratio,
                limit: self.limit,
            },
            holds: self.beyond.holds(&ratio, self.limit),
            evidence: Test::RatioOfMedians { rounds: [other.values.len(), base.values.len()], chosen_among: among },
        })
    }
}

/// The median of the other over that of the base; `None` without two rounds of each.
pub(crate) fn ratio(base: &Rounds<'_>, other: &Rounds<'_>) -> Option<Estimate> {
    let (value, low, high) = median_ratio(&base.values, &other.values)?;
    Some(Estimate { value, low, high })
}

/// The answer to how large a share of something is.
pub(crate) fn share(
    question: ShareQuestion,
    of: Side,
    shares: &Rounds<'_>,
    limit: f64,
    beyond: Beyond,
) -> Option<Conclusion> {
    let share = shares.estimate()?;
    Some(Conclusion {
        claim: Claim::Share { question, of, share, limit },
        holds: beyond.holds(&share, limit),
        evidence: Test::Median { rounds: shares.values.len(), over: None },
    })
}
