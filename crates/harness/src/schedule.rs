//! Which unit runs next, and for how long: equal passes over all units until each has its minimum of rounds, then the
//! remaining time spent where it still helps.
//!
//! Pure: the time and how far each unit has come are passed in, so tests need no real time.

use std::time::Duration;

use kelvin_model::Standing;
use kelvin_stats::{LEAST_ROUNDS, Random, median};

use crate::cost::{Cost, nanoseconds};
use crate::room::{Need, without_room};

/// Nanoseconds of timing per unit and round: at least, and as soon as the minimum of rounds leaves time for it.
pub(crate) const LEAST_SLICE: f64 = 5e6;
const USUAL_SLICE: f64 = 10e6;
/// Where set-up takes long a round is worth more timing: this share of the set-up, up to so many nanoseconds.
const TIMED_OF_SET_UP: f64 = 0.25;
const MOST_SLICE: f64 = 100e6;
/// Nanoseconds in which the samples of a round scatter as much as rounds differ, where they do so early: mostly it is a quarter of
/// that. A round that is to narrow an interval is best timed for the geometric mean of this and of what it takes beside its timing
/// (optimum allocation in two-stage sampling; Cochran, Sampling Techniques, section 10.6), but not for so short that too few samples
/// are undisturbed.
const SCATTER: f64 = 1e6;
const LEAST_NARROWING: f64 = 2e6;
/// Where the budget allows more than the minimum of rounds, every unit gets more of them, up to this many, before its
/// interval counts: a disturbance of a few hundred milliseconds then spoils one round of many.
const AMPLE_ROUNDS: u32 = 100;
/// Share of the budget for equal passes; the rest is for what needs more than others.
pub(crate) const EQUAL_SHARE: f64 = 0.85;
/// Share of the budget up to which the rounds of the minimum are timed for longer than the least: further rounds of what is too wide are
/// worth more, as rounds differ by more than the samples within them let expect.
const LONGER_SHARE: f64 = 0.75;
/// Minimum of rounds of a unit that is only an input of predictions: their median has an error.
pub(crate) const ROUNDS_OF_INPUT: u32 = LEAST_ROUNDS as u32;
/// Nanoseconds that a round may go on for beyond its timing, until it has undisturbed samples. On a busy host a core is left alone
/// again within 30 ms in three cases of four; where it takes longer, other rounds make better use of the time.
const MOST_BEYOND: f64 = 50e6;
/// How many times its share of the free time a round may take for that, as most need not wait; and this share of its own set-up
/// more, which would be in vain without undisturbed samples.
const SHARES_BEYOND: f64 = 2.0;
const BEYOND_OF_SET_UP: f64 = 0.05;
/// Share of the target to which an interval is narrowed where there is time: one that is just narrow enough has come out so by chance half
/// of the time, and would not again.
const AIM: f64 = 0.75;
/// Undisturbed rounds that come before all narrowing: as many as an interval needs, and one that may yet turn out to be disturbed.
const ROUNDS_TO_BEGIN: u32 = LEAST_ROUNDS as u32 + 1;
/// A unit that would need this many times its rounds until enough of them are undisturbed does not get them; nor one whose rounds have
/// taken this share of the budget, or so many times its equal share of it.
const HOPELESS_FACTOR: f64 = 8.0;
const MOST_OF_BUDGET: f64 = 0.04;
const EQUAL_SHARES: f64 = 2.0;
/// Once so many units have had a round, the others are expected to take as many times what was expected as they did.
const TELLING_UNITS: usize = 8;
/// Passes that show what rounds take: where the budget is kept they are in the order of importance.
const TELLING_PASSES: u32 = 2;
/// What is known of a unit's rounds from earlier runs counts as much as so many rounds of this one.
const KNOWN_WEIGHT: f64 = 4.0;
/// What the last round weighs in what is known of its unit, and in what is known of all rounds.
const WEIGHT_IN_ITS_UNIT: f64 = 0.4;
const WEIGHT_IN_ALL: f64 = 0.02;
/// The last round may end this share of a kept budget late.
const OVERRUN: f64 = 0.02;
/// A longer budget is said once it has grown by this factor, and again once it has grown as much beyond what was said: a few times in a
/// run that takes several times as long as expected.
const GROWN: f64 = 1.05;
const GROWN_AGAIN: f64 = 1.5;

/// The parameters of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The budget in nanoseconds.
    pub budget: f64,
    /// What yields where the minimum of rounds takes longer.
    pub limit: Limit,
    /// Minimum of rounds of each unit.
    pub rounds: u32,
    /// Target relative half-width of an interval.
    pub target: f64,
    pub seed: u64,
}

/// What yields where the minimum of rounds takes longer than the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The budget: it grows.
    Grows,
    /// The budget, as long as it is no more than this; then the least important units are left out.
    GrowsTo(Duration),
    /// The units: the least important are left out.
    Kept,
}

/// A unit as its schedule knows it before its first round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// It is only an input of predictions.
    pub only_input: bool,
    /// Units of one block lie next to each other in a pass.
    pub block: u32,
    /// Its place in the order of importance, the most important first.
    pub place: usize,
    /// What its rounds are expected to take beside their timing.
    pub cost: Cost,
    /// Its first round comes before all others, and the rest after them.
    pub waits: bool,
}

/// The state of one unit.
#[derive(Clone, Debug)]
struct State {
    task: Task,
    rounds: u32,
    /// Nanoseconds of its first round beside its timing.
    first: Option<f64>,
    /// The same of its later rounds, smoothed.
    later: Option<f64>,
    /// Why it gets no further round, if so.
    over: Option<Over>,
}

impl State {
    /// How many times as long as expected its rounds take beside their timing.
    fn slowness(&self) -> Option<f64> {
        let Cost { first, later, .. } = self.task.cost;
        let (took, expected) = self.later.map(|took| (took, later)).or(self.first.map(|took| (took, first)))?;
        (!expected.is_zero()).then(|| took / nanoseconds(expected))
    }
}

/// Why a unit gets no further round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// It failed or skipped in a way that makes a retry pointless.
    Pointless,
    /// There is no time for it.
    NoTime,
}

/// What the rounds of a pass are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// As many rounds of every unit: the minimum, or more.
    Equal,
    /// Undisturbed rounds in the place of others.
    Undisturbed,
    /// Narrower intervals.
    Narrow,
}

/// What to run next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Next {
    pub unit: usize,
    pub round: u32,
    /// Nanoseconds for timing.
    pub slice: f64,
    /// Nanoseconds by which it may go on beyond that, until it has undisturbed samples.
    pub beyond: f64,
}

/// The round that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    next: Next,
    begun: f64,
    /// Nanoseconds by which it went on beyond its timing, once it is over.
    beyond: f64,
}

/// A decision for lack of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    /// The unit is left out: its rounds take longer than there is room for.
    LeaveOut { unit: usize },
    /// The budget is so many nanoseconds longer than it was asked for.
    Lengthen { by: f64 },
}

/// The schedule of a run.
pub(crate) struct Schedule {
    wanted: Wanted,
    /// The budget, and as it was last said.
    budget: f64,
    said: f64,
    units: Vec<State>,
    random: Random,
    /// Units still to run in this pass, last first.
    pass: Vec<usize>,
    /// What its rounds are for.
    purpose: Purpose,
    /// Until when rounds that help come before the minimum of rounds goes on.
    mends_until: f64,
    passes: u32,
    /// Whether only the last rounds of units that wait are left.
    closing: bool,
    /// How many times as long as expected rounds take beside their timing on this machine: the median of the units so far.
    slowness: f64,
    running: Option<Running>,
    /// Nanoseconds by which rounds go on beyond their timing, where they may, smoothed.
    beyond: f64,
    decisions: Vec<Decision>,
    /// Units for which there is no room at the moment.
    without_room: Vec<usize>,
    standings: Vec<Standing>,
}

impl Schedule {
    pub(crate) fn new(wanted: Wanted, tasks: Vec<Task>) -> Self {
        let unit = |task| State { task, rounds: 0, first: None, later: None, over: None };
        Self {
            wanted,
            budget: wanted.budget,
            said: wanted.budget,
            standings: vec![Standing::default(); tasks.len()],
            units: tasks.into_iter().map(unit).collect(),
            random: Random::new(wanted.seed),
            pass: Vec::new(),
            purpose: Purpose::Equal,
            mends_until: 0.0,
            passes: 0,
            closing: false,
            slowness: 1.0,
            running: None,
            beyond: 0.0,
            decisions: Vec::new(),
            without_room: Vec::new(),
        }
    }

    /// What to run next at this time (nanoseconds since the start); `None` when the run is over. `judge` says how far each unit
    /// has come, once all have their minimum of rounds.
    pub(crate) fn next(&mut self, now: f64, judge: &mut dyn FnMut() -> Vec<Standing>) -> Option<Next> {
        self.learn(now);
        self.make_room(now);
        loop {
            while let Some(unit) = self.pass.pop() {
                let state = &self.units[unit];
                if state.over.is_some() || self.without_room.contains(&unit) {
                    continue;
                }
                let slice = self.slice_for(self.purpose, state, self.stretch(now));
                if self.owed(state) > 0 || now + self.beside(state) + slice <= self.budget - self.kept_for_last() {
                    let next = Next { unit, round: state.rounds, slice, beyond: self.may_go_on(state, slice, now) };
                    self.running = Some(Running { next, begun: now, beyond: 0.0 });
                    return Some(next);
                }
            }
            self.begin_pass(now, judge);
            if self.pass.is_empty() {
                return None;
            }
        }
    }

    /// Records that a round is over, well or not, and by how many nanoseconds it went on beyond its timing.
    pub(crate) fn finished(&mut self, next: Next, beyond: f64) {
        self.units[next.unit].rounds += 1;
        self.beyond += WEIGHT_IN_ALL * (beyond - self.beyond);
        if let Some(running) = &mut self.running {
            running.beyond = beyond;
        }
    }

    /// Records that a retry of this unit is pointless.
    pub(crate) fn give_up(&mut self, unit: usize) {
        self.units[unit].over = Some(Over::Pointless);
    }

    /// Leaves out a unit for want of time; one with as many rounds as an interval needs keeps them.
    pub(crate) fn leave_out(&mut self, unit: usize) {
        let least = self.least_kept(unit);
        let state = &mut self.units[unit];
        state.over = Some(Over::NoTime);
        if state.rounds < least {
            self.decisions.push(Decision::LeaveOut { unit });
        }
    }

    /// The unit that is asked for, if it is the only one.
    fn only_asked(&self) -> Option<usize> {
        let mut asked = (0..self.units.len()).filter(|&unit| !self.units[unit].task.only_input);
        asked.next().filter(|_| asked.next().is_none())
    }

    /// Rounds that are kept of a unit for which there is no more time: as many as an interval needs, and of the only one any, whose range
    /// is shown.
    fn least_kept(&self, unit: usize) -> u32 {
        if self.only_asked() == Some(unit) { 1 } else { LEAST_ROUNDS as u32 }
    }

    /// Nanoseconds that a round of a unit may take that begins now, where there is a most that the budget is kept to: those that more important units leave,
    /// and half of them if it needs further rounds; in any case twice what it usually takes, as far as that is a small overrun.
    pub(crate) fn time_for(&self, unit: usize, now: f64) -> f64 {
        let needs = self.needs();
        let end = self.most();
        let turn = |need: &Need| need.turn(end);
        let before = needs.iter().filter(|need| turn(need) < turn(&needs[unit]));
        let others: f64 = before.map(|need| need.time).sum();
        let room = (1.0 + OVERRUN) * end - now - others;
        let room = if self.owed(&self.units[unit]) > 1 { room / 2.0 } else { room };
        room.max((2.0 * self.cost(unit, Purpose::Equal)).min(OVERRUN * end))
    }

    /// The decisions since the last call.
    pub(crate) fn decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// The budget in nanoseconds, which may have grown.
    pub(crate) fn budget(&self) -> f64 {
        self.budget
    }

    /// Nanoseconds by which the budget has grown, if that is worth saying.
    pub(crate) fn grown(&self) -> Option<f64> {
        (self.said > self.wanted.budget).then_some(self.budget - self.wanted.budget)
    }

    /// Rounds done, and rounds planned so far.
    pub(crate) fn progress(&self) -> (usize, usize) {
        let done: u32 = self.units.iter().map(|state| state.rounds).sum();
        let owed: u32 = self.units.iter().map(|state| self.owed(state)).sum();
        (done as usize, (done + owed.max(self.pass.len() as u32)) as usize)
    }

    /// Units whose interval is still wider than the target, by these standings.
    pub(crate) fn wide(&self, standings: &[Standing]) -> Vec<usize> {
        let is_wide = |standing: &Standing| standing.half_width.is_some_and(|width| width > self.wanted.target);
        self.asked().filter(|&unit| is_wide(&standings[unit])).collect()
    }

    /// Units that have fewer rounds than they should have, because time ran out.
    pub(crate) fn short(&self) -> Vec<usize> {
        let is_short = |&unit: &usize| {
            let state = &self.units[unit];
            let is_kept = (self.least_kept(unit)..self.least_rounds(state)).contains(&state.rounds);
            state.over == Some(Over::NoTime) && is_kept
        };
        (0..self.units.len()).filter(is_short).collect()
    }

    /// The units that are asked for and go on.
    fn asked(&self) -> impl Iterator<Item = usize> {
        (0..self.units.len()).filter(|&unit| self.units[unit].over.is_none() && !self.units[unit].task.only_input)
    }

    /// Those of them that any moment of a run is right for.
    fn repeatable(&self) -> impl Iterator<Item = usize> {
        self.asked().filter(|&unit| !self.units[unit].task.waits)
    }

    /// Learns from the last round what its unit costs, with everything beside it.
    fn learn(&mut self, now: f64) {
        let Some(Running { next, begun, beyond }) = self.running.take() else { return };
        let state = &mut self.units[next.unit];
        let beside = (now - begun - next.slice - beyond).max(0.0);
        match (state.first, state.later) {
            (None, _) => state.first = Some(beside),
            (Some(_), None) => state.later = Some(beside),
            (Some(_), Some(known)) => state.later = Some(known + WEIGHT_IN_ITS_UNIT * (beside - known)),
        }
        let known: Vec<f64> = self.units.iter().filter_map(State::slowness).collect();
        if known.len() >= TELLING_UNITS {
            self.slowness = median(&known);
        }
    }

    /// Nanoseconds of one more round of a unit beside its timing.
    fn beside(&self, state: &State) -> f64 {
        let Cost { first, later, known } = state.task.cost;
        let slowness = self.slowness_of(state);
        let expected = slowness * nanoseconds(later);
        match (state.first, state.later) {
            // One round of this run says less than all those before it.
            (_, Some(took)) if known => {
                let rounds = f64::from(state.rounds.saturating_sub(1));
                (KNOWN_WEIGHT * expected + rounds * took) / (KNOWN_WEIGHT + rounds)
            }
            (_, Some(took)) => took,
            (None, None) => slowness * nanoseconds(first),
            // Of rounds that were made before, the first says nothing of the others.
            (Some(_), None) if known => expected,
            // Where what is made has only been guessed, the first round may have made what the others find, or all may take longer
            // than was expected: the geometric mean is not far from either.
            (Some(_), None) => (state.slowness().unwrap_or(1.0) * nanoseconds(later) * expected).sqrt(),
        }
    }

    /// How many times as long as expected the rounds of a unit take that it has not had. The median of skewed times lies below their mean,
    /// which is what is known of rounds that were made before: it says when they are slower, and not when they are faster.
    fn slowness_of(&self, state: &State) -> f64 {
        if state.task.cost.known { self.slowness.max(1.0) } else { self.slowness }
    }

    /// Nanoseconds of so many more rounds of a unit, with the shortest slices.
    fn time_of(&self, state: &State, rounds: u32) -> f64 {
        let beside = if state.first.is_some() {
            f64::from(rounds) * self.beside(state)
        } else {
            self.slowness_of(state) * state.task.cost.of_rounds(rounds)
        };
        beside + f64::from(rounds) * LEAST_SLICE
    }

    /// Minimum of rounds of a unit.
    fn least_rounds(&self, state: &State) -> u32 {
        if state.task.only_input { self.wanted.rounds.min(ROUNDS_OF_INPUT) } else { self.wanted.rounds }
    }

    /// Rounds of the minimum that a unit still lacks.
    fn owed(&self, state: &State) -> u32 {
        if state.over.is_some() { 0 } else { self.least_rounds(state).saturating_sub(state.rounds) }
    }

    /// What each unit still needs for its minimum of rounds, with the shortest slices.
    fn needs(&self) -> Vec<Need> {
        let need = |state: &State| {
            let [whole, time] = [self.least_rounds(state), self.owed(state)].map(|rounds| self.time_of(state, rounds));
            Need { place: state.task.place, whole, time }
        };
        self.units.iter().map(need).collect()
    }

    /// Nanoseconds that all rounds of the minimum still need.
    fn needed(&self) -> f64 {
        self.needs().iter().map(|need| need.time).sum()
    }

    /// Nanoseconds that the budget may become at most.
    fn most(&self) -> f64 {
        match self.wanted.limit {
            Limit::Grows => f64::INFINITY,
            Limit::GrowsTo(most) => nanoseconds(most).max(self.wanted.budget),
            Limit::Kept => self.wanted.budget,
        }
    }

    /// Sees to it that all rounds of the minimum fit: the budget grows as far as it may, and then units have to wait.
    fn make_room(&mut self, now: f64) {
        let (owed, most) = (self.needed(), self.most());
        // A last round that ends late is no reason. Only what was said is kept to: an estimate that a busy moment raised falls again.
        if owed > 0.0 {
            self.budget = self.said.max((now + owed).min(most));
        }
        self.without_room.clear();
        if now + owed > most {
            self.without_room = without_room(&self.needs(), most - now, most);
            // Nothing else waits for the time of the one case that was asked for: fewer rounds are better than none.
            if let Some(unit) = self.only_asked().filter(|&unit| now + self.time_of(&self.units[unit], 1) <= most) {
                self.without_room.retain(|&other| other != unit);
            }
        }
        // How long it will be is known once each unit has had a round.
        let grown = if self.said > self.wanted.budget { GROWN_AGAIN } else { GROWN };
        if self.passes > 1 && self.budget > grown * self.said {
            self.said = self.budget;
            self.decisions.push(Decision::Lengthen { by: self.budget - self.wanted.budget });
        }
    }

    fn leave_out_without_room(&mut self) {
        std::mem::take(&mut self.without_room).into_iter().for_each(|unit| self.leave_out(unit));
    }

    /// How much of its usual timing beyond the least a round gets: the rounds of the minimum that are still to come share what they
    /// leave of the time.
    fn stretch(&self, now: f64) -> f64 {
        let more = |state: &State| f64::from(self.owed(state)) * (self.usual_slice(state) - LEAST_SLICE);
        let more: f64 = self.units.iter().map(more).sum();
        let left = (LONGER_SHARE * self.budget - now - self.needed()).max(0.0);
        if more > 0.0 { (left / more).min(1.0) } else { 1.0 }
    }

    /// Nanoseconds by which a round may go on beyond its timing. The rounds of the minimum that are still to come share what they
    /// leave of the time that was said; after them a round takes what it needs of the time that is left.
    fn may_go_on(&self, state: &State, slice: f64, now: f64) -> f64 {
        let owed: u32 = self.units.iter().map(|state| self.owed(state)).sum();
        let (left, most) = if owed > 0 {
            let left = self.said - now - self.needed();
            (left, SHARES_BEYOND * left / f64::from(owed) + BEYOND_OF_SET_UP * self.beside(state))
        } else {
            (self.budget - self.kept_for_last() - now - self.beside(state) - slice, MOST_BEYOND)
        };
        most.min(left).clamp(0.0, MOST_BEYOND)
    }

    /// Nanoseconds of timing of a round, which in an equal pass is stretched so far.
    fn slice_for(&self, purpose: Purpose, state: &State, stretch: f64) -> f64 {
        match purpose {
            Purpose::Equal => LEAST_SLICE + stretch * (self.usual_slice(state) - LEAST_SLICE),
            Purpose::Undisturbed => LEAST_SLICE,
            Purpose::Narrow => (SCATTER * self.beside(state)).sqrt().clamp(LEAST_NARROWING, MOST_SLICE),
        }
    }

    fn usual_slice(&self, state: &State) -> f64 {
        (TIMED_OF_SET_UP * self.beside(state)).clamp(USUAL_SLICE, MOST_SLICE)
    }

    fn begin_pass(&mut self, now: f64, judge: &mut dyn FnMut() -> Vec<Standing>) {
        let has_turn = |state: &State| !state.task.waits || state.rounds == 0 || self.closing;
        let has_room = |&unit: &usize| {
            let state = &self.units[unit];
            self.owed(state) > 0 && has_turn(state) && !self.without_room.contains(&unit)
        };
        let mut pass: Vec<usize> = (0..self.units.len()).filter(has_room).collect();
        let before = std::mem::replace(&mut self.purpose, Purpose::Equal);
        if !pass.is_empty() && !self.closing {
            if before == Purpose::Equal {
                self.mends_until = now + self.part_for_mending(now);
            }
            if now < self.mends_until {
                let early = self.mending_pass(self.mends_until - now, judge);
                pass = if early.is_empty() { pass } else { early };
            }
        }
        if pass.is_empty() && !self.closing {
            // All others have their rounds: no time becomes free any more.
            self.leave_out_without_room();
            pass = self.ample_pass(now);
        }
        if pass.is_empty() && !self.closing {
            pass = self.mending_pass(self.budget - self.kept_for_last() - now, judge);
        }
        if pass.is_empty() && !self.closing {
            self.closing = true;
            pass = self.waiting().collect();
        }
        self.order(&mut pass);
        // Passes are taken from their end.
        pass.sort_by_key(|&unit| self.units[unit].task.waits);
        self.pass = pass;
        self.passes += 1;
    }

    /// Units that wait for their last rounds.
    fn waiting(&self) -> impl Iterator<Item = usize> {
        (0..self.units.len()).filter(|&unit| self.units[unit].task.waits && self.owed(&self.units[unit]) > 0)
    }

    /// Nanoseconds that the last rounds of the units that wait will take.
    fn kept_for_last(&self) -> f64 {
        self.waiting().map(|unit| self.time_of(&self.units[unit], self.owed(&self.units[unit]))).sum()
    }

    /// Puts a pass in the order in which it will be taken, from its end.
    fn order(&mut self, pass: &mut [usize]) {
        let may_lack_room = self.wanted.limit == Limit::Kept || !self.without_room.is_empty();
        if self.passes < TELLING_PASSES && may_lack_room {
            // What turns out to have no room should not have taken time already.
            let needs = self.needs();
            pass.sort_by_key(|&unit| std::cmp::Reverse(needs[unit].turn(self.most())));
        } else {
            self.shuffle(pass);
        }
    }

    /// Random order, of blocks and within them.
    fn shuffle(&mut self, pass: &mut [usize]) {
        self.random.shuffle(pass);
        let block = |unit: usize| self.units[unit].task.block;
        let mut order: Vec<u32> = pass.iter().map(|&unit| block(unit)).collect();
        order.sort_unstable();
        order.dedup();
        if order.len() > 1 {
            self.random.shuffle(&mut order);
            pass.sort_by_key(|&unit| order.iter().position(|&other| block(unit) == other));
        }
    }

    /// One more round of every unit, if there is time for all of them.
    fn ample_pass(&self, now: f64) -> Vec<usize> {
        let pass: Vec<usize> = self.repeatable().filter(|&unit| self.units[unit].rounds < AMPLE_ROUNDS).collect();
        let time: f64 = pass.iter().map(|&unit| self.cost(unit, Purpose::Equal)).sum();
        if now + time <= EQUAL_SHARE * self.budget { pass } else { Vec::new() }
    }

    /// Nanoseconds for mending before the next round of the minimum: the passes of the minimum that are still to come, and the end of the
    /// run, get equal parts of what is left, so that further rounds see as much of the run as others.
    fn part_for_mending(&self, now: f64) -> f64 {
        let begun = self.repeatable().all(|unit| self.units[unit].rounds >= LEAST_ROUNDS as u32);
        let to_come = self.repeatable().map(|unit| self.owed(&self.units[unit])).max().unwrap_or(0);
        let least = now + self.needed();
        // More equal passes come before that where there is time for them.
        if begun && self.ample_pass(least).is_empty() {
            (self.budget - least).max(0.0) / f64::from(to_come + 1)
        } else {
            0.0
        }
    }

    /// One more round where it helps, while so much time lasts: of units whose undisturbed rounds are too few for an interval, or else
    /// of those that have fewer of them than they should or whose interval can be narrowed.
    fn mending_pass(&mut self, left: f64, judge: &mut dyn FnMut() -> Vec<Standing>) -> Vec<usize> {
        self.standings = judge();
        let few = |unit: usize| self.lacks_undisturbed(unit, ROUNDS_TO_BEGIN);
        let cost = |unit: usize| self.cost(unit, Purpose::Undisturbed);
        let worst = |unit: usize| cost(unit) * f64::from(self.standings[unit].counting + 1);
        let undisturbed = affordable(&self.least_first(|unit| few(unit).then(|| worst(unit))), cost, left);
        let (purpose, pass) = match undisturbed.is_empty() {
            true => (Purpose::Narrow, self.narrowing_pass(left)),
            false => (Purpose::Undisturbed, undisturbed),
        };
        if !pass.is_empty() {
            self.purpose = purpose;
        }
        pass
    }

    /// One more round of those units of which the least time has been spent, as if all that is left were poured over all that need it,
    /// so that it stands at one level. Intervals are narrowed by the same part for the same part of more rounds, so that a second does
    /// most where a round takes least; and no unit takes more than its share. Time on what is far from narrow enough counts more, so
    /// that the most become narrow enough.
    fn narrowing_pass(&self, left: f64) -> Vec<usize> {
        let cost = |unit: usize| self.cost(unit, Purpose::Narrow);
        let spent = |unit: usize| self.spent(unit, Purpose::Narrow);
        let weight = |unit: usize| self.weight_of_its_time(unit);
        let needs = |unit: usize| self.is_to_narrow(unit) || self.lacks_undisturbed(unit, self.wanted.rounds);
        let wide = self.least_first(|unit| needs(unit).then(|| weight(unit) * spent(unit)));
        let (mut level, mut below, mut shares) = (f64::INFINITY, 0.0, 0.0);
        for &(height, unit) in &wide {
            if height >= level {
                break;
            }
            below += spent(unit);
            shares += 1.0 / weight(unit);
            level = (left + below) / shares;
        }
        let has_room = |&(height, unit): &(f64, usize)| height + weight(unit) * cost(unit) <= level;
        let pass: Vec<(f64, usize)> = wide.iter().copied().filter(has_room).collect();
        // What is left in the end is less than a round of each.
        affordable(if pass.is_empty() { &wide } else { &pass }, cost, left)
    }

    /// What time spent on a unit counts as where it is shared: the root of how many times as wide as it should be its interval is. In a
    /// simulation of the costs and spreads of a default run the median half-width is then a seventh narrower than with equal times, and
    /// that at nine tenths a fifth wider; in proportion to the width, what is wide would get nothing.
    fn weight_of_its_time(&self, unit: usize) -> f64 {
        self.standings[unit].half_width.map_or(1.0, |width| (width / self.aim()).max(1.0).sqrt())
    }

    /// The units that have such a figure, with it, the least first.
    fn least_first(&self, figure: impl Fn(usize) -> Option<f64>) -> Vec<(f64, usize)> {
        let mut units: Vec<(f64, usize)> = self.repeatable().filter_map(|unit| Some((figure(unit)?, unit))).collect();
        units.sort_by(|one, other| one.0.total_cmp(&other.0));
        units
    }

    /// Whether a unit has, and will have, fewer rounds that count than so many, and than it was to have, but so many that more will.
    fn lacks_undisturbed(&self, unit: usize, enough: u32) -> bool {
        let (state, counting) = (&self.units[unit], self.standings[unit].counting);
        let is_hopeless = f64::from(state.rounds + 1) > HOPELESS_FACTOR * f64::from(counting + 1);
        let most = self.budget * MOST_OF_BUDGET.max(EQUAL_SHARES / self.units.len() as f64);
        let is_too_long = self.spent(unit, Purpose::Undisturbed) > most;
        counting + self.owed(state) < enough.min(self.wanted.rounds) && !is_hopeless && !is_too_long
    }

    /// Whether a unit is too wide and more rounds narrow it: to the target, or as far as they count, where what they do not narrow is wider
    /// than that by itself. What lacks rounds of the minimum is taken to be as narrow as with them.
    fn is_to_narrow(&self, unit: usize) -> bool {
        let Standing { half_width, narrowable, .. } = self.standings[unit];
        let (Some(whole), Some(by_rounds)) = (half_width, narrowable) else { return false };
        let [whole, by_rounds, aim] = [whole, by_rounds, self.aim()].map(|width| width.powi(2));
        let made = f64::from(self.units[unit].rounds) / f64::from(self.wanted.rounds);
        let (expected, rest) = (made.min(1.0) * by_rounds, whole - by_rounds);
        expected + rest > aim && (expected > aim || rest < aim)
    }

    /// Nanoseconds of one more round of a unit that has its minimum.
    fn cost(&self, unit: usize, purpose: Purpose) -> f64 {
        let state = &self.units[unit];
        self.beside(state) + self.slice_for(purpose, state, 1.0) + self.beyond
    }

    /// Nanoseconds of all rounds of a unit, as if all had been made for this.
    fn spent(&self, unit: usize, purpose: Purpose) -> f64 {
        f64::from(self.units[unit].rounds) * self.cost(unit, purpose)
    }

    /// The half-width at which an interval is narrow enough.
    fn aim(&self) -> f64 {
        AIM * self.wanted.target
    }
}

/// The units for a round of each of which there is time, in this order.
fn affordable(units: &[(f64, usize)], cost: impl Fn(usize) -> f64, mut left: f64) -> Vec<usize> {
    let mut fits = |unit: usize| {
        let fits = cost(unit) <= left;
        left -= if fits { cost(unit) } else { 0.0 };
        fits
    };
    units.iter().map(|&(_, unit)| unit).filter(|&unit| fits(unit)).collect()
}

#[cfg(test)]
mod tests;
