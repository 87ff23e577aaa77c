//! The interval of a run's headline: it predicts a repeat of the whole run, from its rounds and earlier runs.
//!
//! The headline of a run is the **median of its rounds' headlines**, each round being a fresh process. Against the mean
//! and the interquartile mean it was chosen by simulation (`examples/coverage.rs` prints the figures): with normal
//! rounds the interquartile mean repeats up to a tenth better, but with one outlier in seven rounds the median repeats
//! a quarter better with 6 rounds, and two outliers of 6 do not move it.
//!
//! Its interval is that of [`UncertainValue::median`]. Where earlier runs are known, it is made of the variance of their headlines, next to which
//! what rounds explain (their Winsorised variance, which an outlier cannot inflate, Tukey and McLaughlin 1963, pooled with that of earlier
//! runs) counts as a guess of it. What rounds do not explain (method of moments of the one-way random model) is added to those of a run that
//! is noisier than the earlier ones, with degrees of freedom after Satterthwaite (1946).

use crate::between_run_variance::{BetweenRunVariance, CONFIDENCE_LEVEL, MAX_HISTORY_RUNS};
use crate::uncertain_value::UncertainValue;
use crate::variance_estimate::VarianceEstimate;
use crate::{median, min_max};

/// Half-width of an interval where states of the machine outlast several rounds, over that where none does: as if there were half as
/// many rounds.
const LASTING_STATE_WIDENING: f64 = std::f64::consts::SQRT_2;

/// Standard deviation from run to run of what keeps whole CPUs busy, as a part of the figure, that is assumed until earlier runs show
/// it: the clock of a core on a shared host, the memory that a run gets and what else the host does differ more from run to run than
/// within one. Observed: of 90 kinds of transfers, in three runs within three hours on one machine whose clock was 3.75, 3.86 and
/// 3.92 GHz, an interval held another run's time in 97 % and its CPU time in 98 %; with 1.5 % assumed, in 82 and 90 %.
pub const ASSUMED_BETWEEN_RUN_STD: f64 = 0.025;

/// Like `ASSUMED_BETWEEN_RUN_STD`, of what is timed in short pieces, of which only the clock of the core and what else lasts for a whole run differ between runs.
/// Observed on guests of shared hosts: loops of known cycles differ by 0.4 % (AMD Zen 4) and 0.8 % (Zen 5) from run to run, within a run
/// by less than 0.1 %.
pub const ASSUMED_CLOCK_STD: f64 = 0.005;

/// Like `ASSUMED_CLOCK_STD`, of figures as found, next to programs on the sibling thread of the core, as a part of how much longer work takes for them on
/// average over a run: a neighbour that works in one run may rest in the next. Observed on a guest of a shared host, whose canary took 23 to
/// 57 % longer on average over a run: from run to run that differed by 12 to 24 % of itself, figures as found by two thirds of it in the
/// median, and single figures by more.
pub const ASSUMED_NEIGHBOUR_STD: f64 = 0.25;

/// What an interval is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadlineIntervalKind {
    /// It covers the headline of a repeated run, at [`CONFIDENCE_LEVEL`].
    Confidence,
    /// Lowest to highest round, and to either side as much as runs are known to differ.
    Range,
}

/// An interval of a headline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadlineInterval {
    /// What it is.
    pub kind: HeadlineIntervalKind,
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

impl HeadlineInterval {
    fn confidence(figure: UncertainValue) -> Self {
        let (lower, upper) = figure.interval(CONFIDENCE_LEVEL);
        Self { kind: HeadlineIntervalKind::Confidence, lower, upper }
    }
}

/// The headline of a run: the median of its rounds' headlines. 0 for no rounds.
pub fn headline(rounds: &[f64]) -> f64 {
    median(rounds)
}

/// What a run's own rounds do not show of how much runs differ: standard deviations, as parts of the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnobservedVariance {
    /// Assumed until earlier runs show it: [`ASSUMED_CLOCK_STD`], [`ASSUMED_BETWEEN_RUN_STD`], and [`ASSUMED_NEIGHBOUR_STD`], or 0 of what is
    /// counted.
    pub assumed: f64,
    /// Of the frequency of a core that moved during this run: what moves within a run lasts in another one. It counts as far as earlier runs
    /// do not show it, and the less the more of them there are.
    pub frequency: f64,
}

/// How many runs a frequency that moved during one counts as, next to earlier ones that agree. Observed on a guest whose core moved by 2 to 5 %
/// within runs: five runs in a row agreed within 0.1 %, the next seven were 7 to 11 % slower.
const MOVED_FREQUENCY_RUNS: f64 = MAX_HISTORY_RUNS as f64;

/// Degrees of freedom of what is assumed of the spread between runs: it is known from a few machines, and not of this figure.
const UNOBSERVED_DEGREES: f64 = 8.0;

impl UnobservedVariance {
    /// What is assumed until earlier runs show it, of a core that keeps its frequency.
    pub fn from_assumed(assumed: f64) -> Self {
        Self { assumed, frequency: 0.0 }
    }

    /// The part of it that earlier runs do not show, as the error of this value.
    fn unlearned_variance(self, value: f64, history: Option<&BetweenRunVariance>) -> VarianceEstimate {
        let variance = match history {
            None => (self.frequency.powi(2) + self.assumed.powi(2)) * value.powi(2),
            Some(history) => {
                let unlearned_share = MOVED_FREQUENCY_RUNS / (MOVED_FREQUENCY_RUNS + history.runs as f64);
                (unlearned_share * (self.frequency * value).powi(2) - history.component).max(0.0)
            }
        };
        VarianceEstimate::new(variance, UNOBSERVED_DEGREES)
    }
}

/// The interval of the headline of these rounds, see [`UncertainValue::median`], and what they do not show; with fewer than [`crate::MIN_INTERVAL_ROUNDS`] their
/// range, with as much to either side as runs are known to differ; `None` with fewer than two.
pub fn headline_interval(
    rounds: &[f64],
    history: Option<&BetweenRunVariance>,
    unobserved: UnobservedVariance,
) -> Option<HeadlineInterval> {
    if let Some(figure) = UncertainValue::median(rounds, history) {
        let figure = figure.with_error(unobserved.unlearned_variance(figure.value, history));
        return Some(HeadlineInterval::confidence(figure));
    }
    let center = headline(rounds);
    let between_run = history.map_or(VarianceEstimate::NONE, BetweenRunVariance::component_estimate);
    let extra_half_width =
        between_run.plus(unobserved.unlearned_variance(center, history)).half_width(CONFIDENCE_LEVEL);
    let (low, high) = min_max(rounds.iter().copied())?;
    let [lower, upper] =
        [center - (center - low).hypot(extra_half_width), center + (high - center).hypot(extra_half_width)];
    (rounds.len() > 1).then_some(HeadlineInterval { kind: HeadlineIntervalKind::Range, lower, upper })
}

/// The interval that holds the headline of a repeat of the run, where states of the machine outlast several rounds and so make
/// neighbours alike: [`headline_interval`] widened for both; for the first until earlier runs show the spread between runs. A range stays
/// what it is there.
pub fn repeat_interval(
    rounds: &[f64],
    history: Option<&BetweenRunVariance>,
    unobserved: UnobservedVariance,
) -> Option<HeadlineInterval> {
    let Some(figure) = UncertainValue::median(rounds, history) else {
        return headline_interval(rounds, history, unobserved);
    };
    let figure = if history.is_some() { figure } else { figure.widened(LASTING_STATE_WIDENING) };
    let figure = figure.with_error(unobserved.unlearned_variance(figure.value, history));
    Some(HeadlineInterval::confidence(figure.next_run()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_give_a_range_or_nothing() {
        assert_eq!(headline_interval(&[], None, UnobservedVariance::default()), None);
        assert_eq!(headline_interval(&[5.0], None, UnobservedVariance::default()), None);
        let range = headline_interval(&[5.0, 9.0, 6.0], None, UnobservedVariance::default()).unwrap();
        assert_eq!(range, HeadlineInterval { kind: HeadlineIntervalKind::Range, lower: 5.0, upper: 9.0 });
        // Runs that agree as their rounds let expect add nothing, others what they differ by.
        let history = |variance| BetweenRunVariance::learn(&[6.0, 6.2, 5.9, 6.1], &[variance; 4]).unwrap();
        let range_with_history = |history: &BetweenRunVariance, unobserved| {
            headline_interval(&[5.0, 9.0, 6.0], Some(history), unobserved).unwrap()
        };
        assert_eq!(range_with_history(&history(0.1), UnobservedVariance::from_assumed(0.1)), range);
        let history = history(0.0);
        let error = 3.182_446 * history.component.sqrt();
        let wider = range_with_history(&history, UnobservedVariance::default());
        assert!((wider.lower - (6.0 - 1.0_f64.hypot(error))).abs() < 1e-6, "{wider:?}");
        assert!((wider.upper - (6.0 + 3.0_f64.hypot(error))).abs() < 1e-6, "{wider:?}");
        let assumed_interval =
            headline_interval(&[5.0, 9.0, 6.0], None, UnobservedVariance::from_assumed(0.1)).unwrap();
        assert!((assumed_interval.upper - (6.0 + 3.0_f64.hypot(2.306_004 * 0.6))).abs() < 1e-6, "{assumed_interval:?}");
        assert_eq!((wider.kind, assumed_interval.kind), (HeadlineIntervalKind::Range, HeadlineIntervalKind::Range));
        assert_eq!(headline_interval(&[5.0], Some(&history), UnobservedVariance::default()), None);
    }

    #[test]
    fn repeat_interval_is_wider_range_is_not() {
        let rounds = [4.0, 1.0, 3.0, 2.0];
        let intervals = |history| {
            [headline_interval, repeat_interval]
                .map(|interval| interval(&rounds, history, UnobservedVariance::default()).unwrap())
        };
        let [truth, repeat] = intervals(None);
        let width = |interval: HeadlineInterval| interval.upper - interval.lower;
        assert!((width(repeat) / width(truth) - 2.0).abs() < 1e-12);
        assert!((repeat.upper + repeat.lower - 5.0).abs() < 1e-12);
        let history = BetweenRunVariance::learn(&[2.0, 3.0, 2.5, 2.4], &[0.1; 4]).unwrap();
        let with_history = intervals(Some(&history));
        assert!((width(with_history[1]) / width(with_history[0]) - std::f64::consts::SQRT_2).abs() < 1e-12);
        assert_eq!(
            repeat_interval(&[5.0, 9.0, 6.0], None, UnobservedVariance::from_assumed(0.1)),
            headline_interval(&[5.0, 9.0, 6.0], None, UnobservedVariance::from_assumed(0.1))
        );
        assert_eq!(repeat_interval(&[5.0], None, UnobservedVariance::from_assumed(0.1)), None);
    }

    #[test]
    fn between_run_variance_assumed_without_history() {
        // Rounds that differ by next to nothing, so that the degrees of freedom of what is assumed are those of the whole.
        let rounds: Vec<f64> = (0..20).map(|round| 100.0 + 1e-9 * f64::from(round)).collect();
        let half_width = |interval: HeadlineInterval| (interval.upper - interval.lower) / 2.0;
        let repeated_interval = repeat_interval(&rounds, None, UnobservedVariance::from_assumed(0.015)).unwrap();
        let normal = 2.306_004 * 1.5;
        assert!(
            (half_width(repeated_interval) / (normal * std::f64::consts::SQRT_2) - 1.0).abs() < 1e-5,
            "{repeated_interval:?}"
        );
        let truth_interval = headline_interval(&rounds, None, UnobservedVariance::from_assumed(0.015)).unwrap();
        assert!((half_width(truth_interval) / normal - 1.0).abs() < 1e-5, "{truth_interval:?}");
        let history = BetweenRunVariance::learn(&[100.0, 100.1, 99.9, 100.05], &[1e-18; 4]).unwrap();
        for interval in [headline_interval, repeat_interval] {
            let interval_with = |unobserved: UnobservedVariance| interval(&rounds, Some(&history), unobserved).unwrap();
            assert_eq!(
                interval_with(UnobservedVariance::from_assumed(0.015)),
                interval_with(UnobservedVariance::default())
            );
            // What the next run's frequency will be four of them hardly show, until they differ by as much.
            let moving_frequency = UnobservedVariance { assumed: 0.015, frequency: 0.05 };
            let min_half_width = 0.05 * (20.0_f64 / 24.0).sqrt() * rounds[0];
            assert!(
                half_width(interval_with(moving_frequency)) > 2.3 * min_half_width,
                "{:?}",
                interval_with(moving_frequency)
            );
            let spread_history = BetweenRunVariance { component: 25.0, between: 25.0, ..history };
            assert_eq!(
                interval(&rounds, Some(&spread_history), moving_frequency),
                interval(&rounds, Some(&spread_history), UnobservedVariance::default())
            );
        }
    }

    #[test]
    fn equal_rounds_give_zero_width_interval() {
        let interval = headline_interval(&[3.0; 6], None, UnobservedVariance::default()).unwrap();
        assert_eq!((interval.lower, interval.upper), (3.0, 3.0));
    }
}
