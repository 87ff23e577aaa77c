//! The counterpart of each published row: the case of kelvin that measured the same, or why there is none.

use kelvin_core::catalogue::PairPlacement::SameCpu;
use kelvin_core::catalogue::file::{self, AccessOrder, ByteCall, CacheState, FileSharing, ReadEngine};
use kelvin_core::catalogue::mem::{self, MemoryCpus, PageSize, ReadAhead};
use kelvin_core::catalogue::net::{self, SendMethod, Transport};
use kelvin_core::catalogue::os::HandoffMechanism;
use kelvin_core::catalogue::{cpu, os};
use kelvin_core::{Case, Metric};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A metric, and the case of each point of a published row.
pub(super) struct RowMapping {
    /// The `id` of the row in its file.
    pub(super) row: &'static str,
    /// Its study, where two studies mean different things by one `id`.
    study: Option<&'static str>,
    /// What it measured.
    pub(super) metric: &'static Metric,
    case: RowCase,
    /// What one value covers, if not what one value of the metric covers.
    pub(super) spans: Option<&'static str>,
    /// What the published value spans is what the metric is.
    pub(super) is_spanned: bool,
    /// The published value is a number a second, and the metric the time of one.
    pub(super) is_rate: bool,
}

/// The case of a row, or of each of its points.
enum RowCase {
    Single(fn() -> Case),
    PerPoint(fn(u64) -> Case),
}

impl RowMapping {
    const fn for_row(row: &'static str, metric: &'static Metric, case: fn() -> Case) -> Self {
        Self { row, study: None, metric, case: RowCase::Single(case), spans: None, is_spanned: false, is_rate: false }
    }

    const fn per_point(row: &'static str, metric: &'static Metric, case: fn(u64) -> Case) -> Self {
        Self { case: RowCase::PerPoint(case), ..Self::for_row(row, metric, Case::new) }
    }

    const fn in_study(self, study: &'static str) -> Self {
        Self { study: Some(study), ..self }
    }

    const fn spans(self, spans: &'static str) -> Self {
        Self { spans: Some(spans), ..self }
    }

    const fn spanned(self) -> Self {
        Self { is_spanned: true, ..self }
    }

    const fn with_rate(self) -> Self {
        Self { is_rate: true, ..self }
    }

    /// Whether it is a place for rows of this study.
    pub(super) fn is_for_study(&self, study: &str) -> bool {
        self.study.is_none_or(|own_study| own_study == study)
    }

    /// The case of one point; `x` is its place on the published axis.
    pub(super) fn case(&self, x: Option<u64>) -> Case {
        match (&self.case, x) {
            (RowCase::Single(case), None) => case(),
            (RowCase::PerPoint(case), Some(x)) => case(x),
            _ => panic!("{} has an axis here and none in its file, or vice versa", self.row),
        }
    }
}

/// A published row that no case of kelvin measures.
#[derive(Debug)]
pub struct UnmatchedRow {
    /// The id of the study.
    pub study: &'static str,
    /// The row, or the table, by its name in the study's file.
    pub row: &'static str,
    /// Why there is no counterpart.
    pub reason: &'static str,
}

/// The place of a row that a study published.
pub(super) fn row_mapping(study: &str, row: &str) -> Option<&'static RowMapping> {
    ROW_MAPPINGS.iter().find(|place| place.row == row && place.is_for_study(study))
}

/// Why a row has no counterpart, if it has none.
pub(super) fn unmatched_row(study: &str, row: &str) -> Option<&'static UnmatchedRow> {
    UNMATCHED_ROWS.iter().find(|unmatched| unmatched.study == study && unmatched.row == row)
}

const ZENBOOK: &str = "zenbook-2011";
const OS_BENCH: &str = "os-bench-2013";
const DISK_READER: &str = "disk-reader-2021";
pub(super) const TRANSFER: &str = "kernel-transfer-2020";
const SERVER: &str = "file-server-lan";

/// What a getpid() in a fresh child is: kelvin times getppid, which no C library caches, without a fork before it.
const FRESH_CHILD: &str = "getpid() made once in a fresh child each time, its first execution there";
/// Both studies compiled without optimisation. kelvin's loops and calls are written in assembly.
const UNOPTIMISED_CODE: &str = "code compiled without optimisation, which keeps its variables in memory";
const THREAD_SWITCH: &str = "one switch or two, not stated: the same study's figure between processes is of two";
const UNOPTIMISED_BANDWIDTH: &str = "code compiled without optimisation, over a working set that is not stated";
const ENDS_NOT_STATED: &str = "two ends, not stated to be on one core as those of the round trip were";
const PING: &str = "the time that ping prints, including ping's own work between its clock readings";
const REMOTE_CACHE: &str = "reads that are not stated to bypass the page cache";
const UNLIMITED_CACHE: &str = "the file cache of a whole machine of 4 GB, that of a study one under a limit of 128 MiB";
const AUTOSIZE: &str = "ten seconds of one program from its first pass over the file, including its work on the bytes";

/// Every row with a counterpart. Messages to another host are taken to be those of the local row.
pub(super) static ROW_MAPPINGS: &[RowMapping] = &[
    RowMapping::for_row("cpu.clock.pair", &cpu::CLOCK_PAIR, Case::new),
    RowMapping::for_row("cpu.loop", &cpu::LOOP, Case::new).spans(UNOPTIMISED_CODE),
    RowMapping::per_point("cpu.call.args", &cpu::CALL_ARGS, direct_call).spans(UNOPTIMISED_CODE),
    RowMapping::for_row("cpu.call.args0", &cpu::CALL_ARGS, || direct_call(0)).spans(UNOPTIMISED_CODE),
    RowMapping::for_row("os.syscall.null", &os::SYSCALL_NULL, || Case::new().with_word(os::NullCall::Getppid))
        .in_study(ZENBOOK)
        .spans(FRESH_CHILD),
    RowMapping::for_row("os.syscall.null", &os::SYSCALL_NULL, || Case::new().with_word(os::NullCall::Gettid))
        .in_study(OS_BENCH),
    RowMapping::for_row("os.process.fork", &os::PROCESS_FORK, Case::new),
    RowMapping::for_row("os.thread.create", &os::THREAD_CREATE, Case::new),
    RowMapping::for_row("os.switch.process.pipe", &os::SWITCH_COST, || HandoffMechanism::Pipe.between_processes())
        .in_study(ZENBOOK),
    RowMapping::for_row("os.switch.process.pipe", &os::ONE_WAY_WAKE_UP, || {
        HandoffMechanism::Pipe.between_processes().with_word(SameCpu)
    })
    .in_study(OS_BENCH)
    .spanned(),
    RowMapping::for_row("os.switch.thread.pipe", &os::SWITCH_COST, || HandoffMechanism::Pipe.between_threads())
        .spans(THREAD_SWITCH),
    RowMapping::for_row("os.switch.thread.condvar", &os::ONE_WAY_WAKE_UP, || {
        HandoffMechanism::Condvar.between_threads().with_word(SameCpu)
    }),
    // A set that the first-level cache of every machine holds.
    RowMapping::for_row("mem.latency.l1", &mem::LATENCY, || {
        Case::new().with_word(PageSize::Base).with_number(mem::BYTES, 16 * KIB)
    }),
    RowMapping::for_row("mem.bandwidth.read.1", &mem::BANDWIDTH_READ, memory_by_one_cpu).spans(UNOPTIMISED_BANDWIDTH),
    RowMapping::for_row("mem.bandwidth.write.1", &mem::BANDWIDTH_WRITE, memory_by_one_cpu).spans(UNOPTIMISED_BANDWIDTH),
    RowMapping::for_row("mem.fault.major", &mem::FAULT_MAJOR, || {
        Case::new().with_word(ReadAhead::On).with_number(mem::TOUCH_STEP, 16 * MIB)
    }),
    RowMapping::for_row("net.rtt.tcp.local", &net::RTT_TCP, || {
        Case::new().with_word(SameCpu).with_number(net::MESSAGE, 64)
    }),
    RowMapping::for_row("net.rtt.tcp.remote", &net::PEER_RTT, || {
        Case::new().with_word(Transport::Tcp).with_number(net::MESSAGE, 64)
    }),
    RowMapping::for_row("net.rtt.icmp.local", &net::RTT_ICMP, || Case::new().with_number(net::MESSAGE, 64)).spans(PING),
    RowMapping::for_row("net.rtt.icmp.remote", &net::PEER_PING, || Case::new().with_number(net::MESSAGE, 64))
        .spans(PING),
    RowMapping::for_row("net.bandwidth.tcp.local", &net::BANDWIDTH_TCP, || {
        Case::new().with_word(SameCpu).with_number(net::MESSAGE, 4 * KIB).with_number(net::STREAMS, 1)
    })
    .spans(ENDS_NOT_STATED),
    RowMapping::for_row("net.bandwidth.tcp.remote", &net::PEER_BANDWIDTH_MESSAGE, || {
        Case::new().with_word(SendMethod::Send).with_number(net::MESSAGE, 4 * KIB)
    }),
    RowMapping::for_row("net.connect.local", &net::CONNECT, || Case::new().with_word(SameCpu)).spans(ENDS_NOT_STATED),
    RowMapping::for_row("net.connect.remote", &net::PEER_CONNECT, Case::new),
    RowMapping::for_row("net.close.local", &net::CLOSE, || Case::new().with_word(SameCpu)).spans(ENDS_NOT_STATED),
    RowMapping::for_row("net.close.remote", &net::PEER_CLOSE, Case::new),
    RowMapping::per_point("file.read.direct.seq", &file::READ_ORDER, |mib| direct_read(AccessOrder::Sequential, mib)),
    RowMapping::per_point("file.read.direct.rand", &file::READ_ORDER, |mib| direct_read(AccessOrder::Random, mib)),
    RowMapping::per_point("file.read.remote.seq", &file::REMOTE_BLOCK, |mib| direct_read(AccessOrder::Sequential, mib))
        .spans(REMOTE_CACHE),
    RowMapping::per_point("file.read.remote.rand", &file::REMOTE_BLOCK, |mib| direct_read(AccessOrder::Random, mib))
        .spans(REMOTE_CACHE),
    RowMapping::for_row("file.cache_size", &file::CACHE_SIZE, Case::new).spans(UNLIMITED_CACHE),
    RowMapping::per_point("file.contention", &file::CONTENTION, |threads| {
        let case = Case::new().with_number(file::THREAD_COUNT, threads).with_word(FileSharing::Own);
        case.with_number(file::BLOCK, 4 * KIB).with_number(file::BYTES, 64 * MIB)
    }),
    // What was called was lseek.
    RowMapping::per_point("file.byte_calls", &file::BYTE_CALLS, |bytes| {
        Case::new().with_word(ByteCall::Lseek).with_number(file::FILE_BYTES, bytes)
    })
    .with_rate(),
    RowMapping::for_row("file.autosize", &file::BLOCKSIZE_READ, || {
        Case::new().with_word(CacheState::Cached).with_number(file::BLOCK, 4 * KIB)
    })
    .spans(AUTOSIZE),
    RowMapping::per_point("file.stride.fread", &file::WHOLE_FILE, |bytes| engine_request(ReadEngine::Fread, bytes)),
    RowMapping::per_point("file.stride.read", &file::WHOLE_FILE, |bytes| engine_request(ReadEngine::Read, bytes)),
    RowMapping::per_point("file.stride.mmap", &file::WHOLE_FILE, |bytes| engine_request(ReadEngine::Mmap, bytes)),
];

fn direct_call(arguments: u64) -> Case {
    Case::new().with_word(cpu::CallKind::Direct).with_number(cpu::ARGUMENTS, arguments)
}

/// The set that represents memory with a last-level cache of at most 64 MiB; with a larger one it is another set.
fn memory_by_one_cpu() -> Case {
    Case::new().with_word(MemoryCpus::One).with_number(mem::BYTES, 256 * MIB)
}

fn direct_read(order: AccessOrder, mib: u64) -> Case {
    Case::new().with_word(CacheState::Direct).with_word(order).with_number(file::BYTES, mib * MIB)
}

fn engine_request(engine: ReadEngine, bytes: u64) -> Case {
    Case::new().with_word(engine).with_number(file::BLOCK, bytes)
}

const BY_WORKING_SET: &str = "a run has latency by working set, and only its curve shows which level serves which set";
const FILE_COPY: &str = "no run copies one file to another";
const PAGE_ENTRY: &str = "page-table entries, which a process cannot read";
const LOAD_STUDY: &str =
    "a knee and a saturation, not figures of a number of users; `kelvin study load --published` judges them";
const SERVER_CAPACITY: &str = "reading whole files through the page cache, and a TCP stream of unstated direction";

/// The published rows and tables that no case of kelvin measures, each with the reason. A value of [`references`](super::references) that
/// is one of them has the name of its row for a metric.
pub static UNMATCHED_ROWS: &[UnmatchedRow] = &[
    UnmatchedRow { study: ZENBOOK, row: "mem.latency.l2", reason: BY_WORKING_SET },
    UnmatchedRow { study: ZENBOOK, row: "mem.latency.l3", reason: BY_WORKING_SET },
    UnmatchedRow { study: ZENBOOK, row: "mem.latency.dram", reason: BY_WORKING_SET },
    UnmatchedRow { study: DISK_READER, row: "peer.dd.copy", reason: FILE_COPY },
    UnmatchedRow { study: TRANSFER, row: "page_descriptor", reason: PAGE_ENTRY },
    UnmatchedRow { study: SERVER, row: "capacity", reason: SERVER_CAPACITY },
    UnmatchedRow { study: SERVER, row: "case", reason: LOAD_STUDY },
];
