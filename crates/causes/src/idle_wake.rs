//! Waking an idle CPU: an interrupt to it, and its exit from an idle state; in a virtual machine often through the host, which has
//! given the CPU to others.

use kelvin_catalogue::Placement;
use kelvin_catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_SYSTEM, BANDWIDTH_TCP_WAY, BANDWIDTH_UDP, BANDWIDTH_UNIX, CLOSE, CONNECT, CRR, LOADED,
    RTT_TCP, RTT_UDP, RTT_UNIX, WAKE_TCP,
};
use kelvin_catalogue::os::{
    IPC_FUTEX_BANDWIDTH, IPC_FUTEX_LATENCY, IPC_PIPE_BANDWIDTH, IPC_PIPE_LATENCY, IPC_UNIX_BANDWIDTH, IPC_UNIX_LATENCY,
    SWITCH_CROSS_CPU, SWITCH_PROCESS_FUTEX, SWITCH_PROCESS_PIPE, TIMER_WAKEUP, TokenMeans,
};
use kelvin_model::{Case, Difference, Metric, MetricAt};

use crate::cause::{Cause, Control, Means, Mechanism, Scene, Touch, Touches};
use crate::controls::{AWAKE, NO_IDLE_STATES};

/// The placement at which another CPU is woken.
pub(crate) const BETWEEN: kelvin_model::Point = Placement::TwoCpus.point();

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
        "A spinner takes turns with what it keeps awake: a figure of one CPU that never goes idle must not move, and is measured beside it.",
        "What sysfs says of idle states is often wrong by ten times, and says nothing of the host.",
    ],
    helps: "spin before sleeping (net.core.busy_poll for sockets), or keep both ends on one CPU",
    touches: Touches::These(&WAKING),
    mechanisms: &[
        Mechanism::new("with the CPUs kept awake by spinners", Means::Without(AWAKE)),
        Mechanism {
            how: "with /dev/cpu_dma_latency at 0",
            means: Means::Without(NO_IDLE_STATES),
            idle_in_guest: Some(
                "it does nothing here: the kernel has no idle state to avoid, and the host halts the CPU",
            ),
            is_substitute: false,
        },
        Mechanism {
            how: "from 1 us to 1 ms of idleness before it",
            means: Means::Sweep([SHORT_GAP, LONG_GAP]),
            idle_in_guest: None,
            is_substitute: true,
        },
    ],
    bystander,
    size,
};

/// Metrics of which an operation wakes another CPU, or its own.
static WAKING: [Touch; 21] = [
    Touch::at(&RTT_TCP, BETWEEN),
    Touch::at(&RTT_UDP, BETWEEN),
    Touch::at(&RTT_UNIX, BETWEEN),
    Touch::at(&CONNECT, BETWEEN),
    Touch::at(&CLOSE, BETWEEN),
    Touch::at(&CRR, BETWEEN),
    Touch::at(&LOADED, BETWEEN),
    Touch::at(&BANDWIDTH_UNIX, BETWEEN),
    Touch::at(&BANDWIDTH_TCP, BETWEEN),
    Touch::at(&BANDWIDTH_TCP_WAY, BETWEEN),
    Touch::at(&BANDWIDTH_TCP_SYSTEM, BETWEEN),
    Touch::at(&BANDWIDTH_UDP, BETWEEN),
    Touch::always(&WAKE_TCP),
    Touch::at(&IPC_PIPE_LATENCY, BETWEEN),
    Touch::at(&IPC_UNIX_LATENCY, BETWEEN),
    Touch::at(&IPC_FUTEX_LATENCY, BETWEEN),
    Touch::at(&IPC_PIPE_BANDWIDTH, BETWEEN),
    Touch::at(&IPC_UNIX_BANDWIDTH, BETWEEN),
    Touch::at(&IPC_FUTEX_BANDWIDTH, BETWEEN),
    Touch::always(&SWITCH_CROSS_CPU),
    Touch::always(&TIMER_WAKEUP),
];

const SHORT_GAP: Control = Control {
    id: "idle_for_1us",
    apply: |_, conditions| {
        conditions.setup.gap = 1_000;
        Ok(())
    },
};

const LONG_GAP: Control = Control {
    id: "idle_for_1ms",
    apply: |_, conditions| {
        conditions.setup.gap = 1_000_000;
        Ok(())
    },
};

/// Metrics of which an operation wakes the other CPU and is answered by it.
static THERE_AND_BACK: [&Metric; 6] =
    [&RTT_TCP, &RTT_UDP, &RTT_UNIX, &IPC_PIPE_LATENCY, &IPC_UNIX_LATENCY, &IPC_FUTEX_LATENCY];

/// A switch on one CPU, which never goes idle between the two.
pub(crate) fn bystander(_: &Scene<'_>) -> MetricAt {
    MetricAt { metric: SWITCH_PROCESS_PIPE.id, case: Case::new() }
}

/// A remote wake-up less the switch that it contains, there and back.
fn size(scene: &Scene<'_>) -> Option<Difference> {
    let is_there_and_back = THERE_AND_BACK.iter().any(|metric| metric.id == scene.metric.id);
    let (means, switch) = match scene.metric.id == IPC_FUTEX_LATENCY.id {
        true => (TokenMeans::Futex, &SWITCH_PROCESS_FUTEX),
        false => (TokenMeans::Pipe, &SWITCH_PROCESS_PIPE),
    };
    is_there_and_back.then(|| Difference {
        of: MetricAt { metric: SWITCH_CROSS_CPU.id, case: Case::new().at(means) },
        less: MetricAt { metric: switch.id, case: Case::new() },
        times: 2.0,
    })
}
