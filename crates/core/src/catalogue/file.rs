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

/// Bytes of a request.
pub const BLOCK: Axis = Axis::new("block", "block", AxisScale::Bytes);
/// Bytes of the file.
pub const BYTES: Axis = Axis::new("bytes", "file", AxisScale::Bytes);
/// Bytes of the file that the study of the device covers, where `--extent` states them.
pub const EXTENT: Axis = Axis::new("extent", "extent", AxisScale::Bytes);
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
