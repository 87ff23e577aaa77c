//! What differs between two sides besides their figures: machine, kernel, mitigations, settings, methods.

use kelvin_core::IndirectSort;
use std::collections::BTreeMap;

use crate::prelude::*;

/// Facts that differ from run to run of any machine, or that are shown elsewhere: the memory that is free, a frequency that is measured. A chassis
/// goes with the product.
const TRANSIENT_FACTS: [(&str, &str); 4] =
    [("Memory", "Available"), ("CPU", "Measured frequency"), ("CPU", "Mitigations"), ("Platform", "Chassis")];
const TRANSIENT_HAZARDS: [&str; 4] = ["load", "other_work", "steal", "steal_during"];
/// A fact that is a list: only what one side alone has is shown.
const INSTRUCTION_SETS: (&str, &str) = ("CPU", "Instruction sets");

/// Groups of facts, in their order: first what changes most figures.
const FACT_GROUPS: [&str; 13] = [
    "CPU",
    "Kernel",
    "Mitigations",
    "Platform",
    "Limits",
    "Memory",
    "Topology",
    "Disks",
    "File systems",
    "Network",
    "Run",
    "Hazards",
    "Published",
];

/// How far apart two sides must be in what neighbours took, as a logarithm, to be shown: less differs from run to run of any busy host.
const MIN_SLOWDOWN_GAP: f64 = 0.05;

/// Group and label of a fact.
type FactKey = (String, String);

/// What differs between two runs besides their figures, by their outlines: the machine first, then how kelvin was called, and versions
/// of methods.
pub fn fact_differences(base: &RunHeader, other: &RunHeader) -> Vec<FactDifference> {
    differences_between(&[base, other].map(|outline| SideFacts::from_runs(&[outline])), [None; 2])
}

/// What differs: what others on the core did, the machine, and how kelvin was called. `slowed` is how much longer work took on each side than
/// on the core left alone, as a logarithm.
pub(super) fn differences_between(sides: &[SideFacts; 2], log_slowdowns: [Option<f64>; 2]) -> Vec<FactDifference> {
    // Of a published machine little is known: only facts that both sides state are compared.
    let is_external = sides.iter().any(|side| side.is_external);
    let mut keys = each_once(sides.iter().flat_map(|side| &side.texts).map(|(key, _)| key));
    keys.indirect_sort_by_key(|(group, _)| FACT_GROUPS.iter().position(|name| name == group));
    let difference = |key: &FactKey| {
        let [base, other] =
            sides.each_ref().map(|side| Some(&side.texts.iter().find(|(fact_key, _)| fact_key == key)?.1));
        let is_compared = !is_external || base.is_some() && other.is_some();
        let (group, label) = key.clone();
        let [base, other] = match (base, other) {
            _ if base == other || !is_compared => return None,
            (Some(base), Some(other)) if (group.as_str(), label.as_str()) == INSTRUCTION_SETS => {
                [words_only_in(base, other), words_only_in(other, base)]
            }
            (base, other) => [base.cloned(), other.cloned()],
        };
        Some(FactDifference { group, label, base, other })
    };
    // How much longer work took for neighbours on the core comes first.
    let [base, other] = log_slowdowns.map(|slowdown| slowdown.map(|logarithm| percent(logarithm.exp() - 1.0)));
    let neighbours =
        log_slowdowns[0].zip(log_slowdowns[1]).filter(|(base, other)| (base - other).abs() >= MIN_SLOWDOWN_GAP);
    let neighbours =
        neighbours.map(|_| FactDifference { group: "Neighbours".into(), label: "work longer by".into(), base, other });
    let methods = sides[0].versions.iter().filter_map(|(metric, version)| {
        let other_version = sides[1].versions.get(metric).filter(|candidate| *candidate != version)?;
        let [base, other] = [version, other_version].map(|version| Some(format!("version {version}")));
        Some(FactDifference { group: "Methods".into(), label: metric.to_string(), base, other })
    });
    neighbours.into_iter().chain(keys.into_iter().filter_map(difference)).chain(methods).collect()
}

/// The words of a list that another one lacks.
fn words_only_in(list: &str, other: &str) -> Option<String> {
    let words: Vec<&str> =
        list.split(' ').filter(|word| !other.split(' ').any(|other_word| other_word == *word)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// What is known of a side besides its figures.
#[derive(Default)]
pub(super) struct SideFacts {
    /// Facts as texts, in their order.
    texts: Vec<(FactKey, String)>,
    /// The version of the method of each metric.
    versions: BTreeMap<Name, u32>,
    /// Whether kelvin did not measure it.
    is_external: bool,
}

impl SideFacts {
    /// Of runs by their outlines, oldest first.
    pub fn from_runs(outlines: &[&RunHeader]) -> Self {
        let mut facts = Self::default();
        outlines.iter().for_each(|outline| facts.add_machine(&outline.machine));
        outlines.iter().for_each(|outline| facts.add_settings(outline));
        let metrics = outlines.iter().flat_map(|outline| &outline.metrics);
        facts.versions = metrics.map(|metric| (metric.id, metric.version)).collect();
        facts
    }

    /// Of a run that another program made: the command of kelvin does not describe it, and what its file does not state is no difference.
    pub fn from_foreign(outline: &RunHeader) -> Self {
        let mut facts = Self { is_external: true, ..Self::default() };
        facts.add_machine(&outline.machine);
        facts.texts.retain(|(_, text)| *text != "unknown");
        facts
    }

    /// What is published of a machine.
    pub fn from_reference(reference: &Reference) -> Self {
        let mut facts = Self { is_external: true, ..Self::default() };
        reference.machine.iter().for_each(|(label, text)| facts.add("Published", label, text.clone()));
        if let Some(hertz) = reference.frequency_hz {
            facts.add("Published", "Frequency", units::stated_value(hertz, Unit::Hertz, 3));
        }
        facts
    }

    fn add(&mut self, group: &str, label: &str, text: String) {
        let key = (group.to_owned(), label.to_owned());
        match self.texts.iter_mut().find(|(fact_key, _)| *fact_key == key).map(|(_, text)| text) {
            None => self.texts.push((key, text)),
            // Runs of one side that are not alike.
            Some(existing_text) if !existing_text.split(" | ").any(|part| part == text) => {
                *existing_text = format!("{existing_text} | {text}")
            }
            Some(_) => {}
        }
    }

    fn add_machine(&mut self, machine: &Machine) {
        for row in machine.rows() {
            if let Some(text) = row.text.filter(|_| !TRANSIENT_FACTS.contains(&(row.group, row.label.as_str()))) {
                self.add(row.group, &row.label, text);
            }
        }
        for mitigation in machine.cpu.mitigations.get().into_iter().flatten() {
            self.add("Mitigations", &mitigation.vulnerability, mitigation.status.clone());
        }
    }

    fn add_settings(&mut self, outline: &RunHeader) {
        const GROUP: &str = "Run";
        let settings = &outline.settings;
        let yes_no = |is_set: bool| if is_set { "yes" } else { "no" }.to_owned();
        self.add(GROUP, "kelvin", outline.kelvin.clone());
        if let Some(build) = &outline.build {
            build.commit.iter().for_each(|commit| self.add(GROUP, "Commit of kelvin", commit.clone()));
            self.add(GROUP, "Built for", format!("{} ({})", build.target, build.c_library));
            self.add(GROUP, "Compiler of kelvin", build.compiler.clone());
        }
        self.add(GROUP, "Command", outline.command.join(" "));
        self.add(GROUP, "Mode", settings.mode.to_string());
        self.add(GROUP, "CPU", settings.cpu.to_string());
        self.add(GROUP, "Second CPU", settings.partner_cpu.map_or_else(|| "none".into(), |cpu| cpu.to_string()));
        self.add(GROUP, "Canaries", yes_no(settings.canaries));
        self.add(GROUP, "Real-time priority", yes_no(settings.realtime));
        self.add(GROUP, "Target", percent(settings.target));
        self.add(GROUP, "Clock", format!("{:?}", outline.clock.kind));
        for hazard in &outline.hazards {
            // Of an amount of other work, which no two runs have alike, what differs is how serious it is.
            let is_transient = hazard.id.starts_with("pressure_") || TRANSIENT_HAZARDS.contains(&hazard.id.as_str());
            let text = if is_transient { hazard.severity.name().into() } else { hazard.summary.clone() };
            self.add("Hazards", &hazard.id, text);
        }
    }
}
