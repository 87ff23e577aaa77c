//! What follows of each figure, and of all of them together.

use std::cmp::Reverse;
use std::collections::HashMap;

use kelvin_model::{
    Better, Case, Chance, ChangeVerdict, ComparedFigure, Estimate, KnownFrom, Learned, Name, NotCompared,
    NotComparedBecause, NotKnownBecause, Unit,
};
use kelvin_stats::{
    ASSUMED_BETWEEN_RUNS, BetweenRuns, Earlier, FALSE_SHARE, LEVEL, RunToRun, Uncertain, inflation, joint_chances,
    ratio_of_runs, usual_between_runs,
};

use super::series::{Found, Pair, left_out};
use super::{Compare, Subject};

/// How often the smallest change that could have been seen would have been found.
const POWER: f64 = 0.8;

/// What figures are judged by.
pub(super) struct Judge<'a> {
    threshold: f64,
    /// Logarithm of the core frequency of the other over that of the base.
    clock: f64,
    is_published: bool,
    is_one_machine: bool,
    learned: HashMap<(Name, &'a Case), &'a Learned>,
}

/// A figure before it is judged beside all others.
struct Weighed<'p> {
    at: &'p (Name, Case),
    pair: Pair<'p, 'p>,
    between: KnownFrom,
    error: Option<Uncertain>,
    /// What the core frequency may have done to the ratio, from lowest to highest, as logarithms.
    of_clock: [f64; 2],
}

/// How many times as good the base is as the other; `None` where neither direction is better.
pub(super) fn times_as_good(figure: &ComparedFigure) -> Option<f64> {
    match figure.metric.better {
        Better::Lower => Some(figure.ratio.value),
        Better::Higher => Some(1.0 / figure.ratio.value),
        Better::Neither => None,
    }
}

impl<'a> Judge<'a> {
    pub fn new(ask: &'a Compare<'a>, clocks: Option<[f64; 2]>) -> Self {
        let sides = [ask.base.of, ask.other.of];
        let machines: Vec<&str> =
            sides.iter().flat_map(|side| side.runs()).map(|run| run.outline.machine.identity.as_str()).collect();
        Self {
            threshold: ask.threshold,
            clock: clocks.map_or(0.0, |[base, other]| (other / base).ln()),
            is_published: sides.iter().any(|side| matches!(side, Subject::Published(_))),
            is_one_machine: machines.windows(2).all(|pair| pair[0] == pair[1]),
            learned: ask.learned.iter().map(|learned| ((learned.metric, &learned.case), learned)).collect(),
        }
    }

    /// The verdicts, the most consequential first, and how much wider errors were made.
    pub fn judge(
        &self,
        pairs: &[((Name, Case), Pair<'_, '_>)],
        apart: &mut Vec<NotCompared>,
    ) -> (Vec<ComparedFigure>, f64) {
        let (positive, others): (Vec<_>, Vec<_>) =
            pairs.iter().partition(|(_, pair)| pair.iter().all(|side| side.value() > 0.0));
        apart.extend(others.iter().map(|(at, pair)| left_out(at, &pair[0].metric, NotComparedBecause::NoRatio)));
        let histories: Vec<Option<RunToRun>> = positive.iter().map(|(at, pair)| self.history(at, *pair)).collect();
        let learned: Vec<RunToRun> = histories.iter().copied().flatten().collect();
        let usual = usual_between_runs(&learned);
        let with_history = positive.iter().zip(histories);
        let mut weighed: Vec<Weighed<'_>> =
            with_history.map(|((at, pair), history)| self.weigh(at, *pair, (history, usual))).collect();
        let strangeness: Vec<f64> = weighed.iter().filter_map(Weighed::strangeness).collect();
        let inflation = inflation(&strangeness);
        for one in &mut weighed {
            one.error = one.error.map(|error| error.wider(inflation));
        }
        (self.together(&weighed), inflation)
    }

    fn weigh<'p>(
        &self,
        at: &'p (Name, Case),
        pair: Pair<'p, 'p>,
        (history, usual): (Option<RunToRun>, Option<f64>),
    ) -> Weighed<'p> {
        // Among few figures none is usual: each is taken for what it is.
        let learned =
            |history: RunToRun| BetweenRuns::Learned { history, usual: usual.unwrap_or(history.between.sqrt()) };
        let between = history.map_or(BetweenRuns::Assumed(ASSUMED_BETWEEN_RUNS), learned);
        let [base, other] = pair;
        let is_whole = pair.iter().all(|side| side.figures.len() == side.headlines.len());
        let error = ratio_of_runs(&base.figures, &other.figures, &between).filter(|_| is_whole && !self.is_published);
        let of_clock = match base.metric.unit {
            Unit::Nanoseconds => -self.clock,
            Unit::Hertz | Unit::BytesPerSecond | Unit::PerSecond => self.clock,
            Unit::Cycles | Unit::Bytes | Unit::Ratio | Unit::Count => 0.0,
        };
        let between = match between {
            BetweenRuns::Learned { history, .. } => KnownFrom::Runs(history.runs),
            BetweenRuns::Assumed(deviation) => KnownFrom::Assumed(deviation),
        };
        Weighed { at, pair, between, error, of_clock: [of_clock.min(0.0), of_clock.max(0.0)] }
    }

    /// The spread from run to run: by other runs than those compared, else by the most earlier runs that one of these knew of; of two
    /// machines the larger.
    fn history(&self, at: &(Name, Case), pair: Pair<'_, '_>) -> Option<RunToRun> {
        let learn = |learned: &Learned| {
            RunToRun::learn_logarithm(Earlier { headlines: &learned.headlines, within: &learned.within })
        };
        let given = self.learned.get(&(at.0, &at.1)).copied().and_then(learn);
        let own = pair.iter().filter_map(|side: &&Found<'_>| side.learned).filter_map(learn);
        match given {
            Some(given) if self.is_one_machine => Some(given),
            None if self.is_one_machine => own.max_by_key(|history| history.runs),
            given => given.into_iter().chain(own).max_by(|one, other| one.between.total_cmp(&other.between)),
        }
    }

    /// The verdicts of all figures, false ones controlled over all of them.
    fn together(&self, weighed: &[Weighed<'_>]) -> Vec<ComparedFigure> {
        let margin = [(1.0 - self.threshold).ln(), self.threshold.ln_1p()];
        let tested: Vec<&Weighed<'_>> = weighed.iter().filter(|one| one.error.is_some()).collect();
        let chances = |of: &dyn Fn(&Weighed<'_>, &Uncertain) -> f64| -> Vec<Chance> {
            let alone: Vec<f64> = tested.iter().filter_map(|one| Some(of(one, one.error.as_ref()?))).collect();
            let joint = joint_chances(&alone);
            alone.into_iter().zip(joint).map(|(alone, joint)| Chance { alone, joint }).collect()
        };
        let differs = chances(&|one, error| one.chance_within(error, margin));
        let same = chances(&|_, error| error.chance_outside(margin[0], margin[1]));
        let found = differs.iter().filter(|chance| chance.counts(FALSE_SHARE)).count();
        // The chance up to which one figure more would have been found.
        let by_accident = FALSE_SHARE * (found + 1).min(tested.len()) as f64 / tested.len().max(1) as f64;
        let mut tests = differs.into_iter().zip(same);
        let mut figures: Vec<ComparedFigure> = weighed
            .iter()
            .map(|one| {
                let tests = one.error.and_then(|error| Some((error, tests.next()?)));
                one.judged(tests, (margin, by_accident), self.is_published)
            })
            .collect();
        // The sort is stable: within one place figures stay in the order in which they were measured.
        figures.sort_by(|one, other| place(one).partial_cmp(&place(other)).unwrap_or(std::cmp::Ordering::Equal));
        figures
    }
}

impl Weighed<'_> {
    fn strangeness(&self) -> Option<f64> {
        let error = self.error.as_ref()?;
        let [low, high] = self.of_clock;
        error.strangeness(error.value.clamp(low, high))
    }

    /// What may be with no change beyond the threshold: its ends.
    fn unchanged(&self, margin: [f64; 2]) -> [f64; 2] {
        [self.of_clock[0] + margin[0], self.of_clock[1] + margin[1]]
    }

    /// Chance of the figure if nothing changed by more than the threshold.
    fn chance_within(&self, error: &Uncertain, margin: [f64; 2]) -> f64 {
        let [low, high] = self.unchanged(margin);
        error.chance_of(error.value.clamp(low, high))
    }

    fn judged(
        &self,
        tests: Option<(Uncertain, (Chance, Chance))>,
        (margin, by_accident): ([f64; 2], f64),
        is_published: bool,
    ) -> ComparedFigure {
        let [base, other] = self.pair;
        let ratio = other.value() / base.value();
        let figure = ComparedFigure {
            metric: if base.rounds == 0 { other.metric } else { base.metric },
            case: self.at.1.clone(),
            base: base.value(),
            other: other.value(),
            rounds: [base.rounds, other.rounds],
            ratio: self.range(ratio),
            between: self.between,
            verdict: ChangeVerdict::NotKnown(if is_published {
                NotKnownBecause::Published
            } else {
                NotKnownBecause::TooFewRounds
            }),
            differs: None,
            same: None,
            least_seen: None,
            times_to_decide: None,
        };
        let Some((error, (differs, same))) = tests else { return figure };
        let (low, high) = error.interval(LEVEL);
        let verdict = self.verdict(&error, differs, same, margin);
        let unchanged = self.unchanged(margin);
        let is_inside = margin[0] < error.value && error.value < margin[1];
        let limits: &[f64] = match error.value {
            _ if is_inside => &margin,
            value if value > 0.0 => &unchanged[1..],
            _ => &unchanged[..1],
        };
        let is_open = verdict == ChangeVerdict::NotKnown(NotKnownBecause::Undecided);
        let times = error.times_to_decide(by_accident, limits);
        ComparedFigure {
            ratio: Estimate { value: ratio, low: low.exp(), high: high.exp(), is_range: false },
            verdict,
            differs: Some(differs),
            same: Some(same),
            least_seen: Some(self.least_seen(&error, by_accident, unchanged)),
            times_to_decide: Some(times).filter(|times| is_open && times.is_finite()),
            ..figure
        }
    }

    /// The smallest change for the worse that is found with the stated power, as a share.
    fn least_seen(&self, error: &Uncertain, by_accident: f64, [low, high]: [f64; 2]) -> f64 {
        let beyond = error.least_seen(by_accident, POWER);
        match self.pair[0].metric.better {
            Better::Higher => 1.0 - (low - beyond).exp(),
            Better::Lower | Better::Neither => (high + beyond).exp() - 1.0,
        }
    }

    fn verdict(&self, error: &Uncertain, differs: Chance, same: Chance, margin: [f64; 2]) -> ChangeVerdict {
        if differs.counts(FALSE_SHARE) {
            return match (self.pair[0].metric.better, error.value > 0.0) {
                (Better::Lower, true) | (Better::Higher, false) => ChangeVerdict::Worse,
                (Better::Lower, false) | (Better::Higher, true) => ChangeVerdict::Better,
                (Better::Neither, true) => ChangeVerdict::Higher,
                (Better::Neither, false) => ChangeVerdict::Lower,
            };
        }
        if same.counts(FALSE_SHARE) {
            return ChangeVerdict::Same;
        }
        let is_of_clock = error.value.clamp(self.of_clock[0], self.of_clock[1]) == error.value
            && !(margin[0]..margin[1]).contains(&error.value);
        ChangeVerdict::NotKnown(if is_of_clock { NotKnownBecause::CoreFrequency } else { NotKnownBecause::Undecided })
    }

    /// The ratio with the range of what was seen.
    fn range(&self, value: f64) -> Estimate {
        let [[base_low, base_high], [low, high]] = self.pair.map(|side| {
            let is_seen = side.rounds > 0 && side.range[0] > 0.0;
            if is_seen { side.range } else { [side.value(); 2] }
        });
        Estimate { value, low: low / base_high, high: high / base_low, is_range: true }
    }
}

/// Where a figure stands in a report: the smaller the sooner.
fn place(figure: &ComparedFigure) -> (u32, Reverse<f64>) {
    let certain = figure.ratio.low.ln().max(-figure.ratio.high.ln());
    let open = figure.differs.map_or(f64::NEG_INFINITY, |chance| -chance.alone);
    match figure.verdict {
        ChangeVerdict::Worse => (0, Reverse(certain)),
        ChangeVerdict::Better => (1, Reverse(certain)),
        ChangeVerdict::Higher | ChangeVerdict::Lower => (2, Reverse(certain)),
        ChangeVerdict::NotKnown(_) => (3, Reverse(open)),
        ChangeVerdict::Same => (4, Reverse(0.0)),
    }
}
