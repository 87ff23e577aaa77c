//! Files and disks: every way to read and write, the device, and the file system's own work.

mod device;
mod metadata;
mod reads;
mod remote_and_rivals;

use crate::{Axis, AxisScale, Metric};

use crate::catalogue::axis_words::words;

pub use device::*;
pub use metadata::*;
pub use reads::*;
pub use remote_and_rivals::*;

/// The metrics of this area, in the order of reports.
pub static ALL: &[&Metric] = &[
    &DEVICE_READ,
    &DEVICE_READ_HUGE,
    &DEVICE_REPEAT_READ,
    &DEVICE_LATENCY,
    &DEVICE_MEAN_LATENCY,
    &DEVICE_REQUESTS,
    &DEVICE_WRITE,
    &DEVICE_ACCEPT_LATENCY,
    &DEVICE_WRITE_LATENCY,
    &READ_AHEAD,
    &PAGE_READ,
    &PAGE_WRITE,
    &BLOCKSIZE_READ,
    &BLOCKSIZE_WRITE,
    &READ_ORDER,
    &READ_ORDER_P99,
    &DEPTH_RATE,
    &DEPTH_LATENCY,
    &DEPTH_ACHIEVED,
    &CONTENTION,
    &THREADS,
    &BYTE_CALLS,
    &ENGINES,
    &WHOLE_FILE,
    &WHOLE_FILE_REQUEST,
    &WHOLE_FILE_BYTE,
    &CACHE_SIZE,
    &CACHE_SIZE_BLOCK,
    &CACHE_SIZE_RETAINED,
    &IDLE_RETAINED,
    &IDLE_TIME,
    &NEW_FILE,
    &SYNC_WRITE,
    &ENTRY_CREATE,
    &ENTRY_FREE,
    &ENTRY_ADD,
    &ENTRY_REMOVE,
    &METADATA_CREATE,
    &METADATA_STAT,
    &METADATA_OPEN,
    &METADATA_RENAME,
    &METADATA_LIST,
    &METADATA_UNLINK,
    &REMOTE_ROUND_TRIP,
    &REMOTE_ATTRIBUTES,
    &REMOTE_RATE,
    &REMOTE_READ_AHEAD,
    &REMOTE_BLOCK,
    &LOCAL_BLOCK,
    &REMOTE_SHARE,
    &REMOTE_REQUESTS,
    &TUNE_RATE,
    &TUNE_GAIN,
    &TUNE_BLOCK,
    &TUNE_THREADS,
    &TUNE_DEPTH,
    &RIVALS_CACHED,
    &RIVALS_CACHED_KELVIN,
    &RIVALS_CACHED_OTHER,
    &RIVALS_DIRECT,
    &RIVALS_DIRECT_KELVIN,
    &RIVALS_DIRECT_OTHER,
];

/// Bytes of a request.
pub const BLOCK: Axis = Axis::new("block", "block", AxisScale::Bytes);
/// Bytes of the file.
pub const BYTES: Axis = Axis::new("bytes", "file", AxisScale::Bytes);
/// Threads that read at the same time.
pub const THREAD_COUNT: Axis = Axis::new("threads", "threads", AxisScale::Logarithmic);

words! {
    /// State of the page cache for a file that is read.
    pub enum CacheState: "cache", "page cache" {
        /// All of the file is in memory.
        Cached = "cached",
        /// None of it is, and it is read through the page cache.
        Uncached = "uncached",
        /// It is read past the page cache (O_DIRECT).
        Direct = "direct",
    }
}

words! {
    /// Order in which the blocks of a file are read or written.
    pub enum AccessOrder: "order", "order" {
        /// From the first to the last.
        Sequential = "sequential",
        /// Each once, in random order.
        Random = "random",
    }
}

/// The disk is measured: samples count as found, and waiting for it is no disturbance.
const fn disk_metric(metric: Metric) -> Metric {
    metric.as_found().not_in_cycles()
}
