//! One switch of a CPU between two tasks, processes or threads, that pass a token over several channels.
//!
//! Over pipes it is the classic figure for "a context switch"; by a futex it is the cheapest sleep and wake-up in
//! Linux. It must not be used as the cost of switching with a working set or of a mutex. Nor is it the cost of an
//! uncontended lock, which never enters the kernel, or of an event loop, which also polls. It must not be compared with
//! figures that include the channel's calls.

use kelvin_core::catalogue::mem::{FALSE_SHARING, IncrementKind, LinePlacement};
use kelvin_core::catalogue::os::{
    HandoffMechanism, HandoffTask, SWITCH_CHANNEL_CALLS, SWITCH_COST, SWITCH_ROUND_TRIP, SYSCALL_READ, SYSCALL_WRITE,
};
use kelvin_sys::handoff::HandoffChannel;

use super::super::partner::{TokenPartner, handoff_method, partner_kind};
use crate::prelude::*;
use crate::program::note_c_library;

pub(in crate::os) static PROBE: Probe = Probe {
    summary: "Switching a CPU between two processes or two threads that pass a token",
    method: include_str!("cost.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&SWITCH_COST, &SWITCH_ROUND_TRIP, &SWITCH_CHANNEL_CALLS])
};

const MECHANISMS: [HandoffMechanism; 5] = [
    HandoffMechanism::Pipe,
    HandoffMechanism::Futex,
    HandoffMechanism::Eventfd,
    HandoffMechanism::Condvar,
    HandoffMechanism::Yield,
];

fn cases(_: &Machine, _: Effort) -> Vec<Case> {
    MECHANISMS.iter().flat_map(|mechanism| [mechanism.between_processes(), mechanism.between_threads()]).collect()
}

fn switch_case(task: HandoffTask, mechanism: HandoffMechanism) -> Case {
    Case::new().with_word(task).with_word(mechanism)
}

/// A switch between two processes over pipes.
pub(crate) fn process_switch(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    measured(facts, &SWITCH_COST, &HandoffMechanism::Pipe.between_processes())
}

/// Untimed round trips under the counters.
const PROOF_TRIPS: u64 = 256;

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (task, mechanism) = (required(HandoffTask::of(case), case)?, required(HandoffMechanism::of(case), case)?);
    let mut partner = TokenPartner::start(mechanism, task, bench.cpu())?;
    let counts = partner.count_round_trips(PROOF_TRIPS)?;
    counts.check_one_switch_each_way()?;
    bench.note(counts.describe());
    if mechanism == HandoffMechanism::Condvar {
        note_c_library(bench);
    }
    if SWITCH_CHANNEL_CALLS.is_measured_at(case) {
        let own_channel = HandoffChannel::new(handoff_method(mechanism), partner_kind(task).scope())?;
        bench.time_parts([&SWITCH_COST, &SWITCH_ROUND_TRIP, &SWITCH_CHANNEL_CALLS], |clock, iterations| {
            let (trips, outcome) = clock.time(|| partner.round_trips(iterations));
            outcome?;
            let (calls, outcome) = clock.time(|| (0..iterations).try_for_each(|_| own_channel.uncontended_handoff()));
            outcome?;
            let (trips, calls) = (trips as f64, calls as f64);
            Ok([trips / 2.0 - calls, trips, calls])
        })?;
    } else {
        bench.time_parts([&SWITCH_COST, &SWITCH_ROUND_TRIP], |clock, iterations| {
            let (trips, outcome) = clock.time(|| partner.round_trips(iterations));
            outcome.map(|()| [trips as f64 / 2.0, trips as f64])
        })?;
    }
    let partner_switches = partner.finish()?;
    let reason = format!(
        "the partner was switched out {partner_switches:.2} times per round trip instead of once: the token moved \
         without a switch"
    );
    fail_if(partner_switches < 0.98, reason)
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let mechanism = required_word(HandoffMechanism::of(case), &MECHANISMS, case)?;
    let task = required(HandoffTask::of(case), case)?;
    let is_published = task == HandoffTask::Process && mechanism == HandoffMechanism::Pipe;
    // Yields without a switch are part of a pass.
    let factor = if mechanism == HandoffMechanism::Yield { 2.0 } else { 1.5 };
    let prediction = match metric.id {
        id if id == SWITCH_CHANNEL_CALLS.id => channel_calls(facts, mechanism)?,
        id if id == SWITCH_COST.id && is_published => {
            let mitigations = describe_mitigations(facts.machine());
            let remark = format!("half of the published two, taken as a time and not as cycles. {mitigations}");
            published_switch().source(SECOND_SOURCE).explained(PredictionBasis::Published, "published switch", &remark)
        }
        id if id == SWITCH_COST.id => {
            let remark = format!("the scheduler's work is the same; {}", difference_from_pipes(mechanism));
            let pass = pass(facts, task, mechanism)?.widen(factor);
            pass.explained(PredictionBasis::Derived, "as over pipes", &remark)
        }
        _ if is_published => {
            let trip = 2.0 * (published_switch() + measured(facts, &SWITCH_CHANNEL_CALLS, case)?);
            trip.derived("two published switches")
        }
        _ => {
            let mut pass = pass(facts, task, mechanism)?;
            if SWITCH_CHANNEL_CALLS.is_measured_at(case) {
                pass = pass + measured(facts, &SWITCH_CHANNEL_CALLS, case)?;
            }
            (2.0 * pass).widen(factor).derived("two as over pipes")
        }
    };
    // How far a formula is off differs between tasks and mechanisms.
    let formula_name = format!("{}, {} {}", prediction.formula_name, task.name(), mechanism.name()).into();
    Ok(Prediction { formula_name, ..prediction })
}

/// Why switches may differ from those over pipes, or those between threads over pipes from those between processes.
fn difference_from_pipes(mechanism: HandoffMechanism) -> &'static str {
    match mechanism {
        HandoffMechanism::Pipe | HandoffMechanism::Unix => {
            "the scheduler's work is the same, but threads keep their address space"
        }
        HandoffMechanism::Futex => "a futex and a pipe sleep and wake through the same scheduler",
        HandoffMechanism::Eventfd => {
            "an eventfd is like a pipe without pages: only the calls differ, and they are subtracted"
        }
        HandoffMechanism::Condvar => "a condition variable waits on a futex, whose calls are not subtracted here",
        HandoffMechanism::Yield => {
            "there is no sleep and no wake-up, which is cheaper, but yields without a switch are included, which costs \
             more"
        }
    }
}

/// One pass: the switch over pipes, of threads that between processes, and the calls that are not subtracted.
fn pass(facts: &PredictionInputs<'_>, task: HandoffTask, mechanism: HandoffMechanism) -> Predicted<Expr> {
    let pipe_task = if mechanism == HandoffMechanism::Pipe { HandoffTask::Process } else { task };
    let switch = measured(facts, &SWITCH_COST, &switch_case(pipe_task, HandoffMechanism::Pipe))?;
    if mechanism != HandoffMechanism::Condvar {
        return Ok(switch);
    }
    Ok(switch + measured(facts, &SWITCH_CHANNEL_CALLS, &switch_case(task, HandoffMechanism::Futex))?)
}

/// One switch between processes over pipes with the pipe's calls subtracted, in nanoseconds: half of 2008.19, which
/// spans two switches.
const PUBLISHED_SWITCH: f64 = 2008.19 / 2.0;
/// Where it comes from.
const STUDY_SOURCE: &str = "zenbook-2011: Core i5-2557M pinned to 1.6 GHz, Ubuntu 14.04; a write, a read and two switches, \
                            less the cost of one read and one write";
/// A second study of the same quantity.
const SECOND_SOURCE: &str = "E. Bendersky, Measuring context switching and memory overheads for Linux threads, 2018: 1.2 to \
                             1.5 us per switch between threads over a pipe on one core of a Core i7-4771, pipe subtracted";
/// Predicted range, factor either way. The published figures differ by almost two between machines whose clocks differ
/// by two: the work of a switch has grown with the kernels about as fast as the cores.
const PUBLISHED_SPREAD: f64 = 2.0;

/// One switch between processes over pipes; the two system calls of a pass are subtracted from it and from the measurement.
fn published_switch() -> Expr {
    published("published switch between processes", PUBLISHED_SWITCH, Unit::Nanoseconds, STUDY_SOURCE)
        .widen(PUBLISHED_SPREAD)
}

/// Mitigations on every switch here that the published machine did not have.
fn describe_mitigations(machine: &Machine) -> String {
    let status = machine
        .cpu
        .mitigations
        .get()
        .and_then(|mitigations| mitigations.iter().find(|mitigation| mitigation.vulnerability == "spectre_v2"))
        .map(|mitigation| mitigation.status.as_str());
    match status {
        None => "The mitigations in force are unknown.".into(),
        Some(status) if status.contains("IBPB: always-on") => {
            "Every switch between processes has an indirect branch predictor barrier (IBPB), which the published \
             machine did not have; its cost is not added, so expect more."
                .into()
        }
        Some(status) if status.contains("Retpolines") => {
            "Retpolines are in force, which the published machine did not have; their cost is not added. There is no \
             IBPB between tasks that have not requested one."
                .into()
        }
        Some(_) => "No cost of mitigations is added.".into(),
    }
}

/// Locked instructions of a pass and a take by a condition variable that nobody waits for: its mutex is locked and unlocked in each.
const UNCONTENDED_ATOMICS: f64 = 4.0;

/// The calls of a pass and a take, made by one task: two short ways into the kernel, or where nobody waits none.
fn channel_calls(facts: &PredictionInputs<'_>, mechanism: HandoffMechanism) -> Predicted {
    match mechanism {
        HandoffMechanism::Pipe | HandoffMechanism::Unix | HandoffMechanism::Eventfd | HandoffMechanism::Futex => {
            let [write, read] = [&SYSCALL_WRITE, &SYSCALL_READ].map(|call| measured(facts, call, &Case::new()));
            Ok((write? + read?).widen(2.0).derived("two short calls"))
        }
        HandoffMechanism::Condvar => {
            let separate = Case::new().with_word(IncrementKind::Atomic).with_word(LinePlacement::Separate);
            let atomics =
                fact("locked instructions", UNCONTENDED_ATOMICS, Unit::Count, "a mutex locked and unlocked, twice");
            let calls = atomics * measured(facts, &FALSE_SHARING, &separate)?;
            Ok(calls.widen(2.0).derived("locked instructions"))
        }
        HandoffMechanism::Yield => Err(NoPrediction::new("a task that yields makes no calls that are subtracted")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    fn between_processes(facts: &PredictionInputs<'_>, metric: &Metric, mechanism: HandoffMechanism) -> Prediction {
        predict(facts, metric, &mechanism.between_processes()).unwrap()
    }

    #[test]
    fn published_switch_is_half_of_pair() {
        with_facts(&[], |facts| {
            let process = between_processes(facts, &SWITCH_COST, HandoffMechanism::Pipe);
            assert!((process.value - 1004.095).abs() < 1e-9);
            assert!((process.low - 502.0475).abs() < 1e-9 && (process.high - 2008.19).abs() < 1e-9);
            assert!(process.derivation.contains("are unknown"), "{}", process.derivation);
        });
    }

    #[test]
    fn round_trip_is_switches_and_calls() {
        with_facts(&[(SWITCH_CHANNEL_CALLS.id.as_str(), Some(300.0))], |facts| {
            let trip = between_processes(facts, &SWITCH_ROUND_TRIP, HandoffMechanism::Pipe);
            assert!((trip.value - (2008.19 + 600.0)).abs() < 1e-9);
            assert!((trip.high - (4016.38 + 600.0)).abs() < 1e-9);
            assert_eq!(trip.inputs.len(), 2);
        });
        let case = HandoffMechanism::Pipe.between_processes();
        with_facts(&[], |facts| assert!(predict(facts, &SWITCH_ROUND_TRIP, &case).is_err()));
    }

    #[test]
    fn channel_calls_are_syscalls_or_atomics() {
        let inputs = [
            (SYSCALL_READ.id.as_str(), Some(120.0)),
            (SYSCALL_WRITE.id.as_str(), Some(100.0)),
            (FALSE_SHARING.id.as_str(), Some(5.5)),
        ];
        with_facts(&inputs, |facts| {
            let calls_time = |mechanism| channel_calls(facts, mechanism).map(|prediction| prediction.value);
            let times =
                [HandoffMechanism::Pipe, HandoffMechanism::Condvar].map(|mechanism| calls_time(mechanism).unwrap());
            assert_eq!(times, [220.0, 22.0]);
            assert!(calls_time(HandoffMechanism::Yield).is_err());
        });
        with_facts(&inputs[..1], |facts| assert!(channel_calls(facts, HandoffMechanism::Futex).is_err()));
    }

    #[test]
    fn other_mechanisms_follow_measured_pipe() {
        let values = [(SWITCH_COST.id.as_str(), Some(1500.0)), (SWITCH_CHANNEL_CALLS.id.as_str(), Some(250.0))];
        with_facts(&values, |facts| {
            let switch = between_processes(facts, &SWITCH_COST, HandoffMechanism::Futex);
            assert_eq!((switch.value, switch.low, switch.high), (1500.0, 1000.0, 2250.0));
            assert_eq!(switch.formula, "os.switch.cost (mechanism=pipe task=process)");
            assert_eq!(switch.formula_name, "as over pipes, process futex");
            let trip = |mechanism| between_processes(facts, &SWITCH_ROUND_TRIP, mechanism);
            assert_eq!(trip(HandoffMechanism::Futex).value, 3500.0);
            assert_eq!(trip(HandoffMechanism::Yield).value, 3000.0);
            assert_eq!(between_processes(facts, &SWITCH_COST, HandoffMechanism::Condvar).value, 1750.0);
            let thread = predict(facts, &SWITCH_COST, &HandoffMechanism::Condvar.between_threads()).unwrap();
            assert_eq!(
                thread.formula,
                "os.switch.cost (mechanism=pipe task=thread) + os.switch.channel_calls (mechanism=futex task=thread)"
            );
            assert_eq!(thread.derivation.split(';').next(), Some("1.50 µs + 250 ns = 1.75 µs"));
        });
        let case = HandoffMechanism::Futex.between_processes();
        with_facts(&[], |facts| assert!(predict(facts, &SWITCH_COST, &case).is_err()));
    }
}
