//! Jobs that read and write files at once: mixed by percent, in order or at random, at a rate or as fast as they can.
//!
//! A [`Job`] is one thread's work on one file. [`JobFiles`] are the files of all jobs: those that exist are read, and written only
//! where the user named them; others are made, and go when they are dropped. [`run_stage`] runs jobs side by side.

mod backend;
mod block_sizes;
mod claimed_device;
mod figures;
mod job_files;
mod job_thread;
mod request_mix;
mod schedule;
mod time_slices;
mod verified_block;
mod verify_pass;

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::uring::IoDirection;

use crate::access::Access;
use crate::start_barrier::StartBarrier;
use crate::{Error, Result};

pub use self::block_sizes::BlockSizes;
pub use self::figures::{DirectionResult, Estimate, JobResult, Verification};
pub use self::job_files::{JobFiles, Permissions};
pub use self::time_slices::TimeSlices;
pub use self::verified_block::MIN_VERIFIED_BLOCK;

/// Threads of all jobs together at most: each has histograms of a few megabytes.
pub const MAX_THREADS: u32 = 256;
/// Bytes of the buffers of jobs that run at once, together at most.
pub const MAX_BUFFER_BYTES: usize = 1 << 30;

/// Something for reads and something for writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByDirection<T> {
    /// Of reads.
    pub read: T,
    /// Of writes.
    pub write: T,
}

impl<T> ByDirection<T> {
    /// The same for both.
    pub fn both(value: T) -> Self
    where
        T: Clone,
    {
        Self { read: value.clone(), write: value }
    }

    /// That of a direction.
    pub fn of(&self, direction: IoDirection) -> &T {
        match direction {
            IoDirection::Read => &self.read,
            IoDirection::Write => &self.write,
        }
    }

    /// That of a direction, to change.
    pub fn of_mut(&mut self, direction: IoDirection) -> &mut T {
        match direction {
            IoDirection::Read => &mut self.read,
            IoDirection::Write => &mut self.write,
        }
    }
}

/// Which requests a job makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Both, each request by chance.
    Both {
        /// Reads of a hundred requests, on average.
        read_percent: u8,
    },
}

impl Mix {
    /// Whether there may be reads.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Writes | Self::Both { read_percent: 0 })
    }

    /// Whether there may be writes.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Reads | Self::Both { read_percent: 100 })
    }
}

/// How a job makes its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEngine {
    /// read(2) and write(2), with lseek(2) before them where the file is elsewhere.
    Seeking,
    /// pread(2) and pwrite(2).
    Positioned,
    /// io_uring.
    Ring,
    /// io_uring, with a thread of the kernel that takes the requests.
    PolledRing,
}

impl JobEngine {
    /// Its name in reports: that of fio.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seeking => "sync",
            Self::Positioned => "psync",
            Self::Ring => "io_uring",
            Self::PolledRing => "io_uring with sqthread_poll",
        }
    }

    /// Whether it can have several requests in flight.
    pub fn has_queue(self) -> bool {
        matches!(self, Self::Ring | Self::PolledRing)
    }
}

/// The order of a job's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// One after another, reads and writes each from the beginning.
    Sequential,
    /// Random, and each place of the smallest block begins one request at each pass.
    RandomPermutation,
    /// Random, each place independent of those before: a pass has some places several times, and others not.
    RandomIndependent,
}

impl JobOrder {
    /// Whether it is random.
    pub fn is_random(self) -> bool {
        self != Self::Sequential
    }
}

/// What a flush of a file brings to its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Data and all metadata: fsync(2).
    All,
    /// Data, and the metadata that reading them back needs: fdatasync(2).
    Data,
}

impl Flush {
    /// The call of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "fsync",
            Self::Data => "fdatasync",
        }
    }

    /// Flushes a file.
    fn carry_out(self, file: &std::fs::File) -> std::io::Result<()> {
        match self {
            Self::All => file.sync_all(),
            Self::Data => file.sync_data(),
        }
    }
}

/// The part of a file that a job works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes; to the end of the file if unknown.
    pub size: Option<u64>,
}

/// When a job ends: by whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfJob {
    /// After as many bytes as its part of the file has, this many times.
    pub loops: u64,
    /// After this time, the ramp not included.
    pub runtime: Option<Duration>,
}

/// The rate that requests of one direction are made at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Bytes a second at most.
    pub bytes_per_second: Option<u64>,
    /// Requests a second at most.
    pub requests_per_second: Option<u64>,
}

impl RateLimit {
    /// Whether there is a limit.
    pub fn is_limited(self) -> bool {
        self.bytes_per_second.is_some() || self.requests_per_second.is_some()
    }
}

/// The work of one thread on one file.
#[derive(Clone, Debug)]
pub struct Job {
    /// The file.
    pub file: PathBuf,
    /// The part of it.
    pub layout: Layout,
    /// Reads, writes or both.
    pub mix: Mix,
    /// The order of blocks.
    pub order: JobOrder,
    /// Sizes of blocks.
    pub blocks: ByDirection<BlockSizes>,
    /// How requests are made.
    pub engine: JobEngine,
    /// Requests in flight at most.
    pub depth: u32,
    /// Through the page cache or past it.
    pub access: Access,
    /// When it ends.
    pub end: EndOfJob,
    /// How long it works before anything counts.
    pub ramp: Duration,
    /// The rate of requests.
    pub rate: ByDirection<RateLimit>,
    /// Writes from one flush to the next, and what it flushes.
    pub flush_every: Option<(u64, Flush)>,
    /// Whether all is flushed at the end, within the time.
    pub end_fsync: bool,
    /// Whether written blocks are read again and compared; of a job that only reads, whether each block is one that was written so.
    pub verify: bool,
    /// Chooses order, mix, sizes and content.
    pub seed: u64,
    /// Whether the file is dropped from memory before, as far as the kernel does so.
    pub invalidate: bool,
}

impl Job {
    /// Bytes of its largest block.
    pub fn largest_block(&self) -> usize {
        self.blocks.largest()
    }

    /// Whether requests are due at times, and not when the one before is done.
    pub fn is_paced(&self) -> bool {
        self.rate.read.is_limited() || self.rate.write.is_limited()
    }
}

impl ByDirection<BlockSizes> {
    /// The largest block of both.
    pub fn largest(&self) -> usize {
        self.read.largest().max(self.write.largest())
    }

    /// The smallest block of both.
    pub fn smallest(&self) -> usize {
        self.read.smallest().min(self.write.smallest())
    }
}

/// A job as it was asked for: one or several threads, and how they are reported.
#[derive(Clone, Debug)]
pub struct PlannedJob {
    /// Its name.
    pub name: String,
    /// What the name of its file is relative to.
    pub directory: PathBuf,
    /// The file; `None` for one of its own for each copy.
    pub file: Option<PathBuf>,
    /// Threads that do the same, each with another seed.
    pub copies: u32,
    /// Whether these, and jobs next to it that want the same, are reported as one.
    pub is_grouped: bool,
    /// Whether it waits for the jobs before it.
    pub waits: bool,
    /// What is carried out otherwise than its words say.
    pub notes: Vec<String>,
    /// What each thread does. Its file is that of [`PlannedJob::jobs`].
    pub job: Job,
}

impl PlannedJob {
    /// Bytes of the buffers of all its threads.
    pub fn buffer_bytes(&self) -> usize {
        // Each buffer begins at a page.
        let bytes =
            self.job.largest_block().checked_next_multiple_of(kelvin_sys::mapping::page_bytes()).unwrap_or(usize::MAX);
        (self.job.depth as usize).saturating_mul(bytes).saturating_mul(self.copies as usize)
    }
}

/// What jobs that run at once share.
#[derive(Debug)]
struct Stage {
    barrier: StartBarrier,
    /// When the first one started, in nanoseconds of the monotonic clock.
    start: OnceLock<u64>,
    /// Whether one has failed, so that the others end too.
    is_cancelled: AtomicBool,
}

/// Checks that of jobs side by side nobody else writes what one is to verify.
///
/// # Errors
/// Which setting does not go with which.
pub fn check_stage(jobs: &[Job], files: &JobFiles) -> Result<()> {
    let writers = jobs.iter().enumerate().filter(|(_, job)| job.mix.writes());
    let regions = writers.map(|(number, job)| Ok((number, job, files.place(job)?, files.region(job)?)));
    let regions: Vec<_> = regions.collect::<Result<_>>()?;
    for (number, _, place, region) in regions.iter().filter(|(_, job, ..)| job.verify) {
        let overlaps = |other: &std::ops::Range<u64>| other.start < region.end && region.start < other.end;
        if regions.iter().any(|(other, _, at, part)| other != number && at == place && overlaps(part)) {
            let why = "another job writes the same part of the file at the same time: give each its own file, or run one after the other (stonewall)";
            return Err(Error::setting("verify", why));
        }
    }
    Ok(())
}

/// Runs jobs side by side, and waits for all of them. If one fails, the others end too.
///
/// A signal that ends the program ends all of them early. What they did until then is their result; what was not read back by then is
/// not verified.
///
/// # Errors
/// A file that cannot be read or written so, settings that do not go with it, a thread that cannot be started.
pub fn run_stage(jobs: &[Job], files: &JobFiles) -> Result<Vec<JobResult>> {
    check_stage(jobs, files)?;
    let stage =
        Stage { barrier: StartBarrier::new(jobs.len()), start: OnceLock::new(), is_cancelled: AtomicBool::new(false) };
    let results = std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(jobs.len());
        for job in jobs {
            let stage = &stage;
            let work = move || {
                let outcome = job_thread::run(job, files, stage);
                stage.is_cancelled.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            };
            let handle = ThreadBuilder::named("job").start_in(scope, work).inspect_err(|_| stage.barrier.cancel());
            handles.push(handle.map_err(Error::ThreadStart)?);
        }
        let outcomes = handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // All have ended before the first error is looked at.
        outcomes.collect::<Vec<_>>().into_iter().collect::<Result<Vec<Option<JobResult>>>>()
    })?;
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests;
