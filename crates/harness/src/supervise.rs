//! The parent side of a run: it runs the rounds and emits events.

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use kelvin_core::units::seconds;
use kelvin_core::{
    Case, CaseStatus, CoreSteadyState, Event, Name, RoundOutcome, RunHeader, RunSettings, RunStatus, SkipReason,
};
use kelvin_stats::Random;
use kelvin_sys::child::WaitLimit;
use kelvin_sys::stop_signals;

use crate::launcher::{LIVE_ROUND_FACTOR, Launcher, ProcessLauncher, RoundSpec};
use crate::plan::{Plan, PlanUnit};
use crate::protocol::Extension;
use crate::schedule::{BudgetLimit, Decision, NextRound, Schedule, ScheduleSpec, UnitSpec};
use crate::setup::Setup;

/// Why a case is left out after all.
const OUT_OF_TIME: &str = "no time for it after what is more important: rounds take longer here than expected";
/// Rounds before it is first asked how the core reads, and at most between two such questions.
const FIRST_CORE_CHECK: usize = 8;
const MAX_CORE_CHECK_INTERVAL: usize = 256;
/// Nanoseconds by which a time that was waited for in full may seem shorter.
const CLOCK_ROUNDING: f64 = 1e3;

/// A receiver of events: a progress line, a store, a run in memory. A sink that fails keeps its error for its owner to
/// ask for.
pub trait EventSink {
    /// Takes an event. No timed region is running meanwhile.
    fn event(&mut self, event: &Event);
}

/// A receiver of events that knows how far each case has come.
pub trait RunObserver: EventSink {
    /// How far each case has come, by all its rounds so far and by how the canaries read then or a little before; one that is missing
    /// needs nothing. No timed region is running meanwhile.
    fn case_status(&mut self) -> HashMap<(Name, Case), CaseStatus>;

    /// How the core reads that is left alone, by all rounds so far, once that is known. No timed region is running meanwhile.
    fn steady_core(&self) -> Option<CoreSteadyState>;
}

/// Settings of a run, besides its plan and its header.
#[derive(Clone, Debug)]
pub struct SuperviseOptions {
    /// The program that plays the probe's role, and its arguments; it must call [`crate::run_probe_process`].
    pub program: (OsString, Vec<String>),
    /// Time limit of one round: a probe that takes longer and shows no sign of life has failed.
    pub round_limit: Duration,
    /// What yields where the minimum of rounds takes longer than the budget.
    pub limit: BudgetLimit,
    /// When the time of the budget began.
    pub start: Instant,
    /// What of the budget is kept for the time after the last round.
    pub reserve: Duration,
    /// The setup of probes.
    pub setup: Setup,
}

/// Measures the plan and sends all events to the observer; returns when the budget is spent, every interval is narrow
/// enough, or this process was asked to stop.
pub fn supervise(
    plan: &Plan,
    header: &RunHeader,
    options: &SuperviseOptions,
    observer: &mut dyn RunObserver,
) -> RunStatus {
    run(plan, header, options, &mut ProcessLauncher::new(options.program.clone()), observer)
}

fn run(
    plan: &Plan,
    header: &RunHeader,
    options: &SuperviseOptions,
    launch: &mut dyn Launcher,
    observer: &mut dyn RunObserver,
) -> RunStatus {
    observer.event(&Event::Started(Box::new(header.clone())));
    for (probe, case, reason) in &plan.omissions {
        observer.event(&Event::CaseSkipped { probe: Name::new(probe.id), case: case.clone(), reason: reason.clone() });
    }
    let mut rounds = RoundLoop::new(plan, &header.settings, options);
    let status = rounds.run(launch, observer);
    let notes = if status == RunStatus::Complete { rounds.closing_notes(observer) } else { Vec::new() };
    observer.event(&Event::Finished { status: status.clone(), seconds: launch.now() / 1e9, notes });
    status
}

/// The rounds of a run.
struct RoundLoop<'r> {
    plan: &'r Plan,
    settings: &'r RunSettings,
    options: &'r SuperviseOptions,
    schedule: Schedule,
    random: Random,
    /// Consecutive failures of each unit.
    failures: Vec<u32>,
    /// How the core reads that is left alone, as it was asked for last, and the rounds after which it is asked for again.
    steady_core: Option<CoreSteadyState>,
    next_core_check: usize,
    /// Nanoseconds by which rounds went on beyond their timing.
    total_extension: f64,
}

impl<'r> RoundLoop<'r> {
    fn new(plan: &'r Plan, settings: &'r RunSettings, options: &'r SuperviseOptions) -> Self {
        let reserve = options.start.elapsed() + options.reserve;
        let budget = (settings.budget_seconds - reserve.as_secs_f64()).max(0.0) * 1e9;
        let RunSettings { rounds, target, seed, .. } = *settings;
        let limit = match options.limit {
            BudgetLimit::ExtendableTo(maximum) => BudgetLimit::ExtendableTo(maximum.saturating_sub(reserve)),
            limit => limit,
        };
        let spec = ScheduleSpec { budget, limit, rounds, target, seed };
        let task = |(unit, priority): (&PlanUnit, usize)| UnitSpec {
            only_input: unit.only_input,
            rounds: unit.min_rounds(rounds),
            block: unit.block,
            priority,
            cost: unit.expected_cost,
            spans_run: unit.probe.spans_run(),
        };
        Self {
            plan,
            settings,
            options,
            schedule: Schedule::new(spec, plan.units.iter().zip(plan.priorities()).map(task).collect()),
            random: Random::new(seed ^ 0x6b65_6c76_696e),
            failures: vec![0; plan.units.len()],
            steady_core: None,
            next_core_check: FIRST_CORE_CHECK,
            total_extension: 0.0,
        }
    }

    fn run(&mut self, launch: &mut dyn Launcher, observer: &mut dyn RunObserver) -> RunStatus {
        loop {
            if let Some(signal) = stop_signals::stop_signal() {
                return RunStatus::Partial(format!("interrupted by {signal}"));
            }
            let plan = self.plan;
            let next = self.schedule.next_round(launch.now(), &mut || unit_statuses(plan, observer));
            self.emit_decisions(observer);
            // At first it is not known how the core reads, then it changes little: it is asked for now and then.
            let (completed, _) = self.schedule.progress();
            if self.options.setup.canaries && completed >= self.next_core_check {
                self.steady_core = observer.steady_core();
                self.next_core_check = completed + completed.clamp(FIRST_CORE_CHECK, MAX_CORE_CHECK_INTERVAL);
            }
            let Some(next) = next else { return RunStatus::Complete };
            self.run_round(next, launch, observer);
        }
    }

    fn run_round(&mut self, next: NextRound, launch: &mut dyn Launcher, sink: &mut dyn EventSink) {
        let unit = &self.plan.units[next.unit];
        let start = launch.now();
        let (completed, planned) = self.schedule.progress();
        sink.event(&Event::RoundStarted {
            probe: Name::new(unit.probe.id),
            case: unit.case.clone(),
            done: completed,
            planned,
            seconds_left: (self.schedule.budget() - start).max(0.0) / 1e9,
        });
        let limit = self.wait_limit(next, start);
        let extension = self.steady_core.map(|core| Extension { max_nanoseconds: next.max_extension as u64, core });
        let spec = RoundSpec {
            probe: unit.probe,
            case: &unit.case,
            setup: &self.options.setup,
            index: next.round,
            timing: Duration::from_nanos(next.slice as u64),
        };
        let Some((round, overrun)) = spec.run(launch, extension, limit, self.random.next_u64()) else {
            return;
        };
        self.total_extension += overrun;
        let round_time = round.seconds * 1e9;
        let is_failure = matches!(round.outcome, RoundOutcome::Failed(_));
        if is_failure && round_time + CLOCK_ROUNDING >= self.schedule.time_limit(next.unit, start) {
            self.schedule.leave_out(next.unit);
            return;
        }
        let failures = &mut self.failures[next.unit];
        *failures = if is_failure { *failures + 1 } else { 0 };
        match round.outcome {
            RoundOutcome::Skipped(_) => self.schedule.retire_unit(next.unit),
            _ => self.schedule.record_round(next, overrun),
        }
        // What takes long to fail, or fails again, is not tried any more.
        if *failures >= 2 || *failures > 0 && round_time >= self.options.round_limit.as_nanos() as f64 {
            self.schedule.retire_unit(next.unit);
        }
        let (probe, case) = (Name::new(unit.probe.id), unit.case.clone());
        sink.event(&Event::RoundFinished { probe, case, round: Box::new(round) });
    }

    /// How long a round is waited for.
    fn wait_limit(&self, next: NextRound, now: f64) -> WaitLimit {
        // For its set-up and what may go wrong outside its timing.
        let timing_allowance = Duration::from_nanos(10 * next.slice as u64 + next.max_extension as u64);
        let limit = self.options.round_limit + timing_allowance;
        let time = Duration::from_nanos(self.schedule.time_limit(next.unit, now) as u64);
        WaitLimit { initial: limit.min(time), max: (LIVE_ROUND_FACTOR * limit).min(time) }
    }

    /// Reports what was decided for lack of time.
    fn emit_decisions(&mut self, sink: &mut dyn EventSink) {
        for decision in self.schedule.take_decisions() {
            match decision {
                Decision::LeaveOut { unit } => {
                    let PlanUnit { probe, case, .. } = &self.plan.units[unit];
                    let (probe, case, reason) = (Name::new(probe.id), case.clone(), SkipReason::new(OUT_OF_TIME));
                    sink.event(&Event::CaseSkipped { probe, case, reason });
                }
                Decision::Lengthen { increase: by } => {
                    sink.event(&Event::Extended { seconds: self.settings.budget_seconds + by / 1e9 });
                }
            }
        }
    }

    /// Notes on how the time was spent.
    fn closing_notes(&self, observer: &mut dyn RunObserver) -> Vec<String> {
        let Self { plan, settings, schedule, .. } = self;
        let mut notes = Vec::new();
        let names = |units: &[usize]| {
            let units_listed = units.iter().take(MAX_LISTED_NAMES).map(|&unit| &plan.units[unit]);
            let name = |PlanUnit { probe, case, .. }: &PlanUnit| match case.is_empty() {
                true => probe.id.to_owned(),
                false => format!("{} ({case})", probe.id),
            };
            let listed: Vec<String> = units_listed.map(name).collect();
            match units.len() - listed.len() {
                0 => listed.join(", "),
                more => format!("{} and {more} more", listed.join(", ")),
            }
        };
        if let Some(growth) = schedule.announced_growth() {
            notes.push(format!(
                "{} rounds of each case take {} longer on this machine than the {} that were expected",
                settings.rounds,
                seconds(growth / 1e9),
                seconds(settings.budget_seconds)
            ));
        }
        if self.total_extension > 0.0 {
            notes.push(format!(
                "rounds went on for {} in all beyond their time, until the core was undisturbed",
                seconds(self.total_extension / 1e9)
            ));
        }
        let short_units = schedule.short_units();
        if !short_units.is_empty() {
            notes.push(format!("fewer than {} rounds, for lack of time: {}", settings.rounds, names(&short_units)));
        }
        let wide_units = schedule.wide_units(&unit_statuses(plan, observer));
        if !wide_units.is_empty() {
            notes.push(format!(
                "{} of {} cases still have an interval wider than the target of {} % after the given time: {}",
                wide_units.len(),
                plan.units.len(),
                settings.target * 100.0,
                names(&wide_units)
            ));
        }
        notes
    }
}

/// How far each unit has come.
fn unit_statuses(plan: &Plan, observer: &mut dyn RunObserver) -> Vec<CaseStatus> {
    let statuses = observer.case_status();
    let complete_status = CaseStatus { counted_rounds: u32::MAX, ..CaseStatus::default() };
    let status = |unit: &PlanUnit| {
        statuses.get(&(Name::new(unit.probe.id), unit.case.clone())).copied().unwrap_or(complete_status)
    };
    plan.units.iter().map(status).collect()
}

/// Most cases that a note names.
const MAX_LISTED_NAMES: usize = 5;

#[cfg(test)]
mod tests;
