//! What the first touch of fresh memory costs, compared with memory just freed and huge pages.

use kelvin_core::catalogue::mem::{FAULT_MINOR, FIRST_TOUCH, FaultPage, REPEATED_FIRST_TOUCH};

use super::*;

/// Times the cost in huge pages from which on it stands out.
const MIN_COST_RATIO: f64 = 2.0;
/// Times the cost of memory just freed from which on fresh memory does: less is what colder caches cost.
const MIN_REUSED_COST_RATIO: f64 = 1.2;
/// Bytes of an entry of a page table: a huge page is what one table, itself a page, maps.
const PAGE_TABLE_ENTRY_BYTES: u64 = 8;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let page = *seen.evidence.run.header.machine.memory.page_bytes.get()?;
    let freed = seen
        .figure_ratio(&select(&REPEATED_FIRST_TOUCH), &select(&FIRST_TOUCH))
        .filter(|compared| compared.is_above(MIN_REUSED_COST_RATIO));
    let fault = |page: FaultPage| seen.rounds(&select(&FAULT_MINOR).with_word(page.point()));
    let huge_page = page * (page / PAGE_TABLE_ENTRY_BYTES);
    let huge = fault(FaultPage::Huge).map(|huge| huge.clone().scaled(page as f64 / huge_page as f64));
    let huge = huge.zip(fault(FaultPage::Anonymous)).and_then(|(huge, base)| FigureRatio::from_rounds(&huge, base));
    let huge = huge.filter(|compared| compared.is_above(MIN_COST_RATIO));
    let touch = freed.as_ref().or(huge.as_ref())?.other;
    let huge_times = huge.as_ref().map(|huge| times_text(touch.value / huge.base.value));
    let first = format!("Fresh memory costs {} a page of {} at first touch", time_text(touch), bytes(page));
    let text = match (freed.as_ref().map(|freed| time_text(freed.base)), huge_times) {
        (Some(again), Some(huge)) => {
            format!("{first}, memory just freed {again}; huge pages are {huge} times cheaper.")
        }
        (Some(again), None) => format!("{first}, memory just freed only {again}."),
        (None, Some(huge)) => format!("{first}, {huge} times as much as in huge pages."),
        (None, None) => return None,
    };
    Some(freed.or(huge)?.into_answer(Consequence::Avoidable, StandOutQuestion::FreshMemory, text))
}
