//! `kelvin compare`: what differs between two runs, or ranges of runs, or a run and a published machine.

use std::ffi::OsStr;
use std::path::Path;

use kelvin_analysis::reference::foreign;
use kelvin_analysis::{Compare, STEADY_CHAIN, SideOf, Subject, references};
use kelvin_machine::private::leave_out;
use kelvin_model::{FOREIGN_MODE, Learned, Metric, Reference, Run, RunStatus};
use kelvin_store::{Filter, Kin, RunLine, Store, TAG_PREFIX};

use crate::cli::{CompareArgs, StoreArgs};
use crate::commands::report::run_of;
use crate::commands::shown::{Showing, Shown};
use crate::commands::{existing_store, store_to_read};
use crate::fault::{Done, Fault};
use crate::measure::LEARN_FROM;
use crate::output;

/// `kelvin compare`.
pub fn compare(args: &CompareArgs) -> Done {
    let shown = Shown::of(&args.shown)?;
    let [base, other] = [&args.base, &args.other].map(|name| Side::find(name, args));
    let (base, other) = (base?, other?);
    refuse_the_same(&base, &other)?;
    let [learned, learned_in_cycles] = &learned(&base, &other, &args.store)?;
    let threshold = args.shown.threshold;
    let ask = Compare { base: base.as_asked(), other: other.as_asked(), learned, learned_in_cycles, threshold };
    let more = format!("kelvin compare {} {} --full", base.name, other.name);
    let of = Showing { comparison: ask.compare(), ladder: &|comparison| ask.ladder(comparison), more: &more };
    Ok(shown.show(of, args.with_private)?.judged())
}

/// One side, in memory.
struct Side {
    name: String,
    of: Found,
}

enum Found {
    Runs(Vec<Run>),
    Published(&'static Reference),
    /// A run that another program made.
    Foreign(Box<(Run, Reference)>),
}

impl Found {
    fn of(run: Run) -> Self {
        match foreign(&run) {
            Some(reference) => Self::Foreign(Box::new((run, reference))),
            None => Self::Runs(vec![run]),
        }
    }
}

impl Side {
    fn find(name: &OsStr, args: &CompareArgs) -> Result<Self, Fault> {
        let text = name.to_string_lossy().into_owned();
        let published = || references().iter().find(|reference| reference.id == *text.as_str());
        let of = match published().filter(|_| !Path::new(name).is_file()) {
            Some(reference) => Found::Published(reference),
            None => match text.split_once("..").filter(|_| !Path::new(name).is_file()) {
                Some(ends) => Found::Runs(read_range(&text, ends, args)?),
                None if text.starts_with(TAG_PREFIX) => Found::Runs(read_tagged(&text, args)?),
                None => Found::of(read(name, &args.store, args.with_private)?),
            },
        };
        Ok(Self { name: text, of })
    }

    fn as_asked(&self) -> SideOf<'_> {
        let of = match &self.of {
            Found::Runs(runs) => Subject::Runs(runs),
            Found::Published(reference) => Subject::Published(reference),
            Found::Foreign(of) => Subject::Foreign(&of.0, &of.1),
        };
        SideOf { name: self.name.clone(), of }
    }

    fn ids(&self) -> Vec<&str> {
        match &self.of {
            Found::Runs(runs) => runs.iter().map(|run| run.outline.id.as_str()).collect(),
            Found::Published(reference) => vec![reference.id.as_str()],
            Found::Foreign(of) => vec![of.0.outline.id.as_str()],
        }
    }
}

/// A run without what is private of its machine.
fn read(name: &OsStr, store: &StoreArgs, with_private: bool) -> Result<Run, Fault> {
    run_of(name, store).map(|run| told(run, with_private))
}

fn told(mut run: Run, with_private: bool) -> Run {
    if !with_private {
        leave_out(&mut run.outline.machine);
    }
    run
}

/// The runs from one to another, both included, that repeat one another.
fn read_range(text: &str, (from, to): (&str, &str), args: &CompareArgs) -> Result<Vec<Run>, Fault> {
    let store = store_to_read(&args.store)?;
    let lines = store.list(&Filter::default()).map_err(Fault::because)?;
    let place = |name: &str| {
        let id = store.find(name).map_err(|error| Fault::new(text, error))?;
        let place = lines.iter().position(|line| line.id == id);
        place.ok_or_else(|| Fault::new(text, format!("{id} was deleted meanwhile")))
    };
    let (first, last) = (place(from)?, place(to)?);
    if first > last {
        return Err(Fault::new(
            text,
            format!("{from} is later than {to}: a range goes from the older run to the newer one"),
        ));
    }
    read_repeated(text, &lines[first..=last], (&store, args))
}

/// The runs with a tag that repeat one another.
fn read_tagged(text: &str, args: &CompareArgs) -> Result<Vec<Run>, Fault> {
    let store = store_to_read(&args.store)?;
    let ids = store.find_all(text).map_err(Fault::because)?;
    let mut lines = store.list(&Filter::default()).map_err(Fault::because)?;
    lines.retain(|line| ids.contains(&line.id));
    read_repeated(text, &lines, (&store, args))
}

/// Of these runs the complete ones of the machine and in the mode of the last: those that repeat one another.
fn read_repeated(text: &str, lines: &[RunLine], (store, args): (&Store, &CompareArgs)) -> Result<Vec<Run>, Fault> {
    let Some(newest) = lines.last() else { return Err(Fault::new(text, "its runs were deleted meanwhile")) };
    let repeats = |line: &&RunLine| {
        line.status == Some(RunStatus::Complete) && line.machine == newest.machine && line.mode == newest.mode
    };
    let ids: Vec<&str> = lines.iter().filter(repeats).map(|line| line.id.as_str()).collect();
    if ids.is_empty() {
        return Err(Fault::new(text, "no run of it is complete"));
    }
    if newest.mode == *FOREIGN_MODE {
        return Err(Fault::new(text, format!("{} is a foreign run: such runs repeat no others, name one", newest.id)));
    }
    let left_out = lines.len() - ids.len();
    if left_out > 0 {
        output::remark(format_args!(
            "kelvin: {text}: {left_out} of {} runs left out: interrupted, of another machine, or in another mode than {}",
            lines.len(),
            newest.mode
        ));
    }
    let load = |id| store.load(id).map(|run| told(run, args.with_private)).map_err(Fault::because);
    ids.into_iter().map(load).collect()
}

/// What the other runs in the store say of the spread from run to run, where both sides are runs of one machine in one mode: of figures as
/// they are, and in core cycles of those that are a fixed number of them.
fn learned(base: &Side, other: &Side, store: &StoreArgs) -> Result<[Vec<Learned>; 2], Fault> {
    let (Found::Runs(before), Found::Runs(after)) = (&base.of, &other.of) else { return Ok(Default::default()) };
    let runs: Vec<&Run> = before.iter().chain(after).collect();
    let of = |run: &Run| (run.outline.machine.identity.clone(), run.outline.settings.mode);
    let (machine, mode) = of(runs[0]);
    let Some(store) = existing_store(store)?.filter(|_| runs.iter().all(|run| of(run) == (machine.clone(), mode)))
    else {
        return Ok(Default::default());
    };
    let mut metrics: Vec<Metric> = Vec::new();
    for metric in runs.iter().flat_map(|run| &run.outline.metrics) {
        if !metrics.contains(metric) {
            metrics.push(*metric);
        }
    }
    let compared: Vec<&str> = runs.iter().map(|run| run.outline.id.as_str()).collect();
    let kin = Kin { machine: &machine, mode: Some(&mode), but: &compared };
    let of_cycles: Vec<Metric> = metrics.iter().copied().filter(Metric::is_of_core_cycles).collect();
    let learned = store
        .learned(&kin, &metrics, LEARN_FROM)
        .and_then(|as_they_are| Ok([as_they_are, store.learned_over(&kin, &of_cycles, &STEADY_CHAIN, LEARN_FROM)?]));
    learned.map_err(|error| Fault::new("cannot learn from other runs", error))
}

/// Nothing is compared with itself.
fn refuse_the_same(base: &Side, other: &Side) -> Result<(), Fault> {
    let known = base.ids();
    match other.ids().into_iter().find(|id| known.contains(id)) {
        Some(id) => {
            Err(Fault::because(format!("{} and {} both have {id}: name two that differ", base.name, other.name)))
        }
        None => Ok(()),
    }
}
