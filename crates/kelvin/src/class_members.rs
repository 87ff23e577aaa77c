//! A user's own machines as members of classes: those of the store, and exported runs that an option names.

use std::fs::File;
use std::path::Path;

use kelvin_analysis::{Member, ReferenceLibrary, analyse, built_in_library, class_member};
use kelvin_core::{Machine, Reference, StoredHeadline};
use kelvin_store::Store;

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
        let mut beside = Self::default();
        for name in names {
            match Path::new(name) {
                path if path.is_file() => beside.members.push(read_member(path)?),
                _ => beside.published.push(find_published(name)?),
            }
        }
        Ok(beside)
    }
}

fn find_published(id: &str) -> Result<Reference, CliError> {
    let all = kelvin_analysis::references();
    all.iter().find(|reference| reference.id == *id).cloned().ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|reference| reference.id.as_str()).collect();
        CliError::msg(format!(
            "--compare-with {id}: no such file of an exported run, and no such machine; known are {}",
            known.join(", ")
        ))
    })
}

fn read_member(path: &Path) -> Result<Member, CliError> {
    let named = || format!("--compare-with {}", path.display());
    let file = File::open(path).context(named())?;
    let run = kelvin_store::import(file).context(named())?;
    let headlines = analyse(&run).stored_headlines(|_| true);
    class_member(&run.header.id, &run.header.machine, &headlines)
        .map_err(|why| CliError::msg(format!("{}: it is of no class: {why}", named())))
}

/// The machines to judge one by: published ones, these of its user, and the others of a store. What cannot be read there is said, and
/// nothing fails for it.
pub fn build_library(members: &[Member], store: Option<&Store>, here: &Machine) -> ReferenceLibrary {
    let of_store = store.map_or(Ok(Vec::new()), |store| members_of_store(store, here));
    let of_store = of_store.unwrap_or_else(|error| {
        notice!("not compared with the other machines of the store: {error}");
        Vec::new()
    });
    built_in_library().with_machines(members.iter().cloned().chain(of_store))
}

/// The other machines of a store that have a class, each by its newest run.
fn members_of_store(store: &Store, here: &Machine) -> Result<Vec<Member>, CliError> {
    let mut known = vec![here.identity.clone()];
    let (mut runs, mut outlines) = (Vec::new(), Vec::new());
    for one in store.machines()? {
        if known.contains(&one.machine) {
            continue;
        }
        let newest = store.history_runs(std::slice::from_ref(&one.machine), &one.mode, 1)?;
        known.push(one.machine);
        let outline = store.header_of(&one.newest)?;
        // What another program measured is no figure of kelvin's.
        if outline.foreign.is_none() {
            runs.extend(newest);
            outlines.push(outline);
        }
        if outlines.len() == MAX_STORE_MACHINES {
            break;
        }
    }
    let mut headlines: Vec<Vec<StoredHeadline>> = vec![Vec::new(); outlines.len()];
    let is_judged = |id: &str| CLASS_AREAS.contains(&id.split('.').next().unwrap_or_default());
    for series in store.series_values(&runs, &is_judged)? {
        for value in series.values {
            let (metric, version, case) = (series.metric, series.version, series.case.clone());
            let headline = StoredHeadline { metric, version, case, value: value.value, within_variance: 0.0 };
            headlines[value.run].push(headline);
        }
    }
    // One without a class is compared with none.
    let members = outlines.iter().zip(&headlines);
    Ok(members.filter_map(|(outline, headlines)| class_member(&outline.id, &outline.machine, headlines).ok()).collect())
}
