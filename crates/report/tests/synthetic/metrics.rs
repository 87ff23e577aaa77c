//! Definitions of the made-up run's metrics.

use kelvin_core::{Axis, AxisScale, Better, Canaries, Canary, HeadlineSamples, Metric, Unit};

const ARGUMENTS: Axis = Axis::new("arguments", "arguments", AxisScale::Linear);
const VIA: Axis = Axis::new("via", "kind of call", AxisScale::Category);
const BYTES: Axis = Axis::new("bytes", "resident memory of the parent", AxisScale::Bytes);
const WORKING_SET: Axis = Axis::new("bytes", "working set", AxisScale::Bytes);
const PROCESS_WORKING_SET: Axis = Axis::new("bytes", "working set of each process", AxisScale::Bytes);
const PAGES: Axis = Axis::new("pages", "page size", AxisScale::Category);
const PROCESSES: Axis = Axis::new("processes", "processes in the ring", AxisScale::Logarithmic);
const CALL: Axis = Axis::new("call", "call", AxisScale::Category);
const TASK: Axis = Axis::new("task", "kind of task", AxisScale::Category);
const TASK_COUNT: Axis = Axis::new("tasks", "tasks", AxisScale::Linear);
const KIND: Axis = Axis::new("kind", "kind of task", AxisScale::Category);
const CPUS: Axis = Axis::new("cpus", "CPUs", AxisScale::Category);
const LOAD: Axis = Axis::new("injection", "share of the load, percent", AxisScale::Linear);
const THREADS: Axis = Axis::new("threads", "threads", AxisScale::Logarithmic);
const BLOCK: Axis = Axis::new("block", "block", AxisScale::Bytes);
const CACHE: Axis = Axis::new("cache", "page cache", AxisScale::Category);
const FROM: Axis = Axis::new("from", "from CPU", AxisScale::Linear);
const TO: Axis = Axis::new("to", "to CPU", AxisScale::Linear);

pub const CLOCK_PAIR: Metric = Metric::duration("cpu.clock.pair", "One empty start and stop of the clock.").baseline();
pub const FREQUENCY: Metric =
    Metric::duration("cpu.frequency", "Core cycles in a second.").unit(Unit::Hertz, Better::Higher);
pub const LOOP: Metric = Metric::duration("cpu.loop", "One iteration of a minimal counted loop.")
    .baseline()
    .headline(HeadlineSamples::CycleNormalised);
pub const CALL_ARGS: Metric = Metric::duration("cpu.call.args", "A call and its return, by number of arguments.")
    .baseline()
    .headline(HeadlineSamples::CycleNormalised)
    .with_axes([ARGUMENTS, VIA]);
pub const SYSCALL_NULL: Metric =
    Metric::duration("os.syscall.null", "A system call that does nothing.").baseline().with_axes([CALL]);
pub const SYSCALL_READ: Metric = Metric::duration("os.syscall.read", "read of one byte of /dev/zero.");
pub const SYSCALL_STAT: Metric = Metric::duration("os.syscall.stat", "stat of a file whose entry is cached.");
pub const FORK: Metric = Metric::duration("os.process.fork", "fork, until it returns in the parent.").baseline();
pub const VFORK: Metric = Metric::duration("os.process.vfork", "vfork, exit and wait.");
pub const EXEC: Metric =
    Metric::duration("os.process.exec", "fork, exec, exit and wait.").headline(HeadlineSamples::AsFound);
pub const FORK_RSS: Metric =
    Metric::duration("os.process.fork_rss", "fork, by resident memory of the parent.").with_axes([BYTES, PAGES]);
pub const THREAD: Metric = Metric::duration("os.thread.create", "pthread_create, until it returns.").baseline();
pub const SWITCH: Metric =
    Metric::duration("os.switch.cost", "One switch between two tasks on one CPU.").baseline().with_axes([TASK]);
pub const SWITCH_CROSS: Metric = Metric::duration("os.switch.cross_cpu", "Waking a task on another CPU.")
    .not_in_cycles()
    .headline(HeadlineSamples::AsFound);
pub const RING: Metric = Metric::duration("os.switch.ring", "One switch in a ring of processes, by working set.")
    .with_axes([PROCESSES, PROCESS_WORKING_SET]);
pub const SIGNAL: Metric = Metric::duration("os.signal.deliver", "A signal to oneself, delivered to its handler.");
pub const TIMER: Metric = Metric::duration("os.timer.wakeup", "How late a sleep of 1 ms wakes.")
    .not_in_cycles()
    .headline(HeadlineSamples::AsFound)
    .canaries(Canaries::NONE);
pub const PIPE_RATE: Metric = Metric::rate("os.ipc.bandwidth", "Bytes through a pipe in a second.");
pub const TASKS: Metric = Metric::duration("os.tasks.elapsed", "A fixed amount of work, by number of tasks.")
    .not_in_cycles()
    .headline(HeadlineSamples::AsFound)
    .with_axes([TASK_COUNT, KIND]);
pub const LATENCY: Metric = Metric::duration("mem.latency", "One dependent load, by working set.")
    .baseline()
    .canaries(Canaries::from_canaries(&[Canary::Chain, Canary::Block]))
    .with_axes([WORKING_SET, PAGES]);
pub const BANDWIDTH: [Metric; 6] = [
    bandwidth("mem.bandwidth.read", "Bytes read in a second.").baseline(),
    bandwidth("mem.bandwidth.write", "Bytes written in a second.").baseline(),
    bandwidth("mem.bandwidth.copy", "Bytes copied in a second, each counted once."),
    bandwidth("mem.bandwidth.fill", "Bytes filled with one value in a second."),
    bandwidth("mem.bandwidth.ntwrite", "Bytes written past the caches in a second."),
    bandwidth("mem.bandwidth.triad", "Bytes that a triad moves in a second, each array counted once."),
];
pub const LOADED_LATENCY: Metric =
    Metric::duration("mem.loaded.latency", "One dependent load while other CPUs load the memory.")
        .not_in_cycles()
        .with_axes([LOAD]);
pub const LOADED_RATE: Metric = Metric::rate("mem.loaded.bandwidth", "Bytes that memory moved in a second meanwhile.")
    .unit(Unit::BytesPerSecond, Better::Neither)
    .with_axes([LOAD]);
pub const CORE_TO_CORE: Metric = Metric::duration("mem.core_to_core", "One cache line handed from one CPU to another.")
    .not_in_cycles()
    .with_axes([FROM, TO]);
pub const FAULT_MINOR: Metric = Metric::duration("mem.fault.minor", "A fault on a page of zeros.");
pub const FAULT_MAJOR: Metric =
    Metric::duration("mem.fault.major", "A fault on a page of a file that is not cached.").baseline().not_in_cycles();
pub const TLB_MISS: Metric = Metric::duration("mem.tlb.miss", "One miss of the translation look-aside buffer.");
pub const FILE_THREADS: Metric = Metric::rate("file.threads", "Bytes read per second by all threads together.")
    .headline(HeadlineSamples::AsFound)
    .canaries(Canaries::NONE)
    .with_axes([THREADS, BLOCK, CACHE]);

const fn bandwidth(id: &'static str, summary: &'static str) -> Metric {
    Metric::rate(id, summary)
        .canaries(Canaries::from_canaries(&[Canary::Chain, Canary::Block]))
        .with_axes([WORKING_SET, CPUS])
}

/// A measure of kelvin's rate over that of another program.
pub const fn rival(id: &'static str) -> Metric {
    const PROGRAM: Axis = Axis::new("program", "program", AxisScale::Category);
    const BLOCK: Axis = Axis::new("block", "block", AxisScale::Bytes);
    const ORDER: Axis = Axis::new("order", "order", AxisScale::Category);
    Metric::rate(id, "Rate of kelvin over that of another program.")
        .unit(Unit::Ratio, Better::Neither)
        .with_axes([PROGRAM, BLOCK, ORDER])
}
