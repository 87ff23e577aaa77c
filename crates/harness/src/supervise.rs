//! The parent side of a run: it runs the rounds and emits events.

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use kelvin_model::units::seconds;
use kelvin_model::{Attempt, Case, Event, Name, Outline, Reason, Round, RunSettings, RunStatus, Standing, SteadyCore};
use kelvin_stats::Random;
use kelvin_sys::child::Patience;
use kelvin_sys::{child, interrupt};

use crate::launch::{Launch, Processes};
use crate::plan::{Plan, Unit};
use crate::protocol::{Answer, Beyond, Request};
use crate::schedule::{Decision, Limit, Next, Schedule, Task, Wanted};
use crate::setup::Setup;

/// How many times its limit a round may take that shows signs of life: on a disk of 7 MB/s, under a quota of a tenth of a CPU, or in
/// an emulator the same work takes so much longer.
pub(crate) const LIVELY: u32 = 12;

/// Why a case is left out after all.
const NO_TIME: &str = "no time for it beside what is more important: rounds take longer here than expected";
/// Rounds before it is first asked how the core reads, and at most between two such questions.
const FIRST_ASKED: usize = 8;
const MOST_UNASKED: usize = 256;
/// Nanoseconds by which a time that was waited for in full may seem shorter.
const ROUNDING: f64 = 1e3;

/// A receiver of events: a progress line, a store, a run in memory. A sink that fails keeps its error for its owner to
/// ask for.
pub trait Sink {
    /// Takes an event. No timed region is running meanwhile.
    fn event(&mut self, event: &Event);
}

/// A receiver of events that can say how far each case has come.
pub trait Judge: Sink {
    /// How far each case has come, by all its rounds so far and by how the canaries read then or a little before; one that is missing
    /// needs nothing. No timed region is running meanwhile.
    fn standings(&mut self) -> HashMap<(Name, Case), Standing>;

    /// How the core reads that is left alone, by all rounds so far, once that is known. No timed region is running meanwhile.
    fn core(&self) -> Option<SteadyCore>;
}

/// Settings of a run, beside its plan and its outline.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that plays the probe's role, and its arguments; it must call [`crate::serve`].
    pub program: (OsString, Vec<String>),
    /// Time limit of one round: a probe that takes longer and shows no sign of life has failed.
    pub round_limit: Duration,
    /// What yields where the minimum of rounds takes longer than the budget.
    pub limit: Limit,
    /// When the time of the budget began.
    pub began: Instant,
    /// What of the budget is kept for the time after the last round.
    pub reserve: Duration,
    /// The setup of probes.
    pub setup: Setup,
}

impl Options {
    /// Time limit of a round, for its set-up and what may go wrong beside its timing.
    fn round_limit(&self, next: Next) -> Duration {
        self.round_limit + Duration::from_nanos(10 * next.slice as u64 + next.beyond as u64)
    }
}

/// Measures the plan and sends all events to the judge; returns when the budget is spent, every interval is narrow
/// enough, or this process was asked to stop.
pub fn supervise(plan: &Plan, outline: &Outline, options: &Options, judge: &mut dyn Judge) -> RunStatus {
    let (program, arguments) = options.program.clone();
    let mut processes = Processes { program, arguments, began: kelvin_sys::clock::monotonic() };
    // Without it, orphans of a probe go to init, which reaps them too; we just cannot be sure that they have ended.
    let _ = child::adopt_orphans();
    run(plan, outline, options, &mut processes, judge)
}

fn run(plan: &Plan, outline: &Outline, options: &Options, launch: &mut dyn Launch, judge: &mut dyn Judge) -> RunStatus {
    judge.event(&Event::Started(Box::new(outline.clone())));
    for (probe, case, reason) in &plan.left_out {
        judge.event(&Event::CaseSkipped { probe: Name::new(probe.id), case: case.clone(), reason: reason.clone() });
    }
    let mut rounds = Rounds::new(plan, &outline.settings, options);
    let status = rounds.run(launch, judge);
    let notes = if status == RunStatus::Complete { rounds.notes(judge) } else { Vec::new() };
    judge.event(&Event::Finished { status: status.clone(), seconds: launch.now() / 1e9, notes });
    status
}

/// The rounds of a run.
struct Rounds<'r> {
    plan: &'r Plan,
    settings: &'r RunSettings,
    options: &'r Options,
    schedule: Schedule,
    random: Random,
    /// Consecutive failures of each unit.
    failures: Vec<u32>,
    /// How the core reads that is left alone, as it was asked for last, and the rounds after which it is asked for again.
    core: Option<SteadyCore>,
    ask_at: usize,
    /// Nanoseconds by which rounds went on beyond their timing.
    beyond: f64,
}

impl<'r> Rounds<'r> {
    fn new(plan: &'r Plan, settings: &'r RunSettings, options: &'r Options) -> Self {
        let beside = options.began.elapsed() + options.reserve;
        let budget = (settings.budget_seconds - beside.as_secs_f64()).max(0.0) * 1e9;
        let RunSettings { rounds, target, seed, .. } = *settings;
        let limit = match options.limit {
            Limit::GrowsTo(most) => Limit::GrowsTo(most.saturating_sub(beside)),
            limit => limit,
        };
        let wanted = Wanted { budget, limit, rounds, target, seed };
        let task = |(unit, place): (&Unit, usize)| Task {
            only_input: unit.only_input,
            block: unit.block,
            place,
            cost: unit.expected,
            waits: unit.probe.waits(),
        };
        Self {
            plan,
            settings,
            options,
            schedule: Schedule::new(wanted, plan.units.iter().zip(plan.places()).map(task).collect()),
            random: Random::new(seed ^ 0x6b65_6c76_696e),
            failures: vec![0; plan.units.len()],
            core: None,
            ask_at: FIRST_ASKED,
            beyond: 0.0,
        }
    }

    fn run(&mut self, launch: &mut dyn Launch, judge: &mut dyn Judge) -> RunStatus {
        loop {
            if let Some(signal) = interrupt::requested() {
                return RunStatus::Partial(format!("interrupted by {signal}"));
            }
            let plan = self.plan;
            let next = self.schedule.next(launch.now(), &mut || standings(plan, judge));
            self.tell_decisions(judge);
            self.look_at_core(judge);
            let Some(next) = next else { return RunStatus::Complete };
            self.round(next, launch, judge);
        }
    }

    fn round(&mut self, next: Next, launch: &mut dyn Launch, sink: &mut dyn Sink) {
        let unit = &self.plan.units[next.unit];
        announce(unit, &self.schedule, self.schedule.budget() - launch.now(), sink);
        let begun = launch.now();
        let patience = self.patience(next, begun);
        let request = self.request(next, patience);
        let Some(Answer { attempt, beyond }) = launch.launch(&request, patience) else { return };
        let beyond = beyond as f64;
        self.beyond += beyond;
        let took = launch.now() - begun;
        if matches!(attempt, Attempt::Failed(_))
            && self.time_for(next, begun).is_some_and(|time| took + ROUNDING >= time)
        {
            self.schedule.leave_out(next.unit);
            return;
        }
        self.learn(next, (took, beyond), &attempt);
        let (at, seconds, cpu) = (begun / 1e9, took / 1e9, self.options.setup.placement.cpu);
        let timing = Some((next.slice + beyond) / 1e9);
        let round = Box::new(Round { index: next.round, at, seconds, timing, cpu, attempt });
        sink.event(&Event::RoundFinished { probe: Name::new(unit.probe.id), case: unit.case.clone(), round });
    }

    fn request(&mut self, next: Next, patience: Patience) -> Request {
        let unit = &self.plan.units[next.unit];
        Request {
            probe: unit.probe.id.to_owned(),
            case: unit.case.clone(),
            round: next.round,
            slice: next.slice as u64,
            beyond: self.core.map(|core| Beyond { most: next.beyond as u64, core }),
            limit: patience.limit.as_nanos() as u64,
            seed: self.random.bits(),
            parent: std::process::id(),
            setup: self.options.setup.clone(),
        }
    }

    /// How long a round is waited for.
    fn patience(&self, next: Next, now: f64) -> Patience {
        let limit = self.options.round_limit(next);
        let most = LIVELY * limit;
        let time = self.time_for(next, now).map_or(most, |time| Duration::from_nanos(time as u64));
        Patience { limit: limit.min(time), most: most.min(time) }
    }

    /// Nanoseconds that a round may take, where there is a most that the budget is kept to.
    fn time_for(&self, next: Next, now: f64) -> Option<f64> {
        (self.options.limit != Limit::Grows).then(|| self.schedule.time_for(next.unit, now))
    }

    /// Records the outcome of a round in the schedule: it took so many nanoseconds, so many of them beyond its timing.
    fn learn(&mut self, next: Next, (took, beyond): (f64, f64), attempt: &Attempt) {
        let failures = &mut self.failures[next.unit];
        match attempt {
            Attempt::Measured(_) => {
                self.schedule.finished(next, beyond);
                *failures = 0;
            }
            Attempt::Skipped(_) => self.schedule.give_up(next.unit),
            Attempt::Failed(_) => {
                self.schedule.finished(next, beyond);
                *failures += 1;
                // A retry tells a chance failure from a certain one; a round that ran into its time limit gets none.
                if *failures >= 2 || took >= self.options.round_limit.as_nanos() as f64 {
                    self.schedule.give_up(next.unit);
                }
            }
        }
    }

    /// Asks how the core reads, now and then: at first it is not known, then it changes little.
    fn look_at_core(&mut self, judge: &dyn Judge) {
        let (done, _) = self.schedule.progress();
        if self.options.setup.canaries && done >= self.ask_at {
            self.core = judge.core();
            self.ask_at = done + done.clamp(FIRST_ASKED, MOST_UNASKED);
        }
    }

    /// Tells what was decided for lack of time.
    fn tell_decisions(&mut self, sink: &mut dyn Sink) {
        for decision in self.schedule.decisions() {
            match decision {
                Decision::LeaveOut { unit } => {
                    let Unit { probe, case, .. } = &self.plan.units[unit];
                    let (probe, case, reason) = (Name::new(probe.id), case.clone(), Reason::new(NO_TIME));
                    sink.event(&Event::CaseSkipped { probe, case, reason });
                }
                Decision::Lengthen { by } => {
                    sink.event(&Event::Lengthened { seconds: self.settings.budget_seconds + by / 1e9 });
                }
            }
        }
    }

    /// Notes on how the time was spent.
    fn notes(&self, judge: &mut dyn Judge) -> Vec<String> {
        let Self { plan, settings, schedule, .. } = self;
        let mut notes = Vec::new();
        let names = |units: &[usize]| list(&units.iter().map(|&unit| name(plan, unit)).collect::<Vec<_>>());
        if let Some(grown) = schedule.grown() {
            notes.push(format!(
                "{} rounds of each case take {} longer on this machine than the {} that were expected",
                settings.rounds,
                seconds(grown / 1e9),
                seconds(settings.budget_seconds)
            ));
        }
        if self.beyond > 0.0 {
            notes.push(format!(
                "rounds went on for {} in all beyond their time, until the core was undisturbed",
                seconds(self.beyond / 1e9)
            ));
        }
        let short = schedule.short();
        if !short.is_empty() {
            notes.push(format!("fewer than {} rounds, for lack of time: {}", settings.rounds, names(&short)));
        }
        let wide = schedule.wide(&standings(plan, judge));
        if !wide.is_empty() {
            notes.push(format!(
                "{} of {} cases still have an interval wider than the target of {} % after the given time: {}",
                wide.len(),
                plan.units.len(),
                settings.target * 100.0,
                names(&wide)
            ));
        }
        notes
    }
}

/// How far each unit has come.
fn standings(plan: &Plan, judge: &mut dyn Judge) -> Vec<Standing> {
    let known = judge.standings();
    let nothing_missing = Standing { counting: u32::MAX, ..Standing::default() };
    let of =
        |unit: &Unit| known.get(&(Name::new(unit.probe.id), unit.case.clone())).copied().unwrap_or(nothing_missing);
    plan.units.iter().map(of).collect()
}

fn announce(unit: &Unit, schedule: &Schedule, nanoseconds_left: f64, sink: &mut dyn Sink) {
    let (done, planned) = schedule.progress();
    sink.event(&Event::RoundStarted {
        probe: Name::new(unit.probe.id),
        case: unit.case.clone(),
        done,
        planned,
        seconds_left: nanoseconds_left.max(0.0) / 1e9,
    });
}

fn name(plan: &Plan, unit: usize) -> String {
    let unit = &plan.units[unit];
    if unit.case.is_empty() { unit.probe.id.to_owned() } else { format!("{} ({})", unit.probe.id, unit.case) }
}

/// The first few of a list in words, and how many more there are.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 5;
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{} and {more} more", names[..SHOWN].join(", ")),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests;
