//! Which unit runs next, and for how long: rounds of all units interleaved over the run, then the remaining time spent
//! where an interval can still be narrowed.
//!
//! Pure: the time and each round's result are passed in, so tests need no real time.

use kelvin_stats::{Random, median, t_quantile, variance};

/// Minimum and maximum nanoseconds of timing per unit and round.
const LEAST_SLICE: f64 = 8e6;
const MOST_SLICE: f64 = 40e6;
/// Where the budget allows longer slices, a unit gets more rounds instead, up to this many before its interval counts:
/// a disturbance of a few hundred milliseconds then spoils one round of many.
const AMPLE_ROUNDS: u32 = 40;
/// Share of the budget that the minimum of rounds may take; the rest narrows intervals.
const MINIMUM_SHARE: f64 = 0.85;
/// Rounds that even a unit with too expensive a set-up gets.
const FEWEST_ROUNDS: u32 = 3;
/// A unit whose single round takes this share of the budget gets only so few.
const COSTLY_SHARE: f64 = 0.03;
const COSTLY_ROUNDS: u32 = 2;
/// A unit whose set-ups would take this share of the budget is expensive.
const EXPENSIVE_SHARE: f64 = 0.04;
/// Timing per round of an expensive unit, as a share of its set-up: it gets few rounds, so each is worth more than the
/// usual slice. At most so many nanoseconds, ...
const TIMED_OF_SET_UP: f64 = 0.5;
const MOST_SLICE_OF_EXPENSIVE: f64 = 200e6;
/// ... and at most this share of the budget for all time beyond the usual slice.
const EXTRA_SHARE: f64 = 0.15;
/// Share of the budget for all set-ups where units are few.
const MOST_SET_UP: f64 = 0.5;
/// A unit that would need this many times its rounds to reach the target is not narrowed further.
const HOPELESS_FACTOR: f64 = 8.0;
/// First guess of a round's overhead in nanoseconds: a process started, set up and ended.
const FIRST_OVERHEAD: f64 = 6e6;

/// The parameters of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The budget in nanoseconds.
    pub budget: f64,
    /// Rounds of each unit, if they fit.
    pub rounds: u32,
    /// Target relative half-width of an interval.
    pub target: f64,
    pub seed: u64,
}

/// The state of one unit.
#[derive(Clone, Debug, Default)]
struct State {
    only_input: bool,
    rounds: u32,
    /// Nanoseconds of a round that were not timing, smoothed.
    overhead: f64,
    /// For each metric one figure per round.
    figures: Vec<Vec<f64>>,
    /// It failed or skipped in a way that makes a retry pointless.
    given_up: bool,
}

/// What to run next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Next {
    pub unit: usize,
    pub round: u32,
    /// Nanoseconds for timing.
    pub slice: f64,
}

/// The schedule of a run.
pub(crate) struct Schedule {
    wanted: Wanted,
    units: Vec<State>,
    /// The block of each unit; all are of one where there are none.
    blocks: Vec<u32>,
    random: Random,
    /// Units still to run in this pass, last first.
    pass: Vec<usize>,
    passes: u32,
    /// Rounds of each unit before intervals count: those requested, or more if the budget is ample.
    rounds: u32,
    slice: f64,
    /// Share of the extra time that expensive units get.
    extra_share: f64,
}

impl Schedule {
    /// A schedule of units; `true` for those that are only inputs of predictions.
    pub(crate) fn new(wanted: Wanted, only_inputs: &[bool]) -> Self {
        let unit = |&only_input| State { only_input, overhead: FIRST_OVERHEAD, ..State::default() };
        Self {
            wanted,
            units: only_inputs.iter().map(unit).collect(),
            blocks: vec![0; only_inputs.len()],
            random: Random::new(wanted.seed),
            pass: Vec::new(),
            passes: 0,
            rounds: wanted.rounds,
            slice: LEAST_SLICE,
            extra_share: 0.0,
        }
    }

    /// The same with units in blocks.
    pub(crate) fn in_blocks(self, blocks: Vec<u32>) -> Self {
        Self { blocks, ..self }
    }

    /// What to run next at this time (nanoseconds since the start); `None` when the run is over.
    pub(crate) fn next(&mut self, now: f64) -> Option<Next> {
        if self.pass.is_empty() {
            self.begin_pass(now);
        }
        while let Some(unit) = self.pass.pop() {
            let state = &self.units[unit];
            // The first rounds always run: better a minute over budget than a unit without a number.
            let slice = self.slice + self.extra(state);
            let affordable = now + state.overhead + slice <= self.wanted.budget;
            if !state.given_up && affordable {
                return Some(Next { unit, round: state.rounds, slice });
            }
            if !state.given_up && state.rounds < self.fewest(state) {
                return Some(Next { unit, round: state.rounds, slice: self.slice });
            }
        }
        None
    }

    /// Records a round: its nanoseconds, and one figure for each metric.
    pub(crate) fn finished(&mut self, next: Next, took: f64, figures: &[f64]) {
        let state = &mut self.units[next.unit];
        let overhead = (took - next.slice).max(0.0);
        state.overhead = if state.rounds == 0 { overhead } else { 0.6 * state.overhead + 0.4 * overhead };
        state.rounds += 1;
        state.figures.resize(figures.len().max(state.figures.len()), Vec::new());
        for (column, &figure) in state.figures.iter_mut().zip(figures) {
            column.push(figure);
        }
    }

    /// Records that a retry of this unit is pointless.
    pub(crate) fn give_up(&mut self, unit: usize) {
        self.units[unit].given_up = true;
    }

    /// Rounds done, and rounds planned so far.
    pub(crate) fn progress(&self) -> (usize, usize) {
        let done: u32 = self.units.iter().map(|state| state.rounds).sum();
        let minimum: u32 = self
            .units
            .iter()
            .map(|state| if state.given_up { state.rounds } else { state.rounds.max(self.rounds_of(state)) })
            .sum();
        (done as usize, minimum.max(done + self.pass.len() as u32) as usize)
    }

    /// Units whose interval is still wider than the target, as (unit, relative half-width).
    pub(crate) fn wide(&self) -> Vec<(usize, f64)> {
        let half_widths = self.units.iter().enumerate().filter(|(_, state)| !state.given_up && !state.only_input);
        half_widths
            .filter_map(|(unit, state)| Some((unit, state.relative_half_width()?)))
            .filter(|&(_, width)| width > self.wanted.target)
            .collect()
    }

    /// Units that got fewer rounds than requested because their set-up is expensive.
    pub(crate) fn short(&self) -> Vec<usize> {
        let asked = self.wanted.rounds;
        (0..self.units.len()).filter(|&unit| !self.units[unit].given_up && self.units[unit].rounds < asked).collect()
    }

    fn begin_pass(&mut self, now: f64) {
        // The first pass shows the overhead of the rounds.
        if self.passes > 0 {
            self.rounds = self.ample_rounds(now);
            self.extra_share = self.affordable_extra(now);
        }
        let mut pass = if self.passes < self.rounds { self.minimum_pass(now) } else { Vec::new() };
        if pass.is_empty() {
            pass = self.narrowing_pass(now);
        }
        self.shuffle(&mut pass);
        self.pass = pass;
        self.passes += 1;
    }

    /// Random order, of blocks and within them.
    fn shuffle(&mut self, pass: &mut [usize]) {
        self.random.shuffle(pass);
        let mut order: Vec<u32> = pass.iter().map(|&unit| self.blocks[unit]).collect();
        order.sort_unstable();
        order.dedup();
        if order.len() > 1 {
            self.random.shuffle(&mut order);
            pass.sort_by_key(|&unit| order.iter().position(|&block| block == self.blocks[unit]));
        }
    }

    /// How many rounds of the longest slice fit, at least those requested.
    fn ample_rounds(&self, now: f64) -> u32 {
        let asked = |state: &&State| !state.given_up && !state.only_input && !self.is_expensive(state);
        let pass: f64 = self.units.iter().filter(asked).map(|state| state.overhead + MOST_SLICE).sum();
        let time = (self.wanted.budget * MINIMUM_SHARE - now).max(0.0);
        let fit = if pass > 0.0 { self.passes + (time / pass) as u32 } else { 0 };
        fit.min(AMPLE_ROUNDS).max(self.wanted.rounds)
    }

    /// One more round of every unit that needs more, with a slice that lets all passes fit.
    fn minimum_pass(&mut self, now: f64) -> Vec<usize> {
        let lacking = |state: &State| !state.given_up && state.rounds < self.rounds_of(state);
        let pass: Vec<usize> = (0..self.units.len()).filter(|&unit| lacking(&self.units[unit])).collect();
        if pass.is_empty() {
            return pass;
        }
        // The remaining rounds and their overhead: the rest of the time is shared equally.
        let to_come = |&unit: &usize| f64::from(self.rounds_of(&self.units[unit]) - self.units[unit].rounds);
        let rounds: f64 = pass.iter().map(to_come).sum();
        let beside = |unit: &usize| self.units[*unit].overhead + self.extra(&self.units[*unit]);
        let overhead: f64 = pass.iter().map(|unit| to_come(unit) * beside(unit)).sum();
        let time = (self.wanted.budget * MINIMUM_SHARE - now).max(0.0);
        self.slice = ((time - overhead) / rounds).clamp(LEAST_SLICE, MOST_SLICE);
        pass
    }

    /// One more round of the units whose intervals can still be narrowed, the most worthwhile first while time lasts.
    fn narrowing_pass(&mut self, now: f64) -> Vec<usize> {
        let mut left = self.wanted.budget - now;
        let mut worth: Vec<(f64, usize)> = self
            .wide()
            .into_iter()
            .filter(|&(_, width)| (width / self.wanted.target).powi(2) <= HOPELESS_FACTOR)
            .map(|(unit, width)| (width / self.cost(unit), unit))
            .collect();
        worth.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut pass = Vec::new();
        for (_, unit) in worth {
            let cost = self.cost(unit);
            if cost <= left {
                left -= cost;
                pass.push(unit);
            }
        }
        pass
    }

    /// Nanoseconds of one more round of a unit.
    fn cost(&self, unit: usize) -> f64 {
        self.units[unit].overhead + self.slice + self.extra(&self.units[unit])
    }

    /// Extra timing of a round of a unit, in nanoseconds.
    fn extra(&self, state: &State) -> f64 {
        self.wanted_extra(state) * self.extra_share
    }

    /// The same without a budget: an expensive unit is timed for a good part of its set-up time.
    fn wanted_extra(&self, state: &State) -> f64 {
        match self.is_expensive(state) {
            true => ((state.overhead * TIMED_OF_SET_UP).min(MOST_SLICE_OF_EXPENSIVE) - self.slice).max(0.0),
            false => 0.0,
        }
    }

    /// The share of it that all units can have: part of the budget, as far as their rounds leave it.
    fn affordable_extra(&self, now: f64) -> f64 {
        let running = || self.units.iter().filter(|state| !state.given_up);
        let to_come = |state: &State| f64::from(self.fewest(state).saturating_sub(state.rounds));
        let needed: f64 = running().map(|state| to_come(state) * (state.overhead + self.slice)).sum();
        let left = (self.wanted.budget * MINIMUM_SHARE - now - needed).clamp(0.0, EXTRA_SHARE * self.wanted.budget);
        let all: f64 = running().map(|state| f64::from(self.fewest(state)) * self.wanted_extra(state)).sum();
        if all > 0.0 { (left / all).min(1.0) } else { 0.0 }
    }

    /// The minimum rounds of a unit.
    fn rounds_of(&self, state: &State) -> u32 {
        if state.only_input || self.is_expensive(state) { self.fewest(state) } else { self.rounds }
    }

    fn is_expensive(&self, state: &State) -> bool {
        let set_ups = state.overhead * f64::from(self.wanted.rounds);
        // Of few units each may take more.
        let asked = self.units.iter().filter(|unit| !unit.only_input).count().max(1);
        let share = EXPENSIVE_SHARE.max(MOST_SET_UP / asked as f64);
        state.rounds > 0 && set_ups > share * self.wanted.budget
    }

    /// The rounds that a unit gets even if the budget is overrun.
    fn fewest(&self, state: &State) -> u32 {
        let costly = state.rounds > 0 && state.overhead > COSTLY_SHARE * self.wanted.budget;
        if costly { COSTLY_ROUNDS } else { FEWEST_ROUNDS.min(self.wanted.rounds) }
    }
}

impl State {
    /// The widest relative half-width of the 95 % t interval among its metrics; `None` with fewer than two rounds.
    fn relative_half_width(&self) -> Option<f64> {
        let width = |figures: &Vec<f64>| {
            let n = figures.len();
            let center = median(figures).abs();
            (n >= 2 && center > 0.0)
                .then(|| t_quantile(0.975, n as f64 - 1.0) * (variance(figures) / n as f64).sqrt() / center)
        };
        self.figures.iter().filter_map(width).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a schedule over units with fixed overheads (ns) and figures made by `figure(unit, round)`.
    fn play(wanted: Wanted, overheads: &[f64], figure: impl Fn(usize, u32) -> f64) -> (Vec<u32>, f64, Schedule) {
        let mut schedule = Schedule::new(wanted, &vec![false; overheads.len()]);
        let mut rounds = vec![0; overheads.len()];
        let mut now = 0.0;
        while let Some(next) = schedule.next(now) {
            let took = overheads[next.unit] + next.slice;
            now += took;
            rounds[next.unit] += 1;
            schedule.finished(next, took, &[figure(next.unit, next.round)]);
        }
        (rounds, now, schedule)
    }

    const WANTED: Wanted = Wanted { budget: 10e9, rounds: 6, target: 0.02, seed: 1 };

    #[test]
    fn steady_units_get_their_rounds_and_no_more() {
        let (rounds, now, schedule) = play(WANTED, &[5e6; 40], |_, _| 100.0);
        assert_eq!(rounds, [6; 40]);
        assert!(now <= 0.86 * WANTED.budget, "{now}");
        assert!(schedule.wide().is_empty() && schedule.short().is_empty());
    }

    #[test]
    fn units_of_a_block_lie_next_to_each_other_in_random_order() {
        let blocks: Vec<u32> = (0..12).map(|unit| unit % 3).collect();
        let mut schedule = Schedule::new(Wanted { rounds: 3, ..WANTED }, &[false; 12]).in_blocks(blocks.clone());
        let mut passes = Vec::new();
        for _ in 0..3 {
            let pass: Vec<usize> = (0..12)
                .map(|_| {
                    let next = schedule.next(0.0).unwrap();
                    schedule.finished(next, next.slice, &[100.0]);
                    next.unit
                })
                .collect();
            let mut met: Vec<u32> = pass.iter().map(|&unit| blocks[unit]).collect();
            met.dedup();
            assert_eq!(met.len(), 3, "{pass:?}");
            passes.push(pass);
        }
        assert!(passes[0] != passes[1] || passes[1] != passes[2]);
    }

    #[test]
    fn an_ample_budget_is_spent_on_rounds_before_slices() {
        let (rounds, now, _) = play(WANTED, &[5e6], |_, _| 100.0);
        assert_eq!(rounds, [AMPLE_ROUNDS]);
        assert!(now <= f64::from(AMPLE_ROUNDS) * (5e6 + MOST_SLICE));
        // 8.5 s hold 18 passes over ten units of 45 ms.
        let (rounds, now, _) = play(WANTED, &[5e6; 10], |_, _| 100.0);
        assert!((17..=19).contains(&rounds[0]) && rounds.iter().all(|&n| n == rounds[0]), "{rounds:?}");
        assert!(now <= 0.86 * WANTED.budget, "{now}");
    }

    #[test]
    fn spare_time_goes_to_the_unit_that_can_be_narrowed() {
        // Unit 3 alternates by 3 % either way: wide after six rounds, but not hopeless.
        let figure = |unit, round| if unit == 3 { 100.0 + if round % 2 == 0 { 3.0 } else { -3.0 } } else { 100.0 };
        let (rounds, now, schedule) = play(WANTED, &[5e6; 40], figure);
        assert!(rounds[3] > 8, "{rounds:?}");
        assert!(rounds.iter().enumerate().all(|(unit, &n)| unit == 3 || n == 6));
        assert!(schedule.wide().is_empty());
        assert!(now <= WANTED.budget);
    }

    #[test]
    fn a_hopeless_unit_is_left_alone() {
        let figure = |unit, round| if unit == 0 && round % 2 == 0 { 900.0 } else { 100.0 };
        let (rounds, ..) = play(WANTED, &[5e6; 40], figure);
        assert_eq!(rounds, [6; 40]);
    }

    #[test]
    fn an_expensive_unit_gets_few_rounds_and_the_budget_holds() {
        let mut overheads = vec![5e6; 100];
        overheads[7] = 900e6;
        let (rounds, now, schedule) = play(WANTED, &overheads, |_, _| 1.0);
        assert_eq!(rounds[7], 2);
        assert_eq!(schedule.short(), [7]);
        assert!(now < 1.05 * WANTED.budget, "{now}");
    }

    #[test]
    fn an_expensive_unit_is_timed_longer_but_not_at_the_cost_of_the_budget() {
        let longest = |expensive: usize| {
            let mut schedule = Schedule::new(WANTED, &[false; 60]);
            let (mut now, mut longest) = (0.0, [0.0f64; 2]);
            while let Some(next) = schedule.next(now) {
                let is_expensive = next.unit < expensive;
                let took = next.slice + if is_expensive { 250e6 } else { 5e6 };
                now += took;
                longest[usize::from(is_expensive)] = longest[usize::from(is_expensive)].max(next.slice);
                schedule.finished(next, took, &[1.0]);
            }
            assert!(now < 1.3 * WANTED.budget, "{now}");
            longest
        };
        let [usual, one] = longest(1);
        assert!(usual <= MOST_SLICE && (one - 125e6).abs() < 1.0, "{usual} {one}");
        // Five of them share the rest, and the rounds of ten alone take all of it.
        let [usual, of_five] = longest(5);
        assert!(usual <= MOST_SLICE && of_five < 0.99 * one && of_five > MOST_SLICE, "{usual} {of_five}");
        let [usual, of_ten] = longest(10);
        assert!(of_ten <= usual, "{usual} {of_ten}");
    }

    #[test]
    fn a_unit_alone_may_spend_half_of_the_budget_on_set_up() {
        let wanted = Wanted { rounds: 100, ..WANTED };
        let (rounds, now, _) = play(wanted, &[20e6], |_, _| 1.0);
        assert_eq!(rounds, [100]);
        assert!(now < WANTED.budget, "{now}");
        let (rounds, ..) = play(wanted, &[60e6], |_, _| 1.0);
        assert_eq!(rounds, [FEWEST_ROUNDS]);
    }

    #[test]
    fn rounds_are_interleaved_in_another_order_each_time() {
        let mut schedule = Schedule::new(WANTED, &[false; 30]);
        let mut order = Vec::new();
        for _ in 0..60 {
            let next = schedule.next(0.0).unwrap();
            schedule.finished(next, 1e7, &[1.0]);
            order.push(next.unit);
        }
        let (first, second) = order.split_at(30);
        assert_ne!(first, second);
        let sorted = |units: &[usize]| {
            let mut units = units.to_vec();
            units.sort_unstable();
            units
        };
        assert_eq!(sorted(first), sorted(second));
    }

    #[test]
    fn an_abandoned_unit_is_not_retried() {
        let mut schedule = Schedule::new(WANTED, &[false; 2]);
        schedule.give_up(0);
        let mut now = 0.0;
        while let Some(next) = schedule.next(now) {
            assert_eq!(next.unit, 1);
            now += 1e8;
            schedule.finished(next, 1e8, &[1.0]);
        }
    }
}
