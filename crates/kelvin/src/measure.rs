//! From a plan to a finished run: rounds are run and stored, then analysed.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use kelvin_analysis::{Analysis, BLOCK_OVER_CHAIN, analyse, analyse_with_library, keep_headlines};
use kelvin_core::{IndirectSort, Metric, RUN_FORMAT, Run, RunHeader, RunStatus};
use kelvin_harness::{RunObserver, clock_source, supervise};
use kelvin_store::{HistoryFilter, Store, without_password};

use crate::class_members::build_library;
use crate::cli::Kept;
use crate::cli_error::{CliError, Context};
use crate::costs::costs_to_store;
use crate::run_plan::RunPlan;
use crate::run_recorder::RunRecorder;
use crate::run_schedule::MAX_BUDGET_FACTOR;
use crate::run_writer::RunWriter;
use crate::version::{VERSION, build_info};
use crate::{fallback_dirs, gaps, output, predict, socket_options};

/// Earlier runs from which the spread between runs is learned.
pub const MAX_HISTORY_RUNS: usize = 20;

/// A finished run.
pub struct FinishedRun {
    /// The run.
    pub run: Run,
    /// Its analysis.
    pub analysis: Analysis,
    /// The error where not all of it could be stored, or written as a file.
    pub store_error: Option<CliError>,
    /// The file of it in the directory for runs.
    pub file: Option<PathBuf>,
    /// The local file in which it waits for its server, if that is where it goes.
    pub spool_file: Option<String>,
}

impl RunPlan {
    /// Measures the cases in fresh processes.
    ///
    /// # Errors
    /// Files that cannot be written, and those of [`Self::measure_by`].
    pub fn measure(mut self) -> Result<FinishedRun, CliError> {
        self.write_files()?;
        let (cases, options) = (self.schedule.cases.clone(), self.supervise_options());
        self.measure_by(|outline, observer| {
            supervise(&cases, outline, &options, observer);
        })
    }

    /// Measures: `conduct` emits all events of the run. Then the causes of its gaps are tried.
    ///
    /// # Errors
    /// A run that never began, or cannot be learned from.
    pub fn measure_by(
        mut self,
        conduct: impl FnOnce(&RunHeader, &mut dyn RunObserver),
    ) -> Result<FinishedRun, CliError> {
        let root = Path::new("/");
        let writer = self.writer.take();
        let store = writer.as_ref().map(|writer| &writer.store);
        let outline = run_header(&self, store)?;
        let monitor = kelvin_machine::DisturbanceMonitor::start(root);
        let mut recorder =
            RunRecorder::new(writer.as_ref().map(|writer| writer.recorder(&self.labels, self.kept)), self.redaction);
        conduct(&outline, &mut recorder);
        let RunRecorder { run, store_error, store: store_recorder, end, progress, .. } = recorder;
        drop(progress);
        let Some(mut run) = run else {
            self.clean_up();
            bail!("the run never began");
        };
        run.header.hazards.extend(monitor.hazards(root));
        run.header.clock.source_after = clock_source();
        predict::complete_run(&mut run);
        if run.status == RunStatus::Complete {
            // Rounds that took longer than was expected leave less for them.
            let remaining = self.remaining_time(MAX_BUDGET_FACTOR * run.header.settings.budget_seconds);
            run.explanations = gaps::explain_gaps(&run, &self, self.schedule.causes_time.min(remaining));
        }
        self.clean_up();
        let mut run = self.redaction.redact_run(run)?;
        let analysis = match &self.members {
            Some(members) => analyse_with_library(&run, &build_library(members, store, &run.header.machine)),
            None => analyse(&run),
        };
        // What is shown has its samples in any case.
        let kept_run = match self.kept {
            Kept::Samples => None,
            Kept::Headlines => Some(keep_headlines(&run, &analysis)),
        };
        let mut store_error = store_error;
        if let (Some(writer), Some(mut recorder), Some(end)) = (&writer, store_recorder, end) {
            let is_comparable = |metric: &Metric| socket_options::has_default_options(metric, &self.setup.sockets);
            let mut headlines = analysis.stored_headlines(is_comparable);
            headlines.extend(costs_to_store(&run, self.cost_conditions));
            // A run with a stored end is complete.
            let result =
                writer.store_results(kept_run.as_ref().unwrap_or(&run), &headlines).and_then(|()| recorder.event(&end));
            store_error = result.err().or(store_error);
        }
        let mut kept_run = kept_run.unwrap_or_else(|| run.clone());
        kept_run.labels = self.labels.clone();
        let store_error = store_error.map(|error| not_kept_error(&kept_run, "stored completely", &error));
        let written = self.run_directory.as_ref().map(|directory| directory.write(&kept_run)).transpose();
        let file_error = written.as_ref().err().map(|error| not_kept_error(&kept_run, "written as a file", error));
        run.labels = self.labels;
        let spool_file = writer.as_ref().and_then(RunWriter::spool_file).map(str::to_owned);
        let file = written.ok().flatten();
        Ok(FinishedRun { run, analysis, store_error: store_error.or(file_error), file, spool_file })
    }
}

/// Why a run is not where it should be, and where it is instead: its rounds are nowhere else.
fn not_kept_error(run: &Run, done: &str, error: &dyn Display) -> CliError {
    let name = format!("kelvin-{}.json", run.header.id);
    let save = |directory: PathBuf| {
        let file = directory.join(&name);
        let write = |out: &mut dyn Write| kelvin_store::export(run, out).map_err(io::Error::other);
        output::write_file(&file, write).ok().map(|()| file)
    };
    let location_text = match fallback_dirs::fallback_directories().into_iter().find_map(save) {
        Some(file) => {
            format!("all of it is in {}, which `kelvin runs import` reads once there is room", file.display())
        }
        None => "nor is there room for it in another directory".into(),
    };
    CliError::msg(format!("the run could not be {done}: {error}; {location_text}"))
}

/// All that is known before the first round.
fn run_header(plan: &RunPlan, store: Option<&Store>) -> Result<RunHeader, CliError> {
    let RunPlan { setup, machine, network_path, .. } = plan;
    let metrics = plan.schedule.cases.metrics();
    let history = |metrics: &[Metric], mode: Option<&str>| {
        let filter = HistoryFilter { machine: &machine.identity, mode, excluded: &[] };
        let history = store.map_or(Ok(Vec::new()), |store| store.spread_history(&filter, metrics, MAX_HISTORY_RUNS));
        history.context("cannot learn from earlier runs")
    };
    let mut comparable = metrics.clone();
    comparable.retain(|metric| socket_options::has_default_options(metric, &setup.sockets));
    let planned = plan.schedule.cases.measurements();
    let mut hazards = kelvin_machine::hazards(Path::new("/"), machine, Path::new(&setup.scratch));
    hazards.extend(plan.neighbours.clone());
    hazards.indirect_sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    // An id sorts by time.
    let milliseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    plan.redaction.redact_header(RunHeader {
        foreign: None,
        format: RUN_FORMAT,
        id: format!("{milliseconds:011x}-{:05x}", std::process::id()),
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        kelvin: VERSION.into(),
        build: Some(build_info()),
        command: std::env::args_os().map(|argument| without_password(&argument.to_string_lossy())).collect(),
        settings: plan.settings.clone(),
        clock: setup.clock.clone(),
        hazards,
        spread_history: history(&comparable, Some(&plan.settings.mode))?,
        core_ratio_history: history(&[BLOCK_OVER_CHAIN], None)?.pop().map_or_else(Vec::new, |ratio| ratio.headlines),
        bounds: predict::hardware_bounds(&planned, machine, network_path.as_ref()),
        machine: machine.clone(),
        metrics,
        plan: planned,
        network_path: network_path.clone(),
    })
}
