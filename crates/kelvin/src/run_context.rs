//! From flags to a checked setup: each flag is checked once, before anything is printed or measured.

use std::path::Path;
use std::time::{Duration, Instant};

use kelvin_core::catalogue::file::{BYTES, REMOTE_BLOCK};
use kelvin_core::{Hazard, Machine, NetworkPath, SkipReason, units};
use kelvin_file::temporary_files::ScratchDirectory;
use kelvin_harness::{Placement, Plan, PlanUnit, ProbeError, Setup, SuperviseOptions, calibrate_clock};

use crate::budget::{self, Budget};
use crate::cli::{MINIMUM_ROUNDS_BUDGET, MeasureArgs};
use crate::cli_error::CliError;
use crate::output;
use crate::peer_agent::PeerAgent;
use crate::placement::{self, LocalMachine};
use crate::socket_options;

/// A checked setup.
pub struct RunContext {
    /// The setup of every round.
    pub setup: Setup,
    /// The machine.
    pub machine: Machine,
    /// When the time of the run began.
    began: Instant,
    /// The path to the agent of another host, if one was named.
    pub network_path: Option<NetworkPath>,
    /// What a look at the CPUs showed of those who share their cores.
    pub neighbours: Option<Hazard>,
    /// The directories of the setup, removed on drop.
    directories: (ScratchDirectory, Option<ScratchDirectory>),
}

impl RunContext {
    /// Checks the flags, and makes directories and a calibrated clock.
    ///
    /// # Errors
    /// A CPU, congestion control, agent or directory that is not available.
    pub fn new(here: LocalMachine, plan: &Plan, args: &MeasureArgs) -> Result<Self, CliError> {
        let (placement, neighbours) = match args.cpu {
            // Without canaries it is not wanted to know.
            None if !args.no_canaries => here.quiet_placement(cpu_sampling_time(args.budget))?,
            wish => (here.placement(wish)?, None),
        };
        let sockets = socket_options::requested_options(args, plan)?;
        let contact = |peer: &str| PeerAgent::connect(peer, args.token_file.as_deref());
        let (agent, way) =
            args.peer.as_deref().map(contact).transpose()?.map(|agent| (agent.host, agent.network_path)).unzip();
        agent.as_ref().map_or(Ok(()), |agent| socket_options::check_on_agent(&sockets, plan, agent))?;
        // From here on a signal ends the run cleanly: what was made is removed.
        kelvin_sys::stop_signals::install_handlers()
            .map_err(|error| CliError::new("cannot watch for signals", error))?;
        let scratch = create_scratch_in(&args.dir, "--dir")?;
        let remote = args.remote.as_deref().map(|directory| create_scratch_in(directory, "--remote")).transpose()?;
        let setup = Setup {
            clock: calibrate_clock(placement.cpu).map_err(CliError::msg)?,
            placement,
            canaries: !args.no_canaries,
            realtime: args.realtime,
            throttle_file: kelvin_machine::throttle_file(Path::new("/")),
            scratch: scratch.path().into(),
            remote: remote.as_ref().map(|remote| remote.path().into()),
            write_limit: args.write_limit,
            agent,
            sockets,
            gap: 0,
            groups: Vec::new(),
            environment: Vec::new(),
        };
        let (began, directories) = (here.began, (scratch, remote));
        Ok(Self { setup, machine: here.machine, began, network_path: way, neighbours, directories })
    }

    /// What is left of so many seconds since the run began.
    pub fn remaining_time(&self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).saturating_sub(self.began.elapsed())
    }

    /// The CPUs of a setup on another of the CPUs that this process may use.
    pub fn placement_on(&self, cpu: u32) -> Placement {
        let allowed = &self.setup.placement.allowed;
        placement::placement_on(&self.machine, allowed, cpu)
    }

    /// How the rounds of a plan are run: in fresh processes of this program.
    pub fn options(&self, plan: &Plan, budget: Budget, round_limit: Duration) -> SuperviseOptions {
        let program = ("/proc/self/exe".into(), vec!["probe-process".into()]);
        let (began, reserve) = (self.began, budget::report_time(plan) + budget.causes);
        SuperviseOptions { program, round_limit, limit: budget.limit, began, reserve, setup: self.setup.clone() }
    }

    /// Writes the remote files whose size an option names, which is not part of the time of the run.
    ///
    /// # Errors
    /// Those of writing; a signal.
    pub fn write_remote_files(&mut self, plan: &Plan, args: &MeasureArgs) -> Result<(), CliError> {
        let is_read = |unit: &PlanUnit| {
            BYTES.number_in(&unit.case) == args.remote_size && unit.probe.id == REMOTE_BLOCK.id.as_str()
        };
        let Some(bytes) = args.remote_size.filter(|_| plan.units.iter().any(is_read)) else { return Ok(()) };
        let begun = Instant::now();
        let directory = args.remote.as_deref().unwrap_or(Path::new("")).display();
        output::eprint_line(format!(
            "kelvin: writing {} to {directory} first, which is not part of that time",
            units::bytes(bytes)
        ));
        let written = kelvin_probes::write_remote_files(&self.setup, bytes);
        self.began += begun.elapsed();
        written.map_err(|stop| match stop {
            ProbeError::Skip(SkipReason(why)) | ProbeError::Fail(why) => CliError::new("--remote-size", why),
        })
    }

    /// Removes what was made.
    pub fn clean_up(self) {
        kelvin_probes::remove_leftovers();
        drop(self.directories);
    }
}

/// How long the CPUs are looked at before a run, and as a share of a time that was asked for.
const MAX_CPU_SAMPLING_TIME: Duration = Duration::from_secs(1);
const CPU_SAMPLING_BUDGET_SHARE: f64 = 0.02;

/// How long they are looked at at most.
fn cpu_sampling_time(budget: Option<Duration>) -> Duration {
    // The minimum of rounds states no time: they are looked at as before a usual run.
    let stated = budget.filter(|&budget| budget != MINIMUM_ROUNDS_BUDGET);
    stated.map_or(MAX_CPU_SAMPLING_TIME, |budget| MAX_CPU_SAMPLING_TIME.min(budget.mul_f64(CPU_SAMPLING_BUDGET_SHARE)))
}

/// A directory for files in the one that an argument names. Its path is absolute, since processes may change directory.
pub fn create_scratch_in(base: &Path, argument: &str) -> Result<ScratchDirectory, CliError> {
    let base =
        std::fs::canonicalize(base).map_err(|error| CliError::new(format!("{argument} {}", base.display()), error))?;
    ScratchDirectory::create(&base).map_err(|error| {
        let place = base.display();
        CliError::new(format!("cannot make a scratch directory in {place} (choose another by {argument})"), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_budget_keeps_full_cpu_sampling_time() {
        assert_eq!(cpu_sampling_time(Some(MINIMUM_ROUNDS_BUDGET)), cpu_sampling_time(None));
        assert_eq!(cpu_sampling_time(Some(Duration::from_secs(10))), Duration::from_millis(200));
        assert_eq!(cpu_sampling_time(Some(Duration::from_secs(3600))), MAX_CPU_SAMPLING_TIME);
        for budget in [None, Some(MINIMUM_ROUNDS_BUDGET), Some(Duration::from_secs(4))] {
            assert!(kelvin_harness::max_sampled_cpus(cpu_sampling_time(budget)) > 1, "{budget:?}");
        }
    }
}
