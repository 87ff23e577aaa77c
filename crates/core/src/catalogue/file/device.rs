//! The device below the scratch directory, and pages on their way into the page cache.

use crate::{Axis, AxisScale, Better, Metric, Name, Overhead, Unit};

use super::{AccessOrder, CacheState, EXTENT, disk_metric};
use crate::catalogue::metric_list::{duration, metrics, rate};

/// The probe of reading from the device.
pub const DEVICE: Name = Name::new("file.device");

/// Pages of which a byte is written.
pub const PAGES: Axis = Axis::new("pages", "pages", AxisScale::Linear);

/// A figure of the device, over a file of an extent that is stated or of the usual one.
const fn device_metric(metric: Metric) -> Metric {
    disk_metric(metric).with_axes([EXTENT])
}

metrics! {
    /// The metrics of devices and pages, in the order of reports.
    pub const DEVICE_METRICS = [
        /// Bytes read per second from the device, in order, with 16 requests of 1 MiB in flight
        DEVICE_READ = device_metric(rate("file.device.read")).version(2),
        /// The same into buffers in huge pages, of one segment each
        DEVICE_READ_HUGE = device_metric(rate("file.device.read_huge")),
        /// Rate of later passes over a file, over that of the first pass after it was written
        DEVICE_REPEAT_READ = device_metric(rate("file.device.repeat")).version(2).unit(Unit::Ratio, Better::Neither),
        /// One read of 4 KiB from the device at a random place, at queue depth 1
        DEVICE_LATENCY = device_metric(duration("file.device.latency")),
        /// The same, the mean over a round, from which rates follow
        DEVICE_MEAN_LATENCY = device_metric(duration("file.device.mean_latency")),
        /// Reads of 4 KiB per second from the device, at random places, at queue depth 64
        DEVICE_REQUESTS = device_metric(rate("file.device.requests")).version(3).unit(Unit::PerSecond, Better::Higher),
        /// Bytes per second that the device accepts, in order, with 16 requests of 1 MiB in flight, not flushed
        DEVICE_WRITE = device_metric(rate("file.device.write")).version(2),
        /// One write of 4 KiB at a random place, until the device has accepted it, perhaps only in its cache
        DEVICE_ACCEPT_LATENCY = device_metric(duration("file.device.accept")),
        /// One write of 4 KiB at a random place and fdatasync, until it is durable
        DEVICE_WRITE_LATENCY = device_metric(duration("file.device.write_latency")),
        /// Largest read-ahead window of the kernel, in a file of 64 MiB read in order
        READ_AHEAD = disk_metric(rate("file.read_ahead")).unit(Unit::Bytes, Better::Neither),
        // As the reads that it explains: samples count as found.
        /// One pread of a byte of the next page, the mean over a pass
        PAGE_READ = duration("file.page_read").as_found().with_axes([CacheState::AXIS, AccessOrder::AXIS]),
        // As the writes that it explains: samples count as found.
        /// One pwrite of a byte in each of a number of adjacent pages, in memory and dirty
        PAGE_WRITE = duration("file.page_write")
            .as_found()
            .with_axes([PAGES, AccessOrder::AXIS])
            .overhead(Overhead::ClockPair),
    ];
}
