//! Reading beside others: from a remote directory, and in turn with other programs.

use crate::{AxisWord, Better, Metric, Need, Unit};

use super::{AccessOrder, BLOCK, BYTES, CacheState, disk_metric};
use crate::catalogue::axis_words::words;
use crate::catalogue::rivals::{Rival, RivalComparison, speed_ratio_metric};

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

const fn remote_block_metric(id: &'static str, summary: &'static str) -> Metric {
    remote_metric(Metric::duration(id, summary)).with_axes([CacheState::AXIS, AccessOrder::AXIS, BYTES]).version(2)
}

/// A request to a server, and its answer.
pub static REMOTE_ROUND_TRIP: Metric =
    remote_metric(Metric::duration("file.remote.round_trip", "One request about a name to the server of a directory"))
        .with_axes([LookupDirectory::AXIS])
        .version(2);

/// The attributes of an open file.
pub static REMOTE_ATTRIBUTES: Metric = remote_metric(Metric::duration(
    "file.remote.attributes",
    "fstat(2) of an open file, which a mount may have to ask for",
))
.with_axes([LookupDirectory::AXIS]);

/// The bytes a second of a server.
pub static REMOTE_RATE: Metric = remote_metric(Metric::rate(
    "file.remote.rate",
    "Bytes per second from the directory that --remote names, beyond the first block of a large request",
));

/// The window that is read ahead from a server.
pub static REMOTE_READ_AHEAD: Metric = remote_metric(Metric::duration(
    "file.remote.read_ahead",
    "Read-ahead window of the kernel in the directory that --remote names",
))
.unit(Unit::Bytes, Better::Neither);

/// A block of a remote directory.
pub static REMOTE_BLOCK: Metric =
    remote_block_metric("file.remote", "One block of 4 KiB read from the directory that --remote names").baseline();

/// A block of a local one.
pub static LOCAL_BLOCK: Metric = remote_block_metric(
    "file.remote.local",
    "One block of 4 KiB read from the scratch directory, interleaved with the remote one",
);

/// The share of a remote block that is the network.
pub static REMOTE_SHARE: Metric =
    remote_block_metric("file.remote.share", "Share of a remote block's time beyond a local one's")
        .unit(Unit::Ratio, Better::Neither)
        .bounds(None, Some(1.0));

/// The requests of a remote block.
pub static REMOTE_REQUESTS: Metric =
    remote_block_metric("file.remote.requests", "Requests to the server for one block, by the count of the NFS client")
        .version(1)
        .unit(Unit::Count, Better::Neither);

/// The file cache of a group whose memory is limited. Its figure is of pages and not of time: samples count as found.
pub static CACHE_SIZE: Metric = disk_metric(Metric::duration(
    "file.cache_size",
    "Size from which on a file just read is no longer in memory, under a limit of 128 MiB",
))
.unit(Unit::Bytes, Better::Neither)
.baseline();

/// Reading a file again under the same limit.
pub static CACHE_SIZE_BLOCK: Metric = disk_metric(Metric::duration(
    "file.cache_size.block",
    "Reading a block of 64 KiB of a file just read, by size of the file, under a limit of 128 MiB",
))
.with_axes([BYTES]);

/// What of it was still in memory.
pub static CACHE_SIZE_RETAINED: Metric = disk_metric(Metric::duration(
    "file.cache_size.stayed",
    "Share of a file just read that is in memory when it is read again, under a limit of 128 MiB",
))
.unit(Unit::Ratio, Better::Neither)
.bounds(None, Some(1.0))
.with_axes([BYTES]);

/// What stays of a file in the page cache that nothing reads.
pub static IDLE_RETAINED: Metric = disk_metric(Metric::rate(
    "file.idle",
    "Share of a file that is still in the page cache after nothing has touched it for most of the run",
))
.unit(Unit::Ratio, Better::Higher)
.bounds(Some(0.0), Some(1.0))
.needs(Need::IdleTime);

/// For how long nothing has touched it.
pub static IDLE_TIME: Metric = disk_metric(Metric::duration(
    "file.idle.time",
    "Time for which nothing had touched those files when they were looked at",
))
.unit(Unit::Nanoseconds, Better::Neither)
.needs(Need::IdleTime);

const RATIO_SUMMARY: &str = "kelvin's rate of reading over another program's at the same work";
const KELVIN_SUMMARY: &str = "Bytes per second that kelvin reads, interleaved with another program";
const OTHER_SUMMARY: &str = "Bytes per second that another program reads, interleaved with kelvin";

const fn cached_rival_metric(id: &'static str, summary: &'static str) -> Metric {
    disk_metric(Metric::rate(id, summary)).with_axes([Rival::AXIS, BLOCK]).needs(Need::Rivals).version(2)
}

const fn direct_rival_metric(id: &'static str, summary: &'static str) -> Metric {
    cached_rival_metric(id, summary).with_axes([Rival::AXIS, BLOCK, AccessOrder::AXIS])
}

/// Reading from the page cache, kelvin's rate over another program's.
pub static RIVALS_CACHED: Metric = speed_ratio_metric(cached_rival_metric("file.rivals.cached", RATIO_SUMMARY));
/// kelvin's.
pub static RIVALS_CACHED_KELVIN: Metric = cached_rival_metric("file.rivals.cached.kelvin", KELVIN_SUMMARY);
/// The other program's.
pub static RIVALS_CACHED_OTHER: Metric = cached_rival_metric("file.rivals.cached.other", OTHER_SUMMARY);

/// Reading past the page cache, kelvin's rate over another program's.
pub static RIVALS_DIRECT: Metric = speed_ratio_metric(direct_rival_metric("file.rivals.direct", RATIO_SUMMARY));
/// kelvin's.
pub static RIVALS_DIRECT_KELVIN: Metric = direct_rival_metric("file.rivals.direct.kelvin", KELVIN_SUMMARY);
/// The other program's.
pub static RIVALS_DIRECT_OTHER: Metric = direct_rival_metric("file.rivals.direct.other", OTHER_SUMMARY);

/// Reading from the page cache.
pub static RIVAL_COMPARISON_CACHED: RivalComparison =
    RivalComparison { ratio: &RIVALS_CACHED, kelvin: &RIVALS_CACHED_KELVIN, other: &RIVALS_CACHED_OTHER };

/// Reading past it.
pub static RIVAL_COMPARISON_DIRECT: RivalComparison =
    RivalComparison { ratio: &RIVALS_DIRECT, kelvin: &RIVALS_DIRECT_KELVIN, other: &RIVALS_DIRECT_OTHER };
