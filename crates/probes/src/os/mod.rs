//! Services of the operating system: calls, processes, threads, switches, signals, timers, local communication.

mod syscall_null;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[&syscall_null::PROBE];
