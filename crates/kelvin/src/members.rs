//! A user's own machines as members of classes: those of the store, and exported runs that an option names.

use std::fs::File;
use std::path::Path;

use kelvin_analysis::{Library, Member, analyse, library, member};
use kelvin_model::{Headline, Machine, Reference};
use kelvin_store::Store;

use crate::fault::Fault;
use crate::output;

/// Machines of a store that are compared with, at most: the newest.
const MOST: usize = 100;
/// Areas in which machines are judged against their class.
const AREAS: [&str; 3] = ["cpu", "mem", "os"];

/// What a run is compared with by `--beside`.
#[derive(Default)]
pub struct Beside {
    /// Published machines, whose figures are shown.
    pub published: Vec<Reference>,
    /// Exported runs, which are members of the class of their machine.
    pub members: Vec<Member>,
}

impl Beside {
    /// Ids of published machines, and files of exported runs.
    pub fn named(names: &[String]) -> Result<Self, Fault> {
        let mut beside = Self::default();
        for name in names {
            match Path::new(name) {
                path if path.is_file() => beside.members.push(of_file(path)?),
                _ => beside.published.push(published(name)?),
            }
        }
        Ok(beside)
    }
}

fn published(id: &str) -> Result<Reference, Fault> {
    let all = kelvin_analysis::references();
    all.iter().find(|reference| reference.id == *id).cloned().ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|reference| reference.id.as_str()).collect();
        Fault::because(format!(
            "--beside {id}: no such file of an exported run, and no such machine; known are {}",
            known.join(", ")
        ))
    })
}

fn of_file(path: &Path) -> Result<Member, Fault> {
    let named = || format!("--beside {}", path.display());
    let file = File::open(path).map_err(|error| Fault::new(named(), error))?;
    let run = kelvin_store::import(file).map_err(|error| Fault::new(named(), error))?;
    let headlines = analyse(&run).teaches(|_| true);
    member(&run.outline.id, &run.outline.machine, &headlines)
        .map_err(|why| Fault::because(format!("{}: it is of no class: {why}", named())))
}

/// The machines to judge one by: published ones, these of its user, and the others of a store. What cannot be read there is said, and
/// nothing fails for it.
pub fn library_with(members: &[Member], store: Option<&Store>, here: &Machine) -> Library {
    let of_store = store.map_or(Ok(Vec::new()), |store| of_store(store, here));
    let of_store = of_store.unwrap_or_else(|error| {
        output::remark(format_args!("kelvin: not compared with the other machines of the store: {error}"));
        Vec::new()
    });
    library().with(members.iter().cloned().chain(of_store))
}

/// The other machines of a store that have a class, each by its newest run.
fn of_store(store: &Store, here: &Machine) -> Result<Vec<Member>, Fault> {
    let mut known = vec![here.identity.clone()];
    let (mut runs, mut outlines) = (Vec::new(), Vec::new());
    for one in store.machines().map_err(Fault::because)? {
        if known.contains(&one.machine) {
            continue;
        }
        let newest = store.runs_in_history(std::slice::from_ref(&one.machine), &one.mode, 1).map_err(Fault::because)?;
        known.push(one.machine);
        let outline = store.outline_of(&one.newest).map_err(Fault::because)?;
        // What another program measured is no figure of kelvin's.
        if outline.foreign.is_none() {
            runs.extend(newest);
            outlines.push(outline);
        }
        if outlines.len() == MOST {
            break;
        }
    }
    let mut headlines: Vec<Vec<Headline>> = vec![Vec::new(); outlines.len()];
    let is_judged = |id: &str| AREAS.contains(&id.split('.').next().unwrap_or_default());
    for series in store.histories(&runs, &is_judged).map_err(Fault::because)? {
        for value in series.values {
            let (metric, version, case) = (series.metric, series.version, series.case.clone());
            let headline = Headline { metric, version, case, value: value.value, within_variance: 0.0 };
            headlines[value.run].push(headline);
        }
    }
    // One without a class is compared with none.
    let members = outlines.iter().zip(&headlines);
    Ok(members.filter_map(|(outline, headlines)| member(&outline.id, &outline.machine, headlines).ok()).collect())
}
