//! What all CPUs together draw from memory beside one.

use kelvin_core::catalogue::mem::{BANDWIDTH_READ, BYTES, MemoryCpus};

use super::{Consequence, MetricSelector, StandOutAnswer, StandOutContext, StandOutFacts};

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [one, all] = [MemoryCpus::One, MemoryCpus::All]
        .map(|cpus| MetricSelector::new(&BANDWIDTH_READ).with_word(cpus.point()).furthest(BYTES));
    let cpus = seen.run.outline.machine.topology.allowed.get()?.len() as u64;
    let compared = seen.figure_ratio(&one, &all)?;
    let says = StandOutFacts::MemoryShared { one: compared.base, all: compared.other, cpus };
    Some(StandOutAnswer { factor: 1.0, ..compared.into_answer(Consequence::Ability, says) })
}
