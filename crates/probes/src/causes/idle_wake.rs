//! Waking an idle CPU: an interrupt to it, and its exit from an idle state; in a virtual machine often through the host, which has
//! given the CPU to others.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_METHOD, BANDWIDTH_TCP_SYSTEM, BANDWIDTH_UDP, BANDWIDTH_UNIX, CLOSE, CONNECT, CRR,
    LOADED_ROUND_TRIP, RTT_TCP, RTT_UDP, RTT_UNIX, WAKE_TCP,
};
use kelvin_core::catalogue::os::{
    HandoffMechanism, IPC_BANDWIDTH, IPC_LATENCY, SWITCH_COST, SWITCH_CROSS_CPU, TIMER_WAKEUP,
};
use kelvin_core::{Case, FigureDifference, Metric, MetricCase};

use super::cause::{
    AffectedCases, AffectedMetrics, AmountSource, Cause, CauseContext, Intervention, Mechanism, at_all_cases, at_word,
};
use super::interventions::{KEEP_AWAKE, NO_IDLE_STATES};

/// The placement at which another CPU is woken.
const TWO_CPUS: kelvin_core::AxisWord = PairPlacement::TwoCpus.point();

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&WAKING_METRICS),
    mechanisms: &[
        Mechanism::new("with the CPUs kept awake by spinners", AmountSource::Without(KEEP_AWAKE)),
        Mechanism {
            idle_in_guest: Some(
                "it does nothing here: the kernel has no idle state to avoid, and the host halts the CPU",
            ),
            ..Mechanism::new("with /dev/cpu_dma_latency at 0", AmountSource::Without(NO_IDLE_STATES))
        },
        Mechanism {
            is_substitute: true,
            ..Mechanism::new("from 1 us to 1 ms of idleness before it", AmountSource::Sweep([SHORT_GAP, LONG_GAP]))
        },
    ],
    negative_control,
    size: size_by_formula,
    ..Cause::new("idle_wake", "waking an idle CPU", include_str!("idle_wake.md"))
};

/// Metrics of which an operation wakes another CPU, first those that interrupt it to wake a task there, or its own.
pub(crate) static WAKING_METRICS: [AffectedCases; 5] = [
    at_word(&[&RTT_TCP, &RTT_UDP, &RTT_UNIX, &CONNECT, &CLOSE, &CRR, &LOADED_ROUND_TRIP, &IPC_LATENCY], TWO_CPUS),
    at_word(&[&BANDWIDTH_TCP, &BANDWIDTH_TCP_METHOD, &BANDWIDTH_TCP_SYSTEM, &BANDWIDTH_UNIX], TWO_CPUS),
    at_all_cases(&[&WAKE_TCP, &SWITCH_CROSS_CPU]),
    at_word(&[&BANDWIDTH_UDP, &IPC_BANDWIDTH], TWO_CPUS),
    at_all_cases(&[&TIMER_WAKEUP]),
];
/// How many of these interrupt the other CPU.
pub(crate) const INTERRUPTING_METRICS: usize = 3;

const SHORT_GAP: Intervention = Intervention {
    id: "idle_for_1us",
    apply: |_, conditions| {
        conditions.setup.idle_before_operation = 1_000;
        Ok(())
    },
};

const LONG_GAP: Intervention = Intervention {
    id: "idle_for_1ms",
    apply: |_, conditions| {
        conditions.setup.idle_before_operation = 1_000_000;
        Ok(())
    },
};

/// Metrics of which an operation wakes the other CPU and is answered by it.
static ROUND_TRIP_METRICS: [&Metric; 4] = [&RTT_TCP, &RTT_UDP, &RTT_UNIX, &IPC_LATENCY];

/// A switch on one CPU, which never goes idle between the two.
pub(crate) fn negative_control(_: &CauseContext<'_>) -> MetricCase {
    MetricCase { metric: SWITCH_COST.id, case: HandoffMechanism::Pipe.between_processes() }
}

/// A remote wake-up less the switch that it contains, there and back.
fn size_by_formula(context: &CauseContext<'_>) -> Option<FigureDifference> {
    let is_round_trip = ROUND_TRIP_METRICS.iter().any(|metric| metric.id == context.metric.id);
    let by_futex = HandoffMechanism::of(context.case) == Some(HandoffMechanism::Futex);
    let mechanism = if by_futex { HandoffMechanism::Futex } else { HandoffMechanism::Pipe };
    is_round_trip.then(|| FigureDifference {
        minuend: MetricCase { metric: SWITCH_CROSS_CPU.id, case: Case::new().with_word(mechanism) },
        subtrahend: MetricCase { metric: SWITCH_COST.id, case: mechanism.between_processes() },
        factor: 2.0,
    })
}
