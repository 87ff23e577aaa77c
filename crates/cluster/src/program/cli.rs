//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kelvin_cluster::file::layout::Layout;
use kelvin_cluster::network::AddressRange;
use kelvin_core::cluster::Transport;
use kelvin_core::quantity::{parse_bytes, parse_duration_within, parse_percentage};

/// The variables in which launchers tell a process its rank: Open MPI, MPICH and other PMI launchers, Slurm.
const RANK_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// Measures many Linux hosts at once, under MPI: mpirun -n N kelvin-cluster net
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the network between all pairs of hosts, one rank on each; find slow links and slow hosts
    Net(NetArgs),
    /// Measure a file system that all ranks see: data in own files and a shared one, making and removing files
    File(FileArgs),
    /// Load a server from all hosts at once, by one schedule: kelvin load on each, merged without loss
    Load(LoadArgs),
    /// Measure all hosts at once, and then each alone: kelvin run on each, and what hosts do to each other
    Run(RunArgs),
    /// Print the results of a file again, also those of a job that ended early; without MPI
    Report(ReportArgs),
}

/// What all sub-commands have in common whose ranks measure together.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// Ranks reach each other by the addresses in this range, such as 10.0.0.0/8 [default: those by which rank 0 is reached]
    #[arg(long, value_name = "RANGE")]
    pub network: Option<AddressRange>,
    /// New file for the results, one JSON object in each line, written as they come [default: kelvin-cluster-COMMAND-TIME.jsonl]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `kelvin-cluster net`.
#[derive(Debug, Args)]
pub struct NetArgs {
    /// What carries the bytes: kelvin's own TCP connections, the site's MPI, or one after the other
    #[arg(long, value_enum, default_value_t = TransportChoice::Both)]
    pub transport: TransportChoice,
    /// Times that all pairs are measured: a link is judged by the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub passes: u32,
    /// Time of one pair, transport and pass, such as 200ms: a fifth for round trips, the rest for both directions
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = measuring_time)]
    pub pair_time: Duration,
    /// Time that all hosts send at once, in each direction, such as 1s; 0s to leave it out
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = together_time)]
    pub together_time: Duration,
    /// Bytes of a large message of MPI, such as 256k, from 4k to 4M
    #[arg(long, value_name = "SIZE", default_value = "256k", value_parser = message_size)]
    pub message_size: usize,
    /// Name links and hosts that are slower than the others predict by more than this, such as 10%
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = tolerance)]
    pub tolerance: f64,
    #[command(flatten)]
    pub job: JobArgs,
}

/// `kelvin-cluster file`.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// Directory on a file system that all ranks see. A directory in it holds all files, and is removed in the end
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Data that each rank writes, and reads from another rank, such as 1G
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = data_size)]
    pub bytes: u64,
    /// Data of each call, such as 1M, from 512 to 1G
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = block_size)]
    pub block: usize,
    /// A file of each rank, or one shared file, of which each rank has a segment or every Nth block
    #[arg(long, value_enum, default_value_t = LayoutChoice::All)]
    pub layout: LayoutChoice,
    /// Write and read past the page cache (O_DIRECT)
    #[arg(long)]
    pub direct: bool,
    /// Files without content that each rank makes, finds and removes, in its own directory and in a shared one; 0 to leave them out
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub files: u64,
    /// Times that all of it is measured: with fewer than 4 there is no interval
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub passes: u32,
    /// Name ranks that are slower than the others by more than this, and rates that are lower than predicted, such as 10%
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = tolerance)]
    pub tolerance: f64,
    #[command(flatten)]
    pub job: JobArgs,
}

/// A choice of layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutChoice {
    /// A file of each rank.
    Own,
    /// One shared file, of which each rank has a segment.
    Segmented,
    /// One shared file, of which each rank has every Nth block.
    Strided,
    /// All three.
    All,
}

impl LayoutChoice {
    /// In the order in which they are measured.
    pub fn layouts(self) -> &'static [Layout] {
        match self {
            Self::Own => &[Layout::Own],
            Self::Segmented => &[Layout::Segmented],
            Self::Strided => &[Layout::Strided],
            Self::All => &Layout::ALL,
        }
    }
}

/// Which `kelvin` ranks start.
#[derive(Debug, Args)]
pub struct KelvinArgs {
    /// The program kelvin, of the same version on all hosts [default: beside kelvin-cluster, else on PATH]
    #[arg(long = "kelvin", value_name = "PATH")]
    pub path: Option<PathBuf>,
}

/// `kelvin-cluster load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// URLs to request; several are given to the ranks in turn
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// Exit with status 1 on a condition of all ranks together, such as 'p99>50ms', 'errors>0' or 'rate<1000'; repeatable
    #[arg(long, value_name = "CONDITION")]
    pub fail_on: Vec<String>,
    /// Draw throughput against response time of all loads, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    #[command(flatten)]
    pub kelvin: KelvinArgs,
    #[command(flatten)]
    pub job: JobArgs,
    /// Options of kelvin load, such as --rate 5000 --duration 30s: --rate, --users and --connections are those of all hosts together
    #[arg(last = true, value_name = "OPTIONS")]
    pub options: Vec<String>,
}

/// `kelvin-cluster run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Existing directory for the files of all runs, which all hosts share
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Measure all hosts at once only, and not each alone after that
    #[arg(long)]
    pub no_alone: bool,
    #[command(flatten)]
    pub kelvin: KelvinArgs,
    #[command(flatten)]
    pub job: JobArgs,
    /// What kelvin run measures and its options, such as mem net --quick --dir /tmp [default: everything]
    #[arg(last = true, value_name = "OPTIONS")]
    pub options: Vec<String>,
}

/// `kelvin-cluster report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// File that --json wrote
    pub file: PathBuf,
    #[command(flatten)]
    pub kelvin: KelvinArgs,
}

/// A choice of transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportChoice {
    /// TCP alone.
    Tcp,
    /// MPI alone.
    Mpi,
    /// TCP, then MPI.
    Both,
}

impl TransportChoice {
    /// In the order in which they are measured.
    pub fn transports(self) -> &'static [Transport] {
        match self {
            Self::Tcp => &[Transport::Tcp],
            Self::Mpi => &[Transport::Mpi],
            Self::Both => &[Transport::Tcp, Transport::Mpi],
        }
    }
}

/// The command, or the exit status after help or a mistake. All ranks have the same command line, and one prints what is wrong with it.
pub fn parse() -> Result<Command, u8> {
    Cli::try_parse().map(|cli| cli.command).map_err(|error| {
        if is_first_rank() {
            // Nothing can be done if the terminal is gone.
            let _ = error.print();
        }
        error.exit_code() as u8
    })
}

/// Whether this is the rank that speaks for all, as far as its launcher says.
pub fn is_first_rank() -> bool {
    RANK_VARIABLES.iter().find_map(std::env::var_os).is_none_or(|rank| rank == "0")
}

fn measuring_time(text: &str) -> Result<Duration, String> {
    parse_duration_within(text, Duration::from_millis(10), Duration::from_secs(60))
}

fn together_time(text: &str) -> Result<Duration, String> {
    parse_duration_within(text, Duration::ZERO, Duration::from_secs(60))
}

fn message_size(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    if (4 << 10..=4 << 20).contains(&bytes) { Ok(bytes as usize) } else { Err("it must be between 4k and 4M".into()) }
}

fn data_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes > 0 { Ok(bytes) } else { Err("it must be more than 0".into()) }
}

fn block_size(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text)?;
    if (512..=1 << 30).contains(&bytes) { Ok(bytes as usize) } else { Err("it must be between 512 and 1G".into()) }
}

fn tolerance(text: &str) -> Result<f64, String> {
    let share = parse_percentage(text)?;
    if (0.01..=0.9).contains(&share) { Ok(share) } else { Err("it must be between 1% and 90%".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn values_have_bounds() {
        assert_eq!(tolerance("10%"), Ok(0.1));
        assert!(["0.5%", "91%", "x%", "nan%"].iter().all(|text| tolerance(text).is_err()));
        assert_eq!(message_size("64k"), Ok(65_536));
        assert!(["1k", "5M", "k"].iter().all(|text| message_size(text).is_err()));
    }
}
