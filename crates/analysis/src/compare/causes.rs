//! Why a figure differs: the share of the difference that a cause has, where both sides hold the same figure without it.
//!
//! The cost of a cause is the figure less its control; how it changed is a difference of differences. Where everything takes longer by
//! the same factor, that difference grows as well, and explains nothing: a cause counts only where the figure changed by a larger
//! factor than its control, beyond what the core's frequency may have done to either.

use kelvin_catalogue::controls::{Control, HELD_BY_RUNS, HeldCause};
use kelvin_model::{CauseFound, CauseOfChange, Chance, Estimate, MetricAt, Name, NotComparedBecause};
use kelvin_stats::{FALSE_SHARE, ShareOfChange, Uncertain, joint_chances, share_of_change};

use super::verdicts::{Weighed, margin};

/// The least share that is told.
const LEAST_SHARE: f64 = 0.1;

/// How what a control is so many times of changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    /// The base and the other.
    pub values: [f64; 2],
    /// Logarithm of their ratio.
    pub error: Uncertain,
}

impl Changed {
    /// That of a figure, if it has an error.
    pub fn of(weighed: &Weighed) -> Option<Self> {
        weighed.error.map(|error| Self { values: [weighed.figure.base, weighed.figure.other], error })
    }
}

/// What the test of a cause says.
struct Tested {
    /// The chance of it by accident.
    chance: f64,
    /// The cost in the base and in the other.
    cost: [f64; 2],
    /// Its share, where the figure changed for certain.
    share: Option<Estimate>,
}

/// A figure and the control of a cause of it.
struct Candidate<'w> {
    at: usize,
    figure: &'w Weighed,
    cause: &'static HeldCause,
    control: Control,
}

/// Finds the causes of differences beyond a threshold. `look_up` finds the control of a figure among all: nothing where it has too few rounds.
pub(super) fn find(
    weighed: &mut [Weighed],
    threshold: f64,
    look_up: impl Fn(&[Weighed], &Weighed, &MetricAt) -> Result<Option<Changed>, NotComparedBecause>,
) {
    let mut told: Vec<(usize, CauseOfChange)> = Vec::new();
    let mut tested: Vec<(Candidate<'_>, Tested)> = Vec::new();
    for candidate in weighed.iter().enumerate().filter_map(|(at, figure)| Candidate::of(at, figure)) {
        match look_up(weighed, candidate.figure, &candidate.control.at) {
            Err(why) => told.push((candidate.at, candidate.cause(CauseFound::NoControl(why)))),
            Ok(control) => {
                let test = control.and_then(|control| candidate.tested(&control, threshold));
                tested.extend(test.map(|test| (candidate, test)));
            }
        }
    }
    // Of all that are tested: those that show nothing count as well.
    let joint = joint_chances(&tested.iter().map(|(_, test)| test.chance).collect::<Vec<f64>>());
    for ((candidate, Tested { chance, cost, share }), joint) in tested.into_iter().zip(joint) {
        let chance = Chance { alone: chance, joint };
        let is_told = |share: &Estimate| chance.counts(FALSE_SHARE) && share.low > 0.0 && share.value >= LEAST_SHARE;
        let share = share.filter(is_told);
        told.extend(share.map(|share| (candidate.at, candidate.cause(CauseFound::Explains { cost, share, chance }))));
    }
    for (at, cause) in told {
        weighed[at].figure.cause = Some(cause);
    }
}

impl<'w> Candidate<'w> {
    /// A figure with an error, if its control may be there.
    fn of(at: usize, weighed: &'w Weighed) -> Option<Self> {
        let figure = MetricAt { metric: weighed.figure.metric.id, case: weighed.figure.case.clone() };
        let of = |cause: &&'static HeldCause| Some((*cause, (cause.control)(&figure)?));
        let (cause, control) = HELD_BY_RUNS.iter().find_map(of)?;
        weighed.error.map(|_| Self { at, figure: weighed, cause, control })
    }

    fn cause(&self, found: CauseFound) -> CauseOfChange {
        let (id, what) = (Name::new(self.cause.id), Name::new(self.cause.what));
        CauseOfChange { id, what, control: self.control.at.clone(), times: self.control.times, found }
    }

    /// Whether its cost changed with the figure, and that by more than its control.
    fn tested(&self, control: &Changed, threshold: f64) -> Option<Tested> {
        let Changed { values, error } = Changed::of(self.figure)?;
        let without = control.values.map(|value| self.control.times * value);
        let (whole, rest) = (error.change(values), control.error.change(without));
        let beyond = error.minus(control.error);
        let cost = [values[0] - without[0], values[1] - without[1]];
        let by_cause = whole.minus(rest);
        let is_of_it = [by_cause.value, beyond.value].iter().all(|change| change * whole.value > 0.0)
            && cost.into_iter().any(|cost| cost > 0.0);
        // The frequency may have moved one of the two and not the other.
        let most = self.figure.of_clock.into_iter().fold(0.0, |most: f64, of_clock| most.max(of_clock.abs()));
        let chance = [
            self.figure.chance_within(&error, margin(threshold)),
            by_cause.chance_of(0.0),
            beyond.chance_of(beyond.value.clamp(-most, most)),
        ];
        let share = share_of_change(whole, rest).map(|ShareOfChange { value, interval: (low, high) }| Estimate {
            value,
            low,
            high,
            is_range: false,
        });
        let chance = if is_of_it { chance.into_iter().fold(0.0, f64::max) } else { 1.0 };
        Some(Tested { chance, cost, share })
    }
}
