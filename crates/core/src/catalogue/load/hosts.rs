//! What the hosts of a study of a server under load, and its two processes on them, did with a number of users.
//!
//! They show what a limit comes from and what else was going on; no verdict rests on one alone.

use crate::{Better, Metric, Unit};

use super::per_part_metric;
use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::metrics;

words! {
    /// A host of a study, with its process that takes part. Where both ends are on one host, figures of the host itself are the server's.
    pub enum LoadHost: "host", "host" {
        /// The server's.
        Server = "server",
        /// That of the load generator.
        Client = "client",
    }
}

const fn host_metric(id: &'static str, unit: Unit) -> Metric {
    per_part_metric(id, LoadHost::AXIS).unit(unit, Better::Neither)
}

/// Of the disk below the files, which only the server's host has.
const fn host_disk_metric(id: &'static str, unit: Unit) -> Metric {
    host_metric(id, unit).only_at(LoadHost::Server.point())
}

metrics! {
    /// The metrics of a host with a number of users, in the order of reports.
    pub const HOST_METRICS = [
        /// Share of the CPU time of all CPUs of the host that was spent in user mode
        CPU_USER = host_metric("load.host.cpu.user", Unit::Ratio),
        /// Share of the CPU time of all CPUs of the host that was spent in the kernel, interrupts included
        CPU_SYSTEM = host_metric("load.host.cpu.system", Unit::Ratio),
        /// Share of the CPU time of all CPUs of the host in which one was wanted and the hypervisor gave it to others
        CPU_STEAL = host_metric("load.host.cpu.steal", Unit::Ratio),
        /// Share of the periods of its CPU quota in which the server, or load generator, was kept from running; 0 without a
        /// quota, and unknown where its control group cannot be seen
        CPU_THROTTLED = host_metric("load.host.cpu.throttled", Unit::Ratio),
        /// Share of the CPU time of those CPUs on which the server, or load generator, may run that was spent on anything,
        /// for whomever
        CPU_ALLOWED = host_metric("load.host.cpu.allowed", Unit::Ratio),
        /// Tasks of the host that run or wait for a CPU: the mean of when the time that counts begins and when it ends
        RUNNABLE_TASKS = host_metric("load.host.tasks.runnable", Unit::Count),
        /// Threads of the server, or load generator, that are runnable and have no CPU, on average
        THREADS_WITHOUT_CPU = host_metric("load.host.tasks.without_cpu", Unit::Count),
        /// Context switches a second to threads of the server, or load generator
        CONTEXT_SWITCHES = host_metric("load.host.switches", Unit::PerSecond),
        /// Share of the time in which some task of the host waited for a CPU (PSI; `full` has no meaning for the CPUs of a
        /// host)
        PRESSURE_CPU = host_metric("load.host.pressure.cpu", Unit::Ratio),
        /// Share of the time in which some task of the host waited for a disk (PSI some)
        PRESSURE_IO = host_metric("load.host.pressure.io", Unit::Ratio),
        /// Share of the time in which all tasks of the host that had work waited for a disk (PSI full)
        PRESSURE_IO_FULL = host_metric("load.host.pressure.io_full", Unit::Ratio),
        /// Share of the time in which some task of the host waited for memory (PSI some)
        PRESSURE_MEMORY = host_metric("load.host.pressure.memory", Unit::Ratio),
        /// Share of the time in which all tasks of the host that had work waited for memory (PSI full)
        PRESSURE_MEMORY_FULL = host_metric("load.host.pressure.memory_full", Unit::Ratio),
        /// Memory of the host that is available without swapping, at the end of a visit
        MEMORY_AVAILABLE = host_metric("load.host.memory.available", Unit::Bytes),
        /// Memory of the host that holds files, at the end of a visit
        FILE_CACHE = host_metric("load.host.memory.files", Unit::Bytes),
        /// Page faults of the host a second that waited for a device
        MAJOR_FAULTS = host_metric("load.host.major_faults", Unit::PerSecond),
        /// Pages of files a second that the host read again soon after it had given up their memory
        /// (workingset_refault_file of /proc/vmstat): the files in use do not fit
        REFAULTS = host_metric("load.host.refaults", Unit::PerSecond),
        /// Reads a second that the disk below the files completed
        DISK_READS = host_disk_metric("load.host.disk_requests.read", Unit::PerSecond),
        /// Writes a second that the disk below the files completed
        DISK_WRITES = host_disk_metric("load.host.disk_requests.write", Unit::PerSecond),
        /// Mean bytes of a read of the disk below the files
        DISK_READ_SIZE = host_disk_metric("load.host.disk_size.read", Unit::Bytes),
        /// Mean bytes of a write of the disk below the files
        DISK_WRITE_SIZE = host_disk_metric("load.host.disk_size.write", Unit::Bytes),
        /// Bytes a second that the disk below the files read, for whomever
        DISK_READ_BYTES = host_disk_metric("load.host.disk_bytes.read", Unit::BytesPerSecond),
        /// Bytes a second that the disk below the files wrote, for whomever
        DISK_WRITTEN_BYTES = host_disk_metric("load.host.disk_bytes.write", Unit::BytesPerSecond),
        /// Segments that TCP retransmitted for each that it sent, of all connections of the network namespace
        RETRANSMITTED_SEGMENTS = host_metric("load.host.retransmitted", Unit::Ratio),
        /// Connections of a visit, its warm-up included, that found the accept queue of a listening socket full
        /// (ListenOverflows)
        LISTEN_OVERFLOWS = host_metric("load.host.listen.overflows", Unit::Count),
        /// Connections of a visit, its warm-up included, that a listening socket dropped, for that or another reason
        /// (ListenDrops)
        LISTEN_DROPS = host_metric("load.host.listen.drops", Unit::Count),
        /// TCP sockets of the network namespace that are in use, at the end of a visit
        SOCKETS = host_metric("load.host.count.sockets", Unit::Count),
        /// Processes of the server, or load generator, at the end of a visit
        PROCESSES = host_metric("load.host.count.processes", Unit::Count),
        /// Threads of the server, or load generator, at the end of a visit
        THREADS = host_metric("load.host.count.threads", Unit::Count),
    ];
}
