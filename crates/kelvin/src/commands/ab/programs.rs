//! Two commands of the user's, each run by the shell.

use std::time::{Duration, Instant};

use kelvin_analysis::InterleavedCase;
use kelvin_core::catalogue::command::ALL;
use kelvin_core::{Case, FactDifference, Metric, MetricReadings, Name, OverheadReading, Readings, Round, RoundOutcome};
use kelvin_harness::EarlyEnd;
use kelvin_sys::clock::monotonic;

use super::interleave::{Arms, InterleaveLimits};
use crate::cli_error::{CliError, Context};
use crate::command_runner::{CommandEnd, CommandRunner, CommandSpec, CommandUsage, DEFAULT_SHELL};

/// Two commands.
pub struct ProgramArms {
    commands: [String; 2],
    start: u64,
    /// The time that was asked for and when it is over, if it was.
    budget: Option<(Duration, Instant)>,
    /// Which of them has been run.
    has_run: [bool; 2],
    runner: CommandRunner,
}

impl ProgramArms {
    /// These, within the time that was asked for.
    ///
    /// # Errors
    /// If signals cannot be watched for.
    pub fn new(commands: [&String; 2], limits: &InterleaveLimits) -> Result<Self, CliError> {
        kelvin_sys::stop_signals::install_handlers().context("cannot watch for signals")?;
        let budget = limits.budget.map(|budget| (budget, limits.start + budget));
        Ok(Self {
            commands: commands.map(Clone::clone),
            start: monotonic(),
            budget,
            has_run: [false; 2],
            runner: CommandRunner::default(),
        })
    }

    /// Runs one of them.
    fn run(&mut self, side: usize) -> Result<Result<CommandUsage, EarlyEnd>, CliError> {
        let spec = CommandSpec::of_shell(&[DEFAULT_SHELL.to_owned()], &self.commands[side]);
        let remaining = self.budget.map(|(_, deadline)| deadline.saturating_duration_since(Instant::now()));
        match self.runner.run(&spec, remaining)? {
            CommandEnd::Interrupted => Ok(Err(EarlyEnd::Interrupted)),
            CommandEnd::Ended { usage, exit_code, complaint } => match CommandEnd::failure(exit_code, &complaint) {
                None => Ok(Ok(usage)),
                Some(failure) => bail!("{failure}"),
            },
            CommandEnd::TimedOut => match self.budget.filter(|_| !self.has_run[side]) {
                Some((budget, _)) => {
                    bail!(
                        "one run takes longer than --budget {budget:?} leaves for it: give a longer one, or `minimum`"
                    )
                }
                None => Ok(Err(EarlyEnd::TimedOut)),
            },
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
    let CommandUsage { time, user, system, peak_memory, minor_faults, context_switches } = usage;
    let values = [time, user, system, peak_memory, minor_faults, context_switches];
    ALL.iter().zip(values).map(reading).collect()
}
