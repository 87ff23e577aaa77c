//! The evidence of conclusions: headlines of the rounds of a metric at a case, and tests between two of them.

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::prelude::*;
use crate::studies::load::sweep::{Sweep, sweeps};

/// Distance from its limit, as a share of it, within which a ratio is the same: less than the two halves of a run often differ by.
pub(crate) const EQUIVALENCE_MARGIN: f64 = 0.05;

/// A run as a source of evidence: what its figures are judged by, and the headlines of all rounds.
pub(crate) struct Evidence<'r> {
    pub run: &'r Run,
    pub baselines: Baselines<'r>,
    /// By metric, in the order in which they were planned.
    rounds: HashMap<Name, Vec<RoundHeadlines<'r>>>,
    sweeps: OnceCell<Vec<Sweep>>,
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
    earlier_runs: EarlierRuns<'r>,
    /// The spread between runs that they show.
    history: Option<BetweenRunVariance>,
}

impl<'r> Evidence<'r> {
    /// Of a run whose samples are yet to be added.
    pub fn new(run: &'r Run) -> Self {
        Self { run, baselines: Baselines::from_run(run), rounds: HashMap::new(), sweeps: OnceCell::new() }
    }

    pub fn from_run(run: &'r Run) -> Self {
        let mut evidence = Self::new(run);
        for (measurement, metric) in measured_metrics(run) {
            let samples = SampleSet::from_measurement(measurement, &metric, &evidence.baselines.references);
            evidence.add_samples(measurement, metric.id, &samples);
        }
        evidence
    }

    /// Adds the rounds of a metric, unless there is no headline, or an impossible one, from which nothing follows.
    pub fn add_samples(&mut self, measurement: &'r Measurement, metric: Name, samples: &SampleSet) {
        let case = &measurement.planned.case;
        let Some(metric) = self.run.metric(&metric) else { return };
        let Some(computed) = ComputedHeadline::from_samples(samples, None) else { return };
        if exceeded_bound(metric, self.run.bound(&metric.id, case), computed.headline).is_some() {
            return;
        }
        let history = self.baselines.metric_history(metric.id, case);
        self.rounds.entry(metric.id).or_default().push(RoundHeadlines {
            metric,
            case,
            values: computed.round_headlines,
            only_input: measurement.planned.only_input,
            indices: computed.round_indices,
            earlier_runs: history.earlier_runs,
            history: history.between_runs,
        });
    }

    /// The rounds of a metric at each case, in the order in which they were planned.
    pub fn all_cases(&self, metric: &Metric) -> &[RoundHeadlines<'r>] {
        self.rounds.get(&metric.id).map_or(&[], Vec::as_slice)
    }

    /// The rounds of a metric at a case.
    pub fn rounds_at(&self, metric: &Metric, case: &Case) -> Option<&RoundHeadlines<'r>> {
        self.all_cases(metric).iter().find(|rounds| rounds.case == case)
    }

    /// The sweeps over numbers of users.
    pub fn sweeps(&self) -> &[Sweep] {
        self.sweeps.get_or_init(|| sweeps(self.run))
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

    /// The headline with the half-width of its interval.
    pub fn measured_value(&self) -> MeasuredValue {
        let half_width = self.estimate().map_or(0.0, |estimate| (estimate.high - estimate.low) / 2.0);
        MeasuredValue { value: self.headline(), half_width }
    }

    /// Every round times a factor.
    pub fn scaled(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self.history = self.history.map(|history| history.scaled(factor));
        self
    }

    /// The value that a round has, if it has one.
    fn value_at(&self, index: u32) -> Option<f64> {
        self.indices.iter().position(|&round| round == index).map(|place| self.values[place])
    }

    /// Another quantity, from these rounds and those of the same passes, where both have a value. Earlier runs show nothing of it.
    pub fn combine(&self, other: &Self, quantity: impl Fn(f64, f64) -> f64) -> Self {
        let common = self
            .indices
            .iter()
            .zip(&self.values)
            .filter_map(|(&index, &value)| Some((index, value, other.value_at(index)?)));
        let (indices, values) = common.map(|(index, value, other)| (index, quantity(value, other))).unzip();
        Self { values, indices, earlier_runs: EarlierRuns::default(), history: None, ..self.clone() }
    }

    /// The values of several in the passes in which each has one: a round that failed is missing in its own pass alone.
    pub fn common_passes<const N: usize>(points: [&Self; N]) -> Vec<[f64; N]> {
        Self::shared_passes(&points).into_iter().filter_map(|values| values.try_into().ok()).collect()
    }

    /// The values of points in the passes in which each has one.
    pub fn shared_passes(points: &[&Self]) -> Vec<Vec<f64>> {
        let Some(first) = points.first() else { return Vec::new() };
        first.indices.iter().filter_map(|&index| points.iter().map(|point| point.value_at(index)).collect()).collect()
    }

    /// Whether all rounds are above zero, as logarithms need.
    pub fn are_positive(&self) -> bool {
        self.values.iter().all(|&value| value > 0.0)
    }

    /// The median with its error; `None` with a single round.
    pub fn tested_figure(&self) -> Option<TestedFigure> {
        let tested = TestedFigure::median(&self.values, self.history.as_ref())?;
        Some(TestedFigure { estimate: clamp_estimate(tested.estimate, &self.values), ..tested })
    }

    /// The median with its interval; `None` with a single round.
    pub fn estimate(&self) -> Option<Estimate> {
        self.tested_figure().map(|tested| tested.estimate)
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
        // Not by way of its logarithm, which would round it.
        let value = headline(other) / headline(base);
        let range = (end(other, f64::min) / end(base, f64::max), end(other, f64::max) / end(base, f64::min));
        let estimate = match error {
            Some(error) => Estimate { value, ..estimate_from_logarithm(error, CONFIDENCE_LEVEL) },
            None => Estimate { is_range: true, ..Estimate::new(value, range) },
        };
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
        Some(Self { estimate: median.estimate.map(f64::exp), is_ratio: true, ..median })
    }

    /// It with an interval that holds jointly with those of others, `count` together.
    pub fn at_joint_level(&self, count: usize) -> Self {
        let level = bonferroni_level(count);
        let widen = |error| match self.is_ratio {
            true => estimate_from_logarithm(error, level),
            false => interval_estimate(error, level),
        };
        Self { estimate: self.error.map_or(self.estimate, widen), ..*self }
    }

    /// The chance of a figure as far from a limit by accident; `None` of a range.
    pub fn p_value(&self, limit: f64) -> Option<f64> {
        self.error.map(|error| error.p_value(self.limit_on_scale(limit)))
    }

    /// The results of the tests against a limit; with a margin, a share of the limit, also whether it is the same. `None` of a range.
    pub fn test(&self, limit: f64, margin: Option<f64>) -> Option<TestOutcome> {
        let error = self.error?;
        let [limit, low, high] = [1.0, 1.0 - margin.unwrap_or(0.0), 1.0 + margin.unwrap_or(0.0)]
            .map(|factor| self.limit_on_scale(limit * factor));
        let equivalence = margin.map(|margin| {
            let p_value = PValue::new(error.equivalence_p_value(low, high));
            Equivalence { margin, p_value, holds: p_value.is_significant(FALSE_DISCOVERY_RATE) }
        });
        let rounds = rounds_to_decide(&error, self.rounds, limit, margin.map(|_| (low, high)));
        let rounds_to_decide = rounds.map(|rounds| rounds as u64);
        Some(TestOutcome { difference: PValue::new(error.p_value(limit)), equivalence, rounds_to_decide })
    }

    fn limit_on_scale(&self, limit: f64) -> f64 {
        if self.is_ratio { limit.ln() } else { limit }
    }
}

/// A figure from its logarithm.
pub(crate) fn estimate_from_logarithm(error: UncertainValue, level: f64) -> Estimate {
    interval_estimate(error, level).map(f64::exp)
}

/// The result of a test of several comparisons together, by the chance that decides; `None` where one of them is a range.
pub(crate) fn outcome_of_p_value(chance: Option<f64>) -> Option<TestOutcome> {
    chance.map(|chance| TestOutcome {
        difference: PValue::new(chance.min(1.0)),
        equivalence: None,
        rounds_to_decide: None,
    })
}

/// The chance by which an answer stands that needs all of these; `None` where one is a range.
pub(crate) fn p_value_of_all(chances: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    chances.into_iter().try_fold(0.0, |greatest, chance| Some(f64::max(greatest, chance?)))
}

/// The chance of an answer that any of these would do for, found among this many.
pub(crate) fn p_value_of_any(chances: impl IntoIterator<Item = Option<f64>>, count: usize) -> Option<f64> {
    let smallest = chances.into_iter().try_fold(1.0, |smallest, chance| Some(f64::min(smallest, chance?)))?;
    Some(smallest * count as f64)
}

/// Whether an interval is on the claimed side of a limit: [`Estimate::is_above`] or [`Estimate::is_below`].
pub(crate) type SideOfLimit = fn(&Estimate, f64) -> Option<bool>;

/// How a claim was tested: the data of its test, the test in words, and its result.
pub(crate) struct ClaimTest {
    pub evidence: TestEvidence,
    pub text: String,
    pub outcome: Option<TestOutcome>,
}

impl ClaimTest {
    pub fn new(evidence: TestEvidence, text: impl Into<String>, outcome: Option<TestOutcome>) -> Self {
        Self { evidence, text: text.into(), outcome }
    }

    pub fn ratio_of_medians(
        [other, base]: [&RoundHeadlines<'_>; 2],
        chosen_among: Option<usize>,
        outcome: Option<TestOutcome>,
    ) -> Self {
        let rounds = [other, base].map(|side| side.values.len());
        let choice = chosen_among
            .map_or_else(String::new, |count| format!("; the point was chosen among {count} from the same rounds"));
        let text = format!("ratio of medians of {} against {} rounds{choice}", rounds[0], rounds[1]);
        Self::new(TestEvidence::RatioOfMedians { rounds, chosen_among }, text, outcome)
    }

    pub fn median(rounds: usize, source: Option<String>, outcome: Option<TestOutcome>) -> Self {
        let suffix = source.as_ref().map_or_else(String::new, |source| format!(", over {source}"));
        Self::new(TestEvidence::Median { rounds, over: source }, format!("median of {rounds} rounds{suffix}"), outcome)
    }

    /// The conclusion on a claim, with its sentence.
    pub fn conclude(self, claim: Claim, holds: Option<bool>, text: String) -> StatedConclusion {
        let conclusion = Conclusion { claim, holds, evidence: self.evidence, outcome: self.outcome };
        StatedConclusion { text, test: self.text, conclusion }
    }
}

/// A question about a ratio of medians: what it asks, on which side of which limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RatioTest {
    pub question: RatioQuestion,
    side: SideOfLimit,
    limit: f64,
    /// Among how many points one of the two was chosen from the same rounds.
    chosen_among: Option<usize>,
}

/// The answer of the rounds of two figures to a question on their ratio.
pub(crate) struct RatioAnswer {
    pub base: MetricValue,
    pub other: MetricValue,
    pub ratio: Estimate,
    pub hypothesis: RatioTest,
    test: ClaimTest,
}

impl RatioTest {
    pub const fn above(question: RatioQuestion, limit: f64) -> Self {
        Self { question, side: Estimate::is_above, limit, chosen_among: None }
    }

    pub const fn below(question: RatioQuestion, limit: f64) -> Self {
        Self { question, side: Estimate::is_below, limit, chosen_among: None }
    }

    pub const fn chosen_among(self, count: usize) -> Self {
        Self { chosen_among: Some(count), ..self }
    }

    /// The answer for two figures, the other against the base; `None` without two rounds of each.
    pub fn test(self, base: &RoundHeadlines<'_>, other: &RoundHeadlines<'_>) -> Option<RatioAnswer> {
        let tested = ratio_of_rounds(base, other)?;
        // Compared with another limit than 1 the two sides are not the same at any ratio.
        let outcome = tested.test(self.limit, (self.limit == 1.0).then_some(EQUIVALENCE_MARGIN));
        Some(RatioAnswer {
            base: base.metric_value(),
            other: other.metric_value(),
            ratio: tested.estimate,
            hypothesis: self,
            test: ClaimTest::ratio_of_medians([other, base], self.chosen_among, outcome),
        })
    }
}

impl RatioAnswer {
    /// `3.61 times as long (95 %: 3.40 to 3.80), 47.6 us against 13.0 us`.
    pub fn times(&self, degree: &str) -> String {
        format!("{}, {}", ratio_text(&self.ratio, degree), self.amounts())
    }

    /// `47.6 us against 13.0 us`.
    pub fn amounts(&self) -> String {
        format!("{} against {}", amount_text(&self.other), amount_text(&self.base))
    }

    /// The conclusion whose sentence is a claim with the ratio and both amounts.
    pub fn conclude_times(self, claim: &str, degree: &str) -> StatedConclusion {
        let text = format!("{claim}: {}", self.times(degree));
        self.conclude(text)
    }

    /// The conclusion with its sentence.
    pub fn conclude(self, text: String) -> StatedConclusion {
        let RatioTest { question, side, limit, .. } = self.hypothesis;
        let holds = side(&self.ratio, limit);
        let claim = Claim::Ratio { question, base: self.base, other: self.other, ratio: self.ratio, limit };
        self.test.conclude(claim, holds, text)
    }
}

/// The median of the other over that of the base; `None` without two rounds of each, all positive.
pub(crate) fn ratio_of_rounds(base: &RoundHeadlines<'_>, other: &RoundHeadlines<'_>) -> Option<TestedFigure> {
    let history = BetweenRunVariance::learn_ratio(base.earlier_runs, other.earlier_runs);
    TestedFigure::ratio(&base.values, &other.values, history.as_ref())
}

/// A question about how large a share of something is.
pub(crate) struct ShareTest<'s, 'r> {
    pub question: ShareQuestion,
    pub figure: MetricValue,
    pub shares: &'s RoundHeadlines<'r>,
    pub side: SideOfLimit,
    pub limit: f64,
}

impl ShareTest<'_, '_> {
    /// The answer, with a sentence that states the share and its interval; `None` with a single round.
    pub fn conclude(self, text: impl FnOnce(&MetricValue, &Estimate) -> String) -> Option<StatedConclusion> {
        let Self { question, figure, shares, side, limit } = self;
        let tested = shares.tested_figure()?;
        let (share, text) = (tested.estimate, text(&figure, &tested.estimate));
        let test = ClaimTest::median(shares.values.len(), None, tested.test(limit, None));
        Some(test.conclude(Claim::Share { question, figure, share, limit }, side(&share, limit), text))
    }
}

/// A figure with its interval at a level.
pub(crate) fn interval_estimate(figure: UncertainValue, level: f64) -> Estimate {
    Estimate::new(figure.value, figure.interval(level))
}
