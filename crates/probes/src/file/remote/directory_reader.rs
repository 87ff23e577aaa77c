//! A file of a directory that is read pass by pass, of which as much is in memory when a pass begins as is wanted.

use std::path::{Path, PathBuf};

use kelvin_core::units::bytes as in_words;
use kelvin_file::random_data;
use kelvin_harness::Setup;
use kelvin_sys::fs::{kind, space};

use super::super::prelude::*;
use super::nfs_requests::NfsMount;

/// Bytes of a block.
pub(super) const BLOCK: usize = 4096;
/// The name of a file, before its size.
const FILE_PREFIX: &str = "kelvin-remote-data";
/// Seed of the content.
const CONTENT_SEED: u64 = 1;
/// Free space that a directory must have, as a multiple of the file.
const FREE_SPACE_FACTOR: u64 = 2;
/// Bytes of a file whose writing time predicts that of a larger one, and the share of a round's time limit that the
/// larger one may take.
const TRIAL_BYTES: u64 = 8 << 20;
const MAX_WRITE_SHARE: f64 = 0.6;

/// How a file is read.
#[derive(Clone, Copy)]
pub(super) struct ReadSpec {
    pub bytes: u64,
    pub state: PageCacheState,
    pub order: BlockOrder,
    /// Blocks timed together.
    pub batch: u64,
}

pub(super) struct DirectoryReader {
    target: Target,
    spec: ReadSpec,
    blocks: BlockReader,
    /// Blocks left in this pass, and passes so far.
    remaining: u64,
    passes: u64,
    counter: RequestCounter,
    /// Its file system, and what was in memory before the first pass.
    pub proof: String,
}

/// The requests to a server, counted over the blocks of passes and not over what prepares them.
struct RequestCounter {
    mount: Option<NfsMount>,
    /// The count when the pass began.
    start_count: u64,
    requests: u64,
    blocks: u64,
}

impl DirectoryReader {
    pub fn open(bench: &Bench<'_>, directory: &Path, spec: ReadSpec) -> ProbeResult<Self> {
        let target = remote_file(bench, directory, spec.bytes)?;
        test_files::check_block(&target, spec.state, BLOCK as u64)?;
        let before = set_cache_state(&target, spec.state)?;
        let proof = format!("{}, {before} before a pass", kind(directory)?.name());
        let blocks = open_pass(&target, spec, 0)?;
        let mut counter = RequestCounter { mount: NfsMount::find(directory), start_count: 0, requests: 0, blocks: 0 };
        counter.start_count = counter.current()?;
        Ok(Self { remaining: blocks.requests.blocks(), target, spec, blocks, passes: 0, counter, proof })
    }

    /// The ticks of the next blocks that are timed together.
    pub fn time_batch(&mut self, clock: Clock) -> ProbeResult<u64> {
        let blocks = self.spec.batch;
        if self.remaining < blocks {
            self.counter.stop()?;
            self.passes += 1;
            set_cache_state(&self.target, self.spec.state)?;
            self.blocks = open_pass(&self.target, self.spec, self.passes)?;
            self.remaining = self.blocks.requests.blocks();
            self.counter.start_count = self.counter.current()?;
        }
        let ticks = self.blocks.time_next(clock, blocks)?;
        self.remaining -= blocks;
        self.counter.blocks += blocks;
        Ok(ticks)
    }

    /// Requests to the server for each block so far, where its client counts them.
    pub fn requests_per_block(mut self) -> ProbeResult<Option<f64>> {
        self.counter.stop()?;
        Ok(self.counter.mount.is_some().then(|| self.counter.requests as f64 / self.counter.blocks.max(1) as f64))
    }
}

impl RequestCounter {
    fn current(&self) -> ProbeResult<u64> {
        self.mount.as_ref().map_or(Ok(0), NfsMount::completed_requests)
    }

    fn stop(&mut self) -> ProbeResult {
        self.requests += self.current()?.saturating_sub(self.start_count);
        Ok(())
    }
}

/// A fresh descriptor, so that the kernel remembers nothing of earlier passes, and the requests of a pass.
fn open_pass(target: &Target, spec: ReadSpec, passes: u64) -> ProbeResult<BlockReader> {
    let order = match spec.order {
        BlockOrder::Sequential => BlockOrder::Sequential,
        BlockOrder::Random { seed } => BlockOrder::Random { seed: seed.wrapping_add(passes) },
    };
    let options = ReadOptions { access: spec.state.access(), block: BLOCK, order, pages: PagePolicy::Base };
    BlockReader::open(target, Engine::Pread, options)
}

/// The file of this many bytes in a directory, written by the first round that needs it.
pub(super) fn remote_file(bench: &Bench<'_>, directory: &Path, bytes: u64) -> ProbeResult<Target> {
    let path = file_path(directory, bytes);
    if !path.exists() {
        if bytes > TRIAL_BYTES {
            let trial = write_time_file(remote_file(bench, directory, TRIAL_BYTES)?.path());
            let trial_time = test_files::read_number(&trial)?.or_fail(format!("{} does not exist", trial.display()))?;
            let expected = trial_time * (bytes / TRIAL_BYTES) as f64;
            check_write_time(directory, bytes, [expected, MAX_WRITE_SHARE * bench.limit()])?;
        }
        check_free_space(directory, bytes)?;
        bench.reserve_write(bytes)?;
        write_timed(&path, bytes)?;
    }
    Target::find(&path).map_err(probe_error)
}

/// Writes the file of this many bytes in a directory before the first round, however long that takes.
pub(super) fn write_file(setup: &Setup, directory: &Path, bytes: u64) -> ProbeResult {
    check_free_space(directory, bytes)?;
    setup.reserve_write(bytes)?;
    write_timed(&file_path(directory, bytes), bytes)
}

/// Where the file of this many bytes is in a directory.
fn file_path(directory: &Path, bytes: u64) -> PathBuf {
    directory.join(format!("{FILE_PREFIX}-{bytes}"))
}

/// That a directory has room for a file of this many bytes, and as many again.
fn check_free_space(directory: &Path, bytes: u64) -> ProbeResult {
    let (available, needed) = (space(directory)?.available_bytes, FREE_SPACE_FACTOR.saturating_mul(bytes));
    let [required, has] = [needed, available].map(in_words);
    skip_if(available < needed, format!("needs {required} free in {}, which has {has}", directory.display()))
}

/// Writes a file, and next to it how many nanoseconds that took.
fn write_timed(path: &Path, bytes: u64) -> ProbeResult {
    let start = monotonic();
    random_data::write_file(path, bytes, CONTENT_SEED).or_file_failure("write", path)?;
    Ok(std::fs::write(write_time_file(path), (monotonic() - start).to_string())?)
}

/// That a file of this many bytes is written in time: the nanoseconds that it should take, and may.
fn check_write_time(directory: &Path, bytes: u64, [expected, limit]: [f64; 2]) -> ProbeResult {
    let reason = format!(
        "needs a file of {} in {}, and writing it would take {:.0} s, more than {:.0} s; --remote-size writes one before the first round",
        in_words(bytes),
        directory.display(),
        expected / 1e9,
        limit / 1e9
    );
    skip_if(expected > limit, reason)
}

/// Where the nanoseconds that writing a file took are kept.
fn write_time_file(path: &Path) -> PathBuf {
    path.with_extension("took")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_write_is_refused() {
        let outcome = |expected: f64| check_write_time(Path::new("/mnt"), 128 << 20, [expected, 6e9]);
        assert!(outcome(5.9e9).is_ok());
        let Err(ProbeError::Skip(reason)) = outcome(11.2e9) else { panic!("11 s are too long") };
        let expected = "needs a file of 128 MiB in /mnt, and writing it would take 11 s, more than 6 s; --remote-size writes one before the first round";
        assert_eq!(reason.0, expected);
    }
}
