//! The command line as plain data: flags and sub-commands, parsed before anything is read or measured.

/// What stands below the options in the help of a command, from the file of its name.
macro_rules! help {
    ($command:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/help/", $command, ".txt")).trim_end()
    };
}

mod ab;
#[cfg(test)]
mod book;
mod compare;
mod destination;
mod file;
mod file_mix;
mod filter;
mod fleet;
mod foreign_options;
mod help;
mod history;
mod job_options;
mod load;
mod net;
mod one_of;
mod ordered_options;
mod output_args;
#[cfg(test)]
mod pages;
mod receiver_target;
mod remote_shell;
mod report;
mod rsync_options;
mod run_options;
mod runs;
mod serve;
mod settings;
mod spelling;
mod study;
mod study_load;
mod time;
mod transfer;
mod usage_error;
mod watch;
mod why;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgGroup, Args, Command as Flags, CommandFactory, FromArgMatches, Parser, Subcommand};
use kelvin_core::quantity::{parse_bytes, parse_duration_within, parse_percentage};

pub use ab::{AbArgs, Setting, SettingKind};
pub use compare::{CompareArgs, CompareFormat, CompareOutputArgs};
pub use destination::{DestinationArgs, Kept};
pub use file::{
    AccessArgs, AutosizeArgs, CacheArgs, CopyArgs, DigestArgs, FileArgs, FileCommand, JobsArgs, ReadArgs, SweepArgs,
    WriteArgs,
};
pub use file_mix::MixArgs;
pub use filter::{FilterArgs, FilterOption};
pub use fleet::{FleetArgs, FleetCommand, FleetFormat, FleetReportArgs};
pub use help::{HelpArgs, HelpText};
pub use history::{HistoryArgs, HistoryFormat};
pub use job_options::JobOptionArgs;
pub use load::{LoadArgs, LoadCommand, LoadMergeArgs};
pub use net::NetArgs;
use one_of::{Word, one_of};
use output_args::choose_format;
pub use output_args::{AnswerArgs, OutputArgs};
pub use receiver_target::ReceiverTarget;
pub use remote_shell::{RemotePath, RemoteShellArgs, ShellCommand};
pub use report::{ReportArgs, ReportFormat};
pub use run_options::{Budget, RunOptions};
pub use runs::{ImportSource, RunsArgs, RunsCommand};
pub use serve::ServeArgs;
pub use settings::{SETTINGS, SettingSource, Settings, SettingsFile, option_or_setting};
pub use spelling::similar_word;
#[cfg(test)]
pub use study::named_study_help;
use study::with_named_study;
pub use study::{StudyArgs, StudyCommand};
pub use study_load::StudyLoadArgs;
pub use time::{TimeArgs, TimeFormat};
pub use transfer::{AutoOr, ReceiveArgs, SendArgs, SendRoute};
use usage_error::{not_utf8_error, one_line_error};
pub use watch::WatchArgs;
pub use why::{WhyArgs, WhyFormat};

use crate::cli_error::CliError;
use crate::version;

/// Measures a Linux machine end to end and explains every number.
#[derive(Debug, Parser)]
#[command(name = "kelvin", version, long_version = version::long_version(), arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure all, or named areas and probes: one screen, stored run
    #[command(after_help = help!("run"))]
    Run(RunArgs),
    /// Run a long experiment, or one probe at all its points
    #[command(after_help = help!("study"))]
    Study(Box<StudyCommand>),
    /// Read, write or copy a file by any method; measure a disk
    #[command(after_help = help!("file"))]
    File(FileArgs),
    /// Print the XOR of all 32-bit words of files, as fast as possible
    #[command(after_help = help!("digest"))]
    Digest(DigestArgs),
    /// Send files to a `kelvin receive`, encrypted and verified
    #[command(after_help = help!("send"))]
    Send(SendArgs),
    /// Receive files from `kelvin send` into a directory
    #[command(after_help = help!("receive"))]
    Receive(ReceiveArgs),
    /// Send requests to an HTTP server; print response times
    #[command(after_help = help!("load"))]
    Load(Box<LoadArgs>),
    /// Serve the files below a directory over HTTP
    #[command(after_help = help!("serve"))]
    Serve(ServeArgs),
    /// Measure throughput by flags: streams, rate, loss, jitter
    #[command(after_help = help!("net"))]
    Net(Box<NetArgs>),
    /// Run the measurement server for the network to this host
    #[command(after_help = help!("agent"))]
    Agent(AgentArgs),
    /// List, show, tag, delete, copy, export or import stored runs
    #[command(after_help = help!("runs"))]
    Runs(RunsArgs),
    /// Measure what is known by construction; print kelvin's own error
    #[command(mut_arg("budget", |budget| budget.help(help!("selfcheck-budget"))))]
    #[command(mut_arg("rounds", |rounds| rounds.help(help!("selfcheck-rounds"))))]
    #[command(after_help = help!("selfcheck"))]
    Selfcheck(SelfcheckArgs),
    /// List what can be measured
    #[command(after_help = help!("list"))]
    List(ListArgs),
    /// Explain how a figure is measured and predicted; its pitfalls
    #[command(after_help = help!("explain"))]
    Explain(ExplainArgs),
    /// Show what causes one figure, by experiment
    #[command(mut_arg("budget", |budget| budget.help(help!("why-budget"))))]
    #[command(mut_arg("rounds", |rounds| rounds.help(help!("why-rounds"))))]
    #[command(mut_arg("target", |target| target.hide(true)))]
    #[command(mut_arg("json", |json| json.help(help!("why-json"))))]
    #[command(after_help = help!("why"))]
    Why(Box<WhyArgs>),
    /// Show the facts about this machine and its hazards
    #[command(after_help = help!("machine"))]
    Machine(MachineArgs),
    /// Show, measure, apply or restore settings that reduce noise
    #[command(after_help = help!("tune"))]
    Tune(TuneArgs),
    /// Render a stored run in any format
    #[command(after_help = help!("report"))]
    Report(ReportArgs),
    /// Compare two runs: what is better, worse, the same or not known
    #[command(after_help = help!("compare"))]
    Compare(CompareArgs),
    /// Show metrics over all runs of a machine, and lasting changes
    #[command(after_help = help!("history"))]
    History(HistoryArgs),
    /// Compare hosts that should be alike: which is out, and at what
    #[command(after_help = help!("fleet"))]
    Fleet(FleetArgs),
    /// Compare two settings or two commands, interleaved
    #[command(mut_arg("budget", |budget| budget.help(help!("ab-budget"))))]
    #[command(mut_arg("rounds", |rounds| rounds.help(help!("ab-rounds"))))]
    #[command(mut_arg("target", |target| target.hide(true)))]
    #[command(after_help = help!("ab"))]
    Ab(Box<AbArgs>),
    /// Time one command or compare several, interleaved
    #[command(after_help = help!("time"))]
    Time(Box<TimeArgs>),
    /// Measure at an interval; report each lasting regression once
    #[command(mut_arg("budget", |budget| budget.help(help!("watch-budget"))))]
    #[command(mut_arg("rounds", |rounds| rounds.help(help!("watch-rounds"))))]
    #[command(after_help = help!("watch"))]
    Watch(Box<WatchArgs>),
    /// Show the settings in force, and where each comes from
    #[command(after_help = help!("config"))]
    Config(ConfigArgs),
    /// Show the help of a command or a topic
    #[command(after_help = help!("help"))]
    Help(HelpArgs),
    /// Run one probe once, for the supervisor
    #[command(name = "probe-process", hide = true)]
    ProbeProcess,
    /// Run one command once, for `time` and `ab`
    #[command(name = "command-process", hide = true)]
    ProgramProcess,
    /// Read one file under a limit, for `file cache`
    #[command(name = "file-cache-process", hide = true)]
    FileCacheProcess,
    /// Read the files of a directory past the page cache, for `study load`
    #[command(name = "disk-rate", hide = true)]
    DiskRate {
        /// The directory
        directory: PathBuf,
        /// For how many milliseconds
        milliseconds: u64,
    },
    /// Print a machine with its figures, as data that predictions on others rest on
    #[command(name = "other-machine", hide = true)]
    OtherMachine {
        /// What it is, with its article
        name: String,
        /// Runs of it
        #[arg(required = true)]
        runs: Vec<OsString>,
        /// The store
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Print the book's pages, made from the probes' own texts
    #[command(name = "book-page", hide = true)]
    BookPage {
        /// Area: cpu, os
        area: String,
    },
}

impl Command {
    /// Fails where one tag of a run is given two values.
    fn check_unique_tags(&self) -> Result<(), CliError> {
        let tags = match self {
            Self::Run(run) => &run.to.tags,
            Self::Study(study) => &study.0.to.tags,
            Self::File(FileArgs { command: FileCommand::Sweep(sweep) }) => &sweep.to.tags,
            Self::Watch(watch) => &watch.tags,
            Self::Load(load) => &load.tags,
            Self::Runs(RunsArgs { command: RunsCommand::Tag { tags, .. }, .. }) => tags,
            _ => return Ok(()),
        };
        let mut names = BTreeSet::new();
        match tags.iter().find(|tag| !names.insert(tag.name())) {
            Some(tag) => bail!("{tag}: a run has one value of the tag {}: give one", tag.name()),
            None => Ok(()),
        }
    }
}

/// The store.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    /// The store of runs: a file, or a database as postgres://USER@HOST/DATABASE [default: kelvin/runs.sqlite in XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "STORE", global = true, value_parser = nonempty_value())]
    pub store: Option<OsString>,
}

/// Flags as they are where none is given: of a command that has but some of them.
///
/// # Panics
/// Never: flags that are flattened into several commands all have defaults.
pub fn defaults<A: Args + FromArgMatches>() -> A {
    let matches = A::augment_args(Flags::new("kelvin")).get_matches_from(["kelvin"]);
    A::from_arg_matches(&matches).expect("every flag has a default")
}

/// The help text of a command's flag, in one line.
#[cfg(test)]
pub fn flag_help(command: &str, flag: &str) -> String {
    let mut cli = Cli::command();
    cli.build();
    let command = command.split(' ').try_fold(&cli, |parent, word| parent.find_subcommand(word)).expect("a command");
    let flag = command.get_arguments().find(|argument| argument.get_id() == flag).expect("a flag");
    flag.get_help().map(ToString::to_string).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `kelvin run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Areas (cpu, os, mem, file, net), probes, metrics, or any leading part of an id [default: all]
    pub names: Vec<String>,
    /// Fewer points and rounds; the report says so
    #[arg(long, conflicts_with = "thorough")]
    pub quick: bool,
    /// All points, 20 rounds, 5 minutes per area
    #[arg(long)]
    pub thorough: bool,
    /// How to measure
    #[command(flatten)]
    pub options: RunOptions,
    /// Where it goes
    #[command(flatten)]
    pub to: DestinationArgs,
    /// Also do the same work with other programs, where installed, interleaved with kelvin: files with fio, dd, cat and
    /// bw_file_rd, system calls and pipes with perf bench, TCP with iperf3; takes 3 minutes more (1 with --quick, 30
    /// with --thorough), of files alone 2 (40 s, 20 minutes)
    #[arg(long)]
    pub rivals: bool,
    /// Published machine to compare with, by id, or a file of an exported run, whose machine becomes a reference of its
    /// class; repeatable [default in HTML: all published]
    #[arg(long, value_name = "MACHINE")]
    pub compare_with: Vec<String>,
    /// Print all tables and conclusions instead of the first screen
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Wait before the run, up to this time, such as 10m: how long follows from the host, so that many hosts do not begin at once
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub jitter: Option<Duration>,
    /// Measure nothing: print how many cases would be measured, how long that would take, and what would be left out; with --json too
    #[arg(long, conflicts_with = "jitter")]
    pub dry_run: bool,
}

/// `kelvin agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Print the address as one line of JSON
    #[arg(long, short_alias = 'J')]
    pub json: bool,
    /// IP address to listen on, with :PORT unless it is 27315; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = kelvin_transfer::wire::address::parse_address)]
    pub listen: SocketAddr,
    /// File with the secret that clients must know; required if other hosts can reach the address
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Maximum concurrent clients, 1 to 64
    #[arg(long, value_name = "N", default_value = "4", value_parser = number_between(1, 64))]
    pub clients: u32,
    /// Let clients study a server of the files in this directory (`kelvin study load --peer`): meanwhile anyone who can
    /// reach it can read them, by unencrypted HTTP
    #[arg(long, value_name = "DIR")]
    pub serve: Option<PathBuf>,
}

/// `kelvin selfcheck`.
#[derive(Debug, Args)]
pub struct SelfcheckArgs {
    /// How to measure
    #[command(flatten)]
    pub options: RunOptions,
    /// Run the probes that fail on purpose instead: each must be reported and affect no other; exit status 0 if all are
    #[arg(long)]
    pub faults: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only these areas, probes or metrics
    pub names: Vec<String>,
    /// List the studies, which a plain run does not measure
    #[arg(long)]
    pub studies: bool,
    /// List the metrics that no formula predicts here from simpler ones, with their values on other machines
    #[arg(long, conflicts_with = "studies")]
    pub primitives: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A probe, a metric, or an area
    pub name: String,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin machine`.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
    /// Read the facts under this directory instead of / (a recorded machine)
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Include what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
    #[arg(long)]
    pub with_private: bool,
}

/// `kelvin config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `kelvin tune`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("changes").args(["apply", "measure"]).multiple(true))]
pub struct TuneArgs {
    /// With --measure: what to measure under each change instead of what it affects: areas, probes, metrics, or any
    /// leading part of an id
    #[arg(requires = "measure", conflicts_with = "restore")]
    pub names: Vec<String>,
    /// Apply the low-noise settings, after journalling the current ones
    #[arg(long, conflicts_with = "restore")]
    pub apply: bool,
    /// Measure with and without each change, interleaved, and report what becomes better or worse; with --apply, before
    /// it is applied
    #[arg(long, conflicts_with = "restore")]
    pub measure: bool,
    /// With --measure: time for each change, such as 45s or 10m: what does not fit is left out [default: 1m, longer where the minimum of
    /// blocks takes longer]; `minimum`: as long as that takes
    #[arg(long, value_name = "TIME", value_parser = Budget::from_str, requires = "measure", conflicts_with = "restore")]
    #[arg(default_value = "default", hide_default_value = true)]
    pub budget: Budget,
    /// With --measure: minimum of blocks, each of two measurements of either side [default: 8]
    #[arg(long, value_name = "N", value_parser = number_between(2, 1000), requires = "measure", conflicts_with = "restore")]
    pub rounds: Option<u32>,
    /// With --apply or --measure: also the optional changes
    #[arg(long, requires = "changes", conflicts_with = "restore")]
    pub optional: bool,
    /// Restore the journalled settings
    #[arg(long)]
    pub restore: bool,
    /// How and where it is written
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// Parses the command line. Help and version are printed here, and are no command.
///
/// # Errors
/// A usage error, as one line that names the argument and what would be right.
pub fn parse() -> Result<Option<Command>, CliError> {
    let words: Vec<OsString> = std::env::args_os().collect();
    match &words[..] {
        [] | [_] => return crate::output::print(help::write_first_steps).map(|()| None),
        [_, word] if word == "--help" || word == "-h" => {
            return crate::output::print(help::write_overview).map(|()| None);
        }
        _ => {}
    }
    let command = command_line(&words)?;
    let words = join_negative_values(words, &command);
    match command.clone().try_get_matches_from(&words).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli.command.check_unique_tags().map(|()| Some(cli.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                crate::output::print(|out| write!(out, "{}", error.render()))?;
                Ok(None)
            }
            ErrorKind::InvalidUtf8 => Err(not_utf8_error(std::env::args_os())),
            _ => Err(one_line_error(&error, &command)),
        },
    }
}

/// The command line for these words: with the study that they name, and a user's defaults.
fn command_line(words: &[OsString]) -> Result<Flags, CliError> {
    let mut command = Cli::command();
    let name = words.get(1).map(OsString::as_os_str).unwrap_or_default();
    // What the program starts itself has all that it needs from the one who starts it.
    if command.find_subcommand(name).is_some_and(Flags::is_hide_set) {
        return Ok(command);
    }
    if name == "study" {
        command.build();
        command = with_named_study(words, command)?;
    }
    // Wrong settings are not to keep anyone from finding out how to mend them.
    if name == "help" || name == "config" {
        return Ok(command);
    }
    Settings::read(|name| std::env::var_os(name))?.apply(command)
}

/// The words, with a value that begins with a minus and a digit joined to its option: no option is named by a digit, and so the fault
/// is that of the value, which is reported with its option.
fn join_negative_values(words: Vec<OsString>, command: &Flags) -> Vec<OsString> {
    let options = option_names(command, |argument| argument.get_action().takes_values());
    let is_negative = |word: &OsString| matches!(word.as_encoded_bytes(), [b'-', b'0'..=b'9' | b'.', ..]);
    let mut joined: Vec<OsString> = Vec::with_capacity(words.len());
    let mut is_past_options = false;
    for word in words {
        is_past_options |= word == "--";
        let is_option = |word: &str| word.starts_with("--") && options.contains(word);
        match joined.last_mut() {
            Some(last) if !is_past_options && is_negative(&word) && last.to_str().is_some_and(is_option) => {
                last.push("=");
                last.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

/// The options of a command, and of those below it, of this kind, by all their names: `--cpu`, `-o`.
pub fn option_names(command: &Flags, is_of_kind: fn(&Arg) -> bool) -> BTreeSet<String> {
    let options = command.get_arguments().filter(|argument| is_of_kind(argument)).flat_map(|argument| {
        let longs = argument.get_long().into_iter().chain(argument.get_all_aliases().unwrap_or_default());
        let shorts = argument.get_short().into_iter().chain(argument.get_all_short_aliases().unwrap_or_default());
        let longs = longs.map(|name| format!("--{name}"));
        longs.chain(shorts.map(|name| format!("-{name}"))).collect::<Vec<String>>()
    });
    options.chain(command.get_subcommands().flat_map(|command| option_names(command, is_of_kind))).collect()
}

/// A time such as `500ms`, `45s`, `10m`, `1.5h`, from a millisecond to a week; a bare number is in seconds.
fn duration(text: &str) -> Result<Duration, String> {
    parse_duration_within(text, Duration::from_millis(1), Duration::from_secs(7 * 86_400))
}

/// A word that may be a name of a file, and is not empty.
fn nonempty_value() -> impl TypedValueParser<Value = OsString> {
    PathBufValueParser::new().map(PathBuf::into_os_string)
}

/// A whole number from 0.
fn whole_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "it must be a whole number from 0, and not too large".to_owned())
}

/// An axis and its value.
fn axis_value(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(axis, value)| !axis.is_empty() && !value.is_empty());
    let (axis, value) = parts.ok_or("expected AXIS=VALUE, such as files=small")?;
    Ok((axis.to_owned(), value.to_owned()))
}

/// A whole number from 1.
fn positive_number(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| "it must be a whole number from 1, and not too large".to_owned())
}

/// A whole number within bounds.
fn number_between(min: u32, max: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync {
    move |text| match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("it must be a whole number from {min} to {max}")),
    }
}

/// Bytes of a socket buffer, between what a kernel grants at least and what it can count.
fn socket_buffers(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| (4 << 10..=1 << 30).contains(bytes));
    bytes.ok_or_else(|| "it must be between 4k and 1G".into())
}

/// A percentage above 0 and at most 50, as a share.
fn percent_up_to_50(text: &str) -> Result<f64, String> {
    let share = parse_percentage(text)?;
    if share <= 0.5 { Ok(share) } else { Err("it must be above 0 and at most 50".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_valid_and_has_example() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set()) {
            let help = sub.render_long_help().to_string();
            assert!(help.contains("Example"), "{} has no example in its help", sub.get_name());
        }
    }

    /// Lines laid out by hand must fit a terminal of 80 columns, or clap wraps them anywhere.
    #[test]
    fn hand_laid_help_fits_80_columns() {
        fn check(command: &clap::Command) {
            let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let hand_laid_lines = after_help.lines().filter(|line| line.starts_with("  "));
            let wide_lines: Vec<&str> = hand_laid_lines.filter(|line| line.chars().count() > 80).collect();
            assert!(wide_lines.is_empty(), "{}: {wide_lines:?}", command.get_name());
            // A paragraph is one line, which clap breaks to the width that there is.
            let is_paragraph = |line: &&str| !line.starts_with("  ") && !line.is_empty();
            for pair in after_help.lines().collect::<Vec<_>>().windows(2) {
                assert!(!pair.iter().all(is_paragraph), "{}: a paragraph broken by hand: {pair:?}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    /// The flags that a text names: `--quick`.
    fn flags_in(text: &str) -> impl Iterator<Item = &str> {
        let is_separator = |letter: char| !(letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-');
        let words = text.split(is_separator).filter_map(|word| word.strip_prefix("--"));
        words.map(|word| word.trim_end_matches('-')).filter(|word| !word.is_empty())
    }

    /// Every sentence of a command's help.
    fn sentences(command: &Flags) -> Vec<String> {
        let of_flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        let of_flags = of_flags.flat_map(|flag| [flag.get_help(), flag.get_long_help()]);
        let texts = [command.get_about(), command.get_long_about(), command.get_after_help()];
        let texts: Vec<String> = texts.into_iter().chain(of_flags).flatten().map(ToString::to_string).collect();
        // An example may be of another program.
        let is_ours = |line: &&str| !line.starts_with("  ") || line.contains("kelvin ");
        let lines = texts.iter().flat_map(|text| text.lines()).filter(is_ours);
        lines.flat_map(|line| line.split(". ")).flat_map(|part| part.split(';')).map(str::to_owned).collect()
    }

    /// Every command of a command line that is listed, below the words that lead to it.
    fn commands<'a>(words: &str, command: &'a Flags, listed_commands: &mut Vec<(String, &'a Flags)>) {
        listed_commands.push((words.to_owned(), command));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            commands(&format!("{words} {}", sub.get_name()), sub, listed_commands);
        }
    }

    #[test]
    fn help_mentions_only_existing_flags() {
        let mut cli = Cli::command();
        cli.build();
        let mut listed_commands = Vec::new();
        commands("kelvin", &cli, &mut listed_commands);
        let has_flag = |command: &Flags, flag: &str| {
            // Those of jobs are listed by a text of their own.
            let is_listed = |argument: &Arg| !argument.is_hide_set() || job_options::is_job_option(argument);
            command.get_arguments().any(|argument| argument.get_long() == Some(flag) && is_listed(argument))
        };
        let mut faults = Vec::new();
        for (words, command) in &listed_commands {
            for sentence in sentences(command) {
                let is_flag_of_named_command =
                    |(words, owner): &(String, &Flags), flag: &str| sentence.contains(words) && has_flag(owner, flag);
                let is_unknown = |flag: &&str| {
                    !has_flag(command, flag)
                        && !listed_commands.iter().any(|candidate| is_flag_of_named_command(candidate, flag))
                };
                faults.extend(
                    flags_in(&sentence).filter(is_unknown).map(|flag| format!("{words}: --{flag}: {sentence}")),
                );
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn times_and_percentages_are_parsed() {
        assert_eq!(duration("45s"), Ok(Duration::from_secs(45)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!("minimum".parse(), Ok(Budget::MinimumRounds));
        assert_eq!("45s".parse(), Ok(Budget::Fixed(Duration::from_secs(45))));
        assert!("0s".parse::<Budget>().is_err() && duration("minimum").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for text in ["", "m", "-5s", "0s", "0.5ms", "1e99", "nan", "8000h", "5x", "µ"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(percent_up_to_50("2"), Ok(0.02));
        assert!(percent_up_to_50("0").is_err() && percent_up_to_50("51").is_err() && percent_up_to_50("x").is_err());
    }

    #[test]
    fn socket_buffer_sizes_are_limited() {
        assert_eq!(socket_buffers("4k"), Ok(4096));
        assert_eq!(socket_buffers("1G"), Ok(1 << 30));
        for text in ["", "4095", "1025M", "8G", "-1", "much"] {
            assert!(socket_buffers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn usage_error_is_one_line_naming_argument() {
        let assert_error = |arguments: &[&str], expected: &str| {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            let fault = format!("{:?}", one_line_error(&error, &Cli::command()));
            assert!(fault.contains(expected), "{arguments:?}: {fault}");
            assert!(!fault.contains("\\n"), "{fault}");
        };
        assert_error(&["kelvin", "run", "--budget", "soon"], "--budget");
        assert_error(&["kelvin", "run", "--budget", "0.5ms"], "it must be between");
        assert_error(&["kelvin", "run", "--rounds", "1"], "--rounds");
        assert_error(&["kelvin", "run", "--rounds", "many"], "a whole number from 2 to 1000");
        assert_error(&["kelvin", "run", "--cpu", "-1"], "a whole number from 0");
        assert_error(&["kelvin", "run", "--cpu", "first"], "a whole number from 0");
        assert_error(&["kelvin", "run", "--seed", "x"], "a whole number from 0");
        assert_error(&["kelvin", "file", "read", "data", "--depth", "0"], "a whole number from 1 to 4096");
        for count in ["0", "-1", "x", "99999999999999999999"] {
            assert_error(&["kelvin", "file", "read", "data", "--count", count], "--count");
            assert_error(
                &["kelvin", "file", "write", "data", "--count", count],
                "a whole number from 1, and not too large",
            );
        }
        assert_error(&["kelvin"], "`kelvin --help`");
        assert_error(&["kelvin", "file"], "`kelvin file --help`");
        assert_error(&["kelvin", "runs"], "`kelvin runs --help`");
        assert_error(&["kelvin", "run", "--target", "0"], "--target");
        assert_error(&["kelvin", "frobnicate"], "frobnicate");
        assert_error(&["kelvin", "rnu"], "a similar one is 'run'");
        assert_error(&["kelvin", "RUN"], "a similar one is 'run'");
        assert_error(&["kelvin", "runs", "LIST"], "a similar one is 'list'");
        assert_error(&["kelvin", "file", "READ", "data"], "a similar one is 'read'");
        assert_error(&["kelvin", "ab", "--a-cmd", "", "--b-cmd", "true"], "--a-cmd");
        assert_error(&["kelvin", "ab", "--a-cmd", "true", "--b-cmd", " \t"], "expected a command");
        assert_error(&["kelvin", "report", "--format", "pdf"], "--format");
        assert_error(&["kelvin", "run", "--quick", "--thorough"], "--thorough");
        assert_error(&["kelvin", "agent", "--listen", "example.org"], "--listen");
        assert_error(&["kelvin", "agent", "--listen", "127.0.0.1:70000"], "give an IP address");
        assert_error(&["kelvin", "agent", "--clients", "0"], "--clients");
        assert_error(&["kelvin", "run", "net", "--socket-buffers", "1"], "--socket-buffers");
        assert_error(&["kelvin", "run", "--tag", "kernel"], "a tag is NAME=VALUE, such as kernel=6.18");
        assert_error(&["kelvin", "run", "--tag", "a=b", "--no-store"], "--no-store");
        assert_error(&["kelvin", "runs", "tag", "last"], "NAME=VALUE");
        assert_error(&["kelvin", "runs", "tag", "last", "--remove", "A B"], "--remove");
        assert_error(&["kelvin", "runs", "prune"], "--keep");
        assert_error(&["kelvin", "runs", "prune", "--keep", "0"], "a whole number from 1");
        assert_error(&["kelvin", "runs", "push"], "--to");
    }
}
