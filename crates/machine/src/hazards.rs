//! Hazards found before a run: what they are, their effect on which metrics, and how to remove them.

mod block_io;
mod current_load;
mod mitigations;
mod power;
mod processor;
mod scratch;
mod settings;

use std::path::Path;

use kelvin_core::{Hazard, Machine, Name, Severity};

use crate::counters::CpuStat;
use crate::root::FileRoot;

/// Time between the two readings of /proc/stat that show the current steal and load.
const STAT_SAMPLE_TIME: std::time::Duration = std::time::Duration::from_millis(200);

pub(crate) use current_load::PRESSURE_RULES;
pub use processor::{busy_siblings, siblings_not_sampled};

/// All hazards of a machine before a run, the worst first; `scratch` is the directory for files.
///
/// On this machine it takes a fifth of a second, for two readings of CPU times.
pub fn hazards(root: &Path, machine: &Machine, scratch: &Path) -> Vec<Hazard> {
    let look = HazardContext::new(root, machine, scratch);
    let mut found: Vec<Hazard> = RULES.iter().filter_map(|rule| rule(&look)).collect();
    found.sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    found
}

/// A rule: from what is known of the machine, the hazard if there is one.
type HazardRule = fn(&HazardContext<'_>) -> Option<Hazard>;

/// All of them, in the order of reports within a severity.
const RULES: [HazardRule; 27] = [
    processor::governor,
    processor::boost,
    processor::smt,
    processor::virtual_machine,
    processor::steal,
    processor::quota,
    processor::cpuset,
    mitigations::active_mitigations,
    power::idle_states,
    power::battery,
    power::thermal,
    settings::proactive_reclaim,
    settings::page_reporting,
    settings::clock_source,
    settings::transparent_huge_pages,
    settings::numa_balancing,
    settings::memory_limit,
    settings::unknown_facts,
    block_io::limits,
    current_load::load,
    current_load::memory,
    current_load::swap,
    |look| current_load::pressure(look, &PRESSURE_RULES[0]),
    |look| current_load::pressure(look, &PRESSURE_RULES[1]),
    |look| current_load::pressure(look, &PRESSURE_RULES[2]),
    scratch::low_space,
    scratch::unsuitable_file_system,
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
    pub(crate) now: Option<CpuStat>,
}

impl<'a> HazardContext<'a> {
    fn new(root: &'a Path, machine: &'a Machine, scratch: &'a Path) -> Self {
        let root = FileRoot::new(root);
        let since_boot = CpuStat::read(root);
        let now = root
            .is_live()
            .then(|| std::thread::sleep(STAT_SAMPLE_TIME))
            .and_then(|()| CpuStat::read(root))
            .zip(since_boot.as_ref());
        let now = now.map(|(later, earlier)| stat_difference(&later, earlier));
        Self { root, machine, scratch, since_boot, now }
    }

    /// Whether a hypervisor runs the machine.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.machine.platform.hypervisor.get(), Some(Some(_)))
    }

    /// The CPU that probes run on.
    pub(crate) fn first_cpu(&self) -> u32 {
        crate::topology::first_allowed(&self.machine.topology.allowed)
    }
}

/// The CPU times between two readings.
pub(crate) fn stat_difference(later: &CpuStat, earlier: &CpuStat) -> CpuStat {
    let of = |cpu: &u32| earlier.cpus.get(cpu).copied().unwrap_or_default();
    CpuStat {
        all: later.all.since(earlier.all),
        cpus: later.cpus.iter().map(|(cpu, ticks)| (*cpu, ticks.since(of(cpu)))).collect(),
    }
}

/// A hazard under construction: the required parts.
pub(crate) fn hazard(id: &'static str, severity: Severity, summary: impl Into<String>, effect: &str) -> Hazard {
    Hazard {
        id: Name::new(id),
        severity,
        summary: summary.into(),
        effect: effect.to_owned(),
        affects: Vec::new(),
        remedy: None,
        remedy_is_command: false,
        source: String::new(),
    }
}

/// The command that puts the machine in a quiet state: it writes settings of the kernel, which root may.
pub(crate) const TUNE_COMMAND: &str = "sudo kelvin tune --apply";

/// What makes other work go away, whichever sign of it was seen: one remedy is told once.
pub(crate) const STOP_OTHER_WORK: &str = "find the other work with top, stop it, and wait until the load falls";

/// The optional parts of a hazard.
pub(crate) trait HazardBuilder {
    /// Prefixes of the affected metrics; all by default.
    fn affecting(self, prefixes: &[&'static str]) -> Self;
    /// The command that removes it, with sudo where it needs the rights of root.
    fn remedy_command(self, command: impl Into<String>) -> Self;
    /// What removes it, in words.
    fn remedy_advice(self, advice: impl Into<String>) -> Self;
    /// Where it was read.
    fn with_source(self, source: impl Into<String>) -> Self;
}

impl HazardBuilder for Hazard {
    fn affecting(mut self, prefixes: &[&'static str]) -> Self {
        self.affects = prefixes.iter().map(|prefix| Name::new(prefix)).collect();
        self
    }

    fn remedy_command(self, command: impl Into<String>) -> Self {
        Self { remedy: Some(command.into()), remedy_is_command: true, ..self }
    }

    fn remedy_advice(self, advice: impl Into<String>) -> Self {
        Self { remedy: Some(advice.into()), remedy_is_command: false, ..self }
    }

    fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }
}

/// The severity of the first threshold that a share reaches; none if it reaches none.
pub(crate) fn severity_at(share: f64, thresholds: &[(f64, Severity)]) -> Option<Severity> {
    thresholds.iter().find(|(least, _)| share >= *least).map(|(_, severity)| *severity)
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value >= 9.95 { format!("{value:.0} %") } else { format!("{value:.1} %") }
}
