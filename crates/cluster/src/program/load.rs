//! `kelvin-cluster load`: all ranks load a server at once, each by `kelvin load`.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use kelvin_cluster::clock::seconds_since_1970;
use kelvin_cluster::kelvin_program::KelvinProgram;
use kelvin_cluster::load::arguments::{Generator, check_options, generator_arguments, url_of_rank};
use kelvin_cluster::load::document::{ClockDifference, put_on_clock};
use kelvin_cluster::load::event::{LoadEvent, LoadPlan};
use kelvin_cluster::load::merge::{merge_to_json, merge_to_text};
use kelvin_cluster::load::report::write_text;
use kelvin_cluster::load::results::LoadResults;
use kelvin_cluster::load::start::{MAX_CLOCK_ERROR_SECONDS, start_at, start_seconds};
use kelvin_cluster::load::task::{LoadOutcome, LoadTask};
use kelvin_cluster::load::worker::LoadWorker;
use kelvin_cluster::placement::{PlacementError, check_one_rank_per_host};
use kelvin_cluster::protocol::Greeting;
use kelvin_cluster::report::binding_text;
use kelvin_cluster::results::Results;

use crate::cli::{JobArgs, LoadArgs};
use crate::coordinator::{Coordinator, Report, Subcommand};
use crate::kelvin_versions::check_kelvin_versions;
use crate::monitor::StepLimit;
use crate::notice;
use crate::rank::{RankPlace, Worker};

/// No load lasts so long.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

impl Subcommand for LoadArgs {
    type Measured = LoadResults;
    type Worker<'w> = LoadWorker;
    const MIN_RANKS: usize = 1;

    fn job(&self) -> &JobArgs {
        &self.job
    }

    fn plan(&self, _: usize) -> Result<LoadPlan, String> {
        Ok(LoadPlan { urls: self.urls.clone(), options: self.options.clone(), fail_on: self.fail_on.clone() })
    }

    fn kelvin(&self) -> KelvinProgram {
        KelvinProgram::find(self.kelvin.path.as_deref())
    }

    fn check_placement(greetings: &[Greeting]) -> Result<(), PlacementError> {
        check_one_rank_per_host(greetings)
    }

    fn measure(&self, coordinator: &mut Coordinator<'_, Self>) {
        if let Err(reason) = check_options(&self.options) {
            coordinator.job().refuse(None, &reason);
        }
        check_kelvin_versions(coordinator, &LoadTask::FindKelvin(self.kelvin.path.clone()), |outcome| match outcome {
            LoadOutcome::Kelvin(version) => Some(version),
            LoadOutcome::Generated(_) => None,
        });
        binding_text(&coordinator.results().ranks).iter().for_each(notice);
        let start_s = self.schedule(coordinator);
        let tasks = self.tasks(coordinator, start_s);
        // How long it takes is known to the generators, which have time limits of their own. A rank that is lost is noticed at any time.
        coordinator.run_apart(tasks, StepLimit::Total(NO_LIMIT), |coordinator, rank, outcome| {
            let facts = &coordinator.results().ranks[rank];
            let difference = ClockDifference { offset_s: facts.clock_offset_s, error_s: facts.clock_error_s };
            let event = match document(outcome, difference) {
                Ok(document) => LoadEvent::Generator { rank, document },
                Err(reason) => LoadEvent::GeneratorFailed { rank, reason },
            };
            coordinator.record(event);
        });
        self.merge(coordinator);
    }

    fn report(results: &Results<LoadResults>, kelvin: &KelvinProgram) -> Result<Report, String> {
        let LoadResults { documents, failures, .. } = &results.measured;
        let merged = if documents.is_empty() {
            None
        } else {
            Some(merge_to_text(kelvin, &results.measured).map_err(|error| error.to_string())?)
        };
        let mut text = String::new();
        write_text(&mut text, results, merged.as_ref().map(|merged| merged.text.as_str()))
            .expect("a string takes all that is written");
        if let Some(complaint) = merged.as_ref().and_then(|merged| merged.complaint.as_deref()) {
            notice(complaint);
        }
        let is_success = failures.is_empty() && merged.is_some_and(|merged| merged.is_success);
        Ok(Report { text, is_success })
    }
}

impl LoadArgs {
    /// When all ranks begin, by the clock of rank 0: clocks must be known well enough to begin together.
    fn schedule(&self, coordinator: &mut Coordinator<'_, Self>) -> f64 {
        let ranks = &coordinator.results().ranks;
        let unknown = ranks.iter().find(|rank| rank.clock_error_s > MAX_CLOCK_ERROR_SECONDS);
        if let Some(rank) = unknown {
            let reason = format!(
                "answers too late for a common start: its clock is known to {:.3} s, and {MAX_CLOCK_ERROR_SECONDS} s are needed",
                rank.clock_error_s
            );
            coordinator.job().abort(Some(rank.rank), &reason);
        }
        let error = ranks.iter().map(|rank| rank.clock_error_s).fold(0.0, f64::max);
        let offset = ranks.iter().map(|rank| rank.clock_offset_s.abs()).fold(0.0, f64::max);
        let start_s = start_seconds(seconds_since_1970(), ranks.len());
        notice(format_args!(
            "{} generators begin together, to {:.3} ms; their clocks are up to {:.3} ms off that of rank 0, which is corrected",
            ranks.len(),
            1e3 * error,
            1e3 * offset
        ));
        coordinator.record(LoadEvent::Schedule { start_s });
        start_s
    }

    fn tasks(&self, coordinator: &Coordinator<'_, Self>, start_s: f64) -> BTreeMap<usize, LoadTask> {
        let ranks = &coordinator.results().ranks;
        let task = |rank: usize| {
            let generator = Generator {
                rank,
                ranks: ranks.len(),
                label: &ranks[rank].label,
                url: url_of_rank(&self.urls, rank),
                start_at: &start_at(start_s, ranks[rank].clock_offset_s),
            };
            LoadTask::Generate(generator_arguments(&generator, &self.options))
        };
        (0..ranks.len()).map(|rank| (rank, task(rank))).collect()
    }

    /// Records all generators as one. Where none has measured, the job has nothing to say but why.
    fn merge(&self, coordinator: &mut Coordinator<'_, Self>) {
        let LoadResults { documents, failures, .. } = &coordinator.results().measured;
        if documents.is_empty() {
            let first = failures.iter().next();
            let reason = first.map_or("nothing was measured", |(_, reason)| reason);
            let rank = first.map(|(&rank, _)| rank).filter(|_| failures.values().any(|other| other != reason));
            coordinator.job().refuse(rank, reason);
        }
        match merge_to_json(&self.kelvin(), &coordinator.results().measured, self.plot.as_deref()) {
            Ok(document) => coordinator.record(LoadEvent::Merged { document }),
            Err(error) => coordinator.job().abort(None, &error.to_string()),
        }
    }
}

/// What a generator printed, with its times on the clock of rank 0.
fn document(outcome: Result<LoadOutcome, String>, difference: ClockDifference) -> Result<serde_json::Value, String> {
    match outcome? {
        LoadOutcome::Generated(mut document) => put_on_clock(&mut document, difference).map(|()| document),
        LoadOutcome::Kelvin(_) => Err("gave an answer to another task".into()),
    }
}

impl Worker<'_> for LoadWorker {
    type Task = LoadTask;
    type Outcome = LoadOutcome;

    fn new(_: RankPlace<'_>) -> io::Result<Self> {
        Ok(Self::default())
    }

    fn perform(&mut self, task: &LoadTask) -> Result<LoadOutcome, String> {
        Self::perform(self, task)
    }
}
