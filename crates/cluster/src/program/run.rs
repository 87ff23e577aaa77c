//! `kelvin-cluster run`: `kelvin run` on all hosts at once, then on each alone.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kelvin_cluster::clock::seconds_since_1970;
use kelvin_cluster::kelvin_program::KelvinProgram;
use kelvin_cluster::placement::PlacementError;
use kelvin_cluster::protocol::Greeting;
use kelvin_cluster::report::binding_text;
use kelvin_cluster::results::Results;
use kelvin_cluster::run::arguments::{check_options, fleet_arguments};
use kelvin_cluster::run::event::{RunEvent, RunPlan};
use kelvin_cluster::run::hosts::measuring_ranks;
use kelvin_cluster::run::ratios::common_ratios;
use kelvin_cluster::run::report::write_text;
use kelvin_cluster::run::results::RunResults;
use kelvin_cluster::run::task::{Phase, RunOutcome, RunTask};
use kelvin_cluster::run::worker::RunWorker;
use kelvin_core::units;

use crate::cli::{JobArgs, RunArgs};
use crate::coordinator::{Coordinator, Report, STEP_TIMEOUT, Subcommand};
use crate::kelvin_versions::check_kelvin_versions;
use crate::monitor::StepLimit;
use crate::notice;
use crate::rank::{RankPlace, Worker};

/// Until then each rank has got its task and waits for the common start.
const START_LEAD_SECONDS: f64 = 2.0;
/// A run under other load takes up to so many times as long as was expected.
const MAX_SLOWDOWN: f64 = 4.0;
/// Beyond that, for what does not depend on the time of a run.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);
/// Reading two runs and comparing all figures takes a second where nothing else runs.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(120);

impl Subcommand for RunArgs {
    type Measured = RunResults;
    type Worker<'w> = RunWorker;
    const MIN_RANKS: usize = 1;

    fn job(&self) -> &JobArgs {
        &self.job
    }

    fn plan(&self, _: usize) -> Result<RunPlan, String> {
        let out = std::path::absolute(&self.out).map_err(|error| format!("--out {}: {error}", self.out.display()))?;
        Ok(RunPlan { out, options: self.options.clone(), has_alone: !self.no_alone })
    }

    fn kelvin(&self) -> KelvinProgram {
        KelvinProgram::find(self.kelvin.path.as_deref())
    }

    fn check_placement(_: &[Greeting]) -> Result<(), PlacementError> {
        Ok(())
    }

    fn measure(&self, coordinator: &mut Coordinator<'_, Self>) {
        if let Err(reason) = self.check() {
            coordinator.job().refuse(None, &reason);
        }
        let hosts = self.forecast(coordinator);
        let run_seconds = hosts.run_seconds;
        let start_s = seconds_since_1970() + START_LEAD_SECONDS;
        self.measure_phase(coordinator, Phase::Together, &hosts.ranks, run_seconds, Some(start_s));
        if !self.no_alone {
            for rank in &hosts.ranks {
                self.measure_phase(coordinator, Phase::Alone, std::slice::from_ref(rank), run_seconds, None);
            }
            self.compare(coordinator, &hosts.ranks);
        }
        let runs = &coordinator.results().measured;
        if runs.runs.is_empty() {
            let reason = runs.failures.values().next().cloned().unwrap_or_default();
            coordinator.job().refuse(None, &reason);
        }
    }

    fn report(results: &Results<RunResults>, kelvin: &KelvinProgram) -> Result<Report, String> {
        let measured = &results.measured;
        let fleet = (!measured.runs.is_empty()).then(|| fleet_text(kelvin, measured));
        let mut text = String::new();
        write_text(&mut text, results, fleet.as_deref()).expect("a string takes all that is written");
        let is_whole = measured.failures.is_empty() && measured.compare_failures.is_empty();
        let is_success = is_whole && measured.runs.values().all(|run| run.is_complete);
        Ok(Report { text, is_success })
    }
}

/// What `kelvin fleet report` says of the runs, or why it says nothing: the file of results may be read where the directory is not.
fn fleet_text(kelvin: &KelvinProgram, measured: &RunResults) -> String {
    let directory = measured.plan.out.join(measured.best_phase().name());
    match kelvin.run(&fleet_arguments(&directory)) {
        Ok(printed) => String::from_utf8_lossy(&printed.output).into_owned(),
        Err(error) => format!("kelvin fleet report: {error}\n"),
    }
}

/// What is going to be measured.
struct Forecast {
    /// One rank of each host.
    ranks: Vec<usize>,
    /// Seconds of the run of a host that takes longest.
    run_seconds: f64,
}

impl RunArgs {
    /// Whether it can be done as asked for.
    fn check(&self) -> Result<(), String> {
        check_options(&self.options, !self.no_alone)?;
        match self.out.is_dir() {
            true => Ok(()),
            false => Err(format!("--out {}: it must be a directory, which all hosts share", self.out.display())),
        }
    }

    /// Has all ranks find their program, and those that measure plan their runs. Says how long all takes.
    fn forecast(&self, coordinator: &mut Coordinator<'_, Self>) -> Forecast {
        check_kelvin_versions(coordinator, &RunTask::FindKelvin(self.kelvin.path.clone()), |outcome| match outcome {
            RunOutcome::Kelvin(version) => Some(version),
            _ => None,
        });
        let measuring = measuring_ranks(coordinator.greetings());
        let is_measuring = |rank: usize| measuring[rank] == rank;
        let ranks: Vec<usize> = (0..measuring.len()).filter(|&rank| is_measuring(rank)).collect();
        let tasks = ranks.iter().map(|&rank| (rank, RunTask::Forecast(self.options.clone()))).collect();
        let mut run_seconds: f64 = 0.0;
        for (rank, outcome) in coordinator.run_step(&tasks, StepLimit::Total(2 * STEP_TIMEOUT)) {
            match outcome {
                Ok(RunOutcome::Forecast(seconds)) => run_seconds = run_seconds.max(seconds),
                Ok(other) => coordinator.job().abort(Some(rank), &format!("gave an answer to no task: {other:?}")),
                Err(reason) => coordinator.job().refuse(Some(rank), &format!("cannot measure: {reason}")),
            }
        }
        for (rank, &other) in measuring.iter().enumerate().filter(|&(rank, _)| !is_measuring(rank)) {
            let label = &coordinator.results().ranks[rank].label;
            notice(format_args!("rank {rank} ({label}) measures nothing: rank {other} measures this host"));
        }
        binding_text(&coordinator.results().ranks).iter().for_each(notice);
        let one = units::seconds(run_seconds);
        let hosts = units::plural(ranks.len() as u64, "host");
        match self.no_alone {
            true => notice(format_args!("{hosts} at once, about {one}")),
            false => notice(format_args!(
                "{hosts} at once, about {one}, then each alone: about {} in all (--no-alone leaves that out)",
                units::seconds(run_seconds * (1 + ranks.len()) as f64)
            )),
        }
        coordinator.record(RunEvent::Forecast { ranks: ranks.clone(), run_seconds });
        Forecast { ranks, run_seconds }
    }

    /// Has these ranks measure at once, and records each run as it ends.
    fn measure_phase(
        &self,
        coordinator: &mut Coordinator<'_, Self>,
        phase: Phase,
        ranks: &[usize],
        run_seconds: f64,
        start_s: Option<f64>,
    ) {
        let plan = coordinator.results().measured.plan.clone();
        let task = |rank: usize| {
            let facts = &coordinator.results().ranks[rank];
            RunTask::Measure {
                phase,
                label: facts.label.clone(),
                out: plan.out.clone(),
                options: plan.options.clone(),
                start_s: start_s.map(|start_s| start_s + facts.clock_offset_s),
            }
        };
        let tasks = ranks.iter().map(|&rank| (rank, task(rank))).collect();
        let limit = RUN_TIMEOUT + Duration::from_secs_f64(MAX_SLOWDOWN * run_seconds);
        coordinator.run_apart(tasks, StepLimit::Total(limit), |coordinator, rank, outcome| {
            let label = coordinator.results().ranks[rank].label.clone();
            let event = match outcome {
                Ok(RunOutcome::Measured(run)) => {
                    notice(format_args!("{label} has measured {} in {}", phase.name(), units::seconds(run.seconds)));
                    RunEvent::Run { rank, phase, run }
                }
                Ok(other) => coordinator.job().abort(Some(rank), &format!("gave an answer to no task: {other:?}")),
                Err(reason) => {
                    notice(format_args!("{label} has not measured {}: {reason}", phase.name()));
                    RunEvent::RunFailed { rank, phase, reason }
                }
            };
            coordinator.record(event);
        });
    }

    /// Has each host compare its runs, and records what all say together.
    fn compare(&self, coordinator: &mut Coordinator<'_, Self>, ranks: &[usize]) {
        let runs = &coordinator.results().measured.runs;
        let file = |phase, rank| -> Option<PathBuf> { Some(runs.get(&(phase, rank))?.path.clone()) };
        let task = |&rank: &usize| {
            let [alone, together] = [file(Phase::Alone, rank)?, file(Phase::Together, rank)?];
            Some((rank, RunTask::Compare { alone, together }))
        };
        let tasks: BTreeMap<usize, RunTask> = ranks.iter().filter_map(task).collect();
        for (rank, outcome) in coordinator.run_step(&tasks, StepLimit::Total(COMPARE_TIMEOUT)) {
            coordinator.record(match outcome {
                Ok(RunOutcome::Compared(figures)) => RunEvent::Compared { rank, figures },
                Ok(other) => coordinator.job().abort(Some(rank), &format!("gave an answer to no task: {other:?}")),
                Err(reason) => RunEvent::CompareFailed { rank, reason },
            });
        }
        let ratios = common_ratios(coordinator.results().measured.ratios.values());
        coordinator.record(RunEvent::Ratios { ratios });
    }
}

impl Worker<'_> for RunWorker {
    type Task = RunTask;
    type Outcome = RunOutcome;

    fn new(_: RankPlace<'_>) -> io::Result<Self> {
        Ok(Self::default())
    }

    fn perform(&mut self, task: &RunTask) -> Result<RunOutcome, String> {
        Self::perform(self, task)
    }
}
