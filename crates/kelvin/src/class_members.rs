//! A user's own machines as members of classes: those of the store, and exported runs that an option names.

use std::fs::File;
use std::path::Path;

use kelvin_analysis::{Member, ReferenceLibrary, analyse, built_in_library, class_member};
use kelvin_core::{HistoryPoint, Machine, Reference, StoredHeadline};
use kelvin_machine::hardware_identity;
use kelvin_store::{Store, StoredSeries};

use crate::cli_error::{CliError, Context};

/// Machines of a store that are compared with, at most: the newest.
const MAX_STORE_MACHINES: usize = 100;
/// Areas in which machines are judged against their class.
const CLASS_AREAS: [&str; 3] = ["cpu", "mem", "os"];

/// What a run is compared with by `--compare-with`.
#[derive(Default)]
pub struct ComparedMachines {
    /// Published machines, whose figures are shown.
    pub published: Vec<Reference>,
    /// Exported runs, which are members of the class of their machine.
    pub members: Vec<Member>,
}

impl ComparedMachines {
    /// Ids of published machines, and files of exported runs.
    pub fn from_names(names: &[String]) -> Result<Self, CliError> {
        let mut machines = Self::default();
        for name in names {
            match Path::new(name) {
                path if path.is_file() => machines.members.push(read_member(path)?),
                _ => machines.published.push(find_published(name)?),
            }
        }
        Ok(machines)
    }
}

fn find_published(id: &str) -> Result<Reference, CliError> {
    let references = kelvin_analysis::references();
    references.iter().find(|reference| reference.id == *id).cloned().ok_or_else(|| {
        let valid_ids = references.iter().map(|reference| reference.id.as_str()).collect::<Vec<_>>().join(", ");
        let reason = format!("no such file of an exported run, and no such machine; known are {valid_ids}");
        CliError::new(format_args!("--compare-with {id}"), reason)
    })
}

fn read_member(path: &Path) -> Result<Member, CliError> {
    let option_text = || format!("--compare-with {}", path.display());
    let file = File::open(path).context(option_text())?;
    let run = kelvin_store::import(file).context(option_text())?;
    let headlines = analyse(&run).stored_headlines(|_| true);
    class_member(&run.header.id, &run.header.machine, &headlines)
        .map_err(|reason| CliError::msg(format!("{}: it is of no class: {reason}", option_text())))
}

/// The machines to judge one by: published ones, these of its user, and the others of a store. A store that cannot be read is
/// reported, and is no error.
pub fn build_library(members: &[Member], store: Option<&Store>, machine: &Machine) -> ReferenceLibrary {
    let store_members = store.map_or(Ok(Vec::new()), |store| members_of_store(store, machine));
    let store_members = store_members.unwrap_or_else(|error| {
        notice!("not compared with the other machines of the store: {error}");
        Vec::new()
    });
    built_in_library().with_machines(members.iter().cloned().chain(store_members))
}

/// What a machine of a known host keeps with another kernel.
fn host_hardware(machine: &Machine) -> Option<String> {
    machine.platform.host.get().map(|_| hardware_identity(machine))
}

/// The other machines of a store that have a class, each by its newest run.
fn members_of_store(store: &Store, own_machine: &Machine) -> Result<Vec<Member>, CliError> {
    let mut identities = vec![own_machine.identity.clone()];
    // With another kernel a known host has another identity, and is no other machine.
    let mut hosts: Vec<String> = host_hardware(own_machine).into_iter().collect();
    let (mut runs, mut headers) = (Vec::new(), Vec::new());
    for machine in store.machines()? {
        if identities.contains(&machine.machine) {
            continue;
        }
        let header = store.header_of(&machine.newest)?;
        let host = host_hardware(&header.machine);
        if host.as_ref().is_some_and(|host| hosts.contains(host)) {
            continue;
        }
        let newest = store.history_runs(std::slice::from_ref(&machine.machine), &machine.mode, 1)?;
        identities.push(machine.machine);
        hosts.extend(host);
        // What another program measured is no figure of kelvin's.
        if header.foreign.is_none() {
            runs.extend(newest);
            headers.push(header);
        }
        if headers.len() == MAX_STORE_MACHINES {
            break;
        }
    }
    let mut headlines: Vec<Vec<StoredHeadline>> = vec![Vec::new(); headers.len()];
    let is_judged = |id: &str| CLASS_AREAS.contains(&id.split('.').next().unwrap_or_default());
    for StoredSeries { metric, version, case, values } in store.series_values(&runs, &is_judged)? {
        for HistoryPoint { run, value } in values {
            let case = case.clone();
            headlines[run].push(StoredHeadline { metric, version, case, value, within_variance: 0.0 });
        }
    }
    // One without a class is compared with none.
    let members = headers.iter().zip(&headlines);
    Ok(members.filter_map(|(header, headlines)| class_member(&header.id, &header.machine, headlines).ok()).collect())
}
