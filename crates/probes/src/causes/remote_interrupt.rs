//! Interrupting another CPU to wake a task on it: on one's own hardware a store to a register, in a virtual machine often two exits to
//! the hypervisor.

use super::cause::{AffectedMetrics, AmountSource, Cause, Mechanism};
use super::idle_wake::{INTERRUPTING_METRICS, WAKING_METRICS, negative_control};
use super::interventions::{KEEP_AWAKE, NO_IDLE_STATES};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(WAKING_METRICS.split_at(INTERRUPTING_METRICS).0),
    mechanisms: &[Mechanism::new(
        "with idle CPUs that poll, beyond CPUs kept awake",
        AmountSource::Excess([KEEP_AWAKE, NO_IDLE_STATES]),
    )],
    negative_control,
    ..Cause::new("remote_interrupt", "interrupting another CPU", include_str!("remote_interrupt.md"))
};
