//! What all CPUs together draw from memory compared with one.

use kelvin_core::catalogue::mem::{BANDWIDTH_READ, BYTES, MemoryCpus};

use super::*;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [one, all] =
        [MemoryCpus::One, MemoryCpus::All].map(|cpus| select(&BANDWIDTH_READ).with_word(cpus.point()).furthest(BYTES));
    let cpus = seen.evidence.run.header.machine.topology.allowed.get()?.len();
    let compared = seen.figure_ratio(&one, &all)?;
    let together = if cpus == 2 { "both".to_owned() } else { format!("all {cpus}") };
    let [one, all] = [compared.base, compared.other].map(rate_text);
    let text = format!("One CPU reads {one} from memory, {together} together {all}.");
    Some(compared.into_answer(Consequence::Ability, StandOutQuestion::SharedMemoryBandwidth, text).with_factor(1.0))
}
