//! Interrupting another CPU to wake a task on it: on one's own hardware a store to a register, in a virtual machine often two exits to
//! the hypervisor.

use kelvin_catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_SYSTEM, BANDWIDTH_TCP_WAY, BANDWIDTH_UNIX, CLOSE, CONNECT, CRR, LOADED, RTT_TCP,
    RTT_UDP, RTT_UNIX, WAKE_TCP,
};
use kelvin_catalogue::os::{IPC_FUTEX_LATENCY, IPC_PIPE_LATENCY, IPC_UNIX_LATENCY, SWITCH_CROSS_CPU};

use crate::cause::{Cause, Means, Mechanism, Touch, Touches};
use crate::controls::{AWAKE, NO_IDLE_STATES};
use crate::idle_wake::{BETWEEN, bystander};

pub(crate) static CAUSE: Cause = Cause {
    id: "remote_interrupt",
    what: "interrupting another CPU",
    how: "A task on another CPU that is busy or halted is woken by an interrupt, which the hypervisor of a virtual machine may have to \
          send and to deliver. A CPU that polls while it is idle needs none. Shown by what /dev/cpu_dma_latency held open at 0 saves \
          beyond CPUs that spinners keep awake: neither leaves an idle state, and only the first does without the interrupt.",
    cost: "That of waking an idle CPU.",
    pitfalls: &["Part of the difference is the preemption of the spinner, of the order of a switch on one CPU."],
    helps: "let idle CPUs poll for a while (guest_halt_poll_ns of the module haltpoll), or keep both ends on one CPU",
    touches: Touches::These(&[
        Touch::at(&RTT_TCP, BETWEEN),
        Touch::at(&RTT_UDP, BETWEEN),
        Touch::at(&RTT_UNIX, BETWEEN),
        Touch::at(&CONNECT, BETWEEN),
        Touch::at(&CLOSE, BETWEEN),
        Touch::at(&CRR, BETWEEN),
        Touch::at(&LOADED, BETWEEN),
        Touch::at(&BANDWIDTH_TCP, BETWEEN),
        Touch::at(&BANDWIDTH_TCP_WAY, BETWEEN),
        Touch::at(&BANDWIDTH_TCP_SYSTEM, BETWEEN),
        Touch::at(&BANDWIDTH_UNIX, BETWEEN),
        Touch::always(&WAKE_TCP),
        Touch::at(&IPC_PIPE_LATENCY, BETWEEN),
        Touch::at(&IPC_UNIX_LATENCY, BETWEEN),
        Touch::at(&IPC_FUTEX_LATENCY, BETWEEN),
        Touch::always(&SWITCH_CROSS_CPU),
    ]),
    mechanisms: &[Mechanism::new(
        "with idle CPUs that poll, beyond CPUs kept awake",
        Means::Beyond([AWAKE, NO_IDLE_STATES]),
    )],
    bystander,
    size: |_| None,
};
