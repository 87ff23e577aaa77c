//! The arguments of `kelvin file` and `kelvin digest`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use kelvin_file::Engine;
use kelvin_file::cache::State;
use kelvin_file::write::{Pattern, Sync, WriteEngine};

use super::{DestinationArgs, MeasureArgs, any_duration, between};

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
    /// Read a file in one way, and tell its digest, rate and latencies, and where its bytes came from
    #[command(after_help = "Examples:\n  kelvin file read data.bin --block 4k\n  \
                            kelvin file read data --cache direct --engine io_uring --depth 32 --random\n\n\
                            Sizes: 4096, 4k or 4KiB (1024 bytes each), 4kB (1000 each); M, G, T alike.")]
    Read(ReadArgs),
    /// Find how many blocks can be read in a given time, and so which size of file takes a reasonable time
    #[command(after_help = "Example:\n  kelvin file autosize data.bin --block 4k --seconds 10")]
    Autosize(AutosizeArgs),
    /// Write a new file in one way, and tell its rate and latencies, and how much of it is on the device
    #[command(after_help = "Examples:\n  kelvin file write new.bin --size 1G --block 1M\n  \
                            kelvin file write new.bin --count 1000 --sync dsync\n  \
                            kelvin file write new.bin --size 1G --sync direct --engine io_uring --depth 32\n\n\
                            The file is made under another name beside its own, and is there whole in the end, or not at all: \
                            after an error or a signal it is removed, and of a killed kelvin by the next one. With --overwrite \
                            it takes place, owner and rights of the old file when it is whole and flushed: the old one is lost \
                            in no case before that. Past the page \
                            cache (--sync direct) an end that does not fill a block of the device is written with zeros \
                            behind it, and the file then cut to its size, its last page in memory.")]
    Write(WriteArgs),
    /// Every measure of files and disks in its full form, on the file system of a directory: table, stored run, report
    #[command(after_help = "Examples:\n  kelvin file sweep --dir /data\n  kelvin file sweep --dir /data --budget 2m")]
    Sweep(SweepArgs),
    /// How large the file cache can become; with --measure, proven under a limit
    #[command(
        after_help = "Examples:\n  kelvin file cache .\n  sudo kelvin file cache /data --measure --limit 512M\n\n\
                            With --measure, files of growing size are read twice inside of a control group whose memory is \
                            limited. Of a file that is a little too large, the second reading finds nothing: the kernel gives \
                            up what it has not seen for longest, which is what will be read next. So the time of a block jumps \
                            where the file cache ends, and that must be the limit. Needs the right to make a control group \
                            (root); exit status 1 where no end was found, or not near the limit."
    )]
    Cache(CacheArgs),
}

/// `kelvin file read`.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// The file
    pub file: PathBuf,
    /// How
    #[command(flatten)]
    pub how: HowArgs,
    /// Blocks to read, from the beginning again at the end of the file [default: all of the file, once]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::from_one, conflicts_with = "seconds")]
    pub count: Option<u64>,
    /// Read for so long, from the beginning again at the end of the file
    #[arg(long, value_name = "TIME", value_parser = any_duration)]
    pub seconds: Option<Duration>,
    /// Only the first part of the file, of this size [default: all of it]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub size: Option<u64>,
    /// Blocks in random order, each once in a pass
    #[arg(long)]
    pub random: bool,
    /// Seed of the random order [default: from the clock]
    #[arg(long, value_name = "N", requires = "random")]
    pub seed: Option<u64>,
    /// With --cache uncached: have the kernel drop all that it caches, of every file on the machine; needs root
    ///
    /// Writes 3 to /proc/sys/vm/drop_caches before the file is dropped by itself. 1 drops pages of files: what was read or
    /// written. 2 drops dentries and inodes, which are names, attributes and places on the disk, so that opening and the first
    /// read of each part of a file go to the disk for them too; an inode that still has pages is kept, and so 3 drops pages
    /// first, then the rest. Nothing that is not yet written is dropped, and nothing is lost. Everything that runs on the
    /// machine is slower afterwards, until its files are read again: without this, only the named file is dropped
    /// (posix_fadvise), which is enough to time its content.
    #[arg(long)]
    pub drop_caches: bool,
    /// Do not time each request: saves two readings of the clock
    #[arg(long)]
    pub no_latency: bool,
    /// Do not compute the digest
    #[arg(long)]
    pub no_digest: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `kelvin file write`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("amount").required(true).args(["count", "size"])))]
pub struct WriteArgs {
    /// The file; one that is there is replaced only with --overwrite
    pub file: PathBuf,
    /// Bytes of a block
    #[arg(long, value_name = "BYTES", default_value = "4k", value_parser = block)]
    pub block: usize,
    /// Blocks to write
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::from_one)]
    pub count: Option<u64>,
    /// Bytes to write; what does not fill a block at the end is a shorter one
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub size: Option<u64>,
    /// What is written: noise, which neither compresses nor repeats, or a byte over and over, such as 0 or 0xff
    #[arg(long, value_name = "PATTERN", default_value = "noise", value_parser = Pattern::from_str)]
    pub pattern: Pattern,
    /// Seed of the noise: the same seed makes the same file [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// When it counts as written: in memory (none), flushed once at the end (fsync), each block on the device (dsync), each
    /// block past the page cache (direct)
    #[arg(long, value_name = "POLICY", default_value = "fsync", value_parser = Sync::from_str)]
    pub sync: Sync,
    /// Let it take the place of a file that is there, when it is whole
    #[arg(long)]
    pub overwrite: bool,
    /// The way: write, pwrite, io_uring, io_uring-fixed
    #[arg(long, value_name = "WAY", default_value = "pwrite", value_parser = WriteEngine::from_str)]
    pub engine: WriteEngine,
    /// Requests under way at once, for io_uring
    #[arg(long, value_name = "N", default_value = "1", value_parser = between(1, 4096))]
    pub depth: u32,
    /// Threads, each with its own part of the file
    #[arg(long, value_name = "N", default_value = "1", value_parser = between(1, 1024))]
    pub threads: u32,
    /// Do not time each request: saves two readings of the clock
    #[arg(long)]
    pub no_latency: bool,
    /// Do not compute the digest
    #[arg(long)]
    pub no_digest: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How a file is read.
#[derive(Debug, Args)]
pub struct HowArgs {
    /// Bytes of a block
    #[arg(long, value_name = "BYTES", default_value = "4k", value_parser = block)]
    pub block: usize,
    /// The way: read, pread, readv, fread, bufreader, mmap, mmap-populate, io_uring, io_uring-fixed
    #[arg(long, value_name = "WAY", default_value = "pread", value_parser = engine)]
    pub engine: Engine,
    /// Requests under way at once, for io_uring
    #[arg(long, value_name = "N", default_value = "1", value_parser = between(1, 4096))]
    pub depth: u32,
    /// Threads, each with its own part of the file
    #[arg(long, value_name = "N", default_value = "1", value_parser = between(1, 1024))]
    pub threads: u32,
    /// State of the page cache: all of the file in it, nothing of it, or past it; proven before and after
    #[arg(long, value_enum, default_value = "as-found")]
    pub cache: CacheArg,
}

/// `kelvin file sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Read files by fio, dd, cat and bw_file_rd too, in turn with kelvin, where they are installed; twenty minutes more
    #[arg(long)]
    pub rivals: bool,
    /// How to measure
    #[command(flatten)]
    pub measure: MeasureArgs,
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
    pub how: HowArgs,
    /// For how long
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = any_duration)]
    pub seconds: Duration,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `kelvin file cache`.
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// Where the files that are read are made, and removed again
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Prove it, by reading files of growing size under a limit
    #[arg(long)]
    pub measure: bool,
    /// With --measure: the limit [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "measure")]
    pub limit: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `kelvin digest`.
#[derive(Debug, Args)]
pub struct DigestArgs {
    /// The files, or - for standard input [default: standard input]
    pub files: Vec<PathBuf>,
    /// Read digests from the files, as this command prints them, and check them
    #[arg(long)]
    pub check: bool,
    /// With --check: say nothing of files that are as they should be
    #[arg(long, requires = "check")]
    pub quiet: bool,
    /// Most threads to read a file with [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = between(1, 1024))]
    pub threads: Option<u32>,
    /// Forget how files on their file systems were read fastest before, and find it out anew
    #[arg(long)]
    pub anew: bool,
    /// Also say on standard error how each file was read, and how fast
    #[arg(long, short)]
    pub verbose: bool,
}

/// A state of the page cache on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheArg {
    /// Whatever is there
    AsFound,
    /// All of the file, read once before
    Cached,
    /// Nothing of it, dropped before
    Uncached,
    /// Past the page cache
    Direct,
}

impl From<CacheArg> for State {
    fn from(cache: CacheArg) -> Self {
        match cache {
            CacheArg::AsFound => Self::AsFound,
            CacheArg::Cached => Self::Cached,
            CacheArg::Uncached => Self::Uncached,
            CacheArg::Direct => Self::Direct,
        }
    }
}

/// A number of bytes such as `4096`, `4k`, `4KiB`, `4kB`, `1.5G`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const WRONG: &str = "a size is a number of bytes, such as 4096, 4k or 4KiB (1024 each), 4kB (1000 each), 1M, 1G";
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| WRONG.to_owned())?;
    let (prefix, base) = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => ("", 1.0),
        "kib" | "mib" | "gib" | "tib" => (&unit[..1], 1024.0),
        "kb" | "mb" | "gb" | "tb" => (&unit[..1], 1000.0),
        "k" | "m" | "g" | "t" => (unit, 1024.0f64),
        _ => return Err(WRONG.into()),
    };
    let power = match prefix.to_ascii_lowercase().as_str() {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => 0,
    };
    let value = number * base.powi(power);
    if value.fract() != 0.0 || !(1.0..9e15).contains(&value) {
        return Err("it must be a whole number of bytes, at least one and less than 8 PiB".into());
    }
    Ok(value as u64)
}

/// A block: at most 1 GiB.
fn block(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        large if large > 1 << 30 => Err("a block has at most 1 GiB".into()),
        bytes => Ok(bytes as usize),
    }
}

fn engine(name: &str) -> Result<Engine, String> {
    name.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("1", 1),
            ("512b", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("1.5M", 1_572_864),
            ("2MB", 2_000_000),
            ("1G", 1 << 30),
            ("1t", 1 << 40),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for wrong in ["", "k", "-4k", "0", "4x", "4kk", "1e3", "0.3", "nan", "9999999T", "4 k", "٤k"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert!(block("1G").is_ok() && block("1025M").is_err());
    }
}
