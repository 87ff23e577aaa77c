//! The arguments of `kelvin file mix`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kelvin_core::quantity::parse_bytes;
use kelvin_file::cache::PageCacheState;
use kelvin_file::workload::JobEngine;

use super::file::block_size;
use super::{AnswerArgs, Word, duration, number_between, one_of, positive_number, whole_number};

/// Engines.
const ENGINES: &[Word<JobEngine>] = &[
    ("io_uring", JobEngine::Ring, "As many requests in flight as --depth says"),
    (
        "io_uring-polled",
        JobEngine::PolledRing,
        "The same, and a thread of the kernel takes the requests (IORING_SETUP_SQPOLL)",
    ),
    ("psync", JobEngine::Positioned, "pread and pwrite, one after another"),
    ("sync", JobEngine::Seeking, "lseek, read and write, one after another"),
];

/// States of the page cache.
const CACHE_STATES: &[Word<PageCacheState>] = &[
    ("as-found", PageCacheState::AsFound, "As it is"),
    ("uncached", PageCacheState::Uncached, "Dropped before, as far as the kernel does so"),
    ("direct", PageCacheState::Direct, "Bypassing the page cache"),
];

/// `kelvin file mix`.
#[derive(Debug, Args)]
pub struct MixArgs {
    /// The file or block device; a file that does not exist is made, and removed afterwards
    pub file: PathBuf,
    /// Reads of a hundred requests; 100 only reads, 0 only writes
    #[arg(long, visible_alias = "rwmixread", value_name = "PERCENT", default_value = "70", value_parser = number_between(0, 100))]
    pub read: u32,
    /// Request blocks in order, reads and writes each from the beginning [default: in random order]
    #[arg(long)]
    pub sequential: bool,
    /// Block size
    #[arg(long, visible_alias = "bs", value_name = "BYTES", default_value = "4k", value_parser = block_size)]
    pub block: usize,
    /// How requests are made
    #[arg(long, visible_alias = "ioengine", value_parser = one_of(ENGINES), default_value = "io_uring")]
    pub engine: JobEngine,
    /// Queue depth of each job, for io_uring
    #[arg(long, visible_alias = "iodepth", value_name = "N", default_value = "1", value_parser = number_between(1, 4096))]
    pub depth: u32,
    /// Jobs at once, each on the whole part of the file, in an order of its own
    #[arg(long, visible_alias = "numjobs", value_name = "N", default_value = "1", value_parser = number_between(1, 256))]
    pub jobs: u32,
    /// Page cache: as it is, dropped before, or bypassed
    #[arg(long, value_parser = one_of(CACHE_STATES), default_value = "as-found")]
    pub cache: PageCacheState,
    /// Work on a part of this size; needed for a file that does not exist [default: to the end of the file]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Where that part begins [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub offset: Option<u64>,
    /// Time that counts
    #[arg(long, visible_alias = "runtime", value_name = "TIME", default_value = "10", value_parser = duration)]
    pub seconds: Duration,
    /// Time before it, which does not count
    #[arg(long, visible_alias = "ramp_time", value_name = "TIME", value_parser = duration)]
    pub ramp: Option<Duration>,
    /// Bytes a second of each job and direction; latencies also count from when a request was due
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub rate: Option<u64>,
    /// Requests a second of each job and direction
    #[arg(long, visible_alias = "rate_iops", value_name = "N", value_parser = positive_number)]
    pub rate_requests: Option<u64>,
    /// Flush the file after every so many writes of a job
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub fsync: Option<u64>,
    /// Read all that was written again afterwards, and compare it; of reads alone, check that each block is one that was written so
    #[arg(long)]
    pub verify: bool,
    /// Seed of order, mix and content
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number::<u64>)]
    pub seed: u64,
    /// Write an existing file in place
    #[arg(long)]
    pub overwrite: bool,
    /// Write this block device, whose content is lost; it must be the file
    #[arg(long, value_name = "DEVICE")]
    pub destroy: Option<PathBuf>,
    /// With --destroy: discard the part of the device before
    #[arg(long, requires = "destroy")]
    pub trim: bool,
    /// Keep a file that is made
    #[arg(long)]
    pub keep: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}
