//! The evidence of conclusions: headlines of the rounds of a metric at a case, and tests between two of them.

use kelvin_core::{
    Case, Claim, Conclusion, Equivalence, Estimate, Measurement, Metric, MetricValue, PValue, RatioQuestion, Run,
    ShareQuestion, TestEvidence, TestOutcome,
};
use kelvin_stats::{
    BetweenRunVariance, CONFIDENCE_LEVEL, EarlierRuns, FALSE_DISCOVERY_RATE, UncertainValue, UnobservedVariance,
    bonferroni_level, headline, headline_interval, paired_ratio, rounds_to_decide,
};

use crate::bounds::exceeded_bound;
use crate::headlines::{Baselines, ComputedHeadline, clamp_estimate};
use crate::samples::SampleSet;

/// Distance from its limit, as a share of it, within which a ratio is the same: less than the two halves of a run often differ by.
pub(crate) const EQUIVALENCE_MARGIN: f64 = 0.05;

/// A run as a source of evidence.
pub(crate) struct Evidence<'r> {
    pub run: &'r Run,
    desk: Baselines<'r>,
}

/// The headlines of the rounds of a metric at a case.
#[derive(Clone, Debug)]
pub(crate) struct RoundHeadlines<'r> {
    pub metric: &'r Metric,
    pub case: &'r Case,
    pub values: Vec<f64>,
    /// Whether it was measured only as an input of predictions.
    pub only_input: bool,
    /// The number of the round that each is of.
    indices: Vec<u32>,
    /// The headlines of earlier runs.
    earlier: EarlierRuns<'r>,
    /// What they tell of the spread between runs.
    history: Option<BetweenRunVariance>,
}

impl<'r> Evidence<'r> {
    pub fn from_run(run: &'r Run) -> Self {
        Self { run, desk: Baselines::from_run(run) }
    }

    /// The rounds of a metric at each case, in the order in which they were planned.
    pub fn all_cases(&self, metric: &Metric) -> Vec<RoundHeadlines<'r>> {
        let Some(definition) = self.run.metric(&metric.id) else { return Vec::new() };
        let measured = self.run.measurements.iter().filter(|one| one.readings(&metric.id).next().is_some());
        measured.filter_map(|one| self.rounds(definition, one)).collect()
    }

    fn rounds(&self, metric: &'r Metric, measurement: &'r Measurement) -> Option<RoundHeadlines<'r>> {
        let case = &measurement.planned.case;
        let gathered = SampleSet::from_measurement(measurement, metric, &self.desk.references);
        let settled = ComputedHeadline::from_samples(&gathered, None)?;
        // Nothing follows from an impossible figure.
        let is_impossible = exceeded_bound(metric, self.run.bound(&metric.id, case), settled.headline).is_some();
        let past = self.desk.metric_history(metric.id, case);
        let (values, indices) = (settled.round_headlines, settled.round_indices);
        let (earlier, history) = (past.earlier, past.between_runs);
        let only_input = measurement.planned.only_input;
        (!is_impossible).then_some(RoundHeadlines { metric, case, values, only_input, indices, earlier, history })
    }

    /// The rounds of a metric at a case.
    pub fn rounds_at(&self, metric: &Metric, case: &Case) -> Option<RoundHeadlines<'r>> {
        self.all_cases(metric).into_iter().find(|rounds| rounds.case == case)
    }
}

impl RoundHeadlines<'_> {
    pub fn headline(&self) -> f64 {
        headline(&self.values)
    }

    /// It as a side of a conclusion.
    pub fn metric_value(&self) -> MetricValue {
        MetricValue {
            metric: self.metric.id,
            case: self.case.clone(),
            value: self.headline(),
            unit: self.metric.unit,
            rounds: self.values.len(),
        }
    }

    /// Every round times a factor.
    pub fn scaled(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self.history = self.history.map(|history| history.scaled(factor));
        self
    }

    /// The value that a round has, if it has one.
    fn value_at(&self, index: u32) -> Option<f64> {
        self.indices.iter().position(|&own| own == index).map(|place| self.values[place])
    }

    /// Another quantity, from these rounds and those of the same passes, where both have a value. Earlier runs tell nothing of it.
    pub fn combine(&self, other: &Self, quantity: impl Fn(f64, f64) -> f64) -> Self {
        let both = self
            .indices
            .iter()
            .zip(&self.values)
            .filter_map(|(&index, &own)| Some((index, own, other.value_at(index)?)));
        let (indices, values) = both.map(|(index, own, other)| (index, quantity(own, other))).unzip();
        Self { values, indices, earlier: EarlierRuns::default(), history: None, ..self.clone() }
    }

    /// The values of several in the passes in which each has one: a round that failed is missing in its own pass alone.
    pub fn common_passes<const N: usize>(all: [&Self; N]) -> Vec<[f64; N]> {
        let Some(first) = all.first() else { return Vec::new() };
        let of_pass = |&index: &u32| {
            let values: Option<Vec<f64>> = all.iter().map(|one| one.value_at(index)).collect();
            values.and_then(|values| values.try_into().ok())
        };
        first.indices.iter().filter_map(of_pass).collect()
    }

    /// The values of points in the passes in which each has one.
    pub fn shared_passes(all: &[Self]) -> Vec<Vec<f64>> {
        let Some(first) = all.first() else { return Vec::new() };
        first.indices.iter().filter_map(|&index| all.iter().map(|one| one.value_at(index)).collect()).collect()
    }

    /// Whether all rounds are above zero, as logarithms need.
    pub fn are_positive(&self) -> bool {
        self.values.iter().all(|&value| value > 0.0)
    }

    /// The median with its error; `None` with a single round.
    pub fn tested_figure(&self) -> Option<TestedFigure> {
        let weighed = TestedFigure::median(&self.values, self.history.as_ref())?;
        let estimate = clamp_estimate(weighed.estimate, &self.values);
        Some(TestedFigure { estimate, ..weighed })
    }

    /// The median with its interval; `None` with a single round.
    pub fn estimate(&self) -> Option<Estimate> {
        self.tested_figure().map(|weighed| weighed.estimate)
    }
}

/// A figure that is tested against limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TestedFigure {
    /// It with its interval, or with its range where there are too few rounds to test it.
    pub estimate: Estimate,
    /// Its error; `None` of a range.
    error: Option<UncertainValue>,
    /// Whether that is the error of its logarithm.
    is_ratio: bool,
    /// Fewest rounds of a side.
    rounds: usize,
}

impl TestedFigure {
    /// The median of rounds; `None` with a single one. What differs from run to run alike in all figures is in no comparison within one.
    pub fn median(values: &[f64], history: Option<&BetweenRunVariance>) -> Option<Self> {
        let interval = headline_interval(values, history, UnobservedVariance::default())?;
        let error = UncertainValue::median(values, history);
        let estimate =
            Estimate { value: headline(values), low: interval.lower, high: interval.upper, is_range: error.is_none() };
        Some(Self { estimate, error, is_ratio: false, rounds: values.len() })
    }

    /// The median of other rounds over that of the base; `None` without two rounds of each, all positive.
    pub fn ratio(base: &[f64], other: &[f64], history: Option<&BetweenRunVariance>) -> Option<Self> {
        let rounds = base.len().min(other.len());
        if rounds < 2 || base.iter().chain(other).any(|&value| value <= 0.0) {
            return None;
        }
        let error = kelvin_stats::ratio_of_medians(base, other, history);
        let end = |values: &[f64], end: fn(f64, f64) -> f64| values.iter().copied().reduce(end).unwrap_or(f64::NAN);
        let range = || {
            let [low, high] = [end(other, f64::min) / end(base, f64::max), end(other, f64::max) / end(base, f64::min)];
            Estimate { value: f64::NAN, low, high, is_range: true }
        };
        let ends = error.map_or_else(range, |error| estimate_from_logarithm(error, CONFIDENCE_LEVEL));
        // Not by way of its logarithm, which would round it.
        let estimate = Estimate { value: headline(other) / headline(base), ..ends };
        Some(Self { estimate, error, is_ratio: true, rounds })
    }

    /// The ratio of quantities of the same passes, second over first; `None` without two passes, all positive.
    pub fn from_pairs(pairs: &[[f64; 2]]) -> Option<Self> {
        let ratios: Vec<f64> = pairs.iter().map(|[first, second]| second / first).collect();
        let is_positive = pairs.as_flattened().iter().all(|&value| value > 0.0);
        let range = Self::median(&ratios, None).filter(|_| is_positive)?;
        let error = paired_ratio(pairs);
        let estimate = error.map_or(range.estimate, |error| estimate_from_logarithm(error, CONFIDENCE_LEVEL));
        Some(Self { estimate, error, is_ratio: true, rounds: ratios.len() })
    }

    /// A multiple whose logarithm is the median of these.
    pub fn from_logarithms(logarithms: &[f64]) -> Option<Self> {
        let median = Self::median(logarithms, None)?;
        let Estimate { value, low, high, is_range } = median.estimate;
        let estimate = Estimate { value: value.exp(), low: low.exp(), high: high.exp(), is_range };
        Some(Self { estimate, is_ratio: true, ..median })
    }

    /// It with an interval that holds together with those of others, so many in all.
    pub fn at_joint_level(&self, all: usize) -> Self {
        let level = bonferroni_level(all);
        let linear = |error: UncertainValue| {
            let (low, high) = error.interval(level);
            Estimate { value: error.value, low, high, is_range: false }
        };
        let wider = |error| if self.is_ratio { estimate_from_logarithm(error, level) } else { linear(error) };
        Self { estimate: self.error.map_or(self.estimate, wider), ..*self }
    }

    /// The chance of a figure as far from a limit by accident; `None` of a range.
    pub fn p_value(&self, limit: f64) -> Option<f64> {
        self.error.map(|error| error.p_value(self.limit_on_scale(limit)))
    }

    /// What the tests against a limit say; with a margin, a share of the limit, also whether it is the same. `None` of a range.
    pub fn test(&self, limit: f64, margin: Option<f64>) -> Option<TestOutcome> {
        let error = self.error?;
        let bounds = margin
            .map(|margin| (self.limit_on_scale(limit * (1.0 - margin)), self.limit_on_scale(limit * (1.0 + margin))));
        let same = margin.zip(bounds).map(|(within, (low, high))| {
            let chance = PValue::new(error.equivalence_p_value(low, high));
            Equivalence { within, chance, holds: chance.is_significant(FALSE_DISCOVERY_RATE) }
        });
        let differs = PValue::new(error.p_value(self.limit_on_scale(limit)));
        let rounds = rounds_to_decide(&error, self.rounds, self.limit_on_scale(limit), bounds);
        Some(TestOutcome { differs, same, rounds_to_decide: rounds.map(|rounds| rounds as u64) })
    }

    fn limit_on_scale(&self, limit: f64) -> f64 {
        if self.is_ratio { limit.ln() } else { limit }
    }
}

/// A figure from its logarithm.
fn estimate_from_logarithm(error: UncertainValue, level: f64) -> Estimate {
    let (low, high) = error.interval(level);
    Estimate { value: error.value.exp(), low: low.exp(), high: high.exp(), is_range: false }
}

/// What a test of several comparisons together says, by the chance that decides; `None` where one of them is a range.
pub(crate) fn outcome_of_p_value(chance: Option<f64>) -> Option<TestOutcome> {
    chance.map(|chance| TestOutcome { differs: PValue::new(chance.min(1.0)), same: None, rounds_to_decide: None })
}

/// The chance by which an answer stands that needs all of these; `None` where one is a range.
pub(crate) fn p_value_of_all(chances: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    chances.into_iter().try_fold(0.0, |most, chance| Some(f64::max(most, chance?)))
}

/// The same of one that any of these would do for, found among so many.
pub(crate) fn p_value_of_any(chances: impl IntoIterator<Item = Option<f64>>, among: usize) -> Option<f64> {
    let least = chances.into_iter().try_fold(1.0, |least, chance| Some(f64::min(least, chance?)))?;
    Some(least * among as f64)
}

/// Which side of its limit a figure is claimed to be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitSide {
    Above,
    Below,
}

impl LimitSide {
    pub fn holds(self, estimate: &Estimate, limit: f64) -> Option<bool> {
        match self {
            Self::Above => estimate.is_above(limit),
            Self::Below => estimate.is_below(limit),
        }
    }
}

/// A question about a ratio of medians: what it asks, on which side of which limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RatioTest {
    pub question: RatioQuestion,
    pub side: LimitSide,
    pub limit: f64,
}

impl RatioTest {
    pub const fn above(question: RatioQuestion, limit: f64) -> Self {
        Self { question, side: LimitSide::Above, limit }
    }

    pub const fn below(question: RatioQuestion, limit: f64) -> Self {
        Self { question, side: LimitSide::Below, limit }
    }

    /// The answer for two figures, the other against the base; `None` without two rounds of each.
    pub fn test(self, base: &RoundHeadlines<'_>, other: &RoundHeadlines<'_>) -> Option<Conclusion> {
        self.test_chosen_among(base, other, None)
    }

    /// The same where one of the two was chosen from the same rounds.
    pub fn test_chosen_among(
        self,
        base: &RoundHeadlines<'_>,
        other: &RoundHeadlines<'_>,
        among: Option<usize>,
    ) -> Option<Conclusion> {
        let weighed = ratio_of_rounds(base, other)?;
        let ratio = weighed.estimate;
        Some(Conclusion {
            claim: Claim::Ratio {
                question: self.question,
                base: base.metric_value(),
                other: other.metric_value(),
                ratio,
                limit: self.limit,
            },
            holds: self.side.holds(&ratio, self.limit),
            evidence: TestEvidence::RatioOfMedians {
                rounds: [other.values.len(), base.values.len()],
                chosen_among: among,
            },
            // Beside another limit than 1 the two sides are not the same, whatever the ratio.
            tested: weighed.test(self.limit, (self.limit == 1.0).then_some(EQUIVALENCE_MARGIN)),
        })
    }
}

/// The median of the other over that of the base; `None` without two rounds of each, all positive.
pub(crate) fn ratio_of_rounds(base: &RoundHeadlines<'_>, other: &RoundHeadlines<'_>) -> Option<TestedFigure> {
    let history = BetweenRunVariance::learn_ratio(base.earlier, other.earlier);
    TestedFigure::ratio(&base.values, &other.values, history.as_ref())
}

/// The answer to how large a share of something is.
pub(crate) fn share_conclusion(
    question: ShareQuestion,
    of: MetricValue,
    shares: &RoundHeadlines<'_>,
    limit: f64,
    beyond: LimitSide,
) -> Option<Conclusion> {
    let weighed = shares.tested_figure()?;
    let share = weighed.estimate;
    Some(Conclusion {
        claim: Claim::Share { question, of, share, limit },
        holds: beyond.holds(&share, limit),
        evidence: TestEvidence::Median { rounds: shares.values.len(), over: None },
        tested: weighed.test(limit, None),
    })
}
