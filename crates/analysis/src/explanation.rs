//! What an experiment shows: the figure as a sum of what is shown to cause it, and a remainder.
//!
//! All figures are medians of rounds, as found, and all differences and ratios are taken within passes: what a pass has in common
//! cancels. Of a cause counts as much as all its mechanisms show. Rates do not add up; their reciprocals, the times of a million
//! bytes, do.

use kelvin_core::IndirectSort;
use std::collections::BTreeMap;

use kelvin_core::units::{Scale, metric_at, quantity, scale_for};

use crate::counters::{event_rates, event_rates_text};
use crate::prelude::*;

/// A cause matters from this share of the figure on, and a bystander has moved from it on.
const MIN_RELEVANT_SHARE: f64 = 0.05;
/// Interim analyses of an experiment, to decide whether more passes are needed.
const INTERIM_LOOKS: usize = 4;
/// Nanoseconds in a second times the million bytes whose time stands for a rate.
const RATE_TIME_FACTOR: f64 = 1e9 * 1e6;

/// Values of one figure by the number of their pass.
type PassValues = BTreeMap<u32, f64>;

/// What an experiment shows so far; `None` without four rounds of the figure.
pub fn explain(experiment: &Experiment) -> Option<Explanation> {
    let data = ExperimentData::from_experiment(experiment)?;
    let raw: Vec<f64> = arm_medians(experiment, &[], &data.target).into_values().collect();
    let figure = interval_estimate(UncertainValue::median(&raw, None)?, CONFIDENCE_LEVEL);
    let total = interval_estimate(data.total, CONFIDENCE_LEVEL);
    let causes: Vec<CauseResult> = experiment.causes.iter().map(|cause| data.judge_cause(cause)).collect();
    let (parts, not_explained) = data.sum(&causes);
    let record = experiment.predicted.as_ref();
    Some(Explanation {
        why_format: EXPLANATION_FORMAT,
        kelvin: env!("CARGO_PKG_VERSION").into(),
        probe: experiment.probe,
        metric: experiment.metric,
        case: experiment.case.clone(),
        passes: data.figure_amounts.len(),
        seconds: experiment.seconds,
        figure: clamp_estimate(figure, &raw),
        amounts: data.amount_unit,
        whole: clamp_estimate(total, &data.figure_amounts.values().copied().collect::<Vec<_>>()),
        predicted: record.and_then(|record| record.prediction.clone()),
        no_prediction_reason: record.and_then(|record| Some(record.missing_reason.as_ref()?.0.clone())),
        predicted_without: experiment.predicted_without.as_ref().and_then(|record| record.prediction.clone()),
        parts,
        is_explained: not_explained.amount.is_above(0.0).is_none(),
        not_explained,
        causes,
        counters: arm_measurement(experiment, &[], &data.target)
            .map_or_else(Vec::new, |measurement| event_rates(measurement, experiment.metric.id)),
    })
}

/// The median of the rounds of a metric as found, or with all of these controls, of which a prediction may be made.
pub fn measured_with_controls(
    experiment: &Experiment,
    controls: &[Name],
    figure: &MetricCase,
) -> Option<MeasuredValue> {
    let values: Vec<f64> = arm_medians(experiment, controls, figure).into_values().collect();
    let interval = UncertainValue::median(&values, None).map(|figure| figure.interval(CONFIDENCE_LEVEL));
    let half_width = interval.map_or(0.0, |(low, high)| (high - low) / 2.0);
    (!values.is_empty()).then(|| MeasuredValue { value: median(&values), half_width })
}

/// The controls that take away all that is shown, of each cause that which takes most; each once.
pub fn shown_controls(experiment: &Experiment) -> Vec<Name> {
    ExperimentData::from_experiment(experiment).map_or_else(Vec::new, |data| data.shown_controls())
}

/// The control that takes a cause away.
fn main_control(mechanism: &MechanismTrial) -> Option<Name> {
    match mechanism.amount {
        AmountFormula::Without(control) | AmountFormula::BeyondLinear([_, control]) => Some(control),
        AmountFormula::Sweep(_) | AmountFormula::Difference(_) => None,
    }
}

/// The rounds of a metric under controls.
fn arm_measurement<'e>(experiment: &'e Experiment, controls: &[Name], figure: &MetricCase) -> Option<&'e Measurement> {
    let is_at = |planned: &PlannedMeasurement| planned.case == figure.case && planned.metrics.contains(&figure.metric);
    let arm = experiment.arms.iter().find(|arm| arm.controls == controls && is_at(&arm.measurement.planned))?;
    Some(&arm.measurement)
}

/// Medians of the rounds of a metric under controls, in its unit.
fn arm_medians(experiment: &Experiment, controls: &[Name], figure: &MetricCase) -> PassValues {
    let rounds = metric_at_case(experiment, figure).zip(arm_measurement(experiment, controls, figure));
    rounds.map_or_else(PassValues::new, |(metric, measurement)| round_medians(measurement, &metric))
}

fn metric_at_case(experiment: &Experiment, figure: &MetricCase) -> Option<Metric> {
    let is_target = figure.metric == experiment.metric.id;
    if is_target { Some(experiment.metric) } else { kelvin_core::catalogue::find(figure.metric).copied() }
}

/// The amounts of the figure in each pass under controls.
fn arm_amounts(experiment: &Experiment, amount_unit: AmountUnit, controls: &[Name], figure: &MetricCase) -> PassValues {
    let rounds = arm_medians(experiment, controls, figure).into_iter();
    rounds.filter_map(|(pass, value)| Some((pass, to_amount(value, amount_unit, experiment.metric.unit)?))).collect()
}

/// The rounds of an experiment, and how they become amounts.
struct ExperimentData<'e> {
    experiment: &'e Experiment,
    target: MetricCase,
    amount_unit: AmountUnit,
    /// The amounts of the figure as found, and their median.
    figure_amounts: PassValues,
    total: UncertainValue,
    /// The level of the intervals by which all mechanisms together are judged.
    joint_level: f64,
}

/// What one mechanism shows.
struct MechanismResult<'e> {
    mechanism: &'e MechanismTrial,
    amount: Result<CauseAmount, String>,
    negative_control: Option<NegativeControl>,
}

impl MechanismResult<'_> {
    /// Whether its control moved what it cannot touch.
    fn is_void(&self) -> bool {
        self.negative_control.as_ref().is_some_and(|bystander| bystander.moved)
    }

    fn verdict(&self) -> Option<AmountVerdict> {
        self.amount.as_ref().ok().map(|amount| amount.verdict)
    }
}

/// An amount with its interval, and its verdict by the wider interval by which all mechanisms together are judged.
#[derive(Clone, Copy)]
struct CauseAmount {
    estimate: Estimate,
    verdict: AmountVerdict,
}

/// The verdict on a mechanism by its amount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AmountVerdict {
    Present,
    Absent,
    Opposite,
    Undecided,
}

impl<'e> ExperimentData<'e> {
    /// `None` without four rounds of the figure as found.
    fn from_experiment(experiment: &'e Experiment) -> Option<Self> {
        let amount_unit = match experiment.metric.unit {
            Unit::Nanoseconds | Unit::PerSecond => AmountUnit::Operation,
            Unit::BytesPerSecond => AmountUnit::Megabyte,
            _ => AmountUnit::MetricUnit,
        };
        let mechanism_count: usize = experiment.causes.iter().map(|cause| cause.mechanisms.len()).sum();
        let target = MetricCase { metric: experiment.metric.id, case: experiment.case.clone() };
        let figure_amounts = arm_amounts(experiment, amount_unit, &[], &target);
        let total = median_of(&figure_amounts)?;
        let joint_level = bonferroni_level(INTERIM_LOOKS * mechanism_count);
        Some(Self { experiment, target, amount_unit, figure_amounts, total, joint_level })
    }

    /// The amounts of the figure in each pass under controls.
    fn amounts_under(&self, controls: &[Name]) -> PassValues {
        arm_amounts(self.experiment, self.amount_unit, controls, &self.target)
    }

    fn share(&self, amount: Estimate) -> AmountShare {
        AmountShare { amount, share: amount.divided_by(self.total.value) }
    }

    fn judge_cause(&self, cause: &CauseTrial) -> CauseResult {
        let results = self.mechanism_results(cause);
        let valid_results = self.counted_mechanisms(&results);
        let verdict = cause_verdict(&valid_results, &results);
        let amounts = valid_results.iter().filter_map(|result| Some(result.amount.as_ref().ok()?.estimate));
        let lowest = amounts.min_by(|a, b| a.value.total_cmp(&b.value));
        let host_part =
            lowest.filter(|_| verdict == CauseVerdict::Shown).and_then(|sum| self.host_amount(&results, sum));
        CauseResult {
            id: cause.id,
            summary: cause.summary,
            remedy: cause.remedy,
            verdict,
            share: lowest.map(|amount| self.share(amount)),
            host_share: host_part.map(|amount| self.share(amount)),
            evidence: results.iter().map(|result| mechanism_evidence(result, &valid_results)).collect(),
            by_formula: cause.size.as_ref().and_then(|size| {
                let median = UncertainValue::median(&self.figure_differences(size), None)?;
                Some(FormulaSize { formula: size.clone(), nanoseconds: interval_estimate(median, CONFIDENCE_LEVEL) })
            }),
        }
    }

    /// What each mechanism of a cause shows.
    fn mechanism_results(&self, cause: &'e CauseTrial) -> Vec<MechanismResult<'e>> {
        let result = |mechanism: &'e MechanismTrial| MechanismResult {
            mechanism,
            amount: self.mechanism_amount(mechanism),
            negative_control: self.negative_control(cause, mechanism),
        };
        cause.mechanisms.iter().map(result).collect()
    }

    /// What a mechanism shows of the figure, or why it shows nothing.
    fn mechanism_amount(&self, mechanism: &MechanismTrial) -> Result<CauseAmount, String> {
        if let Some(SkipReason(reason)) = &mechanism.refused {
            return Err(reason.clone());
        }
        let differences = match &mechanism.amount {
            AmountFormula::Without(control) => {
                let remaining = self.amounts_under(&[*control]);
                // A busy machine makes both larger by the same factor, not by the same time: what is taken from the whole follows from
                // the logarithm of how many times as large it is as what is left.
                if let Some(times) = paired_ratio(&pass_pairs(&remaining, &self.figure_amounts)) {
                    let reduction = |logarithm: f64| self.total.value * (1.0 - (-logarithm).exp());
                    return Ok(self.cause_amount(times, reduction));
                }
                pass_differences(&self.figure_amounts, &remaining)
            }
            AmountFormula::Sweep([weak, strong]) => {
                pass_differences(&self.amounts_under(&[*strong]), &self.amounts_under(&[*weak]))
            }
            AmountFormula::BeyondLinear([weaker, stronger]) => {
                let residual = self.amounts_under(&[*stronger]);
                let reduction = UncertainValue::median(&pass_differences(&self.figure_amounts, &residual), None);
                if reduction.is_some_and(|reduction| {
                    self.cause_amount(reduction, |amount| amount).verdict == AmountVerdict::Absent
                }) {
                    return Err("its control removes nothing here".into());
                }
                pass_differences(&self.amounts_under(&[*weaker]), &residual)
            }
            AmountFormula::Difference(difference) => self.figure_differences(difference),
        };
        let amount = UncertainValue::median(&differences, None);
        amount.map(|amount| self.cause_amount(amount, |amount| amount)).ok_or_else(|| self.missing_reason(mechanism))
    }

    /// An amount from a figure on a scale on which its errors add up.
    fn cause_amount(&self, figure: UncertainValue, amount: impl Fn(f64) -> f64) -> CauseAmount {
        let estimate = |level: f64| interval_estimate(figure, level).map(&amount);
        let [value, low, high] = estimate(self.joint_level).parts();
        let min_amount = MIN_RELEVANT_SHARE * self.total.value;
        let verdict = match () {
            () if low > 0.0 && value >= min_amount => AmountVerdict::Present,
            () if high < 0.0 && value <= -min_amount => AmountVerdict::Opposite,
            () if high < min_amount => AmountVerdict::Absent,
            () => AmountVerdict::Undecided,
        };
        CauseAmount { estimate: estimate(CONFIDENCE_LEVEL), verdict }
    }

    fn figure_differences(&self, formula: &FigureDifference) -> Vec<f64> {
        let FigureDifference { minuend, subtrahend, factor } = formula;
        let [minuend, subtrahend] = [minuend, subtrahend].map(|figure| arm_medians(self.experiment, &[], figure));
        pass_differences(&minuend, &subtrahend).into_iter().map(|difference| difference * factor).collect()
    }

    /// Why a mechanism has too few rounds.
    fn missing_reason(&self, mechanism: &MechanismTrial) -> String {
        let controls = match &mechanism.amount {
            AmountFormula::Without(control) => vec![*control],
            AmountFormula::Sweep([_, strong]) | AmountFormula::BeyondLinear([_, strong]) => vec![*strong],
            AmountFormula::Difference(_) => Vec::new(),
        };
        match arm_measurement(self.experiment, &controls, &self.target).map(missing_outcome) {
            Some(Outcome::Failed(reason)) => format!("its rounds failed: {reason}"),
            Some(Outcome::Skipped(SkipReason(reason))) => reason,
            _ => "it has fewer than four rounds".into(),
        }
    }

    /// The mechanisms that count: all that could be tried, less one that does nothing in a virtual machine where another shows the
    /// cause; a substitute counts only where one of those is missing.
    fn counted_mechanisms<'s>(&self, results: &'s [MechanismResult<'e>]) -> Vec<&'s MechanismResult<'e>> {
        let primaries = || results.iter().filter(|result| !result.mechanism.is_substitute);
        let is_shown = primaries().any(|result| !result.is_void() && result.verdict() == Some(AmountVerdict::Present));
        let is_idle = |result: &MechanismResult<'_>| {
            let can_be_idle = self.experiment.is_virtual && result.mechanism.idle_in_guest.is_some();
            is_shown && can_be_idle && result.verdict() == Some(AmountVerdict::Absent)
        };
        let is_valid = |result: &MechanismResult<'_>| result.amount.is_ok() && !result.is_void() && !is_idle(result);
        let is_one_missing = primaries().any(|result| !is_valid(result));
        results
            .iter()
            .filter(|result| is_valid(result) && (is_one_missing || !result.mechanism.is_substitute))
            .collect()
    }

    /// What of a cause is the host's: where the guest's own part can be taken away and that changes nothing, and the cause grows all the
    /// same with the time for which the other end has been idle.
    fn host_amount(&self, results: &[MechanismResult<'_>], amount: Estimate) -> Option<Estimate> {
        let is_in_guest = |result: &MechanismResult<'_>| {
            result.mechanism.idle_in_guest.is_some() && result.verdict() != Some(AmountVerdict::Absent)
        };
        if !self.experiment.is_virtual || results.iter().any(is_in_guest) {
            return None;
        }
        let sweep = results.iter().find(|result| {
            let is_sweep = matches!(result.mechanism.amount, AmountFormula::Sweep(_));
            is_sweep && !result.is_void() && result.verdict() == Some(AmountVerdict::Present)
        })?;
        let sweep_estimate = sweep.amount.as_ref().ok()?.estimate;
        // A gap longer than the one in question shows more than there is in it.
        Some(if sweep_estimate.value < amount.value { sweep_estimate } else { amount })
    }

    fn negative_control(&self, cause: &CauseTrial, mechanism: &MechanismTrial) -> Option<NegativeControl> {
        let (bystander, control) = (cause.negative_control.as_ref()?, main_control(mechanism)?);
        let [baseline, controlled] =
            [&[][..], &[control]].map(|controls| arm_medians(self.experiment, controls, bystander));
        let ratio = paired_ratio(&pass_pairs(&baseline, &controlled))?;
        let shift = UncertainValue::median(&pass_differences(&controlled, &baseline), None)?;
        let (low, high) = shift.interval(self.joint_level);
        let unit = metric_at_case(self.experiment, bystander)?.unit;
        // A shift of a microsecond means nothing to a figure of a second.
        let share = match (self.amount_unit, unit) {
            (AmountUnit::Operation, Unit::Nanoseconds) => shift.value.abs() / self.total.value,
            _ => ratio.value.exp() - 1.0,
        };
        Some(NegativeControl {
            at: bystander.clone(),
            value: median_of(&baseline)?.value,
            unit,
            ratio: estimate_from_logarithm(ratio, CONFIDENCE_LEVEL),
            moved: (low > 0.0 || high < 0.0) && share.abs() > MIN_RELEVANT_SHARE,
        })
    }

    /// The controls that take away all that is shown, of each cause that which takes most; each once. A control that takes more away than
    /// another stands for both.
    fn shown_controls(&self) -> Vec<Name> {
        let mut controls: Vec<Name> = Vec::new();
        for cause in &self.experiment.causes {
            let results = self.mechanism_results(cause);
            let valid_results = self.counted_mechanisms(&results);
            if cause_verdict(&valid_results, &results) != CauseVerdict::Shown {
                continue;
            }
            let amount = |result: &&MechanismResult<'_>| {
                result.amount.as_ref().map_or(f64::NEG_INFINITY, |amount| amount.estimate.value)
            };
            let controllable = valid_results.into_iter().filter(|result| main_control(result.mechanism).is_some());
            let main_result = controllable.max_by(|a, b| amount(a).total_cmp(&amount(b)));
            let control = main_result.and_then(|result| main_control(result.mechanism));
            controls.extend(control.filter(|control| !controls.contains(control)));
        }
        let mechanisms = || self.experiment.causes.iter().flat_map(|cause| &cause.mechanisms);
        let is_weaker = |weak: &Name| {
            mechanisms().any(|mechanism| match &mechanism.amount {
                AmountFormula::BeyondLinear([weaker, stronger]) => weaker == weak && controls.contains(stronger),
                _ => false,
            })
        };
        controls.iter().copied().filter(|control| !is_weaker(control)).collect()
    }

    /// The figure as a sum, and what no part of it explains.
    fn sum(&self, causes: &[CauseResult]) -> (Vec<ExplainedPart>, AmountShare) {
        let shown_causes = causes.iter().filter(|cause| cause.verdict == CauseVerdict::Shown);
        let mut shown_shares: Vec<(Name, AmountShare)> =
            shown_causes.filter_map(|cause| Some((cause.id, cause.share?))).collect();
        shown_shares.indirect_sort_by(|a, b| b.1.amount.value.total_cmp(&a.1.amount.value));
        let rest = median_of(&self.amounts_under(&self.shown_controls()));
        let rest = rest.map_or_else(
            || {
                let value = self.total.value - shown_shares.iter().map(|(_, share)| share.amount.value).sum::<f64>();
                Estimate { is_range: true, ..Estimate::exact(value) }
            },
            |rest| interval_estimate(rest, CONFIDENCE_LEVEL),
        );
        // What the figure without all that is shown should be; as found, if nothing is shown.
        let record =
            if shown_shares.is_empty() { &self.experiment.predicted } else { &self.experiment.predicted_without };
        let expected =
            record.as_ref().and_then(|record| self.expected(record)).filter(|expected| rest.low > expected.high);
        let (kind, amount) = expected.map_or((PartKind::Rest, rest), |expected| (PartKind::Expected, expected));
        let not_explained = match (&kind, shown_shares.is_empty()) {
            // The figure less itself.
            (PartKind::Rest, true) => Estimate::exact(0.0),
            _ => {
                let parts = std::iter::once(amount).chain(shown_shares.iter().map(|(_, share)| share.amount));
                remainder(interval_estimate(self.total, CONFIDENCE_LEVEL), parts)
            }
        };
        let mut parts = vec![ExplainedPart { kind, share: self.share(amount) }];
        parts.extend(shown_shares.into_iter().map(|(id, share)| ExplainedPart { kind: PartKind::Cause(id), share }));
        (parts, self.share(not_explained))
    }

    /// A prediction of the figure as an amount.
    fn expected(&self, record: &PredictionRecord) -> Option<Estimate> {
        let prediction = record.prediction.as_ref()?;
        let amount = |value: f64| to_amount(value, self.amount_unit, self.experiment.metric.unit);
        let (low, high) = (amount(prediction.low)?, amount(prediction.high)?);
        Some(Estimate::new(amount(prediction.value)?, (low.min(high), low.max(high))))
    }
}

/// A value of the figure as an amount.
fn to_amount(value: f64, amount_unit: AmountUnit, unit: Unit) -> Option<f64> {
    let amount = match (amount_unit, unit) {
        (AmountUnit::Megabyte, _) => RATE_TIME_FACTOR / value,
        (AmountUnit::Operation, Unit::PerSecond) => 1e9 / value,
        _ => value,
    };
    amount.is_finite().then_some(amount)
}

fn cause_verdict(valid_results: &[&MechanismResult<'_>], results: &[MechanismResult<'_>]) -> CauseVerdict {
    let amount_verdicts: Vec<AmountVerdict> = valid_results.iter().filter_map(|result| result.verdict()).collect();
    let Some(first) = amount_verdicts.first() else {
        if results.iter().any(MechanismResult::is_void) {
            return CauseVerdict::Invalid;
        }
        let refusal = results.iter().find_map(|result| result.amount.as_ref().err());
        return CauseVerdict::NotTried(SkipReason::new(refusal.map_or("it has no control here", String::as_str)));
    };
    let is_all_of = |verdicts: &[AmountVerdict]| amount_verdicts.iter().all(|result| verdicts.contains(result));
    let declared_count = results.iter().filter(|result| !result.mechanism.is_substitute).count();
    match () {
        () if is_all_of(&[AmountVerdict::Present]) && amount_verdicts.len() < declared_count => {
            CauseVerdict::OneMechanism
        }
        () if is_all_of(&[AmountVerdict::Present]) => CauseVerdict::Shown,
        () if *first == AmountVerdict::Opposite && is_all_of(&[AmountVerdict::Opposite, AmountVerdict::Absent]) => {
            CauseVerdict::Opposite
        }
        () if is_all_of(&[AmountVerdict::Absent, AmountVerdict::Opposite]) => CauseVerdict::RuledOut,
        () if amount_verdicts.contains(&AmountVerdict::Present)
            && !amount_verdicts.contains(&AmountVerdict::Undecided) =>
        {
            CauseVerdict::MechanismsDisagree
        }
        () => CauseVerdict::Undecided,
    }
}

fn mechanism_evidence(result: &MechanismResult<'_>, valid_results: &[&MechanismResult<'_>]) -> MechanismEvidence {
    let is_counted = valid_results.iter().any(|candidate| std::ptr::eq(candidate.mechanism, result.mechanism));
    let missing_reason = match &result.amount {
        Err(reason) => Some(reason.clone()),
        Ok(_) if is_counted => None,
        Ok(_) if result.is_void() => Some("it also changes a figure that it cannot act on".into()),
        Ok(_) if result.mechanism.is_substitute => Some("the other tests are enough".into()),
        Ok(_) => result.mechanism.idle_in_guest.map(|reason| reason.to_string()),
    };
    let amount = result.amount.as_ref().ok().map(|amount| amount.estimate);
    let (description, negative_control) = (result.mechanism.description, result.negative_control.clone());
    MechanismEvidence { description, amount, missing_reason, negative_control }
}

fn median_of(values: &PassValues) -> Option<UncertainValue> {
    UncertainValue::median(&values.values().copied().collect::<Vec<_>>(), None)
}

/// What is left of the whole. Errors of what was measured apart add as squares (Zou and Donner 2008).
fn remainder(total: Estimate, parts: impl Iterator<Item = Estimate>) -> Estimate {
    parts.fold(total, |remaining, part| {
        let value = remaining.value - part.value;
        let lower_error = (remaining.value - remaining.low).hypot(part.high - part.value);
        let upper_error = (remaining.high - remaining.value).hypot(part.value - part.low);
        Estimate::new(value, (value - lower_error, value + upper_error))
    })
}

/// Two figures within passes.
fn pass_pairs(first: &PassValues, second: &PassValues) -> Vec<[f64; 2]> {
    first.iter().filter_map(|(pass, value)| Some([*value, *second.get(pass)?])).collect()
}

/// Differences of two figures within passes.
fn pass_differences(minuend: &PassValues, subtrahend: &PassValues) -> Vec<f64> {
    minuend.iter().filter_map(|(pass, value)| Some(value - subtrahend.get(pass)?)).collect()
}

/// An explanation in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplanationText {
    /// What the figure is.
    pub sentences: Vec<String>,
    /// Unit of the amounts: `µs`, `µs/MB`.
    pub unit: String,
    /// The rows of the sum.
    pub rows: Vec<ExplanationRow>,
    /// The sum itself.
    pub total: String,
    /// Further remarks, each with its label.
    pub notes: Vec<(&'static str, String)>,
}

/// A row of the sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplanationRow {
    /// What the part is.
    pub label: String,
    /// Its amount.
    pub amount: String,
    /// Its share.
    pub share: String,
    /// What shows it.
    pub shown_by: String,
    /// Whether it is a part of the row above, and no part of the sum by itself.
    pub is_within: bool,
}

/// What is found of several figures; nothing of none.
pub fn explanations_summary(explanations: &[Explanation]) -> Option<String> {
    let is_part = |part: &ExplainedPart| matches!(part.kind, PartKind::Cause(_));
    let count = |is_shown: bool, is_explained: bool| {
        let is_counted = |explanation: &&Explanation| {
            (explanation.parts.iter().any(is_part), explanation.is_explained) == (is_shown, is_explained)
        };
        explanations.iter().filter(is_counted).count()
    };
    let counts = [
        (count(true, true), "explained"),
        (count(true, false), "explained in part"),
        (count(false, false), "not explained"),
        (count(false, true), "not distinguishable from a prediction"),
    ];
    let texts =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, description)| format!("{count} {description}"));
    let texts: Vec<String> = texts.collect();
    let figures = counted_text(explanations.len() as u64, "figure");
    (!texts.is_empty()).then(|| format!("{figures}: {}.", texts.join(", ")))
}

/// An explanation in words.
pub fn word_explanation(explanation: &Explanation) -> ExplanationText {
    let scale = AmountFormat::for_explanation(explanation);
    ExplanationText {
        sentences: sentences(explanation),
        unit: scale.unit(explanation.amounts),
        rows: rows(explanation, &scale),
        total: scale.text(explanation.whole.value),
        notes: notes(explanation, &scale),
    }
}

/// The figure, what it is, and what was predicted of it.
fn sentences(explanation: &Explanation) -> Vec<String> {
    let Explanation { metric, figure, .. } = explanation;
    let unit = metric.unit;
    let [value, low, high] = [figure.value, figure.low, figure.high].map(|value| quantity(value, None, unit));
    // The interval has a unit only where it is another one.
    let interval = match () {
        () if figure.low >= figure.high => String::new(),
        () if [&low, &high].iter().all(|end| end.unit == value.unit) => format!(" ({} to {})", low.value, high.value),
        () => format!(" ({})", span(figure.low, figure.high, unit)),
    };
    let range = |predicted: &Prediction| span(predicted.low, predicted.high, unit);
    let predicted = match (&explanation.predicted, &explanation.no_prediction_reason) {
        (Some(predicted), _) => format!(", predicted {}", range(predicted)),
        (None, Some(reason)) => format!("; no prediction: {reason}"),
        (None, None) => String::new(),
    };
    let prediction = explanation.predicted_without.as_ref();
    let without_text = prediction.map(|predicted| format!("; without what is shown below {}", range(predicted)));
    vec![
        metric_and_case(metric, &explanation.case),
        format!("{}.", metric.summary),
        String::new(),
        format!("{}{interval}{predicted}{}.", value_text(figure.value, unit), without_text.unwrap_or_default()),
    ]
}

/// The parts with what the host has of them, and the remainder.
fn rows(explanation: &Explanation, scale: &AmountFormat) -> Vec<ExplanationRow> {
    let row = |label: String, share: &AmountShare, shown_by: String| ExplanationRow {
        label,
        amount: scale.text(share.amount.value),
        share: whole_percent(share.share.value),
        shown_by,
        is_within: false,
    };
    let is_single_part = explanation.parts.len() == 1;
    let mut rows = Vec::new();
    for ExplainedPart { kind, share } in &explanation.parts {
        let cause = explanation.causes.iter().find(|cause| *kind == PartKind::Cause(cause.id));
        let (label, shown_by) = match (kind, cause) {
            (PartKind::Cause(_), Some(cause)) => {
                let valid_evidence = cause.evidence.iter().filter(|evidence| evidence.missing_reason.is_none());
                let mechanisms: Vec<&str> = valid_evidence.map(|evidence| evidence.description.as_str()).collect();
                let shown_by = format!("{}: {}", share_interval(&share.share), mechanisms.join("; "));
                (cause.summary.to_string(), shown_by)
            }
            (PartKind::Cause(id), None) => (id.to_string(), String::new()),
            (PartKind::Rest, _) if is_single_part => ("no part of it is shown".into(), String::new()),
            (PartKind::Rest, _) => ("without these".into(), format!("measured so ({})", scale.interval(&share.amount))),
            (PartKind::Expected, _) if is_single_part => ("as predicted".into(), "its inputs, as measured".into()),
            (PartKind::Expected, _) => ("as predicted without these".into(), "its inputs, measured so".into()),
        };
        rows.push(row(label, share, shown_by));
        rows.extend(cause.and_then(|cause| cause.host_share).map(|share| {
            let shown_by = format!("{}: it grows with the time that the CPU was idle", share_interval(&share.share));
            ExplanationRow { is_within: true, ..row("of that the host".into(), &share, shown_by) }
        }));
    }
    let rest = &explanation.not_explained;
    let shown_by = match &explanation.predicted {
        _ if rest.amount.low < rest.amount.high => format!("({})", scale.interval(&rest.amount)),
        Some(range) if (range.low..=range.high).contains(&explanation.figure.value) => {
            "it is within its predicted range".into()
        }
        Some(_) => "its interval overlaps its predicted range".into(),
        None => "nothing predicts it".into(),
    };
    let is_overlap = rest.amount.is_above(0.0) == Some(false);
    rows.push(row(if is_overlap { "counted twice" } else { "not explained" }.into(), rest, shown_by));
    rows
}

/// How the amounts of one explanation are written: all in one unit, with as many decimals as the whole has.
struct AmountFormat {
    scale: Scale,
    decimals: usize,
}

impl AmountFormat {
    fn for_explanation(explanation: &Explanation) -> Self {
        let unit = match explanation.amounts {
            AmountUnit::MetricUnit => explanation.metric.unit,
            AmountUnit::Operation | AmountUnit::Megabyte => Unit::Nanoseconds,
        };
        let scale = scale_for(explanation.whole.value, unit);
        let decimals = match (explanation.whole.value / scale.factor).abs() {
            size if size >= 99.95 => 0,
            size if size >= 9.995 => 1,
            _ => 2,
        };
        Self { scale, decimals }
    }

    fn unit(&self, amount_unit: AmountUnit) -> String {
        let symbol = self.scale.symbol;
        if amount_unit == AmountUnit::Megabyte { format!("{symbol}/MB") } else { symbol.to_owned() }
    }

    fn text(&self, amount: f64) -> String {
        let text = format!("{:.*}", self.decimals, amount / self.scale.factor);
        // No minus before nothing.
        match text.strip_prefix('-') {
            Some(size) if size.bytes().all(|digit| b"0.".contains(&digit)) => size.to_owned(),
            _ => text,
        }
    }

    fn interval(&self, amount: &Estimate) -> String {
        format!("{} to {}", self.text(amount.low), self.text(amount.high))
    }

    fn with_unit(&self, amount: &Estimate) -> String {
        format!("{} {}", self.interval(amount), self.scale.symbol)
    }
}

fn whole_percent(share: f64) -> String {
    let text = format!("{:.0} %", share * 100.0);
    if text == "-0 %" { "0 %".into() } else { text }
}

/// `51 to 64 %`.
pub(crate) fn share_interval(share: &Estimate) -> String {
    match [share.low, share.high].map(whole_percent) {
        [low, high] if low == high => low,
        [low, high] => format!("{} to {high}", low.trim_end_matches(" %")),
    }
}

/// `waking an idle CPU takes 51 to 64 % of it`.
pub(crate) fn cause_share(cause: &ShownCause) -> String {
    format!("{} takes {} of it", cause.summary, share_interval(&cause.share))
}

fn notes(explanation: &Explanation, scale: &AmountFormat) -> Vec<(&'static str, String)> {
    let list = |text: &dyn Fn(&CauseResult) -> Option<String>| {
        let texts: Vec<String> = explanation.causes.iter().filter_map(text).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    };
    let verdict_notes: Vec<Option<(&str, String)>> =
        explanation.causes.iter().map(|cause| verdict_note(cause, scale)).collect();
    let verdict_texts = VERDICT_LABELS.map(|label| {
        let labelled_text = |(cause, note): (&CauseResult, &Option<(&str, String)>)| {
            let (_, text) = note.as_ref().filter(|(note_label, _)| *note_label == label)?;
            Some(format!("{}{text}", cause.summary))
        };
        let texts: Vec<String> = explanation.causes.iter().zip(&verdict_notes).filter_map(labelled_text).collect();
        (label, (!texts.is_empty()).then(|| texts.join("; ")))
    });
    let no_cause_text = "nothing: kelvin knows no cause that can affect this figure and that it can remove";
    let is_above = explanation.not_explained.amount.is_above(0.0);
    let not_explained = || {
        let was_tried = |cause: &&CauseResult| !matches!(cause.verdict, CauseVerdict::NotTried(_));
        let causes = explanation.causes.iter().filter(was_tried);
        let share = percent(explanation.not_explained.share.value.abs());
        match causes.map(|cause| cause.summary.as_str()).collect::<Vec<_>>().as_slice() {
            [] => format!("{share} of it; nothing could be tried"),
            names => format!("{share} of it; tried: {}", names.join(", ")),
        }
    };
    let overlap = "the parts add up to more than the whole: some causes act on the same time";
    let formula = |cause: &CauseResult| {
        let FormulaSize { formula, nanoseconds } = cause.by_formula.as_ref()?;
        let FigureDifference { minuend, subtrahend, factor } = formula;
        let factor = if *factor == 1.0 { String::new() } else { format!("{factor} x ") };
        let size = value_text(nanoseconds.value, Unit::Nanoseconds);
        Some(format!("{}: {factor}({minuend} - {subtrahend}) = {size}", cause.summary))
    };
    let remedy = |cause: &CauseResult| (cause.verdict == CauseVerdict::Shown).then(|| cause.remedy.to_string());
    let measured =
        format!("{} passes in {}, medians of rounds as measured", explanation.passes, seconds(explanation.seconds));
    let other_notes = [
        ("tried", explanation.causes.is_empty().then(|| no_cause_text.to_owned())),
        ("not explained", (is_above == Some(true)).then(not_explained)),
        ("overlap", (is_above == Some(false)).then(|| overlap.to_owned())),
        ("by formula", list(&formula)),
        ("predicted", explanation.predicted_without.as_ref().map(|predicted| predicted.derivation.clone())),
        (
            "counted",
            event_rates_text(&explanation.counters).map(|text| format!("by the processor, for each operation {text}")),
        ),
        ("bystanders", Some(negative_controls(explanation).join("; ")).filter(|text| !text.is_empty())),
        ("What helps", list(&remedy).map(|remedies| format!("{remedies}."))),
        ("measured", Some(measured)),
    ];
    verdict_texts.into_iter().chain(other_notes).filter_map(|(label, text)| Some((label, text?))).collect()
}

/// The labels of the notes on causes by their verdicts, in their order.
const VERDICT_LABELS: [&str; 5] = ["ruled out", "the opposite", "not decided", "void", "not tried"];

/// The note on a cause that is not shown, after its summary, with its label.
fn verdict_note(cause: &CauseResult, scale: &AmountFormat) -> Option<(&'static str, String)> {
    let mechanisms = || mechanism_list(cause, scale);
    Some(match &cause.verdict {
        CauseVerdict::Shown => return None,
        CauseVerdict::RuledOut => {
            let share = cause.share.map(|share| format!(" ({})", scale.with_unit(&share.amount)));
            ("ruled out", share.unwrap_or_default())
        }
        CauseVerdict::Opposite => {
            let amount = cause.share?.amount;
            let increase = Estimate::new(-amount.value, (-amount.high, -amount.low));
            ("the opposite", format!(": without it, it takes {} more", scale.with_unit(&increase)))
        }
        CauseVerdict::Undecided => {
            ("not decided", format!(" ({}): more passes, by --budget, may decide", mechanisms()))
        }
        CauseVerdict::MechanismsDisagree => ("not decided", format!(": its mechanisms disagree ({})", mechanisms())),
        CauseVerdict::OneMechanism => ("not decided", format!(": one mechanism alone shows it ({})", mechanisms())),
        CauseVerdict::Invalid => {
            ("void", ": its controls also change what they cannot affect, and prove nothing".to_owned())
        }
        CauseVerdict::NotTried(SkipReason(reason)) => ("not tried", format!(": {reason}")),
    })
}

/// What each mechanism shows.
fn mechanism_list(cause: &CauseResult, scale: &AmountFormat) -> String {
    let text = |evidence: &MechanismEvidence| match (&evidence.amount, &evidence.missing_reason) {
        (Some(amount), None) => format!("{}: {}", evidence.description, scale.with_unit(amount)),
        (Some(amount), Some(reason)) => format!("{}: {}, {reason}", evidence.description, scale.with_unit(amount)),
        (None, reason) => format!("{}: not tried: {}", evidence.description, reason.as_deref().unwrap_or("no rounds")),
    };
    cause.evidence.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// What the controls did to what their causes cannot touch, each control once.
fn negative_controls(explanation: &Explanation) -> Vec<String> {
    let mut controls: Vec<(String, String)> = Vec::new();
    for evidence in explanation.causes.iter().flat_map(|cause| &cause.evidence) {
        let Some(control) = &evidence.negative_control else { continue };
        let metric = kelvin_core::catalogue::find(control.at.metric);
        let name = metric.map_or_else(|| control.at.to_string(), |metric| metric_at(metric, &control.at.case));
        let ratio = format!("{:.2} times {}", control.ratio.value, evidence.description);
        let text = if control.moved { format!("{ratio}, so it does not count") } else { ratio };
        match controls.iter_mut().find(|(existing_name, _)| *existing_name == name) {
            Some((_, existing_text)) if existing_text.contains(&text) => {}
            Some((_, existing_text)) => existing_text.push_str(&format!(", {text}")),
            None => controls.push((name, format!("{}, {text}", value_text(control.value, control.unit)))),
        }
    }
    controls.into_iter().map(|(name, text)| format!("{name}: {text}")).collect()
}
