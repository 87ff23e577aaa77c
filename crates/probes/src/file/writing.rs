//! Files overwritten with noise in which no two blocks of 4 KiB are alike: block by block, or as a stream.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_file::noise::Noise;
use kelvin_file::{Access, Request, Target};
use kelvin_harness::Stop;
use kelvin_sys::clock::monotonic;
use kelvin_sys::direct::FLAG;
use kelvin_sys::memory::{Arena, Pages};
use kelvin_sys::spawn::Thread;
use kelvin_sys::uring::{Direction, Ring, Setup};

use super::data::{MIB, WIDTH};

/// Bytes of which none are like any others: the unit in which file systems deduplicate.
const UNIT: usize = 4096;

/// Opens a file to be overwritten.
fn open(target: &Target, access: Access) -> Result<File, Stop> {
    let flags = if access == Access::Direct { FLAG } else { 0 };
    File::options()
        .write(true)
        .custom_flags(flags)
        .open(target.path())
        .map_err(|error| Stop::fail(format!("cannot open {} to write: {error}", target.path().display())))
}

/// Makes every unit of a buffer new: the beginning of each gets the next number.
fn renew(buffer: &mut [u8], number: &mut u64) {
    for unit in buffer.chunks_mut(UNIT) {
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
    /// Opens a file to be overwritten in blocks of so many bytes.
    pub(super) fn open(target: &Target, access: Access, block: usize, seed: u64) -> Result<Self, Stop> {
        let mut buffer = Arena::populated(block, Pages::Base)?;
        Noise::new(seed).fill(&mut buffer.as_mut_slice()[..block]);
        Ok(Self { file: open(target, access)?, buffer, block, number: seed })
    }

    /// Makes the next block one that was never written.
    pub(super) fn renew(&mut self) {
        renew(&mut self.buffer.as_mut_slice()[..self.block], &mut self.number);
    }

    /// Writes a block.
    #[inline]
    pub(super) fn write(&mut self, request: Request) -> Result<(), Stop> {
        whole(self.file.write_at(&self.buffer.as_slice()[..request.bytes], request.offset), request.bytes)
    }

    /// Waits until what was written is durable.
    pub(super) fn flush(&self) -> Result<(), Stop> {
        self.file.sync_data().map_err(|error| Stop::fail(format!("fdatasync: {error}")))
    }
}

/// That all of a block was written.
fn whole(written: std::io::Result<usize>, bytes: usize) -> Result<(), Stop> {
    match written {
        Ok(written) if written == bytes => Ok(()),
        Ok(written) => Err(Stop::fail(format!("a write of {bytes} bytes wrote {written}"))),
        Err(error) => Err(Stop::fail(format!("a write of {bytes} bytes: {error}"))),
    }
}

/// Bytes of a block of a stream.
const BLOCK: usize = MIB as usize;
/// Blocks written before the time begins, and those that are timed.
const BEFORE: u64 = WIDTH as u64;
const TIMED: u64 = 2 * WIDTH as u64;
/// Nanoseconds after which no more are begun: enough for a slow device.
const LONGEST: u64 = 400_000_000;

/// The result of a stream.
pub(super) struct Streamed {
    /// Bytes per second that were accepted.
    pub rate: f64,
    /// The same with the flush at the end.
    pub flushed_rate: f64,
    /// All bytes that were written.
    pub bytes: u64,
    /// The means, in words.
    pub words: String,
}

/// Overwrites the beginning of a file, many blocks in flight, past the page cache.
pub(super) fn stream(target: &Target, seed: u64) -> Result<Streamed, Stop> {
    let setup = Setup { depth: WIDTH, block: BLOCK, registered: false, pages: Pages::Base };
    let file = open(target, Access::Direct)?;
    let flushed = file.try_clone()?;
    let (stretch, words) = match Ring::new(file, setup) {
        Ok(ring) => (by_ring(ring, target, seed)?, format!("io_uring, queue depth {WIDTH}")),
        Err(error) => {
            let words = format!("{WIDTH} threads of pwrite, because io_uring is unavailable here: {error}");
            (by_threads(target, seed)?, words)
        }
    };
    let Stretch { begun, ended, timed, all } = stretch;
    flushed.sync_data()?;
    let rate = |end: u64| (timed * BLOCK as u64) as f64 * 1e9 / end.saturating_sub(begun).max(1) as f64;
    Ok(Streamed { rate: rate(ended), flushed_rate: rate(monotonic()), bytes: all * BLOCK as u64, words })
}

/// The timed part of a stream: its begin and end, the blocks written meanwhile, and all blocks.
struct Stretch {
    begun: u64,
    ended: u64,
    timed: u64,
    all: u64,
}

/// Blocks that a stream has begun and done.
struct Course {
    blocks: u64,
    started: u64,
    begun: AtomicU64,
    next: AtomicU64,
    done: AtomicU64,
}

impl Course {
    fn new(target: &Target) -> Self {
        let blocks = target.bytes() / BLOCK as u64;
        let zero = || AtomicU64::new(0);
        Self { blocks, started: monotonic(), begun: zero(), next: zero(), done: zero() }
    }

    /// The place of the next block, if there is to be one.
    fn next(&self) -> Option<u64> {
        let block = self.next.fetch_add(1, Ordering::Relaxed);
        let late = block > BEFORE && monotonic() - self.started > LONGEST;
        (block < BEFORE + TIMED && !late).then_some(block % self.blocks * BLOCK as u64)
    }

    /// Counts a written block.
    fn done(&self) {
        if self.done.fetch_add(1, Ordering::Relaxed) + 1 == BEFORE {
            self.begun.store(monotonic(), Ordering::Relaxed);
        }
    }

    fn over(self) -> Result<Stretch, Stop> {
        let (begun, all) = (self.begun.into_inner(), self.done.into_inner());
        match all.checked_sub(BEFORE) {
            Some(timed) if timed > 0 => Ok(Stretch { begun, ended: monotonic(), timed, all }),
            _ => Err(Stop::fail(format!("only {all} blocks of {BLOCK} bytes were written"))),
        }
    }
}

fn by_ring(mut ring: Ring, target: &Target, seed: u64) -> Result<Stretch, Stop> {
    let mut free: Vec<usize> = (0..WIDTH as usize).collect();
    let (mut noise, mut number) = (Noise::new(seed), seed);
    free.iter().for_each(|&slot| noise.fill(ring.buffer_mut(slot)));
    let course = Course::new(target);
    loop {
        while let Some(&slot) = free.last() {
            let Some(offset) = course.next() else { break };
            free.pop();
            renew(ring.buffer_mut(slot), &mut number);
            ring.queue(Direction::Write, slot, offset, 0..BLOCK);
        }
        if ring.under_way() == 0 {
            return course.over();
        }
        ring.wait(1)?;
        while let Some((slot, written)) = ring.done() {
            whole(written, BLOCK)?;
            course.done();
            free.push(slot);
        }
    }
}

fn by_threads(target: &Target, seed: u64) -> Result<Stretch, Stop> {
    let course = Course::new(target);
    let thread = |member: u64| {
        let mut writer = Overwriter::open(target, Access::Direct, BLOCK, seed.wrapping_add(member << 32))?;
        while let Some(offset) = course.next() {
            writer.renew();
            writer.write(Request { offset, bytes: BLOCK })?;
            course.done();
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let start = |member| Thread::named("writer").start_in(scope, move || thread(member));
        let members = (0..u64::from(WIDTH)).map(start).collect::<std::io::Result<Vec<_>>>()?;
        let died = || Err(Stop::fail("a writing thread panicked"));
        members.into_iter().try_for_each(|member| member.join().unwrap_or_else(|_| died()))
    })?;
    course.over()
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
        content.chunks(UNIT).map(<[u8]>::to_vec).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn no_block_is_like_another() {
        let (file, target) = Owned::new("overwritten", 64 * UNIT);
        let mut writer = Overwriter::open(&target, Access::Buffered, UNIT, 3).unwrap();
        for block in 0..64 {
            writer.renew();
            writer.write(Request { offset: block * UNIT as u64, bytes: UNIT }).unwrap();
        }
        writer.flush().unwrap();
        assert_eq!(units(&file.0), 64);
    }

    #[test]
    fn a_stream_writes_all_of_its_blocks_by_either_way() {
        let blocks = 8;
        let (file, target) = Owned::new("streamed", blocks * BLOCK);
        if let Err(error) = target.open(Access::Direct) {
            return kelvin_testing::Missing::machine(error).skips("a stream of direct writes");
        }
        let streamed = stream(&target, 5).unwrap();
        assert!(streamed.bytes >= (BEFORE + 1) * BLOCK as u64 && streamed.bytes <= (BEFORE + TIMED) * BLOCK as u64);
        assert!(streamed.rate >= streamed.flushed_rate && streamed.flushed_rate > 0.0);
        assert_eq!(units(&file.0), blocks * BLOCK / UNIT);
        std::fs::write(&file.0, vec![0; blocks * BLOCK]).unwrap();
        let stretch = by_threads(&target, 6).unwrap();
        assert_eq!(stretch.timed + BEFORE, stretch.all);
        assert!(stretch.ended > stretch.begun);
        assert_eq!(units(&file.0), blocks * BLOCK / UNIT);
    }
}
