//! From a plan to a finished run: the machine is read, rounds are made and stored, predictions are made.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kelvin_analysis::{Analysis, BLOCK_OVER_CHAIN, Headlines, analyse};
use kelvin_file::temporary::Scratch;
use kelvin_harness::{
    AsFound, Effort, Facts, Hardware, Lacking, MeasuredValue, Options, Plan, Probe, SocketOptions, multiply_cycles,
    supervise,
};
use kelvin_model::{
    BoundRecord, Case, ClockInfo, ClockKind, FORMAT, Fact, Machine, Metric, Name, Outline, Planned, PredictionRecord,
    Run, RunSettings, RunStatus,
};
use kelvin_store::{AppendError, Headline, Store};
use kelvin_sys::clock::{self, Clock};

use crate::cli::MeasureArgs;
use crate::fault::Fault;
use crate::other_host::Agent;
use crate::place::{self, Placement};
use crate::private::Told;
use crate::progress::Progress;
use crate::record::{Record, Recorded};
use crate::sockets;

/// Seconds of calibrating the clock.
const CALIBRATION: f64 = 0.05;
/// Earlier runs that the spread between runs is learned from.
const LEARN_FROM: usize = 20;

/// What is wanted of a run, beside what it measures.
pub struct Wishes<'a> {
    /// `quick`, `default`, `thorough`, `study`, `selfcheck`.
    pub mode: &'static str,
    /// Seconds if the command line does not say.
    pub budget: f64,
    /// Rounds if the command line does not say.
    pub rounds: u32,
    /// What the command line says.
    pub args: &'a MeasureArgs,
}

/// The machine that a run is made on, read once.
pub struct Here {
    /// Facts.
    pub machine: Machine,
    /// CPUs that this process may use.
    pub allowed: Vec<u32>,
}

impl Here {
    /// Reads this machine.
    pub fn read() -> Result<Self, Fault> {
        let allowed =
            kelvin_sys::cpu::allowed().map_err(|error| Fault::new("cannot tell which CPUs may be used", error))?;
        Ok(Self { machine: kelvin_machine::read(Path::new("/")), allowed })
    }
}

/// A finished run.
pub struct Finished {
    /// The run.
    pub run: Run,
    /// What analysis says of it.
    pub analysis: Analysis,
    /// Why not all of it could be stored.
    pub trouble: Option<AppendError>,
}

/// What a run measures with beside this machine, found to be in order before anything is said or measured.
pub struct With {
    /// Where probes may make files.
    pub places: Places,
    /// The agent of another host, if one was named.
    pub agent: Option<Agent>,
    /// What is told of it.
    pub told: Told,
}

/// Directories in which probes may make files, which go away with this.
pub struct Places {
    scratch: Scratch,
    remote: Option<Scratch>,
}

impl Places {
    /// Makes them where the command line says.
    ///
    /// # Errors
    /// A directory in which none can be made.
    pub fn make(args: &MeasureArgs) -> Result<Self, Fault> {
        let scratch = scratch_in(&args.dir, "--dir")?;
        let remote = args.remote.as_deref().map(|directory| scratch_in(directory, "--remote")).transpose()?;
        Ok(Self { scratch, remote })
    }
}

/// A directory for files in the one that an argument names. Its whole path: what is relative now would be elsewhere for a process
/// that goes to another directory.
pub fn scratch_in(base: &Path, argument: &str) -> Result<Scratch, Fault> {
    let base =
        std::fs::canonicalize(base).map_err(|error| Fault::new(format!("{argument} {}", base.display()), error))?;
    Scratch::make(&base).map_err(|error| {
        let place = base.display();
        Fault::new(format!("cannot make a scratch directory in {place} (choose another by {argument})"), error)
    })
}

/// Measures a plan.
pub fn measure(
    here: Here,
    plan: &Plan,
    wishes: &Wishes<'_>,
    with: With,
    store: Option<&Store>,
) -> Result<Finished, Fault> {
    kelvin_sys::interrupt::watch().map_err(|error| Fault::new("cannot watch for signals", error))?;
    let args = wishes.args;
    let sockets = sockets::asked(args, plan)?;
    let placement = place::choose(&here.machine, &here.allowed, args.cpu)?;
    let With { places: Places { scratch, remote }, agent, told } = with;
    let root = Path::new("/");
    let metrics = metrics_of(plan);
    let hazards = kelvin_machine::hazards(root, &here.machine, scratch.path());
    let learned_of = |metrics: &[Metric]| match store {
        Some(store) => store
            .learned(&here.machine.identity, metrics, LEARN_FROM)
            .map_err(|error| Fault::new("cannot learn from earlier runs", error)),
        None => Ok(Vec::new()),
    };
    let comparable: Vec<Metric> =
        metrics.iter().filter(|metric| sockets::is_usual(metric, &sockets)).copied().collect();
    let learned = learned_of(&comparable)?;
    let learned_core = learned_of(&[BLOCK_OVER_CHAIN])?.pop().map_or_else(Vec::new, |learned| learned.headlines);
    let (agent, way) = agent.map_or((None, None), |agent| (Some(agent.host), Some(agent.way)));
    let planned = plan.planned();
    let bounds = bounds(&planned, Hardware { machine: &here.machine, way: way.as_ref() });
    let outline = told.outline(Outline {
        format: FORMAT,
        id: run_id(),
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        kelvin: env!("CARGO_PKG_VERSION").into(),
        command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        settings: settings(wishes, placement),
        clock: calibrated(placement.cpu)?,
        machine: here.machine,
        hazards,
        metrics,
        plan: planned,
        learned,
        learned_core,
        way,
        bounds,
    })?;
    let options = Options {
        program: ("/proc/self/exe".into(), vec!["probe-process".into()]),
        round_limit: args.round_limit,
        throttle_file: kelvin_machine::throttle_file(root),
        scratch: scratch.path().into(),
        remote: remote.as_ref().map(|remote| remote.path().into()),
        agent,
        sockets: sockets.clone(),
        write_limit: args.write_limit,
        allowed_cpus: here.allowed,
    };
    let watch = kelvin_machine::Watch::begin(root);
    let mut record = Record::new(store.map(Store::recorder), Progress::new(crate::output::shows_progress()), told);
    supervise(plan, &outline, &options, &mut record);
    kelvin_probes::clear_up();
    let Recorded { run, trouble, open } = record.finish();
    let mut run = run.ok_or_else(|| Fault::because("the run never began"))?;
    run.outline.hazards.extend(watch.end(root));
    run.outline.clock.source_after = clock_source(root);
    conclude(&mut run);
    let run = told.run(run)?;
    let analysis = analyse(&run);
    let trouble = match (store, open) {
        (Some(store), Some((mut recorder, end))) => {
            keep(store, &run, &analysis, &sockets).and_then(|()| recorder.event(&end)).err().or(trouble)
        }
        _ => trouble,
    };
    Ok(Finished { run, analysis, trouble })
}

impl Wishes<'_> {
    /// The agent that is asked for, if one is.
    ///
    /// # Errors
    /// As for [`Agent::contact`].
    pub fn agent(&self) -> Result<Option<Agent>, Fault> {
        self.args.peer.as_deref().map(|peer| Agent::contact(peer, self.args.token_file.as_deref())).transpose()
    }
}

/// What the hardware bounds of what is planned, where that is known.
fn bounds(plan: &[Planned], hardware: Hardware<'_>) -> Vec<BoundRecord> {
    let bounded = kelvin_probes::bounded();
    let of = |planned: &Planned, metric: Name| {
        let bound = bounded.iter().find(|bounded| bounded.metric.id == metric)?;
        let bound = (bound.most)(hardware, &planned.case)?;
        Some(BoundRecord { metric, case: planned.case.clone(), bound })
    };
    plan.iter().flat_map(|planned| planned.metrics.iter().filter_map(move |&metric| of(planned, metric))).collect()
}

/// What can be said only when all rounds are made: the measured frequency, and predictions.
fn conclude(run: &mut Run) {
    let headlines = Headlines::of(run);
    if let Some(frequency) = headlines.core_hertz() {
        run.outline.machine.cpu.measured_hz = Fact::known(frequency, "measured: a chain of dependent multiplies");
    }
    predict(run, &headlines);
}

/// Makes what hardware bounds in a run, and then its predictions, anew with the formulas of this program.
pub fn predict_anew(run: &mut Run) {
    let outline = &run.outline;
    run.outline.bounds = bounds(&outline.plan, Hardware { machine: &outline.machine, way: outline.way.as_ref() });
    let headlines = Headlines::of(run);
    predict(run, &headlines);
}

/// Makes the predictions of a run with the formulas of this program.
fn predict(run: &mut Run, headlines: &Headlines) {
    let probes = kelvin_probes::all();
    let measured = |metric: &str, case: &Case| {
        headlines.get(metric, case).map(|found| MeasuredValue { value: found.value, half_width: found.half_width })
    };
    let lacking = |metric: &str, case: &Case| match headlines.lacking(metric, case) {
        kelvin_analysis::Lacking::AsFound(found) => {
            Lacking::AsFound(AsFound { value: found.value, low: found.low, high: found.high, why: found.why })
        }
        kelvin_analysis::Lacking::Nothing(what) => Lacking::Nothing(what),
    };
    let facts = Facts::new(&run.outline.machine, &measured).by_way(run.outline.way.as_ref()).or(&lacking);
    let mut predictions = Vec::new();
    for planned in &run.outline.plan {
        let Some(probe) = probes.iter().find(|probe| planned.probe == *probe.id) else { continue };
        let metrics = probe.metrics.iter().filter(|metric| planned.metrics.contains(&metric.id));
        predictions.extend(metrics.map(|metric| prediction(probe, metric, &facts, &planned.case)));
    }
    run.predictions = predictions;
}

fn prediction(probe: &Probe, metric: &Metric, facts: &Facts<'_>, case: &Case) -> PredictionRecord {
    let (prediction, none_because) = match facts.predict(probe, metric, case) {
        Ok(prediction) => (Some(prediction), None),
        Err(reason) => (None, Some(reason)),
    };
    PredictionRecord { metric: metric.id, case: case.clone(), prediction, none_because }
}

/// Stores what is known only now, and what later runs learn from.
fn keep(store: &Store, run: &Run, analysis: &Analysis, sockets: &SocketOptions) -> Result<(), AppendError> {
    store.amend(&run.outline)?;
    store.finish(&run.outline.id, &run.predictions, &run.studies, &[])?;
    if run.status == RunStatus::Complete {
        let of_core = analysis.block_over_chain.map(|value| Headline {
            metric: BLOCK_OVER_CHAIN.id,
            version: BLOCK_OVER_CHAIN.version,
            case: Case::new(),
            value,
            within_variance: 0.0,
        });
        let headlines: Vec<Headline> = analysis
            .results
            .iter()
            .filter_map(|result| {
                // A single round says nothing of the spread that a headline's own rounds explain.
                let summary = result.outcome.summary().filter(|summary| summary.rounds > 1)?;
                sockets::is_usual(&result.metric, sockets).then_some(())?;
                Some(Headline {
                    metric: result.metric.id,
                    version: result.metric.version,
                    case: result.case.clone(),
                    value: summary.headline,
                    within_variance: summary.within_variance,
                })
            })
            .chain(of_core)
            .collect();
        store.record_headlines(&run.outline.id, &headlines)?;
    }
    Ok(())
}

/// The definitions of all metrics of a plan, each once, in the order of reports.
fn metrics_of(plan: &Plan) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for metric in plan.units.iter().flat_map(|unit| unit.probe.metrics) {
        if !metrics.iter().any(|known| known.id == metric.id) {
            metrics.push(**metric);
        }
    }
    metrics
}

fn settings(wishes: &Wishes<'_>, placement: Placement) -> RunSettings {
    let args = wishes.args;
    RunSettings {
        mode: Name::new(wishes.mode),
        budget_seconds: args.budget.map_or(wishes.budget, |budget| budget.as_secs_f64()),
        rounds: args.rounds.unwrap_or(wishes.rounds),
        target: args.target,
        seed: args.seed.unwrap_or_else(|| since_epoch().0 as u64),
        cpu: placement.cpu,
        peer_cpu: placement.peer,
        canaries: !args.no_canaries,
        realtime: args.realtime,
    }
}

/// The best clock that is to be had here, and why it is not the counter if it is another.
pub fn best_clock() -> (ClockKind, Clock, Option<String>) {
    let sources = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/available_clocksource").ok();
    let note = clock::counter_unusable(sources.as_deref());
    let (kind, chosen) = match (&note, cfg!(target_arch = "aarch64")) {
        (Some(_), _) => (ClockKind::MonotonicRaw, Clock::MonotonicRaw),
        (None, true) => (ClockKind::VirtualCounter, Clock::Counter),
        (None, false) => (ClockKind::Tsc, Clock::Counter),
    };
    (kind, chosen, note)
}

/// Chooses the best clock, pins this thread where the probes will run, and calibrates.
fn calibrated(cpu: u32) -> Result<ClockInfo, Fault> {
    let root = Path::new("/");
    let (kind, chosen, note) = best_clock();
    // In a thread of its own, so that this process keeps all its CPUs.
    let thread = std::thread::spawn(move || {
        kelvin_sys::cpu::pin(&[cpu])?;
        let calibration = clock::calibrate(chosen, CALIBRATION);
        let mut pairs: Vec<u64> = (0..1001)
            .map(|_| {
                let start = chosen.start();
                chosen.stop() - start
            })
            .collect();
        pairs.sort_unstable();
        let cycles = multiply_cycles(chosen);
        Ok::<_, std::io::Error>((calibration, pairs[pairs.len() / 2], cycles))
    });
    let (calibration, pair, cycles) = thread
        .join()
        .map_err(|_| Fault::because("calibrating the clock panicked"))?
        .map_err(|error| Fault::new(format!("cannot pin to CPU {cpu}"), error))?;
    Ok(ClockInfo {
        kind,
        hertz: calibration.hertz,
        relative_error: calibration.relative_error,
        pair_nanoseconds: pair as f64 * 1e9 / calibration.hertz,
        multiply_cycles: match cycles {
            Ok(cycles) => Fact::known(cycles, "measured: a multiply against adds of one cycle"),
            Err(reason) => Fact::unknown(reason),
        },
        note,
        source_before: clock_source(root),
        source_after: None,
    })
}

fn clock_source(root: &Path) -> Option<String> {
    let path = root.join("sys/devices/system/clocksource/clocksource0/current_clocksource");
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
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

/// What the three efforts mean: mode, budget in seconds, rounds.
pub fn effort_defaults(effort: Effort, areas: usize) -> (&'static str, f64, u32) {
    match effort {
        Effort::Quick => ("quick", 10.0 * areas as f64, 3),
        Effort::Default => ("default", 30.0 * areas as f64, 6),
        Effort::Thorough => ("thorough", 300.0 * areas as f64, 20),
    }
}
