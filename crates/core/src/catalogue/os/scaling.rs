//! Kernel services used by several CPUs at once.

use crate::{Axis, AxisScale, Better, Metric, Name, Unit};

use super::TaskKind;
use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{metrics, rate};

/// CPUs that work at once, with one task each.
pub const WORKING_CPUS: Axis = Axis::new("cpus", "CPUs at work, one task each", AxisScale::Logarithmic);

words! {
    /// What the kernel does for each task, again and again. No two tasks share what they ask for.
    pub enum KernelService: "service", "kernel service" {
        /// A null call.
        NullCall = "null_call",
        /// A fork, the child's exit, and the wait for it.
        ForkExitWait = "fork_exit_wait",
        /// mmap of 64 KiB, a write to one page of it, and munmap.
        MmapMunmap = "mmap_munmap",
        /// The first touch of an anonymous page, with its share of giving the pages back.
        PageFault = "page_fault",
        /// A new file in the task's own directory, closed and removed.
        CreateUnlink = "create_unlink",
        /// A wake of the task's own futex, for which nobody waits.
        FutexWake = "futex_wake",
        /// A connection to the task's own listener on the loopback device, accepted and closed.
        ConnectAccept = "connect_accept",
    }
}

/// The probe of kernel services used by several CPUs at once.
pub const SCALING_PROBE: Name = Name::new("os.scaling");

/// A figure of a whole round: what else runs on any of its CPUs is part of it, so every round counts as found.
const fn scaling_metric(id: &'static str) -> Metric {
    rate(id).with_axes([KernelService::AXIS, TaskKind::AXIS, WORKING_CPUS]).as_found()
}

metrics! {
    /// The metrics of kernel services used by several CPUs at once, in the order of reports.
    pub const SCALING_METRICS = [
        /// Operations per second of all working CPUs together
        SCALING_RATE = scaling_metric("os.scaling.rate").unit(Unit::PerSecond, Better::Higher),
        /// Operations per second of all working CPUs together / (CPUs x that of one of them alone, in the same round)
        SCALING_EFFICIENCY = scaling_metric("os.scaling.efficiency").unit(Unit::Ratio, Better::Higher),
    ];
}
