//! What kelvin measures: one file per probe, and the list of them.
//!
//! To add a probe, add a file that holds a `pub(crate) static PROBE: Probe`, and a line in its area's list. The list is
//! explicit because it fixes the order of runs and reports.
#![forbid(unsafe_code)]

mod background;
pub mod calibration;
mod cases;
pub mod causes;
mod cpu;
mod default_costs;
mod descriptors;
mod file;
mod formula;
mod load;
mod memory;
mod net;
mod os;
mod prelude;
mod program;
mod published;
mod reasons;
mod reference_machines;
mod room;
mod spinners;
mod task_windows;
#[cfg(test)]
mod testing;
mod transfer;
mod truth;
mod working_cpus;

use std::time::Duration;

pub use file::extent::ExtentFile;
use kelvin_core::Case;
use kelvin_harness::{BoundedMetric, Probe, ProbeError, Setup};
pub use reference_machines::{Primitive, headline_table, primitive_metrics, reference_machines, reference_records};

/// All probes, in the order of reports.
pub fn all() -> Vec<&'static Probe> {
    [cpu::PROBES, os::PROBES, memory::PROBES, file::PROBES, net::PROBES, transfer::PROBES, load::PROBES, truth::PROBES]
        .concat()
}

/// The metrics that hardware bounds, each at most once.
pub fn bounded_metrics() -> Vec<&'static BoundedMetric> {
    net::BOUNDED.to_vec()
}

/// What a round of a probe at a case is expected to take in addition to its timing, before any was measured.
pub fn expected_cost(probe: &Probe, case: &Case) -> Duration {
    default_costs::expected_round_time(probe, case)
}

/// Bytes that one round of a case of the study of transfers moves into files; none for a case of another probe.
pub fn transferred_bytes(case: &Case) -> u64 {
    transfer::bytes_per_round(case)
}

/// The cases of the study of transfers with every combination of their factors, of ends that are processes.
pub fn all_transfer_cases() -> Vec<Case> {
    transfer::all_combinations()
}

/// A case of the study of remote files at another size of the file, where its blocks come from the server.
pub fn remote_case_at(case: &Case, bytes: u64) -> Case {
    file::remote::case_at_size(case, bytes)
}

/// A case of streams to another host, with no more of them than an agent of this many CPUs has CPUs for.
pub fn peer_case_on(case: &Case, agent_cpus: u64) -> Case {
    net::peer::bandwidth::case_on_agent(case, agent_cpus)
}

/// The CPUs that an agent on this machine may use, in the order in which it puts streams on them.
pub fn agent_cpu_order() -> Vec<u32> {
    net::peer::stream_cpus::agent_cpu_order()
}

/// Writes the remote and the local file of this many bytes that this study reads, before the first round.
///
/// # Errors
/// Those of writing; too little room, or a limit on what may be written.
pub fn write_remote_files(setup: &Setup, bytes: u64) -> Result<(), ProbeError> {
    file::remote::write_files(setup, bytes)
}

/// Removes what killed probe processes left behind and the kernel does not remove with a process. Call it when no probe
/// of this run is running any more.
pub fn remove_leftovers() {
    truth::remove_leftovers();
}
