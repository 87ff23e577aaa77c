//! From flags to a checked setup: each flag is checked once, before anything is printed or measured.

use std::path::Path;
use std::time::{Duration, Instant};

use kelvin_catalogue::file::{BYTES, REMOTE};
use kelvin_file::temporary::Scratch;
use kelvin_harness::{Options, Placement, Plan, Setup, Stop, Unit, calibrate_clock};
use kelvin_model::{Hazard, Machine, PathToAgent, Reason, units};

use crate::budget::{self, Budget};
use crate::cli::{MINIMUM, MeasureArgs};
use crate::fault::Fault;
use crate::other_host::Agent;
use crate::output;
use crate::place::{self, Here};
use crate::sockets;

/// A checked setup.
pub struct Prepared {
    /// The setup of every round.
    pub setup: Setup,
    /// The machine.
    pub machine: Machine,
    /// When the time of the run began.
    began: Instant,
    /// The path to the agent of another host, if one was named.
    pub way: Option<PathToAgent>,
    /// What a look at the CPUs showed of those who share their cores.
    pub neighbours: Option<Hazard>,
    /// The directories of the setup, removed on drop.
    directories: (Scratch, Option<Scratch>),
}

impl Prepared {
    /// Checks the flags, and makes directories and a calibrated clock.
    ///
    /// # Errors
    /// A CPU, congestion control, agent or directory that is not available.
    pub fn new(here: Here, plan: &Plan, args: &MeasureArgs) -> Result<Self, Fault> {
        let (placement, neighbours) = match args.cpu {
            // Without canaries it is not wanted to know.
            None if !args.no_canaries => here.quiet_placement(look(args.budget))?,
            wish => (here.placement(wish)?, None),
        };
        let sockets = sockets::asked(args, plan)?;
        let contact = |peer: &str| Agent::contact(peer, args.token_file.as_deref());
        let (agent, way) = args.peer.as_deref().map(contact).transpose()?.map(|agent| (agent.host, agent.way)).unzip();
        agent.as_ref().map_or(Ok(()), |agent| sockets::grant(&sockets, plan, agent))?;
        // From here on a signal ends the run cleanly: what was made is removed.
        kelvin_sys::interrupt::watch().map_err(|error| Fault::new("cannot watch for signals", error))?;
        let scratch = scratch_in(&args.dir, "--dir")?;
        let remote = args.remote.as_deref().map(|directory| scratch_in(directory, "--remote")).transpose()?;
        let setup = Setup {
            clock: calibrate_clock(placement.cpu).map_err(Fault::because)?,
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
        Ok(Self { setup, machine: here.machine, began, way, neighbours, directories })
    }

    /// What is left of so many seconds since the run began.
    pub fn left_of(&self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).saturating_sub(self.began.elapsed())
    }

    /// The CPUs of a setup on another of the CPUs that this process may use.
    pub fn placement_at(&self, cpu: u32) -> Placement {
        let allowed = &self.setup.placement.allowed;
        place::placement(&self.machine, allowed, cpu)
    }

    /// How the rounds of a plan are run: in fresh processes of this program.
    pub fn options(&self, plan: &Plan, budget: Budget, round_limit: Duration) -> Options {
        let program = ("/proc/self/exe".into(), vec!["probe-process".into()]);
        let (began, reserve) = (self.began, budget::after(plan) + budget.causes);
        Options { program, round_limit, limit: budget.limit, began, reserve, setup: self.setup.clone() }
    }

    /// Writes the remote files whose size an option names, which is not part of the time of the run.
    ///
    /// # Errors
    /// Those of writing; a signal.
    pub fn write_remote_files(&mut self, plan: &Plan, args: &MeasureArgs) -> Result<(), Fault> {
        let is_read = |unit: &Unit| BYTES.of(&unit.case) == args.remote_size && unit.probe.id == REMOTE.id.as_str();
        let Some(bytes) = args.remote_size.filter(|_| plan.units.iter().any(is_read)) else { return Ok(()) };
        let begun = Instant::now();
        let directory = args.remote.as_deref().unwrap_or(Path::new("")).display();
        output::remark(format!(
            "kelvin: writing {} to {directory} first, which is not part of that time",
            units::bytes(bytes)
        ));
        let written = kelvin_probes::write_remote_files(&self.setup, bytes);
        self.began += begun.elapsed();
        written.map_err(|stop| match stop {
            Stop::Skip(Reason(why)) | Stop::Fail(why) => Fault::new("--remote-size", why),
        })
    }

    /// Removes what was made.
    pub fn clear_up(self) {
        kelvin_probes::clear_up();
        drop(self.directories);
    }
}

/// How long the CPUs are looked at before a run, and as a share of a time that was asked for.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
const SHARE_OF_LOOK: f64 = 0.02;

/// How long they are looked at at most.
fn look(budget: Option<Duration>) -> Duration {
    // The minimum of rounds states no time: they are looked at as before a usual run.
    let stated = budget.filter(|&budget| budget != MINIMUM);
    stated.map_or(LONGEST_LOOK, |budget| LONGEST_LOOK.min(budget.mul_f64(SHARE_OF_LOOK)))
}

/// A directory for files in the one that an argument names. Its path is absolute, since processes may change directory.
pub fn scratch_in(base: &Path, argument: &str) -> Result<Scratch, Fault> {
    let base =
        std::fs::canonicalize(base).map_err(|error| Fault::new(format!("{argument} {}", base.display()), error))?;
    Scratch::make(&base).map_err(|error| {
        let place = base.display();
        Fault::new(format!("cannot make a scratch directory in {place} (choose another by {argument})"), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_rounds_leaves_time_to_choose_a_quiet_cpu() {
        assert_eq!(look(Some(MINIMUM)), look(None));
        assert_eq!(look(Some(Duration::from_secs(10))), Duration::from_millis(200));
        assert_eq!(look(Some(Duration::from_secs(3600))), LONGEST_LOOK);
        for budget in [None, Some(MINIMUM), Some(Duration::from_secs(4))] {
            assert!(kelvin_harness::looked_at_within(look(budget)) > 1, "{budget:?}");
        }
    }
}
