//! Files read and written: by block, by order, by queue depth, by threads, and by every way of reading.

use crate::{Axis, AxisScale, Better, Metric, Name, Overhead, Unit};

use super::{AccessOrder, BLOCK, BYTES, CacheState, EXTENT, THREAD_COUNT, disk_metric};
use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics, rate};

/// Requests in flight.
pub const QUEUE_DEPTH: Axis = Axis::new("depth", "queue depth", AxisScale::Logarithmic);
/// Threads that each have as many requests in flight, on a CPU of their own: what fio calls jobs.
pub const JOBS: Axis = Axis::new("jobs", "jobs, one on each CPU", AxisScale::Logarithmic);
/// Requests of each job in flight: so many that a few jobs reach the highest rate of a fast drive, and so few that one alone may not.
pub const JOBS_DEPTH: u64 = 32;

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

/// The study of blocks.
pub const BLOCKSIZE: Name = Name::new("file.blocksize");
/// The study of queue depths.
pub const DEPTH: Name = Name::new("file.depth");
/// The study of jobs.
pub const JOBS_STUDY: Name = Name::new("file.jobs");

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

const fn tune_metric(id: &'static str, unit: Unit, better: Better) -> Metric {
    disk_metric(duration(id).unit(unit, better)).with_axes([CacheState::AXIS, TunedEngine::AXIS])
}

metrics! {
    /// The metrics of reads and writes, in the order of reports.
    pub const READ_METRICS = [
        /// Bytes read per second by one thread, one pread a block, in order
        BLOCKSIZE_READ = cache_and_disk_metric(rate("file.blocksize.read"))
            .with_axes([BLOCK, CacheState::AXIS])
            .version(2)
            .baseline(),
        /// Bytes overwritten per second by one thread, one pwrite a block, in order, not flushed
        BLOCKSIZE_WRITE = cache_and_disk_metric(rate("file.blocksize.write"))
            .with_axes([BLOCK, SyncPolicy::AXIS])
            .version(2),
        /// One read of 4 KiB, the mean over a round, one at a time
        READ_ORDER = disk_metric(duration("file.seqrand"))
            .with_axes([BYTES, AccessOrder::AXIS, CacheState::AXIS])
            .baseline(),
        /// 99th percentile of the reads of 4 KiB in a round
        READ_ORDER_P99 = disk_metric(duration("file.seqrand.p99"))
            .with_axes([BYTES, AccessOrder::AXIS, CacheState::AXIS]),
        /// Random reads of 4 KiB per second
        DEPTH_RATE = disk_metric(rate("file.depth.rate"))
            .unit(Unit::PerSecond, Better::Higher)
            .with_axes([QUEUE_DEPTH, EXTENT])
            .version(2),
        /// Latency of a random read of 4 KiB, the mean over a round
        DEPTH_LATENCY = disk_metric(duration("file.depth.latency")).with_axes([QUEUE_DEPTH, EXTENT]).version(2),
        /// Mean queue depth over a round: the rate times the latency, by Little's law
        DEPTH_ACHIEVED = disk_metric(rate("file.depth.achieved"))
            .unit(Unit::Count, Better::Neither)
            .with_axes([QUEUE_DEPTH, EXTENT])
            .version(2),
        /// Random reads of 4 KiB per second by all jobs together, each at this queue depth on a CPU of its own
        JOBS_IOPS = disk_metric(rate("file.jobs.iops"))
            .unit(Unit::PerSecond, Better::Higher)
            .with_axes([JOBS, QUEUE_DEPTH, EXTENT])
            .version(2),
        /// CPU time of one of these reads, the mean over all jobs
        JOBS_CPU =
            disk_metric(duration("file.jobs.cpu")).with_axes([JOBS, QUEUE_DEPTH, EXTENT]).version(2),
        /// One read past the page cache while other threads read, the mean over threads and round
        CONTENTION = disk_metric(duration("file.contention"))
            .with_axes([THREAD_COUNT, FileSharing::AXIS, BLOCK, BYTES])
            .version(3)
            .baseline(),
        /// Bytes read per second by all threads together, of one file
        THREADS = disk_metric(rate("file.threads")).with_axes([THREAD_COUNT, BLOCK, CacheState::AXIS]).version(2),
        /// One system call on a cached file that reads one byte, or goes to another
        BYTE_CALLS = duration("file.byte_calls")
            .with_axes([ByteCall::AXIS, FILE_BYTES])
            .overhead(Overhead::ClockPairAndLoop)
            .baseline(),
        // A time, not a rate: its two parts, call and copy, add up. The curves of all ways start apart and meet where only
        // copying is left.
        /// One request for the next bytes of a cached file, until they are in a buffer of the program
        ENGINES = duration("file.engines").with_axes([ReadEngine::AXIS, BLOCK]),
        /// Reading 100 MB of a cached file from its beginning to its end in requests of one size, opening and closing
        /// included
        WHOLE_FILE = duration("file.whole").as_found().with_axes([ReadEngine::AXIS, BLOCK]).baseline(),
        /// The same total for each of its requests
        WHOLE_FILE_REQUEST = duration("file.whole_request").as_found().with_axes([ReadEngine::AXIS, BLOCK]),
        // Not in core cycles: many bytes are copied in one.
        /// The same total for each of its bytes
        WHOLE_FILE_BYTE = duration("file.whole_byte").as_found().with_axes([ReadEngine::AXIS, BLOCK]).not_in_cycles(),
    ];
}

metrics! {
    /// The metrics of the best setting, in the order of reports.
    pub const TUNE_METRICS = [
        /// Bytes per second with the best setting of a search
        TUNE_RATE = tune_metric("file.tune", Unit::BytesPerSecond, Better::Higher),
        /// That rate over pread of 128 KiB by one thread, interleaved with it
        TUNE_GAIN = tune_metric("file.tune.gain", Unit::Ratio, Better::Higher),
        /// Bytes of a request in that setting
        TUNE_BLOCK = tune_metric("file.tune.block", Unit::Bytes, Better::Neither),
        /// Threads in that setting
        TUNE_THREADS = tune_metric("file.tune.threads", Unit::Count, Better::Neither),
        /// Queue depth of a thread in that setting
        TUNE_DEPTH = tune_metric("file.tune.depth", Unit::Count, Better::Neither),
    ];
}
