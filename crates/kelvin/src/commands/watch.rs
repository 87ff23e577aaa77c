//! `kelvin watch`: every so often a short run within a share of one CPU, and what it shows that became worse for good.

mod pace;
mod state;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelvin_analysis::wording::history::change_line;
use kelvin_analysis::{MetricResult, Outcome, alarming_changes};
use kelvin_core::catalogue::file::METADATA;
use kelvin_core::catalogue::mem::{BANDWIDTH_PROBE, FAULT_MINOR, LATENCY};
use kelvin_core::catalogue::net::RTT_TCP;
use kelvin_core::catalogue::{cpu, os};
use kelvin_core::units::{percent, seconds};
use kelvin_core::{History, RunStatus, SeriesHistory};
use kelvin_harness::Effort;
use kelvin_machine::hardware_identity;
use kelvin_store::{StoreLock, labels};
use kelvin_sys::poll::wait_any_readable;
use kelvin_sys::stop_signals;
use kelvin_sys::usage::{UsageScope, read_usage};

use self::pace::WatchPace;
use self::state::{Cycle, WatchState};
use super::history::{read_history, redacted_history};
use super::run::{area_blocks, expected_costs, send_to_server};
use crate::cli::{Budget, HistoryArgs, RunOptions, WatchArgs};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::measure::FinishedRun;
use crate::output;
use crate::placement::LocalMachine;
use crate::redact::Redaction;
use crate::run_plan::RunPlan;
use crate::run_schedule::{RunDefaults, RunSchedule};
use crate::run_writer::RunWriter;
use crate::selection::Selection;
use crate::stores::{open_local_store, open_store};

/// The mode of these runs: shorter than others, they are compared with each other alone.
const WATCH_MODE: &str = "watch";
/// Between two turns, unless asked otherwise.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(3600);
/// A signal that comes between a look at it and the wait is seen so much later.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What is measured unless names are given: what tells most of a machine, takes less than 20 s of CPU time in all, and writes next to
/// nothing.
fn default_names() -> Vec<String> {
    let areas = [&cpu::FREQUENCY, &os::SYSCALL_NULL].map(|metric| metric.area());
    let ids = [LATENCY.id, FAULT_MINOR.id, BANDWIDTH_PROBE, METADATA, RTT_TCP.id];
    areas.into_iter().chain(ids.iter().map(|id| id.as_str())).map(str::to_owned).collect()
}

/// `kelvin watch`.
pub fn watch(args: &WatchArgs) -> CmdResult {
    stop_signals::install_handlers().context("cannot watch for signals")?;
    let mut watch = Watcher::new(args)?;
    // A mistake is told now, and not after a wait.
    watch.plan_cycle()?;
    watch.announce();
    loop {
        let due = watch.time_until_due();
        if args.once && !due.is_zero() {
            notice!("no turn: {} of one CPU pays for the last one in {}", percent(args.cpu_share), text(due));
            return Ok(true);
        }
        if !sleep_unless_stopped(due)? {
            return Ok(true);
        }
        match watch.run_cycle() {
            Ok(ControlFlow::Break(signal)) => {
                notice!("interrupted by {signal}: the run is stored as far as it came");
                return Ok(true);
            }
            Ok(ControlFlow::Continue(has_news)) if args.once => return Ok(!has_news),
            // What is wrong from the beginning is a mistake; what comes later may go again.
            Err(fault) if args.once || watch.cycles == 0 => return Err(fault),
            Err(fault) => notice!("this turn: {fault}"),
            Ok(ControlFlow::Continue(_)) => {}
        }
        watch.cycles += 1;
        let cpu =
            watch.state.last_cycle(jiff::Timestamp::now().as_microsecond()).map_or(Duration::ZERO, |last| last.cpu);
        let [cpu, allowance, next] = [cpu, watch.pace.allowance(), watch.time_until_due()].map(text);
        notice!("that took {cpu} of CPU time, of {allowance}; the next turn is in {next}");
    }
}

/// A time for people.
fn text(time: Duration) -> String {
    seconds(time.as_secs_f64())
}

/// Waits; false where a signal asked to stop.
fn sleep_unless_stopped(time: Duration) -> Result<bool, CliError> {
    let begun = Instant::now();
    while stop_signals::stop_signal().is_none() {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(true);
        }
        wait_any_readable(&[], left.min(SIGNAL_POLL_INTERVAL))?;
    }
    Ok(false)
}

/// A watch.
struct Watcher<'a> {
    args: &'a WatchArgs,
    names: Vec<String>,
    pace: WatchPace,
    /// The flags of each run, whose time is planned unless it is the least.
    options: RunOptions,
    state: WatchState,
    file: PathBuf,
    /// CPU time of this process and its children that was counted.
    counted: Duration,
    cycles: u64,
    _only: StoreLock,
}

impl<'a> Watcher<'a> {
    /// Opens the store, of which no other program may watch this machine.
    fn new(args: &'a WatchArgs) -> Result<Self, CliError> {
        const CANNOT_LOCK: &str = "cannot tell whether another `kelvin watch` is running";
        let store = open_store(&args.store)?;
        // A file is that beside which this one lies, whatever it is called.
        let server = store.key().unwrap_or_default().to_owned();
        let local = if store.key().is_some() { open_local_store()? } else { store };
        let file = PathBuf::from(format!("{}-watch.json", local.name()));
        let state = WatchState::read(&file, [server, hardware_identity(&kelvin_machine::read(Path::new("/")))]);
        let state =
            state.context(format_args!("{}: not what a watch remembers; remove it to begin anew", file.display()))?;
        let Some(lock) = local.try_lock_watch().context(CANNOT_LOCK)? else {
            bail!(
                "another `kelvin watch` is running with {}: two would measure each other; name all in one, or stop that one",
                local.name()
            )
        };
        let mut options = args.options.clone();
        if options.budget.fixed().is_some() {
            options.budget = Budget::Default;
        }
        Ok(Self {
            names: if args.names.is_empty() { default_names() } else { args.names.clone() },
            pace: WatchPace { every: args.every.unwrap_or(DEFAULT_INTERVAL), share: args.cpu_share },
            options,
            state,
            file,
            counted: Duration::ZERO,
            cycles: 0,
            _only: lock,
            args,
        })
    }

    /// The time until the next turn may begin.
    fn time_until_due(&self) -> Duration {
        let Some(last) = self.state.last_cycle(jiff::Timestamp::now().as_microsecond()) else { return Duration::ZERO };
        // Whoever starts a turn, or the watch, sees to the interval of it; the share is kept all the same.
        let starts = self.args.once || self.cycles == 0;
        let after = if starts { self.pace.recovered_after(last.cpu) } else { self.pace.next_after(last.cpu) };
        after.saturating_sub(last.ago)
    }

    /// Says what is watched, and at which price.
    fn announce(&self) {
        let by_default = if self.args.names.is_empty() { " by default" } else { "" };
        let (names, share, due) = (self.names.join(" "), percent(self.pace.share), self.time_until_due());
        let [every, allowance] = [self.pace.every, self.pace.allowance()].map(text);
        let first = if due.is_zero() || self.args.once {
            String::new()
        } else {
            format!("; the first turn is in {}, when the last one is paid for", text(due))
        };
        notice!(
            "watching {names}{by_default}, every {every} within {share} of one CPU: {allowance} of CPU time a turn{first}"
        );
    }

    /// Measures, stores, and tells what became worse: whether anything did, or the signal that interrupted it.
    fn run_cycle(&mut self) -> Result<ControlFlow<&'static str, bool>, CliError> {
        let began_us = jiff::Timestamp::now().as_microsecond();
        let (local, schedule) = self.plan_cycle()?;
        // Whatever kills it: what it may take is charged.
        self.save_cycle(Cycle { began_us, cpu: self.pace.allowance().as_secs_f64() })?;
        let measured = self.measure_cycle(local, schedule);
        let changes = match &measured {
            Ok((_, Some(signal))) => Ok(ControlFlow::Break(*signal)),
            Ok(_) => self.report_changes().map(ControlFlow::Continue),
            Err(_) => Ok(ControlFlow::Continue(false)),
        };
        let total = cpu_time();
        let cpu = total.saturating_sub(std::mem::replace(&mut self.counted, total));
        if let Ok((time, None)) = measured {
            self.state.record_load(&self.names, time, cpu);
        }
        self.save_cycle(Cycle { began_us, cpu: cpu.as_secs_f64() })?;
        measured.and(changes)
    }

    /// The plan of a turn that begins now, which fits into the interval.
    fn plan_cycle(&mut self) -> Result<(LocalMachine, RunSchedule), CliError> {
        let local = LocalMachine::read()?;
        local.placement(self.options.cpu)?;
        let load = self.state.load(&self.names);
        let plan = Selection::parse(&self.names, "kelvin study")?.plan(&self.options, &local, Effort::Quick)?;
        let time = self.cycle_time(area_blocks(&plan), load)?.as_secs_f64();
        let defaults = RunDefaults::new(WATCH_MODE, time, RunDefaults::of_effort(Effort::Quick, 1).rounds);
        let costs = expected_costs(&local, &self.options, Some(&self.args.store))?;
        let schedule = RunSchedule::fit(plan, &self.options, &defaults, &costs)?;
        self.fit_interval(&schedule, load)?;
        Ok((local, schedule))
    }

    /// Measures and stores a run: its seconds, and the signal that ended it early.
    fn measure_cycle(
        &self,
        local: LocalMachine,
        schedule: RunSchedule,
    ) -> Result<(f64, Option<&'static str>), CliError> {
        let mut plan = RunPlan::new(local, schedule, &self.options)?;
        plan.redaction = Redaction::from_flag(self.args.with_private);
        plan.writer = Some(RunWriter::open(&self.args.store, labels(&self.args.tags, None))?);
        plan.schedule.announce(&plan.destination_text(None));
        let FinishedRun { run, analysis, store_error, spool_file } = plan.measure()?;
        if let Some(file) = spool_file {
            send_to_server(&file, &self.args.store);
        }
        if let Some(error) = store_error {
            return Err(error);
        }
        let is_failed = |result: &&MetricResult| matches!(result.outcome, Outcome::Failed(_));
        if let failed @ 1.. = analysis.results.iter().filter(is_failed).count() {
            notice!("{failed} figures failed: `kelvin report {}` says why", run.header.id);
        }
        let is_complete = run.status == RunStatus::Complete;
        let interrupted = (!is_complete).then(|| stop_signals::stop_signal().unwrap_or("a signal"));
        Ok((run.seconds, interrupted))
    }

    /// The time of a turn as far as its share allows it, at most that of a default run: more narrows no figure of it much.
    fn cycle_time(&self, blocks: usize, load: f64) -> Result<Duration, CliError> {
        let room = self.pace.planned_time(load);
        match self.args.options.budget {
            Budget::Default => {
                Ok(room.min(Duration::from_secs_f64(RunDefaults::of_effort(Effort::Default, blocks).seconds)))
            }
            Budget::Fixed(asked) if self.cycles == 0 && !self.pace.fits(asked, load) => bail!(
                "--budget {}: {} of one CPU pays for {} every {}; give --every {} or more of --cpu-share",
                text(asked),
                percent(self.pace.share),
                text(room),
                text(self.pace.every),
                duration_argument(self.pace.min_interval(asked, load))
            ),
            Budget::Fixed(asked) => Ok(room.min(asked)),
            Budget::MinimumRounds => Ok(Duration::ZERO),
        }
    }

    /// Sees to it that the minimum of rounds fits into the interval: one that was asked for is refused at the beginning, any other grows.
    /// What a timer starts began with the first turn: were a later one refused, no run would ever show that the machine is quicker again.
    fn fit_interval(&mut self, schedule: &RunSchedule, load: f64) -> Result<(), CliError> {
        // What the share allows fits, so that what does not is what is needed.
        let needed = Duration::from_secs_f64(schedule.seconds);
        if self.pace.fits(needed, load) {
            return Ok(());
        }
        let min_interval = self.pace.min_interval(needed, load);
        let [time, cpu_time, interval] = [needed, needed.mul_f64(load), min_interval].map(text);
        let reason = format!(
            "the minimum of rounds takes {time}, {cpu_time} of CPU time; {} of one CPU pays for that every {interval}",
            percent(self.pace.share)
        );
        let begins = self.cycles == 0 && !(self.args.once && self.state.has_load(&self.names));
        if let Some(every) = self.args.every.filter(|_| begins) {
            bail!(
                "--every {}: {reason}; give --every {}, more of --cpu-share, or fewer names",
                duration_argument(every),
                duration_argument(min_interval)
            );
        }
        notice!("{reason}: so long is an interval now");
        self.pace.every = min_interval;
        Ok(())
    }

    /// Looks at the course of all figures, and prints what became worse for good and was not told yet.
    fn report_changes(&mut self) -> Result<bool, CliError> {
        let mut args = HistoryArgs::for_watch(self.names.clone(), WATCH_MODE, self.args.store.clone());
        args.with_private = self.args.with_private;
        let (store, records) = read_history(&args)?;
        let now = records.history();
        let before = || records.before_run(records.runs.len() - 1).history();
        let new = self.state.new_changes(&now, before, self.args.alert);
        if new.is_empty() {
            return Ok(false);
        }
        let now: History = redacted_history(&store, now, &args)?;
        let is_new =
            |series: &SeriesHistory| new.iter().any(|(id, case)| *id == series.metric.id && *case == series.case);
        let lines = alarming_changes(&now, self.args.alert).filter(|(series, _)| is_new(series));
        let lines: Vec<String> = lines.filter_map(|(series, _)| change_line(series, &now)).collect();
        output::print(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
        Ok(true)
    }

    fn save_cycle(&mut self, turn: Cycle) -> Result<(), CliError> {
        self.state.record_cycle(turn);
        output::write_file(&self.file, |out| Ok(serde_json::to_writer(out, &self.state)?))
    }
}

/// CPU time of this process and all its children that have ended.
fn cpu_time() -> Duration {
    let usage = [UsageScope::Process, UsageScope::Children].map(read_usage);
    usage.iter().map(|usage| Duration::from_nanos(usage.user + usage.system)).sum()
}

/// A time as `--every` takes it.
fn duration_argument(time: Duration) -> String {
    match time.as_secs() {
        whole if time.subsec_nanos() > 0 => format!("{}s", whole as f64 + time.subsec_millis() as f64 / 1000.0),
        whole if whole > 0 && whole % 3600 == 0 => format!("{}h", whole / 3600),
        whole if whole > 0 && whole % 60 == 0 => format!("{}m", whole / 60),
        whole => format!("{whole}s"),
    }
}
