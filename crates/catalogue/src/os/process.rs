//! Processes, threads, and work shared among them.

use kelvin_model::{Axis, AxisScale, Better, Canaries, Metric, Name, Overhead, Tags, Treatment, Unit};

use crate::mem::PageSize;
use crate::words::words;

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
const fn making(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).contaminants(Tags::CONTAMINATED_UNLESS_PREEMPTED)
}

/// The same where the work lasts so long, and leaves the caches so cold, that a kernel entry afterwards says nothing
/// about it: only the core's speed guards it.
const fn making_at_length(id: &'static str, summary: &'static str) -> Metric {
    making(id, summary).canaries(Canaries::CORE)
}

/// A figure of the whole round: waiting and other CPUs are part of it, so every round counts as found.
const fn figure(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary)
        .over([TaskKind::AXIS, TASK_COUNT])
        .headline(Treatment::AsFound)
        .canaries(Canaries::NONE)
        .contaminants(Tags::NONE)
        .overhead(Overhead::None)
        .not_in_cycles()
}

/// fork, until it returns.
pub static PROCESS_FORK: Metric =
    making("os.process.fork", "A fork of a small process, until it returns in the parent").baseline();

/// fork, until the child runs.
pub static PROCESS_FORK_CHILD: Metric =
    making("os.process.fork.child", "A fork of a small process, until the child runs on the same CPU");

/// fork, exit and wait.
pub static PROCESS_FORK_LIFE: Metric =
    making("os.process.fork.life", "A fork of a small process, the child's exit, and the parent's wait for it");

/// fork of a process that has touched much memory.
pub static PROCESS_FORK_RSS: Metric = making_at_length(
    "os.process.fork_rss",
    "A fork of a process with this much touched memory, until it returns in the parent",
)
.over([PageSize::AXIS, RESIDENT]);

/// vfork, exit and wait.
pub static PROCESS_VFORK: Metric =
    making("os.process.vfork", "A vfork, the child's exit, and the parent's wait for it");

/// posix_spawn and wait.
pub static PROCESS_SPAWN: Metric =
    making_at_length("os.process.spawn", "posix_spawn of /bin/true, until it has ended and is reaped");

/// fork, exec and wait.
pub static PROCESS_EXEC: Metric =
    making_at_length("os.process.exec", "fork and execve of /bin/true, until it has ended and is reaped");

/// fork, exec of a shell and wait.
pub static PROCESS_SHELL: Metric =
    making_at_length("os.process.shell", "fork and execve of /bin/sh -c /bin/true, until it has ended and is reaped");

/// A thread, until it is created.
pub static THREAD_CREATE: Metric = making("os.thread.create", "A new thread, until pthread_create returns").baseline();

/// A thread, until it runs.
pub static THREAD_CREATE_RUN: Metric = making("os.thread.create.run", "A new thread, until it runs on the same CPU");

/// A thread, until it is joined.
pub static THREAD_CREATE_JOIN: Metric =
    making("os.thread.create.join", "A new thread that ends at once, until pthread_join returns");

/// Elapsed time of shared work.
pub static TASKS_ELAPSED: Metric =
    figure("os.tasks.elapsed", "Time from the first task's start until the last one is joined or reaped");

/// CPU time of shared work, in user mode.
pub static TASKS_USER: Metric =
    figure("os.tasks.user", "CPU time in user mode of the process and all its tasks, by getrusage");

/// CPU time of shared work, in the kernel.
pub static TASKS_SYSTEM: Metric =
    figure("os.tasks.system", "CPU time in the kernel of the process and all its tasks, by getrusage");

/// How much of the CPUs shared work uses.
pub static TASKS_EFFICIENCY: Metric =
    figure("os.tasks.efficiency", "Time of one task alone / (elapsed time x CPUs that the tasks can fill)")
        .unit(Unit::Ratio, Better::Higher);

/// CPU time that the work did not get.
pub static TASKS_INVISIBLE: Metric = figure(
    "os.tasks.invisible",
    "CPU time of the allowed CPUs that the process and its tasks did not get: idle, stolen, or used by others",
)
.unit(Unit::Nanoseconds, Better::Neither)
.not_in_cycles();
