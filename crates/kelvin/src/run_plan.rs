//! From what was asked for to what will run: each flag is checked once, before anything is printed or measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kelvin_analysis::Member;
use kelvin_core::catalogue::file::{BYTES, DEVICE_WRITE, EXTENT, REMOTE_BLOCK};
use kelvin_core::{Hazard, Labels, Machine, Name, NetworkPath, RunSettings, SkipReason, units};
use kelvin_file::temporary_files::ScratchDirectory;
use kelvin_harness::{AgentEndpoint, Plan, PlanUnit, ProbeError, Setup, SuperviseOptions, calibrate_clock};
use kelvin_probes::ExtentFile;

use crate::cli::{Budget, Kept, RunOptions, option_or_setting};
use crate::cli_error::{CliError, Context};
use crate::costs::CostConditions;
use crate::peer_agent::requested_agent;
use crate::placement::{LocalMachine, check_realtime};
use crate::redact::Redaction;
use crate::run_directory::RunDirectory;
use crate::run_schedule::RunSchedule;
use crate::run_writer::RunWriter;
use crate::socket_options;

/// What will run, and where.
pub struct RunPlan {
    /// Probes, their cases and the time.
    pub schedule: RunSchedule,
    /// The settings, as they are stored.
    pub settings: RunSettings,
    /// The machine.
    pub machine: Machine,
    /// The setup of every round: clock, CPUs, directories, remote ends, quota of writing.
    pub setup: Setup,
    /// The path to the agent of another host, if one was named.
    pub network_path: Option<NetworkPath>,
    /// What a look at the CPUs showed of those who share their cores.
    pub neighbours: Option<Hazard>,
    /// What makes rounds take longer here at one time than at another.
    pub cost_conditions: CostConditions,
    /// How much of what identifies machine and user is kept.
    pub redaction: Redaction,
    /// Machines of the user's own that the machine is judged by, beside those of the store; `None` where nobody asks how it stands among
    /// machines of its class, and the store need not be read for it.
    pub members: Option<Vec<Member>>,
    /// The store that keeps the run.
    pub writer: Option<RunWriter>,
    /// The directory that gets a file of it.
    pub run_directory: Option<RunDirectory>,
    /// What they keep of it.
    pub kept: Kept,
    /// Its tags and note.
    pub labels: Labels,
    /// When the time of the run began.
    start: Instant,
    round_limit: Duration,
    /// The size of the remote files that an option names, and their directory.
    remote_files: Option<(u64, PathBuf)>,
    /// The file that the study of the device covers, if an option names its size.
    extent: Option<ExtentFile>,
    /// The directories of the setup, removed on drop.
    directories: Vec<ScratchDirectory>,
}

impl RunPlan {
    /// Checks the flags, and makes directories and a calibrated clock.
    ///
    /// # Errors
    /// A CPU, congestion control, agent or directory that is not available.
    pub fn new(local: LocalMachine, schedule: RunSchedule, options: &RunOptions) -> Result<Self, CliError> {
        Self::with_agent(local, schedule, options, requested_agent(options)?)
    }

    /// Like `new`, with the agent that the options name, which has been asked.
    ///
    /// # Errors
    /// A CPU, congestion control or directory that is not available.
    pub fn with_agent(
        local: LocalMachine,
        schedule: RunSchedule,
        options: &RunOptions,
        agent: Option<(AgentEndpoint, NetworkPath)>,
    ) -> Result<Self, CliError> {
        let (placement, neighbours) = match options.cpu {
            // Without canaries it is not wanted to know.
            None if !options.no_canaries => local.quiet_placement(cpu_sampling_time(options.budget))?,
            cpu => (local.placement(cpu)?, None),
        };
        let sockets = socket_options::requested_options(options, &schedule.cases)?;
        let (agent, network_path) = agent.unzip();
        if let Some(agent) = &agent {
            socket_options::check_on_agent(&sockets, &schedule.cases, agent)?;
        }
        if options.realtime {
            check_realtime().context("--realtime")?;
        }
        // From here on a signal ends the run cleanly: what was made is removed.
        kelvin_sys::stop_signals::install_handlers().context("cannot watch for signals")?;
        let scratch = create_scratch_in(&options.dir, &option_or_setting("dir", options.dir.as_os_str()))?;
        let extent = options.extent.map(|bytes| extent_file(bytes, &schedule.cases)).transpose()?;
        if let Some(extent) = extent {
            let room = extent.check_room(&options.dir, options.write_limit);
            room.map_err(|reason| CliError::new("--extent", reason))?;
        }
        let remote = options.remote.as_deref().map(|directory| create_scratch_in(directory, "--remote")).transpose()?;
        let setup = Setup {
            clock: calibrate_clock(placement.cpu)?,
            placement,
            canaries: !options.no_canaries,
            realtime: options.realtime,
            throttle_file: kelvin_machine::throttle_file(Path::new("/")),
            scratch: scratch.path().into(),
            remote_directory: remote.as_ref().map(|remote| remote.path().into()),
            write_limit: options.write_limit,
            agent,
            sockets,
            idle_before_operation: 0,
            cgroups: Vec::new(),
            allow_store_bypass: false,
            environment: Vec::new(),
        };
        let nanoseconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let settings = RunSettings {
            mode: Name::new(schedule.mode),
            budget_seconds: schedule.seconds,
            rounds: schedule.rounds,
            target: options.target,
            seed: options.seed.unwrap_or_else(nanoseconds),
            cpu: setup.placement.cpu,
            partner_cpu: setup.placement.partner,
            canaries: setup.canaries,
            realtime: setup.realtime,
        };
        Ok(Self {
            schedule,
            settings,
            setup,
            network_path,
            neighbours,
            cost_conditions: CostConditions::new(&local.machine, local.allowed.len(), &options.dir),
            redaction: Redaction::HidePrivate,
            members: None,
            writer: None,
            run_directory: None,
            kept: Kept::Samples,
            labels: Labels::default(),
            start: local.start,
            machine: local.machine,
            round_limit: options.round_limit,
            remote_files: options.remote_size.zip(options.remote.clone()),
            extent,
            directories: [scratch].into_iter().chain(remote).collect(),
        })
    }

    /// Where the run will be written, in words.
    pub fn destination_text(&self, reports: &[&Path]) -> String {
        let store_text = self.writer.as_ref().map_or("not stored".into(), |writer| {
            let spool_text = writer.spool_file().map(|file| format!(" by way of {file}")).unwrap_or_default();
            format!("stored in {}{spool_text}", writer.store.name())
        });
        let file_text =
            self.run_directory.as_ref().map(|directory| format!("a file of it in {}", directory.path().display()));
        let report_texts = reports.iter().map(|path| format!("report in {}", path.display()));
        [store_text].into_iter().chain(file_text).chain(report_texts).collect::<Vec<_>>().join("; ")
    }

    /// What is left of this many seconds since the run began.
    pub fn remaining_time(&self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).saturating_sub(self.start.elapsed())
    }

    /// How the rounds are run: in fresh processes of this program.
    pub fn supervise_options(&self) -> SuperviseOptions {
        SuperviseOptions {
            program: ("/proc/self/exe".into(), vec!["probe-process".into()]),
            round_limit: self.round_limit,
            limit: self.schedule.limit,
            start: self.start,
            reserve: self.schedule.reserve(),
            setup: self.setup.clone(),
        }
    }

    /// Writes the files whose sizes options name, which is not part of the time of the run.
    ///
    /// # Errors
    /// Those of writing; a signal.
    pub fn write_files(&mut self) -> Result<(), CliError> {
        let start = Instant::now();
        self.write_remote_files()?;
        if let Some(extent) = self.extent {
            let (bytes, scratch) = (units::bytes(extent.bytes), Path::new(&self.setup.scratch));
            let directory = scratch.parent().unwrap_or(scratch).display();
            notice!("writing {bytes} to {directory} first, which is not part of that time");
            let result = extent.write(&self.setup, &|text| notice!("{text}"));
            result.map_err(|stop| CliError::new("--extent", stop_reason(stop)))?;
        }
        self.start += start.elapsed();
        Ok(())
    }

    fn write_remote_files(&self) -> Result<(), CliError> {
        let Some((bytes, directory)) = &self.remote_files else { return Ok(()) };
        let is_read =
            |unit: &PlanUnit| BYTES.number_in(&unit.case) == Some(*bytes) && unit.probe.id == REMOTE_BLOCK.id.as_str();
        if !self.schedule.cases.units.iter().any(is_read) {
            return Ok(());
        }
        notice!("writing {} to {} first, which is not part of that time", units::bytes(*bytes), directory.display());
        let result = kelvin_probes::write_remote_files(&self.setup, *bytes);
        result.map_err(|stop| CliError::new("--remote-size", stop_reason(stop)))
    }

    /// Removes what was made.
    pub fn clean_up(&mut self) {
        kelvin_probes::remove_leftovers();
        self.directories.clear();
    }
}

/// Why files were not written.
fn stop_reason(stop: ProbeError) -> String {
    let (ProbeError::Skip(SkipReason(reason)) | ProbeError::Fail(reason)) = stop;
    reason
}

/// The file of this many bytes that the cases of a plan need.
///
/// # Errors
/// A plan without such cases.
fn extent_file(bytes: u64, cases: &Plan) -> Result<ExtentFile, CliError> {
    let covering = || cases.units.iter().filter(|unit| EXTENT.number_in(&unit.case) == Some(bytes));
    if covering().next().is_none() {
        bail!(
            "--extent: nothing here covers a file of that size; `kelvin run`, `kelvin study` and `kelvin file sweep` do"
        );
    }
    let is_overwritten = covering().any(|unit| unit.probe.metrics.iter().any(|metric| metric.id == DEVICE_WRITE.id));
    Ok(ExtentFile { bytes, is_overwritten })
}

/// How long the CPUs are looked at before a run, and as a share of a time that was asked for.
const MAX_CPU_SAMPLING_TIME: Duration = Duration::from_secs(1);
const CPU_SAMPLING_BUDGET_SHARE: f64 = 0.02;

/// How long they are looked at at most.
fn cpu_sampling_time(budget: Budget) -> Duration {
    let share = budget.fixed_time().map(|time| time.mul_f64(CPU_SAMPLING_BUDGET_SHARE));
    share.map_or(MAX_CPU_SAMPLING_TIME, |share| share.min(MAX_CPU_SAMPLING_TIME))
}

/// A directory for files in the one that an argument names. Its path is absolute, since processes may change directory.
pub fn create_scratch_in(base: &Path, argument: &str) -> Result<ScratchDirectory, CliError> {
    let base = std::fs::canonicalize(base).context(format_args!("{argument} {}", base.display()))?;
    let path = base.display();
    ScratchDirectory::create(&base)
        .context(format_args!("cannot make a scratch directory in {path} (choose another by {argument})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_budget_keeps_full_cpu_sampling_time() {
        assert_eq!(cpu_sampling_time(Budget::MinimumRounds), cpu_sampling_time(Budget::Default));
        assert_eq!(cpu_sampling_time(Budget::Fixed(Duration::from_secs(10))), Duration::from_millis(200));
        assert_eq!(cpu_sampling_time(Budget::Fixed(Duration::from_secs(3600))), MAX_CPU_SAMPLING_TIME);
        for budget in [Budget::Default, Budget::MinimumRounds, Budget::Fixed(Duration::from_secs(4))] {
            assert!(kelvin_harness::max_sampled_cpus(cpu_sampling_time(budget)) > 1, "{budget:?}");
        }
    }
}
