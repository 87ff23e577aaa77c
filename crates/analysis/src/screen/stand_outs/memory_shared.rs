//! What all CPUs together draw from memory beside one.

use kelvin_catalogue::mem::{BANDWIDTH_READ, BYTES, Cpus};

use super::{Answer, Says, Seen, Spot, Weight};

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let [one, all] = [Cpus::One, Cpus::All].map(|cpus| Spot::new(&BANDWIDTH_READ).at(cpus.point()).furthest(BYTES));
    let cpus = seen.run.outline.machine.topology.allowed.get()?.len() as u64;
    let compared = seen.compare(&one, &all)?;
    let says = Says::MemoryShared { one: compared.base, all: compared.other, cpus };
    Some(Answer { factor: 1.0, ..compared.answer(Weight::Ability, says) })
}
