//! Interrupting another CPU to wake a task on it: on one's own hardware a store to a register, in a virtual machine often two exits to
//! the hypervisor.

use kelvin_core::catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_METHOD, BANDWIDTH_TCP_SYSTEM, BANDWIDTH_UNIX, CLOSE, CONNECT, CRR, LOADED_ROUND_TRIP,
    RTT_TCP, RTT_UDP, RTT_UNIX, WAKE_TCP,
};
use kelvin_core::catalogue::os::{IPC_LATENCY, SWITCH_CROSS_CPU};

use super::cause::{AffectedMetrics, AmountSource, Cause, Mechanism, at_all_cases, at_word};
use crate::causes::idle_wake::{TWO_CPUS, negative_control};
use crate::causes::interventions::{KEEP_AWAKE, NO_IDLE_STATES};

pub(crate) static CAUSE: Cause = Cause {
    id: "remote_interrupt",
    what: "interrupting another CPU",
    how: "A task on another CPU that is busy or halted is woken by an interrupt, which the hypervisor of a virtual machine may have to \
          send and to deliver. A CPU that polls while it is idle needs none. Shown by what /dev/cpu_dma_latency held open at 0 saves \
          beyond CPUs that spinners keep awake: neither leaves an idle state, and only the first does without the interrupt.",
    cost: "That of waking an idle CPU.",
    pitfalls: &["Part of the difference is the preemption of the spinner, of the order of a switch on one CPU."],
    remedy: "let idle CPUs poll for a while (guest_halt_poll_ns of the module haltpoll), or keep both ends on one CPU",
    affected: AffectedMetrics::Listed(&[
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
    ]),
    mechanisms: &[Mechanism::new(
        "with idle CPUs that poll, beyond CPUs kept awake",
        AmountSource::Excess([KEEP_AWAKE, NO_IDLE_STATES]),
    )],
    negative_control,
    size: |_| None,
};
