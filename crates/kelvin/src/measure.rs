//! From a plan to a finished run: rounds are run and stored, then analysed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kelvin_analysis::{Analysis, BLOCK_OVER_CHAIN, Member, analyse, analyse_with_library};
use kelvin_core::{Metric, Name, RUN_FORMAT, Run, RunHeader, RunSettings, RunStatus};
use kelvin_harness::{Effort, Plan, RunObserver, Setup, clock_source};
use kelvin_store::{AppendError, HistoryFilter, Store, without_password};

use crate::class_members::build_library;
use crate::cli::{MINIMUM_ROUNDS_BUDGET, MeasureArgs};
use crate::cli_error::CliError;
use crate::costs::{CostConditions, costs_to_store};
use crate::progress::RunProgressLine;
use crate::redact::Redaction;
use crate::run_context::RunContext;
use crate::run_recorder::{FinishedRecording, RunRecorder};
use crate::run_writer::RunWriter;
use crate::{fallback_dirs, gaps, output, predict, socket_options};

/// Earlier runs from which the spread between runs is learned.
pub const MAX_HISTORY_RUNS: usize = 20;

/// The options of a run, beside what it measures.
#[derive(Clone, Copy)]
pub struct RunOptions<'a> {
    /// `quick`, `default`, `thorough`, `study`, `selfcheck`, `watch`.
    pub mode: &'static str,
    /// Default seconds.
    pub budget: f64,
    /// The most of them to which they grow for cases that take longer: what does not fit is left out.
    pub max_budget: Option<Duration>,
    /// Default rounds.
    pub rounds: u32,
    /// Part of the budget for trying the causes of its largest gaps.
    pub causes_share: f64,
    /// The flags of the command line.
    pub args: &'a MeasureArgs,
    /// How much of what identifies machine and user is kept.
    pub redaction: Redaction,
    /// Machines of the user's own that the machine is judged by, beside those of the store; `None` where nobody asks how it stands among
    /// machines of its class, and the store need not be read for it.
    pub members: Option<&'a [Member]>,
}

impl RunOptions<'_> {
    /// Minimum of rounds.
    pub fn rounds(&self) -> u32 {
        self.args.rounds.unwrap_or(self.rounds)
    }
}

/// A finished run.
pub struct FinishedRun {
    /// The run.
    pub run: Run,
    /// Its analysis.
    pub analysis: Analysis,
    /// What to say where not all of it could be stored.
    pub store_error: Option<CliError>,
}

/// A budget is kept within a twentieth.
const MAX_BUDGET_FACTOR: f64 = 1.05;

/// Measures a plan: whoever conducts it tells all events of the run. The causes of its gaps are tried for as long as `causes`.
///
/// # Errors
/// A run that never began, or cannot be learned from.
pub fn measure(
    plan: &Plan,
    wishes: &RunOptions<'_>,
    (prepared, keeper): (RunContext, Option<&RunWriter>),
    causes: Duration,
    conduct: impl FnOnce(&RunHeader, &mut dyn RunObserver),
) -> Result<FinishedRun, CliError> {
    let root = Path::new("/");
    let outline = run_header(plan, wishes, &prepared, keeper.map(RunWriter::store))?;
    let sockets = prepared.setup.sockets.clone();
    let conditions = CostConditions::new(&prepared.machine, prepared.setup.placement.allowed.len(), &wishes.args.dir);
    let watch = kelvin_machine::DisturbanceMonitor::start(root);
    let mut record = RunRecorder::new(
        keeper.map(RunWriter::recorder),
        RunProgressLine::new(output::shows_progress()),
        wishes.redaction,
    );
    conduct(&outline, &mut record);
    let FinishedRecording { run, store_error: trouble, unfinished: open } = record.finish();
    let Some(mut run) = run else {
        prepared.clean_up();
        return Err(CliError::msg("the run never began"));
    };
    run.outline.hazards.extend(watch.hazards(root));
    run.outline.clock.source_after = clock_source();
    predict::complete_run(&mut run);
    if run.status == RunStatus::Complete {
        // Rounds that took longer than was expected leave less for them.
        let left = prepared.remaining_time(MAX_BUDGET_FACTOR * run.outline.settings.budget_seconds);
        run.explanations = gaps::explain_gaps(&run, &prepared, causes.min(left));
    }
    prepared.clean_up();
    let run = wishes.redaction.redact_run(run)?;
    let store = keeper.map(RunWriter::store);
    let analysis = match wishes.members {
        Some(members) => analyse_with_library(&run, &build_library(members, store, &run.outline.machine)),
        None => analyse(&run),
    };
    let kept = keeper.zip(open).map_or(Ok(()), |(keeper, (mut recorder, end))| {
        let mut headlines = analysis.stored_headlines(|metric| socket_options::has_default_options(metric, &sockets));
        headlines.extend(costs_to_store(&run, conditions));
        keeper.store_results(&run, &headlines).and_then(|()| recorder.event(&end))
    });
    let trouble = kept.err().or(trouble).map(|why| not_stored_error(&run, &why));
    Ok(FinishedRun { run, analysis, store_error: trouble })
}

/// Why a run is not in the store, and where it is instead: its rounds are nowhere else.
fn not_stored_error(run: &Run, why: &AppendError) -> CliError {
    let name = format!("kelvin-{}.json", run.outline.id);
    let write = |directory: PathBuf| {
        let file = directory.join(&name);
        let write = |out: &mut dyn Write| kelvin_store::export(run, out).map_err(io::Error::other);
        output::write_file(&file, write).ok().map(|()| file)
    };
    let what = "the run could not be stored completely";
    match fallback_dirs::fallback_directories().into_iter().find_map(write) {
        Some(file) => CliError::new(
            what,
            format!("{why}; all of it is in {}, which `kelvin runs import` reads once there is room", file.display()),
        ),
        None => CliError::new(what, format!("{why}; nor is there room for it in another directory")),
    }
}

/// All that is known before the first round.
fn run_header(
    plan: &Plan,
    wishes: &RunOptions<'_>,
    prepared: &RunContext,
    store: Option<&Store>,
) -> Result<RunHeader, CliError> {
    let RunContext { setup, machine, network_path: way, neighbours, .. } = prepared;
    let metrics = plan.metrics();
    let learned_of = |metrics: &[Metric], mode: Option<&str>| {
        let kin = HistoryFilter { machine: &machine.identity, mode, excluded: &[] };
        let learned = store.map_or(Ok(Vec::new()), |store| store.spread_history(&kin, metrics, MAX_HISTORY_RUNS));
        learned.map_err(|error| CliError::new("cannot learn from earlier runs", error))
    };
    let usual: Vec<Metric> =
        metrics.iter().filter(|metric| socket_options::has_default_options(metric, &setup.sockets)).copied().collect();
    let planned = plan.planned();
    let mut hazards = kelvin_machine::hazards(Path::new("/"), machine, Path::new(&setup.scratch));
    hazards.extend(neighbours.clone());
    hazards.sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    wishes.redaction.redact_header(RunHeader {
        foreign: None,
        format: RUN_FORMAT,
        id: run_id(),
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        kelvin: env!("CARGO_PKG_VERSION").into(),
        command: std::env::args_os().map(|argument| without_password(&argument.to_string_lossy())).collect(),
        settings: run_settings(wishes, setup),
        clock: setup.clock.clone(),
        hazards,
        learned: learned_of(&usual, Some(wishes.mode))?,
        learned_core: learned_of(&[BLOCK_OVER_CHAIN], None)?.pop().map_or_else(Vec::new, |learned| learned.headlines),
        bounds: predict::hardware_bounds(&planned, machine, way.as_ref()),
        machine: machine.clone(),
        metrics,
        plan: planned,
        way: way.clone(),
    })
}

fn run_settings(wishes: &RunOptions<'_>, setup: &Setup) -> RunSettings {
    let args = wishes.args;
    RunSettings {
        mode: Name::new(wishes.mode),
        budget_seconds: args
            .budget
            .filter(|&asked| asked != MINIMUM_ROUNDS_BUDGET)
            .map_or(wishes.budget, |asked| asked.as_secs_f64()),
        rounds: wishes.rounds(),
        target: args.target,
        seed: args.seed.unwrap_or_else(|| since_epoch().0 as u64),
        cpu: setup.placement.cpu,
        partner_cpu: setup.placement.partner,
        canaries: setup.canaries,
        realtime: setup.realtime,
    }
}

/// A unique id that sorts by time: milliseconds since 1970 and the process, in hexadecimal.
fn run_id() -> String {
    let (_, milliseconds) = since_epoch();
    format!("{milliseconds:011x}-{:05x}", std::process::id())
}

fn since_epoch() -> (u128, u128) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos(), now.as_millis())
}

/// The most that a run or a study takes with `--quick`, if no budget is given.
pub const MAX_QUICK_TIME: Duration = Duration::from_secs(120);

/// Blocks of a run of everything: cpu and os together, mem, file, and net.
const FULL_RUN_BLOCKS: usize = 4;

/// Mode, budget in seconds and rounds of each effort. A run of everything gets more than its blocks would alone, since its passes
/// last longer and each is one round.
pub fn effort_defaults(effort: Effort, blocks: usize) -> (&'static str, f64, u32) {
    let more = |seconds: f64| if blocks >= FULL_RUN_BLOCKS { seconds } else { 0.0 };
    match effort {
        Effort::Quick => ("quick", 10.0 * blocks as f64 + more(5.0), 5),
        Effort::Default => ("default", 30.0 * blocks as f64 + more(30.0), 8),
        Effort::Thorough => ("thorough", 300.0 * blocks as f64, 20),
    }
}
