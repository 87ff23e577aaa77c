//! The arguments of `kelvin file` and `kelvin digest`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use kelvin_core::quantity::parse_bytes;
use kelvin_file::cache::PageCacheState;
use kelvin_file::copy::MethodChoice;
use kelvin_file::write_job::{Pattern, SyncMode, WriteEngine};
use kelvin_file::{Engine, PagePolicy};

use super::{
    AnswerArgs, DestinationArgs, JobOptionArgs, MixArgs, RunOptions, Word, duration, number_between, one_of,
    whole_number,
};

/// States of the page cache.
const CACHE_STATES: &[Word<PageCacheState>] = &[
    ("as-found", PageCacheState::AsFound, "As it is"),
    ("cached", PageCacheState::Cached, "All of the file cached, by reading it once before"),
    ("uncached", PageCacheState::Uncached, "Nothing cached: dropped before"),
    ("direct", PageCacheState::Direct, "Bypassing the page cache"),
];

/// Pages of a buffer.
const PAGES: &[Word<PagePolicy>] = &[
    ("base", PagePolicy::Base, "Base pages, scattered in physical memory"),
    ("huge", PagePolicy::Huge, "Huge pages, if the kernel provides them"),
];

/// `kelvin file`.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// What to do
    #[command(subcommand)]
    pub command: FileCommand,
}

/// What to do with a file.
#[derive(Debug, Subcommand)]
pub enum FileCommand {
    /// Read a file by one method: digest, rate, latencies, and where its bytes came from
    #[command(after_help = help!("file-read"))]
    Read(ReadArgs),
    /// Find how many blocks can be read in a given time, and so which file size takes a reasonable time
    #[command(after_help = help!("file-autosize"))]
    Autosize(AutosizeArgs),
    /// Write a new file by one method: rate, latencies, and how much of it is on the device
    #[command(after_help = help!("file-write"))]
    Write(WriteArgs),
    /// Copy a file by one method: rate, system calls, what limited it, and the expected rate
    #[command(after_help = help!("file-copy"))]
    Copy(CopyArgs),
    /// Mix reads and writes on one file or block device, at random or in order, as fast as possible or at a rate
    #[command(after_help = help!("file-mix"))]
    Mix(Box<MixArgs>),
    /// Run the jobs of a job file of fio: reads and writes mixed, at random, at a rate, several at once
    #[command(after_help = help!("file-run"))]
    Run(JobsArgs),
    /// Run all file and disk probes at all points on a directory's file system: table, stored run, report
    #[command(mut_arg("budget", |budget| budget.help(help!("file-sweep-budget"))))]
    #[command(mut_arg("rounds", |rounds| rounds.help(help!("file-sweep-rounds"))))]
    #[command(after_help = help!("file-sweep"))]
    Sweep(Box<SweepArgs>),
    /// Show how large the file cache can grow; with --measure, prove it under a memory limit
    #[command(after_help = help!("file-cache"))]
    Cache(CacheArgs),
}

/// `kelvin file read`.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// The file
    pub file: PathBuf,
    /// How
    #[command(flatten)]
    pub how: AccessArgs,
    /// Blocks to read, wrapping around at the end of the file [default: the whole file once]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::positive_number, conflicts_with = "seconds")]
    pub count: Option<u64>,
    /// Read for this long, wrapping around at the end of the file
    #[arg(long, visible_alias = "runtime", value_name = "TIME", value_parser = duration)]
    pub seconds: Option<Duration>,
    /// Read only the first part of the file, of this size [default: all of it]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Read blocks in random order, each once per pass
    #[arg(long)]
    pub random: bool,
    /// Seed of the random order [default: from the clock]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>, requires = "random")]
    pub seed: Option<u64>,
    /// With --cache uncached: drop the kernel's caches of every file on the machine; needs root
    ///
    /// Writes 3 to /proc/sys/vm/drop_caches before dropping the file itself. 1 drops file pages. 2 drops dentries and inodes
    /// (names, attributes, block locations), so that opening a file and first reading each part of it go to the disk for them
    /// too; an inode with cached pages is kept, so 3 drops the pages first. Dirty pages are not dropped, and nothing is lost.
    /// Everything on the machine is slower until its files are read again. Without this option only the named file is
    /// dropped (posix_fadvise), which is enough to time its content.
    #[arg(long)]
    pub drop_caches: bool,
    /// Do not time each request; saves two clock reads per request
    #[arg(long)]
    pub no_latency: bool,
    /// Do not compute the digest
    #[arg(long)]
    pub no_digest: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin file write`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("amount").required(true).args(["count", "size"])))]
pub struct WriteArgs {
    /// The file; an existing one is replaced only with --overwrite
    pub file: PathBuf,
    /// Block size
    #[arg(long, visible_alias = "bs", value_name = "BYTES", default_value = "4k", value_parser = block_size)]
    pub block: usize,
    /// Blocks to write
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::positive_number)]
    pub count: Option<u64>,
    /// Bytes to write; the last block may be shorter
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// What to write: random data, which neither compresses nor repeats, or one repeated byte by its value, such as 0xff; 2 is the byte 0x02
    #[arg(long, value_name = "PATTERN", default_value = "random", value_parser = Pattern::from_str)]
    pub pattern: Pattern,
    /// Seed of the random data: the same seed makes the same file [default: 0]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>)]
    pub seed: Option<u64>,
    /// When data counts as written: in memory (none), flushed once at the end (fsync), each block on the device (dsync),
    /// each block written past the page cache (direct)
    #[arg(long, value_name = "POLICY", default_value = "fsync", value_parser = SyncMode::from_str)]
    pub sync: SyncMode,
    /// Replace an existing file once the new one is complete
    #[arg(long)]
    pub overwrite: bool,
    /// Engine: write, pwrite, io_uring, io_uring-fixed
    #[arg(long, visible_alias = "ioengine", value_name = "ENGINE", default_value = "pwrite", value_parser = WriteEngine::from_str)]
    pub engine: WriteEngine,
    /// Queue depth, for io_uring
    #[arg(long, visible_alias = "iodepth", value_name = "N", default_value = "1", value_parser = number_between(1, 4096))]
    pub depth: u32,
    /// Threads, each with its own part of the file
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_between(1, 1024))]
    pub threads: u32,
    /// Pages of the buffers: base pages, as in most programs, or huge pages
    ///
    /// A direct request of 1 MiB from base pages has up to 256 segments, from huge pages one: some devices serve the latter at twice
    /// the rate or more.
    #[arg(long, value_parser = one_of(PAGES), default_value = "base")]
    pub pages: PagePolicy,
    /// Do not time each request; saves two clock reads per request
    #[arg(long)]
    pub no_latency: bool,
    /// Do not compute the digest
    #[arg(long)]
    pub no_digest: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin file copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The file to copy
    pub source: PathBuf,
    /// The copy; an existing file is replaced only with --overwrite
    pub target: PathBuf,
    /// Method: auto, rw (pread and pwrite), copy_file_range, sendfile, reflink (share blocks)
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = MethodChoice::from_str)]
    pub method: MethodChoice,
    /// Block size: bytes that one call moves, as dd's bs=; not with reflink, which is one call [default: 128k]
    #[arg(long, visible_alias = "bs", value_name = "BYTES", value_parser = block_size)]
    pub block: Option<usize>,
    /// Page cache state of the source: as-found, cached (all of it, read once before), uncached (dropped before); checked before and after
    #[arg(long, value_name = "STATE", default_value = "as-found", value_parser = cache_state)]
    pub cache: PageCacheState,
    /// When data counts as copied: in memory (none), as dd and cp leave it; flushed once at the end (fsync); each block on the
    /// device (dsync)
    #[arg(long, value_name = "POLICY", default_value = "none", value_parser = SyncMode::from_str)]
    pub sync: SyncMode,
    /// Replace an existing file once the copy is complete
    #[arg(long)]
    pub overwrite: bool,
    /// Read both files afterwards and compare all bytes, not included in the time; after a flush the copy is read from its device
    #[arg(long)]
    pub verify: bool,
    /// Do not time each block; saves three clock reads per block
    #[arg(long)]
    pub no_latency: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin file run`.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// The job file; options of jobs may be given in its place, as to fio: --name=a --rw=randread --bs=4k ...
    #[arg(value_name = "JOB.fio")]
    pub job_file: Option<PathBuf>,
    /// Options of jobs
    #[command(flatten)]
    pub job: JobOptionArgs,
    /// Let jobs write this existing file in place; can be repeated
    #[arg(long, value_name = "FILE")]
    pub overwrite: Vec<PathBuf>,
    /// Let jobs write this block device, whose content is lost; can be repeated
    ///
    /// The path must be that of the job. A device that is mounted, or a part of RAID, LVM or swap, is refused.
    #[arg(long, value_name = "DEVICE")]
    pub destroy: Vec<PathBuf>,
    /// With --destroy: discard the parts of the devices that jobs work on, before the first job
    #[arg(long, requires = "destroy")]
    pub trim: bool,
    /// Keep the files that are made for the jobs, under their names
    #[arg(long)]
    pub keep: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// How a file is read.
#[derive(Debug, Args)]
pub struct AccessArgs {
    /// Block size
    #[arg(long, visible_alias = "bs", value_name = "BYTES", default_value = "4k", value_parser = block_size)]
    pub block: usize,
    /// Engine: read, pread, readv, fread, bufreader, mmap, mmap-populate, io_uring, io_uring-fixed
    #[arg(long, visible_alias = "ioengine", value_name = "ENGINE", default_value = "pread", value_parser = Engine::from_str)]
    pub engine: Engine,
    /// Queue depth, for io_uring
    #[arg(long, visible_alias = "iodepth", value_name = "N", default_value = "1", value_parser = number_between(1, 4096))]
    pub depth: u32,
    /// Threads, each with its own part of the file
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_between(1, 1024))]
    pub threads: u32,
    /// Pages of the buffers: base pages, as in most programs, or huge pages
    ///
    /// A direct request of 1 MiB from base pages has up to 256 segments, from huge pages one: some devices serve the latter at twice
    /// the rate or more. The engines fread, bufreader and mmap use their own buffers.
    #[arg(long, value_parser = one_of(PAGES), default_value = "base")]
    pub pages: PagePolicy,
    /// Page cache state: all of the file cached, none of it, or bypassed; checked before and after
    #[arg(long, value_parser = one_of(CACHE_STATES), default_value = "as-found")]
    pub cache: PageCacheState,
}

/// `kelvin file sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Also read files with fio, dd, cat and bw_file_rd, where installed, interleaved with kelvin; takes 20 minutes more
    #[arg(long)]
    pub rivals: bool,
    /// How to measure
    #[command(flatten)]
    pub options: RunOptions,
    /// Where it goes
    #[command(flatten)]
    pub to: DestinationArgs,
}

/// `kelvin file autosize`.
#[derive(Debug, Args)]
pub struct AutosizeArgs {
    /// The file
    pub file: PathBuf,
    /// How
    #[command(flatten)]
    pub how: AccessArgs,
    /// Time to read for
    #[arg(long, visible_alias = "runtime", value_name = "TIME", default_value = "10", value_parser = duration)]
    pub seconds: Duration,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin file cache`.
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// Directory for the test files, which are removed afterwards
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Prove it by reading files of growing size under a memory limit
    #[arg(long)]
    pub measure: bool,
    /// With --measure: the limit [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "measure")]
    pub limit: Option<u64>,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin digest`.
#[derive(Debug, Args)]
pub struct DigestArgs {
    /// The files, or - for standard input [default: standard input]
    pub files: Vec<PathBuf>,
    /// Read digests from the files, in the format that this command prints, and check them
    #[arg(long)]
    pub check: bool,
    /// With --check: print nothing for files that match
    #[arg(long, requires = "check")]
    pub quiet: bool,
    /// Maximum threads per file [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = number_between(1, 1024))]
    pub threads: Option<u32>,
    /// Search again for the fastest way to read on these file systems, ignoring the remembered choice
    #[arg(long)]
    pub rebuild_cache: bool,
    /// Also print on standard error how each file was read, and how fast
    #[arg(long, short)]
    pub verbose: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// A block: at most 1 GiB.
pub(super) fn block_size(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        large if large > 1 << 30 => Err("a block has at most 1 GiB".into()),
        bytes => Ok(bytes as usize),
    }
}

/// A state of the page cache, by its name alone.
fn cache_state(name: &str) -> Result<PageCacheState, String> {
    let entry = CACHE_STATES.iter().find(|(word, ..)| *word == name);
    entry.map(|(_, state, _)| *state).ok_or_else(|| "the state is one of: as-found, cached, uncached".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_above_one_gibibyte_is_rejected() {
        assert!(block_size("1G").is_ok() && block_size("1025M").is_err());
    }
}
