//! Two commands of the user's, each run by the shell in a process of ours that has no other child: its counters are the command's.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kelvin_analysis::InterleavedCase;
use kelvin_core::catalogue::command::ALL;
use kelvin_core::{Case, FactDifference, Metric, MetricReadings, Name, OverheadReading, Readings, Round, RoundOutcome};
use kelvin_probes::causes::EarlyEnd;
use kelvin_sys::child::{ChildEnd, GuardedChild, WaitLimit};
use kelvin_sys::clock::monotonic;
use kelvin_sys::thread_spawn::process_error;
use kelvin_sys::usage::{UsageScope, read_usage};
use serde::{Deserialize, Serialize};

use super::interleave::{Arms, InterleaveLimits};
use crate::cli_error::{CliError, Context};

/// Time limit of a command without a budget: a guard against one that waits for ever.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(24 * 3600);
/// Maximum bytes of the answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// What one run of a command took: a value of each metric of [`ALL`].
type CommandUsage = [u64; 6];

/// How a command ended: what it took, or its exit status if that is not 0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum CommandExit {
    Took(CommandUsage),
    Failed(Option<i32>),
}

/// Two commands.
pub struct ProgramArms {
    commands: [String; 2],
    start: u64,
    /// The time that was asked for and when it is over, if it was.
    budget: Option<(Duration, Instant)>,
    /// Which of them has been run.
    has_run: [bool; 2],
}

impl ProgramArms {
    /// These, within the time that was asked for.
    ///
    /// # Errors
    /// If signals cannot be watched for.
    pub fn new(commands: [&String; 2], limits: &InterleaveLimits) -> Result<Self, CliError> {
        kelvin_sys::stop_signals::install_handlers().context("cannot watch for signals")?;
        let budget = limits.budget.map(|budget| (budget, limits.start + budget));
        Ok(Self { commands: commands.map(Clone::clone), start: monotonic(), budget, has_run: [false; 2] })
    }

    /// Runs one of them.
    fn run(&self, side: usize) -> Result<Result<CommandUsage, EarlyEnd>, String> {
        let program = OsStr::new("/proc/self/exe");
        let mut child = GuardedChild::spawn(program, &["command-process"], std::iter::empty::<(&str, &str)>())
            .map_err(|error| format!("cannot start a process for it: {error}"))?;
        child.write_stdin(self.commands[side].as_bytes());
        let remaining = self.budget.map(|(_, deadline)| deadline.saturating_duration_since(Instant::now()));
        let ending = child
            .wait(WaitLimit::fixed(remaining.unwrap_or(MAX_COMMAND_TIME)), MAX_ANSWER_BYTES)
            .map_err(|error| error.to_string())?;
        // The last line that it complained, as the end of a sentence.
        let complaint = ending.stderr.lines().rfind(|line| !line.trim().is_empty());
        let complaint = complaint.map_or_else(String::new, |line| format!(": {}", line.trim()));
        match ending.end {
            ChildEnd::Interrupted => Ok(Err(EarlyEnd::Interrupted)),
            ChildEnd::Exited(0) => match serde_json::from_slice(&ending.output) {
                Ok(CommandExit::Took(usage)) => Ok(Ok(usage)),
                Ok(CommandExit::Failed(Some(status))) => Err(format!("it exited with status {status}{complaint}")),
                Ok(CommandExit::Failed(None)) => Err(format!("it was ended by a signal{complaint}")),
                Err(error) => Err(format!("what it took cannot be read: {error}")),
            },
            ChildEnd::TimedOut => match self.budget {
                Some(_) if self.has_run[side] => Ok(Err(EarlyEnd::TimedOut)),
                Some((budget, _)) => Err(format!(
                    "one run takes longer than --budget {budget:?} leaves for it: give a longer one, or `minimum`"
                )),
                None => Err(format!("it was still running after {} hours", MAX_COMMAND_TIME.as_secs() / 3600)),
            },
            _ => Err(format!("the process around it failed{complaint}")),
        }
    }
}

impl Arms for ProgramArms {
    fn names(&self) -> [String; 2] {
        [0, 1].map(|side| format!("{}: {}", ["A", "B"][side], self.commands[side]))
    }

    fn differences(&self) -> Vec<FactDifference> {
        let [base, other] = self.commands.clone().map(Some);
        let is_same = base == other;
        let fact = FactDifference { group: "Setting".into(), label: "command".into(), base, other };
        if is_same { Vec::new() } else { vec![fact] }
    }

    fn cases(&self) -> Vec<InterleavedCase> {
        let metrics = ALL.iter().map(|metric| **metric).collect();
        vec![InterleavedCase::new(Name::new("command"), metrics, Case::new())]
    }

    fn measure(&mut self, _: usize, side: usize, index: u32) -> Result<Result<Round, EarlyEnd>, CliError> {
        let flag = ["--a-cmd", "--b-cmd"][side];
        let start = monotonic();
        let usage = match self.run(side).context(format_args!("{flag} '{}'", self.commands[side]))? {
            Ok(usage) => usage,
            Err(end) => return Ok(Err(end)),
        };
        self.has_run[side] = true;
        Ok(Ok(Round {
            index,
            start_seconds: (start - self.start) as f64 / 1e9,
            seconds: (monotonic() - start) as f64 / 1e9,
            timing: None,
            cpu: 0,
            outcome: RoundOutcome::Measured(readings(usage)),
        }))
    }
}

fn readings(usage: CommandUsage) -> Vec<MetricReadings> {
    let reading = |(metric, value): (&&Metric, u64)| MetricReadings {
        metric: metric.id,
        readings: Readings::Scalars(vec![value as f64]),
        overhead: OverheadReading::default(),
        notes: Vec::new(),
        counted: None,
    };
    ALL.iter().zip(usage).map(reading).collect()
}

/// Runs the command on standard input once, and writes its resource usage to standard output.
pub fn command_process() -> Result<(), CliError> {
    let mut command = String::new();
    std::io::stdin().read_to_string(&mut command)?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &command]).stdin(Stdio::null()).stdout(Stdio::null());
    let start = monotonic();
    let status = shell.spawn().map_err(process_error).and_then(|mut child| child.wait()).context("/bin/sh")?;
    let nanoseconds = monotonic() - start;
    let resources = read_usage(UsageScope::Children);
    let switches = resources.voluntary_switches + resources.involuntary_switches;
    let usage =
        [nanoseconds, resources.user, resources.system, resources.peak_resident, resources.minor_faults, switches];
    let exit = if status.success() { CommandExit::Took(usage) } else { CommandExit::Failed(status.code()) };
    Ok(std::io::stdout().write_all(&serde_json::to_vec(&exit)?)?)
}
