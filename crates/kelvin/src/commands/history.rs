//! `kelvin history`: the figures of a machine over its runs.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;

use jiff::Timestamp;
use kelvin_analysis::{
    HistoryInput, HistoryInputRun, HistoryInputSeries, STEADY_CHAIN, annotate_changes, fact_differences, new_changes,
};
use kelvin_core::identifiers::short_hash;
use kelvin_core::{FactDifference, History, HistoryPoint, Metric, Name, OtherModeRuns, is_dotted_prefix, json};
use kelvin_harness::UnknownName;
use kelvin_machine::hardware_identity;
use kelvin_machine::redact::redact_machine;
use kelvin_report::history::{HistoryTerminal, write_markdown, write_page};
use kelvin_store::{HistoryRunRow, MachineRuns, Store, StoredSeries};

use crate::cli::{HistoryArgs, HistoryFormat};
use crate::cli_error::{CliError, CmdResult};
use crate::locale;
use crate::output::{self, Outlet};
use crate::redact::without_private;
use crate::stores::open_existing_store;

/// Other machines that a machine is ranked among: the ones measured last.
const MAX_OTHER_MACHINES: usize = 200;

/// `kelvin history`.
pub fn history(args: &HistoryArgs) -> CmdResult {
    let format = args.output.format();
    if args.full && format != HistoryFormat::Terminal {
        bail!("--full: every format but that of the terminal is in full: leave it out");
    }
    if args.alert.is_some() && !matches!(format, HistoryFormat::Terminal | HistoryFormat::Json) {
        bail!("--alert: is printed as text or, with --json, as JSON: leave --format out");
    }
    if args.names.is_empty() && !args.all {
        bail!("name what to follow, such as os.syscall, or give --all");
    }
    let outlet = Outlet::find(args.output.path())?;
    let (store, records) = read_history(args)?;
    match args.alert {
        Some(threshold) => print_alerts(&store, &records, threshold, args),
        None => show(&store, records, outlet, args).map(|()| true),
    }
}

/// The store, and what it has of what is asked for.
///
/// # Errors
/// A name of nothing, a machine or mode without runs, or a store that is not there or fails.
pub fn read_history(args: &HistoryArgs) -> Result<(Store, HistoryInput), CliError> {
    let names = NameFilter::parse(&args.names)?;
    let store = open_existing_store(&args.store)?
        .ok_or_else(|| CliError::msg("there is no store yet: `kelvin run` makes one, or name one with --store FILE"))?;
    let MachineSelection { identity, cpu_model, identities, other_identities, mode, other_modes } =
        MachineSelection::find(&store, args)?;
    // One more shows whether there are older ones.
    let limit = args.limit as usize;
    let mut runs = store.history_runs(&identities, &mode, limit + 1)?;
    let has_older = runs.len() > limit;
    runs.drain(..runs.len().saturating_sub(limit));
    let is_selected = |metric: &str| names.selects(metric);
    let stored_series =
        store.series_values(&runs, &|metric: &str| STEADY_CHAIN.id == *metric || is_selected(metric))?;
    let mut latest_values = store.latest_values(&other_identities, &mode, &is_selected)?;
    let input_run =
        |run: &HistoryRunRow| HistoryInputRun { id: run.id.clone(), started: run.started.clone(), chain: None };
    let mut input_runs: Vec<HistoryInputRun> = runs.iter().map(input_run).collect();
    let chain_series = stored_series
        .iter()
        .filter(|series| (series.metric, series.version) == (STEADY_CHAIN.id, STEADY_CHAIN.version));
    chain_series.flat_map(|series| &series.values).for_each(|value| input_runs[value.run].chain = Some(value.value));
    let mut series: Vec<HistoryInputSeries> = Vec::new();
    // The metrics as the newest run that has a value defines them, by run.
    let mut definitions: HashMap<usize, HashMap<Name, Metric>> = HashMap::new();
    for StoredSeries { metric, version, case, values } in stored_series {
        let Some(newest) = values.last().map(|last| last.run) else { continue };
        let run_definitions = match definitions.entry(newest) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(new) => {
                let metrics = store.header_of(&runs[newest].id)?.metrics;
                new.insert(metrics.into_iter().map(|metric| (metric.id, metric)).collect())
            }
        };
        // Some series are of what rounds took: no metric of a run.
        let Some(metric) = run_definitions.get(&metric).copied() else { continue };
        let peer_values = latest_values.remove(&(metric.id, version, case.clone())).unwrap_or_default();
        match series.last_mut().filter(|last| last.metric.id == metric.id && last.case == case) {
            // Versions follow each other, the newest last.
            Some(last) => {
                last.versions.push((version, values));
                (last.metric, last.peer_values) = (metric, peer_values);
            }
            None => series.push(HistoryInputSeries { metric, case, versions: vec![(version, values)], peer_values }),
        }
    }
    if series.is_empty() {
        let requested = if args.all { "any metric".into() } else { args.names.join(", ") };
        bail!("no {mode} run of this machine has a figure of {requested}");
    }
    let records = HistoryInput { machine: identity, cpu_model, mode, runs: input_runs, has_older, other_modes, series };
    Ok((store, records))
}

fn show(store: &Store, records: HistoryInput, outlet: Outlet, args: &HistoryArgs) -> Result<(), CliError> {
    let first = first_run_since(&records, args).unwrap_or(0);
    if first == records.runs.len() {
        let newest = records.runs.last().map_or_else(String::new, |run| run.started.clone());
        bail!("--since: no run is that new: the newest is of {newest}");
    }
    let history = redacted_history(store, records.since_run(first).history(), args)?;
    let format = args.output.format();
    outlet.write_output(format == HistoryFormat::Terminal, |out: &mut dyn Write| match format {
        HistoryFormat::Terminal => {
            // The same command, in full.
            let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
            let command = format!("kelvin {} --full", words.collect::<Vec<String>>().join(" "));
            history_screen(args, &command).render(&history, out)
        }
        HistoryFormat::Html => write_page(&history, out),
        HistoryFormat::Md => write_markdown(&history, out),
        HistoryFormat::Json => writeln!(out, "{}", json::to_string_pretty(&history)?),
    })
}

/// The index of the first run since the time that was asked for.
fn first_run_since(records: &HistoryInput, args: &HistoryArgs) -> Option<usize> {
    let since = args.since?;
    let is_before = |run: &HistoryInputRun| run.started.parse::<Timestamp>().is_ok_and(|started| started < since);
    Some(records.runs.partition_point(is_before))
}

fn history_screen<'a>(args: &HistoryArgs, full_command: &'a str) -> HistoryTerminal<'a> {
    HistoryTerminal { width: output::width(), unicode: locale::is_utf8(), show_all: args.full, full_command }
}

/// Prints the series that became worse with the last runs, and nothing if there are none.
fn print_alerts(store: &Store, records: &HistoryInput, threshold: f64, args: &HistoryArgs) -> CmdResult {
    let first = first_run_since(records, args).unwrap_or(records.runs.len() - 1);
    let previous = records.before_run(first).history();
    let history = records.history();
    if new_changes(&history, &previous, threshold).is_empty() {
        return Ok(true);
    }
    let redacted = redacted_history(store, history, args)?;
    let changes = new_changes(&redacted, &previous, threshold);
    match args.output.format() {
        HistoryFormat::Json => output::print_json(&changes)?,
        _ => output::print(|out| history_screen(args, "").render_news(&changes, &redacted, out))?,
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
            let selected_probes: Vec<_> = probes.iter().filter(|probe| probe.is_selected_by(name)).collect();
            if selected_probes.is_empty() {
                return Err(CliError::msg(UnknownName::new(name, &probes)));
            }
            // A probe by its id selects all that it measures; a metric, or a leading part of metrics, only these.
            let probes_by_id = selected_probes.iter().filter(|probe| is_dotted_prefix(name, probe.id));
            metrics.extend(probes_by_id.flat_map(|probe| probe.metrics.iter().map(|metric| metric.id)));
        }
        Ok(Self { names: names.to_vec(), metrics })
    }

    fn selects(&self, metric: &str) -> bool {
        self.names.is_empty()
            || self.metrics.iter().any(|id| id == metric)
            || self.names.iter().any(|name| is_dotted_prefix(name, metric))
    }
}

/// Identities of the machine that is looked at, of the others, and the mode.
struct MachineSelection {
    /// The identity of its newest run.
    identity: String,
    cpu_model: Option<String>,
    identities: Vec<String>,
    other_identities: Vec<Vec<String>>,
    mode: String,
    other_modes: Vec<OtherModeRuns>,
}

impl MachineSelection {
    /// Finds the machine and the mode.
    ///
    /// # Errors
    /// A machine or mode without runs, or a name of several machines.
    fn find(store: &Store, args: &HistoryArgs) -> Result<Self, CliError> {
        let mut groups = group_by_hardware(store, store.machines()?)?;
        if groups.is_empty() {
            bail!(
                "no complete run in {} has figures that later runs can be compared with: `kelvin run` makes one",
                store.name()
            );
        }
        let (_, machine) = groups.remove(find_machine(&groups, args.machine.as_deref())?);
        let mut modes: BTreeMap<&str, usize> = BTreeMap::new();
        machine.iter().for_each(|runs| *modes.entry(&runs.mode).or_default() += runs.runs);
        let frequent_mode = modes.iter().max_by_key(|(_, runs)| **runs).map_or("", |(mode, _)| mode);
        let mode = args.mode.as_deref().unwrap_or(frequent_mode).to_owned();
        if !modes.contains_key(mode.as_str()) {
            bail!("--mode: this machine has no runs in mode {mode}; it has {}", first_sorted_names(modes.into_keys()));
        }
        let other_modes = modes.iter().filter(|(name, _)| **name != mode);
        let identities = |group: &[MachineRuns]| group.iter().map(|runs| runs.machine.clone()).collect();
        Ok(Self {
            identity: machine[0].machine.clone(),
            cpu_model: machine[0].cpu_model.clone(),
            identities: identities(&machine),
            other_identities: groups.iter().take(MAX_OTHER_MACHINES).map(|(_, group)| identities(group)).collect(),
            other_modes: other_modes.map(|(mode, &runs)| OtherModeRuns { mode: (*mode).to_owned(), runs }).collect(),
            mode,
        })
    }
}

/// A machine by its hardware, with its runs under each identity and in each mode, the newest first.
type HardwareRuns = (String, Vec<MachineRuns>);

/// The machines, the ones measured last first. An upgraded kernel gives a machine another identity, and its history goes on.
fn group_by_hardware(store: &Store, machines: Vec<MachineRuns>) -> Result<Vec<HardwareRuns>, CliError> {
    let mut groups: Vec<HardwareRuns> = Vec::new();
    for runs in machines {
        let has_identity = |(_, group): &HardwareRuns| group.iter().any(|member| member.machine == runs.machine);
        let index = match groups.iter().position(has_identity) {
            Some(index) => index,
            None => {
                let hardware = hardware_identity(&store.header_of(&runs.newest)?.machine);
                groups.iter().position(|(group_hardware, _)| *group_hardware == hardware).unwrap_or_else(|| {
                    groups.push((hardware, Vec::new()));
                    groups.len() - 1
                })
            }
        };
        groups[index].1.push(runs);
    }
    Ok(groups)
}

/// The index of this machine, or of that with an identity which begins with a text.
fn find_machine(groups: &[HardwareRuns], beginning: Option<&str>) -> Result<usize, CliError> {
    let Some(beginning) = beginning else {
        let own_hardware = hardware_identity(&kelvin_machine::read(std::path::Path::new("/")));
        return groups.iter().position(|(hardware, _)| *hardware == own_hardware).ok_or_else(|| {
            let list = first_sorted_names(identities(groups).map(short_hash));
            CliError::msg(format!("the store has no run of this machine: name one of {list} with --machine"))
        });
    };
    let is_match = |identity: &&str| identity.starts_with(beginning);
    let candidates: Vec<usize> = (0..groups.len())
        .filter(|&index| identities(&groups[index..=index]).any(|identity| is_match(&identity)))
        .collect();
    match candidates[..] {
        [index] if !beginning.is_empty() => Ok(index),
        [] => bail!(
            "--machine: no machine in the store has an identity that begins with {beginning}: `kelvin runs list` shows them"
        ),
        _ => {
            bail!(
                "--machine: {beginning} could be {}: give more of it",
                first_sorted_names(identities(groups).filter(is_match))
            )
        }
    }
}

fn identities(groups: &[HardwareRuns]) -> impl Iterator<Item = &str> {
    groups.iter().flat_map(|(_, group)| group).map(|runs| runs.machine.as_str())
}

/// The first few of some names, each once.
fn first_sorted_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    output::first_names(BTreeSet::from_iter(names).into_iter())
}
