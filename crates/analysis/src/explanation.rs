//! What an experiment shows: the figure as a sum of what is shown to cause it, and a remainder.
//!
//! All figures are medians of rounds, as found, and all differences and ratios are taken within passes: what a pass has in common
//! cancels. Of a cause counts as much as all its mechanisms show. Rates do not add up; their reciprocals, the times of a million
//! bytes, do.

use std::collections::BTreeMap;

use kelvin_core::{
    AmountFormula, AmountShare, AmountUnit, CauseResult, CauseTrial, CauseVerdict, EXPLANATION_FORMAT, Estimate,
    Experiment, ExplainedPart, Explanation, FigureDifference, FormulaSize, MeasuredValue, Measurement,
    MechanismEvidence, MechanismTrial, Metric, MetricCase, Name, NegativeControl, PartKind, Prediction, SkipReason,
    Unit,
};
use kelvin_stats::{CONFIDENCE_LEVEL, UncertainValue, bonferroni_level, median, paired_ratio};

use crate::canaries::CanaryReferences;
use crate::headlines::clamp_estimate;
use crate::result::Outcome;
use crate::samples::{SampleSet, missing_outcome};

/// A cause matters from this share of the figure on, and a bystander has moved from it on.
const MIN_RELEVANT_SHARE: f64 = 0.05;
/// Times that an experiment is looked at while it goes on, to see whether more passes are needed.
const INTERIM_LOOKS: usize = 4;
/// Nanoseconds in a second times the million bytes whose time stands for a rate.
const RATE_TIME_FACTOR: f64 = 1e9 * 1e6;

/// Values of one figure by the number of their pass.
type PassValues = BTreeMap<u32, f64>;

/// What an experiment shows so far; `None` without four rounds of the figure.
pub fn explain(experiment: &Experiment) -> Option<Explanation> {
    let desk = ExperimentData::from_experiment(experiment);
    let found = desk.amounts_by_pass(&[], &desk.asked);
    let whole = desk.median_amount(&found)?;
    let raw = desk.round_medians(&[], &desk.asked);
    let figure = desk.median_amount(&raw)?;
    let raw: Vec<f64> = raw.values().copied().collect();
    let causes: Vec<CauseResult> =
        experiment.causes.iter().map(|cause| desk.judge_cause(cause, &found, whole)).collect();
    let sum = ExplainedSum::from_causes(&desk, &causes, whole);
    Some(Explanation {
        why_format: EXPLANATION_FORMAT,
        kelvin: env!("CARGO_PKG_VERSION").into(),
        probe: experiment.probe,
        metric: experiment.metric,
        case: experiment.case.clone(),
        passes: found.len(),
        seconds: experiment.seconds,
        figure: clamp_estimate(estimate(figure, CONFIDENCE_LEVEL), &raw),
        amounts: desk.amounts,
        whole: clamp_estimate(estimate(whole, CONFIDENCE_LEVEL), &found.values().copied().collect::<Vec<_>>()),
        predicted: experiment.predicted.as_ref().and_then(|record| record.prediction.clone()),
        not_predicted: experiment.predicted.as_ref().and_then(|record| Some(record.none_because.as_ref()?.0.clone())),
        predicted_without: desk.predicted_without().cloned(),
        parts: sum.parts,
        is_explained: sum.not_explained.amount.is_above(0.0).is_none(),
        not_explained: sum.not_explained,
        causes,
    })
}

/// The median of the rounds of a metric as found, or with all of these controls, of which a prediction may be made.
pub fn measured_with_controls(experiment: &Experiment, under: &[Name], at: &MetricCase) -> Option<MeasuredValue> {
    let values: Vec<f64> = ExperimentData::from_experiment(experiment).round_medians(under, at).into_values().collect();
    let half = |(low, high): (f64, f64)| (high - low) / 2.0;
    let half_width =
        UncertainValue::median(&values, None).map_or(0.0, |figure| half(figure.interval(CONFIDENCE_LEVEL)));
    (!values.is_empty()).then(|| MeasuredValue { value: median(&values), half_width })
}

/// The controls that take away all that is shown, of each cause that which takes most; each once.
pub fn shown_controls(experiment: &Experiment) -> Vec<Name> {
    let desk = ExperimentData::from_experiment(experiment);
    let found = desk.amounts_by_pass(&[], &desk.asked);
    let Some(whole) = desk.median_amount(&found) else { return Vec::new() };
    let mut controls = Vec::new();
    for cause in &experiment.causes {
        let shown = desk.mechanism_results(cause, &found, whole);
        let counted = desk.counted_mechanisms(&shown, whole);
        let is_shown = desk.verdict(&counted, &shown, whole) == CauseVerdict::Shown;
        let amount = |one: &&&MechanismResult<'_>| one.amount.as_ref().map_or(f64::NEG_INFINITY, |amount| amount.value);
        let strongest = counted.iter().filter(|one| main_control(one.mechanism).is_some());
        let strongest = strongest.max_by(|one, other| amount(one).total_cmp(&amount(other))).filter(|_| is_shown);
        let control = strongest.and_then(|one| main_control(one.mechanism));
        controls.extend(control.filter(|control| !controls.contains(control)));
    }
    drop_weaker_controls(experiment, controls)
}

/// A control that takes more away than another stands for both.
fn drop_weaker_controls(experiment: &Experiment, controls: Vec<Name>) -> Vec<Name> {
    let mechanisms = || experiment.causes.iter().flat_map(|cause| &cause.mechanisms);
    let is_weaker = |weak: &Name| {
        mechanisms().any(|mechanism| match &mechanism.amount {
            AmountFormula::Beyond([weaker, stronger]) => weaker == weak && controls.contains(stronger),
            _ => false,
        })
    };
    controls.iter().copied().filter(|control| !is_weaker(control)).collect()
}

/// The control that takes a cause away.
fn main_control(mechanism: &MechanismTrial) -> Option<Name> {
    match mechanism.amount {
        AmountFormula::Without(control) | AmountFormula::Beyond([_, control]) => Some(control),
        AmountFormula::Sweep(_) | AmountFormula::Difference(_) => None,
    }
}

/// The rounds of an experiment, and how they become amounts.
struct ExperimentData<'e> {
    experiment: &'e Experiment,
    asked: MetricCase,
    amounts: AmountUnit,
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
}

/// An amount with its interval, and with the wider one by which all mechanisms together are judged.
#[derive(Clone, Copy)]
struct CauseAmount {
    value: f64,
    interval: (f64, f64),
    joint_interval: (f64, f64),
}

impl CauseAmount {
    fn from_uncertain(figure: UncertainValue, jointly: f64) -> Self {
        Self {
            value: figure.value,
            interval: figure.interval(CONFIDENCE_LEVEL),
            joint_interval: figure.interval(jointly),
        }
    }

    /// What is taken from a whole, by the logarithm of how many times as large it is as what is left.
    fn removed_part(from: f64, logarithm: UncertainValue, jointly: f64) -> Self {
        let taken = |logarithm: f64| from * (1.0 - (-logarithm).exp());
        let of = |(low, high): (f64, f64)| (taken(low), taken(high));
        Self {
            value: taken(logarithm.value),
            interval: of(logarithm.interval(CONFIDENCE_LEVEL)),
            joint_interval: of(logarithm.interval(jointly)),
        }
    }

    fn estimate(self) -> Estimate {
        Estimate { value: self.value, low: self.interval.0, high: self.interval.1, is_range: false }
    }
}

/// What an amount says of a mechanism.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AmountVerdict {
    Present,
    Absent,
    Opposite,
    Undecided,
}

impl<'e> ExperimentData<'e> {
    fn from_experiment(experiment: &'e Experiment) -> Self {
        let amounts = match experiment.metric.unit {
            Unit::Nanoseconds | Unit::PerSecond => AmountUnit::Operation,
            Unit::BytesPerSecond => AmountUnit::Megabyte,
            _ => AmountUnit::Own,
        };
        let tested: usize = experiment.causes.iter().map(|cause| cause.mechanisms.len()).sum();
        let asked = MetricCase { metric: experiment.metric.id, case: experiment.case.clone() };
        Self { experiment, asked, amounts, joint_level: bonferroni_level(INTERIM_LOOKS * tested) }
    }

    fn measurement(&self, under: &[Name], at: &MetricCase) -> Option<&'e Measurement> {
        let is_of = |measurement: &Measurement| {
            measurement.planned.case == at.case && measurement.planned.metrics.contains(&at.metric)
        };
        let arms = &self.experiment.arms;
        arms.iter().find(|arm| arm.under == under && is_of(&arm.measurement)).map(|arm| &arm.measurement)
    }

    /// Medians of the rounds of a metric, in its unit.
    fn round_medians(&self, under: &[Name], at: &MetricCase) -> PassValues {
        let Some(metric) = self.metric(at) else { return PassValues::new() };
        let Some(measurement) = self.measurement(under, at) else { return PassValues::new() };
        let gathered = SampleSet::from_measurement(measurement, &metric, &CanaryReferences::default());
        let rounds = gathered.rounds.iter().filter(|round| !round.as_found.is_empty());
        rounds.map(|round| (round.index, median(&round.as_found))).collect()
    }

    fn metric(&self, at: &MetricCase) -> Option<Metric> {
        let is_asked = at.metric == self.experiment.metric.id;
        if is_asked { Some(self.experiment.metric) } else { kelvin_core::catalogue::find(at.metric).copied() }
    }

    /// The same as amounts.
    fn amounts_by_pass(&self, under: &[Name], at: &MetricCase) -> PassValues {
        self.round_medians(under, at)
            .into_iter()
            .filter_map(|(pass, value)| Some((pass, self.amount(value)?)))
            .collect()
    }

    /// A value of the figure as an amount.
    fn amount(&self, value: f64) -> Option<f64> {
        let amount = match (self.amounts, self.experiment.metric.unit) {
            (AmountUnit::Megabyte, _) => RATE_TIME_FACTOR / value,
            (AmountUnit::Operation, Unit::PerSecond) => 1e9 / value,
            _ => value,
        };
        amount.is_finite().then_some(amount)
    }

    fn median_amount(&self, values: &PassValues) -> Option<UncertainValue> {
        UncertainValue::median(&values.values().copied().collect::<Vec<_>>(), None)
    }

    fn judge_cause(&self, cause: &CauseTrial, found: &PassValues, whole: UncertainValue) -> CauseResult {
        let shown = self.mechanism_results(cause, found, whole);
        let counted = self.counted_mechanisms(&shown, whole);
        let verdict = self.verdict(&counted, &shown, whole);
        let least = counted.iter().filter_map(|one| one.amount.as_ref().ok());
        let least = least.min_by(|one, other| one.value.total_cmp(&other.value)).copied();
        let of_host =
            least.filter(|_| verdict == CauseVerdict::Shown).and_then(|all| self.host_amount(&shown, all, whole));
        CauseResult {
            id: cause.id,
            what: cause.what,
            helps: cause.helps,
            verdict,
            share: least.map(|amount| amount_share(amount.estimate(), whole)),
            of_host: of_host.map(|amount| amount_share(amount.estimate(), whole)),
            evidence: shown.iter().map(|one| self.mechanism_evidence(one, &counted)).collect(),
            by_formula: cause.size.as_ref().and_then(|size| self.formula_size(size)),
        }
    }

    /// What each mechanism of a cause shows.
    fn mechanism_results(
        &self,
        cause: &'e CauseTrial,
        found: &PassValues,
        whole: UncertainValue,
    ) -> Vec<MechanismResult<'e>> {
        let of = |mechanism: &'e MechanismTrial| MechanismResult {
            mechanism,
            amount: self.mechanism_amount(mechanism, found, whole),
            negative_control: self.negative_control(cause, mechanism, whole),
        };
        cause.mechanisms.iter().map(of).collect()
    }

    /// What a mechanism shows of the figure, or why it shows nothing.
    fn mechanism_amount(
        &self,
        mechanism: &MechanismTrial,
        found: &PassValues,
        whole: UncertainValue,
    ) -> Result<CauseAmount, String> {
        if let Some(SkipReason(refused)) = &mechanism.refused {
            return Err(refused.clone());
        }
        let differences = match &mechanism.amount {
            AmountFormula::Without(control) => {
                let left = self.amounts_by_pass(&[*control], &self.asked);
                // A busy machine makes both larger by the same factor, not by the same time.
                if let Some(times) = paired_ratio(&pass_pairs(&left, found)) {
                    return Ok(CauseAmount::removed_part(whole.value, times, self.joint_level));
                }
                pass_differences(found, &left)
            }
            AmountFormula::Sweep([little, much]) => pass_differences(
                &self.amounts_by_pass(&[*much], &self.asked),
                &self.amounts_by_pass(&[*little], &self.asked),
            ),
            AmountFormula::Beyond([weaker, stronger]) => {
                let least = self.amounts_by_pass(&[*stronger], &self.asked);
                let taken = UncertainValue::median(&pass_differences(found, &least), None);
                if taken.is_some_and(|taken| {
                    self.amount_verdict(CauseAmount::from_uncertain(taken, self.joint_level), whole)
                        == AmountVerdict::Absent
                }) {
                    return Err("its control takes nothing away here".into());
                }
                pass_differences(&self.amounts_by_pass(&[*weaker], &self.asked), &least)
            }
            AmountFormula::Difference(difference) => self.figure_differences(difference),
        };
        let amount = UncertainValue::median(&differences, None)
            .map(|amount| CauseAmount::from_uncertain(amount, self.joint_level));
        amount.ok_or_else(|| self.missing_reason(mechanism))
    }

    fn figure_differences(&self, FigureDifference { of, less, times }: &FigureDifference) -> Vec<f64> {
        let [of, less] = [of, less].map(|at| self.round_medians(&[], at));
        pass_differences(&of, &less).into_iter().map(|difference| difference * times).collect()
    }

    /// Why a mechanism has too few rounds.
    fn missing_reason(&self, mechanism: &MechanismTrial) -> String {
        let under = match &mechanism.amount {
            AmountFormula::Without(control) => vec![*control],
            AmountFormula::Sweep([_, much]) | AmountFormula::Beyond([_, much]) => vec![*much],
            AmountFormula::Difference(_) => Vec::new(),
        };
        let measurement = self.measurement(&under, &self.asked).map(missing_outcome);
        match measurement {
            Some(Outcome::Failed(why)) => format!("its rounds failed: {why}"),
            Some(Outcome::Skipped(SkipReason(why))) => why,
            _ => "it has fewer than four rounds".into(),
        }
    }

    fn amount_verdict(&self, amount: CauseAmount, whole: UncertainValue) -> AmountVerdict {
        let (low, high) = amount.joint_interval;
        let matters = MIN_RELEVANT_SHARE * whole.value;
        match () {
            () if low > 0.0 && amount.value >= matters => AmountVerdict::Present,
            () if high < 0.0 && amount.value <= -matters => AmountVerdict::Opposite,
            () if high < matters => AmountVerdict::Absent,
            () => AmountVerdict::Undecided,
        }
    }

    /// The mechanisms that count: all that could be tried, less one that does nothing in a virtual machine where another shows the
    /// cause; a substitute counts only where one of those is missing.
    fn counted_mechanisms<'s>(
        &self,
        shown: &'s [MechanismResult<'e>],
        whole: UncertainValue,
    ) -> Vec<&'s MechanismResult<'e>> {
        let says =
            |one: &MechanismResult<'_>| one.amount.as_ref().map(|amount| self.amount_verdict(*amount, whole)).ok();
        let of_its_own = || shown.iter().filter(|one| !one.mechanism.is_substitute);
        let is_shown = of_its_own().any(|one| !one.is_void() && says(one) == Some(AmountVerdict::Present));
        let is_idle = |one: &MechanismResult<'_>| {
            let may_be = self.experiment.is_virtual && one.mechanism.idle_in_guest.is_some();
            is_shown && may_be && says(one) == Some(AmountVerdict::Absent)
        };
        let counts = |one: &MechanismResult<'_>| one.amount.is_ok() && !one.is_void() && !is_idle(one);
        let is_one_missing = of_its_own().any(|one| !counts(one));
        shown.iter().filter(|one| counts(one) && (is_one_missing || !one.mechanism.is_substitute)).collect()
    }

    /// What of a cause is the host's: where the guest's own part can be taken away and that changes nothing, and the cause grows all the
    /// same with the time for which the other end has been idle.
    fn host_amount(
        &self,
        shown: &[MechanismResult<'_>],
        all: CauseAmount,
        whole: UncertainValue,
    ) -> Option<CauseAmount> {
        let says =
            |one: &MechanismResult<'_>| one.amount.as_ref().map(|amount| self.amount_verdict(*amount, whole)).ok();
        let is_of_guest = |one: &MechanismResult<'_>| {
            one.mechanism.idle_in_guest.is_some() && says(one) != Some(AmountVerdict::Absent)
        };
        if !self.experiment.is_virtual || shown.iter().any(is_of_guest) {
            return None;
        }
        let is_sweep =
            |one: &&MechanismResult<'_>| matches!(one.mechanism.amount, AmountFormula::Sweep(_)) && !one.is_void();
        let swept = shown.iter().filter(is_sweep).find(|one| says(one) == Some(AmountVerdict::Present))?;
        let swept = *swept.amount.as_ref().ok()?;
        // A gap longer than the one in question shows more than there is in it.
        Some(if swept.value < all.value { swept } else { all })
    }

    fn verdict(
        &self,
        counted: &[&MechanismResult<'_>],
        shown: &[MechanismResult<'_>],
        whole: UncertainValue,
    ) -> CauseVerdict {
        let says: Vec<AmountVerdict> = counted
            .iter()
            .filter_map(|one| one.amount.as_ref().ok())
            .map(|amount| self.amount_verdict(*amount, whole))
            .collect();
        let Some(first) = says.first() else {
            if shown.iter().any(MechanismResult::is_void) {
                return CauseVerdict::Void;
            }
            let refused = shown.iter().find_map(|one| one.amount.as_ref().err());
            return CauseVerdict::NotTried(SkipReason::new(refused.map_or("it has no control here", String::as_str)));
        };
        let all = |wanted: &[AmountVerdict]| says.iter().all(|one| wanted.contains(one));
        let declared = shown.iter().filter(|one| !one.mechanism.is_substitute).count();
        match () {
            () if all(&[AmountVerdict::Present]) && says.len() < declared => CauseVerdict::OneMechanism,
            () if all(&[AmountVerdict::Present]) => CauseVerdict::Shown,
            () if *first == AmountVerdict::Opposite && all(&[AmountVerdict::Opposite, AmountVerdict::Absent]) => {
                CauseVerdict::Opposite
            }
            () if all(&[AmountVerdict::Absent, AmountVerdict::Opposite]) => CauseVerdict::RuledOut,
            () if says.contains(&AmountVerdict::Present) && !says.contains(&AmountVerdict::Undecided) => {
                CauseVerdict::MechanismsDisagree
            }
            () => CauseVerdict::Undecided,
        }
    }

    fn mechanism_evidence(&self, one: &MechanismResult<'_>, counted: &[&MechanismResult<'_>]) -> MechanismEvidence {
        let counts = counted.iter().any(|other| std::ptr::eq(other.mechanism, one.mechanism));
        let without_because = match &one.amount {
            Err(why) => Some(why.clone()),
            Ok(_) if counts => None,
            Ok(_) if one.is_void() => Some("it also changes a figure that it cannot act on".into()),
            Ok(_) if one.mechanism.is_substitute => Some("the other tests are enough".into()),
            Ok(_) => one.mechanism.idle_in_guest.map(|why| why.to_string()),
        };
        let amount = one.amount.as_ref().ok().map(|amount| amount.estimate());
        MechanismEvidence { how: one.mechanism.how, amount, without_because, bystander: one.negative_control.clone() }
    }

    fn negative_control(
        &self,
        cause: &CauseTrial,
        mechanism: &MechanismTrial,
        whole: UncertainValue,
    ) -> Option<NegativeControl> {
        let (at, control) = (cause.bystander.as_ref()?, main_control(mechanism)?);
        let [found, under] = [&[][..], &[control]].map(|under| self.round_medians(under, at));
        let (ratio, shift) = (
            paired_ratio(&pass_pairs(&found, &under))?,
            UncertainValue::median(&pass_differences(&under, &found), None)?,
        );
        let (low, high) = shift.interval(self.joint_level);
        let unit = self.metric(at)?.unit;
        // A shift of a microsecond means nothing to a figure of a second.
        let share = match (self.amounts, unit) {
            (AmountUnit::Operation, Unit::Nanoseconds) => shift.value.abs() / whole.value,
            _ => ratio.value.exp() - 1.0,
        };
        let of = |logarithm: f64| logarithm.exp();
        let (lower, upper) = ratio.interval(CONFIDENCE_LEVEL);
        Some(NegativeControl {
            at: at.clone(),
            value: self.median_amount(&found)?.value,
            unit,
            ratio: Estimate { value: of(ratio.value), low: of(lower), high: of(upper), is_range: false },
            moved: (low > 0.0 || high < 0.0) && share.abs() > MIN_RELEVANT_SHARE,
        })
    }

    fn formula_size(&self, size: &FigureDifference) -> Option<FormulaSize> {
        let nanoseconds = UncertainValue::median(&self.figure_differences(size), None)?;
        Some(FormulaSize { formula: size.clone(), nanoseconds: estimate(nanoseconds, CONFIDENCE_LEVEL) })
    }

    fn predicted_without(&self) -> Option<&'e Prediction> {
        self.experiment.predicted_without.as_ref()?.prediction.as_ref()
    }
}

/// Two figures within passes.
fn pass_pairs(first: &PassValues, second: &PassValues) -> Vec<[f64; 2]> {
    first.iter().filter_map(|(pass, value)| Some([*value, *second.get(pass)?])).collect()
}

/// Differences of two figures within passes.
fn pass_differences(more: &PassValues, less: &PassValues) -> Vec<f64> {
    more.iter().filter_map(|(pass, value)| Some(value - less.get(pass)?)).collect()
}

fn estimate(figure: UncertainValue, level: f64) -> Estimate {
    let (low, high) = figure.interval(level);
    Estimate { value: figure.value, low, high, is_range: false }
}

fn amount_share(amount: Estimate, whole: UncertainValue) -> AmountShare {
    AmountShare { amount, share: amount.divided_by(whole.value) }
}

/// The figure as a sum.
struct ExplainedSum {
    parts: Vec<ExplainedPart>,
    not_explained: AmountShare,
}

impl ExplainedSum {
    fn from_causes(desk: &ExperimentData<'_>, causes: &[CauseResult], whole: UncertainValue) -> Self {
        let mut shown: Vec<(&CauseResult, AmountShare)> = causes
            .iter()
            .filter(|cause| cause.verdict == CauseVerdict::Shown)
            .filter_map(|cause| Some((cause, cause.share?)))
            .collect();
        shown.sort_by(|one, other| other.1.amount.value.total_cmp(&one.1.amount.value));
        let controls = shown_controls(desk.experiment);
        let rest = desk.median_amount(&desk.amounts_by_pass(&controls, &desk.asked));
        let by_causes: f64 = shown.iter().map(|(_, share)| share.amount.value).sum();
        let rest = rest.map_or_else(
            || {
                let value = whole.value - by_causes;
                Estimate { value, low: value, high: value, is_range: true }
            },
            |rest| estimate(rest, CONFIDENCE_LEVEL),
        );
        let (of, kept) = desk
            .expected_rest(shown.is_empty())
            .filter(|most| rest.low > most.high)
            .map_or_else(|| (PartKind::Rest, rest), |expected| (PartKind::Expected, expected));
        let over = |amount: Estimate| AmountShare { amount, share: amount.divided_by(whole.value) };
        let nothing = Estimate { value: 0.0, low: 0.0, high: 0.0, is_range: false };
        let not_explained = match (&of, shown.is_empty()) {
            // The figure less itself.
            (PartKind::Rest, true) => nothing,
            _ => remainder(estimate(whole, CONFIDENCE_LEVEL), kept, &shown),
        };
        let mut parts = vec![ExplainedPart { of, share: over(kept) }];
        parts.extend(shown.iter().map(|(cause, share)| ExplainedPart { of: PartKind::Cause(cause.id), share: *share }));
        Self { parts, not_explained: over(not_explained) }
    }
}

/// What is left of the whole. Errors of what was measured apart add as squares (Zou and Donner 2008).
fn remainder(whole: Estimate, kept: Estimate, shown: &[(&CauseResult, AmountShare)]) -> Estimate {
    let mut left = Estimate { is_range: false, ..whole };
    for part in std::iter::once(kept).chain(shown.iter().map(|(_, share)| share.amount)) {
        let value = left.value - part.value;
        let below = (left.value - left.low).hypot(part.high - part.value);
        let above = (left.high - left.value).hypot(part.value - part.low);
        left = Estimate { value, low: value - below, high: value + above, is_range: false };
    }
    left
}

impl ExperimentData<'_> {
    /// What the figure without all that is shown should be, as an amount; as found, if nothing is shown.
    fn expected_rest(&self, as_found: bool) -> Option<Estimate> {
        let predicted = self.experiment.predicted.as_ref().and_then(|record| record.prediction.as_ref());
        let prediction = if as_found { predicted } else { self.predicted_without() }?;
        let [value, one, other] = [prediction.value, prediction.low, prediction.high].map(|value| self.amount(value));
        let (value, one, other) = (value?, one?, other?);
        Some(Estimate { value, low: one.min(other), high: one.max(other), is_range: false })
    }
}
