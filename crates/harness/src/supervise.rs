//! The parent side of a run: round after round, events to whoever listens.

use std::ffi::OsString;
use std::time::Duration;

use kelvin_model::{Attempt, Event, Name, Outline, Reading, Readings, Round, RunStatus, Tags};
use kelvin_stats::{Random, median};
use kelvin_sys::{child, interrupt};

use crate::launch::{Launch, Processes};
use crate::plan::{Plan, Unit};
use crate::protocol::Request;
use crate::schedule::{Next, Schedule, Wanted};
use crate::setup::Setup;

/// Share of the budget that is left for what is not rounds: reading the machine, analysis, the report.
const RESERVE: f64 = 0.04;

/// Someone who is told what happens: a progress line, a store, a run in memory. Its own troubles are its own: a sink
/// that can no longer take events remembers why and is asked by its owner.
pub trait Sink {
    /// Something happened. No timed region is running meanwhile.
    fn event(&mut self, event: &Event);
}

/// How a run is made, beside its plan and its outline.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that plays the probe's role, and its arguments; it must call [`crate::serve`].
    pub program: (OsString, Vec<String>),
    /// Longest life of one round; a probe that takes longer has failed.
    pub round_limit: Duration,
    /// What probes measure with.
    pub setup: Setup,
}

/// Measures what the plan says and tells the sink everything; returns when the budget is spent, every interval is
/// narrow enough, or this process was asked to stop.
pub fn supervise(plan: &Plan, outline: &Outline, options: &Options, sink: &mut dyn Sink) -> RunStatus {
    let (program, arguments) = options.program.clone();
    let mut processes = Processes { program, arguments, began: kelvin_sys::clock::monotonic() };
    // Without it, orphans of a probe go to init, which reaps them as well; only the promise to see them ended is weaker.
    let _ = child::adopt_orphans();
    run(plan, outline, options, &mut processes, sink)
}

fn run(plan: &Plan, outline: &Outline, options: &Options, launch: &mut dyn Launch, sink: &mut dyn Sink) -> RunStatus {
    let settings = &outline.settings;
    let wanted = Wanted {
        budget: settings.budget_seconds * 1e9 * (1.0 - RESERVE),
        rounds: settings.rounds,
        target: settings.target,
        seed: settings.seed,
    };
    let only_inputs: Vec<bool> = plan.units.iter().map(|unit| unit.only_input).collect();
    let mut schedule = Schedule::new(wanted, &only_inputs);
    let mut random = Random::new(settings.seed ^ 0x6b65_6c76_696e);
    let mut failures = vec![0; plan.units.len()];
    sink.event(&Event::Started(Box::new(outline.clone())));
    for (probe, case, reason) in &plan.left_out {
        sink.event(&Event::CaseSkipped { probe: *probe, case: case.clone(), reason: reason.clone() });
    }
    let mut status = RunStatus::Complete;
    loop {
        if let Some(signal) = interrupt::requested() {
            status = RunStatus::Partial(format!("interrupted by {signal}"));
            break;
        }
        let Some(next) = schedule.next(launch.now()) else { break };
        let unit = &plan.units[next.unit];
        announce(unit, &schedule, wanted.budget - launch.now(), sink);
        let request = request(unit, next, &options.setup, random.bits());
        let limit = options.round_limit + Duration::from_nanos(10 * next.slice as u64);
        let begun = launch.now();
        let Some(attempt) = launch.launch(&request, limit) else { continue };
        let took = launch.now() - begun;
        match &attempt {
            Attempt::Measured(readings) => {
                schedule.finished(next, took, &figures(unit, readings));
                failures[next.unit] = 0;
            }
            Attempt::Skipped(_) => schedule.give_up(next.unit),
            Attempt::Failed(_) => {
                schedule.finished(next, took, &[]);
                failures[next.unit] += 1;
                // A second try tells a chance failure from a certain one; one that costs its whole time limit gets none.
                if failures[next.unit] >= 2 || took >= options.round_limit.as_nanos() as f64 {
                    schedule.give_up(next.unit);
                }
            }
        }
        let round = Round {
            index: next.round,
            at: begun / 1e9,
            seconds: took / 1e9,
            cpu: options.setup.placement.cpu,
            attempt,
        };
        let (probe, case) = (Name::new(unit.probe.id), unit.case.clone());
        sink.event(&Event::RoundFinished { probe, case, round: Box::new(round) });
    }
    let notes = if status == RunStatus::Complete { notes(plan, &schedule, settings.target) } else { Vec::new() };
    sink.event(&Event::Finished { status: status.clone(), seconds: launch.now() / 1e9, notes });
    status
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

fn request(unit: &Unit, next: Next, setup: &Setup, seed: u64) -> Request {
    Request {
        probe: unit.probe.id.to_owned(),
        case: unit.case.clone(),
        round: next.round,
        slice: next.slice as u64,
        seed,
        parent: std::process::id(),
        setup: setup.clone(),
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

/// What a reader should know of how the time went.
fn notes(plan: &Plan, schedule: &Schedule, target: f64) -> Vec<String> {
    let mut notes = Vec::new();
    let short = schedule.short();
    let short: Vec<String> =
        short.iter().filter(|&&unit| !plan.units[unit].only_input).map(|&u| name(plan, u)).collect();
    if !short.is_empty() {
        notes.push(format!("fewer rounds than asked for, because setting up takes long: {}", list(&short)));
    }
    let wide = schedule.wide();
    if !wide.is_empty() {
        let names: Vec<String> = wide.iter().map(|&(unit, _)| name(plan, unit)).collect();
        notes.push(format!(
            "{} of {} cases kept an interval wider than the target of {} % in the time given: {}",
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
