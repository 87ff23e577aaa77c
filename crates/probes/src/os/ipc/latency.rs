//! Round-trip time of a byte or a word between two processes: pipe, Unix socket, futex.
//!
//! The whole round trip: calls, sleeping, waking, switching. Half of it must not be used as one-way latency, as the
//! directions may differ, nor as the cost of a switch.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::os::{
    HandoffMechanism, HandoffTask, IPC_LATENCY, SWITCH_CHANNEL_CALLS, SWITCH_COST, SWITCH_CROSS_CPU,
};

use super::super::partner::TokenPartner;
use super::{MECHANISMS, mechanism_of};
use crate::prelude::*;

pub(in crate::os) static PROBE: Probe = Probe {
    summary: "Round trip of a byte or a word between two processes: over pipes, Unix sockets, or a futex",
    method: include_str!("latency.md"),
    cases: |_, _| words(&MECHANISMS).words(PairPlacement::ALL),
    run,
    predict,
    ..Probe::measure(&[&IPC_LATENCY])
};

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let cpu = super::partner_cpu(bench, case)?;
    let mut partner = TokenPartner::start(mechanism_of(case)?, HandoffTask::Process, cpu)?;
    let counts = partner.count_round_trips(64)?;
    if cpu == bench.cpu() {
        counts.check_min_switches()?;
    }
    bench.note(format!("partner on CPU {cpu}; {}", counts.describe()));
    bench.time(&IPC_LATENCY, |iterations| partner.round_trips(iterations))?;
    partner.finish().map(drop)
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let mechanism = mechanism_of(case)?;
    let name = mechanism.name();
    if PairPlacement::of(case) != Some(PairPlacement::SameCpu) {
        // A wake-up each way.
        let is_futex = mechanism == HandoffMechanism::Futex;
        let wake = Case::new().with_word(if is_futex { HandoffMechanism::Futex } else { HandoffMechanism::Pipe });
        let wake_up = measured(facts, &SWITCH_CROSS_CPU, &wake)?;
        return Ok((2.0 * wake_up).widen(1.4).derived(&format!("two wake-ups, {name}")));
    }
    let pipe = HandoffMechanism::Pipe.between_processes();
    let [switch, calls] = [&SWITCH_COST, &SWITCH_CHANNEL_CALLS].map(|metric| measured(facts, metric, &pipe));
    let factor = if mechanism == HandoffMechanism::Pipe { 1.25 } else { 1.6 };
    let trip = (2.0 * (switch? + calls?)).widen(factor);
    Ok(trip.derived(&format!("two switches and calls, {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn ipc_round_trip_is_switches_and_calls() {
        let values = [(SWITCH_COST.id.as_str(), Some(1700.0)), (SWITCH_CHANNEL_CALLS.id.as_str(), Some(400.0))];
        with_facts(&values, |facts| {
            let predicted = |mechanism: HandoffMechanism, placement: PairPlacement| {
                predict(facts, &IPC_LATENCY, &Case::new().with_word(mechanism).with_word(placement))
            };
            let prediction = predicted(HandoffMechanism::Pipe, PairPlacement::SameCpu).unwrap();
            assert_eq!((prediction.value, prediction.high), (4200.0, 5250.0));
            assert_eq!(predicted(HandoffMechanism::Futex, PairPlacement::SameCpu).unwrap().high, 6720.0);
            assert!(predicted(HandoffMechanism::Pipe, PairPlacement::TwoCpus).is_err());
        });
    }

    #[test]
    fn cross_cpu_round_trip_is_two_wakes() {
        with_facts(&[(SWITCH_CROSS_CPU.id.as_str(), Some(4000.0))], |facts| {
            for mechanism in MECHANISMS {
                let case = Case::new().with_word(mechanism).with_word(PairPlacement::TwoCpus);
                assert_eq!(predict(facts, &IPC_LATENCY, &case).unwrap().value, 8000.0);
            }
        });
    }
}
