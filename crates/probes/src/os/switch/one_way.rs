//! One-way wake-up: from before a task wakes another until the other one has read the clock.
//!
//! It is the figure of an older study, and what a signal to another task costs before anything is done about it. It must not be
//! used as the cost of a switch: the calls of both sides are part of it.

use kelvin_catalogue::Placement;
use kelvin_catalogue::os::{
    SWITCH_CROSS_CPU, SWITCH_ONE_WAY as METRIC, SWITCH_PROCESS_CONDVAR, SWITCH_PROCESS_CONDVAR_ROUND_TRIP,
    SWITCH_PROCESS_FUTEX, SWITCH_PROCESS_FUTEX_ROUND_TRIP, SWITCH_PROCESS_PIPE, SWITCH_PROCESS_PIPE_ROUND_TRIP,
    SWITCH_THREAD_CONDVAR, SWITCH_THREAD_CONDVAR_ROUND_TRIP, SWITCH_THREAD_FUTEX, SWITCH_THREAD_FUTEX_ROUND_TRIP,
    SWITCH_THREAD_PIPE, SWITCH_THREAD_PIPE_ROUND_TRIP, TokenMeans, Woken,
};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::partner::Task;
use kelvin_sys::token::Means;

use super::super::partner::Partner;
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
    inputs: &[
        SWITCH_PROCESS_PIPE.id.as_str(),
        SWITCH_THREAD_PIPE.id.as_str(),
        SWITCH_PROCESS_FUTEX.id.as_str(),
        SWITCH_THREAD_FUTEX.id.as_str(),
        SWITCH_PROCESS_CONDVAR.id.as_str(),
        SWITCH_THREAD_CONDVAR.id.as_str(),
        SWITCH_CROSS_CPU.id.as_str(),
    ],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let placements = if effort == Effort::Quick { &[Placement::SameCpu][..] } else { Placement::ALL };
    let of = |&woken: &Woken| placements.iter().map(move |&placement| Case::new().at(woken).at(placement));
    Woken::ALL.iter().flat_map(of).collect()
}

/// Untimed round trips under the counters.
const PROOF_TRIPS: u64 = 64;

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let (Some(woken), Some(placement)) = (Woken::of(case), Placement::of(case)) else {
        return Err(Stop::fail(format!("the case needs what is woken, and where, not {case}")));
    };
    let means = match woken {
        Woken::ProcessPipe | Woken::ThreadPipe => Means::Pipe,
        Woken::ProcessFutex | Woken::ThreadFutex => Means::Futex,
        Woken::ProcessCondvar | Woken::ThreadCondvar => Means::Condvar,
    };
    let task = match woken {
        Woken::ProcessPipe | Woken::ProcessFutex | Woken::ProcessCondvar => Task::Process,
        Woken::ThreadPipe | Woken::ThreadFutex | Woken::ThreadCondvar => Task::Thread,
    };
    let cpu = match placement {
        Placement::SameCpu => bench.cpu(),
        Placement::TwoCpus => bench.partner_cpu()?,
    };
    let mut partner = Partner::start_reading(means, task, cpu, bench.clock())?;
    let counts = partner.count(PROOF_TRIPS)?;
    if placement == Placement::SameCpu {
        counts.proves_one_switch_each_way()?;
    }
    bench.note(format!("woken on CPU {cpu}; {}", counts.describe()));
    bench.time_in_turn([&METRIC], |clock| {
        let start = clock.start();
        partner.round_trips(1)?;
        let way = partner.read().checked_sub(start);
        way.map(|ticks| [ticks]).ok_or_else(|| {
            Stop::fail("the woken task read the clock before it was woken: the CPUs' counters do not run together")
        })
    })?;
    partner.finish().map(drop)
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let (Some(woken), Some(placement)) = (Woken::of(case), Placement::of(case)) else {
        return Err(NoPrediction::because(format!("there is no formula for the case {case}")));
    };
    if placement == Placement::TwoCpus {
        let means = match woken {
            Woken::ProcessPipe | Woken::ThreadPipe => TokenMeans::Pipe,
            _ => TokenMeans::Futex,
        };
        // A round trip between two CPUs is reported by its half.
        let half = measured(facts, &SWITCH_CROSS_CPU, &Case::new().at(means))?;
        return Ok(half.within(2.0).predict(Basis::Derived, "half between two CPUs"));
    }
    let trip = match woken {
        Woken::ProcessPipe => &SWITCH_PROCESS_PIPE_ROUND_TRIP,
        Woken::ThreadPipe => &SWITCH_THREAD_PIPE_ROUND_TRIP,
        Woken::ProcessFutex => &SWITCH_PROCESS_FUTEX_ROUND_TRIP,
        Woken::ThreadFutex => &SWITCH_THREAD_FUTEX_ROUND_TRIP,
        Woken::ProcessCondvar => &SWITCH_PROCESS_CONDVAR_ROUND_TRIP,
        Woken::ThreadCondvar => &SWITCH_THREAD_CONDVAR_ROUND_TRIP,
    };
    let half = measured(facts, trip, &Case::new())? / 2.0;
    Ok(half.within(1.5).predict(Basis::Derived, &format!("half of {}", trip.id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn one_way_is_half_of_there_and_back() {
        let known = [
            (SWITCH_PROCESS_PIPE_ROUND_TRIP.id.as_str(), Some(3000.0)),
            (SWITCH_THREAD_PIPE_ROUND_TRIP.id.as_str(), Some(2900.0)),
            (SWITCH_PROCESS_FUTEX_ROUND_TRIP.id.as_str(), Some(2600.0)),
            (SWITCH_THREAD_FUTEX_ROUND_TRIP.id.as_str(), Some(2500.0)),
            (SWITCH_PROCESS_CONDVAR_ROUND_TRIP.id.as_str(), Some(2700.0)),
            (SWITCH_THREAD_CONDVAR_ROUND_TRIP.id.as_str(), Some(2400.0)),
            (SWITCH_CROSS_CPU.id.as_str(), Some(30_000.0)),
        ];
        facts_about(&known, |facts| {
            let of = |woken: Woken, placement: Placement| {
                predict(facts, &METRIC, &Case::new().at(woken).at(placement)).unwrap().value
            };
            assert_eq!(
                Woken::ALL.iter().map(|&one| of(one, Placement::SameCpu)).collect::<Vec<_>>(),
                [1500.0, 1450.0, 1300.0, 1250.0, 1350.0, 1200.0]
            );
            assert_eq!(of(Woken::ThreadCondvar, Placement::TwoCpus), 30_000.0);
        });
    }

    #[test]
    fn what_was_published_is_a_case_of_every_study() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&crate::testing::machine(), effort);
            for woken in [Woken::ProcessPipe, Woken::ThreadCondvar] {
                assert!(cases.contains(&Case::new().at(woken).at(Placement::SameCpu)), "{effort:?} {woken:?}");
            }
        }
    }
}
