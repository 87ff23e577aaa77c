//! Facts and hazards of a Linux machine, from /proc, /sys, cpuid and the firmware's tables.
//!
//! Everything is read below a root directory: `/` for this machine, or a recorded tree. Each fact is known with its
//! source or unknown with a reason that a user can act on; nothing is guessed, and nothing here panics on the content
//! of a file.
#![forbid(unsafe_code)]

mod container;
mod counters;
mod cpu;
mod cpuid;
mod disks;
mod disturbances;
mod edac;
mod file_cache;
mod hardware_counters;
mod hazards;
mod identity;
mod kernel;
mod limits;
pub mod memory;
mod memory_modules;
mod nics;
mod platform;
pub mod redact;
pub mod resources;
mod root;
mod smbios;
#[cfg(test)]
mod tests;
mod tlb;
mod topology;
pub mod tune;

use std::path::Path;
use std::time::Duration;

use kelvin_core::{Fact, Machine};
use kelvin_sys::procfs::CpuThrottling;

use crate::cpuid::Cpuid;
use crate::root::FileRoot;
use crate::smbios::Smbios;

pub use counters::throttle_file;
pub use disturbances::DisturbanceMonitor;
pub use file_cache::{BoundTerm, FileCache, FileCacheBound, file_cache, file_page_bytes};
pub use hazards::{busy_siblings, hazards, siblings_not_sampled};
pub use identity::hardware_identity;
pub use topology::similar_cpus;

/// For how long, by that file, the quota kept the control group from running, summed over processors.
pub fn throttled_time(file: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(file).ok()?;
    CpuThrottling::parse(&text).map(|throttling| Duration::from_micros(throttling.microseconds))
}

/// The host whose files are below a root directory, by the hash of its machine id, as [`read`] has it among its facts.
pub fn host(root: &Path) -> Fact<String> {
    identity::host(FileRoot::new(root))
}

/// The name of the host whose files are below a root directory, as the kernel has it. It is no part of a machine: it identifies its owner.
pub fn host_name(root: &Path) -> Fact<String> {
    FileRoot::new(root).fact("/proc/sys/kernel/hostname", root::non_empty)
}

/// The CPUs that the control group of this process allows, whether or not the process is bound to fewer; `None` where no group that can be
/// seen names any.
pub fn group_cpus(root: &Path) -> Option<Vec<u32>> {
    topology::group_cpus(FileRoot::new(root))
}

/// The CPUs that are online.
pub fn online_cpus(root: &Path) -> Fact<Vec<u32>> {
    topology::online_cpus(FileRoot::new(root))
}

/// All facts of the machine whose files are below a root directory; only for `/`, this machine, are the processor and
/// the drivers queried too. Those of one CPU are of the one that is measured by default.
pub fn read(root: &Path) -> Machine {
    read_for_cpu(root, None)
}

/// The same, with the facts of this CPU where it is named.
pub fn read_for_cpu(root: &Path, cpu: Option<u32>) -> Machine {
    let root = FileRoot::new(root);
    let smbios = Smbios::read(root);
    let topology = topology::read(root, cpu);
    let number = cpu.unwrap_or_else(|| topology::measured_cpu(&topology));
    let cpuid = Cpuid::new(root, number);
    let (architecture, cpu) = cpu::read(cpu::CpuSources { root, cpuid: &cpuid, smbios: &smbios, number });
    let platform = platform::read(root, architecture, &cpuid);
    let mut machine = Machine {
        identity: String::new(),
        architecture,
        cpu,
        topology,
        memory: memory::read(root, architecture, &smbios),
        disks: disks::disks(root),
        mounts: disks::mounts(root),
        nics: nics::read(root, &platform.hypervisor),
        kernel: kernel::read(root),
        platform,
        limits: limits::read(root),
    };
    machine.identity = identity::identity(&machine);
    machine
}
