//! Why a figure differs: the share of the difference that a cause has, where both sides hold the same figure without it.
//!
//! The cost of a cause is the figure less its control; how it changed is a difference of differences. Where everything takes longer by
//! the same factor, that difference grows as well, and explains nothing: a cause counts only where the figure changed by a larger
//! factor than its control, beyond what the core's frequency may have done to either.

use kelvin_core::catalogue::controlled_causes::{CONTROLLED_CAUSES, ControlFigure, ControlledCause};

use super::verdicts::{PendingFigure, log_margin};
use crate::prelude::*;

/// The least share that is reported.
const MIN_REPORTED_SHARE: f64 = 0.1;

/// How the figure without a cause changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlChange {
    /// The base and the other.
    pub values: [f64; 2],
    /// Logarithm of their ratio.
    pub error: UncertainValue,
}

impl ControlChange {
    /// That of a figure, if it has an error.
    pub fn from_figure(figures: &PendingFigure) -> Option<Self> {
        figures.error.map(|error| Self { values: [figures.figure.base, figures.figure.other], error })
    }
}

/// The result of the test of a cause.
struct CauseTest {
    /// The chance of it by accident.
    p_value: f64,
    /// The cost in the base and in the other.
    cost: [f64; 2],
    /// Its share, where the figure changed for certain.
    share: Option<Estimate>,
}

/// A figure and the control of a cause of it.
struct CauseCandidate<'w> {
    row: usize,
    figure: &'w PendingFigure,
    cause: &'static ControlledCause,
    control: ControlFigure,
}

/// Finds the causes of differences beyond a threshold. `look_up` finds the control of a figure among all: nothing where it has too few rounds.
pub(super) fn find_causes(
    figures: &mut [PendingFigure],
    threshold: f64,
    look_up: impl Fn(&[PendingFigure], &PendingFigure, &MetricCase) -> Result<Option<ControlChange>, NotComparedReason>,
) {
    let mut causes: Vec<(usize, CauseOfChange)> = Vec::new();
    let mut tested: Vec<(CauseCandidate<'_>, CauseTest)> = Vec::new();
    for candidate in figures.iter().enumerate().filter_map(|(row, figure)| CauseCandidate::from_figure(row, figure)) {
        match look_up(figures, candidate.figure, &candidate.control.figure) {
            Err(reason) => causes.push((candidate.row, candidate.to_cause(CauseFinding::NoControl(reason)))),
            Ok(control) => {
                let test = control.and_then(|control| candidate.test(&control, threshold));
                tested.extend(test.map(|test| (candidate, test)));
            }
        }
    }
    // Of all that are tested: those that show nothing count as well.
    let joint = adjusted_p_values(&tested.iter().map(|(_, test)| test.p_value).collect::<Vec<f64>>());
    for ((candidate, CauseTest { p_value: chance, cost, share }), joint) in tested.into_iter().zip(joint) {
        let chance = PValue { raw: chance, adjusted: joint };
        let is_reported = |share: &Estimate| {
            chance.is_significant(FALSE_DISCOVERY_RATE) && share.low > 0.0 && share.value >= MIN_REPORTED_SHARE
        };
        let share = share.filter(is_reported);
        causes.extend(
            share.map(|share| {
                (candidate.row, candidate.to_cause(CauseFinding::Explains { cost, share, p_value: chance }))
            }),
        );
    }
    for (row, cause) in causes {
        figures[row].figure.cause = Some(cause);
    }
}

impl<'w> CauseCandidate<'w> {
    /// A figure with an error, if its control may be there.
    fn from_figure(row: usize, figures: &'w PendingFigure) -> Option<Self> {
        let figure = MetricCase { metric: figures.figure.metric.id, case: figures.figure.case.clone() };
        let cause_of = |cause: &&'static ControlledCause| Some((*cause, (cause.control)(&figure)?));
        let (cause, control) = CONTROLLED_CAUSES.iter().find_map(cause_of)?;
        figures.error.map(|_| Self { row, figure: figures, cause, control })
    }

    fn to_cause(&self, finding: CauseFinding) -> CauseOfChange {
        let (id, summary) = (Name::new(self.cause.id), Name::new(self.cause.description));
        CauseOfChange { id, summary, control: self.control.figure.clone(), times: self.control.times, finding }
    }

    /// Whether its cost changed with the figure, and that by more than its control.
    fn test(&self, control: &ControlChange, threshold: f64) -> Option<CauseTest> {
        let ControlChange { values, error } = ControlChange::from_figure(self.figure)?;
        let control_values = control.values.map(|value| self.control.times * value);
        let (total_change, control_change) = (error.to_difference(values), control.error.to_difference(control_values));
        let excess = error.minus(control.error);
        let cost = [values[0] - control_values[0], values[1] - control_values[1]];
        let cause_change = total_change.minus(control_change);
        let has_same_sign = [cause_change.value, excess.value].iter().all(|change| change * total_change.value > 0.0)
            && cost.into_iter().any(|cost| cost > 0.0);
        // The frequency may have moved one of the two and not the other.
        let limit = self.figure.clock_effect.into_iter().fold(0.0, |limit: f64, effect| limit.max(effect.abs()));
        let chance = [
            self.figure.p_value(&error, log_margin(threshold)),
            cause_change.p_value(0.0),
            excess.p_value(excess.value.clamp(-limit, limit)),
        ];
        let share =
            share_of_change(total_change, control_change).map(|share| Estimate::new(share.value, share.interval));
        let chance = if has_same_sign { chance.into_iter().fold(0.0, f64::max) } else { 1.0 };
        Some(CauseTest { p_value: chance, cost, share })
    }
}
