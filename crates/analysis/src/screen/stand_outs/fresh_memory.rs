//! What the first touch of fresh memory costs, beside memory just freed and huge pages.

use kelvin_catalogue::mem::{FAULT_MINOR, FIRST_TOUCH, FIRST_TOUCH_AGAIN, FaultPage};

use super::{Amount, Answer, Compared, Says, Seen, Spot, Weight, compared};

/// Times the cost in huge pages from which on it stands out.
const LEAST: f64 = 2.0;
/// Times the cost of memory just freed from which on fresh memory does: less is what colder caches cost.
const LEAST_AGAIN: f64 = 1.2;

/// Bytes of an entry of a page table: a huge page is what one table, itself a page, maps.
const ENTRY: u64 = 8;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let page = *seen.run.outline.machine.memory.page_bytes.get()?;
    let beside_freed = seen.compare(&Spot::new(&FIRST_TOUCH_AGAIN), &Spot::new(&FIRST_TOUCH));
    let beside_freed = beside_freed.filter(|compared| compared.is_above(LEAST_AGAIN));
    let beside_huge = beside_huge(seen, page).filter(|compared| compared.is_above(LEAST));
    let in_huge = |touch: Amount| beside_huge.as_ref().map(|compared| touch.value / compared.base.value);
    match (beside_freed, &beside_huge) {
        (Some(freed), _) => {
            let (touch, again) = (freed.other, Some(freed.base));
            let says = Says::FreshMemory { page, touch, again, in_huge: in_huge(touch) };
            Some(freed.answer(Weight::Avoidable, says))
        }
        (None, Some(huge)) => {
            let says = Says::FreshMemory { page, touch: huge.other, again: None, in_huge: in_huge(huge.other) };
            beside_huge.map(|huge| huge.answer(Weight::Avoidable, says))
        }
        (None, None) => None,
    }
}

/// A fault of a base page beside its share of one of a huge page.
fn beside_huge(seen: &Seen<'_>, page: u64) -> Option<Compared> {
    let huge_page = page * (page / ENTRY);
    let base = seen.rounds(&Spot::new(&FAULT_MINOR).at(FaultPage::Anonymous.point()))?;
    let huge = seen.rounds(&Spot::new(&FAULT_MINOR).at(FaultPage::Huge.point()))?;
    compared(&huge.times(page as f64 / huge_page as f64), &base)
}
