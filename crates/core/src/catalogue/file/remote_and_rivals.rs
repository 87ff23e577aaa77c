//! Reading compared with others: from a remote directory, and interleaved with other programs.

use crate::{AxisWord, Better, Metric, Need, Unit};

use super::{AccessOrder, BLOCK, BYTES, CacheState, disk_metric};
use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics, rate};
use crate::catalogue::rivals::{Rival, RivalComparison};

words! {
    /// The directory of a lookup.
    pub enum LookupDirectory: "place", "directory" {
        /// The one that `--remote` names.
        Remote = "remote",
        /// The scratch directory.
        Local = "local",
    }
}

/// The block that the program itself chooses.
pub const PROGRAM_BLOCK: AxisWord = AxisWord::new(BLOCK, "own");

const fn remote_metric(metric: Metric) -> Metric {
    disk_metric(metric).needs(Need::RemoteDirectory)
}

const fn remote_block_metric(id: &'static str) -> Metric {
    remote_metric(duration(id)).with_axes([CacheState::AXIS, AccessOrder::AXIS, BYTES]).version(2)
}

const fn cached_rival_metric(id: &'static str) -> Metric {
    disk_metric(rate(id)).with_axes([Rival::AXIS, BLOCK]).needs(Need::Rivals).version(2)
}

const fn direct_rival_metric(id: &'static str) -> Metric {
    cached_rival_metric(id).with_axes([Rival::AXIS, BLOCK, AccessOrder::AXIS])
}

/// Reading from the page cache.
pub static RIVAL_COMPARISON_CACHED: RivalComparison =
    RivalComparison { ratio: &RIVALS_CACHED, kelvin: &RIVALS_CACHED_KELVIN, other: &RIVALS_CACHED_OTHER };

/// Reading past it.
pub static RIVAL_COMPARISON_DIRECT: RivalComparison =
    RivalComparison { ratio: &RIVALS_DIRECT, kelvin: &RIVALS_DIRECT_KELVIN, other: &RIVALS_DIRECT_OTHER };

metrics! {
    /// The metrics of the page cache, in the order of reports.
    pub const CACHE_METRICS = [
        // Its figure is of pages and not of time: samples count as found.
        /// Size from which on a file just read is no longer in memory, under a limit of 128 MiB
        CACHE_SIZE = disk_metric(duration("file.cache_size")).unit(Unit::Bytes, Better::Neither).baseline(),
        /// Reading a block of 64 KiB of a file just read, by size of the file, under a limit of 128 MiB
        CACHE_SIZE_BLOCK = disk_metric(duration("file.cache_size.block")).with_axes([BYTES]),
        /// Share of a file just read that is in memory when it is read again, under a limit of 128 MiB
        CACHE_SIZE_RETAINED = disk_metric(duration("file.cache_size.stayed"))
            .unit(Unit::Ratio, Better::Neither)
            .bounds(None, Some(1.0))
            .with_axes([BYTES]),
        /// Share of a file that is still in the page cache after nothing has touched it for most of the run
        IDLE_RETAINED = disk_metric(rate("file.idle"))
            .unit(Unit::Ratio, Better::Higher)
            .bounds(Some(0.0), Some(1.0))
            .needs(Need::IdleTime),
        /// Time for which nothing had touched those files when they were examined
        IDLE_TIME = disk_metric(duration("file.idle.time"))
            .unit(Unit::Nanoseconds, Better::Neither)
            .needs(Need::IdleTime),
    ];
}

metrics! {
    /// The metrics of a remote directory, in the order of reports.
    pub const REMOTE_METRICS = [
        /// One request about a name to the server of a directory
        REMOTE_ROUND_TRIP = remote_metric(duration("file.remote.round_trip"))
            .with_axes([LookupDirectory::AXIS])
            .version(2),
        /// fstat(2) of an open file, which a mount may have to ask for
        REMOTE_ATTRIBUTES = remote_metric(duration("file.remote.attributes")).with_axes([LookupDirectory::AXIS]),
        /// Bytes per second from the directory that --remote names, beyond the first block of a large request
        REMOTE_RATE = remote_metric(rate("file.remote.rate")),
        /// Read-ahead window of the kernel in the directory that --remote names
        REMOTE_READ_AHEAD = remote_metric(duration("file.remote.read_ahead")).unit(Unit::Bytes, Better::Neither),
        /// One block of 4 KiB read from the directory that --remote names
        REMOTE_BLOCK = remote_block_metric("file.remote").baseline(),
        /// One block of 4 KiB read from the scratch directory, interleaved with the remote one
        LOCAL_BLOCK = remote_block_metric("file.remote.local"),
        /// Share of a remote block's time beyond a local one's
        REMOTE_SHARE = remote_block_metric("file.remote.share")
            .unit(Unit::Ratio, Better::Neither)
            .bounds(None, Some(1.0)),
        /// Requests to the server for one block, by the count of the NFS client
        REMOTE_REQUESTS = remote_block_metric("file.remote.requests").version(1).unit(Unit::Count, Better::Neither),
    ];
}

metrics! {
    /// The metrics of other programs, in the order of reports.
    pub const RIVAL_METRICS = [
        /// kelvin's rate of reading over another program's at the same work
        RIVALS_CACHED = cached_rival_metric("file.rivals.cached").unit(Unit::Ratio, Better::Neither),
        /// Bytes per second that kelvin reads, interleaved with another program
        RIVALS_CACHED_KELVIN = cached_rival_metric("file.rivals.cached.kelvin"),
        /// Bytes per second that another program reads, interleaved with kelvin
        RIVALS_CACHED_OTHER = cached_rival_metric("file.rivals.cached.other"),
        /// kelvin's rate of reading over another program's at the same work
        RIVALS_DIRECT = direct_rival_metric("file.rivals.direct").unit(Unit::Ratio, Better::Neither),
        /// Bytes per second that kelvin reads, interleaved with another program
        RIVALS_DIRECT_KELVIN = direct_rival_metric("file.rivals.direct.kelvin"),
        /// Bytes per second that another program reads, interleaved with kelvin
        RIVALS_DIRECT_OTHER = direct_rival_metric("file.rivals.direct.other"),
    ];
}
