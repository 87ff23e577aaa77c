//! How a run is measured, as its user asked for it.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use kelvin_core::quantity::parse_bytes;

use super::{duration, number_between, percent_up_to_50, socket_buffers, whole_number};

/// The time of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// That of the command, which grows until all fits.
    #[default]
    Default,
    /// This one: what does not fit is left out.
    Fixed(Duration),
    /// As long as the minimum of rounds takes.
    MinimumRounds,
}

impl Budget {
    /// The time, if one was stated.
    pub fn fixed_time(self) -> Option<Duration> {
        if let Self::Fixed(time) = self { Some(time) } else { None }
    }

    /// Seconds: those stated, else those of the command; none where the minimum of rounds decides alone.
    pub fn seconds(self, default: f64) -> f64 {
        match self {
            Self::Default => default,
            Self::Fixed(time) => time.as_secs_f64(),
            Self::MinimumRounds => 0.0,
        }
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "default" => Ok(Self::Default),
            "minimum" => Ok(Self::MinimumRounds),
            time => duration(time).map(Self::Fixed),
        }
    }
}

/// What a user asked of a run: how it is measured.
#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// Time of the run, such as 45s or 10m: what does not fit is left out, the least important first [default: 30 s for cpu and os
    /// together and for each of mem, file and net, 150 s for all; 10 s each with --quick, 45 s for all; 5 min each with --thorough;
    /// longer on a slow machine]; `minimum`: as long as the minimum of rounds takes
    #[arg(long, value_name = "TIME", value_parser = Budget::from_str, default_value = "default", hide_default_value = true)]
    pub budget: Budget,
    /// Minimum rounds (fresh processes) per case, 2 to 1000 [default: 8; 5 with --quick, 20 with --thorough]
    #[arg(long, value_name = "N", value_parser = number_between(2, 1000))]
    pub rounds: Option<u32>,
    /// Target half-width of the 95 % interval, in percent of the value
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent_up_to_50)]
    pub target: f64,
    /// Directory for test files, on any file system
    #[arg(long, alias = "directory", value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Directory mounted from another machine, measured in addition to --dir; see `kelvin explain file.remote`
    #[arg(long, value_name = "DIR")]
    pub remote: Option<PathBuf>,
    /// Size of the files of file.remote that are read over the network, such as 128M; they are written before the first
    /// round, outside the budget [default: 1, 8 and 128 MiB, if they can be written in 6 s, or fewer of these]
    #[arg(long, value_name = "BYTES", value_parser = remote_size, requires = "remote")]
    pub remote_size: Option<u64>,
    /// Size of the file that file.device, file.depth and file.jobs cover, such as 100G, to leave the device's own cache: 64M or more.
    /// It is written before the first round, outside the budget, and with file.device.write overwritten until the rate is steady
    /// [default: 64M]
    #[arg(long, value_name = "BYTES", value_parser = extent)]
    pub extent: Option<u64>,
    /// Host running `kelvin agent`, to measure the network to it (see `kelvin explain net.peer`), or, for study load, the file server
    /// that it starts with --serve
    #[arg(long, short_alias = 'c', value_name = "HOST[:PORT]", value_parser = NonEmptyStringValueParser::new())]
    pub peer: Option<String>,
    /// File with that agent's secret
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub token_file: Option<PathBuf>,
    /// Congestion control of the streams of net.bandwidth.tcp and, to another host, of net.peer.bandwidth at both ends
    /// [default: cubic if the kernel allows it, else reno; to another host, each host's default]
    #[arg(long, short_alias = 'C', value_name = "NAME")]
    pub congestion_control: Option<String>,
    /// Size of each socket buffer of these streams and of those of net.bandwidth.unix, 4k to 1G [default: autotuned by the kernel]
    #[arg(long, short_alias = 'w', value_name = "BYTES", value_parser = socket_buffers)]
    pub socket_buffers: Option<u32>,
    /// Limit on what all probes together may write to files
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = parse_bytes)]
    pub write_limit: u64,
    /// CPU for single-CPU probes [default: the last, or one with less interference]
    #[arg(long, value_name = "CPU", value_parser = whole_number::<u32>, allow_negative_numbers = true)]
    pub cpu: Option<u32>,
    /// Random seed [default: from the clock]
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Do not time canaries between batches; disturbance then goes undetected
    #[arg(long)]
    pub no_canaries: bool,
    /// Run probes at real-time priority, bounded so that they cannot lock up the machine; needs CAP_SYS_NICE
    #[arg(long)]
    pub realtime: bool,
    /// Time after which a probe process that shows no sign of life is killed, such as 10s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, hide = true)]
    pub round_limit: Duration,
}

/// Bytes of a file that is read in blocks of 4 KiB: 1 MiB to 1 TiB, of whole blocks.
fn remote_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let is_valid = (1 << 20..=1 << 40).contains(&bytes) && bytes.is_multiple_of(4 << 10);
    if is_valid { Ok(bytes) } else { Err("it must be between 1M and 1T, and a multiple of 4k".into()) }
}

/// Bytes of the file of the study of a device: no fewer than by default, and of whole blocks of a stream.
fn extent(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let is_valid = (64 << 20..=1 << 50).contains(&bytes) && bytes.is_multiple_of(1 << 20);
    if is_valid { Ok(bytes) } else { Err("it must be between 64M and 1024T, and a multiple of 1M".into()) }
}
