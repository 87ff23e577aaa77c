//! `kelvin time`: one command of the user's timed, or several compared, interleaved.

mod schedule;
mod timed_case;

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use kelvin_analysis::{CommandRun, CommandRuns, TimingSettings, time_commands};
use kelvin_core::{CommandTimes, RunOrder, json};
use kelvin_harness::EarlyEnd;
use kelvin_report::command_times::{CommandTimesTerminal, write_csv, write_markdown};
use kelvin_stats::median;

use self::schedule::{TimedCommands, TimingLimits, run_commands};
use self::timed_case::{Step, TimedCase, timed_cases};
use crate::cli::{TimeArgs, TimeFormat};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::command_runner::{CommandEnd, CommandRunner, CommandSpec, CommandUsage};
use crate::output::{self, Outlet};

/// Seconds of each command, unless asked otherwise; and of all where a precision is asked for.
const DEFAULT_SECONDS: f64 = 3.0;
const DEFAULT_PRECISION_SECONDS: f64 = 600.0;
/// Runs of each command at least, unless asked otherwise.
const DEFAULT_MIN_RUNS: u32 = 10;
/// Runs of a shell without a command.
const SHELL_RUNS: usize = 7;
/// Values of hyperfine's --output, which names a file here.
const FOREIGN_OUTPUTS: [&str; 3] = ["null", "pipe", "inherit"];

/// `kelvin time`.
pub fn time(args: &TimeArgs) -> CmdResult {
    let start = Instant::now();
    if let Some(path) = args.output.path().filter(|path| FOREIGN_OUTPUTS.iter().any(|word| *path == Path::new(word))) {
        bail!("--output {}: it names the file of the report: give --command-output", path.display());
    }
    if let Some((min, max)) = args.min_runs.zip(args.max_runs).filter(|(min, max)| min > max) {
        bail!("--min-runs {min}: it is above --max-runs {max}: give a smaller one");
    }
    let cases = timed_cases(args)?;
    let outlets = find_outlets(args)?;
    kelvin_sys::stop_signals::install_handlers().context("cannot watch for signals")?;
    let order = if args.setup.is_some() { RunOrder::Sequential } else { RunOrder::Interleaved };
    let mut commands = Commands {
        cases: &cases,
        runner: CommandRunner::default(),
        start,
        budget: args.budget,
        ignores_failures: args.ignore_failure,
    };
    let limits = limits(args, cases.len());
    let shell_seconds = commands.shell_seconds()?;
    let runs = run_commands(&mut commands, order, &limits)?;
    let settings = TimingSettings {
        reference: args.reference.is_some().then_some(0),
        order,
        threshold: args.threshold,
        shell_seconds,
        seconds: start.elapsed().as_secs_f64(),
        is_partial: runs.is_partial,
    };
    let commands = cases.iter().zip(runs.commands).map(|(case, (warmup, runs))| CommandRuns {
        name: case.name.clone(),
        parameters: case.parameters.clone(),
        warmup,
        runs,
    });
    let times = time_commands(&commands.collect::<Vec<_>>(), &settings);
    for (format, outlet) in outlets {
        outlet.write_output(format == TimeFormat::Terminal, |out: &mut dyn Write| write(&times, format, out))?;
    }
    Ok(!times.is_partial)
}

/// Where the times go, checked before anything is run.
fn find_outlets(args: &TimeArgs) -> Result<Vec<(TimeFormat, Outlet)>, CliError> {
    let exports = &args.exports;
    let exports = [
        (TimeFormat::Json, &exports.export_json),
        (TimeFormat::Csv, &exports.export_csv),
        (TimeFormat::Md, &exports.export_markdown),
    ];
    let exports = exports.into_iter().filter_map(|(format, path)| Some((format, Some(path.as_deref()?))));
    let all = exports.chain([(args.output.format(), args.output.path())]);
    all.map(|(format, path)| Ok((format, Outlet::find(path)?))).collect()
}

fn write(times: &CommandTimes, format: TimeFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        TimeFormat::Terminal => CommandTimesTerminal { width: output::width() }.render(times, out),
        TimeFormat::Md => write_markdown(times, out),
        TimeFormat::Json => writeln!(out, "{}", json::to_string_pretty(times)?),
        TimeFormat::Csv => write_csv(times, out),
    }
}

fn limits(args: &TimeArgs, commands: usize) -> TimingLimits {
    let default_seconds =
        if args.until.is_some() { DEFAULT_PRECISION_SECONDS } else { DEFAULT_SECONDS * commands as f64 };
    TimingLimits {
        warmup: args.warmup,
        min_runs: args.runs.or(args.min_runs).unwrap_or(DEFAULT_MIN_RUNS),
        max_runs: args.runs.or(args.max_runs),
        seconds: args.budget.map_or(default_seconds, |budget| budget.as_secs_f64()),
        has_budget: args.budget.is_some(),
        precision: args.until,
        threshold: args.threshold,
        seed: args.seed.unwrap_or_else(|| u64::from(std::process::id())),
    }
}

/// The commands of the user.
struct Commands<'a> {
    cases: &'a [TimedCase],
    runner: CommandRunner,
    start: Instant,
    budget: Option<Duration>,
    ignores_failures: bool,
}

impl Commands<'_> {
    /// Runs a command; one that fails is an error with this advice, unless there is none.
    fn run(
        &mut self,
        spec: &CommandSpec,
        advice_on_failure: Option<&str>,
    ) -> Result<Result<(CommandUsage, Option<i32>), EarlyEnd>, CliError> {
        let remaining = self.budget.map(|budget| budget.saturating_sub(self.start.elapsed()));
        match self.runner.run(spec, remaining)? {
            CommandEnd::Ended { usage, exit_code, complaint } => {
                match CommandEnd::failure(exit_code, &complaint).zip(advice_on_failure) {
                    Some((failure, advice)) => bail!("{failure}{advice}"),
                    None => Ok(Ok((usage, exit_code))),
                }
            }
            CommandEnd::Interrupted => Ok(Err(EarlyEnd::Interrupted)),
            CommandEnd::TimedOut => Ok(Err(EarlyEnd::TimedOut)),
        }
    }

    /// What to do where a command fails: `kelvin time sleep 1` are two commands.
    fn advice_on_failure(&self) -> &'static str {
        let are_single_words = self.cases.iter().all(|case| !case.command.text.contains(char::is_whitespace));
        match self.cases.len() > 1 && are_single_words {
            true => "; each argument is a command of its own: put one with arguments into quotes",
            false => "; -i goes on where a command fails",
        }
    }

    /// Runs a command besides those that are timed, if there is one.
    fn run_besides(&mut self, option: &str, step: Option<&Step>) -> Result<Option<EarlyEnd>, CliError> {
        let Some(step) = step else { return Ok(None) };
        let result = self.run(&step.spec, Some("")).context(format_args!("{option} '{}'", step.text))?;
        Ok(result.err())
    }

    /// Seconds that a shell takes without a command.
    fn shell_seconds(&mut self) -> Result<Option<f64>, CliError> {
        let cases = self.cases;
        let Some(shell) = &cases[0].shell else { return Ok(None) };
        let spec = CommandSpec::of_shell(shell, "");
        let mut seconds = Vec::new();
        for _ in 0..SHELL_RUNS {
            match self.run(&spec, None).context(format_args!("--shell '{}'", shell.join(" ")))? {
                Ok((usage, _)) => seconds.push(usage.time as f64 / 1e9),
                Err(_) => break,
            }
        }
        Ok((!seconds.is_empty()).then(|| median(&seconds)))
    }
}

impl TimedCommands for Commands<'_> {
    fn count(&self) -> usize {
        self.cases.len()
    }

    fn set_up(&mut self, command: usize) -> Result<Option<EarlyEnd>, CliError> {
        let cases = self.cases;
        self.run_besides("--setup", cases[command].setup.as_ref())
    }

    fn run(&mut self, command: usize) -> Result<Result<CommandRun, EarlyEnd>, CliError> {
        let cases = self.cases;
        let case = &cases[command];
        if let Some(end) = self.run_besides("--prepare", case.prepare.as_ref())? {
            return Ok(Err(end));
        }
        let advice = (!self.ignores_failures).then(|| self.advice_on_failure());
        let result = Commands::run(self, &case.command.spec, advice);
        let result = result.context(format_args!("'{}'", case.command.text))?;
        let (usage, exit_code) = match result {
            Ok(ended) => ended,
            Err(end) => return Ok(Err(end)),
        };
        if let Some(end) = self.run_besides("--conclude", case.conclude.as_ref())? {
            return Ok(Err(end));
        }
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        Ok(Ok(CommandRun {
            seconds: seconds(usage.time),
            user: seconds(usage.user),
            system: seconds(usage.system),
            peak_memory: usage.peak_memory,
            minor_faults: usage.minor_faults,
            context_switches: usage.context_switches,
            exit_code,
        }))
    }

    fn clean_up(&mut self, command: usize) -> Result<Option<EarlyEnd>, CliError> {
        let cases = self.cases;
        self.run_besides("--cleanup", cases[command].cleanup.as_ref())
    }

    fn elapsed(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}
