//! One-way wake-up: from before a task wakes another until the other one has read the clock.
//!
//! It is the figure of an older study, and what a signal to another task costs before anything is done about it. It must not be
//! used as the cost of a switch: the calls of both sides are part of it.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::os::{
    HandoffMechanism, HandoffTask, ONE_WAY_WAKE_UP as METRIC, SWITCH_CROSS_CPU, SWITCH_ROUND_TRIP,
};

use super::super::ipc::partner_cpu;
use super::super::partner::TokenPartner;
use crate::cases::IncompleteCase;
use crate::prelude::*;
use crate::program::note_c_library;

pub(in crate::os) static PROBE: Probe = Probe {
    summary: "One-way wake-up of a process or a thread, on the same CPU and on another",
    method: include_str!("one_way.md"),
    cases,
    run,
    predict,
    ..Probe::study(&[&METRIC])
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let placements = if effort == Effort::Quick { &[PairPlacement::SameCpu][..] } else { PairPlacement::ALL };
    let tasks = MECHANISMS.iter().flat_map(|mechanism| [mechanism.between_processes(), mechanism.between_threads()]);
    tasks.flat_map(|case| placements.iter().map(move |&placement| case.clone().with_word(placement))).collect()
}

/// What the woken task waits for.
const MECHANISMS: [HandoffMechanism; 3] = [HandoffMechanism::Pipe, HandoffMechanism::Futex, HandoffMechanism::Condvar];

/// The case's task, mechanism and placement.
fn parse_case(case: &Case) -> Result<(HandoffTask, HandoffMechanism, PairPlacement), IncompleteCase> {
    let mechanism = required_word(HandoffMechanism::of(case), &MECHANISMS, case)?;
    Ok((required(HandoffTask::of(case), case)?, mechanism, required(PairPlacement::of(case), case)?))
}

/// Untimed round trips under the counters.
const PROOF_TRIPS: u64 = 64;

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (task, mechanism, placement) = parse_case(case)?;
    let cpu = partner_cpu(bench, case)?;
    let mut partner = TokenPartner::start_with_clock(mechanism, task, cpu, bench.clock())?;
    let counts = partner.count_round_trips(PROOF_TRIPS)?;
    if placement == PairPlacement::SameCpu {
        counts.check_one_switch_each_way()?;
    }
    bench.note(format!("woken on CPU {cpu}; {}", counts.describe()));
    if mechanism == HandoffMechanism::Condvar {
        note_c_library(bench);
    }
    bench.time_back_to_back([&METRIC], |clock| {
        let start = clock.start();
        partner.round_trips(1)?;
        let ticks_until_read = partner.last_ticks().checked_sub(start);
        ticks_until_read
            .map(|ticks| [ticks])
            .or_fail("the woken task read the clock before it was woken: the CPUs' counters do not run together")
    })?;
    partner.finish().map(drop)
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (task, mechanism, placement) = parse_case(case)?;
    if placement == PairPlacement::TwoCpus {
        // A condition variable waits on a futex. A round trip between two CPUs is reported by its half.
        let is_pipe = mechanism == HandoffMechanism::Pipe;
        let wake = Case::new().with_word(if is_pipe { HandoffMechanism::Pipe } else { HandoffMechanism::Futex });
        let half = measured(facts, &SWITCH_CROSS_CPU, &wake)?;
        return Ok(half.widen(2.0).derived("half between two CPUs"));
    }
    let trip = Case::new().with_word(task).with_word(mechanism);
    let half = measured(facts, &SWITCH_ROUND_TRIP, &trip)? / 2.0;
    let name = format!("half of a round trip, {} {}", task.name(), mechanism.name());
    Ok(half.widen(1.5).derived(&name))
}

#[cfg(test)]
mod tests {
    use kelvin_core::MeasuredValue;

    use super::*;

    #[test]
    fn one_way_is_half_round_trip() {
        let measured = |id: &str, case: &Case| {
            let value = match (id, HandoffMechanism::of(case)?, HandoffTask::of(case)) {
                (id, mechanism, None) if id == SWITCH_CROSS_CPU.id.as_str() => match mechanism {
                    HandoffMechanism::Pipe => 40_000.0,
                    _ => 30_000.0,
                },
                (_, HandoffMechanism::Pipe, Some(HandoffTask::Process)) => 3000.0,
                (_, HandoffMechanism::Pipe, Some(HandoffTask::Thread)) => 2900.0,
                (_, HandoffMechanism::Futex, Some(HandoffTask::Process)) => 2600.0,
                (_, HandoffMechanism::Futex, Some(HandoffTask::Thread)) => 2500.0,
                (_, HandoffMechanism::Condvar, Some(HandoffTask::Process)) => 2700.0,
                (_, HandoffMechanism::Condvar, Some(HandoffTask::Thread)) => 2400.0,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let machine = crate::testing::machine();
        let facts = PredictionInputs::new(&machine, &measured);
        let half_trip = |case: &Case| predict(&facts, &METRIC, case).unwrap().value;
        let times: Vec<f64> = cases(&machine, Effort::Quick).iter().map(half_trip).collect();
        assert_eq!(times, [1500.0, 1450.0, 1300.0, 1250.0, 1350.0, 1200.0]);
        let two_cpus = HandoffMechanism::Condvar.between_threads().with_word(PairPlacement::TwoCpus);
        assert_eq!(half_trip(&two_cpus), 30_000.0);
    }

    #[test]
    fn study_includes_published_cases() {
        let published = [HandoffMechanism::Pipe.between_processes(), HandoffMechanism::Condvar.between_threads()];
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&crate::testing::machine(), effort);
            for published_case in &published {
                assert!(
                    cases.contains(&published_case.clone().with_word(PairPlacement::SameCpu)),
                    "{effort:?} {published_case}"
                );
            }
        }
    }
}
