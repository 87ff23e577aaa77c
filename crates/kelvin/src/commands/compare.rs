//! `kelvin compare`: what differs between two runs, or ranges of runs, or a run and a published machine.

use std::ffi::OsStr;
use std::path::Path;

use kelvin_analysis::{ComparisonRequest, ComparisonSubject, STEADY_CHAIN, SideInput, foreign_reference, references};
use kelvin_core::{Comparison, FOREIGN_MODE, Metric, Reference, Run, RunStatus, SpreadHistory};
use kelvin_machine::redact::redact_machine;
use kelvin_store::{HistoryFilter, RunFilter, RunSummary, Store, TAG_PREFIX};

use crate::cli::{CompareArgs, StoreArgs};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::commands::comparison_output::{ComparisonOutput, report_gate};
use crate::measure::MAX_HISTORY_RUNS;
use crate::stores::{load_run, open_existing_store, store_to_read};

/// `kelvin compare`.
pub fn compare(args: &CompareArgs) -> CmdResult {
    let output = ComparisonOutput::new(&args.shown)?;
    let [base, other] = [&args.base, &args.other].map(|name| CompareInput::find(name, args));
    let (base, other) = (base?, other?);
    if let Some(id) = other.ids().into_iter().find(|id| base.ids().contains(id)) {
        bail!("{} and {} both have {id}: name two that differ", base.name, other.name);
    }
    let [spreads, cycle_spreads] = &learn_spreads(&base, &other, &args.store)?;
    let threshold = args.shown.threshold;
    let request = ComparisonRequest {
        base: base.as_side(),
        other: other.as_side(),
        spread_histories: spreads,
        cycle_spread_histories: cycle_spreads,
        threshold,
    };
    let full_command = format!("kelvin compare {} {} --full", base.name, other.name);
    let ladder = |comparison: &Comparison| request.ladder(comparison);
    Ok(report_gate(&args.shown, &output.show(request.compare(), ladder, (&full_command, args.with_private))?))
}

/// One side, in memory.
struct CompareInput {
    name: String,
    /// None of a published machine.
    runs: Vec<Run>,
    /// A published machine, or what the run of another program is compared as.
    reference: Option<Reference>,
}

impl CompareInput {
    fn find(name: &OsStr, args: &CompareArgs) -> Result<Self, CliError> {
        let text = name.to_string_lossy().into_owned();
        let published = references().iter().find(|reference| reference.id == *text.as_str());
        let is_file = Path::new(name).is_file();
        let (runs, reference) = match (published, text.split_once("..")) {
            (Some(reference), _) if !is_file => (Vec::new(), Some(reference.clone())),
            (_, Some(bounds)) if !is_file => (read_range(&text, bounds, args)?, None),
            _ if text.starts_with(TAG_PREFIX) => (read_tagged(&text, args)?, None),
            _ => {
                let run = redacted(load_run(name, &args.store)?, args.with_private);
                let reference = foreign_reference(&run);
                (vec![run], reference)
            }
        };
        if let Some(run) = runs.iter().find(|run| run.is_kept_by_headlines()) {
            bail!(
                "{text}: {} was kept with --keep headlines, and a comparison needs samples: `kelvin history` follows its headlines",
                run.header.id
            );
        }
        Ok(Self { name: text, runs, reference })
    }

    fn as_side(&self) -> SideInput<'_> {
        let subject = match (&self.runs[..], &self.reference) {
            (runs, None) => ComparisonSubject::Runs(runs),
            ([run], Some(reference)) => ComparisonSubject::Foreign(run, reference),
            (_, Some(reference)) => ComparisonSubject::Published(reference),
        };
        SideInput { name: self.name.clone(), subject }
    }

    fn ids(&self) -> Vec<&str> {
        let published = self.reference.iter().filter(|_| self.runs.is_empty());
        self.runs
            .iter()
            .map(|run| run.header.id.as_str())
            .chain(published.map(|reference| reference.id.as_str()))
            .collect()
    }
}

/// A run without what is private of its machine, unless that is wanted.
fn redacted(mut run: Run, with_private: bool) -> Run {
    if !with_private {
        redact_machine(&mut run.header.machine);
    }
    run
}

/// The runs from one to another, both included, that repeat one another.
fn read_range(text: &str, (from, to): (&str, &str), args: &CompareArgs) -> Result<Vec<Run>, CliError> {
    let store = store_to_read(&args.store)?;
    let lines = store.list(&RunFilter::default())?;
    let position_of = |name: &str| {
        let id = store.find(name).context(text)?;
        let position = lines.iter().position(|line| line.id == id);
        position.ok_or_else(|| CliError::new(text, format!("{id} was deleted meanwhile")))
    };
    let (first, last) = (position_of(from)?, position_of(to)?);
    if first > last {
        bail!("{text}: {from} is later than {to}: a range goes from the older run to the newer one");
    }
    read_repeated(text, &lines[first..=last], (&store, args))
}

/// The runs with a tag that repeat one another.
fn read_tagged(text: &str, args: &CompareArgs) -> Result<Vec<Run>, CliError> {
    let store = store_to_read(&args.store)?;
    let ids = store.find_all(text)?;
    let mut lines = store.list(&RunFilter::default())?;
    lines.retain(|line| ids.contains(&line.id));
    read_repeated(text, &lines, (&store, args))
}

/// Of these runs the complete ones of the machine and in the mode of the last: those that repeat one another.
fn read_repeated(
    text: &str,
    lines: &[RunSummary],
    (store, args): (&Store, &CompareArgs),
) -> Result<Vec<Run>, CliError> {
    let Some(newest) = lines.last() else { bail!("{text}: its runs were deleted meanwhile") };
    let is_repetition = |line: &&RunSummary| {
        line.status == Some(RunStatus::Complete) && line.machine == newest.machine && line.mode == newest.mode
    };
    let ids: Vec<&str> = lines.iter().filter(is_repetition).map(|line| line.id.as_str()).collect();
    if ids.is_empty() {
        bail!("{text}: no run of it is complete");
    }
    if newest.mode == *FOREIGN_MODE {
        bail!("{text}: {} is a foreign run: such runs repeat no others, name one", newest.id);
    }
    if let (omitted @ 1.., runs, mode) = (lines.len() - ids.len(), lines.len(), &newest.mode) {
        notice!(
            "{text}: {omitted} of {runs} runs left out: interrupted, of another machine, or in another mode than {mode}"
        );
    }
    let load = |id| store.load(id).map(|run| redacted(run, args.with_private)).map_err(CliError::msg);
    ids.into_iter().map(load).collect()
}

/// The spread from run to run in the other runs of the store, where both sides are runs of one machine in one mode: of all figures, and
/// in core cycles of those that are a fixed number of them.
fn learn_spreads(
    base: &CompareInput,
    other: &CompareInput,
    store: &StoreArgs,
) -> Result<[Vec<SpreadHistory>; 2], CliError> {
    if base.reference.is_some() || other.reference.is_some() {
        return Ok(Default::default());
    }
    let runs: Vec<&Run> = base.runs.iter().chain(&other.runs).collect();
    let series = |run: &Run| (run.header.machine.identity.clone(), run.header.settings.mode);
    let (machine, mode) = series(runs[0]);
    let are_alike = runs.iter().all(|run| series(run) == (machine.clone(), mode));
    let Some(store) = open_existing_store(store)?.filter(|_| are_alike) else { return Ok(Default::default()) };
    let mut metrics: Vec<Metric> = Vec::new();
    for metric in runs.iter().flat_map(|run| &run.header.metrics) {
        if !metrics.contains(metric) {
            metrics.push(*metric);
        }
    }
    let compared_ids: Vec<&str> = runs.iter().map(|run| run.header.id.as_str()).collect();
    let filter = HistoryFilter { machine: &machine, mode: Some(&mode), excluded: &compared_ids };
    let cycle_metrics: Vec<Metric> = metrics.iter().copied().filter(Metric::is_core_cycle_time).collect();
    let histories = store.spread_history(&filter, &metrics, MAX_HISTORY_RUNS).and_then(|spreads| {
        Ok([spreads, store.spread_history_over(&filter, &cycle_metrics, Some(&STEADY_CHAIN), MAX_HISTORY_RUNS)?])
    });
    histories.context("cannot learn from other runs")
}
