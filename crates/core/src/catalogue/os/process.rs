//! Processes, threads, and work shared among them.

use crate::{Axis, AxisScale, Better, Canaries, Metric, Name, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::mem::PageSize;

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
const fn task_creation_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
}

/// Like `task_creation_metric`, where the work lasts so long, and leaves the caches so cold, that a kernel entry afterwards says nothing
/// about it: only the core's speed guards it.
const fn long_task_creation_metric(id: &'static str, summary: &'static str) -> Metric {
    task_creation_metric(id, summary).canaries(Canaries::CORE)
}

/// A figure of the whole round: waiting and other CPUs are part of it, so every round counts as found.
const fn shared_work_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).with_axes([TaskKind::AXIS, TASK_COUNT]).as_found().not_in_cycles()
}

/// fork, until it returns.
pub static PROCESS_FORK: Metric =
    task_creation_metric("os.process.fork", "A fork of a small process, until it returns in the parent").baseline();

/// fork, until the child runs.
pub static PROCESS_FORK_CHILD: Metric =
    task_creation_metric("os.process.fork.child", "A fork of a small process, until the child runs on the same CPU");

/// fork, exit and wait.
pub static PROCESS_FORK_EXIT_WAIT: Metric = task_creation_metric(
    "os.process.fork_exit_wait",
    "A fork of a small process, the child's exit, and the parent's wait for it",
);

/// fork of a process that has touched much memory.
pub static PROCESS_FORK_RSS: Metric = long_task_creation_metric(
    "os.process.fork_rss",
    "A fork of a process with this much touched memory, until it returns in the parent",
)
.with_axes([PageSize::AXIS, RESIDENT]);

/// vfork, exit and wait.
pub static PROCESS_VFORK: Metric =
    task_creation_metric("os.process.vfork", "A vfork, the child's exit, and the parent's wait for it");

/// posix_spawn and wait.
pub static PROCESS_SPAWN: Metric =
    long_task_creation_metric("os.process.spawn", "posix_spawn of /bin/true, until it has ended and is reaped");

/// fork, exec and wait.
pub static PROCESS_EXEC: Metric =
    long_task_creation_metric("os.process.exec", "fork and execve of /bin/true, until it has ended and is reaped");

/// fork, exec of a shell and wait.
pub static PROCESS_SHELL: Metric = long_task_creation_metric(
    "os.process.shell",
    "fork and execve of /bin/sh -c /bin/true, until it has ended and is reaped",
);

/// A thread, until it is created.
pub static THREAD_CREATE: Metric =
    task_creation_metric("os.thread.create", "A new thread, until pthread_create returns").baseline();

/// A thread, until it runs.
pub static THREAD_CREATE_RUN: Metric =
    task_creation_metric("os.thread.create.run", "A new thread, until it runs on the same CPU");

/// A thread, until it is joined.
pub static THREAD_CREATE_JOIN: Metric =
    task_creation_metric("os.thread.create.join", "A new thread that ends at once, until pthread_join returns");

/// Elapsed time of shared work.
pub static TASKS_ELAPSED: Metric =
    shared_work_metric("os.tasks.elapsed", "Time from the first task's start until the last one is joined or reaped");

/// CPU time of shared work, in user mode.
pub static TASKS_USER: Metric =
    shared_work_metric("os.tasks.user", "CPU time in user mode of the process and all its tasks, by getrusage");

/// CPU time of shared work, in the kernel.
pub static TASKS_SYSTEM: Metric =
    shared_work_metric("os.tasks.system", "CPU time in the kernel of the process and all its tasks, by getrusage");

/// How much of the CPUs shared work uses.
pub static TASKS_EFFICIENCY: Metric =
    shared_work_metric("os.tasks.efficiency", "Time of one task alone / (elapsed time x CPUs that the tasks can fill)")
        .unit(Unit::Ratio, Better::Higher);

/// CPU time that the work did not get.
pub static TASKS_UNACCOUNTED: Metric = shared_work_metric(
    "os.tasks.unaccounted",
    "CPU time of the allowed CPUs that the process and its tasks did not get: idle, stolen, or used by others",
)
.unit(Unit::Nanoseconds, Better::Neither)
.not_in_cycles();
