//! From a plan to a finished run: rounds are run and stored, then analysed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kelvin_analysis::{Analysis, BLOCK_OVER_CHAIN, Member, analyse, analyse_among};
use kelvin_harness::{Effort, Judge, Plan, Setup, clock_source};
use kelvin_model::{FORMAT, Metric, Name, Outline, Run, RunSettings, RunStatus};
use kelvin_store::{AppendError, Kin, Store, without_password};

use crate::cli::{MINIMUM, MeasureArgs};
use crate::costs::{Conditions, taught};
use crate::fault::Fault;
use crate::keeper::Keeper;
use crate::members::library_with;
use crate::prepare::Prepared;
use crate::private::Told;
use crate::progress::Progress;
use crate::record::{Record, Recorded};
use crate::{elsewhere, gaps, output, predict, sockets};

/// Earlier runs from which the spread between runs is learned.
pub const LEARN_FROM: usize = 20;

/// The options of a run, beside what it measures.
#[derive(Clone, Copy)]
pub struct Wishes<'a> {
    /// `quick`, `default`, `thorough`, `study`, `selfcheck`, `watch`.
    pub mode: &'static str,
    /// Default seconds.
    pub budget: f64,
    /// The most of them to which they grow for cases that take longer: what does not fit is left out.
    pub most: Option<Duration>,
    /// Default rounds.
    pub rounds: u32,
    /// Part of the budget for trying the causes of its largest gaps.
    pub causes: f64,
    /// The flags of the command line.
    pub args: &'a MeasureArgs,
    /// How much of what identifies machine and user is kept.
    pub told: Told,
    /// Machines of the user's own that the machine is judged by, beside those of the store; `None` where nobody asks how it stands among
    /// machines of its class, and the store need not be read for it.
    pub members: Option<&'a [Member]>,
}

impl Wishes<'_> {
    /// Minimum of rounds.
    pub fn rounds(&self) -> u32 {
        self.args.rounds.unwrap_or(self.rounds)
    }
}

/// A finished run.
pub struct Finished {
    /// The run.
    pub run: Run,
    /// Its analysis.
    pub analysis: Analysis,
    /// What to say where not all of it could be stored.
    pub trouble: Option<Fault>,
}

/// A budget is kept within a twentieth.
const MOST_OF_BUDGET: f64 = 1.05;

/// Measures a plan: whoever conducts it tells all events of the run. The causes of its gaps are tried for as long as `causes`.
///
/// # Errors
/// A run that never began, or cannot be learned from.
pub fn measure(
    plan: &Plan,
    wishes: &Wishes<'_>,
    (prepared, keeper): (Prepared, Option<&Keeper>),
    causes: Duration,
    conduct: impl FnOnce(&Outline, &mut dyn Judge),
) -> Result<Finished, Fault> {
    let root = Path::new("/");
    let outline = outline(plan, wishes, &prepared, keeper.map(Keeper::store))?;
    let sockets = prepared.setup.sockets.clone();
    let conditions = Conditions::of(&prepared.machine, prepared.setup.placement.allowed.len(), &wishes.args.dir);
    let watch = kelvin_machine::Watch::begin(root);
    let mut record = Record::new(keeper.map(Keeper::recorder), Progress::new(output::shows_progress()), wishes.told);
    conduct(&outline, &mut record);
    let Recorded { run, trouble, open } = record.finish();
    let Some(mut run) = run else {
        prepared.clear_up();
        return Err(Fault::because("the run never began"));
    };
    run.outline.hazards.extend(watch.end(root));
    run.outline.clock.source_after = clock_source();
    predict::conclude(&mut run);
    if run.status == RunStatus::Complete {
        // Rounds that took longer than was expected leave less for them.
        let left = prepared.left_of(MOST_OF_BUDGET * run.outline.settings.budget_seconds);
        run.explanations = gaps::tried(&run, &prepared, causes.min(left));
    }
    prepared.clear_up();
    let run = wishes.told.run(run)?;
    let store = keeper.map(Keeper::store);
    let analysis = match wishes.members {
        Some(members) => analyse_among(&run, &library_with(members, store, &run.outline.machine)),
        None => analyse(&run),
    };
    let kept = keeper.zip(open).map_or(Ok(()), |(keeper, (mut recorder, end))| {
        let mut headlines = analysis.teaches(|metric| sockets::is_usual(metric, &sockets));
        headlines.extend(taught(&run, conditions));
        keeper.keep(&run, &headlines).and_then(|()| recorder.event(&end))
    });
    let trouble = kept.err().or(trouble).map(|why| not_stored(&run, &why));
    Ok(Finished { run, analysis, trouble })
}

/// Why a run is not in the store, and where it is instead: its rounds are nowhere else.
fn not_stored(run: &Run, why: &AppendError) -> Fault {
    let name = format!("kelvin-{}.json", run.outline.id);
    let write = |directory: PathBuf| {
        let file = directory.join(&name);
        let write = |out: &mut dyn Write| kelvin_store::export(run, out).map_err(io::Error::other);
        output::write_file(&file, write).ok().map(|()| file)
    };
    let what = "the run could not be stored completely";
    match elsewhere::directories().into_iter().find_map(write) {
        Some(file) => Fault::new(
            what,
            format!("{why}; all of it is in {}, which `kelvin runs import` reads once there is room", file.display()),
        ),
        None => Fault::new(what, format!("{why}; nor is there room for it in another directory")),
    }
}

/// All that is known before the first round.
fn outline(plan: &Plan, wishes: &Wishes<'_>, prepared: &Prepared, store: Option<&Store>) -> Result<Outline, Fault> {
    let Prepared { setup, machine, way, neighbours, .. } = prepared;
    let metrics = plan.metrics();
    let learned_of = |metrics: &[Metric], mode: Option<&str>| {
        let kin = Kin { machine: &machine.identity, mode, but: &[] };
        let learned = store.map_or(Ok(Vec::new()), |store| store.learned(&kin, metrics, LEARN_FROM));
        learned.map_err(|error| Fault::new("cannot learn from earlier runs", error))
    };
    let usual: Vec<Metric> =
        metrics.iter().filter(|metric| sockets::is_usual(metric, &setup.sockets)).copied().collect();
    let planned = plan.planned();
    let mut hazards = kelvin_machine::hazards(Path::new("/"), machine, Path::new(&setup.scratch));
    hazards.extend(neighbours.clone());
    hazards.sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    wishes.told.outline(Outline {
        foreign: None,
        format: FORMAT,
        id: run_id(),
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        kelvin: env!("CARGO_PKG_VERSION").into(),
        command: std::env::args_os().map(|argument| without_password(&argument.to_string_lossy())).collect(),
        settings: settings(wishes, setup),
        clock: setup.clock.clone(),
        hazards,
        learned: learned_of(&usual, Some(wishes.mode))?,
        learned_core: learned_of(&[BLOCK_OVER_CHAIN], None)?.pop().map_or_else(Vec::new, |learned| learned.headlines),
        bounds: predict::bounds_of(&planned, machine, way.as_ref()),
        machine: machine.clone(),
        metrics,
        plan: planned,
        way: way.clone(),
    })
}

fn settings(wishes: &Wishes<'_>, setup: &Setup) -> RunSettings {
    let args = wishes.args;
    RunSettings {
        mode: Name::new(wishes.mode),
        budget_seconds: args
            .budget
            .filter(|&asked| asked != MINIMUM)
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
pub const MOST_OF_QUICK: Duration = Duration::from_secs(120);

/// Blocks of a run of everything: cpu and os together, mem, file, and net.
const ALL_BLOCKS: usize = 4;

/// Mode, budget in seconds and rounds of each effort. A run of everything gets more than its blocks would alone, since its passes
/// last longer and each is one round.
pub fn effort_defaults(effort: Effort, blocks: usize) -> (&'static str, f64, u32) {
    let more = |seconds: f64| if blocks >= ALL_BLOCKS { seconds } else { 0.0 };
    match effort {
        Effort::Quick => ("quick", 10.0 * blocks as f64 + more(5.0), 5),
        Effort::Default => ("default", 30.0 * blocks as f64 + more(30.0), 8),
        Effort::Thorough => ("thorough", 300.0 * blocks as f64, 20),
    }
}
