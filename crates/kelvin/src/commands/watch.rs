//! `kelvin watch`: every so often a short run within a share of one CPU, and what it shows that became worse for good.

mod pace;
mod state;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_analysis::wording::history::change_line;
use kelvin_analysis::{Analysis, MetricResult, Outcome, alarming_changes};
use kelvin_core::catalogue::file::METADATA;
use kelvin_core::catalogue::mem::{BANDWIDTH_PROBE, FAULT_MINOR, LATENCY};
use kelvin_core::catalogue::net::RTT_TCP;
use kelvin_core::catalogue::{cpu, os};
use kelvin_core::units::{percent, seconds};
use kelvin_core::{Case, FactDifference, History, HistoryChange, Name, Run, RunStatus, SeriesHistory, Unit, json};
use kelvin_harness::Effort;
use kelvin_machine::hardware_identity;
use kelvin_report::Report;
use kelvin_report::exports::{WatchStatus, write_watch_openmetrics};
use kelvin_store::{Store, StoreLock, labels};
use kelvin_sys::stop_signals;
use kelvin_sys::usage::{UsageScope, read_usage};
use serde::Serialize;

use self::pace::WatchPace;
use self::state::{Cycle, WatchState};
use super::history::{read_history, redacted_history};
use super::run::{area_blocks, expected_costs, send_to_server};
use crate::cli::{Budget, HistoryArgs, RunOptions, WatchArgs};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::measure::FinishedRun;
use crate::output::{self, Outlet};
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

/// What is measured unless names are given: the most informative metrics, which take less than 20 s of CPU time in all and write next to
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
    // A mistake is reported now, and not after a wait.
    watch.plan_cycle()?;
    watch.announce();
    loop {
        let wait = watch.time_until_due();
        if args.once && !wait.is_zero() {
            notice!("no run: {} of one CPU covers the last one in {}", percent(args.cpu_share), text(wait));
            return Ok(true);
        }
        if !stop_signals::sleep_unless_stopped(wait)? {
            return Ok(true);
        }
        match watch.run_cycle() {
            Ok(ControlFlow::Break(signal)) => {
                notice!("interrupted by {signal}: the run is stored up to that point");
                return Ok(true);
            }
            Ok(ControlFlow::Continue(has_news)) if args.once => return Ok(!has_news),
            // What is wrong from the beginning is a mistake; what comes later may go again.
            Err(fault) if args.once || watch.cycles == 0 => return Err(fault),
            Err(fault) => notice!("this run: {fault}"),
            Ok(ControlFlow::Continue(_)) => {}
        }
        watch.cycles += 1;
        let cpu =
            watch.state.last_cycle(jiff::Timestamp::now().as_microsecond()).map_or(Duration::ZERO, |last| last.cpu);
        let [cpu, allowance, next] = [cpu, watch.pace.allowance(), watch.time_until_due()].map(text);
        notice!("that took {cpu} of CPU time, of {allowance}; the next run is in {next}");
    }
}

/// A time for people.
fn text(time: Duration) -> String {
    seconds(time.as_secs_f64())
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
    accounted_cpu: Duration,
    cycles: u64,
    _lock: StoreLock,
}

/// A run of the watch.
struct WatchedRun {
    run: Run,
    analysis: Analysis,
    /// What ended it early.
    signal: Option<&'static str>,
}

impl<'a> Watcher<'a> {
    /// Opens the store, of which no other program may watch this machine.
    fn new(args: &'a WatchArgs) -> Result<Self, CliError> {
        const CANNOT_LOCK: &str = "cannot find out whether another `kelvin watch` is running";
        // A file that cannot be written is a mistake, too.
        Outlet::find(args.openmetrics.as_deref())?;
        let store = open_store(&args.store)?;
        // The state lies next to the file of the store.
        let server = store.key().unwrap_or_default().to_owned();
        let local = if store.key().is_some() { open_local_store()? } else { store };
        let file = PathBuf::from(format!("{}-watch.json", local.name()));
        let state = WatchState::read(&file, [server, hardware_identity(&kelvin_machine::read(Path::new("/")))]);
        let state =
            state.context(format_args!("{}: not the state of a watch; remove it to begin anew", file.display()))?;
        let Some(lock) = local.try_lock_watch().context(CANNOT_LOCK)? else {
            bail!(
                "another `kelvin watch` is running with {}: two would measure each other; name all in one, or stop that one",
                local.name()
            )
        };
        let mut options = args.options.clone();
        if options.budget.fixed_time().is_some() {
            options.budget = Budget::Default;
        }
        Ok(Self {
            names: if args.names.is_empty() { default_names() } else { args.names.clone() },
            pace: WatchPace { interval: args.every.unwrap_or(DEFAULT_INTERVAL), share: args.cpu_share },
            options,
            state,
            file,
            accounted_cpu: Duration::ZERO,
            cycles: 0,
            _lock: lock,
            args,
        })
    }

    /// The time until the next turn may begin.
    fn time_until_due(&self) -> Duration {
        let Some(last) = self.state.last_cycle(jiff::Timestamp::now().as_microsecond()) else { return Duration::ZERO };
        // Whoever starts a turn, or the watch, sees to the interval of it; the share is kept all the same.
        let is_start = self.args.once || self.cycles == 0;
        let interval = if is_start { self.pace.recovery_time(last.cpu) } else { self.pace.next_interval(last.cpu) };
        interval.saturating_sub(last.age)
    }

    /// Reports what is watched, and within which share of a CPU.
    fn announce(&self) {
        let by_default = if self.args.names.is_empty() { " by default" } else { "" };
        let (names, share, wait) = (self.names.join(" "), percent(self.pace.share), self.time_until_due());
        let [every, allowance] = [self.pace.interval, self.pace.allowance()].map(text);
        let first = if wait.is_zero() || self.args.once {
            String::new()
        } else {
            format!("; the first run is in {}, when the CPU share covers the last one", text(wait))
        };
        notice!(
            "watching {names}{by_default}, every {every} within {share} of one CPU: {allowance} of CPU time a run{first}"
        );
    }

    /// Measures, stores, and reports what became worse: whether anything did, or the signal that interrupted it.
    fn run_cycle(&mut self) -> Result<ControlFlow<&'static str, bool>, CliError> {
        let began_us = jiff::Timestamp::now().as_microsecond();
        let (local, schedule) = self.plan_cycle()?;
        // Its allowance is charged even if it is killed.
        self.save_cycle(Cycle { began_us, cpu: self.pace.allowance().as_secs_f64() })?;
        let result = self.measure_cycle(local, schedule);
        let changes = match &result {
            Ok(WatchedRun { signal: Some(signal), .. }) => Ok(ControlFlow::Break(*signal)),
            Ok(watched) => self.report_changes(watched).map(ControlFlow::Continue),
            Err(_) => Ok(ControlFlow::Continue(false)),
        };
        let total = cpu_time();
        let cpu = total.saturating_sub(std::mem::replace(&mut self.accounted_cpu, total));
        if let Ok(WatchedRun { run, signal: None, .. }) = &result {
            self.state.record_load(&self.names, run.seconds, cpu);
        }
        self.save_cycle(Cycle { began_us, cpu: cpu.as_secs_f64() })?;
        result.and(changes)
    }

    /// The plan of a turn that begins now, which fits into the interval.
    fn plan_cycle(&mut self) -> Result<(LocalMachine, RunSchedule), CliError> {
        let local = LocalMachine::read(self.options.cpu)?;
        local.placement(self.options.cpu)?;
        let load = self.state.load(&self.names);
        let plan = Selection::parse(&self.names, "kelvin study")?.plan(&self.options, &local, Effort::Quick)?;
        let time = self.cycle_time(area_blocks(&plan), load)?.as_secs_f64();
        let defaults = RunDefaults::new(WATCH_MODE, time, RunDefaults::of_effort(Effort::Quick, 1, 1).rounds);
        let costs = expected_costs(&local, &self.options, Some(&self.args.store))?;
        let schedule = RunSchedule::fit(plan, &self.options, &defaults, &costs)?;
        self.fit_interval(&schedule, load)?;
        Ok((local, schedule))
    }

    /// Measures and stores a run.
    fn measure_cycle(&self, local: LocalMachine, schedule: RunSchedule) -> Result<WatchedRun, CliError> {
        let mut plan = RunPlan::new(local, schedule, &self.options)?;
        plan.redaction = Redaction::from_flag(self.args.with_private);
        plan.labels = labels(&self.args.tags, None);
        plan.writer = Some(RunWriter::open(&self.args.store)?);
        plan.schedule.announce(&plan.destination_text(&[]));
        let FinishedRun { run, analysis, store_error, spool_file, .. } = plan.measure()?;
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
        let signal = (!is_complete).then(|| stop_signals::stop_signal().unwrap_or("a signal"));
        Ok(WatchedRun { run, analysis, signal })
    }

    /// The time of a turn as far as its share allows it, at most that of a default run: more narrows no figure of it much.
    fn cycle_time(&self, blocks: usize, load: f64) -> Result<Duration, CliError> {
        let available = self.pace.planned_time(load);
        match self.args.options.budget {
            Budget::Default => {
                Ok(available.min(Duration::from_secs_f64(RunDefaults::of_effort(Effort::Default, blocks, 1).seconds)))
            }
            Budget::Fixed(requested) if self.cycles == 0 && !self.pace.can_fit(requested, load) => bail!(
                "--budget {}: {} of one CPU covers {} every {}; give --every {} or more of --cpu-share",
                text(requested),
                percent(self.pace.share),
                text(available),
                text(self.pace.interval),
                duration_argument(self.pace.min_interval(requested, load))
            ),
            Budget::Fixed(requested) => Ok(available.min(requested)),
            Budget::MinimumRounds => Ok(Duration::ZERO),
        }
    }

    /// Sees to it that the minimum of rounds fits into the interval: one that was asked for is refused at the beginning, any other grows.
    /// What a timer starts began with the first turn: were a later one refused, no run would ever show that the machine is quicker again.
    fn fit_interval(&mut self, schedule: &RunSchedule, load: f64) -> Result<(), CliError> {
        // What the share allows fits, so that what does not is what is needed.
        let needed = Duration::from_secs_f64(schedule.seconds);
        if self.pace.can_fit(needed, load) {
            return Ok(());
        }
        let min_interval = self.pace.min_interval(needed, load);
        let [time, cpu_time, interval] = [needed, needed.mul_f64(load), min_interval].map(text);
        let reason = format!(
            "the minimum of rounds takes {time}, {cpu_time} of CPU time; {} of one CPU covers that every {interval}",
            percent(self.pace.share)
        );
        let is_start = self.cycles == 0 && !(self.args.once && self.state.has_load(&self.names));
        if let Some(every) = self.args.every.filter(|_| is_start) {
            bail!(
                "--every {}: {reason}; give --every {}, more of --cpu-share, or fewer names",
                duration_argument(every),
                duration_argument(min_interval)
            );
        }
        notice!("{reason}: this is the interval now");
        self.pace.interval = min_interval;
        Ok(())
    }

    /// Looks at the course of all figures, and prints what became worse for good and was not reported yet.
    fn report_changes(&mut self, watched: &WatchedRun) -> Result<bool, CliError> {
        let mut args = HistoryArgs::for_watch(self.names.clone(), WATCH_MODE, self.args.store.clone());
        args.with_private = self.args.with_private;
        let (store, records) = read_history(&args)?;
        let history = records.history();
        let previous = || records.before_run(records.runs.len() - 1).history();
        let changes = self.state.new_changes(&history, previous, self.args.alert);
        let written = self.write_openmetrics(watched, &history);
        if !changes.is_empty() {
            self.print_changes(&store, history, &args, &changes)?;
        }
        written.map(|()| !changes.is_empty())
    }

    /// Prints a line for each of these changes.
    fn print_changes(
        &self,
        store: &Store,
        history: History,
        args: &HistoryArgs,
        changes: &[(Name, Case)],
    ) -> Result<(), CliError> {
        let redacted: History = redacted_history(store, history, args)?;
        let is_new =
            |series: &SeriesHistory| changes.iter().any(|(id, case)| *id == series.metric.id && *case == series.case);
        let mut changes = alarming_changes(&redacted, self.args.alert).filter(|(series, _)| is_new(series));
        if self.args.json {
            return output::print_raw(|out| {
                changes.try_for_each(|(series, change)| {
                    writeln!(out, "{}", json::to_string(&RegressionLine::new(series, change, &redacted))?)
                })
            });
        }
        let lines: Vec<String> = changes.filter_map(|(series, _)| change_line(series, &redacted)).collect();
        output::print(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))
    }

    /// Writes the run and the regressions that last, where a file was named for them.
    fn write_openmetrics(&self, watched: &WatchedRun, history: &History) -> Result<(), CliError> {
        let Some(path) = &self.args.openmetrics else { return Ok(()) };
        let WatchedRun { run, analysis, .. } = watched;
        let report = Report { run, analysis, references: &[], probes: &[] };
        let status = WatchStatus { interval: self.pace.interval, history, threshold: self.args.alert };
        Outlet::find(Some(path))?.write_output(false, |out| write_watch_openmetrics(&report, &status, out))
    }

    fn save_cycle(&mut self, turn: Cycle) -> Result<(), CliError> {
        self.state.record_cycle(turn);
        output::write_file(&self.file, |out| Ok(serde_json::to_writer(out, &self.state)?))
    }
}

/// A regression, as JSON.
#[derive(Serialize)]
struct RegressionLine<'a> {
    metric: Name,
    case: &'a Case,
    unit: Unit,
    before: f64,
    after: f64,
    worse_by: Option<f64>,
    /// The first run of the new level, and when it began.
    run: &'a str,
    since: &'a str,
    p_value: f64,
    differences: &'a [FactDifference],
}

impl<'a> RegressionLine<'a> {
    fn new(series: &'a SeriesHistory, change: &'a HistoryChange, history: &'a History) -> Self {
        let (metric, run) = (&series.metric, &history.runs[change.run]);
        Self {
            metric: metric.id,
            case: &series.case,
            unit: metric.unit,
            before: change.before,
            after: change.after,
            worse_by: change.worse_by(metric.better),
            run: &run.id,
            since: &run.started,
            p_value: change.p_value.adjusted,
            differences: &change.differences,
        }
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
        seconds if time.subsec_nanos() > 0 => format!("{}s", seconds as f64 + time.subsec_millis() as f64 / 1000.0),
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}
