//! Switching a CPU from one task to another.

use crate::{Axis, AxisScale, Better, Case, HeadlineSamples, Metric, Need, Overhead, SampleTags, Unit};

use crate::catalogue::PairPlacement;
use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics};

/// Processes that pass a byte around.
pub const PROCESSES: Axis = Axis::new("processes", "processes in the ring", AxisScale::Logarithmic);

/// Bytes that each process of a ring works on.
pub const WORKING_SET: Axis = Axis::new("working_set", "working set of each process, bytes", AxisScale::Bytes);

words! {
    /// The tasks that pass a token.
    pub enum HandoffTask: "task", "kind of task" {
        /// Two processes.
        Process = "process",
        /// Two threads of one process.
        Thread = "thread",
    }
}

words! {
    /// How a token is passed from one task to another.
    pub enum HandoffMechanism: "mechanism", "how the token is passed" {
        /// As a byte over a pipe.
        Pipe = "pipe",
        /// As a byte over a pair of Unix stream sockets.
        Unix = "unix",
        /// As a word in shared memory, waiting on a futex.
        Futex = "futex",
        /// As a count of one in an eventfd.
        Eventfd = "eventfd",
        /// As a word protected by a mutex, waiting on a condition variable.
        Condvar = "condvar",
        /// As a word in shared memory, yielding until it changes.
        Yield = "yield",
    }
}

impl HandoffMechanism {
    /// Two processes that pass a token by it.
    pub fn between_processes(self) -> Case {
        Case::new().with_word(HandoffTask::Process).with_word(self)
    }

    /// Two threads that pass a token by it.
    pub fn between_threads(self) -> Case {
        Case::new().with_word(HandoffTask::Thread).with_word(self)
    }
}

/// A duration of work that yields the CPU on purpose: a preemption is part of it, and no reason to exclude it.
///
/// On one CPU all of it is done from the first caches, in core cycles: between states of the frequency 3.5 % apart the times of
/// switches moved by 1.0 to 1.2 of what the chain's did, and those of the calls alone by 0.95 to 1.05.
const fn switch_metric(id: &'static str) -> Metric {
    duration(id).headline(HeadlineSamples::CycleNormalised).contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
}

/// A difference of two times that both contain the clock pair, so it is not subtracted again. The remaining error is
/// half a pair per batch, far below a nanosecond per operation.
const fn switch_difference_metric(id: &'static str) -> Metric {
    switch_metric(id).overhead(Overhead::None)
}

/// A wake-up. What waits also runs between two of them: a preemption is part of it.
const fn wake_up_metric(id: &'static str) -> Metric {
    duration(id)
        .version(2)
        .headline(HeadlineSamples::AsFound)
        .overhead(Overhead::None)
        .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
        .not_in_cycles()
}

metrics! {
    /// The metrics of switches, in the order of reports.
    pub const SWITCH_METRICS = [
        /// One switch of a CPU between two tasks: half a round trip of a token, less the calls of one pass (none when
        /// yielding)
        SWITCH_COST = switch_difference_metric("os.switch.cost")
            .with_axes([HandoffTask::AXIS, HandoffMechanism::AXIS])
            .baseline(),
        /// A token to another task on the same CPU and back, nothing subtracted
        SWITCH_ROUND_TRIP = switch_metric("os.switch.round_trip")
            .with_axes([HandoffTask::AXIS, HandoffMechanism::AXIS]),
        /// The calls that pass and take a token, made by one task without a waiter, as subtracted from a switch
        SWITCH_CHANNEL_CALLS = switch_metric("os.switch.channel_calls")
            .with_axes([HandoffTask::AXIS, HandoffMechanism::AXIS])
            .not_at(HandoffMechanism::Yield.point()),
        /// Remote wake-up: from passing a token until a process on another CPU has it, half a single round trip
        SWITCH_CROSS_CPU = wake_up_metric("os.switch.cross_cpu").with_axes([HandoffMechanism::AXIS]).needs(Need::SecondCpu),
        /// One-way wake-up: from before a task wakes another until the other has read the clock, nothing subtracted
        ONE_WAY_WAKE_UP = wake_up_metric("os.switch.one_way")
            .with_axes([HandoffTask::AXIS, HandoffMechanism::AXIS, PairPlacement::AXIS])
            .baseline(),
        // It evicts L2 itself, by as much as its working sets need: an L2 canary would mostly see the ring. What it refills
        // from beyond L2 does not follow the core's frequency.
        /// One switch in a ring of processes, including the cache refill, less the pipe's calls and the work with warm
        /// caches
        SWITCH_RING = switch_difference_metric("os.switch.ring")
            .headline(HeadlineSamples::Undisturbed)
            .with_axes([PROCESSES, WORKING_SET]),
        /// Writing and reading a byte over a pipe and one pass over the working set, in one task with warm caches
        SWITCH_RING_CALLS = switch_metric("os.switch.ring.channel_calls")
            .headline(HeadlineSamples::Undisturbed)
            .with_axes([PROCESSES, WORKING_SET]),
        /// Context switches counted by the kernel per switch of the ring
        SWITCH_RING_SWITCHES = switch_metric("os.switch.ring.switches")
            .unit(Unit::Ratio, Better::Neither)
            .unguarded()
            .overhead(Overhead::None)
            .with_axes([PROCESSES, WORKING_SET]),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_metrics_skip_overhead_allow_preemption() {
        let metric = SWITCH_COST;
        assert_eq!(metric.overhead, Overhead::None);
        assert!(!SampleTags::PREEMPTED.intersects(metric.contaminants));
        assert!(SampleTags::STOLEN.intersects(metric.contaminants));
    }

    #[test]
    fn yielding_has_no_channel_calls() {
        assert!(SWITCH_ROUND_TRIP.is_measured_at(&HandoffMechanism::Yield.between_threads()));
        assert!(!SWITCH_CHANNEL_CALLS.is_measured_at(&HandoffMechanism::Yield.between_threads()));
        assert!(SWITCH_CHANNEL_CALLS.is_measured_at(&HandoffMechanism::Futex.between_threads()));
    }
}
