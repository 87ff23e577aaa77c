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
    AffectedMetric, AffectedMetrics, AmountSource, Cause, CauseContext, Intervention, Mechanism, at_all_cases, at_word,
};
use super::interventions::{KEEP_AWAKE, NO_IDLE_STATES};

/// The placement at which another CPU is woken.
const TWO_CPUS: kelvin_core::AxisWord = PairPlacement::TwoCpus.point();

pub(crate) static CAUSE: Cause = Cause {
    id: "idle_wake",
    what: "waking an idle CPU",
    how: "A CPU with nothing to do enters an idle state, and whoever wakes it waits until it has left that state. In a virtual machine \
          it is given back to the host, which has to run it again: tens of microseconds. Shown by keeping the CPUs that the probe uses \
          awake, in two ways: by a spinner of priority SCHED_IDLE on each, and by /dev/cpu_dma_latency held open at 0. The first \
          replaces the exit from idle by a preemption, the second by a poll; as much counts as both show. Where the second does \
          nothing because the host halts the CPU, the figure with the other CPU idle for 1 us and for 1 ms before each operation takes \
          its place.",
    cost: "While a round under its control runs, the CPUs use power and, on a shared core, the other thread's time. /dev/cpu_dma_latency \
           needs root. Both end with the round, or with the process.",
    pitfalls: &[
        "A spinner takes turns with what it keeps awake: a figure of one CPU that never goes idle must not move, and is measured as a control.",
        "What sysfs says of idle states is often wrong by ten times, and says nothing of the host.",
    ],
    remedy: "spin before sleeping (net.core.busy_poll for sockets), or keep both ends on one CPU",
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
};

/// Metrics of which an operation wakes another CPU, first those that interrupt it to wake a task there, or its own.
pub(crate) static WAKING_METRICS: [AffectedMetric; 17] = [
    at_word(&RTT_TCP, TWO_CPUS),
    at_word(&RTT_UDP, TWO_CPUS),
    at_word(&RTT_UNIX, TWO_CPUS),
    at_word(&CONNECT, TWO_CPUS),
    at_word(&CLOSE, TWO_CPUS),
    at_word(&CRR, TWO_CPUS),
    at_word(&LOADED_ROUND_TRIP, TWO_CPUS),
    at_word(&BANDWIDTH_TCP, TWO_CPUS),
    at_word(&BANDWIDTH_TCP_METHOD, TWO_CPUS),
    at_word(&BANDWIDTH_TCP_SYSTEM, TWO_CPUS),
    at_word(&BANDWIDTH_UNIX, TWO_CPUS),
    at_all_cases(&WAKE_TCP),
    at_word(&IPC_LATENCY, TWO_CPUS),
    at_all_cases(&SWITCH_CROSS_CPU),
    at_word(&BANDWIDTH_UDP, TWO_CPUS),
    at_word(&IPC_BANDWIDTH, TWO_CPUS),
    at_all_cases(&TIMER_WAKEUP),
];
/// How many of them interrupt the other CPU.
pub(crate) const INTERRUPTING_METRICS: usize = 14;

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
fn size_by_formula(scene: &CauseContext<'_>) -> Option<FigureDifference> {
    let is_there_and_back = ROUND_TRIP_METRICS.iter().any(|metric| metric.id == scene.metric.id);
    let by_futex = HandoffMechanism::of(scene.case) == Some(HandoffMechanism::Futex);
    let mechanism = if by_futex { HandoffMechanism::Futex } else { HandoffMechanism::Pipe };
    is_there_and_back.then(|| FigureDifference {
        minuend: MetricCase { metric: SWITCH_CROSS_CPU.id, case: Case::new().with_word(mechanism) },
        subtrahend: MetricCase { metric: SWITCH_COST.id, case: mechanism.between_processes() },
        factor: 2.0,
    })
}
