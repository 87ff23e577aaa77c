//! What a disk gives when whole files are read from it, in the order in which a server is asked for them, and how many requests it serves
//! however little each asks for.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelvin_core::resources::{DiskStats, ResourceSnapshot};
use kelvin_file::cache::{PageCacheState, set_cache_state};
use kelvin_file::{Access, BlockOrder, BlockRequests, Engine, IoTally, PagePolicy, ReadOptions, Target};
use kelvin_machine::resources::ProcessMonitor;
use kelvin_stats::Random;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_transfer::wire::file_server::{DiskRateReport, RequestRate};

use crate::sweep::error::{Error, Result};
use crate::sweep::file_set::FileList;

/// Files that are read at the same time: more than one, since a disk may serve requests in parallel, and some can wait in it.
const CONCURRENT_READERS: usize = 8;
/// Bytes of a read, as a server that copies through its own memory makes them; the kernel reads ahead of it.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of a request whose size does not matter.
const SMALL_READ_BYTES: usize = 4 << 10;
/// Small requests to a file before another one is opened.
const READS_PER_FILE: u64 = 4;
/// Share of the time that goes to small requests, of that for whole files.
const SMALL_READ_TIME_DIVISOR: u32 = 2;
/// Seed of the order.
const SEED: u64 = 77;

/// Bytes a second that the device gave: those that were counted there, or, where nothing is counted for what comes over a network or
/// out of holes, those of the files.
pub(crate) fn device_rate(disk: DiskRateReport) -> Option<f64> {
    [disk.read_per_second, Some(disk.bytes_per_second)].into_iter().flatten().find(|rate| *rate > 0.0)
}

/// Reads whole files of a directory in random order for this long, each out of the page cache before, and then for half as long a little of
/// each past the page cache, and returns how fast the disk gave them: of those that a [`HostedServer`](crate::sweep::HostedServer) server would name.
///
/// # Errors
/// A file that cannot be read or dropped from the page cache.
pub fn disk_rate(directory: &Path, time: Duration) -> Result<DiskRateReport> {
    measure_files(directory, &FileList::read(directory)?.paths(directory), time)
}

fn measure_files(directory: &Path, paths: &[PathBuf], time: Duration) -> Result<DiskRateReport> {
    let targets: Vec<Target> =
        paths.iter().map(|path| Target::find(path).map_err(disk_error)).collect::<Result<_>>()?;
    if targets.is_empty() {
        return Err(Error::Disk("there is no file to read".into()));
    }
    let mut monitor = ProcessMonitor::current(Some(directory)).without_descendants();
    let before = monitor.sample().ok();
    let (bytes, seconds) = run_readers(&targets, time, read_files)?;
    let snapshots = before.zip(monitor.sample().ok());
    let since = |counter: fn(&ResourceSnapshot) -> Option<u64>| {
        let (before, after) = snapshots.as_ref()?;
        Some(counter(after)?.saturating_sub(counter(before)?) as f64)
    };
    let process_reads = since(|snapshot| snapshot.process.read_bytes)
        .zip(since(|snapshot| disk_counter(snapshot, |disk| disk.reads_of_group)));
    let device_reads = || {
        since(|snapshot| disk_counter(snapshot, |disk| Some(disk.read_bytes)))
            .zip(since(|snapshot| disk_counter(snapshot, |disk| Some(disk.reads))))
    };
    let size =
        process_reads.or_else(device_reads).filter(|(_, reads)| *reads > 0.0).map(|(bytes, reads)| bytes / reads);
    let small_request_rate = |bytes| {
        let (requests, seconds) = run_readers(&targets, time / SMALL_READ_TIME_DIVISOR, read_small_blocks).ok()?;
        Some(RequestRate { per_second: requests as f64 / seconds, bytes })
    };
    Ok(DiskRateReport {
        bytes_per_second: bytes as f64 / seconds,
        read_per_second: since(|snapshot| snapshot.process.read_bytes).map(|bytes| bytes / seconds),
        requests: size.and_then(small_request_rate).filter(|requests| requests.per_second > 0.0),
    })
}

/// A counter of the devices below the files.
fn disk_counter(snapshot: &ResourceSnapshot, counter: fn(&DiskStats) -> Option<u64>) -> Option<u64> {
    snapshot.disks.iter().filter(|disk| disk.holds_root).filter_map(counter).reduce(|sum, count| sum + count)
}

fn disk_error(error: impl std::fmt::Display) -> Error {
    Error::Disk(error.to_string())
}

/// Reads these files in an order of this seed until it is over, and counts what it read.
type ReadLoop = fn(&[Target], u64, &AtomicBool) -> Result<u64>;

/// Has several readers work at the same time for this long: what they count together, and the seconds that it took. Each has files of its
/// own: one that another reads cannot be dropped from the page cache.
fn run_readers(targets: &[Target], time: Duration, read: ReadLoop) -> Result<(u64, f64)> {
    let (is_over, start) = (&AtomicBool::new(false), Instant::now());
    let counts: Result<Vec<u64>> = std::thread::scope(|scope| {
        let shards = targets.chunks(targets.len().div_ceil(CONCURRENT_READERS)).zip(SEED..);
        let reader = |(shard, seed)| {
            let thread = ThreadBuilder::named("reader").start_in(scope, move || read(shard, seed, is_over));
            thread.inspect_err(|_| is_over.store(true, Ordering::Relaxed))
        };
        let readers = shards.map(reader).collect::<std::io::Result<Vec<_>>>()?;
        while start.elapsed() < time && kelvin_sys::stop_signals::stop_signal().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
        let ends = readers.into_iter().map(|reader| reader.join());
        ends.map(|end| end.unwrap_or_else(|_| Err(Error::Disk("a reader panicked".into())))).collect()
    });
    Ok((counts?.into_iter().sum(), start.elapsed().as_secs_f64()))
}

/// Reads random files until it is over, and counts their bytes.
fn read_files(targets: &[Target], seed: u64, is_over: &AtomicBool) -> Result<u64> {
    let (mut random, mut bytes) = (Random::new(seed), 0);
    let mut block = vec![0; BLOCK_BYTES];
    while !is_over.load(Ordering::Relaxed) {
        let target = &targets[random.index_below(targets.len())];
        set_cache_state(target, PageCacheState::Uncached).map_err(disk_error)?;
        let mut file = File::open(target.path()).map_err(disk_error)?;
        while !is_over.load(Ordering::Relaxed) {
            let read = file.read(&mut block).map_err(disk_error)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
        }
    }
    Ok(bytes)
}

/// Reads a few small blocks of random files past the page cache until it is over, and counts the requests.
fn read_small_blocks(targets: &[Target], seed: u64, is_over: &AtomicBool) -> Result<u64> {
    let (mut random, mut tally) = (Random::new(seed), IoTally::default());
    for seed in seed.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let target = &targets[random.index_below(targets.len())];
        let order = BlockOrder::Random { seed };
        let options = ReadOptions { access: Access::Direct, block: SMALL_READ_BYTES, order, pages: PagePolicy::Base };
        let mut reader = Engine::Pread.open(target, options).map_err(disk_error)?;
        let mut requests = BlockRequests::new(0..target.bytes(), SMALL_READ_BYTES, order).limit(READS_PER_FILE);
        reader.read(&mut requests, &mut tally).map_err(disk_error)?;
    }
    Ok(tally.requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::file_set::FileSetSpec;

    #[test]
    fn uncounted_device_falls_back_to_file_bytes() {
        let rate = |bytes_per_second, read_per_second| {
            device_rate(DiskRateReport { bytes_per_second, read_per_second, requests: None })
        };
        assert_eq!((rate(5.0, Some(7.0)), rate(5.0, Some(0.0)), rate(5.0, None)), (Some(7.0), Some(5.0), Some(5.0)));
        assert_eq!(rate(0.0, None), None);
    }

    #[test]
    fn files_are_read_and_counted() {
        // Not in memory, where nothing can be dropped.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        FileList::create(directory.path(), FileSetSpec { count: 4, bytes: 300_000, limit: 1 << 30 }).unwrap();
        let rate = disk_rate(directory.path(), Duration::from_millis(50)).unwrap();
        assert!(rate.bytes_per_second > 0.0 && rate.read_per_second.is_none_or(|read| read >= 0.0));
        assert!(rate.requests.is_none_or(|requests| requests.per_second > 0.0 && requests.bytes >= 512.0), "{rate:?}");
        assert!(matches!(measure_files(directory.path(), &[], Duration::ZERO), Err(Error::Disk(_))));
    }
}
