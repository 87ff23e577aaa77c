//! The verdicts of all figures of a report together: false ones are controlled over all of them.

use kelvin_core::IndirectSort;
use std::cmp::Reverse;

use crate::prelude::*;

/// How often the smallest change that could have been seen would have been found.
const DETECTION_POWER: f64 = 0.8;

/// A figure before it is judged together with all others.
pub(super) struct PendingFigure {
    /// The figure so far: its verdict is not known, for the reason that it states.
    pub figure: ComparedFigure,
    /// Logarithm of the ratio with its error, if there is one.
    pub error: Option<UncertainValue>,
    /// Logarithms of both sides with their own errors, if they have some.
    pub side_errors: Option<[UncertainValue; 2]>,
    /// What the core frequency may have done to the ratio, from lowest to highest, as logarithms.
    pub clock_effect: [f64; 2],
}

/// What all figures are judged by.
#[derive(Clone, Copy)]
struct TestBounds {
    /// The threshold on either side, as logarithms.
    margin: [f64; 2],
    /// The chance up to which one figure more would have been found.
    alpha: f64,
}

/// A threshold on either side, as logarithms.
pub(super) fn log_margin(threshold: f64) -> [f64; 2] {
    [(1.0 - threshold).ln(), threshold.ln_1p()]
}

/// The verdicts, the most consequential first.
pub(super) fn judge_together(figures: Vec<PendingFigure>, threshold: f64) -> Vec<ComparedFigure> {
    let margin = log_margin(threshold);
    let tested: Vec<(&PendingFigure, UncertainValue)> =
        figures.iter().filter_map(|pending| Some((pending, pending.error?))).collect();
    let chances = |p_value: &dyn Fn(&PendingFigure, &UncertainValue) -> f64| -> Vec<PValue> {
        let p_values: Vec<f64> = tested.iter().map(|(pending, error)| p_value(pending, error)).collect();
        let joint_p_values = adjusted_p_values(&p_values);
        p_values.into_iter().zip(joint_p_values).map(|(raw, adjusted)| PValue { raw, adjusted }).collect()
    };
    let differences = chances(&|pending, error| pending.p_value(error, margin));
    let equivalences = chances(&|_, error| error.equivalence_p_value(margin[0], margin[1]));
    let significant = differences.iter().filter(|chance| chance.is_significant(FALSE_DISCOVERY_RATE)).count();
    let alpha = FALSE_DISCOVERY_RATE * (significant + 1).min(tested.len()) as f64 / tested.len().max(1) as f64;
    let bounds = TestBounds { margin, alpha };
    let mut tests = differences.into_iter().zip(equivalences);
    let mut figures: Vec<ComparedFigure> = figures
        .into_iter()
        .map(|pending| match pending.error.and_then(|error| Some((error, tests.next()?))) {
            Some((error, chances)) => pending.judge(error, chances, bounds),
            None => pending.figure,
        })
        .collect();
    // The sort is stable: within one place figures stay in the order in which they were measured.
    figures.indirect_sort_by(|a, b| sort_key(a).partial_cmp(&sort_key(b)).unwrap_or(std::cmp::Ordering::Equal));
    figures
}

impl PendingFigure {
    /// A figure of the base and of the other, of which nothing is tested yet.
    pub fn new(
        metric: Metric,
        case: &Case,
        [base, other]: [f64; 2],
        sides: [SideFigure; 2],
        spread_source: SpreadSource,
    ) -> Self {
        let figure = ComparedFigure {
            metric,
            case: case.clone(),
            base,
            other,
            rounds: sides.each_ref().map(|side| side.rounds.iter().map(Vec::len).sum()),
            sides,
            ratio: Estimate::exact(other / base),
            ratio_basis: None,
            spread_source,
            verdict: ChangeVerdict::NotKnown(UndecidedReason::TooFewRounds),
            difference: None,
            equivalence: None,
            detectable_change: None,
            times_to_decide: None,
            cause: None,
        };
        Self { figure, error: None, side_errors: None, clock_effect: [0.0; 2] }
    }

    /// How strange the figure is if nothing but the core frequency changed.
    pub fn standardised_distance(&self) -> Option<f64> {
        let error = self.error.as_ref()?;
        let [low, high] = self.clock_effect;
        error.standardised_distance(error.value.clamp(low, high))
    }

    /// Whether it is this figure.
    pub fn is_at(&self, key: &MetricCase) -> bool {
        self.figure.metric.id == key.metric && self.figure.case == key.case
    }

    /// What may be with no change beyond the threshold: its ends.
    fn null_range(&self, margin: [f64; 2]) -> [f64; 2] {
        [self.clock_effect[0] + margin[0], self.clock_effect[1] + margin[1]]
    }

    /// Chance of the figure if nothing changed by more than the threshold.
    pub fn p_value(&self, error: &UncertainValue, margin: [f64; 2]) -> f64 {
        let [low, high] = self.null_range(margin);
        error.p_value(error.value.clamp(low, high))
    }

    fn judge(
        self,
        error: UncertainValue,
        (difference, equivalence): (PValue, PValue),
        bounds: TestBounds,
    ) -> ComparedFigure {
        let TestBounds { margin, alpha } = bounds;
        let mut sides = self.figure.sides.clone();
        for (side, side_error) in sides.iter_mut().zip(self.side_errors.iter().flatten()) {
            let (low, high) = side_error.interval(CONFIDENCE_LEVEL);
            side.interval = Some([low.exp(), high.exp()]);
        }
        let ends = error.interval(CONFIDENCE_LEVEL);
        let verdict = self.verdict(&error, difference, equivalence, margin);
        let unchanged = self.null_range(margin);
        let is_inside = margin[0] < error.value && error.value < margin[1];
        let limits: &[f64] = match error.value {
            _ if is_inside => &margin,
            value if value > 0.0 => &unchanged[1..],
            _ => &unchanged[..1],
        };
        let is_same = verdict == ChangeVerdict::Same;
        let is_open = verdict == ChangeVerdict::NotKnown(UndecidedReason::Undecided);
        let times = error.times_to_decide(alpha, limits);
        let min_change = self.detectable_change(&error, alpha, unchanged);
        ComparedFigure {
            sides,
            ratio: Estimate::new(self.figure.ratio.value, (ends.0.exp(), ends.1.exp())),
            verdict,
            difference: Some(difference),
            equivalence: Some(equivalence),
            detectable_change: Some(min_change),
            times_to_decide: Some(times).filter(|times| is_open && times.is_finite()),
            cause: self.figure.cause.filter(|_| !is_same),
            ..self.figure
        }
    }

    /// The smallest change for the worse that is found with the stated power, as a share.
    fn detectable_change(&self, error: &UncertainValue, alpha: f64, [low, high]: [f64; 2]) -> f64 {
        let effect = error.detectable_effect(alpha, DETECTION_POWER);
        match self.figure.metric.better {
            Better::Higher => 1.0 - (low - effect).exp(),
            Better::Lower | Better::Neither => (high + effect).exp() - 1.0,
        }
    }

    fn verdict(
        &self,
        error: &UncertainValue,
        difference: PValue,
        equivalence: PValue,
        margin: [f64; 2],
    ) -> ChangeVerdict {
        if difference.is_significant(FALSE_DISCOVERY_RATE) {
            return match (self.figure.metric.better, error.value > 0.0) {
                (Better::Lower, true) | (Better::Higher, false) => ChangeVerdict::Worse,
                (Better::Lower, false) | (Better::Higher, true) => ChangeVerdict::Better,
                (Better::Neither, true) => ChangeVerdict::Higher,
                (Better::Neither, false) => ChangeVerdict::Lower,
            };
        }
        if equivalence.is_significant(FALSE_DISCOVERY_RATE) {
            return ChangeVerdict::Same;
        }
        let is_of_clock = error.value.clamp(self.clock_effect[0], self.clock_effect[1]) == error.value
            && !(margin[0]..margin[1]).contains(&error.value);
        ChangeVerdict::NotKnown(if is_of_clock { UndecidedReason::CoreFrequency } else { UndecidedReason::Undecided })
    }
}

/// How many times as good the base is as the other; `None` where neither direction is better.
pub(super) fn goodness_ratio(figure: &ComparedFigure) -> Option<f64> {
    match figure.metric.better {
        Better::Lower => Some(figure.ratio.value),
        Better::Higher => Some(1.0 / figure.ratio.value),
        Better::Neither => None,
    }
}

/// Where a figure stands in a report: the smaller the sooner.
fn sort_key(figure: &ComparedFigure) -> (u32, Reverse<f64>) {
    let min_distance = figure.ratio.low.ln().max(-figure.ratio.high.ln());
    let evidence = figure.difference.map_or(f64::NEG_INFINITY, |chance| -chance.raw);
    match figure.verdict {
        ChangeVerdict::Worse => (0, Reverse(min_distance)),
        ChangeVerdict::Better => (1, Reverse(min_distance)),
        ChangeVerdict::Higher | ChangeVerdict::Lower => (2, Reverse(min_distance)),
        ChangeVerdict::NotKnown(_) => (3, Reverse(evidence)),
        ChangeVerdict::Same => (4, Reverse(0.0)),
    }
}
