//! Round trip of a message to another process: TCP, UDP, Unix sockets.
//!
//! Calls, protocol, sleeping, waking and switching included. Half of it must not be called the one-way latency, which may
//! differ by direction.

use kelvin_core::catalogue::net::{RTT_TCP, RTT_UDP, RTT_UNIX};
use kelvin_core::catalogue::os::{HandoffMechanism, SWITCH_CHANNEL_CALLS};

use super::link::{self, ProtocolType, round_trip_messages};
use super::prelude::*;
use crate::memory::core_to_core;
use crate::os::switch::{cross_cpu, process_switch};

pub(super) static TCP: Probe =
    rtt_probe::<link::Tcp>("Round trip of a message between two processes over TCP", &[&RTT_TCP]);

pub(super) static UDP: Probe =
    rtt_probe::<link::Udp>("Round trip of a datagram between two processes over UDP", &[&RTT_UDP]);

pub(super) static UNIX: Probe =
    rtt_probe::<link::Unix>("Round trip of a message between two processes over Unix sockets", &[&RTT_UNIX]);

const fn rtt_probe<P: ProtocolType>(summary: &'static str, metrics: &'static [&'static Metric]) -> Probe {
    Probe {
        summary,
        method: METHOD,
        cases: |_, effort| cases(effort, P::PROTOCOL),
        run: |bench, case| run(bench, case, P::PROTOCOL),
        predict: |facts, _, case| predict(facts, case, P::PROTOCOL),
        ..Probe::measure(metrics)
    }
}

const METHOD: &str = include_str!("rtt.md");

fn cases(effort: Effort, protocol: Protocol) -> Vec<Case> {
    numbers(MESSAGE, &round_trip_messages(protocol, effort)).words(PairPlacement::ALL)
}

fn run(bench: &mut Bench<'_>, case: &Case, protocol: Protocol) -> ProbeResult {
    let cpu = partner_cpu(bench, case)?;
    let mut echo = EchoClient::start(protocol, message_bytes(case)?, cpu)?;
    let proof = echo.warm_up_and_prove(bench, cpu)?;
    bench.note(proof);
    bench.time_back_to_back([protocol.metrics().round_trip], |clock| Ok([echo.time_round_trip(clock)?]))?;
    bench.note_last_reading(echo.describe()?);
    echo.finish()
}

fn predict(facts: &PredictionInputs<'_>, case: &Case, protocol: Protocol) -> Predicted {
    let bytes = MESSAGE.number_in(case).unwrap_or_default();
    let stack = measured(facts, protocol.metrics().stack, &Case::new().with_number(MESSAGE, bytes))?;
    let wake = WakeCost::for_placement(facts, case)?;
    let mut one_way = stack + wake.cost.clone();
    if PairPlacement::of(case) != Some(PairPlacement::SameCpu) {
        one_way = one_way + core_to_core::extra_lines_latency(facts, bytes)?;
    }
    let trip = 2.0 * one_way;
    let (low, high) = (trip.value() / wake.factor, trip.value() * wake.factor);
    if protocol != Protocol::Unix {
        return Ok(trip.with_interval((low, high)).derived(wake.rule));
    }
    // Readers and writers of a Unix socket wait in one queue: receiving a message wakes its sender.
    let double_wake_up = (trip.value() + 2.0 * wake.cost.value()) * RANGE_MARGIN;
    let remark = "up to one more wake-up each way, as a waiting sender is also woken when its message is received";
    Ok(trip.with_interval((low, high.max(double_wake_up))).explained(PredictionBasis::Derived, wake.rule, remark))
}

/// The part of the factor that is not another switch.
const RANGE_MARGIN: f64 = 1.1;

/// The switch or the wake-up between a send and its receive.
pub(super) struct WakeCost {
    /// The name of a formula that rests on it.
    pub rule: &'static str,
    pub cost: Expr,
    /// The predicted range of such a round trip, as a factor either way.
    pub factor: f64,
}

impl WakeCost {
    /// The one of a case's placement.
    pub(super) fn for_placement(facts: &PredictionInputs<'_>, case: &Case) -> Predicted<Self> {
        match PairPlacement::of(case) {
            // A switch.
            Some(PairPlacement::SameCpu) => {
                let switch = process_switch(facts)?;
                Ok(Self { rule: "switches", cost: switch, factor: 1.4 })
            }
            Some(PairPlacement::TwoCpus) | None => Self::cross_cpu(facts),
        }
    }

    /// Between two CPUs: waking the other one, measured over pipes, less their calls.
    pub(super) fn cross_cpu(facts: &PredictionInputs<'_>) -> Predicted<Self> {
        let over_pipes = Case::new().with_word(HandoffMechanism::Pipe);
        let wake_up = measured(facts, &cross_cpu::METRIC, &over_pipes)?;
        let calls = measured(facts, &SWITCH_CHANNEL_CALLS, &HandoffMechanism::Pipe.between_processes())?;
        Ok(Self { rule: "wake-ups", cost: (wake_up - calls).at_least_zero(), factor: 2.0 })
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::SWITCH_COST;

    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::catalogue::mem::CORE_TO_CORE;
    use kelvin_core::catalogue::net::{STACK_TCP, STACK_UNIX};

    fn case(placement: PairPlacement) -> Case {
        Case::new().with_word(placement).with_number(MESSAGE, 64)
    }

    #[test]
    fn rtt_is_twice_stack_plus_wake() {
        let values = [
            (STACK_TCP.id.as_str(), Some(3000.0)),
            (SWITCH_COST.id.as_str(), Some(1500.0)),
            (SWITCH_CHANNEL_CALLS.id.as_str(), Some(500.0)),
            (cross_cpu::METRIC.id.as_str(), Some(8500.0)),
            (CORE_TO_CORE.id.as_str(), Some(60.0)),
        ];
        with_facts(&values, |facts| {
            let same_cpu = predict(facts, &case(PairPlacement::SameCpu), Protocol::Tcp).unwrap();
            assert_eq!((same_cpu.value, same_cpu.high), (9000.0, 9000.0 * 1.4));
            assert_eq!(same_cpu.derivation, "2 x (3.00 µs + 1.50 µs) = 9.00 µs");
            assert!(predict(facts, &case(PairPlacement::SameCpu), Protocol::Unix).is_err());
            let two_cpus = predict(facts, &case(PairPlacement::TwoCpus), Protocol::Tcp).unwrap();
            assert_eq!((two_cpus.value, two_cpus.low), (22_000.0, 11_000.0));
            assert_eq!(two_cpus.inputs.len(), 4);
            // 1024 lines, of which 1023 come ten at a time.
            let large = Case::new().with_word(PairPlacement::TwoCpus).with_number(MESSAGE, 65_536);
            let large = predict(facts, &large, Protocol::Tcp).unwrap();
            assert!((large.value - 2.0 * (11_000.0 + 102.3 * 60.0)).abs() < 1e-6, "{large:?}");
            assert!(predict(facts, &case(PairPlacement::SameCpu), Protocol::Udp).is_err());
        });
    }

    #[test]
    fn unix_socket_may_switch_once_more() {
        let values = [(STACK_UNIX.id.as_str(), Some(1000.0)), (SWITCH_COST.id.as_str(), Some(2000.0))];
        with_facts(&values, |facts| {
            let trip = predict(facts, &case(PairPlacement::SameCpu), Protocol::Unix).unwrap();
            assert_eq!((trip.value, trip.high), (6000.0, 10_000.0 * 1.1));
            assert!(trip.derivation.contains("one more wake-up each way"), "{}", trip.derivation);
        });
    }

    #[test]
    fn quick_run_has_small_message_placements() {
        assert_eq!(cases(Effort::Quick, Protocol::Udp), [case(PairPlacement::SameCpu), case(PairPlacement::TwoCpus)]);
        assert_eq!(cases(Effort::Default, Protocol::Udp).len(), 10);
    }
}
