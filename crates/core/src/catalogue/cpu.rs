//! The processor: clocks, frequency, loops, calls.

use crate::{Axis, AxisScale, Better, Canaries, HeadlineSamples, Metric, Name, Overhead, Unit};

use crate::catalogue::axis_words::words;

/// The metrics of this area, in the order of reports.
pub static ALL: &[&Metric] = &[
    &CLOCK_PAIR,
    &CLOCK_PAIR_DIFFERENCE,
    &CLOCK_GETTIME,
    &FREQUENCY,
    &LATENCY_ADD,
    &LATENCY_MULTIPLY,
    &LATENCY_LOAD,
    &LOOP,
    &CALL_ARGS,
    &BRANCH_MISPREDICT,
];

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

/// The probe of the three latencies.
pub const LATENCY: Name = Name::new("cpu.latency");

/// An empty start/stop pair of the run's clock.
pub static CLOCK_PAIR: Metric = Metric::duration("cpu.clock.pair", "An empty start/stop pair of the run's clock")
    .overhead(Overhead::None)
    .headline(HeadlineSamples::CycleNormalised)
    .baseline();

/// The difference between its two readings.
pub static CLOCK_PAIR_DIFFERENCE: Metric =
    Metric::duration("cpu.clock.pair.shown", "Difference between the two readings of an empty start/stop pair")
        .overhead(Overhead::None)
        .headline(HeadlineSamples::AsFound);

/// Reading the time.
pub static CLOCK_GETTIME: Metric = Metric::duration("cpu.clock.gettime", "clock_gettime through the C library")
    .with_axes([KernelClock::AXIS])
    .headline(HeadlineSamples::CycleNormalised);

/// The core's frequency.
pub static FREQUENCY: Metric =
    Metric::rate("cpu.frequency", "Frequency of the probes' CPU, from cycles counted over time")
        .unit(Unit::Hertz, Better::Higher)
        .with_axes([BusyCpus::AXIS])
        .headline(HeadlineSamples::AsFound)
        .canaries(Canaries::NONE)
        .bounds(Some(0.0), Some(20e9));

/// An add.
pub static LATENCY_ADD: Metric =
    Metric::duration("cpu.latency.add", "A dependent add").headline(HeadlineSamples::CycleNormalised);

/// A multiply.
pub static LATENCY_MULTIPLY: Metric =
    Metric::duration("cpu.latency.multiply", "A dependent 64-bit multiply").headline(HeadlineSamples::CycleNormalised);

/// A load from L1.
pub static LATENCY_LOAD: Metric =
    Metric::duration("cpu.latency.load", "A dependent load from L1").headline(HeadlineSamples::CycleNormalised);

/// An iteration of a loop.
pub static LOOP: Metric = Metric::duration("cpu.loop", "One iteration of a minimal counted loop")
    .headline(HeadlineSamples::CycleNormalised)
    .baseline();

/// A procedure call.
pub static CALL_ARGS: Metric = Metric::duration("cpu.call.args", "One procedure call and its return")
    .with_axes([ARGUMENTS, CallKind::AXIS])
    .headline(HeadlineSamples::CycleNormalised)
    .baseline();

/// A mispredicted branch.
pub static BRANCH_MISPREDICT: Metric =
    Metric::duration("cpu.branch.mispredict", "A mispredicted conditional branch, beyond a predicted one")
        .overhead(Overhead::None)
        .headline(HeadlineSamples::CycleNormalised);
