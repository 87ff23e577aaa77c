//! Files read and written: by block, by order, by queue depth, by threads, and by every way of reading.

use crate::{Axis, AxisScale, Better, Metric, Name, Overhead, Unit};

use super::{AccessOrder, BLOCK, BYTES, CacheState, THREAD_COUNT, disk_metric};
use crate::catalogue::axis_words::words;

/// Requests in flight.
pub const QUEUE_DEPTH: Axis = Axis::new("depth", "queue depth", AxisScale::Logarithmic);

words! {
    /// What a write waits for. Neither is flushed.
    pub enum SyncPolicy: "sync", "sync policy" {
        /// For memory.
        Buffered = "buffered",
        /// For the device to accept it.
        Direct = "direct",
    }
}

words! {
    /// The file of each of several threads.
    pub enum FileSharing: "files", "files" {
        /// A file of its own.
        Own = "own",
        /// A part of one file that all share.
        Shared = "shared",
    }
}

/// One curve for memory and disk: samples count as found, and waiting is no disturbance.
const fn cache_and_disk_metric(metric: Metric) -> Metric {
    metric.as_found().overhead(Overhead::ClockPair)
}

/// Reading by the size of a block.
pub static BLOCKSIZE_READ: Metric = cache_and_disk_metric(Metric::rate(
    "file.blocksize.read",
    "Bytes read per second by one thread, one pread a block, in order",
))
.with_axes([BLOCK, CacheState::AXIS])
.version(2)
.baseline();

/// Writing by the size of a block.
pub static BLOCKSIZE_WRITE: Metric = cache_and_disk_metric(Metric::rate(
    "file.blocksize.write",
    "Bytes overwritten per second by one thread, one pwrite a block, in order, not flushed",
))
.with_axes([BLOCK, SyncPolicy::AXIS])
.version(2);

/// Reading in order and in random order.
pub static READ_ORDER: Metric =
    disk_metric(Metric::duration("file.seqrand", "One read of 4 KiB, the mean over a round, one at a time"))
        .with_axes([BYTES, AccessOrder::AXIS, CacheState::AXIS])
        .baseline();

/// The tail of the same.
pub static READ_ORDER_P99: Metric =
    disk_metric(Metric::duration("file.seqrand.p99", "99th percentile of the reads of 4 KiB in a round")).with_axes([
        BYTES,
        AccessOrder::AXIS,
        CacheState::AXIS,
    ]);

/// The study of blocks.
pub const BLOCKSIZE: Name = Name::new("file.blocksize");
/// The study of queue depths.
pub const DEPTH: Name = Name::new("file.depth");

/// Rate of reads by the queue depth.
pub static DEPTH_RATE: Metric = disk_metric(Metric::rate("file.depth.rate", "Random reads of 4 KiB per second"))
    .unit(Unit::PerSecond, Better::Higher)
    .with_axes([QUEUE_DEPTH]);

/// Latency of reads by the queue depth.
pub static DEPTH_LATENCY: Metric =
    disk_metric(Metric::duration("file.depth.latency", "Latency of a random read of 4 KiB, the mean over a round"))
        .with_axes([QUEUE_DEPTH]);

/// The queue depth that was reached.
pub static DEPTH_ACHIEVED: Metric = disk_metric(Metric::rate(
    "file.depth.achieved",
    "Mean queue depth over a round: the rate times the latency, by Little's law",
))
.unit(Unit::Count, Better::Neither)
.with_axes([QUEUE_DEPTH]);

/// Reading from a shared device.
pub static CONTENTION: Metric = disk_metric(Metric::duration(
    "file.contention",
    "One read past the page cache while other threads read, the mean over threads and round",
))
.with_axes([THREAD_COUNT, FileSharing::AXIS, BLOCK, BYTES])
.version(3)
.baseline();

/// Reading by many threads.
pub static THREADS: Metric =
    disk_metric(Metric::rate("file.threads", "Bytes read per second by all threads together, of one file"))
        .with_axes([THREAD_COUNT, BLOCK, CacheState::AXIS])
        .version(2);

/// Bytes of the file that one-byte calls are made on.
pub const FILE_BYTES: Axis = Axis::new("file_bytes", "size of the file", AxisScale::Bytes);

words! {
    /// A system call on a file that moves a byte, or none.
    pub enum ByteCall: "call", "system call" {
        /// read(2) of the next byte.
        Read = "read",
        /// pread(2) of the next byte.
        Pread = "pread",
        /// lseek(2) to the next byte.
        Lseek = "lseek",
        /// pread(2) of a byte at a random place.
        PreadAnywhere = "pread_anywhere",
    }
}

words! {
    /// A way of reading a file.
    pub enum ReadEngine: "engine", "way of reading" {
        /// read(2).
        Read = "read",
        /// pread(2).
        Pread = "pread",
        /// readv(2) into four parts of the buffer.
        Readv = "readv",
        /// fread(3) of the C library, with its usual buffer.
        Fread = "fread",
        /// Rust's `BufReader`, with its usual buffer.
        BufReader = "bufreader",
        /// A mapping, copied out of.
        Mmap = "mmap",
        /// Like `Mmap`, its pages mapped ahead.
        MmapPopulate = "mmap-populate",
        /// io_uring with one request in flight.
        Uring1 = "io_uring-1",
        /// io_uring with 8 requests in flight.
        Uring8 = "io_uring-8",
        /// io_uring with 64 requests in flight.
        Uring64 = "io_uring-64",
        /// io_uring with one request in flight, file and buffers registered beforehand.
        UringFixed1 = "io_uring-fixed-1",
        /// Like `UringFixed1`, with 8 requests.
        UringFixed8 = "io_uring-fixed-8",
        /// Like `UringFixed8`, with 64 requests.
        UringFixed64 = "io_uring-fixed-64",
    }
}

/// One-byte calls.
pub static BYTE_CALLS: Metric =
    Metric::duration("file.byte_calls", "One system call on a cached file that reads one byte, or goes to another")
        .with_axes([ByteCall::AXIS, FILE_BYTES])
        .overhead(Overhead::ClockPairAndLoop)
        .baseline();

/// Requests by each way of reading. A time, not a rate: its two parts, call and copy, add up, and the curves of all ways start
/// apart and meet where only copying is left.
pub static ENGINES: Metric = Metric::duration(
    "file.engines",
    "One request for the next bytes of a cached file, until they are in a buffer of the program",
)
.with_axes([ReadEngine::AXIS, BLOCK]);

/// The study of files read whole.
pub static WHOLE_FILE: Metric = Metric::duration(
    "file.whole",
    "Reading 100 MB of a cached file from its beginning to its end in requests of one size, opening and closing included",
).as_found()
.with_axes([ReadEngine::AXIS, BLOCK])
.baseline();

/// Like `WHOLE_FILE`, for each request.
pub static WHOLE_FILE_REQUEST: Metric =
    Metric::duration("file.whole_request", "The same total for each of its requests")
        .as_found()
        .with_axes([ReadEngine::AXIS, BLOCK]);

/// Like `WHOLE_FILE_REQUEST`, for each byte.
///
/// Not in core cycles: many bytes are copied in one.
pub static WHOLE_FILE_BYTE: Metric = Metric::duration("file.whole_byte", "The same total for each of its bytes")
    .as_found()
    .with_axes([ReadEngine::AXIS, BLOCK])
    .not_in_cycles();

words! {
    /// A way of reading whose best block, threads and queue depth are searched for.
    pub enum TunedEngine: "engine", "way of reading" {
        /// pread(2).
        Pread = "pread",
        /// A mapping, its pages mapped ahead, copied out of.
        MmapPopulate = "mmap-populate",
        /// io_uring.
        Uring = "io_uring",
    }
}

const fn tune_metric(id: &'static str, summary: &'static str, unit: Unit, better: Better) -> Metric {
    disk_metric(Metric::duration(id, summary).unit(unit, better)).with_axes([CacheState::AXIS, TunedEngine::AXIS])
}

/// Rate of the best setting.
pub static TUNE_RATE: Metric = tune_metric(
    "file.tune",
    "Bytes per second with the best setting of a search",
    Unit::BytesPerSecond,
    Better::Higher,
);

/// Like `TUNE_RATE`, over that of a plain program.
pub static TUNE_GAIN: Metric = tune_metric(
    "file.tune.gain",
    "That rate over pread of 128 KiB by one thread, interleaved with it",
    Unit::Ratio,
    Better::Higher,
);
/// Its block.
pub static TUNE_BLOCK: Metric =
    tune_metric("file.tune.block", "Bytes of a request in that setting", Unit::Bytes, Better::Neither);
/// Its threads.
pub static TUNE_THREADS: Metric =
    tune_metric("file.tune.threads", "Threads in that setting", Unit::Count, Better::Neither);
/// Its queue depth.
pub static TUNE_DEPTH: Metric =
    tune_metric("file.tune.depth", "Queue depth of a thread in that setting", Unit::Count, Better::Neither);
