//! Round-trip time of a byte or a word between two processes: pipe, Unix socket, futex.
//!
//! The whole round trip: calls, sleeping, waking, switching. Half of it must not be used as one-way latency, as the
//! directions may differ, nor as the cost of a switch.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::os::{
    IPC_FUTEX_LATENCY, IPC_PIPE_LATENCY, IPC_UNIX_LATENCY, SWITCH_CROSS_CPU, SWITCH_PROCESS_PIPE,
    SWITCH_PROCESS_PIPE_CALLS, TokenChannel,
};
use kelvin_core::{Case, Machine, Metric, NoPrediction, Prediction, PredictionBasis};
use kelvin_harness::{Bench, Effort, Method, PredictionInputs, Probe, ProbeError, ProbeKind};
use kelvin_sys::handoff::HandoffMethod;
use kelvin_sys::partner::PartnerKind;

use super::super::partner::TokenPartner;
use crate::formula::measured;

pub(in crate::os) static PIPE: Probe =
    ipc_latency_probe("Round trip of a byte between two processes over pipes", &[&IPC_PIPE_LATENCY], |bench, case| {
        run(bench, case, HandoffMethod::Pipe, &IPC_PIPE_LATENCY)
    });

pub(in crate::os) static UNIX: Probe = ipc_latency_probe(
    "Round trip of a byte between two processes over Unix sockets",
    &[&IPC_UNIX_LATENCY],
    |bench, case| run(bench, case, HandoffMethod::Unix, &IPC_UNIX_LATENCY),
);

pub(in crate::os) static FUTEX: Probe = ipc_latency_probe(
    "Round trip of a word between two processes through shared memory and a futex",
    &[&IPC_FUTEX_LATENCY],
    |bench, case| run(bench, case, HandoffMethod::Futex, &IPC_FUTEX_LATENCY),
);

/// The common method of the three.
const fn ipc_latency_probe(
    summary: &'static str,
    metrics: &'static [&'static Metric],
    run: fn(&mut Bench<'_>, &Case) -> Result<(), ProbeError>,
) -> Probe {
    Probe {
        id: metrics[0].id.as_str(),
        summary,
        kind: ProbeKind::Measure,
        method: METHOD,
        metrics,
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
    PairPlacement::ALL.iter().map(|&placement| Case::new().with_word(placement)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case, means: HandoffMethod, metric: &Metric) -> Result<(), ProbeError> {
    let cpu = super::partner_cpu(bench, case)?;
    let mut partner = TokenPartner::start(means, PartnerKind::Process, cpu)?;
    let counts = partner.count_round_trips(64)?;
    if cpu == bench.cpu() {
        counts.check_min_switches()?;
    }
    bench.note(format!("partner on CPU {cpu}; {}", counts.describe()));
    bench.time(metric, |iterations| partner.round_trips(iterations))?;
    partner.finish().map(drop)
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if PairPlacement::of(case) != Some(PairPlacement::SameCpu) {
        return cross_cpu_round_trip(facts, metric);
    }
    let switch = measured(facts, &SWITCH_PROCESS_PIPE, &Case::new())?;
    let calls = measured(facts, &SWITCH_PROCESS_PIPE_CALLS, &Case::new())?;
    let factor = if *metric == IPC_PIPE_LATENCY { 1.25 } else { 1.6 };
    Ok((2.0 * (switch + calls)).within(factor).predict(PredictionBasis::Derived, "two switches and calls"))
}

/// A round trip between two CPUs: a wake-up each way.
fn cross_cpu_round_trip(facts: &PredictionInputs<'_>, metric: &Metric) -> Result<Prediction, NoPrediction> {
    let means = if *metric == IPC_FUTEX_LATENCY { TokenChannel::Futex } else { TokenChannel::Pipe };
    let woken = measured(facts, &SWITCH_CROSS_CPU, &Case::new().with_word(means))?;
    Ok((2.0 * woken).within(1.4).predict(PredictionBasis::Derived, "two wake-ups"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn ipc_round_trip_is_switches_and_calls() {
        let known =
            [(SWITCH_PROCESS_PIPE.id.as_str(), Some(1700.0)), (SWITCH_PROCESS_PIPE_CALLS.id.as_str(), Some(400.0))];
        with_facts(&known, |facts| {
            let same = Case::new().with_word(PairPlacement::SameCpu);
            let prediction = predict(facts, &IPC_PIPE_LATENCY, &same).unwrap();
            assert_eq!((prediction.value, prediction.high), (4200.0, 5250.0));
            assert_eq!(predict(facts, &IPC_FUTEX_LATENCY, &same).unwrap().high, 6720.0);
            assert!(predict(facts, &IPC_PIPE_LATENCY, &Case::new().with_word(PairPlacement::TwoCpus)).is_err());
        });
    }

    #[test]
    fn cross_cpu_round_trip_is_two_wakes() {
        with_facts(&[(SWITCH_CROSS_CPU.id.as_str(), Some(4000.0))], |facts| {
            let two = Case::new().with_word(PairPlacement::TwoCpus);
            for metric in [&IPC_PIPE_LATENCY, &IPC_UNIX_LATENCY, &IPC_FUTEX_LATENCY] {
                assert_eq!(predict(facts, metric, &two).unwrap().value, 8000.0);
            }
        });
    }
}
