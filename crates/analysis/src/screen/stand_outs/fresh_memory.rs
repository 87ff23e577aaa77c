//! What the first touch of fresh memory costs in base pages beside huge ones.

use kelvin_catalogue::mem::{FAULT_MINOR, FaultPage};

use super::{Answer, Says, Seen, Spot, Weight, compared};

/// Times the cost in huge pages from which on it stands out.
const LEAST: f64 = 2.0;

/// Bytes of an entry of a page table: a huge page is what one table, itself a page, maps.
const ENTRY: u64 = 8;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let page = *seen.run.outline.machine.memory.page_bytes.get()?;
    let huge_page = page * (page / ENTRY);
    let base = seen.rounds(&Spot::new(&FAULT_MINOR).at(FaultPage::Anonymous.point()))?;
    let huge = seen.rounds(&Spot::new(&FAULT_MINOR).at(FaultPage::Huge.point()))?;
    let compared = compared(&huge.times(page as f64 / huge_page as f64), &base)?;
    let says = Says::FreshMemory { page, touch: compared.other, times: compared.ratio.value };
    compared.is_above(LEAST).then(|| compared.answer(Weight::Avoidable, says))
}
