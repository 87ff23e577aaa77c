//! The counterpart of each published row: the case of kelvin that measured the same, or why there is none.

use kelvin_catalogue::Placement::SameCpu;
use kelvin_catalogue::file::{self, AccessOrder, ByteCall, CacheState, FileSharing, ReadEngine};
use kelvin_catalogue::mem::{self, Cpus, PageSize, ReadAhead};
use kelvin_catalogue::net::{self, SendMethod, Transport};
use kelvin_catalogue::os::Woken;
use kelvin_catalogue::{cpu, os};
use kelvin_model::{Case, Metric};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A metric, and the case of each point of a published row.
pub(super) struct Place {
    /// The `id` of the row in its file.
    pub(super) row: &'static str,
    /// Its study, where two studies mean different things by one `id`.
    study: Option<&'static str>,
    /// What it measured.
    pub(super) metric: &'static Metric,
    at: At,
    /// What one value covers, if not what one value of the metric covers.
    pub(super) spans: Option<&'static str>,
    /// What the published value spans is what the metric is.
    pub(super) is_spanned: bool,
    /// The published value is a number a second, and the metric the time of one.
    pub(super) is_rate: bool,
}

/// The case of a row, or of each of its points.
enum At {
    One(fn() -> Case),
    Each(fn(u64) -> Case),
}

impl Place {
    const fn one(row: &'static str, metric: &'static Metric, case: fn() -> Case) -> Self {
        Self { row, study: None, metric, at: At::One(case), spans: None, is_spanned: false, is_rate: false }
    }

    const fn each(row: &'static str, metric: &'static Metric, case: fn(u64) -> Case) -> Self {
        Self { at: At::Each(case), ..Self::one(row, metric, Case::new) }
    }

    const fn in_study(self, study: &'static str) -> Self {
        Self { study: Some(study), ..self }
    }

    const fn spans(self, spans: &'static str) -> Self {
        Self { spans: Some(spans), ..self }
    }

    const fn of_spanned(self) -> Self {
        Self { is_spanned: true, ..self }
    }

    const fn of_rate(self) -> Self {
        Self { is_rate: true, ..self }
    }

    /// Whether it is a place for rows of this study.
    pub(super) fn is_of(&self, study: &str) -> bool {
        self.study.is_none_or(|its| its == study)
    }

    /// The case of one point; `x` is its place on the published axis.
    pub(super) fn case(&self, x: Option<u64>) -> Case {
        match (&self.at, x) {
            (At::One(case), None) => case(),
            (At::Each(case), Some(x)) => case(x),
            _ => panic!("{} has an axis here and none in its file, or vice versa", self.row),
        }
    }
}

/// A published row that no case of kelvin measures.
#[derive(Debug)]
pub struct Unmatched {
    /// The id of the study.
    pub study: &'static str,
    /// The row, or the table, by its name in the study's file.
    pub row: &'static str,
    /// Why there is no counterpart.
    pub because: &'static str,
}

impl Unmatched {
    const fn all(study: &'static str, row: &'static str, because: &'static str) -> Self {
        Self { study, row, because }
    }
}

/// The place of a row that a study published.
pub(super) fn place(study: &str, row: &str) -> Option<&'static Place> {
    PLACES.iter().find(|place| place.row == row && place.is_of(study))
}

/// Why a row has no counterpart, if it has none.
pub(super) fn unmatched(study: &str, row: &str) -> Option<&'static Unmatched> {
    UNMATCHED.iter().find(|one| one.study == study && one.row == row)
}

const ZENBOOK: &str = "zenbook-2011";
const OS_BENCH: &str = "os-bench-2013";
const DISK_READER: &str = "disk-reader-2021";
pub(super) const TRANSFER: &str = "kernel-transfer-2020";
const SERVER: &str = "file-server-lan";

/// What a getpid() in a fresh child is: kelvin times getppid, which no C library caches, without a fork before it.
const FRESH_CHILD: &str = "getpid() made once in a fresh child each time, its first execution there";
/// Both studies compiled without optimisation. kelvin's loops and calls are written in assembly.
const UNOPTIMISED: &str = "code compiled without optimisation, which keeps its variables in memory";
const THREAD_SWITCH: &str = "one switch or two, not stated: the same study's figure between processes is of two";
const UNOPTIMISED_BANDWIDTH: &str = "code compiled without optimisation, over a working set that is not stated";
const ENDS_NOT_STATED: &str = "two ends, not stated to be on one core as those of the round trip were";
const PING: &str = "the time that ping prints, including ping's own work between its clock readings";
const REMOTE_CACHE: &str = "reads that are not stated to bypass the page cache";
const UNLIMITED: &str = "the file cache of a whole machine of 4 GB, that of a study one under a limit of 128 MiB";
const AUTOSIZE: &str = "ten seconds of one program from its first pass over the file, including its work on the bytes";

/// Every row with a counterpart. Messages to another host are taken to be those of the local row.
pub(super) static PLACES: &[Place] = &[
    Place::one("cpu.clock.pair", &cpu::CLOCK_PAIR, Case::new),
    Place::one("cpu.loop", &cpu::LOOP, Case::new).spans(UNOPTIMISED),
    Place::each("cpu.call.args", &cpu::CALL_ARGS, direct_call).spans(UNOPTIMISED),
    Place::one("cpu.call.args0", &cpu::CALL_ARGS, || direct_call(0)).spans(UNOPTIMISED),
    Place::one("os.syscall.null", &os::SYSCALL_NULL, || Case::new().at(os::NullCall::Getppid))
        .in_study(ZENBOOK)
        .spans(FRESH_CHILD),
    Place::one("os.syscall.null", &os::SYSCALL_NULL, || Case::new().at(os::NullCall::Gettid)).in_study(OS_BENCH),
    Place::one("os.process.fork", &os::PROCESS_FORK, Case::new),
    Place::one("os.thread.create", &os::THREAD_CREATE, Case::new),
    Place::one("os.switch.process.pipe", &os::SWITCH_PROCESS_PIPE, Case::new).in_study(ZENBOOK),
    Place::one("os.switch.process.pipe", &os::SWITCH_ONE_WAY, || Case::new().at(Woken::ProcessPipe).at(SameCpu))
        .in_study(OS_BENCH)
        .of_spanned(),
    Place::one("os.switch.thread.pipe", &os::SWITCH_THREAD_PIPE, Case::new).spans(THREAD_SWITCH),
    Place::one("os.switch.thread.condvar", &os::SWITCH_ONE_WAY, || Case::new().at(Woken::ThreadCondvar).at(SameCpu)),
    // A set that the first-level cache of every machine holds.
    Place::one("mem.latency.l1", &mem::LATENCY, || Case::new().at(PageSize::Base).with(mem::BYTES, 16 * KIB)),
    Place::one("mem.bandwidth.read.1", &mem::BANDWIDTH_READ, memory_by_one_cpu).spans(UNOPTIMISED_BANDWIDTH),
    Place::one("mem.bandwidth.write.1", &mem::BANDWIDTH_WRITE, memory_by_one_cpu).spans(UNOPTIMISED_BANDWIDTH),
    Place::one("mem.fault.major", &mem::FAULT_MAJOR, || Case::new().at(ReadAhead::On).with(mem::STEP, 16 * MIB)),
    Place::one("net.rtt.tcp.local", &net::RTT_TCP, || Case::new().at(SameCpu).with(net::MESSAGE, 64)),
    Place::one("net.rtt.tcp.remote", &net::PEER_RTT, || Case::new().at(Transport::Tcp).with(net::MESSAGE, 64)),
    Place::one("net.rtt.icmp.local", &net::RTT_ICMP, || Case::new().with(net::MESSAGE, 64)).spans(PING),
    Place::one("net.rtt.icmp.remote", &net::PEER_PING, || Case::new().with(net::MESSAGE, 64)).spans(PING),
    Place::one("net.bandwidth.tcp.local", &net::BANDWIDTH_TCP, || {
        Case::new().at(SameCpu).with(net::MESSAGE, 4 * KIB).with(net::STREAMS, 1)
    })
    .spans(ENDS_NOT_STATED),
    Place::one("net.bandwidth.tcp.remote", &net::PEER_BANDWIDTH_MESSAGE, || {
        Case::new().at(SendMethod::Send).with(net::MESSAGE, 4 * KIB)
    }),
    Place::one("net.connect.local", &net::CONNECT, || Case::new().at(SameCpu)).spans(ENDS_NOT_STATED),
    Place::one("net.connect.remote", &net::PEER_CONNECT, Case::new),
    Place::one("net.close.local", &net::CLOSE, || Case::new().at(SameCpu)).spans(ENDS_NOT_STATED),
    Place::one("net.close.remote", &net::PEER_CLOSE, Case::new),
    Place::each("file.read.direct.seq", &file::SEQRAND, |mib| past_cache(AccessOrder::Sequential, mib)),
    Place::each("file.read.direct.rand", &file::SEQRAND, |mib| past_cache(AccessOrder::Random, mib)),
    Place::each("file.read.remote.seq", &file::REMOTE, |mib| past_cache(AccessOrder::Sequential, mib))
        .spans(REMOTE_CACHE),
    Place::each("file.read.remote.rand", &file::REMOTE, |mib| past_cache(AccessOrder::Random, mib)).spans(REMOTE_CACHE),
    Place::one("file.cache_size", &file::CACHE_SIZE, Case::new).spans(UNLIMITED),
    Place::each("file.contention", &file::CONTENTION, |threads| {
        let own = Case::new().with(file::THREAD_COUNT, threads).at(FileSharing::Own);
        own.with(file::BLOCK, 4 * KIB).with(file::BYTES, 64 * MIB)
    }),
    // What was called was lseek.
    Place::each("file.byte_calls", &file::BYTE_CALLS, |bytes| {
        Case::new().at(ByteCall::Lseek).with(file::FILE_BYTES, bytes)
    })
    .of_rate(),
    Place::one("file.autosize", &file::BLOCKSIZE_READ, || {
        Case::new().at(CacheState::Cached).with(file::BLOCK, 4 * KIB)
    })
    .spans(AUTOSIZE),
    Place::each("file.stride.fread", &file::WHOLE, |bytes| request(ReadEngine::Fread, bytes)),
    Place::each("file.stride.read", &file::WHOLE, |bytes| request(ReadEngine::Read, bytes)),
    Place::each("file.stride.mmap", &file::WHOLE, |bytes| request(ReadEngine::Mmap, bytes)),
];

fn direct_call(arguments: u64) -> Case {
    Case::new().at(cpu::Via::Direct).with(cpu::ARGUMENTS, arguments)
}

/// The set that represents memory with a last-level cache of at most 64 MiB; with a larger one it is another set.
fn memory_by_one_cpu() -> Case {
    Case::new().at(Cpus::One).with(mem::BYTES, 256 * MIB)
}

fn past_cache(order: AccessOrder, mib: u64) -> Case {
    Case::new().at(CacheState::Direct).at(order).with(file::BYTES, mib * MIB)
}

fn request(engine: ReadEngine, bytes: u64) -> Case {
    Case::new().at(engine).with(file::BLOCK, bytes)
}

const BY_WORKING_SET: &str = "a run has latency by working set, and only its curve shows which level serves which set";
const COPYING: &str = "no run copies one file to another";
const PAGE_ENTRY: &str = "page-table entries, which a process cannot read";
const LOAD_STUDY: &str =
    "a knee and a saturation, not figures of a number of users; `kelvin study load --published` judges them";
const SERVER_CAPACITY: &str = "reading whole files through the page cache, and a TCP stream of unstated direction";

/// Every row without a counterpart.
pub(super) static UNMATCHED: &[Unmatched] = &[
    Unmatched::all(ZENBOOK, "mem.latency.l2", BY_WORKING_SET),
    Unmatched::all(ZENBOOK, "mem.latency.l3", BY_WORKING_SET),
    Unmatched::all(ZENBOOK, "mem.latency.dram", BY_WORKING_SET),
    Unmatched::all(DISK_READER, "peer.dd.copy", COPYING),
    Unmatched::all(TRANSFER, "page_descriptor", PAGE_ENTRY),
    Unmatched::all(SERVER, "capacity", SERVER_CAPACITY),
    Unmatched::all(SERVER, "case", LOAD_STUDY),
];
