//! The arguments of `kelvin send` and `kelvin receive`.

use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Args};
use kelvin_core::quantity::{MinProgress, parse_bytes};
use kelvin_sys::mapping::page_bytes;
use kelvin_transfer::compression::{CompressionLevel, LEVELS};
use kelvin_transfer::datapath::{Mode, PathMethod, PathSetup, ReceiveMethod, ReceiveSetup, SendMethod, SendSetup};
use kelvin_transfer::message::ConnectionLifetime;
use kelvin_transfer::offer_policy::SenderLeave;
use kelvin_transfer::session_streams::MAX_STREAMS;

use super::filter::FilterArgs;
use super::receiver_target::ReceiverTarget;
use super::remote_shell::{RemotePath, RemoteShellArgs};
use super::rsync_options::RsyncArgs;
use super::{AnswerArgs, Word, nonempty_value, one_of};
use crate::cli_error::{CliError, Context};

/// How long a connection lasts.
const LIFETIMES: &[Word<ConnectionLifetime>] = &[
    (ConnectionLifetime::Persistent.word(), ConnectionLifetime::Persistent, "For all files"),
    (ConnectionLifetime::PerFile.word(), ConnectionLifetime::PerFile, "For one file"),
];

/// Whether a sender waits after each file.
const ACKNOWLEDGEMENTS: &[Word<bool>] = &[
    ("none", false, "No wait: all results are collected at the end"),
    ("per-file", true, "Until the file is in place"),
];

/// `kelvin send`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("tree").args(["recursive", "archive", "files_from"]).multiple(true))]
#[command(group = ArgGroup::new("directories").args(["recursive", "archive"]).multiple(true))]
pub struct SendArgs {
    /// Regular files, and with -r directories; a symbolic link named here is followed; - is standard input. The last one is the
    /// host that runs `kelvin receive`, with :PORT unless it is 27315, and :DIRECTORY for one below the receiver's; with -e HOST:DIRECTORY
    #[arg(value_name = "FILE> <HOST[:PORT][:DIRECTORY]", required = true, value_parser = nonempty_value())]
    operands: Vec<OsString>,
    #[command(flatten)]
    pub remote_shell: RemoteShellArgs,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub rsync: RsyncArgs,
    /// Do not send files of more bytes, such as 100M
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub max_size: Option<u64>,
    /// Do not send files of fewer bytes
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub min_size: Option<u64>,
    /// Skip what has a name that is there already, whatever it is
    #[arg(long)]
    pub ignore_existing: bool,
    /// Send the files of which this list has paths, one a line; - is standard input. The operand is the directory that they start at,
    /// and they arrive under the same paths
    #[arg(long, value_name = "FILE", conflicts_with_all = ["recursive", "name", "device"])]
    pub files_from: Option<PathBuf>,
    /// The paths of --files-from are separated by NUL bytes, as by find -print0
    #[arg(short = '0', long, requires = "files_from")]
    pub from0: bool,
    /// Delete at the receiver, in the directories that are sent, what is not here; what is excluded stays. The receiver
    /// needs --delete too, unless -e starts it
    #[arg(long, requires = "directories", aliases = ["del", "delete-after", "delete-during", "delete-delay"])]
    pub delete: bool,
    /// Delete nothing if this many files and directories are not enough
    #[arg(long, value_name = "N", requires = "delete")]
    pub max_delete: Option<u64>,
    /// File with the secret of both ends; required unless both are on the same host
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Do not compute and compare digests (BLAKE3) of what was read and what arrived
    #[arg(long)]
    pub no_verify: bool,
    /// Do not encrypt the bytes of files; names and digests still are
    #[arg(long)]
    pub plain: bool,
    /// Method for the bytes of files above 64 KiB: auto (the fastest in a short trial), rw, mmap, sendfile, splice,
    /// zerocopy or uring; with --plain
    #[arg(long, requires = "plain", conflicts_with = "device", default_value = "auto")]
    pub method: AutoOr<SendMethod>,
    #[command(flatten)]
    pub calls: CallArgs,
    /// Send from within the kernel, by /dev/kelvin_sender of kelvin's module; with --plain
    #[arg(long, requires = "plain")]
    pub device: bool,
    /// Send directories and everything below them
    #[arg(short, long)]
    pub recursive: bool,
    /// Send symbolic links below directories, or of a list, as links; without this option they are skipped
    #[arg(short = 'l', long, requires = "tree")]
    pub links: bool,
    /// Send what symbolic links below directories, or of a list, lead to, instead of the links
    #[arg(short = 'L', long, requires = "tree")]
    pub copy_links: bool,
    /// Send a file of several names once, and give it the others as hard links, as far as these are among what is sent
    #[arg(short = 'H', long)]
    pub hard_links: bool,
    /// Keep user and group by number; the receiver needs the right to set them
    #[arg(long)]
    pub owners: bool,
    /// Keep extended attributes of the user's name space
    #[arg(short = 'X', long)]
    pub xattrs: bool,
    /// Keep access control lists, whose users and groups are numbers; the receiver needs --acls too, unless -e starts it
    #[arg(short = 'A', long)]
    pub acls: bool,
    /// Skip files that have the same size and modification time at the receiver; of large files that changed, send the
    /// blocks that differ
    #[arg(long)]
    pub update: bool,
    /// Compress by zstd what gets smaller: at the level, or plain, that is measured to be fastest over this connection, or at
    /// level N, 1 to 22
    #[arg(short = 'z', long, value_name = "zstd[:N]", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "zstd", value_parser = compression_level, conflicts_with_all = ["device", "method"])]
    pub compress: Option<CompressionLevel>,
    /// Flush everything to the receiver's disk before files get their names
    #[arg(long)]
    pub sync: bool,
    /// Send at most this many bytes a second, such as 10MB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub limit: Option<u64>,
    /// Connections for the blocks of large files, 1 to 8; everything else goes over the first one. auto starts with one
    /// and chooses the fastest number in the first seconds
    #[arg(long, value_name = "N", conflicts_with_all = ["device", "method", "wait", "buffer", "window"])]
    #[arg(default_value = "auto", value_parser = stream_count)]
    pub streams: AutoOr<u32>,
    /// One connection for all files, or a connection and handshake for each file, with a first one for everything else
    #[arg(long, value_parser = one_of(LIFETIMES), default_value = "persistent", conflicts_with = "device")]
    pub connection: ConnectionLifetime,
    /// Whether the next file waits until the receiver has this one in place
    #[arg(long, value_parser = one_of(ACKNOWLEDGEMENTS), default_value = "none", action = ArgAction::Set)]
    pub ack: bool,
    /// Name for the data from standard input [default: stdin]
    #[arg(long, value_name = "NAME")]
    pub name: Option<OsString>,
    /// Send nothing; print what would be sent
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Print the path of each file that was moved
    #[arg(short, long, action = ArgAction::Count, short_alias = 'i', alias = "itemize-changes")]
    pub verbose: u8,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with_all = ["verbose", "json"])]
    pub quiet: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

impl SendArgs {
    /// Turns options of rsync into those that mean the same.
    pub fn expand_rsync_options(&mut self) {
        if self.rsync.archive {
            self.recursive = self.files_from.is_none();
            (self.links, self.update) = (true, true);
        }
        self.limit = self.limit.or(self.rsync.bwlimit);
    }

    /// What is to be sent, and where.
    ///
    /// # Errors
    /// Too few operands; a host that is none; with a remote shell no remote end, or two.
    pub fn route(&self) -> Result<SendRoute<'_>, CliError> {
        if self.remote_shell.stdio {
            return Ok(SendRoute::StandardOutput(self.operands.iter().map(PathBuf::from).collect()));
        }
        let has_shell = self.remote_shell.rsh.is_some();
        let usage_error = || match has_shell {
            true => CliError::msg("send -e needs FILE... HOST:DIRECTORY, or HOST:FILE... DIRECTORY"),
            false => {
                CliError::msg("send needs FILE... HOST[:PORT][:DIRECTORY]: at least one file, and the host after it")
            }
        };
        let (last, first) =
            self.operands.split_last().filter(|(_, first)| !first.is_empty()).ok_or_else(usage_error)?;
        let files = || first.iter().map(PathBuf::from).collect();
        if self.remote_shell.overwrite && !has_shell {
            bail!("--overwrite: the receiver decides that, by its own --overwrite, unless -e starts it");
        }
        if !has_shell {
            return Ok(SendRoute::Network(files(), ReceiverTarget::parse(last).context(last.display())?));
        }
        let remote: Vec<RemotePath> = first.iter().filter_map(|operand| RemotePath::parse(operand)).collect();
        match (RemotePath::parse(last), remote.first()) {
            (Some(target), None) => Ok(SendRoute::ToRemote(files(), target)),
            (None, Some(source)) if remote.len() == first.len() => {
                if let Some(other) = remote.iter().find(|other| other.host != source.host) {
                    bail!("{} and {}: fetch from one host at a time", source.host, other.host);
                }
                Ok(SendRoute::FromRemote(remote, Path::new(last)))
            }
            _ => Err(usage_error()),
        }
    }

    /// How the bytes of large files are sent, if a method is requested.
    ///
    /// # Errors
    /// What makes no sense together.
    pub fn setup(&self) -> Result<Option<SendSetup>, CliError> {
        if self.connection == ConnectionLifetime::PerFile && self.streams.announced_streams() > 1 {
            bail!("--connection per-file: a file has one connection then: leave out --streams");
        }
        self.calls.setup(self.method)
    }
}

/// What `kelvin send` moves, and by which way.
#[derive(Debug)]
pub enum SendRoute<'a> {
    /// To a host that runs `kelvin receive`.
    Network(Vec<PathBuf>, ReceiverTarget),
    /// Through a remote shell.
    ToRemote(Vec<PathBuf>, RemotePath),
    /// From there, files of one host, into a directory here.
    FromRemote(Vec<RemotePath>, &'a Path),
    /// Through standard output: the other end has started this one.
    StandardOutput(Vec<PathBuf>),
}

/// How large the calls of a method are, and how they wait.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// How a call waits for the socket: blocking, nonblocking (epoll), signal or uring; with --method
    #[arg(long, requires = "method", value_name = "HOW")]
    wait: Option<Mode>,
    /// Maximum bytes of a call, 512 to 64M; with --method
    #[arg(long, requires = "method", value_name = "BYTES", value_parser = parse_bytes)]
    buffer: Option<u64>,
    /// Pages mapped at a time; with --method mmap
    #[arg(long, requires = "method", value_name = "PAGES")]
    window: Option<usize>,
}

impl CallArgs {
    /// How a method that is asked for moves bytes, if one is.
    fn setup<M: PathMethod + Display>(&self, method: AutoOr<M>) -> Result<Option<PathSetup<M>>, CliError> {
        let options =
            [("--wait", self.wait.is_some()), ("--buffer", self.buffer.is_some()), ("--window", self.window.is_some())];
        let method = match (method, options.into_iter().find(|(_, is_given)| *is_given)) {
            (AutoOr::Fixed(method), _) => method,
            (AutoOr::Auto, Some((option, _))) => bail!("{option}: name a method with it, such as --method rw"),
            (AutoOr::Auto, None) => return Ok(None),
        };
        let is_mapping = method.as_sending() == SendMethod::Mmap;
        if self.window.is_some() && !is_mapping {
            bail!("--window: the method {method} maps nothing: give --buffer");
        }
        let window = self.window.unwrap_or(DEFAULT_WINDOW_PAGES);
        // A whole window by one call.
        let window_bytes = if is_mapping { window.saturating_mul(page_bytes()) } else { 0 };
        let buffer =
            self.buffer.map_or(window_bytes.max(DEFAULT_BUFFER), |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let default_mode = if method.as_sending() == SendMethod::Uring { Mode::Uring } else { Mode::Blocking };
        let mode = self.wait.unwrap_or(default_mode);
        let setup = PathSetup { method, mode, buffer, window, timeout: PEER_TIMEOUT };
        setup.check().context(format_args!("--method {method}"))?;
        Ok(Some(setup))
    }
}

/// Bytes of a call and pages of a window, unless others are asked for; and how long the other end may take or send nothing.
const DEFAULT_BUFFER: usize = 64 << 10;
const DEFAULT_WINDOW_PAGES: usize = 256;
const PEER_TIMEOUT: Duration = Duration::from_secs(120);

/// What an option asks for, or the choice of what is fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoOr<T> {
    /// What is fastest.
    Auto,
    /// This.
    Fixed(T),
}

impl<T: FromStr<Err = String>> FromStr for AutoOr<T> {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            word => word.parse().map(Self::Fixed).map_err(|reason| format!("{reason}, auto")),
        }
    }
}

impl AutoOr<u32> {
    /// Connections that are announced to the receiver before anything is sent.
    pub fn announced_streams(self) -> u32 {
        if let Self::Fixed(streams) = self { streams } else { 1 }
    }
}

/// How the bytes of files are compressed.
fn compression_level(word: &str) -> Result<CompressionLevel, String> {
    let level = match word.split_once(':') {
        None if word == "zstd" => return Ok(CompressionLevel::Auto),
        Some(("zstd", level)) => level.parse().ok().filter(|level| LEVELS.contains(level)),
        _ => None,
    };
    let (lowest, highest) = (LEVELS.start(), LEVELS.end());
    let level = level.ok_or_else(|| format!("give zstd, or zstd:N with a level N from {lowest} to {highest}"))?;
    Ok(CompressionLevel::Fixed(level))
}

/// Over how many connections the blocks of large files go.
fn stream_count(word: &str) -> Result<AutoOr<u32>, String> {
    match (word, word.parse()) {
        ("auto", _) => Ok(AutoOr::Auto),
        (_, Ok(streams @ 1..=MAX_STREAMS)) => Ok(AutoOr::Fixed(streams)),
        _ => Err(format!("give auto, or a number from 1 to {MAX_STREAMS}")),
    }
}

/// `kelvin receive`.
#[derive(Debug, Args)]
pub struct ReceiveArgs {
    /// Directory for received files; - writes one file to standard output
    #[arg(required_unless_present = "discard", conflicts_with = "discard")]
    pub dir: Option<PathBuf>,
    /// Discard what arrives, to measure everything but writing
    #[arg(long)]
    pub discard: bool,
    /// IP address to listen on, with :PORT unless it is 27315; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = kelvin_transfer::wire::address::parse_address)]
    pub listen: SocketAddr,
    /// File with the secret that senders must know; required if other hosts can reach the address
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Method for the bytes of files above 64 KiB from `kelvin send --plain`: auto (the fastest in a short trial), rw,
    /// mmap, splice or uring
    #[arg(long, conflicts_with_all = ["device", "discard"], default_value = "auto")]
    pub method: AutoOr<ReceiveMethod>,
    #[command(flatten)]
    pub calls: CallArgs,
    /// Receive within the kernel, by /dev/kelvin_receiver of kelvin's module
    #[arg(long)]
    pub device: bool,
    /// Receive from one sender through standard input and output, as `kelvin send -e` starts it. DIR is made if its parent is there
    #[arg(long, conflicts_with_all = ["listen", "token_file", "method", "device", "once", "json", "discard"])]
    pub stdio: bool,
    /// Close the connection of a sender that sends fewer bytes in this time of waiting, such as 1B/1h for one that
    /// pauses
    #[arg(long, value_name = "BYTES/TIME", default_value = "4KiB/2min")]
    pub min_progress: MinProgress,
    /// Replace existing files
    #[arg(long)]
    pub overwrite: bool,
    /// Let senders delete, with their --delete, what is in the directories that they send and not at their end
    #[arg(long, conflicts_with = "discard")]
    pub delete: bool,
    /// Let senders keep, with their --acls, access control lists: these may let other users in
    #[arg(long, conflicts_with = "discard")]
    pub acls: bool,
    /// End after one sender
    #[arg(long)]
    pub once: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ReceiveArgs {
    /// What senders may do.
    pub fn leave(&self) -> SenderLeave {
        SenderLeave { overwrite: self.overwrite, delete: self.delete, acls: self.acls }
    }

    /// How the bytes of large files are received, if a method is requested.
    ///
    /// # Errors
    /// What makes no sense together.
    pub fn setup(&self) -> Result<Option<ReceiveSetup>, CliError> {
        if self.method != AutoOr::Auto && self.dir.as_deref() == Some(Path::new("-")) {
            bail!("--method: it is for files in a directory: standard output is written to");
        }
        self.calls.setup(self.method)
    }
}
