//! Hazards found before a run: what they are, their effect on which metrics, and how to remove them.

mod current_load;
mod files;
mod processor;
mod settings;

use std::path::Path;

use kelvin_core::{Hazard, IndirectSort, Machine, Name, Severity};
use kelvin_sys::procfs::CpuStat;

use crate::counters::cpu_stat;
use crate::root::{FileRoot, data_lines};

/// Time between the two readings of /proc/stat that show the current steal and load.
const STAT_SAMPLE_TIME: std::time::Duration = std::time::Duration::from_millis(200);

pub(crate) use current_load::{PRESSURE_RULES, PressureRule};
pub use processor::{busy_siblings, siblings_not_sampled};

/// All hazards of a machine before a run, the worst first; `scratch` is the directory for files.
///
/// On this machine it takes a fifth of a second, for two readings of CPU times.
pub fn hazards(root: &Path, machine: &Machine, scratch: &Path) -> Vec<Hazard> {
    let context = HazardContext::new(root, machine, scratch);
    let mut hazards: Vec<Hazard> = RULES.iter().filter_map(|rule| rule(&context)).collect();
    hazards.indirect_sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    hazards
}

/// A rule: from what is known of the machine, the hazard if there is one.
type HazardRule = fn(&HazardContext<'_>) -> Option<Hazard>;

/// All of them, in the order of reports within a severity.
const RULES: [HazardRule; 28] = [
    processor::governor,
    processor::boost,
    processor::smt,
    processor::virtual_machine,
    processor::steal,
    processor::quota,
    processor::cpuset,
    processor::active_mitigations,
    processor::idle_states,
    processor::battery,
    processor::thermal,
    processor::forbidden_counters,
    settings::proactive_reclaim,
    settings::page_reporting,
    settings::clock_source,
    settings::transparent_huge_pages,
    settings::numa_balancing,
    settings::memory_limit,
    settings::unknown_facts,
    files::block_io_limits,
    current_load::load,
    current_load::memory,
    current_load::swap,
    |context| current_load::pressure(context, &PRESSURE_RULES[0]),
    |context| current_load::pressure(context, &PRESSURE_RULES[1]),
    |context| current_load::pressure(context, &PRESSURE_RULES[2]),
    files::low_space,
    files::unsuitable_file_system,
];

/// What the rules look at.
pub(crate) struct HazardContext<'a> {
    pub(crate) root: FileRoot<'a>,
    pub(crate) machine: &'a Machine,
    /// The directory for files of probes.
    pub(crate) scratch: &'a Path,
    /// CPU times since boot.
    pub(crate) since_boot: Option<CpuStat>,
    /// CPU times just now; only on this machine.
    pub(crate) current: Option<CpuStat>,
}

impl<'a> HazardContext<'a> {
    fn new(root: &'a Path, machine: &'a Machine, scratch: &'a Path) -> Self {
        let root = FileRoot::new(root);
        let since_boot = cpu_stat(root);
        let stats = root
            .is_live()
            .then(|| std::thread::sleep(STAT_SAMPLE_TIME))
            .and_then(|()| cpu_stat(root))
            .zip(since_boot.as_ref());
        let current = stats.map(|(end, start)| end.since(start));
        Self { root, machine, scratch, since_boot, current }
    }

    /// Whether a hypervisor runs the machine.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.machine.platform.hypervisor.get(), Some(Some(_)))
    }

    /// The CPU that probes run on.
    pub(crate) fn measured_cpu(&self) -> u32 {
        self.machine.cpu.number.unwrap_or(0)
    }
}

/// The hazards: id, affected metrics, remedy and effect, by tabs.
const HAZARDS: &str = include_str!("../data/hazards.txt");

/// A hazard, with the texts of `data/hazards.txt` for its id.
pub(crate) fn hazard(id: &str, severity: Severity, summary: impl Into<String>, source: impl Into<String>) -> Hazard {
    let row = data_lines(HAZARDS).map(|row| row.split('\t').collect::<Vec<_>>()).find(|row| row[0] == id);
    let [_, affects, remedy, effect] = row.unwrap_or_default()[..] else { unreachable!("{id} has no row") };
    let command = remedy.strip_prefix("$ ");
    Hazard {
        id: Name::intern(id),
        severity,
        summary: summary.into(),
        effect: effect.to_owned(),
        affects: affects.split(' ').filter(|prefix| *prefix != "*").map(Name::intern).collect(),
        remedy: Some(command.unwrap_or(remedy).to_owned()).filter(|remedy| remedy != "-"),
        remedy_is_command: command.is_some(),
        source: source.into(),
    }
}

/// The same hazard with the command that removes it here.
pub(crate) fn with_command(hazard: Hazard, command: String) -> Hazard {
    Hazard { remedy: Some(command), remedy_is_command: true, ..hazard }
}

/// The severity of a share that is less than it should be, by the first threshold that it is below.
pub(crate) fn severity_below(share: f64, thresholds: &[(f64, Severity)]) -> Option<Severity> {
    thresholds.iter().find(|(threshold, _)| share < *threshold).map(|(_, severity)| *severity)
}

/// The severity of the first threshold that a share reaches; none if it reaches none.
pub(crate) fn severity_at(share: f64, thresholds: &[(f64, Severity)]) -> Option<Severity> {
    thresholds.iter().find(|(threshold, _)| share >= *threshold).map(|(_, severity)| *severity)
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value >= 9.95 { format!("{value:.0} %") } else { format!("{value:.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_complete_and_name_metrics() {
        let mut ids = BTreeSet::new();
        for row in data_lines(HAZARDS) {
            let id = row.split('\t').next().unwrap();
            let row_hazard = hazard(id, Severity::Note, "", "");
            assert!(ids.insert(id) && !row_hazard.effect.is_empty(), "{row}");
            for prefix in row_hazard.affects {
                let is_affected = |metric: &kelvin_core::Metric| metric.id.starts_with(prefix.as_str());
                assert!(kelvin_core::catalogue::all().any(is_affected) || prefix == "mem.page", "{row}");
            }
        }
    }

    #[test]
    fn every_id_in_the_source_has_a_row() {
        let sources = [
            include_str!("hazards/current_load.rs"),
            include_str!("hazards/files.rs"),
            include_str!("hazards/processor.rs"),
            include_str!("hazards/settings.rs"),
            include_str!("disturbances.rs"),
        ];
        let calls = sources.iter().flat_map(|source| source.split("hazard(\"").skip(1));
        let ids: BTreeSet<&str> = calls.filter_map(|rest| rest.split('"').next()).collect();
        assert!(ids.len() > 25, "{ids:?}");
        for id in ids {
            hazard(id, Severity::Note, "", "");
        }
        for rule in &PRESSURE_RULES {
            hazard(&format!("pressure_{}", rule.resource), Severity::Note, "", "");
            hazard(&format!("pressure_{}_during", rule.resource), Severity::Note, "", "");
        }
    }
}
