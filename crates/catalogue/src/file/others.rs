//! Reading beside others: from a remote directory, and in turn with other programs.

use kelvin_model::{Better, Metric, Need, Point, Unit};

use super::{AccessOrder, BLOCK, BYTES, CacheState, of_disk};
use crate::rivals::{BesideRivals, Rival, ratio};
use crate::words::words;

words! {
    /// The directory of a lookup.
    pub enum AskedDirectory: "place", "directory" {
        /// The one that `--remote` names.
        Remote = "remote",
        /// The scratch directory.
        Local = "local",
    }
}

/// The block that the program itself chooses.
pub const OWN_BLOCK: Point = Point::new(BLOCK, "own");

const fn remote(metric: Metric) -> Metric {
    of_disk(metric).needs(Need::RemoteDirectory)
}

const fn block(id: &'static str, summary: &'static str) -> Metric {
    remote(Metric::duration(id, summary)).over([CacheState::AXIS, AccessOrder::AXIS, BYTES]).version(2)
}

/// A request to a server, and its answer.
pub static REMOTE_ROUND_TRIP: Metric =
    remote(Metric::duration("file.remote.round_trip", "One request about a name to the server of a directory"))
        .over([AskedDirectory::AXIS])
        .version(2);

/// The attributes of an open file.
pub static REMOTE_ATTRIBUTES: Metric =
    remote(Metric::duration("file.remote.attributes", "fstat(2) of an open file, which a mount may have to ask for"))
        .over([AskedDirectory::AXIS]);

/// The bytes a second of a server.
pub static REMOTE_RATE: Metric = remote(Metric::rate(
    "file.remote.rate",
    "Bytes per second from the directory that --remote names, beyond the first block of a large request",
));

/// The window that is read ahead from a server.
pub static REMOTE_READ_AHEAD: Metric = remote(Metric::duration(
    "file.remote.read_ahead",
    "Read-ahead window of the kernel in the directory that --remote names",
))
.unit(Unit::Bytes, Better::Neither);

/// A block of a remote directory.
pub static REMOTE: Metric =
    block("file.remote", "One block of 4 KiB read from the directory that --remote names").baseline();

/// A block of a local one.
pub static REMOTE_LOCAL: Metric =
    block("file.remote.local", "One block of 4 KiB read from the scratch directory, in turn with the remote one");

/// The share of a remote block that is the network.
pub static REMOTE_SHARE: Metric = block("file.remote.share", "Share of a remote block's time beyond a local one's")
    .unit(Unit::Ratio, Better::Neither)
    .bounds(None, Some(1.0));

/// The requests of a remote block.
pub static REMOTE_REQUESTS: Metric =
    block("file.remote.requests", "Requests to the server for one block, by the count of the NFS client")
        .version(1)
        .unit(Unit::Count, Better::Neither);

/// The file cache of a group whose memory is limited. Its figure is of pages and not of time: samples count as found.
pub static CACHE_SIZE: Metric = of_disk(Metric::duration(
    "file.cache_size",
    "Size from which on a file just read is no longer in memory, under a limit of 128 MiB",
))
.unit(Unit::Bytes, Better::Neither)
.baseline();

/// Reading a file again under the same limit.
pub static CACHE_SIZE_BLOCK: Metric = of_disk(Metric::duration(
    "file.cache_size.block",
    "Reading a block of 64 KiB of a file just read, by size of the file, under a limit of 128 MiB",
))
.over([BYTES]);

/// What of it was still in memory.
pub static CACHE_SIZE_STAYED: Metric = of_disk(Metric::duration(
    "file.cache_size.stayed",
    "Share of a file just read that is in memory when it is read again, under a limit of 128 MiB",
))
.unit(Unit::Ratio, Better::Neither)
.bounds(None, Some(1.0))
.over([BYTES]);

/// What stays of a file in the page cache that nothing reads.
pub static IDLE: Metric = of_disk(Metric::rate(
    "file.idle",
    "Share of a file that is still in the page cache after nothing has touched it for most of the run",
))
.unit(Unit::Ratio, Better::Higher)
.bounds(Some(0.0), Some(1.0))
.needs(Need::IdleTime);

/// For how long nothing has touched it.
pub static IDLE_TIME: Metric = of_disk(Metric::duration(
    "file.idle.time",
    "Time for which nothing had touched those files when they were looked at",
))
.unit(Unit::Nanoseconds, Better::Neither)
.needs(Need::IdleTime);

const RATIO_SUMMARY: &str = "kelvin's rate of reading over another program's at the same work";
const KELVIN_SUMMARY: &str = "Bytes per second that kelvin reads, in turn with another program";
const OTHER_SUMMARY: &str = "Bytes per second that another program reads, in turn with kelvin";

const fn cached(id: &'static str, summary: &'static str) -> Metric {
    of_disk(Metric::rate(id, summary)).over([Rival::AXIS, BLOCK]).needs(Need::Rivals).version(2)
}

const fn direct(id: &'static str, summary: &'static str) -> Metric {
    cached(id, summary).over([Rival::AXIS, BLOCK, AccessOrder::AXIS])
}

/// Reading from the page cache, kelvin's rate over another program's.
pub static RIVALS_CACHED: Metric = ratio(cached("file.rivals.cached", RATIO_SUMMARY));
/// kelvin's.
pub static RIVALS_CACHED_KELVIN: Metric = cached("file.rivals.cached.kelvin", KELVIN_SUMMARY);
/// The other program's.
pub static RIVALS_CACHED_OTHER: Metric = cached("file.rivals.cached.other", OTHER_SUMMARY);

/// Reading past the page cache, kelvin's rate over another program's.
pub static RIVALS_DIRECT: Metric = ratio(direct("file.rivals.direct", RATIO_SUMMARY));
/// kelvin's.
pub static RIVALS_DIRECT_KELVIN: Metric = direct("file.rivals.direct.kelvin", KELVIN_SUMMARY);
/// The other program's.
pub static RIVALS_DIRECT_OTHER: Metric = direct("file.rivals.direct.other", OTHER_SUMMARY);

/// Reading from the page cache.
pub static BESIDE_RIVALS_CACHED: BesideRivals =
    BesideRivals { ratio: &RIVALS_CACHED, kelvin: &RIVALS_CACHED_KELVIN, other: &RIVALS_CACHED_OTHER };

/// Reading past it.
pub static BESIDE_RIVALS_DIRECT: BesideRivals =
    BesideRivals { ratio: &RIVALS_DIRECT, kelvin: &RIVALS_DIRECT_KELVIN, other: &RIVALS_DIRECT_OTHER };
