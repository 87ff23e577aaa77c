//! The device below the scratch directory, and pages on their way into the page cache.

use crate::{Axis, AxisScale, Better, Metric, Name, Overhead, Unit};

use super::{AccessOrder, CacheState, disk_metric};

/// The probe of reading from the device.
pub const DEVICE: Name = Name::new("file.device");

/// Rate of reading.
pub static DEVICE_READ: Metric = disk_metric(Metric::rate(
    "file.device.read",
    "Bytes read per second from the device, in order, with 16 requests of 1 MiB in flight",
))
.version(2);

/// Like `DEVICE_READ`, with buffers in huge pages.
pub static DEVICE_READ_HUGE: Metric =
    disk_metric(Metric::rate("file.device.read_huge", "The same into buffers in huge pages, of one segment each"));

/// Latency of a small read.
pub static DEVICE_LATENCY: Metric = disk_metric(Metric::duration(
    "file.device.latency",
    "One read of 4 KiB from the device at a random place, at queue depth 1",
));

/// Mean latency of small reads.
pub static DEVICE_MEAN_LATENCY: Metric = disk_metric(Metric::duration(
    "file.device.mean_latency",
    "The same, the mean over a round, from which rates follow",
));

/// Rate of small reads.
pub static DEVICE_REQUESTS: Metric = disk_metric(Metric::rate(
    "file.device.requests",
    "Reads of 4 KiB per second from the device, at random places, at queue depth 64",
))
.version(2)
.unit(Unit::PerSecond, Better::Higher);

/// Later passes over the first one.
pub static DEVICE_REPEAT_READ: Metric = disk_metric(Metric::rate(
    "file.device.repeat",
    "Rate of later passes over a file, over that of the first pass after it was written",
))
.version(2)
.unit(Unit::Ratio, Better::Neither);

/// Rate of writing.
pub static DEVICE_WRITE: Metric = disk_metric(Metric::rate(
    "file.device.write",
    "Bytes per second that the device accepts, in order, with 16 requests of 1 MiB in flight, not flushed",
))
.version(2);

/// Latency of a small write that is not flushed.
pub static DEVICE_ACCEPT_LATENCY: Metric = disk_metric(Metric::duration(
    "file.device.accept",
    "One write of 4 KiB at a random place, until the device has accepted it, perhaps only in its cache",
));

/// Latency of a small write that is flushed.
pub static DEVICE_WRITE_LATENCY: Metric = disk_metric(Metric::duration(
    "file.device.write_latency",
    "One write of 4 KiB at a random place and fdatasync, until it is durable",
));

/// Pages of which a byte is written.
pub const PAGES: Axis = Axis::new("pages", "pages", AxisScale::Linear);

/// Windows of read-ahead.
pub static READ_AHEAD: Metric = disk_metric(Metric::rate(
    "file.read_ahead",
    "Largest read-ahead window of the kernel, in a file of 64 MiB read in order",
))
.unit(Unit::Bytes, Better::Neither);

/// A page added to the page cache, or found there. As the reads that it explains: samples count as found.
pub static PAGE_READ: Metric =
    Metric::duration("file.page_read", "One pread of a byte of the next page, the mean over a pass")
        .as_found()
        .with_axes([CacheState::AXIS, AccessOrder::AXIS]);

/// A page of the page cache written to. As the writes that it explains: samples count as found.
pub static PAGE_WRITE: Metric = Metric::duration(
    "file.page_write",
    "One pwrite of a byte in each of a number of adjacent pages, in memory and dirty",
)
.as_found()
.with_axes([PAGES, AccessOrder::AXIS])
.overhead(Overhead::ClockPair);
