//! What differs between two sides besides their figures: machine, kernel, mitigations, settings, methods.

use std::collections::BTreeMap;

use kelvin_core::units::percent;
use kelvin_core::{FactDifference, Hazard, Machine, Reference, RunHeader, Unit, units};

use super::series::changed_versions;

/// Facts that differ from run to run of any machine, or that are told elsewhere: the memory that is free, a frequency that is measured. A chassis
/// goes with the product, and runs of earlier versions do not have it.
const TRANSIENT_FACTS: [(&str, &str); 4] =
    [("Memory", "Available"), ("CPU", "Measured frequency"), ("CPU", "Mitigations"), ("Platform", "Chassis")];
/// A fact that is a list: only what one side alone has is told.
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

/// How far apart two sides must be in what neighbours took, as a logarithm, to be told: less differs from run to run of any busy host.
const MIN_SLOWDOWN_GAP: f64 = 0.05;

/// Group and label of a fact.
type FactKey = (String, String);

/// What is known of a side besides its figures.
#[derive(Clone, Debug)]
pub(super) enum SideFacts<'a> {
    /// The outlines of its runs, oldest first.
    Runs(Vec<&'a RunHeader>),
    /// What is published of a machine.
    Published(&'a Reference),
    /// The outline of a run that another program made.
    Foreign(&'a RunHeader),
}

impl SideFacts<'_> {
    fn outlines(&self) -> &[&RunHeader] {
        match self {
            Self::Runs(outlines) => outlines,
            Self::Published(_) | Self::Foreign(_) => &[],
        }
    }
}

/// What differs between two runs besides their figures, by their outlines: the machine first, then how kelvin was called, and versions
/// of methods.
pub fn fact_differences(base: &RunHeader, other: &RunHeader) -> Vec<FactDifference> {
    differences_between(&[base, other].map(|outline| SideFacts::Runs(vec![outline])), [None; 2])
}

/// What differs: what others on the core did, the machine, and how kelvin was called. `slowed` is how much longer work took on each side than
/// on the core left alone, as a logarithm.
pub(super) fn differences_between(sides: &[SideFacts<'_>; 2], slowed: [Option<f64>; 2]) -> Vec<FactDifference> {
    let facts = sides.each_ref().map(|side| match side {
        SideFacts::Runs(outlines) => run_facts(outlines),
        SideFacts::Published(reference) => reference_facts(reference),
        SideFacts::Foreign(outline) => foreign_facts(outline),
    });
    // Of a published machine little is known: what it says is told beside what the run says of the same.
    let is_published = sides.iter().any(|side| !matches!(side, SideFacts::Runs(_)));
    let mut which: Vec<&FactKey> = Vec::new();
    for fact in facts.iter().flat_map(|facts| &facts.order) {
        if !which.contains(&fact) {
            which.push(fact);
        }
    }
    which.sort_by_key(|(group, _)| FACT_GROUPS.iter().position(|known| known == group));
    let of = |which: &FactKey| {
        let [base, other] = [0, 1].map(|side| facts[side].texts.get(which));
        let is_told = if is_published { base.is_some() && other.is_some() } else { true };
        (base != other && is_told).then(|| fact_difference(which, [base.cloned(), other.cloned()]))
    };
    let mut found: Vec<FactDifference> = which.into_iter().filter_map(of).collect();
    found.splice(0..0, neighbour_difference(slowed));
    let version = |version: u32| Some(format!("version {version}"));
    found.extend(changed_versions(sides.each_ref().map(SideFacts::outlines)).into_iter().map(
        |(metric, [base, other])| FactDifference {
            group: "Methods".into(),
            label: metric.to_string(),
            base: version(base),
            other: version(other),
        },
    ));
    found
}

/// How much longer work took for neighbours on the core, where that differs.
fn neighbour_difference(slowed: [Option<f64>; 2]) -> Option<FactDifference> {
    let [base, other] = [slowed[0]?, slowed[1]?];
    let text = |slowed: f64| Some(percent(slowed.exp() - 1.0));
    ((base - other).abs() >= MIN_SLOWDOWN_GAP).then(|| FactDifference {
        group: "Neighbours".into(),
        label: "work longer by".into(),
        base: text(base),
        other: text(other),
    })
}

fn fact_difference((group, label): &FactKey, [base, other]: [Option<String>; 2]) -> FactDifference {
    let [base, other] = match (base, other) {
        (Some(base), Some(other)) if is_fact(INSTRUCTION_SETS, group, label) => {
            [words_only_in(&base, &other), words_only_in(&other, &base)]
        }
        sides => sides.into(),
    };
    FactDifference { group: group.clone(), label: label.clone(), base, other }
}

fn is_fact((group, label): (&str, &str), of: &str, named: &str) -> bool {
    of == group && named == label
}

/// The words of a list that another one lacks.
fn words_only_in(list: &str, other: &str) -> Option<String> {
    let words: Vec<&str> = list.split(' ').filter(|word| !other.split(' ').any(|known| known == *word)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Facts as texts, in their order.
#[derive(Default)]
struct FactTexts {
    order: Vec<FactKey>,
    texts: BTreeMap<FactKey, String>,
}

impl FactTexts {
    fn add(&mut self, group: &str, label: &str, text: String) {
        let which = (group.to_owned(), label.to_owned());
        match self.texts.get_mut(&which) {
            None => {
                self.order.push(which.clone());
                self.texts.insert(which, text);
            }
            // Runs of one side that are not alike.
            Some(known) if !known.split(" | ").any(|one| one == text) => *known = format!("{known} | {text}"),
            Some(_) => {}
        }
    }
}

fn run_facts(outlines: &[&RunHeader]) -> FactTexts {
    let mut facts = FactTexts::default();
    for outline in outlines {
        add_machine_facts(&outline.machine, &mut facts);
    }
    for outline in outlines {
        add_setting_facts(outline, &mut facts);
    }
    facts
}

fn add_machine_facts(machine: &Machine, facts: &mut FactTexts) {
    for row in machine.rows() {
        if TRANSIENT_FACTS.iter().any(|&fact| is_fact(fact, row.group, &row.label)) {
            continue;
        }
        if let Some(text) = row.text {
            facts.add(row.group, &row.label, text);
        }
    }
    for one in machine.cpu.mitigations.get().into_iter().flatten() {
        facts.add("Mitigations", &one.vulnerability, one.status.clone());
    }
}

fn add_setting_facts(outline: &RunHeader, facts: &mut FactTexts) {
    const GROUP: &str = "Run";
    let settings = &outline.settings;
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    facts.add(GROUP, "kelvin", outline.kelvin.clone());
    facts.add(GROUP, "Command", outline.command.join(" "));
    facts.add(GROUP, "Mode", settings.mode.to_string());
    facts.add(GROUP, "CPU", settings.cpu.to_string());
    facts.add(GROUP, "Second CPU", settings.partner_cpu.map_or_else(|| "none".into(), |cpu| cpu.to_string()));
    facts.add(GROUP, "Canaries", yes_no(settings.canaries));
    facts.add(GROUP, "Real-time priority", yes_no(settings.realtime));
    facts.add(GROUP, "Target", percent(settings.target));
    facts.add(GROUP, "Clock", format!("{:?}", outline.clock.kind));
    for hazard in &outline.hazards {
        facts.add(
            "Hazards",
            &hazard.id,
            if is_transient(hazard) { hazard.severity.name().into() } else { hazard.summary.clone() },
        );
    }
}

/// Whether a hazard is an amount of other work, which no two runs have alike: what differs is how serious it is.
fn is_transient(hazard: &Hazard) -> bool {
    hazard.id.starts_with("pressure_") || ["load", "other_work", "steal", "steal_during"].contains(&hazard.id.as_str())
}

/// What a foreign run tells of its machine; how kelvin was called says nothing of it.
fn foreign_facts(outline: &RunHeader) -> FactTexts {
    let mut facts = FactTexts::default();
    add_machine_facts(&outline.machine, &mut facts);
    // What its file does not tell is no difference.
    facts.texts.retain(|_, text| *text != "unknown");
    facts
}

/// What a published machine tells, under the labels of a run's facts where they mean the same.
fn reference_facts(reference: &Reference) -> FactTexts {
    let mut facts = FactTexts::default();
    for (label, text) in &reference.machine {
        facts.add("Published", label, text.clone());
    }
    if let Some(hertz) = reference.frequency_hz {
        facts.add("Published", "Frequency", units::stated_value(hertz, Unit::Hertz, 3));
    }
    facts
}
