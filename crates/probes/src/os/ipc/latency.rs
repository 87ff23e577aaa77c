//! Round-trip time of a byte or a word between two processes: pipe, Unix socket, futex.
//!
//! The whole round trip: calls, sleeping, waking, switching. Half of it must not be used as one-way latency, as the
//! directions may differ, nor as the cost of a switch.

use kelvin_catalogue::Placement;
use kelvin_catalogue::os::{
    IPC_FUTEX_LATENCY, IPC_PIPE_LATENCY, IPC_UNIX_LATENCY, SWITCH_CROSS_CPU, SWITCH_PROCESS_PIPE,
    SWITCH_PROCESS_PIPE_OWN, TokenMeans,
};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::partner::Task;
use kelvin_sys::token::Means;

use super::super::partner::Partner;
use crate::formula::measured;

pub(in crate::os) static PIPE: Probe =
    probe("Round trip of a byte between two processes over pipes", &[&IPC_PIPE_LATENCY], |bench, case| {
        run(bench, case, Means::Pipe, &IPC_PIPE_LATENCY)
    });

pub(in crate::os) static UNIX: Probe =
    probe("Round trip of a byte between two processes over Unix sockets", &[&IPC_UNIX_LATENCY], |bench, case| {
        run(bench, case, Means::Unix, &IPC_UNIX_LATENCY)
    });

pub(in crate::os) static FUTEX: Probe = probe(
    "Round trip of a word between two processes through shared memory and a futex",
    &[&IPC_FUTEX_LATENCY],
    |bench, case| run(bench, case, Means::Futex, &IPC_FUTEX_LATENCY),
);

/// The common method of the three.
const fn probe(
    summary: &'static str,
    metrics: &'static [&'static Metric],
    run: fn(&mut Bench<'_>, &Case) -> Result<(), Stop>,
) -> Probe {
    Probe {
        id: metrics[0].id.as_str(),
        summary,
        kind: ProbeKind::Measure,
        method: METHOD,
        metrics,
        inputs: const { &[SWITCH_PROCESS_PIPE.id.as_str(), SWITCH_CROSS_CPU.id.as_str()] },
        cases,
        run,
        predict,
    }
}

const METHOD: Method = Method {
    how: "Two processes pass a byte (with a futex: a word in shared memory) back and forth, pinned to one CPU or to \
          two. Round trips are timed in batches; only the clock is subtracted. Calls are bare system calls, all \
          checked. A note gives this task's context switches by getrusage; on one CPU each trip must switch it out at \
          least once, or the round fails. lmbench's lat_pipe and lat_unix print the same quantity, unpinned. The \
          headline takes the batches as found: with two CPUs the state of the partner's, which no canary here sees, is \
          part of the figure.",
    prediction: "On one CPU, pipe: 2 x (a switch + the write and read of a byte) as measured in this run by \
                 os.switch.process.pipe; socket or futex: the same with a wider range, because only the calls differ. \
                 Between two CPUs: two wake-ups, one each way, as os.switch.cross_cpu has them by a futex, and over pipes \
                 for a pipe or a socket.",
    not_for: "One-way latency; the cost of a switch (see os.switch); latency under load or of larger messages.",
    pitfalls: &[
        "Placement left to the scheduler: one CPU and two differ by a factor of ten, and runs flip between them.",
        "A mean over two modes: waking an idle CPU takes longer the deeper its idle state.",
        "A Unix socket also wakes a waiting reader when its own last message is consumed, because a socket's readers \
         and writers wait in one queue: on one CPU that can add a switch each way, which the stated counts show.",
        "A partner that spins instead of sleeping is fast and occupies a whole CPU: nothing spins here.",
    ],
    sources: &["lmbench lat_pipe, lat_unix", "perf bench sched pipe (its usecs/op is one round trip)"],
};

fn cases(_: &Machine, _: Effort) -> Vec<Case> {
    Placement::ALL.iter().map(|&placement| Case::new().at(placement)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case, means: Means, metric: &Metric) -> Result<(), Stop> {
    let cpu = super::partner_cpu(bench, case)?;
    let mut partner = Partner::start(means, Task::Process, cpu)?;
    let counts = partner.count(64)?;
    if cpu == bench.cpu() {
        counts.proves_a_switch_each_way()?;
    }
    bench.note(format!("partner on CPU {cpu}; {}", counts.describe()));
    bench.time(metric, |iterations| partner.round_trips(iterations))?;
    partner.finish().map(drop)
}

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if Placement::of(case) != Some(Placement::SameCpu) {
        return two_wake_ups(facts, metric);
    }
    let switch = measured(facts, &SWITCH_PROCESS_PIPE, &Case::new())?;
    let calls = measured(facts, &SWITCH_PROCESS_PIPE_OWN, &Case::new())?;
    let factor = if *metric == IPC_PIPE_LATENCY { 1.25 } else { 1.6 };
    Ok((2.0 * (switch + calls)).within(factor).predict(Basis::Derived, "two switches and calls"))
}

/// A round trip between two CPUs: a wake-up each way.
fn two_wake_ups(facts: &Facts<'_>, metric: &Metric) -> Result<Prediction, NoPrediction> {
    let means = if *metric == IPC_FUTEX_LATENCY { TokenMeans::Futex } else { TokenMeans::Pipe };
    let woken = measured(facts, &SWITCH_CROSS_CPU, &Case::new().at(means))?;
    Ok((2.0 * woken).within(1.4).predict(Basis::Derived, "two wake-ups"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn a_round_trip_is_two_switches_and_twice_the_calls() {
        let known =
            [(SWITCH_PROCESS_PIPE.id.as_str(), Some(1700.0)), (SWITCH_PROCESS_PIPE_OWN.id.as_str(), Some(400.0))];
        facts_about(&known, |facts| {
            let same = Case::new().at(Placement::SameCpu);
            let prediction = predict(facts, &IPC_PIPE_LATENCY, &same).unwrap();
            assert_eq!((prediction.value, prediction.high), (4200.0, 5250.0));
            assert_eq!(predict(facts, &IPC_FUTEX_LATENCY, &same).unwrap().high, 6720.0);
            assert!(predict(facts, &IPC_PIPE_LATENCY, &Case::new().at(Placement::TwoCpus)).is_err());
        });
    }

    #[test]
    fn a_round_trip_between_two_cpus_is_two_wake_ups() {
        facts_about(&[(SWITCH_CROSS_CPU.id.as_str(), Some(4000.0))], |facts| {
            let two = Case::new().at(Placement::TwoCpus);
            for metric in [&IPC_PIPE_LATENCY, &IPC_UNIX_LATENCY, &IPC_FUTEX_LATENCY] {
                assert_eq!(predict(facts, metric, &two).unwrap().value, 8000.0);
            }
        });
    }
}
