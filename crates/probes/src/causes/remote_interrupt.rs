//! Interrupting another CPU to wake a task on it: on one's own hardware a store to a register, in a virtual machine often two exits to
//! the hypervisor.

use super::cause::{AffectedMetrics, AmountSource, Cause, Mechanism};
use super::idle_wake::{INTERRUPTING_METRICS, WAKING_METRICS, negative_control};
use super::interventions::{KEEP_AWAKE, NO_IDLE_STATES};

pub(crate) static CAUSE: Cause = Cause {
    id: "remote_interrupt",
    what: "interrupting another CPU",
    how: "A task on another CPU that is busy or halted is woken by an interrupt, which the hypervisor of a virtual machine may have to \
          send and to deliver. A CPU that polls while it is idle needs none. Shown by what /dev/cpu_dma_latency held open at 0 saves \
          beyond CPUs that spinners keep awake: neither leaves an idle state, and only the first does without the interrupt.",
    cost: "That of waking an idle CPU.",
    pitfalls: &["Part of the difference is the preemption of the spinner, of the order of a switch on one CPU."],
    remedy: "let idle CPUs poll for a while (guest_halt_poll_ns of the module haltpoll), or keep both ends on one CPU",
    affected: AffectedMetrics::Listed(WAKING_METRICS.split_at(INTERRUPTING_METRICS).0),
    mechanisms: &[Mechanism::new(
        "with idle CPUs that poll, beyond CPUs kept awake",
        AmountSource::Excess([KEEP_AWAKE, NO_IDLE_STATES]),
    )],
    negative_control,
    size: |_| None,
};
