//! Translation of addresses: misses in the TLBs, and the walks through page tables that they cause; in a virtual machine through two
//! sets of tables.

use kelvin_core::catalogue::controlled_causes::ADDRESS_TRANSLATION;
use kelvin_core::catalogue::mem::{BYTES, HUGE_PAGE, LATENCY, PageSize, TLB, TLB_PACKED, TOUCHED_PAGES};
use kelvin_core::{Case, FigureDifference, MetricCase, SkipReason};

use super::cause::{AffectedMetrics, AmountSource, Cause, CauseContext, Mechanism, RoundConditions, at_word};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[at_word(&[&LATENCY], PageSize::Base.point())]),
    mechanisms: &[
        Mechanism::without("huge_pages", "with huge pages", apply_huge_pages),
        Mechanism::new(
            "one line in each of as many pages, less adjacent lines",
            AmountSource::Difference(tlb_difference),
        ),
    ],
    negative_control: |_| MetricCase {
        metric: LATENCY.id,
        case: Case::new().with_word(PageSize::Base).with_number(BYTES, FIRST_TLB_BYTES),
    },
    ..Cause::new(ADDRESS_TRANSLATION.id, ADDRESS_TRANSLATION.description, include_str!("address_translation.md"))
};

/// Bytes whose pages the first TLB of every core holds: 16 entries.
const FIRST_TLB_BYTES: u64 = 32 << 10;
/// Bytes of a base page.
const BASE_PAGE_BYTES: u64 = 4096;
/// Most pages of the second way: their lines are 1 MiB, which the caches that hold their page tables hold too.
const MAX_TOUCHED_PAGES: u64 = 16_384;

fn apply_huge_pages(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let reason = "its working set is smaller than a huge page";
    refuse_if(BYTES.number_in(context.case).is_some_and(|bytes| bytes < HUGE_PAGE), reason)?;
    conditions.case = conditions.case.clone().with_word(PageSize::Huge);
    Ok(())
}

fn tlb_difference(context: &CauseContext<'_>) -> Option<FigureDifference> {
    let pages = (BYTES.number_in(context.case)? / BASE_PAGE_BYTES).clamp(1, MAX_TOUCHED_PAGES);
    let figure = |metric| MetricCase { metric, case: Case::new().with_number(TOUCHED_PAGES, pages) };
    Some(FigureDifference { minuend: figure(TLB.id), subtrahend: figure(TLB_PACKED.id), factor: 1.0 })
}
