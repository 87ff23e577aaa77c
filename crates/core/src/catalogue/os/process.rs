//! Processes, threads, and work shared among them.

use crate::{Axis, AxisScale, Better, Metric, Name, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::mem::PageSize;
use crate::catalogue::metric_list::{duration, metrics};

/// Bytes of a process that are in memory when it forks.
pub const RESIDENT: Axis = Axis::new("resident", "resident memory of the parent, bytes", AxisScale::Bytes);

/// How many tasks share a piece of work.
pub const TASK_COUNT: Axis = Axis::new("tasks", "tasks that share the work", AxisScale::Linear);

words! {
    /// What the tasks are that share a piece of work.
    pub enum TaskKind: "kind", "kind of task" {
        /// Threads of one process.
        Threads = "threads",
        /// Processes.
        Processes = "processes",
    }
}

/// The study of a piece of work that tasks share.
pub const TASKS: Name = Name::new("os.tasks");

/// A duration of creating a task. The new task takes over the CPU, by preemption or because the parent waits: a
/// preemption is part of the work.
const fn task_creation_metric(id: &'static str) -> Metric {
    duration(id).contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
}

/// A figure of the whole round: waiting and other CPUs are part of it, so every round counts as found.
const fn shared_work_metric(id: &'static str) -> Metric {
    duration(id).with_axes([TaskKind::AXIS, TASK_COUNT]).as_found().not_in_cycles()
}

metrics! {
    /// The metrics of making processes and threads, in the order of reports.
    pub const PROCESS_METRICS = [
        /// A fork of a small process, until it returns in the parent
        PROCESS_FORK = task_creation_metric("os.process.fork").baseline(),
        /// A fork of a small process, until the child runs on the same CPU
        PROCESS_FORK_CHILD = task_creation_metric("os.process.fork.child"),
        /// A fork of a small process, the child's exit, and the parent's wait for it
        PROCESS_FORK_EXIT_WAIT = task_creation_metric("os.process.fork_exit_wait"),
        /// A fork of a process with this much touched memory, until it returns in the parent
        PROCESS_FORK_RSS = task_creation_metric("os.process.fork_rss").with_axes([PageSize::AXIS, RESIDENT]),
        /// A vfork, the child's exit, and the parent's wait for it
        PROCESS_VFORK = task_creation_metric("os.process.vfork"),
        /// posix_spawn of /bin/true, until it has ended and is reaped
        PROCESS_SPAWN = task_creation_metric("os.process.spawn"),
        /// fork and execve of /bin/true, until it has ended and is reaped
        PROCESS_EXEC = task_creation_metric("os.process.exec"),
        /// fork and execve of /bin/sh -c /bin/true, until it has ended and is reaped
        PROCESS_SHELL = task_creation_metric("os.process.shell"),
        /// A new thread, until pthread_create returns
        THREAD_CREATE = task_creation_metric("os.thread.create").baseline(),
        /// A new thread, until it runs on the same CPU
        THREAD_CREATE_RUN = task_creation_metric("os.thread.create.run"),
        /// A new thread that ends at once, until pthread_join returns
        THREAD_CREATE_JOIN = task_creation_metric("os.thread.create.join"),
    ];
}

metrics! {
    /// The metrics of work that tasks share, in the order of reports.
    pub const TASK_METRICS = [
        /// Time from the first task's start until the last one is joined or reaped
        TASKS_ELAPSED = shared_work_metric("os.tasks.elapsed"),
        /// CPU time in user mode of the process and all its tasks, by getrusage
        TASKS_USER = shared_work_metric("os.tasks.user"),
        /// CPU time in the kernel of the process and all its tasks, by getrusage
        TASKS_SYSTEM = shared_work_metric("os.tasks.system"),
        /// Time of one task alone / (elapsed time x CPUs that the tasks can fill)
        TASKS_EFFICIENCY = shared_work_metric("os.tasks.efficiency").unit(Unit::Ratio, Better::Higher),
        /// CPU time of the allowed CPUs that the process and its tasks did not get: idle, stolen, or used by others
        TASKS_UNACCOUNTED = shared_work_metric("os.tasks.unaccounted")
            .unit(Unit::Nanoseconds, Better::Neither)
            .not_in_cycles(),
    ];
}
