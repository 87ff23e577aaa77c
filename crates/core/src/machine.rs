//! A machine: hardware and operating-system facts, each with its source or the reason why it is unknown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Word;
use crate::{CacheKind, HardwareEvent, Name, Topology};

/// A fact with its source, or the reason why it is not known. Never a guess.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fact<T> {
    /// It is known.
    Known {
        /// The value.
        value: T,
        /// Its source: a path, an instruction, a measurement.
        source: String,
    },
    /// It is unknown.
    Unknown {
        /// Why not.
        reason: String,
    },
}

/// Why a fact is unknown that nobody has read.
const NOT_READ: &str = "not read";

impl<T> Default for Fact<T> {
    /// A fact not read yet.
    fn default() -> Self {
        Self::unknown(NOT_READ)
    }
}

impl<T> Fact<T> {
    /// A known fact.
    pub fn known(value: T, source: impl Into<String>) -> Self {
        Self::Known { value, source: source.into() }
    }

    /// An unknown fact.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown { reason: reason.into() }
    }

    /// The value, if it is known.
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown { .. } => None,
        }
    }

    /// Whether nobody has read it: in a run of a version that did not know it.
    pub fn is_not_read(&self) -> bool {
        matches!(self, Self::Unknown { reason } if reason == NOT_READ)
    }

    /// The source of a known fact, or the reason of an unknown one.
    pub fn source_or_reason(&self) -> &str {
        match self {
            Self::Known { source, .. } => source,
            Self::Unknown { reason } => reason,
        }
    }

    /// The fact without its value, which is borrowed.
    pub fn as_ref(&self) -> Fact<&T> {
        match self {
            Self::Known { value, source } => Fact::known(value, source.as_str()),
            Self::Unknown { reason } => Fact::unknown(reason.as_str()),
        }
    }

    /// The same fact with another value; source and reason stay.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known { value, source } => Fact::Known { value: change(value), source },
            Self::Unknown { reason } => Fact::Unknown { reason },
        }
    }
}

/// A machine. Sizes in bytes, frequencies in hertz.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// A hash that identifies the host and its configuration across runs; no host name or serial number can be found from it.
    #[schemars(with = "Word")]
    pub identity: String,
    /// `x86_64` or `aarch64`.
    #[schemars(with = "Word")]
    pub architecture: Name,
    /// The processor.
    pub cpu: Cpu,
    /// CPUs and how they share.
    pub topology: Topology,
    /// Main memory.
    pub memory: Memory,
    /// Block devices.
    pub disks: Vec<BlockDevice>,
    /// Mounted file systems with data (no pseudo file systems).
    pub mounts: Vec<Mount>,
    /// Network interfaces.
    pub nics: Vec<Nic>,
    /// Kernel and distribution.
    pub kernel: Kernel,
    /// Hardware, hypervisor or container underneath.
    pub platform: Platform,
    /// Limits set on this process.
    pub limits: Limits,
}

/// The processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// The CPU that is measured, whose facts these are; not read by earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// `AuthenticAMD`, `GenuineIntel`, or the implementer on Arm.
    pub vendor: Fact<String>,
    /// Marketing name.
    pub model_name: Fact<String>,
    /// Family number (x86), displayed family.
    pub family: Fact<u32>,
    /// Model number (x86), or part number (Arm).
    pub model: Fact<u32>,
    /// Stepping (x86), or revision (Arm).
    pub stepping: Fact<u32>,
    /// Microarchitecture: `Zen 5`, `Skylake-SP`, `Neoverse V1`.
    pub microarchitecture: Fact<String>,
    /// Microcode revision.
    pub microcode: Fact<String>,
    /// Nominal (base) frequency.
    pub nominal_hz: Fact<f64>,
    /// Highest (boost) frequency.
    pub maximum_hz: Fact<f64>,
    /// Frequency measured from a chain of dependent multiplies, once it is.
    pub measured_hz: Fact<f64>,
    /// Frequency of the time-stamp counter, as stated by the processor or hypervisor.
    pub counter_hz: Fact<f64>,
    /// Instruction-set flags as the kernel prints them.
    pub flags: Fact<Vec<String>>,
    /// Translation look-aside buffers.
    pub tlbs: Fact<Vec<Tlb>>,
    /// Frequency governor of the CPU that probes run on.
    pub governor: Fact<String>,
    /// Mitigations in force, by vulnerability.
    pub mitigations: Fact<Vec<Mitigation>>,
    /// What the processor counts; not read by earlier versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub hardware_counters: Fact<HardwareCounters>,
}

/// What a processor counts for a process, as far as this one may read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HardwareCounters {
    /// The events that can be counted at the same time.
    pub events: Vec<HardwareEvent>,
    /// Whether what the kernel does for the process is left out, because it may not be counted.
    pub excludes_kernel: bool,
}

/// A translation look-aside buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tlb {
    /// 1 or 2.
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    pub kind: CacheKind,
    /// Page size in bytes that these entries hold.
    pub page_bytes: u64,
    /// Number of entries.
    pub entries: u32,
    /// Ways; 0 is fully associative.
    pub ways: u32,
}

/// A vulnerability and what the kernel does about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mitigation {
    /// File name below `/sys/devices/system/cpu/vulnerabilities`.
    pub vulnerability: String,
    /// What that file says.
    pub status: String,
}

/// Main memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Total.
    pub total_bytes: Fact<u64>,
    /// Available without swapping when it was read.
    pub available_bytes: Fact<u64>,
    /// Swap space.
    pub swap_bytes: Fact<u64>,
    /// Base page size.
    pub page_bytes: Fact<u64>,
    /// Huge page sizes that the kernel offers.
    pub huge_page_bytes: Fact<Vec<u64>>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    pub transparent_huge_pages: Fact<String>,
    /// Type: `DDR5`.
    pub kind: Fact<String>,
    /// Transfers per second of one channel.
    pub transfers_per_second: Fact<f64>,
    /// Memory modules (DIMMs), alike ones together; not read by earlier versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub modules: Fact<Vec<ModuleGroup>>,
    /// Memory channels that are populated.
    pub channels: Fact<u32>,
    /// Peak bandwidth, bytes per second.
    pub peak_bytes_per_second: Fact<f64>,
}

/// Memory modules that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleGroup {
    /// How many there are.
    pub count: u32,
    /// Size of each.
    pub bytes: u64,
    /// Transfers per second that each is set to, if that is stated.
    pub transfers_per_second: Option<f64>,
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockDevice {
    /// Kernel name: `nvme0n1`.
    pub name: String,
    /// Model.
    pub model: Fact<String>,
    /// Size.
    pub bytes: Fact<u64>,
    /// Bus and its speed: `nvme, 8 GT/s x4`.
    pub link: Fact<String>,
    /// I/O scheduler in use.
    pub scheduler: Fact<String>,
    /// Hardware queues.
    pub queues: Fact<u32>,
    /// Maximum requests in a queue.
    pub queue_depth: Fact<u32>,
    /// Write cache: `write back` or `write through`.
    pub write_cache: Fact<String>,
    /// Whether the device reports that it rotates.
    pub rotational: Fact<bool>,
    /// Logical sector.
    pub logical_block_bytes: Fact<u32>,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mount {
    /// Where.
    pub target: String,
    /// Device or remote.
    pub source: String,
    /// `ext4`.
    pub kind: String,
    /// Options.
    pub options: String,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nic {
    /// `eth0`.
    pub name: String,
    /// Driver.
    pub driver: Fact<String>,
    /// Advertised link speed, bits per second.
    pub bits_per_second: Fact<f64>,
    /// Line rate in bits per second, which nothing can exceed: the advertised speed, if a physical line stands behind it.
    pub line_rate: Fact<f64>,
    /// Largest payload of a frame.
    pub mtu: Fact<u32>,
    /// `up`, `down`.
    pub state: Fact<String>,
    /// Offloads that are on: `tx-checksum`, `tso`, `gro`.
    pub offloads: Fact<Vec<String>>,
}

/// Kernel and distribution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// Release: `6.18.44`.
    pub release: Fact<String>,
    /// Version line.
    pub version: Fact<String>,
    /// Distribution: `Debian GNU/Linux 12 (bookworm)`.
    pub distribution: Fact<String>,
    /// C library: `glibc 2.36`.
    pub libc: Fact<String>,
    /// Boot line; without parameters that matter to no figure, if some are left out.
    pub command_line: Fact<String>,
    /// How many parameters of the boot line are left out; none if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_boot_parameters: Option<u32>,
    /// Preemption model: `none`, `voluntary`, `full`, `dynamic (…)`.
    pub preemption: Fact<String>,
    /// Ticks per second of the timer, if known.
    pub timer_hz: Fact<u32>,
    /// Scheduler: `EEVDF`, `CFS`, or a loaded sched_ext one.
    pub scheduler: Fact<String>,
    /// TCP congestion control.
    pub congestion_control: Fact<String>,
    /// Clock source in use.
    pub clock_source: Fact<String>,
}

/// Hardware, hypervisor or container underneath.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Platform {
    /// Vendor and product of the machine or the virtual one.
    pub product: Fact<String>,
    /// Hypervisor: `KVM`; known and `None` on bare metal.
    pub hypervisor: Fact<Option<String>>,
    /// Container: `docker`; known and `None` outside of one.
    pub container: Fact<Option<String>>,
    /// What the machine is built as, by its firmware; left out by runs stored before it was read.
    pub chassis: Fact<Chassis>,
    /// The BIOS or other boot firmware; not read by earlier versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub bios: Fact<Bios>,
    /// The host: a keyed hash of its machine id (machine-id(5)), in hexadecimal, from which the id cannot be found; not read by earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub host: Fact<String>,
}

/// A BIOS, or other boot firmware, as it names itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bios {
    /// Who made it.
    pub vendor: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// When it was released: `2024-03-11`.
    pub date: Option<String>,
}

/// What a machine is built as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Chassis {
    /// A server, in a rack or not.
    Server,
    /// A desktop, tower or small computer.
    Desktop,
    /// A laptop or tablet.
    Laptop,
}

impl Chassis {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Desktop => "desktop",
            Self::Laptop => "laptop",
        }
    }
}

/// Limits set on this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// CPUs' worth of time in the cgroup's quota; known and `None` without a quota.
    pub cpu_quota: Fact<Option<f64>>,
    /// Memory that the cgroup allows; known and `None` without a limit.
    pub memory_bytes: Fact<Option<u64>>,
    /// Processes that the user or the cgroup may have; known and `None` without a limit.
    pub processes: Fact<Option<u64>>,
    /// Open files a process may have.
    pub open_files: Fact<u64>,
    /// cgroup version: 1, 2, or 0 for none.
    pub cgroup_version: Fact<u32>,
}

/// A fact as a line for people: group, label, text, and its source or why it is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactRow {
    /// Group: `CPU`.
    pub group: &'static str,
    /// Label: `Nominal frequency`.
    pub label: String,
    /// The value as text, `None` if unknown.
    pub text: Option<String>,
    /// Source, or reason.
    pub source: String,
}
