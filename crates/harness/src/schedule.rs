//! Which unit runs next, and for how long: equal passes over all units until each has its minimum of rounds, then the
//! remaining time spent where it still helps.
//!
//! Pure: the time and how far each unit has come are passed in, so tests need no real time.

use std::time::Duration;

use kelvin_core::{CaseStatus, IndirectSort};
use kelvin_stats::{MIN_INTERVAL_ROUNDS, Random, median};

use crate::budget_fit::{ExpectedCost, UnitCost, as_nanoseconds, over_budget};

/// Nanoseconds of timing per unit and round: at least, and as soon as the minimum of rounds leaves time for it.
pub(crate) const MIN_SLICE: f64 = 5e6;
const DEFAULT_SLICE: f64 = 10e6;
/// Where set-up takes long a round is worth more timing: this share of the set-up, up to this many nanoseconds.
const SLICE_SHARE_OF_SETUP: f64 = 0.25;
const MAX_SLICE: f64 = 100e6;
/// Nanoseconds in which the samples of a round scatter as much as rounds differ, where they do so early: mostly it is a quarter of
/// that. A round that is to narrow an interval is best timed for the geometric mean of this and of its overhead
/// (optimum allocation in two-stage sampling; Cochran, Sampling Techniques, section 10.6), but not for so short that too few samples
/// are undisturbed.
const SAMPLE_SCATTER_TIME: f64 = 1e6;
const MIN_NARROWING_SLICE: f64 = 2e6;
/// Where the budget allows more than the minimum of rounds, every unit gets more of them, up to this many, before its
/// interval counts: a disturbance of a few hundred milliseconds then spoils one round of many.
const MAX_EXTRA_ROUNDS: u32 = 100;
/// Share of the budget for equal passes; the rest is for what needs more than others.
pub(crate) const EQUAL_PASS_SHARE: f64 = 0.85;
/// Share of the budget up to which the rounds of the minimum are timed for longer than the least: further rounds of what is too wide are
/// worth more, as rounds differ by more than the samples within them let expect.
const LONG_SLICE_SHARE: f64 = 0.75;
/// Minimum of rounds of a unit that is only an input of predictions, or one of many points: their median has an error.
pub(crate) const MIN_ROUNDS: u32 = MIN_INTERVAL_ROUNDS as u32;
/// Nanoseconds that a round may go on for beyond its timing, until it has undisturbed samples. On a busy host a core is left alone
/// again within 30 ms in three cases of four; where it takes longer, other rounds make better use of the time.
const MAX_EXTENSION: f64 = 50e6;
/// How many times its share of the free time a round may take for that, as most need not wait; and this share of its own set-up
/// more, which would be in vain without undisturbed samples.
const EXTENSION_SHARES: f64 = 2.0;
const EXTENSION_SHARE_OF_SETUP: f64 = 0.05;
/// Share of the target to which an interval is narrowed where there is time: one that is just narrow enough has come out so by chance half
/// of the time, and would not again.
const NARROWING_TARGET_SHARE: f64 = 0.75;
/// Undisturbed rounds that come before all narrowing: as many as an interval needs, and one that may yet turn out to be disturbed.
const MIN_UNDISTURBED_ROUNDS: u32 = MIN_INTERVAL_ROUNDS as u32 + 1;
/// A unit that would need this many times its rounds until enough of them are undisturbed does not get them; nor one whose rounds have
/// taken this share of the budget, or this many times its equal share of it.
const HOPELESS_FACTOR: f64 = 8.0;
const MAX_UNIT_SHARE: f64 = 0.04;
const MAX_EQUAL_SHARES: f64 = 2.0;
/// Once this many units have had a round, the others are expected to take as many times what was expected as they did.
const MIN_SLOWNESS_UNITS: usize = 8;
/// Passes that show what rounds take: where the budget is kept they are in the order of importance.
const PRIORITY_PASSES: u32 = 2;
/// What is known of a unit's rounds from earlier runs counts as much as this many rounds of this one.
const PRIOR_COST_ROUNDS: f64 = 4.0;
/// What the last round weighs in what is known of its unit, and in what is known of all rounds.
const UNIT_COST_SMOOTHING: f64 = 0.4;
const EXTENSION_SMOOTHING: f64 = 0.02;
/// The last round may end this share of a kept budget late.
const MAX_BUDGET_OVERRUN: f64 = 0.02;
/// A longer budget is announced once it has grown by this factor, and again once it has grown as much again: a few times in a
/// run that takes several times as long as expected.
const ANNOUNCE_GROWTH: f64 = 1.05;
const REANNOUNCE_GROWTH: f64 = 1.5;

/// The parameters of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleSpec {
    /// The budget in nanoseconds.
    pub budget: f64,
    /// What yields where the minimum of rounds takes longer.
    pub limit: BudgetLimit,
    /// Minimum of rounds of each unit.
    pub rounds: u32,
    /// Target relative half-width of an interval.
    pub target: f64,
    pub seed: u64,
}

/// What yields where the minimum of rounds takes longer than the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetLimit {
    /// The budget, which grows as long as it is no more than this; then the least important units are left out.
    ExtendableTo(Duration),
    /// The units: the least important are left out.
    Fixed,
}

/// A unit as its schedule knows it before its first round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitSpec {
    /// It is only an input of predictions.
    pub only_input: bool,
    /// Its minimum of rounds.
    pub rounds: u32,
    /// Units of one block lie next to each other in a pass.
    pub block: u32,
    /// Its place in the order of importance, the most important first.
    pub priority: usize,
    /// The expected overhead of its rounds.
    pub cost: ExpectedCost,
    /// Its first round comes before all others, and the rest after them.
    pub spans_run: bool,
}

/// The state of one unit.
#[derive(Clone, Debug)]
struct UnitState {
    task: UnitSpec,
    rounds: u32,
    /// Overhead of its first round in nanoseconds.
    first_cost: Option<f64>,
    /// Like `first_cost`, of its later rounds, smoothed.
    later_cost: Option<f64>,
    /// Why it gets no further round, if so.
    retirement: Option<RetireReason>,
}

impl UnitState {
    /// How many times as long as expected the overhead of its rounds is.
    fn slowness(&self) -> Option<f64> {
        let ExpectedCost { first, later, .. } = self.task.cost;
        let (cost, expected) =
            self.later_cost.map(|cost| (cost, later)).or(self.first_cost.map(|cost| (cost, first)))?;
        (!expected.is_zero()).then(|| cost / as_nanoseconds(expected))
    }
}

/// Why a unit gets no further round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetireReason {
    /// It failed or skipped in a way that makes a retry pointless.
    NoRetry,
    /// There is no time for it.
    OutOfTime,
}

/// What the rounds of a pass are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassPhase {
    /// As many rounds of every unit: the minimum, or more.
    RoundRobin,
    /// Undisturbed rounds in the place of others.
    ReplaceDisturbed,
    /// Narrower intervals.
    NarrowIntervals,
}

/// What to run next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NextRound {
    pub unit: usize,
    pub round: u32,
    /// Nanoseconds for timing.
    pub slice: f64,
    /// Nanoseconds by which it may go on beyond that, until it has undisturbed samples.
    pub max_extension: f64,
}

/// The round that runs.
#[derive(Clone, Copy, Debug)]
struct RunningRound {
    next: NextRound,
    start: f64,
    /// Nanoseconds by which it went on beyond its timing, once it is over.
    extension: f64,
}

/// A decision for lack of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    /// The unit is left out: its rounds take longer than there is room for.
    LeaveOut { unit: usize },
    /// The budget is this many nanoseconds longer than it was asked for.
    Lengthen { increase: f64 },
}

/// The schedule of a run.
pub(crate) struct Schedule {
    spec: ScheduleSpec,
    /// The budget, and as it was last announced.
    budget: f64,
    announced: f64,
    units: Vec<UnitState>,
    random: Random,
    /// Units still to run in this pass, last first.
    pass: Vec<usize>,
    /// What its rounds are for.
    phase: PassPhase,
    /// Until when rounds that help come before the minimum of rounds goes on.
    refine_until: f64,
    passes: u32,
    /// Whether only the last rounds of units that wait are left.
    is_closing: bool,
    /// How many times as long as expected the overhead of rounds is on this machine: the median of the units so far.
    slowness: f64,
    running: Option<RunningRound>,
    /// Nanoseconds by which rounds go on beyond their timing, where they may, smoothed.
    mean_extension: f64,
    decisions: Vec<Decision>,
    /// Units for which there is no room at the moment.
    over_budget: Vec<usize>,
    statuses: Vec<CaseStatus>,
}

impl Schedule {
    pub(crate) fn new(spec: ScheduleSpec, tasks: Vec<UnitSpec>) -> Self {
        let unit = |task| UnitState { task, rounds: 0, first_cost: None, later_cost: None, retirement: None };
        Self {
            spec,
            budget: spec.budget,
            announced: spec.budget,
            statuses: vec![CaseStatus::default(); tasks.len()],
            units: tasks.into_iter().map(unit).collect(),
            random: Random::new(spec.seed),
            pass: Vec::new(),
            phase: PassPhase::RoundRobin,
            refine_until: 0.0,
            passes: 0,
            is_closing: false,
            slowness: 1.0,
            running: None,
            mean_extension: 0.0,
            decisions: Vec::new(),
            over_budget: Vec::new(),
        }
    }

    /// What to run next at this time (nanoseconds since the start); `None` when the run is over. `statuses` returns how far each unit
    /// has come, once all have their minimum of rounds.
    pub(crate) fn next_round(&mut self, now: f64, statuses: &mut dyn FnMut() -> Vec<CaseStatus>) -> Option<NextRound> {
        self.learn_cost(now);
        self.fit_to_budget(now);
        loop {
            while let Some(unit) = self.pass.pop() {
                let state = &self.units[unit];
                if state.retirement.is_some() || self.over_budget.contains(&unit) {
                    continue;
                }
                let slice = self.slice_of_phase(self.phase, state, self.slice_scale(now));
                if self.missing_rounds(state) > 0
                    || now + self.expected_overhead(state) + slice <= self.budget - self.closing_reserve()
                {
                    let next = NextRound {
                        unit,
                        round: state.rounds,
                        slice,
                        max_extension: self.max_extension(state, slice, now),
                    };
                    self.running = Some(RunningRound { next, start: now, extension: 0.0 });
                    return Some(next);
                }
            }
            self.begin_pass(now, statuses);
            if self.pass.is_empty() {
                return None;
            }
        }
    }

    /// Records that a round is over, well or not, and by how many nanoseconds it went on beyond its timing.
    pub(crate) fn record_round(&mut self, next: NextRound, extension: f64) {
        self.units[next.unit].rounds += 1;
        self.mean_extension += EXTENSION_SMOOTHING * (extension - self.mean_extension);
        if let Some(running) = &mut self.running {
            running.extension = extension;
        }
    }

    /// Records that a retry of this unit is pointless.
    pub(crate) fn retire_unit(&mut self, unit: usize) {
        self.units[unit].retirement = Some(RetireReason::NoRetry);
    }

    /// Leaves out a unit for want of time; one with as many rounds as an interval needs keeps them.
    pub(crate) fn leave_out(&mut self, unit: usize) {
        let min_rounds = self.min_kept_rounds(unit);
        let state = &mut self.units[unit];
        state.retirement = Some(RetireReason::OutOfTime);
        if state.rounds < min_rounds {
            self.decisions.push(Decision::LeaveOut { unit });
        }
    }

    /// The unit that is asked for, if it is the only one.
    fn only_requested(&self) -> Option<usize> {
        let mut requested = (0..self.units.len()).filter(|&unit| !self.units[unit].task.only_input);
        requested.next().filter(|_| requested.next().is_none())
    }

    /// Rounds that are kept of a unit for which there is no more time: as many as an interval needs, and of the only one any, whose range
    /// is shown.
    fn min_kept_rounds(&self, unit: usize) -> u32 {
        if self.only_requested() == Some(unit) { 1 } else { MIN_INTERVAL_ROUNDS as u32 }
    }

    /// Nanoseconds that a round of a unit may take that begins now: those that more important units leave, and half of them if it needs
    /// further rounds; in any case twice what it usually takes, as far as that is a small overrun.
    pub(crate) fn time_limit(&self, unit: usize, now: f64) -> f64 {
        let costs = self.unit_costs();
        let end = self.max_budget();
        let order = |cost: &UnitCost| cost.budget_order(end);
        let before = costs.iter().filter(|cost| order(cost) < order(&costs[unit]));
        let reserved: f64 = before.map(|cost| cost.remaining).sum();
        let available = (1.0 + MAX_BUDGET_OVERRUN) * end - now - reserved;
        let available = if self.missing_rounds(&self.units[unit]) > 1 { available / 2.0 } else { available };
        available.max((2.0 * self.round_cost(unit, PassPhase::RoundRobin)).min(MAX_BUDGET_OVERRUN * end))
    }

    /// The decisions since the last call.
    pub(crate) fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// The budget in nanoseconds, which may have grown.
    pub(crate) fn budget(&self) -> f64 {
        self.budget
    }

    /// Nanoseconds by which the budget has grown, if that is worth saying.
    pub(crate) fn announced_growth(&self) -> Option<f64> {
        (self.announced > self.spec.budget).then_some(self.budget - self.spec.budget)
    }

    /// Rounds done, and rounds planned so far.
    pub(crate) fn progress(&self) -> (usize, usize) {
        let completed: u32 = self.units.iter().map(|state| state.rounds).sum();
        let missing_rounds: u32 = self.units.iter().map(|state| self.missing_rounds(state)).sum();
        (completed as usize, (completed + missing_rounds.max(self.pass.len() as u32)) as usize)
    }

    /// Units whose interval is still wider than the target, by their statuses.
    pub(crate) fn wide_units(&self, statuses: &[CaseStatus]) -> Vec<usize> {
        let is_wide = |status: &CaseStatus| status.half_width.is_some_and(|width| width > self.spec.target);
        self.requested_units().filter(|&unit| is_wide(&statuses[unit])).collect()
    }

    /// Units that have fewer rounds than they should have, because time ran out.
    pub(crate) fn short_units(&self) -> Vec<usize> {
        let is_short = |&unit: &usize| {
            let state = &self.units[unit];
            let has_kept_rounds = (self.min_kept_rounds(unit)..state.task.rounds).contains(&state.rounds);
            state.retirement == Some(RetireReason::OutOfTime) && has_kept_rounds
        };
        (0..self.units.len()).filter(is_short).collect()
    }

    /// The units that are asked for and go on.
    fn requested_units(&self) -> impl Iterator<Item = usize> {
        (0..self.units.len()).filter(|&unit| self.units[unit].retirement.is_none() && !self.units[unit].task.only_input)
    }

    /// Those of them that any moment of a run is right for.
    fn repeatable_units(&self) -> impl Iterator<Item = usize> {
        self.requested_units().filter(|&unit| !self.units[unit].task.spans_run)
    }

    /// Learns from the last round what its unit costs, with all overhead.
    fn learn_cost(&mut self, now: f64) {
        let Some(RunningRound { next, start, extension }) = self.running.take() else { return };
        let state = &mut self.units[next.unit];
        let overhead = (now - start - next.slice - extension).max(0.0);
        match (state.first_cost, state.later_cost) {
            (None, _) => state.first_cost = Some(overhead),
            (Some(_), None) => state.later_cost = Some(overhead),
            (Some(_), Some(previous)) => {
                state.later_cost = Some(previous + UNIT_COST_SMOOTHING * (overhead - previous))
            }
        }
        let slownesses: Vec<f64> = self.units.iter().filter_map(UnitState::slowness).collect();
        if slownesses.len() >= MIN_SLOWNESS_UNITS {
            self.slowness = median(&slownesses);
        }
    }

    /// Overhead of one more round of a unit in nanoseconds.
    fn expected_overhead(&self, state: &UnitState) -> f64 {
        let ExpectedCost { first, later, is_measured } = state.task.cost;
        let slowness = self.unit_slowness(state);
        let expected = slowness * as_nanoseconds(later);
        match (state.first_cost, state.later_cost) {
            // One round of this run counts less than all those before it.
            (_, Some(took)) if is_measured => {
                let rounds = f64::from(state.rounds.saturating_sub(1));
                (PRIOR_COST_ROUNDS * expected + rounds * took) / (PRIOR_COST_ROUNDS + rounds)
            }
            (_, Some(took)) => took,
            (None, None) => slowness * as_nanoseconds(first),
            // Of rounds that were made before, the first does not predict the others.
            (Some(_), None) if is_measured => expected,
            // Where what is made has only been guessed, the first round may have made what the others find, or all may take longer
            // than was expected: the geometric mean is not far from either.
            (Some(_), None) => (state.slowness().unwrap_or(1.0) * as_nanoseconds(later) * expected).sqrt(),
        }
    }

    /// How many times as long as expected the rounds of a unit take that it has not had. The median of skewed times lies below their mean,
    /// which is what is known of rounds that were made before: it shows when they are slower, and not when they are faster.
    fn unit_slowness(&self, state: &UnitState) -> f64 {
        if state.task.cost.is_measured { self.slowness.max(1.0) } else { self.slowness }
    }

    /// Nanoseconds of this many more rounds of a unit, with the shortest slices.
    fn expected_time(&self, state: &UnitState, rounds: u32) -> f64 {
        let overhead = if state.first_cost.is_some() {
            f64::from(rounds) * self.expected_overhead(state)
        } else {
            self.unit_slowness(state) * state.task.cost.total_for_rounds(rounds)
        };
        overhead + f64::from(rounds) * MIN_SLICE
    }

    /// Rounds of the minimum that a unit still lacks.
    fn missing_rounds(&self, state: &UnitState) -> u32 {
        if state.retirement.is_some() { 0 } else { state.task.rounds.saturating_sub(state.rounds) }
    }

    /// What each unit still needs for its minimum of rounds, with the shortest slices.
    fn unit_costs(&self) -> Vec<UnitCost> {
        let unit_cost = |state: &UnitState| {
            let [total, remaining] =
                [state.task.rounds, self.missing_rounds(state)].map(|rounds| self.expected_time(state, rounds));
            UnitCost { priority: state.task.priority, total, remaining }
        };
        self.units.iter().map(unit_cost).collect()
    }

    /// Nanoseconds that all rounds of the minimum still need.
    fn remaining_minimum(&self) -> f64 {
        self.unit_costs().iter().map(|cost| cost.remaining).sum()
    }

    /// Nanoseconds that the budget may become at most.
    fn max_budget(&self) -> f64 {
        match self.spec.limit {
            BudgetLimit::ExtendableTo(limit) => as_nanoseconds(limit).max(self.spec.budget),
            BudgetLimit::Fixed => self.spec.budget,
        }
    }

    /// Sees to it that all rounds of the minimum fit: the budget grows as far as it may, and then units have to wait.
    fn fit_to_budget(&mut self, now: f64) {
        let (missing_time, max_budget) = (self.remaining_minimum(), self.max_budget());
        // A last round that ends late is no reason. Only what was announced is kept to: an estimate that a busy moment raised falls again.
        if missing_time > 0.0 {
            self.budget = self.announced.max((now + missing_time).min(max_budget));
        }
        self.over_budget.clear();
        if now + missing_time > max_budget {
            self.over_budget = over_budget(&self.unit_costs(), max_budget - now, max_budget);
            // Nothing else waits for the time of the one case that was asked for: fewer rounds are better than none.
            if let Some(unit) =
                self.only_requested().filter(|&unit| now + self.expected_time(&self.units[unit], 1) <= max_budget)
            {
                self.over_budget.retain(|&other| other != unit);
            }
        }
        // How long it will be is known once each unit has had a round.
        let factor = if self.announced > self.spec.budget { REANNOUNCE_GROWTH } else { ANNOUNCE_GROWTH };
        if self.passes > 1 && self.budget > factor * self.announced {
            self.announced = self.budget;
            self.decisions.push(Decision::Lengthen { increase: self.budget - self.spec.budget });
        }
    }

    /// How much of its usual timing beyond the least a round gets: the rounds of the minimum that are still to come share what they
    /// leave of the time.
    fn slice_scale(&self, now: f64) -> f64 {
        let unit_extra =
            |state: &UnitState| f64::from(self.missing_rounds(state)) * (self.default_slice(state) - MIN_SLICE);
        let extra_time: f64 = self.units.iter().map(unit_extra).sum();
        let remaining = (LONG_SLICE_SHARE * self.budget - now - self.remaining_minimum()).max(0.0);
        if extra_time > 0.0 { (remaining / extra_time).min(1.0) } else { 1.0 }
    }

    /// Nanoseconds by which a round may go on beyond its timing. The rounds of the minimum that are still to come share what they
    /// leave of the announced time; after them a round takes what it needs of the time that is left.
    fn max_extension(&self, state: &UnitState, slice: f64, now: f64) -> f64 {
        let missing_rounds: u32 = self.units.iter().map(|state| self.missing_rounds(state)).sum();
        let (remaining, limit) = if missing_rounds > 0 {
            let remaining = self.announced - now - self.remaining_minimum();
            (
                remaining,
                EXTENSION_SHARES * remaining / f64::from(missing_rounds)
                    + EXTENSION_SHARE_OF_SETUP * self.expected_overhead(state),
            )
        } else {
            (self.budget - self.closing_reserve() - now - self.expected_overhead(state) - slice, MAX_EXTENSION)
        };
        limit.min(remaining).clamp(0.0, MAX_EXTENSION)
    }

    /// Nanoseconds of timing of a round, which in an equal pass is stretched so far.
    fn slice_of_phase(&self, purpose: PassPhase, state: &UnitState, stretch: f64) -> f64 {
        match purpose {
            PassPhase::RoundRobin => MIN_SLICE + stretch * (self.default_slice(state) - MIN_SLICE),
            PassPhase::ReplaceDisturbed => MIN_SLICE,
            PassPhase::NarrowIntervals => {
                (SAMPLE_SCATTER_TIME * self.expected_overhead(state)).sqrt().clamp(MIN_NARROWING_SLICE, MAX_SLICE)
            }
        }
    }

    fn default_slice(&self, state: &UnitState) -> f64 {
        (SLICE_SHARE_OF_SETUP * self.expected_overhead(state)).clamp(DEFAULT_SLICE, MAX_SLICE)
    }

    fn begin_pass(&mut self, now: f64, statuses: &mut dyn FnMut() -> Vec<CaseStatus>) {
        let has_turn = |state: &UnitState| !state.task.spans_run || state.rounds == 0 || self.is_closing;
        let is_due = |&unit: &usize| {
            let state = &self.units[unit];
            self.missing_rounds(state) > 0 && has_turn(state) && !self.over_budget.contains(&unit)
        };
        let mut pass: Vec<usize> = (0..self.units.len()).filter(is_due).collect();
        let before = std::mem::replace(&mut self.phase, PassPhase::RoundRobin);
        if !pass.is_empty() && !self.is_closing {
            if before == PassPhase::RoundRobin {
                self.refine_until = now + self.refinement_budget(now);
            }
            if now < self.refine_until {
                let early = self.refinement_pass(self.refine_until - now, statuses);
                pass = if early.is_empty() { pass } else { early };
            }
        }
        if pass.is_empty() && !self.is_closing {
            // All others have their rounds: no time becomes free any more.
            std::mem::take(&mut self.over_budget).into_iter().for_each(|unit| self.leave_out(unit));
            pass = self.extra_pass(now);
        }
        if pass.is_empty() && !self.is_closing {
            pass = self.refinement_pass(self.budget - self.closing_reserve() - now, statuses);
        }
        if pass.is_empty() && !self.is_closing {
            self.is_closing = true;
            pass = self.closing_units().collect();
        }
        self.order_pass(&mut pass);
        // Passes are taken from their end.
        pass.indirect_sort_by_key(|&unit| self.units[unit].task.spans_run);
        self.pass = pass;
        self.passes += 1;
    }

    /// Units that wait for their last rounds.
    fn closing_units(&self) -> impl Iterator<Item = usize> {
        (0..self.units.len())
            .filter(|&unit| self.units[unit].task.spans_run && self.missing_rounds(&self.units[unit]) > 0)
    }

    /// Nanoseconds that the last rounds of the units that wait will take.
    fn closing_reserve(&self) -> f64 {
        self.closing_units()
            .map(|unit| self.expected_time(&self.units[unit], self.missing_rounds(&self.units[unit])))
            .sum()
    }

    /// Puts a pass in the order in which it will be taken, from its end.
    fn order_pass(&mut self, pass: &mut [usize]) {
        let may_exceed_budget = self.spec.limit == BudgetLimit::Fixed || !self.over_budget.is_empty();
        if self.passes < PRIORITY_PASSES && may_exceed_budget {
            // What turns out to have no room should not have taken time already.
            let costs = self.unit_costs();
            pass.indirect_sort_by_key(|&unit| std::cmp::Reverse(costs[unit].budget_order(self.max_budget())));
            return;
        }
        // Random order, of blocks and within them.
        self.random.shuffle(pass);
        let block = |unit: usize| self.units[unit].task.block;
        let mut order: Vec<u32> = pass.iter().map(|&unit| block(unit)).collect();
        order.sort_unstable();
        order.dedup();
        if order.len() > 1 {
            self.random.shuffle(&mut order);
            pass.indirect_sort_by_key(|&unit| order.iter().position(|&candidate| block(unit) == candidate));
        }
    }

    /// One more round of every unit, if there is time for all of them.
    fn extra_pass(&self, now: f64) -> Vec<usize> {
        let pass: Vec<usize> =
            self.repeatable_units().filter(|&unit| self.units[unit].rounds < MAX_EXTRA_ROUNDS).collect();
        let time: f64 = pass.iter().map(|&unit| self.round_cost(unit, PassPhase::RoundRobin)).sum();
        if now + time <= EQUAL_PASS_SHARE * self.budget { pass } else { Vec::new() }
    }

    /// Nanoseconds for mending before the next round of the minimum: the passes of the minimum that are still to come, and the end of the
    /// run, get equal parts of what is left, so that further rounds see as much of the run as others.
    fn refinement_budget(&self, now: f64) -> f64 {
        let has_begun = self.repeatable_units().all(|unit| self.units[unit].rounds >= MIN_INTERVAL_ROUNDS as u32);
        let missing_rounds =
            self.repeatable_units().map(|unit| self.missing_rounds(&self.units[unit])).max().unwrap_or(0);
        let earliest = now + self.remaining_minimum();
        // More equal passes come before that where there is time for them.
        if has_begun && self.extra_pass(earliest).is_empty() {
            (self.budget - earliest).max(0.0) / f64::from(missing_rounds + 1)
        } else {
            0.0
        }
    }

    /// One more round where it helps, while so much time lasts: of units whose undisturbed rounds are too few for an interval, or else
    /// of those that have fewer of them than they should or whose interval can be narrowed.
    fn refinement_pass(&mut self, remaining: f64, statuses: &mut dyn FnMut() -> Vec<CaseStatus>) -> Vec<usize> {
        self.statuses = statuses();
        let lacks_interval = |unit: usize| self.lacks_undisturbed(unit, MIN_UNDISTURBED_ROUNDS);
        let cost = |unit: usize| self.round_cost(unit, PassPhase::ReplaceDisturbed);
        let rounds_cost = |unit: usize| cost(unit) * f64::from(self.statuses[unit].counted_rounds + 1);
        let undisturbed = take_affordable(
            &self.sorted_by_figure(|unit| lacks_interval(unit).then(|| rounds_cost(unit))),
            cost,
            remaining,
        );
        let (purpose, pass) = match undisturbed.is_empty() {
            true => (PassPhase::NarrowIntervals, self.water_filling_pass(remaining)),
            false => (PassPhase::ReplaceDisturbed, undisturbed),
        };
        if !pass.is_empty() {
            self.phase = purpose;
        }
        pass
    }

    /// One more round of those units of which the least time has been spent, as if all that is left were poured over all that need it,
    /// so that it stands at one level. Intervals are narrowed by the same part for the same part of more rounds, so that a second does
    /// most where a round takes least; and no unit takes more than its share. Time on what is far from narrow enough counts more, so
    /// that the most become narrow enough.
    fn water_filling_pass(&self, remaining: f64) -> Vec<usize> {
        let cost = |unit: usize| self.round_cost(unit, PassPhase::NarrowIntervals);
        let unit_time = |unit: usize| self.time_spent(unit, PassPhase::NarrowIntervals);
        let weight = |unit: usize| self.time_weight(unit);
        let needs_rounds = |unit: usize| self.needs_narrowing(unit) || self.lacks_undisturbed(unit, self.spec.rounds);
        let candidates = self.sorted_by_figure(|unit| needs_rounds(unit).then(|| weight(unit) * unit_time(unit)));
        let (mut level, mut spent_sum, mut shares) = (f64::INFINITY, 0.0, 0.0);
        for &(height, unit) in &candidates {
            if height >= level {
                break;
            }
            spent_sum += unit_time(unit);
            shares += 1.0 / weight(unit);
            level = (remaining + spent_sum) / shares;
        }
        let is_below_level = |&(height, unit): &(f64, usize)| height + weight(unit) * cost(unit) <= level;
        let pass: Vec<(f64, usize)> = candidates.iter().copied().filter(is_below_level).collect();
        // What is left in the end is less than a round of each.
        take_affordable(if pass.is_empty() { &candidates } else { &pass }, cost, remaining)
    }

    /// What time spent on a unit counts as where it is shared: the root of how many times as wide as it should be its interval is. In a
    /// simulation of the costs and spreads of a default run the median half-width is then a seventh narrower than with equal times, and
    /// that at nine tenths a fifth wider; in proportion to the width, what is wide would get nothing.
    fn time_weight(&self, unit: usize) -> f64 {
        self.statuses[unit].half_width.map_or(1.0, |width| (width / self.narrowing_target()).max(1.0).sqrt())
    }

    /// The units that have such a figure, with it, the least first.
    fn sorted_by_figure(&self, figure: impl Fn(usize) -> Option<f64>) -> Vec<(f64, usize)> {
        let mut units: Vec<(f64, usize)> =
            self.repeatable_units().filter_map(|unit| Some((figure(unit)?, unit))).collect();
        units.indirect_sort_by(|first, second| first.0.total_cmp(&second.0));
        units
    }

    /// Whether a unit has, and will have, fewer rounds that count than this many, and than it was to have, but enough that more will.
    fn lacks_undisturbed(&self, unit: usize, min_rounds: u32) -> bool {
        let (state, counting) = (&self.units[unit], self.statuses[unit].counted_rounds);
        let is_hopeless = f64::from(state.rounds + 1) > HOPELESS_FACTOR * f64::from(counting + 1);
        let max_time = self.budget * MAX_UNIT_SHARE.max(MAX_EQUAL_SHARES / self.units.len() as f64);
        let is_too_long = self.time_spent(unit, PassPhase::ReplaceDisturbed) > max_time;
        counting + self.missing_rounds(state) < min_rounds.min(self.spec.rounds) && !is_hopeless && !is_too_long
    }

    /// Whether a unit is too wide and more rounds narrow it: to the target, or as far as they count, where what they do not narrow is wider
    /// than that by itself. What lacks rounds of the minimum is taken to be as narrow as with them.
    fn needs_narrowing(&self, unit: usize) -> bool {
        let CaseStatus { half_width, narrowable, .. } = self.statuses[unit];
        let (Some(width), Some(narrowable_width)) = (half_width, narrowable) else { return false };
        let [width, narrowable_width, aim] =
            [width, narrowable_width, self.narrowing_target()].map(|width| width.powi(2));
        let progress = f64::from(self.units[unit].rounds) / f64::from(self.spec.rounds);
        let (expected, rest) = (progress.min(1.0) * narrowable_width, width - narrowable_width);
        expected + rest > aim && (expected > aim || rest < aim)
    }

    /// Nanoseconds of one more round of a unit that has its minimum.
    fn round_cost(&self, unit: usize, purpose: PassPhase) -> f64 {
        let state = &self.units[unit];
        self.expected_overhead(state) + self.slice_of_phase(purpose, state, 1.0) + self.mean_extension
    }

    /// Nanoseconds of all rounds of a unit, as if all had been made for this.
    fn time_spent(&self, unit: usize, purpose: PassPhase) -> f64 {
        f64::from(self.units[unit].rounds) * self.round_cost(unit, purpose)
    }

    /// The half-width at which an interval is narrow enough.
    fn narrowing_target(&self) -> f64 {
        NARROWING_TARGET_SHARE * self.spec.target
    }
}

/// The units for a round of each of which there is time, in this order.
fn take_affordable(units: &[(f64, usize)], cost: impl Fn(usize) -> f64, mut remaining: f64) -> Vec<usize> {
    let mut is_affordable = |unit: usize| {
        let has_time = cost(unit) <= remaining;
        remaining -= if has_time { cost(unit) } else { 0.0 };
        has_time
    };
    units.iter().map(|&(_, unit)| unit).filter(|&unit| is_affordable(unit)).collect()
}

#[cfg(test)]
mod tests;
