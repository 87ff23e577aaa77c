//! What the first touch of fresh memory costs, beside memory just freed and huge pages.

use kelvin_core::catalogue::mem::{FAULT_MINOR, FIRST_TOUCH, FaultPage, REPEATED_FIRST_TOUCH};

use super::{
    Consequence, FigureRatio, MeasuredAmount, MetricSelector, StandOutAnswer, StandOutContext, StandOutFacts,
    ratio_of_figures,
};

/// Times the cost in huge pages from which on it stands out.
const MIN_COST_RATIO: f64 = 2.0;
/// Times the cost of memory just freed from which on fresh memory does: less is what colder caches cost.
const MIN_REUSED_COST_RATIO: f64 = 1.2;

/// Bytes of an entry of a page table: a huge page is what one table, itself a page, maps.
const PAGE_TABLE_ENTRY_BYTES: u64 = 8;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let page = *seen.run.outline.machine.memory.page_bytes.get()?;
    let beside_freed =
        seen.figure_ratio(&MetricSelector::new(&REPEATED_FIRST_TOUCH), &MetricSelector::new(&FIRST_TOUCH));
    let beside_freed = beside_freed.filter(|compared| compared.is_above(MIN_REUSED_COST_RATIO));
    let beside_huge = ratio_to_huge(seen, page).filter(|compared| compared.is_above(MIN_COST_RATIO));
    let in_huge = |touch: MeasuredAmount| beside_huge.as_ref().map(|compared| touch.value / compared.base.value);
    match (beside_freed, &beside_huge) {
        (Some(freed), _) => {
            let (touch, again) = (freed.other, Some(freed.base));
            let says = StandOutFacts::FreshMemory { page, touch, again, in_huge: in_huge(touch) };
            Some(freed.into_answer(Consequence::Avoidable, says))
        }
        (None, Some(huge)) => {
            let says =
                StandOutFacts::FreshMemory { page, touch: huge.other, again: None, in_huge: in_huge(huge.other) };
            beside_huge.map(|huge| huge.into_answer(Consequence::Avoidable, says))
        }
        (None, None) => None,
    }
}

/// A fault of a base page beside its share of one of a huge page.
fn ratio_to_huge(seen: &StandOutContext<'_>, page: u64) -> Option<FigureRatio> {
    let huge_page = page * (page / PAGE_TABLE_ENTRY_BYTES);
    let base = seen.rounds(&MetricSelector::new(&FAULT_MINOR).with_word(FaultPage::Anonymous.point()))?;
    let huge = seen.rounds(&MetricSelector::new(&FAULT_MINOR).with_word(FaultPage::Huge.point()))?;
    ratio_of_figures(&huge.scaled(page as f64 / huge_page as f64), &base)
}
