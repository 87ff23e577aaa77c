//! What an experiment shows: the figure as a sum of what is shown to cause it, and a remainder.
//!
//! All figures are medians of rounds, as found, and all differences and ratios are taken within passes: what a pass has in common
//! cancels. Of a cause counts as much as all its mechanisms show. Rates do not add up; their reciprocals, the times of a million
//! bytes, do.

use std::collections::BTreeMap;

use kelvin_model::{
    AmountBy, Amounts, ByFormula, Bystander, CauseVerdict, Difference, Estimate, Evidence, Experiment, Explanation,
    JudgedCause, MeasuredValue, Measurement, Metric, MetricAt, Name, Part, PartOf, Prediction, Reason, Share,
    TriedCause, TriedMechanism, Unit, WHY_FORMAT,
};
use kelvin_stats::{LEVEL, Uncertain, jointly_at, median, paired_ratio};

use crate::canaries::References;
use crate::gather::{Gathered, not_measured};
use crate::headlines::estimate_above_zero;
use crate::result::Outcome;

/// A cause matters from this share of the figure on, and a bystander has moved from it on.
const MATTERS: f64 = 0.05;
/// Times that an experiment is looked at while it goes on, to see whether more passes are needed.
const LOOKS: usize = 4;
/// Nanoseconds in a second times the million bytes whose time stands for a rate.
const OF_A_RATE: f64 = 1e9 * 1e6;

/// Values of one figure by the number of their pass.
type Values = BTreeMap<u32, f64>;

/// What an experiment shows so far; `None` without four rounds of the figure.
pub fn explain(experiment: &Experiment) -> Option<Explanation> {
    let desk = Desk::of(experiment);
    let found = desk.values(&[], &desk.asked);
    let whole = desk.uncertain(&found)?;
    let raw = desk.raw(&[], &desk.asked);
    let figure = desk.uncertain(&raw)?;
    let raw: Vec<f64> = raw.values().copied().collect();
    let causes: Vec<JudgedCause> = experiment.causes.iter().map(|cause| desk.judge(cause, &found, whole)).collect();
    let sum = Sum::of(&desk, &causes, whole);
    Some(Explanation {
        why_format: WHY_FORMAT,
        kelvin: env!("CARGO_PKG_VERSION").into(),
        probe: experiment.probe,
        metric: experiment.metric,
        case: experiment.case.clone(),
        passes: found.len(),
        seconds: experiment.seconds,
        figure: estimate_above_zero(estimate(figure, LEVEL), &raw),
        amounts: desk.amounts,
        whole: estimate_above_zero(estimate(whole, LEVEL), &found.values().copied().collect::<Vec<_>>()),
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
pub fn measured_under(experiment: &Experiment, under: &[Name], at: &MetricAt) -> Option<MeasuredValue> {
    let values: Vec<f64> = Desk::of(experiment).raw(under, at).into_values().collect();
    let half = |(low, high): (f64, f64)| (high - low) / 2.0;
    let half_width = Uncertain::median(&values, None).map_or(0.0, |figure| half(figure.interval(LEVEL)));
    (!values.is_empty()).then(|| MeasuredValue { value: median(&values), half_width })
}

/// The controls that take away all that is shown, of each cause that which takes most; each once.
pub fn controls_of(experiment: &Experiment) -> Vec<Name> {
    let desk = Desk::of(experiment);
    let found = desk.values(&[], &desk.asked);
    let Some(whole) = desk.uncertain(&found) else { return Vec::new() };
    let mut controls = Vec::new();
    for cause in &experiment.causes {
        let shown = desk.shown(cause, &found, whole);
        let counted = desk.counted(&shown, whole);
        let is_shown = desk.verdict(&counted, &shown, whole) == CauseVerdict::Shown;
        let amount = |one: &&&Shown<'_>| one.amount.as_ref().map_or(f64::NEG_INFINITY, |amount| amount.value);
        let strongest = counted.iter().filter(|one| intervention(one.mechanism).is_some());
        let strongest = strongest.max_by(|one, other| amount(one).total_cmp(&amount(other))).filter(|_| is_shown);
        let control = strongest.and_then(|one| intervention(one.mechanism));
        controls.extend(control.filter(|control| !controls.contains(control)));
    }
    without_weaker(experiment, controls)
}

/// A control that takes more away than another stands for both.
fn without_weaker(experiment: &Experiment, controls: Vec<Name>) -> Vec<Name> {
    let mechanisms = || experiment.causes.iter().flat_map(|cause| &cause.mechanisms);
    let is_weaker = |weak: &Name| {
        mechanisms().any(|mechanism| match &mechanism.amount {
            AmountBy::Beyond([weaker, stronger]) => weaker == weak && controls.contains(stronger),
            _ => false,
        })
    };
    controls.iter().copied().filter(|control| !is_weaker(control)).collect()
}

/// The control that takes a cause away.
fn intervention(mechanism: &TriedMechanism) -> Option<Name> {
    match mechanism.amount {
        AmountBy::Without(control) | AmountBy::Beyond([_, control]) => Some(control),
        AmountBy::Sweep(_) | AmountBy::Difference(_) => None,
    }
}

/// The rounds of an experiment, and how they become amounts.
struct Desk<'e> {
    experiment: &'e Experiment,
    asked: MetricAt,
    amounts: Amounts,
    /// The level of the intervals by which all mechanisms together are judged.
    jointly: f64,
}

/// What one mechanism shows.
struct Shown<'e> {
    mechanism: &'e TriedMechanism,
    amount: Result<Amount, String>,
    bystander: Option<Bystander>,
}

impl Shown<'_> {
    /// Whether its control moved what it cannot touch.
    fn is_void(&self) -> bool {
        self.bystander.as_ref().is_some_and(|bystander| bystander.moved)
    }
}

/// An amount with its interval, and with the wider one by which all mechanisms together are judged.
#[derive(Clone, Copy)]
struct Amount {
    value: f64,
    interval: (f64, f64),
    jointly: (f64, f64),
}

impl Amount {
    fn of(figure: Uncertain, jointly: f64) -> Self {
        Self { value: figure.value, interval: figure.interval(LEVEL), jointly: figure.interval(jointly) }
    }

    /// What is taken from a whole, by the logarithm of how many times as large it is as what is left.
    fn taken(from: f64, logarithm: Uncertain, jointly: f64) -> Self {
        let taken = |logarithm: f64| from * (1.0 - (-logarithm).exp());
        let of = |(low, high): (f64, f64)| (taken(low), taken(high));
        Self {
            value: taken(logarithm.value),
            interval: of(logarithm.interval(LEVEL)),
            jointly: of(logarithm.interval(jointly)),
        }
    }

    fn estimate(self) -> Estimate {
        Estimate { value: self.value, low: self.interval.0, high: self.interval.1, is_range: false }
    }
}

/// What an amount says of a mechanism.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Something,
    Nothing,
    Less,
    Open,
}

impl<'e> Desk<'e> {
    fn of(experiment: &'e Experiment) -> Self {
        let amounts = match experiment.metric.unit {
            Unit::Nanoseconds | Unit::PerSecond => Amounts::Operation,
            Unit::BytesPerSecond => Amounts::Megabyte,
            _ => Amounts::Own,
        };
        let tested: usize = experiment.causes.iter().map(|cause| cause.mechanisms.len()).sum();
        let asked = MetricAt { metric: experiment.metric.id, case: experiment.case.clone() };
        Self { experiment, asked, amounts, jointly: jointly_at(LOOKS * tested) }
    }

    fn measurement(&self, under: &[Name], at: &MetricAt) -> Option<&'e Measurement> {
        let is_of = |measurement: &Measurement| {
            measurement.planned.case == at.case && measurement.planned.metrics.contains(&at.metric)
        };
        let arms = &self.experiment.arms;
        arms.iter().find(|arm| arm.under == under && is_of(&arm.measurement)).map(|arm| &arm.measurement)
    }

    /// Medians of the rounds of a metric, in its unit.
    fn raw(&self, under: &[Name], at: &MetricAt) -> Values {
        let Some(metric) = self.metric(at) else { return Values::new() };
        let Some(measurement) = self.measurement(under, at) else { return Values::new() };
        let gathered = Gathered::of(measurement, &metric, &References::default());
        let rounds = gathered.rounds.iter().filter(|round| !round.found.is_empty());
        rounds.map(|round| (round.index, median(&round.found))).collect()
    }

    fn metric(&self, at: &MetricAt) -> Option<Metric> {
        let is_asked = at.metric == self.experiment.metric.id;
        if is_asked { Some(self.experiment.metric) } else { kelvin_catalogue::find(at.metric).copied() }
    }

    /// The same as amounts.
    fn values(&self, under: &[Name], at: &MetricAt) -> Values {
        self.raw(under, at).into_iter().filter_map(|(pass, value)| Some((pass, self.amount(value)?))).collect()
    }

    /// A value of the figure as an amount.
    fn amount(&self, value: f64) -> Option<f64> {
        let amount = match (self.amounts, self.experiment.metric.unit) {
            (Amounts::Megabyte, _) => OF_A_RATE / value,
            (Amounts::Operation, Unit::PerSecond) => 1e9 / value,
            _ => value,
        };
        amount.is_finite().then_some(amount)
    }

    fn uncertain(&self, values: &Values) -> Option<Uncertain> {
        Uncertain::median(&values.values().copied().collect::<Vec<_>>(), None)
    }

    fn judge(&self, cause: &TriedCause, found: &Values, whole: Uncertain) -> JudgedCause {
        let shown = self.shown(cause, found, whole);
        let counted = self.counted(&shown, whole);
        let verdict = self.verdict(&counted, &shown, whole);
        let least = counted.iter().filter_map(|one| one.amount.as_ref().ok());
        let least = least.min_by(|one, other| one.value.total_cmp(&other.value)).copied();
        let of_host = least.filter(|_| verdict == CauseVerdict::Shown).and_then(|all| self.of_host(&shown, all, whole));
        JudgedCause {
            id: cause.id,
            what: cause.what,
            helps: cause.helps,
            verdict,
            share: least.map(|amount| share(amount.estimate(), whole)),
            of_host: of_host.map(|amount| share(amount.estimate(), whole)),
            evidence: shown.iter().map(|one| self.evidence(one, &counted)).collect(),
            by_formula: cause.size.as_ref().and_then(|size| self.by_formula(size)),
        }
    }

    /// What each mechanism of a cause shows.
    fn shown(&self, cause: &'e TriedCause, found: &Values, whole: Uncertain) -> Vec<Shown<'e>> {
        let of = |mechanism: &'e TriedMechanism| Shown {
            mechanism,
            amount: self.shows(mechanism, found, whole),
            bystander: self.bystander(cause, mechanism, whole),
        };
        cause.mechanisms.iter().map(of).collect()
    }

    /// What a mechanism shows of the figure, or why it shows nothing.
    fn shows(&self, mechanism: &TriedMechanism, found: &Values, whole: Uncertain) -> Result<Amount, String> {
        if let Some(Reason(refused)) = &mechanism.refused {
            return Err(refused.clone());
        }
        let differences = match &mechanism.amount {
            AmountBy::Without(control) => {
                let left = self.values(&[*control], &self.asked);
                // A busy machine makes both larger by the same factor, not by the same time.
                if let Some(times) = paired_ratio(&pairs(&left, found)) {
                    return Ok(Amount::taken(whole.value, times, self.jointly));
                }
                paired(found, &left)
            }
            AmountBy::Sweep([little, much]) => {
                paired(&self.values(&[*much], &self.asked), &self.values(&[*little], &self.asked))
            }
            AmountBy::Beyond([weaker, stronger]) => {
                let least = self.values(&[*stronger], &self.asked);
                let taken = Uncertain::median(&paired(found, &least), None);
                if taken.is_some_and(|taken| self.says(Amount::of(taken, self.jointly), whole) == Says::Nothing) {
                    return Err("its control takes nothing away here".into());
                }
                paired(&self.values(&[*weaker], &self.asked), &least)
            }
            AmountBy::Difference(difference) => self.difference(difference),
        };
        let amount = Uncertain::median(&differences, None).map(|amount| Amount::of(amount, self.jointly));
        amount.ok_or_else(|| self.why_none(mechanism))
    }

    fn difference(&self, Difference { of, less, times }: &Difference) -> Vec<f64> {
        let [of, less] = [of, less].map(|at| self.raw(&[], at));
        paired(&of, &less).into_iter().map(|difference| difference * times).collect()
    }

    /// Why a mechanism has too few rounds.
    fn why_none(&self, mechanism: &TriedMechanism) -> String {
        let under = match &mechanism.amount {
            AmountBy::Without(control) => vec![*control],
            AmountBy::Sweep([_, much]) | AmountBy::Beyond([_, much]) => vec![*much],
            AmountBy::Difference(_) => Vec::new(),
        };
        let measurement = self.measurement(&under, &self.asked).map(not_measured);
        match measurement {
            Some(Outcome::Failed(why)) => format!("its rounds failed: {why}"),
            Some(Outcome::Skipped(Reason(why))) => why,
            _ => "it has fewer than four rounds".into(),
        }
    }

    fn says(&self, amount: Amount, whole: Uncertain) -> Says {
        let (low, high) = amount.jointly;
        let matters = MATTERS * whole.value;
        match () {
            () if low > 0.0 && amount.value >= matters => Says::Something,
            () if high < 0.0 && amount.value <= -matters => Says::Less,
            () if high < matters => Says::Nothing,
            () => Says::Open,
        }
    }

    /// The mechanisms that count: all that could be tried, less one that does nothing in a virtual machine where another shows the
    /// cause; a substitute counts only where one of those is missing.
    fn counted<'s>(&self, shown: &'s [Shown<'e>], whole: Uncertain) -> Vec<&'s Shown<'e>> {
        let says = |one: &Shown<'_>| one.amount.as_ref().map(|amount| self.says(*amount, whole)).ok();
        let of_its_own = || shown.iter().filter(|one| !one.mechanism.is_substitute);
        let is_shown = of_its_own().any(|one| !one.is_void() && says(one) == Some(Says::Something));
        let is_idle = |one: &Shown<'_>| {
            let may_be = self.experiment.is_virtual && one.mechanism.idle_in_guest.is_some();
            is_shown && may_be && says(one) == Some(Says::Nothing)
        };
        let counts = |one: &Shown<'_>| one.amount.is_ok() && !one.is_void() && !is_idle(one);
        let is_one_missing = of_its_own().any(|one| !counts(one));
        shown.iter().filter(|one| counts(one) && (is_one_missing || !one.mechanism.is_substitute)).collect()
    }

    /// What of a cause is the host's: where the guest's own part can be taken away and that changes nothing, and the cause grows all the
    /// same with the time for which the other end has been idle.
    fn of_host(&self, shown: &[Shown<'_>], all: Amount, whole: Uncertain) -> Option<Amount> {
        let says = |one: &Shown<'_>| one.amount.as_ref().map(|amount| self.says(*amount, whole)).ok();
        let is_of_guest = |one: &Shown<'_>| one.mechanism.idle_in_guest.is_some() && says(one) != Some(Says::Nothing);
        if !self.experiment.is_virtual || shown.iter().any(is_of_guest) {
            return None;
        }
        let is_sweep = |one: &&Shown<'_>| matches!(one.mechanism.amount, AmountBy::Sweep(_)) && !one.is_void();
        let swept = shown.iter().filter(is_sweep).find(|one| says(one) == Some(Says::Something))?;
        let swept = *swept.amount.as_ref().ok()?;
        // A gap longer than the one in question shows more than there is in it.
        Some(if swept.value < all.value { swept } else { all })
    }

    fn verdict(&self, counted: &[&Shown<'_>], shown: &[Shown<'_>], whole: Uncertain) -> CauseVerdict {
        let says: Vec<Says> =
            counted.iter().filter_map(|one| one.amount.as_ref().ok()).map(|amount| self.says(*amount, whole)).collect();
        let Some(first) = says.first() else {
            if shown.iter().any(Shown::is_void) {
                return CauseVerdict::Void;
            }
            let refused = shown.iter().find_map(|one| one.amount.as_ref().err());
            return CauseVerdict::NotTried(Reason::new(refused.map_or("it has no control here", String::as_str)));
        };
        let all = |wanted: &[Says]| says.iter().all(|one| wanted.contains(one));
        let declared = shown.iter().filter(|one| !one.mechanism.is_substitute).count();
        match () {
            () if all(&[Says::Something]) && says.len() < declared => CauseVerdict::OneMechanism,
            () if all(&[Says::Something]) => CauseVerdict::Shown,
            () if *first == Says::Less && all(&[Says::Less, Says::Nothing]) => CauseVerdict::Opposite,
            () if all(&[Says::Nothing, Says::Less]) => CauseVerdict::RuledOut,
            () if says.contains(&Says::Something) && !says.contains(&Says::Open) => CauseVerdict::MechanismsDisagree,
            () => CauseVerdict::Undecided,
        }
    }

    fn evidence(&self, one: &Shown<'_>, counted: &[&Shown<'_>]) -> Evidence {
        let counts = counted.iter().any(|other| std::ptr::eq(other.mechanism, one.mechanism));
        let without_because = match &one.amount {
            Err(why) => Some(why.clone()),
            Ok(_) if counts => None,
            Ok(_) if one.is_void() => Some("it also changes a figure that it cannot act on".into()),
            Ok(_) if one.mechanism.is_substitute => Some("the other tests are enough".into()),
            Ok(_) => one.mechanism.idle_in_guest.map(|why| why.to_string()),
        };
        let amount = one.amount.as_ref().ok().map(|amount| amount.estimate());
        Evidence { how: one.mechanism.how, amount, without_because, bystander: one.bystander.clone() }
    }

    fn bystander(&self, cause: &TriedCause, mechanism: &TriedMechanism, whole: Uncertain) -> Option<Bystander> {
        let (at, control) = (cause.bystander.as_ref()?, intervention(mechanism)?);
        let [found, under] = [&[][..], &[control]].map(|under| self.raw(under, at));
        let (ratio, shift) = (paired_ratio(&pairs(&found, &under))?, Uncertain::median(&paired(&under, &found), None)?);
        let (low, high) = shift.interval(self.jointly);
        let unit = self.metric(at)?.unit;
        // A shift of a microsecond means nothing to a figure of a second.
        let share = match (self.amounts, unit) {
            (Amounts::Operation, Unit::Nanoseconds) => shift.value.abs() / whole.value,
            _ => ratio.value.exp() - 1.0,
        };
        let of = |logarithm: f64| logarithm.exp();
        let (lower, upper) = ratio.interval(LEVEL);
        Some(Bystander {
            at: at.clone(),
            value: self.uncertain(&found)?.value,
            unit,
            ratio: Estimate { value: of(ratio.value), low: of(lower), high: of(upper), is_range: false },
            moved: (low > 0.0 || high < 0.0) && share.abs() > MATTERS,
        })
    }

    fn by_formula(&self, size: &Difference) -> Option<ByFormula> {
        let nanoseconds = Uncertain::median(&self.difference(size), None)?;
        Some(ByFormula { formula: size.clone(), nanoseconds: estimate(nanoseconds, LEVEL) })
    }

    fn predicted_without(&self) -> Option<&'e Prediction> {
        self.experiment.predicted_without.as_ref()?.prediction.as_ref()
    }
}

/// Two figures within passes.
fn pairs(first: &Values, second: &Values) -> Vec<[f64; 2]> {
    first.iter().filter_map(|(pass, value)| Some([*value, *second.get(pass)?])).collect()
}

/// Differences of two figures within passes.
fn paired(more: &Values, less: &Values) -> Vec<f64> {
    more.iter().filter_map(|(pass, value)| Some(value - less.get(pass)?)).collect()
}

fn estimate(figure: Uncertain, level: f64) -> Estimate {
    let (low, high) = figure.interval(level);
    Estimate { value: figure.value, low, high, is_range: false }
}

fn share(amount: Estimate, whole: Uncertain) -> Share {
    Share { amount, share: amount.over(whole.value) }
}

/// The figure as a sum.
struct Sum {
    parts: Vec<Part>,
    not_explained: Share,
}

impl Sum {
    fn of(desk: &Desk<'_>, causes: &[JudgedCause], whole: Uncertain) -> Self {
        let mut shown: Vec<(&JudgedCause, Share)> = causes
            .iter()
            .filter(|cause| cause.verdict == CauseVerdict::Shown)
            .filter_map(|cause| Some((cause, cause.share?)))
            .collect();
        shown.sort_by(|one, other| other.1.amount.value.total_cmp(&one.1.amount.value));
        let controls = controls_of(desk.experiment);
        let rest = desk.uncertain(&desk.values(&controls, &desk.asked));
        let by_causes: f64 = shown.iter().map(|(_, share)| share.amount.value).sum();
        let rest = rest.map_or_else(
            || {
                let value = whole.value - by_causes;
                Estimate { value, low: value, high: value, is_range: true }
            },
            |rest| estimate(rest, LEVEL),
        );
        let (of, kept) = desk
            .expected(shown.is_empty())
            .filter(|most| rest.low > most.high)
            .map_or_else(|| (PartOf::Rest, rest), |expected| (PartOf::Expected, expected));
        let over = |amount: Estimate| Share { amount, share: amount.over(whole.value) };
        let nothing = Estimate { value: 0.0, low: 0.0, high: 0.0, is_range: false };
        let not_explained = match (&of, shown.is_empty()) {
            // The figure less itself.
            (PartOf::Rest, true) => nothing,
            _ => remainder(estimate(whole, LEVEL), kept, &shown),
        };
        let mut parts = vec![Part { of, share: over(kept) }];
        parts.extend(shown.iter().map(|(cause, share)| Part { of: PartOf::Cause(cause.id), share: *share }));
        Self { parts, not_explained: over(not_explained) }
    }
}

/// What is left of the whole. Errors of what was measured apart add as squares (Zou and Donner 2008).
fn remainder(whole: Estimate, kept: Estimate, shown: &[(&JudgedCause, Share)]) -> Estimate {
    let mut left = Estimate { is_range: false, ..whole };
    for part in std::iter::once(kept).chain(shown.iter().map(|(_, share)| share.amount)) {
        let value = left.value - part.value;
        let below = (left.value - left.low).hypot(part.high - part.value);
        let above = (left.high - left.value).hypot(part.value - part.low);
        left = Estimate { value, low: value - below, high: value + above, is_range: false };
    }
    left
}

impl Desk<'_> {
    /// What the figure without all that is shown should be, as an amount; as found, if nothing is shown.
    fn expected(&self, as_found: bool) -> Option<Estimate> {
        let predicted = self.experiment.predicted.as_ref().and_then(|record| record.prediction.as_ref());
        let prediction = if as_found { predicted } else { self.predicted_without() }?;
        let [value, one, other] = [prediction.value, prediction.low, prediction.high].map(|value| self.amount(value));
        let (value, one, other) = (value?, one?, other?);
        Some(Estimate { value, low: one.min(other), high: one.max(other), is_range: false })
    }
}
