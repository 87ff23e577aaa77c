//! Memory: latency and levels of caches, bandwidth, faults, and communication between cores.

use crate::{Axis, AxisScale, Better, HeadlineSamples, Metric, Name, Need, Overhead, SampleTags, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics, rate};
use crate::catalogue::os::WORKING_CPUS;

/// Bytes that a probe goes through repeatedly.
pub const BYTES: Axis = Axis::new("bytes", "working set", AxisScale::Bytes);
/// Bytes of a huge page where base pages are of 4 KiB.
pub const HUGE_PAGE: u64 = 2 << 20;
/// Bytes from one load to the next.
pub const STRIDE: Axis = Axis::new("stride", "stride", AxisScale::Bytes);
/// Independent chains of dependent loads, followed at once.
pub const CHAINS: Axis = Axis::new("chains", "independent chains", AxisScale::Logarithmic);
/// Pages, with one line loaded in each.
pub const TOUCHED_PAGES: Axis = Axis::new("count", "pages touched", AxisScale::Logarithmic);
/// Bytes from one touch of a file to the next.
pub const TOUCH_STEP: Axis = Axis::new("step_bytes", "stride of the touches, bytes", AxisScale::Bytes);
/// Bandwidth injected by other CPUs, in percent of what they could move.
pub const INJECTED_LOAD: Axis = Axis::new("injection", "share of full injection, %", AxisScale::Linear);
/// The CPU that a cache line comes from, and the one that it goes to.
pub const FROM_CPU: Axis = Axis::new("from", "from CPU", AxisScale::Linear);
/// See [`FROM_CPU`].
pub const TO_CPU: Axis = Axis::new("to", "to CPU", AxisScale::Linear);
/// The node of the CPU that moves memory.
pub const FROM_NODE: Axis = Axis::new("from", "node of the CPU", AxisScale::Linear);
/// The node of that memory.
pub const TO_NODE: Axis = Axis::new("to", "node of the memory", AxisScale::Linear);

words! {
    /// The size of pages.
    pub enum PageSize: "pages", "page size" {
        /// Base pages.
        Base = "base",
        /// Transparent huge pages.
        Huge = "huge",
    }
}

words! {
    /// The pages that a program asks the kernel for.
    pub enum RequestedPages: "pages", "page size" {
        /// Those that it gives to any program, as to malloc.
        Default = "default",
        /// Transparent huge pages (MADV_HUGEPAGE).
        Huge = "huge",
    }
}

words! {
    /// The CPUs that move memory.
    pub enum MemoryCpus: "cpus", "CPUs" {
        /// The one that probes run on.
        One = "one",
        /// All that may be used, at once.
        All = "all",
    }
}

words! {
    /// The nodes whose CPUs move memory, each its own.
    pub enum MemoryNodes: "nodes", "nodes of memory" {
        /// That of the CPU that probes run on.
        One = "one",
        /// All whose CPUs may be used.
        All = "all",
    }
}

words! {
    /// The kind of page that a minor fault maps.
    pub enum FaultPage: "kind", "kind of page" {
        /// A base page of anonymous memory.
        Anonymous = "anonymous",
        /// A huge page of anonymous memory.
        Huge = "huge",
        /// A cached page of a file, without fault-around.
        File = "file",
        /// A cached page of a file, with fault-around.
        FileAround = "file_around",
    }
}

words! {
    /// Whether the kernel reads ahead.
    pub enum ReadAhead: "read_ahead", "read-ahead" {
        /// It does.
        On = "on",
        /// It does not (MADV_RANDOM).
        Off = "off",
    }
}

words! {
    /// Where the two words lie that two CPUs write to.
    pub enum LinePlacement: "lines", "placement of the two words" {
        /// In one cache line.
        Same = "same",
        /// In two lines, 128 bytes apart.
        Separate = "separate",
    }
}

words! {
    /// How a word is incremented.
    pub enum IncrementKind: "increment", "kind of increment" {
        /// By a load, an add and a store.
        NonAtomic = "plain",
        /// By one locked instruction.
        Atomic = "atomic",
    }
}

words! {
    /// How a page was mapped and touched.
    pub enum MappedPage: "kind", "kind of page" {
        /// Anonymous, never touched.
        Untouched = "untouched",
        /// Anonymous, only read.
        Read = "read",
        /// Anonymous, written.
        Written = "written",
        /// Anonymous, written, then shared with a child.
        Forked = "forked",
        /// Shared memory, written.
        Shared = "shared",
        /// Of a file, shared, written.
        File = "file",
        /// Anonymous, written, in huge pages.
        Huge = "huge",
    }
}

/// The probe of all operations on memory by bandwidth.
pub const BANDWIDTH_PROBE: Name = Name::new("mem.bandwidth");
/// The probe of bandwidth against the number of CPUs.
pub const SCALING_PROBE: Name = Name::new("mem.scaling");
/// The probe of latency and bandwidth under load.
pub const LOADED_PROBE: Name = Name::new("mem.bandwidth.loaded");
/// The probe of NUMA nodes.
pub const NODE_PROBE: Name = Name::new("mem.node");
/// The probe of memory that is interleaved over NUMA nodes.
pub const INTERLEAVED_PROBE: Name = Name::new("mem.node.interleaved");
/// The study of what a mapped page is.
pub const PAGE_STUDY: Name = Name::new("mem.page");

/// From this version on sets above [`LATENCY_FLUSHED_BYTES`] are as caches hold them; before, they were flushed from the caches whether these
/// could hold them or not.
pub const LATENCY_UNFLUSHED_VERSION: u32 = 2;
/// See [`LATENCY_UNFLUSHED_VERSION`].
pub const LATENCY_FLUSHED_BYTES: u64 = 64 << 20;

/// Guarded by the core canaries alone: what an operation leaves in the caches is no disturbance. Vector units of 512 bits, and all
/// cores at once, run at a frequency of their own.
const fn bandwidth_metric(id: &'static str) -> Metric {
    rate(id).with_axes([BYTES, MemoryCpus::AXIS]).own_frequency()
}

/// A figure of a whole round: what else runs on any of its CPUs is part of it, so every round counts as found.
const fn scaling_metric(metric: Metric) -> Metric {
    metric.with_axes([MemoryNodes::AXIS, BYTES, WORKING_CPUS]).as_found().not_in_cycles().needs(Need::SecondCpu)
}

/// The probe, not the harness, chooses the CPUs of a pair: running on another than usual is no disturbance. Headlines
/// are as found, because with two kinds of cores no single canary reference is right for both.
const fn core_to_core_metric(id: &'static str) -> Metric {
    duration(id)
        .headline(HeadlineSamples::AsFound)
        .overhead(Overhead::None)
        .contaminants(SampleTags::PREEMPTED)
        .not_in_cycles()
        .needs(Need::SecondCpu)
}

/// The probe, not the harness, chooses the CPU, and one canary reference need not be right for all nodes.
const fn node_metric(metric: Metric) -> Metric {
    metric.headline(HeadlineSamples::AsFound).contaminants(SampleTags::PREEMPTED).not_in_cycles()
}

const fn page_share_metric(id: &'static str) -> Metric {
    duration(id)
        .with_axes([MappedPage::AXIS])
        .unit(Unit::Ratio, Better::Neither)
        .as_found()
        .bounds(Some(0.0), Some(1.0))
}

metrics! {
    /// The metrics of this area, in the order of reports.
    pub const ALL = [
        /// A dependent load, random over the working set
        LATENCY = duration("mem.latency")
            .with_axes([PageSize::AXIS, BYTES])
            .version(LATENCY_UNFLUSHED_VERSION)
            .baseline(),
        /// A load from memory, with a number of independent chains of dependent loads followed at once
        LATENCY_PARALLEL = duration("mem.latency.parallel").with_axes([PageSize::AXIS, BYTES, CHAINS]),
        /// A dependent load, this many bytes before the last one
        LATENCY_STRIDE = duration("mem.latency.stride").with_axes([BYTES, STRIDE]),
        /// A dependent load over this many base pages, one line in each
        TLB = duration("mem.tlb").with_axes([TOUCHED_PAGES]),
        /// A dependent load over as many adjacent lines
        TLB_PACKED = duration("mem.tlb.packed").with_axes([TOUCHED_PAGES]),
        /// A minor page fault, including the touch that causes it
        FAULT_MINOR = duration("mem.fault.minor").with_axes([FaultPage::AXIS]),
        /// The first touch of a mapped file page that is not in memory
        FAULT_MAJOR = duration("mem.fault.major")
            .with_axes([ReadAhead::AXIS, TOUCH_STEP])
            .as_found()
            .not_in_cycles()
            .baseline(),
        // The host, where there is one, is part of this figure and the next, and no canary sees it.
        /// The first touch of a page of 128 MiB that are new to the process
        FIRST_TOUCH = duration("mem.first_touch").as_found(),
        /// The first touch of a page of the same 128 MiB, given back to the kernel just before
        REPEATED_FIRST_TOUCH = duration("mem.first_touch.again").as_found(),
        /// Bytes read per second, sequentially, each once
        BANDWIDTH_READ = bandwidth_metric("mem.bandwidth.read").baseline(),
        /// Bytes written per second by ordinary stores, sequentially, each once
        BANDWIDTH_WRITE = bandwidth_metric("mem.bandwidth.write").baseline(),
        /// Bytes per second of a copy, read and written
        BANDWIDTH_COPY = bandwidth_metric("mem.bandwidth.copy").version(2),
        /// Bytes per second of memory set to a constant, not zero, by the fastest means
        BANDWIDTH_FILL = bandwidth_metric("mem.bandwidth.fill").version(3),
        /// Bytes per second of memory set to zero by the fastest means
        BANDWIDTH_ZERO = bandwidth_metric("mem.bandwidth.zero").version(2),
        /// Bytes written per second by non-temporal stores, which bypass the caches
        BANDWIDTH_NTWRITE = bandwidth_metric("mem.bandwidth.ntwrite").version(2),
        /// Bytes per second of a[i] = b[i] + s * c[i], read and written
        BANDWIDTH_TRIAD = bandwidth_metric("mem.bandwidth.triad").version(2),
        /// From one CPU's store to a cache line until another CPU's load sees it, both of them CPUs that move memory
        BANDWIDTH_CORE_TO_CORE = core_to_core_metric("mem.bandwidth.core_to_core")
            .with_axes([BYTES, MemoryCpus::AXIS])
            .only_at(MemoryCpus::All.point()),
        /// Bytes per second of a copy by the C library's memcpy on one CPU, read and written
        BANDWIDTH_MEMCPY = rate("mem.bandwidth.memcpy").with_axes([BYTES, RequestedPages::AXIS]).own_frequency(),
        /// Bytes read per second by all working CPUs together, each in memory of its own
        SCALING_READ = scaling_metric(rate("mem.scaling.read")),
        /// Bytes written per second by ordinary stores of all working CPUs together, each in memory of its own
        SCALING_WRITE = scaling_metric(rate("mem.scaling.write")),
        /// Bytes per second of a copy by all working CPUs together, each in memory of its own, read and written
        SCALING_COPY = scaling_metric(rate("mem.scaling.copy")),
        /// Bytes per second of a[i] = b[i] + s * c[i] by all working CPUs together, each in memory of its own, read and written
        SCALING_TRIAD = scaling_metric(rate("mem.scaling.triad")),
        /// A dependent load from memory while all working CPUs follow pointers at once, each in memory of its own; mean over the CPUs
        SCALING_LATENCY = scaling_metric(duration("mem.scaling.latency")),
        /// A load from memory while other CPUs stream through memory
        LOADED_LATENCY = duration("mem.loaded.latency")
            .with_axes([INJECTED_LOAD, BYTES])
            .version(3)
            .needs(Need::SecondCpu),
        /// Memory bandwidth meanwhile: the injected bytes and the lines of the timed loads
        LOADED_BANDWIDTH = rate("mem.loaded.bandwidth")
            .with_axes([INJECTED_LOAD, BYTES])
            .version(3)
            .unit(Unit::BytesPerSecond, Better::Neither)
            .headline(HeadlineSamples::AsFound)
            .needs(Need::SecondCpu),
        /// From one CPU's store to a cache line until another CPU's load sees it: half of a round trip
        CORE_TO_CORE = core_to_core_metric("mem.core_to_core").with_axes([FROM_CPU, TO_CPU]),
        /// One increment by each of two CPUs at once, of words in the same line or 128 bytes apart
        FALSE_SHARING = core_to_core_metric("mem.false_sharing").with_axes([LinePlacement::AXIS, IncrementKind::AXIS]),
        /// A dependent load from memory
        NODE_LATENCY = node_metric(duration("mem.node.latency")).with_axes([FROM_NODE, TO_NODE, BYTES]).version(2),
        /// Bytes read from memory per second by one CPU
        NODE_BANDWIDTH = node_metric(rate("mem.node.bandwidth")).with_axes([FROM_NODE, TO_NODE, BYTES]).version(2),
        /// A dependent load from memory that is interleaved over all nodes
        INTERLEAVED_LATENCY = node_metric(duration("mem.node.latency.interleaved")).with_axes([FROM_NODE, BYTES]),
        /// Bytes of memory that is interleaved over all nodes, read per second by one CPU
        INTERLEAVED_BANDWIDTH = node_metric(rate("mem.node.bandwidth.interleaved")).with_axes([FROM_NODE, BYTES]),
        /// Share of the pages that are present in memory
        PAGE_PRESENT = page_share_metric("mem.page.present"),
        /// Share of the pages that belong to a file or to shared memory
        PAGE_FILE = page_share_metric("mem.page.file"),
        /// Share of the pages that no other process maps
        PAGE_EXCLUSIVE = page_share_metric("mem.page.exclusive"),
        /// Share of the pages mapped by a huge page
        PAGE_HUGE = page_share_metric("mem.page.huge"),
        /// Share of the pages that are the kernel's zero page
        PAGE_ZERO = page_share_metric("mem.page.zero"),
    ];
}
