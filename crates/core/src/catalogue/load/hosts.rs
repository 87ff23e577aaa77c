//! What the hosts of a study of a server under load, and its two processes on them, did with a number of users.
//!
//! They show what a limit comes from and what else was going on; no verdict rests on one alone.

use crate::{Better, Metric, Unit};

use super::per_part_metric;
use crate::catalogue::axis_words::words;

/// The metrics of a host with a number of users, in the order of reports.
pub const HOST_METRICS: &[&Metric] = &[
    &CPU_USER,
    &CPU_SYSTEM,
    &CPU_STEAL,
    &CPU_THROTTLED,
    &CPU_ALLOWED,
    &RUNNABLE_TASKS,
    &THREADS_WITHOUT_CPU,
    &CONTEXT_SWITCHES,
    &PRESSURE_CPU,
    &PRESSURE_IO,
    &PRESSURE_IO_FULL,
    &PRESSURE_MEMORY,
    &PRESSURE_MEMORY_FULL,
    &MEMORY_AVAILABLE,
    &FILE_CACHE,
    &MAJOR_FAULTS,
    &REFAULTS,
    &DISK_READS,
    &DISK_WRITES,
    &DISK_READ_SIZE,
    &DISK_WRITE_SIZE,
    &DISK_READ_BYTES,
    &DISK_WRITTEN_BYTES,
    &RETRANSMITTED_SEGMENTS,
    &LISTEN_OVERFLOWS,
    &LISTEN_DROPS,
    &SOCKETS,
    &PROCESSES,
    &THREADS,
];

words! {
    /// A host of a study, with its process that takes part. Where both ends are on one host, figures of the host itself are the server's.
    pub enum LoadHost: "host", "host" {
        /// The server's.
        Server = "server",
        /// That of the load generator.
        Client = "client",
    }
}

const fn host_metric(id: &'static str, summary: &'static str, unit: Unit) -> Metric {
    per_part_metric(id, summary, LoadHost::AXIS).unit(unit, Better::Neither)
}

/// Of the disk below the files, which only the server's host has.
const fn host_disk_metric(id: &'static str, summary: &'static str, unit: Unit) -> Metric {
    host_metric(id, summary, unit).only_at(LoadHost::Server.point())
}

/// CPU time in user mode.
pub static CPU_USER: Metric = host_metric(
    "load.host.cpu.user",
    "Share of the CPU time of all CPUs of the host that was spent in user mode",
    Unit::Ratio,
);

/// CPU time in the kernel.
pub static CPU_SYSTEM: Metric = host_metric(
    "load.host.cpu.system",
    "Share of the CPU time of all CPUs of the host that was spent in the kernel, interrupts included",
    Unit::Ratio,
);

/// CPU time that the hypervisor gave to others.
pub static CPU_STEAL: Metric = host_metric(
    "load.host.cpu.steal",
    "Share of the CPU time of all CPUs of the host in which one was wanted and the hypervisor gave it to others",
    Unit::Ratio,
);

/// Periods of a CPU quota that it cut short.
pub static CPU_THROTTLED: Metric = host_metric(
    "load.host.cpu.throttled",
    "Share of the periods of its CPU quota in which the server, or load generator, was kept from running; 0 without a quota, \
     and unknown where its control group cannot be seen",
    Unit::Ratio,
);

/// CPUs that a process may run on.
pub static CPU_ALLOWED: Metric = host_metric(
    "load.host.cpu.allowed",
    "Share of the CPU time of those CPUs on which the server, or load generator, may run that was spent on anything, for whomever",
    Unit::Ratio,
);

/// The host's run queue.
pub static RUNNABLE_TASKS: Metric = host_metric(
    "load.host.tasks.runnable",
    "Tasks of the host that run or wait for a CPU: the mean of when the time that counts begins and when it ends",
    Unit::Count,
);

/// Threads that wait for a CPU.
pub static THREADS_WITHOUT_CPU: Metric = host_metric(
    "load.host.tasks.without_cpu",
    "Threads of the server, or load generator, that are runnable and have no CPU, on average",
    Unit::Count,
);

/// Context switches.
pub static CONTEXT_SWITCHES: Metric = host_metric(
    "load.host.switches",
    "Context switches a second to threads of the server, or load generator",
    Unit::PerSecond,
);

/// Pressure on the CPUs.
pub static PRESSURE_CPU: Metric = host_metric(
    "load.host.pressure.cpu",
    "Share of the time in which some task of the host waited for a CPU (PSI; `full` has no meaning for the CPUs of a host)",
    Unit::Ratio,
);

/// Pressure on disks.
pub static PRESSURE_IO: Metric = host_metric(
    "load.host.pressure.io",
    "Share of the time in which some task of the host waited for a disk (PSI some)",
    Unit::Ratio,
);

/// Pressure on disks that stopped all work.
pub static PRESSURE_IO_FULL: Metric = host_metric(
    "load.host.pressure.io_full",
    "Share of the time in which all tasks of the host that had work waited for a disk (PSI full)",
    Unit::Ratio,
);

/// Pressure on memory.
pub static PRESSURE_MEMORY: Metric = host_metric(
    "load.host.pressure.memory",
    "Share of the time in which some task of the host waited for memory (PSI some)",
    Unit::Ratio,
);

/// Pressure on memory that stopped all work.
pub static PRESSURE_MEMORY_FULL: Metric = host_metric(
    "load.host.pressure.memory_full",
    "Share of the time in which all tasks of the host that had work waited for memory (PSI full)",
    Unit::Ratio,
);

/// Memory that is left.
pub static MEMORY_AVAILABLE: Metric = host_metric(
    "load.host.memory.available",
    "Memory of the host that is available without swapping, at the end of a visit",
    Unit::Bytes,
);

/// The page cache.
pub static FILE_CACHE: Metric =
    host_metric("load.host.memory.files", "Memory of the host that holds files, at the end of a visit", Unit::Bytes);

/// Page faults that waited for a device.
pub static MAJOR_FAULTS: Metric =
    host_metric("load.host.major_faults", "Page faults of the host a second that waited for a device", Unit::PerSecond);

/// Pages of files that were in memory not long ago.
pub static REFAULTS: Metric = host_metric(
    "load.host.refaults",
    "Pages of files a second that the host read again soon after it had given up their memory (workingset_refault_file of /proc/vmstat): the \
     files in use do not fit",
    Unit::PerSecond,
);

/// Reads of the disk.
pub static DISK_READS: Metric = host_disk_metric(
    "load.host.disk_requests.read",
    "Reads a second that the disk below the files completed",
    Unit::PerSecond,
);

/// Writes of the disk.
pub static DISK_WRITES: Metric = host_disk_metric(
    "load.host.disk_requests.write",
    "Writes a second that the disk below the files completed",
    Unit::PerSecond,
);

/// Bytes of a read.
pub static DISK_READ_SIZE: Metric =
    host_disk_metric("load.host.disk_size.read", "Mean bytes of a read of the disk below the files", Unit::Bytes);

/// Bytes of a write.
pub static DISK_WRITE_SIZE: Metric =
    host_disk_metric("load.host.disk_size.write", "Mean bytes of a write of the disk below the files", Unit::Bytes);

/// Bytes of all reads.
pub static DISK_READ_BYTES: Metric = host_disk_metric(
    "load.host.disk_bytes.read",
    "Bytes a second that the disk below the files read, for whomever",
    Unit::BytesPerSecond,
);

/// Bytes of all writes.
pub static DISK_WRITTEN_BYTES: Metric = host_disk_metric(
    "load.host.disk_bytes.write",
    "Bytes a second that the disk below the files wrote, for whomever",
    Unit::BytesPerSecond,
);

/// Segments that were sent again.
pub static RETRANSMITTED_SEGMENTS: Metric = host_metric(
    "load.host.retransmitted",
    "Segments that TCP retransmitted for each that it sent, of all connections of the network namespace",
    Unit::Ratio,
);

/// Connections that found the accept queue full.
pub static LISTEN_OVERFLOWS: Metric = host_metric(
    "load.host.listen.overflows",
    "Connections of a visit, its warm-up included, that found the accept queue of a listening socket full (ListenOverflows)",
    Unit::Count,
);

/// Connections that a listening socket dropped.
pub static LISTEN_DROPS: Metric = host_metric(
    "load.host.listen.drops",
    "Connections of a visit, its warm-up included, that a listening socket dropped, for that or another reason (ListenDrops)",
    Unit::Count,
);

/// TCP sockets.
pub static SOCKETS: Metric = host_metric(
    "load.host.count.sockets",
    "TCP sockets of the network namespace that are in use, at the end of a visit",
    Unit::Count,
);

/// Processes.
pub static PROCESSES: Metric = host_metric(
    "load.host.count.processes",
    "Processes of the server, or load generator, at the end of a visit",
    Unit::Count,
);

/// Threads.
pub static THREADS: Metric = host_metric(
    "load.host.count.threads",
    "Threads of the server, or load generator, at the end of a visit",
    Unit::Count,
);
