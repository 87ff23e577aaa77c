//! `kelvin history`: the figures of a machine over its runs.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;

use kelvin_analysis::{
    HistoryInput, HistoryInputRun, HistoryInputSeries, STEADY_CHAIN, annotate_changes, fact_differences, new_changes,
};
use kelvin_core::{FactDifference, History, HistoryPoint, Metric, Name, OtherModeRuns, is_dotted_prefix, json};
use kelvin_harness::UnknownName;
use kelvin_machine::hardware_identity;
use kelvin_machine::redact::redact_machine;
use kelvin_report::history::{HistoryMarkdown, HistoryPage, HistoryTerminal};
use kelvin_store::{HistoryRunRow, MachineRuns, Store, StoredSeries, StoredValue};

use crate::cli::{HistoryArgs, HistoryFormat};
use crate::cli_error::{CliError, CmdResult};
use crate::output::{self, Outlet};
use crate::redact::without_private;
use crate::stores::open_existing_store;

/// Other machines that a place is told among, the ones measured last.
const MAX_OTHER_MACHINES: usize = 200;

/// `kelvin history`.
pub fn history(args: &HistoryArgs) -> CmdResult {
    let format = args.output.format();
    if args.full && format != HistoryFormat::Terminal {
        bail!("--full: every format but that of the terminal is in full: leave it out");
    }
    if args.alert.is_some() && !matches!(format, HistoryFormat::Terminal | HistoryFormat::Json) {
        bail!("--alert: is told as text or, with --json, as JSON: leave --format out");
    }
    if args.names.is_empty() && !args.all {
        bail!("name what to follow, such as os.syscall, or give --all");
    }
    let outlet = Outlet::find(args.output.path())?;
    let (store, records) = read_history(args)?;
    match args.alert {
        Some(least) => print_alerts(&store, &records, least, args),
        None => show(&store, records, outlet, args),
    }
}

/// The store, and what it has of what is asked for.
///
/// # Errors
/// A name of nothing, a machine or mode without runs, or a store that is not there or fails.
pub fn read_history(args: &HistoryArgs) -> Result<(Store, HistoryRecords), CliError> {
    let names = NameFilter::parse(&args.names)?;
    let store = open_existing_store(&args.store)?
        .ok_or_else(|| CliError::msg("there is no store yet: `kelvin run` makes one, or name one with --store FILE"))?;
    let MachineSelection { identity, cpu_model, identities, others, mode, other_modes } =
        MachineSelection::find(&store, &store.machines()?, args)?;
    // One more tells whether there are older ones.
    let limit = args.limit as usize;
    let mut runs = store.history_runs(&identities, &mode, limit + 1)?;
    let has_older = runs.len() > limit;
    runs.drain(..runs.len().saturating_sub(limit));
    let is_wanted = |metric: &str| names.selects(metric);
    let stored = store.series_values(&runs, &|metric: &str| STEADY_CHAIN.id == *metric || is_wanted(metric))?;
    let mut others = store.latest_values(&others, &mode, &is_wanted)?;
    let mut chains = vec![None; runs.len()];
    let of_chain =
        stored.iter().filter(|series| (series.metric, series.version) == (STEADY_CHAIN.id, STEADY_CHAIN.version));
    of_chain.flat_map(|series| &series.values).for_each(|value| chains[value.run] = Some(value.value));
    let mut series: Vec<HistoryInputSeries> = Vec::new();
    // The metrics as the newest run that has a value defines them, by run.
    let mut definitions: HashMap<usize, HashMap<Name, Metric>> = HashMap::new();
    for StoredSeries { metric, version, case, values } in stored {
        let Some(newest) = values.last().map(|last| last.run) else { continue };
        let defined = match definitions.entry(newest) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let metrics = store.header_of(&runs[newest].id)?.metrics;
                new.insert(metrics.into_iter().map(|metric| (metric.id, metric)).collect())
            }
        };
        // Some series are of what rounds took: no metric of a run.
        let Some(metric) = defined.get(&metric).copied() else { continue };
        let points = values.into_iter().map(|StoredValue { run, value }| HistoryPoint { run, value }).collect();
        let others = others.remove(&(metric.id, version, case.clone())).unwrap_or_default();
        match series.last_mut().filter(|last| last.metric.id == metric.id && last.case == case) {
            // Versions follow each other, the newest last.
            Some(last) => {
                last.versions.push((version, points));
                (last.metric, last.others) = (metric, others);
            }
            None => series.push(HistoryInputSeries { metric, case, versions: vec![(version, points)], others }),
        }
    }
    if series.is_empty() {
        let asked = if args.all { "any metric".into() } else { args.names.join(", ") };
        bail!("no {mode} run of this machine has a figure of {asked}");
    }
    let input_run = |(run, &chain): (&HistoryRunRow, &Option<f64>)| HistoryInputRun {
        id: run.id.clone(),
        started: run.started.clone(),
        chain,
    };
    let input_runs = runs.iter().zip(&chains).map(input_run).collect();
    let records = HistoryInput { machine: identity, cpu_model, mode, runs: input_runs, has_older, other_modes, series };
    Ok((store, HistoryRecords { runs, records }))
}

fn show(store: &Store, records: HistoryRecords, outlet: Outlet, args: &HistoryArgs) -> CmdResult {
    let since = args.since.map(|since| since.microseconds(now_us()));
    let first = since.map_or(0, |since| records.runs.partition_point(|run| run.started_us < since));
    if first == records.runs.len() {
        let newest = records.runs.last().map_or_else(String::new, |run| run.started.clone());
        bail!("--since: no run is that new: the newest is of {newest}");
    }
    let history = redacted_history(store, records.records.since_run(first).history(), args)?;
    let format = args.output.format();
    outlet.write_output(format == HistoryFormat::Terminal, |out: &mut dyn Write| match format {
        HistoryFormat::Terminal => {
            // The same command, in full.
            let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
            let more = format!("kelvin {} --full", words.collect::<Vec<String>>().join(" "));
            history_screen(args, &more).render(&history, out)
        }
        HistoryFormat::Html => HistoryPage.render(&history, out),
        HistoryFormat::Md => HistoryMarkdown.render(&history, out),
        HistoryFormat::Json => writeln!(out, "{}", json::to_string_pretty(&history)?),
    })?;
    Ok(true)
}

fn history_screen<'a>(args: &HistoryArgs, more: &'a str) -> HistoryTerminal<'a> {
    HistoryTerminal { width: output::width(), unicode: output::is_utf8_locale(), full: args.full, more }
}

/// Prints the series that became worse with the last runs, and nothing if there are none.
fn print_alerts(store: &Store, records: &HistoryRecords, least: f64, args: &HistoryArgs) -> CmdResult {
    let runs = &records.runs;
    let first = match args.since {
        Some(since) => runs.partition_point(|run| run.started_us < since.microseconds(now_us())),
        None => runs.len() - 1,
    };
    let before = records.records.before_run(first).history();
    let now = records.records.history();
    if new_changes(&now, &before, least).is_empty() {
        return Ok(true);
    }
    let now = redacted_history(store, now, args)?;
    let news = new_changes(&now, &before, least);
    match args.output.format() == HistoryFormat::Json {
        true => output::print_json(&news)?,
        false => output::print(|out| history_screen(args, "").render_news(&news, &now, out))?,
    }
    Ok(false)
}

/// A history with what else changed, without what is private.
///
/// # Errors
/// If the store fails, or a run of it is damaged.
pub fn redacted_history(store: &Store, mut history: History, args: &HistoryArgs) -> Result<History, CliError> {
    let ids: Vec<String> = history.runs.iter().map(|run| run.id.clone()).collect();
    annotate_changes(&mut history, |runs| -> Result<Vec<FactDifference>, CliError> {
        let mut headers = [store.header_of(&ids[runs[0]])?, store.header_of(&ids[runs[1]])?];
        if !args.with_private {
            headers.iter_mut().for_each(|header| redact_machine(&mut header.machine));
        }
        Ok(fact_differences(&headers[0], &headers[1]))
    })?;
    if args.with_private {
        return Ok(history);
    }
    // Its values, which may be millions, are no text and set aside meanwhile.
    let values: Vec<Vec<HistoryPoint>> = points_of(&mut history).map(std::mem::take).collect();
    let mut history = without_private(&history)?;
    points_of(&mut history).zip(values).for_each(|(points, values)| *points = values);
    Ok(history)
}

fn points_of(history: &mut History) -> impl Iterator<Item = &mut Vec<HistoryPoint>> {
    history.series.iter_mut().flat_map(|series| &mut series.versions).map(|version| &mut version.points)
}

/// Microseconds since 1970.
fn now_us() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

/// What names select.
struct NameFilter {
    /// The names; none selects all.
    names: Vec<String>,
    /// Metrics of the probes that they select.
    metrics: Vec<Name>,
}

impl NameFilter {
    /// Checks names.
    ///
    /// # Errors
    /// One that selects no probe and no metric.
    fn parse(names: &[String]) -> Result<Self, CliError> {
        let probes = kelvin_probes::all();
        let mut metrics = Vec::new();
        for name in names {
            let selected: Vec<_> = probes.iter().filter(|probe| probe.is_selected_by(name)).collect();
            if selected.is_empty() {
                return Err(CliError::msg(UnknownName::new(name, &probes)));
            }
            // A probe by its id selects all that it measures; a metric, or a leading part of metrics, only these.
            let by_id = selected.iter().filter(|probe| is_dotted_prefix(name, probe.id));
            metrics.extend(by_id.flat_map(|probe| probe.metrics.iter().map(|metric| metric.id)));
        }
        Ok(Self { names: names.to_vec(), metrics })
    }

    fn selects(&self, metric: &str) -> bool {
        self.names.is_empty()
            || self.metrics.iter().any(|known| known == metric)
            || self.names.iter().any(|name| is_dotted_prefix(name, metric))
    }
}

/// Identities of the machine that is looked at, of the others, and the mode.
struct MachineSelection {
    /// The identity of its newest run.
    identity: String,
    cpu_model: Option<String>,
    identities: Vec<String>,
    others: Vec<Vec<String>>,
    mode: String,
    other_modes: Vec<OtherModeRuns>,
}

impl MachineSelection {
    /// Finds the machine and the mode.
    ///
    /// # Errors
    /// A machine or mode without runs, or a name of several machines.
    fn find(store: &Store, machines: &[MachineRuns], args: &HistoryArgs) -> Result<Self, CliError> {
        if machines.is_empty() {
            bail!(
                "no complete run in {} has figures that later runs can be compared with: `kelvin run` makes one",
                store.name()
            );
        }
        let by_hardware = hardware_by_identity(store, machines)?;
        let wanted = match &args.machine {
            Some(asked) => find_hardware(asked, machines, &by_hardware)?,
            None => hardware_identity(&kelvin_machine::read(std::path::Path::new("/"))),
        };
        let of = |one: &MachineRuns| by_hardware[&one.machine] == wanted;
        let Some(newest) = machines.iter().find(|one| of(one)) else {
            let known: Vec<&str> = machines.iter().map(|one| one.machine.get(..8).unwrap_or(&one.machine)).collect();
            bail!("the store has no run of this machine: name one of {} with --machine", first_sorted(known));
        };
        let mut modes: BTreeMap<&str, usize> = BTreeMap::new();
        machines.iter().filter(|one| of(one)).for_each(|one| *modes.entry(&one.mode).or_default() += one.runs);
        let most = modes.iter().max_by_key(|(_, runs)| **runs).map_or("", |(mode, _)| mode);
        let mode = args.mode.as_deref().unwrap_or(most);
        if !modes.contains_key(mode) {
            let known: Vec<&str> = modes.keys().copied().collect();
            bail!("--mode: this machine has no runs in mode {mode}; it has {}", first_sorted(known));
        }
        let identities: Vec<String> = machines.iter().filter(|one| of(one)).map(|one| one.machine.clone()).collect();
        let other_modes = modes.iter().filter(|(other, _)| **other != mode);
        Ok(Self {
            identity: newest.machine.clone(),
            cpu_model: newest.cpu_model.clone(),
            identities,
            others: other_machines(machines, &by_hardware, &wanted),
            mode: mode.to_owned(),
            other_modes: other_modes.map(|(mode, &runs)| OtherModeRuns { mode: (*mode).to_owned(), runs }).collect(),
        })
    }
}

/// The hardware of each identity: an upgraded kernel gives a machine another identity, and its history goes on.
fn hardware_by_identity(store: &Store, machines: &[MachineRuns]) -> Result<HashMap<String, String>, CliError> {
    let mut known: HashMap<String, String> = HashMap::new();
    for one in machines {
        if !known.contains_key(&one.machine) {
            let outline = store.header_of(&one.newest)?;
            known.insert(one.machine.clone(), hardware_identity(&outline.machine));
        }
    }
    Ok(known)
}

/// The identities of each machine with other hardware, those measured last.
fn other_machines(machines: &[MachineRuns], by_hardware: &HashMap<String, String>, but: &str) -> Vec<Vec<String>> {
    let mut others: Vec<(&str, Vec<String>)> = Vec::new();
    for one in machines.iter().filter(|one| by_hardware[&one.machine] != but) {
        let hardware = by_hardware[&one.machine].as_str();
        match others.iter_mut().find(|(known, _)| *known == hardware) {
            Some((_, identities)) => identities.push(one.machine.clone()),
            None => others.push((hardware, vec![one.machine.clone()])),
        }
    }
    others.into_iter().take(MAX_OTHER_MACHINES).map(|(_, identities)| identities).collect()
}

/// The hardware of the machine with an identity, or the beginning of one.
fn find_hardware(
    asked: &str,
    machines: &[MachineRuns],
    by_hardware: &HashMap<String, String>,
) -> Result<String, CliError> {
    let fitting: Vec<&str> =
        machines.iter().map(|one| one.machine.as_str()).filter(|one| one.starts_with(asked)).collect();
    let mut hardware: Vec<&String> = fitting.iter().map(|&one| &by_hardware[one]).collect();
    hardware.sort_unstable();
    hardware.dedup();
    match hardware[..] {
        [one] if !asked.is_empty() => Ok(one.clone()),
        [] => bail!(
            "--machine: no machine in the store has an identity that begins with {asked}: `kelvin runs list` shows them"
        ),
        _ => bail!("--machine: {asked} could be {}: give more of it", first_sorted(fitting)),
    }
}

/// The first few of some names, each once.
fn first_sorted(names: Vec<&str>) -> String {
    let names = BTreeSet::from_iter(names);
    output::first_names(names.into_iter())
}

/// What was read.
pub struct HistoryRecords {
    runs: Vec<HistoryRunRow>,
    /// What a history is made of.
    pub records: HistoryInput,
}
