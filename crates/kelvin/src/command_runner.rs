//! Commands of the user's, run one after another by a process of ours that does nothing else: it stays small, so that it forks at once.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use kelvin_sys::child::{
    AnsweringChild, ChildEnd, RequestOutcome, adopt_orphans, reap_children, spawn_timed, wait_with_usage,
};
use kelvin_sys::clock::monotonic;
use kelvin_sys::resident_set;
use serde::{Deserialize, Serialize};

use crate::cli_error::{CliError, Context};

/// The name of the sub-command that is that process.
const SUBCOMMAND: &str = "command-process";
/// The shell, unless another is asked for.
pub const DEFAULT_SHELL: &str = "/bin/sh";
/// Time limit of a command without a budget: a guard against one that waits for ever.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(24 * 3600);
/// Maximum bytes of the answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// How a command is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpec {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// The file on its standard input; none is nothing.
    pub input: Option<PathBuf>,
    /// Where its standard output goes.
    pub output: CommandOutput,
}

impl CommandSpec {
    /// A command that a shell runs, without input or output.
    pub fn of_shell(shell: &[String], command: &str) -> Self {
        let arguments = shell.iter().map(String::as_str).chain(["-c", command]).map(str::to_owned).collect();
        Self { arguments, input: None, output: CommandOutput::Null }
    }
}

/// Where standard output of a command goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandOutput {
    /// Nowhere: /dev/null.
    Null,
    /// Through a pipe, and from there nowhere.
    Pipe,
    /// To the standard output of this process, and standard error to that of this process.
    Inherit,
    /// Into a file, which each run begins anew.
    File(PathBuf),
}

/// What a run of a command took. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandUsage {
    /// From its start to its end.
    pub time: u64,
    /// CPU time in user mode.
    pub user: u64,
    /// CPU time in the kernel.
    pub system: u64,
    /// Largest resident set of any of its processes, in bytes.
    pub peak_memory: u64,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Context switches, voluntary or not.
    pub context_switches: u64,
}

/// The answer of the process that runs commands.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Answer {
    Ended {
        usage: CommandUsage,
        exit_code: Option<i32>,
        /// Whether processes of the command are still running.
        has_left_processes: bool,
    },
    NotStarted(String),
}

/// How a run of a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself.
    Ended {
        /// What it took.
        usage: CommandUsage,
        /// Its exit status; none where a signal ended it.
        exit_code: Option<i32>,
        /// The last line of its standard error; empty without one.
        complaint: String,
    },
    /// This process was asked to stop, and killed it.
    Interrupted,
    /// It took longer than its limit, and was killed.
    TimedOut,
}

impl CommandEnd {
    /// What is wrong with an exit status that is not 0: `it exited with status 3: out of luck`.
    pub fn failure(exit_code: Option<i32>, complaint: &str) -> Option<String> {
        let end = match exit_code {
            Some(0) => return None,
            Some(status) => format!("it exited with status {status}"),
            None => "it was ended by a signal".to_owned(),
        };
        Some(if complaint.is_empty() { end } else { format!("{end}: {complaint}") })
    }
}

/// Runs commands, each when it is asked for.
#[derive(Default)]
pub struct CommandRunner {
    process: Option<AnsweringChild>,
}

impl CommandRunner {
    /// Runs a command once, for at most this time; what it leaves running is killed.
    ///
    /// # Errors
    /// If it cannot be started; without a time, if it seems to wait for ever.
    pub fn run(&mut self, spec: &CommandSpec, limit: Option<Duration>) -> Result<CommandEnd, CliError> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => AnsweringChild::spawn(OsStr::new("/proc/self/exe"), &[SUBCOMMAND])
                .context("cannot start a process for it")?,
        };
        let request = serde_json::to_vec(spec)?;
        let (line, stderr) = match process.request(&request, limit.unwrap_or(MAX_COMMAND_TIME), MAX_ANSWER_BYTES)? {
            RequestOutcome::Answered { line, stderr } => (line, stderr),
            RequestOutcome::Ended { end: ChildEnd::Interrupted, .. } => return Ok(CommandEnd::Interrupted),
            RequestOutcome::Ended { end: ChildEnd::TimedOut, .. } if limit.is_some() => {
                return Ok(CommandEnd::TimedOut);
            }
            RequestOutcome::Ended { end: ChildEnd::TimedOut, .. } => {
                bail!("it was still running after {} hours", MAX_COMMAND_TIME.as_secs() / 3600)
            }
            RequestOutcome::Ended { stderr, .. } => bail!("the process around it failed: {}", last_line(&stderr)),
        };
        match serde_json::from_slice(&line).context("what it took cannot be read")? {
            Answer::Ended { usage, exit_code, has_left_processes } => {
                // They are of the process group that is killed when the process is dropped.
                self.process = Some(process).filter(|_| !has_left_processes);
                Ok(CommandEnd::Ended { usage, exit_code, complaint: last_line(&stderr).to_owned() })
            }
            Answer::NotStarted(reason) => bail!("it cannot be started: {reason}"),
        }
    }
}

fn last_line(stderr: &str) -> &str {
    stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("").trim()
}

/// Runs the commands of the specifications on standard input, a line each, and writes a line on what each took to standard output.
pub fn command_process() -> Result<(), CliError> {
    // What a command leaves running becomes a child of this process.
    adopt_orphans()?;
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let spec: CommandSpec = serde_json::from_str(&line?)?;
        let answer = match run_spec(&spec) {
            Ok((usage, status)) => {
                Answer::Ended { usage, exit_code: status.code(), has_left_processes: reap_children() }
            }
            Err(error) => Answer::NotStarted(error.to_string()),
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        output.write_all(&line)?;
    }
    Ok(())
}

fn run_spec(spec: &CommandSpec) -> Result<(CommandUsage, ExitStatus), CliError> {
    let Some((program, arguments)) = spec.arguments.split_first() else { bail!("it is empty") };
    let mut command = Command::new(program);
    let file = |path: &Path, result: std::io::Result<File>| result.context(path.display()).map(Stdio::from);
    let input = spec.input.as_deref().map(|path| file(path, File::open(path))).transpose()?;
    let output = match &spec.output {
        CommandOutput::Null => Stdio::null(),
        CommandOutput::Pipe => Stdio::piped(),
        CommandOutput::Inherit => {
            command.stderr(parent_stream(2)?);
            parent_stream(1)?
        }
        CommandOutput::File(path) => file(path, File::create(path))?,
    };
    command.args(arguments).stdin(input.unwrap_or_else(Stdio::null)).stdout(output);
    // Where that is forbidden, the peak of a small program is that of this process.
    let _ = resident_set::shrink();
    let (mut child, start) = spawn_timed(&mut command).context(program)?;
    if let Some(mut pipe) = child.stdout.take() {
        std::io::copy(&mut pipe, &mut std::io::sink())?;
    }
    let (status, resources) = wait_with_usage(child)?;
    let time = monotonic() - start;
    let usage = CommandUsage {
        time,
        user: resources.user,
        system: resources.system,
        peak_memory: resources.peak_resident,
        minor_faults: resources.minor_faults,
        context_switches: resources.voluntary_switches + resources.involuntary_switches,
    };
    Ok((usage, status))
}

/// Standard output or standard error of the process that started this one, whose own are pipes.
fn parent_stream(number: u32) -> Result<Stdio, CliError> {
    let path = format!("/proc/{}/fd/{number}", std::os::unix::process::parent_id());
    let file = OpenOptions::new().append(true).open(path);
    let name = if number == 1 { "standard output" } else { "standard error" };
    Ok(file.context(format_args!("it cannot have the {name} of this process: redirect it to a file"))?.into())
}
