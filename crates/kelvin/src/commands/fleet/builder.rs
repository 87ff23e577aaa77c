//! From runs of a store and of files to the hosts that they are of, with one headline of each series and run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::sync::Arc;

use jiff::Timestamp;
use kelvin_core::identifiers::short_hash;
use kelvin_core::{Case, IndirectSort, Machine, Metric, NODE_TAG, Name, StoredHeadline};
use kelvin_fleet::{FleetInput, HostInput, SeriesInput};
use kelvin_machine::redact::redact_machine;
use kelvin_store::{FleetRun, RunSelection, Store, TAG_PREFIX, Tag};

use super::files::{FileRun, read_run, run_files};
use crate::cli::StoreArgs;
use crate::cli_error::{CliError, Context};
use crate::stores::open_existing_store;

/// Modes of runs that are no picture of a host.
const OTHER_MODES: [&str; 3] = ["study", "selfcheck", "foreign"];

/// Hosts as they are compared.
pub struct Fleet {
    pub input: FleetInput,
    /// The hosts that others are accepted against.
    pub is_reference: Vec<bool>,
    pub mode: String,
    pub notes: Vec<String>,
}

/// Reads runs.
pub struct FleetBuilder<'a> {
    store_args: &'a StoreArgs,
    with_private: bool,
    store: Option<Store>,
    /// By id.
    store_runs: BTreeMap<String, FleetRun>,
    /// By path: copies of a run that were made other hosts' may have one id.
    file_runs: BTreeMap<String, FileRun>,
    /// Files of runs that were left out, since they are not complete.
    omitted_files: usize,
}

/// A run of either source.
struct RunRecord {
    /// Its id in a store, or the path of its file.
    id: String,
    started_us: i64,
    machine: String,
    mode: String,
}

/// What is known of a machine by its newest run.
struct MachineRecord {
    machine: Machine,
    metrics: Arc<[Metric]>,
    tags: BTreeMap<String, String>,
    started_us: i64,
}

impl<'a> FleetBuilder<'a> {
    pub fn new(store_args: &'a StoreArgs, with_private: bool) -> Self {
        let (store_runs, file_runs) = Default::default();
        Self { store_args, with_private, store: None, store_runs, file_runs, omitted_files: 0 }
    }

    /// Reads the runs of names, or all of the store if there is none; returns their ids or paths.
    ///
    /// # Errors
    /// A name of no run, a file that is none, or a store that is not there or fails.
    pub fn read(&mut self, names: &[OsString]) -> Result<BTreeSet<String>, CliError> {
        let mut ids = BTreeSet::new();
        if names.is_empty() {
            self.read_stored(&RunSelection::All, &mut ids)?;
        }
        for name in names {
            match run_files(name)? {
                Some(files) => {
                    for file in files {
                        match read_run(&file)? {
                            Some(file_run) => {
                                let path = file.to_string_lossy().into_owned();
                                ids.insert(path.clone());
                                self.file_runs.insert(path, file_run);
                            }
                            None => self.omitted_files += 1,
                        }
                    }
                }
                None => {
                    let selection = self.selection(&name.to_string_lossy())?;
                    self.read_stored(&selection, &mut ids)?;
                }
            }
        }
        Ok(ids)
    }

    /// The runs of a store that a name means.
    fn selection(&mut self, name: &str) -> Result<RunSelection, CliError> {
        if name.starts_with(TAG_PREFIX) {
            let tag = Tag::parse_selector(name)?;
            // It has the prefix.
            return Ok(tag.map_or(RunSelection::All, RunSelection::Tag));
        }
        let store = self.store()?;
        let (first, last) = name.split_once("..").unwrap_or((name, name));
        let [first, last] = [first, last].map(|id| store.find(id).context(name));
        Ok(RunSelection::Range(first?, last?))
    }

    fn store(&mut self) -> Result<&Store, CliError> {
        if self.store.is_none() {
            let store = open_existing_store(self.store_args)?.ok_or_else(|| {
                CliError::msg("there is no store yet: `kelvin run` makes one, or name a directory of exported runs")
            })?;
            self.store = Some(store);
        }
        Ok(self.store.as_ref().expect("it was just opened"))
    }

    fn read_stored(&mut self, selection: &RunSelection, ids: &mut BTreeSet<String>) -> Result<(), CliError> {
        let store = self.store()?;
        let runs = store.fleet_runs(selection)?;
        if runs.is_empty() {
            let what = match selection {
                RunSelection::All => "no complete run".to_owned(),
                RunSelection::Tag(tag) => format!("tag:{tag}: no complete run with this tag"),
                RunSelection::Range(first, last) => format!("{first}..{last}: no complete run"),
            };
            bail!("{what} in {} has figures that hosts can be compared by", store.name());
        }
        ids.extend(runs.iter().map(|run| run.id.clone()));
        self.store_runs.extend(runs.into_iter().map(|run| (run.id.clone(), run)));
        Ok(())
    }

    /// The hosts of the runs with these ids: those that are tested, and those that they are accepted against. Of a host that is both, only
    /// the latter runs count.
    ///
    /// # Errors
    /// A mode that no run has, or a store that fails.
    pub fn build(
        mut self,
        (tested, reference): (&BTreeSet<String>, &BTreeSet<String>),
        mode: Option<&str>,
    ) -> Result<Fleet, CliError> {
        let mut notes = Vec::new();
        let records = self.records();
        let mode = choose_mode(&records, mode)?;
        let total = records.len();
        let mut runs: Vec<RunRecord> = records.into_iter().filter(|run| run.mode == mode).collect();
        if let omitted @ 1.. = total - runs.len() {
            notes.push(format!("{} left out: in other modes than {mode}", run_count(omitted)));
        }
        if self.omitted_files > 0 {
            notes.push(format!(
                "{} of files left out: interrupted, or of another program",
                run_count(self.omitted_files)
            ));
        }
        let machines = self.machine_records(&runs)?;
        let host_of = |run: &RunRecord| host_key(&run.machine, &machines[&run.machine].machine);
        let reference_hosts: BTreeSet<String> =
            runs.iter().filter(|run| reference.contains(&run.id)).map(host_of).collect();
        runs.retain(|run| match reference_hosts.contains(&host_of(run)) {
            true => reference.contains(&run.id),
            false => tested.contains(&run.id),
        });
        let mut by_host: BTreeMap<String, Vec<RunRecord>> = BTreeMap::new();
        runs.into_iter().for_each(|run| by_host.entry(host_of(&run)).or_default().push(run));
        let without_id =
            by_host.values().filter(|runs| machines[&runs[0].machine].machine.platform.host.get().is_none());
        if let hosts @ 1.. = without_id.count() {
            let hosts = if hosts == 1 { "1 host has".to_owned() } else { format!("{hosts} hosts have") };
            notes.push(format!("{hosts} no host id: alike machines among them count as one host, with all their runs"));
        }
        let (hosts, ordered) = hosts_of(by_host, &machines);
        let is_reference = ordered.iter().map(|(key, _)| reference_hosts.contains(key)).collect();
        let run_hosts: Vec<u32> =
            ordered.iter().enumerate().flat_map(|(host, (_, runs))| runs.iter().map(move |_| host as u32)).collect();
        let ids: Vec<&str> = ordered.iter().flat_map(|(_, runs)| runs.iter().map(|run| run.id.as_str())).collect();
        let series = self.series(&ids, &newest_metrics(machines))?;
        Ok(Fleet { input: FleetInput { hosts, run_hosts, series }, is_reference, mode, notes })
    }

    fn records(&self) -> Vec<RunRecord> {
        let stored = self.store_runs.values().map(|run| RunRecord {
            id: run.id.clone(),
            started_us: run.started_us,
            machine: run.machine.clone(),
            mode: run.mode.clone(),
        });
        let of_files = self.file_runs.iter().map(|(path, FileRun { run, .. })| RunRecord {
            id: path.clone(),
            started_us: run.header.started.parse::<Timestamp>().map_or(0, Timestamp::as_microsecond),
            machine: run.header.machine.identity.clone(),
            mode: run.header.settings.mode.to_string(),
        });
        let is_in_file = |run: &RunRecord| {
            let mut headers = self.file_runs.values().map(|file_run| &file_run.run.header);
            headers.any(|header| header.id == run.id && header.machine.identity == run.machine)
        };
        let stored = stored.filter(|run| !is_in_file(run));
        let mut records: Vec<RunRecord> =
            stored.chain(of_files).filter(|run| !OTHER_MODES.contains(&run.mode.as_str())).collect();
        records.indirect_sort_by(|a, b| (a.started_us, &a.id).cmp(&(b.started_us, &b.id)));
        records
    }

    /// What the newest run of each machine identity says of it: one header of each is read.
    fn machine_records(&mut self, runs: &[RunRecord]) -> Result<HashMap<String, MachineRecord>, CliError> {
        let newest: BTreeMap<&str, &RunRecord> = runs.iter().map(|run| (run.machine.as_str(), run)).collect();
        let mut records = HashMap::new();
        let mut stored: Vec<(&RunRecord, FleetRun)> = Vec::new();
        for (identity, run) in newest {
            if let Some(file_run) = self.file_runs.get(&run.id) {
                let header = &file_run.run.header;
                let record = MachineRecord {
                    machine: self.redacted(header.machine.clone()),
                    metrics: header.metrics.as_slice().into(),
                    tags: file_run.run.labels.tags.clone(),
                    started_us: run.started_us,
                };
                records.insert(identity.to_owned(), record);
            } else if let Some(store_run) = self.store_runs.get(&run.id) {
                stored.push((run, store_run.clone()));
            }
        }
        if let Some(store) = self.store.as_ref().filter(|_| !stored.is_empty()) {
            let store_runs: Vec<&FleetRun> = stored.iter().map(|(_, run)| run).collect();
            for ((run, _), header) in stored.iter().zip(store.fleet_headers(&store_runs)?) {
                let record = MachineRecord {
                    machine: self.redacted(header.machine),
                    metrics: header.metrics,
                    tags: header.tags.into_iter().collect(),
                    started_us: run.started_us,
                };
                records.insert(run.machine.clone(), record);
            }
        }
        Ok(records)
    }

    fn redacted(&self, mut machine: Machine) -> Machine {
        if !self.with_private {
            redact_machine(&mut machine);
        }
        machine
    }

    /// The headlines of runs in this order.
    fn series(&self, ids: &[&str], metrics: &BTreeMap<Name, Metric>) -> Result<Vec<SeriesInput>, CliError> {
        let mut series: BTreeMap<(Name, Case), Vec<f32>> = BTreeMap::new();
        let empty = || vec![f32::NAN; ids.len()];
        if let Some(store) = &self.store {
            let (positions, runs): (Vec<usize>, Vec<FleetRun>) = ids
                .iter()
                .enumerate()
                .filter(|(_, id)| !self.file_runs.contains_key(**id))
                .filter_map(|(position, id)| Some((position, self.store_runs.get(*id)?.clone())))
                .unzip();
            let versions = metrics.values().map(|metric| (metric.id.to_string(), metric.version)).collect();
            for stored in store.fleet_series(&runs, &versions)? {
                let (metric, _, case) = stored.id;
                let values = series.entry((metric, case)).or_insert_with(empty);
                positions.iter().zip(stored.values).for_each(|(&position, value)| values[position] = value);
            }
        }
        for (position, id) in ids.iter().enumerate() {
            let headlines = self.file_runs.get(*id).map_or(&[][..], |file_run| &file_run.headlines);
            for StoredHeadline { metric, version, case, value, .. } in headlines {
                if metrics.get(metric).is_some_and(|definition| definition.version == *version) {
                    series.entry((*metric, case.clone())).or_insert_with(empty)[position] = *value as f32;
                }
            }
        }
        let input = |((id, case), values): ((Name, Case), Vec<f32>)| {
            let metric = metrics.get(&id)?;
            Some(SeriesInput { metric: metric.for_case(&case), case, values })
        };
        Ok(series.into_iter().filter_map(input).collect())
    }
}

fn run_count(count: usize) -> String {
    if count == 1 { "1 run".into() } else { format!("{count} runs") }
}

/// The mode that was asked for, or that most runs have.
fn choose_mode(runs: &[RunRecord], requested: Option<&str>) -> Result<String, CliError> {
    let mut modes: BTreeMap<&str, usize> = BTreeMap::new();
    runs.iter().for_each(|run| *modes.entry(&run.mode).or_default() += 1);
    let frequent = modes.iter().max_by_key(|(_, count)| **count).map(|(mode, _)| *mode);
    let Some(frequent) = frequent else {
        bail!("no complete run of a whole host is among them: studies and runs of other programs are not compared");
    };
    match requested {
        Some(mode) if !modes.contains_key(mode) => {
            let list = modes.into_keys().collect::<Vec<_>>().join(", ");
            bail!("--mode: no run is in mode {mode}; there are {list}")
        }
        mode => Ok(mode.unwrap_or(frequent).to_owned()),
    }
}

/// What identifies the host of a machine: its id, or the identity of the machine where a run has none.
fn host_key(identity: &str, machine: &Machine) -> String {
    machine.platform.host.get().map_or_else(|| identity.to_owned(), |host| format!("host {host}"))
}

/// The hosts with their labels, in the order of these, and each host's key and runs in the same order.
fn hosts_of(
    by_host: BTreeMap<String, Vec<RunRecord>>,
    machines: &HashMap<String, MachineRecord>,
) -> (Vec<HostInput>, Vec<(String, Vec<RunRecord>)>) {
    let mut hosts: Vec<(HostInput, String, Vec<RunRecord>)> = Vec::new();
    for (key, runs) in by_host {
        let Some(newest) = runs.last().map(|run| &machines[&run.machine]) else { continue };
        let host = newest.machine.platform.host.get().cloned();
        let id = host.as_deref().unwrap_or(&runs[0].machine);
        let label = newest.tags.get(NODE_TAG).cloned().unwrap_or_else(|| short_hash(id).to_owned());
        let input = HostInput { label, host, machine: newest.machine.clone(), tags: newest.tags.clone() };
        hosts.push((input, key, runs));
    }
    // Two hosts may have been given one name.
    let mut counts: HashMap<String, usize> = HashMap::new();
    hosts.iter().for_each(|(host, ..)| *counts.entry(host.label.clone()).or_default() += 1);
    for (host, _, runs) in &mut hosts {
        if counts[&host.label] > 1 {
            let id = host.host.as_deref().unwrap_or(&runs[0].machine);
            host.label = format!("{} ({})", host.label, short_hash(id));
        }
    }
    hosts.sort_by_cached_key(|(host, ..)| natural_key(&host.label));
    hosts.into_iter().map(|(host, key, runs)| (host, (key, runs))).unzip()
}

/// A label with the numbers in it compared as numbers: n2 before n10.
fn natural_key(label: &str) -> Vec<(String, u64)> {
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut rest = label;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(digits);
        let end = tail.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(tail.len());
        parts.push((word.to_owned(), tail[..end].parse().unwrap_or(0)));
        rest = &tail[end..];
    }
    parts
}

/// The metrics as the newest run that has them defines them.
fn newest_metrics(machines: HashMap<String, MachineRecord>) -> BTreeMap<Name, Metric> {
    let mut records: Vec<MachineRecord> = machines.into_values().collect();
    records.indirect_sort_by_key(|record| record.started_us);
    // Machines that share their metrics say the same.
    records.dedup_by(|later, earlier| Arc::ptr_eq(&later.metrics, &earlier.metrics));
    records.iter().flat_map(|record| record.metrics.iter()).map(|metric| (metric.id, *metric)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_natural_order() {
        let mut labels = ["n10", "n2", "a", "n2b", "rack1-n3", "rack1-n12"];
        labels.sort_by_key(|label| natural_key(label));
        assert_eq!(labels, ["a", "n2", "n2b", "n10", "rack1-n3", "rack1-n12"]);
    }
}
