//! The same small reads on a remote directory and on a local one, and the share of a remote read that is the network.
//!
//! It is the cost of a file behind a network, or behind another program. It must not be used as the speed of the server's disk,
//! which may not have been read: its memory answers first.

mod place;
mod predicted;
mod requests;
mod server;

use std::path::Path;

use kelvin_catalogue::file::{
    AccessOrder, BYTES, CacheState, REMOTE, REMOTE_LOCAL, REMOTE_RATE, REMOTE_READ_AHEAD, REMOTE_REQUESTS,
    REMOTE_ROUND_TRIP, REMOTE_SHARE,
};
use kelvin_harness::{Bench, Effort, Method, Probe, ProbeKind, Setup, Stop};
use kelvin_model::{Case, Machine};
use kelvin_sys::fs::kind;

use self::place::{BLOCK, Place, Reading};
use super::cases::{known, order, state};
use super::data::MIB;

pub(super) use self::server::{RATE_PROBE, READ_AHEAD_PROBE, ROUND_TRIP_PROBE};

pub(crate) static PROBE: Probe = Probe {
    id: REMOTE.id.as_str(),
    summary: "Small reads on a mounted directory of another machine beside the same on a local one (--remote DIR)",
    kind: ProbeKind::Study,
    method: Method {
        how: "A file of noise of each size is written to a fresh directory below the one that --remote names, and to the \
              scratch directory, and flushed. Blocks of 4 KiB of the two are read in turn by pread, a remote and a \
              local one per sample, in order or in an order drawn anew for each pass, for the round's time: of a large \
              file, or over a slow network, only some. cache=direct: past the page cache, each block timed alone. \
              cache=cached: all of it in memory before each pass, proven by mincore and cachestat; 16 blocks are timed \
              together, for one takes hardly longer than reading the clock. cache=uncached: through the page cache, \
              after the file was dropped before each pass, proven likewise; in random order (announced to the kernel) \
              each block is timed alone, and in order the mean of all blocks of a round counts, at least the first \
              8 MiB of the file or a second, for one in many waits for read-ahead. The share is one less the local time over the remote one \
              of a round. On NFS the client's own count of requests (/proc/self/mountstats) over these blocks is \
              another metric. A note names both file systems. A file of more than 8 MiB of which one of 8 MiB shows that \
              it would take more than 6 s to write is left out. With --remote-size the files of that size are written before the \
              first round, however long that takes, and the blocks that are not in memory are those of these files.",
        prediction: "The local block as measured in turn with it, and the network's part from measurements of the \
                     mount: round trips x file.remote.round_trip, and the block over file.remote.rate (without it, over \
                     the fastest advertised link speed). A block is one round trip; in memory, none; read ahead, the blocks \
                     of two windows (file.remote.read_ahead) share one, since the next window is asked for before \
                     the one before has come. Through the page cache the client may \
                     have to ask first whether the file has changed: file.remote.attributes, less the local one's. \
                     Predicted range: a factor of 3 either way, as the other machine has its own disk, memory and \
                     load. The local block itself has no prediction here.",
        not_for: "Throughput at higher queue depths; large blocks; the disk of the other machine.",
        pitfalls: &[
            "A client with its own cache (sshfs, some FUSE file systems) may answer a second read of a block: each \
             pass reads each block once, but passes repeat.",
            "Direct I/O on a network file system bypasses this machine's memory and not the server's, which has just \
             received the file: its memory answers.",
            "Attributes are cached for seconds: an lstat of a known name is no round trip. With noac or actimeo=0 they \
             are asked for before each read through the page cache, also of what is in memory; not with direct I/O, and \
             not while an NFSv4 server has delegated the file to this client.",
            "O_SYNC, and the mount option sync, concern writes: reads are the same with and without.",
            "Both directories may be on one disk: a mount of this machine on itself shows the cost of the protocol \
             alone, and both ends have one page cache, of two files.",
            "Requests of other programs on the same mount are counted as well.",
        ],
        sources: &[
            "nfs(5), sshfs(1): caching; Linux Documentation/filesystems/fuse-io.rst",
            "Linux mm/readahead.c; mm/filemap.c: filemap_get_pages; fs/nfs/file.c: nfs_file_read; net/sunrpc/stats.c",
            IOPING,
        ],
    },
    metrics: &[&REMOTE, &REMOTE_LOCAL, &REMOTE_SHARE, &REMOTE_REQUESTS],
    inputs: &[REMOTE_ROUND_TRIP.id.as_str(), REMOTE_RATE.id.as_str(), REMOTE_READ_AHEAD.id.as_str()],
    cases,
    run,
    predict: predicted::predict,
};

const IOPING: &str = "ioping: a request at a time on any directory";

/// Blocks of a file in memory that are timed together.
const IN_MEMORY: u64 = 16;
/// Blocks between two looks at the time where the kernel reads ahead.
const CHUNK: u64 = 16;
/// Nanoseconds after which a round with read-ahead is broken off: what is read ahead is little of it by then.
const PATIENCE: f64 = 1e9;

/// Sizes of the files, in MiB: the published ones; fewer by default, since each is written twice, perhaps over a slow link.
const SIZES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const SOME: [u64; 3] = [1, 8, 128];
/// The size of a quick run.
const ONE: u64 = 8;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    use AccessOrder::{Random, Sequential};
    use CacheState::{Cached, Direct, Uncached};
    const FETCHED: [(CacheState, AccessOrder); 4] =
        [(Direct, Random), (Uncached, Sequential), (Direct, Sequential), (Uncached, Random)];
    const KEPT: [(CacheState, AccessOrder); 2] = [(Cached, Random), (Cached, Sequential)];
    let of = |ways: &[(CacheState, AccessOrder)], sizes: &[u64]| {
        let sizes = sizes.iter();
        sizes.flat_map(|&size| ways.iter().map(move |&(cache, order)| case(cache, order, size))).collect::<Vec<_>>()
    };
    match effort {
        Effort::Quick => [of(&FETCHED[..2], &[ONE]), of(&KEPT[..1], &[ONE])].concat(),
        Effort::Default => [of(&FETCHED, &SOME), of(&KEPT, &[ONE])].concat(),
        Effort::Thorough => [of(&FETCHED, &SIZES), of(&KEPT, &SIZES)].concat(),
    }
}

fn case(cache: CacheState, order: AccessOrder, size: u64) -> Case {
    Case::new().at(cache).at(order).with(BYTES, size * MIB)
}

/// The case of a file of so many bytes, where its blocks come from the server; one whose blocks are in memory stays as it is.
pub(crate) fn at_size(case: &Case, bytes: u64) -> Case {
    if CacheState::of(case) == Some(CacheState::Cached) { case.clone() } else { case.clone().with(BYTES, bytes) }
}

/// Writes the files of so many bytes to both directories before the first round: over a slow link that takes longer than a round may.
pub(crate) fn write_before(setup: &Setup, bytes: u64) -> Result<(), Stop> {
    let directories = [setup.remote.as_deref(), Some(setup.scratch.as_os_str())];
    directories.into_iter().flatten().try_for_each(|directory| place::write_before(setup, Path::new(directory), bytes))
}

/// Blocks of a round that the kernel reads ahead, of a file of so many bytes: some tens of the windows that most mounts have.
fn ahead(bytes: u64) -> u64 {
    bytes.min(ONE * MIB) / BLOCK as u64
}

/// Whether the kernel reads ahead for a case.
fn reads_ahead(case: &Case) -> bool {
    (CacheState::of(case), AccessOrder::of(case)) == (Some(CacheState::Uncached), Some(AccessOrder::Sequential))
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let (here, there) = (bench.scratch().to_owned(), bench.remote()?.to_owned());
    if !kind(&there)?.is_served() {
        bench.note("the remote directory is not on another machine or program: there is no network in the difference");
    }
    let reading = reading(bench, case)?;
    let mut both = Both { remote: Place::open(bench, &there, reading)?, local: Place::open(bench, &here, reading)? };
    bench.note(format!("remote: {}; local: {}", both.remote.proof, both.local.proof));
    let [remote, local] = match reads_ahead(case) {
        true => both.means(bench, ahead(reading.bytes))?,
        false => both.medians(bench, reading.together)?,
    };
    if remote <= 0.0 {
        return Err(Stop::fail("the remote reads took no time at all"));
    }
    bench.record(&REMOTE_SHARE, vec![1.0 - local / remote]);
    if let Some(requests) = both.remote.requests_of_a_block()? {
        bench.record(&REMOTE_REQUESTS, vec![requests]);
    }
    Ok(())
}

fn reading(bench: &Bench<'_>, case: &Case) -> Result<Reading, Stop> {
    let together = match CacheState::of(case) {
        _ if reads_ahead(case) => CHUNK,
        Some(CacheState::Cached) => IN_MEMORY,
        _ => 1,
    };
    let (state, order) = (state(case)?, order(case, bench.seed())?);
    Ok(Reading { bytes: known(BYTES.of(case), case)?, state, order, together })
}

/// The two files, which are read in turn.
struct Both {
    remote: Place,
    local: Place,
}

impl Both {
    /// Samples of so many blocks each; the medians of remote and local ones.
    fn medians(&mut self, bench: &mut Bench<'_>, together: u64) -> Result<[f64; 2], Stop> {
        let (mut remotes, mut locals) = (Vec::new(), Vec::new());
        bench.time_each([&REMOTE, &REMOTE_LOCAL], |clock| {
            let times = [self.remote.read(clock)? / together, self.local.read(clock)? / together];
            remotes.push(times[0] as f64);
            locals.push(times[1] as f64);
            Ok(times)
        })?;
        Ok([middle(remotes), middle(locals)])
    }

    /// So many blocks and as many more as there is time for; the means of remote and local ones.
    fn means(&mut self, bench: &mut Bench<'_>, enough: u64) -> Result<[f64; 2], Stop> {
        let (clock, slice) = (bench.clock(), bench.slice());
        let (mut remote, mut local, mut blocks) = (0.0, 0.0, 0);
        while remote + local < slice || blocks < enough && remote + local < PATIENCE {
            remote += bench.nanoseconds(self.remote.read(clock)?);
            local += bench.nanoseconds(self.local.read(clock)?);
            blocks += CHUNK;
        }
        let means = [remote, local].map(|all| all / blocks as f64);
        for (metric, mean) in [&REMOTE, &REMOTE_LOCAL].into_iter().zip(means) {
            bench.record(metric, vec![mean]);
        }
        bench.note_on_last(format!("{blocks} blocks of {BLOCK} bytes of each"));
        Ok(means)
    }
}

/// The median, the upper one of two.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::AccessOrder::{Random, Sequential};
    use super::CacheState::{Cached, Direct, Uncached};
    use super::*;
    use crate::testing::machine;

    #[test]
    fn a_quick_run_has_both_orders_and_every_state() {
        let quick = cases(&machine(), Effort::Quick);
        assert_eq!(quick, [case(Direct, Random, 8), case(Uncached, Sequential, 8), case(Cached, Random, 8)]);
    }

    #[test]
    fn another_size_is_of_what_comes_from_the_server() {
        let sizes = |effort| cases(&machine(), effort).iter().map(|case| at_size(case, 100 * MIB)).collect::<Vec<_>>();
        let quick = sizes(Effort::Quick);
        assert_eq!(quick, [case(Direct, Random, 100), case(Uncached, Sequential, 100), case(Cached, Random, 8)]);
    }

    #[test]
    fn every_published_size_is_read_in_every_way_by_a_thorough_run() {
        let all = cases(&machine(), Effort::Thorough);
        assert_eq!(all.len(), 8 * 3 * 2);
        for (cache, order, size) in [(Direct, Sequential, 1), (Cached, Random, 64), (Uncached, Random, 128)] {
            assert!(all.contains(&case(cache, order, size)));
        }
        assert_eq!(cases(&machine(), Effort::Default).len(), 3 * 4 + 2);
    }

    #[test]
    fn only_what_is_read_in_order_through_an_empty_cache_is_read_ahead() {
        assert!(reads_ahead(&case(Uncached, Sequential, 1)));
        assert_eq!([1, 8, 128].map(|size| ahead(size * MIB)), [256, 2048, 2048]);
        for (cache, order) in [(Uncached, Random), (Direct, Sequential), (Cached, Sequential)] {
            assert!(!reads_ahead(&case(cache, order, 1)));
        }
    }

    #[test]
    fn the_middle_is_the_upper_one_of_two() {
        assert_eq!([middle(vec![3.0, 1.0, 2.0]), middle(vec![1.0, 2.0]), middle(vec![])], [2.0, 2.0, 0.0]);
    }
}
