//! What differs between two sides besides their figures: machine, kernel, mitigations, settings, methods.

use std::collections::BTreeMap;

use kelvin_model::units::percent;
use kelvin_model::{FactDiffers, Hazard, Machine, Outline, Reference, Unit, units};

use super::series::versions;

/// Facts that differ from run to run of any machine, or that are told elsewhere: the memory that is free, a frequency that is measured. A chassis
/// goes with the product, and runs of earlier versions do not have it.
const OF_THE_MOMENT: [(&str, &str); 4] =
    [("Memory", "Available"), ("CPU", "Measured frequency"), ("CPU", "Mitigations"), ("Platform", "Chassis")];
/// A fact that is a list: only what one side alone has is told.
const INSTRUCTION_SETS: (&str, &str) = ("CPU", "Instruction sets");

/// Groups of facts, in their order: first what changes most figures.
const GROUPS: [&str; 13] = [
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
const SLOWED_APART: f64 = 0.05;

/// Group and label of a fact.
type Which = (String, String);

/// What is known of a side besides its figures.
#[derive(Clone, Debug)]
pub(super) enum Known<'a> {
    /// The outlines of its runs, oldest first.
    Runs(Vec<&'a Outline>),
    /// What is published of a machine.
    Published(&'a Reference),
    /// The outline of a run that another program made.
    Foreign(&'a Outline),
}

impl Known<'_> {
    fn outlines(&self) -> &[&Outline] {
        match self {
            Self::Runs(outlines) => outlines,
            Self::Published(_) | Self::Foreign(_) => &[],
        }
    }
}

/// What differs between two runs besides their figures, by their outlines: the machine first, then how kelvin was called, and versions
/// of methods.
pub fn what_differs(base: &Outline, other: &Outline) -> Vec<FactDiffers> {
    between(&[base, other].map(|outline| Known::Runs(vec![outline])), [None; 2])
}

/// What differs: what others on the core did, the machine, and how kelvin was called. `slowed` is how much longer work took on each side than
/// on the core left alone, as a logarithm.
pub(super) fn between(sides: &[Known<'_>; 2], slowed: [Option<f64>; 2]) -> Vec<FactDiffers> {
    let facts = sides.each_ref().map(|side| match side {
        Known::Runs(outlines) => of_runs(outlines),
        Known::Published(reference) => of_reference(reference),
        Known::Foreign(outline) => of_foreign(outline),
    });
    // Of a published machine little is known: what it says is told beside what the run says of the same.
    let is_published = sides.iter().any(|side| !matches!(side, Known::Runs(_)));
    let mut which: Vec<&Which> = Vec::new();
    for fact in facts.iter().flat_map(|facts| &facts.order) {
        if !which.contains(&fact) {
            which.push(fact);
        }
    }
    which.sort_by_key(|(group, _)| GROUPS.iter().position(|known| known == group));
    let of = |which: &Which| {
        let [base, other] = [0, 1].map(|side| facts[side].texts.get(which));
        let is_told = if is_published { base.is_some() && other.is_some() } else { true };
        (base != other && is_told).then(|| differing(which, [base.cloned(), other.cloned()]))
    };
    let mut found: Vec<FactDiffers> = which.into_iter().filter_map(of).collect();
    found.splice(0..0, neighbours(slowed));
    let version = |version: u32| Some(format!("version {version}"));
    found.extend(versions(sides.each_ref().map(Known::outlines)).into_iter().map(|(metric, [base, other])| {
        FactDiffers { group: "Methods".into(), label: metric.to_string(), base: version(base), other: version(other) }
    }));
    found
}

/// How much longer work took for neighbours on the core, where that differs.
fn neighbours(slowed: [Option<f64>; 2]) -> Option<FactDiffers> {
    let [base, other] = [slowed[0]?, slowed[1]?];
    let text = |slowed: f64| Some(percent(slowed.exp() - 1.0));
    ((base - other).abs() >= SLOWED_APART).then(|| FactDiffers {
        group: "Neighbours".into(),
        label: "work longer by".into(),
        base: text(base),
        other: text(other),
    })
}

fn differing((group, label): &Which, [base, other]: [Option<String>; 2]) -> FactDiffers {
    let [base, other] = match (base, other) {
        (Some(base), Some(other)) if is(INSTRUCTION_SETS, group, label) => [only(&base, &other), only(&other, &base)],
        sides => sides.into(),
    };
    FactDiffers { group: group.clone(), label: label.clone(), base, other }
}

fn is((group, label): (&str, &str), of: &str, named: &str) -> bool {
    of == group && named == label
}

/// The words of a list that another one lacks.
fn only(list: &str, other: &str) -> Option<String> {
    let words: Vec<&str> = list.split(' ').filter(|word| !other.split(' ').any(|known| known == *word)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Facts as texts, in their order.
#[derive(Default)]
struct Facts {
    order: Vec<Which>,
    texts: BTreeMap<Which, String>,
}

impl Facts {
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

fn of_runs(outlines: &[&Outline]) -> Facts {
    let mut facts = Facts::default();
    for outline in outlines {
        of_machine(&outline.machine, &mut facts);
    }
    for outline in outlines {
        of_settings(outline, &mut facts);
    }
    facts
}

fn of_machine(machine: &Machine, facts: &mut Facts) {
    for row in machine.rows() {
        if OF_THE_MOMENT.iter().any(|&fact| is(fact, row.group, &row.label)) {
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

fn of_settings(outline: &Outline, facts: &mut Facts) {
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
            if is_of_the_moment(hazard) { hazard.severity.name().into() } else { hazard.summary.clone() },
        );
    }
}

/// Whether a hazard is an amount of other work, which no two runs have alike: what differs is how serious it is.
fn is_of_the_moment(hazard: &Hazard) -> bool {
    hazard.id.starts_with("pressure_") || ["load", "other_work", "steal", "steal_during"].contains(&hazard.id.as_str())
}

/// What a foreign run tells of its machine; how kelvin was called says nothing of it.
fn of_foreign(outline: &Outline) -> Facts {
    let mut facts = Facts::default();
    of_machine(&outline.machine, &mut facts);
    // What its file does not tell is no difference.
    facts.texts.retain(|_, text| *text != "unknown");
    facts
}

/// What a published machine tells, under the labels of a run's facts where they mean the same.
fn of_reference(reference: &Reference) -> Facts {
    let mut facts = Facts::default();
    for (label, text) in &reference.machine {
        facts.add("Published", label, text.clone());
    }
    if let Some(hertz) = reference.frequency_hz {
        facts.add("Published", "Frequency", units::stated(hertz, Unit::Hertz, 3));
    }
    facts
}
