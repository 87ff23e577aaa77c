//! The parent side of a run: it runs the rounds and emits events.

use std::ffi::OsString;
use std::time::Duration;

use kelvin_model::{Attempt, Event, Name, Outline, Reading, Readings, Round, RunSettings, RunStatus, Tags};
use kelvin_stats::{Random, median};
use kelvin_sys::child::Patience;
use kelvin_sys::{child, interrupt};

use crate::launch::{Launch, Processes};
use crate::plan::{Plan, Unit};
use crate::protocol::Request;
use crate::schedule::{Next, Schedule, Wanted};
use crate::setup::Setup;

/// Share of the budget reserved for the rest: reading the machine, analysis, the report.
const RESERVE: f64 = 0.04;

/// How many times its limit a round may take that shows signs of life: on a disk of 7 MB/s, under a quota of a tenth of a CPU, or in
/// an emulator the same work takes so much longer.
const LIVELY: u32 = 12;

/// A receiver of events: a progress line, a store, a run in memory. A sink that fails keeps its error for its owner to
/// ask for.
pub trait Sink {
    /// Takes an event. No timed region is running meanwhile.
    fn event(&mut self, event: &Event);
}

/// Settings of a run, beside its plan and its outline.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that plays the probe's role, and its arguments; it must call [`crate::serve`].
    pub program: (OsString, Vec<String>),
    /// Time limit of one round: a probe that takes longer and shows no sign of life has failed.
    pub round_limit: Duration,
    /// The setup of probes.
    pub setup: Setup,
}

impl Options {
    /// Time limit of a round, for its set-up and what may go wrong beside its timing.
    fn limit(&self, next: Next) -> Duration {
        self.round_limit + Duration::from_nanos(10 * next.slice as u64)
    }

    /// How long a round is waited for.
    fn patience(&self, next: Next) -> Patience {
        let limit = self.limit(next);
        Patience { limit, most: LIVELY * limit }
    }
}

/// Measures the plan and sends all events to the sink; returns when the budget is spent, every interval is narrow
/// enough, or this process was asked to stop.
pub fn supervise(plan: &Plan, outline: &Outline, options: &Options, sink: &mut dyn Sink) -> RunStatus {
    let (program, arguments) = options.program.clone();
    let mut processes = Processes { program, arguments, began: kelvin_sys::clock::monotonic() };
    // Without it, orphans of a probe go to init, which reaps them too; we just cannot be sure that they have ended.
    let _ = child::adopt_orphans();
    run(plan, outline, options, &mut processes, sink)
}

fn run(plan: &Plan, outline: &Outline, options: &Options, launch: &mut dyn Launch, sink: &mut dyn Sink) -> RunStatus {
    let mut rounds = Rounds::new(plan, &outline.settings, options);
    sink.event(&Event::Started(Box::new(outline.clone())));
    for (probe, case, reason) in &plan.left_out {
        sink.event(&Event::CaseSkipped { probe: *probe, case: case.clone(), reason: reason.clone() });
    }
    let status = rounds.run(launch, sink);
    let target = outline.settings.target;
    let notes = if status == RunStatus::Complete { notes(plan, &rounds.schedule, target) } else { Vec::new() };
    sink.event(&Event::Finished { status: status.clone(), seconds: launch.now() / 1e9, notes });
    status
}

/// The rounds of a run.
struct Rounds<'r> {
    plan: &'r Plan,
    options: &'r Options,
    /// Their budget in nanoseconds.
    budget: f64,
    schedule: Schedule,
    random: Random,
    /// Consecutive failures of each unit.
    failures: Vec<u32>,
}

impl<'r> Rounds<'r> {
    fn new(plan: &'r Plan, settings: &RunSettings, options: &'r Options) -> Self {
        let budget = settings.budget_seconds * 1e9 * (1.0 - RESERVE);
        let wanted = Wanted { budget, rounds: settings.rounds, target: settings.target, seed: settings.seed };
        let only_inputs: Vec<bool> = plan.units.iter().map(|unit| unit.only_input).collect();
        let blocks = plan.units.iter().map(|unit| unit.block).collect();
        Self {
            plan,
            options,
            budget,
            schedule: Schedule::new(wanted, &only_inputs).in_blocks(blocks),
            random: Random::new(settings.seed ^ 0x6b65_6c76_696e),
            failures: vec![0; plan.units.len()],
        }
    }

    fn run(&mut self, launch: &mut dyn Launch, sink: &mut dyn Sink) -> RunStatus {
        loop {
            if let Some(signal) = interrupt::requested() {
                return RunStatus::Partial(format!("interrupted by {signal}"));
            }
            let Some(next) = self.schedule.next(launch.now()) else { return RunStatus::Complete };
            self.round(next, launch, sink);
        }
    }

    fn round(&mut self, next: Next, launch: &mut dyn Launch, sink: &mut dyn Sink) {
        let unit = &self.plan.units[next.unit];
        announce(unit, &self.schedule, self.budget - launch.now(), sink);
        let request = request(unit, next, self.options, self.random.bits());
        let begun = launch.now();
        let Some(attempt) = launch.launch(&request, self.options.patience(next)) else { return };
        let took = launch.now() - begun;
        self.learn(next, took, &attempt);
        let (at, seconds, cpu) = (begun / 1e9, took / 1e9, self.options.setup.placement.cpu);
        let round = Box::new(Round { index: next.round, at, seconds, cpu, attempt });
        sink.event(&Event::RoundFinished { probe: Name::new(unit.probe.id), case: unit.case.clone(), round });
    }

    /// Records the outcome of a round that took so many nanoseconds in the schedule.
    fn learn(&mut self, next: Next, took: f64, attempt: &Attempt) {
        let failures = &mut self.failures[next.unit];
        match attempt {
            Attempt::Measured(readings) => {
                self.schedule.finished(next, took, &figures(&self.plan.units[next.unit], readings));
                *failures = 0;
            }
            Attempt::Skipped(_) => self.schedule.give_up(next.unit),
            Attempt::Failed(_) => {
                self.schedule.finished(next, took, &[]);
                *failures += 1;
                // A retry tells a chance failure from a certain one; a round that ran into its time limit gets none.
                if *failures >= 2 || took >= self.options.round_limit.as_nanos() as f64 {
                    self.schedule.give_up(next.unit);
                }
            }
        }
    }
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

fn request(unit: &Unit, next: Next, options: &Options, seed: u64) -> Request {
    Request {
        probe: unit.probe.id.to_owned(),
        case: unit.case.clone(),
        round: next.round,
        slice: next.slice as u64,
        limit: options.limit(next).as_nanos() as u64,
        seed,
        parent: std::process::id(),
        setup: options.setup.clone(),
    }
}

/// A figure for each metric of a round, for the schedule only: the median time of an iteration, or of the values.
fn figures(unit: &Unit, readings: &[Reading]) -> Vec<f64> {
    let figure = |reading: &Reading| match &reading.readings {
        Readings::Scalars(values) => median(values),
        Readings::Batches(batches) => {
            let steady = (0..batches.len()).filter(|&batch| !batches.tags[batch].any(Tags::WARM_UP));
            let each: Vec<f64> =
                steady.map(|batch| batches.nanoseconds[batch] / batches.iterations[batch] as f64).collect();
            if each.is_empty() { f64::NAN } else { median(&each) }
        }
    };
    let of_metric = |id: Name| readings.iter().find(|reading| reading.metric == id).map_or(f64::NAN, figure);
    unit.probe.metrics.iter().map(|metric| of_metric(metric.id)).collect()
}

/// Notes on how the time was spent.
fn notes(plan: &Plan, schedule: &Schedule, target: f64) -> Vec<String> {
    let mut notes = Vec::new();
    let short = schedule.short();
    let short: Vec<String> =
        short.iter().filter(|&&unit| !plan.units[unit].only_input).map(|&u| name(plan, u)).collect();
    if !short.is_empty() {
        notes.push(format!("fewer rounds than requested, because set-up takes long: {}", list(&short)));
    }
    let wide = schedule.wide();
    if !wide.is_empty() {
        let names: Vec<String> = wide.iter().map(|&(unit, _)| name(plan, unit)).collect();
        notes.push(format!(
            "{} of {} cases still have an interval wider than the target of {} % after the given time: {}",
            wide.len(),
            plan.units.len(),
            target * 100.0,
            list(&names)
        ));
    }
    notes
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
