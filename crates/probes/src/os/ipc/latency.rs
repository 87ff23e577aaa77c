//! How long a byte or a word takes to another process and back: pipe, Unix socket, futex.
//!
//! A round trip with everything in it: calls, sleeping, waking, switching. Half of it must not be called the latency of
//! one way, which may differ between the ways, and it must not be taken for the cost of a switch.

use kelvin_catalogue::Placement;
use kelvin_catalogue::os::{
    IPC_FUTEX_LATENCY, IPC_PIPE_LATENCY, IPC_UNIX_LATENCY, SWITCH_PROCESS_PIPE, SWITCH_PROCESS_PIPE_OWN,
};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::partner::Task;
use kelvin_sys::token::Means;

use super::super::partner::Partner;
use crate::predict::Predicting;

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

/// What the three have in common.
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
        inputs: const { &[SWITCH_PROCESS_PIPE.id.as_str()] },
        cases,
        run,
        predict,
    }
}

const METHOD: Method = Method {
    how: "Two processes pass a byte (or, by a futex, a word in shared memory) to and fro, both on one CPU or each \
          pinned to a CPU of its own. Round trips are timed in batches, nothing is subtracted but the clock. Calls are \
          bare system calls, all checked. How often this task slept is stated by getrusage; on one CPU each trip must \
          take it off the CPU at least once, or the round fails. lmbench's lat_pipe and lat_unix print the same \
          quantity, unpinned. The headline takes the batches as found: with two CPUs the other one's state, which no \
          canary here can see, is part of the figure.",
    prediction: "On one CPU, by pipe: 2 x (a switch + the write and read of a byte) as measured in this run by \
                 os.switch.process.pipe; by socket or futex the same, with a wider range, because the calls differ and \
                 the switch does not. Between two CPUs: none, for the reason that os.switch.cross_cpu gives.",
    not_for: "Half of it as the latency of one way; the cost of a switch (see os.switch); the latency under load or of \
              messages larger than a few bytes.",
    pitfalls: &[
        "Placement left to the scheduler: one CPU or two differ by a factor of ten, and runs flip between them.",
        "A mean over two modes: waking an idle CPU takes one time or another, depending on how deep it sleeps.",
        "A Unix socket also wakes a waiting reader when the message that it sent before is consumed, because readers \
         and writers of a socket wait in one queue: on one CPU that can be a switch more for each way, which the \
         stated counts show.",
        "A partner that spins instead of sleeping is fast and takes a whole CPU: nobody spins here.",
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
        return Err(NoPrediction::because(
            "no published costs of an inter-processor interrupt and of leaving an idle state are built in for this \
             machine",
        ));
    }
    let switch = facts.measured(&SWITCH_PROCESS_PIPE, &Case::new())?;
    let calls = facts.measured(&SWITCH_PROCESS_PIPE_OWN, &Case::new())?;
    let value = 2.0 * (switch.value + calls.value);
    let factor = if *metric == IPC_PIPE_LATENCY { 1.25 } else { 1.6 };
    let text = format!(
        "2 x ({:.0} ns switch + {:.0} ns write and read of a pipe) = {value:.0} ns; unremarkable within a factor of \
         {factor}",
        switch.value, calls.value
    );
    Ok(Predicting::within_factor(Basis::Derived, value, factor)
        .formula("2 x (write + switch + read)")
        .input(switch)
        .input(calls)
        .derived_as(text))
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
}
