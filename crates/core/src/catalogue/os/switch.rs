//! Switching a CPU from one task to another.

use crate::{Axis, AxisScale, Better, Canaries, HeadlineSamples, Metric, Need, Overhead, SampleTags, Unit};

use crate::catalogue::PairPlacement;
use crate::catalogue::axis_words::words;

/// Processes that pass a byte around.
pub const PROCESSES: Axis = Axis::new("processes", "processes in the ring", AxisScale::Logarithmic);

/// Bytes that each process of a ring works on.
pub const WORKING_SET: Axis = Axis::new("working_set", "working set of each process, bytes", AxisScale::Bytes);

words! {
    /// How a token reaches a task on another CPU.
    pub enum TokenChannel: "means", "means of passing the token" {
        /// As a byte over a pipe.
        Pipe = "pipe",
        /// As a word in shared memory, waiting on a futex.
        Futex = "futex",
    }
}

/// A duration of work that yields the CPU on purpose: a preemption is part of it, and no reason to exclude it.
///
/// On one CPU all of it is done from the first caches, in core cycles: between states of the frequency 3.5 % apart the times of
/// switches moved by 1.0 to 1.2 of what the chain's did, and those of the calls alone by 0.95 to 1.05.
const fn switch_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary)
        .headline(HeadlineSamples::CycleNormalised)
        .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
}

/// A difference of two times that both contain the clock pair, so it is not subtracted again. The remaining error is
/// half a pair per batch, far below a nanosecond per operation.
const fn switch_difference_metric(id: &'static str, summary: &'static str) -> Metric {
    switch_metric(id, summary).overhead(Overhead::None)
}

/// A switch between processes over pipes.
pub static SWITCH_PROCESS_PIPE: Metric = switch_difference_metric(
    "os.switch.process.pipe",
    "One switch of a CPU between two processes: half a round trip over two pipes, less the pipe's own write and read",
)
.baseline();

/// A round trip between processes over pipes.
pub static SWITCH_PROCESS_PIPE_ROUND_TRIP: Metric = switch_metric(
    "os.switch.process.pipe.round_trip",
    "A byte to another process on the same CPU and back over two pipes, nothing subtracted",
);

/// The calls of a switch between processes over pipes, made by one task.
pub static SWITCH_PROCESS_PIPE_CALLS: Metric = switch_metric(
    "os.switch.process.pipe.own",
    "Writing a byte to a pipe and reading it back in one task, as subtracted from a switch between processes",
);

/// A switch between threads over pipes.
pub static SWITCH_THREAD_PIPE: Metric = switch_difference_metric(
    "os.switch.thread.pipe",
    "One switch of a CPU between two threads: half a round trip over two pipes, less the pipe's own write and read",
)
.baseline();

/// A round trip between threads over pipes.
pub static SWITCH_THREAD_PIPE_ROUND_TRIP: Metric = switch_metric(
    "os.switch.thread.pipe.round_trip",
    "A byte to another thread on the same CPU and back over two pipes, nothing subtracted",
);

/// The calls of a switch between threads over pipes, made by one task.
pub static SWITCH_THREAD_PIPE_CALLS: Metric = switch_metric(
    "os.switch.thread.pipe.own",
    "Writing a byte to a pipe and reading it back in one task, as subtracted from a switch between threads",
);

/// A switch between processes by a futex.
pub static SWITCH_PROCESS_FUTEX: Metric = switch_difference_metric(
    "os.switch.process.futex",
    "One switch of a CPU between two processes: half a round trip by a futex, less the calls themselves",
);

/// A round trip between processes by a futex.
pub static SWITCH_PROCESS_FUTEX_ROUND_TRIP: Metric = switch_metric(
    "os.switch.process.futex.round_trip",
    "A turn to another process on the same CPU and back by a futex, nothing subtracted",
);

/// The calls of a switch between processes by a futex, made by one task.
pub static SWITCH_PROCESS_FUTEX_CALLS: Metric = switch_metric(
    "os.switch.process.futex.own",
    "A futex wake without a waiter and a futex wait that fails at once, in one task, as subtracted from a switch \
     between processes",
);

/// A switch between threads by a futex.
pub static SWITCH_THREAD_FUTEX: Metric = switch_difference_metric(
    "os.switch.thread.futex",
    "One switch of a CPU between two threads: half a round trip by a futex, less the calls themselves",
);

/// A round trip between threads by a futex.
pub static SWITCH_THREAD_FUTEX_ROUND_TRIP: Metric = switch_metric(
    "os.switch.thread.futex.round_trip",
    "A turn to another thread on the same CPU and back by a futex, nothing subtracted",
);

/// The calls of a switch between threads by a futex, made by one task.
pub static SWITCH_THREAD_FUTEX_CALLS: Metric = switch_metric(
    "os.switch.thread.futex.own",
    "A futex wake without a waiter and a futex wait that fails at once, in one task, as subtracted from a switch \
     between threads",
);

/// A switch between processes by an eventfd.
pub static SWITCH_PROCESS_EVENTFD: Metric = switch_difference_metric(
    "os.switch.process.eventfd",
    "One switch of a CPU between two processes: half a round trip by an eventfd, less the calls themselves",
);

/// A round trip between processes by an eventfd.
pub static SWITCH_PROCESS_EVENTFD_ROUND_TRIP: Metric = switch_metric(
    "os.switch.process.eventfd.round_trip",
    "A token to another process on the same CPU and back by two eventfds, nothing subtracted",
);

/// The calls of a switch between processes by an eventfd, made by one task.
pub static SWITCH_PROCESS_EVENTFD_CALLS: Metric = switch_metric(
    "os.switch.process.eventfd.own",
    "Adding to an eventfd and reading it, in one task, as subtracted from a switch between processes",
);

/// A switch between threads by an eventfd.
pub static SWITCH_THREAD_EVENTFD: Metric = switch_difference_metric(
    "os.switch.thread.eventfd",
    "One switch of a CPU between two threads: half a round trip by an eventfd, less the calls themselves",
);

/// A round trip between threads by an eventfd.
pub static SWITCH_THREAD_EVENTFD_ROUND_TRIP: Metric = switch_metric(
    "os.switch.thread.eventfd.round_trip",
    "A token to another thread on the same CPU and back by two eventfds, nothing subtracted",
);

/// The calls of a switch between threads by an eventfd, made by one task.
pub static SWITCH_THREAD_EVENTFD_CALLS: Metric = switch_metric(
    "os.switch.thread.eventfd.own",
    "Adding to an eventfd and reading it, in one task, as subtracted from a switch between threads",
);

/// A switch between processes by a condition variable.
pub static SWITCH_PROCESS_CONDVAR: Metric = switch_difference_metric(
    "os.switch.process.condvar",
    "One switch of a CPU between two processes: half a round trip by a condition variable, less the calls themselves",
);

/// A round trip between processes by a condition variable.
pub static SWITCH_PROCESS_CONDVAR_ROUND_TRIP: Metric = switch_metric(
    "os.switch.process.condvar.round_trip",
    "A turn to another process on the same CPU and back by a mutex and a condition variable, nothing subtracted",
);

/// The calls of a switch between processes by a condition variable, made by one task.
pub static SWITCH_PROCESS_CONDVAR_CALLS: Metric = switch_metric(
    "os.switch.process.condvar.own",
    "Lock, unlock, signal without a waiter, lock and unlock, in one task, as subtracted from a switch between \
     processes",
);

/// A switch between threads by a condition variable.
pub static SWITCH_THREAD_CONDVAR: Metric = switch_difference_metric(
    "os.switch.thread.condvar",
    "One switch of a CPU between two threads: half a round trip by a condition variable, less the calls themselves",
);

/// A round trip between threads by a condition variable.
pub static SWITCH_THREAD_CONDVAR_ROUND_TRIP: Metric = switch_metric(
    "os.switch.thread.condvar.round_trip",
    "A turn to another thread on the same CPU and back by a mutex and a condition variable, nothing subtracted",
);

/// The calls of a switch between threads by a condition variable, made by one task.
pub static SWITCH_THREAD_CONDVAR_CALLS: Metric = switch_metric(
    "os.switch.thread.condvar.own",
    "Lock, unlock, signal without a waiter, lock and unlock, in one task, as subtracted from a switch between threads",
);

/// A switch between processes by yielding.
pub static SWITCH_PROCESS_YIELD: Metric = switch_difference_metric(
    "os.switch.process.yield",
    "One switch of a CPU between two processes: half a round trip by yielding",
);

/// A round trip between processes by yielding.
pub static SWITCH_PROCESS_YIELD_ROUND_TRIP: Metric = switch_metric(
    "os.switch.process.yield.round_trip",
    "A turn to another process on the same CPU and back by yielding",
);

/// A switch between threads by yielding.
pub static SWITCH_THREAD_YIELD: Metric = switch_difference_metric(
    "os.switch.thread.yield",
    "One switch of a CPU between two threads: half a round trip by yielding",
);

/// A round trip between threads by yielding.
pub static SWITCH_THREAD_YIELD_ROUND_TRIP: Metric =
    switch_metric("os.switch.thread.yield.round_trip", "A turn to another thread on the same CPU and back by yielding");

/// A remote wake-up.
pub static SWITCH_CROSS_CPU: Metric = Metric::duration(
    "os.switch.cross_cpu",
    "Remote wake-up: from passing a token until a process on another CPU has it, half a single round trip",
)
.needs(Need::SecondCpu)
.with_axes([TokenChannel::AXIS])
.version(2)
.headline(HeadlineSamples::AsFound)
.overhead(Overhead::None)
.contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
.not_in_cycles();

words! {
    /// A task that is woken, and by what.
    pub enum WokenTask: "woken", "what is woken, and by what" {
        /// A process that reads from a pipe.
        ProcessPipe = "process_pipe",
        /// A thread that reads from a pipe.
        ThreadPipe = "thread_pipe",
        /// A process that waits on a futex.
        ProcessFutex = "process_futex",
        /// A thread that waits on a futex.
        ThreadFutex = "thread_futex",
        /// A process that waits on a condition variable.
        ProcessCondvar = "process_condvar",
        /// A thread that waits on a condition variable.
        ThreadCondvar = "thread_condvar",
    }
}

/// A wake-up in one direction. What waits also runs between two wake-ups: a preemption is part of it.
pub static ONE_WAY_WAKE_UP: Metric = Metric::duration(
    "os.switch.one_way",
    "One-way wake-up: from before a task wakes another until the other has read the clock, nothing subtracted",
)
.with_axes([WokenTask::AXIS, PairPlacement::AXIS])
.version(2)
.headline(HeadlineSamples::AsFound)
.overhead(Overhead::None)
.contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
.not_in_cycles()
.baseline();

/// A switch in a ring of processes. It evicts L2 itself, by as much as its working sets need: an L2 canary would mostly
/// see the ring. What it refills from beyond L2 does not follow the core's frequency.
pub static SWITCH_RING: Metric = switch_difference_metric(
    "os.switch.ring",
    "One switch in a ring of processes, including the cache refill, less the pipe's calls and the work with warm \
     caches",
)
.headline(HeadlineSamples::Undisturbed)
.with_axes([PROCESSES, WORKING_SET]);

/// The calls and the work of such a switch, made by one task.
pub static SWITCH_RING_CALLS: Metric = switch_metric(
    "os.switch.ring.own",
    "Writing and reading a byte over a pipe and one pass over the working set, in one task with warm caches",
)
.headline(HeadlineSamples::Undisturbed)
.with_axes([PROCESSES, WORKING_SET]);

/// Context switches per switch of the ring.
pub static SWITCH_RING_SWITCHES: Metric =
    switch_metric("os.switch.ring.switches", "Context switches counted by the kernel per switch of the ring")
        .unit(Unit::Ratio, Better::Neither)
        .headline(HeadlineSamples::AsFound)
        .overhead(Overhead::None)
        .canaries(Canaries::NONE)
        .with_axes([PROCESSES, WORKING_SET]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_metrics_skip_overhead_allow_preemption() {
        let metric = SWITCH_PROCESS_PIPE;
        assert_eq!(metric.overhead, Overhead::None);
        assert!(!SampleTags::PREEMPTED.intersects(metric.contaminants));
        assert!(SampleTags::STOLEN.intersects(metric.contaminants));
    }
}
