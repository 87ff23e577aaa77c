//! Where each published row belongs: its metric and its point on the axes of that metric.

use kelvin_model::Case;

/// A metric, and the part of the case that is the same for all points of a row.
pub(super) struct Place {
    /// The `id` of the published row.
    pub(super) id: &'static str,
    /// The study that it is of, where two studies mean different things by one `id`.
    study: Option<&'static str>,
    /// Id of the metric.
    pub(super) metric: &'static str,
    words: &'static [(&'static str, &'static str)],
    numbers: &'static [(&'static str, u64)],
    /// The axis along which the row has points, and what one unit of the published `x` is on it.
    axis: Option<(&'static str, u64)>,
    /// What one value covers, where the publication is not about what one value of the metric covers.
    pub(super) spans: Option<&'static str>,
}

impl Place {
    /// A row that is the metric of the same name, without parameters.
    const fn same(id: &'static str) -> Self {
        Self::of(id, id)
    }

    const fn of(id: &'static str, metric: &'static str) -> Self {
        Self { id, study: None, metric, words: &[], numbers: &[], axis: None, spans: None }
    }

    const fn in_study(self, study: &'static str) -> Self {
        Self { study: Some(study), ..self }
    }

    const fn words(self, words: &'static [(&'static str, &'static str)]) -> Self {
        Self { words, ..self }
    }

    const fn numbers(self, numbers: &'static [(&'static str, u64)]) -> Self {
        Self { numbers, ..self }
    }

    const fn along(self, axis: &'static str, scale: u64) -> Self {
        Self { axis: Some((axis, scale)), ..self }
    }

    const fn spans(self, spans: &'static str) -> Self {
        Self { spans: Some(spans), ..self }
    }

    /// Whether it is a place for rows of this study.
    pub(super) fn is_of(&self, study: &str) -> bool {
        self.study.is_none_or(|its| its == study)
    }

    /// The case of one point; `x` is its place on the published axis, `block_bytes` a parameter that the row states.
    pub(super) fn case(&self, x: Option<u64>, block_bytes: Option<u64>) -> Case {
        let mut case = Case::new();
        for (axis, word) in self.words {
            case = case.at(kelvin_model::Point::named(axis, word));
        }
        for (axis, number) in self.numbers {
            case = case.with(*axis, *number);
        }
        case = match (self.axis, x) {
            (Some((axis, scale)), Some(x)) => case.with(axis, x * scale),
            (None, None) => case,
            _ => panic!("{} has an axis here and none in its file, or the other way round", self.id),
        };
        match block_bytes {
            Some(bytes) => case.with("block_bytes", bytes),
            None => case,
        }
    }
}

/// The place of a row that a study published.
pub(super) fn place(study: &str, id: &str) -> Option<&'static Place> {
    PLACES.iter().find(|place| place.id == id && place.is_of(study))
}

const MIB: u64 = 1 << 20;

/// What a getpid() in a fresh child is: kelvin times getppid, which no C library caches, without a fork before it.
const FRESH_CHILD: &str = "getpid() made once in a fresh child each time, its first execution there";
/// The studies of request sizes published totals, not the time of one request.
const TOTAL: &str = "the total for 100,000,000 bytes";

/// Every row of the files. The 2013 study of function calls called directly, as did that of 2011.
pub(super) static PLACES: &[Place] = &[
    Place::same("cpu.clock.pair"),
    Place::same("cpu.loop"),
    Place::same("cpu.call.args").words(&[("via", "direct")]).along("arguments", 1),
    Place::of("cpu.call.args0", "cpu.call.args").words(&[("via", "direct")]).numbers(&[("arguments", 0)]),
    Place::same("os.syscall.null").in_study("zenbook-2011").words(&[("call", "getppid")]).spans(FRESH_CHILD),
    Place::same("os.syscall.null").in_study("os-bench-2013").words(&[("call", "gettid")]),
    Place::same("os.process.fork"),
    Place::same("os.thread.create"),
    Place::same("os.switch.process.pipe"),
    Place::same("os.switch.thread.pipe"),
    Place::same("os.switch.thread.condvar")
        .spans("from before the signal to the awakened thread's first clock reading"),
    Place::of("mem.latency.l1", "mem.latency").words(&[("level", "L1")]),
    Place::of("mem.latency.l2", "mem.latency").words(&[("level", "L2")]),
    Place::of("mem.latency.l3", "mem.latency").words(&[("level", "L3")]),
    Place::of("mem.latency.dram", "mem.latency")
        .words(&[("level", "DRAM")])
        .spans("a range was published; the value is its middle"),
    Place::of("mem.bandwidth.read.1", "mem.bandwidth.read").numbers(&[("cpus", 1)]),
    Place::of("mem.bandwidth.write.1", "mem.bandwidth.write").numbers(&[("cpus", 1)]),
    Place::same("mem.fault.major").words(&[("read_ahead", "on")]).numbers(&[("step_bytes", 16 * MIB)]),
    Place::of("net.rtt.tcp.local", "net.rtt.tcp").words(&[("between", "local")]).numbers(&[("bytes", 64)]),
    Place::of("net.rtt.tcp.remote", "net.rtt.tcp").words(&[("between", "remote")]).numbers(&[("bytes", 64)]),
    Place::of("net.rtt.icmp.local", "net.rtt.icmp").words(&[("between", "local")]),
    Place::of("net.rtt.icmp.remote", "net.rtt.icmp").words(&[("between", "remote")]),
    Place::of("net.bandwidth.tcp.local", "net.bandwidth.tcp")
        .words(&[("between", "local")])
        .numbers(&[("message_bytes", 4096)]),
    Place::of("net.bandwidth.tcp.remote", "net.bandwidth.tcp")
        .words(&[("between", "remote")])
        .numbers(&[("message_bytes", 4096)]),
    Place::of("net.connect.local", "net.connect").words(&[("between", "local")]),
    Place::of("net.connect.remote", "net.connect").words(&[("between", "remote")]),
    Place::of("net.close.local", "net.close").words(&[("between", "local")]),
    Place::of("net.close.remote", "net.close").words(&[("between", "remote")]),
    Place::same("file.cache_size"),
    Place::same("file.read.direct.seq").along("file_bytes", MIB),
    Place::same("file.read.direct.rand").along("file_bytes", MIB),
    Place::same("file.read.remote.seq").along("file_bytes", MIB),
    Place::same("file.read.remote.rand").along("file_bytes", MIB),
    Place::same("file.contention").words(&[("files", "own")]).along("threads", 1),
    Place::same("file.autosize"),
    Place::same("file.byte_calls").words(&[("call", "lseek")]).along("file_bytes", 1),
    Place::same("peer.dd.copy").spans("one file read and another written"),
    Place::of("file.stride.fread", "file.engines").words(&[("engine", "fread")]).along("request_bytes", 1).spans(TOTAL),
    Place::of("file.stride.read", "file.engines").words(&[("engine", "read")]).along("request_bytes", 1).spans(TOTAL),
    Place::of("file.stride.mmap", "file.engines").words(&[("engine", "mmap")]).along("request_bytes", 1).spans(TOTAL),
];
