//! What the name of a study chooses.

use kelvin_core::IndirectSort;
use std::collections::BTreeSet;

use kelvin_core::catalogue::load::THROUGHPUT;
use kelvin_core::catalogue::os;
use kelvin_core::catalogue::transfer::TIME;
use kelvin_harness::{Probe, ProbeKind};

use crate::cli_error::CliError;

/// The study that prints page-table entries, and measures nothing.
pub const PAGE_TABLE_STUDY: &str = "page";

/// What a name chooses.
pub struct StudySelection {
    /// Probes of one kind, at least one.
    pub probes: Vec<&'static Probe>,
    /// What selects them.
    pub names: Vec<String>,
}

impl StudySelection {
    /// One study, all of it: its area where that is all one study, as that of transfers, of files in memory and of others.
    fn of_probe(probe: &'static Probe) -> Self {
        let name = if probe.id == TIME.id.as_str() { TIME.area() } else { probe.id };
        Self { probes: vec![probe], names: vec![name.to_owned()] }
    }

    /// By a name that is printed somewhere: a study or its short name, a probe, or a metric, an area, a study of a report, or any leading
    /// part of an id. The last ones choose the probes of a plain run that they lead; the studies only where there are none.
    pub fn from_name(name: &str) -> Result<Self, CliError> {
        let probes = kelvin_probes::all();
        let probes_of_kind = |kind: ProbeKind| probes.iter().copied().filter(move |probe| probe.kind == kind);
        let study = probes_of_kind(ProbeKind::Study).find(|probe| probe.id == name || short_name(probe) == name);
        if let Some(probe) = study.or_else(|| probes_of_kind(ProbeKind::Measure).find(|probe| probe.id == name)) {
            return Ok(Self::of_probe(probe));
        }
        let names = kelvin_analysis::study_metrics(name);
        let selected_probes = |kind| -> Vec<&'static Probe> {
            probes_of_kind(kind).filter(|probe| names.iter().any(|name| probe.is_selected_by(name))).collect()
        };
        for kind in [ProbeKind::Measure, ProbeKind::Study] {
            let probes = selected_probes(kind);
            match probes[..] {
                [] => {}
                [probe] => return Ok(Self::of_probe(probe)),
                _ => return Ok(Self { probes, names: names.iter().map(ToString::to_string).collect() }),
            }
        }
        if !selected_probes(ProbeKind::Truth).is_empty() {
            bail!("'{name}' is a known truth, not a study: `kelvin selfcheck` measures it");
        }
        let studies = probes_of_kind(ProbeKind::Study).flat_map(|probe| [short_name(probe), probe.id]);
        let probe_ids = probes_of_kind(ProbeKind::Measure).map(|probe| probe.id);
        let valid_names =
            studies.chain(probe_ids).flat_map(dotted_prefixes).chain([PAGE_TABLE_STUDY, os::STUDY.as_str()]);
        match &nearest_names(name, valid_names)[..] {
            [] => bail!("no study is called '{name}'; `kelvin study --help` lists them"),
            names => bail!("no study is called '{name}'; did you mean {}?", names.join(" or ")),
        }
    }

    /// Whether it is the study of a file server under load.
    pub fn is_load(&self) -> bool {
        self.probes.iter().all(|probe| probe.metrics[0].area() == THROUGHPUT.area())
    }

    /// Whether it has the study of transfers, which has combinations of factors.
    pub fn has_transfers(&self) -> bool {
        self.probes.iter().any(|probe| probe.id == TIME.id.as_str())
    }
}

/// What a study is called: the last part of its id, or its area where it has one to itself.
pub fn short_name(study: &Probe) -> &'static str {
    if [TIME.id, THROUGHPUT.id].iter().any(|id| id.as_str() == study.id) {
        study.metrics[0].area()
    } else {
        study.id.rsplit('.').next().unwrap_or(study.id)
    }
}

/// A name and all of its leading parts: `file`, `file.blocksize`, `file.blocksize.read`.
fn dotted_prefixes(name: &'static str) -> impl Iterator<Item = &'static str> {
    name.match_indices('.').map(move |(end, _)| &name[..end]).chain([name])
}

/// Up to three names that are near one, in upper or lower case, none twice: that begin like it or whose last part does, or within one
/// mistake and one more for every four letters.
fn nearest_names<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let name = &name.to_lowercase();
    // A name that begins or ends like it is nearer than one of the same length.
    let distance = |candidate: &str| {
        let last = candidate.rsplit('.').next().unwrap_or(candidate);
        let is_part = !name.is_empty() && (candidate.starts_with(name.as_str()) || last.starts_with(name.as_str()));
        (!is_part, strsim::damerau_levenshtein(name, candidate).min(1 + strsim::damerau_levenshtein(name, last)))
    };
    let is_near = |candidate: &&str| {
        let (is_other, distance) = distance(candidate);
        !is_other || distance <= 1 + name.len() / 4
    };
    let mut nearest: Vec<&str> = candidates.filter(is_near).collect::<BTreeSet<&str>>().into_iter().collect();
    nearest.indirect_sort_by_key(|candidate| distance(candidate));
    nearest.truncate(3);
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_study_suggests_near_names_only() {
        let error_text = |name: &str| StudySelection::from_name(name).map(|_| ()).unwrap_err().to_string();
        assert!(error_text("transfre").contains("did you mean transfer"), "{}", error_text("transfre"));
        assert!(error_text("quantum").ends_with("; `kelvin study --help` lists them"), "{}", error_text("quantum"));
        let nearest =
            nearest_names("peer", ["net.peer.rtt", "net.peer.rtt", "net.peer", "os.tasks", "peers"].into_iter());
        assert_eq!(nearest, ["net.peer", "peers"]);
        assert!(error_text("TASKS").contains("did you mean tasks"), "{}", error_text("TASKS"));
    }

    /// The ids of the probes that a name chooses.
    fn selected_probe_ids(name: &str) -> Vec<&'static str> {
        let selection = StudySelection::from_name(name).unwrap_or_else(|error| panic!("{error}"));
        selection.probes.iter().map(|probe| probe.id).collect()
    }

    #[test]
    fn report_study_names_choose_their_probes() {
        assert_eq!(selected_probe_ids("file.blocksize"), ["file.blocksize.read", "file.blocksize.write"]);
        let round_trips = selected_probe_ids("net.rtt");
        for id in ["net.rtt.tcp", "net.rtt.udp", "net.rtt.unix", "net.stack.tcp", "net.connect"] {
            assert!(round_trips.contains(&id), "{round_trips:?}");
        }
        assert!(!round_trips.iter().any(|id| id.starts_with("net.bandwidth")), "{round_trips:?}");
        assert!(selected_probe_ids("net.bandwidth").iter().all(|id| id.starts_with("net.bandwidth.")));
        assert!(
            selected_probe_ids("net.peer").len() > 5
                && selected_probe_ids("net.peer").iter().all(|id| id.starts_with("net.peer."))
        );
        // One study is the same by each of its names, and by what it measures.
        for name in ["tasks", "os.tasks", "os.tasks.elapsed"] {
            assert_eq!(selected_probe_ids(name), ["os.tasks"], "{name}");
        }
        for name in ["transfer", "transfer.time", "transfer.rate"] {
            let StudySelection { names, .. } = StudySelection::from_name(name).unwrap();
            assert_eq!(names, ["transfer"], "{name}");
        }
    }

    #[test]
    fn every_printed_id_can_be_studied() {
        let probes = kelvin_probes::all();
        let ids =
            probes.iter().flat_map(|probe| probe.metrics.iter().map(|metric| metric.id.as_str()).chain([probe.id]));
        let is_truth = |name: &str| kelvin_core::is_dotted_prefix("truth", name);
        let is_fault =
            |name: &str| probes.iter().any(|probe| probe.kind == ProbeKind::Fault && probe.is_selected_by(name));
        for name in ids.flat_map(dotted_prefixes).filter(|name| !is_fault(name)) {
            match StudySelection::from_name(name) {
                Ok(selection) => assert!(!selection.probes.is_empty() && !is_truth(name), "{name}"),
                Err(error) => assert!(is_truth(name) && error.to_string().contains("kelvin selfcheck"), "{error}"),
            }
        }
    }
}
