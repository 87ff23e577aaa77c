//! Files overwritten with random data in which no two blocks of 4 KiB are equal: block by block, or as a stream.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_file::BlockRequest;
use kelvin_file::random_data::RandomData;
use kelvin_sys::direct_io::O_DIRECT;
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::uring::{FileRing, IoDirection, RingSetup};

use super::prelude::*;
use super::test_files::FULL_QUEUE_DEPTH;

/// Bytes of which none are like any others: the unit in which file systems deduplicate.
const DEDUP_UNIT: usize = 4096;

/// Opens a file to be overwritten.
fn open_for_write(target: &Target, access: Access) -> ProbeResult<File> {
    let flags = if access == Access::Direct { O_DIRECT } else { 0 };
    File::options()
        .write(true)
        .custom_flags(flags)
        .open(target.path())
        .or_fail(format!("cannot open {} to write", target.path().display()))
}

/// Makes every unit of a buffer new: the beginning of each gets the next number.
fn stamp_units(buffer: &mut [u8], number: &mut u64) {
    for unit in buffer.chunks_mut(DEDUP_UNIT) {
        *number += 1;
        let mark = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        let length = unit.len().min(mark.len());
        unit[..length].copy_from_slice(&mark[..length]);
    }
}

/// A file that is overwritten block by block.
pub(super) struct Overwriter {
    file: File,
    buffer: Arena,
    block: usize,
    number: u64,
}

impl Overwriter {
    /// Opens a file to be overwritten in blocks of this many bytes.
    pub(super) fn open(target: &Target, access: Access, block: usize, seed: u64) -> ProbeResult<Self> {
        let mut buffer = Arena::populated(block, PagePolicy::Base)?;
        RandomData::new(seed).fill(&mut buffer.as_mut_slice()[..block]);
        Ok(Self { file: open_for_write(target, access)?, buffer, block, number: seed })
    }

    /// Makes the next block one that was never written.
    pub(super) fn renew(&mut self) {
        stamp_units(&mut self.buffer.as_mut_slice()[..self.block], &mut self.number);
    }

    /// Writes a block.
    #[inline]
    pub(super) fn write(&mut self, request: BlockRequest) -> ProbeResult {
        check_complete_write(
            self.file.write_at(&self.buffer.as_slice()[..request.bytes], request.offset),
            request.bytes,
        )
    }

    /// Waits until what was written is durable.
    pub(super) fn flush(&self) -> ProbeResult {
        self.file.sync_data().or_fail("fdatasync")
    }
}

/// That all of a block was written.
fn check_complete_write(written: std::io::Result<usize>, bytes: usize) -> ProbeResult {
    match written {
        Ok(written) if written == bytes => Ok(()),
        Ok(written) => Err(ProbeError::fail(format!("a write of {bytes} bytes wrote {written}"))),
        Err(error) => Err(ProbeError::fail(format!("a write of {bytes} bytes: {error}"))),
    }
}

/// Bytes of a block of a stream.
pub(super) const STREAM_BLOCK: usize = MIB as usize;
/// Blocks written before the time begins, and those that are timed.
const WARM_UP_BLOCKS: u64 = FULL_QUEUE_DEPTH as u64;
const TIMED_BLOCKS: u64 = 2 * FULL_QUEUE_DEPTH as u64;
/// Nanoseconds after which no more are begun: enough for a slow device.
const MAX_STREAM_NANOSECONDS: u64 = 400_000_000;

/// The result of a stream.
pub(super) struct StreamWriteResult {
    /// Bytes per second that were accepted.
    pub rate: f64,
    /// Like `rate`, with the flush at the end.
    pub flushed_rate: f64,
    /// All bytes that were written.
    pub bytes: u64,
    /// The means, in words.
    pub description: String,
}

/// Overwrites the beginning of a file, many blocks in flight, past the page cache.
pub(super) fn stream_overwrite(target: &Target, seed: u64) -> ProbeResult<StreamWriteResult> {
    let sync_file = open_for_write(target, Access::Direct)?;
    let counter = BlockCounter::new(target);
    let description = stream(target, seed, &counter)?;
    let TimedSpan { start, end, timed_blocks, total_blocks } = counter.finish()?;
    sync_file.sync_data()?;
    let rate = |end_time: u64| {
        (timed_blocks * STREAM_BLOCK as u64) as f64 * 1e9 / end_time.saturating_sub(start).max(1) as f64
    };
    Ok(StreamWriteResult {
        rate: rate(end),
        flushed_rate: rate(monotonic()),
        bytes: total_blocks * STREAM_BLOCK as u64,
        description,
    })
}

/// What a stream writes, and when it ends.
pub(super) trait StreamPlan: Sync {
    /// The place of the next block, if there is to be one.
    fn next_block(&self) -> Option<u64>;

    /// A block was written.
    fn complete_block(&self);
}

/// Writes the blocks of a plan, many in flight, past the page cache; the means, in words.
pub(super) fn stream(target: &Target, seed: u64, plan: &impl StreamPlan) -> ProbeResult<String> {
    let setup = RingSetup {
        depth: FULL_QUEUE_DEPTH,
        block: STREAM_BLOCK,
        is_registered: false,
        is_polled: false,
        pages: PagePolicy::Base,
    };
    match FileRing::new(open_for_write(target, Access::Direct)?, setup) {
        Ok(ring) => {
            stream_with_ring(ring, seed, plan)?;
            Ok(format!("io_uring, queue depth {FULL_QUEUE_DEPTH}"))
        }
        Err(error) => {
            stream_with_threads(target, seed, plan)?;
            Ok(format!("{FULL_QUEUE_DEPTH} threads of pwrite, because io_uring is unavailable here: {error}"))
        }
    }
}

/// The timed part of a stream: its begin and end, the blocks written meanwhile, and all blocks.
struct TimedSpan {
    start: u64,
    end: u64,
    timed_blocks: u64,
    total_blocks: u64,
}

/// Blocks that a stream has begun and done.
#[derive(Default)]
struct BlockCounter {
    blocks: u64,
    stream_start: u64,
    timed_start: AtomicU64,
    next: AtomicU64,
    completed_blocks: AtomicU64,
    /// When the last one was done.
    end: AtomicU64,
}

impl BlockCounter {
    fn new(target: &Target) -> Self {
        Self { blocks: target.bytes() / STREAM_BLOCK as u64, stream_start: monotonic(), ..Self::default() }
    }

    fn finish(self) -> ProbeResult<TimedSpan> {
        let end = self.end.into_inner();
        let (start, total_blocks) = (self.timed_start.into_inner(), self.completed_blocks.into_inner());
        match total_blocks.checked_sub(WARM_UP_BLOCKS) {
            Some(timed_blocks) if timed_blocks > 0 => Ok(TimedSpan { start, end, timed_blocks, total_blocks }),
            _ => Err(ProbeError::fail(format!("only {total_blocks} blocks of {STREAM_BLOCK} bytes were written"))),
        }
    }
}

impl StreamPlan for BlockCounter {
    fn next_block(&self) -> Option<u64> {
        let block = self.next.fetch_add(1, Ordering::Relaxed);
        let is_late = block > WARM_UP_BLOCKS && monotonic() - self.stream_start > MAX_STREAM_NANOSECONDS;
        (block < WARM_UP_BLOCKS + TIMED_BLOCKS && !is_late).then_some(block % self.blocks * STREAM_BLOCK as u64)
    }

    fn complete_block(&self) {
        let now = monotonic();
        self.end.fetch_max(now, Ordering::Relaxed);
        if self.completed_blocks.fetch_add(1, Ordering::Relaxed) + 1 == WARM_UP_BLOCKS {
            self.timed_start.store(now, Ordering::Relaxed);
        }
    }
}

fn stream_with_ring(mut ring: FileRing, seed: u64, plan: &impl StreamPlan) -> ProbeResult {
    let mut free_slots: Vec<usize> = (0..FULL_QUEUE_DEPTH as usize).collect();
    let (mut noise, mut number) = (RandomData::new(seed), seed);
    free_slots.iter().for_each(|&slot| noise.fill(ring.buffer_mut(slot)));
    loop {
        while let Some(&slot) = free_slots.last() {
            let Some(offset) = plan.next_block() else { break };
            free_slots.pop();
            stamp_units(ring.buffer_mut(slot), &mut number);
            ring.queue(IoDirection::Write, slot, offset, 0..STREAM_BLOCK);
        }
        if ring.in_flight() == 0 {
            return Ok(());
        }
        ring.wait(1)?;
        while let Some((slot, written)) = ring.next_completion() {
            check_complete_write(written, STREAM_BLOCK)?;
            plan.complete_block();
            free_slots.push(slot);
        }
    }
}

fn stream_with_threads(target: &Target, seed: u64, plan: &impl StreamPlan) -> ProbeResult {
    let thread = |number: u64| {
        let mut writer = Overwriter::open(target, Access::Direct, STREAM_BLOCK, seed.wrapping_add(number << 32))?;
        while let Some(offset) = plan.next_block() {
            writer.renew();
            writer.write(BlockRequest { offset, bytes: STREAM_BLOCK })?;
            plan.complete_block();
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let start = |number| ThreadBuilder::named("writer").start_in(scope, move || thread(number));
        let handles = (0..u64::from(FULL_QUEUE_DEPTH)).map(start).collect::<std::io::Result<Vec<_>>>()?;
        let thread_panic = || Err(ProbeError::fail("a writing thread panicked"));
        handles.into_iter().try_for_each(|handle| handle.join().unwrap_or_else(|_| thread_panic()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    /// A file on the disk of the current directory, removed when dropped.
    struct Owned(PathBuf);

    impl Owned {
        fn new(name: &str, bytes: usize) -> (Self, Target) {
            let path = std::env::current_dir().unwrap().join(format!("kelvin-{name}-{}", std::process::id()));
            std::fs::write(&path, vec![0; bytes]).unwrap();
            let target = Target::find(&path).unwrap();
            (Self(path), target)
        }
    }

    impl Drop for Owned {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// How many different units a file has.
    fn units(path: &std::path::Path) -> usize {
        let content = std::fs::read(path).unwrap();
        content.chunks(DEDUP_UNIT).map(<[u8]>::to_vec).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn blocks_are_unique() {
        let (file, target) = Owned::new("overwritten", 64 * DEDUP_UNIT);
        let mut writer = Overwriter::open(&target, Access::Buffered, DEDUP_UNIT, 3).unwrap();
        for block in 0..64 {
            writer.renew();
            writer.write(BlockRequest { offset: block * DEDUP_UNIT as u64, bytes: DEDUP_UNIT }).unwrap();
        }
        writer.flush().unwrap();
        assert_eq!(units(&file.0), 64);
    }

    #[test]
    fn both_stream_methods_write_all_blocks() {
        let blocks = 8;
        let (file, target) = Owned::new("streamed", blocks * STREAM_BLOCK);
        if let Err(error) = target.open(Access::Direct) {
            return kelvin_testing::MissingRequirement::machine(error).report_skip("a stream of direct writes");
        }
        let result = stream_overwrite(&target, 5).unwrap();
        assert!(
            result.bytes >= (WARM_UP_BLOCKS + 1) * STREAM_BLOCK as u64
                && result.bytes <= (WARM_UP_BLOCKS + TIMED_BLOCKS) * STREAM_BLOCK as u64
        );
        assert!(result.rate >= result.flushed_rate && result.flushed_rate > 0.0);
        assert_eq!(units(&file.0), blocks * STREAM_BLOCK / DEDUP_UNIT);
        std::fs::write(&file.0, vec![0; blocks * STREAM_BLOCK]).unwrap();
        let counter = BlockCounter::new(&target);
        stream_with_threads(&target, 6, &counter).unwrap();
        let span = counter.finish().unwrap();
        assert_eq!(span.timed_blocks + WARM_UP_BLOCKS, span.total_blocks);
        assert!(span.end > span.start);
        assert_eq!(units(&file.0), blocks * STREAM_BLOCK / DEDUP_UNIT);
    }
}
