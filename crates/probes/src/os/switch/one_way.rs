//! One-way wake-up: from before a task wakes another until the other one has read the clock.
//!
//! It is the figure of an older study, and what a signal to another task costs before anything is done about it. It must not be
//! used as the cost of a switch: the calls of both sides are part of it.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::os::{
    ONE_WAY_WAKE_UP as METRIC, SWITCH_CROSS_CPU, SWITCH_PROCESS_CONDVAR_ROUND_TRIP, SWITCH_PROCESS_FUTEX_ROUND_TRIP,
    SWITCH_PROCESS_PIPE_ROUND_TRIP, SWITCH_THREAD_CONDVAR_ROUND_TRIP, SWITCH_THREAD_FUTEX_ROUND_TRIP,
    SWITCH_THREAD_PIPE_ROUND_TRIP, TokenChannel, WokenTask,
};
use kelvin_core::{Case, Machine, Metric, NoPrediction, Prediction, PredictionBasis};
use kelvin_harness::{Bench, Effort, Method, PredictionInputs, Probe, ProbeError, ProbeKind};
use kelvin_sys::handoff::HandoffMethod;
use kelvin_sys::partner::PartnerKind;

use super::super::partner::TokenPartner;
use crate::formula::measured;

pub(in crate::os) static PROBE: Probe = Probe {
    id: METRIC.id.as_str(),
    summary: "One-way wake-up of a process or a thread, on the same CPU and on another",
    kind: ProbeKind::Study,
    method: Method {
        how: "The clock is read, then another task is woken, a process or a thread: by a byte in a pipe, by a futex or by a \
              condition variable. That task reads the clock as soon as it runs, says what it read in memory that both \
              share, and passes the token back, untimed. Each wake-up is timed alone, back to back with the \
              others so that the woken task notices no pause; nothing is subtracted: the \
              waking call, the switch, the end of the waiting call, and a clock pair. On one CPU the waking task has to \
              stop first. On two CPUs the two readings are of two counters, which the kernel found to run together; a \
              reading before its wake-up fails the round. A note gives the context switches by getrusage.",
        prediction: "Half of the round trip measured in the same run: on one CPU over the same pipes, futex or \
                     condition variable, within a factor of 1.5; on two CPUs os.switch.cross_cpu, within a factor of \
                     two, a condition variable as the futex that it waits on.",
        not_for: "A switch by itself: os.switch.process.pipe subtracts the calls; the reaction of a busy machine.",
        pitfalls: &[
            "Counters of two CPUs that differ: half a round trip has no such error, and must be about the same.",
            "The median of a bimodal distribution: waking an idle CPU depends on how deep it sleeps.",
        ],
        sources: &["An operating systems study of 2013 that published one direction: see the machine os-bench-2013"],
    },
    metrics: &[&METRIC],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let placements = if effort == Effort::Quick { &[PairPlacement::SameCpu][..] } else { PairPlacement::ALL };
    let of =
        |&woken: &WokenTask| placements.iter().map(move |&placement| Case::new().with_word(woken).with_word(placement));
    WokenTask::ALL.iter().flat_map(of).collect()
}

/// Untimed round trips under the counters.
const PROOF_TRIPS: u64 = 64;

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), ProbeError> {
    let (Some(woken), Some(placement)) = (WokenTask::of(case), PairPlacement::of(case)) else {
        return Err(ProbeError::fail(format!("the case needs what is woken, and where, not {case}")));
    };
    let means = match woken {
        WokenTask::ProcessPipe | WokenTask::ThreadPipe => HandoffMethod::Pipe,
        WokenTask::ProcessFutex | WokenTask::ThreadFutex => HandoffMethod::Futex,
        WokenTask::ProcessCondvar | WokenTask::ThreadCondvar => HandoffMethod::Condvar,
    };
    let task = match woken {
        WokenTask::ProcessPipe | WokenTask::ProcessFutex | WokenTask::ProcessCondvar => PartnerKind::Process,
        WokenTask::ThreadPipe | WokenTask::ThreadFutex | WokenTask::ThreadCondvar => PartnerKind::Thread,
    };
    let cpu = match placement {
        PairPlacement::SameCpu => bench.cpu(),
        PairPlacement::TwoCpus => bench.partner_cpu()?,
    };
    let mut partner = TokenPartner::start_with_clock(means, task, cpu, bench.clock())?;
    let counts = partner.count_round_trips(PROOF_TRIPS)?;
    if placement == PairPlacement::SameCpu {
        counts.check_one_switch_each_way()?;
    }
    bench.note(format!("woken on CPU {cpu}; {}", counts.describe()));
    bench.time_back_to_back([&METRIC], |clock| {
        let start = clock.start();
        partner.round_trips(1)?;
        let way = partner.last_ticks().checked_sub(start);
        way.map(|ticks| [ticks]).ok_or_else(|| {
            ProbeError::fail(
                "the woken task read the clock before it was woken: the CPUs' counters do not run together",
            )
        })
    })?;
    partner.finish().map(drop)
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let (Some(woken), Some(placement)) = (WokenTask::of(case), PairPlacement::of(case)) else {
        return Err(NoPrediction::new(format!("there is no formula for the case {case}")));
    };
    if placement == PairPlacement::TwoCpus {
        let means = match woken {
            WokenTask::ProcessPipe | WokenTask::ThreadPipe => TokenChannel::Pipe,
            _ => TokenChannel::Futex,
        };
        // A round trip between two CPUs is reported by its half.
        let half = measured(facts, &SWITCH_CROSS_CPU, &Case::new().with_word(means))?;
        return Ok(half.within(2.0).predict(PredictionBasis::Derived, "half between two CPUs"));
    }
    let trip = match woken {
        WokenTask::ProcessPipe => &SWITCH_PROCESS_PIPE_ROUND_TRIP,
        WokenTask::ThreadPipe => &SWITCH_THREAD_PIPE_ROUND_TRIP,
        WokenTask::ProcessFutex => &SWITCH_PROCESS_FUTEX_ROUND_TRIP,
        WokenTask::ThreadFutex => &SWITCH_THREAD_FUTEX_ROUND_TRIP,
        WokenTask::ProcessCondvar => &SWITCH_PROCESS_CONDVAR_ROUND_TRIP,
        WokenTask::ThreadCondvar => &SWITCH_THREAD_CONDVAR_ROUND_TRIP,
    };
    let half = measured(facts, trip, &Case::new())? / 2.0;
    Ok(half.within(1.5).predict(PredictionBasis::Derived, &format!("half of {}", trip.id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn one_way_is_half_round_trip() {
        let known = [
            (SWITCH_PROCESS_PIPE_ROUND_TRIP.id.as_str(), Some(3000.0)),
            (SWITCH_THREAD_PIPE_ROUND_TRIP.id.as_str(), Some(2900.0)),
            (SWITCH_PROCESS_FUTEX_ROUND_TRIP.id.as_str(), Some(2600.0)),
            (SWITCH_THREAD_FUTEX_ROUND_TRIP.id.as_str(), Some(2500.0)),
            (SWITCH_PROCESS_CONDVAR_ROUND_TRIP.id.as_str(), Some(2700.0)),
            (SWITCH_THREAD_CONDVAR_ROUND_TRIP.id.as_str(), Some(2400.0)),
            (SWITCH_CROSS_CPU.id.as_str(), Some(30_000.0)),
        ];
        with_facts(&known, |facts| {
            let of = |woken: WokenTask, placement: PairPlacement| {
                predict(facts, &METRIC, &Case::new().with_word(woken).with_word(placement)).unwrap().value
            };
            assert_eq!(
                WokenTask::ALL.iter().map(|&one| of(one, PairPlacement::SameCpu)).collect::<Vec<_>>(),
                [1500.0, 1450.0, 1300.0, 1250.0, 1350.0, 1200.0]
            );
            assert_eq!(of(WokenTask::ThreadCondvar, PairPlacement::TwoCpus), 30_000.0);
        });
    }

    #[test]
    fn study_includes_published_cases() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&crate::testing::machine(), effort);
            for woken in [WokenTask::ProcessPipe, WokenTask::ThreadCondvar] {
                assert!(
                    cases.contains(&Case::new().with_word(woken).with_word(PairPlacement::SameCpu)),
                    "{effort:?} {woken:?}"
                );
            }
        }
    }
}
