//! The processor: clocks, frequency, loops, calls.

use crate::{Axis, AxisScale, Better, HeadlineSamples, Metric, Name, Overhead, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics, rate};

/// Integer arguments of a call.
pub const ARGUMENTS: Axis = Axis::new("arguments", "integer arguments", AxisScale::Linear);

words! {
    /// How a call reaches its callee.
    pub enum CallKind: "via", "kind of call" {
        /// To the address in the instruction.
        Direct = "direct",
        /// Through a register.
        Indirect = "indirect",
        /// Through a stub that jumps through a slot in memory, as a procedure linkage table does.
        Plt = "plt",
    }
}

words! {
    /// A clock of the kernel.
    pub enum KernelClock: "clock", "clock" {
        /// CLOCK_MONOTONIC.
        Monotonic = "monotonic",
        /// CLOCK_MONOTONIC_RAW.
        MonotonicRaw = "monotonic_raw",
        /// CLOCK_MONOTONIC_COARSE.
        MonotonicCoarse = "monotonic_coarse",
        /// CLOCK_THREAD_CPUTIME_ID.
        ThreadCpu = "thread_cpu",
    }
}

words! {
    /// How many CPUs are busy while the frequency of one is measured.
    pub enum BusyCpus: "load", "CPUs busy" {
        /// That one alone.
        One = "one",
        /// All allowed CPUs.
        All = "all",
    }
}

/// A kind of core: its place among the machine's kinds, of which the first is the fastest; 0 where all are of one.
pub const CORE_KIND: Axis = Axis::new("kind", "kind of core", AxisScale::Category);

/// The CPU that a figure is of, where it is not the measured one of the run.
pub const ON_CPU: Axis = Axis::new("cpu", "CPU", AxisScale::Category);

/// The probe of the kinds of cores.
pub const CORE_PROBE: Name = Name::new("cpu.core");

/// The probe, not the harness, chooses the CPU: running on another than usual is no disturbance. Headlines are as found, because no canary
/// reference is right for two kinds of cores.
const fn core_kind_metric(metric: Metric) -> Metric {
    metric
        .with_axes([CORE_KIND, ON_CPU])
        .unguarded()
        .headline(HeadlineSamples::AsFound)
        .contaminants(SampleTags::PREEMPTED)
        .not_in_cycles()
}

/// The probe of the three latencies.
pub const LATENCY: Name = Name::new("cpu.latency");

metrics! {
    /// The metrics of this area, in the order of reports.
    pub const ALL = [
        /// An empty start/stop pair of the run's clock
        CLOCK_PAIR = duration("cpu.clock.pair")
            .overhead(Overhead::None)
            .headline(HeadlineSamples::CycleNormalised)
            .baseline(),
        /// Difference between the two readings of an empty start/stop pair
        CLOCK_PAIR_DIFFERENCE = duration("cpu.clock.pair.shown")
            .overhead(Overhead::None)
            .headline(HeadlineSamples::AsFound),
        /// clock_gettime through the C library
        CLOCK_GETTIME = duration("cpu.clock.gettime")
            .with_axes([KernelClock::AXIS])
            .headline(HeadlineSamples::CycleNormalised),
        /// Frequency of the probes' CPU, from cycles counted over time
        FREQUENCY = rate("cpu.frequency")
            .unit(Unit::Hertz, Better::Higher)
            .with_axes([BusyCpus::AXIS])
            .unguarded()
            .bounds(Some(0.0), Some(20e9)),
        /// Frequency of a CPU of each kind of core, from cycles counted over time
        CORE_FREQUENCY = core_kind_metric(rate("cpu.core.frequency").unit(Unit::Hertz, Better::Higher)),
        /// A null call on a CPU of each kind of core
        CORE_CALL = core_kind_metric(duration("cpu.core.call")),
        /// A switch between two processes on a CPU of each kind of core: half a round trip through pipes
        CORE_SWITCH = core_kind_metric(duration("cpu.core.switch")),
        /// A dependent load from memory by a CPU of each kind of core
        CORE_LOAD = core_kind_metric(duration("cpu.core.load")),
        /// A dependent add
        LATENCY_ADD = duration("cpu.latency.add").headline(HeadlineSamples::CycleNormalised),
        /// A dependent 64-bit multiply
        LATENCY_MULTIPLY = duration("cpu.latency.multiply").headline(HeadlineSamples::CycleNormalised),
        /// A dependent load from L1
        LATENCY_LOAD = duration("cpu.latency.load").headline(HeadlineSamples::CycleNormalised),
        /// One iteration of a minimal counted loop
        LOOP = duration("cpu.loop").headline(HeadlineSamples::CycleNormalised).baseline(),
        /// One procedure call and its return
        CALL_ARGS = duration("cpu.call.args")
            .with_axes([ARGUMENTS, CallKind::AXIS])
            .headline(HeadlineSamples::CycleNormalised)
            .baseline(),
        /// A mispredicted conditional branch, beyond a predicted one
        BRANCH_MISPREDICT = duration("cpu.branch.mispredict")
            .overhead(Overhead::None)
            .headline(HeadlineSamples::CycleNormalised),
    ];
}
